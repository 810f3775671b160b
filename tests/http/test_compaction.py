"""/v1/responses/compact: the user's messages and a summary that the model writes, which stands for the conversation afterwards."""

import openai

from test_responses import PATH, WEATHER
from wire import check_error

COMPACT = PATH + "/compact"
SAID = [
    {"role": "user", "content": "What is the weather in Oslo?"},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Oslo"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"role": "assistant", "content": "It is sunny in Oslo."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And in Rome?"}]},
]


def test_compaction(tiny):
    """Codex's body; the official client's types; the output is the next request's history."""
    body = {"model": "quire-tiny", "input": SAID, "instructions": "You help.", "tools": [WEATHER], "parallel_tool_calls": True, "text": {"verbosity": "low"},
            "reasoning": {"effort": "low"}, "stream": True, "max_output_tokens": 40, "temperature": 0}  # fmt: skip
    compacted = tiny.post(COMPACT, body).json()
    assert [item["type"] for item in compacted["output"]] == ["message", "message", "compaction"]
    assert [item["content"][0]["text"] for item in compacted["output"][:2]] == ["What is the weather in Oslo?", "And in Rome?"]
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0) as client:
        theirs = client.responses.compact(model="quire-tiny", input=SAID, instructions="You help.", extra_body={"max_output_tokens": 40, "temperature": 0})
        assert theirs.object == "response.compaction" and theirs.output[-1].encrypted_content == compacted["output"][-1]["encrypted_content"]
        assert 0 < theirs.usage.output_tokens <= 40
        after = client.responses.create(model="quire-tiny", input=[*compacted["output"], {"role": "user", "content": "Hi"}], max_output_tokens=8)
        assert after.status in ("completed", "incomplete")
    short = tiny.post(COMPACT, {"input": "Hello", "max_output_tokens": 4}).json()
    assert [item["type"] for item in short["output"]] == ["message", "compaction"]


def test_what_the_model_sees(start, chatml, tmp_path):
    """It is asked for the summary behind all that was said, without tools; later the summary is there and the rest is not."""
    path = tmp_path / "t.jinja"
    path.write_text("{{ raise_exception([messages | length, messages[-1].role, messages[-1].content[-30:], tools is defined] | join('|')) }}")
    server = start("--chat-template", path, "--tool-call-parser", "hermes", model=chatml)

    def seen(route, *items):
        body = {"input": [{"role": "user", "content": "a"}, *items], "tools": [WEATHER]}
        return check_error(server.post(route, body), 400, "input", code="template_error")["message"].split(": ", 1)[1]

    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "quire-summary:b was done"}
    assert seen(COMPACT) == "2|user|Write nothing but the summary.|False"
    assert seen(PATH, summary) == "2|user|, which you wrote:\n\nb was done|True"


def test_summary_of_another_server(tiny):
    for item in ({"type": "compaction", "encrypted_content": "gAAAA"}, {"type": "compaction"}):
        check_error(tiny.post(PATH, {"input": [item, {"role": "user", "content": "Hi"}]}), 400, "input[0].encrypted_content")
    check_error(tiny.post(COMPACT, {"model": "quire-tiny"}), 400, "input")
