"""HTTPS: the tests of connections once more over TLS, and what only TLS has."""

import os
import re
import signal
import socket
import ssl
import subprocess
import time

import pytest

import test_disconnect
import test_hostile
import test_http
from goldens import expected
from process import Server, run
from wire import Conn, check_error, request_bytes, wait_for

PROMPT = "Once upon a time"


def certificate(folder, name, kind="ec"):
    """A certificate that vouches for itself, and its key, as files."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    how = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["rsa:2048"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", *how, "-nodes", "-keyout", key, "-out", cert, "-days", "30",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"), "first")


def begin_tls(pair, *flags, **options):
    return Server("--tls-cert", pair[0], "--tls-key", pair[1], *flags, tls=ssl.create_default_context(cafile=pair[0]), **options)


@pytest.fixture(scope="module")
def tls_server(pair, model):
    one = begin_tls(pair)
    yield one
    one.stop()


@pytest.fixture
def server(tls_server):
    return tls_server


@pytest.fixture
def start(pair, model):
    servers = []

    def begin(*flags, **options):
        servers.append(begin_tls(pair, *flags, **options))
        return servers[-1]

    yield begin
    for one in servers:
        one.stop()


# ---- as without TLS


class TestUnreadable(test_http.TestUnreadable):
    pass


class TestBodies(test_http.TestBodies):
    pass


test_body_of_an_early_refusal = test_http.test_body_of_an_early_refusal
test_storm = test_disconnect.test_storm
test_running_requests_are_aborted = test_disconnect.test_running_requests_are_aborted
test_a_slow_reader_gets_everything = test_disconnect.test_a_slow_reader_gets_everything
test_a_reader_that_stopped_is_given_up = test_disconnect.test_a_reader_that_stopped_is_given_up
test_a_large_body_whose_client_leaves = test_disconnect.test_a_large_body_whose_client_leaves
test_the_others_go_on = test_hostile.test_the_others_go_on


# ---- what TLS has of its own


def test_curl(server, pair):
    """A real client, both versions of the protocol, and no older one."""
    url = f"https://localhost:{server.address[1]}"
    body = '{"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0, "stream": true}'

    def curl(*arguments):
        return subprocess.run(["curl", "-sS", "--cacert", pair[0], *arguments], capture_output=True, text=True)

    for version in ("1.2", "1.3"):
        got = curl("--tls-max", version, f"--tlsv{version}", "-N", f"{url}/v1/completions", "-H", "content-type: application/json", "-d", body)
        assert got.returncode == 0 and "".join(re.findall(r'"text":"([^"]*)"', got.stdout)) == expected(0, 16)
        assert got.stdout.endswith("data: [DONE]\n\n")
    assert curl("--tls-max", "1.1", "--tlsv1.1", "--ciphers", "DEFAULT@SECLEVEL=0", f"{url}/health").returncode == 35


def test_s_client(server, pair):
    """OpenSSL's own: the certificate is good, and the end is told."""
    address = f"localhost:{server.address[1]}"
    request = request_bytes("GET", "/livez", headers={"Connection": "close"}, host=server.host_header)

    def ask(*arguments):
        return subprocess.run(["openssl", "s_client", "-connect", address, "-CAfile", pair[0], "-servername", "localhost", *arguments],
                              input=request, capture_output=True, timeout=60)  # fmt: skip

    for version in ("-tls1_2", "-tls1_3"):
        got = ask(version, "-ign_eof", "-verify_return_error")
        assert got.returncode == 0 and b"HTTP/1.1 200" in got.stdout and b"Verify return code: 0 (ok)" in got.stdout
        assert b"close_notify" not in got.stderr and b"closed" in got.stdout, "it ends by TLS's word for it"


def test_plain_http(server):
    """No byte of plain text, whatever comes: the connection is closed."""
    for data in (server.bytes("GET", "/health"), b"gar bage\r\n\r\n", b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", b"\0" * 40_000):
        with Conn(server.address, timeout=20) as conn:
            try:
                conn.send(data)
                got = conn.rest()
            except ConnectionError:
                got = b""
            assert not got or got[0] == 0x15, "an alert at most"  # RFC 8446, 5.1
    assert server.get("/health").status == 200


def test_errors_amid_a_body_are_encrypted(server):
    """They are written without libmicrohttpd. A client of TLS reads them, so they are records of TLS."""
    with server.connect() as conn:
        conn.send(test_http.post(server, "Transfer-Encoding: chunked", body=b"two\r\n"))
        check_error(conn.read_reply(), 400)
        assert not conn.rest()


def test_requests_in_one_record(server):
    """Bytes that the TLS layer holds are read, though the socket has nothing more."""
    one = server.bytes("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "temperature": 0})
    with server.connect() as conn:
        conn.send(one * 20)
        for _ in range(20):
            assert conn.read_reply().json()["choices"][0]["text"] == expected(0, 4)


def test_records_of_a_byte(server):
    data = server.bytes("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "temperature": 0})
    with server.connect() as conn:
        for i in range(len(data)):
            conn.send(data[i : i + 1])
        assert conn.read_reply().json()["choices"][0]["text"] == expected(0, 4)


def test_a_first_request_is_not_held_back(server):
    """A client with Nagle's algorithm sends it once the end of its handshake is acknowledged, which takes 40 ms where nobody hurries."""

    def first():
        with socket.create_connection(server.address) as plain, server.tls.wrap_socket(plain, server_hostname="localhost") as sock:
            begun = time.monotonic()
            sock.sendall(server.bytes("GET", "/livez"))
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            return time.monotonic() - begun

    assert min(first() for _ in range(20)) < 0.02


def hello(pair):
    """The first message of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=pair[0]).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def processor_seconds(server):
    fields = open(f"/proc/{server.process.pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_handshakes_that_never_end(start, pair):
    """They are closed as a head is that never comes, cost nothing meanwhile, and disturb neither others nor the stop."""
    server = start()
    first = hello(pair)
    crowd = []
    for i in range(300):
        crowd.append(Conn(server.address, timeout=40))
        crowd[-1].send([b"", first[:3], first[:100], first, first, first][i % 6])
    begun = time.monotonic()
    assert server.stream(PROMPT, max_tokens=16).choices[0]["text"] == expected(0, 16)
    used = processor_seconds(server)
    time.sleep(4)
    used = processor_seconds(server) - used
    assert used < 0.4, f"{used:.2f} s of a processor in 4 s"
    for conn in crowd:
        conn.rest()
    assert 8 < time.monotonic() - begun < 30
    late = [Conn(server.address) for _ in range(20)]
    server.stop()
    for conn in late:
        assert not conn.rest()


def test_a_handshake_in_parts(server, pair):
    """A byte at a time, slowly, but within the time of a head."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=pair[0]).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with Conn(server.address) as conn:

        def flush():
            for byte in outgoing.read():
                conn.send(bytes([byte]))
                time.sleep(0.001)

        def turn(act):
            while True:
                try:
                    return act()
                except ssl.SSLWantReadError:
                    flush()
                    assert conn.fill()
                    incoming.write(conn.buf)
                    conn.buf = b""

        turn(client.do_handshake)
        client.write(server.bytes("GET", "/livez"))
        flush()
        assert turn(lambda: client.read(1000)).startswith(b"HTTP/1.1 200")


def name_of(address):
    with socket.create_connection(address) as sock:
        return ssl._create_unverified_context().wrap_socket(sock).getpeercert(binary_form=True)


def test_reload(start, tmp_path, pair):
    """SIGHUP: connections go on, new ones see the new certificate; a bad pair changes nothing, and the log says why."""
    files = tmp_path / "server.crt", tmp_path / "server.key"

    def put(cert, key):
        files[0].write_bytes(cert.read_bytes())
        files[1].write_bytes(key.read_bytes())

    put(*pair)
    server = start("--tls-cert", files[0], "--tls-key", files[1])
    old = name_of(server.address)
    stream = server.open_stream(PROMPT, max_tokens=200, ignore_eos=True)
    second = certificate(tmp_path, "second", "rsa")
    put(*second)
    server.signal(signal.SIGHUP)
    wait_for("the new one", lambda: name_of(server.address) != old, 60)
    new = name_of(server.address)
    assert sum(len(e["choices"]) for e in stream.finish()) >= 100
    stream.conn.close()
    server.tls = ssl.create_default_context(cafile=second[0])
    weak = ssl.create_default_context(cafile=second[0])  # without forward secrecy, which a key of RSA could do
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("kRSA")
    with pytest.raises(ssl.SSLError):
        Conn(server.address, tls=weak)
    kept = 'level=error tls=kept why="--tls-'
    for spoil in (
        lambda: files[0].write_bytes(pair[0].read_bytes()),  # the key is another's
        lambda: files[0].write_text("none"),
        lambda: files[1].unlink(),
        lambda: files[0].unlink(),
    ):
        spoil()
        before = server.log().count(kept)
        server.signal(signal.SIGHUP)
        wait_for("the line", lambda: server.log().count(kept) > before, 60)
        assert name_of(server.address) == new and server.get("/health").status == 200
    put(*pair)
    server.signal(signal.SIGHUP)
    wait_for("the first one", lambda: name_of(server.address) == old)
    server.tls = ssl.create_default_context(cafile=pair[0])


def test_start(pair, tmp_path):
    """A pair that cannot work ends the start, with the reason."""
    cert, key = pair
    other = certificate(tmp_path, "other")[1]
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:x"], check=True)
    rows = [
        (["--tls-cert", cert], "need each other: --tls-key is missing"),
        (["--tls-key", key], "need each other: --tls-cert is missing"),
        (["--tls-cert", tmp_path / "none", "--tls-key", key], "none: No such file or directory"),
        (["--tls-cert", cert, "--tls-key", tmp_path], ": Is a directory"),
        (["--tls-cert", cert, "--tls-key", other], "does not belong to the first certificate of"),
        (["--tls-cert", key, "--tls-key", key], "expected 1 to 16 certificates as PEM"),
        (["--tls-cert", cert, "--tls-key", cert], "expected a private key as PEM"),
        (["--tls-cert", cert, "--tls-key", locked], "is encrypted"),
        (["--tls-cert", "/dev/zero", "--tls-key", key], "/dev/zero is too long for a PEM file"),
    ]
    for flags, why in rows:
        got = run("serve", "--port", "0", *flags, timeout=30)
        assert got.returncode == 2 and why in got.stderr, (flags, got.stderr)


def test_one_file_for_both(tmp_path, pair, model):
    """With flags of other servers; and the log says when the certificate ends."""
    both = tmp_path / "both.pem"
    both.write_bytes(pair[0].read_bytes() + pair[1].read_bytes())
    server = Server("--ssl-certfile", both, "--ssl-keyfile", both, tls=ssl.create_default_context(cafile=pair[0]))
    assert re.search(r"level=info tls=read ends=20\d\d-\d\d-\d\d\n", server.log())
    server.stop()


def test_own_clients_say_so(server):
    for command in (["chat", server.url], ["top", server.url, "--once"], ["health", server.url]):
        got = run(*command)
        assert got.returncode == 2 and "no TLS" in got.stderr, got.stderr
