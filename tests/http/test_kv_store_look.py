"""Looks at the store of KV blocks: /v1/cache/explain, metrics, and a request that was served from it."""

import shutil

import pytest

from process import run
from wire import check_error, wait_for

TEXT = "Once upon a time a small dragon lived on a hill, and every day it looked at the sea. " * 4


def explain(server, text=TEXT):
    reply = server.post("/v1/cache/explain", {"prompt": text})
    assert reply.status == 200, reply.body
    return reply.json()


def test_explained(start, tmp_path):
    server = start("--kv-store", str(tmp_path))
    assert explain(server)["store"] == {"where": "disk", "cached_tokens": 0, "age_s": None}
    first = server.complete(TEXT, max_tokens=4, temperature=0)
    whole = (first["usage"]["prompt_tokens"] - 1) // 16 * 16
    wait_for("pages that were written", lambda: server.metrics().value("quire:kv_store_pages") >= whole // 16)
    value = server.metrics().value
    assert value("quire:kv_store_writes_total") == value("quire:kv_store_pages") > 0
    assert value("quire:kv_store_hit_tokens_total") == 0
    server.stop()
    server = start("--kv-store", str(tmp_path))
    said = explain(server)
    assert said["cached_tokens"] == 0 and said["store"]["cached_tokens"] == whole
    assert 0 <= said["store"]["age_s"] < 600
    again = server.complete(TEXT, max_tokens=4, temperature=0)
    assert again["choices"][0]["text"] == first["choices"][0]["text"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == whole
    past = server.get(f"/v1/cache/explain/{again['id']}").json()
    assert past["store"]["fetched_tokens"] == whole and past["store"]["fetch_ms"] > 0
    value = server.metrics().value
    assert value("quire:kv_store_hit_tokens_total") == whole and value("quire:kv_store_reads_total") == whole // 16
    assert value("quire:kv_store_fetches_total") == 1
    assert value("quire:kv_store_corrupt_total") == value("quire:kv_store_failed_total") == 0
    assert value("vllm:prompt_tokens_by_source_total", source="external_kv_transfer") == whole
    assert value("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == 0
    assert explain(server)["store"] == {"where": "disk", "cached_tokens": whole, "age_s": None}
    seen = server.get("/v1/engine").json()["store"]
    assert seen["where"] == "disk" and seen["hit_tokens"] == whole and 0 < seen["bytes"] <= seen["max_bytes"] == 10 << 30
    top = run("top", "--once", server.url).stdout
    assert f"prompt tokens from it {whole}" in top and "store disk" in top


def test_without(start):
    server = start()
    assert server.get("/v1/engine").json()["store"] is None and explain(server)["store"] is None and "kv_store" not in server.get("/metrics").body.decode()


@pytest.mark.parametrize("path, fields", [
    ("/v1/completions", {"prompt": TEXT, "prompt_cache_retention": "24h"}),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}]}),
])  # fmt: skip
def test_retained(start, path, fields):
    """Of two prompts that were computed in turn, the one that is to be kept outlives the other."""
    server = start("--num-kv-blocks", "24", "--max-model-len", "256", "--chat-template", "chatml")
    other = TEXT.replace("dragon", "lion")
    kept = {**fields, "max_tokens": 1}
    first = server.post(path, kept)
    assert first.status == 200, first.body
    server.complete(other, max_tokens=1)
    server.complete("Nobody saw what the wind brought over the fields that night. " * 3, max_tokens=1)
    server.complete("A list of birds: crow, owl, hen, robin, heron, eagle, kite, swan. " * 2, max_tokens=1)
    lost = explain(server, other)["cached_tokens"]
    again = server.post(path, kept).json()["usage"]
    cached = again.get("cache_read_input_tokens", again.get("prompt_tokens_details", {}).get("cached_tokens"))
    assert cached >= 64 > lost


def test_retention_is_a_word(start):
    server = start()
    check_error(server.post("/v1/completions", {"prompt": "Hello", "prompt_cache_retention": 24}), 400, param="prompt_cache_retention")
    for value in ("in_memory", "24h", None):
        assert server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 1, "prompt_cache_retention": value}).status == 200


def test_file_is_read_once(start, model, tmp_path):
    """Its hash is noted by the file's times; a file that has just changed has none yet, as its times may stay."""
    start("--kv-store", tmp_path / "a").stop()
    (note,) = (tmp_path / "a").glob("hash.*")
    kept = note.read_text()
    server = start("--kv-store", tmp_path / "a")
    assert f"model_hash={kept}" in server.log()
    server.stop()
    note.write_text(kept[::-1])  # it is believed
    server = start("--kv-store", tmp_path / "a")
    assert f"model_hash={kept[::-1]}" in server.log()
    server.stop()
    for text in (kept[:-1], "x" + kept[1:]):  # but not half of one, nor what is none
        note.write_text(text)
        server = start("--kv-store", tmp_path / "a")
        assert f"model_hash={kept}" in server.log() and note.read_text() == kept
        server.stop()
    copy = shutil.copy(model, tmp_path / "copy.gguf")
    server = start("--kv-store", tmp_path / "b", model=copy)
    assert f"model_hash={kept}" in server.log() and not list((tmp_path / "b").glob("hash.*"))
