#!/bin/sh
# One model in several processes: serve.sh PROCESSES [-- mpirun's options --] MODEL [FLAGS of quire serve]
# SIGTERM and Ctrl-C drain and end it with 0. A group that fails is started again after QUIRE_RESTART_PAUSE seconds
# (2); only what is refused within a minute of the first start (a wrong flag, no such file, a taken port) ends it,
# with the code of quire.
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
pause=${QUIRE_RESTART_PAUSE:-2}
told= mpirun= starts=0
trap 'told=1; [ -z "$mpirun" ] || kill -USR1 "$mpirun" 2>/dev/null' TERM INT
began=$(date +%s)
while [ -z "$told" ]; do
    # 5 s, and as many again: time to answer clients when a process has died (docs/distributed.md).
    # shellcheck disable=SC2086
    setsid mpirun -np "$processes" --mca odls_base_sigkill_timeout 5 $options "${QUIRE:-quire}" serve "$@" &
    mpirun=$!
    starts=$((starts + 1))
    [ -z "$told" ] || kill -USR1 "$mpirun" # told just now
    while :; do
        wait "$mpirun"
        code=$?
        # A wait that a signal cut short is not the end.
        kill -0 "$mpirun" 2>/dev/null || break
    done
    [ -n "$told" ] && [ "$code" -gt 128 ] && { wait "$mpirun"; code=$?; }
    mpirun=
    [ -z "$told" ] && [ "$code" -ne 0 ] || exit "$code"
    if [ "$code" -le 2 ] && [ "$starts" -eq 1 ] && [ $(($(date +%s) - began)) -lt 60 ]; then
        exit "$code"
    fi
    echo "serve.sh: the group has ended with $code, and starts again in $pause s" >&2
    sleep "$pause" & # in the background, where a signal cuts the wait short
    wait $!
done
