#!/bin/sh
# server -> scheduler -> engine -> kernels: no library calls one above it.
# usage: layers.sh libkernels.a libengine.a libservice.a [libserver.a]   from the bottom up
set -eu
failed=0
while [ $# -gt 1 ]; do
    lib=$1
    shift
    wanted=$(nm -u "$lib" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u)
    for above in "$@"; do
        given=$(nm --defined-only -g "$above" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u)
        both=$(printf '%s\n%s\n' "$wanted" "$given" | sort | uniq -d | grep -v '^__' || true)
        if [ -n "$both" ]; then
            echo "$(basename "$lib") calls $(basename "$above"):" $both
            failed=1
        fi
    done
done
echo "$((1 - failed)) passed, $failed failed"
exit $failed
