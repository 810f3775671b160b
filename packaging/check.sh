#!/usr/bin/env bash
# Whether the packages, the tarball and the wheel are as they should be: lintian has no error, packed again they have the same bytes,
# and what is in them serves and says the same.
#
#   packaging/check.sh BUILD      BUILD/out has them; after packaging/portable.sh
set -euo pipefail
here=$(realpath "$(dirname "$0")")
build=$(realpath "$1")
version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")/\1/p' "$build/CPackConfig.cmake")
root=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null || true; rm -rf "$root"' EXIT

(cd "$build" && cpack -B "$root/again" >/dev/null 2>&1)
"$here/portable.sh" "$(uname -m)" "$root/again" >/dev/null
for file in "$build"/out/*"$version"*; do
    case $file in *-linux-* | *manylinux*) [[ $file == *$(uname -m)* ]] || continue ;; esac # another processor's
    cmp "$file" "$root/again/${file##*/}"
    printf '%s  %s bytes\n' "${file##*/}" "$(stat -c %s "$file")"
done
if command -v lintian >/dev/null; then
    lintian --fail-on error "$build"/out/*.deb
else
    echo "lintian is not installed: not asked"
fi

for package in quire quire-bench; do
    dpkg-deb -x "$build/out/${package}_${version}_"*.deb "$root"
done
unit=$root/usr/lib/systemd/system/quire.service
if command -v systemd-analyze >/dev/null; then
    systemd-analyze security --offline=yes "$unit" | tail -1
fi
sed -i "s/^port: .*/port: 0/" "$root/etc/quire/quire.conf"
serves() { # NAME COMMAND…      it is healthy, answers, and ends with 0
    local name=$1 url begin
    shift
    : >"$root/log"
    begin=$(date +%s%N)
    "$@" 2>"$root/log" &
    pid=$!
    until url=$(sed -n 's/^listening on //p' "$root/log") && [ -n "$url" ]; do
        kill -0 $pid 2>/dev/null || { cat "$root/log"; exit 1; }
        sleep 0.01
    done
    "$root/usr/bin/quire" health "$url"
    echo "$name: ready after $((($(date +%s%N) - begin) / 1000000)) ms"
    "$root/usr/bin/quire-bench" --base-url "$url" --num-prompts 4 >/dev/null 2>"$root/bench" || { cat "$root/bench"; exit 1; }
    kill $pid
    wait $pid
    pid=
}
says() { # COMMAND…      tokens and log-probabilities
    "$@" generate --raw -p 'Once upon a time' -n 24 --temperature 0.8 --seed 7 --json | sed 's/"timings".*//'
}
serves package "$root/usr/bin/quire" serve --config "$root/etc/quire/quire.conf"
says "$root/usr/bin/quire" >"$root/said"
grep -q '"logprob":-' "$root/said"

mkdir "$root/tarball"
tar -xf "$build/out/quire-$version-linux-$(uname -m).tar.gz" -C "$root/tarball" --strip-components=1
glibc=$(echo "$here/../build/portable-$(uname -m)/root/lib/"*/libc-2*.so) # Debian 11's
older=("${glibc%/*}/${glibc/#*libc-/ld-}" --library-path "${glibc%/*}" "$root/tarball/bin/quire")
serves "tarball, ${glibc##*/}" "${older[@]}" serve --port 0
says "${older[@]}" | cmp "$root/said" -

python3 -m venv "$root/venv"
"$root/venv/bin/pip" install -q --no-index --disable-pip-version-check "$build/out/quire_server-$version-"*"_$(uname -m).whl"
serves wheel "$root/venv/bin/quire" serve --port 0
says "$root/venv/bin/quire" | cmp "$root/said" -
cmp "$root/venv/bin/quire-bench" "$root/tarball/bin/quire-bench"

# shellcheck disable=SC1091  # completes commands, flags, and words of flags
. "$root/usr/share/bash-completion/completions/quire"
PATH=$root/usr/bin:$PATH
complete_to() { # WORD… what is offered for the last
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _quire "$1"
    echo "${COMPREPLY[*]}"
}
[ "$(complete_to quire ser)" = serve ]
[ "$(complete_to quire serve --log-for)" = --log-format ]
[ "$(complete_to quire serve --log-format j)" = json ]
[ "$(complete_to quire-bench --num-pro)" = --num-prompts ]
echo "completion works"
