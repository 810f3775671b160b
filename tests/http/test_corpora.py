"""The malformed and the well-formed requests of other servers' tests: framing that may be read in two ways is refused, and
the connection closed.

Each case is sent with a local Host and followed by another request. Those of gunicorn that only its settings make valid
or invalid have their reason here.
"""

import random
import re

import goldens
from process import SANITIZED

CORPUS = "http/gunicorn/tests/requests"
HIDDEN = b"GET /tokenizer_info HTTP/1.1\r\nHost: localhost\r\n\r\n"

# Cases that gunicorn refuses and this server may take: the reason.
TAKEN = {
    "003.http": "one byte of a method: the case goes on in the next request",
    "007.http": "the limit of a field is gunicorn's 8,190 bytes",
    "012.http": "the number of fields is limited to two by a setting",
    "040.http": "an underscore in a name, which no CGI variable here confuses",
    "041.http": "likewise",
    "limit_header_default_01.http": "the limit of a field is gunicorn's 8,190 bytes",
    "rfc9112_target_asterisk_non_options_01.http": "404: there is no such path",
}


def requests(kind):
    folder = goldens.data(CORPUS) / kind
    return sorted(folder.glob("*.http"))


def unescape(raw):
    """Line ends are written as text; real ones only break long lines."""
    for written, byte in ((b"\n", b""), (rb"\r", b"\r"), (rb"\n", b"\n"), (rb"\t", b"\t"), (rb"\0", b"\0")):
        raw = raw.replace(written, byte)
    return re.sub(rb"\\x([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), raw)


def localize(data, host):
    """To a host that is ours; a body to a path that reads it."""
    data = re.sub(rb"(?im)^host:[ \t]*[\w.:\[\]-]+\r", b"Host: " + host.encode() + b"\r", data)
    if b"chunked" in data:
        data = re.sub(rb"^\w+ \S+ ", b"POST /detokenize ", data)
    return data


def llhttp_requests():
    """The requests in the documents that are llhttp's tests; lines end in CR LF unless they say otherwise."""
    for path in sorted((goldens.data("http/llhttp/test/request")).glob("*.md")):
        for block in re.findall(r"```http\n(.*?)\n```", path.read_text(), flags=re.S):
            yield unescape(block.replace("\n", "\\r\\n").encode() + b"\\r\\n")


def mutate(data, rng):
    """One to four of: a byte changed, put in, taken away; a piece doubled; the rest cut."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at:at] = rng.choice((b"\n", b"\r", b"\0", b" ", b":", b"\r\n", b"0", b";", b"\xff"))
            case 2:
                del data[at : at + rng.randint(1, 8)]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 64)]
            case 4:
                del data[at:]
    return bytes(data)


def statuses(server, data):
    with server.connect(timeout=20) as conn:
        conn.send(data + HIDDEN)
        conn.sock.shutdown(1)
        got = conn.rest()
    return [int(s) for s in re.findall(rb"HTTP/1\.[01] (\d{3})", got)], got


def test_invalid(server):
    cases = requests("invalid")
    assert len(cases) > 40
    for path in cases:
        data = localize(unescape(path.read_bytes()), server.host_header)
        found, got = statuses(server, data)
        if path.name not in TAKEN:
            assert not found or found[0] in (400, 413, 414, 417, 431, 501, 505), (path.name, got[:600])
            assert b'"vocab_size"' not in got, (path.name, "the next request was answered")


def test_valid(server):
    """Whatever else: no crash, one response a request, and those with a Host and plain framing are understood."""
    understood = 0
    for path in requests("valid"):
        data = localize(unescape(path.read_bytes()), server.host_header)
        found, got = statuses(server, data)
        understood += bool(found) and found[0] not in (400, 501)
    assert understood >= 20


def test_mutants(server):
    """Whatever comes, the server lives and closes, and a request beside it is served."""
    rng = random.Random(20)
    seeds = [localize(unescape(p.read_bytes()), server.host_header) for p in requests("valid")]
    seeds += [localize(data, server.host_header) for data in llhttp_requests()]
    assert len(seeds) > 150
    for _ in range(2 if SANITIZED else 8):
        sent = [(server.connect(timeout=20), mutate(rng.choice(seeds), rng)) for _ in range(50)]
        for conn, data in sent:
            conn.send(data)
            conn.sock.shutdown(1)
        for conn, data in sent:
            with conn:
                got = conn.rest()
            assert b'"status":"ok"' not in got or b"/livez" in data or b"/health" in data, data
    assert server.get("/health").status == 200
    assert server.complete("Once upon a time", max_tokens=2)
