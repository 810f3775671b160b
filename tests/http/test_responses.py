"""/v1/responses: bodies and events against OpenAI's schema, items against the same chat, the official client, recorded requests."""

import asyncio
import json
import re

import openai
import pytest

from process import Server, faulty
from schema import validate, validate_event
from test_tools import THINKS
from wire import check_error, parse_event

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK = {"input": "What is the weather in Oslo?", "tools": [WEATHER], "temperature": 0}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


def ask(server, **fields):
    reply = server.post(PATH, {"input": "Hello", "temperature": 0, **fields})
    assert reply.status == 200, reply
    validate(reply.json(), "Response")
    return reply.json()


def events_of(server, **fields):
    """The events of a stream, valid each; their numbers, ids and order are those that clients rely on."""
    reply = server.post(PATH, {"input": "Hello", "temperature": 0, "stream": True, **fields})
    assert reply.status == 200 and reply.header("content-type") == "text/event-stream; charset=utf-8", reply
    assert all(chunk.endswith(b"\n\n") and chunk.count(b"\n\n") == 1 for chunk in reply.chunks)
    events = [event for event in (parse_event(chunk[:-2]) for chunk in reply.chunks) if event]
    for event in events:
        validate_event(event)
    check_order(events)
    return events


def check_order(events):
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    types = [e["type"].removeprefix("response.") for e in events]
    assert types[:2] == ["created", "in_progress"] and types[-1] in ("completed", "incomplete")
    head = {key: value for key, value in events[0]["response"].items() if key not in ("status", "output")}
    done, item = [], None
    for kind, event in zip(types[2:-1], events[2:-1], strict=True):
        if kind == "output_item.added":
            assert item is None and event["item"]["status"] == "in_progress"
            item, text, logprobs, stage = event["item"], "", [], "added"
            assert not item.get("content") and not item.get("arguments") and event["output_index"] == len(done)
            continue
        assert event["output_index"] == len(done)
        if kind != "output_item.done":
            assert event["item_id"] == item["id"]
        if item["type"] in ("local_shell_call", "apply_patch_call"):
            order = {"output_item.done": ("added",)}
        elif item["type"] == "custom_tool_call":
            order = {"custom_tool_call_input.delta": ("added",), "custom_tool_call_input.done": ("delta",), "output_item.done": ("done",)}
        elif item["type"] == "function_call":
            order = {"function_call_arguments.delta": ("added", "delta"), "function_call_arguments.done": ("added", "delta"), "output_item.done": ("done",)}
        else:
            name = {"message": "output_text", "reasoning": "reasoning_text"}[item["type"]]
            order = {"content_part.added": ("added",), f"{name}.delta": ("part", "delta"), f"{name}.done": ("part", "delta"), "content_part.done": ("done",),
                     "output_item.done": ("part done",)}  # fmt: skip
        assert stage in order[kind], (stage, kind)
        stage = {"content_part.added": "part", "content_part.done": "part done", "output_item.done": None}.get(kind, kind.split(".")[-1])
        if kind.endswith(".delta"):
            assert event["delta"]
            text += event["delta"]
            logprobs += event.get("logprobs", [])
        elif kind == "content_part.added":
            assert event["part"]["text"] == "" and event["content_index"] == 0
        elif kind == "custom_tool_call_input.done":
            assert event["input"] == text
        elif kind == "function_call_arguments.done":
            assert (event["arguments"], event["name"]) == (text, item["name"])
        elif kind == "content_part.done":
            assert event["part"]["text"] == text and event["part"].get("logprobs", []) == logprobs
        elif kind == "output_item.done":
            whole = event["item"]
            assert (whole["id"], whole["type"]) == (item["id"], item["type"])
            own = {"function_call": "arguments", "custom_tool_call": "input"}.get(whole["type"])
            if whole["type"] in ("local_shell_call", "apply_patch_call"):
                assert {**item, "status": whole["status"]} == whole
            else:
                assert (whole[own] if own else whole["content"][0]["text"]) == text
            done.append(whole)
            item = None
        else:
            assert event["text"] == text and event.get("logprobs", []) == logprobs
    assert item is None
    last = events[-1]["response"]
    assert last["output"] == done and last["status"] == types[-1] and len({one["id"] for one in done}) == len(done)
    assert {key: last[key] for key in head} | {"completed_at": None, "incomplete_details": None} == head
    assert all(e["response"]["id"] == last["id"] for e in (events[0], events[1]))


def said(response):
    """The parts of a response that do not change from request to request."""
    kept = {k: v for k, v in response.items() if k not in ("id", "created_at", "completed_at", "usage", "output")}
    items = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    return kept, items, {k: v for k, v in response["usage"].items() if not k.startswith("input_tokens_")}


# ---- bodies and events


VARIANTS = {
    "plain": {},
    "cut": {"max_output_tokens": 3},
    "call": ASK,
    "logprobs": LOGPROBS,
    "logprobs beside tools": {"tools": [WEATHER], **LOGPROBS},
    "stop": {"stop": "!"},
    "nothing": {"stop": "Hi"},
    "everything": {
        "instructions": "You help.", "metadata": {"a": "b"}, "user": "me", "safety_identifier": "x", "prompt_cache_key": "k", "max_tool_calls": 3, "top_p": 0.9,
        "seed": 4, "top_k": 3, "service_tier": "auto", "truncation": "disabled", "store": False, "background": False, "tool_choice": "none",
        "parallel_tool_calls": False, "tools": [{**WEATHER, "strict": False}], "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "reasoning": {"effort": None, "summary": "auto"}, "include": ["reasoning.encrypted_content"], "timings_per_token": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_stream_is_the_whole(tiny, name):
    whole, events = ask(tiny, **VARIANTS[name]), events_of(tiny, **VARIANTS[name])
    last = events[-1]["response"]
    for one in (whole, last):
        one.pop("timings", None)
    assert said(last) == said(whole)


def test_text(tiny):
    whole = ask(tiny, instructions="Be kind.", metadata={"a": "b"}, max_output_tokens=30)
    [item] = whole["output"]
    chat = tiny.post("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}], "temperature": 0})
    choice = chat.json()["choices"][0]
    assert item["content"][0]["text"] == choice["message"]["content"] and whole["status"] == item["status"] == "completed"
    assert whole["instructions"] == "Be kind." and whole["metadata"] == {"a": "b"} and whole["max_output_tokens"] == 30
    assert whole["id"].startswith("resp_") and item["id"].startswith("msg_") and whole["completed_at"] >= whole["created_at"]
    usage, theirs = whole["usage"], chat.json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (theirs["prompt_tokens"], theirs["completion_tokens"], theirs["total_tokens"])
    again = ask(tiny, instructions="Be kind.", input="Hello " * 40)
    assert ask(tiny, instructions="Be kind.", input="Hello " * 40)["usage"]["input_tokens_details"]["cached_tokens"] > 0 == again["usage"]["input_tokens_details"]["cached_tokens"]


def test_cut(tiny):
    whole = ask(tiny, max_output_tokens=2)
    assert whole["status"] == "incomplete" and whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert whole["output"][0]["status"] == "incomplete" and whole["usage"]["output_tokens"] == 2


def test_logprobs(tiny):
    whole = ask(tiny, **LOGPROBS)
    part = whole["output"][0]["content"][0]
    assert "".join(t["token"] for t in part["logprobs"]) == part["text"] and all(len(t["top_logprobs"]) == 2 for t in part["logprobs"])
    chat = tiny.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "logprobs": True, "top_logprobs": 2})
    assert part["logprobs"] == chat.json()["choices"][0]["logprobs"]["content"]
    # Only of text: what becomes a call has none.
    assert "logprobs" not in json.dumps(ask(tiny, **ASK, **LOGPROBS)["output"])
    assert ask(tiny, tools=[WEATHER], **LOGPROBS)["output"][0]["content"][0]["logprobs"]


def test_sampling_fields(tiny):
    def text(**fields):
        return ask(tiny, input="Tell me a story", **fields)["output"][0]["content"][0]["text"]

    assert text(temperature=1.5, top_k=1) == text() != text(temperature=1.5, seed=1) == text(temperature=1.5, seed=1)


# ---- items, against the chat that they mean


def tokens(server, path, **body):
    reply = server.post(f"{path}/input_tokens", body)
    assert reply.status == 200, reply
    assert set(reply.json()) == {"object", "input_tokens"}
    return reply.json()["input_tokens"]


CALL = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Oslo"}'}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
CHAT_TOOL = {"type": "function", "function": {key: value for key, value in WEATHER.items() if key != "type"}}
USER = {"role": "user", "content": "Hi"}
SAME = [
    ({"input": "Hi"}, [USER]),
    ({"input": [USER]}, [USER]),
    ({"input": [{**USER, "type": "message"}], "instructions": "S"}, [{"role": "system", "content": "S"}, USER]),
    ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "H"}, {"type": "input_text", "text": "i"}]}]}, [{"role": "user", "content": "H\ni"}]),
    ({"input": [{"role": "developer", "content": "D"}, USER]}, [{"role": "developer", "content": "D"}, USER]),
    (
        {"input": [USER, {"role": "assistant", "type": "message", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "A", "annotations": []}]}, USER]},
        [USER, {"role": "assistant", "content": "A"}, USER],
    ),
    (
        {"input": [USER, {"role": "assistant", "content": "Let me see."}, CALL, {**CALL, "call_id": "c2"}, {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
                   {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "cold"}]}], "tools": [WEATHER]},
        [USER, {"role": "assistant", "content": "Let me see.", "tool_calls": [CHAT_CALL, {**CHAT_CALL, "id": "c2"}]}, {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
         {"role": "tool", "tool_call_id": "c2", "content": "cold"}],
    ),
    ({"input": [USER, CALL, {"type": "function_call_output", "call_id": "c1", "output": "sunny"}, {"role": "assistant", "content": "A"}, {"role": "assistant", "content": "B"}]},
     [USER, {"role": "assistant", "tool_calls": [CHAT_CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "sunny"}, {"role": "assistant", "content": "A"},
      {"role": "assistant", "content": "B"}]),
]  # fmt: skip


@pytest.mark.parametrize("body, messages", SAME, ids=[str(i) for i in range(len(SAME))])
def test_items(tiny, body, messages):
    tools = {"tools": [CHAT_TOOL]} if "tools" in body else {}
    assert tokens(tiny, PATH, **body) == tokens(tiny, "/v1/chat/completions", messages=messages, **tools)
    mine = ask(tiny, max_output_tokens=12, **body)["output"]
    theirs = tiny.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12, **tools}).json()["choices"][0]["message"]
    assert "".join(p["text"] for item in mine for p in item.get("content", [])) == (theirs["content"] or "")


SHOWS = ("{% for m in messages %}{% if m.content[:4] == 'show' %}{{ raise_exception(messages[m.content[4:] | int] | tojson) }}{% endif %}{{ m.content }}"
         "{{ m.reasoning_content }}{{ m.tool_calls }}{{ m.tool_call_id }}{{ m.name }}{% endfor %}{% if reasoning_effort %}{% endif %}")  # fmt: skip


@pytest.fixture(scope="module")
def shows(tmp_path_factory, model_path):
    path = tmp_path_factory.mktemp("t") / "t.jinja"
    path.write_text(SHOWS)
    server = Server("--chat-template", path, model=model_path)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def model_path(chatml):
    return chatml


def shown(server, *items):
    """The messages that a template gets."""
    messages = []
    while not messages or messages[-1]["role"] != "user":
        body = {"input": [*items, {"role": "user", "content": f"show{len(messages)}"}]}
        error = check_error(server.post(PATH, body), 400, "input", code="template_error")
        messages.append(json.loads(error["message"].split(": ", 1)[1]))
    return messages[:-1]


def test_turns(shows):
    """Reasoning, text and calls of one turn are one message; what comes after a tool's output is another."""
    think = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "R"}]}
    output = {"type": "function_call_output", "call_id": "c1", "output": "o"}
    call = {**CHAT_CALL, "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    a = {"role": "assistant", "content": ""}
    assert shown(shows, think, {"role": "assistant", "content": "A"}, CALL, output, think, CALL) == [
        {**a, "reasoning_content": "R", "content": "A", "tool_calls": [call]},
        {"role": "tool", "content": "o", "tool_call_id": "c1", "name": "get_weather"},
        {**a, "reasoning_content": "R", "tool_calls": [call]},
    ]
    assert shown(shows, {**think, "content": None, "summary": [{"type": "summary_text", "text": "S"}]}, {**think, "content": []}, CALL) == [
        {**a, "reasoning_content": "S", "tool_calls": [call]}
    ]
    assert [m["content"] for m in shown(shows, {"role": "assistant", "content": "A"}, think, {"role": "assistant", "content": "B"})] == ["A", "B"]


def test_unknown_members_are_told(tiny):
    item = {"role": "user", "content": [{"type": "input_text", "text": "a", "one": 1}], "two": 2, "id": "x", "status": "completed"}
    reply = tiny.post(PATH, {"input": [item], "reasoning": {"three": 3}, "text": {"four": 4}, "five": 5, "max_output_tokens": 1})
    assert reply.status == 200 and reply.header("x-quire-ignored") == "five, reasoning.three, text.four, input[].two, input[].content[].one"
    reply = tiny.post(PATH, {"input": [USER, {"type": "reasoning", "summary": [], "encrypted_content": "e"}], "max_output_tokens": 1})
    assert reply.status == 200 and reply.header("x-quire-ignored") == "input[].encrypted_content"


# ---- reasoning


def test_reasoning(start, tmp_path):
    path = tmp_path / "t.jinja"
    path.write_text(THINKS)
    server = start("--chat-template", path)
    body = {"input": "Once upon a time", "max_output_tokens": 12}
    whole = ask(server, **body, reasoning={"effort": "low"})
    [item] = whole["output"]
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": body["input"]}], "temperature": 0, "max_tokens": 12, "enable_thinking": True}).json()
    assert item["type"] == "reasoning" and item["content"][0]["text"] == chat["choices"][0]["message"]["reasoning"]
    assert whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 12} and item["id"].startswith("rs_")
    events = events_of(server, **body, reasoning={"effort": "low"})
    assert said(events[-1]["response"]) == said(whole) and any(e["type"] == "response.reasoning_text.delta" for e in events)
    # Reasoning has no log-probabilities; without it the same text is a message.
    assert "logprob" not in json.dumps(ask(server, **body, reasoning={"effort": "low"}, **LOGPROBS)["output"])
    [plain] = ask(server, **body, reasoning={"effort": "none"})["output"]
    assert plain["type"] == "message" and plain["content"][0]["text"]


# Codex sends these besides functions (facts of public traffic; the bodies are ours).
DIGITS = {"type": "custom", "name": "dial", "description": "Dials.", "format": {"type": "grammar", "syntax": "regex", "definition": "[0-9]{3}-[0-9]{2}"}}
PATCH = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"+'}}
DOCS = {"type": "namespace", "name": "mcp__docs", "description": "Documents.", "tools": [{**WEATHER, "name": "lookup"}]}
CODEX = [WEATHER, DIGITS, PATCH, {"type": "web_search"}, {"type": "image_generation"}, DOCS]


def test_tools_that_are_no_functions(tiny):
    """Those that OpenAI runs are left out and told, custom tools take one text, a namespace's functions come back as its own."""
    reply = tiny.post(PATH, {**ASK, "tools": CODEX, "client_metadata": {"a": "b"}, "service_tier": "flex", "truncation": "auto", "store": True,
                             "text": {"verbosity": "low"}, "max_output_tokens": 4})  # fmt: skip
    assert reply.status == 200 and reply.header("x-quire-ignored") == "tools.web_search, tools.image_generation, text.verbosity, store"
    assert [tool["type"] for tool in reply.json()["tools"]] == ["function", "custom", "custom", "namespace"] and reply.json()["store"] is False
    for name, choice, item_type in (("dial", {"type": "custom", "name": "dial"}, "custom_tool_call"),
                                    ("lookup", {"type": "function", "name": "lookup", "namespace": "mcp__docs"}, "function_call")):  # fmt: skip
        body = {**ASK, "tools": CODEX, "tool_choice": choice, "max_output_tokens": 300}
        [call] = ask(tiny, **body)["output"]
        [streamed] = events_of(tiny, **body)[-1]["response"]["output"]
        strip = lambda item: {key: value for key, value in item.items() if key not in ("id", "call_id")}  # noqa: E731
        assert strip(call) == strip(streamed) and (call["type"], call["name"]) == (item_type, name)
        if name == "dial":
            assert re.fullmatch("[0-9]{3}-[0-9]{2}", call["input"]) and "arguments" not in call
        else:
            assert call["namespace"] == "mcp__docs" and "city" in json.loads(call["arguments"])
        said_back = {"type": item_type + "_output", "call_id": call["call_id"], "output": [{"type": "input_text", "text": "Done."}]}
        assert ask(tiny, tools=CODEX, input=[{"role": "user", "content": "Go."}, call, said_back], max_output_tokens=2)["output"]


def test_tools_that_clients_know_by_their_type(tiny):
    """local_shell and apply_patch: OpenAI's items, whole and streamed, as its SDK reads them."""
    tools = [{"type": "local_shell"}, {"type": "apply_patch"}, WEATHER]
    outputs = {"local_shell": {"id": "c", "output": "{}"}, "apply_patch": {"call_id": "c", "status": "failed", "output": "No."}}
    for name, output in outputs.items():
        choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": name}]} if name == "local_shell" else {"type": name}
        body = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False, "seed": 3, "temperature": 1, "max_output_tokens": 400, "input": "Go."}
        response = ask(tiny, **body)
        item, streamed = response["output"][-1], events_of(tiny, **body)[-1]["response"]["output"][-1]
        assert {**item, "id": "", "call_id": ""} == {**streamed, "id": "", "call_id": ""} and item["type"] == f"{name}_call"
        sdk = openai.types.responses.Response.model_validate(response).output[-1]
        if name == "local_shell":
            assert sdk.action.type == "exec" and sdk.action.env == {} and all(isinstance(word, str) for word in sdk.action.command)
        else:
            assert sdk.operation.type in ("create_file", "update_file", "delete_file") and isinstance(sdk.operation.path, str)
            assert (sdk.operation.type == "delete_file") == ("diff" not in item["operation"])
        said_back = {"type": f"{name}_call_output", **output, **({"call_id": item["call_id"]} if "call_id" in output else {"id": item["call_id"]})}
        assert ask(tiny, tools=tools, input=[{"role": "user", "content": "Go."}, item, said_back], max_output_tokens=2)["output"]


def test_typed_calls_of_before_as_the_template_sees_them(shows):
    shell = {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 5}}
    patch = {"type": "apply_patch_call", "call_id": "c2", "operation": {"type": "delete_file", "path": "a"}}
    done = {"type": "apply_patch_call_output", "call_id": "c2", "status": "completed"}
    turn, result = shown(shows, shell, patch, done)
    assert [one["function"] for one in turn["tool_calls"]] == [{"name": "local_shell", "arguments": {"command": ["ls"], "timeout_ms": 5}},
                                                              {"name": "apply_patch", "arguments": {"type": "delete_file", "path": "a"}}]  # fmt: skip
    assert (result["content"], result["name"]) == ("completed", "apply_patch")


def test_calls_of_before_as_the_template_sees_them(shows):
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "dial", "input": "123-45"}
    inside = {"type": "function_call", "call_id": "c2", "name": "lookup", "namespace": "mcp__docs", "arguments": "{}"}
    [turn] = shown(shows, call, inside)
    assert [one["function"] for one in turn["tool_calls"]] == [{"name": "dial", "arguments": {"input": "123-45"}}, {"name": "mcp__docs__lookup", "arguments": {}}]


def test_messages_of_the_developer(start, tmp_path):
    """Behind the instructions they join them; amid the conversation they are the user's where the template refuses them."""
    path = tmp_path / "t.jinja"
    path.write_text("{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}{% endif %}"
                    "[{{ m.role }}:{{ m.content }}]{% endfor %}")  # fmt: skip
    server = start("--chat-template", path)
    front = [{"role": "developer", "content": "b"}, {"role": "user", "content": "c"}]
    prompts = []
    for items in (front, [*front, {"role": "developer", "content": "d"}]):
        body = {"instructions": "a", "input": items}
        count = server.post(f"{PATH}/input_tokens", body)
        assert count.status == 200, count
        prompts.append(count.json()["input_tokens"])
    render = lambda *messages: server.post("/v1/chat/completions/input_tokens", {"messages": [*messages]}).json()["input_tokens"]  # noqa: E731
    joined = [{"role": "system", "content": "a\nb"}, {"role": "user", "content": "c"}]
    assert prompts == [render(*joined), render(*joined, {"role": "user", "content": "d"})]


def test_effort_is_the_templates(shows, tiny):
    for effort in ("none", "low", "xhigh"):
        assert ask(shows, reasoning={"effort": effort, "summary": "detailed"}, max_output_tokens=1)["reasoning"] == {"effort": effort, "summary": "detailed"}
    assert ask(tiny, reasoning={"effort": "none"})
    reply = tiny.post(PATH, {"input": "a", "reasoning": {"effort": "high"}, "max_output_tokens": 1})
    assert reply.status == 200 and reply.header("x-quire-ignored") == "reasoning.effort"


# ---- what is refused


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": []}, "input"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"type": "web_search_call", "id": "ws_1", "status": "completed"}]}, "input[0]"),
        ({"input": [{"type": "message", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": 1}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0]"),
        ({"input": [USER, {**CALL, "call_id": None}]}, "input[1].call_id"),
        ({"input": [USER, {**CALL, "name": 1}]}, "input[1].name"),
        ({"input": [USER, {**CALL, "arguments": {}}]}, "input[1].arguments"),
        ({"input": [USER, {"type": "function_call_output", "call_id": "c1"}]}, "input[1].output"),
        ({"input": [USER, {"type": "function_call_output", "output": "a"}]}, "input[1].call_id"),
        ({"instructions": 1}, "instructions"),
        ({"tools": {"a": 1}}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [WEATHER, {"type": "telepathy"}]}, "tools[1]"),
        ({"tools": [WEATHER, {"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [{"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "peg", "definition": "a"}}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "regex"}}]}, "tools[0]"),
        ({"tools": [{"type": "namespace", "name": "a"}]}, "tools[0]"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "namespace", "name": "b", "tools": []}]}]}, "tools[0].tools[0]"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "a"}]}, "input[0].input"),
        ({"input": [{"type": "local_shell_call", "call_id": "c"}]}, "input[0].action"),
        ({"input": [{"type": "apply_patch_call", "call_id": "c", "operation": "a"}]}, "input[0].operation"),
        ({"input": [{"type": "local_shell_call_output", "output": "a"}]}, "input[0].id"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{**WEATHER, "strict": 1}]}, "tools[0]"),
        ({"tools": [{**WEATHER, "parameters": []}]}, "tools[0]"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"text": "a"}, "text"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"summary": 1}}, "reasoning.summary"),
        ({"include": "a"}, "include"),
        ({"include": ["everything"]}, "include[0]"),
        ({"include": [1]}, "include[0]"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({**LOGPROBS, "top_logprobs": 21}, "top_logprobs"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(i): "a" for i in range(17)}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "a"}, "max_output_tokens"),
        ({"truncation": "both"}, "truncation"),
        ({"background": True}, "background"),
        ({"store": 1}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"n": 2}, "n"),
        ({"model": "gpt-4o"}, "model"),
    ],
)
def test_refusals(tiny, fields, param):
    error = check_error(tiny.post(PATH, {"input": "a", **fields}), (400, 404), param)
    assert error["param"] == param
    validate(tiny.post(PATH, {"input": "a", "stream": True, **fields}).json(), "ErrorResponse")


def test_too_long(tiny):
    error = check_error(tiny.post(PATH, {"input": "word " * 100_000}), 400, "input", code="context_length_exceeded")
    assert error["n_ctx"] > 0


def test_failure_in_a_stream(start):
    """After the first event a failure is an event, too: an error, and the response as failed."""
    server = start(env=faulty(step=6, delay_us=20000), model="")
    reply = server.post(PATH, {"input": "Tell me a story", "stream": True, "ignore_eos": True, "temperature": 0})
    events = [parse_event(chunk[:-2]) for chunk in reply.chunks]
    for event in events:
        validate_event(event)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    error, failed = events[-2:]
    assert error["type"] == "error" and error["code"] == "engine_unavailable"
    assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed" and failed["response"]["error"]["code"] == "server_error"
    server.kill()


# ---- responses that are kept


@pytest.fixture(scope="module")
def keeps():
    server = Server("--store", "64K", model="")
    yield server
    server.stop()


def test_conversation(keeps):
    """The items of a kept response need not be sent again: the same as sending all at once."""
    with client(keeps) as c:
        first = c.responses.create(model="quire-tiny", input="What is the weather in Oslo?", tools=[WEATHER], temperature=0)
        output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": '{"weather": "sunny", "temperature": 3}'}
        second = c.responses.create(model="quire-tiny", input=[output], tools=[WEATHER], temperature=0, previous_response_id=first.id)
        items = [{"role": "user", "content": "What is the weather in Oslo?"}, first.output[0].model_dump(), output]
        whole = c.responses.create(model="quire-tiny", input=items, tools=[WEATHER], temperature=0, store=False)
        assert second.output_text == whole.output_text and "sunny" in second.output_text
        assert second.usage.input_tokens == whole.usage.input_tokens and second.previous_response_id == first.id
        with c.responses.stream(model="quire-tiny", input="Hello", temperature=0, previous_response_id=second.id) as stream:
            third = stream.get_final_response()
        listed = c.responses.input_items.list(third.id, order="asc").data
        assert [item.type for item in listed] == ["message", "function_call", "function_call_output", "message", "message"]
        assert listed[3].content[0].text == second.output_text and len({item.id for item in listed}) == 5
        back = list(c.responses.input_items.list(third.id, limit=2))  # pages, the newest first
        assert [item.id for item in back] == [item.id for item in reversed(listed)]
        assert c.responses.retrieve(third.id).output_text == third.output_text
        c.responses.delete(third.id)
        with pytest.raises(openai.NotFoundError):
            c.responses.retrieve(third.id)
        with pytest.raises(openai.NotFoundError):
            c.responses.retrieve(whole.id)
        assert c.responses.retrieve(second.id).id == second.id


def test_kept_bodies(keeps):
    whole = ask(keeps, input=[{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}, {"role": "assistant", "content": "Hi"}, USER])
    assert whole["store"] is True and ask(keeps, store=False)["store"] is False
    path = f"{PATH}/{whole['id']}"
    reply = keeps.get(path + "?stream=false")
    assert reply.json() == whole
    listed = keeps.get(path + "/input_items").json()
    validate(listed, "ResponseItemList")
    assert [item["role"] for item in listed["data"]] == ["user", "assistant", "user"] and not listed["has_more"]
    for query in ("?limit=0", "?limit=x", "?order=up"):
        check_error(keeps.get(path + "/input_items" + query), 400)
    check_error(keeps.get(path + "?stream=true"), 400, "stream")
    assert keeps.call("DELETE", path).json() == {"id": whole["id"], "object": "response", "deleted": True}
    check_error(keeps.call("DELETE", path), 404)
    check_error(keeps.post(PATH, {"input": "a", "previous_response_id": whole["id"]}), 400, "previous_response_id", code="previous_response_not_found")
    check_error(keeps.post(PATH, {"input": "a", "previous_response_id": 3}), 400, "previous_response_id")
    check_error(keeps.post(PATH, {"input": [USER, 3], "previous_response_id": ask(keeps)["id"]}), 400, "input[1]")


def test_the_oldest_go_first(keeps):
    ids = [ask(keeps, max_output_tokens=1)["id"] for _ in range(100)]
    there = [keeps.get(f"{PATH}/{one}").status == 200 for one in ids]
    assert there == sorted(there) and 10 < sum(there) < 100


def test_kept_for_its_owner(start):
    server = start("--store", "1M", "--api-key", "first", "--api-key", "second", key="first", model="")
    one = ask(server)["id"]
    other = {"Authorization": "Bearer second"}
    for reply in (server.get(f"{PATH}/{one}", headers=other), server.call("DELETE", f"{PATH}/{one}", headers=other)):
        check_error(reply, 404)
    body = {"input": "a", "previous_response_id": one}
    check_error(server.post(PATH, body, headers=other), 400, "previous_response_id", code="previous_response_not_found")
    assert server.post(PATH, body).status == server.get(f"{PATH}/{one}").status == 200


def test_nothing_is_kept(tiny):
    error = check_error(tiny.get(f"{PATH}/{ask(tiny)['id']}"), 404)
    assert "--store" in error["message"]


# ---- the official client


def client(server, kind=openai.OpenAI):
    return kind(base_url=server.url + "/v1", api_key=server.key or "EMPTY", max_retries=0, timeout=60)


def test_client(tiny):
    with client(tiny) as c:
        whole = c.responses.create(model="quire-tiny", input="Hello", temperature=0)
        assert whole.output_text == "Hi there! Ask me something." and whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
        deltas = [e.delta for e in c.responses.create(model="quire-tiny", input="Hello", temperature=0, stream=True) if e.type == "response.output_text.delta"]
        assert "".join(deltas) == whole.output_text and len(deltas) > 3
        with c.responses.stream(model="quire-tiny", input="Hello", temperature=0) as stream:
            assert [e.snapshot for e in stream if e.type == "response.output_text.delta"][-1] == whole.output_text
            assert stream.get_final_response().output_text == whole.output_text
        assert c.responses.input_tokens.count(model="quire-tiny", input="Hello").input_tokens == whole.usage.input_tokens
        with pytest.raises(openai.BadRequestError) as caught:
            c.responses.create(model="quire-tiny", input="Hello", text={"format": {"type": "grammar"}})
        assert caught.value.param == "text.format"


def test_async_client(tiny):
    async def run():
        async with client(tiny, openai.AsyncOpenAI) as c:
            async with c.responses.stream(model="quire-tiny", input="Hello", temperature=0) as stream:
                kinds = [e.type async for e in stream]
                final = await stream.get_final_response()
            return kinds, final, await c.responses.create(model="quire-tiny", input="Hello", temperature=0)

    kinds, final, whole = asyncio.run(run())
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and final.output_text == whole.output_text
