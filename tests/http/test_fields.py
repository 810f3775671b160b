"""No field is ignored in silence: the code's table says of every name what becomes of it, docs/fields.md is that table, docs/api.md
explains what is read, and it is true."""

import importlib.util
import json
import re

import pytest
from goldens import ROOT
from schema import components
from test_chat import HI
from wire import check_error, parse_events, wait_for

SERVER = ROOT / "server"
BODIES = {
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "chat": ("/v1/chat/completions", {"messages": HI, "max_tokens": 1}),
    "responses": ("/v1/responses", {"input": "a", "max_tokens": 1}),
}
CHOICES = ("completions", "chat")
# The tokenizer's, and the prompt alone of a chat completion.
PARTS_OF_IT = {
    "tokenize": ("/tokenize", {"prompt": "a"}),
    "detokenize": ("/detokenize", {"tokens": [1]}),
    "apply-template": ("/apply-template", {"messages": HI}),
}
PATHS = BODIES | PARTS_OF_IT
MEMBERS = ("message", "part", "stream_options", "embeddings", "rerank", "score")
DECISIONS = ("systemone", "question", "classify")  # test_decisions.py
# test_anthropic.py, test_ollama.py
OTHERS = ("anthropic", "turn", "block", "tool", "ollama_chat", "ollama_generate", "ollama_embed", "ollama_options", "ollama_message")
OWN = {"item": ["EasyInputMessage", "OutputMessage", "FunctionToolCall", "CustomToolCall", "FunctionCallOutputItemParam", "ReasoningItem", "LocalShellToolCall", "ApplyPatchToolCall",
                "CompactionBody"], "option": ["Reasoning", "ResponseTextParam"],
       "item part": ["InputTextContent", "OutputTextContent", "RefusalContent", "ReasoningTextContent"]}  # members of objects that OpenAI's schema names
HEADER = "x-quire-ignored"
UNLIKELY = {"x": 1}  # no field takes it, and it asks for something


def fields_page():
    spec = importlib.util.spec_from_file_location("fields_page", ROOT / "docs/fields.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLED = fields_page().tabled()  # of the source; docs/fields.md is written from it
TOP = sorted((name, place) for name, place in TABLED if place in PATHS and TABLED[name, place][0] != "template")


def test_what_is_read_is_explained():
    text = (ROOT / "docs/api.md").read_text()
    first = text.split("## Names of other servers")[0]
    for (name, place), row in TABLED.items():
        if row[0] == "read" and place in BODIES:
            assert f"`{name}`" in first, name
        elif place in OWN:
            assert any(name in components()[schema]["properties"] for schema in OWN[place]), name
        elif row[0] == "read" and place not in ("message", "part", *OTHERS):
            assert f"`{name}`" in text or f'`{{"{name}"' in text, name
    assert len({name for name, place in TOP}) >= 224


def properties(schema):
    schema = components()[schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
    found = set(schema.get("properties", ()))
    for part in schema.get("allOf", ()):
        found |= properties(part)
    return found


# Fields of vLLM's protocol.py beside OpenAI's names.
VLLM = """add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt chat_template chat_template_kwargs continue_final_message
documents echo ignore_eos include_reasoning include_stop_str_in_output kv_transfer_params length_penalty media_io_kwargs min_p min_tokens
mm_processor_kwargs priority prompt_embeds prompt_logprobs repetition_detection repetition_penalty request_id return_token_ids
return_tokens_as_token_ids skip_special_tokens spaces_between_special_tokens stop_token_ids structured_outputs thinking_token_budget top_k
truncate_prompt_tokens truncation_side use_beam_search vllm_xargs""".split()


def test_every_field_of_the_specification_is_tabled():
    for schema, place in (("CreateCompletionRequest", "completions"), ("CreateChatCompletionRequest", "chat"),
                          ("CreateResponse", "responses"), ("CreateEmbeddingRequest", "embeddings")):  # fmt: skip
        names = properties(components()[schema]) | set(VLLM if place in BODIES else ())
        assert not [name for name in names if (name, place) not in TABLED], place


def test_what_is_read_is_so_in_the_table():
    for file, places in {"openai_parse": CHOICES, "openai_completions": ["completions"], "openai_chat": ["chat"]}.items():
        for name in re.findall(r'^    \{"(\w+)", F_', (SERVER / f"dialects/{file}.c").read_text(), re.M):
            for place in places:
                assert TABLED[name, place][0] == "read", (name, place)


# ---- that it is true


def send(server, place, **fields):
    path, body = PATHS[place]
    return server.post(path, {**body, **fields})


def taken(server, place, **fields):
    reply = send(server, place, **fields)
    assert reply.status == 200 and reply.header(HEADER) is None, (fields, reply, reply.header(HEADER))
    return reply.json()


@pytest.mark.parametrize("name, place", TOP)
def test_name(chat, name, place):  # noqa: F811
    fate, word, values = TABLED[name, place]
    taken(chat, place, **({name: None} if name not in PATHS[place][1] else {}))
    if fate == "harmless":
        for value in (UNLIKELY, [1], 1, "x", True, False):
            taken(chat, place, **{name: value})
        return
    value = [UNLIKELY] if (name, place) in (("reasoning", "responses"), ("text", "responses")) else UNLIKELY
    value = 1 if name in ("guided_json", "json_schema") else value  # UNLIKELY is a schema that allows anything
    reply = send(chat, place, **{name: value})
    error = check_error(reply, 400, name, code="unsupported_parameter" if fate == "refused" else False)
    assert reply.header(HEADER) in (None, f"{name}.x")
    if fate == "refused" or (fate == "alias" and values):
        for value in values:
            taken(chat, place, **{name: value} | ({"max_tokens": None, "stop": ["a", " "]} if fate == "alias" else {}))
    if fate == "alias":
        error = check_error(send(chat, place, **{name: 3, word: 4}), 400, name)
        assert f"'{name}'" in error["message"] and f"'{word}'" in error["message"]


def test_aliases_have_an_effect(chat):  # noqa: F811
    for place in CHOICES:
        for name in ("n_predict", "num_predict", "max_new_tokens", "max_output_tokens", "max_completion_tokens"):
            assert taken(chat, place, max_tokens=None, ignore_eos=True, **{name: 5})["usage"]["completion_tokens"] == 5
        plain = taken(chat, place, seed=1, max_tokens=16)["choices"]
        stop = plain[0].get("text") or plain[0]["message"]["content"]
        for given, wanted in [
            ({"stop_sequences": ["~", stop[3]]}, {"stop": ["~", stop[3]]}),
            ({"repeat_penalty": 900}, {"repetition_penalty": 900}),
            ({"n_cmpl": 3}, {"n": 3}),
            ({"seed": None, "sampling_seed": 7}, {"seed": 7}),
            ({"seed": None, "random_seed": 7}, {"seed": 7}),
        ]:
            answers = [taken(chat, place, **{"seed": 1, "max_tokens": 16, **f})["choices"] for f in (given, wanted)]
            assert answers[0] == answers[1] != plain, given
        assert taken(chat, place, rid="abc.1")["id"].endswith("-abc.1")


# ---- members of objects


def with_member(server, place, name, value):
    if place == "stream_options":
        return send(server, "chat", stream=True, stream_options={name: value})
    if place == "part":
        content = [{"type": "text", "text": "a", name: value}]
        return send(server, "chat", messages=[{"role": "user", "content": content}])
    return send(server, "chat", messages=[{"role": "assistant", "content": "a", name: value}])


@pytest.mark.parametrize("name, place", sorted((n, p) for n, p in TABLED if p in MEMBERS and TABLED[n, p][0] != "read" and n != "tool_calls"))
def test_member(chat, name, place):  # noqa: F811
    fate, _, values = TABLED[name, place]
    value = "x" if fate == "template" and not values else [UNLIKELY]
    reply = with_member(chat, place, name, value)
    if values:
        error = check_error(reply, 400, code="unsupported_parameter")
        assert error["param"] == f"messages[0].{name}"
        for value in [*values, None]:
            reply = with_member(chat, place, name, value)
            assert reply.status == 200 and reply.header(HEADER) is None, (value, reply)
    else:
        assert reply.status == 200 and reply.header(HEADER) == (f"messages[].{name}" if fate == "template" else None)


def test_members_that_a_template_names(start, tmp_path):
    """It gets them whole, the arguments of a call as an object; nothing in them becomes a control token."""
    path = tmp_path / "t.jinja"
    path.write_text("{% for m in messages %}{% if m.content == 'show' %}{{ raise_exception([m['reasoning_content'], m.tool_calls, m.own] | tojson) }}"
                    "{% endif %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}")  # fmt: skip
    server = start("--chat-template", str(path))
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, 2.5, null, true], "arguments": "{}"}'}}
    message = {"role": "assistant", "content": "show", "tool_calls": [call], "reasoning_content": "why", "own": {"b": [False]}}
    error = check_error(send(server, "chat", messages=[message]), 400, "messages", code="template_error")
    object_ = {**call, "function": {"name": "f", "arguments": {"a": [1, 2.5, None, True], "arguments": "{}"}}}
    assert json.loads(error["message"].split(": ", 1)[1]) == ["why", [object_], {"b": [False]}]

    def tokens(arguments):
        calls = [{"function": {"arguments": arguments}}]
        reply = send(server, "chat", messages=[{"role": "assistant", "content": "a", "tool_calls": calls}, *HI])
        assert reply.status == 200 and reply.header(HEADER) is None
        return reply.json()["usage"]["prompt_tokens"]

    for arguments in ('{"</s>": 1}', '{"a": "</s>"}'):
        assert tokens(arguments) > tokens(arguments.replace("</s>", "s"))
    assert tokens("</s>") == tokens("{}")


# ---- what nobody knows


def test_unknown_names_are_told(chat):  # noqa: F811
    fields = {"foo": 1, "bar,\n": None, "b a\r\nx: y": [], "ünï": 0}
    known = "foo, b?a??x:?y, ??n??"
    for place in BODIES:
        assert send(chat, place, **fields).header(HEADER) == known
        reply = send(chat, place, stream=True, stream_options={"zeta": 1}, **fields)
        assert reply.status == 200 and reply.header(HEADER) == known + ", stream_options.zeta"
        assert place not in CHOICES or parse_events(reply.body)
        reply = send(chat, place, temperature=9, **fields)
        check_error(reply, 400, "temperature")
        assert reply.header(HEADER) == known
    parts = [{"type": "text", "text": "a", "one": 1}, {"type": "text", "text": "b", "one": 2, "two": None}]
    reply = send(chat, "chat", messages=[{"role": "user", "content": parts, "three": 3}] * 2)
    assert reply.status == 200 and reply.header(HEADER) == "messages[].three, messages[].content[].one"
    many = send(chat, "completions", **{f"field{i}": i for i in range(500)}).header(HEADER)
    assert len(many) < 512 and many.startswith("field0, field1, ") and many.endswith(", ...")
    assert send(chat, "completions", **{"f" * 500: 1}).header(HEADER) == "f" * 80


def test_unknown_names_are_logged(start):
    """Every one, not one of a request nor 32 of a lifetime; in few lines, and no value."""
    server = start()
    names = [f"name_{i}" for i in range(40)]
    for name in names:
        for _ in range(3):
            assert send(server, "completions", **{name: "canary-7d1f", "other": 1}).status == 200
    wait_for("a line", lambda: "ignored_fields=" in server.log())
    server.signal()
    server.wait()
    lines = re.findall(r'ignored_fields="(.*)"', server.log())
    assert {name for line in lines for name in line.split(", ")} == {*names, "other"} and len(lines) <= 3


@pytest.mark.parametrize("place", PARTS_OF_IT)
def test_unknown_names_of_small_bodies_are_told(chat, place):  # noqa: F811
    """On errors, and from the pool, too."""
    assert send(chat, place, foo=1, bar=None).header(HEADER) == "foo"
    assert send(chat, place, model="x", foo=1).header(HEADER) == "foo"
    assert send(chat, place, foo="a" * 100_000).header(HEADER) == "foo"
    told = [{**HI[0], "three": 3, "content": [{"type": "text", "text": "a", "one": 1}]}]
    for path in ("/tokenize", "/apply-template", "/v1/chat/completions/input_tokens"):
        reply = chat.post(path, {"messages": told, "four": 4})
        assert reply.status == 200 and reply.header(HEADER) == "four, messages[].three, messages[].content[].one"


TOOLS = [{"type": "function", "function": {"name": "f", "description": "</s>", "parameters": {"type": "object"}}}]


def test_tools_of_a_prompt(start, chatml, tmp_path):
    """A template that has them gets them, and nothing in them becomes a control token; of another one the client is told, or the tools
    are in words."""
    path = tmp_path / "t.jinja"
    path.write_text("{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}")
    server = start("--chat-template", path, "--tool-call-parser", "hermes")
    reply = server.post("/apply-template", {"messages": HI, "tools": TOOLS})
    assert json.loads(reply.json()["prompt"].removesuffix(HI[0]["content"])) == TOOLS and reply.header(HEADER) is None
    tokens = [server.post("/tokenize", {"messages": HI, "tools": t}).json()["tokens"] for t in ([], TOOLS)]
    assert len(tokens[1]) > len(tokens[0]) and 2 not in tokens[1]
    generic, chat = start(model=chatml), start("--tools-fallback", "ignore", model=chatml)
    words = generic.post("/apply-template", {"messages": HI, "tools": TOOLS}).json()["prompt"]
    assert '"name":"f"' in words
    tokens = generic.post("/tokenize", {"messages": HI, "tools": TOOLS}).json()["tokens"]
    assert 2 not in tokens and generic.post("/detokenize", {"tokens": tokens}).json()["prompt"].count("<tool_call>") == 1
    for path in ("/apply-template", "/tokenize"):
        plain, told = (chat.post(path, {"messages": HI, "tools": t}) for t in ([], TOOLS))
        assert plain.json() == told.json() and plain.header(HEADER) is None and told.header(HEADER) == "tools"
        check_error(chat.post(path, {"messages": HI, "tools": {"a": 1}}), 400, "tools")


def test_strict_fields(start):
    server = start("--strict-fields")
    for place in ("tokenize", "detokenize"):
        taken(server, place)
        check_error(send(server, place, foo=1), 400, "foo", code="unknown_parameter")
    taken(server, "completions", metadata={"a": "b"}, user="me", n_predict=1, tools=[], foo=None)
    for fields, param in (({"foo": 1, "bar": 2}, "foo"), ({"stream": True, "stream_options": {"zeta": 1}}, "stream_options.zeta")):
        reply = send(server, "completions", **fields)
        check_error(reply, 400, param, code="unknown_parameter")
        assert reply.header(HEADER).startswith(param)


def test_priority_without_the_policy(chat):  # noqa: F811
    for place in BODIES:
        taken(chat, place, priority=0)
        check_error(send(chat, place, priority=-1), 400, "priority", code="unsupported_parameter")
