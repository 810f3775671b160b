"""One connection must not stop the house: while it does its worst, others are served and a signal ends the server."""

import json
import os
import socket
import subprocess
import threading
import time

import pytest

from goldens import expected
from process import BINARY, Server, environment
from wire import check_error, wait_for

PROMPT = "Once upon a time"
PATH = "/v1/completions"
WHOLE = 32 << 20


def head(server, *lines, method="POST", path=PATH):
    first = [f"{method} {path} HTTP/1.1", f"Host: {server.host_header}", "Content-Type: application/json"]
    return "\r\n".join([*first, *lines]).encode() + b"\r\n\r\n"


def long_chunk_line(server, stop):
    """A line that never ends and is longer than the buffer for it."""
    with server.connect() as conn:
        conn.send(head(server, "Transfer-Encoding: chunked") + b"5;" + 33000 * b"e")
        stop.wait()


def full_head(server, stop):
    """A head that leaves no room in the buffer, then a body."""
    with server.connect() as conn:
        lines = ["X: " + 31800 * "a", "Transfer-Encoding: chunked"]
        conn.send(head(server, *lines) + b"5;" + 4000 * b"e")
        stop.wait()


def endless_trailer(server, stop):
    with server.connect() as conn:
        conn.send(head(server, "Transfer-Encoding: chunked") + b"1\r\n{\r\n0\r\nX: ")
        with_errors(lambda: [conn.send(1000 * b"a") for _ in range(40)])
        stop.wait()


def flood(server, stop):
    """Requests without end, whose responses are read."""
    with server.connect() as conn:

        def read():
            while conn.fill():
                conn.buf = b""

        reader = threading.Thread(target=with_errors, args=(read,), daemon=True)
        reader.start()
        requests = 500 * head(server, method="GET", path="/livez")
        while not stop.is_set():
            try:
                conn.send(requests)
            except OSError:
                break
        conn.reset()


def unread(server, stop):
    """Requests without end, whose responses nobody reads."""
    with server.connect(rcvbuf=4096) as conn:
        conn.sock.settimeout(0.5)
        while not stop.is_set():
            try:
                conn.send(head(server, method="GET", path="/metrics"))
            except OSError:
                stop.wait()


def with_errors(run):
    try:
        run()
    except (OSError, AssertionError):
        pass


@pytest.mark.parametrize("attack", [long_chunk_line, full_head, endless_trailer, flood, unread])
def test_the_others_go_on(start, attack):
    server = start()
    stop = threading.Event()
    thread = threading.Thread(target=with_errors, args=(lambda: attack(server, stop),), daemon=True)
    thread.start()
    try:
        for _ in range(5):
            assert server.stream(PROMPT, max_tokens=32).choices[0]["text"] == expected(0, 32)
            assert server.get("/health").status == 200
        server.stop()  # by SIGTERM, and it must end
    finally:
        stop.set()
        thread.join()


def test_gone_amid_a_body(server):
    """The server frees an upload's memory soon after its client has left."""
    for _ in range(3):
        conns = [server.connect() for _ in range(15)]
        for conn in conns:
            conn.send(head(server, f"Content-Length: {18 << 20}") + (17 << 20) * b" ")
            conn.close()
    large = json.dumps({"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "user": 3000000 * "u"}).encode()
    wait_for("room for a body", lambda: server.post(PATH, large).status == 200)


def test_stopped_amid_many_requests(model):
    """Connections that wait for their turn are let go, too."""
    for _ in range(3):
        server = Server()
        stop = threading.Event()
        threads = [threading.Thread(target=with_errors, args=(lambda: flood(server, stop),), daemon=True) for _ in range(10)]
        for thread in threads:
            thread.start()
        wait_for("requests", lambda: server.get("/health").status == 200)
        server.stop()
        stop.set()
        for thread in threads:
            thread.join()


def test_declared_bodies_take_no_room(server):
    """Twenty times 32 MiB are promised; what counts is what has come."""
    conns = [server.connect() for _ in range(20)]
    for conn in conns:
        conn.send(head(server, f"Content-Length: {WHOLE}") + b"{ ")
    try:
        assert server.complete(PROMPT, max_tokens=4)
        large = json.dumps({"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "user": 2000000 * "u"}).encode()
        assert server.post(PATH, large).status == 200
    finally:
        for conn in conns:
            conn.close()


def test_json_takes_what_it_may(server):
    """Values of two bytes that take eighty each, four bodies at once: an error or not, and the server lives."""
    body = b'{"prompt": [' + b",".join(1900000 * [b"1"]) + b"]}"
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(server.post(PATH, body).status)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {400, 503} and len(statuses) == 4
    assert server.complete(PROMPT, max_tokens=4)


class TestEarlyErrors:
    """The response reaches a client that sends its whole body before it reads."""

    def sent_whole(self, server, data):
        with server.connect() as conn:
            conn.send(data)
            reply = conn.read_reply("POST")
            assert conn.rest() == b"", "a second response"
            assert reply.header("connection") == "close"
            return reply

    def test_wrong_key(self, start):
        server = start("--api-key", "right", key="right")
        body = (1 << 20) * b" "
        data = head(server, "Authorization: Bearer wrong", f"Content-Length: {len(body)}") + body
        check_error(self.sent_whole(server, data), 401, code="invalid_api_key")

    def test_declared_too_large(self, server):
        data = head(server, f"Content-Length: {WHOLE + 1}") + (WHOLE + 1) * b" "
        check_error(self.sent_whole(server, data), 413, code="request_too_large")

    def test_chunked_too_large(self, server):
        chunk = b"100000\r\n" + (1 << 20) * b" " + b"\r\n"
        data = head(server, "Transfer-Encoding: chunked") + 34 * chunk + b"0\r\n\r\n"
        reply = self.sent_whole(server, data)
        check_error(reply, 413, code="request_too_large")
        assert reply.header("x-request-id")

    def test_too_slow(self, server):
        """Ten seconds with less than 160 KiB."""
        with server.connect() as conn:
            conn.send(head(server, "Content-Length: 1000") + b"{ ")
            check_error(conn.read_reply("POST"), 408, code="request_timeout")
            for _ in range(10):  # what still comes is no reason to reset: that could take the response away
                conn.send(b" ")
                time.sleep(0.1)
            assert conn.rest() == b""

    def test_the_next_request_is_not_read(self, server):
        """The bytes behind a refused request on its connection may be part of its body."""
        data = head(server, "Content-Length: 10", path="/nowhere") + b"0123456789"
        with server.connect() as conn:
            conn.send(data + head(server, method="GET", path="/v1/models"))
            assert conn.read_reply("POST").status == 404
            assert conn.rest() == b""

    def test_nothing_follows_a_chunked_body(self, server):
        """0.9.75 is lenient about chunk lines, so where such a body ends may be seen otherwise by a proxy."""
        body = json.dumps({"prompt": PROMPT, "max_tokens": 3}).encode()
        data = head(server, "Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        with server.connect() as conn:
            conn.send(data + head(server, method="GET", path="/v1/models"))
            assert conn.read_reply("POST").status == 200
            assert conn.rest() == b""


def test_a_page_without_a_type(server):
    """A browser asks no permission for a POST without a type, but says whose page it is."""
    body = {"prompt": PROMPT, "max_tokens": 1}
    untyped = {"Content-Type": None}
    assert server.post(PATH, body, headers=untyped).status == 200
    check_error(server.post(PATH, body, headers=untyped | {"Origin": "https://evil.example"}), 415)


def test_a_log_that_nobody_reads(model):
    """stderr is a pipe whose reader has stopped: lines are lost, and counted once it reads again."""
    process = subprocess.Popen(
        [str(BINARY), "serve", str(model), "--port", "0", "--log-level", "debug"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        log = b""
        while b"listening on" not in log:
            log += os.read(process.stderr.fileno(), 4096)
        port = int(log.split(b"listening on http://")[1].split(b"\n")[0].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            for _ in range(1500):  # of some 100 bytes each; a pipe takes 64 KiB
                sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert sock.recv(65536).startswith(b"HTTP/1.1 200")

            def reads_on():
                nonlocal log
                log += os.read(process.stderr.fileno(), 65536)
                sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return sock.recv(65536) and b"log_lines_lost=" in log

            wait_for("the count of lost lines", reads_on)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
