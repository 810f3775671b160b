#!/usr/bin/env python3
"""Makes a GGUF model of random weights with a made-up SentencePiece vocabulary, for tests and benchmarks.
With --tokenizers FOLDER the presets of real shapes get the real vocabularies that lie there.

    make_gguf.py tiny.gguf --layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 512 --type q8_0
    make_gguf.py big.gguf --preset llama-1b --type q4_k_m      (the shape of Llama 3.2 1B)
    make_gguf.py qwen.gguf --arch qwen3 --head-dim 32 --rope yarn --rope-original 64

The same arguments give the same bytes. Standard library only. Values are uniform with variance 1/inputs, so that activations
neither vanish nor explode; all types of one shape and seed are roundings of the same values (gguf_quants.py). Matrices of more
than PERIOD values repeat: files of real shapes are made in seconds. Over 600 lines: all architectures' keys and
tensors beside each other.
"""
import argparse
import math
import os
import random
import statistics
import struct
import sys

import folder_quants
import gguf_quants
import make_vocab_gguf
from gguf_file import (BF16, BYTE, CONTROL, F16, F32, IQ4_NL, IQ4_XS, MXFP4, NORMAL, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1,
                       Q5_K, Q6_K, Q8_0, QUANTISED, UNKNOWN, Writer, type_bytes)

TYPES = {"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8_0, "q4_0": Q4_0, "q4_k": Q4_K, "q5_k": Q5_K, "q6_k": Q6_K,
         "q4_1": Q4_1, "q5_0": Q5_0, "q5_1": Q5_1, "q2_k": Q2_K, "q3_k": Q3_K, "iq4_nl": IQ4_NL, "iq4_xs": IQ4_XS,
         "mxfp4": MXFP4, "q4_k_m": Q4_K}  # q4_k_m: Q4_K with some tensors in Q6_K, see mixed()
# general.file_type, which some readers want. Source: ggml's gguf.md
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 11, "q4_k": 14,
              "q4_k_m": 15, "q5_k": 16, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30, "bf16": 32, "mxfp4": 38}
PRESETS = {
    "tiny": {}, "tiny-experts": dict(experts=8),
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, hidden=896, heads=14, kv_heads=2, head_dim=64, ffn=4864, vocab=151936,
                         context=32768, rope_base=1000000.0, tied=True),
    "llama-1b": dict(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256, context=8192,
                     rope="llama3", rope_base=500000.0, rope_factor=32.0, tied=True),
    "llama-8b": dict(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256, context=8192,
                     rope="llama3", rope_base=500000.0, rope_factor=8.0, tied=False),
    "qwen3-30b-a3b": dict(arch="qwen3moe", layers=48, hidden=2048, heads=32, kv_heads=4, head_dim=128, ffn=6144, vocab=151936,
                          context=32768, rope_base=1000000.0, tied=False, experts=128, top_k=8, expert_ffn=768),
    "gpt-oss-20b": dict(arch="gpt-oss", layers=24, hidden=2880, heads=64, kv_heads=8, head_dim=64, ffn=2880, vocab=201088,
                        context=131072, window=128, rope="yarn", rope_base=150000.0, rope_factor=32.0, rope_original=4096, tied=False,
                        experts=32, top_k=4, expert_ffn=2880, expert_type="mxfp4"),
    "deepseek-v2-lite": dict(arch="deepseek2", layers=27, hidden=2048, heads=16, ffn=10944, vocab=102400, context=32768, tied=False,
                             kv_lora=512, nope_dim=128, rope_dim=64, v_dim=128, experts=64, top_k=6, expert_ffn=1408,
                             shared_ffn=2816, dense_layers=1),
    "gemma3-1b": dict(arch="gemma3", layers=26, hidden=1152, heads=4, kv_heads=1, head_dim=256, ffn=6912, vocab=262144,
                      context=32768, window=512, rope_base=1000000.0, tied=True),
    "qwen3.5-0.8b": dict(arch="qwen35", layers=24, hidden=1024, heads=8, kv_heads=2, head_dim=256, rope_dim=64, ffn=3584,
                         vocab=248320, context=32768, rope_base=10000000.0, tied=True, attention=4, states="16,16,128,128", taps=4),
}
LLAMA3 = ["128000=<|begin_of_text|>", "128001=<|end_of_text|>", "128006=<|start_header_id|>",
          "128007=<|end_header_id|>", "128008=<|eom_id|>", "128009=<|eot_id|>"]
LAYER_NORMS = dict(norm_key="layer_norm_epsilon", norm_bias=True)
ARCHS = {  # what their files have beside llama's, or instead
    "llama": {}, "qwen2": dict(bias=True), "qwen3": dict(qk_norm=True), "granite": {}, "minicpm": {}, "smollm3": {}, "internlm2": {},
    "ernie4_5": {}, "seed_oss": dict(ffn_norm="post_attention_norm"), "hunyuan-dense": dict(qk_norm=True), "mistral3": {},
    "phi3": dict(fused=True), "olmo2": dict(qk_norm=True, whole=True, pre_norms=False, post_norms=True),
    "glm4": dict(fused_ffn=True, post_norms=True), "exaone4": dict(qk_norm=True, pre_norms=False, post_norms=True), "gemma": {},
    "gemma4": dict(qk_norm=True, post_norms=True, layers_differ=True), "gemma3n": dict(qk_norm=True, post_norms=True, streams=True),
    "gemma2": dict(post_norms=True), "gemma3": dict(qk_norm=True, post_norms=True), "deepseek2": dict(latent=True), "minicpm3": dict(latent=True),
    "lfm2": dict(qk_norm=True, mix="conv", out_norm="token_embd_norm"), "qwen3moe": dict(qk_norm=True),
    "granitehybrid": dict(mix="ssm"), "falcon-h1": dict(mix="ssm", beside=True),
    "qwen35": dict(qk_norm=True, mix="delta", gate=True, ffn_norm="post_attention_norm"),
    "starcoder2": dict(LAYER_NORMS, ffn_gate=False), "stablelm": dict(LAYER_NORMS),
    "phi2": dict(LAYER_NORMS, ffn_gate=False, one_norm=True, head_bias=True), "gptneox": dict(LAYER_NORMS, ffn_gate=False, fused=True, parallel_key=True),
    "nemotron": dict(LAYER_NORMS, ffn_gate=False), "command-r": dict(norm_key="layer_norm_epsilon", one_norm=True),
    "cohere2": dict(norm_key="layer_norm_epsilon", one_norm=True),
    "qwen2moe": dict(bias=True, shared_gate=True), "olmoe": dict(qk_norm=True, whole=True), "granitemoe": {},
    "glm4moe": dict(ffn_norm="post_attention_norm", select_bias=True), "ernie4_5-moe": dict(select_bias=True),
    "llama4": dict(moe_step=True),
    "gpt-oss": dict(bias=True, out_bias=True, ffn_norm="post_attention_norm", sinks=True, expert_bias=True),
    "hunyuan-moe": dict(qk_norm=True), "dots1": dict(qk_norm=True, select_bias=True),
    "lfm2moe": dict(qk_norm=True, mix="conv", out_norm="token_embd_norm", select_bias=True),
}
ARCHS.update(qwen2vl=ARCHS["qwen2"], qwen3vl=ARCHS["qwen3"], qwen3vlmoe=ARCHS["qwen3"], chatglm={}, arcee=dict(ffn_gate=False))
ARCHS["phimoe"] = dict(norm_bias=True, head_bias=True, bias=True, out_bias=True)
ARCHS["mamba2"] = dict(mix="ssm", alone=True)
ARCHS["nemotron_h"] = dict(mix="ssm", ffn_gate=False, one_part=True)
ARCHS["nemotron_h_moe"] = dict(ARCHS["nemotron_h"], select_bias=True)
ARCHS["qwen35moe"] = dict(ARCHS["qwen35"], shared_gate=True)
ARCHS["qwen3next"] = dict(ARCHS["qwen35moe"], beta_alpha=True)
SIGMOID = ("glm4moe", "dots1", "deepseek2", "lfm2moe", "nemotron_h_moe")  # whose files say how experts are scored
VOCABULARIES = {  # by preset: below the folder of --tokenizers
    "qwen2.5-0.5b": dict(vocab="qwen2/vocab.json", merges="qwen2/merges.txt", pre="qwen2",
                         added="qwen2/added_tokens.json", config="qwen2/tokenizer_config.json"),
    "llama-1b": dict(vocab="ollama-llama3.2/encoder.json", merges="ollama-llama3.2/vocab.bpe", pre="llama-bpe",
                     control=LLAMA3, bos="<|begin_of_text|>", eos="<|eot_id|>"),
}
VOCABULARIES["llama-8b"] = VOCABULARIES["llama-1b"]
VOCABULARIES["qwen3-30b-a3b"] = VOCABULARIES["qwen2.5-0.5b"]
MASK = (1 << 64) - 1
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>"
          "\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def uniform(key, start, n):
    """n numbers in [-1, 1) that depend on key and position only (splitmix64)."""
    out = []
    for i in range(start + 1, start + n + 1):
        z = (i * 0x9E3779B97F4A7C15 + key) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        z ^= z >> 31
        out.append((z >> 40) * 2.0**-23 - 1.0)
    return out


def encode(kind, x):
    """Bytes of the numbers x."""
    raw = struct.pack(f"<{len(x)}f", *x)
    if kind == F32:
        return raw
    f = struct.unpack(f"<{len(x)}f", raw)
    if kind == F16:
        return struct.pack(f"<{len(x)}e", *f)
    if kind == BF16:
        u = struct.unpack(f"<{len(x)}I", raw)
        return struct.pack(f"<{len(x)}H", *((v + 0x7FFF + ((v >> 16) & 1)) >> 16 for v in u))
    return gguf_quants.encode(kind, f)


PERIOD = (1 << 21) - 1  # values; the blocks in it are odd in number, so that rows begin at other ones
PATTERNS = {}  # encoded bytes, by what they depend on


def random_tensor(key, kind, n, scale, centre=0.0):
    """Chunks of the encoded values; of more than PERIOD they are those of one pattern, from a place of their own."""
    def encoded(count):
        return encode(kind, [v * scale + centre for v in uniform(key, 0, count)])

    def repeated():
        block, size = QUANTISED.get(kind) or (1, type_bytes(kind, 1))
        if (kind, scale) not in PATTERNS:
            PATTERNS[kind, scale] = encoded(PERIOD // block * block)
        pattern, left = memoryview(PATTERNS[kind, scale]), type_bytes(kind, n)
        at = key % (PERIOD // block) * size
        while left:
            part = pattern[at : at + left]
            yield part
            left, at = left - len(part), 0

    return repeated if n > PERIOD else lambda: [encoded(n)]


def quantised_tensor(method, key, rows, cols, num, scale):
    """num matrices; chunks.matrices() are those of a folder."""
    n = rows * cols

    def matrices():
        for i in range(num):
            x = uniform(key, i * n, n)
            yield folder_quants.Matrix(method, rows, cols, [v * scale for v in x])

    def chunks():
        return (m.gguf() for m in matrices())

    chunks.matrices = matrices
    return chunks


def mixed(name, layer, num_layers):
    """Whether a Q4_K_M file has this tensor in Q6_K: the head, and attn_v and ffn_down of the first and last eighth of the
    layers and of every third between (llama.cpp, use_more_bits() in src/llama-quant.cpp)."""
    eighth = num_layers // 8
    more = layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2
    return name == "head" or (more and name in ("attn_v", "ffn_down", "ffn_down_exps"))


def vocabulary(size, seed, chatml, control=()):
    """Bytes, single characters, and pieces that merging can reach: each is two earlier ones, as in a trained vocabulary."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    if chatml:
        tokens += [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)]
    tokens += [(name, CONTROL) for name in control]
    tokens += [(f"<0x{b:02X}>", BYTE) for b in range(256)]
    singles = ["▁"] + [chr(c) for c in b"etaoinshrdlucmfwypvbgkqjxz"] + [chr(c) for c in range(33, 127)] + list("éüñ日本語")
    singles = list(dict.fromkeys(singles))
    if size < len(tokens) + 30:
        sys.exit(f"--vocab must be at least {len(tokens) + 30}")
    singles = singles[: size - len(tokens)]
    rng, pieces, seen = random.Random(seed), list(singles), set(singles)
    letters = [c for c in singles if c.isalpha() or c == "▁"]
    while len(tokens) + len(pieces) < size:
        # Small alphabets first, so that text in English letters merges often.
        pool = letters[:27] if rng.random() < 0.5 else pieces
        left, right = rng.choice(pool), rng.choice(letters[1:27] if rng.random() < 0.7 else pieces)
        new = left + right
        if "▁" in right or len(new) > 14 or new in seen or not new.lstrip("▁").isalpha():
            continue
        seen.add(new)
        pieces.append(new)
    scores = [0.0] * len(tokens) + [-float(i) for i in range(len(pieces))]
    return [t for t, _ in tokens] + pieces, [k for _, k in tokens] + [NORMAL] * len(pieces), scores


def parse(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--preset", choices=PRESETS, default="tiny")
    p.add_argument("--arch", choices=ARCHS, default="llama")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--head-dim", type=int, default=0, help="default: hidden / heads")
    p.add_argument("--ffn", type=int, default=128)
    p.add_argument("--vocab", type=int, default=512)
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--type", choices=TYPES, default="f32", help="of the matrices; norms and biases are F32")
    p.add_argument("--expert-type", choices=TYPES, help="of the matrices of experts, if another")
    p.add_argument("--method", choices=folder_quants.METHODS, help="of quantisation of the matrices in layers, as folders have it")
    p.add_argument("--tied", action=argparse.BooleanOptionalAction, default=True, help="the head is the embedding")
    p.add_argument("--bias", action="store_true", help="q, k and v have biases; qwen2 always has them")
    p.add_argument("--out-bias", action="store_true", help="the attention output has a bias")
    p.add_argument("--ffn-bias", action="store_true", help="the feed-forward has biases")
    p.add_argument("--parallel", action="store_true", help="attention and feed-forward run side by side")
    p.add_argument("--one-norm", action="store_true", help="and share a norm")
    p.add_argument("--qk-norm", action="store_true", help="of stablelm and command-r, by weights of each head")
    p.add_argument("--window", type=int, default=0, help="sliding window in tokens")
    p.add_argument("--window-pattern", type=int, default=0, help="of so many layers the last has no window; 0: all have it")
    p.add_argument("--window-dim", type=int, default=0, help="of gemma4: head size of layers with a window")
    p.add_argument("--window-kv", type=int, default=0, help="kv heads of those")
    p.add_argument("--shared-kv", type=int, default=0, help="so many last layers share keys and values; their feed-forward is twice as wide")
    p.add_argument("--layer-embed", type=int, default=0, help="size of the embedding that each layer has of its own")
    p.add_argument("--laurel", type=int, default=16, help="of gemma3n: rank of LAuReL")
    p.add_argument("--sparse", type=int, default=0, help="of gemma3n: so many layers have sparse gates, three of four being 0")
    p.add_argument("--layer-vocab", type=int, default=0, help="of gemma3n: tokens that have an embedding of each layer; default: all")
    p.add_argument("--tied-values", action="store_true", help="layers without a window have no attn_v")
    p.add_argument("--rope", choices=["none", "linear", "yarn", "llama3", "llama3-keys", "longrope"], default="none",
                   help="llama3: as rope_freqs.weight, which is what llama.cpp writes; llama3-keys: as metadata")
    p.add_argument("--rope-base", type=float, default=10000.0)
    p.add_argument("--rope-factor", type=float, default=4.0)
    p.add_argument("--rope-original", type=int, default=0,
                   help="context before scaling; default: 8192 for llama3, else context / factor")
    p.add_argument("--rope-dim", type=int, default=0, help="rotated dimensions; default: all of a head")
    p.add_argument("--sections", metavar="T,H,W", help="pairs that rotate by time, height and width; default: none, in qwen35 a third each")
    p.add_argument("--attention", type=int, default=3, help="of so many layers of a model with recurrent ones the last attends")
    p.add_argument("--pattern", help="of layers that are one part: M recurrent, * attention, - feed-forward")
    p.add_argument("--states", default="4,2,16,16", metavar="H,G,N,P", help="heads and groups of recurrent layers, their states")
    p.add_argument("--taps", type=int, default=3, help="of the convolution of recurrent layers")
    p.add_argument("--experts", type=int, default=0, help="in layers from --dense-layers on")
    p.add_argument("--top-k", type=int, default=2)
    p.add_argument("--expert-ffn", type=int, default=0, help="of one expert; 0: --ffn, and no key says so")
    p.add_argument("--shared-ffn", type=int, default=0, help="of the shared expert")
    p.add_argument("--fused-experts", action="store_true", help="gate and up of each expert are one matrix")
    p.add_argument("--dense-layers", type=int, default=0)
    p.add_argument("--expert-step", type=int, default=1, help="of so many layers the last has experts")
    p.add_argument("--select-bias", action="store_true", help="experts have a bias for the choice; some architectures always have it")
    p.add_argument("--nextn", type=int, default=0, help="MTP layers behind those")
    p.add_argument("--nextn-tables", action="store_true", help="they have an embedding and a head of their own")
    p.add_argument("--u32", action="append", default=[], metavar="KEY=VALUE", help="one more key under the architecture")
    p.add_argument("--kv-lora", type=int, default=32, help="of latent attention, as the next four")
    p.add_argument("--q-lora", type=int, default=0, help="0: queries come from the residual stream")
    p.add_argument("--nope-dim", type=int, default=16)
    p.add_argument("--v-dim", type=int, default=16)
    p.add_argument("--kv-b", action="store_true", help="keys and values of heads are one matrix, as in old files")
    p.add_argument("--f32", action="append", default=[], metavar="KEY=VALUE", help="one more key under the architecture")
    p.add_argument("--general", action="append", default=[], metavar="KEY=VALUE", help="one more key under general: an integer, or F32")
    p.add_argument("--tokenizers", metavar="FOLDER", help="where vocabularies lie, as in the test data")
    p.add_argument("--no-vocab", action="store_true", help="tokens are ids alone")
    p.add_argument("--chatml", action="store_true", help="ChatML tokens and template")
    p.add_argument("--control", action="append", default=[], metavar="NAME", help="one more control token")
    p.add_argument("--seed", type=int, default=1)
    p.set_defaults(**PRESETS[p.parse_known_args(argv)[0].preset])  # explicit arguments still win
    a = p.parse_args(argv)
    a.head_dim = a.head_dim or a.hidden // a.heads
    vars(a).update({"ffn_norm": "ffn_norm", "fused": False, "whole": False, "pre_norms": True, "post_norms": False, "ffn_gate": True,
                    "norm_key": "layer_norm_rms_epsilon", "norm_bias": False, "head_bias": False, "parallel_key": False, "latent": False, "mix": None,
                    "beside": False, "alone": False, "gate": False, "shared_gate": False, "beta_alpha": False, "one_part": False, "sinks": False, "expert_bias": False, "moe_step": False, "layers_differ": False, "streams": False,
                    "out_norm": "output_norm", **ARCHS[a.arch]})
    a.state_heads, a.state_groups, a.state_rows, a.state_columns = map(int, a.states.split(","))
    pairs = (a.rope_dim or a.head_dim) // 2
    thirds = [(pairs + 2 - i) // 3 for i in range(3)] if a.mix == "delta" and not a.beta_alpha else None
    a.sections = [int(n) for n in a.sections.split(",")] if a.sections else thirds
    a.layers = len(a.pattern) if a.one_part else a.layers
    a.attends = [not a.alone and (not a.mix or a.beside or i % a.attention == a.attention - 1) for i in range(a.layers)]
    a.windowed = [a.layers_differ and i % a.window_pattern != a.window_pattern - 1 for i in range(a.layers)]
    a.slides = [i % (a.window_pattern or 5) != (a.window_pattern or 5) - 1 for i in range(a.layers)]  # of gemma3n
    a.recurrent = [a.mix and (a.beside or not attends) for attends in a.attends]
    a.has_ffn = [not a.alone] * a.layers
    if a.one_part:
        a.recurrent, a.attends, a.has_ffn = ([part == kind for part in a.pattern] for kind in "M*-")
    for each, last in ((a.attends, True), (a.windowed, False), (a.slides, False), (a.recurrent, False), (a.has_ffn, True)):
        each += [last] * a.nextn
    a.fused_ffn = a.arch in ("phi3", "glm4", "chatglm")
    llama3 = a.rope in ("llama3", "llama3-keys")
    a.rope_original = a.rope_original or (8192 if llama3 else max(1, int(a.context / a.rope_factor)))
    a.f32 = [(k, float(v)) for k, v in (pair.split("=") for pair in a.f32)]
    a.u32 = {k: int(v) for k, v in (pair.split("=") for pair in a.u32)}
    block = min(32, QUANTISED.get(TYPES[a.type], (1, 0))[0])
    if any(n % block for n in (a.hidden, a.ffn, a.heads * a.head_dim)):
        sys.exit(f"{a.type} needs --hidden, --ffn and heads * head-dim to be multiples of {block}")
    return a


def long_factors(a):
    pairs = range((a.rope_dim or a.head_dim) // 2)
    return [1 + i / 16 for i in pairs], [1 + i / 2 for i in pairs]


def made_up(w, a):
    if a.no_vocab:
        w.string("tokenizer.ggml.model", "no_vocab")
        return
    tokens, kinds, scores = vocabulary(a.vocab, a.seed, a.chatml, a.control)
    w.string("tokenizer.ggml.model", "llama")
    w.strings("tokenizer.ggml.tokens", tokens)
    w.f32s("tokenizer.ggml.scores", scores)
    w.i32s("tokenizer.ggml.token_type", kinds)
    w.u32("tokenizer.ggml.bos_token_id", 1)
    w.u32("tokenizer.ggml.eos_token_id", 2)
    w.u32("tokenizer.ggml.unknown_token_id", 0)
    if a.chatml:
        w.u32("tokenizer.ggml.eot_token_id", tokens.index("<|im_end|>"))
        w.string("tokenizer.chat_template", CHATML)


def differing_keys(w, a):
    """The keys of layers that differ in sizes, as gemma4's do."""
    w.bools(f"{a.arch}.attention.sliding_window_pattern", a.windowed)
    w.u32(f"{a.arch}.attention.key_length_swa", a.window_dim)
    w.u32(f"{a.arch}.attention.value_length_swa", a.window_dim)
    w.u32(f"{a.arch}.rope.dimension_count_swa", a.window_dim)
    w.f32(f"{a.arch}.rope.freq_base_swa", 10000.0)
    w.u32(f"{a.arch}.attention.shared_kv_layers", a.shared_kv)
    w.u32(f"{a.arch}.embedding_length_per_layer_input", a.layer_embed)
    if a.window_kv:
        w.i32s(f"{a.arch}.attention.head_count_kv", [a.window_kv if window else a.kv_heads for window in a.windowed])
    else:
        w.u32(f"{a.arch}.attention.head_count_kv", a.kv_heads)
    if a.shared_kv:
        w.i32s(f"{a.arch}.feed_forward_length", [a.ffn * (1 + (i >= a.layers - a.shared_kv)) for i in range(a.layers)])
    else:
        w.u32(f"{a.arch}.feed_forward_length", a.ffn)


SPARSITY = 0.75  # of gates


def stream_keys(w, a):
    """The keys of gemma3n; the number of layers that share keys and values is a float in published files."""
    w.bools(f"{a.arch}.attention.sliding_window_pattern", a.slides)
    w.f32(f"{a.arch}.attention.shared_kv_layers", a.shared_kv)
    w.u32(f"{a.arch}.embedding_length_per_layer_input", a.layer_embed)
    w.u32(f"{a.arch}.altup.num_inputs", 4)
    w.u32(f"{a.arch}.altup.active_idx", 0)
    cut = statistics.NormalDist().inv_cdf(SPARSITY)
    w.f32s(f"{a.arch}.activation_sparsity_scale", [cut if i < a.sparse else -math.inf for i in range(a.layers)])
    w.u32(f"{a.arch}.attention.head_count_kv", a.kv_heads)


def latent_keys(w, a):
    key, cached = a.nope_dim + a.rope_dim, a.kv_lora + a.rope_dim
    w.u32(f"{a.arch}.attention.head_count_kv", a.heads if a.kv_b else 1)
    w.u32(f"{a.arch}.attention.key_length", key if a.kv_b else cached)
    if a.arch != "minicpm3":  # whose values are as wide as hidden / heads
        w.u32(f"{a.arch}.attention.value_length", a.v_dim if a.kv_b else a.kv_lora)
    if not a.kv_b:
        w.u32(f"{a.arch}.attention.key_length_mla", key)
        w.u32(f"{a.arch}.attention.value_length_mla", a.v_dim)
    w.u32(f"{a.arch}.attention.q_lora_rank", a.q_lora)
    w.u32(f"{a.arch}.attention.kv_lora_rank", a.kv_lora)
    if not a.experts and a.arch == "deepseek2":
        w.u32(f"{a.arch}.leading_dense_block_count", a.layers)
        w.u32(f"{a.arch}.expert_feed_forward_length", a.ffn)
        w.u32(f"{a.arch}.expert_shared_count", 0)


def latent_tensors(a, b, matrix, norm):
    """Those of one layer. Matrices of heads are (heads, rows, columns)."""
    queries = a.heads * (a.nope_dim + a.rope_dim)
    if a.q_lora:
        matrix(b + "attn_q_a.weight", a.q_lora, a.hidden)
        norm(b + "attn_q_a_norm.weight", a.q_lora)
    matrix(b + ("attn_q_b.weight" if a.q_lora else "attn_q.weight"), queries, a.q_lora or a.hidden)
    matrix(b + "attn_kv_a_mqa.weight", a.kv_lora + a.rope_dim, a.hidden)
    norm(b + "attn_kv_a_norm.weight", a.kv_lora)
    if a.kv_b:
        matrix(b + "attn_kv_b.weight", a.heads * (a.nope_dim + a.v_dim), a.kv_lora)
    else:
        matrix(b + "attn_k_b.weight", a.kv_lora, a.nope_dim, stacked=a.heads)
        matrix(b + "attn_v_b.weight", a.v_dim, a.kv_lora, stacked=a.heads)


def main(argv=None, w=None):
    a = parse(argv)
    d, kind = a.head_dim, TYPES[a.type]

    w = w or Writer()
    w.string("general.architecture", a.arch)
    w.string("general.name", "random")
    w.u32("general.file_type", FILE_TYPES[a.type])
    w.u32(f"{a.arch}.block_count", a.layers + a.nextn)
    w.u32(f"{a.arch}.context_length", a.context)
    w.u32(f"{a.arch}.embedding_length", a.hidden)
    if a.one_part:
        w.i32s(f"{a.arch}.feed_forward_length", [(a.expert_ffn or a.ffn) * has for has in a.has_ffn])
    elif a.arch != "qwen35moe" and not a.layers_differ:  # where all layers have experts
        w.u32(f"{a.arch}.feed_forward_length", a.ffn * (not a.alone))
    w.u32(f"{a.arch}.attention.head_count", a.heads * (not a.alone))
    if a.latent:
        latent_keys(w, a)
    elif a.mix == "conv":
        w.i32s(f"{a.arch}.attention.head_count_kv", [a.kv_heads if attends else 0 for attends in a.attends])
        w.u32(f"{a.arch}.shortconv.l_cache", a.taps)
    elif a.mix:
        if a.alone:
            pass
        elif a.mix == "ssm" and not a.beside:
            w.i32s(f"{a.arch}.attention.head_count_kv", [a.kv_heads if attends else 0 for attends in a.attends])
        else:
            w.u32(f"{a.arch}.attention.head_count_kv", a.kv_heads)
        if a.mix == "delta":
            w.u32(f"{a.arch}.full_attention_interval", a.attention)
        w.u32(f"{a.arch}.ssm.conv_kernel", a.taps)
        w.u32(f"{a.arch}.ssm.inner_size", a.state_heads * a.state_columns)
        w.u32(f"{a.arch}.ssm.state_size", a.state_rows)
        w.u32(f"{a.arch}.ssm.time_step_rank", a.state_heads)
        w.u32(f"{a.arch}.ssm.group_count", a.state_groups)
    elif a.layers_differ:
        differing_keys(w, a)
    elif a.streams:
        stream_keys(w, a)
    else:
        w.u32(f"{a.arch}.attention.head_count_kv", a.kv_heads)
    if not a.latent and not a.alone:
        w.u32(f"{a.arch}.attention.key_length", d)
        w.u32(f"{a.arch}.attention.value_length", d)
    w.f32(f"{a.arch}.attention.{a.norm_key}", 1e-5)
    if a.one_part:
        w.f32(f"{a.arch}.attention.layer_norm_epsilon", 1e-5)
    if a.parallel_key:
        w.bool(f"{a.arch}.use_parallel_residual", a.parallel)
    if not a.alone:
        w.u32(f"{a.arch}.rope.dimension_count", a.rope_dim or d)
        w.f32(f"{a.arch}.rope.freq_base", a.rope_base)
    if a.sections:
        w.i32s(f"{a.arch}.rope.dimension_sections", a.sections + [0])
    elif a.arch in ("qwen2vl", "qwen3vl", "qwen3vlmoe"):  # M-RoPE
        w.i32s(f"{a.arch}.rope.dimension_sections", [(d // 2 + 2 - i) // 3 for i in range(3)] + [0])
    w.u32(f"{a.arch}.vocab_size", a.vocab)
    if a.window:
        w.u32(f"{a.arch}.attention.sliding_window", a.window)
    if a.window_pattern and not a.layers_differ and not a.streams:
        w.u32(f"{a.arch}.attention.sliding_window_pattern", a.window_pattern)
    if a.rope == "longrope":
        w.u32(f"{a.arch}.rope.scaling.original_context_length", a.rope_original)
    if a.rope in ("linear", "yarn", "llama3-keys"):
        w.string(f"{a.arch}.rope.scaling.type", a.rope.removesuffix("-keys"))
        w.f32(f"{a.arch}.rope.scaling.factor", a.rope_factor)
        w.u32(f"{a.arch}.rope.scaling.original_context_length", a.rope_original)
    if a.experts:
        w.u32(f"{a.arch}.expert_count", a.experts)
        w.u32(f"{a.arch}.expert_used_count", a.top_k)
    if a.expert_ffn:
        w.u32(f"{a.arch}.expert_feed_forward_length", a.expert_ffn)
    if a.experts and a.arch in SIGMOID:
        if a.shared_ffn:
            w.u32(f"{a.arch}.expert_shared_count", a.shared_ffn // a.expert_ffn)
            a.one_part and w.u32(f"{a.arch}.expert_shared_feed_forward_length", a.shared_ffn)
        if a.arch != "deepseek2" or not a.select_bias:  # old files do not say it
            w.u32(f"{a.arch}.expert_gating_func", 2 if a.select_bias else 1)
        if a.arch != "lfm2moe":
            w.bool(f"{a.arch}.expert_weights_norm", a.select_bias)
    elif a.shared_ffn and a.arch != "llama4":
        w.u32(f"{a.arch}.expert_shared_feed_forward_length", a.shared_ffn)
    if a.expert_step > 1 or a.moe_step:
        w.u32(f"{a.arch}.interleave_moe_layer_step", a.expert_step)
    if a.nextn:
        w.u32(f"{a.arch}.nextn_predict_layers", a.nextn)
    if a.dense_layers:
        w.u32(f"{a.arch}.leading_dense_block_count", a.dense_layers)
    for name, value in a.u32.items():
        w.u32(f"{a.arch}.{name}", value)
    for name, value in a.f32:
        w.f32(f"{a.arch}.{name}", value)
    for name, value in (pair.split("=") for pair in a.general):
        w.u32(f"general.{name}", int(value)) if value.isdigit() else w.f32(f"general.{name}", float(value))
    if a.tokenizers and a.preset in VOCABULARIES:
        real = {k: os.path.join(a.tokenizers, v) if k in ("vocab", "merges", "added", "config") else v
                for k, v in VOCABULARIES[a.preset].items()}
        make_vocab_gguf.add_vocabulary(w, size=a.vocab, **real)
    else:
        made_up(w, a)

    def key():
        return ((a.seed << 32) + len(w.tensors) + 1) * 0xD1342543DE82EF95 & MASK

    def matrix(name, rows, cols, scale=None, layer=0, stacked=0, own=None):
        role = "head" if name == ("token_embd.weight" if a.tied else "output.weight") else name.split(".")[-2]
        k = Q6_K if a.type == "q4_k_m" and mixed(role, layer, a.layers) else kind if own is None else own
        if cols % QUANTISED.get(k, (1, 0))[0]:
            k = Q8_0  # rows that blocks of 256 do not divide
        n, shape, scale = rows * cols * (stacked or 1), [stacked] * (stacked > 0) + [rows, cols], scale or math.sqrt(3 / cols)
        if a.method and name.startswith("blk."):
            kind_of = folder_quants.METHODS[a.method]["kind"]
            w.tensor(name, kind_of, shape, quantised_tensor(a.method, key(), rows, cols, stacked or 1, scale))
            return
        w.tensor(name, k, shape, random_tensor(key(), k, n, scale))

    def norm(name, n, heads=0):
        w.tensor(name, F32, [heads, n] if heads else [n], random_tensor(key(), F32, n * (heads or 1), 0.25, 1.0))
        if a.norm_bias and n == a.hidden and not heads:
            bias(name.replace("weight", "bias"), n)

    def layer_of_experts(b, layer):
        f, s = a.expert_ffn or a.ffn, a.shared_ffn
        n = a.experts * a.hidden
        own = a.arch == "gemma4"  # a router whose logits are divided by sqrt(hidden), and norms of all that takes part
        w.tensor(b + "ffn_gate_inp.weight", F32, [a.experts, a.hidden], random_tensor(key(), F32, n, 3 if own else 3 / math.sqrt(a.hidden)))
        for name in ("ffn_gate_inp.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight") * own:
            norm(b + name, a.hidden)
        if own:
            vector(b + "ffn_down_exps.scale", a.experts, 0.5, 1.0)
        if a.expert_bias:
            bias(b + "ffn_gate_inp.bias", a.experts)
        if a.select_bias:
            # Not below 0: transformers gives the experts of other groups a score of 0, others leave them out.
            w.tensor(b + "exp_probs_b.bias", F32, [a.experts], random_tensor(key(), F32, a.experts, 0.25, 0.25))
        if a.shared_gate:
            w.tensor(b + "ffn_gate_inp_shexp.weight", F32, [a.hidden], random_tensor(key(), F32, a.hidden, 3 / math.sqrt(a.hidden)))
        parts = ("ffn_gate",) * a.ffn_gate + ("ffn_up", "ffn_down")
        for name, rows, cols in ((n, a.hidden, s) if n == "ffn_down" else (n, s, a.hidden) for n in parts * (s > 0)):
            matrix(b + f"{name}_shexp.weight", rows, cols, layer=layer)
        parts = ("ffn_gate_up", "ffn_down") if a.fused_experts else parts
        for name, rows, cols in ((n, a.hidden, f) if n == "ffn_down" else (n, f * (1 + a.fused_experts), a.hidden) for n in parts):
            matrix(b + f"{name}_exps.weight", rows, cols, layer=layer, stacked=a.experts, own=TYPES.get(a.expert_type))
            if a.expert_bias:
                w.tensor(b + f"{name}_exps.bias", F32, [a.experts, rows], random_tensor(key(), F32, a.experts * rows, 0.5))

    def bias(name, n):
        w.tensor(name, F32, [n], random_tensor(key(), F32, n, 0.5))

    def vector(name, n, scale, centre):
        w.tensor(name, F32, [n], random_tensor(key(), F32, n, scale, centre))

    def column(name, n, scale, centre):
        w.tensor(name, F32, [n, 1], random_tensor(key(), F32, n, scale, centre))

    def conv(name, channels):
        w.tensor(name, F32, [channels, a.taps], random_tensor(key(), F32, channels * a.taps, 1.0))

    # A tied embedding is also the head: small enough that its logits do not drown everything.
    matrix("token_embd.weight", a.vocab, a.hidden, math.sqrt(3 / a.hidden) * 2)
    norm(a.out_norm + ".weight", a.hidden)
    if not a.tied:
        matrix("output.weight", a.vocab, a.hidden, math.sqrt(3 / a.hidden) * 2)
    if a.head_bias:
        bias("output.bias", a.vocab)
    if a.rope == "llama3":
        half, low, high, old = (a.rope_dim or d) // 2, 1.0, 4.0, a.rope_original
        factors = []
        for i in range(half):
            turns = old * a.rope_base ** (-i / half) / (2 * math.pi)
            smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
            factors.append(1 / ((1 - smooth) / a.rope_factor + smooth))
        w.tensor("rope_freqs.weight", F32, [half], lambda: [struct.pack(f"<{half}f", *factors)])
    if a.layers_differ:  # a quarter of each head rotates
        factors = [1.0] * (d // 8) + [1e30] * (d // 2 - d // 8)
        w.tensor("rope_freqs.weight", F32, [d // 2], lambda f=factors: [struct.pack(f"<{len(f)}f", *f)])
    if a.layer_embed:
        matrix("per_layer_token_embd.weight", a.layer_vocab or a.vocab, a.layers * a.layer_embed)
        matrix("per_layer_model_proj.weight", a.layers * a.layer_embed, a.hidden)
        norm("per_layer_proj_norm.weight", a.layer_embed)
    exact = kind if kind in (F32, F16, BF16) else F32
    if a.streams:
        matrix("altup_proj.weight", a.hidden, a.hidden, stacked=3, own=exact)
        matrix("altup_unembd_proj.weight", a.hidden, a.hidden, stacked=3, own=exact)
    if a.rope == "longrope":
        for name, factors in zip(("short", "long"), long_factors(a)):
            w.tensor(f"rope_factors_{name}.weight", F32, [len(factors)], lambda f=factors: [struct.pack(f"<{len(f)}f", *f)])
    for i in range(a.layers + a.nextn):
        b = f"blk.{i}."
        d = a.window_dim if a.windowed[i] else a.head_dim
        kv_heads = a.window_kv or a.kv_heads if a.windowed[i] else a.kv_heads
        ffn = a.ffn * (1 + (a.layers_differ and i >= a.layers - a.shared_kv))
        if a.streams:
            matrix(b + "altup_router.weight", 4, a.hidden, math.sqrt(3 * a.hidden), own=exact)
            norm(b + "altup_router_norm.weight", a.hidden)
            matrix(b + "altup_predict_coef.weight", 16, 4, 0.4, own=F32)
            matrix(b + "altup_correct_coef.weight", 4, 4, 0.4, own=F32)
            norm(b + "altup_correct_scale.weight", a.hidden)
            matrix(b + "laurel_l.weight", a.laurel, a.hidden, own=exact)
            matrix(b + "laurel_r.weight", a.hidden, a.laurel, own=exact)
            norm(b + "laurel_post_norm.weight", a.hidden)
        if a.pre_norms:
            norm(b + "attn_norm.weight", a.hidden)
        values, keys = a.state_heads * a.state_columns, a.state_groups * a.state_rows
        if a.recurrent[i] and a.mix == "delta":
            matrix(b + "attn_qkv.weight", 2 * keys + values, a.hidden)
            matrix(b + "attn_gate.weight", values, a.hidden)
            if a.beta_alpha:
                matrix(b + "ssm_ba.weight", 2 * a.state_heads, a.hidden)
            else:
                matrix(b + "ssm_beta.weight", a.state_heads, a.hidden)
                matrix(b + "ssm_alpha.weight", a.state_heads, a.hidden)
            conv(b + "ssm_conv1d.weight", 2 * keys + values)
            vector(b + "ssm_a", a.state_heads, 0.4, -0.5)
            bias(b + "ssm_dt.bias", a.state_heads)
            norm(b + "ssm_norm.weight", a.state_columns)
            matrix(b + "ssm_out.weight", a.hidden, values)
        elif a.recurrent[i] and a.mix == "ssm":
            matrix(b + "ssm_in.weight", 2 * values + 2 * keys + a.state_heads, a.hidden)
            conv(b + "ssm_conv1d.weight", values + 2 * keys)
            bias(b + "ssm_conv1d.bias", values + 2 * keys)
            column(b + "ssm_a", a.state_heads, 0.4, -0.5)
            bias(b + "ssm_dt.bias", a.state_heads)
            column(b + "ssm_d", a.state_heads, 0.5, 1)
            if not a.beside:
                w.tensor(b + "ssm_norm.weight", F32, [a.state_groups, values // a.state_groups],
                         random_tensor(key(), F32, values, 0.25, 1.0))
            matrix(b + "ssm_out.weight", a.hidden, values)
        if a.recurrent[i] and a.mix == "conv":
            matrix(b + "shortconv.in_proj.weight", 3 * a.hidden, a.hidden)
            conv(b + "shortconv.conv.weight", a.hidden)
            matrix(b + "shortconv.out_proj.weight", a.hidden, a.hidden)
        if a.attends[i]:
            if a.latent:
                latent_tensors(a, b, matrix, norm)
            elif a.fused:
                matrix(b + "attn_qkv.weight", (a.heads + 2 * a.kv_heads) * d, a.hidden)
            else:
                matrix(b + "attn_q.weight", a.heads * d * (2 if a.gate else 1), a.hidden)
                matrix(b + "attn_k.weight", kv_heads * d, a.hidden)
                if not a.tied_values or a.windowed[i]:
                    matrix(b + "attn_v.weight", kv_heads * d, a.hidden, layer=i)
            if a.bias:
                if a.fused:
                    bias(b + "attn_qkv.bias", (a.heads + 2 * a.kv_heads) * d)
                else:
                    bias(b + "attn_q.bias", a.heads * d)
                    bias(b + "attn_k.bias", a.kv_heads * d)
                    bias(b + "attn_v.bias", a.kv_heads * d)
            if a.qk_norm:
                each = a.arch in ("stablelm", "command-r")
                norm(b + "attn_q_norm.weight", d * (a.heads if a.whole else 1), a.heads if each else 0)
                norm(b + "attn_k_norm.weight", d * (a.kv_heads if a.whole else 1), a.kv_heads if each else 0)
            if a.sinks:
                vector(b + "attn_sinks.weight", a.heads, 2, 3)
            matrix(b + "attn_output.weight", a.hidden, a.heads * (a.v_dim if a.latent else d))
            if a.out_bias:
                bias(b + "attn_output.bias", a.hidden)
        if not a.has_ffn[i]:
            continue
        if a.pre_norms and not a.one_norm and (not a.one_part or i >= a.layers):
            norm(b + a.ffn_norm + ("" if a.arch == "falcon-h1" else ".weight"), a.hidden)
        if a.post_norms:
            norm(b + "post_attention_norm.weight", a.hidden)
            norm(b + "post_ffw_norm.weight", a.hidden)
        if a.layer_embed:
            matrix(b + "inp_gate.weight", a.layer_embed, a.hidden)
            matrix(b + "proj.weight", a.hidden, a.layer_embed)
            norm(b + "post_norm.weight", a.hidden)
        if a.layers_differ:
            vector(b + "layer_output_scale.weight", 1, 0.25, 1.0)
        if a.experts and i >= a.dense_layers and (i + 1) % a.expert_step == 0:
            layer_of_experts(b, i)
            if a.arch != "gemma4":  # whose dense feed-forward runs beside them
                continue
        if a.ffn_gate and not a.fused_ffn:
            matrix(b + "ffn_gate.weight", ffn, a.hidden)
        matrix(b + "ffn_up.weight", ffn * (2 if a.fused_ffn else 1), a.hidden)
        matrix(b + "ffn_down.weight", a.hidden, ffn, layer=i)
        if a.ffn_bias:
            bias(b + "ffn_up.bias", a.ffn)
            bias(b + "ffn_down.bias", a.hidden)
    for i in range(a.layers, a.layers + a.nextn):
        for name in ("enorm", "hnorm") + (() if a.arch == "ernie4_5-moe" else ("shared_head_norm",)):
            norm(f"blk.{i}.nextn.{name}.weight", a.hidden)
        matrix(f"blk.{i}.nextn.eh_proj.weight", a.hidden, 2 * a.hidden)
        if a.nextn_tables:
            matrix(f"blk.{i}.nextn.embed_tokens.weight", a.vocab, a.hidden, math.sqrt(3 / a.hidden) * 2)
            matrix(f"blk.{i}.nextn.shared_head_head.weight", a.vocab, a.hidden, math.sqrt(3 / a.hidden) * 2)
    w.write(a.out)


if __name__ == "__main__":
    main()
