"""lm-evaluation-harness: choices by log-likelihood, perplexity and texts, by completions and by chat. Tasks are of this file."""

import json
import os
import subprocess
import sys

import pytest

from conftest import MODEL

DOCS = [
    {"question": "Once upon a time, there was a little", "choices": ["girl", "parliament"], "answer": 0},
    {"question": "The sun is", "choices": ["parliament", "bright"], "answer": 1},
]
# Ends of sentences and of words, a newline, a text of many tokens.
TEXTS = ["The sun is bright.", "Once upon a time, there was a little girl.\nShe had a dog, and the dog was called Max. " * 3]
TASK = """
task: quire_{name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{text}"
doc_to_target: "{target}"
{more}
"""
TASKS = {
    "choice": ("multiple_choice", "{{question}}", "{{answer}}", 'doc_to_choice: "{{choices}}"\nmetric_list: [{metric: acc}]'),
    "text": ("generate_until", "{{question}}", "{{choices[answer]}}",
             'generation_kwargs: {until: ["."], max_gen_toks: 20}\nmetric_list: [{metric: exact_match}]'),
    "rolling": ("loglikelihood_rolling", "", "{{question}}", "metric_list: [{metric: byte_perplexity}]"),
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluate(server, tmp_path_factory):
    """evaluate(model, path, names, arguments): the samples of each task, as the command lm_eval writes them."""
    folder = tmp_path_factory.mktemp("tasks")
    for name, (kind, text, target, more) in TASKS.items():
        docs = [{"question": text} for text in TEXTS] if name == "rolling" else DOCS
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, kind=kind, text=text, target=target, more=more, data=data))

    def evaluate(model, path, names, arguments, *flags):
        output = tmp_path_factory.mktemp("output")
        env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
        command = [sys.executable, "-m", "lm_eval", "run", "--model", model, "--include_path", str(folder), "--log_samples"]
        command += ["--tasks", ",".join("quire_" + name for name in names), "--output_path", str(output), *flags]
        command += ["--model_args", f"model={MODEL},base_url={server.url}{path},{arguments}"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]
        found = {}
        for name in names:
            [file] = output.rglob(f"samples_quire_{name}_*.jsonl")
            found[name] = sorted(map(json.loads, file.read_text().splitlines()), key=lambda sample: sample["doc_id"])
        return found

    return evaluate


@pytest.mark.parametrize("concurrent", [1, 3])
def test_completions(server, evaluate, concurrent):
    """It takes the tokenizer from /tokenizer_info and /tokenize, log-likelihoods from echo and logprobs."""
    found = evaluate("local-completions", "/v1/completions", TASKS, f"tokenizer_backend=remote,num_concurrent={concurrent}")
    assert [sample["acc"] for sample in found["choice"]] == [1, 1]
    for doc, sample in zip(DOCS, found["choice"], strict=True):
        for choice, [[value, _]] in zip(doc["choices"], sample["resps"], strict=True):
            body = {"prompt": f"{doc['question']} {choice}", "echo": True, "logprobs": 1, "max_tokens": 0}
            listed = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]
            want = sum(p for p, at in zip(listed["token_logprobs"], listed["text_offset"], strict=True) if at >= len(doc["question"]))
            assert float(value) == pytest.approx(want, abs=1e-4)
    info = server.get("/tokenizer_info").json()
    for text, sample in zip(TEXTS, found["rolling"], strict=True):
        begin, ids = (server.post("/tokenize", {"prompt": of, "add_special_tokens": False}).json()["tokens"] for of in (info["eos_token"], text))
        body = {"prompt": begin + ids, "echo": True, "logprobs": 1, "max_tokens": 0}
        listed = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]["token_logprobs"]
        assert len(begin) == 1 and float(sample["resps"][0][0]) == pytest.approx(sum(listed[1:]), abs=1e-3)
    texts = [sample["resps"][0][0] for sample in found["text"]]
    assert texts == [completion(server, doc["question"]) for doc in DOCS]


def completion(server, prompt):
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "stop": ["."]}
    return server.post("/v1/completions", body).json()["choices"][0]["text"]


def test_chat(server, evaluate):
    found = evaluate("local-chat-completions", "/v1/chat/completions", ["text"], "num_concurrent=2", "--apply_chat_template")
    for doc, sample in zip(DOCS, found["text"], strict=True):
        body = {"messages": [{"role": "user", "content": doc["question"]}], "max_tokens": 20, "temperature": 0, "stop": ["."]}
        assert sample["resps"] == [[server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]]]
