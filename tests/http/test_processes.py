"""Ranks in several processes: commands and the server under mpirun, refusals, processes that die or stall."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import time

import pytest

import goldens
from launched import ASK, LONG, MODULE, RUN, codes, followers, mpirun, needs_emulated, needs_mpi, wait_until_running, writing_codes
from process import BINARY, EMULATED, SLOW, faulty, run
from wire import wait_for

pytestmark = needs_mpi


def unequal(first, second, before=(), binary=BINARY, others=1):
    """Two processes whose words differ: mpirun's form for several programs. before, binary: of the second, and so many more."""
    return [RUN, "mpirun", 1, BINARY, *first, ":", "-np", others, *before, binary, *second]


def launch(words, env=None):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, env=os.environ | (env or {}))


@pytest.fixture(scope="module")
def alone():
    got = run("generate", "--raw", "-p", "Once upon a time", "-n", "16", "--json", "--logprobs", "3")
    return json.loads(got.stdout)


@pytest.mark.parametrize("processes, flags", [(2, []), (4, []), (4, ["--pipeline-parallel-size", 2]),
                                              (2, ["--tensor-parallel-size", 2, "--pipeline-parallel-size", 2])])  # fmt: skip
def test_generate_prints_once(processes, flags, alone):
    got = run("generate", "--raw", "-p", "Once upon a time", "-n", "16", "--json", "--logprobs", "3", *flags,
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


def health_or_none(server):
    """None: the server has ended."""
    try:
        return server.get("/health").status
    except (ConnectionError, AssertionError) as problem:
        assert isinstance(problem, ConnectionError) or "closed before" in str(problem), problem
        return None


def complete_or_none(server):
    """The status of a new request; None: the server has ended."""
    try:
        return server.post("/v1/completions", ASK).status
    except (ConnectionError, AssertionError) as problem:
        assert isinstance(problem, ConnectionError) or "closed before" in str(problem), problem
        return None


def silence(log, process=1):
    """The seconds after which a process was taken for lost."""
    found = re.search(rf"process {process} \(\S+\) has not been heard of for ([\d.]+) s", log)
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


def test_follower_stalls(start, tmp_path):
    """Running and new requests get 503; process 0 ends with 70, and so does the other one when it goes on."""
    server = start(model="", before=[*mpirun(2), *writing_codes(tmp_path, 2)], env=SLOW)
    victim = followers(server)[1]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.post, "/v1/completions", LONG, timeout=120)
        wait_until_running(server)
        stalled = time.monotonic()
        os.kill(victim, signal.SIGSTOP)
        got = asked.result()
        took = time.monotonic() - stalled
    assert got.status == 503 and complete_or_none(server) in (503, None) and health_or_none(server) in (503, None), got
    assert codes(tmp_path, [0]) == [70]
    os.kill(victim, signal.SIGCONT)
    assert codes(tmp_path, [1]) == [70] and server.wait() == 70
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


@pytest.mark.parametrize("victim", [0, 1])
def test_all_end(start, tmp_path, victim):
    """Every process that is left says why, and ends with 70, whichever was killed."""
    before = [*mpirun(3), *writing_codes(tmp_path, 3)]
    server = start(model="", before=before, env={"QUIRE_PIPELINE_PARALLEL_SIZE": "3"})
    os.kill(followers(server)[victim], signal.SIGKILL)
    assert server.wait() != 0
    server.stopped = True
    log = server.log()
    assert codes(tmp_path, range(3)) == [128 + signal.SIGKILL if rank == victim else 70 for rank in range(3)], log
    sentence = rf"engine failed: .*process {victim} \(\S+\) has ended"
    for rank in {0, 1, 2} - {victim}:
        assert re.search(rf"process={rank} {sentence}" if rank else rf"level=error {sentence}", log), log
    server.discard_log()


@pytest.mark.parametrize("victim", [0, 1])
def test_all_end_when_one_stalls(start, tmp_path, victim):
    """The others do not wait for it, though it be the one with the server; when it goes on, it hears that nobody is left."""
    before = [*mpirun(3), *writing_codes(tmp_path, 3)]
    server = start(model="", before=before, env={"QUIRE_PIPELINE_PARALLEL_SIZE": "3"})
    pid = followers(server)[victim]
    os.kill(pid, signal.SIGSTOP)
    others = [rank for rank in range(3) if rank != victim]
    assert codes(tmp_path, others) == [70, 70] and not (tmp_path / str(victim)).exists(), server.log()
    os.kill(pid, signal.SIGCONT)
    assert codes(tmp_path, [victim]) == [70] and server.wait() == 70
    server.stopped = True
    log = server.log()
    silence(log, victim)
    for rank in (1, 2):
        assert f"process={rank} engine failed: " in log, log
    assert "level=error engine=dead group ended: " in log, log
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
    """A rank that waits for the other one for 7 s in every step does not take it for dead."""
    server = start("--tensor-parallel-size", 2, model="", before=mpirun(2), env=faulty(rank=1, delay_us=7000000))
    assert server.complete(**(ASK | {"max_tokens": 2}))["usage"]["completion_tokens"] == 2
    code, log = stop(server)
    assert code == 0 and "heard of" not in log


GENERATE = ("generate", "-p", "x", "-n", "2")


@pytest.mark.parametrize(
    "words, flag, values",
    [
        (("--block-size", "32"), "--block-size", ("32", "0")),
        (("--max-num-seqs", "8"), "--max-num-seqs", ("8", "0")),
        (("--max-model-len", "128"), "--max-model-len", ("128", "0")),
        (("--tensor-parallel-size", "4"), "--tensor-parallel-size", ("4", "0")),
        (("--pipeline-parallel-size", "2"), "--pipeline-parallel-size", ("2", "1")),
        (("--exact",), "--exact", ("1", "0")),
        (("--no-batch-invariant",), "--no-batch-invariant", ("1", "0")),
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


@needs_emulated
@pytest.mark.parametrize(
    "variable, device, refused",
    [("CUDA_WGMMA=1", "cuda", 130), ("CUDA_WGMMA=0", "cuda", None), ("CUDA_WGMMA=1", "cpu", None),
     ("CUDA_W8A8=0", "cuda", 64), ("EMULATED_CAPABILITY=89", "cuda", 65)],
)  # fmt: skip
def test_unequal_kernels(variable, device, refused):
    """A variable, or a device, that changes the bits of prompts on CUDA, and nothing elsewhere."""
    words = [*GENERATE, "--pipeline-parallel-size", "2", "--device", device]
    got = launch(unequal(words, words, before=["-x", f"QUIRE_{variable}"]),
                 env={"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": "2"})  # fmt: skip
    sentence = rf"quire: process 1 \(\S+\) has device numerics {refused}, process 0 \(\S+\) has 66"
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
    found = re.findall(r"process 1 \(\S+\) has a model file with hash (\w{32}), process 0 \(\S+\) has (\w{32})", got.stderr)
    assert len(found) == 2 and found[0][0] != found[0][1], got.stderr


def identity(binary=BINARY):
    """The version and the build id."""
    got = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60)
    found = re.fullmatch(r"quire (\d+\.\d+\.\d+) \(sources ([0-9a-f]{16})\)\n", got.stdout)
    assert found, got
    return found.groups()


def beside_other_build(folder, own, other):
    """Two processes, of which the second is a copy of the binary that says another version or build id."""
    assert len(own) == len(other) and own != other
    data = BINARY.read_bytes()
    assert data.count(b"%s\0" % own.encode()) >= 1
    copy = folder / "quire"
    copy.write_bytes(data.replace(b"%s\0" % own.encode(), b"%s\0" % other.encode()))
    copy.chmod(0o755)
    assert other in identity(copy) and own not in identity(copy)
    return launch(unequal(GENERATE, GENERATE, binary=copy), env={"QUIRE_MPI_MODULE": str(MODULE)})  # it has none beside it


def test_unequal_versions(tmp_path):
    version = identity()[0]
    other = "9" * version.index(".") + version[version.index(".") :]
    got = beside_other_build(tmp_path, version, other)
    assert got.returncode == 2, got
    sentence = rf"process 1 \(\S+\) is version {re.escape(other)}, process 0 \(\S+\) is {re.escape(version)}"
    assert len(re.findall(sentence, got.stderr)) == 2, got.stderr


def test_unequal_sources(tmp_path):
    """The same version of other sources: both name both, and nobody computes."""
    _, sources = identity()
    got = beside_other_build(tmp_path, sources, "0123456789abcdef")
    assert got.returncode == 2 and not got.stdout.strip(), got
    sentence = rf"process 1 \(\S+\) is built from sources 0123456789abcdef, process 0 \(\S+\) from {sources}: give both machines"
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


BOOT_ID = "/proc/sys/kernel/random/boot_id"


def elsewhere(folder, what):
    """Words before a command for which this machine has another host name, or its kernel another boot id."""
    (folder / "boot_id").write_text("00000000-0000-4000-8000-000000000000\n")
    kind, change, see = {
        "host": ("--uts", "hostname other", "hostname"),
        "boot": ("--mount", f"mount --bind {folder}/boot_id {BOOT_ID}", f"cat {BOOT_ID}"),
    }[what]
    words = ["unshare", kind, *(["--user", "--map-root-user"] if os.geteuid() else []), "sh", "-c", f'{change} && exec "$@"', "sh"]
    got = subprocess.run([*words, *see.split()], capture_output=True, text=True, timeout=60)
    if got.returncode != 0:
        (pytest.fail if os.environ.get("QUIRE_REQUIRE_DATA") else pytest.skip)(f"no namespaces here: {got.stderr.strip()}")
    assert got.stdout != subprocess.run(see.split(), capture_output=True, text=True).stdout
    return words


@needs_emulated
@pytest.mark.parametrize("other, devices, found", [("host", 1, True), ("boot", 1, True), (None, 1, False), (None, 2, True)])
def test_devices_of_a_host(tmp_path, other, devices, found):
    """Each process takes devices of its own machine from the first on that another process there does not have.

    Another name is another machine, and so is another kernel under the same name."""
    words = [*GENERATE, "--pipeline-parallel-size", "2", "--device", "cuda"]
    got = launch(unequal(words, words, before=elsewhere(tmp_path, other) if other else ()),
                 env={"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": str(devices)})  # fmt: skip
    if found:
        assert got.returncode == 0 and got.stdout, got
    else:
        assert got.returncode == 2 and re.search(r"process 1 \(\S+\): .*there is no emulated device 1, only 1", got.stderr), got


WRITE = ("generate", "--raw", "-p", "Once upon a time, there was a", "-n", "6", "--json", "--device", "cuda")
TOPK, LOGPROBS = ("--temperature", "0.9", "--top-k", "20", "--seed", "4"), ("--logprobs", "2")


@needs_emulated
@pytest.mark.parametrize(
    "processes, tensor, stages, words",
    [
        (2, 2, 2, ("--exact", *LOGPROBS, *TOPK)),  # a process for each stage
        (2, 2, 1, LOGPROBS),  # graphs, and all logits
        (2, 2, 1, TOPK),  # the best few of each
        (4, 4, 1, ("--exact", *LOGPROBS)),
        (4, 2, 2, ("--exact", *LOGPROBS)),
    ],
)
def test_gpus_of_processes(processes, tensor, stages, words):
    """The bits of threads; with --exact, of one GPU."""
    env = {"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": "4"}
    ranks = ("--tensor-parallel-size", tensor, "--pipeline-parallel-size", stages)
    one = run(*WRITE, *words, *(() if "--exact" in words else ranks), env=env)
    words = [*WRITE, *words, *ranks]  # how sums are made, too, is the first one's to say
    got = launch(unequal(words, words, before=["env", "-u", "QUIRE_CUDA_TWO_SHOTS"], others=processes - 1), env=env | {"QUIRE_CUDA_TWO_SHOTS": "0"})
    assert (one.returncode, got.returncode) == (0, 0), (one, got)
    found = re.findall(rf"rank=(\d) world={tensor * stages} weight_bytes=\d+", got.stderr)
    assert sorted(map(int, found)) == list(range(tensor * stages)), got.stderr
    got, want = json.loads(got.stdout), json.loads(one.stdout)
    assert got["tokens"] == want["tokens"] and len(want["text"]) > 6 and got.get("logprobs") == want.get("logprobs")


@needs_emulated
@pytest.mark.parametrize(
    "other, first, words, env, sentence",
    [
        ("host", 2, (), {}, "GPUs that share a layer are on several machines; NCCL, which adds without that, is not there: the emulator has"),
        ("host", 2, ("--exact",), {"QUIRE_EMULATED_NCCL": "1"}, "but in an order of its own: leave out --exact"),
        (None, 1, (), {}, "there is no emulated device 1, only 1 of them; processes of one machine must see the same"),
        (None, 2, (), {"QUIRE_EMULATED_ALONE": "1"}, "device 1 is out of reach; NCCL, which adds without that, is not there"),
    ],
)  # fmt: skip
def test_gpus_out_of_reach(tmp_path, other, first, words, env, sentence):
    words = [*GENERATE, "--tensor-parallel-size", "2", "--device", "cuda", *words]
    env = env | {"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": str(first)}
    got = launch(unequal(words, words, before=[*(elsewhere(tmp_path, other) if other else ()), "env", "QUIRE_EMULATED_DEVICES=2"]), env=env)
    assert got.returncode == 2 and sentence in got.stderr, got


@needs_emulated
@pytest.mark.parametrize("other", ["host", "processes", "threads"])
@pytest.mark.parametrize("sampling", [(), TOPK])
def test_gpus_apart(tmp_path, other, sampling):
    """Ranks of several machines, or of one without peer access, sum by NCCL alone, close to GPUs that read each other's memory."""
    words = [*WRITE, *LOGPROBS, *sampling, "--tensor-parallel-size", "2"]
    env = {"QUIRE_CUDA_MODULE": str(EMULATED)}
    want = run(*words, env=env)
    env |= {"QUIRE_EMULATED_NCCL": "1"} | ({} if other == "host" else {"QUIRE_EMULATED_ALONE": "1"})
    if other == "threads":
        got = run(*words, env=env)
    else:
        got = launch(unequal(words, words, before=elsewhere(tmp_path, other) if other == "host" else ()), env=env)
    assert (want.returncode, got.returncode) == (0, 0), (want, got)
    got, want = json.loads(got.stdout), json.loads(want.stdout)
    assert got["tokens"] == want["tokens"] and len(want["text"]) > 6
    assert all(abs(a["logprob"] - b["logprob"]) < 1e-2 for a, b in zip(got["logprobs"], want["logprobs"]))


@needs_emulated
def test_long_sums_of_processes():
    """A prompt's sums by NCCL have the same bits in processes as in threads; without NCCL they have others."""
    env = {"QUIRE_CUDA_MODULE": str(EMULATED)}
    words = ["generate", "--raw", "-p", "Once upon a time there was a cat. " * 8, "-n", "2", "--json", *LOGPROBS, "--device", "cuda",
             "--tensor-parallel-size", "4"]  # fmt: skip
    got = [run(*words, before=before, env=env | own) for before, own in
           [((), {}), ((), {"QUIRE_EMULATED_NCCL": "1"}), (mpirun(4), {"QUIRE_EMULATED_NCCL": "1"})]]  # fmt: skip
    assert [one.returncode for one in got] == [0, 0, 0], got
    without, threads, processes = (json.loads(one.stdout)["logprobs"] for one in got)
    assert processes == threads != without


@needs_emulated
@pytest.mark.parametrize("first", [True, False])
def test_nccl_of_one_process(first):
    """If one process has no NCCL, none uses it, so that no process waits for ever."""
    words = ["generate", "--raw", "-p", "Once upon a time there was a cat. " * 8, "-n", "2", "--json", *LOGPROBS, "--device", "cuda",
             "--tensor-parallel-size", "2"]  # fmt: skip
    env = {"QUIRE_CUDA_MODULE": str(EMULATED)}
    has, lacks = ["env", "QUIRE_EMULATED_NCCL=1"], ["env", "-u", "QUIRE_EMULATED_NCCL"]
    got = launch([RUN, "mpirun", 1, *(has if first else lacks), BINARY, *words, ":", "-np", 1, *(lacks if first else has), BINARY, *words], env=env)
    want = run(*words, env=env)
    assert (want.returncode, got.returncode) == (0, 0) and "long sums between devices go without NCCL" in got.stderr, (want, got)
    assert json.loads(got.stdout)["logprobs"] == json.loads(want.stdout)["logprobs"]


@needs_emulated
def test_processes_add_alike():
    """The first process says from which size on sums take two shots: one that waited for another way would wait for ever."""
    words = ["generate", "--raw", "-p", "Once upon a time there was a cat. " * 8, "-n", "2", "--json", *LOGPROBS, "--device", "cuda",
             "--tensor-parallel-size", "4"]  # fmt: skip
    env = {"QUIRE_CUDA_MODULE": str(EMULATED)}
    always, never = ["env", "QUIRE_CUDA_TWO_SHOTS=0"], ["env", "QUIRE_CUDA_TWO_SHOTS=1000000000"]
    got = launch([RUN, "mpirun", 1, *always, BINARY, *words, ":", "-np", 3, *never, BINARY, *words], env=env)
    want = run(*words, env=env)
    assert (want.returncode, got.returncode) == (0, 0), (want, got)
    assert json.loads(got.stdout)["logprobs"] == json.loads(want.stdout)["logprobs"]


@needs_emulated
@pytest.mark.parametrize("own", [{"QUIRE_CUDA_SHARE_DEVICE": "1"}, {"QUIRE_EMULATED_DEVICES": "2"}])
def test_one_gpu_of_two_processes(own):
    """Both are told to share it, or process 1 alone."""
    words = [*WRITE, "--tensor-parallel-size", "2"]
    env = {"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_EMULATED_DEVICES": "1"}
    got = launch(unequal(words, words, before=["env", "QUIRE_EMULATED_DEVICES=1", "QUIRE_CUDA_SHARE_DEVICE=1"]), env=env | own)
    if "QUIRE_CUDA_SHARE_DEVICE" in own:
        one = run(*words, env=env | {"QUIRE_EMULATED_DEVICES": "2"})
        assert got.returncode == 0 and json.loads(got.stdout)["tokens"] == json.loads(one.stdout)["tokens"], (got, one)
    else:
        assert got.returncode == 70 and "another has the same GPU; processes of one machine must see the same in the same order" in got.stderr, got


@needs_emulated
def test_gpu_of_another_process_fails(tmp_path):
    """A process that waits for it within a kernel ends long before its time is up."""
    env = faulty(module=EMULATED, rank=1, step=3)
    got = run(*WRITE, "--tensor-parallel-size", 2, before=[*mpirun(2), *writing_codes(tmp_path, 2)], env=env)
    assert len(re.findall("quire: .*the device of rank 1 fails|engine failed: .*the device of rank 1 fails", got.stderr)) == 2, got
    assert "is still here" not in got.stderr and codes(tmp_path, [1]) == [70] and codes(tmp_path, [0]) != [0], got


@needs_emulated
@pytest.mark.parametrize("victim", [0, 1])
def test_process_of_a_gpu_is_killed(start, tmp_path, victim):
    env = {"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_CUDA_GRAPHS": "0"}
    server = start("--device", "cuda", model="", before=[*mpirun(2), *writing_codes(tmp_path, 2)], env=env)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(server.post, "/v1/completions", LONG | {"n": 1}, timeout=120)
        wait_until_running(server)
        os.kill(followers(server)[victim], signal.SIGKILL)
        if victim == 0:
            with pytest.raises((ConnectionError, AssertionError)):
                asked.result()
        else:
            assert asked.result().status == 503
    assert codes(tmp_path, [1 - victim]) == [70] and server.wait() != 0
    server.stopped = True
    log = server.log()
    assert re.search(rf"engine failed: .*process {victim} \(\S+\) has ended", log) and "is still here" not in log, log
    server.discard_log()


def test_no_module():
    got = run(*GENERATE, before=mpirun(2), env={"QUIRE_MPI_MODULE": "/none.so"})
    assert got.returncode == 2 and "mpirun has started several processes, but there is no quire-mpi.so" in got.stderr, got
