"""Architectures as users meet them: a small random model of each, served, against its golden file in every mode. Makes docs/models.md.

Without --slow a covering set of them (tests/tools/cover.py), whose rows the page must have. `QUIRE_WRITE=1 pytest --slow test_models.py`
writes the page anew."""

import json
import os
import re
import textwrap

import pytest

import test_encoders
from goldens import ROOT
from process import BINARY, EMULATED, run
from test_embeddings import embed, far

MODELS = BINARY.parent / "tests/golden-models"
PAGE = ROOT / "docs/models.md"
# The models that people know of each architecture.
KNOWN = {
    "llama": "Llama 1 to 3.2, Mistral, Mixtral", "qwen2": "Qwen2, Qwen2.5", "qwen3": "Qwen3", "qwen3moe": "Qwen3 MoE", "qwen2moe": "Qwen1.5, Qwen2 MoE", "olmoe": "OLMoE", "granitemoe": "Granite 3 MoE", "glm4moe": "GLM 4.5 to 4.7", "ernie4_5-moe": "ERNIE 4.5 MoE", "hunyuan-moe": "Hunyuan MoE", "dots1": "dots.llm1", "gpt-oss": "gpt-oss", "llama4": "Llama 4 Scout, Maverick (text)", "granite": "Granite 3, 4 (dense)",
    "minicpm": "MiniCPM 1, 2, 4", "smollm3": "SmolLM3", "internlm2": "InternLM 2, 2.5", "ernie4_5": "ERNIE 4.5 (dense)", "seed_oss": "Seed-OSS",
    "hunyuan-dense": "Hunyuan (dense)", "phi3": "Phi 3, 3.5, 4", "phimoe": "Phi 3.5 MoE", "olmo2": "OLMo 2, 3", "glm4": "GLM 4", "exaone4": "EXAONE 4",
    "gemma": "Gemma", "gemma2": "Gemma 2", "gemma3": "Gemma 3", "gemma3n": "Gemma 3n (text)", "gemma4": "Gemma 4 (text)", "mistral3": "Mistral Small 3, Ministral 3", "lfm2": "LFM2, LFM2.5", "qwen35": "Qwen 3.5 (dense)",
    "granitehybrid": "Granite 4 (hybrid)", "falcon-h1": "Falcon-H1", "mamba2": "Mamba 2",
    "starcoder2": "StarCoder 2", "stablelm": "StableLM 1, 2", "phi2": "Phi 1, 1.5, 2", "gptneox": "Pythia, GPT-NeoX", "nemotron": "Nemotron 4, Minitron",
    "command-r": "Command R, R+", "cohere2": "Command R7B, Command A",
    "deepseek2": "DeepSeek V2, V3, R1, Kimi K2, GLM 4.7 Flash", "nemotron_h": "Nemotron-H, Nemotron Nano 2", "nemotron_h_moe": "Nemotron 3 Nano", "minicpm3": "MiniCPM 3",
    "lfm2moe": "LFM2 MoE", "qwen35moe": "Qwen 3.5 MoE", "qwen3next": "Qwen3 Next",
    "qwen2vl": "Qwen2-VL, Qwen2.5-VL (text)", "qwen3vl": "Qwen3-VL (text)", "qwen3vlmoe": "Qwen3-VL MoE (text)", "chatglm": "GLM-4-9B", "arcee": "Arcee AFM",
}  # fmt: skip
ENCODERS = {"bert": "BERT, XLM-RoBERTa: BGE, E5, GTE, MiniLM", "nomic-bert": "Nomic Embed 1, 1.5", "nomic-bert-moe": "Nomic Embed 2", "jina-bert-v3": "Jina Embeddings 3, without its adapters",
            "modern-bert": "ModernBERT, GTE ModernBERT", "gemma-embedding": "EmbeddingGemma"}
COLUMNS = ("ref", "cpu", "folder", "cuda, emulated", "llama.cpp", "tp 2", "pp 2", "prefix", "preemption")
FOLDERS = ("What `model_type` of config.json is read. Small random models of unusual configurations, written by that version of "
           "transformers, give the log-probabilities (encoders: the vectors) that the newest computes from the folder, also when `quire quantize` has made a file of it; – : that version has no such model, or "
           "was not tried. *GGUF*: files of the architecture as llama.cpp has them are compared in the tables above. A tower beside the text is skipped. `bailing_moe`, `bailing_moe_v2`, `deci`, `mimo`, `nemotron-nas` and `smallthinker`, which transformers lacks, are relatives of its with the same tensors (tests/tools/stand_ins.py).")  # fmt: skip
EXACT = 1e-4  # of log-probabilities, as in tests/model/test_json_arch.c
rows, encoder_rows, sentences = {}, {}, []


def goldens():
    """The golden files with F32 weights, by architecture."""
    found = {}
    for path in sorted((ROOT / "tests/model/golden").glob("*.json"), key=lambda p: p.stem):
        golden = json.loads(path.read_text())
        words = golden["arguments"]
        if golden["weights"] == "f32":
            found.setdefault(words[words.index("--arch") + 1] if "--arch" in words else "llama", []).append(golden)
    return found


GOLDENS = goldens()
import cover  # of tests/tools, which goldens.py names

COVER = [arch for arch in cover.cover(cover.architectures()) if arch in GOLDENS]


def architectures(folder):
    """Those that the binary names when it refuses one."""
    path = folder / "other.gguf"
    path.write_bytes((MODELS / f"{GOLDENS['llama'][0]['name']}.gguf").read_bytes().replace(b"llama", b"other", 1))
    return re.search(r"supported: (.*)", run("generate", path, "-p", "a").stderr)[1].split(", ")


def ask(server, golden, times=1, tokens=None):
    """The response to a request with the golden's prompt, or to each of several at once."""
    fields = {"prompt": [golden["prompt_ids"]] * times, "max_tokens": tokens or len(golden["greedy_ids"]), "temperature": 0,
              "ignore_eos": True, "prompt_logprobs": 0, "logprobs": 1, "return_token_ids": True}  # fmt: skip
    response = server.post("/v1/completions", fields)
    assert response.status == 200, response
    got = [{"scores": [next(iter(of.values()))["logprob"] for of in choice["prompt_logprobs"][1:]], "ids": choice["token_ids"],
            "logprobs": choice["logprobs"]["token_logprobs"]} for choice in response.json()["choices"]]  # fmt: skip
    assert all(one == got[0] for one in got)
    return got[0]


def serve(start, golden, *flags):
    return start("--kv-cache-dtype", "f32", "--block-size", 16, *flags, model=MODELS / f"{golden['name']}.gguf")


def is_golden(got, golden):
    assert got["ids"] == golden["greedy_ids"]
    assert max(abs(a - b) for a, b in zip(got["scores"], golden["scores"], strict=True)) < EXACT


def refused(golden, *flags, env=None):
    """The reason for which this model is refused with these flags, or None."""
    got = run("generate", MODELS / f"{golden['name']}.gguf", "--raw", "-p", "a", "-n", "1", *flags, env=env)
    return reason_of(got.stderr) if got.returncode else None


def reason_of(text):
    reason = re.search(r"(?:cannot run this model|does not suit this model(?: \(.*\))?): (.*?)(?:; possible.*)?$", text, re.MULTILINE)[1]
    if reason not in sentences:
        sentences.append(reason)
    return reason


def cuda(start, golden):
    flags, env = ("--device", "cuda", "--max-num-seqs", 1, "--max-num-batched-tokens", 64), {"QUIRE_CUDA_MODULE": str(EMULATED)}
    reason = refused(golden, *flags, env=env)
    if not reason:
        path = MODELS / f"{golden['name']}.gguf"
        is_golden(ask(start(*flags, "--kv-cache-dtype", "f32", model=path, env=env), golden), golden)
    return reason or "✔"


def from_folder(start, arch):
    """Whether the first golden of the architecture that has a folder too is the same from there."""
    golden = next((g for g in GOLDENS[arch] if (MODELS / g["name"]).is_dir()), None)
    if golden:
        is_golden(ask(start("--kv-cache-dtype", "f32", model=MODELS / golden["name"]), golden), golden)
    return "✔" if golden else "–"


def shared_by_two(start, golden, flag, alone):
    reason = refused(golden, flag, 2)
    assert reason or ask(serve(start, golden, flag, 2), golden) == alone
    return reason or "✔"


def preempted(start, golden, server):
    """Eight requests in the smallest cache that holds one: others wait, or give way and begin again. server: with room for all.
    "–": none had to, because all layers have windows."""
    tokens = 256 - len(golden["prompt_ids"])
    alone = ask(server, golden, tokens=tokens)
    one = serve(start, golden, "--max-num-seqs", 1)  # by default as many blocks as its requests can need
    least = int(re.search(r'^vllm:cache_config_info\{.*num_gpu_blocks="(\d+)"', one.get("/metrics").body.decode(), re.MULTILINE)[1])
    for blocks in range(least, 80):
        small = serve(start, golden, "--num-kv-blocks", blocks, "--no-enable-prefix-caching")
        assert small.get("/v1/models").json()["data"][0]["max_model_len"] >= 256
        assert ask(small, golden, times=8, tokens=tokens) == alone
        if float(re.search(r"^vllm:num_preemptions_total\S* (\S+)", small.get("/metrics").body.decode(), re.MULTILINE)[1]) > 0:
            return "✔"
    return "–"


@pytest.mark.parametrize("arch", [a if a in COVER else pytest.param(a, marks=pytest.mark.slow) for a in GOLDENS])
def test_architecture(start, arch):
    golden = GOLDENS[arch][0]
    is_golden(ask(serve(start, golden, "--device", "ref"), golden), golden)
    server = serve(start, golden, "--device", "cpu")
    alone = ask(server, golden)
    is_golden(alone, golden)
    fields = {"prompt": golden["prompt_ids"], "max_tokens": len(alone["ids"]), "temperature": 0, "ignore_eos": True, "logprobs": 1}
    for cached in (0, 1):  # prompt_logprobs reads the whole prompt, so it has found nothing
        body = server.post("/v1/completions", fields).json()
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0 or not cached
        assert body["choices"][0]["logprobs"]["token_logprobs"] == alone["logprobs"]
    beside = json.loads((ROOT / "tests/model/beside_llama_cpp.json").read_text())["largest"]
    known = [beside[g["name"]] for g in GOLDENS[arch] if g["name"] in beside]
    assert all(largest < EXACT for largest in known)
    tp, pp = (shared_by_two(start, golden, f"--{kind}-parallel-size", alone) for kind in ("tensor", "pipeline"))
    on_cuda = cuda(start, golden) if EMULATED.exists() else None
    rows[arch] = ["✔", "✔", from_folder(start, arch), on_cuda, "✔" if known else "–", tp, pp, "✔", preempted(start, golden, server)]


def test_shared_keys(start):
    """Layers that take keys and values of others, and embeddings of their own: ranks and preemption, but no stages."""
    golden = next(g for g in GOLDENS["gemma4"] if g["name"] == "gemma4-e2b")
    server = serve(start, golden)
    assert ask(serve(start, golden, "--tensor-parallel-size", 2), golden) == ask(server, golden)
    assert preempted(start, golden, server) == "✔"
    got = run("generate", MODELS / "gemma4-e2b.gguf", "--raw", "-p", "a", "-n", "1", "--pipeline-parallel-size", 2)
    assert "its layers share keys and values, or take embeddings of their own" in got.stderr


def test_inspect():
    """`quire inspect` describes latents, experts, AltUp and states."""
    for name, words in {
        "deepseek2": ("heads:          4 of 32, with values of 20; a latent of 40 and a key of 8 for all",),
        "gemma3n": ("96, sparse gates in 2 of 6 layers", "streams:        4 (AltUp), LAuReL of rank 12"),
        "granitehybrid-moe": ("recurrent:      ", "Mamba 2", "experts of", "and one of"),
    }.items():
        said = run("inspect", MODELS / f"{name}.gguf").stdout
        assert all(word in said for word in words), said


def encoder_on_cuda(start, path, inputs, vectors):
    try:
        server = start("--device", "cuda", "--kv-cache-dtype", "f32", model=path, env={"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_CUDA_GRAPHS": "0"})
    except AssertionError as ended:
        return reason_of(str(ended))
    for ids, vector in sorted(zip(inputs, vectors), key=lambda row: len(row[0]))[:4]:  # the emulator takes long
        assert far(embed(server, ids)[0], vector) < 1e-5
    return "✔"


@pytest.mark.parametrize("arch", ENCODERS)
def test_encoder(start, arch):
    path = MODELS / f"{arch}.gguf"
    inputs, vectors = zip(*[(one["ids"], one["vector"]) for one in test_encoders.rows_of(arch)])
    alone = embed(start(model=path), inputs)
    for flags in (["--device", "ref"], ["--device", "cpu"]):
        got = embed(start(*flags, model=path), inputs)
        assert all(far(a, b) < 1e-5 for a, b in zip(got, vectors, strict=True))
    for kind in ("tensor", "pipeline"):
        assert embed(start(f"--{kind}-parallel-size", 2, model=path), inputs) == alone
    on_cuda = encoder_on_cuda(start, path, inputs, vectors) if EMULATED.exists() else None
    encoder_rows[arch] = ["✔", "✔", on_cuda, "✔", "✔"]


def folder_rows():
    """A row for each kind of model that folders name: what transformers 4 and 5 wrote of it gives what the newest computes
    (tests/model/test_json_transformers.c), and whether GGUF files of its architecture are compared, too."""
    sources = "".join(p.read_text().split("families[] = {")[1] for p in sorted((ROOT / "engine/models/hf").glob("families_*.c")))
    kinds = dict(re.findall(r'\{"([\w.-]+)", "([\w.-]+)",', sources)) | {kind: "qwen2vl" for kind in re.findall(r'QWEN2_VL\("(\w+)"\)', sources)}
    found, versions = {}, {}
    for path in sorted((ROOT / "tests/model/transformers").glob("*.json")):
        for folder in json.loads(path.read_text())["folders"]:
            config = folder["config"]
            name = (config.get("text_config") or config)["model_type"]
            name = name if "text_config" not in config else f"{config['model_type']} ({name})"
            found.setdefault(name, set()).add(folder["version"][0])
            versions[folder["version"][0]] = folder["version"]
    names = sorted({*found, *kinds} - {n.split("(")[1][:-1] for n in found if "(" in n and n.split("(")[1][:-1] not in found})
    lines = [f"|model_type|architecture|folder of transformers {versions['4']}|folder of transformers {versions['5']}|GGUF|", "|---|---|---|---|---|"]
    for name in names:
        arch = kinds[name.split("(")[-1].rstrip(")")]
        cells = ["✔" if v in found.get(name, ()) else "–" for v in "45"] + ["✔" if arch in {*GOLDENS, *ENCODERS} else "–"]
        lines.append(f"|{name}|`{arch}`|{'|'.join(cells)}|")
    return lines


def test_folders_of_the_page(tmp_path):
    """Every architecture is in a table, and the one of folders says what the cases show."""
    lines = folder_rows()
    assert "\n".join(lines) in PAGE.read_text(), "\n".join(lines)
    assert set(architectures(tmp_path)) == set(page_rows()) | {line.split("`")[1] for line in lines[2:]}


def page_rows():
    """The page's rows by architecture, with refusals in words."""
    text = PAGE.read_text()
    notes = dict(re.findall(r"^(\d+)\. Refused: (.*)$", text, re.M))
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|`")]
    return {name.strip("`"): [notes[c[1:-1]] if c.startswith("[") else c for c in cells] for name, _, *cells in lines}


def test_page_has_what_was_found():
    """Every architecture with goldens has a row, and those that were tried here the right one. (Without the emulated module nothing is known of its column.)"""
    page = page_rows()
    assert set(page) == set(KNOWN) | set(ENCODERS)
    for found in (rows, encoder_rows):
        for arch, cells in found.items():
            assert [c for c in cells if c] == [c for c, known in zip(page[arch], cells, strict=True) if known], arch


@pytest.mark.slow
def test_page():
    """The page is what was found."""
    if not rows:
        pytest.skip("made from all that test_architecture finds")
    assert set(KNOWN) == set(GOLDENS) == set(rows) and set(ENCODERS) == set(encoder_rows)
    if not EMULATED.exists():
        pytest.skip("no emulated CUDA module in this build")
    lines = ["# Models", "", "Made by tests/http/test_models.py, which serves a small random model of each architecture and compares.", ""]
    lines += [f"|architecture|models|{'|'.join(COLUMNS)}|", "|---" * (2 + len(COLUMNS)) + "|"]
    for arch in sorted(rows):
        cells = [f"[{sentences.index(c) + 1}]" if c in sentences else c for c in rows[arch]]
        lines.append(f"|`{arch}`|{KNOWN[arch]}|{'|'.join(cells)}|")
    columns = [c for c in COLUMNS if c not in ("folder", "llama.cpp", "prefix", "preemption")]
    lines += ["", f"|encoder|models|{'|'.join(columns)}|", "|---" * (2 + len(columns)) + "|"]
    for arch in sorted(encoder_rows):
        cells = [f"[{sentences.index(c) + 1}]" if c in sentences else c for c in encoder_rows[arch]]
        lines.append(f"|`{arch}`|{ENCODERS[arch]}|{'|'.join(cells)}|")
    lines += ["", *(f"{i + 1}. Refused: {s}" for i, s in enumerate(sentences)), ""]
    lines += textwrap.wrap(
        "*ref*, *cpu*: log-probabilities of 89 tokens within 1e-4 of transformers', and 16 greedy tokens. *folder*: so from a Hugging Face folder; – : none is read. *llama.cpp*: its own are within "
        "1e-4 of transformers', on the same file (tests/tools/beside_llama_cpp.py); – : it was not compared, or cannot read the file. "
        "*tp*, *pp*, *prefix*, *preemption*: two ranks, two stages, a cached prompt, a preempted request give the same bits as one alone; – : a model of windows or states alone, which preempts nobody. Encoders: elements of "
        "normalised vectors within 1e-5.", 130)  # fmt: skip
    lines += ["", "## Folders", "", *textwrap.wrap(FOLDERS, 130), "", *folder_rows()]
    text = "\n".join(lines) + "\n"
    if os.environ.get("QUIRE_WRITE"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "docs/models.md: QUIRE_WRITE=1 pytest --slow test_models.py writes it anew"
