"""The tokenizer over HTTP, in the dialects of vLLM and llama.cpp: ids, pieces, the way back, and every limit."""

import subprocess
import sys

import pytest

from goldens import BOS, EOS, ROOT, byte_token, cases, pieces, text_of, vocabulary
from process import Server
from wire import check_error

TEXTS = ["Once upon a time", "", " ", "a\n\tb", "naïve café 日本語 😀", "a\0b", "<s>", "x" * 300]


def answer(reply):
    assert reply.status == 200, reply
    return reply.json()


def tokenize(server, **fields):
    return answer(server.post("/tokenize", fields))


def detokenize(server, ids, **fields):
    got = answer(server.post("/detokenize", {"tokens": ids, **fields}))
    assert set(got) == {"prompt", "content"} and got["prompt"] == got["content"]
    return got["prompt"]


@pytest.mark.parametrize("case", range(6))
def test_golden(server, case):
    """The ids are those of the reference, and the way back gives the text."""
    golden = cases()[case]
    got = tokenize(server, prompt=golden["prompt"])
    assert got == {
        "count": len(golden["prompt_ids"]),
        "max_model_len": server.get("/v1/models").json()["data"][0]["max_model_len"],
        "tokens": golden["prompt_ids"],
        "token_strs": None,
    }
    assert detokenize(server, golden["prompt_ids"][1:]) == golden["prompt"]
    greedy = golden["greedy_ids"]
    assert detokenize(server, [BOS] + greedy) == "<s>" + text_of(greedy)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_there_and_back(server, text):
    ids = tokenize(server, prompt=text, add_special_tokens=False)["tokens"]
    assert ids == tokenize(server, content=text)["tokens"], "llama.cpp's default adds no BOS"
    assert [BOS] + ids == tokenize(server, content=text, add_special=True)["tokens"]
    assert [BOS] + ids == tokenize(server, prompt=text)["tokens"], "vLLM's default does"
    assert detokenize(server, ids) == text


def test_special_tokens_in_text(server):
    assert tokenize(server, content="</s>")["tokens"][-1] == EOS
    assert EOS not in tokenize(server, content="</s>", parse_special=False)["tokens"]
    assert EOS not in tokenize(server, prompt="</s>", parse_special=False)["tokens"]


def test_token_strs(server):
    """vLLM: tokens as the vocabulary spells them."""
    got = tokenize(server, prompt=cases()[0]["prompt"], return_token_strs=True)
    names = vocabulary()[1]
    assert got["token_strs"] == [names[i].decode() for i in got["tokens"]]
    assert got["count"] == len(got["tokens"])
    assert tokenize(server, prompt="", add_special_tokens=False, return_token_strs=True)["token_strs"] == []


def test_with_pieces(server):
    """llama.cpp: what each token adds to the text; bytes, where they are no text."""
    got = tokenize(server, content="a 日😀", with_pieces=True)["tokens"]
    raw = b""
    for token in got:
        piece = token["piece"]
        piece = piece.encode() if isinstance(piece, str) else bytes(piece)
        assert piece == pieces()[token["id"]]
        raw += piece
    assert raw.decode() == " a 日😀"
    assert any(isinstance(token["piece"], list) for token in got)


def test_broken_text(server):
    """Ids may be no text: U+FFFD, once for each maximal part."""
    assert detokenize(server, [byte_token(0xFF)]) == "\ufffd"
    assert detokenize(server, [byte_token(b) for b in "€".encode()]) == "€"
    assert detokenize(server, [byte_token(b) for b in "€".encode()[:2]]) == "\ufffd"
    assert detokenize(server, []) == ""


def test_tokenizer_info(server):
    """lm-evaluation-harness reads eos_token, and then needs no tokenizer of its own."""
    info = answer(server.get("/tokenizer_info"))
    assert (info["bos_token"], info["eos_token"]) == ("<s>", "</s>")
    assert info["pad_token"] is None and info["chat_template"] is None
    assert info["add_bos_token"] is True
    assert info["vocab_size"] == len(pieces())


BAD_TEXT = [
    ({}, "prompt"), ({"prompt": None}, "prompt"), ({"prompt": 5}, "prompt"), ({"prompt": ["a"]}, "prompt"),
    ({"content": 5}, "content"), ({"prompt": "a", "content": "a"}, "content"), ({"messages": []}, "messages"),
    ({"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"), ({"content": "a", "add_special": "x"}, "add_special"),
    ({"prompt": "a", "return_token_strs": []}, "return_token_strs"), ({"content": "a", "with_pieces": 0}, "with_pieces"),
    ({"content": "a", "parse_special": 0}, "parse_special"), ({"prompt": "a", "model": 5}, "model"),
]  # fmt: skip
BAD_IDS = [
    ({}, "tokens"), ({"tokens": "1"}, "tokens"), ({"tokens": 1}, "tokens"), ({"tokens": {}}, "tokens"),
    ({"tokens": [-1]}, "tokens"), ({"tokens": [1, 512]}, "tokens"), ({"tokens": [2**31]}, "tokens"),
    ({"tokens": [2**62]}, "tokens"), ({"tokens": [1.0]}, "tokens"), ({"tokens": ["1"]}, "tokens"),
    ({"tokens": [True]}, "tokens"), ({"tokens": [None]}, "tokens"), ({"tokens": [[1]]}, "tokens"),
]  # fmt: skip


@pytest.mark.parametrize("fields, param", BAD_TEXT, ids=lambda v: str(v)[:40])
def test_bad_tokenize(server, fields, param):
    check_error(server.post("/tokenize", fields), 400, param)


@pytest.mark.parametrize("fields, param", BAD_IDS, ids=lambda v: str(v)[:40])
def test_bad_detokenize(server, fields, param):
    check_error(server.post("/detokenize", fields), 400, param)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"a"', b'{"prompt":"a","prompt":"b"}'], ids=str)
def test_bad_bodies(server, path, body):
    check_error(server.post(path, body), 400)


def test_model_and_method(server):
    check_error(server.post("/tokenize", {"prompt": "a", "model": "x"}), 404, "model", code="model_not_found")
    check_error(server.post("/detokenize", {"tokens": [1], "model": "x"}), 404, "model")
    reply = server.get("/tokenize")
    check_error(reply, 405)
    assert "POST" in reply.header("allow")
    check_error(server.post("/tokenizer_info", {}), 405)


def test_limits(server):
    """A long text that cannot fit is refused before it is tokenised, and a list before it is read."""
    for field in ("prompt", "content"):
        reply = server.post("/tokenize", {field: "a" * 1_100_000})
        check_error(reply, 400, field, code="context_length_exceeded")
    reply = server.post("/detokenize", {"tokens": [1] * 200_000})
    check_error(reply, 400, "tokens", code="context_length_exceeded")


def test_large_bodies_go_to_the_pool(start):
    """Over 64 KiB: the answer is the same, and a client that leaves meanwhile leaves nothing behind."""
    server = start()
    text, blank = cases()[1]["prompt"], " " * 100_000
    wanted = tokenize(server, prompt=text)
    for _ in range(20):
        body = server.bytes("POST", "/tokenize", {"prompt": text, "ignored": blank})
        conn = server.connect()
        conn.send(body)
        conn.reset()
    assert tokenize(server, prompt=text, ignored=blank) == wanted
    assert detokenize(server, wanted["tokens"][1:], ignored=blank) == text


@pytest.fixture(scope="module")
def no_vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "ids.gguf"
    subprocess.run([sys.executable, ROOT / "tests/tools/make_gguf.py", path, "--no-vocab", "--vocab", "300", "--ffn", "64"], check=True)
    server = Server(model=path)
    yield server
    server.stop()


def test_ids_alone(no_vocabulary):
    fields = {"prompt": [1, 299, 7], "max_tokens": 5, "temperature": 0, "return_token_ids": True, "logprobs": 2}
    choice = no_vocabulary.post("/v1/completions", fields).json()["choices"][0]
    assert choice["text"] == "" and len(choice["token_ids"]) == 5 and choice["finish_reason"] == "length"
    assert all(0 <= i < 300 for i in choice["token_ids"])
    assert no_vocabulary.post("/v1/completions", fields).json()["choices"][0]["token_ids"] == choice["token_ids"]
    assert no_vocabulary.post("/detokenize", {"tokens": [1, 2]}).json()["prompt"] == ""
    assert no_vocabulary.post("/v1/completions", dict(fields, prompt=[300])).status == 400


@pytest.mark.parametrize("path, fields", [
    ("/v1/completions", {"prompt": "a text"}), ("/completion", {"prompt": "a text"}), ("/tokenize", {"prompt": "a text"}),
    ("/v1/completions", {"prompt": [1], "bad_words": ["a text"]}),
])  # fmt: skip
def test_texts_without_a_vocabulary(no_vocabulary, path, fields):
    response = no_vocabulary.post(path, fields)
    assert response.status == 400 and "no vocabulary" in response.json()["error"]["message"]
