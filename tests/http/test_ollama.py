"""Ollama's API, with its official client and by hand."""

import asyncio
import json
import math

import ollama
import pytest

from process import SLOW
from test_embeddings import QWEN
from test_fields import TABLED
from test_tools import ASK, THINKS, TOOLS
from wire import strict_json

HI = [{"role": "user", "content": "Hi!"}]
GREEDY = {"temperature": 0, "num_predict": 60}
MODEL = "quire-tiny"


@pytest.fixture
def client(tiny):
    with ollama.Client(host=tiny.url) as c:
        yield c


def check_error(reply, status, word=""):
    assert reply.status == status, reply
    error = reply.json()
    assert list(error) == ["error"] and word in error["error"], error
    return error["error"]


def lines(reply):
    """The objects of a stream, each of which is one HTTP chunk."""
    assert reply.status == 200 and reply.header("content-type") == "application/x-ndjson"
    assert all(chunk.endswith(b"\n") and chunk.count(b"\n") == 1 for chunk in reply.chunks)
    return [strict_json(chunk) for chunk in reply.chunks]


# ---- chat


def test_chat(client, tiny):
    """A body, a stream and a chat completion have the same words and counts."""
    whole = client.chat(MODEL, HI, options=GREEDY)
    assert whole.message.role == "assistant" and whole.done and whole.done_reason == "stop" and whole.model == MODEL
    assert whole.total_duration >= whole.prompt_eval_duration > 0 and whole.eval_duration > 0 and whole.load_duration == 0
    parts = list(client.chat(MODEL, HI, options=GREEDY, stream=True))
    assert "".join(p.message.content for p in parts) == whole.message.content and len(parts) > 3
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    assert (parts[-1].eval_count, parts[-1].prompt_eval_count) == (whole.eval_count, whole.prompt_eval_count)
    other = tiny.post("/v1/chat/completions", {"messages": HI, "temperature": 0, "max_tokens": 60}).json()
    assert other["choices"][0]["message"]["content"] == whole.message.content
    assert other["usage"]["prompt_tokens"] == whole.prompt_eval_count and other["usage"]["completion_tokens"] == whole.eval_count
    found = lines(tiny.post("/api/chat", {"messages": HI, "options": GREEDY}))  # a stream unless told otherwise
    assert [f["message"]["content"] for f in found] == [p.message.content for p in parts] and "message" in found[-1]


def test_async(tiny):
    async def both():
        async with ollama.AsyncClient(host=tiny.url) as c:
            one, two = await asyncio.gather(c.chat(MODEL, HI, options=GREEDY), c.generate(MODEL, "Hi!", options=GREEDY))
            text = "".join([part.message.content async for part in await c.chat(MODEL, HI, options=GREEDY, stream=True)])
            assert one.message.content == two.response == text

    asyncio.run(both())


def test_options(client):
    text = client.chat(MODEL, HI, options=GREEDY).message.content
    short = client.chat(MODEL, HI, options={**GREEDY, "num_predict": 2})
    assert short.done_reason == "length" and short.eval_count == 2 and text.startswith(short.message.content)
    stop = text.split()[1]
    stopped = client.chat(MODEL, HI, options={**GREEDY, "stop": ["~~", stop]})
    assert stopped.done_reason == "stop" and stopped.message.content == text[: text.index(stop)]
    seeded = {client.chat(MODEL, HI, options={"temperature": 2, "seed": 5, "num_predict": 30}).message.content for _ in range(3)}
    assert len(seeded) == 1
    hot = {"temperature": 2, "num_predict": 30, "seed": 5}
    assert client.chat(MODEL, HI, options={**hot, "top_k": 1}).message.content == client.chat(MODEL, HI, options={**GREEDY, "num_predict": 30}).message.content
    assert client.chat(MODEL, HI, options={**GREEDY, "num_predict": -1, "num_ctx": 256}).message.content == text
    assert client.chat(MODEL, HI, options={**GREEDY, "repeat_penalty": 900.0}).message.content != text


def test_logprobs(client):
    whole = client.chat(MODEL, HI, options=GREEDY, logprobs=True, top_logprobs=2)
    parts = [lp for p in client.chat(MODEL, HI, options=GREEDY, logprobs=True, top_logprobs=2, stream=True) for lp in p.logprobs or []]
    assert parts == whole.logprobs and "".join(lp.token for lp in parts) == whole.message.content
    assert all(len(lp.top_logprobs) == 2 and lp.top_logprobs[0].logprob == lp.logprob for lp in parts)


# ---- tools


def get_weather(city: str) -> str:
    """Get the weather of a city

    Args:
      city: the city
    """
    return json.dumps({"weather": "sunny", "temperature": 3, "in": city})


def test_call(client):
    for given in (TOOLS, [get_weather]):
        [call] = client.chat(MODEL, ASK, tools=given, options=GREEDY).message.tool_calls
        assert call.function.name == "get_weather" and call.function.arguments == {"city": "Oslo"}
    parts = list(client.chat(MODEL, ASK, tools=TOOLS, options=GREEDY, stream=True))
    [streamed] = [c for p in parts for c in p.message.tool_calls or []]
    assert streamed == call and "".join(p.message.content for p in parts) == "" and parts[-1].done_reason == "stop"


def test_calls_have_numbers(start, tmp_path):
    """A template gets ids of calls that belong to their results, the name of the tool, and what was thought."""
    path = tmp_path / "t.jinja"
    path.write_text("{{ raise_exception((messages | tojson)) }}{{ m.tool_calls }}{{ m.tool_call_id }}{{ m.reasoning_content }}")
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    asked = [{"role": "assistant", "content": "", "thinking": "why", "tool_calls": [call, call]}, {"role": "tool", "tool_name": "f", "content": "1"},
             {"role": "tool", "content": "2"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "3"}]  # fmt: skip
    error = check_error(start("--chat-template", path).post("/api/chat", {"messages": asked}), 400, "messages: ")
    shown = [error.index(word) for word in ('"why"', '"000000000"', '"000000001"')]
    assert shown == sorted(shown)


# ---- generate


def test_generate(client, tiny):
    whole = client.generate(MODEL, "Hi!", options=GREEDY)
    assert whole.response == client.chat(MODEL, HI, options=GREEDY).message.content and whole.done_reason == "stop"
    parts = list(client.generate(MODEL, "Hi!", options=GREEDY, stream=True))
    assert "".join(p.response for p in parts) == whole.response and parts[-1].context == whole.context
    assert len(whole.context) == whole.prompt_eval_count + whole.eval_count
    system = client.generate(MODEL, "Hi!", system="You are nice.", options=GREEDY)
    chat = client.chat(MODEL, [{"role": "system", "content": "You are nice."}, *HI], options=GREEDY)
    assert (system.response, system.prompt_eval_count) == (chat.message.content, chat.prompt_eval_count) and chat.prompt_eval_count > whole.prompt_eval_count


def test_context(client):
    """The earlier conversation goes before the prompt."""
    first = client.generate(MODEL, "Hi!", options=GREEDY)
    second = client.generate(MODEL, "Who are you?", context=first.context, options=GREEDY)
    alone = client.generate(MODEL, "Who are you?", options=GREEDY)
    assert second.prompt_eval_count in (len(first.context) + alone.prompt_eval_count - n for n in (0, 1))
    assert second.context[: len(first.context)] == first.context and len(second.context) == second.prompt_eval_count + second.eval_count


def test_raw(client, tiny):
    raw = client.generate(MODEL, "Once upon", raw=True, options={**GREEDY, "num_predict": 8})
    other = tiny.post("/v1/completions", {"prompt": "Once upon", "temperature": 0, "max_tokens": 8}).json()
    assert raw.response == other["choices"][0]["text"] and raw.prompt_eval_count == other["usage"]["prompt_tokens"] and raw.context is None
    check_error(tiny.post("/api/generate", {"prompt": "a", "raw": True, "context": [1]}), 400, "context: ")
    check_error(tiny.post("/api/generate", {"prompt": "a", "suffix": "b"}), 400, "suffix: ")


def test_load(client, tiny):
    """Without a prompt nothing is generated."""
    for reply in (client.generate(MODEL), client.chat(MODEL, []), client.generate(MODEL, keep_alive=0)):
        assert reply.done and reply.done_reason == "load" and reply.eval_count is None
    assert [line["done_reason"] for line in lines(tiny.post("/api/generate", {"model": MODEL}))] == ["load"]


# ---- reasoning


def test_think(start, tmp_path, tiny):
    path = tmp_path / "t.jinja"
    path.write_text(THINKS)
    server = start("--chat-template", path)
    with ollama.Client(host=server.url) as c:
        model = c.list().models[0].model
        asked = {"model": model, "messages": [{"role": "user", "content": "Once upon a time"}], "options": {"temperature": 0, "num_predict": 12}}
        told = c.chat(**asked, think=True)
        assert told.message.thinking and told.message.content == ""
        assert "".join(p.message.thinking or "" for p in c.chat(**asked, think=True, stream=True)) == told.message.thinking
        assert c.generate(model, "Once upon a time", options=asked["options"], think=True).thinking == told.message.thinking
        assert c.chat(**asked, think=False).message.thinking is None and "thinking" in c.show(model).capabilities
        assert c.chat(**asked, think="high").message.thinking == told.message.thinking
    check_error(tiny.post("/api/chat", {"messages": HI, "think": True}), 400, "think: ")
    assert tiny.post("/api/chat", {"messages": HI, "think": False, "stream": False}).status == 200
    assert tiny.post("/api/chat", {"messages": HI, "think": "high", "stream": False}).header("x-quire-ignored") == "think"


# ---- vectors


def test_embed(start):
    server = start("--pooling", "last", model=QWEN)
    with ollama.Client(host=server.url) as c:
        model = c.list().models[0].model
        got = c.embed(model, ["ab", "b"])
        want = server.post("/v1/embeddings", {"input": ["ab", "b"]}).json()
        assert got.embeddings == [one["embedding"] for one in want["data"]] and got.prompt_eval_count == want["usage"]["prompt_tokens"]
        assert c.embed(model, "ab").embeddings == got.embeddings[:1]
        assert len(c.embed(model, "ab", dimensions=8).embeddings[0]) == 8
        raw = c.embeddings(model, "ab").embedding
        length = math.sqrt(sum(v * v for v in raw))
        assert length > 1.5 and all(abs(v / length - w) < 1e-6 for v, w in zip(raw, got.embeddings[0], strict=True))
        assert c.show(model).capabilities == ["embedding", *c.show(model).capabilities[1:]]
        long = "a" * 100_000
        assert c.embed(model, long).prompt_eval_count == c.show(model).modelinfo["qwen3.context_length"]
        check_error(server.post("/api/embed", {"input": long, "truncate": False}), 400, "input: ")
        check_error(server.post("/api/embeddings", {"prompt": 1}), 400, "prompt: ")
        check_error(server.post("/api/embed", {"model": model}), 400, "input: ")
        check_error(server.post("/api/chat", {"messages": HI}), 400, "embeddings")


# ---- what is served


def test_models(client, tiny):
    [model] = client.list().models
    assert model.model == MODEL and model.size > 1_000_000 and len(model.digest) == 64 and model.modified_at
    assert (model.details.format, model.details.family, model.details.parameter_size, model.details.quantization_level) == ("gguf", "llama", "7.1M", "Q8_0")
    [running] = client.ps().models
    assert running.model == MODEL and running.digest == model.digest and running.size_vram == 0 and running.context_length == 1024
    for name in (MODEL, MODEL + ":latest"):
        shown = client.show(name)
        assert shown.modelinfo["general.architecture"] == "llama" and shown.modelinfo["llama.context_length"] == 1024
        assert shown.capabilities == ["completion", "tools"] and "message.role" in shown.template and shown.details == model.details
        assert client.chat(name, HI, options={"num_predict": 1}).done
    assert tiny.post("/api/show", {"name": MODEL}).status == 200
    for path in ("/api/show", "/api/chat", "/api/generate"):
        check_error(tiny.post(path, {"model": "llama3"}), 404, "llama3")
        check_error(tiny.post(path, {"model": ":latest"}), 404)
    told = tiny.get("/api/version").json()
    assert told["quire"] == tiny.get("/version").json()["version"] and [int(n) for n in told["version"].split(".")] >= [0, 14, 2]
    assert tiny.get("/").status == tiny.call("HEAD", "/").status == 200 and b"Quire" in tiny.get("/").body


def test_options_that_clients_always_send(tiny):
    """A context beyond the server's is the server's; a penalty of the last none is none, of the last 64 one of all, which is told."""
    def say(**options):
        reply = tiny.post("/api/chat", {"messages": HI, "stream": False, "options": {"temperature": 0, "num_predict": 12, **options}})
        return reply.json()["message"]["content"], reply.header("x-quire-ignored")

    plain, strong = say()[0], say(repeat_penalty=2)[0]
    assert plain != strong and say(num_ctx=99999) == (plain, "options.num_ctx") and say(num_ctx=32, repeat_last_n=64) == (plain, None)
    assert say(repeat_last_n=0, repeat_penalty=2) == (plain, None) and say(repeat_last_n=64, repeat_penalty=2) == (strong, "options.repeat_last_n")


def test_what_is_not_done(client, tiny):
    for ask in (lambda: client.pull("llama3"), lambda: client.push("x"), lambda: client.create("x", from_="y"), lambda: client.copy("x", "y"),
                lambda: client.delete("x")):  # fmt: skip
        with pytest.raises(ollama.ResponseError, match="started with") as error:
            ask()
        assert error.value.status_code == 501
    check_error(tiny.get("/api/blobs/sha256:0"), 404)
    check_error(tiny.get("/api/chat"), 405)


def test_any_type(tiny):
    """Ollama's clients call JSON a form; a page of another site may not, and says whose page it is."""
    body = json.dumps({"messages": HI, "stream": False, "options": {"num_predict": 1}}).encode()
    for path in ("/api/chat", "/api/show"):
        for kind in ("application/x-www-form-urlencoded", "text/plain", None):
            assert tiny.call("POST", path, body, headers={"Content-Type": kind}).status == 200
            for origin in ("https://example.com", "null"):
                check_error(tiny.call("POST", path, body, headers={"Content-Type": kind, "Origin": origin}), 415)


# ---- refusals


@pytest.mark.parametrize(
    "fields, word",
    [
        ({"messages": "x"}, "messages: "),
        ({"messages": ["x"]}, "messages[0]: "),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images: "),
        ({"messages": [{"role": "assistant", "tool_calls": ["x"]}]}, "messages: "),
        ({"options": 1}, "options: "),
        ({"options": {"num_ctx": 0}}, "options.num_ctx: "),
        ({"options": {"num_ctx": "1"}}, "options.num_ctx: "),
        ({"options": {"temperature": 9}}, "options.temperature: "),
        ({"options": {"stop": [""]}}, "options.stop[0]: "),
        ({"options": {"num_predict": "x"}}, "options.num_predict: "),
        ({"options": {"mirostat": 1}}, "options.mirostat: "),
        ({"options": {"repeat_last_n": -2}}, "options.repeat_last_n: "),
        ({"format": {"type": "nothing"}}, "format"),
        ({"format": "xml"}, "format: "),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0]"),
        ({"think": "much"}, "think: "),
        ({"think": 1}, "think: "),
        ({"stream": 1}, "stream: "),
        ({"logprobs": 1}, "logprobs: "),
        ({"truncate": "x"}, "truncate: "),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, "maximum context length"),
    ],
)
def test_refusals(tiny, fields, word):
    check_error(tiny.post("/api/chat", {"messages": HI, **fields}), 400, word)


@pytest.mark.parametrize("fields, word", [({"prompt": 1}, "prompt: "), ({"system": 1}, "system: "), ({"context": "x"}, "context: "), ({"context": [-1]}, "context: "),
                                          ({"images": ["aGk="]}, "images: "), ({"template": "x"}, "template: "), ({"raw": 1}, "raw: "), ({"suffix": 1}, "suffix: "),
                                          ({"options": {"top_p": 0}}, "options.top_p: ")])  # fmt: skip
def test_refusals_of_generate(tiny, fields, word):
    check_error(tiny.post("/api/generate", {"prompt": "a", **fields}), 400, word)


BODIES = {"ollama_chat": ("/api/chat", {"messages": HI}), "ollama_generate": ("/api/generate", {"prompt": "a"}),
          "ollama_options": ("/api/chat", {"messages": HI})}  # fmt: skip


def test_names(tiny):
    """Those that ask for nothing here are taken, others told."""
    num = 0
    for (name, place), (fate, _, values) in TABLED.items():
        if place not in BODIES or fate not in ("harmless", "refused"):
            continue
        path, plain = BODIES[place]
        for value in values if fate == "refused" else ["x", {"a": 1}, 1, True]:
            short = {"num_predict": 1} | ({name: value} if place == "ollama_options" else {})
            reply = tiny.post(path, {**plain, "stream": False, "options": short} | ({name: value} if place != "ollama_options" else {}))
            assert reply.status == 200 and reply.header("x-quire-ignored") is None, (name, value, reply)
            num += 1
    assert num > 50
    reply = tiny.post("/api/chat", {"messages": [{**HI[0], "one": 1}], "options": {"num_predict": 1, "two": 2}, "three": 3})
    assert reply.status == 200 and reply.header("x-quire-ignored") == "three, options.two, messages[].one"


def test_overload_and_shutdown(start):
    """A stream that the end of the server cuts ends in a line with the error."""
    server = start("--max-num-seqs", 1, "--max-num-queued-seqs", 0, "--drain-timeout", 0, env=SLOW, model="")
    with ollama.Client(host=server.url) as c:
        stream = c.chat(MODEL, [{"role": "user", "content": "Tell me a story"}], options={"num_predict": 400, "temperature": 0}, stream=True)
        next(stream)
        check_error(server.post("/api/chat", {"messages": HI}), 503)
        server.signal()
        with pytest.raises(ollama.ResponseError, match="shutting down"):
            list(stream)
