#!/usr/bin/env python3
"""Converts a llama2.c checkpoint (version 0 or 1, F32) and its tokenizer.bin to a GGUF file in F32.

    llama2c_to_gguf.py model.bin tokenizer.bin out.gguf [--name NAME]

llama2.c rotates pairs (2i, 2i+1), as GGUF's `llama` does, so nothing is permuted. Standard library only.
"""
import argparse
import re
import struct
import sys

from gguf_file import BYTE, CONTROL, F32, NORMAL, UNKNOWN, Writer


def read_model(path):
    """(config, {name: bytes}); names as in GGUF."""
    data = open(path, "rb").read()
    magic, version = struct.unpack_from("<Ii", data)
    v1 = magic == 0x616B3432
    if v1 and version != 1:
        sys.exit(f"{path}: llama2.c version {version} at byte 4, expected 0 or 1 (F32)")
    dim, ffn, layers, heads, kv_heads, vocab, context = struct.unpack_from("<7i", data, 8 if v1 else 0)
    shared = data[36] == 1 if v1 else vocab > 0
    vocab = abs(vocab)
    c = dict(dim=dim, ffn=ffn, layers=layers, heads=heads, kv_heads=kv_heads, vocab=vocab, context=context)
    if not all(0 < v < 1 << 24 for v in c.values()) or dim % heads or heads % kv_heads:
        sys.exit(f"{path}: not a llama2.c checkpoint: {c}")
    d = dim // heads
    per_layer = {
        "attn_norm": (dim,), "attn_q": (heads * d, dim), "attn_k": (kv_heads * d, dim), "attn_v": (kv_heads * d, dim),
        "attn_output": (dim, heads * d), "ffn_norm": (dim,), "ffn_gate": (ffn, dim), "ffn_down": (dim, ffn),
        "ffn_up": (ffn, dim),
    }
    qkvo = ["attn_q", "attn_k", "attn_v", "attn_output"]
    mlp = ["ffn_gate", "ffn_down", "ffn_up"]
    if v1:
        order = ["attn_norm", "ffn_norm", "output_norm", "token_embd"] + qkvo + mlp
    else:
        order = ["token_embd", "attn_norm"] + qkvo + ["ffn_norm"] + mlp + ["output_norm", "rope", "rope"]
    if not shared:
        order.append("output")
    single = {"token_embd": (vocab, dim), "output": (vocab, dim), "output_norm": (dim,), "rope": (context, d // 2)}
    at, tensors = 256 if v1 else 28, {}

    def take(name, shape):
        nonlocal at
        size = 4
        for n in shape:
            size *= n
        if at + size > len(data):
            sys.exit(f"{path}: ends at byte {len(data)}, {name} expected to {at + size}")
        tensors[name] = (shape, data[at : at + size])
        at += size

    for name in order:
        if name in single:
            take(name + ".weight", single[name])
        else:
            for i in range(layers):
                take(f"blk.{i}.{name}.weight", per_layer[name])
    tensors.pop("rope.weight", None)
    if at != len(data):
        sys.exit(f"{path}: {len(data) - at} bytes too many")
    return c, tensors


def read_tokens(path, vocab):
    data = open(path, "rb").read()
    at, tokens, kinds, scores = 4, [], [], []
    for i in range(vocab):
        score, size = struct.unpack_from("<fi", data, at)
        text = data[at + 8 : at + 8 + size]
        at += 8 + size
        if i < 3:
            text, kind = [b"<unk>", b"<s>", b"</s>"][i], [UNKNOWN, CONTROL, CONTROL][i]
        elif re.fullmatch(rb"<0x[0-9A-F]{2}>", text):
            kind = BYTE
        else:
            text, kind = text.replace(b" ", "▁".encode()), NORMAL
        tokens.append(text)
        kinds.append(kind)
        scores.append(score)
    return tokens, kinds, scores


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("tokenizer")
    p.add_argument("out")
    p.add_argument("--name", default="llama2.c")
    a = p.parse_args()
    c, tensors = read_model(a.model)
    tokens, kinds, scores = read_tokens(a.tokenizer, c["vocab"])
    w = Writer()
    w.string("general.architecture", "llama")
    w.string("general.name", a.name)
    w.u32("llama.block_count", c["layers"])
    w.u32("llama.context_length", c["context"])
    w.u32("llama.embedding_length", c["dim"])
    w.u32("llama.feed_forward_length", c["ffn"])
    w.u32("llama.attention.head_count", c["heads"])
    w.u32("llama.attention.head_count_kv", c["kv_heads"])
    w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    w.u32("llama.rope.dimension_count", c["dim"] // c["heads"])
    w.string("tokenizer.ggml.model", "llama")
    w.strings("tokenizer.ggml.tokens", tokens)
    w.f32s("tokenizer.ggml.scores", scores)
    w.i32s("tokenizer.ggml.token_type", kinds)
    w.u32("tokenizer.ggml.bos_token_id", 1)
    w.u32("tokenizer.ggml.eos_token_id", 2)
    w.u32("tokenizer.ggml.unknown_token_id", 0)
    for name, (shape, data) in tensors.items():
        w.tensor(name, F32, list(shape), lambda data=data: [data])
    w.write(a.out)


if __name__ == "__main__":
    main()
