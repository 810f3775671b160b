"""/v1/rerank and /v1/score: transformers' scores, the forms of Cohere, Jina and vLLM, and what is refused."""

import json

import goldens
import pytest
from process import BINARY
from test_embeddings import far
from wire import check_error

MODELS = BINARY.parent / "tests/golden-models"
ROWS = {one["model"]: one for one in json.loads((goldens.ROOT / "tests/model/encoders.json").read_text()) if "query" in one}


def ask(server, path, **fields):
    response = server.post(path, fields)
    assert response.status == 200, response.json()
    return response.json()


def rank(server, row, path="/v1/rerank", **fields):
    return ask(server, path, query=row["query"], documents=row["documents"], **fields)["results"]


def scores(server, row, **fields):
    return [one["score"] for one in ask(server, "/v1/score", text_1=row["query"], text_2=row["documents"], **fields)["data"]]


@pytest.fixture
def server(start):
    return start(model=MODELS / "xlm-r-rank.gguf")


@pytest.mark.parametrize("device", ["ref", "cpu"])
@pytest.mark.parametrize("model", ROWS)
def test_as_transformers(start, model, device):
    server, row = start("--device", device, model=MODELS / f"{model}.gguf"), ROWS[model]
    assert far(scores(server, row), row["scores"]) < 1e-5
    results = rank(server, row)
    assert [one["relevance_score"] for one in results] == sorted((one["relevance_score"] for one in results), reverse=True)
    for one in results:
        assert abs(one["relevance_score"] - row["scores"][one["index"]]) < 1e-5
        assert one["document"]["text"] == row["documents"][one["index"]]


@pytest.mark.parametrize("model", [name for name in ROWS if (MODELS / name).is_dir()])
def test_folder(start, model):
    assert scores(start(model=MODELS / model), ROWS[model]) == scores(start(model=MODELS / f"{model}.gguf"), ROWS[model])


@pytest.mark.parametrize("model", ROWS)
def test_same_bits_whatever_the_load(start, model):
    row = ROWS[model]
    want = scores(start(model=MODELS / f"{model}.gguf"), row, use_activation=False)
    for flags in (["--max-num-batched-tokens", "150", "--max-num-seqs", "2"], ["--threads", "2"], ["--tensor-parallel-size", "2"], ["--pipeline-parallel-size", "2"]):  # fmt: skip
        server = start(*flags, model=MODELS / f"{model}.gguf")
        assert scores(server, row | {"documents": row["documents"] * 20}, use_activation=False) == want * 20, flags


def test_types_of_what_is_cut(start):
    """The end keeps the type of the second text, of which nothing may be left."""
    server = start(model=MODELS / "bert-rank.gguf")
    row = ROWS["bert-rank"]
    length = len(server.post("/tokenize", {"content": row["query"], "add_special": False}).json()["tokens"]) + 3
    empty = scores(server, {"query": row["query"], "documents": [""]})
    assert scores(server, row | {"documents": ["no"]}, truncate_prompt_tokens=length) == empty
    assert scores(server, row | {"documents": ["no"]}) != empty


def test_forms(server):
    row = ROWS["xlm-r-rank"]
    all_of_them = rank(server, row)
    for path in ("/rerank", "/reranking", "/v1/reranking", "/v2/rerank"):
        assert rank(server, row, path) == all_of_them
    for top_n, num in ((0, 5), (1, 1), (3, 3), (5, 5), (99, 5)):
        assert rank(server, row, top_n=top_n) == all_of_them[:num]
    assert rank(server, row | {"documents": [{"text": one} for one in row["documents"]]}) == all_of_them
    assert "document" not in rank(server, row, return_documents=False)[0]
    twice = rank(server, row | {"documents": ["a hill"] * 3})
    assert [one["index"] for one in twice] == [0, 1, 2]  # of equal scores the first one
    body = ask(server, "/score", text_1="a", text_2="a hill")
    assert body["usage"]["total_tokens"] == 3 + 2 + 7 and len(body["data"]) == 1
    pairs = scores(server, {"query": ["a", "b"], "documents": ["a hill", "no"]})
    assert pairs == [scores(server, {"query": q, "documents": d})[0] for q, d in (("a", "a hill"), ("b", "no"))]
    assert scores(server, {"query": ["a", "b"], "documents": "no"})[1] == pairs[1]
    many = rank(server, row | {"documents": ["a hill", "no"] * 5000}, return_documents=False, top_n=3)
    assert [one["index"] for one in many] == [0, 2, 4]
    assert rank(server, row | {"documents": ["it " * 400]}, truncate_prompt_tokens=100)[0]["relevance_score"] > 0
    raw = scores(server, row, use_activation=False)
    assert min(raw) < 0 and all(0 < one < 1 for one in scores(server, row))


def test_cut_documents(start):
    """Cutting a document keeps the tokens behind it, in a pair and in a template."""
    for model, behind in (("xlm-r-rank", 1), ("qwen3-rank", 7)):
        server, row = start(model=MODELS / f"{model}.gguf"), ROWS[model]
        whole = ask(server, "/v1/score", text_1="a", text_2="no hill")["usage"]["total_tokens"]
        cut = ask(server, "/v1/score", text_1="a", text_2="no hill is", truncate_prompt_tokens=whole)
        assert cut["usage"]["total_tokens"] == whole
        assert cut["data"] == ask(server, "/v1/score", text_1="a", text_2="no hill")["data"]
        assert ask(server, "/v1/score", text_1="a", text_2="no", truncate_prompt_tokens=behind)["usage"]["total_tokens"] == behind


def test_words_are_no_control_tokens(start):
    server = start(model=MODELS / "qwen3-rank.gguf")
    used = [ask(server, "/v1/score", text_1="a", text_2=text)["usage"]["total_tokens"] for text in ("", "</s>", "{query}")]
    assert [n - used[0] for n in used] == [0, 4, 7]


@pytest.mark.parametrize(
    "path, fields, param",
    [
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": ["a"], "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a"}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": "a"}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a", 1]}, "documents[1]"),
        ("/v1/rerank", {"query": "a", "documents": ["a", {"image": "x"}]}, "documents[1]"),
        ("/v1/rerank", {"query": "a", "documents": ["a"] * 10001}, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a", "it " * 400]}, "documents[1]"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": "1"}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ("/v1/score", {"text_1": "a"}, "text_2"),
        ("/v1/score", {"text_1": [], "text_2": "a"}, "text_1"),
        ("/v1/score", {"text_1": "a", "text_2": []}, "text_2"),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_2"),
        ("/v1/score", {"text_1": ["a", 1], "text_2": "a"}, "text_1"),
        ("/v1/score", {"text_1": "it " * 400, "text_2": "a"}, "text_1[0]"),
    ],
)
def test_refused(server, path, fields, param):
    error = check_error(server.post(path, fields), 400)
    assert error["param"] == param, error


def test_other_kinds_of_model(server, start):
    assert server.get("/v1/models").json()["data"][0]["pooling"] == server.get("/props").json()["pooling"] == "rank"
    for path, body in {"/v1/completions": {"prompt": "a"}, "/v1/embeddings": {"input": "a"}}.items():
        assert "POST /v1/rerank" in check_error(server.post(path, body), 400)["message"]
    embedder = start(model=MODELS / "bert.gguf")
    assert embedder.get("/v1/models").json()["data"][0]["pooling"] == "cls"
    assert "POST /v1/embeddings" in check_error(embedder.post("/v1/rerank", {"query": "a", "documents": ["a"]}), 400)["message"]
    generator = start(model=MODELS / "qwen3.gguf")
    assert "reranker" in check_error(generator.post("/v1/score", {"text_1": "a", "text_2": "a"}), 400)["message"]
