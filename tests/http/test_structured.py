"""Structured output: a model that knows no JSON, sampled at temperature 1, writes nothing but what the schema, expression or
grammar allows; jsonschema is the judge."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import anthropic
import jsonschema
import ollama
import openai
import pydantic
import pytest

from process import Server
from wire import check_error

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SHORT = {"type": "string", "maxLength": 6}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMAS = {
    "person": PERSON,
    "list": {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 2},
    "enum": {"enum": ["red", "green", 7, None, {"a": [1]}]},
    "union": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "null"}, "maxItems": 3}, SHORT]},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "integer": {"type": "integer", "minimum": -100, "maximum": 1000, "multipleOf": 7},
    "tuple": {"type": "array", "prefixItems": [{"const": "x"}, {"type": "integer", "minimum": 10, "maximum": 99}], "items": False, "minItems": 2},
    "optional": {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"], "additionalProperties": False},
    "nested": {
        "$defs": {"node": {"type": "object", "properties": {"v": {"enum": [0, 1]}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/leaf"}]}},
                           "required": ["v", "next"], "additionalProperties": False},
                  "leaf": {"type": "object", "properties": {"v": {"enum": [2, 3]}}, "required": ["v"], "additionalProperties": False}},
        "$ref": "#/$defs/node",
    },
    "date": {"type": "string", "format": "date"},
}


@pytest.fixture(scope="module")
def server():
    """Blanks are bounded, or a model that knows no JSON would write little else."""
    one = Server("--structured-output-whitespace", "2")
    yield one
    one.stop()


def complete(server, **fields):
    body = {"prompt": "Once upon a time", "max_tokens": 300, "temperature": 1} | fields
    response = server.post(COMPLETIONS, body)
    assert response.status == 200, response.body
    return response.json()["choices"]


def as_format(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}}


def check(choice, schema):
    assert choice["finish_reason"] == "stop", choice
    jsonschema.validate(json.loads(choice["text"]), schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_always_valid(server, name):
    for seed in range(4):
        for choice in complete(server, n=4, seed=seed, **as_format(SCHEMAS[name])):
            check(choice, SCHEMAS[name])


@pytest.mark.parametrize("field", ["structured_outputs", "guided_json", "json_schema", "response_format", "text"])
def test_names_of_the_same(server, field):
    """All names mean the same: the same bits."""
    fields = {
        "structured_outputs": {"structured_outputs": {"json": PERSON}},
        "guided_json": {"guided_json": PERSON},
        "json_schema": {"json_schema": PERSON},
        "response_format": {"response_format": {"type": "json_object", "schema": PERSON}},
        "text": {"guided_json": json.dumps(PERSON)},
    }[field]
    [choice] = complete(server, seed=5, **fields)
    [expected] = complete(server, seed=5, **as_format(PERSON))
    check(choice, PERSON)
    assert choice["text"] == expected["text"]
    if field != "response_format":
        answer = server.post("/completion", {"prompt": "Once upon a time", "temperature": 1, "seed": 5} | fields).json()
        jsonschema.validate(json.loads(answer["content"]), PERSON)


def test_json_object(server):
    for seed in range(8):
        [choice] = complete(server, seed=seed, max_tokens=200, response_format={"type": "json_object"})
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["text"]), dict)
        else:  # cut off in the middle: it says so
            assert choice["finish_reason"] == "length" and choice["text"].startswith("{")


def test_regex_choice_and_grammars(server):
    for seed in range(6):
        [choice] = complete(server, seed=seed, guided_regex="[a-c]{3}(-\\d{2}){1,3}")
        assert re.fullmatch("[a-c]{3}(-[0-9]{2}){1,3}", choice["text"])
        [choice] = complete(server, seed=seed, structured_outputs={"choice": ["yes", "no", "may be"]})
        assert choice["text"] in ("yes", "no", "may be")
        [choice] = complete(server, seed=seed, grammar='root ::= "<" [a-z]{1,4} ">" root? "!"')
        text = choice["text"]
        assert re.fullmatch("(<[a-z]{1,4}>)+!+", text) and text.count("<") == text.count("!")
        [choice] = complete(server, seed=seed, guided_grammar='start: WORD ("," WORD)~0..2\nWORD: /[a-z]{1,3}/')
        assert re.fullmatch("[a-z]{1,3}(,[a-z]{1,3}){0,2}", choice["text"])
    for name, wish in (("regex", "[ab]{3}"), ("choice", ["aab"]), ("grammar", 'start: "b"~3'), ("json", {"const": 7})):  # said twice, it is one wish
        [choice] = complete(server, seed=1, structured_outputs={name: wish}, **{f"guided_{name}": wish})
        assert re.fullmatch("[ab]{3}|7", choice["text"])


def test_structural_tags(server):
    tag = {"structures": [{"begin": "<a>", "schema": {"enum": [1, 2]}, "end": "</a>"}], "triggers": ["<a"]}
    [choice] = complete(server, seed=1, structured_outputs={"structural_tag": json.dumps(tag)}, max_tokens=60)
    assert "<a" not in re.sub("<a>[12]</a>", "", choice["text"])
    new = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "It is "}, {"type": "or", "elements": [
            {"type": "json_schema", "json_schema": {"enum": [True, None]}},
            {"type": "tag", "begin": "[", "content": {"type": "regex", "pattern": "x+"}, "end": "]"}]}]}}
    for seed in range(4):
        [choice] = complete(server, seed=seed, response_format=new, max_tokens=60)
        assert choice["finish_reason"] == "length" or re.fullmatch(r"It is (true|null|\[x+\])", choice["text"])


@pytest.mark.parametrize("fields", [
    {"logprobs": 3}, {"min_tokens": 200}, {"ignore_eos": True}, {"repetition_penalty": 1.5, "presence_penalty": 1},
    {"top_k": 2, "top_p": 0.5, "min_p": 0.1}, {"logit_bias": {"5": -50, "9": 20}}, {"stop": ["zzzzzz"]}, {"prompt_logprobs": 2},
    {"mirostat": 2}, {"xtc_probability": 0.5}, {"dry_multiplier": 1}, {"typical_p": 0.5}, {"return_token_ids": True},
    {"temperature": 0}, {"n": 3}, {"prompt": ["One", "Two"]}, {"bad_words": ["a"]}, {"stop_token_ids": [300]},
], ids=lambda f: next(iter(f)))
def test_with_other_fields(server, fields):
    for choice in complete(server, **({"seed": 2} | as_format(PERSON) | fields)):
        check(choice, PERSON)


def test_min_tokens_and_the_end(server):
    """It keeps an output that may go on from its end; one that cannot ends, and what none can reach is refused."""
    one = {"prompt": "Once", "max_tokens": 30, "min_tokens": 5}
    choice = server.complete(**one, structured_outputs={"regex": "a*"}, temperature=0, logit_bias={"2": 50})["choices"][0]
    assert len(choice["text"]) >= 5, choice
    for listed in ({"guided_choice": ["a"]}, {"structured_outputs": {"choice": ["a", "abcd"]}}):
        error = check_error(server.post("/v1/completions", one | listed), 400, param="min_tokens")
        assert "longest" in error["message"]
    answer = server.complete(**one, guided_choice=["abcde"])
    assert answer["choices"][0]["text"] == "abcde" and answer["choices"][0]["finish_reason"] == "stop"


def test_stop_string_ends_it(server):
    [choice] = complete(server, seed=2, stop=[":"], **as_format(PERSON))
    assert choice["finish_reason"] == "stop" and re.fullmatch(r'\s*\{\s*"name"\s*', choice["text"])


def test_stream_is_the_whole(server):
    expected = [c["text"] for c in complete(server, n=2, seed=3, **as_format(SCHEMAS["list"]))]
    with openai.OpenAI(base_url=server.url + "/v1", api_key=server.key or "EMPTY", max_retries=0) as c:
        texts = ["", ""]
        for chunk in c.completions.create(model=server.get("/v1/models").json()["data"][0]["id"], prompt="Once upon a time", max_tokens=300, temperature=1, n=2,
                                          seed=3, stream=True, extra_body=as_format(SCHEMAS["list"])):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == expected


def test_alone_and_together(server):
    """A request's bytes do not depend on what runs beside it, constrained or not."""
    def one(i):
        name = list(SCHEMAS)[i % len(SCHEMAS)]
        fields = as_format(SCHEMAS[name]) if i % 3 else {"max_tokens": 40}
        return complete(server, seed=i, **fields)[0]["text"]

    alone = [one(i) for i in range(16)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(16))) == alone


@pytest.mark.parametrize("flags", [
    ["--num-kv-blocks", "40", "--max-num-seqs", "8"],  # preempts
    ["--max-num-batched-tokens", "8", "--max-num-seqs", "8"],  # in chunks
    ["--no-enable-prefix-caching", "--threads", "1"],
    ["--tensor-parallel-size", "2"], ["--pipeline-parallel-size", "2"], ["--kv-cache-dtype", "int8"],
], ids=lambda f: f[0])
def test_however_it_is_served(server, start, flags):
    def one(at, i):
        return complete(at, seed=i, **as_format(list(SCHEMAS.values())[i]))[0]["text"]

    other = start("--structured-output-whitespace", "2", *flags)
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda i: one(other, i), range(8)))
    for i, text in enumerate(texts):
        jsonschema.validate(json.loads(text), list(SCHEMAS.values())[i])
        if "int8" not in flags:
            assert text == one(server, i)


def test_blanks_and_order(server, start):
    compact = start("--structured-output-whitespace", "0")
    for seed in range(4):
        [choice] = complete(compact, seed=seed, **as_format(SCHEMAS["list"]))
        assert not re.search(r"[\[{:,]\s|\s[\]}:,]", re.sub('"([^"\\\\]|\\\\.)*"', "", choice["text"]))
    orders = set()
    for seed in range(12):
        two = SCHEMAS["optional"] | {"required": ["a", "c"]}
        [choice] = complete(server, seed=seed, structured_outputs={"json": two, "property_order": "any", "disable_any_whitespace": True})
        check(choice, two)
        orders.add(tuple(k for k in json.loads(choice["text"]) if k != "b"))
        [choice] = complete(server, seed=seed, **as_format(PERSON))
        assert list(json.loads(choice["text"])) == ["name", "age"]
    assert len(orders) == 2


@pytest.mark.parametrize("fields, word", [
    (as_format({"type": "stsring"}), "/type: expected the name of a type"),
    (as_format({"type": "object", "properties": {"a": {"contentSchema": {}, "$ref": "http://example.com/a"}}}), "/properties/a/$ref"),
    (as_format({"type": "string", "pattern": "[.*"}), "pattern"),
    (as_format({"type": "string", "pattern": "(a)\\1"}), "pattern"),
    ({"guided_json": "{"}, ""),
    ({"guided_json": 3}, "guided_json"),
    ({"guided_regex": "[.*"}, ""),
    ({"guided_regex": "(?<=x)*"}, ""),
    ({"guided_choice": [1]}, "strings"),
    ({"grammar": "rot ::= \"a\""}, "root"),
    ({"grammar": "root ::= root \"a\" | other\nother ::= root"}, "recursion"),
    ({"guided_grammar": "start: missing"}, "line 1"),
    ({"structured_outputs": {"json": PERSON, "regex": "a"}}, "both"),
    ({"structured_outputs": {"regex": "a"}, "guided_regex": "b"}, "both"),
    ({"structured_outputs": {"jsn": PERSON}}, "jsn"),
    ({"structured_outputs": {"whitespace_pattern": " "}}, "whitespace_pattern"),
    ({"response_format": {"type": "json_schema"}}, "json_schema"),
    ({"response_format": {"type": "xml"}}, "xml"),
    ({"response_format": "json"}, "object"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "nothing"}}}, "nothing"),
    ({"grammar": "root ::= \"a\"", "grammar_lazy": True}, "grammar_lazy"),
    ({"guided_json": {"type": "string", "pattern": "((a|bc){1000}d){1000}"}}, "pattern"),
    ({"guided_regex": "(" * 100 + "a" + ")" * 100}, "deep"),
    ({"guided_json": "[" * 5000}, ""),
    ({"grammar": "root ::= " + "(" * 60000}, ""),
    ({"guided_json": {"properties": {f"p{i}": {"format": "hostname", "maxLength": 150 + i} for i in range(200)}}}, "guided_json"),
    ({"guided_json": {"properties": {f"p{i}": {"pattern": f"a[ab]{{10}}c{i}"} for i in range(300)}}}, "guided_json"),
    ({"guided_json": {"patternProperties": {"^a?b$": {}}, "additionalProperties": False, "minProperties": 3, "type": "object"}}, "/minProperties"),
    ({"guided_json": {"propertyNames": {"enum": ["a"]}, "minProperties": 2, "type": "object"}}, "/minProperties"),
    ({"guided_json": {"properties": {"a": {}}, "minProperties": 3, "type": "object"}}, "/minProperties"),
], ids=lambda v: (json.dumps(v) if isinstance(v, dict) else v)[:40])
def test_refused(server, fields, word):
    """Never ignored, never fatal: 400 that names the field or the keyword."""
    response = server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4} | fields)
    check_error(response, 400)
    assert word in response.json()["error"]["message"], response.body


def test_a_dead_end_ends_its_request_alone(server):
    """After two letters nothing may come that both the expression and the list allow; who runs beside it notices nothing."""
    letters = {server.post("/tokenize", {"prompt": text}).json()["tokens"][-1] for text in ("a", "aa", "aaa")}
    dead = {"prompt": "Once", "guided_regex": "aab", "allowed_token_ids": sorted(letters), "max_tokens": 20}
    beside = {"guided_regex": "[a-z]{40}", "max_tokens": 60, "temperature": 0}
    alone = complete(server, **beside)[0]["text"]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(complete, server, **beside) for _ in range(3)]
        check_error(server.post(COMPLETIONS, dead), 400, code="no_token_allowed")
        assert [f.result()[0]["text"] for f in others] == [alone] * 3
    response = server.post(COMPLETIONS, dead | {"stream": True})
    assert response.status == 200 and b"no_token_allowed" in response.body, response.body  # after the letters


NESTED = 'root ::= (b "x"?){1,60}\nb ::= (c "y"?){1,60}\nc ::= ([^"] "z"?){1,60}'  # ever more ways to read a text


def test_a_mask_beyond_its_bound_ends_its_request_alone(server):
    """Whatever was sampled, the bound is the grammar's fault and says so; equal requests end alike; who runs beside notices nothing."""
    beside = {"guided_regex": "[a-z]{40}", "max_tokens": 60, "temperature": 0}
    alone = complete(server, **beside)[0]["text"]
    bombs = [{"prompt": "The fox", "guided_grammar": NESTED, "max_tokens": 64, "temperature": 1, "seed": seed} for seed in range(6)]
    with ThreadPoolExecutor(12) as pool:
        ends = [pool.submit(server.post, COMPLETIONS, bomb) for bomb in bombs * 2]
        others = [pool.submit(complete, server, **beside) for _ in range(3)]
        ends = [end.result() for end in ends]
        assert [f.result()[0]["text"] for f in others] == [alone] * 3
    assert 400 in {end.status for end in ends}
    for end, again in zip(ends, ends[6:]):
        assert end.status in (200, 400) and end.status == again.status
        if end.status == 200:
            assert end.json()["choices"][0]["text"] == again.json()["choices"][0]["text"]
        else:
            check_error(end, 400, code="no_token_allowed")
            assert "grammar" in end.json()["error"]["message"]
    over = next(bomb for bomb, end in zip(bombs, ends) if end.status == 400)
    body = server.post(COMPLETIONS, over | {"stream": True}).body
    assert b"no_token_allowed" in body and body.endswith(b"data: [DONE]\n\n"), body


@pytest.mark.parametrize("expression", ["((.{1,60}){1,60}){1,60}", "(([a-z ]{1,90}){1,90}){1,90}", "((.{0,99}){0,99}){0,99}"])
def test_nested_counts(server, expression):
    """Counts of counts are one count."""
    for seed in range(3):
        text = complete(server, guided_regex=expression, max_tokens=64, temperature=1, seed=seed)[0]["text"]
        assert re.fullmatch("[a-z ]+" if "a-z" in expression else "[^\r\n]*", text), text


def test_too_many_ways(server):
    """A grammar that is too large is refused at its field."""
    wide = "start: " + " | ".join(f"r{i}" for i in range(3000)) + "".join(f'\nr{i}: "a" s{i}\ns{i}: "b{i}"' for i in range(3000))
    response = server.post(COMPLETIONS, {"prompt": "a", "max_tokens": 4, "guided_grammar": wide})
    check_error(response, 400, param="guided_grammar")
    assert "begin in more than 4096 ways" in response.json()["error"]["message"], response.body


def test_what_no_token_spells(server):
    """U+10FFFF has byte tokens alone."""
    [choice] = complete(server, guided_regex="\\u{10ffff}{2}", max_tokens=20)
    assert choice["text"] == "\U0010ffff" * 2


def test_parse_with_pydantic(start):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=8)
        age: int = pydantic.Field(ge=0, le=150)

    with openai.OpenAI(base_url=start(model="").url + "/v1", api_key="EMPTY", max_retries=0) as c:
        answer = c.chat.completions.parse(model="quire-tiny", messages=[{"role": "user", "content": "Who are you?"}],
                                          response_format=Person, max_tokens=100, temperature=0)
        assert 0 <= answer.choices[0].message.parsed.age <= 150
        tool = openai.pydantic_function_tool(Person, name="save")
        answer = c.chat.completions.parse(model="quire-tiny", messages=[{"role": "user", "content": "Save Ann, who is 30."}],
                                          tools=[tool], tool_choice="required", max_tokens=100, temperature=0)
        assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Person)


def test_other_dialects(start):
    """Responses, Messages and Ollama's API say the same in other words; their official clients parse what comes."""
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=8)
        age: int = pydantic.Field(ge=0, le=150)

    tiny = start("--structured-output-whitespace", "2", model="")
    ask, schema = [{"role": "user", "content": "Who are you?"}], Person.model_json_schema()
    weather = {"name": "get_weather", "description": "Get the weather of a city"}
    city = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}
    with openai.OpenAI(base_url=tiny.url + "/v1", api_key="EMPTY", max_retries=0) as c:
        answer = c.responses.parse(model="quire-tiny", input=ask, text_format=Person, max_output_tokens=100, temperature=0)
        assert answer.output_parsed.age <= 150 and answer.text.format.type == "json_schema"
        for choice in ("required", {"type": "function", "name": "get_weather"}):
            tools = [{"type": "function", "strict": True, "parameters": city, **weather}]
            answer = c.responses.create(model="quire-tiny", input="Hello", tools=tools, tool_choice=choice, max_output_tokens=100, temperature=0)
            [call] = answer.output
            assert call.type == "function_call" and json.loads(call.arguments)["city"] in ("Oslo", "Rome") and answer.tools[0].strict
    with anthropic.Anthropic(base_url=tiny.url, api_key="EMPTY", max_retries=0) as c:
        config = {"format": {"type": "json_schema", "schema": schema}}
        answer = c.messages.create(model="quire-tiny", max_tokens=100, messages=ask, extra_body={"output_config": config, "temperature": 0})
        Person.model_validate_json(answer.content[0].text)
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            answer = c.messages.create(model="quire-tiny", max_tokens=100, extra_body={"temperature": 0}, messages=[{"role": "user", "content": "Hello"}],
                                       tools=[{"input_schema": city, **weather}], tool_choice=choice)
            assert answer.stop_reason == "tool_use" and answer.content[-1].input["city"] in ("Oslo", "Rome")
    answer = ollama.Client(host=tiny.url).chat(model="quire-tiny", messages=ask, format=schema, options={"num_predict": 100, "temperature": 0})
    Person.model_validate_json(answer.message.content)


PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
# Of templates: whether the model reasons before it answers, unless the request says so. As Qwen 2.5; Qwen 3; Granite 3.3; DeepSeek V3.1.
THINKING = {
    "none": (PLAIN, False, None),
    "on": (PLAIN + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}", True, True),
    "off": (PLAIN + "{% if thinking %}Think in <think></think>.{% endif %}", False, True),
    "closed": (PLAIN + "{% if thinking %}<think>{% else %}</think>{% endif %}", False, None),
}


@pytest.mark.parametrize("name", THINKING)
def test_json_where_json_was_asked(start, tmp_path, name):
    """A model that would like to reason first does where its template or the request has that, and nowhere else."""
    template, thinks, told = THINKING[name]
    path = tmp_path / "t.jinja"
    path.write_text(template)
    server = start("--chat-template", path, "--tool-call-parser", "hermes")
    mark = server.post("/tokenize", {"prompt": "<think>", "add_special_tokens": False}).json()["tokens"]
    body = {"messages": [{"role": "user", "content": "Say so."}], "max_tokens": 30, "temperature": 0,
            "logit_bias": {str(t): 100 for t in mark}, "structured_outputs": {"choice": ["yes", "no"]}}  # fmt: skip

    def reasons(**fields):
        choice = server.post(CHAT, body | fields).json()["choices"][0]
        answered = choice["message"]["content"] in ("yes", "no")
        assert answered or choice["finish_reason"] == "length", choice  # it likes its mark too much to stop
        return not answered

    assert reasons() is thinks
    if told:
        assert reasons(chat_template_kwargs={"enable_thinking" if name == "on" else "thinking": True})
        assert not reasons(chat_template_kwargs={"enable_thinking" if name == "on" else "thinking": False})
