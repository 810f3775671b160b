#!/usr/bin/env python3
"""The loss of quantised weights beside llama.cpp, on the same files: the table of docs/performance.

    loss_table.py LLAMA_CPP MODEL.gguf TEXT BYTES [TYPE ...]

LLAMA_CPP: a checkout, built as beside_llama_cpp.py wants it. For each type the model is quantised to it (without a type: the file
is taken as it is), and what is lost is told against the same quantised weights in F32, so it is the engine's own: the perplexity of
the text's first BYTES, and the mean change of a token's log-probability. Windows of 512 tokens, cache in f32. The type cache: F32
weights, and a cache in int8 (Quire) and q8_0 (llama.cpp).
"""
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "http"), str(HERE)]

import beside_llama_cpp  # noqa: E402
import process  # noqa: E402

WINDOW = 512


def by_quire(model, windows, cache="f32"):
    server = process.Server("--kv-cache-dtype", cache, "--max-model-len", WINDOW + 1, "--threads", 1, model=model)
    try:
        found = []
        for ids in windows:
            body = server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}).json()
            found += [one[str(id)]["logprob"] for id, one in zip(ids[1:], body["choices"][0]["prompt_logprobs"][1:], strict=True)]
        return found
    finally:
        server.stop()


def windows_of(model, text):
    server = process.Server(model=model)
    try:
        ids = server.post("/tokenize", {"content": text, "add_special": False}).json()["tokens"]
        lead = server.post("/tokenize", {"content": "", "add_special": True}).json()["tokens"]
    finally:
        server.stop()
    room = WINDOW - len(lead)
    return [lead + ids[at : at + room] for at in range(0, len(ids), room) if at + 1 < len(ids)]


def perplexity(scores):
    return math.exp(-sum(scores) / len(scores))


def loss(quantised, exact):
    mean = sum(abs(a - b) for a, b in zip(quantised, exact, strict=True)) / len(exact)
    return f"{100 * (perplexity(quantised) / perplexity(exact) - 1):+.2f} % | {mean:.4f}"


def main(words):
    if len(words) < 4:
        sys.exit(__doc__)
    checkout, model, text, types = Path(words[0]).resolve(), Path(words[1]), Path(words[2]), words[4:] or [""]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        folder = Path(folder)
        tool = beside_llama_cpp.build(checkout, folder)
        windows = windows_of(model, text.read_bytes()[: int(words[3])].decode("utf-8", "ignore"))
        print("| type | perplexity in F32 | Quire | mean abs Δ log-probability | llama.cpp | mean abs Δ log-probability |\n|---|---|---|---|---|---|", flush=True)
        whole = folder / "whole.gguf"
        if types != [""]:
            process.run("quantize", model, whole, "f32", timeout=None).check_returncode()
        for name in types:
            file, exact = folder / "quantised.gguf" if name else model, folder / "exact.gguf"
            if name == "cache":
                file = exact = whole
            elif name:
                process.run("quantize", whole, file, name, timeout=None).check_returncode()
            if file != exact:
                process.run("quantize", file, exact, "f32", timeout=None).check_returncode()
            ours, theirs = by_quire(exact, windows), beside_llama_cpp.scores_of(tool, exact, *windows)
            of_cache = name == "cache"
            found = (loss(by_quire(file, windows, "int8" if of_cache else "f32"), ours),
                     loss(beside_llama_cpp.scores_of(tool, file, *windows, cache=["q8_0"] * of_cache), theirs))
            print(f"| {name.upper() or 'as it is'} | {perplexity(ours):.4f} | {found[0]} | {found[1]} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
