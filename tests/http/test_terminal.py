"""quire chat, top, tokenize: on a terminal (a pty), in a pipe, against the model in the process and against a server."""

import base64
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
from pathlib import Path

import pytest

from goldens import data
from process import BINARY, SLOW, environment, run
from wire import wait_for

WHO = "Who are you?"
DOWN = {"TERM": "dumb"}  # without libedit


def user(text):
    return {"role": "user", "content": text}


def said(server, *messages):
    body = {"messages": list(messages), "temperature": 0}
    return server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]


def chat(lines, *flags, env=None):
    """A conversation through a pipe."""
    return subprocess.run(
        [str(BINARY), "chat", *map(str, flags)], input="".join(line + "\n" for line in lines), capture_output=True, timeout=120,
        env=environment(env), text=True,
    )  # fmt: skip


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *arguments, env=None, size=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if size:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            os.environ.clear()
            os.environ.update(environment({"TERM": "xterm", "LC_ALL": "C.UTF-8"} | (env or {})))
            os.execv(str(BINARY), [str(BINARY), *map(str, arguments)])
        self.text = ""
        self.raw = b""

    def read(self, seconds=0.05):
        with contextlib.suppress(OSError):  # the program has ended
            if select.select([self.fd], [], [], seconds)[0]:
                self.raw += os.read(self.fd, 65536)
        self.text = self.raw.decode(errors="replace")
        return self.text

    def until(self, what):
        """Waits for a text, and gives what came up to its end; the next look begins there."""
        wait_for(f"{what!r}, after {self.text[-300:]!r}", lambda: what in self.read())
        at = self.text.index(what) + len(what)
        before = self.text[:at]
        self.raw = self.text[at:].encode()
        self.text = self.text[at:]
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self, key=""):
        """Its exit code. The key is typed until then: libedit loses a Ctrl-D between its prompt and its first read."""

        def over():
            with contextlib.suppress(OSError):  # the program has ended
                self.type(key)
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (status,) if pid else None

        status = wait_for("the end", over)[0]
        self.pid = 0
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def terminal():
    all = []

    def begin(*arguments, **options):
        all.append(Terminal(*arguments, **options))
        return all[-1]

    yield begin
    for one in all:
        if one.pid:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)


# ---- through a pipe


@pytest.mark.parametrize("where", ["process", "server"])
def test_lines(tiny, where, tmp_path):
    """Each line is a message; standard output has the answers alone, the same from an engine and from a server."""
    to = [tiny.url] if where == "server" else []
    first = said(tiny, user(WHO))
    talk = [user(WHO), {"role": "assistant", "content": first}, user("Tell me more")]
    second = said(tiny, *talk)
    got = chat([WHO, "Tell me more", f"/save {tmp_path}/talk.json"], "--temperature", "0", *to)
    assert got.stdout == f"{first}\n{second}\n" and got.stderr == "" and got.returncode == 0
    assert json.loads((tmp_path / "talk.json").read_text()) == {"messages": [*talk, {"role": "assistant", "content": second}]}
    again = chat([f"/load {tmp_path}/talk.json", "/retry", "/new", WHO], "--temperature", "0", *to)
    assert again.stdout == f"{second}\n{first}\n" and again.returncode == 0


@pytest.mark.parametrize("where", ["process", "server"])
def test_commands(tiny, where, tmp_path):
    to = ["--url", tiny.url] if where == "server" else []
    system = {"role": "system", "content": "You are a pirate."}
    count = tiny.post("/v1/chat/completions/input_tokens", {"messages": [system, user(WHO), {"role": "assistant", "content": "Arr"}]})
    (tmp_path / "in.json").write_text(json.dumps({"messages": [system, user(WHO), {"role": "assistant", "content": "Arr"}]}))
    got = chat([f"/load {tmp_path}/in.json", "/tokens", "/new", WHO, "/system", "/new", WHO], "--temperature", "0", *to)
    lines = got.stdout.splitlines()
    assert lines[0].startswith(f"{count.json()['input_tokens']} tokens")
    assert lines[1:] == [said(tiny, system, user(WHO)), said(tiny, user(WHO))]
    more = chat(["/system You are a pirate.", WHO, "/help", "/quit", "never"], "--temperature", "0", *to)
    assert more.stdout.splitlines()[0] == lines[1] and "/save FILE" in more.stdout and more.stdout.splitlines()[-1].startswith("A line")
    with_flag = chat([WHO], "--system", "You are a pirate.", "--temperature", "0", "-n", "3", *to)
    assert lines[1].startswith(with_flag.stdout.strip()) and len(with_flag.stdout) < len(lines[1])


def test_lines_that_go_on(tiny):
    want = said(tiny, user("one\ntwo"))
    for lines in (["one\\", "two"], ['"""one', 'two"""']):
        assert chat(lines, "--temperature", "0").stdout == want + "\n"


USUAL = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
SHOWN = "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05"


def shown(values):
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


@pytest.mark.parametrize("where", ["process", "server"])
def test_sampling(tiny, start, where, tmp_path):
    """A person who says nothing gets llama.cpp's defaults, where the model gives no advice; a request gets OpenAI's."""

    def sampled(**fields):
        body = {"messages": [user(WHO)], "seed": 5} | fields
        return tiny.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] + "\n"

    to = [tiny.url] if where == "server" else []
    assert chat([WHO], "--seed", "5", *to).stdout == sampled(**USUAL)
    lines = ["/set", "/set temperature 0", "/set top_k -1", "/set", WHO]
    less = shown(USUAL | {"temperature": 0, "top_k": -1})
    assert chat(lines, *to).stdout == f"{SHOWN}\n{less}\n{said(tiny, user(WHO))}\n"
    assert chat(["/set", WHO], "--seed", "5", "--temperature", "1.5", "--top-k", "7", *to).stdout == (
        shown(USUAL | {"temperature": 1.5, "top_k": 7}) + "\n" + sampled(**USUAL | {"temperature": 1.5, "top_k": 7}))
    for line, word in (("/set temperature 3", "at most 2"), ("/set temperature", "a number"), ("/set nix 1", "nix"), ("/set top_p x", "number")):
        got = chat([line, "/set"], *to)
        assert got.returncode == 1 and word in got.stderr and got.stdout == SHOWN + "\n", line
    flags = ["--override-generation-config", '{"temperature": 0.25, "min_p": 0}']
    told = chat(["/set"], start(*flags, model="").url) if where == "server" else chat(["/set"], *flags)
    assert told.stdout == shown(USUAL | {"temperature": 0.25, "min_p": 0}) + "\n"
    (tmp_path / "advice.json").write_text('{"temperature": 0.5}')
    flags = ["--generation-config", tmp_path / "advice.json"]  # then nothing of ours
    told = chat(["/set"], start(*flags, model="").url) if where == "server" else chat(["/set"], *flags)
    assert told.stdout == "temperature 0.5, top_k 0, top_p 1, min_p 0\n"


def test_sampling_of_another_server():
    with stub() as url:
        pass
    assert chat(["/set"], "--url", url).stdout == "as the server has it\n"


def test_what_fails(tiny, tmp_path):
    (tmp_path / "bad.json").write_text('{"messages": [{"role": 1}]}')
    for line, word in (("/nix", "/help"), ("/save", "FILE"), ("/load /none/such", "/none/such"), (f"/load {tmp_path}/bad.json", "expected"),
                       ("/retry", "nothing")):  # fmt: skip
        got = chat([line, WHO], "--url", tiny.url, "--temperature", "0")
        assert got.returncode == 1 and word in got.stderr and got.stdout == said(tiny, user(WHO)) + "\n", line
    long = chat(["word " * 3000, WHO], "--temperature", "0")
    assert long.returncode == 1 and "tokens" in long.stderr and long.stdout == said(tiny, user(WHO)) + "\n"
    same = chat(["word " * 3000, WHO], "--temperature", "0", "--url", tiny.url)
    assert same.returncode == 1 and "tokens" in same.stderr and same.stdout == said(tiny, user(WHO)) + "\n"
    for flags in (["--url", "ftp://x"], ["ftp://x"], ["--url", tiny.url, "model.gguf"], ["--url", "localhost"], ["--url", "a:1x"]):
        assert chat([WHO], *flags).returncode == 2
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        gone = chat([WHO], "--url", f"http://127.0.0.1:{s.getsockname()[1]}")
    assert gone.returncode == 1 and "refused" in gone.stderr
    assert chat([WHO], "/none/such.gguf").returncode == 1


def test_key(start):
    server = start("--api-key", "opensesame", key="opensesame", model="")
    none = chat([WHO], "--url", server.url)
    assert none.returncode == 1 and "API key" in none.stderr and none.stdout == ""
    for flags, env in ((["--api-key", "opensesame"], {}), ([], {"QUIRE_API_KEY": "opensesame"})):
        assert chat([WHO], "--url", server.url, *flags, env=env).stdout.strip()
        assert run("top", server.url, *flags, env=env).stdout.startswith("quire-tiny")
    refused = run("top", server.url)
    assert refused.returncode == 1 and "--api-key" in refused.stderr


# ---- a server that says anything


@contextlib.contextmanager
def stub(*answers):
    """Gives each connection the next answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            waiting = list(answers)
            while waiting:
                conn, _ = listener.accept()
                with conn:
                    request = conn.recv(65536)
                    length = re.search(rb"Content-Length: (\d+)", request)
                    while length and len(request.partition(b"\r\n\r\n")[2]) < int(length[1]):
                        request += conn.recv(65536)  # what is unread at a close takes the answer away
                    told = request.startswith(b"GET /props ")  # how a person's chats are sampled: others do not tell
                    with contextlib.suppress(OSError):  # it has read enough
                        conn.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n" if told else waiting.pop(0))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def events(*deltas, done=True):
    lines = [b"data: " + json.dumps({"choices": [{"delta": d}]}).encode() + b"\n\n" for d in deltas]
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def chunked(body, size=7):
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def test_streams():
    body = events({"reasoning_content": "hm"}, {"content": "é"}, {"content": "\u001b[31mred\u009b"}, {"content": "!"},
                  {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]})  # fmt: skip
    want = "é\\x1b[31mred\\xc2\\x9b!\n[calls f] {}\n"  # a model moves no cursor
    answers = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, n) for n in (1, 7, 4000)]
    answers += [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, b"HTTP/1.0 200 OK\r\n\r\n" + body.replace(b"\n", b"\r\n")]
    for answer in answers:
        with stub(answer) as url:
            got = chat([WHO], "--url", url)
        assert got.stdout == want and got.returncode == 0, answer


@pytest.mark.parametrize(
    "answer, word",
    [
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(events({"content": "so"}, done=False)), "breaks off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(events({"content": "so"}))[:30], "breaks off"),
        (HEAD + b"Content-Length: 500\r\n\r\n" + events({"content": "so"}, done=False), "breaks off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "breaks off"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(events({"content": "so"}), 4000)[:-5] + b"-5\r\n\r\n", "breaks off"),
        (HEAD + b"\r\ndata: {\n\n", "not JSON"),
        (HEAD + b'\r\ndata: {"error":{"message":"The engine failed."}}\n\n', "The engine failed."),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", "status 503: busy"),
        (b"SSH-2.0-x\r\n", "not HTTP/1"),
        (b"", "not HTTP/1"),
        (HEAD + b"\r\n" + b"x" * (2 << 20), "too long"),
    ],
    ids=range(11),
)
def test_broken_streams(answer, word):
    with stub(answer) as url:
        got = chat([WHO], "--url", url)
    assert got.returncode == 1 and word in got.stderr and got.stderr.count("\n") == 1


# ---- on a terminal


@pytest.mark.parametrize("env", [{}, DOWN], ids=["libedit", "plain"])
@pytest.mark.parametrize("where", ["process", "server"])
def test_a_person_talks(tiny, terminal, where, env):
    to = ["--url", tiny.url] if where == "server" else []
    t = terminal("chat", "--temperature", "0", *to, env=env)
    t.until("ctrl-D ends\r\n")
    t.until(shown(USUAL | {"temperature": 0}) + "; /set changes it\r\n")
    t.until("> ")
    t.type(WHO + "\n")
    assert said(tiny, user(WHO)) in t.until("tokens/s]")
    t.until("> ")
    t.type('"""one\n')
    t.until(". ")
    t.type('two"""\n')
    t.until("]")
    t.until("> ")
    assert t.end("\x04") == 0


def test_history(terminal):
    """The line before comes back, to be changed."""
    t = terminal("chat", "--temperature", "0")
    t.until("> ")
    t.type("/nix\n")
    t.until("'/nix'")
    t.until("> ")
    t.type("\x1b[Ax\n")
    t.until("'/nixx'")
    t.type("/quit\n")
    assert t.end() == 0


@pytest.mark.parametrize("where", ["process", "server"])
def test_interrupt_stops_the_answer_only(start, terminal, where):
    """The prompt comes back; the server's request is over; the next answer comes."""
    server = start(model="", env=SLOW) if where == "server" else None
    t = terminal("chat", "--temperature", "1", "--seed", "1", *(["--url", server.url] if server else []), env=DOWN | ({} if server else SLOW))
    t.until("> ")
    t.type("Tell me a long story.\n")
    t.until("story.\r\n")
    wait_for("some of it", lambda: len(t.read()) > 5)
    t.type("\x03")
    t.until("cancelled]")
    t.until("> ")
    if server:
        server.wait_idle()
    t.type("\x03")
    t.until("(ctrl-D or /quit ends)")
    t.type("/tokens\n")
    t.until("tokens")
    t.type("/quit\n")
    assert t.end() == 0


# ---- top


def test_top_once(start):
    server = start("--max-num-seqs", "2", env=SLOW)
    streams = [server.connect() for _ in range(3)]
    for i, conn in enumerate(streams):
        body = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        conn.send(server.bytes("POST", "/v1/completions", body, headers={"X-Request-Id": f"mine-{i}"}))
    wait_for("two run", lambda: server.get("/v1/engine").json()["queue"] | {"x": 0} and
             sorted(r["state"] for r in server.get("/v1/engine").json()["requests"]) == ["decode", "decode", "waiting"])  # fmt: skip
    got = run("top", server.url, "--once")
    assert got.returncode == 0 and "\x1b" not in got.stdout and got.stderr == ""
    assert "running 2 of 2  waiting 1" in got.stdout
    names, states = zip(*(line.split()[:2] for line in got.stdout.splitlines()[-3:]))
    assert sorted(names) == ["mine-0", "mine-1", "mine-2"] and states == ("decode", "decode", "waiting")
    seen = server.get("/v1/engine").json()
    assert f"pages {seen['limits']['pages']} of {seen['limits']['page_tokens']} tokens" in got.stdout
    host, port = server.address
    assert run("top", "--port", port).stdout.splitlines()[1] == got.stdout.splitlines()[1]
    for conn in streams:
        conn.reset()
    server.wait_idle()


def test_top_draws_the_pool(start):
    """Cells in the order of the pages: four pages are cached, eight free."""
    server = start("--num-kv-blocks", "12", "--block-size", "16")
    server.complete([1] + [5 + i for i in range(70)], max_tokens=1)
    state = server.get("/v1/engine?pages=state").json()
    cells = "".join("·▒█"[b] for b in base64.b64decode(state["pages"]["state"]))
    assert run("top", server.url).stdout.splitlines()[5] == cells and cells.count("▒") == 4 and cells != cells[::-1]


def test_top_on_a_terminal(tiny, terminal):
    t = terminal("top", "--url", tiny.url)
    t.until("\x1b[?1049h")
    t.until("running 0 of")
    t.until("\x1b[H")
    t.until("running 0 of")  # again, a second later
    t.type("\x13")  # Ctrl-S: the next write waits, and the signal comes in it
    writing = ["1", "0x1"]  # the system call and the descriptor
    wait_for("a write that waits", lambda: Path(f"/proc/{t.pid}/syscall").read_text().split()[:2] == writing)
    t.type("\x03")
    t.until("\x1b[?1049l")
    assert t.end() == 0, t.text


@pytest.mark.parametrize("key", ["q", "Q", "\x1b"])
def test_a_key_ends_top(tiny, terminal, key):
    """No other key does, none is echoed, and the terminal is afterwards as it was."""
    t = terminal("top", tiny.url)
    was = termios.tcgetattr(t.fd)
    t.until("running 0 of")
    t.type("\x1b[Ax")  # an arrow begins with Esc
    t.until("\x1b[H")
    t.until("running 0 of")
    t.type(key)
    before = t.until("\x1b[?1049l")
    assert "x" not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", before).split("prefix hits")[0].split("\n")[0]
    assert termios.tcgetattr(t.fd) == was
    assert t.end() == 0


@pytest.mark.parametrize("size", [(24, 40), (6, 20), (2, 1)])
def test_top_on_a_small_terminal(tiny, terminal, size):
    """Lines are cut to the columns, and as few as the rows below the cursor."""
    rows, columns = size
    t = terminal("top", tiny.url, size=size)
    t.until("\x1b[H")
    picture = t.until("\x1b[J")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", picture).split("\r\n")
    assert len(lines) <= rows and max(map(len, lines)) == columns, lines
    t.type("q")
    assert t.end() == 0


def test_top_on_a_dumb_terminal(tiny, terminal):
    t = terminal("top", tiny.url, env=DOWN)
    assert t.end() == 0 and "running 0 of" in t.text and "\x1b" not in t.text


STYLE = re.compile(r"\x1b\[[0-9;]*m")


def test_no_color(tiny, terminal):
    """Nothing is coloured or dim; an empty NO_COLOR is none (https://no-color.org)."""
    for value, plain in (("1", True), ("0", True), ("", False)):
        for to in ([], [tiny.url]):  # with the bar of loading
            t = terminal("chat", "--temperature", "0", *to, env={"NO_COLOR": value})
            t.until("> ")
            t.type(WHO + "\n")
            shown = t.until("tokens/s]") + t.until("> ")
            assert (STYLE.search(shown) is None) == plain, shown
            t.type("/quit\n")
            assert t.end() == 0
        t = terminal("top", tiny.url, env={"NO_COLOR": value})
        assert STYLE.search(t.until("request")) is None
        t.type("q")
        assert t.end() == 0


def test_addresses(tiny):
    """HOST:PORT is a server where no file has that name."""
    host, port = tiny.address
    address = f"{host}:{port}"
    assert run("health", address).returncode == run("top", address).returncode == run("top", "--url", address).returncode == 0
    assert run("health", address + "/livez").returncode == 0
    for to in ([address], [address + "/v1"], ["--url", address]):
        assert chat(["/set"], *to).stdout == SHOWN + "\n"
    for wrong in ("localhost", "localhost:", ":8000", "localhost:8000x", "localhost:123456", "https://localhost:8000"):
        assert run("health", wrong).returncode == 2, wrong


# ---- tokenize


def test_pieces():
    """The text of each token, not the vocabulary's name for it; a part of a character as its bytes."""
    gpt2 = data("tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf")
    got = run("tokenize", gpt2, 'Hello world\n "é" 😀')
    assert got.stdout.splitlines()[:3] == ['15496 "Hello"', '995 " world"', '198 "\\n"'], got  # ids of OpenAI's tokenizer
    pieces = [line.split(" ", 1)[1][1:-1] for line in got.stdout.splitlines()]
    assert r'\"' in "".join(pieces) and "é" in "".join(pieces)
    emoji = re.findall(r"\\x([0-9a-f]{2})", "".join(pieces))
    assert bytes.fromhex("".join(emoji)) == "😀".encode()[-len(emoji):] and emoji
    control = run("tokenize", gpt2, "a\u009b\x7f").stdout
    assert all(c == "\n" or c.isprintable() for c in control), control


def test_forgotten_text(tmp_path):
    (tmp_path / "m").mkdir()
    for model in (tmp_path / "m", "x.gguf"):
        got = run("tokenize", model)
        assert got.returncode == 2 and "no TEXT follows it" in got.stderr and got.stdout == ""


def test_top_usage(tiny):
    assert run("top", "ftp://x").returncode == run("top", "http://x", "http://y").returncode == 2
    with stub(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]") as url:
        assert run("top", url).returncode == 1
    with stub(b'HTTP/1.1 200 OK\r\n\r\n{"model": "\\u001b[31m", "pages": {"count": 9999, "state": "x"}, "requests": [1, {}]}') as url:
        got = run("top", url)
        assert got.returncode == 0 and got.stdout.startswith("\\x1b[31m")
