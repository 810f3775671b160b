#!/usr/bin/env bash
# The package under a real systemd: a bare Debian 12 in a container installs it, starts the service, asks it, reloads, kills and
# stops it. As root, with debootstrap and systemd-container.
#
#   packaging/boot.sh DEB
#
#   DEBIAN_MIRROR   default http://deb.debian.org/debian
set -euo pipefail
deb=$(realpath "$1")
root=$(mktemp -d)
chmod 755 "$root" # it is /, also for those who are not root
leader=
finish() {
    [ -z "$leader" ] || kill -KILL "$leader" 2>/dev/null || true
    sleep 1
    rm -rf "$root"
}
trap finish EXIT

mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$root" "$mirror" >"$root.log" 2>&1 || { tail "$root.log"; exit 1; }
cp "$deb" "$root/quire.deb"
chroot "$root" apt-get install -y -q /quire.deb >"$root.log" 2>&1 || { tail "$root.log"; exit 1; }
chroot "$root" systemctl -q enable quire
systemd-nspawn -q --register=no --keep-unit -D "$root" -b --private-network >"$root.log" 2>&1 </dev/null &
nspawn=$!
inside() { nsenter -t "$leader" -m -p -n -u -i "$@"; }
property() { inside systemctl show quire -p "$1" --value; }
until leader=$(pgrep -P "$nspawn" -x systemd) && [ "$(property ActiveState)" = active ]; do
    kill -0 "$nspawn"
    [ "$((n = ${n:-0} + 1))" -lt 600 ] || { echo "boot.sh: the service did not start"; inside journalctl --no-pager -u quire | tail; exit 1; }
    sleep 0.1
done
echo "ready $((($(property ActiveEnterTimestampMonotonic) - $(property InactiveExitTimestampMonotonic)) / 1000)) ms after systemd started it"
inside quire health http://127.0.0.1:8000
inside systemctl reload quire
[ "$(property ActiveState) $(property NRestarts)" = "active 0" ] || { echo "boot.sh: a reload ended it"; exit 1; }
first=$(property MainPID)
inside systemctl kill -s KILL quire 2>/dev/null
until [ "$(property NRestarts)" = 1 ] && [ "$(property ActiveState)" = active ]; do sleep 0.2; done
[ "$(property MainPID)" != "$first" ]
inside quire health http://127.0.0.1:8000
inside systemctl stop quire
[ "$(property Result)" = success ] || { echo "boot.sh: it did not stop well"; exit 1; }
inside systemd-analyze security quire | tail -1
rm -f "$root.log"
