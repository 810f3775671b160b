"""Answers against OpenAI's published schema, and the rules of a stream that the schema cannot say."""

import pytest

from goldens import expected
from schema import validate
from wire import Folded, parse_event

PROMPT = "Once upon a time"


def test_the_validator_bites():
    with pytest.raises(AssertionError):
        validate(
            {"id": "x", "object": "text_completion", "created": 1, "model": "m"}, "CreateCompletionResponse"
        )
    with pytest.raises(AssertionError):
        validate({"error": {"message": "m", "type": "t", "param": None, "code": 400}}, "ErrorResponse")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 3, "temperature": 1},
        {"logprobs": 5},
        {"logprobs": 0},
        {"stop": " girl"},
        {"prompt": ["a", "b"]},
    ],
    ids=str,
)
def test_completion(server, fields):
    answer = server.complete(**({"prompt": PROMPT, "max_tokens": 12} | fields))
    validate(answer, "CreateCompletionResponse")
    assert isinstance(answer["system_fingerprint"], str)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert isinstance(usage["prompt_tokens_details"]["cached_tokens"], int)


@pytest.mark.parametrize(
    "fields", [{}, {"n": 3, "temperature": 1}, {"logprobs": 5}, {"stop": " girl"}], ids=str
)
def test_chunks(server, fields):
    folded = server.stream(PROMPT, **({"max_tokens": 12, "stream_options": {"include_usage": True}} | fields))
    for event in folded.events:
        validate(event, "CreateCompletionResponse", streamed=True)
    assert folded.events[0]["id"].startswith("cmpl-")


def test_models(server):
    listing = server.get("/v1/models").json()
    validate(listing, "ListModelsResponse")
    assert len(listing["data"]) == 1
    validate(server.get("/v1/models/" + listing["data"][0]["id"]).json(), "Model")
    assert isinstance(listing["data"][0]["max_model_len"], int)


def test_errors(server):
    replies = [
        server.post("/v1/completions", b"{"),
        server.post("/v1/completions", {"prompt": PROMPT, "n": 0}),
        server.post("/v1/completions", {"prompt": PROMPT, "model": "none"}),
        server.get("/v1/models/none"),
        server.get("/nowhere"),
        server.get("/v1/completions"),
        server.post("/v1/completions", {"prompt": [1] * 100_000}),
        server.call(
            "POST", "/v1/completions", b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"}
        ),
    ]
    for reply in replies:
        assert 400 <= reply.status < 500
        validate(reply.json(), "ErrorResponse")


# ---- streams


def test_no_usage_unless_asked(server):
    """Clients take choices[0] of every chunk: one without choices comes only when asked for."""
    for options in ({}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}):
        folded = server.stream(PROMPT, max_tokens=6, **options)
        assert all(len(e["choices"]) == 1 for e in folded.events)
        assert folded.usage is None


def test_usage_chunk_is_last(server):
    events = server.stream(PROMPT, max_tokens=6, stream_options={"include_usage": True}).events
    assert [e["choices"] == [] for e in events] == [False] * (len(events) - 1) + [True]
    assert all(e.get("usage") is None for e in events[:-1])
    usage = events[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 6, 11)


@pytest.mark.parametrize(
    "fields", [{}, {"n": 3}, {"prompt": ["Once", "The dog", "One day"]}], ids=["one", "n", "list"]
)
def test_continuous_usage(server, fields):
    """Every chunk carries the usage so far, which never falls, and ends at the total."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = server.stream(
        **({"prompt": PROMPT, "max_tokens": 12, "stream_options": options} | fields)
    ).events
    counts = [e["usage"]["completion_tokens"] for e in events]
    assert counts == sorted(counts)
    if not fields:
        assert counts == [*range(1, 13), 12]  # the tokens told so far, never one ahead of the text
    assert len({e["usage"]["prompt_tokens"] for e in events}) == 1
    for event in events:
        usage = event["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert events[-1]["choices"] == []
    assert counts[-1] == 12 * len({c["index"] for e in events for c in e["choices"]})


def test_one_event_per_chunk_and_write(server):
    """Load generators count writes as tokens: one event is one HTTP chunk. (Every stream of these tests checks it.)"""
    stream = server.open_stream(PROMPT, max_tokens=20)
    raw = []
    while chunk := stream.conn.read_chunk():
        assert chunk.startswith((b"data: ", b": ")) and chunk.endswith(b"\n\n") and chunk.count(b"\n") == 2
        raw.append(chunk)
    assert raw[-1] == b"data: [DONE]\n\n"
    events = [parse_event(r[:-2]) for r in raw[:-1]]
    assert Folded([e for e in events if e]).choices[0]["text"] == expected(0, 20)
    stream.conn.close()


def test_tokens_come_one_by_one(server):
    """Text is sent as it is made, not saved up: about one chunk a token."""
    texts = [
        c["text"] for e in server.stream(PROMPT, max_tokens=64).events for c in e["choices"] if c["text"]
    ]
    assert len(texts) >= 60


def test_stream_false_is_no_stream(server):
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "stream": False})
    assert reply.header("content-type").split(";")[0] == "application/json"
    validate(reply.json(), "CreateCompletionResponse")


def test_error_before_the_first_byte(server):
    """An invalid streaming request gets a status, not an error inside a stream."""
    reply = server.post("/v1/completions", {"prompt": PROMPT, "stream": True, "temperature": 9})
    assert reply.status == 400
    validate(reply.json(), "ErrorResponse")
