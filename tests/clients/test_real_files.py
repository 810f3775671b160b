"""Real weights beside what transformers and llama.cpp say of them (real_weights.json, by tests/tools/make_real_goldens.py)."""

import json
import math
import re
from pathlib import Path

import pytest
from conftest import Server
from process import run
from real_weights import BERT, GEMMA, SMOLLM, unpacked

GOLDEN = json.loads(Path(__file__).with_name("real_weights.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("real")


def files(name, folder):
    """The file as it came, and its weights in F32."""
    path, exact = unpacked(name, folder), folder / f"{name}.f32.gguf"
    if not path:
        pytest.skip(f"{name} of requirements_weights.txt is not installed")
    if not exact.exists():
        assert run("quantize", path, exact, "f32").returncode == 0
    return path, exact


def scores(server, ids):
    reply = server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}).json()
    return [one[str(id)]["logprob"] for id, one in zip(ids[1:], reply["choices"][0]["prompt_logprobs"][1:], strict=True)]


def mean_difference(cases, left, right):
    differences = [abs(a - b) for case in range(len(cases)) for a, b in zip(left[case], right[case], strict=True)]
    return sum(differences) / len(differences)


@pytest.mark.parametrize("name", [SMOLLM, GEMMA])
def test_a_generator(name, folder):
    path, exact = files(name, folder)
    cases = GOLDEN[name]
    right = [case["scores"] for case in cases]
    server = Server("--kv-cache-dtype", "f32", "--max-model-len", "512", model=exact)
    try:
        for case in cases:
            assert server.post("/tokenize", {"prompt": case["text"]}).json()["tokens"] == case["ids"]
            assert scores(server, case["ids"]) == pytest.approx(case["scores"], abs=1e-3)
            said = server.post("/v1/completions", {"prompt": case["ids"], "temperature": 0, "ignore_eos": True, "return_token_ids": True,
                                                   "max_tokens": len(case["greedy"])}).json()  # fmt: skip
            assert said["choices"][0]["token_ids"] == case["greedy"]
    finally:
        server.stop()
    server = Server("--max-model-len", "512", model=path)
    try:
        ours = mean_difference(cases, [scores(server, case["ids"]) for case in cases], right)
    finally:
        server.stop()
    theirs = mean_difference(cases, [case["llama.cpp"] for case in cases], right)
    assert 0 < ours < 1.3 * theirs  # of 150 tokens; over thousands they are level (docs/performance)


@pytest.mark.parametrize("name", [SMOLLM, GEMMA])
def test_perplexity(name, folder, tmp_path):
    _, exact = files(name, folder)
    for case in GOLDEN[name][:2]:
        (tmp_path / "text").write_text(case["text"])
        done = run("perplexity", exact, "--file", tmp_path / "text", "--kv-cache-dtype", "f32")
        said = re.fullmatch(r"perplexity (\S+) tokens (\d+) nll (\S+)\n", done.stdout)
        total = -sum(case["scores"])
        if name == GEMMA:  # SmolLM2's file has a BOS, which its tokenizer does not put before a text, but perplexity does
            assert int(said[2]) == len(case["scores"]) and float(said[3]) == pytest.approx(total, abs=5e-3)
            assert float(said[1]) == pytest.approx(math.exp(total / len(case["scores"])), rel=1e-3)
        else:
            assert int(said[2]) == len(case["ids"]) and 1 < float(said[1]) < 100


def test_an_embedder(folder):
    path = unpacked(BERT, folder)
    if not path:
        pytest.skip(f"{BERT} of requirements_weights.txt is not installed")
    server = Server(model=path)
    try:
        for case in GOLDEN[BERT]:
            assert server.post("/tokenize", {"prompt": case["text"]}).json()["tokens"] == case["ids"]
            [found] = server.post("/v1/embeddings", {"input": case["text"], "encoding_format": "float"}).json()["data"]
            assert found["embedding"] == pytest.approx(case["vector"], abs=1e-5)
    finally:
        server.stop()
