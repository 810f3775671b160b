"""Several processes under mpirun, for test_processes.py and test_hosts.py."""

import re
import shutil

import pytest

import goldens
from process import BINARY, EMULATED, children
from wire import wait_for

RUN = goldens.ROOT / "tests/mpi/run.sh"
MODULE = BINARY.parent / "engine/ranks/mpi/quire-mpi.so"
needs_emulated = pytest.mark.skipif(not EMULATED.exists(), reason="no emulated CUDA module in this build")
needs_mpi = pytest.mark.skipif(
    not MODULE.exists() or not shutil.which("mpirun"), reason="no MPI: libopenmpi-dev and openmpi-bin, then build again"
)

ASK = {"prompt": "The cat", "max_tokens": 12, "temperature": 0, "logprobs": 2}
LONG = {"prompt": "The cat", "max_tokens": 1500, "ignore_eos": True, "n": 40}


def mpirun(processes, *options):
    return [RUN, "mpirun", processes, *options]


def exporting(env):
    """Options of mpirun that hand variables to all processes, on other hosts, too."""
    return [word for name, value in env.items() for word in ("-x", f"{name}={value}")]


def followers(server):
    return processes_of(server.process.pid)


def processes_of(mpirun):
    """Process ids in the order of ranks: mpirun's children, or what a shell between runs."""
    rank = {}
    for pid in children(mpirun):
        with open(f"/proc/{pid}/environ", "rb") as f:
            rank[int(re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", f.read())[1])] = (children(pid) or [pid])[0]
    return [rank[i] for i in sorted(rank)]


def wait_until_running(server):
    wait_for("a request runs", lambda: server.metrics().value("vllm:num_requests_running"))


# Runs a process of the group and writes down its code; goes when all have one, so that mpirun does not end the others.
CODES = """folder=$1 all=$2
shift 2
"$@"
code=$?
echo $code >"$folder/new-$OMPI_COMM_WORLD_RANK"
mv "$folder/new-$OMPI_COMM_WORLD_RANK" "$folder/$OMPI_COMM_WORLD_RANK"
tries=0
while [ "$(cat "$folder"/[0-9] | wc -l)" -lt "$all" ] && [ $tries -lt 1200 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
exit $code"""


def writing_codes(folder, processes):
    """Words between mpirun and each process."""
    return ["sh", "-c", CODES, "sh", folder, processes]


def codes(folder, ranks):
    """The exit codes of the processes; waits for them."""
    files = [folder / str(rank) for rank in ranks]
    wait_for(f"ends of {ranks}", lambda: all(file.exists() for file in files), seconds=120)
    return [int(file.read_text()) for file in files]
