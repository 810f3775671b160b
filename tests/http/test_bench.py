"""quire-bench: against servers that misbehave in one way each, against one whose latencies are known, and against quire."""

import json
import os
import pty
import re
import socket
import subprocess
import threading
import time

import pytest

from process import BINARY, SANITIZER

import true_latencies  # of tests/tools, which goldens.py names

BENCH = BINARY.parent / "quire-bench"
FAKE = BINARY.parent / "tests" / "fake_openai"

pytestmark = pytest.mark.skipif(not BENCH.exists(), reason="quire-bench is not built")


def bench(*flags, timeout=300, env=None):
    clean = {k: v for k, v in os.environ.items() if k != "OPENAI_API_KEY"} | (env or {})
    done = subprocess.run(
        [str(BENCH), *map(str, flags)], capture_output=True, text=True, timeout=timeout, env=clean
    )
    assert not SANITIZER.search(done.stderr), done.stderr
    return done


def measure(tmp_path, *flags, code=0, **options):
    """Runs the client, expects the exit code, and gives the JSON result."""
    out = tmp_path / "result.json"
    done = bench(*flags, "--json", out, "--quiet", **options)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(out.read_text())


HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text):
    data = text.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(text="w", finish=None):
    return chunk("data: " + json.dumps({"choices": [{"text": text, "finish_reason": finish}]}) + "\n\n")


DONE = chunk("data: [DONE]\n\n") + b"0\r\n\r\n"


class Fake:
    """Answers each connection's requests with `answer(connection, request)`; whoever needs one thread each."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.closing = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.closing.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        with connection:
            try:
                while not self.closing.is_set():
                    while b"\r\n\r\n" not in data:
                        more = connection.recv(65536)
                        if not more:
                            return
                        data += more
                    head, data = data.split(b"\r\n\r\n", 1)
                    length = re.search(rb"Content-Length: (\d+)", head)
                    while len(data) < int(length[1] if length else 0):
                        data += connection.recv(65536)
                    body, data = data[: int(length[1])] if length else b"", data[int(length[1]) if length else 0 :]
                    self.requests.append((head.decode(), json.loads(body) if body else None))
                    if self.answer(connection, self.requests[-1][1]) is False:
                        return
            except OSError:
                return

    def close(self):
        if self.closing.is_set():
            return
        self.closing.set()
        self.listener.shutdown(socket.SHUT_RDWR)  # a thread that waits in accept() does not notice close()
        self.listener.close()


@pytest.fixture
def fake():
    servers = []

    def start(answer):
        servers.append(Fake(answer))
        return servers[-1]

    yield start
    for one in servers:
        one.close()



def patience(kind):
    """Seconds: soon over where that is what the test is about, and never where something else must come first."""
    return 4 if kind == "timeout" else 60


SMALL = ["--model", "m", "--prompt-form", "words", "--random-input-len", "8", "--random-output-len", "3"]


def probed(answer):
    """The answer for streams; the client's own questions, which are not streamed, get a plain one."""

    def both(connection, request):
        if request and not request.get("stream"):
            body = b'{"choices":[{"text":"w","finish_reason":"length"}]}'
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return True
        return answer(connection, request)

    return both


def whole(connection, request):
    connection.sendall(HEAD.encode() + token() + token() + token(finish="length") + DONE)


def dead(connection, request):
    while connection.recv(1000):  # until the client leaves
        pass
    return False


def slow(connection, request):
    connection.sendall(HEAD.encode())
    while True:
        connection.sendall(token())
        time.sleep(0.1)


def cut(connection, request):
    connection.sendall(HEAD.encode() + token() + token())
    return False


def cut_in_chunk(connection, request):
    connection.sendall(HEAD.encode() + token()[:-5])
    return False


def silent_close(connection, request):
    return False


def error_event(connection, request):
    connection.sendall(
        HEAD.encode() + token() + chunk('data: {"error":{"message":"out of memory"}}\n\n') + DONE
    )


def named_error_event(connection, request):
    connection.sendall(HEAD.encode() + token() + chunk('event: error\ndata: {"choices":[]}\n\n') + DONE)


def unfinished(connection, request):
    connection.sendall(HEAD.encode() + token() + b"0\r\n\r\n")


def no_json(connection, request):
    connection.sendall(HEAD.encode() + token() + chunk("data: {oops\n\n") + DONE)


def no_tokens(connection, request):
    connection.sendall(HEAD.encode() + token("", "stop") + DONE)


def busy(connection, request):
    body = b'{"error":{"message":"queue full"}}'
    connection.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def not_http(connection, request):
    connection.sendall(b"220 smtp.example.org ESMTP\r\n")
    return False


def bad_chunk(connection, request):
    connection.sendall(HEAD.encode() + b"zz\r\n")
    return False


@pytest.mark.parametrize(
    "answer, kind, said",
    [
        (dead, "timeout", "--timeout"),
        (slow, "timeout", "--timeout"),
        (cut, "closed", "closed the connection"),
        (cut_in_chunk, "closed", "closed the connection"),
        (silent_close, "closed", "closed the connection"),
        (error_event, "stream", "out of memory"),
        (named_error_event, "stream", "error event"),
        (unfinished, "unfinished", ""),
        (no_json, "json", "not JSON"),
        (no_tokens, "empty", ""),
        (busy, "status", "queue full"),
        (not_http, "protocol", "status line"),
        (bad_chunk, "protocol", "chunk size"),
    ],
)
def test_a_bad_answer_is_a_counted_error(fake, tmp_path, answer, kind, said):
    server = fake(probed(answer))
    result = measure(
        tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 3, "--max-concurrency", 3, "--timeout", patience(kind), code=1
    )
    assert (result["completed"], result["failed"]) == (0, 3)
    assert [(e["kind"], e["count"]) for e in result["errors_by_kind"]] == [(kind, 3)]
    assert said in result["errors_by_kind"][0]["message"]
    if kind == "status":
        assert result["errors_by_kind"][0]["status"] == 503


def test_no_server(tmp_path):
    with socket.socket() as held:  # bound, so that nobody else listens there meanwhile
        held.bind(("127.0.0.1", 0))
        done = bench("--port", held.getsockname()[1])
    assert done.returncode == 1 and "refused" in done.stderr and done.stderr.count("\n") == 1


def test_a_server_that_dies_half_way(fake, tmp_path):
    server = fake(None)
    count = [0]

    def answer(connection, request):
        count[0] += 1
        if count[0] > 5:
            server.close()
            return False
        return whole(connection, request)

    server.answer = probed(answer)
    result = measure(tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 12, "--max-concurrency", 1)
    kinds = {e["kind"] for e in result["errors_by_kind"]}
    assert result["completed"] == 5 and result["failed"] == 7 and kinds <= {"closed", "connect"}


def test_a_kept_connection_that_was_closed_is_no_error(fake, tmp_path):
    served = {}

    def answer(connection, request):
        # Closes without an answer to the second request of each connection, as a server does whose idle time is over.
        served[connection] = served.get(connection, 0) + 1
        return whole(connection, request) if served[connection] == 1 else False

    server = fake(probed(answer))
    result = measure(tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 6, "--max-concurrency", 1)
    assert (result["completed"], result["failed"]) == (6, 0)
    assert result["retries"] > 0


@pytest.mark.parametrize("status, goes_on", [(400, False), (404, False), (500, True), (503, True)])
def test_ids_are_refused_by_4xx_not_by_5xx(fake, tmp_path, status, goes_on):
    def answer(connection, request):
        if request["stream"]:
            return whole(connection, request)
        body = b'{"error":{"message":"because"}}'
        connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    server = fake(answer)
    flags = ["--model", "m", "--base-url", server.url, "--vocab-size", 400, "--num-prompts", 2, "--random-input-len", 8]
    if goes_on:
        result = measure(tmp_path, *flags, "--prompt-form", "ids")
        assert result["completed"] == 2 and "as configured" in result["prompt_form"] and f"{status} because" in result["prompt_form"]
        assert all(len(r["prompt"]) == 8 and all(100 <= t < 300 for t in r["prompt"]) for _, r in server.requests[1:])
    else:
        done = bench(*flags, "--prompt-form", "ids")
        assert done.returncode == 1 and f"takes no token ids as a prompt: HTTP {status} because" in done.stderr
    # where nobody says what the form is, a failure is no reason to believe in ids: words are asked, too
    done = bench(*flags)
    assert done.returncode == 1 and f"HTTP {status} because" in done.stderr and isinstance(server.requests[-1][1]["prompt"], str)


def test_counts_by_chunks_where_the_server_does_not_count(fake, tmp_path):
    server = fake(probed(whole))
    csv = tmp_path / "rows.csv"
    html = tmp_path / "page.html"
    result = measure(
        tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 20, "--request-rate", 200, "--csv", csv, "--html", html
    )
    assert result["tokens_counted_by"] == "chunks" and result["total_output_tokens"] == 60
    rows = csv.read_text().splitlines()
    assert len(rows) == 21 and all(r.count(",") >= rows[0].count(",") for r in rows)
    page = html.read_text()
    assert page.startswith("<!doctype html>") and "<svg" in page and "nan" not in page.lower().replace("canan", "")
    assert "http://" not in page and "https://" not in page and "<script" not in page


def test_the_wait_for_a_slot_counts_from_the_intended_time(fake, tmp_path):
    def answer(connection, request):
        connection.sendall(HEAD.encode())
        time.sleep(0.05)
        connection.sendall(token(finish="length") + DONE)

    server = fake(probed(answer))
    result = measure(
        tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 20, "--request-rate", 1000, "--max-concurrency", 1
    )
    assert result["max_concurrent_requests"] == 1
    # 20 requests meant at once, 50 ms each, one at a time: the last waits for 19 others, and from the sending none does
    assert result["max_ttft_ms"] > 19 * 50 and result["max_client_queue_ms"] > 900
    assert 20 * result["mean_ttft_from_send_ms"] <= 1000 * result["duration"]


def test_conversations_carry_the_answers(fake, tmp_path):
    server = fake(probed(whole))
    chat = tmp_path / "mt.jsonl"
    chat.write_text('{"turns": ["first?", "second?", "third?"]}\n')
    result = measure(
        tmp_path, "--model", "m", "--base-url", server.url, "--dataset-name", "mtbench", "--dataset-path", chat,
        "--multi-turn", "--num-prompts", 1, "--endpoint", "/v1/chat/completions", "--api-key", "sesame",
        "--header", "X-Team: a", "--ignore-eos", "--extra-body", '{"top_k": 3}',
    )  # fmt: skip
    assert result["completed"] == 3
    head, last = server.requests[-1]
    assert [m["content"] for m in last["messages"]] == ["first?", "www", "second?", "www", "third?"]
    assert last["ignore_eos"] is True and last["top_k"] == 3 and last["stream_options"] == {"include_usage": True}
    assert "Authorization: Bearer sesame" in head and "X-Team: a" in head
    assert server.connections == 1


def test_the_key_of_the_environment(fake, tmp_path):
    server = fake(probed(whole))
    measure(tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 1, env={"OPENAI_API_KEY": "k-env"})
    assert all("Authorization: Bearer k-env" in head for head, _ in server.requests)


@pytest.mark.parametrize(
    "flags",
    [
        ["--nonsense"],
        ["word"],
        ["--num-prompts", "0"],
        ["--num-prompts", "1.5"],
        ["--num-prompts"],
        ["--request-rate", "fast"],
        ["--goodput", "ttft"],
        ["--goodput", "speed:3"],
        ["--search"],
        ["--base-url", "https://example.org"],
        ["--base-url", "ftp://example.org"],
        ["--base-url", "http://u:p@example.org"],
        ["--base-url", "http://a", "--port", "3"],
        ["--dataset-name", "nothing"],
        ["--dataset-name", "azure"],
        ["--dataset-name", "azure", "--dataset-path", "/nonexistent"],
        ["--burstiness", "0.5", "--arrivals", "poisson", "--request-rate", "1"],
        ["--arrivals", "trace"],
        ["--arrivals", "constant"],
        ["--extra-body", "[]"],
        ["--json", "/nonexistent/x.json"],
        ["--prompt-form", "ids", "--endpoint", "/v1/chat/completions"],
        ["--quiet=yes"],
        ["compare"],
        ["compare", "/nonexistent", "--html", "/tmp/x"],
    ],
)
def test_bad_flags_are_one_line_and_2(flags):
    done = bench(*flags)
    assert done.returncode == 2
    assert done.stderr.startswith("quire-bench: ") and done.stderr.count("\n") == 1 and not done.stdout


def test_interrupt_reports_what_there_is(fake, tmp_path):
    server = fake(probed(slow))
    process = subprocess.Popen(
        [str(BENCH), *SMALL, "--base-url", server.url, "--max-concurrency", "2", "--num-prompts", "9"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while len(server.requests) < 4:  # two questions, two streams
        time.sleep(0.01)
        assert process.poll() is None
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted; 2 requests were on their way" in out


def test_a_bar_on_a_terminal(server):
    """Half of the run's time is half of the bar; it is gone at the end."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [str(BENCH), *SMALL[2:], "--base-url", f"http://{server.host_header}", "--max-concurrency", "2", "--num-prompts", "100000",
         "--duration", "2.2", "--ignore-eos"], stdout=subprocess.DEVNULL, stderr=theirs, timeout=120,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while chunk := os.read(ours, 65536):
        shown += chunk
        if shown.endswith(b"\r\x1b[K"):
            break
    os.close(ours)
    assert done.returncode == 0, shown
    bars = re.findall(rb"\r\x1b\[K\[(#*) *\] +(\d+) %", shown)
    parts = [int(part) for _, part in bars]
    assert len(bars) >= 3 and parts == sorted(parts) and parts[-1] > 80, shown
    assert all(len(bar) == int(part) // 5 for bar, part in bars), shown


# ---- against quire ----


def test_quire_by_ids(server, tmp_path):
    html = tmp_path / "compare.html"
    result = measure(
        tmp_path, "--base-url", f"http://{server.host_header}", "--num-prompts", 20, "--random-input-len", 24, "--random-prefix-len", 16,
        "--random-output-len", 8, "--ignore-eos", "--request-rate", 100, "--num-warmups", 2, "--goodput", "ttft:60000", "tpot:60000",
        "--label", "a & b",
    )  # fmt: skip
    assert result["completed"] == 20 and result["failed"] == 0
    assert result["total_input_tokens"] == 20 * 40 and result["total_output_tokens"] == 20 * 8
    assert result["prompt_form"].startswith("token ids") and result["tokens_counted_by"] == "usage"
    assert result["good_requests"] == 20
    assert result["ideal_prefix_hit_rate"] == pytest.approx(19 * 16 / (20 * 40))
    assert 0 < result["prefix_hit_rate"] <= result["ideal_prefix_hit_rate"]
    assert result["mean_itl_ms"] >= 0 and result["median_tpot_ms"] >= 0  # 0: all tokens came in one read
    for key in (
        "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "median_e2el_ms", "request_throughput", "request_goodput", "output_throughput", "total_token_throughput", "duration",
    ):  # fmt: skip
        assert result[key] > 0, key
    out = tmp_path / "result.json"
    assert bench("compare", out, out, "--html", html).returncode == 0
    assert "a &amp; b" in html.read_text()


def test_quire_by_words_and_whole_answers(server, tmp_path):
    result = measure(
        tmp_path, "--base-url", f"http://{server.host_header}", "--num-prompts", 10, "--random-input-len", 60, "--random-output-len", 5,
        "--ignore-eos", "--max-concurrency", 4, "--prompt-form", "words", "--disable-stream",
    )  # fmt: skip
    assert result["completed"] == 10 and result["median_ttft_ms"] is None
    assert result["total_output_tokens"] == 50
    assert abs(result["total_input_tokens"] / 10 - 60) < 12  # words are approximate


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_default_lengths_fit_the_context(start, tmp_path, endpoint):
    """The first line that a newcomer tries has no failed request, whatever the model's context; who asks for more gets it."""
    server = start("--max-model-len", "256", model="")
    flags = ("--base-url", f"http://{server.host_header}", "--num-prompts", 4, "--endpoint", endpoint)
    result = measure(tmp_path, *flags)
    assert result["completed"] == 4 and result["failed"] == 0
    assert "112 tokens, so that they fit the server's context of 256" in result["prompt_form"]
    if endpoint == "/v1/completions":
        assert result["total_input_tokens"] == 4 * 112
    result = measure(tmp_path, *flags, "--random-input-len", 1000, code=1)
    assert result["failed"] == 4 and "context" not in result["prompt_form"]


def test_quire_mooncake_shares_prefixes(server, tmp_path):
    trace = tmp_path / "t.jsonl"
    lines = [
        {"timestamp": 40 * i, "input_length": 1100 + i, "output_length": 4, "hash_ids": [7, 8, 100 + i]} for i in range(12)
    ]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = measure(
        tmp_path, "--base-url", f"http://{server.host_header}", "--dataset-name", "mooncake", "--dataset-path", trace, "--ignore-eos",
        "--input-scale", 0.0625, "--seed", 77, "--max-concurrency", 1,
    )  # fmt: skip
    assert result["completed"] == 12
    # 64 of 69 tokens are shared from the second request on: four whole blocks of 16
    assert result["ideal_prefix_hit_rate"] == pytest.approx(11 * 64 / result["total_input_tokens"])
    assert result["prefix_hit_rate"] == pytest.approx(result["ideal_prefix_hit_rate"])


# ---- against a server whose latencies are known ----


@pytest.fixture
def known(tmp_path):
    if not FAKE.exists():
        pytest.skip("fake_openai is not built")
    processes = []

    def start(*flags):
        log = tmp_path / "truth.log"
        process = subprocess.Popen(
            [str(FAKE), "--log", str(log), *map(str, flags)], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        return process.stdout.readline().split()[-1], log, process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_nothing_is_lost_against_a_known_server(known, tmp_path):
    url, log, process = known("--ttft", 5, "--itl", 1)
    result = measure(
        tmp_path, "--base-url", url, *SMALL[2:], "--num-prompts", 60, "--request-rate", 200, "--random-output-len", 12
    )
    process.terminate()
    assert process.wait() == 0
    truth = true_latencies.read_log(log)
    assert result["completed"] == 60 == len(truth["ttft_from_send"])
    assert result["output_chunks"] == 60 * 12 == result["total_output_tokens"]
    # The client cannot have seen a token earlier than the server sent it.
    assert result["min_ttft_from_send_ms"] >= min(truth["ttft_from_send"])
    assert result["mean_e2el_from_send_ms"] >= sum(truth["e2el_from_send"]) / 60


@pytest.mark.slow
def test_percentiles_are_those_of_a_known_server(known, tmp_path):
    """On a machine that does other work the kernel wakes the client late: the best of five runs counts."""
    worst = None
    for _ in range(5):
        url, log, process = known("--ttft", 20, "--itl", 5, "--jitter", 0.5)
        result = measure(
            tmp_path, "--base-url", url, *SMALL[2:], "--request-rate", 100, "--duration", 8, "--random-output-len", 32
        )
        process.terminate()
        process.wait()
        worst = [row for row in true_latencies.compare(log, result) if true_latencies.off(row[2], row[3])]
        if not worst:
            return
    pytest.fail(f"off by more than 1 % and 0.5 ms: {worst}")


@pytest.mark.slow
def test_a_stall_is_seen_in_full_in_the_open_loop(known, tmp_path):
    url, _, _ = known("--ttft", 10, "--itl", 2, "--jitter", 0.2, "--stall-at", 3, "--stall", 2000)
    open_loop = measure(
        tmp_path, "--base-url", url, *SMALL[2:], "--request-rate", 100, "--arrivals", "constant", "--duration", 8,
        "--random-output-len", 4, "--max-concurrency", 50,
    )  # fmt: skip
    # 200 of 800 requests were due in the stall; they waited from 0 to 2,000 ms: the 90th percentile of all lies in it.
    assert open_loop["max_ttft_ms"] > 1950
    assert open_loop["p90_ttft_ms"] > 1000
    # From the sending, only those look slow that were on the wire.
    url, _, _ = known("--ttft", 10, "--itl", 2, "--jitter", 0.2, "--stall-at", 3, "--stall", 2000)
    closed = measure(
        tmp_path, "--base-url", url, *SMALL[2:], "--max-concurrency", 4, "--duration", 8, "--random-output-len", 4
    )
    assert closed["p90_ttft_ms"] < 200  # which is what a closed loop makes of the same stall


@pytest.mark.slow
def test_two_thousand_streams(known, tmp_path):
    url, _, _ = known("--ttft", 500, "--itl", 100, "--jitter", 0.5)
    result = measure(
        tmp_path, "--base-url", url, *SMALL[2:], "--request-rate", 200, "--duration", 20, "--random-output-len", 100,
        timeout=300,
    )  # fmt: skip
    assert result["failed"] == 0 and result["max_concurrent_requests"] >= 1900
    assert result["client_cpu_share"] < 0.9
