#!/bin/sh
# examples/engine.c builds against the installed library by pkg-config, every installed header is whole, and the program says what
# `quire generate` says.
#
#   installed.sh CMAKE BUILD PYTHON
set -eu
cd "$(dirname "$0")/../.."
cmake=$1 build=$2 python=$3
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
"$cmake" --install "$build" --prefix "$to" --component devel >/dev/null
export PKG_CONFIG_PATH="$to/lib/pkgconfig"
flags=$(pkg-config --cflags --libs quire)
for header in "$to"/include/quire/*.h; do
    printf '#include "%s"\n' "${header##*/}" | ${CC:-cc} -std=c17 -D_GNU_SOURCE -fsyntax-only -x c - -I"$to/include/quire"
done
# shellcheck disable=SC2086
${CC:-cc} -std=gnu17 -O2 -Wall examples/engine.c $flags -o "$to/example"
"$python" tests/examples/test_engine.py "$to/example" "$build/quire"
