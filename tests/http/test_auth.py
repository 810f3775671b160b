"""Keys: everything needs one except the liveness paths; and what protects a server that has none."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

import goldens
from goldens import expected
from process import SLOW, Server, run
from wire import check_error, wait_for

PROMPT = "Once upon a time"
KEY = "sk-right-0123456789abcdef"
OPEN = {"/health", "/livez", "/readyz", "/ping", "/v1/health"}
# Routes that exist or may exist one day; whichever the server's README lists are added. All need the key.
GUARDED = {
    ("GET", "/v1/models"), ("GET", "/v1/models/any"), ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"),
    ("POST", "/v1/embeddings"), ("POST", "/v1/responses"), ("POST", "/v1/messages"), ("POST", "/tokenize"),
    ("POST", "/detokenize"), ("GET", "/tokenizer_info"), ("GET", "/metrics"), ("GET", "/version"), ("GET", "/"),
    ("GET", "/nowhere"), ("POST", "/v1/load_lora_adapter"), ("GET", "/docs"), ("GET", "/v1"), ("GET", "/health/x"),
    ("GET", "/healthz"), ("OPTIONS", "/v1/completions"), ("DELETE", "/v1/completions"), ("HEAD", "/v1/models"),
    ("GET", "//health"), ("GET", "/health/../v1/models"), ("GET", "/%2e/v1/models"), ("GET", "/v1/models?x=/health"),
    ("GET", "/v1/models#/health"), ("GET", "/v1/models%3f/health"), ("POST", "/health/../v1/completions"),
}  # fmt: skip


def listed_routes():
    """The paths of the code's own table, server/endpoints/routes.c."""
    text = (goldens.ROOT / "server/endpoints/routes.c").read_text()
    routes = {("GET", p) for p in re.findall(r"\"(/[a-z0-9_/-]+)\"", text)}
    return {(m, p) for m, p in routes if p not in OPEN}


@pytest.fixture(scope="module")
def guarded(model):
    from process import Server

    server = Server("--api-key", KEY, key=KEY)
    server.secrets.append(KEY)
    yield server
    server.stop()


def test_every_route_needs_the_key(guarded):
    for method, path in sorted(GUARDED | listed_routes()):
        for headers in ({"Authorization": None}, {"Authorization": "Bearer wrong"}):
            body = b"{}" if method == "POST" else None
            reply = guarded.call(method, path, body, headers=headers)
            assert reply.status == 401, (method, path, reply)
            assert reply.header("www-authenticate") == "Bearer"
            if method != "HEAD":
                if path.startswith("/v1/messages"):  # Anthropic's form
                    message = reply.json()["error"]["message"]
                elif path.split("/")[1] in ("api", "generate", "generate_stream", "info") or (method, path) == ("POST", "/"):  # Ollama's, TGI's
                    message = reply.json()["error"]
                else:
                    message = check_error(reply, 401, code="invalid_api_key")["message"]
                assert "API key" in message and KEY not in message and "wrong" not in message.split()


@pytest.mark.parametrize("path", sorted(OPEN))
def test_liveness_needs_none(guarded, path):
    assert guarded.call("GET", path, headers={"Authorization": None}).status == 200
    assert guarded.call("GET", path, headers={"Authorization": "Bearer wrong"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer {KEY}"},
        {"Authorization": f"BEARER {KEY}"},
        {"Authorization": None, "x-api-key": KEY},
        {"Authorization": None, "X-API-Key": KEY},
    ],
    ids=lambda h: "|".join(h) + str(h.get("Authorization"))[:7],
)
def test_the_key_opens(guarded, headers):
    assert guarded.call("GET", "/v1/models", headers=headers).status == 200
    reply = guarded.post(
        "/v1/completions", {"prompt": PROMPT, "max_tokens": 5, "temperature": 0}, headers=headers
    )
    assert reply.json()["choices"][0]["text"] == expected(0, 5)


@pytest.mark.parametrize(
    "value",
    [
        "", "Bearer", "Bearer ", KEY, f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Bearer x{KEY}",
        f"Bearer{KEY}",
        f"Token {KEY}", f"Bearer {KEY.upper()}", f"Bearer {KEY} {KEY}", f"Bearer {KEY},x", f'Bearer "{KEY}"',
        "Bearer " + "a" * 8000,
        f"X-Bearer {KEY}", "Bearer *" , "Bearer " + "*" * len(KEY),
    ],
    ids=lambda v: v[:24],
)  # fmt: skip
def test_what_does_not_open(guarded, value):
    reply = guarded.call("GET", "/v1/models", headers={"Authorization": value})
    assert reply.status == 401, reply


def test_wrong_x_api_key(guarded):
    reply = guarded.call("GET", "/v1/models", headers={"Authorization": None, "x-api-key": KEY[:-1]})
    assert reply.status == 401


def test_nul_does_not_end_a_key(guarded):
    """A value with a NUL is malformed: 400 (or 401), never a match of what stands before it."""
    with guarded.connect() as conn:
        head = f"GET /v1/models HTTP/1.1\r\nHost: {guarded.host_header}\r\nAuthorization: Bearer {KEY}\0x\r\n\r\n"
        conn.send(head.encode())
        assert conn.read_reply().status in (400, 401)


def test_two_authorizations(guarded):
    with guarded.connect() as conn:
        head = f"GET /v1/models HTTP/1.1\r\nHost: {guarded.host_header}\r\n"
        head += f"Authorization: Bearer x\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        conn.send(head.encode())
        assert conn.read_reply().status in (400, 401)


def test_refused_before_the_body(guarded):
    """Without a key not even the body is read: it is not worth the memory."""
    with guarded.connect() as conn:
        conn.send(
            guarded.bytes(
                "POST",
                "/v1/completions",
                headers={
                    "Authorization": "Bearer no",
                    "Content-Length": "1000000",
                    "Content-Type": "application/json",
                    "Expect": "100-continue",
                },
            )
        )
        reply = conn.read_reply()
        assert reply.status == 401 and reply.interim == []


def test_a_preflight_needs_no_key_and_gives_nothing(guarded):
    """A browser's preflight cannot carry a key; a bare OPTIONS is no preflight and needs one."""
    both = {"Authorization": None, "Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = guarded.call("OPTIONS", "/v1/completions", headers=both)
    assert reply.status != 401
    assert not [k for k, _ in reply.headers if k == "access-control-allow-origin"]
    for missing in ("Origin", "Access-Control-Request-Method"):
        some = {k: v for k, v in both.items() if k != missing}
        assert guarded.call("OPTIONS", "/v1/completions", headers=some).status == 401


@pytest.mark.parametrize("credentials", [(), ("--allow-credentials",)], ids=["", "credentials"])
@pytest.mark.parametrize("flag", ["https://page.example", "*"])
def test_allowed_origins(start, flag, credentials):
    """The page of an allowed origin may call, after a preflight; others see nothing, unless all are allowed. With credentials a browser
    wants the origin itself."""
    server = start("--allowed-origins", flag, *credentials)
    assert ("any web page" in server.log()) == (flag == "*")
    for origin in ("https://page.example", "https://other.example", "null"):
        allowed = (origin if credentials else flag) if flag in ("*", origin) else None
        ask = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-mine"}
        reply = server.call("OPTIONS", "/v1/completions", headers=ask)
        assert reply.status == (204 if allowed else 400)
        assert reply.header("access-control-allow-headers") == ("x-mine" if allowed else None)
        for reply in (reply, server.call("GET", "/v1/models", headers={"Origin": origin})):
            assert reply.header("access-control-allow-origin") == allowed
            assert reply.header("access-control-allow-credentials") == ("true" if allowed and credentials else None)


LOCAL = [f"{s}://{h}{p}" for s in ("http", "https") for h in ("localhost", "127.0.0.1", "[::1]") for p in ("", ":3000")]
FOREIGN = ["http://localhost.evil.com", "http://notlocalhost", "http://localhost:1@evil.com", "localhost", "ftp://localhost", "null"]


@pytest.mark.parametrize("origin, allowed", [(o, True) for o in LOCAL] + [(o, False) for o in FOREIGN])
def test_allowed_origins_of_this_machine(local_pages, origin, allowed):
    """`localhost`: any port of it, by either scheme, and no name that begins or ends so."""
    ask = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    reply = local_pages.call("OPTIONS", "/v1/completions", headers=ask)
    assert reply.status == (204 if allowed else 400)
    assert reply.header("access-control-allow-origin") == (origin if allowed else None)


@pytest.fixture(scope="module")
def local_pages():
    server = Server("--allowed-origins", "localhost")
    yield server
    server.stop()


def test_key_is_not_in_the_command_line(guarded):
    """Keys in argv can be read by every user of the machine: overwritten at start, with a warning."""
    shown = Path(f"/proc/{guarded.process.pid}/cmdline").read_bytes()
    assert KEY.encode() not in shown
    assert KEY[3:].encode() not in shown
    log = guarded.log()
    assert KEY not in log
    assert "QUIRE_API_KEY" in log and "--api-key-file" in log, "the warning names the safer forms"


def test_key_with_equals_sign(start):
    server = start(f"--api-key={KEY}", key=KEY)
    assert server.models()
    assert KEY.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


def test_several_keys(start, tmp_path):
    """Flags, file and environment: each key opens, others do not."""
    file = tmp_path / "keys"
    file.write_text("# for the team\nfile-key-one\n\n  file-key-two  \r\n")
    server = start("--api-key", "flag-key-one", "--api-key", "flag-key-two", "--api-key-file", file)
    for key in ("flag-key-one", "flag-key-two", "file-key-one", "file-key-two"):
        assert server.call("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}).status == 200, key
    for key in ("", "# for the team", "#", "flag-key", "file-key-one\t2"):
        assert server.call("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}).status == 401, key
    server.secrets += ["flag-key-one", "file-key-two"]


@pytest.mark.parametrize("flags", [(), ("--share-prefixes",)], ids=["by key", "shared"])
def test_prefixes_of_keys(start, flags):
    """Each of several keys has prefixes of its own, and salts that no other key can name; or all share them."""
    server = start("--api-key", "key-of-one", "--api-key", "key-of-two", *flags)
    prompt = [(i * 15485863) % 500 + 5 for i in range(100)]

    def cached(key, **fields):
        body = {"prompt": prompt, "max_tokens": 1} | fields
        reply = server.post("/v1/completions", body, headers={"Authorization": f"Bearer {key}"})
        return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    for fields in ({}, {"cache_salt": "guessed"}):
        assert cached("key-of-one", **fields) == 0
        assert cached("key-of-one", **fields) == 96
        assert cached("key-of-two", **fields) == (96 if flags else 0)
        assert cached("key-of-two", **fields) == 96


def test_key_from_the_environment(start):
    server = start(env={"QUIRE_API_KEY": "env-key"}, key="env-key")
    assert server.models()
    assert server.call("GET", "/v1/models", headers={"Authorization": "Bearer x"}).status == 401
    server.secrets.append("env-key")


def test_unreadable_key_file(tmp_path, model):
    """A server that was meant to have keys does not start without them."""
    for file in (tmp_path / "absent", tmp_path):
        result = run("serve", model, "--port", "0", "--api-key-file", file)
        assert result.returncode == 2, result
        assert len(result.stderr.strip().splitlines()) == 1
    empty = tmp_path / "empty"
    empty.write_text("\n# nothing\n")
    assert run("serve", model, "--port", "0", "--api-key-file", empty).returncode == 2


def test_empty_key(model):
    assert run("serve", model, "--port", "0", "--api-key", "").returncode == 2


@pytest.mark.parametrize("name", ["QUIRE_APIKEY", "QUIRE_API_KEYS", "QUIRE_KEY", "QUIRE_AUTH_TOKEN", "QUIRE_ADMIN_API_KEYS", "QUIRE_API_KEY_FILES", "QUIRE_REQUIRE_KEYS"])
def test_misspelt_key_variable(model, name):
    """A key that nothing reads does not become a server without one; who asks it what it is is told."""
    result = run("serve", model, "--port", "0", env={name: "sk-misspelt"})
    assert result.returncode == 2 and name in result.stderr and "did you mean QUIRE_" in result.stderr, result
    assert "KEY" in result.stderr.split("did you mean")[1] and "sk-misspelt" not in result.stderr
    assert run("serve", "--help", env={name: "x"}).returncode == 0


@pytest.mark.parametrize("name", ["QUIRE_API_KEY", "QUIRE_API_KEY_FILE", "QUIRE_ADMIN_API_KEY", "QUIRE_REQUIRE_KEY"])
def test_empty_key_variable(model, name):
    result = run("serve", model, "--port", "0", env={name: ""})
    assert result.returncode == 2 and f"{name} is empty" in result.stderr, result


def test_misspelt_variable(model):
    """One that is no key is told, and stops nobody: Kubernetes sets QUIRE_SERVICE_HOST."""
    result = run("tokenize", model, "a", env={"QUIRE_MODE1": "x", "QUIRE_SERVICE_HOST": "10.0.0.1"})
    assert result.returncode == 0, result
    assert "QUIRE_MODE1; did you mean QUIRE_MODEL?" in result.stderr and "QUIRE_SERVICE_HOST\n" in result.stderr
    plain = run("tokenize", "a", env={"QUIRE_MODEL": str(model)})
    assert plain.stdout == result.stdout and plain.stderr == ""
    assert "QUIRE_MODEL" in run("tokenize", "--help").stdout


def test_variables_of_all_programs(model):
    """Those that tests, scripts and the engine read are nobody's mistake."""
    files = subprocess.run(["git", "ls-files"], cwd=goldens.ROOT, capture_output=True, text=True, check=True).stdout.split()
    read = re.compile(r"""(?:getenv\("|environ[^"'\n]{0,20}["']|\$\{?)(QUIRE_[A-Z0-9_]+)""")
    texts = [(goldens.ROOT / f).read_text(errors="replace") for f in files if f.endswith((".c", ".h", ".cu", ".cpp", ".py", ".sh")) or f == "dev"]
    names = {name for text in texts for name in read.findall(text)} - {"QUIRE_API_KEY"}
    assert len(names) > 25, names
    result = run("tokenize", model, "a", env=dict.fromkeys(names, ""))
    assert result.returncode == 0 and result.stderr == "", result


def test_files_read_again(start, tmp_path):
    """SIGHUP: keys come and go, whoever is being answered is; what cannot be read changes nothing."""
    keys, admins = tmp_path / "keys", tmp_path / "admins"
    keys.write_text("first-of-file\n")
    admins.write_text("admin-of-file\n")
    server = start("--api-key-file", keys, "--admin-api-key-file", admins, "--lora-root", tmp_path, env=SLOW, key="first-of-file")
    prompt = [(i * 15485863) % 500 + 5 for i in range(100)]

    def status(key):
        return server.call("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}).status

    def is_admin(key):
        return server.post("/v1/unload_lora_adapter", {"lora_name": "x"}, headers={"Authorization": f"Bearer {key}"}).status == 404

    def lines(word):
        return server.log().count(word)

    def cached(key):
        reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1}, headers={"Authorization": f"Bearer {key}"})
        return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("first-of-file") == 0 and cached("first-of-file") == 96
    stream = server.open_stream("Once", max_tokens=150, ignore_eos=True)
    first = next(iter(stream))
    keys.write_text("second-of-file\n")
    admins.write_text("other-of-file\n")
    server.signal(signal.SIGHUP)
    wait_for("the new key", lambda: status("second-of-file") == 200)
    assert status("first-of-file") == 401 and is_admin("other-of-file") and not is_admin("admin-of-file")
    assert cached("second-of-file") == 0, "what another key has computed"
    assert sum(len(e["choices"]) for e in [first, *stream.finish()]) >= 100
    stream.conn.close()
    for bad in (keys, admins):
        good, before = bad.read_text(), lines("keys=kept")
        for spoil in (lambda: bad.write_text("# none\n"), bad.unlink):
            keys.write_text("third-of-file\n")
            spoil()
            server.signal(signal.SIGHUP)
            wait_for("the line", lambda: lines("keys=kept") > before)
            before = lines("keys=kept")
            assert status("second-of-file") == 200 and status("third-of-file") == 401 and is_admin("other-of-file")
        bad.write_text(good)
    keys.write_text("second-of-file\nthird-of-file\n")
    for _ in range(30):  # those that come while one is being read
        server.signal(signal.SIGHUP)
        assert status("second-of-file") == 200
    wait_for("both", lambda: status("third-of-file") == 200)
    server.secrets += ["first-of-file", "second-of-file", "third-of-file", "admin-of-file", "other-of-file"]


def test_hangup_without_files(start):
    server = start("--api-key", KEY, key=KEY)
    server.signal(signal.SIGHUP)
    wait_for("the line", lambda: "no file of keys" in server.log())
    assert server.models()


def test_public_address_without_a_key(start, model):
    """A warning; with --require-key a refusal."""
    server = start("--host", "0.0.0.0")
    assert re.search(r"warn.*key|key.*warn|without.*key", server.log(), re.I), server.log()
    assert run("serve", model, "--port", "0", "--host", "0.0.0.0", "--require-key").returncode == 2


# ---- without a key


def test_any_key_is_ignored_where_none_is_set(server):
    """Clients always send some key."""
    for value in ("Bearer dummy", "Bearer EMPTY", "Basic eDp5", "nonsense"):
        assert server.call("GET", "/v1/models", headers={"Authorization": value}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "169.254.1.1",
        "[::2]:1",
        "localhost:80:90",
        "evil.example:127.0.0.1",
        "localhost@evil.example",
    ],
)
def test_rebinding(server, host):
    """Without a key, on loopback, a page whose name was rebound to us is turned away by its Host."""
    for method, path, body in (
        ("GET", "/v1/models", None),
        ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}),
    ):
        reply = server.call(method, path, body, headers={"Host": host})
        assert reply.status in (403, 400), reply
        check_error(reply, (403, 400), type=None)


def test_local_hosts(server):
    port = server.address[1]
    for host in (
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        f"localhost:{port}",
        f"127.0.0.1:{port}",
        "[::1]",
        f"[::1]:{port}",
    ):
        assert server.call("GET", "/v1/models", headers={"Host": host}).status == 200, host


def test_any_host_with_a_key(guarded):
    """With a key a page cannot do anything, and names in front of a proxy are many."""
    assert guarded.call("GET", "/v1/models", headers={"Host": "llm.example.org"}).status == 200


@pytest.mark.timeout(120)
def test_many_wrong_keys_do_not_slow_the_right_one(guarded):
    """None of 300 is made to wait; that would end at the limit of a test."""
    with guarded.connect() as conn:
        for i in range(300):
            conn.send(guarded.bytes("GET", "/v1/models", headers={"Authorization": f"Bearer wrong-{i}"}))
            assert conn.read_reply().status == 401
    assert guarded.models()
