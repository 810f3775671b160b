"""llama-index by OpenAI's, Anthropic's and Ollama's API: text, streams, tools, an agent, embeddings."""

import asyncio
import json

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike

from conftest import CLAUDE, MODEL

HI = [ChatMessage(role="system", content="You are nice."), ChatMessage(role="user", content="Hi!")]
ASK = "What is the weather in Oslo?"


def get_weather(city: str) -> str:
    """Get the weather of a city"""
    return json.dumps({"weather": "sunny", "temperature": 3})


TOOL = FunctionTool.from_defaults(get_weather)


@pytest.fixture(params=["openai", "anthropic", "ollama"])
def llm(request, server):
    if request.param == "openai":
        return OpenAILike(model=MODEL, api_base=server.url + "/v1", api_key="none", is_chat_model=True, is_function_calling_model=True,
                          context_window=1024, temperature=0, max_tokens=60)  # fmt: skip
    if request.param == "anthropic":  # which sends a temperature of 1 to this model, whatever it is told
        return Anthropic(model=CLAUDE, base_url=server.url, api_key="none", temperature=0, max_tokens=60)
    return Ollama(model=MODEL, base_url=server.url, temperature=0, request_timeout=60)


def test_text(llm):
    whole = llm.chat(HI).message.content
    assert whole and "".join(c.delta or "" for c in llm.stream_chat(HI)) == whole
    assert asyncio.run(llm.achat(HI)).message.content == whole
    assert llm.complete("Hi!").text == "".join(c.delta or "" for c in llm.stream_complete("Hi!"))


def test_tools(llm):
    [call] = llm.get_tool_calls_from_response(llm.chat_with_tools([TOOL], user_msg=ASK))
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Oslo"})
    [streamed] = llm.get_tool_calls_from_response(list(llm.stream_chat_with_tools([TOOL], user_msg=ASK))[-1])
    assert streamed.tool_kwargs == call.tool_kwargs


def test_agent(llm):
    async def run():
        return await FunctionAgent(tools=[TOOL], llm=llm).run(ASK)

    assert "sunny" in str(asyncio.run(run()))


def test_context_length(server):
    """Ollama's client plans with the context length that the server reports."""
    assert Ollama(model=MODEL, base_url=server.url).metadata.context_window == 1024


def test_embedding(embedder):
    want = [one["embedding"] for one in embedder.post("/v1/embeddings", {"input": ["ab", "b"]}).json()["data"]]
    name = embedder.models()[0]
    for client in (OpenAILikeEmbedding(model_name=name, api_base=embedder.url + "/v1", api_key="none"), OllamaEmbedding(model_name=name, base_url=embedder.url)):
        got = client.get_text_embedding_batch(["ab", "b"])
        assert max(abs(a - b) for one, two in zip(got, want, strict=True) for a, b in zip(one, two, strict=True)) < 1e-6
