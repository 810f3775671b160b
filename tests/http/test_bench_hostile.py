"""quire-bench where things go wrong: interrupts, full disks, silent and babbling servers, a client that is itself too late;
and what its result files hold."""

import csv
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

import goldens
from wire import wait_for
from test_bench import (  # fixtures among them
    BENCH, DONE, HEAD, SMALL, Fake, bench, chunk, dead, fake, known, measure, patience, probed, pytestmark, token, whole,
)  # fmt: skip  # noqa: F401


def reply(status, body, kind="application/json", more=""):
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(data)}\r\n\r\n"
    return lambda connection, request: connection.sendall(head.encode() + data)


def raw(data, close=True):
    def answer(connection, request):
        connection.sendall(data)
        return not close

    return answer


def babble(connection, request):  # never ends, never says anything
    connection.sendall(HEAD.encode())
    while True:
        connection.sendall(chunk(": ping\n\n"))
        time.sleep(0.02)


def flood(connection, request):  # one event that never ends, as fast as it goes
    connection.sendall(HEAD.encode())
    connection.sendall(chunk("data: "))
    while True:
        connection.sendall(chunk("x" * 65536))


def flood_head(connection, request):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-Y: " + b"z" * 1000 + b"\r\n")


def no_read(connection, request):  # takes the request, then waits for ever
    dead(connection, request)


HTML = "<html>\n<head><title>502 Bad\tGateway</title></head>"


@pytest.mark.parametrize(
    "answer, kind, said",
    [
        (reply("429 Too Many Requests", '{"error":{"message":"slow down"}}', more="Retry-After: 1\r\n"), "status", "slow down"),
        (reply("502 Bad Gateway", HTML, "text/html"), "status", "<html> <head><title>502 Bad Gateway"),
        (reply("503 Busy", "\xff\xfe\x01"), "status", "?"),
        (reply("302 Found", "", more="Location: http://127.0.0.1:1/\r\n"), "status", ""),
        (reply("200 OK", HTML, "text/html"), "json", "not JSON"),
        (reply("200 OK", "[]"), "json", "not JSON"),
        (reply("200 OK", "null"), "json", "not JSON"),
        (reply("200 OK", '{"object":"error","message":"no such model"}'), "json", "no such model"),
        (reply("200 OK", '{"choices":[]}'), "empty", ""),
        (reply("200 OK", '{"choices":[{"text":""}],"usage":{"completion_tokens":0}}'), "empty", ""),
        (reply("200 OK", "data: [DONE]\n\n", "text/event-stream"), "empty", ""),
        (raw(os.urandom(5000)), "protocol", ""),
        (raw(b"HTTP/2 200\r\n\r\n"), "protocol", "status line"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), "protocol", "Content-Length"),
        (raw(HEAD.encode() + token() + chunk('data: {"choices":[{"te')), "closed", "closed"),
        (raw(HEAD.encode() + token() + chunk('data: {"choices":[{"te') + b"0\r\n\r\n"), "unfinished", ""),
        (raw(HEAD.encode() + chunk('data: {"choices":[{"text":3,"delta":[],"finish_reason":7}],"usage":[]}\n\n') + DONE), "empty", ""),
        (babble, "timeout", "--timeout"),
        (no_read, "timeout", "--timeout"),
        (flood, "json", "longer than"),
        (flood_head, "protocol", "without an end"),
    ],
)  # fmt: skip
def test_a_hostile_answer_is_a_counted_error(fake, tmp_path, answer, kind, said):
    server = fake(probed(answer))
    result = measure(
        tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 3, "--max-concurrency", 3, "--timeout", patience(kind),
        "--html", tmp_path / "page.html", "--csv", tmp_path / "rows.csv", code=1,
    )  # fmt: skip
    assert (result["completed"], result["failed"]) == (0, 3)
    assert {e["kind"] for e in result["errors_by_kind"]} == {kind}
    assert said in result["errors_by_kind"][0]["message"]
    assert len(list(csv.DictReader((tmp_path / "rows.csv").open()))) == 3


def test_odd_usage_is_not_believed_blindly(fake, tmp_path):
    usage = '{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":1e300,"prompt_tokens_details":{"cached_tokens":-1}}}'
    server = fake(
        probed(lambda c, r: c.sendall(HEAD.encode() + token() + token(finish="length") + chunk(f"data: {usage}\n\n") + DONE))
    )
    result = measure(tmp_path, *SMALL, "--base-url", server.url, "--num-prompts", 2, "--html", tmp_path / "p.html")
    assert result["completed"] == 2 and result["total_input_tokens"] == 0 == result["total_cached_tokens"]
    assert result["total_output_tokens"] == 0 and result["output_chunks"] == 4


def test_no_such_host():
    done = bench("http://no-such-host.invalid:8000", "--num-prompts", 1)
    assert done.returncode == 1
    assert done.stderr.startswith("quire-bench: no-such-host.invalid: ") and done.stderr.count("\n") == 1


def test_the_url_may_stand_alone(fake, tmp_path):
    server = fake(probed(whole))
    result = measure(tmp_path, server.url + "/v1", *SMALL, "--num-prompts", 2, "--goodput", "ttft:60000", "e2el:60000")
    assert result["completed"] == 2 == result["good_requests"]
    assert all(head.startswith("POST /v1/completions ") for head, _ in server.requests)
    for flags in ([server.url, server.url], [server.url, "--port", "1"], [server.url, "--base-url", server.url]):
        done = bench(*flags, "--num-prompts", 1, "--model", "m", "--prompt-form", "words")
        assert done.returncode == (2 if flags[1] != "--base-url" else 0)


def test_a_host_header_replaces_ours(fake, tmp_path):
    server = fake(probed(whole))
    measure(tmp_path, server.url, *SMALL, "--num-prompts", 1, "--header", "host: api.example.org")
    for head, _ in server.requests:
        assert re.findall(r"(?im)^host: *(.*?)\r?$", head) == ["api.example.org"]


def test_a_closed_loop_does_not_hammer_a_server_that_is_gone(fake, tmp_path):
    server = fake(None)

    def answer(connection, request):
        if len(server.requests) > 4:  # two questions, two good answers
            server.close()
            return False
        return whole(connection, request)

    server.answer = probed(answer)
    result = measure(tmp_path, *SMALL, server.url, "--duration", 4, "--max-concurrency", 2)
    assert result["completed"] == 2
    assert 0 < result["failed"] <= 2 * 4 * 10 + 2  # 10 a second and slot, not thousands


def interrupted(server, *flags, after, times=1):
    process = subprocess.Popen(
        [str(BENCH), server.url, *map(str, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while len(server.requests) < after:
        time.sleep(0.01)
        assert process.poll() is None
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    return out, err


def test_an_interrupt_writes_what_there_is(fake, tmp_path):
    def answer(connection, request):
        if len(server.requests) <= 6:
            return whole(connection, request)
        return no_read(connection, request)

    server = fake(None)
    server.answer = probed(answer)
    paths = {k: tmp_path / f"r.{k}" for k in ("json", "csv", "html")}
    out, _ = interrupted(
        server, *SMALL, "--max-concurrency", 1, "--num-prompts", 9, *[x for k, p in paths.items() for x in (f"--{k}", p)], after=7
    )
    result = json.loads(paths["json"].read_text())
    assert (result["completed"], result["failed"], result["interrupted"]) == (4, 0, 1)
    assert "interrupted; 1 requests were on their way" in out
    rows = list(csv.DictReader(paths["csv"].open()))
    assert [r["error"] for r in rows] == [""] * 4 + ["interrupted"]
    assert paths["html"].read_text().rstrip().endswith("</html>")


def test_an_interrupt_while_the_server_is_asked(fake):
    server = fake(no_read)
    _, err = interrupted(server, after=1)
    assert "interrupted" in err and err.count("\n") == 1
    interrupted(fake(no_read), after=1, times=2)


def test_an_interrupt_of_a_search(fake, tmp_path):
    server = fake(probed(whole))
    out, _ = interrupted(
        server, *SMALL, "--search", "--search-min", 20, "--goodput", "ttft:60000", "--duration", 2, "--json", tmp_path / "s.json",
        after=50,
    )  # fmt: skip
    assert "highest rate" in out and "search" in json.loads((tmp_path / "s.json").read_text())


@pytest.mark.parametrize("flag", ["--json", "--csv", "--html", "stdout"])
def test_a_full_disk_is_said(fake, flag):
    server = fake(probed(whole))
    with open("/dev/full" if flag == "stdout" else os.devnull, "w") as out:
        done = subprocess.run(
            [str(BENCH), server.url, *SMALL, "--num-prompts", "3", *([] if flag == "stdout" else [flag, "/dev/full"])],
            stdout=out, stderr=subprocess.PIPE, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 1 and "No space left" in done.stderr and done.stderr.count("\n") == 1


def test_too_few_descriptors_are_counted(fake, tmp_path):
    server = fake(probed(whole))
    out = tmp_path / "r.json"
    flags = [str(BENCH), server.url, *SMALL, "--num-prompts", "40", "--max-concurrency", "40", "--json", str(out), "--quiet"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *flags], capture_output=True, text=True, timeout=300
    )
    result = json.loads(out.read_text())
    assert result["completed"] + result["failed"] == 40 and result["completed"] > 0 and done.returncode == 0
    assert {e["kind"] for e in result["errors_by_kind"]} <= {"connect"} and result["failed"] > 0
    assert "Too many open files" in result["errors_by_kind"][0]["message"]


# ---- the client's own lag ----


def test_a_client_that_is_late_says_so(known, tmp_path):
    """It is stopped for half a second of its three: what it did not send and read then is not the server's fault."""
    out = tmp_path / "r.json"
    for _ in range(5):
        url, log, _ = known("--ttft", 5, "--itl", 1, "--tokens", 4)
        process = subprocess.Popen(
            [str(BENCH), url, *SMALL, "--request-rate", "100", "--arrivals", "constant", "--duration", "3", "--json", str(out),
             "--html", str(tmp_path / "p.html")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for("answers", lambda: len(log.read_text().splitlines()) > 20 or process.poll() is not None)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        answers = len(log.read_text().splitlines())
        process.send_signal(signal.SIGCONT)
        text, _ = process.communicate(timeout=60)
        if answers < 200:  # else it was stopped too late, and had nothing more to send
            break
    result = json.loads(out.read_text())
    assert result["completed"] == 300
    assert result["client_saturated"] is True and "WARNING: the client itself was late" in text
    assert result["max_client_send_lag_ms"] > 400 and result["p90_client_send_lag_ms"] > 50
    # Latencies from the intended time hold the lag, those from the sending do not hide it elsewhere.
    assert result["max_ttft_ms"] > 400
    assert "the client itself was late" in (tmp_path / "p.html").read_text()


# ---- search ----


def test_the_search_finds_a_known_capacity(known, tmp_path):
    """Four slots of 10 + 9 * 10 = 100 ms: 40 requests a second, whatever arrives beyond them waits longer and longer."""
    url, _, _ = known("--ttft", 10, "--itl", 10, "--jitter", 0, "--slots", 4)
    out, page, rows = (tmp_path / n for n in ("s.json", "s.html", "s.csv"))
    done = bench(
        url, *SMALL[:-1], 10, "--search", "--search-min", 20, "--search-max", 320, "--search-tolerance", 0.3,
        "--arrivals", "constant", "--goodput", "ttft:3500", "--duration", 4, "--json", out, "--html", page, "--csv", rows,
        "--quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    steps = {s["request_rate"]: s["meets"] for s in result["search"]}
    first_miss = list(steps.values()).index(False)
    assert list(steps)[: first_miss + 1] == [20, 40, 80][: first_miss + 1]
    # Above 40/s the queue grows by (r - 40) requests a second: 4 s at 75/s end with a wait of 3.5 s, at 80/s of 4 s. No
    # machine is too fast for that; a slow one finds less.
    assert 20 <= result["max_rate_under_slo"] <= 75 and not steps.get(80)
    assert result["max_rate_under_slo"] == max(rate for rate, met in steps.items() if met)
    assert result["request_rate"] == result["max_rate_under_slo"]
    assert len(list(csv.DictReader(rows.open()))) == result["num_prompts"] == round(4 * result["request_rate"])
    assert "highest rate that meets the goals" in page.read_text() and f"{result['max_rate_under_slo']:g}/s" in done.stdout


# ---- files ----

NUMBER = (int, float)
LATENCIES = [
    f"{p}_{m}_ms"
    for m in ("ttft", "ttft_from_send", "tpot", "itl", "e2el", "e2el_from_send", "client_queue", "client_send_lag")
    for p in ("mean", "median", "std", "min", "max", "p50", "p90", "p95", "p99", "p99.9")
]
KEYS = {
    "date": str, "client": str, "endpoint_type": str, "endpoint": str, "model_id": str, "dataset_name": str,
    "prompt_form": str, "streaming": bool, "num_prompts": int, "request_rate": NUMBER, "arrivals": str, "burstiness": NUMBER,
    "max_concurrency": int, "seed": int, "started_monotonic_ns": int, "duration": NUMBER, "completed": int, "failed": int,
    "interrupted": int, "errors_by_kind": list, "total_input_tokens": int, "total_output_tokens": int,
    "tokens_counted_by": str, "output_chunks": int, "request_throughput": NUMBER, "output_throughput": NUMBER,
    "total_token_throughput": NUMBER, "max_output_tokens_per_s": NUMBER, "max_concurrent_requests": int, "goodput": dict,
    "request_goodput": NUMBER, "good_requests": int, "client_cpu_share": NUMBER, "client_saturated": bool, "connections": int,
    "retries": int, "percentile_curves": dict, "window_s": NUMBER, "over_time": list,
    **dict.fromkeys(LATENCIES, NUMBER),
}  # fmt: skip
COLUMNS = (
    "index conversation turn intended_s sent_s ttft_ms ttft_from_send_ms tpot_ms e2el_ms e2el_from_send_ms client_queue_ms "
    "client_send_lag_ms max_itl_ms input_tokens output_tokens cached_tokens chunks new_connection good status error message"
).split()
# The keys among them that a script for vllm bench serve reads (benchmarks of vLLM 0.9 to 0.11).
VLLM = (
    "date endpoint_type model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration completed "
    "total_input_tokens total_output_tokens request_throughput request_goodput output_throughput total_token_throughput"
).split() + [f"{p}_{m}_ms" for p in ("mean", "median", "std", "p99") for m in ("ttft", "tpot", "itl", "e2el")]


def test_keys_and_columns(fake, tmp_path):
    def answer(connection, request):  # every third is refused
        if next(count) % 3 == 0:
            return reply("503 Busy", '{"error":{"message":"a \\"quoted\\", comma"}}')(connection, request)
        return whole(connection, request)

    count = itertools.count(1)  # next() is whole, whichever thread asks
    server = fake(probed(answer))
    rows_path = tmp_path / "r.csv"
    result = measure(
        tmp_path, server.url, *SMALL, "--num-prompts", 30, "--request-rate", 200, "--max-concurrency", 8, "--goodput", "ttft:60000",
        "--csv", rows_path,
    )  # fmt: skip
    for key, kind in KEYS.items():
        assert isinstance(result[key], kind), (key, result[key])
    assert set(VLLM) <= set(result)
    assert {len(c) for c in result["percentile_curves"].values()} == {201}
    rows = list(csv.DictReader(rows_path.open()))
    assert list(rows[0]) == COLUMNS and [int(r["index"]) for r in rows] == list(range(30))
    good = [r for r in rows if not r["error"]]
    bad = [r for r in rows if r["error"]]
    assert len(good) == result["completed"] == 20 and len(bad) == result["failed"] == 10
    assert all(r["status"] == "503" and r["error"] == "status" and r["message"] == 'a "quoted", comma' for r in bad)
    assert all(r["ttft_ms"] == "" == r["e2el_ms"] and r["good"] == "0" for r in bad)
    # The rows give the summary again.
    for metric in ("ttft", "ttft_from_send", "e2el", "e2el_from_send"):
        values = [float(r[f"{metric}_ms"]) for r in good]
        assert sum(values) / len(values) == pytest.approx(result[f"mean_{metric}_ms"], abs=2e-3)
        assert max(values) == pytest.approx(result[f"max_{metric}_ms"], abs=2e-3)
    assert sum(int(r["output_tokens"]) for r in good) == result["total_output_tokens"] == 60
    assert sum(r["good"] == "1" for r in rows) == result["good_requests"] == 20


def test_flags_are_as_documented():
    """The help has a sentence for every flag, and every flag that a document names exists."""
    flags = re.findall(r"^  --([a-z-]+) (.*)$", bench("--help").stdout, re.M)
    assert len(flags) > 50 and all(len(told.split()) > 1 for _, told in flags), flags
    known, named = {name for name, _ in flags}, set()
    for path in ("bench/README.md", "docs/benchmarking.md"):
        text = (goldens.ROOT / path).read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line.strip().startswith("quire-bench ")]
        named |= set(re.findall(r" --([a-z-]+)", " ".join(lines)))
        if "bench/README" in path:
            named |= set(re.findall(r"`--([a-z-]+)", text))
    assert len(named) > 25 and named <= known, named - known


def test_no_port_to_listen_on(tmp_path):
    """A host that swallows packets: the time-out of connections ends it."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        port = s.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]  # the backlog is full: further SYNs are dropped
        for f in fillers:
            f.setblocking(False)
            f.connect_ex(("127.0.0.1", port))
        result = measure(
            tmp_path, f"http://127.0.0.1:{port}", "--model", "m", "--prompt-form", "words", "--dataset-name", "text", "--dataset-path",
            __file__, "--num-prompts", 2, "--connect-timeout", 0.5, "--timeout", 3, code=1,
        )  # fmt: skip
        for f in fillers:
            f.close()
    assert {e["kind"] for e in result["errors_by_kind"]} == {"timeout"} and result["failed"] == 2
