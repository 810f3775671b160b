"""Schemas that are much work: long lists of words compile, and one client's many hold up neither another client nor the end."""

import json
import threading

import pytest

from process import Server
from wire import check_error, wait_for

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
WORDS = [f"word {i} of many" for i in range(20000)]
ALONE = {"UV_THREADPOOL_SIZE": "1"}  # one thread compiles


@pytest.fixture(scope="module")
def server():
    one = Server("--structured-output-whitespace", "2")
    yield one
    one.stop()


# Requests that restrict the output to WORDS, and the function that turns an output into a word.
MANY = {
    "compact": ({"guided_json": json.dumps({"enum": WORDS}, separators=(",", ":"))}, json.loads),
    "pretty": ({"guided_json": json.dumps({"enum": WORDS}, indent=4)}, json.loads),
    "format": ({"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": {"enum": WORDS}}}}, json.loads),
    "outputs": ({"structured_outputs": {"json": {"enum": WORDS}}}, json.loads),
    "mixed": ({"json_schema": {"enum": [*WORDS, *range(20000), None]}}, lambda text: WORDS[v] if isinstance(v := json.loads(text), int) else v or WORDS[0]),
    "within": ({"guided_json": {"type": "object", "properties": {"a": {"enum": WORDS}}, "required": ["a"], "additionalProperties": False}}, lambda text: json.loads(text)["a"]),
    "choice": ({"guided_choice": WORDS}, str),
    "regex": ({"guided_regex": "|".join(WORDS)}, str),
    "gbnf": ({"grammar": "root ::= " + " | ".join(json.dumps(w) for w in WORDS)}, str),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_many_words(server, name):
    fields, word = MANY[name]
    reply = server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 100, "temperature": 1} | fields)
    assert reply.status == 200, reply.body
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop" and word(choice["text"]) in WORDS, choice


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if tools %}Call.{% endif %}<|im_start|>assistant\n"


def test_many_words_of_an_argument(start, chatml, tmp_path):
    """With a template that does not write the tools out, or the words would be in the prompt."""
    file = tmp_path / "template.jinja"
    file.write_text(TEMPLATE)
    server = start("--tool-call-parser", "llama3_json", "--chat-template", file, "--structured-output-whitespace", "2", model=chatml)
    parameters = {"type": "object", "properties": {"city": {"enum": WORDS}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": parameters}}
    body = {"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "seed": 1, "max_tokens": 400}
    reply = server.post(CHAT, body)
    assert reply.status == 200, reply.body
    assert reply.json()["choices"][0]["finish_reason"] == "tool_calls", reply.body[:2000]
    [call] = reply.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["city"] in WORDS


def test_bounds_are_said(server):
    """A constraint whose source is too large is refused before it is compiled."""
    for fields, says in (
        ({"guided_json": {"enum": ["x" * 1000 + str(i) for i in range(1100)]}}, "1048576 bytes"),
        ({"guided_choice": ["x" * 20000 + str(i) for i in range(300)]}, "4194304 bytes"),
        ({"guided_choice": ["x"] * 100001}, "1 to 100000"),
    ):
        reply = server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 1} | fields)
        check_error(reply, 400, param=next(iter(fields)))
        assert says in reply.json()["error"]["message"], reply.body


def bomb(number):
    """A schema of a new name that takes half a second, and is refused."""
    patterns = [{"pattern": "(a|b){%d}.{40}" % i} for i in range(20, 30)]
    return {"prompt": "Once", "max_tokens": 1, "guided_json": {"title": str(number), "allOf": patterns}}


class Race:
    """Requests whose order is asked for."""

    def __init__(self, server):
        self.server, self.order, self.lock, self.readers = server, [], threading.Lock(), []

    def ask(self, what, path, body, headers=(), source=None):
        conn = self.server.connect(source=source, timeout=300)
        conn.send(self.server.bytes("POST", path, body, headers))
        self.readers.append(threading.Thread(target=self.read, args=(what, conn)))
        self.readers[-1].start()

    def read(self, what, conn):
        with conn:
            reply = conn.read_reply()
        with self.lock:
            self.order.append((what, reply))

    def bombs(self, count, **who):
        """Comes back when one is refused: the others have been read."""
        for i in range(count):
            self.ask("long", COMPLETIONS, bomb(i), **who)
        wait_for("the first is compiled", lambda: self.order)

    def end(self):
        """The replies in the order in which they came: (what, reply)."""
        for r in self.readers:
            r.join()
        return self.order


def as_key(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("who", ["key", "address"])
def test_each_client_has_its_turn(start, who):
    """A client with many long schemas is not served before another one's short schema, nor before its long text."""
    flags = ("--api-key", "key-of-one", "--api-key", "key-of-two") if who == "key" else ()
    server = start(*flags, key="key-of-one" if flags else None, env=ALONE)
    mine, other = ({"headers": as_key("key-of-one")}, {"headers": as_key("key-of-two")}) if flags else ({"source": "127.0.0.1"}, {"source": "127.0.0.2"})
    race = Race(server)
    race.bombs(10, **mine)
    race.ask("short", COMPLETIONS, {"prompt": "Once", "max_tokens": 1, "guided_regex": "[a-z]{3}"}, **other)
    race.ask("text", "/tokenize", {"prompt": "Once upon a time " * 5000}, **other)
    order = race.end()
    assert all(reply.status == (400 if what == "long" else 200) for what, reply in order), order
    assert [what for what, _ in order[-2:]] == ["long", "long"], "it came behind all others"


def test_clients_that_leave_while_they_wait(start):
    """A constraint without a waiting client is not compiled."""
    server = start(env=ALONE)
    conns = [server.connect() for _ in range(12)]
    for i, conn in enumerate(conns):
        conn.send(server.bytes("POST", COMPLETIONS, bomb(i)))
    conns[0].read_reply()
    for conn in conns[1:]:
        conn.reset()
    short = {"prompt": "Once", "max_tokens": 1, "guided_regex": "[a-z]{3}"}
    assert server.post(COMPLETIONS, short).status == 200
    refused = server.metrics().value("quire:grammars_total", result="refused")
    assert refused <= 6, "of twelve that left nearly all were compiled"
    server.wait_idle()


def test_the_end_waits_for_no_schema(start):
    """On SIGTERM what waits to be compiled is refused, what is being compiled is given up, and the server ends as ever."""
    server = start(env=ALONE)
    race = Race(server)
    race.bombs(12)
    server.signal()
    order = race.end()
    stopped = [reply for _, reply in order if reply.status == 503]
    assert len(stopped) >= 6, [reply.status for _, reply in order]
    for reply in stopped:
        check_error(reply, 503, type="server_error", code="shutting_down")
    assert server.wait() == 0
