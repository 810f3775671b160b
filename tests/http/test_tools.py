"""Calls of tools and reasoning in chats: the embedded model, which knows tools, and a model that writes what a template makes it
continue."""

import json

import openai
import pytest

from process import Server
from wire import check_error

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
CHAT = "/v1/chat/completions"


def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=server.key or "EMPTY", max_retries=0, timeout=60)


def ask(server, **fields):
    return server.post(CHAT, {"messages": ASK, "tools": TOOLS, "temperature": 0, "max_tokens": 60} | fields)


def allowed(mode, *names):
    """The `tool_choice` of some tools."""
    some = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": some}}


ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    },
}


def test_call(tiny):
    message = ask(tiny).json()["choices"][0]
    [call] = message["message"]["tool_calls"]
    assert message["finish_reason"] == "tool_calls" and message["message"]["content"] is None
    assert call["type"] == "function" and call["function"]["name"] == "get_weather" and call["id"].startswith("call_")
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


def test_stream_is_the_whole(tiny):
    """The official client puts the deltas together; ids differ from request to request and from choice to choice."""
    with client(tiny) as c:
        ids = set()
        for n in (1, 3):
            calls, finish = {}, {}
            for chunk in c.chat.completions.create(model="quire-tiny", messages=ASK, tools=TOOLS, temperature=0, n=n, stream=True):
                for choice in chunk.choices:
                    finish[choice.index] = choice.finish_reason or finish.get(choice.index)
                    for delta in choice.delta.tool_calls or []:
                        if delta.id:
                            assert delta.type == "function" and (choice.index, delta.index) not in calls
                            calls[choice.index, delta.index] = [delta.id, delta.function.name, ""]
                        calls[choice.index, delta.index][2] += delta.function.arguments or ""
            assert set(finish.values()) == {"tool_calls"} and len(calls) == n
            ids |= {call[0] for call in calls.values()}
            assert {tuple(call[1:]) for call in calls.values()} == {("get_weather", '{"city": "Oslo"}')}
        assert len(ids) == 4


def test_allowed_tools(tiny):
    """The model sees all and calls the allowed ones alone, whatever it would rather do; the official client's word for it in Responses."""
    both = [*TOOLS, ADD]
    free = ask(tiny, tools=both).json()
    assert free["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    for mode in ("auto", "required"):
        same = ask(tiny, tools=both, tool_choice=allowed(mode, "add", "get_weather")).json()
        assert same["choices"][0]["message"]["tool_calls"][0]["function"] == free["choices"][0]["message"]["tool_calls"][0]["function"]
        other = ask(tiny, tools=both, tool_choice=allowed(mode, "add")).json()
        calls = other["choices"][0]["message"].get("tool_calls", [])
        assert {call["function"]["name"] for call in calls} <= {"add"} and (calls or mode == "auto")
        assert other["usage"]["prompt_tokens"] == same["usage"]["prompt_tokens"] == free["usage"]["prompt_tokens"]
    flat = [{"type": "function", **tool["function"]} for tool in both]
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    with client(tiny) as c:
        answer = c.responses.create(model="quire-tiny", input=ASK[0]["content"], tools=flat, tool_choice=some, max_output_tokens=60, temperature=0)
    assert answer.output and {item.name for item in answer.output} == {"add"}


def test_functions(tiny):
    """`functions`, the old form of tools: the same prompt and the same call, in that form."""
    old = {"messages": ASK, "functions": [tool["function"] for tool in TOOLS], "temperature": 0}
    new = ask(tiny).json()
    for choice in ({}, {"function_call": "auto"}):
        reply = tiny.post(CHAT, old | choice).json()
        [first] = reply["choices"]
        called = first["message"]["function_call"]
        assert first["finish_reason"] == "function_call" and "tool_calls" not in first["message"] and first["message"]["content"] is None
        assert called == new["choices"][0]["message"]["tool_calls"][0]["function"] and reply["usage"]["prompt_tokens"] == new["usage"]["prompt_tokens"]
    with client(tiny) as c:
        chunks = list(c.chat.completions.create(model="quire-tiny", stream=True, **old))
    deltas = [ch.choices[0].delta.function_call for ch in chunks if ch.choices[0].delta.function_call]
    assert deltas[0].name == "get_weather" and "".join(d.arguments for d in deltas) == called["arguments"] and chunks[-1].choices[0].finish_reason == "function_call"
    history = [*ASK, {"role": "assistant", "content": None, "function_call": called}, {"role": "function", "name": "get_weather", "content": '{"weather": "sunny"}'}]
    spoken = tiny.post(CHAT, old | {"messages": history}).json()["choices"][0]
    assert "sunny" in spoken["message"]["content"] and spoken["finish_reason"] == "stop"
    named = tiny.post(CHAT, old | {"messages": [{"role": "user", "content": "Hello"}], "function_call": {"name": "get_weather"}}).json()["choices"][0]["message"]
    assert named["function_call"]["name"] == "get_weather" and "city" in json.loads(named["function_call"]["arguments"])
    silent = tiny.post(CHAT, old | {"function_call": "none"}).json()
    assert silent["choices"] == ask(tiny, tools=[]).json()["choices"]


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"functions": [{"name": "a b"}]}, "functions[0]"),
        ({"functions": [3]}, "functions[0]"),
        ({"functions": "a"}, "functions"),
        ({"functions": [{"name": "a"}], "tools": TOOLS}, "functions"),
        ({"functions": [{"name": "a"}], "function_call": {"name": "b"}}, "function_call"),
        ({"functions": [{"name": "a"}], "function_call": "always"}, "function_call"),
        ({"functions": [{"name": "a"}], "function_call": 3}, "function_call"),
        ({"function_call": {"name": "a"}}, "function_call"),
    ],
)
def test_refused_functions(tiny, fields, param):
    error = check_error(tiny.post(CHAT, {"messages": ASK, **fields}), 400, param)
    assert error["param"] == param


def test_none_sees_no_tools(tiny):
    told, none, without = ask(tiny), ask(tiny, tool_choice="none"), ask(tiny, tools=[])
    prompt = [r.json()["usage"]["prompt_tokens"] for r in (told, none, without)]
    assert prompt[0] > prompt[1] == prompt[2] and "tool_calls" not in none.json()["choices"][0]["message"]
    assert none.json()["choices"] == without.json()["choices"]


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": allowed("auto")}, "tool_choice"),
        ({"tool_choice": allowed("none", "add")}, "tool_choice"),
        ({"tool_choice": allowed("auto", "add", "other")}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["add"]}}}, "tool_choice"),
        ({"tool_choice": "required", "tools": None}, "tool_choice"),
        ({"tools": {"a": 1}}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [*TOOLS, {"type": "web_search"}]}, "tools[1]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a\0b"}}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}, "tools[0].function"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"reasoning_format": "loud"}, "reasoning_format"),
        ({"reasoning_effort": "much"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"unknown": 1}}, "chat_template_kwargs.unknown"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ],
)
def test_refusals(tiny, fields, param):
    check_error(ask(tiny, **fields), 400, param)


def test_template_without_tools(start, chatml):
    chat = start("--tools-fallback", "refuse", model=chatml)
    check_error(ask(chat), 400, "tools", code="unsupported_parameter")
    assert ask(chat, tool_choice="none").status == 200


# ---- what a model writes, put into its prompt's end: a template that repeats it makes the output begin within it

THINKS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}{# </think> #}"


def test_reasoning(start, tmp_path):
    """A prompt that opens the reasoning makes all output reasoning until it is closed; enable_thinking reaches the template."""
    path = tmp_path / "t.jinja"
    path.write_text(THINKS)
    server = start("--chat-template", path)
    body = {"messages": [{"role": "user", "content": "Once upon a time"}], "temperature": 0, "max_tokens": 12}
    plain = server.post(CHAT, body | {"enable_thinking": False}).json()
    told = server.post(CHAT, body | {"enable_thinking": True}).json()
    message = told["choices"][0]["message"]
    assert "reasoning" not in plain["choices"][0]["message"] and plain["choices"][0]["message"]["content"]
    assert message["reasoning"] == message["reasoning_content"] and message["content"] == ""
    assert told["usage"]["completion_tokens_details"] == {"reasoning_tokens": 12}
    # The same text, wherever it stands.
    as_text = server.post(CHAT, body | {"enable_thinking": True, "reasoning_format": "none"}).json()["choices"][0]["message"]
    assert as_text["content"].strip() == message["reasoning"] and "reasoning" not in as_text
    hidden = server.post(CHAT, body | {"chat_template_kwargs": {"enable_thinking": True}, "include_reasoning": False}).json()
    assert hidden["choices"][0]["message"]["content"] == "" and "reasoning" not in hidden["choices"][0]["message"]
    with client(server) as c:
        chunks = list(c.chat.completions.create(model=c.models.list().data[0].id, **body, stream=True, extra_body={"enable_thinking": True}))
    assert "".join(getattr(ch.choices[0].delta, "reasoning_content", None) or "" for ch in chunks) == message["reasoning"]
    assert [ch.choices[0].finish_reason for ch in chunks if ch.choices[0].finish_reason] == ["length"]


def test_reasoning_budget(start, tmp_path):
    """A model that would never stop to think is made to: then it answers, as the schema says where there is one."""
    path = tmp_path / "t.jinja"
    path.write_text(THINKS)
    server = start("--chat-template", path, "--reasoning-budget", "6")
    body = {"messages": [{"role": "user", "content": "Once upon a time"}], "temperature": 1, "seed": 1, "max_tokens": 60, "enable_thinking": True}

    def said(**fields):
        answer = server.post(CHAT, body | fields).json()
        return answer["choices"][0]["message"], answer["usage"]["completion_tokens_details"]["reasoning_tokens"]

    message, spent = said()
    assert message["reasoning"] and message["content"] and 6 <= spent < 20
    longer, more = said(thinking_token_budget=20)
    assert longer["reasoning"].startswith(message["reasoning"]) and more == spent + 14
    assert said(max_thinking_tokens=20) == (longer, more)
    none, _ = said(thinking_token_budget=0)
    assert none["content"] and not none.get("reasoning")
    endless, all_of_it = said(thinking_token_budget=-1)
    assert not endless["content"] and all_of_it == 60
    choice = {"structured_outputs": {"choice": ["yes", "no"]}}
    for seed in range(3):
        message, _ = said(seed=seed, **choice)
        assert message["reasoning"] and message["content"] in ("yes", "no")
    without = server.post(CHAT, body | {"enable_thinking": False} | choice).json()["choices"][0]["message"]
    assert without["content"] in ("yes", "no") and "reasoning" not in without
    check_error(server.post(CHAT, body | {"thinking_token_budget": -2}), 400, "thinking_token_budget")


def test_parser_by_name():
    def tiny_with(parser):
        servers.append(Server("--tool-call-parser", parser, model=""))
        return servers[-1]

    servers = []
    check_error(ask(tiny_with("none")), 400, "tools", code="unsupported_parameter")
    assert "tool_calls" in ask(tiny_with("hermes")).json()["choices"][0]["message"]
    for server in servers:
        server.stop()


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "max"])
def test_one_effort_in_all_dialects(start, tmp_path, effort):
    """The template's switch is off for `none`, on for every other word, whichever API says it; an explicit switch wins."""
    path = tmp_path / "t.jinja"
    path.write_text("{{ messages[0].content }}{% if enable_thinking is defined %}{{ 'on' if enable_thinking else 'off, and so on and on' }}{% endif %}")
    server = start("--chat-template", path)
    hi, seen = [{"role": "user", "content": "Hi"}], "Hi" + ("off, and so on and on" if effort == "none" else "on")
    expected = server.post("/tokenize", {"prompt": seen, "add_special_tokens": True}).json()["count"]
    assert server.post("/apply-template", {"messages": hi, "reasoning_effort": effort}).json()["prompt"].endswith(seen)
    assert server.post("/apply-template", {"messages": hi, "reasoning_effort": effort, "enable_thinking": True}).json()["prompt"].endswith("Hion")
    for route, body in (("/v1/chat/completions/input_tokens", {"messages": hi, "reasoning_effort": effort}),
                        ("/v1/responses/input_tokens", {"input": "Hi", "reasoning": {"effort": effort}}),
                        ("/v1/messages/count_tokens", {"messages": hi, "output_config": {"effort": effort}})):  # fmt: skip
        reply = server.post(route, body)
        assert reply.json()["input_tokens"] == expected and reply.header("x-quire-ignored") is None, route
