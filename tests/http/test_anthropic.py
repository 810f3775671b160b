"""Anthropic's Messages API, with its official client and by hand: the embedded model, which knows tools, and one that a template
makes reason."""

import asyncio
import json
import re

import anthropic
import pytest
import yaml

import goldens
from process import SLOW, Server
from test_fields import TABLED
from test_tools import THINKS
from wire import Api

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
TOOLS = [{"name": "get_weather", "description": "Get the weather of a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]  # fmt: skip
ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
HI = [{"role": "user", "content": "Hi!"}]


@pytest.fixture
def client(tiny):
    with anthropic.Anthropic(base_url=tiny.url, api_key="none", max_retries=0, timeout=60) as c:
        yield c


def body(**fields):
    return {"model": "quire-tiny", "max_tokens": 60, "messages": ASK, "temperature": 0, **fields}


def sdk(**fields):
    """The same for the client, which does not know every field."""
    asked = body(**fields)
    del asked["temperature"]
    return {**asked, "extra_body": {"temperature": 0, **fields.get("extra_body", {})}}


def check_error(reply, status, kind, word=""):
    """The object, its type, the request's id in it and in both headers."""
    assert reply.status == status, reply
    error = reply.json()
    assert error["type"] == "error" and error["error"]["type"] == kind and word in error["error"]["message"], error
    assert set(error) == {"type", "error", "request_id"} and set(error["error"]) == {"type", "message"}
    assert error["request_id"] == reply.header("request-id") == reply.header("x-request-id")
    return error["error"]["message"]


def events(reply):
    """[(name, data)], of which each is one HTTP chunk."""
    assert reply.status == 200 and reply.header("content-type").startswith("text/event-stream")
    found = []
    for chunk in reply.chunks:
        name, data = re.fullmatch(rb"event: (\w+)\ndata: (.+)\n\n", chunk).groups()
        found.append((name.decode(), json.loads(data)))
        assert found[-1][1]["type"] == found[-1][0]
    return found


# ---- what comes


def test_text(client, tiny):
    message = client.messages.create(**sdk(messages=HI, system="You are nice.", metadata={"user_id": "me"}, service_tier="auto"))
    [block] = message.content
    assert block.type == "text" and block.text and message.role == "assistant" and message.type == "message"
    assert message.id.startswith("msg_") and message.model == "quire-tiny" and message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message._request_id and message.id == "msg_" + message._request_id
    # The same words as a chat's.
    chat = [{"role": "system", "content": "You are nice."}, *HI]
    other = tiny.post("/v1/chat/completions", {"messages": chat, "temperature": 0, "max_tokens": 60}).json()
    assert other["choices"][0]["message"]["content"] == block.text
    assert other["usage"]["prompt_tokens"] == message.usage.input_tokens + message.usage.cache_read_input_tokens
    assert other["usage"]["completion_tokens"] == message.usage.output_tokens


def test_stream(client, tiny):
    """The events in their order, and put together by the client what a body says."""
    whole = client.messages.create(**sdk(messages=HI))
    with client.messages.stream(**sdk(messages=HI)) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens
    found = events(tiny.post(PATH, body(messages=HI, stream=True)))
    names = [name for name, _ in found]
    assert names[:4] == ["message_start", "content_block_start", "ping", "content_block_delta"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"] and set(names[3:-3]) == {"content_block_delta"}
    start = found[0][1]["message"]
    assert start["content"] == [] and start["stop_reason"] is None and start["usage"]["input_tokens"] > 0
    assert found[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None} and found[-2][1]["usage"]["output_tokens"] == whole.usage.output_tokens


def test_async(tiny):
    async def both():
        async with anthropic.AsyncAnthropic(base_url=tiny.url, api_key="none", max_retries=0) as c:
            one, two = await asyncio.gather(c.messages.create(**sdk()), c.messages.create(**sdk(messages=HI)))
            async with c.messages.stream(**sdk(messages=HI)) as stream:
                assert "".join([text async for text in stream.text_stream]) == two.content[0].text
            return one

    assert asyncio.run(both()).content


def test_ends(client):
    text = client.messages.create(**sdk(messages=HI)).content[0].text
    short = client.messages.create(**sdk(messages=HI, max_tokens=2))
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 2
    stop = text.split()[1]
    for stream in (False, True):
        if stream:
            with client.messages.stream(**sdk(messages=HI, stop_sequences=["~~", stop])) as s:
                message = s.get_final_message()
        else:
            message = client.messages.create(**sdk(messages=HI, stop_sequences=["~~", stop]))
        assert message.stop_reason == "stop_sequence" and message.stop_sequence == stop
        assert message.content[0].text == text[: text.index(stop)]


def test_count(client):
    for fields in ({}, {"tools": TOOLS}, {"system": [{"type": "text", "text": "Be nice.", "cache_control": {"type": "ephemeral"}}]}):
        counted = client.messages.count_tokens(model="quire-tiny", messages=ASK, **fields).input_tokens
        first, again = (client.messages.create(**sdk(max_tokens=1, **fields)).usage for _ in range(2))
        assert counted == first.input_tokens + first.cache_read_input_tokens == again.input_tokens + again.cache_read_input_tokens
        assert again.cache_creation_input_tokens == 0 < again.input_tokens
    assert again.cache_read_input_tokens > 0


def test_the_line_that_changes_with_each_request(tiny):
    """Claude Code's first system block is no part of the prompt, so its turns share their prefixes (facts of public traffic)."""
    messages, rules = [], {"type": "text", "text": "You help with a code base. " * 40, "cache_control": {"type": "ephemeral"}}
    for turn, cch in enumerate(("36ee5", "00a1f", "b2c9d")):
        messages += [{"role": "user", "content": f"Step {turn}, please."}]
        line = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={cch};"}
        reply = tiny.post(PATH, body(messages=messages, system=[line, rules], max_tokens=4))
        usage = reply.json()["usage"]
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert reply.header("x-quire-ignored") == "system[0]"
        assert turn == 0 or usage["cache_read_input_tokens"] >= 0.9 * prompt, usage
        assert tiny.post(COUNT, {"model": "quire-tiny", "messages": messages, "system": [line, rules]}).json()["input_tokens"] == prompt
        assert tiny.post(COUNT, {"model": "quire-tiny", "messages": messages, "system": [rules]}).json()["input_tokens"] == prompt
        messages += [{"role": "assistant", "content": "".join(b["text"] for b in reply.json()["content"])}]


def test_prefill(client, tiny):
    """A last message of the assistant is gone on with."""
    text = client.messages.create(**sdk(messages=HI)).content[0].text
    begun, rest = text[: len(text) // 2], text[len(text) // 2 :]
    message = client.messages.create(**sdk(messages=[*HI, {"role": "assistant", "content": begun.rstrip()}]))
    assert (begun.rstrip() + message.content[0].text).replace(" ", "") == text.replace(" ", "") and rest
    call = [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]
    check_error(tiny.post(PATH, body(messages=[*HI, {"role": "assistant", "content": call}])), 400, "invalid_request_error", "tool_result")


def test_empty_turns(tiny):
    """A message without blocks is a turn; a last one of the assistant that says nothing is none."""

    def tokens(*messages):
        turns = [{"role": role, "content": content} for role, content in messages]
        for path in (PATH, COUNT):
            reply = tiny.post(path, body(messages=turns, max_tokens=1))
            assert reply.status == 200, reply
        return reply.json()["input_tokens"]

    hidden = [{"type": "redacted_thinking", "data": "x"}]
    assert tokens(("user", [])) == tokens(("user", ""))
    assert tokens(("user", "Hi!"), ("assistant", []), ("user", "So?")) == tokens(("user", "Hi!"), ("assistant", ""), ("user", "So?"))
    assert tokens(("user", "Hi!")) == tokens(("user", "Hi!"), ("assistant", [])) == tokens(("user", "Hi!"), ("assistant", hidden))
    check_error(tiny.post(PATH, body(messages=[{"role": "assistant", "content": []}])), 400, "invalid_request_error", "messages: ")


def test_format(tiny):
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "schema": schema}
    for fields in ({"output_config": {"format": form}}, {"output_format": form}, {"output_format": {"type": "x"}, "output_config": {"format": form}}):
        [block] = tiny.post(PATH, body(messages=HI, **fields)).json()["content"]
        assert list(json.loads(block["text"])) == ["a"]
    check_error(tiny.post(PATH, body(output_format="x")), 400, "invalid_request_error", "output_config.format")


# ---- tools


def test_call(client):
    message = client.messages.create(**sdk(tools=TOOLS))
    [call] = message.content
    assert (call.type, call.name, call.input, message.stop_reason) == ("tool_use", "get_weather", {"city": "Oslo"}, "tool_use")
    assert call.id.startswith("toolu_")
    with client.messages.stream(**sdk(tools=TOOLS)) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert json.loads("".join(parts)) == call.input == final.content[0].input and final.content[0].id != call.id and len(parts) > 1
    assert final.stop_reason == "tool_use"


def test_cut_call(client):
    """A call that max_tokens cuts has no arguments."""
    for n in range(1, 25):
        message = client.messages.create(**sdk(tools=TOOLS, max_tokens=n))
        assert message.stop_reason == "max_tokens"
        if message.content and message.content[0].type == "tool_use":
            assert message.content[0].input == {}
            return
    raise AssertionError("no call was cut")


def test_choice(client, tiny):
    none = client.messages.create(**sdk(tools=TOOLS, tool_choice={"type": "none"}))
    without = client.messages.create(**sdk())
    assert none.content == without.content and none.usage.output_tokens == without.usage.output_tokens
    auto = client.messages.create(**sdk(tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
    assert [block.type for block in auto.content] == ["tool_use"]


def test_tool_runner(client):
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Get the weather of a city

        Args:
            city: the city
        """
        asked.append(city)
        return json.dumps({"weather": "sunny", "temperature": 3})

    for stream in (False, True):
        runner = client.beta.messages.tool_runner(**sdk(tools=[get_weather], stream=stream), max_iterations=4)
        final = runner.until_done()
        assert "sunny" in final.content[0].text and asked.pop() == "Oslo" and not asked


def test_typed_tools(tiny):
    """Those that the client runs are functions with the schema that Anthropic publishes; those that its servers run are told."""
    for kind, name, wanted in (("text_editor_20250728", "str_replace_based_edit_tool", {"command", "path"}), ("memory_20250818", "memory", {"command"}),
                               ("bash_20250124", "bash", set())):  # fmt: skip
        tools = [{"type": kind, "name": name}, {"type": "web_search_20250305", "name": "web_search"}]
        reply = tiny.post(PATH, body(tools=tools, tool_choice={"type": "tool", "name": name}, max_tokens=400))
        assert reply.status == 200 and reply.header("x-quire-ignored") == "tools.web_search_20250305", reply
        [use] = reply.json()["content"]
        assert use["type"] == "tool_use" and use["name"] == name and (wanted <= set(use["input"]) or reply.json()["stop_reason"] == "max_tokens"), use


def test_deferred_tools(tiny):
    """They are no part of the prompt until a result of the client's search refers to them; with Anthropic's own search they all are."""
    later, search = {**TOOLS[0], "name": "later", "defer_loading": True}, {"type": "tool_search_tool_bm25_20251119", "name": "search"}
    found = [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "later"}]}]}]  # fmt: skip
    count = lambda messages, *tools: tiny.post(COUNT, {"model": "quire-tiny", "messages": messages, "tools": tools}).json()["input_tokens"]  # noqa: E731
    seen = {**later, "defer_loading": False}
    assert count(ASK, TOOLS[0], later) == count(ASK, TOOLS[0]) < count(ASK, TOOLS[0], seen) == count(ASK, TOOLS[0], later, search)
    assert count(found, TOOLS[0], later) == count(found, TOOLS[0], seen) > count(found, TOOLS[0])


def test_results(tiny):
    """A string, blocks and nothing; a failure is told."""
    call = {"role": "assistant", "content": [{"type": "text", "text": "Well."}, {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}}]}

    def tokens(**result):
        block = {"type": "tool_result", "tool_use_id": "t1", **result}
        reply = tiny.post(COUNT, {"messages": [*ASK, call, {"role": "user", "content": [block, {"type": "text", "text": "So?"}]}], "tools": TOOLS})
        assert reply.status == 200 and reply.header("x-quire-ignored") is None, (reply, reply.header("x-quire-ignored"))
        return reply.json()["input_tokens"]

    text = [{"type": "text", "text": "sunny"}]
    assert tokens(content="sunny") == tokens(content=text) == tokens(content=text, is_error=False) > tokens()
    assert tokens(content=text, is_error=True) > tokens(content=text)


# ---- reasoning


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    path = tmp_path_factory.mktemp("thinker") / "t.jinja"
    path.write_text(THINKS.replace("{{ m.content }}", "{% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}{{ m.content }}"))
    server = Server("--chat-template", path)
    yield server
    server.stop()


def test_thinking(thinker):
    asked = sdk(messages=[{"role": "user", "content": "Once upon a time"}], max_tokens=12)
    with anthropic.Anthropic(base_url=thinker.url, api_key="none", max_retries=0) as c:
        [model] = c.models.list()
        assert model.type == "model" and model.display_name == model.id and model.created_at.year >= 2026
        assert c.models.retrieve(model.id) == model
        asked["model"] = model.id
        for kind in ({"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive", "display": "summarized"}):
            message = c.messages.create(**asked, thinking=kind)
            [block] = message.content
            assert block.type == "thinking" and block.thinking and block.signature and message.usage.output_tokens_details.thinking_tokens == 12
            with c.messages.stream(**asked, thinking=kind) as stream:
                kinds = [event.type for event in stream]
                assert stream.get_final_message().content[0].thinking == block.thinking
            assert "thinking" in kinds and "signature" in kinds
        for kind in ({"type": "disabled"}, anthropic.omit):
            assert [b.type for b in c.messages.create(**asked, thinking=kind).content] == ["text"]
        omitted = c.messages.create(**asked, thinking={"type": "adaptive", "display": "omitted"})
        assert omitted.content == [] and omitted.usage.output_tokens == 12
        # Earlier thinking reaches the template, except blocks that only their maker can read.
        counts = []
        for blocks in ([], [{"type": "redacted_thinking", "data": "x" * 99}], [{"type": "thinking", "thinking": "why", "signature": "s"}]):
            said = {"role": "assistant", "content": [*blocks, {"type": "text", "text": "so"}]}
            counts.append(c.messages.count_tokens(model=asked["model"], messages=[*HI, said, *HI]).input_tokens)
        assert counts[0] == counts[1] < counts[2]


# ---- refusals


@pytest.mark.parametrize(
    "fields, word",
    [
        ({"max_tokens": None}, "max_tokens: "),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"messages": []}, "messages: "),
        ({"messages": "x"}, "messages: "),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role: "),
        ({"messages": [{"role": "user"}]}, "messages[0].content: "),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]: "),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "messages[0].content[0]: "),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]}, "'tool_use'"),
        ({"messages": [*HI, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]}]}, "messages[1].content[0]: "),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "'tool_use_id'"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": 1}]}]}, "'is_error'"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}]}]}, "messages[0].content[0].content[0]: "),
        ({"system": 1}, "system: "),
        ({"system": [{"type": "image"}]}, "system[0]: "),
        ({"tools": [{"type": "telepathy_20250305", "name": "telepathy"}]}, "tools[0]: "),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice: "),
        ({"tools": [{"name": "f"}]}, "'input_schema'"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0]: "),
        ({"tools": [{**TOOLS[0], "strict": 1}]}, "'strict'"),
        ({"tools": [{**TOOLS[0], "allowed_callers": ["code_execution_20260120"]}]}, "'allowed_callers'"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice: "),
        ({"tools": TOOLS, "tool_choice": "auto"}, "tool_choice: "),
        ({"thinking": {"type": "much"}}, "thinking: "),
        ({"thinking": {"type": "enabled", "budget_tokens": "1"}}, "thinking: "),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}}, "output_config.format"),
        ({"output_config": {"effort": "much"}}, "output_config.effort: "),
        ({"compaction": {"type": "summarize"}}, "compaction: "),
        ({"messages": [*HI, {"role": "system", "content": [{"type": "tool_addition"}]}]}, "messages[1].content[0]: "),
        ({"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]}, "messages[0].content[0]: "),
        ({"stop_sequences": [""]}, "stop_sequences[0]: "),
        ({"temperature": 3}, "temperature: "),
        ({"stream": 1}, "stream: "),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, "maximum context length"),
    ],
)
def test_refusals(tiny, fields, word):
    check_error(tiny.post(PATH, body(**fields)), 400, "invalid_request_error", word)


def test_thinking_of_a_model_that_does_not(chat):
    for kind, told in (("enabled", "thinking"), ("disabled", None), ("adaptive", None)):
        reply = chat.post(PATH, {"max_tokens": 1, "messages": HI, "thinking": {"type": kind}})
        assert reply.status == 200 and reply.header("x-quire-ignored") == told


def test_what_runs_elsewhere_is_told(tiny):
    """Fields and blocks of Anthropic's servers, without which the messages still say what they say."""
    asked = {"container": {"skills": []}, "mcp_servers": [{"type": "url", "url": "https://example.org", "name": "m"}], "fallbacks": [{"model": "x"}],
             "context_management": {"edits": [{"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 10}}, {"type": "compact_20260112"}]},
             "tools": [*TOOLS, {"type": "mcp_toolset", "mcp_server_name": "m"}]}  # fmt: skip
    turn = [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "encrypted_content": "x"}]},
            {"type": "text", "text": "Found."}]  # fmt: skip
    reply = tiny.post(PATH, body(max_tokens=1, messages=[*HI, {"role": "assistant", "content": turn}, *HI], **asked))
    told = "container, mcp_servers, fallbacks, context_management, tools.mcp_toolset, messages[].content[].server_tool_use, messages[].content[].web_search_tool_result"
    assert reply.status == 200 and set(reply.header("x-quire-ignored").split(", ")) == set(told.split(", ")), reply
    same = [*HI, {"role": "assistant", "content": "Found."}, *HI]
    usage = reply.json()["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count(tiny, messages=same, tools=TOOLS)


def count(server, **fields):
    reply = server.post(PATH + "/count_tokens", {"model": "quire-tiny", **fields})
    assert reply.status == 200, reply
    return reply.json()["input_tokens"]


def test_changes_of_tools(tiny):
    """Blocks add and remove tools: the model sees those that there are at the end."""
    other = {"name": "other", "description": "Something else", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    later = {**other, "defer_loading": True}

    def change(kind, tool):
        return {"role": "system", "content": [{"type": f"tool_{kind}", "tool": tool}]}

    defined, named = {"type": "tool_definition", "definition": other}, {"type": "tool_reference", "name": "other"}
    both, one = count(tiny, messages=HI, tools=[*TOOLS, other]), count(tiny, messages=HI, tools=TOOLS)
    assert both > one
    assert count(tiny, messages=[*HI, change("addition", defined)], tools=TOOLS) == both
    assert count(tiny, messages=[*HI, change("addition", named)], tools=[*TOOLS, later]) == both
    assert count(tiny, messages=[*HI, change("removal", named)], tools=[*TOOLS, other]) == one
    assert count(tiny, messages=[*HI, change("addition", defined), change("removal", named), change("addition", named)], tools=TOOLS) == both
    assert count(tiny, messages=[*HI, change("addition", {"type": "mcp_toolset_reference", "mcp_server_name": "m"})], tools=TOOLS) == one


def test_compaction_of_before(tiny):
    """Its text stands for all before it, but for the system's; one that failed is none."""
    before = [{"role": "user", "content": "word " * 200}]
    for content, after in (("short", "A summary of our conversation so far:\n\nshort"), (None, None)):
        turn = {"role": "assistant", "content": [{"type": "compaction", "content": content, "encrypted_content": "x"}, {"type": "text", "text": "So."}]}
        said = [{"role": "user", "content": after}] if content else before
        assert count(tiny, system="s", messages=[*before, turn, *HI]) == count(tiny, system="s", messages=[*said, {"role": "assistant", "content": "So."}, *HI])


def test_names(tiny):
    """Those that ask for nothing here are taken, others told."""
    for (name, place), (fate, _, values) in TABLED.items():
        if place == "anthropic" and fate in ("harmless", "refused"):
            for value in [*values] if fate == "refused" else ["x", {"a": 1}, None]:
                reply = tiny.post(PATH, body(max_tokens=1, **{name: value}))
                assert reply.status == 200 and reply.header("x-quire-ignored") is None, (name, value, reply)
            if fate == "refused":
                check_error(tiny.post(PATH, body(max_tokens=1, **{name: {"a": 1}})), 400, "invalid_request_error", f"{name}: ")
    kept = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    assert tiny.post(PATH, body(max_tokens=1, context_management=kept, output_config={"effort": "high"})).status == 200
    block = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}, "citations": None, "one": 1}
    reply = tiny.post(PATH, body(max_tokens=1, messages=[{"role": "user", "content": [block], "two": 2}], system=[{**block, "three": 3}],
                                 tools=[{**TOOLS[0], "cache_control": {"type": "ephemeral"}, "four": 4}], five=5))  # fmt: skip
    told = "five, system[].one, system[].three, tools[].four, messages[].two, messages[].content[].one"
    assert reply.status == 200 and reply.header("x-quire-ignored") == told


def test_errors_by_status(tiny):
    check_error(tiny.post(PATH, body(model="claude-does-not-exist")), 404, "not_found_error", "claude-does-not-exist")
    check_error(tiny.post(COUNT, {"messages": HI, "model": "claude"}), 404, "not_found_error")
    check_error(tiny.post("/v1/messages/batches", {}), 404, "not_found_error")
    check_error(tiny.get(PATH), 405, "invalid_request_error")
    check_error(tiny.get(COUNT), 405, "invalid_request_error")
    check_error(tiny.post(COUNT, {"messages": 1}), 400, "invalid_request_error", "messages: ")
    check_error(tiny.call("POST", PATH, b"{", headers={"Content-Type": "application/json"}), 400, "invalid_request_error", "JSON")
    check_error(tiny.call("POST", PATH, b"{}", headers={"Content-Type": "text/plain"}), 415, "invalid_request_error")
    check_error(tiny.call("POST", PATH, b"", headers={"Content-Type": "application/json", "Content-Length": "99999999"}), 413, "request_too_large")


def test_keys(start):
    server = start(env={"QUIRE_API_KEY": "secret"}, key="secret", model="")
    for headers in ({}, {"x-api-key": "wrong"}):
        check_error(Api(*server.address).post(PATH, {}, headers=headers), 401, "authentication_error")
    with anthropic.Anthropic(base_url=server.url, api_key="secret") as c:
        assert c.messages.create(**sdk(max_tokens=2)).usage.output_tokens == 2
    with anthropic.Anthropic(base_url=server.url, auth_token="secret") as c:
        assert c.messages.create(**sdk(max_tokens=2)).usage.output_tokens == 2
    with anthropic.Anthropic(base_url=server.url, api_key="no", max_retries=0) as c, pytest.raises(anthropic.AuthenticationError):
        c.messages.create(**sdk())


def test_overload_and_shutdown(start):
    """A full queue is 529, which the client tries again; a stream that the end of the server cuts ends in an event."""
    server = start("--max-num-seqs", 1, "--max-num-queued-seqs", 0, "--drain-timeout", 0, env=SLOW, model="")
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as c:
        with c.messages.stream(**sdk(messages=HI, max_tokens=400, stop_sequences=["~~"], extra_body={"ignore_eos": True})) as stream:
            next(iter(stream.text_stream))
            with pytest.raises(anthropic.OverloadedError) as full:
                c.messages.create(**sdk(messages=HI))
            assert full.value.status_code == 529 and int(full.value.response.headers["retry-after"]) >= 1
            server.signal()
            with pytest.raises(anthropic.APIStatusError, match="shutting down"):
                stream.get_final_message()


# ---- recorded traffic


def recorded():
    """The path and body of each distinct request to the Messages API."""
    folder = goldens.data("api/cassettes/pydantic-anthropic")
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for interaction in yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["interactions"]:
            request = interaction["request"]
            if "/v1/messages" in request["uri"]:
                asked = request.get("parsed_body") or json.loads(request["body"])
                found[json.dumps(asked)] = (re.sub(r"https://[^/]*", "", request["uri"]), asked)
    return list(found.values())


def test_recorded_traffic():
    server = Server(model="")
    requests = recorded()
    for path, asked in requests:
        asked["model"] = "quire-tiny"
        if "max_tokens" in asked:
            asked["max_tokens"] = 4
        reply = server.post(path, asked)
        assert reply.status == 200, (asked, reply)
    server.stop()
    assert len(requests) == 58
