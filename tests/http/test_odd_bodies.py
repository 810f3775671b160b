"""A sound body of each dialect with each of its values replaced by what does not belong there, or left out: an answer or a clean 4xx, and
the server lives."""

import copy

import pytest

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Get the weather of a city", "parameters": PARAMETERS}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
USER = {"role": "user", "content": "What is the weather in Oslo?"}
BODIES = {
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 1, "logprobs": 1, "stop": ["x"], "logit_bias": {"5": 1}},
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "Be nice."}, {"role": "user", "content": [{"type": "text", "text": "What?"}]},
                     {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "sunny"}],
        "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "max_tokens": 1, "response_format": {"type": "text"}, "stop": ["x"], "chat_template_kwargs": {}},
    "/v1/responses": {
        "input": [USER, {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sunny"}]},
                  {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "so"}]},
                  {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}]}, USER],
        "instructions": "Be nice.", "tools": [{"type": "function", **FUNCTION}], "tool_choice": "auto", "max_output_tokens": 1,
        "reasoning": {"effort": "none"}, "text": {"format": {"type": "text"}}, "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"}},
    "/v1/messages": {
        "messages": [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "so", "signature": "s"}, {"type": "text", "text": "Well."},
                                                             {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]}]}],
        "system": [{"type": "text", "text": "Be nice."}], "tools": [{"name": "get_weather", "input_schema": PARAMETERS}],
        "tool_choice": {"type": "tool", "name": "get_weather"}, "max_tokens": 1, "thinking": {"type": "disabled"}, "stop_sequences": ["x"],
        "output_config": {"format": {"type": "json_schema", "schema": PARAMETERS}}, "metadata": {"user_id": "me"}},
    "/api/chat": {
        "messages": [USER, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]},
                     {"role": "tool", "tool_name": "get_weather", "content": "sunny"}],
        "tools": [{"type": "function", "function": FUNCTION}], "stream": False, "options": {"num_predict": 1, "stop": ["x"], "num_ctx": 64}, "format": PARAMETERS,
        "keep_alive": "5m", "think": False},
    "/api/generate": {"prompt": "a", "system": "b", "stream": False, "raw": False, "options": {"num_predict": 1}, "context": [1, 2], "format": "json"},
    "/completion": {"prompt": [1, "a"], "n_predict": 1, "logit_bias": [[5, 1]], "n_probs": 1, "response_fields": ["content"], "stop": ["x"]},
    "/tokenize": {"messages": [USER], "add_generation_prompt": True},
    "/apply-template": {"messages": [USER], "tools": [{"type": "function", "function": FUNCTION}]},
}  # fmt: skip
ONE = {"/v1/chat/completions": {"messages": [USER], "max_tokens": 1}, "/v1/messages": {"messages": [USER], "max_tokens": 1},
       "/v1/responses": {"input": [USER], "max_output_tokens": 1}, "/api/chat": {"messages": [USER], "stream": False, "options": {"num_predict": 1}}}  # fmt: skip
LIMITS = ("max_tokens", "max_output_tokens", "n_predict", "num_predict")
ODD = [[], {}, "", "\0", None, True, -1, 2**62, [{}]]


def places(value, path=()):
    """The path of each value within."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


def changed(sound, place, value):
    """A copy with another value, or with the value that a function makes of it, at a place."""
    body = inner = copy.deepcopy(sound)
    *outer, last = place
    for key in outer:
        inner = inner[key]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value(inner[last]) if callable(value) else value
    return body


@pytest.mark.parametrize("path, sound", [*BODIES.items(), *ONE.items()])
def test_odd_values(tiny, path, sound):
    assert tiny.post(path, sound).status == 200
    for *outer, last in places(sound):
        unlimited = {"options", *LIMITS} & {last, *outer}
        for odd in [*ODD, KeyError]:
            if unlimited and odd in (None, KeyError, 2**62, {}, -1):
                continue  # the answer would be long
            reply = tiny.post(path, changed(sound, (*outer, last), odd))
            assert reply.status in (200, 400, 404), (outer, last, odd, reply)


def test_odd_texts_of_a_template_that_takes_more(tiny, start, tmp_path):
    """Reasoning and names, which the embedded model's template leaves out."""
    path = tmp_path / "takes.jinja"
    path.write_text(tiny.get("/props").json()["chat_template"] + "{% for m in messages %}{{ m.reasoning_content }}{{ m.name }}{% endfor %}")
    server = start("--chat-template", path, "--tool-call-parser", "hermes", model="")
    for path, sound in BODIES.items():
        assert server.post(path, sound).status == 200, path
        for place in places(sound):
            for odd in ("", "\0"):
                reply = server.post(path, changed(sound, place, odd))
                assert reply.status in (200, 400, 404), (path, place, odd, reply)


def test_a_nul_ends_no_word(tiny):
    """A value is not read only up to a NUL in it."""
    unread = {"parameters", "input_schema", "properties", "tool_calls", "summary", "tool_choice", "output_config"}
    for path, sound in BODIES.items():
        words = [p for p in places(sound) if p[-1] in ("role", "type", "call_id", "effort", "tool_choice", "format") and not unread & {*p[:-1]}]
        for place in words if path != "/apply-template" else [("messages", 0, "role")]:
            reply = tiny.post(path, changed(sound, place, lambda word: f"{word}\0x"))
            assert reply.status == 400, (path, place, reply)
        assert tiny.post(path, sound | {"model": "quire-tiny"}).status == 200
        assert tiny.post(path, sound | {"model": "quire-tiny\0x"}).status == 400, path
    assert tiny.post("/completion", BODIES["/completion"] | {"response_fields": ["content\0x"]}).status == 400
    choice = {"type": "function", "function": {"name": "get_weather\0x"}}
    assert tiny.post("/v1/chat/completions", BODIES["/v1/chat/completions"] | {"tool_choice": choice}).status == 400


def test_a_nul_in_text(tiny):
    """Text is taken as long as it is."""
    sizes = [tiny.complete(text, max_tokens=1)["usage"]["prompt_tokens"] for text in ("a", "a\0", "a\0b")]
    assert sizes[0] < sizes[1] < sizes[2], sizes
    only = {"prompt": "x", "max_tokens": 8, "structured_outputs": {"choice": ["a\0b"]}}
    assert tiny.post("/v1/completions", only).json()["choices"][0]["text"] == "a\0b"
    assert tiny.post("/v1/completions", only | {"stop": "\0b"}).json()["choices"][0]["text"] == "a"


CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, OLLAMA])
def test_two_tools_of_a_name(tiny, path):
    sound = BODIES[path]
    [tool] = sound["tools"]
    reply = tiny.post(path, sound | {"tools": [tool, tool]})
    assert reply.status == 400 and "tools[1]" in reply.body.decode() and "two tools 'get_weather'" in reply.body.decode(), reply


def test_two_functions_of_a_name(tiny):
    reply = tiny.post(CHAT, {"messages": [USER], "max_tokens": 1, "functions": [FUNCTION, FUNCTION]})
    assert reply.status == 400 and reply.json()["error"]["param"] == "functions[1]", reply


@pytest.mark.parametrize("path, place", [
    (CHAT, ("messages", 3, "tool_call_id")), (RESPONSES, ("input", 2, "call_id")), (MESSAGES, ("messages", 2, "content", 0, "tool_use_id")),
    (OLLAMA, None),
])  # fmt: skip
def test_whose_result_it_is(tiny, path, place):
    """A tool's result names its call, but for Ollama's, which come in order."""
    sound = BODIES[path]
    assert tiny.post(path, sound).status == 200
    for missing in (None, KeyError) if place else ():
        reply = tiny.post(path, changed(sound, place, missing))
        assert reply.status == 400 and place[-1] in reply.body.decode(), reply
