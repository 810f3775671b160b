#!/bin/sh
# Tells a proxy which replicas of replicas.sbatch there are. Writes FILE from the URLs in FOLDER, and whenever these have changed runs
# COMMAND, until it is stopped. FILE has the `server` lines of nginx's upstream, or HAProxy's backend `quire`.
#
#   servers.sh nginx|haproxy FOLDER FILE COMMAND…      servers.sh nginx replicas servers.conf nginx -s reload
set -eu
[ $# -ge 4 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
proxy=$1 folder=$2 file=$3
shift 3
begin() {
    case $proxy in
    nginx) ;;
    haproxy) printf '%s\n' 'backend quire' '    option httpchk GET /readyz' '    option redispatch 1' \
        '    retry-on conn-failure empty-response 503' ;;
    *) echo "servers.sh: nginx or haproxy, found '$proxy'" >&2; exit 2 ;;
    esac
}
server() { # NAME HOST:PORT
    case $proxy in
    nginx) echo "server $2 max_fails=0;" ;;
    haproxy) echo "    server $1 $2 check inter 300ms fall 1 rise 1" ;;
    esac
}
while :; do
    begin >"$file.new"
    for replica in "$folder"/*; do
        url=$(cat "$replica" 2>/dev/null) || continue # there is none, or it has just gone
        server "${replica##*/}" "${url#*://}" >>"$file.new"
    done
    cmp -s "$file.new" "$file" || { mv "$file.new" "$file"; "$@" || echo "servers.sh: '$*' failed" >&2; }
    sleep 1
done
