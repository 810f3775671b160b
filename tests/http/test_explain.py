"""/v1/cache/explain: why the cache missed, before and after; /v1/estimate and the header that predicts the first token."""

import subprocess
import sys
import time

import pytest

import goldens
from goldens import BOS
from process import SLOW
from wire import check_error, wait_for

PATH = "/v1/cache/explain"
PROMPT = [BOS] + [(i * 7919) % 500 + 5 for i in range(200)]


def explain(server, prompt=PROMPT, key=None, **fields):
    reply = server.post(PATH, {"prompt": prompt, **fields}, headers={"Authorization": f"Bearer {key}"} if key else {})
    assert reply.status == 200, reply.body
    return reply.json()


def test_reasons(start):
    server = start()
    said = explain(server)
    assert (said["prompt_tokens"], said["cached_tokens"]) == (201, 0) and said["stop"]["reason"] == "new"
    before = server.metrics().value("vllm:prompt_tokens_total")
    server.complete(PROMPT, max_tokens=1)
    said = explain(server)
    assert said["cached_tokens"] == 192 and said["stop"]["reason"] == "partial_block"
    other = PROMPT[:100] + [7] + PROMPT[101:]
    said = explain(server, other)
    stop = said["stop"]
    assert said["cached_tokens"] == 96 and stop["reason"] == "differs" and stop["position"] == 96
    assert stop["differs_at"] == 100 and stop["token"]["id"] == 7 and "cached_token" not in stop
    said = explain(server, cache_salt="mine")
    assert said["cached_tokens"] == 0 and said["stop"]["reason"] == "salt" and said["domain"]["cache_salt"]
    assert said["stop"]["cached_tokens_without"] == 192
    said = explain(server, echo=True, logprobs=1, max_tokens=1)
    assert said["cached_tokens"] == 0 and said["stop"]["reason"] == "prompt_logprobs"
    # Asking is no request, and what was said comes true.
    assert server.metrics().value("vllm:prompt_tokens_total") == before + 201
    usage = server.complete(other, max_tokens=1)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 96


def test_evicted(start):
    server = start("--num-kv-blocks", "20", "--max-model-len", "256")
    server.complete(PROMPT, max_tokens=1)
    server.complete([BOS] + [(i * 104729) % 500 + 5 for i in range(200)], max_tokens=1)
    said = explain(server)
    assert said["cached_tokens"] < 192 and said["stop"]["reason"] == "evicted"
    assert 0 <= said["stop"]["evicted_s_ago"] < 600


def test_disabled(start):
    server = start("--no-enable-prefix-caching")
    server.complete(PROMPT, max_tokens=1)
    assert explain(server)["stop"]["reason"] == "disabled"


def test_chat(chat):
    body = {"messages": [{"role": "user", "content": "Who are you? " * 20}]}
    first = chat.post(PATH, body).json()
    assert first["stop"]["reason"] in ("new", "differs")
    usage = chat.post("/v1/chat/completions", body | {"max_tokens": 1}).json()["usage"]
    assert first["prompt_tokens"] == usage["prompt_tokens"]
    assert chat.post(PATH, body).json()["stop"]["reason"] == "partial_block"


def test_afterwards(start):
    """A request is explained by the response's id, and by its own; as it was when it began."""
    server = start()
    server.complete(PROMPT, max_tokens=1)
    other = PROMPT[:100] + [7] + PROMPT[101:]
    reply = server.post("/v1/completions", {"prompt": other, "max_tokens": 1}, headers={"X-Request-Id": "mine"})
    for name in (reply.json()["id"], "mine"):
        said = server.get(f"{PATH}/{name}").json()
        assert (said["prompt_tokens"], said["cached_tokens"]) == (201, 96)
        assert said["stop"]["reason"] == "differs" and said["stop"]["differs_at"] == 100
    check_error(server.get(f"{PATH}/nobody"), 404)


def test_keys(start):
    """Nobody hears of another one's requests; an admin sees what is cached."""
    server = start("--api-key", "one", "--api-key", "two", "--share-prefixes", "--admin-api-key", "boss", key="one")
    server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1}, headers={"X-Request-Id": "mine"})
    other = PROMPT[:100] + [7] + PROMPT[101:]
    said = explain(server, other, key="two")
    assert said["cached_tokens"] == 96 and said["stop"]["reason"] == "new" and "differs_at" not in said["stop"]
    said = explain(server, other, key="boss")
    assert said["stop"]["differs_at"] == 100 and said["stop"]["cached_token"]["id"] == PROMPT[100]
    assert server.get(f"{PATH}/mine").status == 200
    check_error(server.get(f"{PATH}/mine", headers={"Authorization": "Bearer two"}), 404)
    assert server.get(f"{PATH}/mine", headers={"Authorization": "Bearer boss"}).status == 200


def test_tenants(start):
    """Each of several keys has a domain of its own."""
    server = start("--api-key", "one", "--api-key", "two", key="one")
    server.complete(PROMPT, max_tokens=1)
    assert explain(server)["cached_tokens"] == 192 and explain(server)["domain"]["key"]
    said = explain(server, PROMPT[:100] + [7] + PROMPT[101:], key="two")
    assert said["cached_tokens"] == 0 and said["stop"]["reason"] == "new"


@pytest.mark.parametrize("path", [PATH, "/v1/estimate"])
def test_bad(server, path):
    check_error(server.post(path, {}), 400)
    check_error(server.post(path, {"prompt": ["a", "b"]}), 400)
    check_error(server.post(path, {"prompt": [5] * 10_000}), 400)
    check_error(server.post(path, b"{"), 400)


def estimate(server, prompt=PROMPT):
    reply = server.post("/v1/estimate", {"prompt": prompt})
    assert reply.status == 200, reply.body
    return reply.json()


def test_estimate(start):
    """Nothing is said before anything was measured; then longer prompts, longer queues and fewer hits take longer."""
    server = start("--max-num-seqs", "2", "--no-enable-prefix-caching", env=SLOW)
    assert estimate(server)["ttft_ms"] is None
    for n in (1, 40, 100, 200):
        server.complete(PROMPT[:n], max_tokens=12, ignore_eos=True)
    short, long = estimate(server, PROMPT[:16]), estimate(server, (PROMPT * 8)[:1500])
    assert 5 < short["ttft_ms"] < long["ttft_ms"] and short["prompt_tokens"] == 16  # a step takes 10 ms at least
    assert long["queue_ms"] <= 1
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
    assert float(reply.header("x-quire-predicted-ttft-ms")) > 5
    with server.connect() as conn:  # the time counts from the request line, as that of the first token does
        whole = server.bytes("POST", "/v1/completions", {"prompt": PROMPT[:16], "max_tokens": 1})
        conn.send(whole[:-10])
        before = time.monotonic()
        server.complete(PROMPT, max_tokens=12, ignore_eos=True)
        waited = time.monotonic() - before
        conn.send(whole[-10:])
        assert float(conn.read_reply().header("x-quire-predicted-ttft-ms")) > waited * 900
    body = {"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True, "stream": True}
    conns = [server.connect() for _ in range(4)]
    for conn in conns:
        conn.send(server.bytes("POST", "/v1/completions", body))
    wait_for("two wait", lambda: server.metrics().value("vllm:num_requests_waiting") == 2)
    busy = estimate(server, PROMPT[:16])
    assert busy["queue_ms"] > 50 and busy["ttft_ms"] > short["ttft_ms"] + 50
    for conn in conns:
        conn.reset()
    server.wait_idle()


def test_estimate_counts_hits(start):
    server = start(env=SLOW)
    server.complete(PROMPT, max_tokens=12, ignore_eos=True)
    assert estimate(server)["cached_tokens"] == 192


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """make(arguments of make_gguf.py): a small random model."""
    folder = tmp_path_factory.mktemp("explained")

    def model(name, *arguments):
        path = folder / f"{name}.gguf"
        subprocess.run([sys.executable, goldens.ROOT / "tests/tools/make_gguf.py", path, *map(str, arguments)], check=True)
        return path

    return model


def told_truly(server, prompt):
    """The explanation of a prompt, checked against the request that follows."""
    said = explain(server, prompt)
    usage = server.complete(prompt, max_tokens=1, ignore_eos=True)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == said["cached_tokens"]
    return said["cached_tokens"], said["stop"]


def test_window(make, start):
    """A window needs only its last pages: the whole prompt hits when its beginning no longer does."""
    model = make("window", "--arch", "gemma3", "--layers", 3, "--window", 32, "--window-pattern", 3)
    server = start("--num-kv-blocks", 50, "--max-model-len", 256, model=model)
    assert told_truly(server, PROMPT)[1]["reason"] == "new"
    begun = explain(server, PROMPT[:120])
    assert begun["cached_tokens"] == 112 and begun["stop"]["reason"] == "partial_block"
    server.complete([BOS] + [(i * 104729) % 500 + 5 for i in range(150)], max_tokens=1, ignore_eos=True)
    begun = explain(server, PROMPT[:120])
    assert begun["cached_tokens"] < 112 and begun["stop"]["reason"] in ("evicted", "group"), begun  # of one group first
    cached, stop = told_truly(server, PROMPT)
    assert cached == 192 and stop["reason"] == "partial_block"


def test_recurrent(make, start):
    """Recurrent layers go on from a snapshot only: of a prompt's last boundary, which a longer one goes on from."""
    model = make("states", "--arch", "lfm2", "--layers", 3)
    server = start("--block-size", 16, model=model)
    assert told_truly(server, PROMPT)[1]["reason"] == "new"
    cached, stop = told_truly(server, PROMPT + [9] * 40)
    assert cached == 192 and stop["reason"] == "new", (cached, stop)
    cached, stop = told_truly(server, PROMPT[:120])
    assert cached < 112 and stop["reason"] == "group" and stop["kind"] == "state", (cached, stop)
