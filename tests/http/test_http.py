"""HTTP at the byte level: what is malformed gets one answer and a closed connection, never a second answer.

Over 600 lines: the rows of one table of malformed input.
"""

import resource
import socket
import threading
import time

import pytest

from goldens import cases, expected
from wire import Conn, check_error, parse_events, request_bytes

PROMPT = "Once upon a time"
BODY = b'{"prompt": "Once upon a time", "max_tokens": 3, "temperature": 0}'


def want():
    return expected(0, 3)


def answers(server, data, timeout=60, half_close=False):
    """Sends bytes on a fresh connection; returns the complete answers until the server closes."""
    with server.connect(timeout=timeout) as conn:
        conn.send(data)
        if half_close:
            conn.sock.shutdown(socket.SHUT_WR)
        out = []
        while conn.buf or conn.fill():
            out.append(conn.read_reply("GET"))
        return out


def refused(server, data, *statuses):
    """One answer, an error, and the connection is closed: nothing of what was sent is read as another request."""
    replies = answers(server, data)
    assert len(replies) == 1, f"{len(replies)} answers: {replies}"
    (reply,) = replies
    assert "error" in reply.json(), reply
    assert reply.status in statuses if statuses else 400 <= reply.status < 500 or reply.status == 501, reply
    return reply


def post(server, *lines, body=BODY, host=True):
    head = [b"POST /v1/completions HTTP/1.1"]
    if host:
        head.append(b"Host: " + server.host_header.encode())
    head.append(b"Content-Type: application/json")
    return (
        b"\r\n".join(head + [line if isinstance(line, bytes) else line.encode() for line in lines])
        + b"\r\n\r\n"
        + body
    )


def hidden(server):
    """A request that an attacker would smuggle inside a body."""
    return b"GET /v1/models HTTP/1.1\r\nHost: " + server.host_header.encode() + b"\r\n\r\n"


LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.fixture(autouse=True)
def unharmed(server):
    yield
    if server.alive():
        reply = server.post("/v1/completions", BODY)
        assert reply.status == 200 and reply.json()["choices"][0]["text"] == want()


# ---- framing

CODING, CLOSE = "Transfer-Encoding: chunked", "Connection: close"


def smuggling(*lines, body=BODY):
    """A request with these lines; what stands behind its body must not be read as another one."""
    return lambda server: post(server, *lines, body=body + hidden(server))


def lines(*some, **more):
    return lambda server: post(server, *some, **more)


def raw(text):
    return lambda server: text.replace("HOST", server.host_header).encode()


REFUSED = {  # how it is sent, and the statuses that may come; none: any 4xx, or 501
    "two lengths": (smuggling("Content-Length: 5", LENGTH), 400),
    "two lengths, the right one first": (smuggling(LENGTH, "Content-Length: 5"), 400),
    "two equal lengths": (lines(LENGTH, LENGTH), 400),
    "length and chunked": (smuggling(LENGTH, CODING, body=CHUNKED), 400),
    "chunked and length": (smuggling(CODING, "Content-Length: 4", body=CHUNKED), 400),
    # Not understood: refused at once instead of waiting for a body that never comes.
    **{f"coding {c}": (smuggling(f"Transfer-Encoding: {c}", body=CHUNKED),) for c in (
        "gzip, chunked", "xchunked", "gzip", "chunked, gzip", "identity", "chunked, chunked", '"chunked"', "\x0bchunked", "chunked;q=1")},
    "chunked, then identity": (smuggling(CODING, "Transfer-Encoding: identity", body=CHUNKED),),
    "identity, then chunked": (smuggling("Transfer-Encoding: identity", CODING, body=CHUNKED),),
    "a space before the length's colon": (smuggling(f"Content-Length : {len(BODY)}"), 400),
    "a tab before the length's colon": (smuggling(f"Content-Length\t: {len(BODY)}"), 400),
    "a space before the coding's colon": (smuggling("Transfer-Encoding : chunked", body=CHUNKED), 400),
    "a space before a colon": (smuggling("X-Any : 1", LENGTH), 400),
    **{f"length {n[:20]}": (smuggling(f"Content-Length: {n}"), 400, 411, 413) for n in (
        "-1", "+3", "abc", "3, 3", "0x10", "1e2", "18446744073709551617", "3 3", "", "9" * 400)},
    # Compared with the limit before a byte of the body is read.
    **{f"length {n}": (lines(f"Content-Length: {n}", body=b""), 413, 400) for n in (2**63, 2**63 - 1, 2**64 - 1, 10**12)},
    **{f"chunk of {n}": (lines(CODING, body=n + b"\r\n" + BODY + b"\r\n0\r\n\r\n"), 400, 413) for n in (
        b"FFFFFFFFFFFFFFFFF", b"ZZ", b"-3", b"0x5", b"", b" ", b"5 5")},
    "a chunk longer than it says": (smuggling(CODING, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY) - 5, BODY)), 400),
    "chunked in 1.0": (lambda server: b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED + hidden(server), 400, 501),
    "two hosts": (lambda server: post(server, f"Host: {server.host_header}", LENGTH, body=BODY + hidden(server)), 400),
    "no host": (lines(LENGTH, host=False), 400),
    "no host, nothing else": (raw("GET /health HTTP/1.1\r\n\r\n"), 400),
    # A proxy may have checked the other one.
    **{f"{n} twice": (lines(*[f"{n}: {v}"] * 2, LENGTH), 400) for n, v in (
        ("X-Api-Key", "identity"), ("Content-Type", "application/json"), ("Content-Encoding", "identity"), ("Origin", "identity"))},
    **{f"NUL in {n}": (lines(n + b": a\x00b", LENGTH, CLOSE), 400) for n in (b"X-Any", b"Authorization", b"Content-Type", b"X-Request-Id")},
    "NUL in the target": (raw("GET /health\x00x HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"), 400, 404),
    # A header name that one parser refuses may be one for the next.
    **{f"name {n}": (lines(n + b": 1", LENGTH, CLOSE), 400) for n in (b"X\x00Y", b"X Y", b"X(Y)", b"", b"X\x7fY")},
    "a long header": (lines("X-Any: " + "a" * 200_000, LENGTH), 431, 413, 400),
    "many headers": (lines(*[f"X-{i}: {'b' * 50}" for i in range(3000)], LENGTH), 431, 413, 400),
    "a long target": (raw(f"GET /{'a' * 200_000} HTTP/1.1\r\nHost: HOST\r\n\r\n"), 414, 431, 400),
}  # fmt: skip
EITHER = {  # one answer, whichever
    # Trailers behind the last chunk change neither framing nor keys.
    "trailers": lines(CODING, CLOSE, body=CHUNKED[:-2] + b"Content-Length: 5\r\nTransfer-Encoding: gzip\r\nHost: x\r\n\r\n"),
    "a folded header": lines("X-Any: a\r\n b", LENGTH, CLOSE),
    "a length in a folded header": lines("X-Any: a\r\n Content-Length: 5", LENGTH, CLOSE),
    "bare line feeds": raw("GET /health HTTP/1.1\nHost: HOST\nConnection: close\n\n"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(server, case):
    data, *statuses = REFUSED[case]
    refused(server, data(server), *statuses)


@pytest.mark.parametrize("case", EITHER)
def test_taken_or_refused(server, case):
    (reply,) = answers(server, EITHER[case](server))
    assert reply.status in (200, 400)


@pytest.mark.slow
def test_largest_chunk_size(server):
    """2^64 - 1 bytes never come: the connection is cut, at the latest by the rate that a body must have."""
    body = b"FFFFFFFFFFFFFFFF\r\n" + BODY + b"\r\n0\r\n\r\n" + hidden(server)
    assert all(r.status in (400, 408, 413) for r in answers(server, post(server, CODING, body=body), 60))


def test_post_without_a_length(server):
    """Neither length nor coding: what follows is not a body and must not be a request."""
    with server.connect() as conn:
        conn.send(post(server, body=b""))
        assert conn.read_reply().status in (400, 411)


def test_get_with_a_body(server):
    """A body where none belongs is consumed or ends the connection; it is never a request."""
    inner = hidden(server)
    head = f"GET /health HTTP/1.1\r\nHost: {server.host_header}\r\nContent-Length: {len(inner)}\r\nConnection: close\r\n\r\n"
    assert len(answers(server, head.encode() + inner)) == 1


@pytest.mark.parametrize(
    "method, path, more, status",
    [
        ("POST", "/nowhere", "", 404),
        ("DELETE", "/v1/models", "", 405),
        ("POST", "/v1/completions", "Content-Type: text/plain\r\n", 415),
        ("POST", "/v1/completions", "Content-Encoding: gzip\r\n", 415),
        ("POST", "/v1/models", "", 405),
        ("PUT", "/v1/completions", "", 405),
    ],
)
def test_body_of_an_early_refusal(server, method, path, more, status):
    """The unread body of a refused request is not the next request."""
    body = hidden(server)
    for framing, sent in (
        (f"Content-Length: {len(body)}", body),
        (CODING, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) + body),
    ):
        head = f"{method} {path} HTTP/1.1\r\nHost: {server.host_header}\r\n{more}{framing}\r\n\r\n"
        refused(server, head.encode() + sent, status)


def test_no_host_in_1_0(server):
    (reply,) = answers(server, b"GET /health HTTP/1.0\r\n\r\n")
    assert reply.status == 200


def test_long_target(server):
    check_error(server.get("/" + "a" * 2000), 404)


def unreadable(server):
    """Requests that the HTTP library would refuse by itself: name, bytes, status."""
    host = b"Host: " + server.host_header.encode() + b"\r\n"
    head = b"GET /health HTTP/1.1\r\n" + host
    chunked = post(server, "Transfer-Encoding: chunked", body=b"")
    return [
        ("no HTTP", b"gar bage\r\n\r\n", 400),
        ("TLS", b"\x16\x03\x01 \x02\x00\n\x01\x00\x01\xfc\x03\x03", 400),
        ("0.9", b"GET /health\r\n\r\n", 400),
        ("in lower case", b"GET /health http/1.1\r\n" + host + b"\r\n", 400),
        ("no version", b"GET /health \r\n" + host + b"\r\n", 400),
        ("no target", b"GET  HTTP/1.1\r\n" + host + b"\r\n", 400),
        ("2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 505),
        ("3", b"GET /health HTTP/3.0\r\n" + host + b"\r\n", 505),
        ("0.8", b"GET /health HTTP/0.8\r\n" + host + b"\r\n", 505),
        ("a long line", b"G" * 70_000, 414),
        ("a long target", b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n" + host + b"\r\n", 414),
        ("many parameters", b"GET /health?" + b"a=b&" * 4000 + b" HTTP/1.1\r\n" + host + b"\r\n", 431),
        ("a large cookie", head + b"Cookie: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        ("many cookies", head + b"Cookie: " + b"a=b; " * 3000 + b"\r\n\r\n", 431),
        ("many headers", head + b"X: y\r\n" * 5000 + b"\r\n", 431),
        ("no colon", head + b"X\r\n\r\n", 400),
        ("a length of words", head + b"Content-Length: two\r\n\r\n", 400),
        ("a long length", head + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n", 413),
        ("a chunk of words", chunked + b"two\r\n{}\r\n0\r\n\r\n", 400),
        ("a chunk too long", chunked + b"1\r\n{}\r\n0\r\n\r\n", 400),
        ("a huge chunk", chunked + b"F" * 17 + b"\r\n{}", 413),
        ("a trailer without a colon", chunked + b"2\r\n{}\r\n0\r\nX\r\n\r\n", 400),
        ("long trailers", chunked + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 9000 + b"\r\n", (400, 431)),
    ]


class TestUnreadable:
    """The server answers requests that the HTTP library refuses by itself: one response, in the form of all errors."""

    def test_one_error_each(self, server):
        for name, data, status in unreadable(server):
            (reply,) = answers(server, data)
            check_error(reply, status, type="server_error" if status == 505 else "invalid_request_error")
            assert reply.header("x-request-id") and reply.header("connection") == "close", name

    def test_in_parts(self, server):
        """As it comes over a network: the first line first, and the fault alone."""
        for name, data, status in unreadable(server):
            first, end, rest = data.partition(b"\r\n")
            with server.connect() as conn:
                for part in (first + end, rest[: len(rest) // 2], rest[len(rest) // 2 :]):
                    try:
                        conn.send(part)
                    except OSError:  # refused already
                        break
                    time.sleep(0.005)
                reply = conn.read_reply()
                check_error(reply, status, type=None)
                assert not conn.rest(), name

    def test_a_chunk_line_without_end(self, server):
        """The library would wait for ever."""
        (reply,) = answers(server, post(server, "Transfer-Encoding: chunked", body=b"2;" + b"x" * 40_000))
        check_error(reply, 400)

    def test_after_another_request(self, server):
        data = server.bytes("GET", "/health") + request_bytes("GET", "/health", version="HTTP/2.0")
        first, second = answers(server, data)
        assert first.status == 200
        check_error(second, 505, type="server_error")

    @pytest.mark.parametrize("path, type", [("/v1/messages", "invalid_request_error"), ("/api/chat", None)])
    def test_forms(self, server, path, type):
        """The path's form, where the path could be read."""
        head = f"POST {path} HTTP/1.1\r\nHost: {server.host_header}\r\nContent-Type: application/json\r\n"
        for rest in (
            f"Cookie: {'a' * 20_000}\r\n\r\n",
            "Content-Length: two\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\ntwo\r\n",
        ):
            (reply,) = answers(server, (head + rest).encode())
            assert 400 <= reply.status < 500
            error = reply.json()["error"]
            assert error["type"] == type and reply.json()["type"] == "error" if type else isinstance(error, str)


class TestTargets:
    def test_percent_nul(self, server):
        """%00 does not end a path early."""
        for path in ("/health%00x", "/v1/models%00", "/%00"):
            assert server.get(path).status in (400, 404)

    @pytest.mark.parametrize(
        "path",
        [
            "/%2e%2e/health",
            "/../health",
            "//health",
            "/HEALTH",
            "/v1/../health",
            "/v1//models",
            "/./health",
            "/health;x",
        ],
    )
    def test_only_exact_paths(self, server, path):
        check_error(server.get(path), (404, 400))

    def test_query_is_ignored(self, server):
        assert server.get("/health?x=1&y=%00").status in (200, 400)
        assert server.get("/health?probe=1").status == 200

    def test_unknown_path(self, server):
        check_error(server.get("/v1/nothing"), 404, code=None)
        check_error(server.post("/v1/nothing", {}), 404)

    def test_options_asterisk(self, server):
        host = server.host_header.encode()
        (reply,) = answers(server, b"OPTIONS * HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
        assert reply.status in (200, 204, 400, 404, 405, 501)

    def test_absolute_target(self, server):
        """An absolute URI is not a way around routing or keys."""
        host = server.host_header.encode()
        (reply,) = answers(
            server,
            b"GET http://" + host + b"/health HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n",
        )
        assert reply.status in (200, 400, 404, 405, 501)
        (reply,) = answers(
            server,
            b"GET http://evil.example/health HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n",
        )
        assert reply.status in (200, 400, 403, 404, 405, 421, 501)


class TestMethods:
    @pytest.mark.parametrize(
        "method, path, allowed",
        [
            ("GET", "/v1/completions", {"POST"}),
            ("DELETE", "/v1/completions", {"POST"}),
            ("POST", "/v1/models", {"GET"}),
            ("PUT", "/health", {"GET"}),
            ("PATCH", "/metrics", {"GET"}),
        ],
    )
    def test_not_allowed(self, server, method, path, allowed):
        """405 says in Allow what the path takes."""
        reply = server.call(method, path, b"{}" if method in ("PUT", "PATCH", "POST") else None)
        check_error(reply, 405)
        assert allowed <= {m.strip() for m in reply.header("allow").split(",")}
        assert method not in reply.header("allow")

    @pytest.mark.parametrize(
        "method", ["BREW", "TRACE", "CONNECT", "get", "PROPFIND", "POSTS", "OPTIONSX", "X" * 1000]
    )
    def test_unknown_method(self, server, method):
        host = server.host_header
        data = f"{method} /v1/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        (reply,) = answers(server, data)
        assert reply.status in (400, 405, 501)

    def test_http_2_preface(self, server):
        replies = answers(server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert len(replies) <= 1
        assert all(r.status in (400, 404, 405, 501, 505) for r in replies)

    @pytest.mark.parametrize(
        "line",
        [
            b"GET /health HTTP/9.9",
            b"GET /health",
            b"GET",
            b"\x16\x03\x01\x02\x00",
            b"GET  /health  HTTP/1.1",
            b"nonsense",
        ],
    )
    def test_bad_request_lines(self, server, line):
        with server.connect(timeout=60) as conn:
            conn.send(line + b"\r\nHost: " + server.host_header.encode() + b"\r\nConnection: close\r\n\r\n")
            data = conn.rest()
        assert data.count(b"HTTP/1.") <= 1
        assert not data or data.split(b" ")[1] in (b"200", b"400", b"404", b"505", b"501", b"405"), data[:200]

    @pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/v1/models", "/metrics"])
    def test_head(self, server, path):
        """Same status and headers as GET, no body, and the connection goes on."""
        with server.connect() as conn:
            conn.send(server.bytes("HEAD", path))
            head = conn.read_reply("HEAD")
            conn.send(server.bytes("GET", path))
            get = conn.read_reply()
        assert head.status == get.status == 200
        assert head.header("content-type") == get.header("content-type")


# ---- bodies


class TestBodies:
    @pytest.mark.parametrize(
        "value",
        [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON",
            "application/json;charset=UTF-8",
            None,
        ],
    )
    def test_json_types(self, server, value):
        reply = server.call("POST", "/v1/completions", BODY, headers={"Content-Type": value})
        assert reply.status == 200, reply

    @pytest.mark.parametrize(
        "value",
        [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain; a=application/json",
        ],
    )
    def test_types_that_browsers_send_unasked(self, server, value):
        """A web page can post these without asking first, so they are refused, with the reason."""
        reply = server.call("POST", "/v1/completions", BODY, headers={"Content-Type": value})
        error = check_error(reply, 415)
        assert "application/json" in error["message"]

    def test_too_large(self, server):
        """413 at the declared length, with the body unread; then the connection is closed."""
        reply = refused(server, post(server, "Content-Length: 100000000", body=b""), 413)
        check_error(reply, 413, code="request_too_large")

    def test_too_large_chunked(self, server):
        """The limit holds for what arrives too."""
        with server.connect(timeout=60) as conn:
            conn.send(post(server, "Transfer-Encoding: chunked", body=b""))
            chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
            try:
                for _ in range(100):
                    conn.send(chunk)
            except (ConnectionError, TimeoutError):
                pass  # closed while we were still sending
            data = conn.rest()
            assert data == b"" or data.startswith(b"HTTP/1.1 413"), data[:200]

    def test_chunked_body(self, server):
        with server.connect() as conn:
            body = (
                b"".join(
                    b"%x\r\n%s\r\n" % (len(BODY[i : i + 7]), BODY[i : i + 7]) for i in range(0, len(BODY), 7)
                )
                + b"0\r\n\r\n"
            )
            conn.send(post(server, "Transfer-Encoding: chunked", body=body))
            assert conn.read_reply().json()["choices"][0]["text"] == want()

    def test_byte_by_byte(self, server):
        with server.connect() as conn:
            for byte in post(server, LENGTH):
                conn.send(bytes([byte]))
            assert conn.read_reply().json()["choices"][0]["text"] == want()

    def test_a_large_body_that_is_right(self, server):
        """Two megabytes of ignored field: parsed off the loop, answered like any other."""
        body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "x": "y" * 2_000_000}
        reply = server.post("/v1/completions", body)
        assert reply.status == 200 and reply.json()["choices"][0]["text"] == want()

    def test_the_limit_exactly(self, server):
        """32 MiB are read and understood; one byte more is not."""
        for size, status in ((32 << 20, 200), ((32 << 20) + 1, 413)):
            with server.connect() as conn:
                body = BODY[:-1] + b" " * (size - len(BODY)) + b"}"
                try:
                    conn.send(post(server, f"Content-Length: {size}", body=body))
                except ConnectionError:
                    assert status == 413
                    continue
                assert conn.read_reply().status == status

    def test_a_body_of_tiny_chunks(self, server):
        """70,000 chunks of a byte: more work than it is worth, but no more than that."""
        padded = BODY[:-1] + b" " * 70_000 + b"}"
        with server.connect() as conn:
            conn.send(
                post(
                    server,
                    "Transfer-Encoding: chunked",
                    body=b"".join(b"1\r\n%c\r\n" % c for c in padded) + b"0\r\n\r\n",
                )
            )
            assert conn.read_reply().json()["choices"][0]["text"] == want()

    def test_error_with_unread_body(self, server):
        """An early refusal is delivered though a megabyte is still on its way.

        A server that closes on unread bytes makes its kernel send a reset, which may overtake the answer; so one of a
        few tries has to see it, and none may see anything else.
        """
        delivered = 0
        for _ in range(5):
            with server.connect() as conn:
                try:
                    conn.send(server.bytes("POST", "/v1/nothing", b" " * 1_000_000))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                try:
                    reply = conn.read_reply()
                except (AssertionError, ConnectionResetError):
                    continue
                check_error(reply, 404)
                delivered += 1
        assert delivered > 0

    def test_expect_continue(self, server):
        with server.connect() as conn:
            conn.send(post(server, LENGTH, "Expect: 100-continue", body=b""))
            while b"\r\n\r\n" not in conn.buf:
                assert conn.fill()
            assert conn.buf.startswith(b"HTTP/1.1 100 ")
            conn.send(BODY)
            reply = conn.read_reply()
            assert reply.status == 200 and reply.interim == [100]

    def test_expect_continue_of_what_is_refused(self, server):
        """A request that its headers condemn is refused without asking for the body."""
        for lines, status in (
            (("Content-Length: 100000000",), 413),
            ((LENGTH, "Transfer-Encoding: gzip"), None),
        ):
            replies = answers(server, post(server, *lines, "Expect: 100-continue", body=b""))
            assert len(replies) == 1 and replies[0].interim == []
            assert replies[0].status == status if status else 400 <= replies[0].status <= 501

    def test_content_encoding(self, server):
        """No decompression: refused, or the compressed bytes are no JSON."""
        import gzip

        body = gzip.compress(BODY)
        reply = server.call("POST", "/v1/completions", body, headers={"Content-Encoding": "gzip"})
        check_error(reply, (400, 415))


# ---- headers of answers


class TestHeaders:
    def test_json(self, server):
        reply = server.post("/v1/completions", BODY)
        assert reply.header("content-type").split(";")[0] == "application/json"
        assert reply.header("content-length") == str(len(reply.body))

    def test_stream(self, server):
        stream = server.open_stream(PROMPT, max_tokens=2)
        head = stream.head
        stream.finish()
        stream.conn.close()
        assert head.header("content-type") == "text/event-stream; charset=utf-8"
        assert head.header("cache-control") == "no-cache"
        assert head.header("x-accel-buffering") == "no"
        assert head.header("content-length") is None
        assert head.header("transfer-encoding") == "chunked"

    def test_server_without_version(self, server):
        value = server.get("/health").header("server") or ""
        assert not any(c.isdigit() for c in value), value

    @pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/v1/models", "/nowhere"])
    def test_request_id_everywhere(self, server, path):
        one, other = (server.get(path).header("x-request-id") for _ in range(2))
        assert one and other and one != other

    @pytest.mark.parametrize("value", ["abc", "A-1.b:2_c", "x" * 128])
    def test_request_id_is_echoed(self, server, value):
        for method, path, body in (("GET", "/v1/models", None), ("POST", "/v1/completions", BODY)):
            assert (
                server.call(method, path, body, headers={"X-Request-Id": value}).header("x-request-id")
                == value
            )
        stream = server.post(
            "/v1/completions",
            {"prompt": PROMPT, "max_tokens": 1, "stream": True},
            headers={"x-request-id": value},
        )
        assert stream.header("x-request-id") == value

    @pytest.mark.parametrize(
        "value", ["", "x" * 129, "a b", "a\tb", "é", "a/b", '"a"', "<script>", "a;b", "a,b"]
    )
    def test_request_id_is_validated(self, server, value):
        reply = server.call("POST", "/v1/completions", BODY, headers={"X-Request-Id": value})
        assert reply.status == 200
        assert reply.header("x-request-id") not in (None, "", value)

    def test_request_id_is_in_the_object(self, server):
        """One id from the client's log through ours to the answer."""
        reply = server.call("POST", "/v1/completions", BODY, headers={"X-Request-Id": "trace-77"})
        assert reply.json()["id"] == "cmpl-trace-77"
        reply = server.post("/v1/completions", BODY)
        assert reply.json()["id"].removeprefix("cmpl-") in reply.header("x-request-id")

    def test_request_id_of_errors(self, server):
        reply = server.call("POST", "/v1/completions", b"{", headers={"X-Request-Id": "err-1"})
        assert reply.status == 400 and reply.header("x-request-id") == "err-1"


class TestCors:
    """Other origins are denied by default, also to read."""

    ORIGIN = {"Origin": "https://evil.example"}

    @pytest.mark.parametrize(
        "method, path, body",
        [
            ("GET", "/v1/models", None),
            ("GET", "/health", None),
            ("POST", "/v1/completions", BODY),
            ("GET", "/nowhere", None),
        ],
    )
    def test_no_allow_origin(self, server, method, path, body):
        reply = server.call(method, path, body, headers=self.ORIGIN)
        assert not [k for k, _ in reply.headers if k.startswith("access-control-")]

    @pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000"])
    def test_preflight(self, server, origin):
        reply = server.call(
            "OPTIONS", "/v1/completions",
            headers={"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"},
        )  # fmt: skip
        assert not [k for k, _ in reply.headers if k.startswith("access-control-allow-origin")]
        assert reply.status in (200, 204, 400, 403)

    def test_plain_options(self, server):
        reply = server.call("OPTIONS", "/v1/completions")
        assert reply.status == 204 and "POST" in reply.header("allow")
        assert server.call("OPTIONS", "/nowhere").status == 404


# ---- connections


class TestConnections:
    def test_reuse(self, server):
        with server.connect() as conn:
            for i in range(50):
                if i % 5 == 0:
                    conn.send(
                        server.bytes(
                            "POST",
                            "/v1/completions",
                            {"prompt": PROMPT, "max_tokens": 2, "temperature": 0, "stream": True},
                        )
                    )
                    assert parse_events(conn.read_reply().body)
                elif i % 5 == 1:
                    conn.send(server.bytes("POST", "/v1/completions", b'{"prompt": 5}'))
                    check_error(conn.read_reply(), 400)
                else:
                    conn.send(server.bytes("POST", "/v1/completions", BODY))
                    assert conn.read_reply().json()["choices"][0]["text"] == want()

    def test_pipelining(self, server):
        """Requests sent in one go are answered in order."""
        with server.connect() as conn:
            conn.send(
                server.bytes("GET", "/v1/models") + server.bytes("POST", "/v1/completions", BODY)
                + server.bytes("GET", "/nowhere") + server.bytes("POST", "/v1/completions", BODY)
            )  # fmt: skip
            assert conn.read_reply().json()["object"] == "list"
            assert conn.read_reply().json()["choices"][0]["text"] == want()
            assert conn.read_reply().status == 404
            reply = conn.read_reply()
            assert reply.json()["choices"][0]["text"] == want()

    def test_connection_close(self, server):
        (reply,) = answers(
            server, server.bytes("POST", "/v1/completions", BODY, headers={"Connection": "close"})
        )
        assert reply.status == 200

    def test_http_1_0(self, server):
        data = request_bytes("POST", "/v1/completions", BODY, host=server.host_header, version="HTTP/1.0")
        (reply,) = answers(server, data)
        assert reply.header("transfer-encoding") is None
        assert reply.json()["choices"][0]["text"] == want()

    def test_http_1_0_stream(self, server):
        """Without chunks: the end of the stream is the end of the connection."""
        body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "stream": True}
        data = request_bytes("POST", "/v1/completions", body, host=server.host_header, version="HTTP/1.0")
        (reply,) = answers(server, data)
        assert reply.header("transfer-encoding") is None and reply.header("content-length") is None
        text = "".join(e["choices"][0]["text"] for e in parse_events(reply.body))
        assert text == expected(0, 20)

    def test_empty_connections(self, server):
        """Connecting and leaving, with and without a word."""
        for i in range(100):
            conn = server.connect()
            if i % 3 == 0:
                conn.send(b"POST /v1/compl")
            conn.reset() if i % 2 else conn.close()


class TestSlowClients:
    def test_slow_headers(self, server):
        """Headers have an absolute deadline of about ten seconds, however steadily they trickle. Meanwhile others are
        served, and an idle kept connection stays usable."""
        kept = server.connect()
        kept.send(server.bytes("POST", "/v1/completions", BODY))
        assert kept.read_reply().status == 200
        closed = {}

        def trickle(name, first, drops, pause):
            start = time.monotonic()
            with server.connect(timeout=pause) as conn:
                conn.send(first)
                for drop in drops:
                    try:
                        if not conn.sock.recv(4096):
                            break
                    except TimeoutError:
                        pass
                    except ConnectionError:
                        break
                    try:
                        conn.send(drop)
                    except ConnectionError:
                        break
                else:
                    return
            closed[name] = time.monotonic() - start

        host = server.host_header.encode()
        line = b"GET /health HTTP/1.1\r\n"
        cases = [
            ("half a line", line[:9], [b""] * 90, 1),
            (
                "a line a second",
                line + b"Host: " + host + b"\r\n",
                [b"X-%d: 1\r\n" % i for i in range(90)],
                1,
            ),
            ("a byte at a time", line + b"X-Any: ", [b"a"] * 180, 0.5),
        ]
        threads = [threading.Thread(target=trickle, args=c) for c in cases]
        for thread in threads:
            thread.start()
        while any(t.is_alive() for t in threads):
            assert server.get("/health").status == 200
            time.sleep(0.5)
        for name in ("half a line", "a line a second", "a byte at a time"):
            assert name in closed, f"{name}: still open after 90 s"
            assert closed[name] >= 5, f"{name}: closed already after {closed[name]:.1f} s"
        kept.send(server.bytes("POST", "/v1/completions", BODY))
        assert kept.read_reply().status == 200, "kept connections outlive a header deadline"
        kept.close()

    def test_many_slow_headers(self, server):
        """Each connection has its deadline, also of more than the server looks at in one go."""
        start = time.monotonic()
        crowd = [server.connect(timeout=60) for _ in range(700)]
        for conn in crowd:
            conn.send(b"GET /health HT")
        for conn in crowd:
            assert conn.rest() == b""
        assert 9 < time.monotonic() - start < 30

    @pytest.mark.slow
    @pytest.mark.timeout(240)
    def test_slow_body(self, server):
        """A body of a byte a second is cut within two minutes."""
        start = time.monotonic()
        with server.connect(timeout=1) as conn:
            conn.send(post(server, "Content-Length: 10000", body=b"{"))
            while time.monotonic() - start < 150:
                try:
                    if not conn.sock.recv(4096):
                        return
                except TimeoutError:
                    pass
                except ConnectionError:
                    return
                try:
                    conn.send(b" ")
                except ConnectionError:
                    return
        pytest.fail("still open")

    @pytest.mark.slow
    @pytest.mark.timeout(240)
    def test_idle_connections_are_kept_two_minutes(self, server):
        """Longer than the pools of clients and proxies, which would otherwise send into a closed connection."""
        with server.connect() as conn:
            conn.send(server.bytes("GET", "/health"))
            assert conn.read_reply().status == 200
            time.sleep(115)
            conn.send(server.bytes("GET", "/health"))
            assert conn.read_reply().status == 200


def recovers(server, seconds=60):
    """After the crowd has left a new client is served again."""
    deadline = time.monotonic() + seconds
    while True:
        reply = server.post("/v1/completions", BODY)
        if reply.status == 200:
            assert reply.json()["choices"][0]["text"] == want()
            return
        check_error(reply, 503, type="server_error")
        assert time.monotonic() < deadline, "does not recover"
        time.sleep(0.2)


class TestManyConnections:
    def test_1200_idle_connections(self, start):
        """More than the library's default of about 1,020: a new client is served or told 503, never left hanging."""
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 3000:
            pytest.skip("needs 3,000 file descriptors")
        server = start()
        idle = []
        try:
            for _ in range(1200):
                idle.append(server.connect(timeout=60))
            for conn in idle[::100]:
                conn.send(server.bytes("GET", "/health"))
            with server.connect(timeout=60) as conn:
                conn.send(server.bytes("POST", "/v1/completions", BODY))
                reply = conn.read_reply()
            assert reply.status in (200, 503), reply
            if reply.status == 503:
                check_error(reply, 503, type="server_error")
            else:
                assert reply.json()["choices"][0]["text"] == want()
        finally:
            for conn in idle:
                conn.close()
        recovers(server)

    def test_out_of_descriptors(self, start):
        """With too few descriptors for all, kept connections are served, and new ones again when others leave."""
        server = start(limit_files=80)
        kept = server.connect()
        kept.send(server.bytes("GET", "/health"))
        assert kept.read_reply().status == 200
        crowd = [Conn(server.address) for _ in range(150)]
        for _ in range(3):
            kept.send(server.bytes("GET", "/health"))
            assert kept.read_reply().status == 200
            time.sleep(0.1)
        recovers(server)  # while they are there: who says nothing makes room
        for conn in crowd:
            conn.close()
        kept.close()
        recovers(server)


class TestAtOnce:
    def test_mixed_requests_in_parallel(self, server):
        """Fifty threads with good and bad requests: each gets its own answer."""
        problems = []

        def one(i):
            try:
                if i % 3 == 0:
                    case = i % 6
                    answer = server.complete(cases()[case]["prompt"], max_tokens=30)
                    assert answer["choices"][0]["text"] == expected(case, 30)
                elif i % 3 == 1:
                    check_error(server.post("/v1/completions", {"prompt": PROMPT, "n": 0}), 400, "n")
                else:
                    assert server.stream(PROMPT, max_tokens=i).choices[0]["text"] == expected(0, i)
            except BaseException as problem:  # shown by the main thread
                problems.append(problem)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems, problems[0]
