"""The official client, unchanged, against the server."""

import concurrent.futures

import openai
import pytest

from goldens import cases, expected
from wire import outcome

PROMPT = "Once upon a time"


def connect(server, **options):
    return openai.OpenAI(
        base_url=server.url + "/v1",
        **({"api_key": server.key or "EMPTY", "max_retries": 0, "timeout": 60} | options),
    )


@pytest.fixture
def client(server):
    with connect(server) as client:
        yield client


@pytest.fixture
def name(client):
    return client.models.list().data[0].id


def test_complete(client, name):
    answer = client.completions.create(model=name, prompt=PROMPT, max_tokens=64, temperature=0)
    assert answer.choices[0].text == cases()[0]["greedy_text"]
    assert answer.choices[0].finish_reason == "length"
    assert (
        answer.usage.prompt_tokens == 5
        and answer.usage.completion_tokens == 64
        and answer.usage.total_tokens == 69
    )
    assert answer._request_id, "the client finds x-request-id"


def test_stream(client, name):
    chunks = list(
        client.completions.create(model=name, prompt=PROMPT, max_tokens=64, temperature=0, stream=True)
    )
    assert "".join(c.choices[0].text for c in chunks) == cases()[0]["greedy_text"]
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["length"]
    assert all(c.usage is None for c in chunks)


def test_usage_chunk(client, name):
    """With include_usage one more chunk comes last, without choices."""
    chunks = list(
        client.completions.create(
            model=name,
            prompt=PROMPT,
            max_tokens=9,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 14
    assert all(c.usage is None and c.choices for c in chunks[:-1])


def test_several_choices(client, name):
    answer = client.completions.create(model=name, prompt=PROMPT, max_tokens=20, temperature=1, seed=4, n=3)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.text for c in answer.choices}) == 3


def test_extra_body(client, name):
    answer = client.completions.create(
        model=name,
        prompt=PROMPT,
        max_tokens=12,
        temperature=1,
        seed=4,
        extra_body={"top_k": 1, "ignore_eos": True},
    )
    assert answer.choices[0].text == expected(0, 12)


def test_models(client, name):
    model = client.models.retrieve(name)
    assert model.id == name and model.object == "model" and model.created > 1_600_000_000 and model.owned_by
    assert client.models.retrieve(name).created == model.created
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert caught.value.code == "model_not_found"


def test_errors(client, name):
    """Statuses map to the client's exceptions; code, param and type come through."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=name, prompt=PROMPT, temperature=3)
    assert caught.value.param == "temperature" and caught.value.type == "invalid_request_error"
    assert "temperature" in caught.value.message
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="no-such-model", prompt=PROMPT)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        list(client.completions.create(model=name, prompt=[[9999]], stream=True))
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=name, prompt=[300] * 100_000)
    assert caught.value.code == "context_length_exceeded"


def test_key(start):
    server = start("--api-key", "right-key", key="right-key")
    with connect(server) as client:
        assert client.models.list().data
    with connect(server, api_key="wrong-key") as client, pytest.raises(openai.AuthenticationError) as caught:
        client.models.list()
    assert caught.value.code == "invalid_api_key"


def test_leaving_a_stream(client, name, server):
    """A consumer that stops reading frees everything."""
    with client.completions.create(
        model=name, prompt=PROMPT, max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
    ) as chunks:
        for i, _ in enumerate(chunks):
            if i == 3:
                break
    server.wait_idle()


def test_64_streams_at_once(client, name, server):
    """64 streams through one client, all at once: each is what it is alone, log-probabilities to the last bit."""
    requests = []
    for i in range(64):
        fields = {"prompt": cases()[i % 6]["prompt"], "max_tokens": 40 + i % 25, "logprobs": i % 4}
        fields |= {"temperature": 0} if i % 2 else {"temperature": 0.9, "seed": i}
        requests.append(fields)
    alone = [outcome(server.complete(**fields)) for fields in requests]
    for i, fields in enumerate(requests):
        if i % 2:
            assert alone[i][0][1] == expected(i % 6, fields["max_tokens"])

    def stream(fields):
        text, logprobs, finish = (
            "",
            {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []},
            None,
        )
        for chunk in client.completions.create(model=name, stream=True, **fields):
            choice = chunk.choices[0]
            text += choice.text
            finish = choice.finish_reason or finish
            if choice.logprobs:
                for key, values in logprobs.items():
                    values += getattr(choice.logprobs, key)
        return [(0, text, logprobs, finish)]

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        together = list(pool.map(stream, requests))
    assert together == alone
