"""Answers that come back as history: every answer is taken, whatever became of its calls; reasoning by any of its names; templates by name."""

import json
import subprocess
import sys

import pytest

import goldens
from process import Server

CHAT = "/v1/chat/completions"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]
# As templates are written that want an object: Qwen 3.5's.
STRICT = (
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }}{% for k, v in c.function.arguments | items %} {{ k }}={{ v }}{% endfor %}]"
    "{% endfor %}{% endfor %}{% if tools %}{% endif %}"
)


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    path = tmp_path_factory.mktemp("templates") / "t.jinja"
    path.write_text(STRICT)
    server = Server("--chat-template", path, "--tool-call-parser", "hermes")
    yield server
    server.stop()


def history(arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"}]  # fmt: skip


@pytest.mark.parametrize("arguments", ["", "null", "[1]", '{"a": "b', "3", " ", "{}"])
def test_broken_arguments(strict, arguments):
    """An answer that a limit cut, or a call without arguments, does not end the conversation."""
    prompt = strict.post("/apply-template", {"messages": history(arguments), "tools": TOOLS}).json()["prompt"]
    assert "[f]" in prompt
    assert strict.post(CHAT, {"messages": history(arguments), "tools": TOOLS, "max_tokens": 2}).status == 200
    items = [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments},
             {"type": "function_call_output", "call_id": "c1", "output": "42"}]  # fmt: skip
    assert strict.post("/v1/responses", {"input": items, "max_output_tokens": 2}).status == 200


def test_broken_arguments_are_told(strict):
    strict.post(CHAT, {"messages": history('{"secret'), "tools": TOOLS, "max_tokens": 2})
    [line, *_] = [one for one in strict.log().splitlines() if "event=arguments" in one]
    assert "secret" not in line and "level=warn" in line


def test_whole_arguments(strict):
    prompt = strict.post("/apply-template", {"messages": history('{"a": "b"}'), "tools": TOOLS}).json()["prompt"]
    assert "[f a=b]" in prompt


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_by_any_name(strict, name):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Yes.", name: "Hm."}, {"role": "user", "content": "So?"}]
    assert "(Hm.)Yes." in strict.post("/apply-template", {"messages": messages}).json()["prompt"]


def test_named_templates(tmp_path):
    """A model with a template of its own for tools: Command R, Hermes 2 Pro."""
    folder = tmp_path / "named"
    maker = goldens.ROOT / "tests/tools/make_folder.py"
    subprocess.run([sys.executable, maker, folder, "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--ffn", "96",
                    "--vocab", "512", "--type", "bf16", "--chatml"], check=True, capture_output=True)  # fmt: skip
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "default", "template": "D {{ messages[0].content }}"},
        {"name": "tool_use", "template": 'T {{ messages[0].content }} {{ tools | length }}{# <tool_call> "arguments" #}'},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    server = Server(model=folder)
    try:
        body = {"messages": [{"role": "user", "content": "hi"}]}
        assert server.post("/apply-template", body).json()["prompt"] == "D hi"
        assert server.post("/apply-template", body | {"tools": TOOLS}).json()["prompt"] == "T hi 1"
        assert server.post(CHAT, body | {"tools": TOOLS, "max_tokens": 2}).status == 200
        assert server.post("/apply-template", body | {"tools": TOOLS, "tool_choice": "none"}).json()["prompt"] == "D hi"
    finally:
        server.stop()
