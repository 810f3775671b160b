#!/usr/bin/env python3
"""Writes tests/http/embeddings.json: what transformers' hidden states of the goldens qwen3 and llama-gqa-tied give when pooled, in float64.

    OMP_NUM_THREADS=1 python tests/tools/make_embedding_goldens.py      (packages as make_goldens.py says)
"""
import json
import os
import tempfile

import torch

import make_gguf
from make_goldens import load, path_of

rows = []
for name in ("qwen3", "llama-gqa-tied"):
    with open(path_of(name), encoding="utf-8") as f:
        golden = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        make_gguf.main([path] + golden["arguments"])
        model = load(make_gguf.parse([path] + golden["arguments"]), path, None)
    for n in (1, 5, len(golden["prompt_ids"])):
        ids = golden["prompt_ids"][:n]
        with torch.no_grad():
            h = model.model(torch.tensor([ids])).last_hidden_state[0]
        pooled = {"last": h[-1], "mean": h.mean(0), "cls": h[0]}
        rows.append({"model": name, "ids": ids} | {k: [round(x, 6) for x in (v / v.norm()).tolist()] for k, v in pooled.items()})
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../http/embeddings.json"), "w", encoding="utf-8") as f:
    f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")
