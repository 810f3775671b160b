"""Start, stop and the commands: exit codes, messages, draining, and that each path gives the golden text.

Over 600 lines: start, stop and every command share their fixtures.
"""

import concurrent.futures
import datetime
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

from goldens import cases, data, expected
from process import BINARY, EMULATED, SLOW, WITH_TSAN, Server, environment, faulty, run
from wire import Conn, Folded, check_error, outcome, wait_for

PROMPT = "Once upon a time"
PATH = "/v1/completions"


def fails(code, *arguments, says=(), lines=None, **options):
    result = run(*arguments, **options)
    assert result.returncode == code, result
    assert result.stderr.strip(), "silent"
    for word in says:
        assert word in result.stderr, result.stderr
    if lines:
        assert len(result.stderr.strip().splitlines()) <= lines, result.stderr
    assert "Sanitizer" not in result.stderr
    return result.stderr


# ---- what is wrong before anything is loaded: exit code 2


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--max-num-seq", "4"], ["--max-num-seqs"]),  # did you mean
        (["--port"], ["--port"]),
        (["--port", "x"], ["--port"]),
        (["--port", "-1"], ["--port"]),
        (["--port", "65536"], ["--port"]),
        (["--port", "80.5"], ["--port"]),
        (["--port", ""], ["--port"]),
        (["--max-num-seqs", "0"], ["--max-num-seqs"]),
        (["--max-num-seqs", "99999999999999999999"], ["--max-num-seqs"]),
        (["--block-size", "8"], ["--block-size 8", "multiple of 16"]),
        (["--block-size", "24"], ["--block-size 24", "multiple of 16"]),
        (["--threads", "-2"], ["--threads"]),
        (["--num-kv-blocks", "-5"], ["--num-kv-blocks"]),
        (["--num-kv-blocks", "5", "--kv-cache-memory", "1M"], ["--num-kv-blocks", "--kv-cache-memory"]),
        (["--scheduling-policy", "lottery"], ["--scheduling-policy"]),
        (["--device", "quantum"], ["quantum"]),
        (["--kv-cache-dtype", "f64"], ["--kv-cache-dtype"]),
        (["--log-level", "loud"], ["--log-level"]),
        (["--drain-timeout", "nan"], ["--drain-timeout"]),
        (["--config", "/nonexistent/quire.yaml"], ["/nonexistent/quire.yaml"]),
        (["--host", "not an address"], ["not an address"]),
        (["--host", ""], ["--host"]),
        (["--tensor-parallel-size", "3"], ["--tensor-parallel-size 3", "possible: 1, 2, 4, 8"]),
        (["--pipeline-parallel-size", "6"], ["--pipeline-parallel-size 6", "at least one of its 5 layers"]),
        (["second-model.gguf"], []),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_usage_errors(model, flags, says):
    """One line that names what is wrong, exit code 2, nothing loaded."""
    port = [] if "--port" in flags else ["--port", "0"]
    fails(2, "serve", model, *port, *flags, says=says, lines=1)


def test_no_command():
    assert run().returncode == 2
    fails(2, "sevre", says=["sevre"])
    assert run("--help").returncode == 0
    assert "--max-num-seqs" in run("serve", "--help").stdout
    assert re.search(r"\d+\.\d+", run("--version").stdout)


def test_port_in_use(model, tmp_path):
    """Seen before weights are loaded: a broken model file is not even reached."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        fails(2, "serve", model, "--port", port, says=[port], lines=1)


def test_cuda_without_a_gpu(model):
    """Where there is no CUDA the device is refused with one line; auto falls back to the CPU."""
    result = run("generate", model, "-p", PROMPT, "-n", "2", "--device", "cuda")
    if result.returncode == 0:
        pytest.skip("there is a GPU")
    assert result.returncode == 2 and len(result.stderr.strip().splitlines()) == 1, result
    for words, warns in (["--device", "auto"], True), ([], False):
        result = run("generate", model, "-p", PROMPT, "-n", "2", *words)
        assert result.returncode == 0 and result.stdout, result
        assert ("level=warn the model runs on the CPU, as CUDA does not work here: " in result.stderr) == warns, result


def test_config_file(tmp_path, start):
    """Flags come from a file too, with the command line above it; an unknown key is refused with its line."""
    file = tmp_path / "quire.yaml"
    file.write_text(
        "# a comment\nserved-model-name: from-file\nmax_num_seqs: 2\nno-enable-prefix-caching: true\n"
    )
    server = start("--config", file)
    assert server.models() == ["from-file"]
    server = start("--config", file, "--served-model-name", "from-flag")
    assert server.models() == ["from-flag"]
    server = start("--config", file, env={"QUIRE_SERVED_MODEL_NAME": "from-env"})
    assert server.models() == ["from-env"]
    file.write_text("port: 0\nnonsense: 5\n")
    fails(
        2,
        "serve",
        data("models/stories260K/stories260K.gguf"),
        "--config",
        file,
        says=["nonsense", "2"],
        lines=1,
    )


# ---- what is wrong with the model: exit code 1


def test_missing_model(tmp_path):
    path = tmp_path / "absent.gguf"
    for command in (
        ["serve", path, "--port", "0"],
        ["generate", path, "-p", "a"],
        ["inspect", path],
        ["tokenize", path, "a"],
    ):
        fails(1, *command, says=["absent.gguf"])


@pytest.fixture
def broken(tmp_path, model):
    """broken(change): a copy of the model with changed bytes."""
    blob = model.read_bytes()

    def make(change):
        path = tmp_path / "broken.gguf"
        path.write_bytes(change(bytearray(blob)))
        return path

    return make


def zeroed(blob):
    blob[:] = bytes(len(blob))
    return blob


def with_bytes(at, value):
    def change(blob):
        blob[at : at + len(value)] = value
        return blob

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b"",
        lambda b: b[:3],
        lambda b: b[:24],
        lambda b: b[:5000],
        lambda b: b[:20_000],
        lambda b: b[: len(b) // 2],
        lambda b: b[:-1],
        zeroed,
        with_bytes(0, b"GGML"),
        with_bytes(4, struct.pack("<I", 99)),
        with_bytes(8, struct.pack("<Q", 2**63)),
        with_bytes(8, struct.pack("<Q", 47)),
        with_bytes(16, struct.pack("<Q", 2**62)),
        with_bytes(24, struct.pack("<Q", 2**64 - 1)),
        lambda b: b.replace(b"blk.3.ffn_up.weight", b"blk.3.ffn_up.weighs"),
        lambda b: b.replace(b"llama.block_count", b"llama.block_counz"),
        lambda b: b.replace(b"general.architecture", b"general.architectuer"),
    ],
)
def test_broken_model(broken, change):
    """Named in the message, exit code 1, no crash."""
    path = broken(change)
    for command in (["serve", path, "--port", "0"], ["generate", path, "-p", "a"]):
        fails(1, *command, says=["broken.gguf"])


def test_not_a_model(tmp_path):
    text = tmp_path / "notes.gguf"
    text.write_text("just some words\n" * 100)
    fails(1, "serve", text, "--port", "0", says=["notes.gguf"])
    fails(1, "serve", tmp_path, "--port", "0")
    fails(1, "serve", data("models/tiny-fixtures/tiny.gguf"), "--port", "0", says=["tiny.gguf"])


def test_random_damage(broken):
    """Bytes of the header flipped at random: a clean start or a clean refusal, never a crash."""
    import random

    dice = random.Random(3)
    for _ in range(25):

        def change(blob):
            for _ in range(dice.choice([1, 1, 8])):
                blob[dice.randrange(14_000)] = dice.randrange(256)
            return blob

        result = run("generate", broken(change), "-p", "a", "-n", "2")
        assert result.returncode in (0, 1), result
        assert "Sanitizer" not in result.stderr, result.stderr
        assert result.stderr.replace("\n", "").isprintable(), (
            f"bytes of the file reach the terminal: {result.stderr!r}"
        )


def test_names_in_messages_are_escaped(broken):
    """A model file is no way to write escape sequences to an operator's terminal."""
    path = broken(lambda b: b.replace(b"blk.3.ffn_up.weight", b"blk.3\x1b[31m\xff\x9b\ntrap!!"))
    for command in ("generate", "inspect"):
        result = run(command, path, *(["-p", "a"] if command == "generate" else []))
        for text in (result.stderr, result.stdout):
            assert text.replace("\n", "").isprintable() and "\ntrap" not in text, repr(text)


def not_a_number(blob):
    """The last layer's first norm weights become NaN."""
    blob[14_176 + 1_170_944 : 14_176 + 1_170_944 + 8] = struct.pack("<II", 0x7FC00000, 0x7FC00000)
    return blob


def test_weights_that_are_not_numbers(broken):
    """NaN in the weights: refused at load, or each request fails by itself with a 500; never garbage with a 200."""
    path = broken(not_a_number)
    result = run("serve", path, "--port", "0", "--no-such-flag")
    assert result.returncode == 2
    try:
        server = Server(model=path)
    except AssertionError as problem:
        assert "exit code 1 at start" in str(problem) and "broken.gguf" in str(problem)
        return
    try:
        for _ in range(2):
            reply = server.post(PATH, {"prompt": PROMPT, "max_tokens": 8, "temperature": 0})
            check_error(reply, 500, type="server_error", code="internal_error")
            assert reply.header("x-should-retry") == "false"
        assert server.get("/health").status == 200
        server.wait_idle()
    finally:
        server.stop()


# ---- stopping


def test_idle_stop(start):
    for number in (signal.SIGTERM, signal.SIGINT):
        server = start()
        server.complete(PROMPT, max_tokens=2)
        kept = server.connect()
        kept.send(server.bytes("GET", "/health"))
        kept.read_reply()
        server.signal(number)
        assert server.wait() == 0
        kept.close()


def test_stop_at_once_after_the_start(model):
    for delay in (0, 0.02, 0.05, 0.1):
        server = Server()
        time.sleep(delay)
        server.stop()


def test_port_is_free_again(start, model):
    """Killed or stopped, the next start gets the same port at once."""
    with socket.socket() as holder:  # not listening: servers may have the port, and nobody is given it by chance
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        first = start("--port", port)  # the later flag wins
        first.complete(PROMPT, max_tokens=1)
        first.kill()
        second = start("--port", port)
        assert first.address[1] == second.address[1] == port
        assert second.complete(PROMPT, max_tokens=5)["choices"][0]["text"] == expected(0, 5)


def drain(server, streams=2, count=1900):
    """Streams under way, long enough to be met by a signal."""
    opened = [
        server.open_stream(PROMPT, max_tokens=count, ignore_eos=True, n=8, temperature=1, seed=i)
        for i in range(streams)
    ]
    iterators = [iter(s) for s in opened]
    firsts = [[next(i)] for i in iterators]
    return opened, iterators, firsts


def ask_while_draining(server, probe):
    """False: it had drained before it could be asked."""

    def closing():
        probe.send(server.bytes("GET", "/readyz"))
        return probe.read_reply().status == 503

    try:
        wait_for("not ready", closing)
        assert server.get("/readyz").status == 503
        reply = server.post(PATH, {"prompt": PROMPT, "max_tokens": 1})
        check_error(reply, 503, type="server_error", code="shutting_down")
        assert reply.header("retry-after") and reply.header("connection") == "close"
    except (ConnectionError, AssertionError) as problem:
        assert isinstance(problem, ConnectionError) or "closed before" in str(problem), problem
        return False
    return True


def test_drain(start):
    """On SIGTERM streams under way are finished, nothing new is begun, /readyz says so, and the exit code is 0."""
    count = 300  # at least three seconds, in which the rest is asked
    want = outcome(start().complete(PROMPT, max_tokens=count, ignore_eos=True, n=8, temperature=1, seed=0))
    for _ in range(5):
        server = start("--drain-timeout", "500", env=SLOW)
        opened, iterators, events = drain(server, count=count)
        probe = server.connect()
        probe.send(server.bytes("GET", "/health"))
        probe.read_reply()
        server.signal()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            rest = [pool.submit(list, i) for i in iterators]
            asked = ask_while_draining(server, probe)
            rest = [r.result() for r in rest]
        assert all(r[-1] == "[DONE]" for r in rest), "a stream was cut"
        assert outcome(Folded(events[0] + rest[0][:-1])) == want
        assert server.wait() == 0
        probe.close()
        if asked:
            return
    pytest.fail("it never takes a question while it drains")


def test_drain_of_a_whole_answer(start):
    """A request without streaming is answered, too, before the end."""
    server = start("--max-num-seqs", "4", "--drain-timeout", "500", env=SLOW)
    with server.connect(timeout=500) as conn:
        conn.send(
            server.bytes("POST", PATH, {"prompt": PROMPT, "max_tokens": 200, "n": 8, "ignore_eos": True})
        )
        wait_for("a request runs", lambda: server.metrics().value("vllm:num_requests_running"))
        server.signal()
        reply = conn.read_reply()
    assert reply.status == 200
    assert reply.json()["usage"]["completion_tokens"] == 8 * 200
    assert server.wait() == 0


def test_drain_timeout(start):
    """A request that is not done in time ends inside the stream with an error, then the connection closes; exit code 0."""
    server = start("--drain-timeout", "0.2", env=SLOW)
    opened, iterators, events = drain(server)
    server.signal()
    ends = []
    for number in range(2):
        rest = list(iterators[number])
        ends.append(rest[-2:])
    code = server.wait()
    assert code == 0, code
    for end in ends:
        assert end[-1] == "[DONE]" and "error" in end[-2], f"ends with {end}"
        error = end[-2]["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == "shutting_down", error


def test_stop_among_difficult_clients(start):
    """Half a head, half a body, a reader that does not read, an idle connection: none can keep a server from stopping."""
    server = start("--drain-timeout", "1")
    conns = [server.connect(rcvbuf=4096) for _ in range(5)]
    conns[0].send(b"GET /health HT")
    conns[1].send(
        server.bytes("POST", PATH, headers={"Content-Length": "1000", "Content-Type": "application/json"})
        + b'{"pro'
    )
    body = {"prompt": PROMPT, "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 20, "n": 4}
    conns[2].send(server.bytes("POST", PATH, body))
    conns[3].send(server.bytes("GET", "/health"))
    conns[3].read_reply()
    time.sleep(0.3)
    server.signal()
    assert server.wait() == 0
    for conn in conns:
        conn.close()


def test_stop_while_bodies_are_parsed(start):
    for delay in (0, 0.002, 0.01):
        server = start("--drain-timeout", "5")
        data = server.bytes("POST", PATH, {"prompt": PROMPT, "max_tokens": 5, "x": "y" * 4_000_000})
        conns = [server.connect() for _ in range(4)]
        for conn in conns:
            conn.send(data)
        time.sleep(delay)
        server.signal()
        for conn in conns:
            reply = conn.read_reply() if conn.buf or conn.fill() else None
            assert reply is None or reply.status in (200, 503), reply
            conn.close()
        assert server.wait() == 0


def test_signal_while_loading(model):
    """At any moment of the start a signal ends it, and not with a crash."""
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.03):
        process = subprocess.Popen([str(BINARY), "serve", str(model), "--port", "0"], stderr=subprocess.PIPE)
        time.sleep(delay)
        process.terminate()
        _, log = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGTERM), (process.returncode, log)
        assert b"Sanitizer" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signal_before_the_port(model, tmp_path, number):
    """A signal while the flags are still read ends the server with 0, too."""
    fifo = tmp_path / "config"
    os.mkfifo(fifo)
    process = subprocess.Popen([str(BINARY), "serve", str(model), "--port", "0", "--config", str(fifo)])
    with open(fifo, "w"):  # the server has opened it, and waits for what it says
        process.send_signal(number)
        assert process.wait(timeout=60) == 0


def test_second_signal(start):
    """A second signal does not wait for anything."""
    server = start("--drain-timeout", "1000", env=faulty(delay_us=200000))  # six minutes of work
    opened, iterators, events = drain(server, streams=4)
    server.signal()
    wait_for("not ready", lambda: server.get("/readyz").status == 503)
    server.signal(signal.SIGINT)
    code = server.wait()
    assert code in (0, 130, 143), code
    server.stopped = True
    for stream in opened:
        stream.conn.close()


def test_kill_and_restart(start):
    """kill -9 in the middle leaves nothing that disturbs the next start."""
    for i in range(3):
        server = start()
        drain(server, streams=1)
        time.sleep(0.02 * i)
        server.kill()


# ---- health


def test_health(server):
    for path in ("/health", "/livez", "/readyz"):
        assert server.get(path).status == 200


def test_version(server):
    reply = server.get("/version")
    assert reply.status == 200 and re.match(r"\d+\.\d+", reply.json()["version"])


# ---- logs


def test_log_line_of_a_request(start):
    """One line a request with its times and how it ended; never what it said."""
    server = start()
    server.secrets.append("canary-7d1f")
    server.post(
        PATH,
        {"prompt": "Say canary-7d1f", "max_tokens": 7, "temperature": 0, "user": "canary-7d1f"},
        headers={"X-Request-Id": "log-test-1"},
    )
    server.post(PATH, {"prompt": "canary-7d1f", "temperature": "canary-7d1f", "canary-7d1f": 1})
    server.post(PATH, b'{"prompt": canary-7d1f')
    server.wait_idle()
    lines = wait_for("a line", lambda: [l for l in server.log().splitlines() if "log-test-1" in l])
    assert len(lines) == 1, server.tail()
    for key in ("ttft_ms=", "tpot_ms=", "cached=", "finish="):
        assert key in lines[0], lines[0]
    assert "finish=length" in lines[0]


def test_log_injection(start):
    """Nothing that a client sends makes a line of its own, or a control character."""
    server = start("--log-level", "debug")
    server.get("/%0Alevel=error%20msg=forged")
    server.get("/a%1b[31mred")
    server.post(PATH, {"prompt": "a", "max_tokens": 1, "model": "x\nlevel=error msg=forged\x1b[31m"})
    server.post(PATH, {"prompt": "a", "max_tokens": 1, "x\nlevel=error msg=forged": 1})
    with server.connect() as conn:
        conn.send(
            f"GET /health HTTP/1.1\r\nHost: {server.host_header}\r\nUser-Agent: a\x1b[31m\r\nConnection: close\r\n\r\n".encode()
        )
        conn.rest()
    log = server.log()
    assert not re.search(r"^(time=\S+ )?level=error msg=forged", log, re.M)
    assert "\x1b" not in log
    assert max(len(l) for l in log.splitlines()) <= 4096


def test_a_log_of_objects(start, tmp_path):
    """--log-format json: every line is an object. --log-file: SIGHUP opens it anew, as log rotation wants."""
    keys, log = tmp_path / "keys", tmp_path / "log"
    keys.write_text("k-alice alice\nk-nobody\n")
    server = start("--log-format", "json", "--api-key-file", keys, env={"JOURNAL_STREAM": "1:1"}, key="k-alice")
    assert server.post(PATH, {"prompt": "a", "max_tokens": 1}).status == 200
    assert server.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status == 401
    wait_for("the lines", lambda: server.log().count("\n") >= 4)
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", l["time"]) and l["level"] == "info" for l in lines)
    [done] = [l for l in lines if l["msg"] == "request"]
    [refused] = [l for l in lines if l["msg"] == "http"]
    assert done["key"] == "alice" and done["output"] == 1 and done["status"] == 200
    assert "key" not in refused and refused["status"] == 401
    server.stop()

    run = subprocess.Popen([BINARY, "serve", "--port", "0", "--log-file", log, "--log-level", "debug"], stderr=subprocess.DEVNULL)
    try:
        wait_for("the address", lambda: log.exists() and "listening on" in log.read_text())
        log.rename(tmp_path / "old")
        run.send_signal(signal.SIGHUP)
        wait_for("a new file", log.exists)
        run.terminate()
        assert run.wait(30) == 0
    finally:
        run.kill()
    assert re.search(r"^time=\S+ level=info signal=15 ", log.read_text(), re.M) and "signal=15" not in (tmp_path / "old").read_text()


def test_lines_have_their_time(tmp_path):
    """But not in the journal, which adds its own."""
    for name, own in (("file", False), ("journal", True), ("another", False)):
        with (tmp_path / name).open("w+") as log:
            stat = os.fstat(log.fileno())
            stream = {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino + (name == 'another')}"} if name != "file" else {}
            env = environment({"QUIRE_" + "TREADS": "1", **stream})
            subprocess.run([BINARY, "tokenize", "--ids", "hi"], stderr=log, stdout=subprocess.DEVNULL, env=env, check=True)
            log.seek(0)
            line = log.read()
        found = re.fullmatch(r"(?:time=(\S+) )?level=warn nothing reads \w+TREADS.*\n", line)
        assert found and (found[1] is None) == own, line
        if not own:
            assert abs(datetime.datetime.fromisoformat(found[1]).timestamp() - time.time()) < 3600


def test_start_says_what_it_serves(start):
    log = start("--num-kv-blocks", "100").log()
    assert "stories260K" in log
    assert re.search(r"\b1600\b|1,600", log), f"100 blocks of 16 are 1,600 tokens of cache:\n{log}"


def test_a_service(start, tmp_path):
    """systemd is told: ready, alive, reloading and ready again, stopping."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        server = start(env=env)
        assert manager.recv(1000) in (b"READY=1", b"EXTEND_TIMEOUT_USEC=30000000\nWATCHDOG=1")
        while manager.recv(1000) != b"WATCHDOG=1":
            pass
        server.signal(signal.SIGHUP)
        heard = []
        while not any(word.startswith(b"RELOADING") for word in heard) or heard[-1] != b"READY=1":
            heard.append(manager.recv(1000))
        [reload] = [word for word in heard if word.startswith(b"RELOADING")]
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", reload)
        server.signal()
        while not (word := manager.recv(1000)).startswith(b"STOPPING=1\nEXTEND_TIMEOUT_USEC="):
            assert word in (b"WATCHDOG=1", b"READY=1"), word
        server.wait()


# ---- recording


def test_record(start, tmp_path):
    """A file of --record can be replayed: the scheduler makes the same plans again."""
    file = tmp_path / "run.rec"
    server = start("--record", file, "--num-kv-blocks", "40", "--max-num-seqs", "4")
    for i in range(4):
        assert server.complete(cases()[i]["prompt"], max_tokens=30)["choices"][0]["text"] == expected(i, 30)
    server.complete([c["prompt"] for c in cases()], n=2, max_tokens=40, temperature=1)
    stream = server.open_stream(PROMPT, max_tokens=400, ignore_eos=True)
    next(iter(stream))
    stream.conn.reset()
    server.wait_idle()
    server.stop()
    assert file.stat().st_size > 0
    assert b"Once upon" not in file.read_bytes()
    result = run("replay", file)
    if result.returncode == 2 and "replay" in result.stderr:
        pytest.skip("there is no replay command")
    assert result.returncode == 0, result
    blob = bytearray(file.read_bytes())
    shutil.copy(file, tmp_path / "cut.rec")
    (tmp_path / "cut.rec").write_bytes(blob[: len(blob) // 2])
    assert run("replay", tmp_path / "cut.rec").returncode in (0, 1)


def test_record_that_cannot_be_written(model):
    result = run("serve", model, "--port", "0", "--record", "/nonexistent/run.rec")
    assert result.returncode in (1, 2) and "/nonexistent/run.rec" in result.stderr, result


# ---- the other commands


@pytest.mark.parametrize("case", range(6))
def test_generate(model, case):
    result = run("generate", model, "-p", cases()[case]["prompt"], "-n", "64")
    assert result.returncode == 0, result
    text = result.stdout
    golden = cases()[case]["greedy_text"]
    assert text.rstrip("\n").endswith(golden), text
    assert text.replace(cases()[case]["prompt"], "", 1).strip("\n") == golden.strip("\n")


def test_generate_json(model):
    result = run("generate", model, "-p", PROMPT, "-n", "20", "--json")
    assert result.returncode == 0, result
    assert expected(0, 20) in json.dumps(json.loads(result.stdout), ensure_ascii=False).encode().decode(
        "unicode_escape"
    )


def test_generate_on_the_reference_device(model):
    """The slow, plain kernels give the same text."""
    result = run("generate", model, "-p", PROMPT, "-n", "64", "--device", "ref")
    assert cases()[0]["greedy_text"] in result.stdout, result


def test_generate_from_nothing(model):
    """BOS alone, as in llama2.c: its published text, byte for byte."""
    text = data("models/golden/stories260K.llama2c-expected.txt").read_text()
    result = run("generate", model, "-p", "", "-n", "199")
    assert result.returncode == 0, result
    got = result.stdout.rstrip("\n")
    assert len(got) > 400
    assert text.startswith(got) or got.startswith(text.rstrip("\n")), got


def test_tokenize(model):
    for case in cases():
        result = run("tokenize", model, "--ids", case["prompt"])
        assert result.returncode == 0, result
        assert [int(i) for i in re.findall(r"-?\d+", result.stdout)] == case["prompt_ids"]
        result = run("tokenize", model, "--ids", "--no-special", case["prompt"])
        assert [int(i) for i in re.findall(r"-?\d+", result.stdout)] == case["prompt_ids"][1:]
    assert run("tokenize", model, PROMPT).returncode == 0


def test_perplexity(model):
    """3.7284 over 373 predictions."""
    result = run("perplexity", model, "--file", data("models/golden/stories260K.ppl-text.txt"))
    assert result.returncode == 0, result
    values = [float(v) for v in re.findall(r"\d+\.\d+", result.stdout)]
    assert any(abs(v - 3.7284) <= 0.0005 for v in values), result.stdout
    assert re.search(r"\b373\b", result.stdout), result.stdout


def test_progress_without_a_terminal(model, tmp_path):
    """A command that takes more than a second reports each tenth, in a plain line; a faster one is silent."""
    (tmp_path / "text.txt").write_text("Once upon a time there was a little girl. " * 40)
    command = ["perplexity", model, "--file", tmp_path / "text.txt"]
    slow = run(*command, "--max-model-len", "4", env=SLOW)
    assert slow.returncode == 0, slow
    percents = re.findall(r"^quire: computing: (\d+) %$", slow.stderr, re.M)
    assert 3 <= len(percents) == slow.stderr.count("\n") <= 10 and percents[-1] == "100", slow.stderr
    assert [int(p) for p in percents] == sorted({int(p) for p in percents}) and "\x1b" not in slow.stderr
    (tmp_path / "text.txt").write_text("Once upon a time there was a little girl.")  # milliseconds, on the busiest machine
    assert run(*command).stderr == ""


def test_perplexity_of_nothing(model, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert run("perplexity", model, "--file", tmp_path / "empty.txt").returncode != 0
    assert run("perplexity", model, "--file", tmp_path / "absent.txt").returncode in (1, 2)
    assert run("perplexity", model).returncode == 2


def test_perplexity_without_room(model, tmp_path):
    """A context of one token has nothing to score."""
    (tmp_path / "text.txt").write_text(PROMPT)
    result = run("perplexity", model, "--max-model-len", "1", "--file", tmp_path / "text.txt")
    assert result.returncode == 2 and "--max-model-len" in result.stderr, result


def test_inspect(model):
    result = run("inspect", model)
    assert result.returncode == 0, result
    for word in ("llama", "blk.4.ffn_down.weight", "512", "F32", "tensor 1, 2, 4, 8; pipeline 1 to 5; 16 ranks"):
        assert word.lower() in result.stdout.lower(), f"{word} is not in:\n{result.stdout}"


def test_closed_output(model):
    """A reader that stops early is no crash."""
    process = subprocess.Popen(
        [str(BINARY), "generate", str(model), "-p", PROMPT, "-n", "1500", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.read(10)
    process.stdout.close()
    process.wait(300)
    assert process.returncode >= 0 or process.returncode == -signal.SIGPIPE, process.returncode
    process.stderr.close()


def test_bind_all_and_connect(start):
    server = start("--host", "0.0.0.0")
    with Conn(("127.0.0.1", server.address[1])) as conn:
        conn.send(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert conn.read_reply().status == 200


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_device_failure(start, device):
    """A device that fails: the running stream ends with an error, who runs without one and who waits get 503, so does
    /health, and the process exits with 70."""
    if device == "cuda" and not EMULATED.exists():
        pytest.skip("no emulated CUDA module in this build")
    if device == "cuda" and WITH_TSAN:
        pytest.skip("the emulator switches stacks, which ThreadSanitizer cannot follow")
    inner = {"module": EMULATED} if device == "cuda" else {}
    env = faulty(step=30, delay_us=100000, **inner)  # three seconds, for all to be there
    server = start("--max-num-seqs", "2", env=env)
    assert f'device="{device}' in server.log()

    def ask(conn, stream):
        conn.send(server.bytes("POST", PATH, {"prompt": PROMPT, "max_tokens": 300, "stream": stream, "ignore_eos": True}))

    def there():
        m = server.metrics()
        return [m.value(f"vllm:num_requests_{kind}") for kind in ("running", "waiting")] == [2, 1]

    with server.connect() as streamed, server.connect() as plain, server.connect() as queued:
        ask(streamed, True)
        rest = streamed.sock.recv(65536)
        ask(plain, False)
        wait_for("one that runs", lambda: server.metrics().value("vllm:num_requests_running") == 2)
        ask(queued, False)
        wait_for("two that run and one that waits", there)
        while b"[DONE]" not in rest:
            got = streamed.sock.recv(65536)
            assert got, "the stream ended without [DONE]"
            rest += got
        replies = [plain.read_reply(), queued.read_reply()]
    assert rest.startswith(b"HTTP/1.1 200") and b'"text":"' in rest
    assert b'"code":"engine_unavailable"' in rest and b'"finish_reason":"' not in rest
    for reply in replies:
        assert reply.status == 503 and reply.json()["error"]["code"] == "engine_unavailable", reply
        assert reply.header("retry-after") == "5", reply
    for reply in server.get("/health"), server.get("/readyz"), server.post(PATH, {"prompt": PROMPT, "max_tokens": 2}):
        assert reply.status == 503 and reply.json()["error"]["code"] == "engine_unavailable", reply
    assert server.wait() == 70
    server.stopped = True
    server.check_log()
    server.discard_log()
