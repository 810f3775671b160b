#!/bin/sh
# The build id of the binary is that of the sources here, wherever they lie and in whatever order they are named; it differs
# if a byte or a name differs.
# usage: build_id.sh CMAKE QUIRE
set -eu
cmake=$1 quire=$(realpath "$2")
root=$(realpath "$(dirname "$0")/..")
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
folders="base include lib kernels engine scheduler server"
# shellcheck disable=SC2086
(cd "$root" && tar -cf - CMakeLists.txt $folders) | tar -xf - -C "$copy"
names() {
    # shellcheck disable=SC2086
    (cd "$copy" && find $folders -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cmake' \
        -o -name CMakeLists.txt \) && echo CMakeLists.txt) | LC_ALL=C sort
}
made() { # FILES
    "$cmake" -DROOT="$copy" -DOUT="$copy/out" -DFILES="$1" -P "$root/base/build_id.cmake"
    sed -n 's/^const char build_id\[\] = "\([0-9a-f]\{16\}\)";$/\1/p' "$copy/out"
}
failed=0 passed=0
check() { # WHAT FOUND WANT
    if [ -n "$2" ] && [ "$2" = "$3" ]; then passed=$((passed + 1)); else echo "$1: $2, not $3"; failed=$((failed + 1)); fi
}
differs() { # WHAT FOUND
    if [ -n "$2" ] && [ "$2" != "$same" ]; then passed=$((passed + 1)); else echo "$1: still $2"; failed=$((failed + 1)); fi
}
same=$(made "$(names | tr '\n' ' ')")
check "the binary's" "$("$quire" --version | sed -n 's/.*(sources \(.*\))$/\1/p')" "$same"
check "in another order" "$(made "$(names | LC_ALL=C sort -r | tr '\n' ' ')")" "$same"
check "by hand" "$(cd "$copy" && names | xargs sha256sum | sha256sum | cut -c 1-16)" "$same"
printf '\n' >>"$copy/kernels/cuda/attn.cuh"
differs "a byte more" "$(made "$(names | tr '\n' ' ')")"
cp "$root/kernels/cuda/attn.cuh" "$copy/kernels/cuda/"
check "the byte less" "$(made "$(names | tr '\n' ' ')")" "$same"
mv "$copy/engine/ranks/workers.c" "$copy/engine/followed.c"
differs "another name" "$(made "$(names | tr '\n' ' ')")"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
