#!/usr/bin/env python3
"""tests/model/mtp_ernie.json: what ERNIE's MTP layer predicts, computed here in float64.

    make_mtp_ernie.py            needs numpy

The layer is that of tests/model/golden/ernie4_5-moe.json with one more layer (make_gguf.py --nextn 1); the other model's rows
are made up (row() here and in test_json_mtp.c). As in PaddlePaddle's FastDeploy the embedding stands before the row, and the
layer's output goes through the model's own last norm. `scores` has the log-probability of token i + 2 by the layer, of token
i + 1 and row i, and `logits` the row for the last."""
import json
import os
import tempfile

import numpy as np

import gguf_file
import make_gguf

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "../model/golden/ernie4_5-moe.json")
EPS = 1e-5


def row(i, n):
    return np.array([((i * 31 + k * 17) % 64) / 32 - 1 for k in range(n)])


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def rotate(x, base):
    """Of (tokens, heads, size) the pairs (2i, 2i + 1)."""
    t, _, d = x.shape
    angle = np.outer(np.arange(t), base ** (-np.arange(0, d, 2) / d))[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.stack([even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle)], -1)
    return turned.reshape(x.shape)


def attend(q, k, v):
    t, heads, d = q.shape
    k, v = (np.repeat(x, heads // k.shape[1], 1) for x in (k, v))
    s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d)
    s = np.where(np.tri(t, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(t, -1)


def main():
    with open(GOLDEN) as f:
        golden = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*golden["arguments"], "--nextn", "1", os.path.join(folder, "model.gguf")]
        make_gguf.main(arguments)
        a = make_gguf.parse(arguments)
        tensors = gguf_file.read(arguments[-1])[2]

    def weight(name):
        _, shape, data = tensors[name + ".weight"]
        return np.frombuffer(data, "<f4").astype(np.float64).reshape(shape)

    def own(name):
        return weight(f"blk.{a.layers}.{name}")

    ids = golden["prompt_ids"]
    embed, rows = weight("token_embd"), np.stack([row(i, a.hidden) for i in range(len(ids) - 1)])
    x = np.concatenate([norm(embed[ids[1:]], own("nextn.enorm")), norm(rows, own("nextn.hnorm"))], -1) @ own("nextn.eh_proj").T
    h = norm(x, own("attn_norm"))
    q, k, v = ((h @ own(f"attn_{n}").T).reshape(len(h), -1, a.head_dim) for n in "qkv")
    x = x + attend(rotate(q, a.rope_base), rotate(k, a.rope_base), v) @ own("attn_output").T
    h = norm(x, own("ffn_norm"))
    gate = h @ own("ffn_gate").T
    x = x + (gate / (1 + np.exp(-gate)) * (h @ own("ffn_up").T)) @ own("ffn_down").T
    logits = norm(x, weight("output_norm")) @ embed.T
    scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    found = {"scores": [round(float(scores[i, t]), 5) for i, t in enumerate(ids[2:])], "logits": [round(float(y), 5) for y in logits[-1]]}
    with open(os.path.join(HERE, "../model/mtp_ernie.json"), "w") as f:
        json.dump(found, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
