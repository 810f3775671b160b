"""Fields that say how tokens are chosen and shown: that each does what it says, whole and streamed."""

import json
import math

import pytest

import goldens
from goldens import EOS, cases, expected, text_of, tokens_until
from wire import check_error, outcome, parse_events

PATH = "/v1/completions"
PROMPT = "Once upon a time"
GREEDY = cases()[0]["greedy_ids"] if goldens.data_root().exists() else []


def only(answer):
    (choice,) = answer["choices"]
    return choice


def bad(server, fields, param, **more):
    return check_error(server.post(PATH, {"prompt": PROMPT, "max_tokens": 4, **fields}), 400, param, **more)


# ---- stops


@pytest.mark.parametrize("stream", [False, True])
def test_min_tokens_and_stop_strings(server, stream):
    """A stop string that one of the first min_tokens tokens completes is text; the next one that comes ends it."""
    ask = (lambda **f: server.stream(PROMPT, **f).choices[0]) if stream else lambda **f: only(server.complete(PROMPT, **f))
    n, before = tokens_until(0, " a")
    first = ask(max_tokens=64, stop=" a", min_tokens=n - 1)
    assert (first["text"], first["finish_reason"]) == (before, "stop")
    later = ask(max_tokens=64, stop=" a", min_tokens=n)
    whole = expected(0, 64)
    at = whole.index(" a", len(before) + 1)
    assert (later["text"], later["finish_reason"]) == (whole[:at], "stop")
    none = ask(max_tokens=64, stop=" a", min_tokens=64)
    assert (none["text"], none["finish_reason"]) == (whole, "length")


@pytest.mark.parametrize("stream", [False, True])
def test_include_stop_str_in_output(server, stream):
    ask = (lambda **f: server.stream(PROMPT, **f).choices[0]) if stream else lambda **f: only(server.complete(PROMPT, **f))
    n, before = tokens_until(0, "the")
    for logprobs in (None, 1):
        with_it = ask(max_tokens=64, stop=["the"], include_stop_str_in_output=True, logprobs=logprobs)
        assert (with_it["text"], with_it["finish_reason"]) == (before + "the", "stop")
        assert ask(max_tokens=64, stop=["the"], logprobs=logprobs)["text"] == before
    token = GREEDY[5]  # a stop token has a text, too
    shown = ask(max_tokens=64, stop_token_ids=[token], include_stop_str_in_output=True)["text"]
    end = GREEDY.index(token) + 1
    assert shown == text_of(GREEDY[:end])
    assert ask(max_tokens=64, stop_token_ids=[token])["text"] == text_of(GREEDY[: end - 1])


# ---- ids beside the text


def test_return_token_ids(server):
    prompt = cases()[0]["prompt_ids"]
    for n in (1, 2):
        answer = server.complete(PROMPT, n=n, max_tokens=12, return_token_ids=True)
        for choice in answer["choices"]:
            assert choice["prompt_token_ids"] == prompt and choice["token_ids"] == GREEDY[:12]
    stopped = only(server.complete(PROMPT, max_tokens=12, stop_token_ids=[GREEDY[5]], return_token_ids=True))
    assert stopped["token_ids"] == GREEDY[: GREEDY.index(GREEDY[5]) + 1]
    assert not {"token_ids", "prompt_token_ids"} & set(only(server.complete(PROMPT, max_tokens=2)))


def test_return_token_ids_of_streams(server):
    """The prompt's in a choice's first chunk; each chunk has those of its tokens."""
    events = server.stream(PROMPT, n=2, max_tokens=12, stop=["qqq"], return_token_ids=True).events
    for index in range(2):
        chunks = [c for e in events for c in e["choices"] if c["index"] == index]
        assert chunks[0]["prompt_token_ids"] == cases()[0]["prompt_ids"]
        assert not any("prompt_token_ids" in c for c in chunks[1:])
        assert [t for c in chunks for t in c["token_ids"]] == GREEDY[:12]


def test_return_tokens_as_token_ids(server):
    plain = only(server.complete(PROMPT, max_tokens=8, logprobs=3))["logprobs"]
    named = only(server.complete(PROMPT, max_tokens=8, logprobs=3, return_tokens_as_token_ids=True))["logprobs"]
    assert named["tokens"] == [f"token_id:{i}" for i in GREEDY[:8]]
    for tokens, other in zip(named["top_logprobs"], plain["top_logprobs"]):
        assert len(tokens) == 3 and set(other.values()) <= set(tokens.values())
        assert all(goldens.shown(int(t[9:])) in other for t in tokens)


# ---- what is kept of a prompt


def test_truncate_prompt_tokens(server):
    ids = cases()[0]["prompt_ids"] * 3
    room = server.get("/v1/models").json()["data"][0]["max_model_len"]
    for fields, kept in (
        ({"truncate_prompt_tokens": 5}, ids[-5:]),
        ({"truncate_prompt_tokens": 5, "truncation_side": "left"}, ids[-5:]),
        ({"truncate_prompt_tokens": 5, "truncation_side": "right"}, ids[:5]),
        ({"truncate_prompt_tokens": len(ids)}, ids),
        ({"truncate_prompt_tokens": room}, ids),
        ({"truncate_prompt_tokens": -1}, ids),
    ):
        answer = server.complete(ids, max_tokens=6, return_token_ids=True, **fields)
        assert only(answer)["prompt_token_ids"] == kept
        assert outcome(answer) == outcome(server.complete(kept, max_tokens=6))
    long = ids * (room // len(ids) + 1)
    answer = server.complete(long, max_tokens=6, return_token_ids=True, truncate_prompt_tokens=-1)
    assert only(answer)["prompt_token_ids"] == long[-(room - 6) :]
    for value in (0, -2, room + 1, 1.5, "3"):
        bad(server, {"truncate_prompt_tokens": value}, "truncate_prompt_tokens")
    bad(server, {"truncate_prompt_tokens": 3, "truncation_side": "both"}, "truncation_side")


def test_spaces_between_special_tokens(server):
    for value in (True, False):
        assert only(server.complete(PROMPT, max_tokens=8, spaces_between_special_tokens=value))["text"] == expected(0, 8)
    bad(server, {"spaces_between_special_tokens": 1}, "spaces_between_special_tokens")


# ---- chat

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hello there"}]


def ask(server, messages, **fields):
    reply = server.post(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 6, **fields})
    assert reply.status == 200, reply
    return reply.json()


@pytest.mark.parametrize("text", ["Once upon", "Once upon ", "  Once\n", [{"type": "text", "text": "Once upon"}]])
def test_continue_final_message(chat, text):
    """The prompt ends with the message's text: no end of turn, no new turn."""
    answer = ask(chat, HI + [{"role": "assistant", "content": text}], continue_final_message=True, return_token_ids=True)
    shown = text if isinstance(text, str) else text[0]["text"]
    whole = f"<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n{shown}"
    wanted = chat.post("/tokenize", {"content": whole, "add_special": True}).json()["tokens"]
    assert answer["prompt_token_ids"] == wanted
    continued = only(chat.complete(wanted, max_tokens=6))["text"]
    assert only(answer)["message"]["content"] == continued


def test_continue_final_message_refuses(chat):
    final = HI + [{"role": "assistant", "content": "Once"}]
    for messages, more in ((final, {"add_generation_prompt": True}), (HI + [{"role": "assistant", "content": " "}], {})):
        body = {"messages": messages, "max_tokens": 2, "continue_final_message": True, **more}
        check_error(chat.post(CHAT, body), 400, "continue_final_message")
    ask(chat, final, continue_final_message=True, add_generation_prompt=False)
    assert ask(chat, final)["usage"]["prompt_tokens"] > ask(chat, final, continue_final_message=True)["usage"]["prompt_tokens"]


def test_chat_return_token_ids(chat):
    answer = ask(chat, HI, return_token_ids=True, logprobs=True, return_tokens_as_token_ids=True)
    choice = only(answer)
    assert len(choice["token_ids"]) == 6 and answer["prompt_token_ids"]
    assert [e["token"] for e in choice["logprobs"]["content"]] == [f"token_id:{i}" for i in choice["token_ids"]]
    reply = chat.post(CHAT, {"messages": HI, "temperature": 0, "max_tokens": 6, "stream": True, "return_token_ids": True, "n": 2})
    events = parse_events(reply.body)
    assert events[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    assert not any("prompt_token_ids" in e for e in events[1:])
    for index in range(2):
        chunks = [c for e in events for c in e["choices"] if c["index"] == index]
        assert [t for c in chunks for t in c.get("token_ids", [])] == choice["token_ids"]


def test_chat_truncates(chat):
    whole = ask(chat, HI, return_token_ids=True)["prompt_token_ids"]
    assert ask(chat, HI, return_token_ids=True, truncate_prompt_tokens=4)["prompt_token_ids"] == whole[-4:]


# ---- log-probabilities


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_prompt_logprobs(server, k):
    """One object a token, its own first, with ranks: what echo gives, and the best k beside it."""
    ids = cases()[1]["prompt_ids"]
    choice = only(server.complete(ids, max_tokens=2, prompt_logprobs=k))
    echoed = only(server.complete(ids, max_tokens=0, echo=True, logprobs=20))["logprobs"]
    got = choice["prompt_logprobs"]
    assert len(got) == len(ids) and got[0] is None
    for i, entry in enumerate(got[1:], 1):
        own = entry[str(ids[i])]
        assert next(iter(entry)) == str(ids[i]) and own["logprob"] == echoed["token_logprobs"][i]
        assert own["decoded_token"] == goldens.shown(ids[i])
        assert len(entry) == k + (own["rank"] > k) and all(set(e) == set(own) for e in entry.values())
        ranks = sorted(e["rank"] for e in entry.values())
        assert ranks == list(range(1, k + 1)) + ([own["rank"]] if own["rank"] > k else [])
        by_rank = sorted(entry.values(), key=lambda e: e["rank"])
        assert all(a["logprob"] >= b["logprob"] for a, b in zip(by_rank, by_rank[1:]))
        shown = {goldens.shown(int(t)): e["logprob"] for t, e in entry.items() if e["rank"] <= k}
        assert shown.items() <= echoed["top_logprobs"][i].items()


def test_logprob_token_ids(server):
    """The chosen token's log-probability, and those of the tokens asked for, whatever their rank."""
    top = only(server.complete(PROMPT, max_tokens=1, logprobs=20))["logprobs"]["top_logprobs"][0]
    best = {goldens.shown(t): t for t in range(3, 512)}
    wanted = [best[t] for t in list(top)[1:20:6]]
    got = only(server.complete(PROMPT, max_tokens=4, logprobs=1, logprob_token_ids=wanted))["logprobs"]
    assert got["token_logprobs"] == only(server.complete(PROMPT, max_tokens=4, logprobs=0))["logprobs"]["token_logprobs"]
    first = got["top_logprobs"][0]
    assert {t: first[t] for t in map(goldens.shown, wanted)} == {t: top[t] for t in map(goldens.shown, wanted)}
    assert set(first) == {goldens.shown(t) for t in wanted} | {got["tokens"][0]}
    rare = only(server.complete(PROMPT, max_tokens=4, logprobs=1, logprob_token_ids=[5, 7], logit_bias={"7": 3}))
    assert all(e[goldens.shown(5)] < -5 for e in rare["logprobs"]["top_logprobs"])


def test_chat_logprob_token_ids(chat):
    content = only(ask(chat, HI, logprobs=True, logprob_token_ids=[9, 7, 300]))["logprobs"]["content"]
    for entry in content:
        assert [t["token"] for t in entry["top_logprobs"]] == [e["token"] for e in content[0]["top_logprobs"]]
        assert len(entry["top_logprobs"]) == 3
    body = {"messages": HI, "max_tokens": 1, "logprob_token_ids": [1]}
    check_error(chat.post(CHAT, body), 400, "logprob_token_ids")


# ---- repetitions, and tokens that may not come


def ids_of(server, **fields):
    return only(server.complete(PROMPT, return_token_ids=True, **fields))["token_ids"]


def ngrams(ids, n):
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]


def test_no_repeat_ngram_size(server):
    """No sequence of so many tokens comes twice, the prompt's included."""
    prompt = cases()[0]["prompt_ids"]
    plain = ngrams(prompt + ids_of(server, max_tokens=300, ignore_eos=True), 3)
    assert len(plain) > len(set(plain))
    for n in (1, 2, 3, 5):
        got = ngrams(prompt + ids_of(server, max_tokens=300, ignore_eos=True, no_repeat_ngram_size=n), n)
        assert len(got) == len(set(got))
    assert ids_of(server, max_tokens=30, no_repeat_ngram_size=0) == GREEDY[:30]


def longest_repeat(ids):
    return max(n for n in range(len(ids)) if len(ngrams(ids, n)) > len(set(ngrams(ids, n))))


def test_dry(server):
    """With a penalty that nothing outweighs, repetitions end at the allowed length; a breaker ends what counts."""
    fields = dict(max_tokens=300, ignore_eos=True)
    prompt = cases()[0]["prompt_ids"]
    assert longest_repeat(prompt + ids_of(server, **fields)) > 6
    strong = dict(fields, dry_multiplier=1000, dry_sequence_breakers=[])
    assert longest_repeat(prompt + ids_of(server, **strong)) <= 2
    assert longest_repeat(prompt + ids_of(server, dry_allowed_length=4, **strong)) <= 4
    assert longest_repeat(prompt + ids_of(server, **dict(strong, dry_sequence_breakers=[" "]))) > 2
    soft = ids_of(server, **fields, dry_multiplier=0.8)
    assert longest_repeat(prompt + soft) < longest_repeat(prompt + ids_of(server, **fields))
    for off in ({"dry_multiplier": 0}, {"dry_multiplier": 1, "dry_penalty_last_n": 0}, {"dry_multiplier": 1, "dry_allowed_length": 500}):
        assert ids_of(server, max_tokens=60, **off) == GREEDY[:60]
    # The default breakers: a quotation mark ends a repetition, so a dialogue may go on in its form.
    named = ["\n", ":", '"', "*"]
    as_text = json.dumps(named)
    usual, *others = (
        ids_of(server, max_tokens=120, dry_multiplier=2, **({"dry_sequence_breakers": b} if b else {})) for b in (None, named, as_text, as_text[1:-1])
    )
    assert others == [usual] * 3
    assert ids_of(server, max_tokens=20, dry_sequence_breakers="{") == GREEDY[:20], "of no account while it is off"
    # A breaker of several tokens: what repeats behind it is longer than what may repeat without it.
    ids = server.post("/tokenize", {"content": " girl named Lily. She loved", "add_special": False}).json()["tokens"]
    again = cases()[0]["prompt_ids"] + ids + ids[:-1]
    fields = dict(max_tokens=1, dry_multiplier=1000, dry_allowed_length=5, logit_bias={ids[-1]: 100}, return_token_ids=True)
    with_it, without = (only(server.complete(again, dry_sequence_breakers=b, **fields)) for b in ([". She"], []))
    assert with_it["token_ids"] == [ids[-1]] != without["token_ids"]


def test_allowed_token_ids(server):
    allowed = [300, 301, 302, 400, 410]
    assert set(ids_of(server, max_tokens=40, temperature=2, seed=1, allowed_token_ids=allowed)) == set(allowed)
    assert ids_of(server, max_tokens=20, allowed_token_ids=list(range(512))) == GREEDY[:20]
    choices = server.complete(PROMPT, n=3, max_tokens=8, temperature=2, seed=4, allowed_token_ids=[300], return_token_ids=True)["choices"]
    assert all(c["token_ids"] == [300] * 8 for c in choices)


@pytest.mark.parametrize(
    "fields",
    [{"no_repeat_ngram_size": 1}, {"bad_words": [goldens.pieces()[300].decode()]}, {"allowed_token_ids": [EOS], "min_tokens": 3}],
    ids=["repeated", "bad word", "end"],
)
def test_no_token_is_left(server, fields):
    """That is the request's fault, at the first token or later."""
    body = {"prompt": PROMPT, "max_tokens": 8, "allowed_token_ids": [300], "temperature": 0} | fields
    check_error(server.post("/v1/completions", body), 400, code="no_token_allowed")


def test_bad_words(server):
    """A word does not come, at the beginning or behind a space; nor does one of several tokens."""
    whole = expected(0, 64)
    for words in (["little"], ["little", "girl", "Lily"], [" was a"], ["."], ["there was"]):
        text = only(server.complete(PROMPT, max_tokens=64, bad_words=words))["text"]
        assert text != whole and not any(w.strip() in text for w in words), (words, text)
    one = goldens.pieces()[GREEDY[0]].decode()
    assert only(server.complete(PROMPT, max_tokens=64, bad_words=["zebra crossing"]))["text"] == whole
    assert not only(server.complete(PROMPT, max_tokens=20, bad_words=[one]))["text"].startswith(one)


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"dry_multiplier": -1}, "dry_multiplier"), ({"dry_base": 0.5}, "dry_base"), ({"dry_allowed_length": -1}, "dry_allowed_length"),
        ({"dry_penalty_last_n": -2}, "dry_penalty_last_n"), ({"dry_multiplier": 1, "dry_sequence_breakers": "a"}, "dry_sequence_breakers"),
        ({"dry_sequence_breakers": {}}, "dry_sequence_breakers"), ({"dry_multiplier": 1, "dry_sequence_breakers": '["a"], 5'}, "dry_sequence_breakers"),
        ({"dry_sequence_breakers": ["a", ""]}, "dry_sequence_breakers[1]"), ({"dry_sequence_breakers": [5]}, "dry_sequence_breakers[0]"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size"), ({"no_repeat_ngram_size": 1.5}, "no_repeat_ngram_size"),
        ({"allowed_token_ids": []}, "allowed_token_ids"), ({"allowed_token_ids": [512]}, "allowed_token_ids[0]"),
        ({"allowed_token_ids": 5}, "allowed_token_ids"), ({"bad_words": "a"}, "bad_words"), ({"bad_words": ["a", " "]}, "bad_words[1]"),
        ({"bad_words": [1]}, "bad_words[0]"), ({"bad_words": ["a"] * 342}, "bad_words"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_values(server, fields, param):
    bad(server, fields, param)


# ---- the chain of samplers


SAMPLED = dict(max_tokens=40, temperature=1, seed=11, ignore_eos=True)


@pytest.mark.parametrize(
    "off",
    [
        {"typical_p": 1}, {"top_n_sigma": 0}, {"top_n_sigma": -1}, {"xtc_probability": 0, "xtc_threshold": 0}, {"mirostat": 0, "mirostat_tau": 1},
        {"xtc_probability": 1, "xtc_threshold": 1}, {"dynatemp_range": 0, "dynatemp_exponent": 3},
    ],
    ids=str,
)  # fmt: skip
def test_chain_off(server, off):
    assert ids_of(server, **SAMPLED, **off) == ids_of(server, **SAMPLED)


@pytest.mark.parametrize(
    "on",
    [{"typical_p": 0.3}, {"top_n_sigma": 0.5}, {"xtc_probability": 1}, {"dynatemp_range": 0.9}, {"mirostat": 2, "mirostat_tau": 1}],
    ids=str,
)  # fmt: skip
def test_chain_on(server, on):
    """Something else is sampled, the same each time, whole and streamed, alone and beside others."""
    got = ids_of(server, **SAMPLED, **on)
    assert got != ids_of(server, **SAMPLED)
    events = server.stream(PROMPT, return_token_ids=True, **SAMPLED, **on).events
    assert [t for e in events for c in e["choices"] for t in c["token_ids"]] == got
    both = server.complete([PROMPT, PROMPT], return_token_ids=True, **SAMPLED, **on)["choices"]
    assert [c["token_ids"] for c in both] == [got, got]


def test_typical_is_typical_p(server):
    assert ids_of(server, **SAMPLED, typical=0.3) == ids_of(server, **SAMPLED, typical_p=0.3)


def test_ends_of_the_chain(server):
    """Where a stage leaves the best token only, sampling is greedy."""
    for one in ({"top_n_sigma": 1e-6}, {"mirostat": 2, "mirostat_tau": 1e-6}, {"dynatemp_range": 1, "top_k": 1}):
        assert ids_of(server, **{**SAMPLED, "max_tokens": 12}, **one) == GREEDY[:12]


def test_xtc(server):
    """XTC samples, of the tokens above the threshold, only the least likely."""
    logprobs = only(server.complete(PROMPT, **SAMPLED, xtc_probability=1, xtc_threshold=0.1, logprobs=20))["logprobs"]
    choices = 0
    for own, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
        above = sorted(v for v in top.values() if v > math.log(0.1) + 1e-4)
        choices += len(above) > 1
        assert not above or own <= above[0] + 1e-6
    assert choices > 5


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"typical_p": 0}, "typical_p"), ({"typical": 1.1}, "typical"), ({"top_n_sigma": "1"}, "top_n_sigma"), ({"xtc_probability": 1.5}, "xtc_probability"),
        ({"xtc_threshold": -0.1}, "xtc_threshold"), ({"dynatemp_range": -1}, "dynatemp_range"), ({"dynatemp_exponent": 0}, "dynatemp_exponent"),
        ({"mirostat": 1}, "mirostat"), ({"mirostat": 3}, "mirostat"), ({"mirostat_tau": 0}, "mirostat_tau"), ({"mirostat_eta": -1}, "mirostat_eta"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_values_of_the_chain(server, fields, param):
    bad(server, fields, param)
