"""The embedded model: found without being named, and its answers, template and token ids as PyTorch and Jinja gave them."""

import json
import shutil
import subprocess

import pytest

import goldens
from process import BINARY, Server, environment, run
from wire import parse_events

MODEL = goldens.ROOT / "models/quire-tiny.gguf"
GOLDEN = json.loads((goldens.ROOT / "tests/model/quire-tiny.golden.json").read_text())
CHAT = "/v1/chat/completions"
WHO = [{"role": "user", "content": "Who are you?"}]


def golden_case(messages):
    """The case of these messages: prompt, prompt_ids, greedy_ids, greedy_text."""
    (text,) = [
        t["expected"]
        for t in GOLDEN["templates"]
        if t["context"]["messages"] == messages and t["context"]["add_generation_prompt"]
    ]
    return next(c for c in GOLDEN["cases"] if c["prompt"] == text)


def test_served_by_its_name(tiny):
    (model,) = tiny.get("/v1/models").json()["data"]
    assert model["id"] == "quire-tiny"


def test_chat(tiny):
    """Template, ids, answer and end are those of the golden file, whole and streamed."""
    golden = golden_case(WHO)
    body = {"messages": WHO, "temperature": 0, "max_tokens": 60}
    answer = tiny.post(CHAT, body).json()
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == golden["greedy_text"] and choice["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == len(golden["prompt_ids"])
    assert answer["usage"]["completion_tokens"] == len(golden["greedy_ids"])
    events = parse_events(tiny.post(CHAT, body | {"stream": True}).body)
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e != "[DONE]" and e["choices"])
    assert text == golden["greedy_text"]


def test_ids(tiny):
    for golden in GOLDEN["cases"]:
        reply = tiny.post("/tokenize", {"content": golden["prompt"], "parse_special": golden["parse_special"]})
        assert reply.json()["tokens"] == golden["prompt_ids"]
        back = tiny.post("/detokenize", {"tokens": golden["prompt_ids"]}).json()
        assert back.get("prompt", back.get("content")) == golden["prompt"]


def num_clear(golden):
    """Tokens before the first one whose two best PyTorch has so near that activations of 8 bits may prefer the other."""
    margins = [step["top5"][0][1] - step["top5"][1][1] for step in golden["steps"]]
    return next((i for i, margin in enumerate(margins) if margin < 0.05), len(margins))


def test_commands():
    plain = next(c for c in GOLDEN["cases"] if not c["parse_special"])
    done = run("generate", "--raw", "-p", plain["prompt"], "-n", len(plain["greedy_ids"]), "--temperature", 0, "--json")
    assert done.returncode == 0, done.stderr
    tokens, n = json.loads(done.stdout)["tokens"], num_clear(plain)
    assert n > 10 and tokens[:n] == plain["greedy_ids"][:n] and len(tokens) == len(plain["greedy_ids"])
    done = run("inspect")
    assert done.returncode == 0 and str(MODEL) in done.stdout and "quire-tiny" in done.stdout
    done = run("tokenize", "--ids", plain["prompt"])
    assert done.stdout.split() == [str(i) for i in plain["prompt_ids"]]


def test_perplexity(tmp_path):
    text = tmp_path / "story.txt"
    text.write_text("Once upon a time there was a little fox named Lily.")
    done = run("perplexity", "--file", text)
    assert done.returncode == 0 and "perplexity" in done.stdout, done


def test_offsets_after_nothing(tiny):
    """A vocabulary of bytes adds no space before a text, so none is missing from its offsets."""
    (token,) = tiny.post("/tokenize", {"prompt": " fox", "add_special_tokens": False}).json()["tokens"]
    (choice,) = tiny.complete("", max_tokens=3, temperature=0, logprobs=1, logit_bias={str(token): 100})["choices"]
    assert choice["text"] == " fox" * 3
    assert choice["logprobs"]["text_offset"] == [0, 4, 8]


def test_named_model_wins(model):
    """With MODEL given the embedded one is not looked at."""
    assert "quire-tiny" not in run("inspect", model).stdout


def test_installed(tmp_path):
    """`cmake --install` puts a binary that needs no other file; a model in ../share/quire wins over the linked one."""
    cmake = shutil.which("cmake")
    if not cmake or not (BINARY.parent / "CMakeCache.txt").exists():
        pytest.skip("no cmake, or a binary outside its build folder")
    subprocess.run([cmake, "--install", str(BINARY.parent), "--prefix", str(tmp_path)], check=True, capture_output=True)
    installed, model = tmp_path / "bin/quire", tmp_path / "share/quire/quire-tiny.gguf"
    assert not model.exists()

    def inspect():
        return subprocess.run([str(installed), "inspect"], capture_output=True, text=True, env=environment(), timeout=60)

    done = inspect()
    assert done.returncode == 0 and "quire-tiny" in done.stdout, done
    model.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(MODEL, model)
    done = inspect()
    assert done.returncode == 0 and str(model) in done.stdout, done


def test_generate_answers():
    """A prompt is a message where the model has a chat template: the answer is the server's; --raw goes on from the text."""
    question = "Who are you?"
    answer = run("generate", "-p", question)
    assert answer.returncode == 0 and "quire-tiny" in answer.stdout, answer
    server = Server(model="")
    try:
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 64}
        said = server.post("/v1/chat/completions", body).json()
        assert answer.stdout == said["choices"][0]["message"]["content"] + "\n"
    finally:
        server.stop()
    whole = json.loads(run("generate", "-p", question, "--json").stdout)
    assert whole["usage"]["prompt_tokens"] == said["usage"]["prompt_tokens"]
    raw = json.loads(run("generate", "-p", question, "--json", "--raw").stdout)
    assert raw["prompt_tokens"] == [int(i) for i in run("tokenize", "--ids", question).stdout.split()]
    assert run("generate", MODEL, question).stdout == answer.stdout  # as Ollama's and vLLM's users write it
    for words in ([MODEL, question, "twice"], [MODEL, "twice", "-p", question]):
        done = run("generate", *words)
        assert done.returncode == 2 and "one MODEL and one TEXT, found 'twice'" in done.stderr
    assert json.loads(run("generate", "-p", "", "--json").stdout)["usage"]["prompt_tokens"] == 1
    assert run("generate", "-p", "\udcff", "--raw").returncode == 0
    assert run("generate", "-p", "\udcff").returncode == 2
    assert run("generate", "-p", question, "--chat-template", "/nowhere/x").returncode == 2


def test_one_copied_file_talks(tmp_path):
    """The binary alone, in an empty folder: it generates and serves what the model of the source tree does."""
    golden, alone = next(c for c in GOLDEN["cases"] if not c["parse_special"]), tmp_path / "quire"
    shutil.copy(BINARY, alone)
    args = ["generate", "--raw", "-p", golden["prompt"], "-n", "16", "--json"]
    here = subprocess.run([str(BINARY), *args], capture_output=True, text=True, env=environment(), timeout=60)
    done = subprocess.run(
        [str(alone), *args], cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] == json.loads(here.stdout)["tokens"]
    server = Server(model="", binary=alone)
    try:
        (model,) = server.get("/v1/models").json()["data"]
        assert model["id"] == "quire-tiny"
    finally:
        server.stop()
