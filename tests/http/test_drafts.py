"""--speculative-method: drafts from the text itself change how fast, never what; and the flag says who gets them."""

import concurrent.futures

import pytest

import goldens
from process import BINARY, run
from test_lora import write_adapter

QUIRE_TINY = goldens.ROOT / "models/quire-tiny.gguf"
MODELS = BINARY.parent / "tests/golden-models"  # of random weights
STORY = "Tom had a red ball. Tom had a red ball. Tom had a red"
REQUESTS = [
    {"temperature": 0, "max_tokens": 120, "logprobs": 3},
    {"temperature": 1, "seed": 7, "max_tokens": 120, "logprobs": 1},
    {"temperature": 0.3, "seed": 1, "n": 3, "max_tokens": 60},
    {"temperature": 0, "max_tokens": 90, "stop": ["girl"], "presence_penalty": 0.7},
    {"temperature": 0, "max_tokens": 90, "logit_bias": {"402": 3.5}, "min_tokens": 80},
    {"temperature": 0.7, "seed": 3, "max_tokens": 60, "structured_outputs": {"regex": "( ball| red| Tom){5,40}"}},
    {"temperature": 1, "seed": 3, "max_tokens": 60, "structured_outputs": {"choice": [" ball. Tom had a red ball. Tom had", " ball. Tom had a red hat"]}},
]


def drafted(server):
    page = server.metrics()
    return [page.value(f"vllm:spec_decode_num_{name}_total") for name in ("draft_tokens", "accepted_tokens")]


def answers(server):
    return [server.complete(STORY, ignore_eos=True, **fields)["choices"] for fields in REQUESTS]


@pytest.mark.parametrize("flags", [(), ("--tensor-parallel-size", "2"), ("--pipeline-parallel-size", "2"), ("--max-num-batched-tokens", "16", "--max-num-seqs", "8")], ids=" ".join)
def test_the_same_tokens_and_bits(start, flags):
    plain = start("--speculative-method", "none", *flags)
    quick = start("--speculative-method", "ngram", *flags)
    want = answers(plain)
    assert answers(quick) == want
    assert plain.stream(STORY, max_tokens=60, logprobs=1).choices == quick.stream(STORY, max_tokens=60, logprobs=1).choices
    tokens, right = drafted(quick)
    assert tokens > right > 0, "no draft was tried, or all were right"


@pytest.mark.parametrize("family", ["gemma3", "gpt-oss", "deepseek2", "qwen35", "granitehybrid", "lfm2"])
def test_windows_and_states_are_taken_back(start, family):
    """Drafts with layers that keep a window, experts, latents or recurrent states."""
    path = MODELS / f"{family}.gguf"
    if not path.exists():
        pytest.skip(f"no {path}: it is made by the tests' build")
    ids = [5 + i * i % 50 for i in range(20)]
    found = []
    for method in ("none", "ngram"):
        server = start("--speculative-method", method, "--max-model-len", 256, model=path)
        fields = dict(max_tokens=100, ignore_eos=True, logprobs=1, return_token_ids=True, allowed_token_ids=ids[:4])
        found.append([server.complete(ids * 3, temperature=t, seed=5, **fields)["choices"] for t in (0, 1)])
    assert found[0] == found[1]
    tokens, right = drafted(server)
    assert tokens > right, "no draft was wrong"


def test_who_gets_them(start):
    """By default on a CPU, and not where they are switched off."""
    usual, plain = start(), start("--speculative-method", "none")
    for server in (usual, plain):
        server.complete(STORY * 3, max_tokens=100, ignore_eos=True, temperature=0)
    assert drafted(usual)[0] > 0
    assert drafted(plain)[0] == 0


def test_a_draft_model(start, model, tmp_path):
    """--speculative-model: what it drafts changes no bit, beside prompts, grammars, stop strings and adapters."""
    write_adapter(tmp_path / "tuned", seed=3)
    flags = ("--lora-modules", f"tuned={tmp_path / 'tuned'}")
    plain = start("--speculative-method", "none", *flags)
    quick = start("-md", model, *flags)
    found = []
    for server in (plain, quick):
        more = [server.complete(STORY, model="tuned", temperature=t, seed=2, max_tokens=80, logprobs=2)["choices"] for t in (0, 1)]
        found.append(answers(server) + more)
    assert found[0] == found[1]
    assert drafted(quick)[0] > drafted(plain)[0]  # a grammar drafts, too
    assert quick.metrics().value("quire:step_seconds_total", part="draft") > 0


@pytest.mark.parametrize("name", ["glm4moe.gguf", "deepseek2-v3.gguf", "qwen35.gguf", "glm4moe", "deepseek2-v3", "qwen35"])
def test_an_mtp_layer(start, name):
    """Of a file and of a folder: what it drafts changes no bit, for 16 clients at a time."""
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"no {path}: it is made by the tests' build")
    found, flags = [], ("--max-model-len", 256, "--max-num-batched-tokens", 32, "--max-num-seqs", 16)
    for method in ("none", "mtp"):
        server = start("--speculative-method", method, *flags, model=path)

        def ask(i, server=server):
            ids = [5 + i // 2 * k % 50 for k in range(10 + i)]  # each second one finds the first's in the cache
            return server.complete(ids, temperature=i % 3 / 2, seed=i, max_tokens=100, ignore_eos=True, logprobs=1, return_token_ids=True)["choices"]

        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            found.append(list(clients.map(ask, range(16))))
    assert found[0] == found[1]
    assert "mtp_layer=" in server.log()  # whether its drafts pay is another matter
    assert "drafts (--speculative-method)" in run("inspect", path).stdout


@pytest.mark.parametrize(
    "flags, why",
    [
        (("--speculative-method", "mtp"), "the file has no MTP layer"),
        (("--speculative-model", QUIRE_TINY), "another tokenizer than the model that it drafts for"),
        (("--speculative-model", "/nowhere.gguf"), "/nowhere.gguf"),
        (("--speculative-config", "{}"), "--speculative-model FILE"),
    ],
    ids=["no layer", "tokenizer", "file", "foreign flag"],
)
def test_who_cannot_draft(model, flags, why):
    done = run("serve", model, "--port", "0", *flags)
    assert done.returncode in (1, 2) and why in done.stderr


def test_what_keeps_a_state_cannot_draft(model):
    path = MODELS / "qwen35.gguf"
    if not path.exists():
        pytest.skip(f"no {path}: it is made by the tests' build")
    done = run("serve", path, "--port", "0", "--max-model-len", 256, "--speculative-model", path)
    assert done.returncode == 2 and "recurrent layers cannot draft" in done.stderr


def test_a_prediction(start):
    """OpenAI's field: drafts come from a text that the client expects; the output is the same with any."""
    flags = ("--chat-template", "chatml")
    plain, quick = start("--speculative-method", "none", *flags), start(*flags)

    def chat(server, **fields):
        body = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 80, "temperature": 0.8, "seed": 4}
        reply = server.post("/v1/chat/completions", body | fields)
        return reply.json()["choices"][0]["message"]["content"] if reply.status == 200 else reply.json()["error"]

    want = chat(plain)
    counts = []
    for content in (want, [{"type": "text", "text": want[:100]}, {"type": "text", "text": want[100:]}], "quite another text"):
        before = drafted(quick)[1]
        assert chat(quick, prediction={"type": "content", "content": content}) == want
        counts.append(drafted(quick)[1] - before)
    assert chat(plain, prediction={"type": "content", "content": want}) == want and drafted(plain)[0] == 0
    assert counts[0] > counts[2], "a right prediction gave no drafts"
    for bad in ({"content": "x"}, {"type": "content"}, "x", {"type": "content", "content": [{"type": "text"}]}):
        assert chat(quick, prediction=bad)["param"] == "prediction"
