"""/v1/embeddings: transformers' pooled hidden states, OpenAI's form, and the refusals of the other kind of model."""

import base64
import json
import pathlib
import struct

import openai
import pytest
from process import BINARY
from wire import check_error

MODELS = BINARY.parent / "tests/golden-models"
GOLDENS = json.loads((pathlib.Path(__file__).parent / "embeddings.json").read_text())
QWEN = MODELS / "qwen3.gguf"
IDS = [one["ids"] for one in GOLDENS if one["model"] == "qwen3"]


def embed(server, inputs, **fields):
    response = server.post("/v1/embeddings", {"input": inputs, **fields})
    assert response.status == 200, response.json()
    body = response.json()
    assert [one["index"] for one in body["data"]] == list(range(len(body["data"])))
    return [one["embedding"] for one in body["data"]]


def far(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.fixture
def last(start):
    return start("--pooling", "last", model=QWEN)


@pytest.mark.parametrize("device", ["ref", "cpu"])
@pytest.mark.parametrize("pooling", ["last", "mean", "cls"])
def test_as_transformers(start, pooling, device):
    for model in ("qwen3", "llama-gqa-tied"):
        server = start("--pooling", pooling, "--device", device, "--kv-cache-dtype", "f32", model=MODELS / f"{model}.gguf")
        rows = [one for one in GOLDENS if one["model"] == model]
        for got, want in zip(embed(server, [one["ids"] for one in rows]), rows, strict=True):
            assert far(got, want[pooling]) < 1e-5


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_same_bits_whatever_the_load(start, pooling):
    alone = start("--pooling", pooling, model=QWEN)
    want = [embed(alone, ids) for ids in IDS]
    for flags in (["--max-num-batched-tokens", "7", "--max-num-seqs", "3"], ["--num-kv-blocks", "6"], ["--threads", "2"],
                  ["--tensor-parallel-size", "2"], ["--pipeline-parallel-size", "2"]):  # fmt: skip
        server = start("--pooling", pooling, *flags, model=QWEN)
        for _ in range(2):  # the second time with prefix hits
            got = embed(server, IDS * 20)
            assert [[one] for one in got] == want * 20, flags


def test_openai_client(last):
    client = openai.OpenAI(base_url=last.url + "/v1", api_key="EMPTY", max_retries=0)
    got = client.embeddings.create(model=client.models.list().data[0].id, input=["ab", "b", "ab"])  # asks for base64
    assert got.data[0].embedding == got.data[2].embedding != got.data[1].embedding
    assert abs(sum(x * x for x in got.data[0].embedding) - 1) < 1e-5
    assert got.usage.total_tokens == got.usage.prompt_tokens > 3


def test_forms(last):
    floats = embed(last, IDS[1])[0]
    packed = embed(last, IDS[1], encoding_format="base64")[0]
    assert list(struct.unpack(f"<{len(floats)}f", base64.b64decode(packed))) == [struct.unpack("f", struct.pack("f", x))[0] for x in floats]
    short = embed(last, IDS[1], dimensions=8)[0]
    length = sum(x * x for x in floats[:8]) ** 0.5
    assert far(short, [x / length for x in floats[:8]]) < 1e-6
    raw = embed(last, IDS[1], normalize=False)[0]
    assert abs(sum(x * x for x in raw) ** 0.5 - 1) > 0.1 and abs(raw[0] / raw[1] - floats[0] / floats[1]) < 1e-4
    assert embed(last, [IDS[2]], truncate_prompt_tokens=5) == embed(last, IDS[2][:5])
    many = embed(last, [[i % 90 + 3] for i in range(2048)])
    assert len(many) == 2048 and many[0] == many[90]


@pytest.mark.parametrize(
    "fields, param",
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", [1]]}, "input"),
        ({"input": [1, 10**6]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": [5] * 5000}, "input"),
        ({"input": "a", "dimensions": 10**5}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ],
)
def test_refused(last, fields, param):
    error = check_error(last.post("/v1/embeddings", fields), 400)
    assert error["param"] == param, error


def test_other_kind_of_model(last, server):
    for path, body in {"/v1/completions": {"prompt": "a"}, "/v1/chat/completions": {"messages": []}, "/completion": {"prompt": "a"}}.items():
        assert "POST /v1/embeddings" in check_error(last.post(path, body), 400)["message"]
    assert "--pooling" in check_error(server.post("/v1/embeddings", {"input": "a"}), 400)["message"]


def test_metrics(last):
    embed(last, [IDS[1]] * 3)
    page = last.get("/metrics").body.decode()
    assert f"prompt_tokens_total" in page and 'route="/v1/embeddings"' in page
