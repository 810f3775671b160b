"""--tensor-parallel-size: the same answers from several ranks, through commands and the server."""

import json
import re

import pytest

from process import run


def answer(*flags):
    result = run("generate", "-p", "Once upon a time", "-n", "16", "--json", "--logprobs", "3", *flags)
    assert result.returncode == 0, result
    body = json.loads(result.stdout)
    del body["timings"]
    return body


@pytest.mark.parametrize("ranks", [2, 4])
def test_same_answer(ranks):
    flags = ["--temperature", "0.8", "--seed", "3", "--top-k", "20"]
    assert answer("--tensor-parallel-size", ranks) == answer()
    assert answer("--tensor-parallel-size", ranks, *flags) == answer(*flags)


def test_served(start):
    ask = {"prompt": "The cat", "max_tokens": 12, "temperature": 0, "logprobs": 2}
    server = start("--tensor-parallel-size", "2", model="")
    log = server.tail()
    sizes = re.findall(r"rank=(\d) world=2 weight_bytes=(\d+)", log)
    assert [rank for rank, _ in sizes] == ["0", "1"] and len({size for _, size in sizes}) == 1, log
    assert "2 ranks of cpu" in log
    alone = start(model="")
    assert server.complete(**ask)["choices"] == alone.complete(**ask)["choices"]


def test_refused():
    result = run("generate", "-p", "x", "--tensor-parallel-size", "8")
    assert result.returncode == 2 and "possible: 1, 2, 4" in result.stderr


def test_perplexity(tmp_path):
    text = tmp_path / "text"
    text.write_text("Once upon a time there was a little girl who had a red ball. " * 8)
    one, two = (run("perplexity", "--file", text, "--tensor-parallel-size", n) for n in (1, 2))
    assert one.returncode == 0 and two.returncode == 0, two
    number = re.compile(r"perplexity[^0-9]*([0-9.]+)")
    assert number.search(one.stdout)[1] == number.search(two.stdout)[1]


def test_rank_fails(start):
    """A rank that fails at step 2 fails the engine: the request gets an error, the process exits with 70."""
    server = start("--tensor-parallel-size", "2", model="", env={"QUIRE_FAULT_RANK": "1", "QUIRE_FAULT_STEP": "2"})
    got = server.post("/v1/completions", {"prompt": "The cat", "max_tokens": 12})
    assert got.status in (500, 503), got
    assert server.wait() == 70
    assert "as QUIRE_FAULT_RANK asks" in server.tail()
    server.stopped = True
    server.check_log()
    server.discard_log()
