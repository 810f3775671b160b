"""More than fits: refused at once, queued, or preempted; and the bits stay the same."""

import concurrent.futures
import re
import threading

import pytest

from goldens import BOS, cases, expected
from process import SANITIZED, SLOW
from wire import check_error, outcome, wait_for

PROMPT = "Once upon a time"
PATH = "/v1/completions"


def together(calls, workers=None):
    """Runs the calls at the same time; their results in order."""
    with concurrent.futures.ThreadPoolExecutor(workers or len(calls)) as pool:
        return [f.result() for f in [pool.submit(c) for c in calls]]


def test_a_full_queue(start):
    """Beyond the queue: 503 (or 429) with Retry-After, soon; the others are served, and health answers."""
    server = start("--max-num-seqs", "1", "--max-num-queued-seqs", "2", env=SLOW)
    body = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
    alone = server.post(PATH, body).json()["choices"][0]["text"]
    first = server.open_stream(PROMPT, max_tokens=1900, ignore_eos=True)  # the place of the one that runs
    next(iter(first))
    stop = threading.Event()
    health = []

    def watch():
        while not stop.is_set():
            health.append((server.get("/health").status, server.get("/metrics").status))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(server.post, PATH, body) for _ in range(16)]
            done = concurrent.futures.as_completed(asked)
            replies = [next(done).result() for _ in range(14)]
            first.conn.reset()  # the other two begin
            replies += [d.result() for d in done]
    finally:
        stop.set()
        watcher.join()
    assert health and set(health) == {(200, 200)}
    served = [r for r in replies if r.status == 200]
    refused = [r for r in replies if r.status != 200]
    assert len(served) == 2
    for reply in served:
        assert reply.json()["choices"][0]["text"] == alone
    for reply in refused:
        assert reply.status in (429, 503), reply
        check_error(reply, reply.status, type="server_error" if reply.status == 503 else "rate_limit_error")
        if reply.status == 503:
            assert reply.json()["error"]["code"] == "overloaded"
        assert 1 <= int(reply.header("retry-after")) <= 30
    assert server.complete(PROMPT, max_tokens=9)["choices"][0]["text"] == expected(0, 9)
    server.wait_idle()


def test_a_full_queue_refuses_streams_with_a_status(start):
    server = start("--max-num-seqs", "1", "--max-num-queued-seqs", "0", env=SLOW)
    first = server.open_stream(PROMPT, max_tokens=1500, ignore_eos=True)
    events = iter(first)
    next(events)
    statuses = [
        server.post(PATH, {"prompt": PROMPT, "stream": True, "max_tokens": 2}).status for _ in range(5)
    ]
    assert 503 in statuses or 429 in statuses, statuses
    first.conn.reset()
    server.wait_idle()


def test_all_choices_or_none(start):
    """More choices than the queue can ever hold: a 400, for no retry would help. None of them runs on its own."""
    server = start("--max-num-seqs", "2", "--max-num-queued-seqs", "4")
    before = server.metrics().value("vllm:generation_tokens_total")
    reply = server.post(PATH, {"prompt": PROMPT, "n": 64, "max_tokens": 200, "ignore_eos": True})
    check_error(reply, 400, ("n", "prompt"))
    assert server.wait_idle().value("vllm:generation_tokens_total") == before
    answer = server.complete(PROMPT, n=6, max_tokens=9)
    assert [c["text"] for c in answer["choices"]] == [expected(0, 9)] * 6


def test_as_many_choices_as_allowed(server):
    """128 choices, and 128 prompts: every index once, every text right."""
    for ask in (server.complete, server.stream):
        texts = [a[1] for a in outcome(ask(PROMPT, n=128, max_tokens=5))]
        assert texts == [expected(0, 5)] * 128
        texts = [a[1] for a in outcome(ask([c["prompt"] for c in cases()] * 21, max_tokens=5))]
        assert texts == [expected(i, 5) for i in range(6)] * 21


def test_a_queue_full_of_tokens(start):
    """The queue is bounded by its tokens, too; what waits is served, what is refused may come again."""
    server = start("--max-num-seqs", "1", "--max-num-queued-seqs", "1000")
    prompt = [BOS] + [(i * 7919) % 500 + 5 for i in range(1800)]
    want = outcome(server.complete(prompt, max_tokens=4))
    replies = together(
        [lambda: server.post(PATH, {"prompt": [prompt] * 8, "max_tokens": 4, "temperature": 0})] * 24
    )
    for reply in replies:
        assert reply.status in (200, 429, 503), reply
        if reply.status == 200:
            assert [c["text"] for c in reply.json()["choices"]] == [want[0][1]] * 8
        else:
            assert 1 <= int(reply.header("retry-after")) <= 30
    server.wait_idle()


@pytest.mark.parametrize("block", [16] if SANITIZED else [16, 32, 48])
def test_preemption_keeps_the_bits(start, server, block):
    """A cache for about two and a half requests, given ten: all are answered, with the bits of a large cache."""
    calls = [
        dict(
            prompt=[BOS] + [(i * 7919 + j * 31) % 500 + 5 for j in range(20 + i)],
            max_tokens=90,
            ignore_eos=True,
            logprobs=3,
        )
        | ({"temperature": 1, "seed": i} if i % 3 == 0 else {})
        for i in range(10)
    ]
    alone = [outcome(server.complete(**c)) for c in calls]
    tiny = start("--num-kv-blocks", 288 // block, "--block-size", block)
    assert [outcome(r) for r in together([lambda c=c: tiny.complete(**c) for c in calls])] == alone
    assert [outcome(r) for r in together([lambda c=c: tiny.stream(**c) for c in calls])] == alone
    m = tiny.wait_idle()
    assert m.value("vllm:num_preemptions_total") > 0


@pytest.mark.parametrize(
    "flags",
    [
        ("--max-num-batched-tokens", "16", "--max-num-seqs", "4"),
        ("--threads", "1"),
        ("--threads", "3"),
        ("--block-size", "64"),
    ],
    ids=" ".join,
)
def test_settings_do_not_move_a_bit(start, server, flags):
    """Chunk length, threads and block size change no log-probability, alone or together."""
    other = start(*flags)
    calls = [dict(prompt=c["prompt"], max_tokens=40, logprobs=5) for c in cases()]
    calls.append(dict(prompt=[BOS] + [(i * 7919) % 500 + 5 for i in range(150)], max_tokens=20, logprobs=5))
    want = [outcome(server.complete(**c)) for c in calls]
    assert [outcome(other.complete(**c)) for c in calls] == want
    assert [outcome(r) for r in together([lambda c=c: other.stream(**c) for c in calls])] == want


def test_what_can_never_fit_is_refused(start):
    """Larger than the whole cache: a 400 with numbers, at once, whatever the load."""
    server = start("--num-kv-blocks", "8")  # 128 tokens
    error = check_error(
        server.post(PATH, {"prompt": [7] * 200, "max_tokens": 5}), 400, code="context_length_exceeded"
    )
    assert any(c.isdigit() for c in error["message"])
    reply = server.post(PATH, {"prompt": [7] * 100, "max_tokens": 100, "ignore_eos": True, "temperature": 0})
    if reply.status == 200:
        assert reply.json()["usage"]["total_tokens"] <= 128
    else:
        check_error(reply, 400)
    answer = server.complete([7] * 100, ignore_eos=True)
    assert answer["usage"]["total_tokens"] <= 128, "without max_tokens it is the room left"
    assert server.complete(PROMPT, max_tokens=64)["choices"][0]["text"] == expected(0, 64)
    server.wait_idle()


def test_the_largest_that_fits(start):
    """A request as large as the cache runs to its end, alone and among others."""
    server = start("--num-kv-blocks", "8")
    big = dict(prompt=[BOS] + [9] * 60, max_tokens=67, ignore_eos=True)
    alone = outcome(server.complete(**big))
    assert alone[0][3] == "length"
    assert [outcome(r) for r in together([lambda: server.complete(**big)] * 5)] == [alone] * 5
    server.wait_idle()


def order_of_answers(server, later):
    """Keeps a server of one sequence busy, queues requests with the given fields, and reads from its log in which order
    they were answered. Also whether all were queued before the first could begin."""
    busy = server.open_stream(PROMPT, max_tokens=1500, ignore_eos=True)
    next(iter(busy))
    conns = []
    for name, fields in later:
        body = {"prompt": PROMPT, "max_tokens": 10, "ignore_eos": True, "temperature": 0, **fields}
        conns.append(server.connect())
        conns[-1].send(server.bytes("POST", PATH, body, headers={"X-Request-Id": name}))

        def queued():
            m = server.metrics()
            return m.value("vllm:num_requests_waiting") == len(conns) or m.value("vllm:num_requests_running") == 0

        wait_for("the request waits", queued)
    waiting = server.metrics().value("vllm:num_requests_waiting")
    busy.conn.reset()
    for conn in conns:
        assert conn.read_reply().status == 200
        conn.close()
    server.wait_idle()
    order = re.findall(r"\bid=((?:low|middle|high)[a-z-]*)\b", server.log())
    return waiting == len(later), order[-len(later) :]


LATER = [
    ("low", {"priority": 10}),
    ("middle", {"priority": 5}),
    ("high", {"priority": -3}),
    ("high-too", {"priority": -3}),
]


def test_priority(start):
    """Lower numbers first; first come first served within a class."""
    server = start("--scheduling-policy", "priority", "--max-num-seqs", "1", env=SLOW)
    for _ in range(5):
        complete, order = order_of_answers(server, LATER)
        if complete:
            break
    assert complete, "the first request ended before the others were queued"
    assert order == ["high", "high-too", "middle", "low"]


def test_first_come_first_served(start):
    """Without the policy the order is that of arrival; a priority is refused, or has no effect."""
    server = start("--max-num-seqs", "1", env=SLOW)
    if server.post(PATH, {"prompt": "a", "max_tokens": 1, "priority": 5}).status != 200:
        check_error(server.post(PATH, {"prompt": "a", "max_tokens": 1, "priority": 5}), 400, "priority")
        return
    for _ in range(5):
        complete, order = order_of_answers(server, LATER)
        if complete:
            break
    assert complete and order == ["low", "middle", "high", "high-too"]


def test_eight_choices_share_their_prompt(start):
    """n choices of a long prompt: it is computed about once, counted once, and each choice is right."""
    server = start()
    prompt = [BOS] + [(i * 7919) % 500 + 5 for i in range(399)]
    before = server.metrics().value("vllm:prefix_cache_hits_total")
    answer = server.complete(prompt, n=8, max_tokens=10, temperature=1, seed=3)
    assert answer["usage"]["prompt_tokens"] == 400
    hits = server.wait_idle().value("vllm:prefix_cache_hits_total") - before
    assert hits >= 7 * 384, f"only {hits} of {7 * 384} tokens were shared"
    again = server.complete(prompt, n=8, max_tokens=10, temperature=1, seed=3)
    assert outcome(again) == outcome(answer)


def test_long_prompts_beside_streams(start, server):
    """Prompts are computed in chunks beside running streams; all answers are what they are alone."""
    prompts = [[BOS] + [(i * 31 + j * 17) % 500 + 5 for j in range(1500)] for i in range(4)]
    alone = [outcome(server.complete(p, max_tokens=6, logprobs=2)) for p in prompts]
    other = start("--max-num-batched-tokens", "64")
    calls = [lambda p=p: outcome(other.complete(p, max_tokens=6, logprobs=2)) for p in prompts]
    calls += [lambda c=c: other.stream(c["prompt"], max_tokens=64).choices[0]["text"] for c in cases()]
    results = together(calls)
    assert results[:4] == alone
    assert results[4:] == [c["greedy_text"] for c in cases()]


def test_open_loop(server):
    """300 requests of every kind at once through the default server: each answer is right."""
    calls = []
    for i in range(300):
        case, count = i % 6, 1 + i % 64
        ask = (server.complete, server.stream)[i % 2]
        calls.append(
            lambda ask=ask, case=case, count=count: (
                ask(cases()[case]["prompt"], max_tokens=count),
                case,
                count,
            )
        )
    for answer, case, count in together(calls, 60):
        assert outcome(answer)[0][1] == expected(case, count)
    server.wait_idle()


def test_memory_of_responses(start):
    """A response counts as it grows: a large one is given up, then there is room again. Small ones and streams go on."""
    server = start("--max-response-memory", "256K")
    large = {"prompt": "a", "max_tokens": 1500, "n": 4, "logprobs": 20, "ignore_eos": True}
    middle = {"max_tokens": 100, "logprobs": 5, "ignore_eos": True}  # more than its part
    for _ in range(1 if SANITIZED else 3):
        error = check_error(server.post("/v1/completions", large), 503, type="server_error", code="overloaded")
        assert "stream" in error["message"]
        assert server.complete("a", **middle)["usage"]["completion_tokens"] == 100
    count = 500 if SANITIZED else 1500
    streamed = server.stream(large.pop("prompt"), **large | {"n": 1, "max_tokens": count, "stream_options": {"include_usage": True}})
    assert streamed.usage["completion_tokens"] == count
