"""The binary under test: as a command that ends, and as a server that is started and stopped."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import goldens
from wire import Api

BINARY = Path(os.environ.get("QUIRE_BINARY") or goldens.ROOT / "build/release/quire")
EMULATED = BINARY.parent / "kernels/cuda/quire-cuda-emulated.so"


def faulty(**faults):
    """The environment of a server whose devices, the CPU, are slow or fail: what tests/tools/fault_backend.c reads, without FAULT_.
    A step gives a token: there are no drafts."""
    env = {"QUIRE_DEVICE": "cuda", "QUIRE_CUDA_MODULE": str(BINARY.parent / "tests/fault-backend.so"),
           "QUIRE_SPECULATIVE_METHOD": "none"}  # fmt: skip
    return env | {f"FAULT_{name.upper()}": str(value) for name, value in faults.items()}


# Steps that take a hundredth of a second longer: a request of 1,500 tokens runs for a quarter of a minute, on any machine.
SLOW = faulty(delay_us=10000)

# Words of prompts and answers that tests use. None may ever be in a log.
PRIVATE = ["Once upon", "Lily", "meaning of life", "little girl", "big, shiny", "canary-7d1f"]
WITH_TSAN = BINARY.exists() and b"__tsan_init" in BINARY.read_bytes()
SANITIZED = WITH_TSAN or BINARY.exists() and b"__asan_init" in BINARY.read_bytes()
SANITIZER = re.compile(r"(Address|Leak|Thread|UndefinedBehavior|Memory)Sanitizer|runtime error:|CHECK failed")


def environment(extra=None):
    """The server's environment, without the variables that would be flags (QUIRE_<FLAG>)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}
    return env | (extra or {})


def run(*arguments, timeout=300, env=None, before=()):
    """before: the words of a launcher. Runs a command to its end: returncode, stdout, stderr (text; bytes that are no UTF-8 become lone surrogates)."""
    return subprocess.run(
        [*map(str, before), str(BINARY), *map(str, arguments)], capture_output=True, timeout=timeout, env=environment(env),
        encoding="utf-8", errors="surrogateescape",
    )  # fmt: skip


def children(pid):
    """The processes that a process has started and that still are."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


class Server(Api):
    """`quire serve MODEL --port 0` with flags, after the words of a launcher. Use as: start(), requests, stop().

    prepare(): called in the process before it becomes the server."""

    def __init__(self, *flags, model=None, env=None, key=None, limit_files=None, before=(), prepare=None,
                 binary=BINARY, tls=None):  # fmt: skip
        self.log_file = tempfile.NamedTemporaryFile(prefix="quire-http-", suffix=".log", delete=False)
        model = goldens.data(goldens.MODEL) if model is None else model
        named = [str(model)] if model else []  # "": the embedded one
        command = [*map(str, before), str(binary), "serve", *named, "--port", "0", *map(str, flags)]

        def limit():
            import resource

            if limit_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit_files, limit_files))
            if prepare:
                prepare()

        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=self.log_file, env=environment(env),
            preexec_fn=limit if limit_files or prepare else None,
        )  # fmt: skip
        self.secrets = list(PRIVATE)
        self.stopped = False
        try:
            host, port = self.wait_for_address()
            super().__init__(host, port, key, tls)
            self.wait_ready()
        except BaseException:  # nobody else could end it
            self.end()
            raise

    def log(self):
        return Path(self.log_file.name).read_text(errors="replace")

    def wait_for_address(self, seconds=120):
        end = time.monotonic() + seconds
        while True:
            found = re.search(r"listening on https?://([^\s:]+):(\d+)", self.log())
            if found:
                return found[1], int(found[2])
            assert self.process.poll() is None, f"exit code {self.process.returncode} at start:\n{self.log()}"
            assert time.monotonic() < end, f"no address within {seconds} s:\n{self.log()}"
            time.sleep(0.01)

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while self.get("/readyz").status != 200:
            assert time.monotonic() < end, "not ready"
            time.sleep(0.01)

    def alive(self):
        return self.process.poll() is None

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=60):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(
                f"still running {seconds} s after it was told to stop:\n{self.tail()}"
            ) from None

    def end(self):
        """Ends it at once, with its children where a launcher has some."""
        if self.alive():
            for child in children(self.process.pid):
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            self.process.kill()
        self.process.wait()

    def tail(self):
        return self.log()[-4000:]

    def kill(self):
        self.end()
        self.stopped = True
        self.discard_log()

    def stop(self):
        """Stops it as an operator would, and checks that it went well and kept its secrets."""
        if self.stopped:
            return
        self.stopped = True
        if self.alive():
            self.signal()
        code = self.wait()
        self.check_log()
        assert code == 0, f"exit code {code}:\n{self.tail()}"
        self.discard_log()

    def check_log(self):
        log = self.log()
        assert not SANITIZER.search(log), f"a report in the log:\n{self.tail()}"
        for word in self.secrets:
            assert word not in log, f"{word!r} is in the log"

    def discard_log(self):
        self.log_file.close()
        os.unlink(self.log_file.name)
