"""--tensor-parallel-size and --pipeline-parallel-size: the same answers from several ranks, through commands and the
server."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from process import faulty, run


def answer(*flags):
    result = run("generate", "--raw", "-p", "Once upon a time", "-n", "16", "--json", "--logprobs", "3", *flags)
    assert result.returncode == 0, result
    body = json.loads(result.stdout)
    del body["timings"]
    return body


@pytest.mark.parametrize("tensor, pipeline", [(2, 1), (4, 1), (1, 2), (1, 4), (2, 2)])
def test_same_answer(tensor, pipeline):
    flags = ["--temperature", "0.8", "--seed", "3", "--top-k", "20"]
    ranks = ["--tensor-parallel-size", tensor, "--pipeline-parallel-size", pipeline]
    assert answer(*ranks) == answer()
    assert answer(*ranks, *flags) == answer(*flags)


def test_served(start):
    ask = {"prompt": "The cat", "max_tokens": 12, "temperature": 0, "logprobs": 2}
    server = start("--tensor-parallel-size", "2", model="")
    log = server.tail()
    sizes = re.findall(r"rank=(\d) world=2 weight_bytes=(\d+)", log)
    assert [rank for rank, _ in sizes] == ["0", "1"] and len({size for _, size in sizes}) == 1, log
    assert "2 ranks of cpu" in log
    alone = start(model="")
    assert server.complete(**ask)["choices"] == alone.complete(**ask)["choices"]


def test_stages_served(start):
    """Two stages of two ranks: each holds its part, and many requests at once get what they get alone."""
    asks = [{"prompt": f"The cat and {n} dogs", "max_tokens": 12, "temperature": 0, "logprobs": 2} for n in range(12)]
    server = start("--tensor-parallel-size", "2", "--pipeline-parallel-size", "2", model="")
    log = server.tail()
    ranks = re.findall(r"rank=(\d) world=4 weight_bytes=(\d+) stage=(\d) layers=(\d)-(\d)", log)
    assert [(r[0], *r[2:]) for r in ranks] == [
        ("0", "0", "0", "3"), ("1", "0", "0", "3"), ("2", "1", "4", "7"), ("3", "1", "4", "7")
    ], log
    assert "2 stages of 2 ranks of cpu" in log
    alone = start(model="")
    want = [alone.complete(**ask)["choices"] for ask in asks]
    with ThreadPoolExecutor(len(asks)) as pool:
        got = list(pool.map(lambda ask: server.complete(**ask)["choices"], asks))
    assert got == want


def test_refused():
    result = run("generate", "-p", "x", "--tensor-parallel-size", "8")
    assert result.returncode == 2 and "possible: 1, 2, 4" in result.stderr
    result = run("generate", "-p", "x", "--tensor-parallel-size", "4", "--pipeline-parallel-size", "5")
    assert result.returncode == 2 and "makes 20 ranks; at most 16 work together" in result.stderr


def test_perplexity(tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little girl who had a red ball. " * 8)
    one, two = (run("perplexity", "--file", text, "--tensor-parallel-size", n) for n in (1, 2))
    assert one.returncode == 0 and two.returncode == 0, two
    number = re.compile(r"perplexity[^0-9]*([0-9.]+)")
    assert number.search(one.stdout)[1] == number.search(two.stdout)[1]


@pytest.mark.parametrize("flag", ["--tensor-parallel-size", "--pipeline-parallel-size"])
def test_rank_fails(start, flag):
    """A rank that fails at step 2 fails the engine: the request gets 503, the process exits with 70."""
    server = start(flag, "2", model="", env=faulty(rank=1, step=2))
    got = server.post("/v1/completions", {"prompt": "The cat", "max_tokens": 12})
    assert got.status == 503 and got.json()["error"]["code"] == "engine_unavailable", got
    assert server.wait() == 70
    assert "the device of rank 1 fails" in server.tail()
    server.stopped = True
    server.check_log()
    server.discard_log()


@pytest.mark.parametrize("tensor, own, loading", [(2, {}, {"EAGER"}), (2, {"CUDA_MODULE_LOADING": "LAZY"}, {"LAZY"}), (1, {}, set())])
def test_kernels_are_loaded_early(tmp_path, tensor, own, loading):
    """GPUs that wait for each other within kernels load theirs when they are opened, unless the user has said otherwise."""
    trace = tmp_path / "trace"
    got = run("generate", "-p", "x", "-n", "2", "--tensor-parallel-size", tensor, env=faulty(trace=trace) | own)
    assert got.returncode == 0, got
    lines = [line.split() for line in trace.read_text().splitlines()]
    assert {word for _, verb, word in lines if verb == "loads"} == loading
    assert len([verb for _, verb, _ in lines if verb == "begins"]) > 0
