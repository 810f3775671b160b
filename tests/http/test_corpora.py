"""The malformed and the well-formed requests of other servers' tests: framing that may be read in two ways is refused, and
the connection closed.

Each case is sent with a local Host and followed by another request. Those of gunicorn that only its settings make valid
or invalid have their reason here.
"""

import re

import pytest

import goldens

CORPUS = "http/gunicorn/tests/requests"
HIDDEN = b"GET /tokenizer_info HTTP/1.1\r\nHost: localhost\r\n\r\n"

# What gunicorn refuses and this server may take: the reason.
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
