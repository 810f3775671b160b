"""`echo`, and the log-probabilities of prompts: what evaluation harnesses score texts with."""

import math

import pytest

from goldens import BOS, byte_token, cases, data, expected, shown
from wire import check_error, outcome

PROMPT = "Once upon a time"
HARNESS = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def ask(request, server):
    """Completes and gives the choices, whole or streamed."""

    def both(prompt, **fields):
        if request.param:
            return server.stream(prompt, **fields).choices
        return server.complete(prompt, **fields)["choices"]

    return both


def check_lists(choice, num_prompt, num_tokens):
    """Four lists of one length, nothing known of the first token, and offsets that cut the text into its tokens."""
    lists = choice["logprobs"]
    assert {len(v) for v in lists.values()} == {num_prompt + num_tokens}
    assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
    assert None not in lists["token_logprobs"][1:] and None not in lists["top_logprobs"][1:]
    offsets = lists["text_offset"]
    assert offsets[0] == 0 and offsets == sorted(offsets) and offsets[-1] <= len(choice["text"])
    for token, value, top in list(zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"]))[1:]:
        assert top[token] == value, "one float, printed twice"


@pytest.mark.parametrize("case", range(6))
def test_echo_is_the_prompt_and_the_completion(ask, case):
    golden = cases()[case]
    for prompt in (golden["prompt"], golden["prompt_ids"]):
        (choice,) = ask(prompt, max_tokens=20, echo=True)
        assert choice["text"] == golden["prompt"] + expected(case, 20)
        assert choice["logprobs"] is None


def test_the_answer_does_not_change(ask):
    """Echo puts the prompt in front; what follows is bit for bit the same."""
    for golden in cases():
        fields = dict(max_tokens=12, logprobs=3)
        (plain,), (echo,) = ask(golden["prompt"], **fields), ask(golden["prompt"], echo=True, **fields)
        n = len(golden["prompt_ids"])
        check_lists(echo, n, 12)
        assert echo["text"] == golden["prompt"] + plain["text"]
        for key in ("tokens", "token_logprobs", "top_logprobs"):
            assert echo["logprobs"][key][n:] == plain["logprobs"][key]
        lead = len(golden["prompt"])
        assert echo["logprobs"]["text_offset"][n:] == [lead + o for o in plain["logprobs"]["text_offset"]]


def test_harness(ask):
    """lm-evaluation-harness: a batch of id lists; one entry per id and one more; greedy by float equality."""
    prompts = [c["prompt_ids"] + c["greedy_ids"][:20] for c in cases()]
    choices = ask(prompts, **HARNESS)
    assert [c["index"] for c in choices] == list(range(6))
    for golden, ids, choice in zip(cases(), prompts, choices):
        check_lists(choice, len(ids), 1)
        lists = choice["logprobs"]
        assert lists["tokens"][: len(ids)] == [shown(i) for i in ids], "and no BOS added"
        context = len(golden["prompt_ids"])
        values = lists["token_logprobs"][context:-1]
        tops = lists["top_logprobs"][context:-1]
        assert all(v == max(t.values()) for v, t in zip(values, tops)), "the golden ids are greedy"


def test_teacher_forcing_gives_what_generation_gave(ask):
    """The score of a token does not depend on who chose it: bit for bit."""
    golden = cases()[0]
    (free,) = ask(golden["prompt_ids"], max_tokens=40, logprobs=5)
    ids = golden["prompt_ids"] + golden["greedy_ids"][:40]
    (forced,) = ask(ids, max_tokens=0, logprobs=5, echo=True)
    n = len(golden["prompt_ids"])
    assert forced["logprobs"]["token_logprobs"][n:] == free["logprobs"]["token_logprobs"]
    assert forced["logprobs"]["top_logprobs"][n:] == free["logprobs"]["top_logprobs"]


def test_perplexity(ask):
    """The reference's: 3.7284 over 373 predictions."""
    text = data("models/golden/stories260K.ppl-text.txt").read_text()
    (choice,) = ask(text, max_tokens=0, logprobs=0, echo=True)
    assert choice["text"] == text and choice["finish_reason"] == "length"
    values = choice["logprobs"]["token_logprobs"]
    check_lists(choice, 374, 0)
    assert abs(math.exp(-sum(values[1:]) / 373) - 3.7284) < 0.0005


def test_scores_do_not_depend_on_caches_or_chunks(server, start):
    """Again with a warm prefix cache, in steps of 16 tokens, with company, streamed: the same bits."""
    prompts = [c["prompt_ids"] + c["greedy_ids"] for c in cases()]
    fields = dict(max_tokens=4, logprobs=5, echo=True)
    server.complete(prompts[0], max_tokens=1)  # now its blocks are cached
    wanted = outcome(server.complete(prompts, **fields))
    assert outcome(server.complete(prompts, **fields)) == wanted
    assert outcome(server.stream(prompts, **fields)) == wanted
    small = start("--max-num-batched-tokens", "16", "--max-num-seqs", "3", "--no-enable-prefix-caching")
    assert outcome(small.complete(prompts, **fields)) == wanted
    assert outcome(small.stream(prompts, **fields)) == wanted


def test_prompt_only(server, ask):
    """max_tokens 0 gives the prompt back."""
    (choice,) = ask(PROMPT, max_tokens=0, echo=True)
    assert (choice["text"], choice["finish_reason"]) == (PROMPT, "length")
    usage = server.complete(PROMPT, max_tokens=0, echo=True)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 0)


def test_bos_alone(ask):
    (choice,) = ask("", max_tokens=8, echo=True, logprobs=1)
    check_lists(choice, 1, 8)
    assert choice["text"].startswith("Once") and choice["logprobs"]["tokens"][0] == "<s>"
    (shown_too,) = ask([BOS], max_tokens=8, echo=True, skip_special_tokens=False)
    assert shown_too["text"].startswith("<s>")


def test_n_choices(ask):
    """Each choice echoes; the prompt is scored the same in all."""
    choices = ask(PROMPT, n=3, max_tokens=8, temperature=2, seed=3, logprobs=2, echo=True)
    assert len({c["text"] for c in choices}) == 3
    for choice in choices:
        check_lists(choice, 5, 8)
        assert choice["text"].startswith(PROMPT)
        assert choice["logprobs"]["token_logprobs"][:5] == choices[0]["logprobs"]["token_logprobs"][:5]


def test_stop_strings_are_not_looked_for_in_the_prompt(ask):
    (choice,) = ask(PROMPT, max_tokens=20, echo=True, logprobs=0, stop=["upon", " there"])
    assert choice["text"] == PROMPT + ","
    assert choice["finish_reason"] == "stop"


def test_broken_characters(ask):
    """A prompt may end within a character: what it has of it is U+FFFD, and offsets stay within the text."""
    ids = [BOS] + [byte_token(b) for b in "é€😀".encode()[:-1]]
    (choice,) = ask(ids, max_tokens=3, logprobs=1, echo=True)
    assert choice["text"].startswith("é€\ufffd")
    assert {len(v) for v in choice["logprobs"].values()} == {len(ids) + 3}


def test_chunks(server):
    """The prompt comes before the first token's chunk, and log-probabilities with their text."""
    stream = server.open_stream(PROMPT, max_tokens=4, echo=True)
    events = stream.finish()
    stream.conn.close()
    assert events[0]["choices"][0]["text"] == PROMPT
    assert events[0]["choices"][0]["finish_reason"] is None
    stream = server.open_stream(cases()[0]["prompt_ids"] * 20, max_tokens=4, echo=True, logprobs=1)
    at = 0
    for event in stream.finish():
        for choice in event["choices"]:
            offsets = choice["logprobs"]["text_offset"]
            at += len(choice["text"])
            assert not offsets or offsets[-1] <= at
    stream.conn.close()


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}, {"echo": True}, {"echo": True, "logprobs": 0}, {"n": 2, "seed": 1}])
def test_prompt_logprobs_0(server, more):
    """Each prompt token's own, beside the text, in vLLM's form: the values that echo prints in the lists."""
    for case in cases()[:3]:
        prompt, ids = case["prompt"], case["prompt_ids"]
        (want,) = server.complete(prompt, max_tokens=0, echo=True, logprobs=0)["choices"]
        plain = server.complete(prompt, max_tokens=4, **more)["choices"]
        for choice, same in zip(server.complete(prompt, max_tokens=4, prompt_logprobs=0, **more)["choices"], plain):
            got = choice.pop("prompt_logprobs")
            assert choice == same and "prompt_logprobs" not in same
            assert got[0] is None and [list(entry) for entry in got[1:]] == [[str(i)] for i in ids[1:]]
            entries = [entry[str(i)] for entry, i in zip(got[1:], ids[1:])]
            assert [e["logprob"] for e in entries] == want["logprobs"]["token_logprobs"][1:]
            assert [e["decoded_token"] for e in entries] == want["logprobs"]["tokens"][1:]
            assert all(e["rank"] >= 1 for e in entries)


def test_prompt_logprobs_of_one_token(server):
    (choice,) = server.complete([BOS], max_tokens=2, prompt_logprobs=0)["choices"]
    assert choice["prompt_logprobs"] == [None]


def test_prompt_logprobs_asked_for_otherwise(server):
    """false and null ask for nothing; true is no number; a stream has no place for them."""
    for value in (False, None):
        assert "prompt_logprobs" not in server.complete(PROMPT, max_tokens=1, prompt_logprobs=value)["choices"][0]
    for fields in ({"prompt_logprobs": True}, {"prompt_logprobs": 0.5}, {"prompt_logprobs": 0, "stream": True}):
        check_error(server.post("/v1/completions", {"prompt": PROMPT, **fields}), 400, "prompt_logprobs")
