"""guidellm: a short benchmark of completions and one of chat; what it measured is what the server gives without it."""

import json
import os
import subprocess
import sys

import pytest

PROMPTS = ["Once upon a time", "Tell me a story about a dog", "Lily had a red ball", "One day, a cat"]
TOKENS = 12


def ask(server, kind, prompt):
    what = {"prompt": prompt} if kind == "text_completions" else {"messages": [{"role": "user", "content": prompt}]}
    path = "/v1/completions" if kind == "text_completions" else "/v1/chat/completions"
    reply = server.post(path, {**what, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}).json()
    choice = reply["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"], reply["usage"]


@pytest.mark.parametrize("kind", ["text_completions", "chat_completions"])
@pytest.mark.parametrize("rate", [["synchronous"], ["concurrent", "--rate", "3"], ["throughput"]], ids=lambda rate: rate[0])
def test_benchmark(server, kind, rate, tmp_path):
    data, output = tmp_path / "data.jsonl", tmp_path / "output.json"
    data.write_text("".join(json.dumps({"prompt": prompt, "output_tokens_count": TOKENS}) + "\n" for prompt in PROMPTS))
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"),
                        "GUIDELLM__PREFERRED_ROUTE": kind}  # fmt: skip
    command = [sys.executable, "-m", "guidellm", "benchmark", "run", "--target", server.url, "--data", str(data), "--disable-progress"]
    command += ["--rate-type", *rate, "--max-requests", str(len(PROMPTS)), "--output-path", str(output)]
    command += ["--backend-args", json.dumps({"extra_body": {"temperature": 0}})]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    [benchmark] = json.loads(output.read_text())["benchmarks"]
    assert benchmark["request_totals"] == {"successful": len(PROMPTS), "errored": 0, "incomplete": 0, "total": len(PROMPTS)}
    seen = set()
    for one in benchmark["requests"]["successful"]:
        text, usage = ask(server, kind, one["prompt"])
        assert (one["request_type"], one["output"]) == (kind, text)
        assert (one["prompt_tokens"], one["output_tokens"]) == (usage["prompt_tokens"], TOKENS)
        assert one["start_time"] < one["first_token_time"] <= one["last_token_time"] <= one["end_time"]
        seen.add(one["prompt"])
    assert seen == set(PROMPTS)
