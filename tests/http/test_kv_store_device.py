"""A store of KV blocks behind a device with memory of its own: the emulated CUDA module."""

import pytest

from launched import needs_emulated
from process import EMULATED, run
from wire import wait_for

TEXT = "Once upon a time a small dragon lived on a hill, and every day it looked at the sea."
SMALL = ("--num-kv-blocks", "6", "--max-model-len", "64", "--max-num-seqs", "2")
CUDA = {"QUIRE_DEVICE": "cuda", "QUIRE_CUDA_MODULE": str(EMULATED)}


def ask(server, text=TEXT):
    reply = server.complete(text, max_tokens=3, temperature=0, logprobs=2)
    choice = reply["choices"][0]
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"], (choice["text"], choice["logprobs"])


@needs_emulated
@pytest.mark.parametrize("flags", [(), ("--kv-cache-dtype", "int8")], ids=["f16", "int8"])
def test_host_memory(start, flags):
    server = start("--kv-store", "memory", "--kv-store-size", "64M", *SMALL, *flags, env=CUDA)
    none, first = ask(server)
    wait_for("pages that were written", lambda: server.metrics().value("quire:kv_store_pages") >= 2)
    for i in range(4):  # takes all pages of the device
        ask(server, f"{i} crows sat on a fence, and none of them knew why. They said so, one after the other.")
    said = server.post("/v1/cache/explain", {"prompt": TEXT}).json()
    assert said["cached_tokens"] == 0 and said["store"]["where"] == "memory" and said["store"]["cached_tokens"] >= 16
    cached, again = ask(server)
    assert none == 0 and cached == said["store"]["cached_tokens"] and again == first


@needs_emulated
def test_disk(start, tmp_path):
    server = start("--kv-store", str(tmp_path), *SMALL, env=CUDA)
    none, first = ask(server)
    wait_for("pages that were written", lambda: server.metrics().value("quire:kv_store_pages") >= 2)
    server.stop()
    server = start("--kv-store", str(tmp_path), *SMALL, env=CUDA)
    cached, again = ask(server)
    assert none == 0 and cached >= 16 and again == first
    server.stop()
    server = start("--kv-store", str(tmp_path), *SMALL)  # the CPU has pages of its own
    assert ask(server)[0] == 0


def test_cpu_needs_none():
    done = run("serve", "--port", "0", "--kv-store", "memory")
    assert done.returncode != 0 and "--kv-cache-memory gives it more" in done.stderr, done.stderr
