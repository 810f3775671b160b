#!/bin/sh
# One model in several processes: serve.sh PROCESSES [-- mpirun's options --] MODEL [FLAGS of quire serve]
# SIGTERM and Ctrl-C drain and end it with 0; a failure ends it with another code: start it again then.
set -u
processes=${1:?usage: serve.sh PROCESSES [-- MPIRUN-OPTIONS --] [MODEL] [FLAGS]}
shift
options=
if [ "${1:-}" = -- ]; then
    shift
    while [ "${1:-}" != -- ]; do
        options="$options ${1:?a second -- is missing}"
        shift
    done
    shift
fi
# 12 s: so that clients are answered when a process has died (docs/distributed.md).
# shellcheck disable=SC2086
setsid mpirun -np "$processes" --mca odls_base_sigkill_timeout 12 $options "${QUIRE:-quire}" serve "$@" &
mpirun=$!
told=
trap 'told=1; kill -USR1 $mpirun 2>/dev/null' TERM INT
while :; do
    wait "$mpirun"
    code=$?
    # A wait that a signal cut short is not the end.
    kill -0 "$mpirun" 2>/dev/null || break
done
[ -n "$told" ] && [ "$code" -gt 128 ] && { wait "$mpirun"; code=$?; }
exit "$code"
