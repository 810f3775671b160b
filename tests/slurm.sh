#!/usr/bin/env bash
# usage: tests/slurm.sh [BUILD]: examples/slurm/serve.sbatch under a Slurm of our own on this machine: munged, slurmctld and
# two slurmd, all of a folder that is removed, beside whatever Slurm there may be. A model on two nodes answers as one
# process does; a task is killed, then one is stopped: 503, and the job runs again; scancel --signal=TERM drains. Needs root
# (slurmd) and Debian's slurmctld, slurmd, slurm-client, munge. 77: not here.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}")
model=$PWD/models/quire-tiny.gguf
skip() { printf 'slurm.sh: skipped: %s\n' "$*" >&2; exit 77; }
die() { printf 'slurm.sh: %s\n' "$*" >&2; tail -n 30 "$folder"/*.log >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || skip "slurmd needs root"
for program in slurmctld slurmd srun munged curl; do
    command -v "$program" >/dev/null || skip "no $program"
done
[ -e "$build/engine/ranks/mpi/quire-mpi.so" ] || skip "no MPI module in $build"

folder=$(mktemp -d /tmp/quire-slurm-XXXXXX)
chmod 755 "$folder"
export SLURM_CONF=$folder/slurm.conf
# All that carry the name of our configuration in their environment are ours: daemons, steps, tasks.
ours() {
    local p
    for p in /proc/[0-9]*; do
        if [ "${p#/proc/}" -ne $$ ] && tr '\0' '\n' 2>/dev/null <"$p/environ" | grep -qx "SLURM_CONF=$SLURM_CONF"; then
            echo "${p#/proc/}"
        fi
    done
}
clean() {
    local p
    for p in $(ours); do kill -9 "$p" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap clean EXIT
await() { # WHAT COMMAND…: until the command succeeds
    local what=$1 tries
    shift
    for tries in $(seq 1200); do
        "$@" && return
        sleep 0.1
    done
    die "$what: not within two minutes"
}
ports=($(python3 - <<'PY'
import socket
sockets = [socket.socket() for _ in range(4)]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))
PY
))

head -c 128 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
mkdir "$folder"/{state,spool-n1,spool-n2,tmp-n1,tmp-n2}
cat >"$SLURM_CONF" <<CONF
ClusterName=quire
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmctldPort=${ports[0]}
# cred_expire: a job that is put back into the queue begins again after so many seconds, else after 120.
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdSpoolDir=$folder/spool-%n
TmpFS=$folder/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=$(nproc)
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=$(nproc)
PartitionName=all Nodes=n1,n2 Default=YES State=UP
CONF
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
    --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" >"$folder/munge.out.log" 2>&1 &
await "munged" test -S "$folder/munge.socket"
slurmctld -D -c >"$folder/slurmctld.log" 2>&1 &
for node in n1 n2; do
    slurmd -D -N $node >"$folder/slurmd-$node.log" 2>&1 &
done
disown -a # their end is no news
idle() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; }
await "two nodes" idle

# Both nodes are this machine: MPI may use its loopback.
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo
export QUIRE=$build/quire QUIRE_PORT=${ports[3]}
# Slow steps (tests/tools/fault_backend.c), so that requests run as long as they are needed.
export QUIRE_DEVICE=cuda QUIRE_CUDA_MODULE=$build/tests/fault-backend.so FAULT_DELAY_US=10000
url=http://127.0.0.1:$QUIRE_PORT
job=$(sbatch --parsable --chdir="$folder" examples/slurm/serve.sbatch "$model")
is() { scontrol show job "$job" | grep -qE "(^| )$1( |$)"; }
ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/readyz")" = 200 ]; }
running() { curl -s "$url/metrics" | grep -qE '^vllm:num_requests_running.* [1-9]'; }
ask() { # MAX_TOKENS N: the answer, then the status, in $folder/answer
    curl -s -w '\n%{http_code}\n' "$url/v1/completions" -H 'Content-Type: application/json' \
        -d '{"prompt": "The cat", "temperature": 0, "ignore_eos": true, "max_tokens": '"$1"', "n": '"$2"'}' >"$folder/answer" || true
}
status() { tail -n 1 "$folder/answer"; }

await "a server on two nodes" ready
grep -q "rank=1 world=2" "$folder/quire-$job.log" || die "no second rank"
ask 24 1
text() { python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())'"$1"')'; }
[ "$(status)" = 200 ] || die "status $(status)"
two=$(text '["choices"][0]["text"]' <"$folder/answer")
one=$("$QUIRE" generate "$model" -p "The cat" -n 24 --temperature 0 --ignore-eos --json 2>/dev/null | text '["text"]')
[ -n "$one" ] && [ "$one" = "$two" ] || die "two nodes say '$two', one process '$one'"
echo "two nodes answer as one process does"

# Signals the second task, which ends the group: 503, and the job runs again.
lose() { # SIGNAL TIMES
    local p task=
    ask 900 16 &
    await "a request runs" running
    for p in $(ours); do
        if tr '\0' '\n' <"/proc/$p/environ" | grep -qx SLURM_PROCID=1 && [ "$(cat "/proc/$p/comm")" = quire ]; then task=$p; fi
    done
    [ -n "$task" ] || die "no second task"
    kill "-$1" "$task"
    wait $!
    [ "$(status)" = 503 ] || die "a request that ran when a task was sent $1 got $(status)"
    await "the job again in the queue after $1" is "Restarts=$2"
    await "the job runs again" is JobState=RUNNING
    await "the server again" ready
    [ ! -e "/proc/$task" ] || die "the task that was sent $1 is still here"
    echo "a task was sent $1: 503, and the job runs again"
}
lose KILL 1
lose STOP 2 # the others end with 70, and srun kills the one that does not

ask 200 1 &
await "a request runs" running
scancel --signal=TERM "$job"
wait $!
[ "$(status)" = 200 ] || die "a request that ran when the job was told to stop got $(status)"
await "the job's end" is JobState=COMPLETED
is ExitCode=0:0 || die "$(scontrol show job "$job" | grep ExitCode)"
echo "scancel --signal=TERM: 200, COMPLETED, 0:0"
