"""LiteLLM by each of its ways to a server."""

import asyncio
import json
import os

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch it
import litellm  # noqa: E402

from conftest import MODEL  # noqa: E402

HI = [{"role": "user", "content": "Hi!"}]
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]  # fmt: skip
WAYS = {"openai": "/v1", "hosted_vllm": "/v1", "anthropic": "", "ollama_chat": ""}


@pytest.fixture(params=WAYS)
def way(request, server):
    """The arguments of every call."""
    return {"model": f"{request.param}/{MODEL}", "api_base": server.url + WAYS[request.param], "api_key": "none", "temperature": 0, "max_tokens": 60, "num_retries": 0}


def test_text(way, server):
    whole = litellm.completion(messages=HI, **way)
    want = server.post("/v1/chat/completions", {"messages": HI, "temperature": 0, "max_tokens": 60}).json()
    choice = want["choices"][0]
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (choice["message"]["content"], "stop")
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (want["usage"]["prompt_tokens"], want["usage"]["completion_tokens"])
    chunks = list(litellm.completion(messages=HI, stream=True, **way))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content and len(chunks) > 3
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert asyncio.run(litellm.acompletion(messages=HI, **way)).choices[0].message.content == whole.choices[0].message.content


def test_ends(way):
    text = litellm.completion(messages=HI, **way).choices[0].message.content
    short = litellm.completion(messages=HI, **{**way, "max_tokens": 2})
    assert short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 2
    stop = text.split()[1]
    assert litellm.completion(messages=HI, stop=[stop], **way).choices[0].message.content == text[: text.index(stop)]


def test_tools(way):
    """A call, whole and streamed, and the words after its result."""
    whole = litellm.completion(messages=ASK, tools=TOOLS, **way).choices[0]
    streamed = litellm.stream_chunk_builder(list(litellm.completion(messages=ASK, tools=TOOLS, stream=True, **way))).choices[0]
    for choice in (whole, streamed):
        [call] = choice.message.tool_calls
        assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Oslo"} and choice.finish_reason == "tool_calls"
    result = {"role": "tool", "tool_call_id": whole.message.tool_calls[0].id, "name": "get_weather", "content": json.dumps({"weather": "sunny", "temperature": 3})}
    final = litellm.completion(messages=[*ASK, whole.message, result], tools=TOOLS, **way).choices[0]
    assert "sunny" in final.message.content and final.finish_reason == "stop"


def test_errors(way):
    with pytest.raises(litellm.NotFoundError, match="no-model"):
        litellm.completion(messages=HI, **{**way, "model": way["model"].replace(MODEL, "no-model")})
    with pytest.raises(litellm.BadRequestError, match="maximum context length"):
        litellm.completion(messages=[{"role": "user", "content": "word " * 5000}], **way)


def test_messages(server):
    """Its own front of the Messages API."""
    reply = asyncio.run(litellm.anthropic_messages(model=f"anthropic/{MODEL}", messages=HI, max_tokens=20, api_base=server.url, api_key="none"))
    assert reply["content"][0]["type"] == "text" and reply["usage"]["output_tokens"] > 1


def test_embedding(embedder):
    want = embedder.post("/v1/embeddings", {"input": ["ab", "b"]}).json()["data"]
    name = embedder.models()[0]
    for way, base in (("openai", "/v1"), ("ollama", "")):
        got = litellm.embedding(model=f"{way}/{name}", input=["ab", "b"], api_base=embedder.url + base, api_key="none").data
        assert [len(one["embedding"]) for one in got] == [len(one["embedding"]) for one in want]
        assert max(abs(a - b) for one, two in zip(got, want, strict=True) for a, b in zip(one["embedding"], two["embedding"], strict=True)) < 1e-6
