"""A sound body of each dialect with each of its values replaced by what does not belong there, or left out: an answer or a clean 4xx, and
the server lives."""

import copy

import pytest
from process import Server

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


@pytest.fixture(scope="module")
def tiny():
    server = Server(model="")
    yield server
    server.stop()


@pytest.mark.parametrize("path, sound", [*BODIES.items(), *ONE.items()])
def test_odd_values(tiny, path, sound):
    assert tiny.post(path, sound).status == 200
    for *outer, last in places(sound):
        unlimited = {"options", *LIMITS} & {last, *outer}
        for odd in [*ODD, KeyError]:
            if unlimited and odd in (None, KeyError, 2**62, {}, -1):
                continue  # the answer would be long
            body = copy.deepcopy(sound)
            inner = body
            for key in outer:
                inner = inner[key]
            if odd is KeyError:
                del inner[last]
            else:
                inner[last] = odd
            reply = tiny.post(path, body)
            assert reply.status in (200, 400, 404), (outer, last, odd, reply)
