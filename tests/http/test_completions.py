"""POST /v1/completions: that the answer is the right one, for every form of prompt and every parameter.

Over 600 lines: the parameters of one endpoint.
"""

import urllib.parse
import uuid

import pytest

from goldens import BOS, EOS, byte_token, cases, expected, pieces, shown, text_of, tokens_until
from wire import Folded, check_error, outcome

PROMPT = "Once upon a time"


def only(answer):
    choices = answer.choices if isinstance(answer, Folded) else answer["choices"]
    assert len(choices) == 1
    return choices[0]


def text(answer):
    return only(answer)["text"]


# ---- the golden texts


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("stream", [False, True])
def test_golden(server, case, stream):
    """Greedy text is byte for byte the reference's, whole and streamed."""
    golden = cases()[case]
    ask = server.stream if stream else server.complete
    answer = ask(golden["prompt"], max_tokens=64)
    assert text(answer) == golden["greedy_text"]
    assert only(answer)["finish_reason"] == "length"


def test_golden_logprobs(server):
    """Top-5 log-probabilities agree with the reference within 1e-4, by token."""
    for golden in cases():
        logprobs = only(server.complete(golden["prompt"], max_tokens=64, logprobs=5))["logprobs"]
        for i, step in enumerate(golden["steps"]):
            got = logprobs["top_logprobs"][i]
            for token, value in step["top5"]:
                if value < step["top5"][4][1] + 1e-4 and shown(token) not in got:
                    continue  # a tie for the fifth place may fall either way
                assert abs(got[shown(token)] - value) < 1e-4, (golden["prompt"], i, token)


# ---- forms of prompts, choices


def test_prompt_ids_are_taken_as_they_are(server):
    """Ids get no BOS added; text does. So the golden ids, which begin with BOS, are the golden prompt."""
    for golden in cases():
        by_text = server.complete(golden["prompt"], max_tokens=20, logprobs=1)
        by_ids = server.complete(golden["prompt_ids"], max_tokens=20, logprobs=1)
        assert outcome(by_text) == outcome(by_ids)
        assert (
            by_text["usage"]["prompt_tokens"] == by_ids["usage"]["prompt_tokens"] == len(golden["prompt_ids"])
        )
    without = server.complete(cases()[0]["prompt_ids"][1:], max_tokens=4)
    assert without["usage"]["prompt_tokens"] == len(cases()[0]["prompt_ids"]) - 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("key", ["prompt", "prompt_ids"])
def test_lists_of_prompts(server, key, stream):
    """Choice i belongs to prompt i, however the prompts finish; usage is the sum."""
    ask = server.stream if stream else server.complete
    fields = {"stream_options": {"include_usage": True}} if stream else {}
    answer = ask([c[key] for c in cases()], max_tokens=30, **fields)
    choices = answer.choices if stream else answer["choices"]
    assert [c["text"] for c in choices] == [expected(i, 30) for i in range(6)]
    usage = answer.usage if stream else answer["usage"]
    assert usage["prompt_tokens"] == sum(len(c["prompt_ids"]) for c in cases())
    assert usage["completion_tokens"] == 180
    assert usage["total_tokens"] == usage["prompt_tokens"] + 180


def test_list_of_one(server):
    assert text(server.complete([PROMPT], max_tokens=8)) == expected(0, 8)
    assert text(server.complete([cases()[0]["prompt_ids"]], max_tokens=8)) == expected(0, 8)


def test_empty_prompt_is_bos(server):
    """Where the model has a BOS token, the empty prompt is that token alone."""
    answer = server.complete("", max_tokens=12)
    assert answer["usage"]["prompt_tokens"] == 1
    by_id = server.complete([BOS], max_tokens=12)
    assert text(answer) == text(by_id)
    assert text(answer).startswith("Once upon a time")


def test_n_choices(server):
    """n choices differ, are the same again for the same seed, and choice 0 is what n=1 gives."""
    fields = dict(max_tokens=24, temperature=1, seed=7, logprobs=0)
    three = server.complete(PROMPT, n=3, **fields)
    texts = [c["text"] for c in three["choices"]]
    assert len(set(texts)) == 3, texts
    assert outcome(server.complete(PROMPT, n=3, **fields)) == outcome(three)
    assert outcome(server.stream(PROMPT, n=3, **fields)) == outcome(three)
    assert outcome(server.complete(PROMPT, **fields)) == outcome(three)[:1]
    assert outcome(server.complete(PROMPT, n=2, **fields)) == outcome(three)[:2]


def test_seed_of_choice_j(server):
    """Choice j samples with splitmix64(splitmix64(seed) + j), so that it can be asked for alone."""

    def splitmix64(x):
        mask = (1 << 64) - 1
        z = (x + 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        return z - (1 << 64) if z >> 63 else z

    three = server.complete(PROMPT, n=3, max_tokens=24, temperature=1, seed=7)
    for j in (1, 2):
        alone = server.complete(PROMPT, max_tokens=24, temperature=1, seed=splitmix64(splitmix64(7) + j))
        assert text(alone) == three["choices"][j]["text"]


def test_choices_of_neighbouring_seeds_differ(server):
    """No choice of a seed is a choice of the seeds around it."""
    texts = set()
    for seed in range(-25, 25):
        if seed != -1:
            answer = server.complete(PROMPT, n=8, max_tokens=24, temperature=2, seed=seed)
            texts |= {c["text"] for c in answer["choices"]}
    assert len(texts) == 49 * 8


def test_seed_of_minus_one_is_any(server):
    fields = dict(max_tokens=24, temperature=2, seed=-1)
    assert text(server.complete(PROMPT, **fields)) != text(server.complete(PROMPT, **fields))


def test_index_order_of_prompts_times_n(server):
    """index = prompt * n + choice; all of 0 .. k*n-1, in order."""
    fields = dict(max_tokens=10, temperature=0.9, seed=3)
    prompts = [c["prompt"] for c in cases()[:3]]
    for ask in (server.complete, server.stream):
        answer = outcome(ask(prompts, n=2, **fields))
        assert [a[0] for a in answer] == list(range(6))
        for i, prompt in enumerate(prompts):
            pair = outcome(server.complete(prompt, n=2, **fields))
            assert [a[1:] for a in answer[2 * i : 2 * i + 2]] == [p[1:] for p in pair]


def test_equal_prompts_are_drawn_apart(server):
    """Without a seed a list of one prompt samples anew for each; with one each is what it is alone."""
    fields = dict(max_tokens=20, temperature=1)
    texts = [c["text"] for c in server.complete([PROMPT] * 4, **fields)["choices"]]
    assert len(set(texts)) > 1
    texts = [c["text"] for c in server.complete([PROMPT] * 4, seed=3, **fields)["choices"]]
    assert len(set(texts)) == 1


def test_offsets_of_broken_text(server):
    """Bytes that are no UTF-8 are a character each, as in the text: one that begins nothing, and one that is not gone on with."""
    fields = dict(max_tokens=6, temperature=0, logprobs=0)
    for byte in (0x80, 0xE2):
        (choice,) = server.complete(PROMPT, logit_bias={str(3 + byte): 100}, **fields)["choices"]
        assert choice["text"] == "\ufffd" * 6
        offsets = choice["logprobs"]["text_offset"]
        assert [o - offsets[0] for o in offsets] == list(range(6))


def test_greedy_with_n(server):
    """Several greedy choices are allowed and all the same."""
    answer = server.complete(PROMPT, n=4, max_tokens=16)
    assert [c["text"] for c in answer["choices"]] == [expected(0, 16)] * 4
    assert answer["usage"]["prompt_tokens"] == 5, "the prompt is counted once"
    assert answer["usage"]["completion_tokens"] == 64


# ---- what sampling does


def test_seed(server):
    """The same seed gives the same text, another seed another; without a seed each request samples anew."""
    fields = dict(max_tokens=32, temperature=1)
    one = text(server.complete(PROMPT, seed=11, **fields))
    assert text(server.complete(PROMPT, seed=11, **fields)) == one
    assert text(server.stream(PROMPT, seed=11, **fields)) == one
    assert text(server.complete(PROMPT, seed=12, **fields)) != one
    assert text(server.complete(PROMPT, seed=-(2**63), **fields)) == text(
        server.complete(PROMPT, seed=-(2**63), **fields)
    )
    assert text(server.complete(PROMPT, **fields)) != text(server.complete(PROMPT, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 1},
        {"min_p": 1},
        {"top_p": 1e-6},
        {"temperature": 1e-6},
        {"temperature": 0, "top_k": 40, "top_p": 0.5, "min_p": 0.1},
    ],
    ids=str,
)
def test_only_the_best_token(server, fields):
    """Filters that leave one token, at full temperature, are greedy."""
    answer = server.complete(PROMPT, max_tokens=64, **({"temperature": 1, "seed": 5} | fields))
    assert text(answer) == expected(0, 64)


@pytest.mark.parametrize(
    "fields", [{"top_k": 0}, {"top_k": -1}, {"top_p": 1}, {"min_p": 0}, {"top_k": 512}], ids=str
)
def test_filters_that_are_off(server, fields):
    base = dict(max_tokens=24, temperature=1, seed=21)
    assert text(server.complete(PROMPT, **base, **fields)) == text(server.complete(PROMPT, **base))


def test_top_k_limits_the_choice(server):
    """With top_k 2 every token is one of the two most probable."""
    answer = server.complete(PROMPT, max_tokens=48, temperature=2, seed=1, top_k=2, logprobs=2)
    logprobs = only(answer)["logprobs"]
    for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"]):
        assert token in top and len(top) <= 2, (token, top)
    assert text(answer) != expected(0, 48)


def test_repetition_penalty_changes_the_text(server):
    golden = cases()[1]  # "It is a big, shiny box." again and again
    plain = text(server.complete(golden["prompt"], max_tokens=64, repetition_penalty=1))
    assert plain == golden["greedy_text"]
    changed = text(server.complete(golden["prompt"], max_tokens=64, repetition_penalty=1.5))
    assert changed.count("big") < plain.count("big")


def test_frequency_penalty_counts_and_presence_does_not(server):
    """A token forced by +100 is given up after about fifty repeats at 2 apiece; a flat 2 never shakes it."""
    (forced,) = pieces()[383:384]  # " there"
    fields = dict(max_tokens=100, logit_bias={"383": 100}, ignore_eos=True)
    alone = server.complete(PROMPT, **fields)
    assert text(alone) == forced.decode() * 100
    assert text(server.complete(PROMPT, presence_penalty=2, **fields)) == forced.decode() * 100
    counted = text(server.complete(PROMPT, frequency_penalty=2, **fields))
    run = 0
    while counted.startswith(forced.decode() * (run + 1)):
        run += 1
    assert 35 <= run <= 60, f"given up after {run}"


def test_presence_penalty_changes_the_text(server):
    golden = cases()[3]
    assert text(server.complete(golden["prompt"], max_tokens=64, presence_penalty=2)) != golden["greedy_text"]
    assert (
        text(server.complete(golden["prompt"], max_tokens=64, presence_penalty=0.0, frequency_penalty=0))
        == golden["greedy_text"]
    )


def test_logit_bias(server):
    """+100 forces a token, -100 forbids it: then the second most probable comes."""
    assert text(server.complete(PROMPT, max_tokens=5, logit_bias={"300": 100})) == text_of([300]) * 5
    (best, _), (second, _) = cases()[0]["steps"][0]["top5"][:2]
    assert text(server.complete(PROMPT, max_tokens=1)) == text_of([best])
    assert text(server.complete(PROMPT, max_tokens=1, logit_bias={str(best): -100})) == text_of([second])
    assert text(server.complete(PROMPT, max_tokens=8, logit_bias={})) == expected(0, 8)


# ---- log-probabilities


@pytest.mark.parametrize("count", [0, 1, 5, 20])
def test_logprobs_shape(server, count):
    """Four arrays of one length; the chosen token's number is the same in both places, to the last bit."""
    answer = server.complete(PROMPT, max_tokens=32, temperature=1.5, seed=2, logprobs=count)
    logprobs = only(answer)["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert {len(v) for v in logprobs.values()} == {answer["usage"]["completion_tokens"]}
    assert "".join(logprobs["tokens"]) == text(answer)
    start = logprobs["text_offset"][0]
    assert start in (0, len(PROMPT))
    outside = 0
    for i, token in enumerate(logprobs["tokens"]):
        top, value = logprobs["top_logprobs"][i], logprobs["token_logprobs"][i]
        assert isinstance(value, float) and value <= 0
        assert top[token] == value
        assert (len(top) == 1) if count == 0 else (count - 2 <= len(top) <= count + 1)
        ranked = sorted(top.values(), reverse=True)
        outside += value < ranked[min(count, len(ranked)) - 1] if count else 0
        offset = logprobs["text_offset"][i] - start
        assert text(answer)[offset : offset + len(token)] == token
    if count == 1:
        assert outside > 0, "at temperature 1.5 some token is not the best: then it is added"


def test_logprobs_greedy_is_the_maximum(server):
    """tok == max(top.values()) exactly: evaluation tools compare so."""
    logprobs = only(server.complete(cases()[2]["prompt"], max_tokens=64, logprobs=1))["logprobs"]
    for value, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
        assert value == max(top.values())


def test_no_logprobs_unless_asked(server):
    assert only(server.complete(PROMPT, max_tokens=2))["logprobs"] is None
    assert only(server.complete(PROMPT, max_tokens=2, logprobs=None))["logprobs"] is None
    assert only(server.stream(PROMPT, max_tokens=2))["logprobs"] is None


def test_logprobs_streamed(server):
    """A stream carries the same log-probabilities, each in the chunk that has its text."""
    sampled = dict(logprobs=3, temperature=0.8, seed=9)
    held_back = dict(
        logprobs=1, stop=[", there was a little girl named Tom", " Lily is", " loved to play inside"]
    )
    for fields in (sampled, held_back):
        whole, folded = (
            server.complete(PROMPT, max_tokens=64, **fields),
            server.stream(PROMPT, max_tokens=64, **fields),
        )
        assert outcome(whole) == outcome(folded)
        for event in folded.events:
            for choice in event["choices"]:
                if choice["logprobs"]:
                    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


# ---- where an answer ends


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "case, stop",
    [
        (0, " girl"),
        (0, "d Lil"),  # over three tokens
        (0, "e"),
        (0, ", there was a little girl named Lily. She loved"),  # from the very first token on
        (0, "high.\nLily's mom said"),  # ends with the last token
        (5, "ball"),
        (4, "\n"),
    ],
)
def test_stop_string(server, case, stop, stream):
    """The text ends before the stop string; tokens are counted through the one that completed it."""
    tokens, before = tokens_until(case, stop)
    ask = server.stream if stream else server.complete
    fields = {"stream_options": {"include_usage": True}} if stream else {}
    for form in (stop, [stop]):
        answer = ask(cases()[case]["prompt"], max_tokens=64, stop=form, **fields)
        assert text(answer) == before
        assert only(answer)["finish_reason"] == "stop"
        usage = answer.usage if stream else answer["usage"]
        assert usage["completion_tokens"] == tokens


def test_first_of_several_stops(server):
    """Whichever comes first in the text ends it, whatever the order in the list."""
    stops = ["She", "loved", " named", "nothing like it"]
    tokens, before = tokens_until(0, " named")
    for order in (stops, stops[::-1]):
        answer = server.complete(PROMPT, max_tokens=64, stop=order)
        assert text(answer) == before and answer["usage"]["completion_tokens"] == tokens


def test_stop_that_nearly_comes(server):
    """Text held back because it might begin a stop comes out when it does not, also at the end."""
    for stop in (" girl named Tom", ", there was a little boy", "e said", "Lily's mom said!"):
        for ask in (server.complete, server.stream):
            answer = ask(PROMPT, max_tokens=64, stop=[stop])
            assert text(answer) == expected(0, 64)
            assert only(answer)["finish_reason"] == "length"


def test_stream_never_shows_part_of_a_stop(server):
    """A stream has always sent a prefix of the final text."""
    for stop in (" girl named Lily.", "to play outside in the park", "y. She loved"):
        _, before = tokens_until(0, stop)
        shown = ""
        for event in server.stream(PROMPT, max_tokens=64, stop=stop).events:
            for choice in event["choices"]:
                shown += choice["text"]
                assert before.startswith(shown)
        assert shown == before


def test_stop_with_logprobs(server):
    """The arrays still have one length, and spell at least the text."""
    tokens, before = tokens_until(0, "d Lil")
    for ask in (server.complete, server.stream):
        logprobs = only(ask(PROMPT, max_tokens=64, stop="d Lil", logprobs=1))["logprobs"]
        assert len({len(v) for v in logprobs.values()}) == 1
        assert len(logprobs["tokens"]) <= tokens
        assert "".join(logprobs["tokens"]).startswith(before) or before.startswith(
            "".join(logprobs["tokens"])
        )


def test_stops_are_per_request_among_choices(server):
    """A stop ends its own choice only."""
    answer = server.complete([PROMPT, "The dog"], max_tokens=30, stop=" girl")
    _, before = tokens_until(0, " girl")
    assert [c["text"] for c in answer["choices"]] == [before, expected(3, 30)]
    assert [c["finish_reason"] for c in answer["choices"]] == ["stop", "length"]


def test_sixteen_stops(server):
    """Clients send more than four."""
    answer = server.complete(PROMPT, max_tokens=64, stop=[f"never {i}" for i in range(15)] + [" girl"])
    assert text(answer) == tokens_until(0, " girl")[1]


def test_stop_token_ids(server):
    """A stop token ends the answer and is counted."""
    ids = cases()[0]["greedy_ids"]
    at = 12
    assert ids[at] not in ids[:at]
    for ask in (server.complete, server.stream):
        answer = ask(PROMPT, max_tokens=64, stop_token_ids=[ids[at], 500])
        assert only(answer)["finish_reason"] == "stop"
        assert text(answer) in (text_of(ids[:at]), text_of(ids[: at + 1]))
    assert (
        server.complete(PROMPT, max_tokens=64, stop_token_ids=[ids[at]])["usage"]["completion_tokens"]
        == at + 1
    )
    assert text(server.complete(PROMPT, max_tokens=64, stop_token_ids=[])) == expected(0, 64)


def test_end_of_text(server):
    """EOS ends the answer, gives no text, and is counted; ignore_eos goes on."""
    force = {"logit_bias": {str(EOS): 100}, "max_tokens": 6}
    for ask in (server.complete, server.stream):
        answer = ask(PROMPT, **force)
        assert (text(answer), only(answer)["finish_reason"]) == ("", "stop")
        answer = ask(PROMPT, ignore_eos=True, **force)
        assert (text(answer), only(answer)["finish_reason"]) == ("", "length")
    assert server.complete(PROMPT, **force)["usage"]["completion_tokens"] == 1
    assert server.complete(PROMPT, ignore_eos=True, **force)["usage"]["completion_tokens"] == 6


def test_skip_special_tokens(server):
    shown = server.complete(
        PROMPT, logit_bias={str(EOS): 100}, ignore_eos=True, max_tokens=2, skip_special_tokens=False
    )
    assert text(shown) == "</s></s>"


def test_min_tokens(server):
    """Before min_tokens no stop token is sampled, however probable."""
    force = {"logit_bias": {str(EOS): 100}, "max_tokens": 20}
    answer = server.complete(PROMPT, min_tokens=5, **force)
    assert text(answer) == expected(0, 5)
    assert only(answer)["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 6
    assert server.complete(PROMPT, min_tokens=0, **force)["usage"]["completion_tokens"] == 1
    ids = cases()[0]["greedy_ids"]
    answer = server.complete(PROMPT, min_tokens=20, max_tokens=20, stop_token_ids=[ids[3]])
    assert answer["usage"]["completion_tokens"] == 20


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 33, 64])
def test_max_tokens(server, count):
    answer = server.complete(PROMPT, max_tokens=count)
    assert text(answer) == expected(0, count)
    assert answer["usage"]["completion_tokens"] == count
    assert only(answer)["finish_reason"] == "length"


def test_max_tokens_zero(server):
    """Nothing is asked for: an empty answer that ends by length, or a refusal that names the field."""
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 0})
    if reply.status == 200:
        answer = reply.json()
        assert (text(answer), only(answer)["finish_reason"]) == ("", "length")
        assert answer["usage"]["completion_tokens"] == 0
    else:
        check_error(reply, 400, "max_tokens")


def test_max_tokens_absent(server):
    """The endpoint's default of 16, or the room left; null is the same as absent."""
    answer = server.complete(PROMPT)
    count = answer["usage"]["completion_tokens"]
    assert only(answer)["finish_reason"] == "stop" or count >= 16
    assert text(answer)[: len(expected(0, 16))] == expected(0, 16)
    assert outcome(server.complete(PROMPT, max_tokens=None)) == outcome(answer)


def longest(server):
    return server.get("/v1/models").json()["data"][0]["max_model_len"]


def test_absent_max_tokens_never_refuses(server):
    """A prompt that nearly fills the context is served without max_tokens."""
    room = longest(server)
    answer = server.complete([BOS] + [300] * (room - 4), ignore_eos=True)
    assert 1 <= answer["usage"]["completion_tokens"] <= 3
    assert only(answer)["finish_reason"] == "length"


def test_context_is_the_limit(server):
    """A prompt too long is refused with numbers; the longest that fits is served."""
    room = longest(server)
    error = check_error(
        server.post("/v1/completions", {"prompt": [300] * (room + 1), "max_tokens": 1}),
        400,
        code="context_length_exceeded",
    )
    assert str(room) in error["message"]
    assert server.complete([300] * (room - 1), max_tokens=1)["usage"]["total_tokens"] == room


def test_max_tokens_beyond_the_context(server):
    """More than fits is cut to the context, or refused with numbers; never a hang or a 5xx."""
    room = longest(server)
    for count in (room, 2**31, 2**62):
        body = {"prompt": [300] * (room - 10), "max_tokens": count, "ignore_eos": True, "temperature": 0}
        reply = server.post("/v1/completions", body)
        if reply.status == 200:
            assert reply.json()["usage"]["total_tokens"] <= room
        else:
            error = check_error(reply, 400)
            assert any(c.isdigit() for c in error["message"])


# ---- usage, the prefix cache


def test_cached_tokens(server):
    """The second of two equal long prompts comes from the cache, with the same bits."""
    prompt = [BOS] + [(i * 7919) % 500 + 5 for i in range(130)]
    fresh = dict(
        max_tokens=8, logprobs=5, cache_salt=uuid.uuid4().hex
    )  # nobody else has asked with this salt
    first = server.complete(prompt, **fresh)
    second = server.complete(prompt, **fresh)
    assert first["usage"]["prompt_tokens"] == second["usage"]["prompt_tokens"] == 131
    cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in (first, second)]
    assert cached[0] == 0
    assert 112 <= cached[1] <= 130 and cached[1] % 16 == 0, cached
    assert outcome(first) == outcome(second)


def test_last_prompt_token_is_computed(server):
    """A prompt of whole blocks, cached wholly, is still computed at its last token: the answer is right."""
    prompt = [BOS] + [(i * 104729) % 500 + 5 for i in range(95)]
    fresh = dict(max_tokens=12, logprobs=5, cache_salt=uuid.uuid4().hex)
    answers = [server.complete(prompt, **fresh) for _ in range(3)]
    assert outcome(answers[0]) == outcome(answers[1]) == outcome(answers[2])
    assert answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 80


def test_prefix_caching_can_be_off(start):
    server = start("--no-enable-prefix-caching")
    prompt = cases()[2]["prompt_ids"]
    for _ in range(2):
        answer = server.complete(prompt, max_tokens=64)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert text(answer) == cases()[2]["greedy_text"]


@pytest.mark.parametrize("fields, reason, why", [
    ({"stop": ["xyz", " girl"]}, "stop", " girl"),
    ({"stop_token_ids": [cases()[0]["greedy_ids"][5]]}, "stop", cases()[0]["greedy_ids"][5]),
    ({"logit_bias": {"2": 100}}, "stop", None),
    ({"logit_bias": {"2": 100}, "stop_token_ids": [2]}, "stop", None),
    ({"logit_bias": {"2": 100}, "stop_token_ids": [2], "ignore_eos": True}, "stop", 2),
    ({"stop": "xyz"}, "length", None),
], ids=str)  # fmt: skip
def test_stop_reason(server, fields, reason, why):
    """vLLM's: the string or the id that ended the answer; null of the model's own end."""
    fields = {"max_tokens": 40, "temperature": 0} | fields
    (choice,) = server.complete(PROMPT, **fields)["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == (reason, why)
    chunks = [c for event in server.stream(PROMPT, **fields).events for c in event["choices"]]
    assert (chunks[-1]["finish_reason"], chunks[-1]["stop_reason"]) == (reason, why)
    assert all(c["stop_reason"] is None for c in chunks[:-1])


@pytest.mark.parametrize("n", [1, 2])
def test_timings(server, n):
    """llama-server's, for who asks: at the end of a body, and in each chunk."""
    fields = {"max_tokens": 20, "ignore_eos": True, "n": n, "temperature": 0, "timings_per_token": True}
    answer = server.complete(PROMPT, **fields)
    events = [e for e in server.stream(PROMPT, **fields).events if e["choices"]]
    for t in (answer["timings"], events[-1]["timings"]):
        assert t["prompt_n"] + t["cache_n"] == answer["usage"]["prompt_tokens"] and t["predicted_n"] == 20 * n
        assert t["prompt_ms"] > 0 and t["predicted_ms"] > 0
        assert t["predicted_per_token_ms"] == pytest.approx(t["predicted_ms"] / (19 * n))  # after the first of each
        assert t["predicted_per_second"] == pytest.approx(19e3 * n / t["predicted_ms"])
        assert t["prompt_per_second"] == pytest.approx(t["prompt_n"] * 1e3 / t["prompt_ms"], rel=0.01, abs=0.001)
    so_far = [e["timings"]["predicted_n"] for e in events]
    assert so_far == sorted(so_far) and so_far[0] < so_far[-1]
    assert "timings" not in server.complete(PROMPT, max_tokens=1)
    names = {"cache_n"} | {f"{what}_{unit}" for what in ("prompt", "predicted") for unit in ("n", "ms", "per_token_ms", "per_second")}
    assert set(server.complete(PROMPT, max_tokens=1, timings=True)["timings"]) == names


def test_cache_salt_separates(server):
    """Requests with another salt do not see the blocks: no timing tells what others asked."""
    prompt = [BOS] + [(i * 15485863) % 500 + 5 for i in range(100)]

    def cached(**fields):
        return server.complete(prompt, max_tokens=1, **fields)["usage"]["prompt_tokens_details"][
            "cached_tokens"
        ]

    one, other = uuid.uuid4().hex, uuid.uuid4().hex
    assert cached(cache_salt=one) == 0
    assert cached(cache_salt=one) >= 80
    assert cached(cache_salt=other) == 0
    assert cached() == 0


def test_response_object(server):
    answer = server.complete(PROMPT, max_tokens=3)
    assert answer["id"].startswith("cmpl-") and answer["object"] == "text_completion"
    assert answer["model"] == server.models()[0]
    other = server.complete(PROMPT, max_tokens=3)
    assert other["id"] != answer["id"]


def test_model_by_name(server):
    name = server.models()[0]
    assert text(server.complete(PROMPT, max_tokens=4, model=name)) == expected(0, 4)
    assert text(server.complete(PROMPT, max_tokens=4, model=None)) == expected(0, 4)
    check_error(
        server.post("/v1/completions", {"prompt": PROMPT, "model": "no-such-model"}),
        404,
        code="model_not_found",
    )


def test_served_model_name(start):
    server = start("--served-model-name", "team/stories:v1")
    assert server.models() == ["team/stories:v1"]
    assert server.complete(PROMPT, max_tokens=1, model="team/stories:v1")["model"] == "team/stories:v1"
    for path in ("/v1/models/team/stories:v1", "/v1/models/team%2Fstories:v1"):
        assert server.get(path).json()["id"] == "team/stories:v1"
    check_error(server.get("/v1/models/team"), 404, code="model_not_found")


def test_several_names(start):
    """Every name is listed and answers; the names may hold any character."""
    odd = 'a "b" \\c é {d="e"}'
    server = start("--served-model-name", odd, "--served-model-name", "two")
    assert server.models() == [odd, "two"]
    for name in (odd, "two"):
        assert server.complete(PROMPT, max_tokens=2, model=name)["model"] == name
        path = "/v1/models/" + urllib.parse.quote(name, safe="")
        assert server.get(path).json()["id"] == name
    assert server.stream(PROMPT, max_tokens=2, model=odd).events[0]["model"] == odd
    server.metrics()


def test_seed_of_the_server(start):
    """With --seed even requests that bring no seed are sampled the same way in every run."""
    fields = dict(max_tokens=32, temperature=1)
    runs = []
    for seed in (7, 7, 8):
        server = start("--seed", seed)
        runs.append([text(server.complete(PROMPT, **fields)) for _ in range(3)])
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) == 3


# ---- UTF-8 and fields that do nothing


@pytest.mark.parametrize(
    "prompt",
    ["naïve café", "日本語のテキスト", "🙂🙃👩‍👩‍👧", "a\u0301\u200d\ufeff", "\ufffd", "tab\tnew\nline"],
)
def test_unicode_prompts(server, prompt):
    """Any text is a prompt; bytes that the vocabulary lacks become byte tokens."""
    answer = server.complete(prompt, max_tokens=8, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["usage"]["prompt_tokens"] >= 2
    assert outcome(server.stream(prompt, max_tokens=8, ignore_eos=True)) == outcome(answer)


def test_invalid_output_becomes_replacement_characters(server):
    """Bytes that are no UTF-8 never reach a client; a cut sequence is flushed as U+FFFD."""
    bias = {"logit_bias": {str(byte_token(0xF0)): 100}, "max_tokens": 4, "ignore_eos": True}
    whole, folded = server.complete(PROMPT, **bias), server.stream(PROMPT, **bias)
    assert text(whole) == text(folded) == "\ufffd" * 4


def test_seed_at_the_edges(server):
    for seed in (0, 2**63 - 1, -(2**63)):
        server.complete(PROMPT, max_tokens=1, temperature=1, seed=seed)


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "someone"},
        {"foo": 1, "bar": {"baz": [None]}},
        {
            "stop": None,
            "n": None,
            "logprobs": None,
            "seed": None,
            "user": None,
            "stream": None,
            "stream_options": None,
        },
        {"suffix": None, "echo": None, "best_of": None, "logit_bias": None, "functions": None},
        {"echo": False, "best_of": 1},
        {"max_tokens": 8.0, "n": 1.0, "temperature": 0, "top_p": 1},
        {"priority": 0},
        {"presence_penalty": -2, "frequency_penalty": 2, "temperature": 2, "top_k": 1},
        {"add_special_tokens": True, "skip_special_tokens": True},
    ],
    ids=str,
)
def test_fields_that_change_nothing(server, fields):
    """Unknown fields are ignored, null is absent, 8.0 is 8."""
    want = server.complete(
        PROMPT, **({"max_tokens": 8} | {k: v for k, v in fields.items() if "penalty" in k})
    )
    assert text(server.complete(PROMPT, **({"max_tokens": 8} | fields))) == text(want)


@pytest.mark.parametrize(
    "field, value",
    [
        ("suffix", " the end."),
        ("best_of", 2),
    ],
)
def test_documented_fields_without_an_effect_are_refused(server, field, value):
    """A field of the documented API that would be ignored is refused by name: no silently wrong answer."""
    check_error(
        server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, field: value}),
        (400, 501),
        field,
        type=None,
    )
    assert text(server.complete(PROMPT, max_tokens=8)) == expected(0, 8)


def test_echo(server):
    """echo is honoured as evaluation tools need it, or refused by name."""
    ids = cases()[0]["prompt_ids"]
    body = {"prompt": [ids], "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}
    reply = server.post("/v1/completions", body)
    if reply.status != 200:
        check_error(reply, (400, 501), "echo", type=None)
        return
    choice = only(reply.json())
    logprobs = choice["logprobs"]
    assert {len(v) for v in logprobs.values()} == {len(ids) + 1}
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    for value, top in list(zip(logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
        assert value in top.values() and max(top.values()) >= value
    assert logprobs["text_offset"][0] == 0
    assert choice["text"].endswith(text_of([432]))


def test_how_long_a_prompt_is_that_does_not_fit(server):
    """Counted, up to a megabyte; beyond it the bytes say enough."""
    prompt = 5000 * "cat "
    ids = server.post("/tokenize", {"prompt": prompt}).json()["count"]
    assert ids > server.get("/v1/models").json()["data"][0]["max_model_len"]
    error = server.post("/v1/completions", {"prompt": prompt}).json()["error"]
    assert error["code"] == "context_length_exceeded" and error["n_prompt_tokens"] == ids
    error = server.post("/v1/completions", {"prompt": 300000 * "cat "}).json()["error"]
    assert error["code"] == "context_length_exceeded" and "n_prompt_tokens" not in error
