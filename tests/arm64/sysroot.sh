#!/usr/bin/env bash
# Fetches Debian's arm64 libraries that the server and its tests need and unpacks them into FOLDER. apt runs with folders of
# its own, so that the host learns of no other architecture; needs no root.
#
#   tests/arm64/sysroot.sh FOLDER
set -euo pipefail
root=$(realpath -m "$1")
packages=(libc6-dev libmicrohttpd-dev libgnutls28-dev libjansson-dev libuv1-dev libpcre2-dev libutf8proc-dev libcmocka-dev)
[ "$(cat "$root/packages" 2>/dev/null)" != "${packages[*]}" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # as root, apt fetches as another user
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false
     -o "Dir::State=$work/state" -o "Dir::State::status=$work/status" -o "Dir::Cache=$work/cache")
"${apt[@]}" update >"$work/log"
"${apt[@]}" -y --download-only install "${packages[@]}" >>"$work/log" || { tail "$work/log" >&2; exit 1; }
rm -rf "$root"
mkdir -p "$root"
for deb in "$work"/cache/archives/*.deb; do
    dpkg-deb -x "$deb" "$root"
done
echo "${packages[*]}" >"$root/packages"
