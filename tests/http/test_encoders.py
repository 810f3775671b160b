"""Encoders: vectors as transformers gives them, the same bits whatever the load, and what such a server refuses."""

import json
import shutil
import struct

import goldens
import pytest
from process import BINARY, run
from test_embeddings import embed, far
from wire import check_error

MODELS = BINARY.parent / "tests/golden-models"
ROWS = json.loads((goldens.ROOT / "tests/model/encoders.json").read_text())
NAMES = sorted({one["model"] for one in ROWS if "vector" in one})


def rows_of(model):
    return [one for one in ROWS if one["model"] == model]


@pytest.mark.parametrize("device", ["ref", "cpu"])
@pytest.mark.parametrize("model", NAMES)
def test_as_transformers(start, model, device):
    server = start("--device", device, model=MODELS / f"{model}.gguf")
    rows = rows_of(model)
    for got, want in zip(embed(server, [one["ids"] for one in rows]), rows, strict=True):
        assert far(got, want["vector"]) < 1e-5, len(want["ids"])


@pytest.mark.parametrize("model", NAMES)
def test_same_bits_whatever_the_load(start, model):
    inputs = [one["ids"] for one in rows_of(model)]
    alone = start(model=MODELS / f"{model}.gguf")
    want = [embed(alone, ids)[0] for ids in inputs]
    many, wanted = 2 * inputs + inputs[::-1], 2 * want + want[::-1]  # more than a step holds, beside each other in two ways
    for flags in (["--max-num-batched-tokens", "300", "--max-num-seqs", "3"], ["--num-kv-blocks", "22", "--max-model-len", "300"],
                  ["--threads", "2"], ["--cpu-variant", "scalar"], ["--tensor-parallel-size", "2"], ["--pipeline-parallel-size", "2"]):  # fmt: skip
        server = start(*flags, model=MODELS / f"{model}.gguf")
        for _ in range(2):
            assert embed(server, many) == wanted, flags


@pytest.mark.parametrize("model", [name for name in NAMES if (MODELS / name).is_dir()])
def test_folder(start, model):
    """The same bits as the file; vectors are of length 1 where modules.json says so."""
    inputs = [one["ids"] for one in rows_of(model)]
    folder, file = start(model=MODELS / model), start(model=MODELS / f"{model}.gguf")
    assert embed(folder, inputs, normalize=True) == embed(file, inputs)
    assert embed(folder, inputs) == embed(file, inputs, normalize=model != "bert-mean")


def test_folder_of_a_decoder(start, tmp_path):
    """Qwen3-Embedding: saved without the head, so names lack "model."; it gives vectors without a flag."""
    copy = tmp_path / "copy"
    shutil.copytree(MODELS / "qwen3", copy)
    shutil.copytree(MODELS / "bert/1_Pooling", copy / "1_Pooling")
    shutil.copy(MODELS / "bert/modules.json", copy)
    config = copy / "1_Pooling/config.json"
    config.write_text(config.read_text().replace("pooling_mode_cls_token", "pooling_mode_lasttoken"))
    path = copy / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size].replace(b'"model.', b'"')
    path.write_bytes(data[:8] + header.ljust(size) + data[8 + size :])
    ids = [[1, 5, 200], [7]]
    assert embed(start(model=copy), ids) == embed(start("--pooling", "last", model=MODELS / "qwen3.gguf"), ids)


def test_default_prompt(start, tmp_path):
    """A default prompt of sentence-transformers is told, not put: vectors are those of the text."""
    copy = tmp_path / "copy"
    shutil.copytree(MODELS / "bert", copy)
    path = copy / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}))
    server = start(model=copy)
    assert embed(server, "a hill") == embed(start(model=MODELS / "bert"), "a hill") and "puts 'query: ' before each" in server.log()
    path.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": None}))
    assert "before each" not in start(model=copy).log()


def test_added_tokens(start):
    """Texts get what the tokenizer puts around them, and keep it where they are cut."""
    server = start(model=MODELS / "bert")
    ids = server.post("/tokenize", {"prompt": "a hill in the north"}).json()["tokens"]
    assert ids[0] == 1 and ids[-1] == 2 and len(ids) > 10
    assert embed(server, "a hill in the north") == embed(server, ids) != embed(server, ids[1:-1])
    assert embed(server, "a hill in the north", truncate_prompt_tokens=6) == embed(server, ids[:5] + [2])
    assert embed(server, "a hill in the north", add_special_tokens=False) == embed(server, ids[1:-1])
    assert embed(server, "") == embed(server, [1, 2])


def test_length(start, tmp_path):
    """A text has as many tokens as sentence-transformers looks at, and is cut where the request says so."""
    copy = tmp_path / "copy"
    shutil.copytree(MODELS / "bert", copy)
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 6, "do_lower_case": false}')
    server, text = start(model=copy), "a hill in the north"
    ids = server.post("/tokenize", {"prompt": text}).json()["tokens"]
    assert server.get("/v1/models").json()["data"][0]["max_model_len"] == 6 < len(ids)
    check_error(server.post("/v1/embeddings", {"input": text}), 400)
    cut = embed(start(model=MODELS / "bert"), ids[:5] + [2])
    assert embed(server, text, truncate_prompt_tokens=-1) == embed(server, ids[:5] + [2]) == cut


def test_hostile_folders(tmp_path):
    """A folder of sentence-transformers that asks for something unsupported is refused by name."""
    copy = tmp_path / "copy"
    shutil.copytree(MODELS / "bert", copy)
    pooling, modules = copy / "1_Pooling/config.json", copy / "modules.json"
    good = {path: path.read_text() for path in (pooling, modules)}
    for path, old, new, says in (
        (pooling, '"pooling_mode_max_tokens": false', '"pooling_mode_max_tokens": true', "pooling_mode_max_tokens"),
        (pooling, '"pooling_mode_mean_tokens": false', '"pooling_mode_mean_tokens": true', "only one of"),
        (pooling, '"pooling_mode_cls_token": true', '"pooling_mode_cls_token": false', "no pooling_mode"),
        (pooling, good[pooling], "{", "1_Pooling/config.json"),
        (modules, "models.Normalize", "models.Dense", "Dense is not supported yet"),
        (modules, '"path": "1_Pooling"', '"path": "../bert/1_Pooling"', "another folder"),
    ):
        path.write_text(good[path].replace(old, new))
        got = run("serve", copy, "--port", 0)
        assert got.returncode == 1 and says in got.stderr, got.stderr
        path.write_text(good[path])
    shutil.rmtree(copy / "1_Pooling")
    (copy / "1_Pooling").symlink_to(MODELS / "bert/1_Pooling")
    got = run("serve", copy, "--port", 0)
    assert got.returncode == 1 and "1_Pooling/config.json" in got.stderr


def test_hostile_matrices(tmp_path):
    """Folders with other dense modules than EmbeddingGemma's behind the pooling are refused."""
    copy = tmp_path / "copy"
    shutil.copytree(MODELS / "gemma-embedding", copy)
    dense, modules, weights = copy / "2_Dense/config.json", copy / "modules.json", copy / "3_Dense/model.safetensors"
    good = {path: path.read_bytes() for path in (dense, modules, weights)}
    for path, old, new, says in (
        (dense, b"linear.Identity", b"activation.Tanh", "activation_function"),
        (modules, b'"2_Dense"', b'"3_Dense"', "2_Dense"),
        (modules, b"models.Normalize", b"models.Dense", "Dense is not supported yet"),
        (weights, b"linear.weight", b"linear.height", "linear.height"),
    ):
        path.write_bytes(good[path].replace(old, new))
        got = run("serve", copy, "--port", 0)
        assert got.returncode == 1 and says in got.stderr, got.stderr
        path.write_bytes(good[path])
    weights.unlink()
    got = run("serve", copy, "--port", 0)
    assert got.returncode == 1 and "3_Dense/model.safetensors" in got.stderr


def test_long_texts(start):
    """Without a flag a step holds the longest text of the model; with one, texts are no longer than a step."""
    ids = [5 + i % 290 for i in range(1024)]
    usual, asked = start(model=MODELS / "modern-bert.gguf"), start("--max-num-batched-tokens", "2000", model=MODELS / "modern-bert.gguf")
    assert embed(usual, [ids, ids[:700]]) == embed(asked, [ids, ids[:700]])
    for flags, length in (([], 1024), (["--max-model-len", "800"], 800), (["--max-num-batched-tokens", "600"], 600)):
        assert start(*flags, model=MODELS / "modern-bert.gguf").get("/v1/models").json()["data"][0]["max_model_len"] == length


def test_refused(start):
    server = start("--max-num-batched-tokens", "64", model=MODELS / "bert.gguf")
    assert embed(server, [[5] * 64])
    error = check_error(server.post("/v1/embeddings", {"input": [5] * 65}), 400)
    assert "64" in error["message"]
    for path, body in {"/v1/completions": {"prompt": [5]}, "/v1/chat/completions": {"messages": []}}.items():
        assert "POST /v1/embeddings" in check_error(server.post(path, body), 400)["message"]
