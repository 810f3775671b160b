"""/v1/engine: requests, steps and pages as they are, and never another one's text."""

import base64
import struct

import pytest
from goldens import BOS
from process import EMULATED, SLOW, WITH_TSAN
from wire import check_error, wait_for

PROMPT = [BOS] + [(i * 7919) % 500 + 5 for i in range(200)]
FREE, CACHED, ACTIVE = range(3)


def look(server, path="/v1/engine", key=None):
    reply = server.get(path, headers={"Authorization": f"Bearer {key}"} if key else {})
    assert reply.status == 200, reply.body
    return reply.json()


def pages(seen, field, code="B"):
    raw = base64.b64decode(seen["pages"][field])
    values = [v for (v,) in struct.iter_unpack("<" + code, raw)]
    assert len(values) == seen["pages"]["count"]
    return values


def test_idle(start):
    server = start("--num-kv-blocks", "40")
    seen = look(server)
    assert seen["limits"]["pages"] == seen["free_pages"] == 40
    assert seen["requests"] == [] and seen["steps"]["rows"] == [] and "pages" not in seen
    assert seen["groups"][0]["kind"] == "full" and seen["queue"]["running"] == 0
    shown = server.post("/api/show", {"model": server.models()[0]}).json()["model_info"]
    assert seen["facts"]["architecture"] == shown["general.architecture"] and seen["facts"]["parameters"] == shown["general.parameter_count"]
    assert seen["facts"]["vocabulary"] == shown[seen["facts"]["architecture"] + ".vocab_size"] and seen["facts"]["cache"] == "F32"
    assert seen["memory"]["weight_bytes"] > 0 and seen["memory"]["cache_bytes"] > 40 * seen["limits"]["page_tokens"]
    seen = look(server, "/v1/engine?pages=1")
    assert set(pages(seen, "state")) == {FREE} and set(pages(seen, "parent", "i")) == {-1}


@pytest.mark.parametrize("device, seqs, tokens", [("cpu", 64, 512), ("cuda", 256, 2048)])
def test_limits(start, device, seqs, tokens):
    """The size of a step by device, wherever it is told; a flag wins."""
    if device == "cuda" and not EMULATED.exists():
        pytest.skip("no emulated CUDA module in this build")
    if device == "cuda" and WITH_TSAN:
        pytest.skip("the emulator switches stacks, which ThreadSanitizer cannot follow")
    words, env = ("--device", device, "--num-kv-blocks", "40"), {"QUIRE_CUDA_MODULE": str(EMULATED)}
    short = {"QUIRE_CUDA_GRAPHS": "0"}  # no warm-up: hundreds of rows take the emulator minutes
    for flags, want in (((), (seqs, tokens)), (("--max-num-seqs", "3", "--max-num-batched-tokens", "40"), (3, 40))):
        server = start(*words, *flags, env=env if flags else env | short)
        assert ("warm_up_steps=" in server.log()) == (device == "cuda" and flags != ())
        limits = look(server)["limits"]
        assert (limits["max_num_seqs"], limits["max_num_batched_tokens"]) == want
        assert f"max_num_seqs={want[0]} max_num_batched_tokens={want[1]} " in server.log()
        assert server.get("/props").json()["total_slots"] == len(server.get("/slots").json()) == want[0]


def test_tree(start):
    """Two prompts that share a prefix are a tree that parts where they do."""
    server = start("--num-kv-blocks", "64", "--block-size", "16")
    server.complete(PROMPT[:100], max_tokens=1)
    server.complete(PROMPT[:64] + PROMPT[100:150], max_tokens=1)
    seen = look(server, "/v1/engine?pages=1")
    state, parent = pages(seen, "state"), pages(seen, "parent", "i")
    cached = [i for i, s in enumerate(state) if s == CACHED]
    assert len(cached) == 6 + 3 == seen["groups"][0]["cached"]
    assert seen["free_pages"] == 64 - 9 and set(pages(seen, "refs")) == {0}
    depth = {}
    for i in cached:
        at, n = i, 0
        while parent[at] >= 0:
            at, n = parent[at], n + 1
        depth[i] = n
    assert sorted(depth.values()) == [0, 1, 2, 3, 4, 4, 5, 5, 6]
    fork = next(i for i in cached if depth[i] == 3)
    one = look(server, f"/v1/engine/pages/{fork}")
    assert one["state"] == "cached" and one["depth"] == 3 and one["tokens"] == 16 and one["owners"] == []
    assert sorted(one["children"]) == sorted(i for i in cached if depth[i] == 4)
    assert one["parent"] == parent[fork] and len(one["hash"]) == 16


def test_running(start):
    server = start("--max-num-seqs", "2", env=SLOW)
    body = {"prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}
    streams = [server.connect() for _ in range(3)]
    for i, conn in enumerate(streams):
        conn.send(server.bytes("POST", "/v1/completions", body, headers={"X-Request-Id": f"mine-{i}"}))

    def decoding():
        seen = look(server, "/v1/engine?pages=owner,refs,state")
        states = sorted(r["state"] for r in seen["requests"])
        return seen if states == ["decode", "decode", "waiting"] else None

    wait_for("two decode, one waits", decoding)
    seen = decoding()
    by_id = {r["request_id"]: r for r in seen["requests"]}
    assert set(by_id) == {"mine-0", "mine-1", "mine-2"}
    for r in seen["requests"]:
        assert r["prompt_tokens"] == 201 and r["adapter"] is None and r["age_s"] > 0
        assert (r["generated_tokens"] > 0 and r["pages"] > 12) == (r["state"] == "decode")
        assert (r["age_s"] > r["first_token_s"] >= r["queued_s"]) == (r["first_token_s"] > 0) == (r["state"] == "decode")
    owner, refs, state = pages(seen, "owner", "H"), pages(seen, "refs"), pages(seen, "state")
    active = [i for i, s in enumerate(state) if s == ACTIVE]
    assert {owner[i] for i in active} == {1, 2}
    assert sum(refs) == sum(r["pages"] for r in seen["requests"])
    shared = next(i for i in active if refs[i] == 2)
    assert sorted(look(server, f"/v1/engine/pages/{shared}")["owners"]) == sorted(
        r["id"] for r in seen["requests"] if r["state"] == "decode"
    )
    rows = [dict(zip(seen["steps"]["fields"], row)) for row in seen["steps"]["rows"]]
    assert sum(r["prefill_tokens"] for r in rows) >= 201 and rows[-1]["decode_tokens"] == 2
    assert all(r["execute_us"] > 0 for r in rows) and [r["id"] for r in rows] == sorted(r["id"] for r in rows)
    assert seen["throughput"]["generated_tokens_per_s"] > 0
    for conn in streams:
        conn.reset()
    server.wait_idle()


def test_keys(start, tmp_path):
    """A page's text is the admin's; a client's ids are its own."""
    server = start("--api-key", "one", "--api-key", "two", "--admin-api-key", "boss", key="one", env=SLOW)
    check_error(server.get("/v1/engine", headers={"Authorization": "Bearer none"}), 401)
    conn = server.connect()
    body = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    conn.send(server.bytes("POST", "/v1/completions", body, headers={"X-Request-Id": "mine"}))
    wait_for("it runs", lambda: look(server, key="one")["queue"]["running"] == 1)
    ids = {key: look(server, key=key)["requests"][0]["request_id"] for key in ("one", "two", "boss")}
    assert ids == {"one": "mine", "two": "", "boss": "mine"}
    conn.reset()
    server.wait_idle()
    server.complete("Once upon a time there was a little girl. " * 8, max_tokens=1)
    state = pages(look(server, "/v1/engine?pages=state", key="boss"), "state")
    page = f"/v1/engine/pages/{state.index(CACHED)}"
    assert look(server, page, key="one")["text"] is None
    assert "nce upon" in "".join(
        look(server, f"/v1/engine/pages/{i}", key="boss")["text"] for i, s in enumerate(state) if s == CACHED
    )


def test_bad(server):
    check_error(server.get("/v1/engine?pages=state,colour"), 400)
    for page in ("99999999", "-1", "x", "1x"):
        check_error(server.get(f"/v1/engine/pages/{page}"), 404)
    check_error(server.post("/v1/engine", {}), 405)


def test_left(start):
    """Clients that leave while the engine is asked."""
    server = start(env=SLOW)
    stream = server.open_stream("Once upon a time", max_tokens=1500, ignore_eos=True)
    for _ in range(20):
        conn = server.connect()
        conn.send(server.bytes("GET", "/v1/engine?pages=1"))
        conn.reset()
    wait_for("it still responds", lambda: server.get("/v1/engine").status == 200)
    stream.conn.reset()
    server.wait_idle()
