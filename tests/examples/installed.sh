#!/bin/sh
# examples/engine.c builds against the installed library by pkg-config, as do the programs of the READMEs in lib/; every installed
# header is whole; and the programs say what `quire generate` and the READMEs say.
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
for header in "$to"/include/quire/*.h "$to"/include/quire/*/*.h; do
    printf '#include "%s"\n' "${header#"$to/include/quire/"}" | ${CC:-cc} -std=c17 -D_GNU_SOURCE -fsyntax-only -x c - -I"$to/include/quire"
done
# shellcheck disable=SC2086
${CC:-cc} -std=gnu17 -O2 -Wall examples/engine.c $flags -o "$to/example"
for program in "$build"/tests/readme_*.c; do
    # shellcheck disable=SC2086
    ${CC:-cc} -std=gnu17 -O2 -Wall "$program" $flags -o "$to/program"
    tests/tools/readme_program.sh "${program%.c}.text" "$to/program"
done
"$python" tests/examples/test_engine.py "$to/example" "$build/quire"
