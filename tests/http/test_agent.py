"""An agent's loop of five turns with two tools, over each dialect's official client, whole and streamed: the embedded model calls, gets
the result, and speaks. And scripted agents, whose prompts the prefix cache has but for what is new."""

import json

import anthropic
import goldens
import ollama
import openai
import pytest

MODEL = "quire-tiny"
# question, tool, arguments, result, what the model then says
TURNS = [
    ("What is the weather in Oslo?", "get_weather", {"city": "Oslo"}, {"weather": "sunny", "temperature": 3}, "sunny in Oslo"),
    ("How much is 245 + 317?", "calculator", {"expression": "245 + 317"}, {"result": 562}, "562"),
    ("What is the weather in Rome?", "get_weather", {"city": "Rome"}, {"weather": "rainy", "temperature": 18}, "rainy in Rome"),
    ("What is 512 times 204?", "calculator", {"expression": "512 * 204"}, {"result": 104448}, "104448"),
    ("What is the weather in Paris?", "get_weather", {"city": "Paris"}, {"weather": "cloudy", "temperature": 11}, "cloudy in Paris"),
]
TOOLS = [
    {"name": name, "description": description, "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}
    for name, description, key in (("get_weather", "Get the weather of a city", "city"), ("calculator", "Calculate with numbers", "expression"))
]
FUNCTIONS = [{"type": "function", "function": tool} for tool in TOOLS]


class Chat:
    """ask() adds what the model said to the conversation, and gives its text and its calls, as (id, name, arguments)."""

    def __init__(self, server, streamed):
        self.client, self.streamed, self.items = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0), streamed, []

    def question(self, text):
        self.items.append({"role": "user", "content": text})

    def ask(self):
        fields = {"model": MODEL, "messages": self.items, "tools": FUNCTIONS, "temperature": 0}
        if self.streamed:
            with self.client.chat.completions.stream(**fields) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = self.client.chat.completions.create(**fields).choices[0].message
        self.items.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        return message.content, [(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]

    def results(self, results):
        self.items += [{"role": "tool", "tool_call_id": id, "content": json.dumps(result)} for id, result in results]


class Responses(Chat):
    def ask(self):
        fields = {"model": MODEL, "input": self.items, "tools": [{"type": "function", **tool} for tool in TOOLS], "temperature": 0}
        if self.streamed:
            with self.client.responses.stream(**fields) as stream:
                response = stream.get_final_response()
        else:
            response = self.client.responses.create(**fields)
        self.items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
        return response.output_text, [(c.call_id, c.name, json.loads(c.arguments)) for c in response.output if c.type == "function_call"]

    def results(self, results):
        self.items += [{"type": "function_call_output", "call_id": id, "output": json.dumps(result)} for id, result in results]


class Messages(Chat):
    def __init__(self, server, streamed):
        self.client, self.streamed, self.items = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0), streamed, []

    def ask(self):
        tools = [{"name": t["name"], "description": t["description"], "input_schema": t["parameters"]} for t in TOOLS]
        fields = {"model": MODEL, "max_tokens": 60, "messages": self.items, "tools": tools, "extra_body": {"temperature": 0}}
        if self.streamed:
            with self.client.messages.stream(**fields) as stream:
                message = stream.get_final_message()
        else:
            message = self.client.messages.create(**fields)
        self.items.append({"role": "assistant", "content": message.content})
        calls = [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]
        assert message.stop_reason == ("tool_use" if calls else "end_turn")
        return "".join(b.text for b in message.content if b.type == "text"), calls

    def results(self, results):
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": json.dumps(result)}]} for id, result in results]
        self.items.append({"role": "user", "content": blocks})


class Ollama(Chat):
    def __init__(self, server, streamed):
        self.client, self.streamed, self.items = ollama.Client(host=server.url), streamed, []

    def ask(self):
        reply = self.client.chat(MODEL, self.items, tools=FUNCTIONS, options={"temperature": 0}, stream=self.streamed)
        parts = [part.message for part in reply] if self.streamed else [reply.message]
        text, calls = "".join(p.content or "" for p in parts), [c for p in parts for c in p.tool_calls or []]
        self.items.append(ollama.Message(role="assistant", content=text, tool_calls=calls or None))
        return text, [(c.function.name, c.function.name, dict(c.function.arguments)) for c in calls]

    def results(self, results):
        self.items += [{"role": "tool", "tool_name": name, "content": json.dumps(result)} for name, result in results]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", [Chat, Responses, Messages, Ollama])
def test_five_turns(tiny, dialect, streamed):
    agent = dialect(tiny, streamed)
    for question, name, arguments, result, word in TURNS:
        agent.question(question)
        text, [(id, *called)] = agent.ask()
        assert not text and called == [name, arguments]
        agent.results([(id, result)])
        text, calls = agent.ask()
        assert not calls and word in text
    agent.client.close()


# ---- what the prefix cache saves: scripted turns, so that the history is the client's alone

NAMES = ["read", "write", "edit", "grep", "glob", "bash", "fetch", "todo"]
EIGHT = [
    {"name": name, "description": f"{name}: does to a file or in the shell of the work tree what its name says, and tells the result as text.",
     "parameters": {"type": "object", "required": ["path"], "properties": {
         "path": {"type": "string", "description": "an absolute path"}, "text": {"type": "string", "description": "what is looked for or written"}}}}
    for name in NAMES
]  # fmt: skip
SYSTEM = "You are an agent on the command line. " + "Read before you change. Keep changes small. Run the tests. " * 20
BLOCK = 16


def step(i):
    """Of turn i: the user's words, or None; what the assistant says and thinks; the call's id, name and arguments; its result."""
    asks = f"Where is part {i} of the scheduler?" if i % 4 == 0 else None
    return asks, f"I look for part {i}.", f"grep finds part {i}.", f"call{i:05d}", NAMES[i % 8], {"path": "/src", "text": f"part {i}"}, f"/src/part_{i}.c"


def chat_body(turns):
    items = [{"role": "system", "content": SYSTEM}]
    for i in range(turns + 1):
        asks, says, thinks, id, name, arguments, result = step(i)
        items += [{"role": "user", "content": asks}] if asks else []
        if i < turns:
            call = {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            items += [{"role": "assistant", "content": says, "reasoning_content": thinks, "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": id, "content": result}]  # fmt: skip
    return {"messages": items, "tools": [{"type": "function", "function": tool} for tool in EIGHT], "max_tokens": 1}


def responses_body(turns):
    items = []
    for i in range(turns + 1):
        asks, says, thinks, id, name, arguments, result = step(i)
        items += [{"role": "user", "content": [{"type": "input_text", "text": asks}]}] if asks else []
        if i < turns:
            items += [{"type": "reasoning", "id": f"rs_{i}", "summary": [], "content": [{"type": "reasoning_text", "text": thinks}]},
                      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": says, "annotations": []}]},
                      {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(arguments)},
                      {"type": "function_call_output", "call_id": id, "output": result}]  # fmt: skip
    return {"instructions": SYSTEM, "input": items, "tools": [{"type": "function", **tool} for tool in EIGHT], "max_output_tokens": 1}


def messages_body(turns):
    """As Claude Code's: a billing line that changes, thinking with a signature, cache_control on the last block."""
    items = []
    for i in range(turns + 1):
        asks, says, thinks, id, name, arguments, result = step(i)
        blocks = [{"type": "text", "text": "<system-reminder>\nNothing is to do.\n</system-reminder>"}, {"type": "text", "text": asks}] if asks else []
        if blocks and items:
            items[-1]["content"] += blocks
        elif blocks:
            items.append({"role": "user", "content": blocks})
        if i < turns:
            items += [
                {"role": "assistant", "content": [{"type": "thinking", "thinking": thinks, "signature": "c2ln"}, {"type": "text", "text": says},
                                                  {"type": "tool_use", "id": id, "name": name, "input": arguments}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]},
            ]  # fmt: skip
    items[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    billing = f"x-anthropic-billing-header: cc_version=2.1.177.{turns:03x}; cc_entrypoint=cli; cch={turns * 7919:05x};"
    system = [{"type": "text", "text": billing}, {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in EIGHT]
    return {"system": system, "messages": items, "tools": tools, "max_tokens": 1, "thinking": {"type": "enabled", "budget_tokens": 1024}}


def ollama_body(turns):
    items = [{"role": "system", "content": SYSTEM}]
    for i in range(turns + 1):
        asks, says, thinks, _, name, arguments, result = step(i)
        items += [{"role": "user", "content": asks}] if asks else []
        if i < turns:
            items += [{"role": "assistant", "content": says, "thinking": thinks, "tool_calls": [{"function": {"name": name, "arguments": arguments}}]},
                      {"role": "tool", "tool_name": name, "content": result}]  # fmt: skip
    return {"messages": items, "tools": [{"type": "function", "function": tool} for tool in EIGHT], "stream": False, "options": {"num_predict": 1}}


SCRIPTED = {"chat": ("/v1/chat/completions", chat_body), "responses": ("/v1/responses", responses_body), "messages": ("/v1/messages", messages_body),
            "ollama": ("/api/chat", ollama_body)}  # fmt: skip
# Its words are those of ChatML's families; history is as it was when it was new
REASONS = """{%- if tools %}<|im_start|>system
{{ messages[0].content }}
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>
{% endif %}{%- for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def asked(server, path, body):
    """Tokens of the prompt, and how many of them the cache had."""
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    before = [server.metrics().value(name) for name in names]
    reply = server.post(path, body)
    assert reply.status == 200, reply
    return [server.metrics().value(name) - b for name, b in zip(names, before)]


@pytest.fixture(params=["plain", "reasons"])
def long_talks(request, start, tiny, long_context, tmp_path):
    template = tiny.get("/props").json()["chat_template"] if request.param == "plain" else REASONS
    (tmp_path / "t.jinja").write_text(template)
    return start("--chat-template", tmp_path / "t.jinja", model=long_context)


@pytest.mark.parametrize("dialect", SCRIPTED)
def test_twenty_turns_compute_what_is_new(long_talks, dialect):
    """Each prompt begins with the one before, but for what announced the answer; the last turn has 95 % of it in the cache."""
    path, body = SCRIPTED[dialect]
    before = 0
    for turn in range(20):
        num, hits = asked(long_talks, path, body(turn))
        assert hits >= before - BLOCK - 12, turn  # a block that was not full, and <|im_start|>assistant
        before = num
    assert num > 3000 and hits >= 0.95 * num


def test_claude_code(long_talks):
    """Three turns in the shape of its traffic, of which the prefix repeats: the second and third have 95 % of the prompt in the cache."""
    shares = [asked(long_talks, "/v1/messages?beta=true", messages_body(turn)) for turn in range(3)]
    assert shares[0][1] == 0 and all(hits >= 0.95 * num for num, hits in shares[1:]), shares


@pytest.mark.parametrize("dialect", [Chat, Responses, Messages, Ollama])
def test_its_own_words_are_in_the_cache(start, dialect):
    """Calls and answers that the model wrote are rendered into the next prompt as it wrote them, so that their blocks hit."""
    server = start(model="")
    agent, before = dialect(server, False), 0
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:generation_tokens_total")
    for question, *_, result, _ in TURNS:
        agent.question(question)
        for last in (False, True):
            counts = [server.metrics().value(name) for name in names]
            _, calls = agent.ask()
            num, hits, output = (server.metrics().value(name) - c for name, c in zip(names, counts))
            assert hits >= before - BLOCK - 4, (question, last)
            before = num + output
            if calls:
                agent.results([(calls[0][0], result)])
    agent.client.close()


# Templates that end each prompt with words of their own, so that it does not begin with the one before
ENDINGS = {"CohereForAI-c4ai-command-r-plus-tool_use"}


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((goldens.data_root() / "templates/llamacpp").glob("*.jinja")), ids=lambda path: path.stem)
def test_real_templates(start, long_context, path):
    """The twentieth turn within one question begins with 95 % of the turn before."""
    server = start("--chat-template", path, model=long_context)

    def prompt(turns):
        body = chat_body(turns)
        body["messages"] = [m for i, m in enumerate(body["messages"]) if m["role"] != "user" or i == 1]
        return server.post("/tokenize", {"messages": body["messages"], "tools": body["tools"]})

    if prompt(1).status != 200:
        assert prompt(1).json()["error"]["code"] in ("unsupported_parameter", "template_error")
        return
    old, new = (prompt(turns).json()["tokens"] for turns in (18, 19))
    same = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), len(old))
    assert same >= (0.9 if path.stem in ENDINGS else 0.95) * len(new)
