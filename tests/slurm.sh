#!/usr/bin/env bash
# usage: tests/slurm.sh [BUILD]: examples/slurm under a Slurm of our own on this machine: munged, slurmctld and two slurmd, all
# of a folder that is removed, beside whatever Slurm there may be. A model on two nodes answers as one process does; a task is
# killed, then one is stopped: 503, and the job runs again; scancel drains. Then an array of replicas behind nginx: one is killed,
# one drained, and no client notices; HAProxy reads their list, too. Needs root (slurmd), nginx, haproxy, and Debian's slurmctld,
# slurmd, slurm-client, munge. 77: not here.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}")
model=$PWD/models/quire-tiny.gguf
skip() { printf 'slurm.sh: skipped: %s\n' "$*" >&2; exit 77; }
die() { printf 'slurm.sh: %s\n' "$*" >&2; tail -n 30 "$folder"/*.log >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || skip "slurmd needs root"
for program in slurmctld slurmd srun munged nginx haproxy curl; do
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
    [ -z "$nginx" ] || kill "$nginx" 2>/dev/null || true # it overwrites its environment
    for p in $(ours); do kill -9 "$p" 2>/dev/null || true; done
    rm -rf "$folder"
}
nginx=
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
sockets = [socket.socket() for _ in range(6)]
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
SlurmdParameters=config_overrides # two CPUs a node, whatever the machine has
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=2
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=2
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
start() { job=$(sbatch --parsable --chdir="$folder" examples/slurm/serve.sbatch "$model"); }
start
is() { scontrol show job "$job" | grep -qE "(^| )$1( |$)"; }
ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$url/readyz")" = 200 ]; }
running() { curl -s "$url/metrics" | grep -E '^vllm:num_requests_running.* [1-9]' >/dev/null; } # -q would end curl with an error
answer=$folder/answer
ask() { # MAX_TOKENS N: the answer, then the status, in $answer
    curl -s -w '\n%{http_code}\n' "$url/v1/completions" -H 'Content-Type: application/json' \
        -d '{"prompt": "The cat", "temperature": 0, "ignore_eos": true, "max_tokens": '"$1"', "n": '"$2"'}' >"$answer" || true
}
status() { tail -n 1 "$answer"; }
task() { # VARIABLE=VALUE: the server that has it in its environment
    local p
    for p in $(ours); do
        if tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx "$1" && [ "$(cat "/proc/$p/comm")" = quire ]; then echo "$p"; fi
    done
}
# Stops $job while a request runs: it is answered.
drain() { # scancel's arguments…
    ask 100 1 &
    await "a request runs" running
    scancel "$@"
    wait $!
    [ "$(status)" = 200 ] || die "a request that ran at scancel $* got $(status)"
}
# A job with a flag that there is not ends, and is not begun again.
refuses() { # sbatch's arguments…
    job=$(sbatch --parsable --chdir="$folder" "$@" "$model" --no-such-flag)
    await "the end of a job that cannot start" is JobState=FAILED
    is ExitCode=2:0 && is Restarts=0 || die "$(scontrol show job "$job" | grep -E 'Restarts|ExitCode')"
}

await "a server on two nodes" ready
await "the second rank's line" grep -q "rank=1 world=2" "$folder/quire-$job.log" # srun brings it after the first's
ask 24 1
text() { python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())'"$1"')'; }
[ "$(status)" = 200 ] || die "status $(status)"
two=$(text '["choices"][0]["text"]' <"$answer")
one=$("$QUIRE" generate "$model" --raw -p "The cat" -n 24 --temperature 0 --ignore-eos --json 2>/dev/null | text '["text"]')
[ -n "$one" ] && [ "$one" = "$two" ] || die "two nodes say '$two', one process '$one'"
echo "two nodes answer as one process does"

# Signals the second task, which ends the group: 503, and the job runs again.
lose() { # SIGNAL TIMES
    local second
    ask 900 16 &
    await "a request runs" running
    second=$(task SLURM_PROCID=1)
    [ -n "$second" ] || die "no second task"
    kill "-$1" "$second"
    wait $!
    [ "$(status)" = 503 ] || die "a request that ran when a task was sent $1 got $(status)"
    await "the job again in the queue after $1" is "Restarts=$2"
    await "the job runs again" is JobState=RUNNING
    await "the server again" ready
    [ ! -e "/proc/$second" ] || die "the task that was sent $1 is still here"
    echo "a task was sent $1: 503, and the job runs again"
}
lose KILL 1
lose STOP 2 # the others end with 70, and srun kills the one that does not

drain --signal=TERM "$job"
await "the job's end" is JobState=COMPLETED
is ExitCode=0:0 || die "$(scontrol show job "$job" | grep ExitCode)"
echo "scancel --signal=TERM: 200, COMPLETED, 0:0"
start
await "the server again" ready
drain "$job"
await "the job's end" is JobState=CANCELLED
echo "scancel: 200, CANCELLED"
refuses examples/slurm/serve.sbatch

# Three replicas on two nodes of two CPUs: two of them share a node.
export REPLICAS=$folder/replicas
array=$(sbatch --parsable --chdir="$folder" --cpus-per-task=1 --array=0-2 examples/slurm/replicas.sbatch "$model")
listed() { [ "$(find "$REPLICAS" -name "[!.]*" -type f 2>/dev/null | wc -l)" = "$1" ]; }
await "three replicas" listed 3
[ "$(cat "$REPLICAS"/* | sort -u | wc -l)" = 3 ] || die "replicas share a URL: $(cat "$REPLICAS"/*)"
[ "$(squeue -h -r -j "$array" -o %N | sort | uniq -c | awk '{ print $1 }' | sort | xargs)" = "1 2" ] || die "not two of three on one node"

# The proxies as docs/deploy.md has them, with the list in the place of their own servers.
conf() { sed -n "/^\`\`\`$1/,/^\`\`\`/p" docs/deploy.md | sed '/^```/d'; }
{
    printf 'daemon off;\npid %s/nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n' "$folder"
    for path in client_body proxy fastcgi uwsgi scgi; do echo "${path}_temp_path $folder/nginx-$path;"; done
    conf nginx |
        sed -e "0,/^ *server 127.*/s||include $folder/servers.conf;|" -e '/^ *server 127/d' -e "s/listen 8080/listen 127.0.0.1:${ports[4]}/"
    echo "}"
} >"$folder/nginx.conf"
run_nginx=(nginx -p "$folder" -c "$folder/nginx.conf" -e stderr)
examples/slurm/servers.sh nginx "$REPLICAS" "$folder/servers.conf" "${run_nginx[@]}" -s reload >"$folder/servers.log" 2>&1 &
await "the list of servers" test -s "$folder/servers.conf"
"${run_nginx[@]}" >"$folder/nginx.log" 2>&1 &
nginx=$!
conf haproxy | sed -e '/^backend/,$d' -e "s/bind :8080/bind 127.0.0.1:${ports[5]}/" >"$folder/haproxy.cfg"
examples/slurm/servers.sh haproxy "$REPLICAS" "$folder/replicas.cfg" true &
await "the list of servers" test -s "$folder/replicas.cfg"
haproxy -db -f "$folder/haproxy.cfg" -f "$folder/replicas.cfg" >"$folder/haproxy.log" 2>&1 &
disown -a
url=http://127.0.0.1:${ports[5]}
await "a replica behind HAProxy" ready
url=http://127.0.0.1:${ports[4]}
await "a replica behind nginx" ready
traffic() { # through nginx, as long as $folder/traffic is there; what is not 200 is in $folder/bad
    local answer=$folder/answer-$1
    while [ -e "$folder/traffic" ]; do
        ask 24 1
        [ "$(status)" = 200 ] || cat "$answer" >>"$folder/bad"
    done
}
touch "$folder/traffic"
traffic 1 & traffic 2 &
answered() { # every replica has given a completion
    local replica
    for replica in $(cat "$REPLICAS"/*); do
        curl -s "$replica/metrics" | grep -E '^quire:http_requests_total\{.*"/v1/completions".*"200".* [1-9]' >/dev/null || return 1
    done
}
await "requests at each replica" answered

job=${array}_1
lost=$(task "SLURM_ARRAY_TASK_ID=1")
kill -KILL "$lost"
await "the task again in the queue" is Restarts=1
await "two replicas in the list" listed 2
await "the replica again" listed 3
proxied() { cat "$REPLICAS"/* | while read -r replica; do grep -q "${replica#http://} " "$folder/servers.conf" || exit 1; done; }
await "its new URL in nginx's list" proxied
await "requests at each replica again" answered
[ ! -e "$folder/bad" ] || die "a replica was killed: $(cat "$folder/bad")"
echo "replicas: one was killed, no client noticed, and it is there again"

job=${array}_0 url=$(cat "$REPLICAS/${array}_0")
drain --signal=TERM "$job"
await "the task's end" is JobState=COMPLETED
is ExitCode=0:0 || die "$(scontrol show job "$job" | grep ExitCode)"
listed 2 || die "a replica that has ended is in the list: $(ls "$REPLICAS")"
rm "$folder/traffic"
wait
[ ! -e "$folder/bad" ] || die "a replica was drained: $(cat "$folder/bad")"
echo "replicas: scancel --signal=TERM of one: 200, COMPLETED, 0:0, and no client noticed"

job=${array}_2 url=$(cat "$REPLICAS/${array}_2")
drain "$array" # without --signal
await "the array's end" is JobState=CANCELLED
await "no replica in the list" listed 0
sleep 6 # cred_expire, after which one that had been put into the queue again would run
[ -z "$(squeue -h)" ] || die "$(squeue)"
echo "replicas: scancel of all: 200, CANCELLED, none in the list"
refuses --array=0 examples/slurm/replicas.sbatch
echo "jobs that cannot start are not begun again"
