"""Writes a checkpoint as GGUF: F32 throughout, or Q8_0 matrices with F32 norms.

    python export.py --work DIR OUT.gguf [--type q8_0|f32]

The file has what a server needs: weights, tokenizer, chat template, and where it comes from. It is the same bytes for the same
checkpoint. Q8_0 as ggml has it: blocks of 32 along a row, a F16 scale d = max|x| / 127, q = round(x / d).
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "tools"))
from gguf_file import CONTROL, F32, NORMAL, Q8_0, Writer  # noqa: E402

import tokenizer as tok  # noqa: E402
from model import Config  # noqa: E402


def q8_0(x):
    """Blocks of (F16 scale, 32 signed bytes)."""
    blocks = x.astype(np.float32).reshape(-1, 32)
    d = (np.abs(blocks).max(1) / np.float32(127)).astype(np.float32)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    scaled = blocks * inverse[:, None]
    q = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))  # halves away from zero, as C's roundf
    out = np.empty(len(blocks), np.dtype([("d", "<f2"), ("q", "i1", 32)]))
    out["d"], out["q"] = d.astype(np.float16), q.astype(np.int8)
    return out.tobytes()


def vocabulary(tokenizer):
    """(tokens, types, merges), by id; the bytes of tokens in GPT-2's letters, which tokenizer.json has, too."""
    j = json.loads(tokenizer.to_str())
    ids = {i: t for t, i in j["model"]["vocab"].items()}
    special = {t["id"] for t in j["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
    tokens = [ids[i] for i in range(len(ids))]
    return tokens, [CONTROL if i in special else NORMAL for i in range(len(ids))], merges


def export(weights, config, tokenizer, path, kind):
    w = Writer()
    w.string("general.architecture", "llama")
    w.string("general.name", "quire-tiny")
    w.string("general.description", "The embedded model of Quire: trained from scratch on text that its own generator writes.")
    w.string("general.license", "apache-2.0")
    w.u32("general.file_type", 7 if kind == "q8_0" else 0)
    w.u32("llama.block_count", config.layers)
    w.u32("llama.context_length", config.context)
    w.u32("llama.embedding_length", config.hidden)
    w.u32("llama.feed_forward_length", config.ffn)
    w.u32("llama.attention.head_count", config.heads)
    w.u32("llama.attention.head_count_kv", config.kv_heads)
    w.u32("llama.attention.key_length", config.head_size)
    w.u32("llama.attention.value_length", config.head_size)
    w.f32("llama.attention.layer_norm_rms_epsilon", config.eps)
    w.f32("llama.rope.freq_base", config.rope_base)
    w.u32("llama.rope.dimension_count", config.head_size)
    w.u32("llama.vocab_size", config.vocab)
    tokens, types, merges = vocabulary(tokenizer)
    w.string("tokenizer.ggml.model", "gpt2")
    w.string("tokenizer.ggml.pre", "qwen2")
    w.strings("tokenizer.ggml.tokens", tokens)
    w.i32s("tokenizer.ggml.token_type", types)
    w.strings("tokenizer.ggml.merges", merges)
    w.u32("tokenizer.ggml.bos_token_id", tokens.index(tok.END_OF_TEXT))
    w.u32("tokenizer.ggml.eos_token_id", tokens.index(tok.IM_END))
    w.u32("tokenizer.ggml.eot_token_id", tokens.index(tok.IM_END))
    w.u32("tokenizer.ggml.padding_token_id", tokens.index(tok.END_OF_TEXT))
    w.bool("tokenizer.ggml.add_bos_token", False)
    with open(os.path.join(HERE, "chat_template.jinja")) as f:
        w.string("tokenizer.chat_template", f.read())
    for name, t in weights.items():
        x = t.detach().float().numpy()
        if x.ndim == 2 and kind == "q8_0":
            w.tensor(name, Q8_0, list(x.shape), lambda x=x: [q8_0(x)])
        else:
            w.tensor(name, F32, list(x.shape), lambda x=x: [x.astype("<f4").tobytes()])
    w.write(path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True)
    p.add_argument("--type", choices=("q8_0", "f32"), default="q8_0")
    p.add_argument("out")
    a = p.parse_args()
    c = torch.load(os.path.join(a.work, "checkpoint.pt"), map_location="cpu", weights_only=True)
    tokenizer = tok.load(os.path.join(a.work, "tokenizer.json"))
    export(c["model"], Config(**c["config"]), tokenizer, a.out, a.type)
    print(f"{a.out}: step {c['step']}, {os.path.getsize(a.out) / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
