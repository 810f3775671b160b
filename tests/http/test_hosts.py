"""Processes on two hosts, which are network namespaces with a wire between them; and examples/mpi/serve.sh."""

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
from launched import ASK, LONG, RUN, codes, exporting, needs_mpi, processes_of, wait_until_running, writing_codes
from process import BINARY, SLOW, children, run
from wire import Api, wait_for

pytestmark = needs_mpi


@pytest.fixture
def two_hosts():
    """Two network namespaces with a wire between them, each with a name of its own; a command for the second."""
    names = [f"quire-{os.getpid()}-{name}" for name in "ab"]
    if os.geteuid() != 0:
        pytest.skip("two hosts need root")
    if not shutil.which("ip"):
        (pytest.fail if os.environ.get("QUIRE_REQUIRE_DATA") else pytest.skip)("two hosts need ip(8) of iproute2: ./dev deps")
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
    """mpirun for one process on each host; it reaches the other by a stand-in for ssh. The other numbers its processes itself."""

    def __init__(self, names, folder):
        agent = folder / "agent"
        command = "unshare --uts --pid --fork --kill-child"
        agent.write_text(f'#!/bin/sh\n# HOST COMMAND…: as ssh would\nshift\nexec ip netns exec {names[1]} {command} sh -c "hostname quire-b; $*"\n')
        agent.chmod(0o755)
        self.names = names
        self.here = ["ip", "netns", "exec", names[0]]
        self.before = [*self.here, RUN, "mpirun", 2, "--host", "10.213.0.1:1,10.213.0.2:1",
                       "--mca", "plm_rsh_agent", agent, "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "quire0",
                       "--mca", "oob_tcp_if_include", "quire0"]  # fmt: skip
        self.log_file = folder / "log"
        self.name = folder.name
        self.process = None

    def log(self):
        return self.log_file.read_text()

    def serve(self, *options, between=()):
        words = [*self.before, *options, *between, BINARY, "serve", "--port", 0, "--served-model-name", self.name]
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
    got = run("generate", "--raw", "-p", "Once upon a time", "-n", "8", "--json", before=hosts.before, timeout=300)
    one = run("generate", "--raw", "-p", "Once upon a time", "-n", "8", "--json")
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
    hosts.serve("--mca", "odls_base_sigkill_timeout", patience(), *exporting(SLOW))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(hosts.post, LONG)
        wait_for("a request runs", lambda: re.search(r"^vllm:num_requests_running.* [1-9]", hosts.curl("/metrics")[1], re.MULTILINE))
        os.kill(hosts.second(), signal.SIGKILL)
        assert asked.result()[0] == 503
    assert hosts.process.wait(300) != 0
    log = hosts.log()
    assert re.search(r"engine=dead group ended: .*(rank 0 cannot reach rank 1|process 1 \(quire-b\) has not been heard of)", log), log


@pytest.mark.parametrize("what", ["stall", "wire"])
def test_the_other_host_is_lost(hosts, tmp_path, what):
    """Nothing but silence tells it: a process there stands still, or the wire is cut. Both processes end with 70."""
    hosts.serve(*exporting(SLOW), between=writing_codes(tmp_path, 2))
    second = hosts.second()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(hosts.post, LONG)
        wait_for("a request runs", lambda: re.search(r"^vllm:num_requests_running.* [1-9]", hosts.curl("/metrics")[1], re.MULTILINE))
        if what == "stall":
            os.kill(second, signal.SIGSTOP)
        else:
            subprocess.run(["ip", "-n", hosts.names[1], "link", "set", "quire0", "down"], check=True)
        assert asked.result()[0] == 503
    assert codes(tmp_path, [0]) == [70]
    if what == "stall":
        os.kill(second, signal.SIGCONT)
    assert codes(tmp_path, [1]) == [70]
    log = hosts.log()
    assert "engine=dead group ended: process 1 (quire-b) has not been heard of for 6 s" in log, log


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
