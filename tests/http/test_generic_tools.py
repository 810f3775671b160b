"""Tools of models whose chat template knows none: described in a message, called between tags, results told by the user; or left out,
or refused, as --tools-fallback says."""

import json
import subprocess
import sys

import pytest

import goldens
from process import Server
from wire import check_error

CHAT = "/v1/chat/completions"
WEATHER = {"name": "get_weather", "description": "Get the weather of a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}}  # fmt: skip
TOOLS = [{"type": "function", "function": WEATHER}]
HI = [{"role": "user", "content": "What is the weather in Oslo?"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
AGAIN = {"id": "c2", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
HISTORY = [*HI, {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, AGAIN]}, {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
           {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "rainy"}]}, {"role": "user", "content": "And?"}]  # fmt: skip


@pytest.fixture(scope="module", params=["chatml", "gemma"])
def plain(request, tmp_path_factory):
    """Gemma's own template refuses a system message, and turns that are not taken."""
    template = "chatml"
    if request.param == "gemma":
        template = tmp_path_factory.mktemp("t") / "t.jinja"
        template.write_text(json.loads(goldens.data("templates/hf-configs/gemma.tokenizer_config.json").read_text())["chat_template"])
    server = Server("--chat-template", template, model="")
    server.template = request.param
    yield server
    server.stop()


def rendered(server, messages, **fields):
    reply = server.post("/apply-template", {"messages": messages, **fields})
    assert reply.status == 200, reply
    return reply.json()["prompt"]


def test_prompt(plain):
    told = rendered(plain, HI, tools=TOOLS)
    [line] = [line for line in told.splitlines() if line.startswith('{"name":"get_weather"')]
    assert json.loads(line) == WEATHER
    assert ("system" in told) == (plain.template == "chatml") and told.index(line) < told.index("What is the weather")
    assert rendered(plain, HI, tools=TOOLS, tool_choice="none") == rendered(plain, HI)
    both = rendered(plain, [{"role": "system", "content": "Be brief."}, *HI], tools=TOOLS) if plain.template == "chatml" else "Be brief."
    assert "Be brief." in both and both.count("system") <= 1


def test_history(plain):
    """Calls and results are texts, and roles take turns: the template sees no others."""
    told = rendered(plain, HISTORY, tools=TOOLS)
    calls = [json.loads(part.split("</tool_call>")[0]) for part in told.split("Let me see.")[1].split("<tool_call>")[1:]]
    assert calls == [{"name": "get_weather", "arguments": {"city": city}} for city in ("Oslo", "Rome")]
    assert "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nrainy\n</tool_response>\n\nAnd?" in told
    assert rendered(plain, HISTORY).count("<tool_call>") == 2  # without tools, too


def test_calls(plain):
    """One that is asked for is held to the tool's schema; the embedded model writes such calls of its own accord."""
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        message = plain.post(CHAT, {"messages": HI, "tools": TOOLS, "tool_choice": choice, "temperature": 1.5, "seed": 3, "max_tokens": 200, "parallel_tool_calls": False}).json()["choices"][0]["message"]  # fmt: skip
        [call] = message["tool_calls"]
        assert call["function"]["name"] == "get_weather" and json.loads(call["function"]["arguments"])["city"] in ("Oslo", "Rome")
    for path, body in ((CHAT, {"messages": HISTORY, "tools": TOOLS}), ("/v1/messages", {"messages": HI, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
                       ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", **WEATHER}]}), ("/api/chat", {"messages": HI, "tools": TOOLS, "stream": False})):  # fmt: skip
        reply = plain.post(path, {"model": "quire-tiny", "max_tokens": 8, **body})
        assert reply.status == 200 and "tools" not in (reply.header("x-quire-ignored") or ""), reply
    assert "tools" in plain.post("/api/show", {"model": "quire-tiny"}).json()["capabilities"]


def test_without(start):
    """ignore: the answer is that of the same request without tools, and that is told; refuse: it is none."""
    left_out = start("--chat-template", "chatml", "--tools-fallback", "ignore", model="")
    body = {"messages": HI, "max_tokens": 8, "temperature": 0}
    told = left_out.post(CHAT, {**body, "tools": TOOLS})
    assert told.header("x-quire-ignored") == "tools" and told.json()["choices"] == left_out.post(CHAT, body).json()["choices"]
    for path, of in (("/v1/responses", {"input": "Hi", "tools": [{"type": "function", **WEATHER}]}), ("/api/chat", {"messages": HI, "tools": TOOLS, "stream": False}),
                     ("/v1/messages", {"messages": HI, "max_tokens": 4, "tools": [{"name": "f", "input_schema": {"type": "object"}}]})):  # fmt: skip
        reply = left_out.post(path, {"model": "quire-tiny", **of})
        assert reply.status == 200 and reply.header("x-quire-ignored") == "tools"
    check_error(left_out.post(CHAT, {**body, "tools": TOOLS, "tool_choice": "required"}), 400, "tool_choice")
    assert "tools" not in left_out.post("/api/show", {"model": "quire-tiny"}).json()["capabilities"]
    refuses = start("--chat-template", "chatml", "--tools-fallback", "refuse", model="")
    check_error(refuses.post(CHAT, {**body, "tools": TOOLS}), 400, "tools")


def test_own_form_comes_first(tiny):
    """A template that knows tools gets them as they are."""
    assert "You can call these functions" not in rendered(tiny, HI, tools=TOOLS)
    assert "tools" in tiny.post("/api/show", {"model": "quire-tiny"}).json()["capabilities"]


def test_template_for_tools(start, tmp_path):
    """A template of the name tool_use is one that knows them, though the usual one does not."""
    subprocess.run([sys.executable, goldens.ROOT / "tests/tools/make_folder.py", tmp_path / "m"], check=True)
    turns = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    (tmp_path / "m/chat_template.jinja").write_text(turns)
    (tmp_path / "m/additional_chat_templates").mkdir()
    (tmp_path / "m/additional_chat_templates/tool_use.jinja").write_text('{{ tools | tojson }}<tool_call>{"name": "", "arguments": {}}' + turns)
    server = start(model=tmp_path / "m")
    assert "tools" in server.post("/api/show", {"model": "m"}).json()["capabilities"]
    told = rendered(server, HI, tools=TOOLS)
    assert json.loads(told[told.index("[{") : told.index("<tool_call>")]) == TOOLS and "You can call" not in told
    assert rendered(server, HI).endswith("[user]" + HI[0]["content"])
