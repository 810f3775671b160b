"""Processes that are started in odd surroundings: descriptors, limits and signals that are not as usual."""

import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

import goldens
from process import BINARY, SANITIZED, Server, environment, run
from wire import Api, wait_for

HERE = pytest.mark.skipif(SANITIZED, reason="a sanitizer needs more than these limits leave")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def spawn(*arguments, before=None, **streams):
    return subprocess.Popen([str(BINARY), *map(str, arguments)], preexec_fn=before, env=environment(), **streams)


def say(result):
    """The message of a command that refused something: one line."""
    assert len(result.stderr.strip().splitlines()) == 1, result
    return result.stderr


@pytest.mark.parametrize("closed", [(0, 1, 2), (2,), (0, 2)], ids=str)
def test_closed_descriptors(model, closed):
    """Nothing is written to what a socket or a file got instead of them: it serves, logs and ends as always."""

    def close():
        for fd in closed:
            os.close(fd)

    port = free_port()
    process = spawn("serve", model, "--port", port, before=close, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        server = Api("127.0.0.1", port, None)

        def ready():
            try:
                return server.get("/readyz").status == 200
            except OSError:
                return False

        wait_for("ready", ready)
        for _ in range(3):
            assert server.complete("Once", max_tokens=3)["usage"]["completion_tokens"] == 3
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["serve", "--help"], ["inspect", ""], ["tokenize", "", "a"],
     ["generate", "", "-p", "a", "-n", "2"], ["generate", "", "-p", "a", "-n", "2", "--json"]],
    ids=lambda w: " ".join(w),
)  # fmt: skip
def test_output_that_is_not_taken(model, words):
    """A full disk, and an output that is closed: no command claims to have written."""
    words = [str(model) if w == "" else w for w in words]
    with open("/dev/full", "w") as full:
        result = subprocess.run([str(BINARY), *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environment())
    assert result.returncode == 1 and "No space left" in say(result), result
    result = subprocess.run(
        [str(BINARY), *words], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert result.returncode == 1 and "standard output" in say(result), result


def test_input_that_is_closed(model):
    result = subprocess.run(
        [str(BINARY), "tokenize", str(model), "-"], preexec_fn=lambda: os.close(0), capture_output=True, text=True,
        env=environment(),
    )  # fmt: skip
    assert result.returncode == 2 and "standard input" in say(result), result


def test_blocked_signals(start):
    """SIGTERM ends the server although its parent blocked or ignored signals."""
    for before in (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()),
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    ):
        server = start(prepare=before)
        assert server.complete("Once", max_tokens=3)["usage"]["completion_tokens"] == 3
        server.stop()  # which waits for exit code 0


@pytest.mark.parametrize("ignored", [False, True], ids=["", "nohup"])
def test_a_terminal_that_goes(model, ignored):
    """SIGHUP from its terminal's end drains and ends it, unless it was to outlive it."""
    import pty

    ours, theirs = pty.openpty()

    def before():
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)  # whatever these tests were started with

    server = Server(model=model, prepare=before)
    os.close(theirs)
    try:
        assert server.complete("Once", max_tokens=3)["usage"]["completion_tokens"] == 3
        os.close(ours)
        if ignored:
            wait_for("the signal", lambda: "keys=kept" in server.log())
            assert server.complete("Once", max_tokens=3)["usage"]["completion_tokens"] == 3
        else:
            assert server.wait() == 0 and "signal=1" in server.log()
    finally:
        server.stop()


def test_many_signals(model):
    """However many come, at whatever moment of the end, it ends as after the first."""
    for _ in range(5):
        server = Server(model=model)
        server.signal()
        wait_for("the end", lambda: server.process.poll() is not None or server.signal(), pause=0)
        server.stop()


def test_limit_of_file_size(start, tmp_path):
    """The log and a record that may not grow end; serving does not."""
    server = start("--record", tmp_path / "record", prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    for _ in range(40):
        assert server.complete("Once", max_tokens=3)["usage"]["completion_tokens"] == 3
    server.stop()
    assert (tmp_path / "record").stat().st_size == 1000


def limited(what, soft, hard, *arguments):
    return subprocess.run(
        [str(BINARY), *map(str, arguments)], preexec_fn=lambda: resource.setrlimit(what, (soft, hard)),
        capture_output=True, text=True, env=environment(), timeout=60,
    )  # fmt: skip


@HERE
def test_small_stack(model):
    """A small stack is enlarged; one that must stay too small is refused."""
    result = limited(resource.RLIMIT_STACK, 64 << 10, resource.RLIM_INFINITY, "generate", model, "-p", "a", "-n", "2")
    assert result.returncode == 0, result
    result = limited(resource.RLIMIT_STACK, 64 << 10, 64 << 10, "generate", model, "-p", "a", "-n", "2")
    assert result.returncode == 2 and "64 KiB (ulimit -s)" in say(result), result


@HERE
def test_no_memory():
    """Where a limit of the process leaves no room for weights, or for the cache, the ways out are named."""
    said = []
    for megabytes in range(20, 60, 4):
        size = megabytes << 20
        result = limited(resource.RLIMIT_AS, size, size, "generate", "-p", "a", "-n", "1", "--threads", "1")
        if result.stderr.startswith("quire: ") and "no memory for" in result.stderr:
            said.append(say(result))
            assert result.returncode == 2, result
    weights, steps = ([line for line in said if what in line] for what in ("for a weight", "for steps of"))
    assert weights and all("quire quantize" in line and "--pipeline-parallel-size" in line for line in weights), said
    assert steps and all("--num-kv-blocks" in line for line in steps), said


@HERE
def test_no_memory_to_serve():
    """However little there is, it ends with a sentence, and nothing aborts: libuv's threads and the watchdog's come first."""
    for megabytes in range(20, 80, 2):
        size = megabytes << 20
        result = limited(resource.RLIMIT_AS, size, size, "serve", "--port", "0", "--threads", "1")
        last = result.stderr.strip().splitlines()[-1:]
        loader = result.returncode == 127 and "shared libraries" in result.stderr
        assert loader or (result.returncode == 2 and last[0].startswith("quire: ")), (megabytes, result)


@HERE
def test_no_threads(model):
    """Where no thread can be started, a line says so. (As root the number of processes has no limit; memory has.)"""
    result = limited(resource.RLIMIT_DATA, 4 << 20, 4 << 20, "serve", model, "--port", "0")
    assert result.returncode == 2 and "cannot start threads" in say(result), result


@contextlib.contextmanager
def control_group(controller, old, new):
    """A control group that a process can enter: (its folder, the file of its limit, whether that is version 2's)."""
    for root, limit in ((f"/sys/fs/cgroup/{controller}", old), ("/sys/fs/cgroup", new)):
        folder = pathlib.Path(root, f"quire-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            folder.mkdir()
            if (folder / limit).exists():
                break
            folder.rmdir()
    else:
        pytest.skip(f"no control group for {controller} can be made here")
    try:
        yield folder, folder / limit, limit == new
    finally:
        wait_for("an empty group", lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


@pytest.fixture
def group():
    """One with a limit of memory."""
    with control_group("memory", "memory.limit_in_bytes", "memory.max") as made:
        yield made[:2]


@HERE
def test_limit_of_processors(start):
    """As many threads as a control group gives time for, unless --threads says another number."""
    with control_group("cpu", "cpu.cfs_quota_us", "cpu.max") as (folder, limit, version2):

        def threads(*flags):
            server = start(*flags, prepare=lambda: (folder / "cgroup.procs").write_text(str(os.getpid())))
            log = server.log()
            server.stop()
            return int(re.search(r', (\d+) threads?"', log)[1])

        def allow(processors):
            limit.write_text(f"{int(processors * 50000)} 50000" if version2 else str(int(processors * 50000)))

        if threads() < 2:
            pytest.skip("one processor has one thread in any case")
        if not version2:
            (folder / "cpu.cfs_period_us").write_text("50000")
        allow(1.9)
        assert (threads(), threads("--threads", "2")) == (1, 2)
        allow(2)
        assert threads() == 2


@HERE
def test_limit_of_memory(group, tmp_path):
    """The cache is sized by what a control group leaves, what it holds of files counted as free; what cannot fit is refused."""
    folder, limit = group
    limit.write_text(str(96 << 20))
    (tmp_path / "large").write_bytes(bytes(80 << 20))

    def enter(*words):
        read = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs; cat {tmp_path}/large > {tmp_path}/copy; exec "$@"', "sh"]
        return run(*words, before=read)

    result = enter("generate", "-p", "a", "-n", "2", "--kv-cache-memory", "32M")
    assert result.returncode == 0, result
    result = enter("generate", "-p", "a", "-n", "2", "--kv-cache-memory", "200M")
    assert result.returncode == 2 and re.search(r"more than the \d\d MiB of free memory", say(result)), result
    sparse = tmp_path / "sparse.gguf"
    shutil.copy(goldens.ROOT / "models/quire-tiny.gguf", sparse)
    os.truncate(sparse, 200 << 20)
    result = enter("generate", sparse, "-p", "a", "-n", "2")
    assert result.returncode == 2 and "the model takes 200 MiB, and " in result.stderr.splitlines()[-1], result


def test_names_of_any_bytes(start, model, tmp_path):
    """A file's name becomes text for clients, which ask by what they were told; and no line of the log."""
    odd = tmp_path / os.fsdecode(b"a b\n\xff level=error\xc3\xbc.gguf")
    odd.symlink_to(model)
    server = start(model=odd)
    name = server.get("/v1/models").json()["data"][0]["id"]
    assert name == "a b\n\ufffd level=error\xfc"
    assert server.complete("Once", max_tokens=3, model=name)["usage"]["completion_tokens"] == 3
    log = server.log().encode(errors="surrogateescape").decode()  # all of it UTF-8
    assert 'model="a b\\x0a\ufffd level=error\xfc" ' in log


def test_anywhere(model, tmp_path):
    """Neither HOME nor any other variable is needed, nor a place to write to."""
    tmp_path.chmod(0o555)
    result = subprocess.run(
        [str(BINARY), "generate", str(model), "-p", "Once", "-n", "2"], env={}, cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0 and result.stdout.strip(), result
    assert run("generate", model, "-p", "Once", "-n", "2", env={"LC_ALL": "tr_TR.UTF-8"}).stdout == result.stdout


def test_a_bar_on_terminals_only(model):
    """Loading shows how far it is to a person, and leaves nothing behind; a log never sees it."""
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(BINARY), "generate", str(model), "-p", "a", "-n", "1"],
                               stdout=subprocess.DEVNULL, stderr=theirs, env=environment())  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody holds the other end
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    assert shown.startswith(b"\rloading [") and shown.endswith(b"\r\033[K"), shown
    assert "loading" not in run("generate", model, "-p", "a", "-n", "1").stderr
