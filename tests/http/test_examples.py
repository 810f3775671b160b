"""examples/ does what it says: every example runs as a user would run it. (examples/engine.c: tests/examples.)"""

import os
import re
import shutil
import subprocess
import sys

import pytest

import goldens
from goldens import cases
from process import Server

EXAMPLES = goldens.ROOT / "examples"
KEY = "key-of-the-examples"


@pytest.fixture(scope="module")
def chat(chatml):
    """A server with a chat template and a key."""
    server = Server("--served-model-name", "the/model", model=chatml, key=KEY, env={"QUIRE_API_KEY": KEY})
    yield server
    server.stop()


def run(*command, **env):
    clean = {k: v for k, v in os.environ.items() if k not in ("QUIRE_API_KEY", "OPENAI_API_KEY")}
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=480, env=clean | env
    )


def answered(server):
    """How many answers each (route, status) has had."""
    samples = server.metrics().samples("quire:http_requests_total")
    return {(labels["route"], labels["status"]): value for labels, value in samples}


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_curl_reaches_every_route(chat):
    before = answered(chat)
    got = run(EXAMPLES / "curl.sh", chat.url, QUIRE_API_KEY=KEY)
    assert got.returncode == 0, got.stdout[-800:] + got.stderr
    after = answered(chat)
    new = {key for key, value in after.items() if value > before.get(key, 0)}
    assert {status for _, status in new} == {"200"}, new
    source = (goldens.ROOT / "server/endpoints/routes.c").read_text()
    routes = set(re.findall(r'^    \{(?:\.path = |BELOW\()"(/[^"]*)",', source, re.M))
    assert len(routes) > 10 and "/v1/completions" in routes
    # Servers with --pooling have these, and answer nothing else
    routes -= {"/v1/embeddings", "/v1/rerank", "/v1/score", "/api/embed", "/api/embeddings"}
    routes -= {"/v1/responses/"}  # of servers with --store
    routes -= {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}  # of servers with --lora-root
    routes -= {"/infill"}  # of models with tokens for it
    assert {re.sub(r"{\w+}$", "", route) for route, _ in new} == routes
    assert got.stdout.count("data: [DONE]") == 2
    assert '"id":"the/model"' in got.stdout and "# TYPE vllm:" in got.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_curl_fails_with_the_call(chat):
    got = run(EXAMPLES / "curl.sh", chat.url, QUIRE_API_KEY="another")
    assert got.returncode == 22 and "invalid_api_key" in got.stdout
    assert got.stdout.rstrip().splitlines()[-2].startswith("# curl " + chat.url + "/version")


def test_openai_client(chat):
    got = run(sys.executable, EXAMPLES / "openai_client.py", chat.url, OPENAI_API_KEY=KEY)
    assert got.returncode == 0, got.stdout + got.stderr
    lines = got.stdout.splitlines()
    assert lines[0] == "model: the/model"
    assert sum(line.startswith("logprobs: ") for line in lines) == 4
    errors = [line for line in lines if re.match(r"\w+Error: ", line)]
    assert errors[0].startswith("BadRequestError: temperature: ") and errors[1:] == [
        "BadRequestError: context_length_exceeded",
        "NotFoundError: model_not_found",
        "AuthenticationError: invalid_api_key",
    ]


def test_stream(start):
    """The same text as a whole response: --seed makes the first samples of two servers the same."""
    prompt = cases()[0]["prompt"]
    got = run(sys.executable, EXAMPLES / "stream.py", start("--seed", "5").url, prompt, 48)
    assert got.returncode == 0, got.stderr
    whole = start("--seed", "5").complete(prompt, max_tokens=48, temperature=0.7)
    assert got.stdout == whole["choices"][0]["text"] + "\n"
