#!/usr/bin/env python3
"""The golden files of transformers beside llama.cpp: two oracles that know nothing of each other, on the same GGUF files.

    beside_llama_cpp.py LLAMA_CPP MODELS [CASE ...]

LLAMA_CPP: a checkout, its libraries built in LLAMA_CPP/build (cmake -B build && cmake --build build --target llama); its
commit is named by the environment's COMMIT where the checkout has no git. MODELS: where `make_goldens.py --models` put the
files. Writes the largest difference of log-probabilities of each case into tests/model/beside_llama_cpp.json, for cases with
F32 weights, since llama.cpp rounds activations for all others; a case that llama.cpp refuses is left out and named. Cases of DIFFERS
are not compared.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "model/golden"

DIFFERS = {
    "deepseek2-v2": "groups of experts are scored by their two best, V2's by the best",
    "exaone4-window": "a window of 4,096, whatever the file says",
    "gemma3": "GELU from a table of f16",
    "gemma4": "GELU from a table of f16",
    "gemma4-e2b": "GELU from a table of f16",
    "gemma4-moe": "GELU from a table of f16",
    "gpt-oss-yarn": "the ramp of YaRN is cut at whole pairs",
    "gptneox": "GELU by tanh",
    "gptneox-parallel": "GELU by tanh",
    "llama-scale": "attention.scale is not read",
    "llama-yarn-betas": "yarn_beta_fast and yarn_beta_slow are not read",
    "llama4-chunk": "chunks of 8,192 tokens, whatever the file says",
    "mistral-window": "windows of `llama` are not read",
    "mistral-window-1": "windows of `llama` are not read",
    "phi2": "GELU from a table of f16",
    "phi3": "windows of `phi3` are turned off",
    "phi3-short": "the factors follow its own rounded context",
    "phimoe": "weights of both experts sum up to 1",
    "phimoe-window": "weights of both experts sum up to 1",
    "starcoder2": "GELU from a table of f16",
}


def build(checkout, folder):
    tool, libraries = folder / "llama_scores", checkout / "build/bin"
    subprocess.run(["cc", "-O1", "-o", tool, HERE / "llama_scores.c", f"-I{checkout}/include", f"-I{checkout}/ggml/include",
                    f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lllama", "-lggml", "-lggml-base", "-lm"], check=True)
    return tool


def scores_of(tool, model, *sequences, cache=()):
    """The log-probabilities of each sequence's tokens but the first, one after another. cache: ["q8_0"] or f32."""
    text = "\n".join(" ".join(map(str, ids)) for ids in sequences)
    done = subprocess.run([tool, model, *cache], input=text, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def main(words):
    if len(words) < 2:
        sys.exit(__doc__)
    checkout, models, wanted = Path(words[0]).resolve(), Path(words[1]), words[2:]
    commit = os.environ.get("COMMIT") or subprocess.run(["git", "-C", checkout, "rev-parse", "--short=9", "HEAD"], check=True,
                                                        capture_output=True, text=True).stdout.strip()
    path = GOLDEN.parent / "beside_llama_cpp.json"
    found = json.loads(path.read_text())["largest"] if path.exists() and wanted else {}
    with tempfile.TemporaryDirectory() as folder:
        tool = build(checkout, Path(folder))
        for file in sorted(GOLDEN.glob("*.json")):
            golden = json.loads(file.read_text())
            if golden.get("weights") != "f32" or file.stem in DIFFERS or (wanted and file.stem not in wanted):
                continue
            try:
                scores = scores_of(tool, models / f"{file.stem}.gguf", golden["prompt_ids"])
            except subprocess.CalledProcessError as refused:
                print(f"{file.stem}: {refused.stderr.strip()[-200:] or refused.returncode}")
                found.pop(file.stem, None)
                continue
            largest = max(abs(a - b) if math.isfinite(a) else math.inf for a, b in zip(scores, golden["scores"], strict=True))
            print(f"{file.stem}: {largest:.1e}")
            found[file.stem] = float(f"{largest:.1e}")
    path.write_text(json.dumps({"commit": commit, "largest": dict(sorted(found.items()))}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
