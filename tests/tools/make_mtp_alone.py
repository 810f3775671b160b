#!/usr/bin/env python3
"""tests/model/mtp_alone.json: what MTP layers predict that transformers has no parts of, computed here in float64.

    make_mtp_alone.py            needs numpy

ERNIE's layer, and Nemotron 3's: those of the models of tests/model/golden with one more layer (make_gguf.py --nextn 1). The
other model's rows are made up (row() here and in test_json_mtp.c). The embedding stands before the row. ERNIE's output goes
through the model's own last norm, as in PaddlePaddle's FastDeploy. `scores` has the log-probability of token i + 2 by the
layer, of token i + 1 and row i, and `logits` the row for the last."""
import json
import os
import tempfile

import numpy as np

import gguf_file
import make_gguf

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ("ernie4_5-moe", "nemotron_h_moe")
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


def swiglu(h, own):
    gate = h @ own("ffn_gate").T
    return (gate / (1 + np.exp(-gate)) * (h @ own("ffn_up").T)) @ own("ffn_down").T


def chosen_experts(h, own, top_k, scale):
    """Beside the shared one, those with the largest sigmoids plus bias; the sigmoids, made to add up to `scale`, weigh them."""

    def feed(x, up, down):
        return np.maximum(x @ up.T, 0) ** 2 @ down.T

    router, (up, down) = 1 / (1 + np.exp(-h @ own("ffn_gate_inp").T)), (own(f"ffn_{n}_exps") for n in ("up", "down"))
    out = feed(h, own("ffn_up_shexp"), own("ffn_down_shexp"))
    for t, chances in enumerate(router):
        best = np.argsort(-(chances + own("exp_probs_b", ".bias")))[:top_k]
        out[t] += sum(feed(h[t], up[e], down[e]) * chances[e] * scale / chances[best].sum() for e in best)
    return out


def case(name):
    with open(os.path.join(HERE, f"../model/golden/{name}.json")) as f:
        golden = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*golden["arguments"], "--nextn", "1", os.path.join(folder, "model.gguf")]
        make_gguf.main(arguments)
        a = make_gguf.parse(arguments)
        tensors = gguf_file.read(arguments[-1])[2]

    def weight(name, end=".weight"):
        _, shape, data = tensors[name + end]
        return np.frombuffer(data, "<f4").astype(np.float64).reshape(shape)

    def own(name, end=".weight"):
        return weight(f"blk.{a.layers}.{name}", end)

    ids, nemotron = golden["prompt_ids"], name == "nemotron_h_moe"
    embed, rows = weight("token_embd"), np.stack([row(i, a.hidden) for i in range(len(ids) - 1)])
    x = np.concatenate([norm(embed[ids[1:]], own("nextn.enorm")), norm(rows, own("nextn.hnorm"))], -1) @ own("nextn.eh_proj").T
    h = norm(x, own("attn_norm"))
    q, k, v = ((h @ own(f"attn_{n}").T).reshape(len(h), -1, a.head_dim) for n in "qkv")
    if not nemotron:
        q, k = rotate(q, a.rope_base), rotate(k, a.rope_base)
    x = x + attend(q, k, v) @ own("attn_output").T
    h = norm(x, own("ffn_norm"))
    x = x + (chosen_experts(h, own, a.top_k, dict(a.f32)["expert_weights_scale"]) if nemotron else swiglu(h, own))
    last, head = (own("nextn.shared_head_norm"), weight("output")) if nemotron else (weight("output_norm"), embed)
    logits = norm(x, last) @ head.T
    scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return {"scores": [round(float(scores[i, t]), 5) for i, t in enumerate(ids[2:])], "logits": [round(float(y), 5) for y in logits[-1]]}


def main():
    with open(os.path.join(HERE, "../model/mtp_alone.json"), "w") as f:
        f.write("{\n" + ",\n".join(f'"{name}": {json.dumps(case(name), separators=(",", ":"))}' for name in CASES) + "\n}\n")


if __name__ == "__main__":
    main()
