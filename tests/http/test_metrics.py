"""/metrics: well-formed, with the names, labels and buckets that vLLM's dashboards use, and true."""

import re

import pytest

from goldens import BOS, cases
from process import BINARY, SLOW
from wire import check_error, wait_for

PROMPT = "Once upon a time"
PATH = "/v1/completions"

GAUGES = ["lora_requests_info", "num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason", "kv_cache_usage_perc"]
COUNTERS = [
    "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
    "generation_tokens_total", "request_success_total", "prompt_tokens_by_source_total", "prompt_tokens_cached_total",
    "corrupted_requests_total", "admission_rejections_total", "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens_per_pos_total",
]  # fmt: skip
HISTOGRAMS = [
    "iteration_tokens_total", "time_to_first_token_seconds", "inter_token_latency_seconds",
    "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
    "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
    "request_prompt_tokens", "request_generation_tokens", "time_per_output_token_seconds", "request_params_n",
    "request_params_max_tokens", "request_max_num_generation_tokens", "request_prefill_kv_computed_tokens",
]  # fmt: skip
FIRST_TOKEN = [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]  # fmt: skip
REQUEST = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]  # fmt: skip


def test_format(server):
    reply = server.get("/metrics")
    kind = reply.header("content-type")
    assert re.fullmatch(r"text/plain; version=0\.0\.4(; charset=utf-8)?", kind), kind
    server.metrics()


@pytest.mark.parametrize("kind, names", [("gauge", GAUGES), ("counter", COUNTERS), ("histogram", HISTOGRAMS)])
def test_names_and_types(server, kind, names):
    families = server.metrics().families
    for name in names:
        # The text format names a counter's family with or without _total.
        family = families.get(f"vllm:{name}") or families.get(f"vllm:{name.removesuffix('_total')}")
        assert family, f"vllm:{name} is missing"
        assert family.type == kind
        assert family.samples, f"vllm:{name} has no sample before the first request"


def test_labels(server):
    """Each vllm: sample names the model and the engine; nothing that a client chose is a label."""
    name = server.models()[0]
    canary = "canary-in-labels"
    server.post(
        PATH,
        {"prompt": canary, "max_tokens": 1, "user": canary},
        headers={"X-Request-Id": canary, "User-Agent": canary},
    )
    server.get("/" + canary)
    server.post(PATH, {"prompt": "a", "model": canary})
    reply = server.get("/metrics")
    assert canary not in reply.body.decode()
    for family in server.metrics().families.values():
        for _, labels, _ in family.samples:
            if family.name.startswith("vllm:"):
                assert labels["model_name"] == name and labels["engine"] == "0", (family.name, labels)


@pytest.mark.parametrize(
    "name, bounds",
    [
        ("time_to_first_token_seconds", FIRST_TOKEN),
        ("e2e_request_latency_seconds", REQUEST),
        ("request_queue_time_seconds", REQUEST),
        ("request_prefill_time_seconds", REQUEST),
        ("request_decode_time_seconds", REQUEST),
    ],
)
def test_buckets(server, name, bounds):
    got = server.metrics().buckets(f"vllm:{name}")
    assert got[-1] == "+Inf" and [float(b) for b in got[:-1]] == bounds


def test_own_metrics(server):
    assert any(name.startswith("quire:") for name in server.metrics().families)


def test_scrape_is_stable(server):
    """The set of series does not depend on load: no series appears or vanishes."""

    def series():
        return {
            (n, tuple(sorted(l.items()))) for f in server.metrics().families.values() for n, l, _ in f.samples
        }

    before = series()
    server.complete(PROMPT, max_tokens=4)
    server.post(PATH, {"prompt": PROMPT, "n": 0})
    assert before <= series()


def counted(m):
    names = (
        "prompt_tokens_total",
        "generation_tokens_total",
        "prefix_cache_hits_total",
        "prefix_cache_queries_total",
    )
    out = {n: m.value(f"vllm:{n}") for n in names}
    for reason in ("stop", "length", "abort"):
        out[reason] = m.value("vllm:request_success_total", finished_reason=reason)
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "inter_token_latency_seconds",
    ):
        out[name] = m.value(f"vllm:{name}_count")
    out["prompt sum"] = m.value("vllm:request_prompt_tokens_sum")
    out["generation sum"] = m.value("vllm:request_generation_tokens_sum")
    return out


def settled(server):
    """The metrics once the engine is idle and the loop has heard of all that it did."""
    server.wait_idle()
    wait_for("no streams", lambda: server.metrics().value("quire:streams") == 0)
    return server.metrics()


def moved(server, act):
    before = counted(settled(server))
    answers = act()
    after = counted(settled(server))
    return answers, {k: after[k] - before[k] for k in after}


def test_counters_are_the_sum_of_usage(start):
    server = start()

    def act():
        answers = [server.complete(c["prompt"], max_tokens=20 + i) for i, c in enumerate(cases())]
        answers.append(server.complete(PROMPT, max_tokens=64, stop=" girl"))
        for c in cases()[:2]:
            folded = server.stream(c["prompt"], max_tokens=5, stream_options={"include_usage": True})
            answers.append({"usage": folded.usage})
        return answers

    answers, by = moved(server, act)
    prompt = sum(a["usage"]["prompt_tokens"] for a in answers)
    generated = sum(a["usage"]["completion_tokens"] for a in answers)
    assert by["prompt_tokens_total"] == by["prompt sum"] == prompt
    assert by["request_prompt_tokens"] == by["request_generation_tokens"] == len(answers)
    assert by["e2e_request_latency_seconds"] == by["time_to_first_token_seconds"] == len(answers)
    # The engine runs on until it hears that a stop string was found: at most to that request's max_tokens.
    assert generated <= by["generation_tokens_total"] <= generated + 56
    assert by["generation sum"] >= generated
    assert by["length"] == 8 and by["stop"] == 1 and by["abort"] == 0


def test_generation_tokens_exactly(start):
    """Without stop strings the counter is exactly the sum of usage."""
    server = start()
    answers, by = moved(server, lambda: [server.complete(c["prompt"], max_tokens=30, n=2) for c in cases()])
    assert by["generation_tokens_total"] == sum(a["usage"]["completion_tokens"] for a in answers) == 360
    assert by["length"] == 12


def test_stop_string_is_a_stop(server):
    """A stop string is found outside the engine, which is told to cancel; yet it is no abort."""
    _, by = moved(
        server,
        lambda: [
            server.complete(PROMPT, max_tokens=1000, stop=" girl"),
            server.stream(PROMPT, max_tokens=1000, stop=" girl"),
        ],
    )
    assert (by["stop"], by["abort"], by["length"]) == (2, 0, 0)


def test_end_of_text_is_a_stop(server):
    _, by = moved(server, lambda: server.complete(PROMPT, max_tokens=10, logit_bias={"2": 100}))
    assert (by["stop"], by["abort"], by["length"]) == (1, 0, 0)


def test_disconnect_is_an_abort(start):
    server = start(env=SLOW)

    def act():
        stream = server.open_stream(PROMPT, max_tokens=1900, ignore_eos=True)
        next(iter(stream))
        stream.conn.reset()

    _, by = moved(server, act)
    assert (by["stop"], by["abort"], by["length"]) == (0, 1, 0)


def test_refused_requests_count_nowhere(server):
    def act():
        check_error(server.post(PATH, {"prompt": PROMPT, "temperature": 9}), 400)
        check_error(server.post(PATH, {"prompt": [5] * 10_000}), 400)

    _, by = moved(server, act)
    assert not any(by.values()), by


def test_prefix_hits(start):
    """Queries and hits are counted in tokens, and agree with cached_tokens of usage."""
    server = start()
    prompt = [BOS] + [(i * 7919) % 500 + 5 for i in range(200)]
    answers, by = moved(server, lambda: [server.complete(prompt, max_tokens=1) for _ in range(3)])
    cached = sum(a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers)
    assert by["prefix_cache_hits_total"] == cached == 2 * 192
    assert by["prefix_cache_queries_total"] == 3 * 201


def test_where_prompt_tokens_came_from(start):
    server = start()
    prompt = [BOS] + [(i * 7919) % 500 + 5 for i in range(200)]
    for _ in range(3):
        server.complete(prompt, max_tokens=1)
    m = settled(server)
    source = {s: m.value("vllm:prompt_tokens_by_source_total", source=s) for s in ("local_compute", "local_cache_hit")}
    assert source == {"local_compute": 3 * 201 - 2 * 192, "local_cache_hit": 2 * 192}
    assert sum(source.values()) == m.value("vllm:prompt_tokens_total")
    assert source["local_cache_hit"] == m.value("vllm:prompt_tokens_cached_total")


def test_http(start):
    """Metrics for dashboards of FastAPI: responses by path, method and class of status, and their times."""
    server = start()
    server.complete(PROMPT, max_tokens=4)
    server.post(PATH, {"prompt": PROMPT, "n": 0})
    server.post("/completions", {"prompt": PROMPT, "n": 0})
    server.call("HEAD", "/v1/models")

    def counted():
        m = server.metrics()
        return [
            sum(v for _, v in m.samples("http_requests_total", handler=handler, method=method, status=status))
            for handler, method, status in ((PATH, "POST", "2xx"), (PATH, "POST", "4xx"), ("/v1/models", "HEAD", "2xx"))
        ]

    wait_for("all are counted", lambda: counted() == [1, 2, 1])
    m = server.metrics()
    assert m.value("http_request_duration_seconds_count", handler=PATH, method="POST") == 3
    assert m.value("http_request_duration_seconds_sum", handler=PATH) > 0
    assert m.buckets("http_request_duration_seconds")[:4] == ["0.1", "0.5", "1", "+Inf"]


def test_gauges_while_busy(start):
    """Running, waiting and cache usage are seen while requests run, in their ranges."""
    server = start("--max-num-seqs", "2", env=SLOW)
    streams = [server.connect() for _ in range(5)]
    body = {"prompt": PROMPT, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    for conn in streams:
        conn.send(server.bytes("POST", PATH, body))

    def busy():
        m = server.metrics()
        running, waiting = m.value("vllm:num_requests_running"), m.value("vllm:num_requests_waiting")
        assert 0 <= running <= 2 and 0 <= waiting <= 5
        assert m.value("vllm:num_requests_waiting_by_reason") == waiting
        usage = m.value("vllm:kv_cache_usage_perc")
        assert 0 <= usage <= 1
        return running == 2 and waiting == 3 and usage > 0

    wait_for("two run, three wait", busy)
    for conn in streams:
        conn.reset()
    server.wait_idle()


def test_rejections(start):
    """A full queue is counted by what is full."""
    server = start("--max-num-seqs", "1", "--max-num-queued-seqs", "1", env=SLOW)
    streams = [server.open_stream(PROMPT, max_tokens=1500, ignore_eos=True)]
    next(iter(streams[0]))
    conn = server.connect()
    conn.send(server.bytes("POST", PATH, {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True}))
    wait_for("one waits", lambda: server.metrics().value("vllm:num_requests_waiting") == 1)
    check_error(server.post(PATH, {"prompt": PROMPT}), 503, type="server_error")
    m = server.metrics()
    assert m.value("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
    assert m.value("vllm:admission_rejections_total") == 1
    conn.reset()
    streams[0].conn.reset()
    server.wait_idle()


def test_pages(start):
    server = start("--num-kv-blocks", "40")
    server.complete([BOS] + list(range(5, 69)), max_tokens=1)
    m = settled(server)
    assert {l["state"]: v for l, v in m.samples("quire:kv_pages")} == {"free": 36, "cached": 4, "active": 0}


@pytest.mark.parametrize("flags", [(), ("--pipeline-parallel-size", "2")], ids=" ".join)
def test_experts(start, flags):
    """For a prompt of one token, each layer reads as many experts as a token takes, one row each."""
    path = BINARY.parent / "tests/golden-models/qwen3moe.gguf"
    if not path.exists():
        pytest.skip(f"no {path}: it is made by the tests' build")
    server = start("--no-enable-prefix-caching", *flags, model=path)
    names = [f"quire:{n}_total" for n in ("expert_rows", "expert_reads", "expert_busiest_rows", "steps")]

    def counted(prompt):
        before = settled(server)
        server.complete(prompt, max_tokens=1)
        m = settled(server)
        return [m.value(n) - before.value(n) for n in names]

    experts, chosen = (settled(server).value("quire:experts", which=w) for w in ("all", "chosen"))
    rows, reads, layers, _ = counted([5])  # the busiest of each layer has one row
    assert rows == reads == layers * chosen > 0
    rows, reads, busiest, steps = counted([5 + i % 50 for i in range(100)])
    assert rows == 100 * layers * chosen
    assert reads <= steps * layers * experts and rows / experts <= busiest <= layers * 100


def test_masks(start):
    """A schema is compiled once; each of its steps has masks, others have none."""
    server = start()
    server.complete("a", max_tokens=4, ignore_eos=True)
    assert settled(server).value("quire:mask_seconds_count") == 0
    for schema in ({"type": "boolean"}, {"type": "boolean"}, {"type": "null"}):
        server.complete("a", structured_outputs={"json": schema})
    server.post(PATH, {"prompt": "a", "structured_outputs": {"json": {"type": "nothing"}}})
    m = settled(server)
    assert {l["result"]: v for l, v in m.samples("quire:grammars_total")} == {"compiled": 2, "cached": 1, "refused": 1}
    assert 3 <= m.value("quire:mask_seconds_count") <= m.value("quire:steps_total") - 4
    assert m.value("quire:mask_seconds_sum") > 0
    assert m.value("quire:mask_seconds_bucket", le="+Inf") == m.value("quire:mask_seconds_count")


def test_lost_and_cancelled(start):
    """Preempted requests compute tokens again; a cancelled one ends at once."""
    server = start("--num-kv-blocks", "24", "--max-num-seqs", "4", "--no-enable-prefix-caching", env=SLOW)
    conns = [server.connect() for _ in range(4)]
    for i, conn in enumerate(conns):
        prompt = [BOS] + [(i * 31 + j * 7) % 400 + 5 for j in range(60)]
        conn.send(server.bytes("POST", PATH, {"prompt": prompt, "max_tokens": 250, "ignore_eos": True}))
    wait_for("one was preempted and runs again", lambda: server.metrics().value("quire:recomputed_tokens_total") >= 60)
    assert server.metrics().value("vllm:num_preemptions_total") >= 1
    for conn in conns:
        conn.reset()
    m = settled(server)
    assert m.value("quire:cancel_latency_seconds_count") == m.value("vllm:request_success_total", finished_reason="abort") >= 1
    for part in ("plan", "execute", "apply"):
        assert m.value("quire:step_seconds_total", part=part) > 0
    assert m.value("quire:step_seconds_total", part="execute") > 10e-3 * m.value("quire:steps_total")


def test_census(start):
    """Requests by class and key; no key is a label."""
    secrets = ["key-of-alice", "key-of-bob"]
    server = start("--api-key", secrets[0], "--api-key", secrets[1], "--scheduling-policy", "priority", "--max-num-seqs", "1",
                   key=secrets[0], env=SLOW)  # fmt: skip
    body = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    conns = [server.connect() for _ in range(2)]
    conns[0].send(server.bytes("POST", PATH, body | {"priority": -1}))
    by = {"class": "urgent", "key": "1", "phase": "output"}
    wait_for("the first has output", lambda: server.metrics().value("quire:requests", **by) == 1)
    conns[1].send(server.bytes("POST", PATH, body | {"priority": 7}, headers={"Authorization": f"Bearer {secrets[1]}"}))
    by = {"class": "low", "key": "2", "phase": "prompt"}
    wait_for("the second waits", lambda: server.metrics().value("quire:requests", **by) == 1)
    assert server.metrics().value("quire:requests") == 2
    assert not any(s.encode() in server.get("/metrics").body for s in secrets)
    for conn in conns:
        conn.reset()
    server.wait_idle()


def test_namespace(start):
    server = start("--metrics-namespace", "house")
    reply = server.get("/metrics")
    assert b"house:num_requests_running" in reply.body and b"vllm:" not in reply.body
