"""`quire health`: what a container's health check sees."""

import contextlib
import socket
import threading

import pytest

from process import run


@pytest.fixture
def stub():
    """stub(*answers): a URL whose connections get these bytes in turn; None keeps the connection open, silent."""
    sockets, requests = [], []

    def begin(*answers):
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)

        def serve():
            for answer in answers:
                conn, _ = listener.accept()
                sockets.append(conn)
                requests.append(conn.recv(65536))
                if answer is not None:
                    with contextlib.suppress(OSError):  # quire reads no more than it wants
                        conn.sendall(answer)
                        conn.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    begin.requests = requests
    yield begin
    for one in sockets:
        one.close()


def test_well(server):
    for url in (server.url, server.url + "/", server.url + "/readyz", server.url.replace("127.0.0.1", "localhost")):
        got = run("health", url)
        assert (got.returncode, got.stdout, got.stderr) == (0, '{"status":"ok"}\n', ""), url


def test_flags_and_environment(server):
    """Without a URL: --host and --port, or what the server itself would read from the environment."""
    port = server.url.rsplit(":", 1)[1]
    assert run("health", "--port", port).returncode == 0
    assert run("health", env={"QUIRE_PORT": port}).returncode == 0
    assert run("health", env={"QUIRE_PORT": port, "QUIRE_HOST": "0.0.0.0"}).returncode == 0


def test_nobody_listens():
    with socket.socket() as held:  # bound, so that nobody else listens there meanwhile
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        got = run("health", f"http://127.0.0.1:{port}")
    assert got.returncode == 1 and got.stdout == "" and "Connection refused" in got.stderr
    assert run("health", f"http://name.invalid:{port}").returncode == 1


def test_unwell(start):
    server = start("--api-key", "k", key="k")
    got = run("health", server.url + "/v1/models")
    assert got.returncode == 1 and "status 401" in got.stderr and got.stdout == ""


def test_other_answers(stub):
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n"
    bad = [head + b"{}", b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 200", b"HTTP/2 200 \r\n\r\n", b"", b"\0" * 70000, b"200 "]
    url = stub(*bad)
    for answer in bad:
        got = run("health", url)
        assert got.returncode == 1 and got.stdout == "" and got.stderr.count("\n") == 1, answer[:40]
    assert stub.requests[0].startswith(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:")
    assert run("health", stub(b"HTTP/1.0 200 OK\r\n\r\nfine") + "/a/path?x=1").stdout == "fine\n"
    assert stub.requests[-1].startswith(b"GET /a/path?x=1 HTTP/1.1\r\n")


def test_silence_ends(stub):
    got = run("health", stub(None))
    assert got.returncode == 1 and "timed out" in got.stderr


@pytest.mark.parametrize(
    "url", ["localhost", "localhost:x", "https://localhost", "http://", "http://h:", "http://h:x", "http://h:123456", "http://a@h",
            "http://h/ x", "http://h/\r\nX: y", "http://[::1", "http://[]", "http://h:1x/", "http://" + "h" * 300,
            "http://h/" + "p" * 2000, "http://h?x"],
)  # fmt: skip
def test_usage(url):
    got = run("health", url)
    assert got.returncode == 2 and got.stderr.startswith("quire: usage: quire health")
    assert run("health", url, url).returncode == 2
