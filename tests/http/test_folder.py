"""Hugging Face folders: what the same weights say as a GGUF file, with the folder's own template, defaults and ends."""

import json
import struct
import subprocess
import sys

import pytest

import goldens
from process import BINARY, EMULATED, SANITIZED, run

import folder_quants  # of tests/tools, which goldens.py names

SHAPE = ["--arch", "qwen3", "--vocab", "400", "--chatml", "--type", "bf16"]
MESSAGES = [{"role": "user", "content": "tell me, <|im_end|>, of the sea"}]


def make(tool, path, *more):
    subprocess.run([sys.executable, str(goldens.ROOT / "tests/tools" / tool), str(path), *SHAPE, *more], check=True)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders")
    return make("make_folder.py", path / "shards", "--shards", "3"), make("make_gguf.py", path / "one.gguf")


def chat(server, **fields):
    reply = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 24, "seed": 5, **fields})
    assert reply.status == 200, reply
    choice = reply.json()["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def test_the_same_as_a_file(start, models):
    folder, file = models
    own = {"temperature": 0.5, "top_k": 7, "top_p": 0.875}  # make_folder.py's generation_config.json
    of_folder, of_file = start(model=f"{folder}/"), start(model=file)
    assert of_folder.get("/v1/models").json()["data"][0]["id"] == "shards"
    for body in ({"prompt": "the <|im_end|> sea, and  thrée"}, {"messages": MESSAGES}):
        assert of_folder.post("/tokenize", body).json()["tokens"] == of_file.post("/tokenize", body).json()["tokens"]
    assert "sampling_defaults source=model" in of_folder.log()
    assert chat(of_folder) == chat(of_file, **own)
    assert chat(of_folder, temperature=0) == chat(of_file, temperature=0, top_k=0, top_p=1)


def test_ranks(start, models):
    assert chat(start(model=models[0])) == chat(start("--tensor-parallel-size", "2", "--pipeline-parallel-size", "2", model=models[0]))


def test_commands(models, tmp_path):
    """inspect reads it, quantize makes a GGUF file of it that says the same."""
    folder, _ = models
    said = run("inspect", folder).stdout
    assert "folder of 8 files" in said and "architecture:   qwen3" in said and "cannot be served" not in said
    out = tmp_path / "out.gguf"
    assert run("quantize", folder, out, "bf16").returncode == 0
    words = ("-p", "the sea", "-n", "12", "--temperature", "0")
    assert run("generate", folder, *words).stdout == run("generate", out, *words).stdout


METHODS = [m for m in folder_quants.METHODS if not (SANITIZED and m.startswith("fp8-"))]  # larger; "fp8" goes the same way


@pytest.mark.parametrize("method", METHODS)
def test_quantised(tmp_path, method):
    """Every format of matrices gives the log-probabilities that a GGUF file of the same numbers gives."""
    fp8 = method in ("fp8-blocks", "fp8-row", "fp8-whole")  # stay FP8
    sizes = ("--hidden", "128", "--head-dim", "64", "--ffn", "384") if fp8 else ()
    folder, file = (make(tool, tmp_path / name, "--method", method, "--layers", "1", "--no-tied", *sizes)
                    for tool, name in (("make_folder.py", "x"), ("make_gguf.py", "x.gguf")))  # fmt: skip
    assert (" FP8 " in run("inspect", folder).stdout) == fp8

    def got(model, *flags, device="cpu", prompt="the sea, and then", **env):
        words = ("-p", prompt, "-n", "24", "--temperature", "0", "--raw", "--ignore-eos", "--json", "--logprobs", "5")
        return json.loads(run("generate", model, *words, "--device", device, *flags, env={"QUIRE_CUDA_MODULE": str(EMULATED), **env}).stdout)["logprobs"]

    want = got(file)
    assert got(folder) == want and len(want) == 24
    if not fp8:
        return
    assert got(folder, device="ref") == got(file, device="ref")
    assert run("quantize", folder, tmp_path / "out.gguf", "bf16").returncode == 0 and got(tmp_path / "out.gguf") == want
    for flags in (("--dtype", "float32"), ("--dtype", "bfloat16"), ("--tensor-parallel-size", "2")):
        assert got(folder, *flags) == got(file, *flags)
    if EMULATED.exists():  # two ranks cut the down matrix inside 128 columns of one scale
        alone, of_file = (got(model, "--exact", device="cuda") for model in (folder, file))
        assert alone == got(folder, "--exact", "--tensor-parallel-size", "2", device="cuda")
        assert alone != of_file and [t["token"] for t in alone] == [t["token"] for t in want]
        assert max(abs(a["logprob"] - b["logprob"]) for a, b in zip(alone, of_file)) < 0.05
        long = "the sea, and then " * 10  # W8A8: the library multiplies what stays FP8
        first = [got(folder, device="cuda", prompt=long, QUIRE_CUDA_W8A8=on)[0]["logprob"] for on in "10"]
        assert first[0] != first[1] and abs(first[0] - got(folder, prompt=long)[0]["logprob"]) < 0.1, first


def test_keys_and_values_in_one(tmp_path):
    """A quantised kv_b_proj, of which the loader makes two matrices, gives what its numbers give as floats."""
    sizes = ("--arch", "deepseek2", "--hidden", "128", "--heads", "2", "--kv-b", "--q-lora", "64", "--rope-dim", "16", "--nope-dim", "32",
             "--v-dim", "32", "--kv-lora", "128", "--ffn", "256", "--no-tied", "--layers", "1")  # fmt: skip

    def got(model):
        words = ("-p", "the sea, and then", "-n", "8", "--temperature", "0", "--raw", "--ignore-eos", "--json", "--logprobs", "1")
        return [t["logprob"] for t in json.loads(run("generate", model, *words, "--device", "ref").stdout)["logprobs"]]

    assert got(make("make_folder.py", tmp_path / "x", *sizes, "--method", "fp8-row")) == got(
        make("make_gguf.py", tmp_path / "x.gguf", *sizes, "--method", "fp8-row"))  # fmt: skip
    quantised = make("make_gguf.py", tmp_path / "q8.gguf", *sizes, "--type", "q8_0")
    subprocess.run([sys.executable, str(goldens.ROOT / "tests/tools/dequantise_gguf.py"), quantised, tmp_path / "f32.gguf"], check=True)
    assert max(abs(a - b) for a, b in zip(got(quantised), got(tmp_path / "f32.gguf"), strict=True)) < 0.01


def rewrite(folder, change):
    """Changes the tensors of a folder of one file: name -> (type, shape, bytes)."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8 : 8 + size]), data[8 + size :]
    tensors = {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items() if name != "__metadata__"}
    change(tensors)
    header, end = {}, 0
    for name, (kind, shape, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + len(values)]}
        end += len(values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values for *_, values in tensors.values()))


def say(folder):
    done = run("generate", folder, "-p", "the sea, and", "-n", "8", "--temperature", "0", "--raw", "--ignore-eos")
    assert done.returncode == 0, done.stderr
    return done.stdout


# Names as in EleutherAI/pythia-70m, RedHatAI's folders with an FP8 cache, google/gemma-3-4b-it, HuggingFaceTB/SmolVLM-Instruct and
# OpenGVLab/InternVL3-1B.
@pytest.mark.parametrize("arch, name, kind", [
    ("gptneox", "gpt_neox.layers.#.attention.bias", "U8"),
    ("gptneox", "gpt_neox.layers.#.attention.masked_bias", "F16"),
    ("gptneox", "gpt_neox.layers.#.attention.rotary_emb.inv_freq", "F16"),
    ("qwen3", "model.layers.#.self_attn.k_proj.output_scale", "F32"),
    ("qwen3", "model.layers.#.self_attn.v_proj.output_zero_point", "I8"),
    ("qwen3", "model.layers.#.self_attn.rotary_emb.inv_freq", "F32"),
    ("qwen3", "vision_tower.vision_model.encoder.layers.#.mlp.fc1.weight", "F32"),
    ("qwen3", "model.connector.modality_projection.proj.weight", "F32"),
    ("qwen3", "mlp1.0.weight", "F32"),
])  # fmt: skip
def test_beside(tmp_path, arch, name, kind):
    """Masks, scales of calibration and towers lie beside the text model, and change nothing."""
    flags = ("--kv-heads", "4", "--bias", "--out-bias", "--ffn-bias", "--rope-dim", "4") if arch == "gptneox" else ()
    folder = make("make_folder.py", tmp_path / "x", "--arch", arch, "--no-tied", *flags)
    alone = say(folder)
    rewrite(folder, lambda tensors: tensors.update({name.replace("#", str(i)): (kind, [1], bytes(int(kind[1:]) // 8)) for i in range(2)}))
    assert say(folder) == alone


def test_tokens_without_rows(tmp_path):
    """Gemma 3 has an added token for images behind the last row: its text is that of other tokens. Others need their rows."""
    folder = make("make_folder.py", tmp_path / "x")
    alone, path = say(folder), folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer["added_tokens"].append({"id": rows, "content": "<image>", "special": True})
    path.write_text(json.dumps(tokenizer))
    assert say(folder) == alone
    tokenizer["model"]["vocab"].update({"<image>": rows, "<more>": rows + 1})
    path.write_text(json.dumps(tokenizer))
    assert f"there is a token {rows + 1}" in run("generate", folder, "-p", "a").stderr


def test_other_formats(tmp_path):
    """A folder of one GGUF model is that; one without tokenizer.json says which tokenizer is not read."""
    file = make("make_gguf.py", tmp_path / "one.gguf")
    alone = say(file)
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF")
    assert say(tmp_path) == alone
    make("make_gguf.py", tmp_path / "two.gguf")
    assert "holds 2 GGUF files and no config.json" in run("generate", tmp_path, "-p", "a").stderr
    folder = make("make_folder.py", tmp_path / "x")
    (folder / "tokenizer.json").rename(folder / "spiece.model")
    assert "tokenizer.json is missing, and spiece.model is not read" in run("generate", folder, "-p", "a").stderr


@pytest.mark.parametrize("file, change, word", [
    ("config.json", lambda c: c.update(model_type="nobody"), "model_type 'nobody' is not supported yet"),
    ("config.json", lambda c: c.update(rope_scaling={"rope_type": "magic"}), "rope_type at byte"),
    ("tokenizer.json", lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "the pre_tokenizer of a BPE"),
    ("model.safetensors.index.json", lambda c: c["weight_map"].update(x="../x"), "expected the name of a file in the folder"),
])  # fmt: skip
def test_refusals(tmp_path, file, change, word):
    folder = make("make_folder.py", tmp_path / "x", "--shards", "2")
    path = folder / file
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    done = subprocess.run([BINARY, "serve", folder, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and word in done.stderr and file in done.stderr
