#!/usr/bin/env bash
# Whether the packages are as they should be: lintian has no error, a second build has the same bytes, and what is in them serves.
#
#   packaging/check.sh BUILD      BUILD/out has the packages
set -euo pipefail
build=$(realpath "$1")
version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")/\1/p' "$build/CPackConfig.cmake")
root=$(mktemp -d)
trap 'kill %1 2>/dev/null || true; rm -rf "$root"' EXIT

(cd "$build" && cpack -B "$root/again" >/dev/null 2>&1)
for package in "$build"/out/*.deb; do
    cmp "$package" "$root/again/${package##*/}"
    printf '%s  %s bytes\n' "${package##*/}" "$(stat -c %s "$package")"
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
begin=$(date +%s%N)
"$root/usr/bin/quire" serve --config "$root/etc/quire/quire.conf" 2>"$root/log" &
until url=$(sed -n 's/^listening on //p' "$root/log") && [ -n "$url" ]; do sleep 0.01; done
"$root/usr/bin/quire" health "$url"
echo "ready after $((($(date +%s%N) - begin) / 1000000)) ms"
"$root/usr/bin/quire-bench" --base-url "$url" --num-prompts 4 >/dev/null 2>"$root/bench" || { cat "$root/bench"; exit 1; }
kill %1
wait %1

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
