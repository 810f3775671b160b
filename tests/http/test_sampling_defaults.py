"""Defaults of sampling parameters that a request does not set: request, flag, model, built-in, in this order."""

import json
import subprocess
import sys

import pytest

import goldens
from process import BINARY, Server, run
from wire import outcome

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    """A model whose file recommends greedy sampling, in its own words: the best token."""
    path = tmp_path_factory.mktemp("advice") / "advised.gguf"
    keys = ("sampling.temp=0.75", "sampling.top_k=1", "sampling.top_p=0.9")
    tool = goldens.ROOT / "tests/tools/make_gguf.py"
    subprocess.run([sys.executable, str(tool), str(path), *(f"--general={k}" for k in keys)], check=True)
    return path


def ask(server, **fields):
    body = {"prompt": PROMPT, "max_tokens": 12, "seed": 3, **fields}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200, reply
    return outcome(reply.json())


def plain(start, model):
    """Outcomes of a server that knows no advice, with everything said."""
    return start("--generation-config", "vllm", model=model)


def test_the_models_advice(start, advised):
    bare, server = plain(start, advised), start(model=advised)
    assert "sampling_defaults source=model" in server.log()
    own = {"temperature": 0.75, "top_k": 1, "top_p": 0.9}
    assert ask(server) == ask(bare, **own) != ask(bare)
    assert ask(server, temperature=2, top_k=0) == ask(bare, temperature=2, top_p=0.9)  # the request's word goes first
    assert ask(server, temperature=None) == ask(server)
    assert "sampling_defaults" not in bare.log()


def test_the_flag_goes_before_the_model(start, advised):
    given = {"temperature": 1.5, "top_k": 0, "repetition_penalty": 1.2}
    bare, server = plain(start, advised), start("--override-generation-config", json.dumps(given), model=advised)
    log = server.log()
    assert "sampling_defaults source=model" in log and "sampling_defaults source=flag" in log
    assert ask(server) == ask(bare, top_p=0.9, **given)
    assert ask(server, top_k=1, top_p=1) == ask(bare, temperature=1.5, repetition_penalty=1.2, top_k=1)


def test_a_file(start, advised, tmp_path):
    """generation_config.json as models bring it: what is no default of requests is passed over."""
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"do_sample": True, "eos_token_id": [1, 2], "temperature": 1.8, "top_k": 30}))
    bare, server = plain(start, advised), start("--generation-config", str(path), model=advised)
    assert ask(server) == ask(bare, temperature=1.8, top_k=30)


@pytest.mark.parametrize(
    "flags",
    [
        ("--override-generation-config", "{"), ("--override-generation-config", "[]"),
        ("--override-generation-config", '{"temperature": 3}'), ("--override-generation-config", '{"do_sample": true}'),
        ("--generation-config", "/nowhere.json"),
    ],
)  # fmt: skip
def test_bad_flags(advised, flags):
    done = run("serve", str(advised), "--port", "0", *flags)
    assert done.returncode == 2 and flags[0] in done.stderr
