"""instructor: objects of a class by tools, by schema, by Responses and by Messages, whole and in parts, and asked again."""

import asyncio
from typing import Literal

import anthropic
import instructor
import openai
import pydantic
import pytest

from conftest import MODEL

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "max_tokens": 80}
MODES = [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA, instructor.Mode.RESPONSES_TOOLS]


class City(pydantic.BaseModel):
    """A place."""

    city: str


class Report(pydantic.BaseModel):
    """A report that no model writes by chance."""

    sky: Literal["sunny", "cloudy"]
    degrees: int = pydantic.Field(ge=-40, le=-39)
    places: list[Literal["Oslo", "Rome"]] = pydantic.Field(min_length=2, max_length=2)


def openai_client(server, mode, client=openai.OpenAI):
    return instructor.from_openai(client(base_url=server.url + "/v1", api_key="none", max_retries=0), mode=mode)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
class TestOpenAI:
    def test_object(self, server, mode):
        client = openai_client(server, mode)
        assert client.create(response_model=City, temperature=0, **ASK).city == "Oslo"
        found = asyncio.run(openai_client(server, mode, openai.AsyncOpenAI).create(response_model=City, temperature=0, **ASK))
        assert found.city == "Oslo"
        parts = [part.city for part in client.create_partial(response_model=City, temperature=0, **ASK)]
        said = [part for part in parts if part is not None]
        assert len(parts) > 3 and said[-1] == "Oslo" and all("Oslo".startswith(part) for part in said)

    def test_constrained(self, server, mode):
        """Sampled at random, and right at once: max_retries is 0."""
        for _ in range(3):
            report = openai_client(server, mode).create(response_model=Report, temperature=1, max_retries=0, **{**ASK, "max_tokens": 300})
            assert report.degrees in (-40, -39) and len(report.places) == 2

    def test_asked_again(self, server, mode):
        """A validator refuses the first answer; the second question has the answer and the complaint."""
        seen = []

        class Fussy(pydantic.BaseModel):
            city: Literal["Oslo", "Rome"]

            @pydantic.field_validator("city")
            @classmethod
            def second_time(cls, city):
                seen.append(city)
                assert len(seen) > 1, "Say it again."
                return city

        answer = openai_client(server, mode).create(response_model=Fussy, temperature=0, max_retries=1, **{**ASK, "max_tokens": 300})
        assert len(seen) == 2 and answer.city == seen[1]


def test_many(server):
    cities = list(openai_client(server, instructor.Mode.JSON_SCHEMA).create_iterable(response_model=City, temperature=0, **ASK))
    assert cities and cities[0].city == "Oslo"


@pytest.mark.parametrize("mode", [instructor.Mode.ANTHROPIC_TOOLS, instructor.Mode.ANTHROPIC_REASONING_TOOLS], ids=lambda mode: mode.name)
def test_anthropic(server, mode):
    client = instructor.from_anthropic(anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0), mode=mode)
    city, message = client.create_with_completion(response_model=City, **ASK)
    assert city.city == "Oslo" and message.stop_reason == "tool_use" and message.usage.output_tokens > 1
