"""llama-server's /completion beyond what test_paths.py has of it: forms of prompts, tokens and their probabilities, the bias by text,
and what its answers say of how they were made."""

import json
import math

import pytest

from goldens import EOS
from wire import check_error

ASKED = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0}


def ask(server, **fields):
    reply = server.post("/completion", ASKED | fields)
    assert reply.status == 200, reply
    return reply.json()


def stream(server, **fields):
    reply = server.post("/completion", ASKED | fields | {"stream": True})
    assert reply.status == 200, reply
    return [json.loads(event[6:]) for event in reply.body.decode().split("\n\n") if event]


def ids(server, text, special=True):
    return server.post("/tokenize", {"content": text, "add_special": special}).json()["tokens"]


def test_forms_of_prompts(server):
    """A text, its ids, an object with the text, and ids and texts in one list; a list of these gives a list."""
    usual = ask(server)["content"]
    first, *rest = ids(server, ASKED["prompt"])
    for prompt in ([first, *rest], {"prompt_string": ASKED["prompt"]}, [ASKED["prompt"]], [[first, *rest]], [first, *rest[:-1], rest[-1]]):
        assert ask(server, prompt=prompt)["content"] == usual, prompt
    both = ask(server, prompt=[ASKED["prompt"], [first, *rest], "The end"])
    assert [b["index"] for b in both] == [0, 1, 2]
    assert both[0]["content"] == both[1]["content"] == usual != both[2]["content"]
    joined = ask(server, prompt=[first, *ids(server, "Once", False), " upon"])
    assert joined["tokens_evaluated"] == 1 + len(ids(server, "Once", False)) + len(ids(server, " upon", False))


def test_tokens(server):
    """Asked for, or streamed: the ids of the text."""
    assert ask(server)["tokens"] == []
    whole = ask(server, return_tokens=True)
    assert len(whole["tokens"]) == whole["tokens_predicted"] == 8
    assert server.post("/detokenize", {"tokens": whole["tokens"]}).json()["content"].strip() == whole["content"].strip()
    *parts, last = stream(server)
    assert [t for p in parts for t in p["tokens"]] == whole["tokens"] and last["tokens"] == []


def test_probabilities(server):
    """Those of /v1/completions, by id, with the bytes."""
    got = ask(server, n_probs=5)["completion_probabilities"]
    usual = server.complete(ASKED["prompt"], max_tokens=8, logprobs=5)["choices"][0]["logprobs"]
    assert [g["token"] for g in got] == usual["tokens"]
    assert [g["logprob"] for g in got] == usual["token_logprobs"]
    for entry, top in zip(got, usual["top_logprobs"]):
        assert len(entry["top_logprobs"]) == 5 and entry["top_logprobs"][0]["id"] == entry["id"]
        assert {t["token"]: t["logprob"] for t in entry["top_logprobs"]} == top
        assert all(bytes(t["bytes"]).decode("utf-8", "replace") == t["token"] for t in entry["top_logprobs"])
    *parts, last = stream(server, n_probs=5)
    assert [p for part in parts for p in part["completion_probabilities"]] == got
    assert "completion_probabilities" not in last


def test_probabilities_of_what_is_left(server):
    """Among the tokens that the samplers leave; the same tokens are sampled, whether these are asked for or not."""
    asked = {"n_probs": 8, "post_sampling_probs": True}
    for fields in ({"temperature": 1}, {"temperature": 0.7, "top_k": 3}, {"temperature": 1, "top_p": 0.6, "min_p": 0.01}, {"temperature": 1, "typical_p": 0.7}, {}):
        fields |= {"seed": 5}
        got = ask(server, **asked, **fields)
        model = ask(server, n_probs=8, **fields)
        assert got["content"] == model["content"]
        for mine, plain in zip(got["completion_probabilities"], model["completion_probabilities"], strict=True):
            tops = {t["id"]: t["prob"] for t in mine["top_probs"]}
            logprobs = {t["id"]: t["logprob"] for t in plain["top_logprobs"]}
            assert all(tops.values()) and list(tops.values()) == sorted(tops.values(), reverse=True)
            if mine["id"] in tops:
                assert tops[mine["id"]] == mine["prob"]
            if fields == {"temperature": 1, "seed": 5}:
                assert all(math.isclose(p, math.exp(logprobs[i]), rel_tol=1e-3, abs_tol=1e-7) for i, p in tops.items())
            elif "top_k" in fields:  # of the best three, made sharper
                scaled = [math.exp(logprobs[i] / 0.7) for i in tops]
                assert len(tops) == 3 and list(tops.values()) == pytest.approx([s / sum(scaled) for s in scaled], rel=1e-3)
            elif "temperature" not in fields:
                assert tops == {mine["id"]: 1}
            if len(tops) < 8:
                assert sum(tops.values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("form", [lambda text: [[text, False]], lambda text: {text: -100}], ids=["pairs", "object"])
def test_bias_by_text(server, form):
    """A bias by text is one of all its tokens; `false` forbids them."""
    text = ask(server)["content"].split()[0]
    assert text not in ask(server, logit_bias=form(" " + text))["content"].split()[0]
    (token,) = ids(server, "a", False)[-1:]
    settings = ask(server, logit_bias=[[token, 1.5]])["generation_settings"]
    assert settings["logit_bias"] == [{"token": token, "bias": 1.5}]


def test_what_it_says(server):
    """The settings that hold, the prompt as the model reads it, whether there is a new line, and times."""
    got = ask(server, seed=7, stop=["xyz"], top_k=3, top_p=0.5)
    settings = got["generation_settings"]
    assert (settings["seed"], settings["n_predict"], settings["stop"], settings["top_k"], settings["top_p"]) == (7, 8, ["xyz"], 3, 0.5)
    chain = {"typical_p": 0.5, "top_n_sigma": 2, "xtc_probability": 0.25, "dynatemp_range": 0.5, "mirostat": 2, "dry_multiplier": 0.75}
    assert chain.items() <= ask(server, **chain)["generation_settings"].items()
    assert got["prompt"] == "<s> " + ASKED["prompt"] and got["has_new_line"] is False and got["id_slot"] == -1
    assert ask(server, n_predict=64, logit_bias=[["\n", 100]])["has_new_line"] is True
    times = got["timings"]
    assert times["predicted_n"] == 8 and times["prompt_n"] + times["cache_n"] == got["tokens_evaluated"]
    assert math.isclose(times["predicted_per_second"], 1e3 / times["predicted_ms"] * 7, rel_tol=1e-9)
    assert ask(server, n_predict=1)["timings"]["predicted_per_second"] == 0


def test_response_fields(server):
    """Members alone, by their paths; what is not there is left out; an empty list asks for all."""
    names = ["content", "generation_settings/top_k", "generation_settings", "prompt", "timings/x", "content/x", "", "stop_type/"]
    whole = ask(server, top_k=3, temperature=0.3, seed=1)
    some = ask(server, top_k=3, temperature=0.3, seed=1, response_fields=names)
    settings = whole["generation_settings"]
    expected = {"content": whole["content"], "generation_settings/top_k": 3, "generation_settings": settings, "prompt": whole["prompt"]}
    assert some == expected
    assert set(ask(server, response_fields=[])) == set(whole)
    *parts, last = stream(server, response_fields=["stop"])
    assert last == {"stop": True} and "".join(p["content"] for p in parts) == ask(server)["content"]
    both = ask(server, prompt=["a", "b"], response_fields=["index"])
    assert both == [{"index": 0}, {"index": 1}]
    for bad, param in (("x", "response_fields"), ({}, "response_fields"), (["a", 1], "response_fields[1]")):
        check_error(server.post("/completion", ASKED | {"response_fields": bad}), 400, param)


def test_ignored_ends_are_forbidden(server):
    """They do not come; elsewhere they come and do not end the output."""
    forced = {"logit_bias": {str(EOS): 100}, "ignore_eos": True}
    got = ask(server, return_tokens=True, **forced)
    assert EOS not in got["tokens"] and got["tokens_predicted"] == 8
    assert got["generation_settings"]["logit_bias"] == [{"token": EOS, "bias": None}]
    ids = server.complete(ASKED["prompt"], max_tokens=8, return_token_ids=True, **forced)["choices"][0]["token_ids"]
    assert ids == [EOS] * 8
    full = {"logit_bias": [[i, 1] for i in range(10)] * 1, "ignore_eos": True}
    assert len(ask(server, **full)["generation_settings"]["logit_bias"]) == 10


def test_truncated_by_the_context(start):
    """Where the context ended it, not n_predict."""
    server = start("--max-model-len", "64")
    assert ask(server, n_predict=-1, ignore_eos=True)["truncated"] is True
    assert ask(server, n_predict=-1, ignore_eos=True)["stop_type"] == "limit"
    assert ask(server)["truncated"] is False


def test_images(server):
    prompt = {"prompt_string": "<__media__>", "multimodal_data": ["aGk="]}
    check_error(server.post("/completion", ASKED | {"prompt": prompt}), 400, "prompt", code="unsupported_parameter")
