"""An agent's loop of five turns with two tools, over each dialect's official client, whole and streamed: the embedded model calls, gets
the result, and speaks."""

import json

import anthropic
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
