"""One store of KV blocks for several servers, on a Valkey or Redis server of Debian's."""

import shutil
import socket
import subprocess
import time

import pytest

from process import run
from wire import wait_for

TEXT = "Once upon a time a small dragon lived on a hill, and every day it looked at the sea. " * 4
DAEMON = shutil.which("valkey-server") or shutil.which("redis-server")
pytestmark = pytest.mark.skipif(not DAEMON, reason="neither valkey-server nor redis-server is installed")


class Valkey:
    def __init__(self, folder, *flags):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.command = [DAEMON, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *flags]
        self.url = f"valkey://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        wait_for("the daemon", self.answers)

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def valkey(tmp_path):
    daemons = []

    def begin(*flags):
        daemons.append(Valkey(tmp_path, *flags))
        return daemons[-1]

    yield begin
    for one in daemons:
        one.stop()


def ask(server, text=TEXT, **fields):
    return server.complete(text, max_tokens=6, temperature=0, logprobs=3, **fields)


def told(reply):
    choice = reply["choices"][0]
    return choice["text"], choice["logprobs"]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def value(server, name):
    return server.metrics().value(f"quire:kv_store_{name}")


def test_prefixes_are_shared(start, valkey):
    at = valkey().url
    one, two = start("--kv-store", at), start("--kv-store", at)
    first = ask(one)
    whole = (first["usage"]["prompt_tokens"] - 1) // 16 * 16
    wait_for("pages that were written", lambda: value(one, "writes_total") >= whole // 16)
    again = ask(two)
    assert cached(first) == 0 and cached(again) == whole and told(again) == told(first)
    past = two.get(f"/v1/cache/explain/{again['id']}").json()
    assert past["store"]["where"] == "valkey" and past["store"]["fetched_tokens"] == whole
    assert value(two, "reads_total") == whole // 16 and value(two, "corrupt_total") == 0
    longer = ask(two, TEXT + "The dragon was not alone there, and it knew that well. " * 2)
    assert cached(longer) >= whole - 16
    other = ask(two, "The sea was grey. " + TEXT)  # nothing of it is there, and asking says so
    assert cached(other) == 0


def test_roles(start, valkey):
    at = valkey().url
    prefill, decode = start("--kv-store", at, "--kv-role", "producer"), start("--kv-store", at, "--kv-role", "consumer")
    alone = start()
    first = prefill.complete(TEXT, max_tokens=1)
    whole = (first["usage"]["prompt_tokens"] - 1) // 16 * 16
    wait_for("pages that were written", lambda: value(prefill, "writes_total") >= whole // 16)
    handed = ask(decode)
    assert cached(handed) == whole and told(handed) == told(ask(alone))
    another, before = "Another story, which nobody has told. " * 8, value(prefill, "writes_total")
    ask(decode, another)
    prefill.complete(another, max_tokens=1)
    wait_for("pages that the consumer has left to it", lambda: value(prefill, "writes_total") > before)
    assert value(decode, "writes_total") == 0 and value(prefill, "reads_total") == 0 and value(prefill, "fetches_total") == 0


def test_it_fails(start, valkey):
    daemon = valkey()
    server = start("--kv-store", daemon.url)
    first = ask(server)
    daemon.stop()
    for i in range(3):  # misses, and no error
        assert cached(ask(server, f"Story {i}. " + TEXT)) == 0
    assert told(ask(server)) == told(first)
    wait_for("a failure", lambda: value(server, "failed_total") >= 1)
    assert server.log().count("the KV store fails, and the server goes on without it") == 1
    daemon.start()
    began = time.monotonic()
    pages = value(server, "writes_total")
    while value(server, "writes_total") == pages:  # it is tried again after a while
        assert time.monotonic() - began < 60
        ask(server, f"Time {time.monotonic()}. " + TEXT)
        time.sleep(0.5)


def test_password(start, valkey):
    daemon = valkey("--requirepass", "canary-7d1f")
    address = f"127.0.0.1:{daemon.port}"
    server = start("--kv-store", f"valkey://canary-7d1f@{address}/3")
    ask(server)
    wait_for("pages that were written", lambda: value(server, "writes_total") > 0)
    with socket.create_connection(("127.0.0.1", daemon.port), 10) as raw, raw.makefile("rb") as lines:
        raw.sendall(b"AUTH canary-7d1f\r\nDBSIZE\r\nSELECT 3\r\nDBSIZE\r\n")
        said = [lines.readline().strip() for _ in range(4)]
    assert said[1] == b":0" and int(said[3][1:]) > 1  # the secret, and pages
    for wrong, why in ((f"valkey://wrong@{address}", "cannot log in"), (f"valkey://{address}", "cannot log in"),
                       ("valkey://127.0.0.1:1", "cannot connect"), ("valkey://:0", "expected valkey://")):  # fmt: skip
        done = run("serve", "--port", "0", "--kv-store", wrong)
        assert done.returncode != 0 and why in done.stderr and "wrong@" not in done.stderr, done.stderr
