"""Ranks in several processes: commands and the server under mpirun, refusals, processes that die or stall, two hosts."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

import goldens
from process import BINARY, SLOW, children, run
from wire import Api, wait_for

RUN = goldens.ROOT / "tests/mpi/run.sh"
MODULE = BINARY.parent / "engine/mpi/quire-mpi.so"
EMULATED = BINARY.parent / "kernels/cuda/quire-cuda-emulated.so"
pytestmark = pytest.mark.skipif(
    not MODULE.exists() or not shutil.which("mpirun"), reason="no MPI: libopenmpi-dev and openmpi-bin, then build again"
)


ASK = {"prompt": "The cat", "max_tokens": 12, "temperature": 0, "logprobs": 2}
LONG = {"prompt": "The cat", "max_tokens": 1500, "ignore_eos": True, "n": 40}


def mpirun(processes, *options):
    return [RUN, "mpirun", processes, *options]


def unequal(first, second):
    """Two processes whose words differ: mpirun's form for several programs."""
    return [RUN, "mpirun", 1, BINARY, *first, ":", "-np", 1, BINARY, *second]


def launch(words, env=None):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, env=os.environ | (env or {}))


@pytest.fixture(scope="module")
def alone():
    got = run("generate", "-p", "Once upon a time", "-n", "16", "--json", "--logprobs", "3")
    return json.loads(got.stdout)


@pytest.mark.parametrize("processes, flags", [(2, []), (4, []), (4, ["--pipeline-parallel-size", 2]),
                                              (2, ["--tensor-parallel-size", 2, "--pipeline-parallel-size", 2])])  # fmt: skip
def test_generate_prints_once(processes, flags, alone):
    got = run("generate", "-p", "Once upon a time", "-n", "16", "--json", "--logprobs", "3", *flags,
              before=mpirun(processes))  # fmt: skip
    assert got.returncode == 0, got
    answer = json.loads(got.stdout)  # one object, so printed once
    assert answer["text"] == alone["text"] and answer["logprobs"] == alone["logprobs"]
    ranks = re.findall(r"rank=(\d) world=4 weight_bytes=\d+", got.stderr)
    assert len(ranks) in (0, 4) and (len(ranks) == 4) == (processes == 4 or bool(flags)), got.stderr


def test_perplexity(tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little girl who had a red ball. " * 8)
    one, two = (run("perplexity", "--file", text, before=before) for before in ((), mpirun(2)))
    assert two.returncode == 0 and one.stdout == two.stdout


def test_one_process_needs_no_others():
    got = run("generate", "-p", "x", "-n", "2", before=mpirun(1))
    assert got.returncode == 0 and "processes=" not in got.stderr, got


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_module_is_loaded_where_it_is_needed(start, processes):
    """Neither it nor MPI is mapped in a process that is alone, with a launcher or without."""
    server = start(model="", before=mpirun(processes) if processes else ())
    for pid in followers(server) if processes else [server.process.pid]:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
            maps = f.read()
        for name in ("/quire-mpi.so", "/libmpi.so"):
            assert (name in maps) == (processes > 1), (name, maps)
    if processes:
        assert stop(server)[0] == 0


def followers(server):
    return processes_of(server.process.pid)


def processes_of(mpirun):
    """Process ids in the order of ranks: mpirun's children, or what a shell between runs."""
    rank = {}
    for pid in children(mpirun):
        with open(f"/proc/{pid}/environ", "rb") as f:
            rank[int(re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", f.read())[1])] = (children(pid) or [pid])[0]
    return [rank[i] for i in sorted(rank)]


def stop(server, number=signal.SIGUSR1, seconds=60):
    server.stopped = True
    server.signal(number)
    code = server.wait(seconds)
    server.check_log()
    log = server.log()
    server.discard_log()
    return code, log


def test_served_and_drained(start):
    """One process listens; a request that runs when mpirun is told to stop is answered; all end with 0."""
    server = start("--drain-timeout", "500", model="", before=mpirun(2), env=SLOW)
    assert server.log().count("listening on") == 1
    assert sorted(re.findall(r"rank=(\d) world=2 weight_bytes=\d+", server.log())) == ["0", "1"]
    single = start(model="")
    assert server.complete(**ASK)["choices"] == single.complete(**ASK)["choices"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.post, "/v1/completions", LONG | {"n": 4, "max_tokens": 400}, timeout=500)
        wait_until_running(server)
        code, log = stop(server, seconds=500)
        got = asked.result()
    assert got.status == 200 and code == 0, (got, code, log)
    assert "engine failed" not in log


def wait_until_running(server):
    wait_for("a request runs", lambda: server.metrics().value("vllm:num_requests_running"))


def health_or_none(server):
    """None: the server has ended."""
    try:
        return server.get("/health").status
    except (ConnectionError, AssertionError) as problem:
        assert isinstance(problem, ConnectionError) or "closed before" in str(problem), problem
        return None


def silence(log):
    """The seconds after which process 1 was taken for lost."""
    found = re.search(r"process 1 \(\S+\) has not been heard of for ([\d.]+) s", log)
    assert found, log
    assert 0 < float(found[1]) < 10
    return float(found[1])


def test_follower_is_killed(start):
    """Plain mpirun leaves process 0 a second or two, which a busy machine may take: it is held until the answer is there."""
    server = start(model="", before=mpirun(2), env=SLOW)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.post, "/v1/completions", LONG, timeout=120)
        wait_until_running(server)
        victim = followers(server)[1]
        server.signal(signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        try:
            assert asked.result().status == 503
            wait_for("/health knows", lambda: health_or_none(server) in (503, None))
        finally:
            server.signal(signal.SIGCONT)
    assert server.wait() == 128 + signal.SIGKILL
    server.stopped = True
    log = server.log()
    assert re.search(r"engine failed: .*process 1 \(\S+\) has ended", log) and "heard of" not in log, log
    server.discard_log()


def test_follower_stalls(start):
    server = start(model="", before=mpirun(2), env=SLOW)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.post, "/v1/completions", LONG, timeout=120)
        wait_until_running(server)
        stalled = time.monotonic()
        os.kill(followers(server)[1], signal.SIGSTOP)
        got = asked.result()
        took = time.monotonic() - stalled
    assert got.status == 503 and health_or_none(server) in (503, None), got
    assert server.wait() == 70
    server.stopped = True
    assert took > silence(server.log()) - 1  # a sign of life every half a second
    server.discard_log()


def test_follower_stalls_while_idle(start):
    server = start(model="", before=mpirun(2))
    os.kill(followers(server)[1], signal.SIGSTOP)
    wait_for("somebody notices", lambda: health_or_none(server) in (503, None))
    assert server.wait() == 70
    server.stopped = True
    silence(server.log())
    server.discard_log()


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


@pytest.mark.parametrize("victim", [0, 1])
def test_all_end(start, tmp_path, victim):
    """Every process that is left says why, and ends with 70, whichever was killed."""
    before = [*mpirun(3), "sh", "-c", CODES, "sh", tmp_path, 3]
    server = start(model="", before=before, env={"QUIRE_PIPELINE_PARALLEL_SIZE": "3"})
    os.kill(followers(server)[victim], signal.SIGKILL)
    assert server.wait() != 0
    server.stopped = True
    log = server.log()
    codes = [int((tmp_path / str(rank)).read_text()) for rank in range(3)]
    assert codes == [128 + signal.SIGKILL if rank == victim else 70 for rank in range(3)], log
    sentence = rf"engine failed: .*process {victim} \(\S+\) has ended"
    for rank in {0, 1, 2} - {victim}:
        assert re.search(rf"process={rank} {sentence}" if rank else rf"level=error {sentence}", log), log
    server.discard_log()


def test_told_to_end_by_mpirun(start):
    """mpirun's SIGTERM is followed by SIGKILL: what runs is answered before, however long it might drain. Here nothing kills."""
    server = start("--drain-timeout", "500", model="", before=mpirun(2), env=SLOW)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.post, "/v1/completions", LONG, timeout=500)
        wait_until_running(server)
        os.kill(followers(server)[0], signal.SIGTERM)
        assert asked.result().status == 503
    assert server.wait() == 0
    server.stopped = True
    server.discard_log()


def test_long_step_is_no_death(start):
    """Messages that take half a second each make steps of more than 6 s, and nobody is taken for dead."""
    server = start("--tensor-parallel-size", 2, model="", before=mpirun(2), env={"QUIRE_COMM_DELAY_US": "500000"})
    assert server.complete(**(ASK | {"max_tokens": 2}))["usage"]["completion_tokens"] == 2
    code, log = stop(server)
    assert code == 0 and "heard of" not in log


GENERATE = ("generate", "-p", "x", "-n", "2")


@pytest.mark.parametrize(
    "words, flag, values",
    [
        (("--block-size", "32"), "--block-size", ("32", "16")),
        (("--max-num-seqs", "8"), "--max-num-seqs", ("8", "64")),
        (("--max-model-len", "128"), "--max-model-len", ("128", "0")),
        (("--tensor-parallel-size", "4"), "--tensor-parallel-size", ("4", "0")),
        (("--pipeline-parallel-size", "2"), "--pipeline-parallel-size", ("2", "1")),
        (("--exact",), "--exact", ("1", "0")),
        (("--dtype", "bfloat16"), "--dtype", ("bfloat16", "auto")),
        (("--kv-cache-dtype", "f32"), "--kv-cache-dtype", ("f32", "auto")),
        (("--device", "ref"), "--device", ("ref", "auto")),
    ],
)
def test_unequal_flags(words, flag, values):
    got = launch(unequal(GENERATE, (*GENERATE, *words)))
    assert got.returncode == 2 and not got.stdout.strip(), got
    sentence = rf"quire: process 1 \(\S+\) has {flag} {values[0]}, process 0 \(\S+\) has {values[1]}"
    assert len(re.findall(sentence, got.stderr)) == 2, got.stderr  # on both


@pytest.mark.skipif(not EMULATED.exists(), reason="no emulated CUDA module in this build")
@pytest.mark.parametrize("other, device, refused", [("1", "cuda", True), ("0", "cuda", False), ("1", "cpu", False)])
def test_unequal_wgmma(other, device, refused):
    """A variable that changes the bits of prompts on CUDA, and nothing elsewhere."""
    words = [*GENERATE, "--pipeline-parallel-size", "2", "--device", device]
    got = launch([RUN, "mpirun", 1, BINARY, *words, ":", "-np", 1, "-x", f"QUIRE_CUDA_WGMMA={other}", BINARY, *words],
                 env={"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": "2"})  # fmt: skip
    sentence = r"quire: process 1 \(\S+\) has QUIRE_CUDA_WGMMA 1, process 0 \(\S+\) has 0"
    assert len(re.findall(sentence, got.stderr)) == (2 if refused else 0), got.stderr
    assert (got.returncode, bool(got.stdout.strip())) == ((2, False) if refused else (0, True)), got


def test_unequal_weights(tmp_path):
    """One byte in the middle of a tensor; the size and the name are the same."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    data = bytearray((goldens.ROOT / "models/quire-tiny.gguf").read_bytes())
    (tmp_path / "a/m.gguf").write_bytes(data)
    data[len(data) // 2 + 1] ^= 1
    (tmp_path / "b/m.gguf").write_bytes(data)
    words = [("generate", tmp_path / f / "m.gguf", "-p", "x") for f in "ab"]
    got = launch(unequal(*words))
    assert got.returncode == 2, got
    found = re.findall(r"process 1 \(\S+\) has a model file with fingerprint (\w{32}), process 0 \(\S+\) has (\w{32})", got.stderr)
    assert len(found) == 2 and found[0][0] != found[0][1], got.stderr


def test_unequal_versions():
    words = [RUN, "mpirun", 1, BINARY, *GENERATE, ":", "-np", 1, "-x", "QUIRE_FAULT_VERSION=9.9", BINARY, *GENERATE]
    got = launch(words)
    assert got.returncode == 2, got
    assert len(re.findall(r"process 1 \(\S+\) is version 9.9, process 0 \(\S+\) is \d", got.stderr)) == 2, got.stderr


def identity():
    found = re.fullmatch(r"quire \d+\.\d+\.\d+ \(sources ([0-9a-f]{16})\)\n", run("--version").stdout)
    assert found
    return found[1]


def test_unequal_sources():
    """The same version of other sources: both name both, and nobody computes."""
    words = [RUN, "mpirun", 1, BINARY, *GENERATE, ":", "-np", 1, "-x", "QUIRE_FAULT_IDENTITY=0123456789abcdef", BINARY, *GENERATE]
    got = launch(words)
    assert got.returncode == 2 and not got.stdout.strip(), got
    sentence = rf"process 1 \(\S+\) is built from sources 0123456789abcdef, process 0 \(\S+\) from {identity()}: give both machines"
    assert len(re.findall(sentence, got.stderr)) == 2, got.stderr


def test_missing_file_on_one():
    got = launch(unequal(("generate", goldens.ROOT / "models/quire-tiny.gguf", "-p", "x"), ("generate", "/none.gguf", "-p", "x")))
    assert got.returncode == 1, got
    assert re.search(r"quire: process 1 \(\S+\): cannot open", got.stderr), got.stderr


@pytest.mark.parametrize(
    "processes, flags, words",
    [
        (3, [], "--tensor-parallel-size 3 does not suit"),
        (2, ["--tensor-parallel-size", 1], "2 processes cannot have equal shares of 1 ranks (--tensor-parallel-size 1, "
         "--pipeline-parallel-size 1); possible numbers of processes: 1\n"),
        (3, ["--tensor-parallel-size", 2, "--pipeline-parallel-size", 2], "3 processes cannot have equal shares of 4 ranks "
         "(--tensor-parallel-size 2, --pipeline-parallel-size 2); possible numbers of processes: 1, 2, 4\n"),
        (2, ["--tensor-parallel-size", 4], "must be in one process, or each in a process of its own; "
         "possible numbers of processes: 1, 4\n"),
    ],
)  # fmt: skip
def test_impossible(processes, flags, words):
    got = run(*GENERATE, *flags, before=mpirun(processes))
    assert got.returncode == 2 and words in got.stderr, got


@pytest.mark.skipif(not EMULATED.exists(), reason="no emulated CUDA module in this build")
def test_gpus_of_one_layer():
    """They must be in one process; what is refused names what would do, and that does."""
    env = {"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": "4"}
    flags = ["--device", "cuda", "--tensor-parallel-size", 2, "--pipeline-parallel-size"]
    got = run(*GENERATE, *flags, 2, before=mpirun(4), env=env)
    found = re.search(r"GPUs that share a layer must be in one process; possible numbers of processes with --tensor-parallel-size 2 "
                      r"--pipeline-parallel-size 2: 1, 2; 4 processes with (--tensor-parallel-size 1 --pipeline-parallel-size 4)\n",
                      got.stderr)  # fmt: skip
    assert got.returncode == 2 and found, got
    for processes, words in [(1, (*flags, 2)), (2, (*flags, 2)), (4, ("--device", "cuda", *found[1].split()))]:
        got = run(*GENERATE, *words, before=mpirun(processes), env=env)
        assert got.returncode == 0 and got.stdout, got


@pytest.mark.skipif(not EMULATED.exists(), reason="no emulated CUDA module in this build")
@pytest.mark.parametrize("host, devices, found", [("QUIRE_FAULT_HOST=other", 1, True), ("QUIRE_FAULT_BOOT=other", 1, True), ("X=", 1, False), ("X=", 2, True)])
def test_devices_of_a_host(host, devices, found):
    """Each process takes devices of its own machine from the first on that another process there does not have.

    Another name is another machine, and so is another kernel under the same name."""
    words = [*GENERATE, "--pipeline-parallel-size", "2", "--device", "cuda"]
    got = launch([RUN, "mpirun", 1, BINARY, *words, ":", "-np", 1, "-x", host, BINARY, *words],
                 env={"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": str(devices)})  # fmt: skip
    if found:
        assert got.returncode == 0 and got.stdout, got
    else:
        assert got.returncode == 2 and re.search(r"process 1 \(\S+\): .*there is no emulated device 1, only 1", got.stderr), got


def test_no_module():
    got = run(*GENERATE, before=mpirun(2), env={"QUIRE_MPI_MODULE": "/none.so"})
    assert got.returncode == 2 and "mpirun has started several processes, but there is no quire-mpi.so" in got.stderr, got


@pytest.fixture
def two_hosts():
    """Two network namespaces with a wire between them, each with a name of its own; a command for the second."""
    names = [f"quire-{os.getpid()}-{name}" for name in "ab"]
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("two hosts need root and ip(8)")
    if subprocess.run(["ip", "netns", "add", names[0]], capture_output=True).returncode != 0:
        pytest.skip("ip netns add is not allowed here")
    try:
        commands = [f"netns add {names[1]}", f"-n {names[0]} link add quire0 type veth peer name quire0 netns {names[1]}"]
        for name, address in zip(names, ("10.213.0.1/24", "10.213.0.2/24")):
            commands += [f"-n {name} addr add {address} dev quire0", f"-n {name} link set quire0 up", f"-n {name} link set lo up"]
        for command in commands:
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"ip {command}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class TwoHosts:
    """mpirun for one process on each host, 1 ms apart; it reaches the other by a stand-in for ssh. The other numbers its processes itself."""

    def __init__(self, names, folder):
        agent = folder / "agent"
        command = "unshare --uts --pid --fork --kill-child"
        agent.write_text(f'#!/bin/sh\n# HOST COMMAND…: as ssh would\nshift\nexec ip netns exec {names[1]} {command} sh -c "hostname quire-b; $*"\n')
        agent.chmod(0o755)
        self.here = ["ip", "netns", "exec", names[0]]
        self.before = [*self.here, RUN, "mpirun", 2, "--host", "10.213.0.1:1,10.213.0.2:1",
                       "--mca", "plm_rsh_agent", agent, "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "quire0",
                       "--mca", "oob_tcp_if_include", "quire0", "-x", "QUIRE_COMM_DELAY_US=1000"]  # fmt: skip
        self.log_file = folder / "log"
        self.name = f"two-hosts-{os.getpid()}"
        self.process = None

    def log(self):
        return self.log_file.read_text()

    def serve(self, *options):
        words = [*self.before, *options, BINARY, "serve", "--port", 0, "--served-model-name", self.name]
        with self.log_file.open("w") as out:
            self.process = subprocess.Popen([*map(str, words)], stderr=out, stdout=out)
        end = time.monotonic() + 60
        while not (found := re.search(r"listening on (\S+)", self.log())):
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.05)
        self.url = found[1]

    def curl(self, path, *words):
        """Asked from the first host: the status and the body."""
        ask = [*self.here, "curl", "-s", "-w", "\n%{http_code}", self.url + path, *words]
        body, _, status = subprocess.run(ask, capture_output=True, timeout=120, text=True).stdout.rpartition("\n")
        return int(status), body

    def post(self, fields):
        return self.curl("/v1/completions", "-H", "Content-Type: application/json", "-d", json.dumps(fields))

    def second(self):
        """The process on the other host."""
        for cmdline in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                words = cmdline.read_bytes().split(b"\0")
                if words[0] == str(BINARY).encode() and self.name.encode() in words:
                    if b"OMPI_COMM_WORLD_RANK=1" in (cmdline.parent / "environ").read_bytes().split(b"\0"):
                        return int(cmdline.parent.name)
        raise AssertionError("no second process")

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def hosts(two_hosts, tmp_path):
    both = TwoHosts(two_hosts, tmp_path)
    yield both
    both.end()


def test_two_hosts(hosts):
    """One model on two hosts over TCP: the same answer."""
    got = run("generate", "-p", "Once upon a time", "-n", "8", "--json", before=hosts.before, timeout=300)
    one = run("generate", "-p", "Once upon a time", "-n", "8", "--json")
    assert got.returncode == 0, got
    assert json.loads(got.stdout)["text"] == json.loads(one.stdout)["text"]
    # A server on one of them, asked from its host.
    hosts.serve()
    status, body = hosts.post({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    assert status == 200 and json.loads(body)["choices"][0]["text"] == json.loads(one.stdout)["text"]
    hosts.process.send_signal(signal.SIGUSR1)
    assert hosts.process.wait(300) == 0, hosts.log()


def test_process_of_the_other_host_is_killed(hosts):
    """There no kernel says it: MPI does, whose connection breaks, or silence, for MPI may hold all threads that ask it."""
    hosts.serve("--mca", "odls_base_sigkill_timeout", patience(), "-x", "QUIRE_FAULT_DELAY_US=10000")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(hosts.post, LONG)
        wait_for("a request runs", lambda: re.search(r"^vllm:num_requests_running.* [1-9]", hosts.curl("/metrics")[1], re.MULTILINE))
        os.kill(hosts.second(), signal.SIGKILL)
        assert asked.result()[0] == 503
    assert hosts.process.wait(300) != 0
    log = hosts.log()
    assert re.search(r"engine=dead group ended: .*(rank 0 cannot reach rank 1|process 1 \(quire-b\) has not been heard of)", log), log


SCRIPT = goldens.ROOT / "examples/mpi/serve.sh"


def patience():
    """The seconds that the script gives mpirun, and with it those who were told of it: the documentation, other tests."""
    (seconds,) = re.findall(r"^patience=(\d+)$", SCRIPT.read_text(), re.M)
    return int(seconds)


def test_patience_is_documented():
    text = (goldens.ROOT / "docs/distributed.md").read_text()
    assert set(map(int, re.findall(r"odls_base_sigkill_timeout (\d+)", text))) == {patience()}


@pytest.mark.parametrize(
    "words, code, want",
    [
        ([], 1, None),
        (["2"], 0, ["a quire", "serve"]),
        (["2", "a model", "--port", "0"], 0, ["a quire", "serve", "a model", "--port", "0"]),
        (["2", "--", "--"], 0, ["a quire", "serve"]),
        (["2", "--", "-x", "A=b  *", "", "--", "a model", "--", "$HOME"], 0,
         ["-x", "A=b  *", "", "a quire", "serve", "a model", "--", "$HOME"]),
        (["2", "--", "-x", "a model"], 2, None),
        (["2", "--"], 2, None),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)  # fmt: skip
def test_words_of_the_script(tmp_path, words, code, want):
    """Each reaches mpirun as it was given, whatever is in it."""
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$0.words"\n')
    mpirun.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "QUIRE": "a quire"}
    got = subprocess.run([SCRIPT, *words], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (got.returncode != 0) == (code != 0) and (code == 1 or got.returncode == code), got
    if want is None:
        assert not (tmp_path / "mpirun.words").exists() and got.stderr
    else:
        told = (tmp_path / "mpirun.words").read_text().split("\n")[:-1]
        assert told == ["-np", "2", "--mca", "odls_base_sigkill_timeout", str(patience()), *want]


class Script(Api):
    """examples/mpi/serve.sh with two processes of the embedded model: start(), requests, end()."""

    def __init__(self, folder, *flags, pause=2):
        self.log_file = folder / "log"
        self.groups = 0
        env = os.environ | {"QUIRE": str(BINARY), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **SLOW}
        env["QUIRE_RESTART_PAUSE"] = str(pause)
        env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # MPI's own, as in tests/mpi/run.sh
        options = ["--", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "pml", "ob1", "--"]
        words = [SCRIPT, 2, *options, goldens.ROOT / "models/quire-tiny.gguf", "--port", 0, *flags]
        with self.log_file.open("w") as out:
            self.process = subprocess.Popen([*map(str, words)], stderr=out, stdout=out, env=env)

    def log(self):
        return self.log_file.read_text()

    def serves(self):
        """Waits for the next group."""
        end = time.monotonic() + 120
        while len(found := re.findall(r"listening on http://([^\s:]+):(\d+)", self.log())) == self.groups:
            assert self.process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.05)
        self.groups += 1
        assert len(found) == self.groups, self.log()
        super().__init__(found[-1][0], int(found[-1][1]))

    def end(self):
        if self.process.poll() is None:
            for mpirun in children(self.process.pid):
                for one in children(mpirun):
                    os.kill(one, signal.SIGKILL)
                os.kill(mpirun, signal.SIGKILL)
            self.process.kill()
            self.process.wait()


@pytest.fixture
def script(tmp_path):
    scripts = []

    def begin(*flags, **options):
        scripts.append(Script(tmp_path, *flags, **options))
        return scripts[-1]

    yield begin
    for one in scripts:
        one.end()


def test_script_drains_on_sigterm(script):
    """SIGTERM drains, and the exit code is 0."""
    one = script()
    one.serves()
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(300) == 0, one.log()
    assert "state=serving" in one.log() and "starts again" not in one.log()


def test_script_starts_the_group_again(script):
    """A process is killed: who waits gets 503, a new group serves, and SIGTERM ends that one."""
    one = script()
    one.serves()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(one.post, "/v1/completions", LONG, timeout=120)
        wait_until_running(one)
        (mpirun,) = children(one.process.pid)
        os.kill(processes_of(mpirun)[1], signal.SIGKILL)
        assert asked.result().status == 503
    one.serves()
    assert one.log().count("the group has ended with 137, and starts again in 2 s") == 1, one.log()
    assert one.complete(**(ASK | {"max_tokens": 2}))["usage"]["completion_tokens"] == 2
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(300) == 0, one.log()


def test_script_ends_between_two_groups(script):
    """It is told to end while none runs."""
    one = script(pause=3600)
    one.serves()
    (mpirun,) = children(one.process.pid)
    os.kill(processes_of(mpirun)[0], signal.SIGKILL)
    wait_for("the pause", lambda: "starts again in 3600 s" in one.log(), seconds=120)
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(120) == 0, one.log()


def test_script_ends_where_nothing_can_start(script):
    one = script("--block-size", "none")
    assert one.process.wait(300) == 2, one.log()
    assert "starts again" not in one.log()
