#!/usr/bin/env bash
# The server of ARM64 under QEMU: `quire generate` gives the host's tokens and log-probabilities, `quire serve` answers and stops.
#
#   tests/arm64/smoke.sh SYSROOT ARM64_QUIRE HOST_QUIRE
set -euo pipefail
quire=(qemu-aarch64 -L "$1" "$2")
work=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null || true; rm -rf "$work"' EXIT
die() { printf 'arm64: %s\n' "$*" >&2; exit 1; }

python3 tests/tools/make_gguf.py "$work/m.gguf" --type q8_0
text() { # QUIRE…; with all log-probabilities, without what it took
    for model in "" "$work/m.gguf"; do
        "$@" generate ${model:+"$model"} --raw -p 'Once upon a time' -n 24 --temperature 0.8 --seed 7 --json
    done | sed 's/"timings".*//'
}
text "$3" >"$work/host"
text "${quire[@]}" >"$work/text"
grep -q '"logprob":-' "$work/text" || die "no text"
cmp "$work/host" "$work/text" || die "other text than the host's"

"${quire[@]}" serve --port 0 2>"$work/log" &
pid=$!
for _ in $(seq 600); do
    url=$(sed -n 's/^listening on //p' "$work/log")
    [ -z "$url" ] || break
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
done
[ -n "$url" ] || { cat "$work/log" >&2; die "the server does not come up"; }
grep -q 'device="cpu i8mm,' "$work/log" || die "QEMU lacks instructions, or they are not seen: $(cat "$work/log")"
python3 examples/stream.py "$url" 'Once upon a time' 16 | grep -q . || die "no text"
kill $pid
wait $pid || die "exit code $? after SIGTERM"
pid=
