"""HTTP/1.1 from the client's side, written strictly and by hand, so that every test also checks the framing."""

import json
import re
import socket
import ssl
import struct
import time

import schema

TIMEOUT = 240  # seconds without a byte before a test gives up; a guard against hangs, not a measurement


def wait_for(what, condition, seconds=TIMEOUT, pause=0.01):
    """Asks until the answer is true, and gives it back."""
    end = time.monotonic() + seconds
    while not (got := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(pause)
    return got


def strict_json(data):
    """JSON as SDKs read it: valid UTF-8, no NaN, no key twice."""

    def pairs(items):
        keys = [k for k, _ in items]
        assert len(keys) == len(set(keys)), f"a key twice in {keys}"
        return dict(items)

    def constant(name):
        raise AssertionError(f"{name} is not JSON")

    text = data.decode("utf-8") if isinstance(data, bytes) else data
    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


class Reply:
    def __init__(self, version, status, headers):
        self.version, self.status, self.headers = version, status, headers
        self.body = b""
        self.chunks = None  # the HTTP chunks as they came, where the body is chunked
        self.interim = []  # statuses of 1xx answers before this one

    def header(self, name):
        """The value of a header that must not occur twice, or None."""
        values = [v for k, v in self.headers if k == name.lower()]
        assert len(values) <= 1, f"{name} {len(values)} times"
        return values[0] if values else None

    def json(self):
        kind = self.header("content-type") or ""
        assert kind.split(";")[0] == "application/json", (
            f"{self.status} with content type {kind!r}: {self.body[:300]!r}"
        )
        return strict_json(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:400]!r}>"


class Conn:
    """One connection. Reads time out loudly; a reset counts as the end of the stream."""

    def __init__(self, address, timeout=TIMEOUT, rcvbuf=None, source=None, tls=None):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if source:  # an address of this machine, from where it comes
            self.sock.bind((source, 0))
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        if tls:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        self.buf = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data)

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def fill(self):
        """Receives something. False at the end of the stream."""
        try:
            got = self.sock.recv(65536)
        except (ConnectionError, ssl.SSLError):
            got = b""
        except TimeoutError:
            raise AssertionError(
                f"nothing came for {self.sock.gettimeout()} s after {self.buf[-300:]!r}"
            ) from None
        self.buf += got
        return bool(got)

    def until(self, mark):
        while mark not in self.buf:
            assert self.fill(), f"closed before {mark!r}, after {self.buf[-300:]!r}"
        head, self.buf = self.buf.split(mark, 1)
        return head

    def exactly(self, n):
        while len(self.buf) < n:
            assert self.fill(), f"closed {n - len(self.buf)} bytes early"
        head, self.buf = self.buf[:n], self.buf[n:]
        return head

    def rest(self, timeout=None):
        """Everything until the other side closes."""
        if timeout is not None:
            self.sock.settimeout(timeout)
        while self.fill():
            pass
        out, self.buf = self.buf, b""
        return out

    def read_head(self):
        interim = []
        while True:
            lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            found = re.fullmatch(r"(HTTP/1\.[01]) (\d{3}) [\x20-\x7e]*", lines[0])
            assert found, f"not a status line: {lines[0]!r}"
            headers = []
            for line in lines[1:]:
                name, colon, value = line.partition(":")
                assert colon and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name), f"bad header {line!r}"
                assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value), f"control character in {line!r}"
                headers.append((name.lower(), value.strip()))
            reply = Reply(found[1], int(found[2]), headers)
            if reply.status >= 200:
                reply.interim = interim
                return reply
            interim.append(reply.status)

    def read_chunk(self):
        """One HTTP chunk; b"" is the last."""
        size = self.until(b"\r\n").split(b";")[0]
        assert re.fullmatch(rb"[0-9A-Fa-f]+", size), f"bad chunk size {size!r}"
        data = self.exactly(int(size, 16))
        assert self.exactly(2) == b"\r\n", "a chunk is longer than it says"
        return data

    def read_reply(self, method="GET"):
        reply = self.read_head()
        length, coding = reply.header("content-length"), reply.header("transfer-encoding")
        assert not (length and coding), "both Content-Length and Transfer-Encoding"
        if method == "HEAD" or reply.status in (204, 304):
            return reply
        if coding:
            assert coding.lower() == "chunked"
            reply.chunks = []
            while chunk := self.read_chunk():
                reply.chunks.append(chunk)
            reply.body = b"".join(reply.chunks)
        elif length is not None:
            reply.body = self.exactly(int(length))
        else:
            reply.body = self.rest()
        return reply


def encode(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def request_bytes(method, path, body=None, headers=(), host="localhost", version="HTTP/1.1"):
    """A well-formed request. `headers`: pairs; a value of None drops a header that would be there."""
    fields = {"Host": host}
    if body is not None:
        body = encode(body)
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    for name, value in dict(headers).items():
        fields.pop(next((k for k in fields if k.lower() == name.lower()), name), None)
        if value is not None:
            fields[name] = value
    lines = [f"{method} {path} {version}"] + [f"{k}: {v}" for k, v in fields.items()]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + (body or b"")


def parse_event(raw):
    """One server-sent event without its blank line: the JSON object, "[DONE]", or None for a comment."""
    assert b"\r" not in raw, "CR in an event stream"
    if raw.startswith(b":"):
        assert b"\n" not in raw
        return None
    if raw.startswith(b"event: "):  # a named one says its name in both lines
        name, _, raw = raw.removeprefix(b"event: ").partition(b"\n")
        event = parse_event(raw)
        assert event["type"].encode() == name
        return event
    assert raw.startswith(b"data: ") and b"\n" not in raw, f"not one data line: {raw!r}"
    return "[DONE]" if raw == b"data: [DONE]" else strict_json(raw[6:])


def parse_events(body):
    """All events of a finished stream, without [DONE], which must come once and last."""
    assert body.endswith(b"data: [DONE]\n\n"), f"the stream ends with {body[-200:]!r}"
    events = [parse_event(raw) for raw in body[:-2].split(b"\n\n")]
    events = [e for e in events if e is not None]
    assert events.count("[DONE]") == 1
    return events[:-1]


class Folded:
    """Folds a stream of chunks into the form of a whole response."""

    def __init__(self, events):
        self.events = events
        self.usage = None
        by_index = {}
        assert events, "an empty stream"
        first = events[0]
        for event in events:
            assert "error" not in event, event
            assert event["object"] == "text_completion"
            for key in ("id", "created", "model"):
                assert event[key] == first[key], f"{key} changes within a stream"
            assert isinstance(event["choices"], list), "`choices` is always there"
            if event.get("usage") is not None:
                self.usage = event["usage"]
            for choice in event["choices"]:
                assert set(choice) >= {"index", "text", "logprobs", "finish_reason"}, choice
                entry = by_index.setdefault(
                    choice["index"], {"text": "", "logprobs": None, "finish_reason": None}
                )
                assert entry["finish_reason"] is None, f"more after the finish of choice {choice['index']}"
                entry["text"] += choice["text"]
                entry["finish_reason"] = choice["finish_reason"]
                if choice["logprobs"] is not None:
                    if entry["logprobs"] is None:
                        entry["logprobs"] = {k: [] for k in choice["logprobs"]}
                    for key, values in choice["logprobs"].items():
                        entry["logprobs"][key] += values
        assert sorted(by_index) == list(range(len(by_index))), f"indices {sorted(by_index)}"
        for index, entry in by_index.items():
            assert entry["finish_reason"] in ("stop", "length"), f"choice {index}: {entry['finish_reason']!r}"
        self.choices = [{"index": i, **by_index[i]} for i in sorted(by_index)]


def outcome(answer):
    """The parts that depend on the request alone: text, log-probabilities, finish, per choice."""
    choices = answer.choices if isinstance(answer, Folded) else answer["choices"]
    return [(c["index"], c["text"], c["logprobs"], c["finish_reason"]) for c in choices]


class Stream:
    """A streaming completion under way: iterate over its events, or leave it."""

    def __init__(self, conn):
        self.conn = conn
        self.head = conn.read_head()
        assert self.head.status == 200, (self.head.status, conn.rest(5)[:500])

    def __iter__(self):
        while chunk := self.conn.read_chunk():
            assert chunk.endswith(b"\n\n") and chunk.count(b"\n\n") == 1, f"not one event a chunk: {chunk!r}"
            event = parse_event(chunk[:-2])
            if event is not None:
                yield event

    def finish(self):
        events = list(self)
        assert events[-1] == "[DONE]"
        return events[:-1]


class Api:
    """A server at an address. tls: the context with which it is reached; None: plain HTTP."""

    def __init__(self, host, port, key=None, tls=None):
        self.address = (host, port)
        self.host_header = f"{host}:{port}"
        self.url = f"{'https' if tls else 'http'}://{host}:{port}"
        self.key = key
        self.tls = tls

    def connect(self, **options):
        return Conn(self.address, tls=self.tls, **options)

    def bytes(self, method, path, body=None, headers=()):
        headers = dict(headers)
        if self.key and not any(k.lower() == "authorization" for k in headers):
            headers["Authorization"] = f"Bearer {self.key}"
        return request_bytes(method, path, body, headers, host=self.host_header)

    def call(self, method, path, body=None, headers=(), timeout=TIMEOUT):
        with self.connect(timeout=timeout) as conn:
            conn.send(self.bytes(method, path, body, headers))
            reply = conn.read_reply(method)
        schema.check_reply(path, reply, parse_event)
        return reply

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def post(self, path, body, **options):
        return self.call("POST", path, body, **options)

    def complete(self, prompt, **fields):
        """A completion that must succeed. Greedy unless told otherwise."""
        reply = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert reply.status == 200, reply
        answer = reply.json()
        assert [c["index"] for c in answer["choices"]] == list(range(len(answer["choices"])))
        return answer

    def open_stream(self, prompt, **fields):
        conn = self.connect()
        conn.send(
            self.bytes(
                "POST", "/v1/completions", {"prompt": prompt, "temperature": 0, "stream": True, **fields}
            )
        )
        return Stream(conn)

    def stream(self, prompt, **fields):
        """A streamed completion that must succeed, added up."""
        stream = self.open_stream(prompt, **fields)
        try:
            assert stream.head.header("content-type") == "text/event-stream; charset=utf-8"
            return Folded(stream.finish())
        finally:
            stream.conn.close()

    def models(self):
        return [m["id"] for m in self.get("/v1/models").json()["data"]]

    def metrics(self):
        from prometheus import parse

        reply = self.get("/metrics")
        assert reply.status == 200, reply
        return parse(reply.body.decode("utf-8"))

    def wait_idle(self, seconds=TIMEOUT):
        """Waits until nothing runs or waits and no cache block is in use."""
        end = time.monotonic() + seconds
        while True:
            m = self.metrics()
            left = [
                m.value(f"vllm:{n}")
                for n in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
            ]
            if left == [0, 0, 0]:
                return m
            assert time.monotonic() < end, f"running, waiting, cache usage stay at {left}"
            time.sleep(0.05)


def check_error(reply, status, param=None, type="invalid_request_error", code=False):
    """An error as clients read it: message, type, param and code, the last two a string or null.

    param: the field to be named, as it is or with an index or member behind it; or several that may be.
    """
    wanted = (status,) if isinstance(status, int) else status
    assert reply.status in wanted, f"wanted {wanted}: {reply}"
    body = reply.json()
    assert list(body) == ["error"]
    error = body["error"]
    own = {"n_prompt_tokens", "n_ctx"} if error["code"] == "context_length_exceeded" else set()
    assert set(error) - own == {"message", "type", "param", "code"}, body
    assert isinstance(error["message"], str) and error["message"].strip(), error
    assert isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str), error
    assert error["code"] is None or isinstance(error["code"], str), error
    leak = re.search(r"0x[0-9a-f]{6,}|/root/|/home/|\.c:\d|\bNULL\b|errno", error["message"])
    assert not leak, f"internals in a message: {error['message']}"
    if type is not None:
        assert error["type"] == type, error
    if param is not None:
        names = (param,) if isinstance(param, str) else param
        got = error["param"]
        assert got is not None and re.split(r"[.\[]", got)[0] in {re.split(r"[.\[]", n)[0] for n in names}, (
            error
        )
    if code is not False:
        assert error["code"] == code, error
    return error
