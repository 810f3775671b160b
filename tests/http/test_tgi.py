"""Text Generation Inference's API, as its clients ask: bodies that huggingface_hub 0.36.2 (InferenceClient.text_generation) and
text-generation 0.7.0 sent, shapes of TGI's openapi.json."""

import json

import pytest

from wire import TIMEOUT, strict_json

PROMPT = "Once upon a time"
TOKEN = {"id", "text", "logprob", "special"}


def hub(inputs=PROMPT, stream=False, **parameters):
    return {"inputs": inputs, "parameters": parameters, "stream": stream}


def client(inputs=PROMPT, stream=False, **parameters):
    plain = dict.fromkeys(["best_of", "repetition_penalty", "frequency_penalty", "seed", "temperature", "top_k", "top_p", "truncate",
                           "typical_p", "top_n_tokens", "grammar", "adapter_id"])  # fmt: skip
    plain |= {"do_sample": False, "max_new_tokens": 20, "return_full_text": False, "stop": [], "watermark": False, "details": True,
              "decoder_input_details": False}  # fmt: skip
    return {"inputs": inputs, "parameters": plain | parameters, "stream": stream}


def stream_of(server, path, body):
    """The events of a stream, which has no [DONE]."""
    with server.connect(timeout=TIMEOUT) as conn:
        conn.send(server.bytes("POST", path, body))
        reply = conn.read_reply()
    assert reply.status == 200 and reply.header("content-type").startswith("text/event-stream"), reply
    events = [raw for raw in reply.body.split(b"\n\n") if raw and not raw.startswith(b":")]
    assert all(raw.startswith(b"data:{") for raw in events), events
    return [strict_json(raw[5:]) for raw in events]


def plain(server, **fields):
    return server.complete(PROMPT, **fields)["choices"][0]


def test_whole(tiny):
    want = plain(tiny, max_tokens=12)["text"]
    assert tiny.post("/generate", hub(max_new_tokens=12)).json() == {"generated_text": want}
    assert tiny.post("/generate", hub(max_new_tokens=12, stream=True)).json() == {"generated_text": want}, "it never streams"
    assert tiny.post("/", hub(max_new_tokens=12)).json() == [{"generated_text": want}]
    assert tiny.post("/generate", {"inputs": PROMPT, "parameters": None}).status == 200
    full = tiny.post("/generate", hub(max_new_tokens=12, return_full_text=True)).json()
    assert full == {"generated_text": PROMPT + want}


def test_details(tiny):
    got = tiny.post("/generate", client(max_new_tokens=5, decoder_input_details=True, top_n_tokens=2)).json()["details"]
    want = plain(tiny, max_tokens=5, logprobs=2, return_token_ids=True)
    assert set(got) == {"finish_reason", "generated_tokens", "seed", "prefill", "tokens", "top_tokens"}
    assert (got["finish_reason"], got["generated_tokens"], got["seed"]) == ("length", 5, None)
    assert [t["id"] for t in got["tokens"]] == want["token_ids"]
    assert [t["logprob"] for t in got["tokens"]] == want["logprobs"]["token_logprobs"]
    assert [t["text"] for t in got["tokens"]] == want["logprobs"]["tokens"]
    assert [{t["text"]: t["logprob"] for t in top} for top in got["top_tokens"]] == want["logprobs"]["top_logprobs"]
    assert all(set(t) == TOKEN and t["special"] is False for t in got["tokens"])
    assert [t["id"] for t in got["prefill"]] == want["prompt_token_ids"]
    assert got["prefill"][0]["logprob"] is None and all(t["logprob"] <= 0 for t in got["prefill"][1:])
    assert all(set(t) == {"id", "text", "logprob"} for t in got["prefill"])
    assert "details" not in tiny.post("/generate", hub(max_new_tokens=5)).json()


@pytest.mark.parametrize("path", ["/generate_stream", "/"])
def test_stream(tiny, path):
    want = tiny.post("/generate", client(max_new_tokens=30)).json()
    events = stream_of(tiny, path, client(max_new_tokens=30, stream=True))
    assert [e["index"] for e in events] == list(range(1, len(events) + 1))
    assert all(set(e) == {"index", "token", "generated_text", "details"} and set(e["token"]) == TOKEN for e in events)
    assert [e["token"]["id"] for e in events] == [t["id"] for t in want["details"]["tokens"]]
    assert "".join(e["token"]["text"] for e in events if not e["token"]["special"]) == want["generated_text"]
    assert all(e["generated_text"] is None and e["details"] is None for e in events[:-1])
    assert events[-1]["generated_text"] == want["generated_text"]
    assert events[-1]["details"] == {"finish_reason": want["details"]["finish_reason"], "generated_tokens": len(events), "seed": None,
                                     "input_length": 4}  # fmt: skip
    assert stream_of(tiny, path, hub(max_new_tokens=2, stream=True))[-1]["details"] is None
    assert "top_tokens" in stream_of(tiny, path, hub(max_new_tokens=2, stream=True, top_n_tokens=1))[0]


def test_characters_of_several_tokens(tiny):
    """The texts of a stream are the text, though a character came in parts."""
    grammar = {"type": "regex", "value": "é日本ü👍🏽 end"}
    want = tiny.post("/generate", hub(max_new_tokens=60, grammar=grammar)).json()["generated_text"]
    events = stream_of(tiny, "/generate_stream", hub(max_new_tokens=60, grammar=grammar))
    assert want == "é日本ü👍🏽 end" == "".join(e["token"]["text"] for e in events if not e["token"]["special"])
    assert events[-1]["generated_text"] == want


def test_how_it_ends(tiny):
    """A stop string is part of the text; an end of text is a special token with its name."""
    got = tiny.post("/generate", client(max_new_tokens=60, stop=["."])).json()
    assert got["generated_text"].endswith(".") and got["details"]["finish_reason"] == "stop_sequence"
    events = stream_of(tiny, "/generate_stream", client(max_new_tokens=60, stop=["."]))
    assert "".join(e["token"]["text"] for e in events) == got["generated_text"] == events[-1]["generated_text"]
    chat = client("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", max_new_tokens=200)
    got = tiny.post("/generate", chat).json()
    assert got["details"]["finish_reason"] == "eos_token"
    for last in (got["details"]["tokens"][-1], stream_of(tiny, "/generate_stream", chat)[-1]["token"]):
        assert last["special"] and last["text"] == "<|im_end|>" and "<|" not in got["generated_text"]


def test_sampling(tiny):
    """Greedy unless do_sample or a stage says otherwise; then the seed is told."""
    greedy = plain(tiny, max_tokens=20)["text"]

    def text(**parameters):
        return tiny.post("/generate", hub(max_new_tokens=20, details=True, seed=7, **parameters)).json()

    for same in ({}, {"temperature": 1.0}, {"do_sample": False, "top_p": 1.0}, {"do_sample": True, "top_k": 1}):
        assert text(**same)["generated_text"] == greedy
    assert text()["details"]["seed"] is None
    for other in ({"do_sample": True}, {"temperature": 1.9}, {"top_p": 0.99}, {"typical_p": 0.99}, {"top_k": 1000}):
        got = text(**other)
        assert got["details"]["seed"] == 7 and got == text(**other)
    assert text(do_sample=True, temperature=1.9)["generated_text"] != greedy
    long = "the end. " * 9 + PROMPT
    cut = tiny.post("/generate", client(long, truncate=4, max_new_tokens=20)).json()["generated_text"]
    assert cut == tiny.complete(long, truncate_prompt_tokens=4, max_tokens=20)["choices"][0]["text"]


@pytest.mark.parametrize("form", ["json", "json_schema"])
def test_grammar(tiny, form):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"], "additionalProperties": False}
    value = {"name": "x", "schema": schema} if form == "json_schema" else schema
    got = tiny.post("/generate", hub(max_new_tokens=40, grammar={"type": form, "value": value})).json()
    assert set(json.loads(got["generated_text"])) == {"n"}


def test_refused(tiny):
    """By the names that the client used, in TGI's form."""
    rows = [
        ({}, "'inputs' is missing."), ({"text": "x", "sampling_params": {}}, "SGLang"), ({"inputs": [1]}, "'inputs' must"),
        ({"inputs": "x", "parameters": []}, "'parameters' must"), (hub(best_of=2), "'best_of'"), (hub(watermark=True), "'watermark'"),
        (hub(max_new_tokens="x"), "'max_new_tokens'"), (hub(max_new_tokens=-1), "'max_new_tokens'"), (hub(truncate=-7), "'truncate'"),
        (hub(top_n_tokens=1000), "'top_n_tokens'"), (hub(adapter_id="none"), "'none' does not exist"), (hub(details=1), "'details'"),
        (hub(grammar={"type": "regex", "value": "("}), "'grammar'"), (hub(grammar={"type": "x", "value": "("}), "'grammar'"),
        (hub(grammar="x"), "'grammar'"), (hub(n=2), "'n'"), (hub(echo=True), "'echo'"), (hub(temperature=-1), "'temperature'"),
    ]  # fmt: skip
    for path in ("/generate", "/generate_stream", "/"):
        for body, why in rows:
            reply = tiny.post(path, body)
            assert reply.status == (404 if "exist" in why else 400) and set(reply.json()) == {"error", "error_type"}, (body, reply)
            assert why in reply.json()["error"] and reply.json()["error_type"] == "validation", (body, reply)
    reply = tiny.post("/generate_stream", hub(decoder_input_details=True))
    assert reply.status == 400 and "'decoder_input_details'" in reply.json()["error"]
    assert tiny.post("/generate", hub(best_of=1, watermark=False, max_new_tokens=1, nonsense=1)).header("x-quire-ignored") == "nonsense"


def test_info(tiny):
    got = tiny.get("/info").json()
    assert got["model_id"] == tiny.models()[0] and got["max_total_tokens"] == got["max_input_tokens"] + 1 == 1024
    assert {"model_sha", "model_pipeline_tag", "max_concurrent_requests", "max_best_of", "max_stop_sequences", "validation_workers",
            "max_client_batch_size", "router", "version", "sha", "docker_label"} < set(got)  # fmt: skip
    assert tiny.get("/").status == 200 and tiny.post("/info", {}).status == 405


def test_keys(start):
    """POST / needs the key, though the page there does not."""
    server = start(key="tgi-key", env={"QUIRE_API_KEY": "tgi-key"})
    html = {"Accept": "text/html", "Authorization": None}
    assert server.get("/", headers=html).status == 200
    for path in ("/", "/generate", "/generate_stream"):
        reply = server.post(path, hub(max_new_tokens=1), headers=html)
        assert reply.status == 401 and reply.json()["error_type"] == "validation"
    assert server.post("/", hub(max_new_tokens=1)).status == 200
    server.secrets.append("tgi-key")
