"""Other servers' paths: the ones that mean the same here, the ones that tell about the server, and what is said of the others."""

import json

import pytest

from process import SLOW
from wire import check_error, wait_for

HI = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <|im_end|> there"}]


def same(one, other):
    """But for ids, times and what was cached."""
    one, other = one.json(), other.json()
    for key in ("id", "created", "usage"):
        one.pop(key, None), other.pop(key, None)
    return one == other


@pytest.mark.parametrize(
    "path, usual",
    [("/models", "/v1/models"), ("/v1/models/", "/v1/models"), ("/ping", "/health"), ("/v1/health", "/health"),
     ("/health/", "/health"), ("/version//", "/version"), ("/props/", "/props")],
)  # fmt: skip
def test_get_aliases(server, path, usual):
    assert server.get(path).status == 200 and same(server.get(path), server.get(usual))


def test_one_model(server):
    name = server.models()[0]
    for path in ("/models/", "/v1/models/"):
        assert server.get(path + name).json()["id"] == name
        assert server.get(path + name + "/").json()["id"] == name
        check_error(server.get(path + "x/y"), 404, "model", code="model_not_found")


@pytest.mark.parametrize("path", ["/completions", "/v1/completions/", "/chat/completions", "/chat/completions/"])
def test_completion_aliases(chat, path):
    usual = "/v1/chat/completions" if "chat" in path else "/v1/completions"
    body = {"messages": HI} if "chat" in path else {"prompt": "Once upon a time"}
    body |= {"max_tokens": 4, "temperature": 0}
    before = chat.metrics().value("quire:http_requests_total", route=usual)
    assert same(chat.post(path, body), chat.post(usual, body))
    assert chat.metrics().value("quire:http_requests_total", route=usual) == before + 2
    check_error(chat.post(path, body | {"temperature": 9}), 400, "temperature")


def test_counts_are_those_of_the_completion(chat):
    """The ids, the number and the text of a chat prompt, each by its own path."""
    usage = chat.post("/v1/chat/completions", {"messages": HI, "max_tokens": 1}).json()["usage"]
    ids = chat.post("/tokenize", {"messages": HI, "return_token_strs": True}).json()
    assert ids["count"] == len(ids["tokens"]) == len(ids["token_strs"]) == usage["prompt_tokens"]
    for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        counted = chat.post(path, {"messages": HI, "model": chat.models()[0], "temperature": 0.5}).json()
        assert counted == {"object": "response.input_tokens", "input_tokens": usage["prompt_tokens"]}
    text = chat.post("/apply-template", {"messages": HI}).json()
    said = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in HI)
    assert text == {"prompt": said + "<|im_start|>assistant\n"}
    bare = chat.post("/tokenize", {"messages": HI, "add_generation_prompt": False}).json()["tokens"]
    assert bare == ids["tokens"][: len(bare)] and len(bare) < ids["count"]
    assert chat.post("/apply-template", {"messages": HI, "add_generation_prompt": False}).json()["prompt"] == said
    begun = {"messages": [*HI, {"role": "assistant", "content": "Who"}], "continue_final_message": True}
    said += "<|im_start|>assistant\nWho"
    assert chat.post("/apply-template", begun).json()["prompt"] == said
    usage = chat.post("/v1/chat/completions", begun | {"max_tokens": 1}).json()["usage"]
    assert chat.post("/tokenize", begun).json()["count"] == usage["prompt_tokens"]


@pytest.mark.parametrize("path", ["/tokenize", "/apply-template", "/v1/chat/completions/input_tokens"])
def test_bad_messages(chat, server, path):
    check_error(chat.post(path, {"messages": "x"}), 400, "messages")
    check_error(chat.post(path, {"messages": [{"role": "user"}]}), 400, "messages[0].content")
    check_error(chat.post(path, {"messages": HI, "model": "x"}), 404, "model")
    both = {"continue_final_message": True, "add_generation_prompt": True}
    check_error(chat.post(path, {"messages": HI, **both}), 400, "continue_final_message")
    check_error(chat.post(path, {"messages": [{"role": "user", "content": "a" * 1_100_000}]}), 400, "messages")
    check_error(server.post(path, {"messages": HI}), 400, "messages", code="no_chat_template")


def test_what_a_count_refuses(chat):
    """A count refuses the fields that the completion refuses by name; and takes one prompt only."""
    fields = {"messages": HI, "suffix": "x"}
    check_error(chat.post("/v1/chat/completions/input_tokens", fields), 400, "suffix")
    check_error(chat.post("/tokenize", {"messages": HI, "prompt": "x"}), 400, "messages")
    check_error(chat.post("/tokenize", {"messages": HI, "add_special_tokens": True}), 400, "add_special_tokens")


def test_props(server, chat):
    length = server.get("/v1/models").json()["data"][0]["max_model_len"]
    props = server.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == length and props["total_slots"] == 64
    assert props["chat_template"] is None and props["modalities"] == {"vision": False, "audio": False}
    assert props["model_path"] == server.models()[0], "no path of this machine"
    assert "<|im_start|>" in chat.get("/props").json()["chat_template"]
    assert chat.get("/tokenizer_info").json()["chat_template"] == chat.get("/props").json()["chat_template"]


def test_load_and_slots(start):
    server = start("--max-num-seqs", "3", env=SLOW)
    assert server.get("/load").json() == {"server_load": 0}
    idle = server.get("/slots").json()
    assert [s["id"] for s in idle] == [0, 1, 2] and not any(s["is_processing"] for s in idle)
    with server.connect() as one, server.connect() as other:
        for conn in (one, other):
            body = {"prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "stream": True}
            conn.send(server.bytes("POST", "/v1/completions", body))
        wait_for("two run", lambda: [s["is_processing"] for s in server.get("/slots").json()] == [True, True, False])
        assert server.get("/load").json() == {"server_load": 2}
    wait_for("none is left", lambda: server.get("/load").json() == {"server_load": 0})


@pytest.mark.parametrize(
    "path, status, says",
    [
        ("/v1/chat/completion", 404, "did you mean '/v1/chat/completions'?"),
        ("/v1/v1/completions", 404, "did you mean '/v1/completions'?"),
        ("/openai/v1/chat/completions", 404, "did you mean '/v1/chat/completions'?"),
        ("/v1/api/v1/models", 404, "did you mean '/v1/models'?"),
        ("/metrcis", 404, "did you mean '/metrics'?"),
        ("/embedding/", 501, "/v1/embeddings"),
    ],
)
def test_hints(server, path, status, says):
    for reply in (server.get(path), server.post(path, {"prompt": "a"})):
        kind = "invalid_request_error" if status == 404 else "not_supported_error"
        error = check_error(reply, status, type=kind)
        assert says in error["message"], error


@pytest.mark.parametrize("path", ["/xyzzy", "/v1/audio/speech", "/" + "a" * 4000, "/%22q"])
def test_no_guess(server, path):
    error = check_error(server.get(path), 404)
    assert "did you mean" not in error["message"] and "There is no path '/" in error["message"]


# ---- llama-server's /completion

COMPLETION = {"prompt": "Once upon a time", "n_predict": 30, "temperature": 0}


@pytest.mark.parametrize(
    "fields, why, word",
    [({}, "limit", ""), ({"stop": [" girl"]}, "word", " girl"), ({"logit_bias": {"2": 100}}, "eos", "")],
    ids=["limit", "word", "eos"],
)
def test_completion(server, fields, why, word):
    """The text is that of /v1/completions; the events end with one of stop: true, and without [DONE]."""
    body = COMPLETION | fields
    usual = server.complete(body["prompt"], max_tokens=30, temperature=0, **fields)
    whole = server.post("/completion", body).json()
    assert whole["content"] == usual["choices"][0]["text"] and whole["stop"] is True
    assert (whole["stop_type"], whole["stopping_word"], whole["index"]) == (why, word, 0)
    assert whole["tokens_predicted"] == usual["usage"]["completion_tokens"]
    assert whole["tokens_evaluated"] == usual["usage"]["prompt_tokens"] and whole["model"] == server.models()[0]
    assert whole["timings"]["predicted_n"] == whole["tokens_predicted"] and not whole["truncated"]
    reply = server.post("/completion", body | {"stream": True})
    *parts, last, end = reply.body.decode().split("\n\n")
    assert end == "" and all(p.startswith("data: {") for p in [*parts, last])
    parts, last = [json.loads(p[6:]) for p in parts], json.loads(last[6:])
    assert "".join(p["content"] for p in parts) == whole["content"] and not any(p["stop"] for p in parts)
    assert last["content"] == "" and last["stop"] is True
    for key in ("stop_type", "stopping_word", "tokens_predicted", "tokens_evaluated", "model"):
        assert last[key] == whole[key]


def test_completion_runs_to_the_context(start):
    """Without n_predict, and with -1, as much as fits; a seed of -1 is none."""
    server = start("--max-model-len", "96")
    for fields in ({}, {"n_predict": -1}):
        answer = server.post("/completion", {"prompt": "a", "ignore_eos": True} | fields).json()
        assert answer["tokens_predicted"] + answer["tokens_evaluated"] == 96
    asked = [server.post("/completion", {"prompt": "a", "seed": -1, "temperature": 2}).json() for _ in range(8)]
    assert len({a["content"] for a in asked}) > 1


@pytest.mark.parametrize(
    "fields", [{"logprobs": 1}, {"echo": True}, {"n_probs": 21}, {"prompt": [[]]}, {"logit_bias": [[1]]}, {"prompt": "a" * 1_000_000}, {"n_predict": -5}, {"prompt": 5}],
    ids=lambda v: str(v)[:30],
)  # fmt: skip
def test_completion_errors(server, fields):
    (field,) = fields
    code = "context_length_exceeded" if len(str(fields)) > 1000 else False
    check_error(server.post("/completion", COMPLETION | fields), 400, field, code=code)
