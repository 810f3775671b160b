#!/usr/bin/env python3
"""The random models of make_gguf.py as Hugging Face folders, with the same weights: config.json, model.safetensors (or
shards and an index), tokenizer.json, tokenizer_config.json, generation_config.json. Over 600 lines: one row a family.

    make_folder.py tiny --arch qwen3 --type bf16 [--shards 3] [--chatml] [any argument of make_gguf.py]

Names, row orders and keys are those of transformers' save_pretrained(), written down here a second time, apart from the
loader: transformers loads the folders and computes the goldens' logits (make_goldens.py). Standard library only.
"""
import json
import math
import os
import struct
import sys

import folder_quants
import make_gguf
from gguf_file import BF16, F16, F32

DTYPES = {F32: ("F32", 4), F16: ("F16", 2), BF16: ("BF16", 2)}
PERMUTED = ("llama", "granite", "granitemoe", "granitehybrid", "minicpm", "smollm3", "internlm2", "mistral3", "arcee")  # GGUF has pairs of q and k adjacent
TYPES = {"mistral3": "mistral", "qwen3moe": "qwen3_moe", "hunyuan-dense": "hunyuan_v1_dense", "gemma3": "gemma3_text", "gemma4": "gemma4_text", "gemma3n": "gemma3n_text", "gpt-oss": "gpt_oss",
         "qwen2moe": "qwen2_moe", "glm4moe": "glm4_moe", "ernie4_5-moe": "ernie4_5_moe", "hunyuan-moe": "hunyuan_v1_moe", "phi2": "phi",
         "command-r": "cohere", "gptneox": "gpt_neox", "falcon-h1": "falcon_h1", "qwen35": "qwen3_5_text", "granitehybrid": "granitemoehybrid",
         "llama4": "llama4_text", "lfm2moe": "lfm2_moe", "qwen35moe": "qwen3_5_moe_text", "qwen3next": "qwen3_next",
         "nemotron_h_moe": "nemotron_h"}  # model_type, if not the arch
LAYER = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
         "ffn_gate_exps": "mlp.experts.#.gate_proj", "ffn_up_exps": "mlp.experts.#.up_proj", "ffn_down_exps": "mlp.experts.#.down_proj"}
MIXTRAL = {"ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.#.w1",
           "ffn_up_exps": "block_sparse_moe.experts.#.w3", "ffn_down_exps": "block_sparse_moe.experts.#.w2"}
POST = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
        "ffn_norm": "pre_feedforward_layernorm"}


def SHARED(mlp):
    return {f"ffn_{part}_shexp": f"mlp.{mlp}.{part}_proj" for part in ("gate", "up", "down")}


MAMBA = {"ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d", "ssm_a": "mamba.A_log", "ssm_d": "mamba.D", "ssm_dt": "mamba.dt_bias",
         "ssm_norm": "mamba.norm", "ssm_out": "mamba.out_proj"}
DELTA = {"attn_qkv": "in_proj_qkv", "attn_gate": "in_proj_z", "ssm_beta": "in_proj_b", "ssm_alpha": "in_proj_a", "ssm_conv1d": "conv1d",
         "ssm_a": "A_log", "ssm_dt": "dt_bias", "ssm_norm": "norm", "ssm_out": "out_proj"}
QWEN35 = {"post_attention_norm": "post_attention_layernorm", **{ours: f"linear_attn.{name}" for ours, name in DELTA.items()}}
GRANITE = {"ffn_up_exps": "", "ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_gate_exps": "block_sparse_moe.input_linear", "ffn_up_shexp": "",
           "ffn_down_exps": "block_sparse_moe.output_linear", "ffn_gate_shexp": "shared_mlp.input_linear", "ffn_down_shexp": "shared_mlp.output_linear"}
LFM2 = {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj", "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm", "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3",
        "ffn_down": "feed_forward.w2", "in_proj": "conv.in_proj", "conv": "conv.conv", "out_proj": "conv.out_proj"}
SHARED_EXPERT = {"ffn_gate_inp_shexp": "mlp.shared_expert_gate", **SHARED("shared_expert")}
LATENT = {"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
          "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b": "self_attn.kv_b_proj"}
NEMOTRON_H = {"attn_norm": "norm", **{f"attn_{part}": f"mixer.{part}_proj" for part in "qkv"}, "attn_output": "mixer.o_proj",
              "ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj", **{ours: name.replace("mamba", "mixer") for ours, name in MAMBA.items()}}
LAYERS = {
    "minicpm3": LATENT, "nemotron_h": NEMOTRON_H,
    "nemotron_h_moe": {**NEMOTRON_H, "ffn_gate_inp": "mixer.gate", "exp_probs_b": "mixer.gate.e_score_correction_bias",
                       **{f"ffn_{p}_exps": f"mixer.experts.#.{p}_proj" for p in ("up", "down")},
                       **{f"ffn_{p}_shexp": f"mixer.shared_experts.{p}_proj" for p in ("up", "down")}},
    "qwen35": QWEN35, "qwen35moe": {**QWEN35, **SHARED_EXPERT},
    "qwen3next": {**QWEN35, **SHARED_EXPERT, "ssm_ba": "linear_attn.in_proj_ba"},
    "llama4": {"ffn_gate_inp": "feed_forward.router", **{f"ffn_{p}": f"feed_forward.{p}_proj" for p in ("gate", "up", "down")},
               **{f"ffn_{p}_shexp": f"feed_forward.shared_expert.{p}_proj" for p in ("gate", "up", "down")}},
    "deepseek2": {**LATENT, "attn_v_b": "self_attn.kv_b_proj", "exp_probs_b": "mlp.gate.e_score_correction_bias",
                  **SHARED("shared_experts")},
    "lfm2moe": {**LFM2, "ffn_gate_inp": "feed_forward.gate", "exp_probs_b": "feed_forward.expert_bias",
                **{f"ffn_{p}_exps": f"feed_forward.experts.#.{w}" for p, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))}},
    "internlm2": {"attn_norm": "attention_norm", "ffn_norm": "ffn_norm", "attn_output": "attention.wo", "ffn_gate": "feed_forward.w1",
                  "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2"},
    "seed_oss": {"post_attention_norm": "post_attention_layernorm"},
    "hunyuan-dense": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "glm4": {"ffn_up": "mlp.gate_up_proj", "post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"},
    "gpt-oss": {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router", "attn_sinks": "self_attn.sinks"},
    "qwen2moe": SHARED_EXPERT,
    "glm4moe": {"post_attention_norm": "post_attention_layernorm", "exp_probs_b": "mlp.gate.e_score_correction_bias", **SHARED("shared_experts")},
    "dots1": {"exp_probs_b": "mlp.gate.e_score_correction_bias", **SHARED("shared_experts")},
    "ernie4_5-moe": {"exp_probs_b": "mlp.moe_statics.e_score_correction_bias", **SHARED("shared_experts")},
    "hunyuan-moe": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm", "ffn_gate_inp": "mlp.gate.wg",
                    **SHARED("shared_mlp")},
    "starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    "stablelm": {"attn_q_norm": "self_attn.q_layernorm.norms.#", "attn_k_norm": "self_attn.k_layernorm.norms.#"},
    "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    "lfm2": LFM2, "granitemoe": GRANITE,
    "gptneox": {"attn_qkv": "attention.query_key_value", "attn_output": "attention.dense", "ffn_up": "mlp.dense_h_to_4h",
                "ffn_down": "mlp.dense_4h_to_h"},
    "granitehybrid": {**GRANITE, **MAMBA, "ffn_gate": "shared_mlp.input_linear", "ffn_down": "shared_mlp.output_linear"},
    "falcon-h1": {**MAMBA, "ffn_norm": "pre_ff_layernorm", "ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj",
                  "ffn_down": "feed_forward.down_proj"},
    "gemma3n": {**POST, "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
                "altup_router": "altup.modality_router", "altup_router_norm": "altup.router_norm", "altup_predict_coef": "altup.prediction_coefs",
                "altup_correct_coef": "altup.correction_coefs", "altup_correct_scale": "altup.correct_output_scale",
                "laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right", "laurel_post_norm": "laurel.post_laurel_norm"},
    "olmo2": POST, "exaone4": POST, "gemma2": POST, "gemma3": POST,
    "gemma4": {**POST, "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
               "layer_output_scale": "layer_scalar", "ffn_gate_inp": "router.proj", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
               "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2",
               "ffn_gate_up_exps": "experts.gate_up_proj", "ffn_down_exps": "experts.down_proj"},
}
ARCHS = ("llama", "qwen2", "qwen3", "granite", "minicpm", "smollm3", "internlm2", "ernie4_5", "seed_oss", "hunyuan-dense", "mistral3", "phi3",
         "phimoe", "olmo2", "glm4", "exaone4", "gemma", "gemma2", "gemma3", "gemma4", "gemma3n", "qwen3moe", "gpt-oss",
         "qwen2moe", "olmoe", "glm4moe", "dots1", "ernie4_5-moe", "hunyuan-moe", "starcoder2", "stablelm", "phi2", "nemotron", "command-r", "cohere2",
         "lfm2", "granitemoe", "gptneox", "falcon-h1", "granitehybrid", "qwen35", "llama4", "deepseek2", "lfm2moe", "qwen35moe",
         "qwen3next", "nemotron_h", "nemotron_h_moe", "minicpm3")  # of make_gguf.py, of which there are folders
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PER_LAYER = {"per_layer_token_embd": "model.embed_tokens_per_layer", "per_layer_model_proj": "model.per_layer_model_projection",
             "per_layer_proj_norm": "model.per_layer_projection_norm"}
WHOLES = {"internlm2": {"token_embd": "model.tok_embeddings", "output": "output"}, "phi2": {"output_norm": "model.final_layernorm"},
          "gptneox": {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"},
          "gemma4": PER_LAYER, "gemma3n": {**PER_LAYER, "altup_proj": "model.altup_projections.#", "altup_unembd_proj": "model.altup_unembed_projections.#"},
          "falcon-h1": {"output_norm": "model.final_layernorm"}, "lfm2": {"token_embd_norm": "model.embedding_norm"},
          "lfm2moe": {"token_embd_norm": "model.embedding_norm"},
          **dict.fromkeys(("nemotron_h", "nemotron_h_moe"), {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f"})}
LAYER_NORMS = {"starcoder2": "norm_epsilon", "stablelm": "layer_norm_eps", "phi2": "layer_norm_eps", "nemotron": "norm_eps",
               "command-r": "layer_norm_eps", "cohere2": "layer_norm_eps", "gptneox": "layer_norm_eps"}  # which say their epsilon otherwise


class Tensors:
    """Stands in for gguf_file.Writer: keeps the tensors, leaves the keys."""

    def __init__(self):
        self.tensors = []

    def __getattr__(self, name):
        return lambda *arguments: None

    def tensor(self, name, kind, shape, chunks):
        self.tensors.append((name, kind, shape, chunks))


def order_apart(rows, head_dim):
    """Rows of adjacent pairs to the halves of each head."""
    return [h + (i % (head_dim // 2)) * 2 + i // (head_dim // 2) for h in range(0, rows, head_dim) for i in range(head_dim)]


def rows_apart(data, rows, head_dim):
    size = len(data) // rows
    return b"".join(data[r * size : (r + 1) * size] for r in order_apart(rows, head_dim))


def less_one(data):
    n = len(data) // 4
    return struct.pack(f"<{n}f", *(v - 1 for v in struct.unpack(f"<{n}f", data)))


ERNIE_MTP = {"eh_proj": "mtp_linear_proj", "enorm": "mtp_emb_norm", "hnorm": "mtp_hidden_norm"}
MTP = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "shared_head_norm": "norm"}


def theirs(a, name):
    """(name in the folder, what GGUF calls it)"""
    parts = name.split(".")
    if parts[0] != "blk":
        whole = {**WHOLE, **WHOLES.get(a.arch, {})}
        return f"{whole[parts[0]]}.{parts[1]}", parts[0]
    apart = a.mix == "delta" and int(parts[1]) >= a.layers  # Qwen's MTP layer
    ernie = a.arch == "ernie4_5-moe" and int(parts[1]) >= a.layers
    two = a.one_part and int(parts[1]) >= a.layers  # Nemotron 3's, which is two of one part
    if two and parts[2] == "nextn":
        return f"mtp.layers.{'1.final_layernorm' if parts[3] == 'shared_head_norm' else '0.' + parts[3]}.weight", parts[3]
    if two and parts[2] == "ffn_norm":
        return "mtp.layers.1.norm.weight", "ffn_norm"
    if parts[2] == "nextn" and ernie:
        return f"model.{ERNIE_MTP[parts[3]]}.0.weight", parts[3]
    if parts[2] == "nextn":
        return (f"mtp.{MTP[parts[3]]}" if apart else f"model.layers.{parts[1]}.{parts[3].replace('head_', 'head.')}") + ".weight", parts[3]
    role = parts[2] if parts[2] in ("ssm_a", "ssm_d") or len(parts) == 3 else parts[-2]
    bare = role in ("exp_probs_b", "ssm_a", "ssm_d", "ssm_dt", "layer_output_scale")
    base = {**LAYER, **LAYERS.get(a.arch, MIXTRAL if a.arch in ("llama", "phimoe") else {})}[role]
    prefix = "gpt_neox" if a.arch == "gptneox" else "backbone" if a.one_part else "model"
    if two:
        apart, layer = True, int(not role.startswith("attn_"))
    layer = f"mtp.layers.{layer if two else 0}" if apart else "model.mtp_block.0" if ernie else f"{prefix}.layers.{parts[1]}"
    return f"{layer}.{base}" + ("" if bare else ".weight" if len(parts) == 3 else f".{parts[-1]}"), role


def in_turns(parts, size):
    """Rows of so many bytes of each in turns."""
    rows = [[p[i : i + size] for i in range(0, len(p), size)] for p in parts]
    return b"".join(row for turn in zip(*rows) for row in turn)


def mxfp4_apart(data):
    """Exponents, and blocks whose bytes hold elements 2i and 2i + 1; GGUF's hold i and i + 16 behind the exponent."""
    blocks = bytearray()
    for at in range(0, len(data), 17):
        q = data[at + 1 : at + 17]
        e = [v & 15 for v in q] + [v >> 4 for v in q]
        blocks += bytes(e[i] | e[i + 1] << 4 for i in range(0, 32, 2))
    return data[::17], bytes(blocks)


def gpt_oss_experts(a, layer, held):
    """Those of MXFP4, gate and up in turns: what `held` has of a layer by GGUF's names."""
    base, f, d = f"model.layers.{layer}.mlp.experts.", a.expert_ffn, a.hidden
    for name, parts, rows, cols in ("gate_up_proj", ("gate", "up"), 2 * f, d), ("down_proj", ("down",), d, f):
        weights = in_turns([held[f"ffn_{p}_exps.weight"] for p in parts], cols // 32 * 17)
        scales, blocks = mxfp4_apart(weights)
        yield base + name + "_blocks", "U8", [a.experts, rows, cols // 32, 16], blocks
        yield base + name + "_scales", "U8", [a.experts, rows, cols // 32], scales
        yield base + name + "_bias", F32, [a.experts, rows], in_turns([held[f"ffn_{p}_exps.bias"] for p in parts], 4)


def quantised(a, name, shape, chunks):
    new, role = theirs(a, name)
    order = order_apart(shape[0], a.head_dim) if a.arch in PERMUTED and role in ("attn_q", "attn_k") else range(shape[-2])
    for e, matrix in enumerate(chunks.matrices()):
        for end, kind, of, data in matrix.parts(order):
            yield new.replace("#", str(e)).removesuffix(".weight") + end, kind, of, data


def turned(data, matrices, rows, cols):
    """Matrices of four bytes an element, by columns."""
    size = rows * cols
    values = struct.unpack(f"<{matrices * size}I", data)
    return struct.pack(f"<{matrices * size}I", *(values[m * size + r * cols + c] for m in range(matrices) for c in range(cols) for r in range(rows)))


def joined(parts, matrices):
    """The bytes of all parts, matrix by matrix."""
    sizes = [len(p) // matrices for p in parts]
    return b"".join(p[m * size : (m + 1) * size] for m in range(matrices) for p, size in zip(parts, sizes))


def float_experts(a, layer, held):
    """Experts as one: gpt-oss and Llama 4 have them by columns, gate and up of gpt-oss in turns."""
    n, f, d = a.experts, a.expert_ffn, a.hidden
    oss, by_columns = a.arch == "gpt-oss", a.arch != "qwen35moe"
    base = f"model.layers.{layer}.{'feed_forward' if a.arch == 'llama4' else 'mlp'}.experts."
    pair = [held[f"ffn_{p}_exps.weight"] for p in ("gate", "up")]
    both = in_turns(pair, 4 * d) if oss else joined(pair, n)
    down = held["ffn_down_exps.weight"]
    yield base + "gate_up_proj", F32, [n, d, 2 * f] if by_columns else [n, 2 * f, d], turned(both, n, 2 * f, d) if by_columns else both
    yield base + "down_proj", F32, [n, f, d] if by_columns else [n, d, f], turned(down, n, d, f) if by_columns else down
    for name, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))) if oss else ():
        data = in_turns([held[f"ffn_{p}_exps.bias"] for p in parts], 4)
        yield base + name + "_bias", F32, [n, len(data) // 4 // n], data


def mixed_rows(a, qkv, gate):
    """Qwen3 Next has queries, keys, values and gates of each group together."""
    groups, row = a.state_groups, 4 * a.hidden
    keys, values = groups * a.state_rows * row, a.state_heads * a.state_columns * row
    return joined([qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], gate], groups)


def folder_tensors(a, tensors):
    """(name, dtype, shape, bytes)"""
    held = {}
    for name, kind, shape, chunks in tensors:
        if name.startswith("rope_f"):
            continue
        if hasattr(chunks, "matrices"):
            yield from quantised(a, name, shape, chunks)
            continue
        data, parts = b"".join(chunks()), name.split(".")
        if a.arch in ("gpt-oss", "llama4", "qwen35moe") and parts[-2].endswith("_exps"):
            held[".".join(parts[2:])] = data
            if len(held) == (6 if a.arch == "gpt-oss" else 3):
                yield from (gpt_oss_experts if a.expert_type == "mxfp4" else float_experts)(a, parts[1], held)
                held.clear()
            continue
        if parts[-2] == "attn_k_b":
            held["k_b"] = turned(data, a.heads, a.kv_lora, a.nope_dim)
            continue
        if parts[-2] == "attn_v_b":
            data, shape = joined([held.pop("k_b"), data], a.heads), [a.heads * (a.nope_dim + a.v_dim), a.kv_lora]
        if a.arch == "qwen3next" and parts[-2] == "attn_qkv" and not a.attends[int(parts[1])]:
            held["qkv"] = data
            continue
        if a.arch == "qwen3next" and parts[-2] == "attn_gate":
            data = mixed_rows(a, held.pop("qkv"), data)
            yield f"model.layers.{parts[1]}.linear_attn.in_proj_qkvz.weight", kind, [len(data) // 4 // a.hidden, a.hidden], data
            continue
        if parts[-1] == "scale":
            yield f"model.layers.{parts[1]}.router.{'scale' if parts[2] == 'ffn_gate_inp' else 'per_expert_scale'}", kind, shape, data
            continue
        new, role = theirs(a, name)
        new = new.removesuffix(".weight") if role in ("attn_sinks", "altup_correct_scale") or (a.arch == "gemma4" and role.endswith("_exps")) else new
        if a.arch in PERMUTED and role in ("attn_q", "attn_k"):
            data = rows_apart(data, shape[0], a.head_dim)
        if role == "ffn_gate_inp_shexp" or (role == "exp_probs_b" and a.arch == "ernie4_5-moe"):
            shape = [1, *shape]
        if role in ("ssm_a", "ssm_d", "ssm_norm"):
            shape = [math.prod(shape)]
        if role == "ssm_a":
            data = struct.pack(f"<{shape[0]}f", *(math.log(-v) for v in struct.unpack(f"<{shape[0]}f", data)))
        if a.arch.startswith("granite") and (role.startswith(("ffn_gate_exps", "ffn_gate_shexp")) or (a.mix and role == "ffn_gate")):
            held["gate"] = data
            continue
        if "gate" in held and role.startswith("ffn_up"):
            matrices = shape[0] if len(shape) == 3 else 1
            size = len(data) // matrices
            data = b"".join(held["gate"][i * size : (i + 1) * size] + data[i * size : (i + 1) * size] for i in range(matrices))
            del held["gate"]
            new, _ = theirs(a, name.replace("ffn_up", "ffn_gate"))
            yield new, kind, [*shape[:-2], 2 * shape[-2], shape[-1]], data
            continue
        if role == "attn_qkv" and a.arch == "gptneox":  # q, k and v of a head together
            size = len(data) // 3 // a.heads
            data = b"".join(data[(k * a.heads + h) * size : (k * a.heads + h + 1) * size] for h in range(a.heads) for k in range(3))
        factors = falcon_factors(a, role) if a.arch == "falcon-h1" else None
        if factors:
            each = len(data) // 4 // len(factors)
            data = struct.pack(f"<{len(data) // 4}f", *(v / factors[i // each] for i, v in enumerate(struct.unpack(f"<{len(data) // 4}f", data))))
        if a.arch in ("qwen35", "qwen35moe"):
            data = delta_net(a, role, data)
        if role in ("conv", "ssm_conv1d") and name.endswith("weight"):
            shape = [shape[0], 1, shape[1]]
        if a.arch in ("gemma", "gemma2", "gemma3", "nemotron", "qwen35", "qwen35moe", "qwen3next") and role.endswith("norm") and role != "ssm_norm" and name.endswith("weight"):
            data = less_one(data)
        if a.arch == "internlm2" and role in ("attn_q", "attn_k", "attn_v"):
            held[role] = data, shape
            if role == "attn_v":  # the last: one matrix of groups
                group, size = a.heads // a.kv_heads * a.head_dim, len(data) // shape[0]
                data = b"".join(held["attn_q"][0][g * group * size : (g + 1) * group * size] +
                                b"".join(held[k][0][g * a.head_dim * size : (g + 1) * a.head_dim * size] for k in ("attn_k", "attn_v"))
                                for g in range(a.kv_heads))
                yield new.replace("self_attn.v_proj", "attention.wqkv"), kind, [(a.heads + 2 * a.kv_heads) * a.head_dim, a.hidden], data
            continue
        if "#" in new:
            size = len(data) // shape[0]
            for e in range(shape[0]):
                yield new.replace("#", str(e)), kind, shape[1:], data[e * size : (e + 1) * size]
            continue
        yield new, kind, shape, data


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind if isinstance(kind, str) else DTYPES[kind][0], "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors))


def write_weights(folder, tensors, shards):
    if shards <= 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    weight_map = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(os.path.join(folder, name), tensors[i::shards])
        weight_map.update((t[0], name) for t in tensors[i::shards])
    write_json(folder, "model.safetensors.index.json", {"metadata": {"total_size": sum(len(t[3]) for t in tensors)}, "weight_map": weight_map})


def rope(a, more):
    """The keys under rope_scaling, and beside it."""
    if a.rope == "longrope":
        short, far = make_gguf.long_factors(a)
        attention = more.pop("rope.scaling.attn_factor", None)  # theirs is worked out from the contexts
        if a.arch == "phimoe":  # which has it
            return dict(type="longrope", short_factor=short, long_factor=far, short_mscale=attention, long_mscale=attention,
                        original_max_position_embeddings=a.rope_original), {}
        return dict(type="longrope", short_factor=short, long_factor=far), dict(original_max_position_embeddings=a.rope_original)
    if a.rope == "none":
        return None, {}
    scaling = dict(rope_type=a.rope.split("-")[0], factor=a.rope_factor)
    if a.rope == "yarn":
        scaling["original_max_position_embeddings"] = a.rope_original
        scaling["beta_fast"] = more.pop("rope.scaling.yarn_beta_fast", 32.0)
        scaling["beta_slow"] = more.pop("rope.scaling.yarn_beta_slow", 1.0)
        if a.arch == "gpt-oss":
            scaling["truncate"] = False
        if "attention.temperature_scale" in more:
            scaling.update(llama_4_scaling_beta=more.pop("attention.temperature_scale"), mscale=1.0,
                           mscale_all_dim=more.pop("rope.scaling.yarn_log_multiplier"))
        if "rope.scaling.attn_factor" in more:
            scaling["attention_factor"] = more.pop("rope.scaling.attn_factor") * (0.1 * math.log(a.rope_factor) + 1)
    elif scaling["rope_type"] == "llama3":
        scaling.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=a.rope_original)
    return scaling, {}


FALCON = {"embedding": 2, "lm_head": 0.25, "key": 4, "attention_in": 0.5, "attention_out": 2, "ssm_in": 4, "ssm_out": 0.125}


def by_group(a, data, size, before=0):
    """Pieces of so many bytes of each value head, group by group; GGUF has the first head of each group, then the second."""
    heads, groups = a.state_heads, a.state_groups
    at = [before + (i % (heads // groups) * groups + i // (heads // groups)) * size for i in range(heads)]
    return data[:before] + b"".join(data[i : i + size] for i in at)


def delta_net(a, role, data):
    """A tensor of Qwen 3.5's recurrent layers as the folder has it."""
    if role == "ssm_out":
        row = len(data) // a.hidden
        return b"".join(by_group(a, data[i : i + row], row // a.state_heads) for i in range(0, len(data), row))
    keys, values = 2 * a.state_groups * a.state_rows, a.state_heads * a.state_columns
    if role in ("attn_qkv", "ssm_conv1d"):
        row = len(data) // (keys + values)
        return by_group(a, data, row * a.state_columns, keys * row)
    return by_group(a, data, len(data) // a.state_heads) if role in DELTA and role != "ssm_norm" else data


def falcon_factors(a, role):
    """By what Falcon-H1's multipliers, powers of two, make each row of a weight larger; (rows, factor)."""
    single = {"token_embd": 2, "output": 0.25, "ffn_gate": 0.5, "ffn_down": 4, "attn_q": 0.5, "attn_k": 2, "attn_v": 0.5, "attn_output": 2,
              "ssm_out": 0.125}
    values, keys = a.state_heads * a.state_columns, a.state_groups * a.state_rows
    if role == "ssm_in":
        return [4 * f for n, f in zip((values, values, keys, keys, a.state_heads), (2, 0.5, 4, 0.25, 8)) for _ in range(n)]
    return [single[role]] if role in single else None


def config(a):
    more = dict(a.f32)
    ministral = a.arch == "mistral3" and "attention.temperature_scale" in more
    scaling, beside = rope(a, more)
    kind = "olmo3" if a.arch == "olmo2" and a.window else "mistral" if a.arch == "llama" and a.window else TYPES.get(a.arch, a.arch)
    if a.arch == "llama" and a.experts:
        kind = "mixtral"
    if ministral:
        kind = "ministral3"
    gemma = a.arch.startswith("gemma")
    c = dict(model_type=kind, vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers,
             num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, head_dim=a.head_dim, max_position_embeddings=a.context,
             rms_norm_eps=1e-5, rope_theta=a.rope_base, tie_word_embeddings=a.tied, attention_dropout=0.0, bos_token_id=1,
             eos_token_id=2, torch_dtype={"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[a.type], **beside)
    c["hidden_activation" if gemma and a.arch != "gemma" else "hidden_act"] = "gelu_pytorch_tanh" if gemma else "silu"
    if scaling or a.sections or a.arch == "gpt-oss":  # which without it is YaRN
        c["rope_scaling"] = scaling or dict(rope_type="default")
    if a.sections:
        c["rope_scaling"].update(mrope_section=a.sections, mrope_interleaved=a.mix == "delta")
    if a.window or kind in ("mistral", "exaone4", "phi3"):
        c["sliding_window"] = a.window or None
    if a.window and a.arch in PATTERNS:
        c["layer_types"] = ["full_attention" if i % PATTERNS[a.arch] == PATTERNS[a.arch] - 1 else "sliding_attention" for i in range(a.layers)]
    if a.rope_dim and a.rope_dim != a.head_dim:
        c["partial_rotary_factor"] = a.rope_dim / a.head_dim
    if a.arch in ("llama", "qwen3", "granite", "glm4", "seed_oss"):
        c["attention_bias"] = a.bias
    if a.experts:
        c.update({"num_experts_per_tok": a.top_k, "num_local_experts" if kind in ("mixtral", "phimoe") else "num_experts": a.experts})
    if a.method:
        c["quantization_config"] = folder_quants.config(a.method)
    if a.arch == "gpt-oss":
        c.update(num_local_experts=c.pop("num_experts"), intermediate_size=a.expert_ffn, swiglu_limit=7.0)
    if a.expert_type == "mxfp4":
        c.update(quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"]))
    if a.arch in LAYER_NORMS:
        c[LAYER_NORMS[a.arch]] = c.pop("rms_norm_eps")
        c["hidden_act"] = {"starcoder2": "gelu_pytorch_tanh", "phi2": "gelu_new", "nemotron": "relu2", "gptneox": "gelu"}.get(a.arch, "silu")
    if a.arch in ("stablelm", "phi2", "nemotron", "glm4moe"):
        c["partial_rotary_factor"] = (a.rope_dim or a.head_dim) / a.head_dim
    if a.arch in ("command-r", "cohere2"):
        c["logit_scale"] = more.pop("logit_scale")
    if a.arch.startswith("lfm2"):
        c.update(norm_eps=c.pop("rms_norm_eps"), conv_L_cache=a.taps, **({} if a.experts else dict(block_auto_adjust_ff_dim=False)),
                 layer_types=["full_attention" if attends else "conv" for attends in a.attends])
    if a.arch == "gptneox":
        c.update(rotary_pct=(a.rope_dim or a.head_dim) / a.head_dim, rotary_emb_base=c.pop("rope_theta"), use_parallel_residual=a.parallel)
    if a.arch == "lfm2moe":
        c.update(moe_intermediate_size=a.expert_ffn, num_dense_layers=a.dense_layers, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.0)
    if a.arch == "llama4":
        c.update(num_local_experts=c.pop("num_experts"), intermediate_size=a.expert_ffn, intermediate_size_mlp=a.ffn, use_qk_norm=a.experts != 128,
                 interleave_moe_layer_step=a.expert_step, moe_layers=list(range(a.expert_step - 1, a.layers, a.expert_step)),
                 attention_chunk_size=c.pop("sliding_window", 8192), no_rope_layers=[int(i % 4 != 3) for i in range(a.layers)], attention_bias=False,
                 layer_types=["full_attention" if i % 4 == 3 else "chunked_attention" for i in range(a.layers)], attn_temperature_tuning=True,
                 attn_scale=more.pop("attention.temperature_scale", 0.1), floor_scale=a.u32.get("attention.temperature_length", 8192))
    if a.arch == "deepseek2":
        v3 = a.select_bias
        c.update(model_type="deepseek_v3" if v3 else "deepseek_v2", q_lora_rank=a.q_lora or None, kv_lora_rank=a.kv_lora, qk_nope_head_dim=a.nope_dim,
                 qk_rope_head_dim=a.rope_dim, v_head_dim=a.v_dim, head_dim=a.rope_dim, num_key_value_heads=a.heads,
                 first_k_dense_replace=a.dense_layers if a.experts else a.layers, scoring_func="sigmoid" if v3 else "softmax")
        c.pop("partial_rotary_factor", None)
        if a.experts:
            c.update(n_routed_experts=c.pop("num_experts"), moe_intermediate_size=a.expert_ffn, n_shared_experts=a.shared_ffn // a.expert_ffn,
                     norm_topk_prob=v3, routed_scaling_factor=more.pop("expert_weights_scale", 1.0), n_group=a.u32["expert_group_count"],
                     topk_group=a.u32["expert_group_used_count"], topk_method="noaux_tc" if v3 else "group_limited_greedy", num_nextn_predict_layers=a.nextn)
        if "rope.scaling.yarn_log_multiplier" in more:
            c["rope_scaling"].update(mscale=1.0, mscale_all_dim=10 * more.pop("rope.scaling.yarn_log_multiplier"))
    if a.arch in ("qwen35moe", "qwen3next"):
        c.update(moe_intermediate_size=a.expert_ffn, shared_expert_intermediate_size=a.shared_ffn, norm_topk_prob=True)
    if a.mix == "delta":
        c.update(linear_conv_kernel_dim=a.taps, linear_key_head_dim=a.state_rows, linear_num_key_heads=a.state_groups,
                 linear_num_value_heads=a.state_heads, linear_value_head_dim=a.state_columns, full_attention_interval=a.attention,
                 partial_rotary_factor=(a.rope_dim or a.head_dim) / a.head_dim, mtp_num_hidden_layers=a.nextn)
    if a.mix == "ssm":
        c.update(mamba_n_heads=a.state_heads, mamba_n_groups=a.state_groups, mamba_d_state=a.state_rows, mamba_d_head=a.state_columns,
                 mamba_d_conv=a.taps)
    if a.one_part:
        for theirs_, ours in (("mamba_num_heads", "mamba_n_heads"), ("n_groups", "mamba_n_groups"), ("ssm_state_size", "mamba_d_state"),
                              ("mamba_head_dim", "mamba_d_head"), ("conv_kernel", "mamba_d_conv"), ("layer_norm_epsilon", "rms_norm_eps")):
            c[theirs_] = c.pop(ours)
        c.update(hybrid_override_pattern=a.pattern.replace("-", "E") if a.experts else a.pattern, mlp_hidden_act="relu2", mamba_hidden_act="silu",
                 use_conv_bias=True, time_step_limit=[0.0, float("inf")], residual_in_fp32=False, expand=2)
        del c["hidden_act"]
        if a.experts:
            c.update(n_routed_experts=c.pop("num_experts"), moe_intermediate_size=a.expert_ffn, n_shared_experts=a.shared_ffn // a.expert_ffn,
                     moe_shared_expert_intermediate_size=a.shared_ffn, norm_topk_prob=True, norm_eps=1e-5,
                     routed_scaling_factor=more.pop("expert_weights_scale", 1.0), n_group=a.u32.get("expert_group_count", 1),
                     topk_group=a.u32.get("expert_group_used_count", 1), num_nextn_predict_layers=a.nextn)
        else:
            c["attention_head_dim"] = c.pop("head_dim")
    if a.arch == "falcon-h1":
        c.update(mamba_d_ssm=a.state_heads * a.state_columns, mlp_multipliers=[0.5, 4], ssm_multipliers=[2, 0.5, 4, 0.25, 8],
                 **{name + "_multiplier": factor for name, factor in FALCON.items()})
    if a.arch == "granitehybrid":
        c.update(intermediate_size=a.ffn, shared_intermediate_size=a.shared_ffn or a.ffn, num_local_experts=c.pop("num_experts", 0), position_embedding_type="rope",
                 layer_types=["attention" if attends else "mamba" for attends in a.attends])
    if a.arch == "granitemoe":
        c["num_local_experts"] = c.pop("num_experts")
        if a.shared_ffn:
            c.update(model_type="granitemoeshared", shared_intermediate_size=a.shared_ffn)
    if a.arch == "qwen2moe":
        c.update(moe_intermediate_size=a.expert_ffn, shared_expert_intermediate_size=a.shared_ffn, norm_topk_prob=False)
    if a.arch == "phimoe":
        c.update(attention_bias=True, lm_head_bias=True, router_jitter_noise=0.01, input_jitter_noise=0.0)
    if a.arch == "olmoe":
        c.update(norm_topk_prob=False, clip_qkv=None)
    if a.arch in ("glm4moe", "dots1"):
        c.update(n_routed_experts=c.pop("num_experts"), moe_intermediate_size=a.expert_ffn, n_shared_experts=a.shared_ffn // a.expert_ffn,
                 first_k_dense_replace=a.dense_layers, norm_topk_prob=True, num_nextn_predict_layers=a.nextn,
                 routed_scaling_factor=more.pop("expert_weights_scale", 1.0), n_group=a.u32.get("expert_group_count", 1),
                 topk_group=a.u32.get("expert_group_used_count", 1))
    if a.arch == "ernie4_5-moe":
        del c["num_experts"], c["num_experts_per_tok"]
        c.update(moe_num_experts=a.experts, moe_k=a.top_k, moe_intermediate_size=a.expert_ffn, moe_layer_interval=a.expert_step,
                 moe_num_shared_experts=a.shared_ffn // a.expert_ffn, moe_layer_start_index=a.dense_layers, moe_layer_end_index=-1,
                 num_nextn_predict_layers=a.nextn)
    if a.arch == "hunyuan-moe":
        c.update(moe_topk=[c.pop("num_experts_per_tok")] * a.layers, moe_intermediate_size=[a.expert_ffn] * a.layers, num_shared_expert=1)
    if a.arch == "qwen3moe":
        c.update(moe_intermediate_size=a.expert_ffn, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    if a.arch.startswith("granite"):
        c.update(attention_multiplier=more.pop("attention.scale", a.head_dim**-0.5), embedding_multiplier=more.pop("embedding_scale", 1.0),
                 residual_multiplier=more.pop("residual_scale", 1.0), logits_scaling=more.pop("logit_scale", 1.0))
    if a.arch == "minicpm":
        c.update(scale_emb=more.pop("embedding_scale"), scale_depth=more.pop("residual_scale") * math.sqrt(a.layers),
                 dim_model_base=a.hidden / more.pop("logit_scale"))
    if a.arch == "minicpm3":
        c.update(q_lora_rank=a.q_lora, kv_lora_rank=a.kv_lora, qk_nope_head_dim=a.nope_dim, qk_rope_head_dim=a.rope_dim, num_key_value_heads=a.heads,
                 scale_emb=12, scale_depth=1.4, dim_model_base=256)
        c.pop("partial_rotary_factor", None)
        del c["head_dim"]
    if a.arch in ("gemma2", "gemma3"):
        c.update(query_pre_attn_scalar=a.head_dim, attn_logit_softcapping=more.pop("attn_logit_softcapping", None),
                 final_logit_softcapping=more.pop("final_logit_softcapping", None))
    if a.arch == "gemma3":
        c["rope_local_base_freq"] = 10000.0
    if a.arch == "gemma4":
        c.update(head_dim=a.window_dim, global_head_dim=a.head_dim, num_key_value_heads=a.window_kv or a.kv_heads,
                 num_global_key_value_heads=a.kv_heads if a.tied_values else None, attention_k_eq_v=a.tied_values,
                 num_kv_shared_layers=a.shared_kv, use_double_wide_mlp=a.shared_kv > 0, hidden_size_per_layer_input=a.layer_embed,
                 final_logit_softcapping=more.pop("final_logit_softcapping", None), enable_moe_block=a.experts > 0, top_k_experts=c.pop("num_experts_per_tok", None),
                 num_experts=a.experts or None, moe_intermediate_size=a.expert_ffn or None,
                 layer_types=["sliding_attention" if window else "full_attention" for window in a.windowed],
                 rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                                  "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=c.pop("rope_theta"))})
    if a.arch == "gemma3n":
        c.update(num_kv_shared_layers=a.shared_kv, hidden_size_per_layer_input=a.layer_embed, vocab_size_per_layer_input=a.layer_vocab or a.vocab,
                 laurel_rank=a.laurel, altup_num_inputs=4, altup_active_idx=0, altup_coef_clip=120.0, altup_correct_scale=True,
                 activation_sparsity_pattern=[make_gguf.SPARSITY * (i < a.sparse) for i in range(a.layers)], rope_local_base_freq=10000.0,
                 layer_types=["sliding_attention" if slides else "full_attention" for slides in a.slides],
                 final_logit_softcapping=more.pop("final_logit_softcapping", 30.0))
    if a.arch == "smollm3":
        c.update(no_rope_layers=[int(i % 4 != 3) for i in range(a.layers)], no_rope_layer_interval=4)
    if a.arch == "exaone4" and a.window:
        c["sliding_window_pattern"] = 4
    if more:
        sys.exit(f"a folder has no word for {more}")
    return c


PATTERNS = {"cohere2": 4, "olmo2": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gpt-oss": 2}


def tokenizer(a):
    tokens, kinds, _ = make_gguf.vocabulary(a.vocab, a.seed, a.chatml, a.control)
    ids = {t: i for i, t in enumerate(tokens)}
    special = [i for i, k in enumerate(kinds) if k in (make_gguf.UNKNOWN, make_gguf.CONTROL)]
    merges = [[t[:i], t[i:]] for t, k in zip(tokens, kinds) if k == make_gguf.NORMAL for i in range(1, len(t))
              if t[:i] in ids and t[i:] in ids]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True} for i in special],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                           {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": None,
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": ids, "merges": merges},
    }


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=1)


def main(argv=None):
    argv = list(sys.argv[1:] if argv is None else argv)
    shards = 1
    if "--shards" in argv:
        i = argv.index("--shards")
        shards = int(argv[i + 1])
        del argv[i : i + 2]
    a, w = make_gguf.parse(argv), Tensors()
    make_gguf.main(argv, w)
    os.makedirs(a.out, exist_ok=True)
    write_weights(a.out, list(folder_tensors(a, w.tensors)), shards)
    write_json(a.out, "config.json", config(a))
    write_json(a.out, "tokenizer.json", tokenizer(a))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": 1000000000000000019884624838656}
    generation = {"bos_token_id": 1, "eos_token_id": 2, "do_sample": True, "temperature": 0.5, "top_k": 7, "top_p": 0.875}
    if a.chatml:
        settings["chat_template"] = make_gguf.CHATML
        generation["eos_token_id"] = [2, 4]
    write_json(a.out, "tokenizer_config.json", settings)
    write_json(a.out, "generation_config.json", generation)


if __name__ == "__main__":
    main()
