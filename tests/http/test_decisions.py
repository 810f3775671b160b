"""/v1/systemone and /classify: the forms of Ollama, TypeSafe and vLLM, probabilities that are those of completions, one prefill for
all questions, and the same bits in any company."""

import contextlib
import math
import subprocess
import sys
import threading

import goldens
import pytest
from process import SLOW
from wire import check_error, wait_for

TICKET = "Our checkout has returned 500 errors since 9am."
LABELS = {"billing": "Payments and refunds", "bug": "Software errors", "bulk": "Many orders at once", "account": None}
CHOICE = {"type": "choice", "instructions": "Which label fits this ticket?", "criteria": LABELS}
NOUL = {"type": "noul", "instructions": "Is it urgent?", "criteria": {"false": "It can wait", "true": "It cannot wait"}}
SCORE = {"type": "score", "instructions": "How urgent is it?", "criteria": ["Routine", "Soon", "Immediate"]}
LISTED = "billing: Payments and refunds\nbug: Software errors\nbulk: Many orders at once\naccount"


def decide(server, state, questions, **fields):
    response = server.post("/v1/systemone", {"state": state, "questions": questions} | fields)
    assert response.status == 200, response.json()
    return response.json()


def answer(server, question, state=TICKET, **fields):
    return decide(server, state, {"q": question}, **fields)["answers"]["q"]


def near(a, b):
    return a == pytest.approx(b, abs=1e-6)


def computed(server):
    """Tokens of prompts that the server has computed."""
    metrics = server.metrics()
    return metrics.value("vllm:prompt_tokens_total") - metrics.value("vllm:prefix_cache_hits_total")


def test_forms(tiny):
    reply = decide(tiny, {"ticket": TICKET}, {"label": CHOICE, "refund": NOUL, "urgency": SCORE})
    label, refund, urgency = (reply["answers"][name] for name in ("label", "refund", "urgency"))
    assert reply["model"] == "quire-tiny" and list(reply["answers"]) == ["label", "refund", "urgency"]
    assert set(label) == {"type", "choice", "probabilities", "confidence"} and label["type"] == "choice"
    assert list(label["probabilities"]) == list(LABELS)
    assert label["choice"] == max(label["probabilities"], key=label["probabilities"].get)
    assert set(refund) == {"type", "noul"} and refund["type"] == "noul" and 0 < refund["noul"] < 1
    assert set(urgency) == {"type", "score", "legend", "probabilities", "confidence"}
    assert urgency["legend"] == {"0": "Routine", "1": "Soon", "2": "Immediate"}
    assert near(urgency["score"], urgency["probabilities"]["1"] + 2 * urgency["probabilities"]["2"])
    for one in (label, urgency):
        shares = list(one["probabilities"].values())
        assert near(sum(shares), 1) and all(0 < p < 1 for p in shares)
        assert near(one["confidence"], 1 + sum(p * math.log(p) for p in shares) / math.log(len(shares)))
    usage = reply["usage"]
    assert usage["output_tokens"] == 0 and 100 < usage["input_tokens"] < 300
    assert usage["input_tokens_details"]["cached_tokens"] < usage["input_tokens"]
    again = decide(tiny, {"ticket": TICKET}, {"label": CHOICE, "refund": NOUL, "urgency": SCORE})
    assert again["answers"] == reply["answers"]
    assert usage["input_tokens"] - again["usage"]["input_tokens_details"]["cached_tokens"] <= 16 * 3  # a block of each prompt


def test_classify(tiny):
    reply = tiny.post("/classify", {"input": [TICKET, "I was charged twice."], "labels": LABELS, "instructions": CHOICE["instructions"]}).json()
    assert set(reply) == {"id", "object", "created", "model", "data", "usage"}
    assert reply["object"] == "list" and reply["id"].startswith("classify-")
    for i, (one, text) in enumerate(zip(reply["data"], [TICKET, "I was charged twice."])):
        wanted = answer(tiny, CHOICE, text)
        assert one == {"index": i, "label": wanted["choice"], "probs": list(wanted["probabilities"].values()), "num_classes": 4}
    usage = reply["usage"]
    assert usage["completion_tokens"] == 0 and usage["prompt_tokens"] == usage["total_tokens"]
    single = tiny.post("/classify", {"input": TICKET, "labels": ["bug", "account"]}).json()["data"]
    assert len(single) == 1 and single[0]["num_classes"] == 2


# ---- the probabilities are those of completions


def prompt_ids(server, question):
    body = {"messages": [{"role": "user", "content": f"{TICKET}\n\n{question}"}]}
    return server.post("/tokenize", body).json()["tokens"]


def option_ids(server, option):
    return server.post("/tokenize", {"prompt": option, "add_special_tokens": False}).json()["tokens"]


def shares(server, prompt, ids, wanted):
    """The log-probabilities of the tokens `wanted` behind prompt and ids."""
    body = {"prompt": prompt + ids, "max_tokens": 1, "logprobs": len(wanted), "logprob_token_ids": wanted, "temperature": 0, "return_tokens_as_token_ids": True}
    top = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]["top_logprobs"][0]
    return {token: top[f"token_id:{token}"] for token in wanted}


def test_sequence(tiny):
    """A whole option's probability is the product of its tokens' conditional ones, among all options."""
    prompt = prompt_ids(tiny, f"{CHOICE['instructions']}\n{LISTED}\nName only.")
    ids = {name: option_ids(tiny, name) for name in LABELS}
    assert max(map(len, ids.values())) > 1
    logs = {name: sum(shares(tiny, prompt, tokens[:i], [t])[t] for i, t in enumerate(tokens)) for name, tokens in ids.items()}
    total = sum(map(math.exp, logs.values()))
    found = answer(tiny, CHOICE, method="sequence")["probabilities"]
    for name, log in logs.items():
        assert near(found[name], math.exp(log) / total), name
    assert found != answer(tiny, CHOICE)["probabilities"]


def tell_apart(server, prompt, options, behind=(), factor=1):
    """The share of each option by the tokens that tell options apart, of {option: its tokens}."""
    if len(options) == 1:
        return dict.fromkeys(options, factor)
    groups, out = {}, {}
    for name, tokens in options.items():
        groups.setdefault(tokens[len(behind)], {})[name] = tokens
    logs = shares(server, prompt, [*behind], list(groups))
    total = sum(map(math.exp, logs.values()))
    for token, group in groups.items():
        out |= tell_apart(server, prompt, group, (*behind, token), factor * math.exp(logs[token]) / total)
    return out


def test_first_tokens(tiny):
    """Without `sequence` only the tokens count that tell options apart: the first, and more where that is the same."""
    options = {name: option_ids(tiny, name) for name in LABELS}
    assert len({tokens[0] for tokens in options.values()}) < len(LABELS)  # some share their first token
    wanted = tell_apart(tiny, prompt_ids(tiny, f"{CHOICE['instructions']}\n{LISTED}\nName only."), options)
    found = answer(tiny, CHOICE)["probabilities"]
    assert all(near(found[name], p) for name, p in wanted.items()), (found, wanted)


def test_an_option_that_begins_another(tiny):
    """It has to end: the model's end of text stands for that."""
    two = {"bug": "An error", "bug report": "A report of one"}
    prompt = prompt_ids(tiny, "What is it?\nbug: An error\nbug report: A report of one\nName only.")
    short, long = option_ids(tiny, "bug"), option_ids(tiny, "bug report")
    assert long[: len(short)] == short
    [end] = tiny.post("/tokenize", {"content": "<|im_end|>", "add_special": False, "parse_special": True}).json()["tokens"]
    logs = shares(tiny, prompt, short, [end, long[len(short)]])
    found = answer(tiny, {"type": "choice", "instructions": "What is it?", "criteria": two})["probabilities"]
    assert near(found["bug"], math.exp(logs[end]) / (math.exp(logs[end]) + math.exp(logs[long[len(short)]])))


def test_permutations(tiny):
    """Of as many as there are options, it does not matter where one stands; of one it does."""
    names = list(LABELS)
    turned = CHOICE | {"criteria": {name: LABELS[name] for name in names[1:] + names[:1]}}
    first, second = answer(tiny, CHOICE)["probabilities"], answer(tiny, turned)["probabilities"]
    assert not near(first["bug"], second["bug"])
    all_of_them = answer(tiny, CHOICE, permutations=4)["probabilities"]
    again = answer(tiny, turned, permutations=16)["probabilities"]  # more than there are: all
    assert all(near(all_of_them[name], again[name]) for name in names)
    flipped = {"type": "noul", "instructions": "Is it urgent?"}
    assert answer(tiny, flipped) != answer(tiny, flipped, permutations=2)


def test_without_a_chat_template(server):
    """A text goes on behind `Answer:`."""
    question = {"type": "choice", "instructions": "Who is it?", "criteria": {"she": "a girl", "he": "a boy"}}
    ids = {text: server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in ("x", "x she", "x he")}
    options = {name: ids[f"x {name}"][len(ids["x"]) :] for name in ("she", "he")}
    text = "Once upon a time\n\nWho is it?\nshe: a girl\nhe: a boy\nName only.\nAnswer:"
    wanted = tell_apart(server, server.post("/tokenize", {"prompt": text}).json()["tokens"], options)
    found = answer(server, question, "Once upon a time")["probabilities"]
    assert near(found["she"], wanted["she"])


THINKS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
OPENED{% endif %}{# <tool_call> </tool_call> <think> </think> #}"""


@pytest.mark.parametrize(("opened", "before"), [("<think>\n", "\n</think>\n\n"), ("", "<think>\n\n</think>\n\n")], ids=["opened", "not"])
def test_reasoning_is_closed(start, tmp_path, opened, before):
    """The answer is read where it begins: behind the end of reasoning, whether the template or the model opens it."""
    (tmp_path / "thinks.jinja").write_text(THINKS.replace("OPENED", opened))
    server = start("--chat-template", tmp_path / "thinks.jinja", "--tool-call-parser", "hermes", model="")
    text = f"<|im_start|>user\n{TICKET}\n\nIs it?\nYes or No?<|im_end|>\n<|im_start|>assistant\n{opened}{before}"
    prompt = server.post("/tokenize", {"content": text, "add_special": False, "parse_special": True}).json()["tokens"]
    yes, no = (option_ids(server, word)[0] for word in ("Yes", "No"))
    logs = shares(server, prompt, [], [yes, no])
    found = answer(server, {"type": "noul", "instructions": "Is it?"})["noul"]
    assert near(found, math.exp(logs[yes]) / (math.exp(logs[yes]) + math.exp(logs[no])))


# ---- company, cost


QUESTIONS = {f"q{i}": {"type": "noul", "instructions": f"Is it {word}?"} for i, word in enumerate(
    ["red", "big", "late", "far", "old", "new", "hot", "dry", "sad", "odd"])}  # fmt: skip


def test_same_bits_alone_and_in_company(start, tiny):
    questions = QUESTIONS | {"choice": CHOICE, "score": SCORE}
    alone = {name: answer(tiny, question) for name, question in questions.items()}
    stop = threading.Event()

    def noise():
        while not stop.is_set():
            tiny.post("/v1/completions", {"prompt": "What is the weather", "max_tokens": 20, "n": 3})

    threads = [threading.Thread(target=noise) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert decide(tiny, TICKET, questions)["answers"] == alone
        assert decide(tiny, TICKET, questions, cache_salt="x")["answers"] == alone
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for flags in (["--no-enable-prefix-caching"], ["--max-num-seqs", "2", "--max-num-batched-tokens", "64"], ["--threads", "2"]):
        assert decide(start(*flags, model=""), TICKET, questions)["answers"] == alone, flags


STATES = ["--arch", "qwen35", "--attention", "2", "--states", "2,2,16,16", "--taps", "4", "--layers", "4", "--head-dim", "32", "--rope-dim", "16"]


@pytest.mark.parametrize("shape", [[], STATES], ids=["attention", "states"])
def test_one_prefill(start, tmp_path, shape):
    """Ten questions about a text of 4,000 tokens compute at most 1.15 times its tokens: they wait for its blocks, or its state."""
    model = tmp_path / "long.gguf"
    subprocess.run([sys.executable, goldens.ROOT / "tests/tools/make_gguf.py", model, "--chatml", "--context", "8192", *shape], check=True)
    server = start(model=model)
    ids = [300 + i * 7 % 100 for i in range(4000)]
    state = server.post("/detokenize", {"tokens": ids}).json()["prompt"]
    num = len(server.post("/tokenize", {"prompt": state, "add_special_tokens": False}).json()["tokens"])
    assert num >= 4000
    before = computed(server)
    usage = decide(server, state, QUESTIONS)["usage"]
    assert num < computed(server) - before <= 1.15 * num
    assert num < usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"] <= 1.15 * num


# ---- what is refused, clients that leave


def test_a_prompt_that_begins_another(server):
    """Without a template a question may end as another one goes on."""
    longer = {"type": "noul", "instructions": "I?\nYes or No?\nAnswer: No\nI?"}
    for num in range(16):  # wherever the block ends
        state, questions = "Once upon a time. " * 50 + "a " * num, {"a": {"type": "noul", "instructions": "I?"}, "b": longer}
        assert decide(server, state, questions)["answers"]["a"] == answer(server, questions["a"], state)


def test_refused(tiny, start):
    for body, code in (
        ({"state": "a", "questions": {"q": NOUL}, "images": ["x"]}, "unsupported_parameter"),
        ({"state": "a", "questions": {"q": NOUL | {"type": "box"}}}, "out_of_range"),
        ({"state": "a", "questions": {str(i): NOUL for i in range(65)}}, "out_of_range"),
        ({"state": "word " * 3000, "questions": {"q": NOUL}}, "context_length_exceeded"),
        ({"state": "a", "questions": {"q": CHOICE | {"criteria": {f"option {i}": "" for i in range(255)}} }, "model": "other"}, "model_not_found"),
    ):  # fmt: skip
        response = tiny.post("/v1/systemone", body)
        check_error(response, (400, 404))
        assert response.json()["error"]["code"] == code
    letters = [chr(0x100 + i) for i in range(255)]
    check_error(tiny.post("/classify", {"input": ["a"] * 1000, "labels": letters}), 400, param="labels")
    names = {f"{i:03d}" + "x" * 253: "" for i in range(255)}
    check_error(tiny.post("/v1/systemone", {"state": "a", "questions": {str(i): CHOICE | {"criteria": names} for i in range(64)}}), 400, code="out_of_range")
    many = {str(i): NOUL for i in range(64)}
    check_error(tiny.post("/v1/systemone", {"state": "x" * 600_000, "questions": many}), 400)
    told = tiny.post("/v1/systemone", {"state": "a", "questions": {"q": NOUL | {"weight": 1}}, "seed": 1, "keep_alive": "5m"})
    assert told.status == 200 and told.header("x-quire-ignored") == "seed, questions.weight"
    encoder = start("--pooling", "mean", model="")
    response = encoder.post("/classify", {"input": "a", "labels": ["a", "b"]})
    check_error(response, 400)
    assert response.json()["error"]["code"] == "unsupported_model"


def test_a_client_that_leaves(start):
    server = start("--max-num-seqs", "1", env=SLOW, model="")
    conn = server.connect()
    many = {f"q{i}": {"type": "noul", "instructions": f"Is it number {i}?"} for i in range(64)}
    conn.send(server.bytes("POST", "/v1/systemone", {"state": TICKET, "questions": many, "permutations": 2}))

    wait_for("work", lambda: server.metrics().value("vllm:num_requests_waiting"))  # for a first token, and that is its last
    with contextlib.suppress(OSError):
        conn.reset()
    wait_for("its end", lambda: server.metrics().value("vllm:num_requests_waiting") == 0)
    assert server.metrics().value("vllm:request_success_total", finished_reason="abort") > 0
    assert answer(server, NOUL)["type"] == "noul"
