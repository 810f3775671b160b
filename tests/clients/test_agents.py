"""LangChain and Pydantic AI, by chat and by Responses; they want a later openai than the others here."""

import asyncio

import openai
import pydantic
import pytest

from conftest import MODEL

QUESTION = "What is the weather in Oslo?"
SUNNY = '{"weather": "sunny", "temperature": 3}'


class City(pydantic.BaseModel):
    """A place."""

    city: str


@pytest.fixture(scope="module")
def run():
    """Runs a coroutine in the loop of them all: LangChain keeps its connections."""
    with asyncio.Runner() as runner:
        yield runner.run


# ---- LangChain


def langchain(server, **options):
    module = pytest.importorskip("langchain_openai", reason="requirements_agents.txt is not installed")
    return module.ChatOpenAI(base_url=server.url + "/v1", api_key="EMPTY", model=MODEL, temperature=0, max_retries=0, **options)


def get_weather(city: str) -> str:
    """Get the weather of a city"""
    return SUNNY


@pytest.mark.parametrize("options", [{}, {"use_responses_api": True}], ids=["chat", "responses"])
class TestLangChain:
    def test_chat(self, server, options, run):
        model = langchain(server, **options)
        whole = model.invoke([("system", "Be kind."), ("user", "Hello")])
        assert whole.text and whole.usage_metadata["total_tokens"] == whole.usage_metadata["input_tokens"] + whole.usage_metadata["output_tokens"]
        pieces = list(model.stream([("system", "Be kind."), ("user", "Hello")]))
        assert "".join(piece.text for piece in pieces) == whole.text and len(pieces) > 3
        assert run(model.ainvoke([("system", "Be kind."), ("user", "Hello")])).text == whole.text
        assert [one.text for one in model.batch(["Hello", "Hello"])] == [model.invoke("Hello").text] * 2

    def test_tools(self, server, options):
        model = langchain(server, **options).bind_tools([get_weather])
        from langchain_core.messages import HumanMessage, ToolMessage

        for take in (model.invoke, lambda messages: sum_of(model.stream(messages))):
            messages = [HumanMessage(QUESTION)]
            messages.append(take(messages))
            [call] = messages[-1].tool_calls
            assert (call["name"], call["args"]) == ("get_weather", {"city": "Oslo"})
            messages.append(ToolMessage(SUNNY, tool_call_id=call["id"]))
            assert "sunny" in take(messages).text

    @pytest.mark.parametrize("method", ["function_calling", "json_schema"])
    def test_structured(self, server, options, method):
        assert langchain(server, **options).with_structured_output(City, method=method).invoke(QUESTION) == City(city="Oslo")


def sum_of(pieces):
    whole = None
    for piece in pieces:
        whole = piece if whole is None else whole + piece
    return whole


# ---- Pydantic AI


@pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])
class TestPydanticAI:
    def agent(self, server, kind, **options):
        ai = pytest.importorskip("pydantic_ai", reason="requirements_agents.txt is not installed")
        from pydantic_ai.models import openai as models
        from pydantic_ai.providers.openai import OpenAIProvider

        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="EMPTY", max_retries=0)  # one loop has it
        model = getattr(models, kind)(MODEL, provider=OpenAIProvider(openai_client=client))
        return ai.Agent(model, model_settings={"temperature": 0, "max_tokens": 80}, **options)

    def test_tools(self, server, kind, run):
        agent, asked = self.agent(server, kind), []

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """Get the weather of a city"""
            asked.append(city)
            return SUNNY

        async def talk():
            first = await agent.run(QUESTION)
            assert "sunny" in first.output and asked == ["Oslo"] and first.usage.requests == 2
            again = await agent.run("What is the weather in Rome?", message_history=first.all_messages())
            assert "sunny" in again.output and asked == ["Oslo", "Rome"]
            async with agent.run_stream(QUESTION) as result:
                pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
            assert "".join(pieces) == first.output and len(pieces) > 3

        run(talk())

    def test_structured(self, server, kind, run):
        ai = pytest.importorskip("pydantic_ai", reason="requirements_agents.txt is not installed")
        for output in (City, ai.NativeOutput(City)):
            assert run(self.agent(server, kind, output_type=output).run(QUESTION)).output == City(city="Oslo")

