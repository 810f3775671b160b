#!/bin/sh
# One model in several processes: serve.sh PROCESSES [-- mpirun's options --] MODEL [FLAGS of quire serve]
# SIGTERM and Ctrl-C drain and end it with 0. A group that fails is started again after QUIRE_RESTART_PAUSE seconds
# (2); only what is refused within a minute of the first start (a wrong flag, no such file, a taken port) ends it,
# with the code of quire.
set -u
processes=${1:?usage: serve.sh PROCESSES [-- MPIRUN-OPTIONS --] [MODEL] [FLAGS]}
shift
# mpirun's options go behind the words of quire, as they are; then those words behind them.
words=$#
if [ "${1:-}" = -- ]; then
    shift
    words=$((words - 1))
    while [ "$words" -gt 0 ] && [ "$1" != -- ]; do
        set -- "$@" "$1"
        shift
        words=$((words - 1))
    done
    if [ "$words" -eq 0 ]; then
        echo "serve.sh: a second -- is missing" >&2
        exit 2
    fi
    shift
    words=$((words - 1))
fi
set -- "$@" "${QUIRE:-quire}" serve
while [ "$words" -gt 0 ]; do
    set -- "$@" "$1"
    shift
    words=$((words - 1))
done
# Seconds until mpirun sends SIGTERM, and as many again until SIGKILL: time to answer clients when a process has
# died (docs/distributed.md).
patience=5
pause=${QUIRE_RESTART_PAUSE:-2}
told= mpirun= starts=0
trap 'told=1; [ -z "$mpirun" ] || kill -USR1 "$mpirun" 2>/dev/null' TERM INT
began=$(date +%s)
while [ -z "$told" ]; do
    setsid mpirun -np "$processes" --mca odls_base_sigkill_timeout "$patience" "$@" &
    mpirun=$!
    starts=$((starts + 1))
    [ -z "$told" ] || kill -USR1 "$mpirun" # told just now
    while :; do
        wait "$mpirun"
        code=$?
        # A wait that a signal cut short is not the end.
        kill -0 "$mpirun" 2>/dev/null || break
    done
    if [ -n "$told" ]; then
        case $code in
        130 | 143) wait "$mpirun"; code=$? ;; # the signal had cut the wait short
        138) code=0 ;;                        # mpirun had not begun, and SIGUSR1 ended it
        esac
        exit "$code"
    fi
    mpirun=
    [ "$code" -ne 0 ] || exit 0
    if [ "$code" -le 2 ] && [ "$starts" -eq 1 ] && [ $(($(date +%s) - began)) -lt 60 ]; then
        exit "$code"
    fi
    echo "serve.sh: the group has ended with $code, and starts again in $pause s" >&2
    left=$pause
    while [ -z "$told" ] && [ "$left" -gt 0 ]; do # second by second, so that a signal is heard
        sleep 1
        left=$((left - 1))
    done
done
exit 0
