#!/usr/bin/env python3
"""Folders as transformers writes them, one small model of each family, each with an unusual configuration.

    make_transformers.py [CASE ...]     needs torch and transformers; run it with the newest 4.x, then with the newest 5.x

Each run adds what its own version writes to tests/model/transformers/CASE.json: config.json, the names and shapes of the
tensors. The newest says, in float64, what each folder means: the log-probability of each token of a prompt given those before; of
encoders the mean of the hidden states, of length 1.
Weights are no part of it: weight() below and in test_json_transformers.c makes the same numbers from a tensor's name.
What transformers lacks is computed by relatives that it has (stand_ins.py).
"""
import json
import logging
import os
import random
import sys
import tempfile
import zlib

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file
from stand_ins import STAND_INS

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "model", "transformers")
VERSION = transformers.__version__
PROMPT, VOCAB = 60, 331


def weight(name, shape):
    """Numbers in [-1, 1) by a counter (splitmix64): around 1 for norms, smaller the longer a row is."""
    n = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        z = (numpy.arange(1, n + 1, dtype=numpy.uint64) + numpy.uint64(zlib.crc32(name.encode()) << 32)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    u = (z >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(1 << 23) - numpy.float32(1)
    if len(shape) < 2:
        v = numpy.float32(1) + u / numpy.float32(4) if "norm" in name and not name.endswith("bias") else u / numpy.float32(2)
    else:
        v = u * numpy.float32(0.9 if shape[0] == VOCAB else 2.5 / shape[-1] ** 0.5)
    return v.reshape(shape)


BASE = dict(vocab_size=VOCAB, hidden_size=72, intermediate_size=100, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=200, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
ABSENT = object()  # in place of what BASE has
V5 = int(VERSION.split(".")[0]) >= 5


def rope(theta=10000.0, **scaling):
    """A rotation as either major version wants it told."""
    scaling = {"rope_type": "default", **scaling}
    if V5:
        return {"rope_parameters": {"rope_theta": theta, **scaling}}
    return {"rope_theta": theta, **({} if scaling == {"rope_type": "default"} else {"rope_scaling": scaling})}


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=44)
ROUTED = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=44, n_shared_experts=1, first_k_dense_replace=1,
              n_group=4, topk_group=2, routed_scaling_factor=1.7, norm_topk_prob=True)
LATENT = dict(kv_lora_rank=40, q_lora_rank=28, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, num_key_value_heads=6)
SLIDES, ALL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
LONG = {"rope_parameters" if V5 else "rope_scaling": {"type": "longrope", "long_factor": [1 + i / 4 for i in range(6)], "short_factor": [1 + i / 8 for i in range(6)]}}
GEMMA3 = dict(head_dim=24, num_key_value_heads=1, sliding_window=7, query_pre_attn_scalar=20, layer_types=[SLIDES, ALL, SLIDES, SLIDES], num_hidden_layers=4)
VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)


def by_type(full=1e6, window=3e4, **more):
    if V5:
        return {"rope_parameters": {ALL: {"rope_type": "default", "rope_theta": full, **more}, SLIDES: {"rope_type": "default", "rope_theta": window}}}
    return {"rope_theta": full, "rope_local_base_freq": window, **({"rope_scaling": more} if more else {})}


TOWER = dict(hidden_size=16, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
MROPE, SHORT, WIDE = (rope(1e5, mrope_section=pairs) for pairs in ([2, 2, 2], [1, 1, 1], [4, 3, 3]))
PIXTRAL = dict(model_type="pixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4)
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4)


def wrapped(kind, text, vision=None, **more):
    """A text model beside a tower for images; without `vision` the other arguments are the tower's."""
    text = {**BASE, "model_type": kind, **text}
    ids = {f"{name}_token_{end}": 300 + i for i, name in enumerate(("image", "video", "vision_start", "vision_end", "boi", "eoi")) for end in ("id", "index")}
    return {"text_config": text, "vision_config": vision or more, "tie_word_embeddings": False, "whole": True, **ids, **(more if vision else {})}

PURE = dict(intermediate_size=ABSENT, num_attention_heads=ABSENT, num_key_value_heads=ABSENT, max_position_embeddings=ABSENT)  # no attention

# name: (model_type, arguments beside BASE)
CASES = {
    "llama": ("llama", dict(num_attention_heads=9, num_key_value_heads=1, head_dim=10, attention_bias=True, **rope(5e5, **LLAMA3))),
    "llama-tied": ("llama", dict(num_attention_heads=3, num_key_value_heads=3, tie_word_embeddings=True, **rope(rope_type="linear", factor=3.0))),
    "llama-dynamic": ("llama", dict(rms_norm_eps=1e-3, **rope(rope_type="dynamic", factor=2.0))),
    "llama-mlp-bias": ("llama", dict(mlp_bias=True)),
    "mistral": ("mistral", dict(head_dim=20, sliding_window=9)),
    "mistral-null": ("mistral", dict(head_dim=None, sliding_window=None, **rope(1e6))),
    "ministral": ("ministral", dict(head_dim=20, sliding_window=9, layer_types=[SLIDES, ALL, SLIDES])),
    "ministral3": ("ministral3", dict(head_dim=20, sliding_window=None, rope_parameters=dict(rope_theta=1e6, **YARN, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=0.3))),
    "mixtral": ("mixtral", dict(num_local_experts=5, num_experts_per_tok=3, head_dim=20)),
    "qwen2": ("qwen2", dict(use_sliding_window=True, sliding_window=6, max_window_layers=1, layer_types=[ALL, SLIDES, SLIDES])),
    "qwen2-yarn": ("qwen2", dict(tie_word_embeddings=True, **rope(1e6, **YARN))),
    "mimo": ("qwen2", dict(num_nextn_predict_layers=1, use_mrope=False, use_sliding_window=False, sliding_window=32768, max_window_layers=3, head_dim=12, **rope(640000.0))),
    "qwen3": ("qwen3", dict(head_dim=20, num_attention_heads=3, num_key_value_heads=1, attention_bias=True, **rope(1e6))),
    "qwen2_moe": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=52, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[])),
    "qwen2_moe-steps": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=52, norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[3], num_hidden_layers=5)),
    "qwen3_moe": ("qwen3_moe", dict(EXPERTS, head_dim=20, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=None)),
    "qwen3_moe-unnormed": ("qwen3_moe", dict(EXPERTS, head_dim=20, norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[1], num_hidden_layers=5)),
    "granite": ("granite", dict(embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.0, attention_multiplier=0.2, attention_bias=True)),
    "granitemoe": ("granitemoe", dict(num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.0, attention_multiplier=0.2)),
    "granitemoeshared": ("granitemoeshared", dict(num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=52, tie_word_embeddings=True)),
    "granitemoehybrid": ("granitemoehybrid", dict(num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=52, mamba_n_heads=9, mamba_d_head="auto", mamba_n_groups=3, mamba_d_state=16, layer_types=["mamba", "attention", "mamba"], position_embedding_type="nope")),
    "granitemoehybrid-dense": ("granitemoehybrid", dict(num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=52, mamba_n_heads=9, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=16, layer_types=["attention", "mamba", "mamba"], position_embedding_type="rope")),
    "smollm3": ("smollm3", dict(num_hidden_layers=5, use_sliding_window=False, **rope(2e6))),
    "smollm3-free": ("smollm3", dict(num_hidden_layers=5, no_rope_layers=[1, 0, 0, 1, 1])),
    "ernie4_5": ("ernie4_5", dict(head_dim=20, use_bias=True)),
    "ernie4_5_moe": ("ernie4_5_moe", dict(moe_num_experts=6, moe_k=2, moe_intermediate_size=44, moe_num_shared_experts=2, moe_layer_start_index=1, num_hidden_layers=4)),
    "seed_oss": ("seed_oss", dict(head_dim=20, attention_bias=True, attention_out_bias=True)),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", dict(head_dim=20, **rope(rope_type="dynamic", factor=1.0, alpha=1000.0))),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", dict(head_dim=20, num_experts=5, moe_topk=2)),
    "phi": ("phi", dict(num_key_value_heads=6, qk_layernorm=False, partial_rotary_factor=0.5)),
    "phi3": ("phi3", dict(sliding_window=9, partial_rotary_factor=1.0)),
    "phi3-long": ("phi3", dict(sliding_window=None, original_max_position_embeddings=40, **LONG)),
    "phimoe": ("phimoe", dict(num_local_experts=5, sliding_window=None, attention_bias=True, lm_head_bias=True)),
    "olmo": ("olmo", dict(clip_qkv=None, **rope(3e4))),
    "olmo-tied": ("olmo", dict(tie_word_embeddings=True, attention_bias=True)),
    "olmo-clip": ("olmo", dict(clip_qkv=0.8)),
    "olmo2": ("olmo2", dict(rms_norm_eps=1e-3)),
    "olmo3": ("olmo3", dict(sliding_window=7, layer_types=[SLIDES, ALL, SLIDES], **rope(5e5, **YARN))),
    "olmoe": ("olmoe", dict(num_experts=6, num_experts_per_tok=2, norm_topk_prob=True)),
    "glm": ("glm", dict(head_dim=20, partial_rotary_factor=0.5, attention_bias=True)),
    "glm4": ("glm4", dict(head_dim=20, partial_rotary_factor=0.6, attention_bias=True)),
    "glm4_moe": ("glm4_moe", dict(ROUTED, head_dim=20, use_qk_norm=True, partial_rotary_factor=0.5)),
    "glm4_moe-plain": ("glm4_moe", dict(ROUTED, head_dim=20, use_qk_norm=False, attention_bias=True, partial_rotary_factor=0.5, norm_topk_prob=False)),
    "exaone4": ("exaone4", dict(sliding_window=None, layer_types=[ALL, ALL, ALL])),
    "exaone4-window": ("exaone4", dict(sliding_window=7, sliding_window_pattern=4, layer_types=[SLIDES, SLIDES, SLIDES, ALL], num_hidden_layers=4)),
    "gemma": ("gemma", dict(head_dim=24, tie_word_embeddings=True)),
    "gemma2": ("gemma2", dict(head_dim=24, tie_word_embeddings=True, sliding_window=7, query_pre_attn_scalar=20, attn_logit_softcapping=3.0, final_logit_softcapping=9.0)),
    "gemma2-null": ("gemma2", dict(head_dim=24, tie_word_embeddings=True, sliding_window=7, query_pre_attn_scalar=20, attn_logit_softcapping=None, final_logit_softcapping=None, layer_types=[ALL, SLIDES, SLIDES])),
    "gemma3": ("gemma3_text", dict(GEMMA3, tie_word_embeddings=True, **by_type())),
    "gemma3-linear": ("gemma3_text", dict(GEMMA3, **by_type(rope_type="linear", factor=4.0))),
    "gemma3n": ("gemma3n_text", dict(head_dim=24, num_kv_shared_layers=2, num_hidden_layers=5, sliding_window=7, layer_types=[SLIDES, ALL, SLIDES, SLIDES, ALL], vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=12, laurel_rank=8, activation_sparsity_pattern=[0.9, 0.0, 0.5, 0.0, 0.0], intermediate_size=[100] * 5, tie_word_embeddings=True)),
    "gemma4": ("gemma4_text", dict(head_dim=24, global_head_dim=32, num_kv_shared_layers=2, num_hidden_layers=5, sliding_window=7, layer_types=[SLIDES, ALL, SLIDES, SLIDES, ALL], vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=12, use_double_wide_mlp=True, tie_word_embeddings=True)),
    "gemma4-moe": ("gemma4_text", dict(head_dim=24, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True, num_hidden_layers=4, sliding_window=7, layer_types=[SLIDES, ALL, SLIDES, ALL], hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=44, final_logit_softcapping=9.0, num_kv_shared_layers=0)),
    "starcoder2": ("starcoder2", dict(use_bias=True, sliding_window=9, tie_word_embeddings=True)),
    "stablelm": ("stablelm", dict(use_qkv_bias=True, partial_rotary_factor=0.5, qk_layernorm=True)),
    "stablelm-parallel": ("stablelm", dict(use_parallel_residual=True, partial_rotary_factor=0.5, layer_norm_eps=1e-3)),
    "gpt_neox": ("gpt_neox", dict(num_key_value_heads=6, rotary_pct=0.5, use_parallel_residual=True)),
    "gpt_neox-sequential": ("gpt_neox", dict(num_key_value_heads=6, rotary_pct=0.5, use_parallel_residual=False, attention_bias=False)),
    "nemotron": ("nemotron", dict(head_dim=20, partial_rotary_factor=0.5)),
    "cohere": ("cohere", dict(logit_scale=0.3, tie_word_embeddings=True, attention_bias=True)),
    "cohere-norms": ("cohere", dict(logit_scale=0.3, tie_word_embeddings=True, use_qk_norm=True, layer_norm_eps=1e-3)),
    "cohere2": ("cohere2", dict(logit_scale=0.3, tie_word_embeddings=True, head_dim=20, sliding_window=7, layer_types=[SLIDES, ALL, SLIDES])),
    "gpt_oss": ("gpt_oss", dict(num_local_experts=5, num_experts_per_tok=2, head_dim=20, sliding_window=7, layer_types=[ALL, SLIDES, SLIDES], **rope(150000.0, **YARN, beta_fast=32.0, beta_slow=1.0, truncate=False))),
    "llama4": ("llama4_text", dict(num_hidden_layers=5, head_dim=20, num_local_experts=5, num_experts_per_tok=2, interleave_moe_layer_step=2, intermediate_size_mlp=90, attention_chunk_size=9, use_qk_norm=True, floor_scale=16, attn_scale=0.3)),
    "llama4-free": ("llama4_text", dict(num_hidden_layers=3, head_dim=20, num_local_experts=5, num_experts_per_tok=1, moe_layers=[0, 2], intermediate_size_mlp=90, attention_chunk_size=9, use_qk_norm=True, no_rope_layers=[1, 0, 1], attn_temperature_tuning=False)),
    "deepseek_v2": ("deepseek_v2", dict(ROUTED, **LATENT, topk_method="group_limited_greedy", norm_topk_prob=False, **rope(**YARN, mscale=0.7, mscale_all_dim=0.7))),
    "deepseek_v2-lite": ("deepseek_v2", dict({**ROUTED, **LATENT, "q_lora_rank": None}, topk_method="greedy", norm_topk_prob=False)),
    "deepseek_v3": ("deepseek_v3", dict(ROUTED, **LATENT, rope_interleave=True, **rope(**YARN, mscale=1.0, mscale_all_dim=1.0))),
    "glm4_moe_lite": ("glm4_moe_lite", dict(ROUTED, **LATENT)),
    "minicpm3": ("minicpm3", dict(LATENT)),
    "dots1": ("dots1", dict(ROUTED, head_dim=20)),
    "lfm2": ("lfm2", dict(layer_types=["conv", ALL, "conv"], block_auto_adjust_ff_dim=False, conv_L_cache=4)),
    "lfm2-adjusted": ("lfm2", dict(layer_types=["conv", ALL, "conv"], block_multiple_of=16, block_ffn_dim_multiplier=1.1)),
    "lfm2_moe": ("lfm2_moe", dict(EXPERTS, num_dense_layers=1, layer_types=["conv", ALL, "conv"], norm_topk_prob=True, use_expert_bias=True)),
    "falcon_h1": ("falcon_h1", dict(mamba_d_ssm=96, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, key_multiplier=0.6, attention_in_multiplier=0.9, attention_out_multiplier=0.7, ssm_multipliers=[0.5, 0.6, 0.7, 0.8, 0.9], mlp_multipliers=[0.8, 0.7], lm_head_multiplier=0.5, embedding_multiplier=1.5)),
    "falcon_h1-norm": ("falcon_h1", dict(mamba_d_ssm=96, mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2, mamba_d_state=16, mamba_rms_norm=True, mamba_norm_before_gate=False, projectors_bias=False)),
    "nemotron_h": ("nemotron_h", dict(hybrid_override_pattern="M-M*-", head_dim=20, mamba_num_heads=6, mamba_head_dim=16, n_groups=2, ssm_state_size=16, num_hidden_layers=5)),
    "nemotron_h-moe": ("nemotron_h", dict(layers_block_type=["mamba", "moe", "attention", "moe"], head_dim=20, mamba_num_heads=6, mamba_head_dim=16, n_groups=2, ssm_state_size=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=44, moe_shared_expert_intermediate_size=52, n_shared_experts=1)),
    "mamba2": ("mamba2", dict(PURE, num_heads=9, head_dim=16, n_groups=3, state_size=16)),
    "mamba2-tied": ("mamba2", dict(PURE, num_heads=3, head_dim=48, n_groups=1, state_size=20, conv_kernel=3, use_conv_bias=False, tie_word_embeddings=True, layer_norm_epsilon=1e-3)),
    "qwen3_next": ("qwen3_next", dict(EXPERTS, shared_expert_intermediate_size=52, head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=16, layer_types=[LINEAR, ALL, LINEAR], norm_topk_prob=True)),
    "qwen3_next-steps": ("qwen3_next", dict(EXPERTS, shared_expert_intermediate_size=52, head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=16, layer_types=[LINEAR, ALL, LINEAR], norm_topk_prob=False, mlp_only_layers=[1], partial_rotary_factor=0.5)),
    "qwen3_5": ("qwen3_5_text", dict(head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=16, layer_types=[LINEAR, ALL, LINEAR])),
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(EXPERTS, shared_expert_intermediate_size=52, head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=16, layer_types=[LINEAR, ALL, LINEAR])),
    "arcee": ("arcee", dict(head_dim=20, attention_bias=True, mlp_bias=True)),
    "minimax_m2": ("minimax_m2", dict(head_dim=20, num_local_experts=6, num_experts_per_tok=2, rotary_dim=10)),
    "exaone_moe": ("exaone_moe", dict(EXPERTS, sliding_window=7, layer_types=[SLIDES, ALL, SLIDES], num_shared_experts=2, n_group=3, topk_group=2)),
    "qwen2_vl": ("qwen2_vl", wrapped("qwen2_vl_text", {**MROPE, "use_sliding_window": False}, depth=1, embed_dim=16, num_heads=2, **TOWER)),
    "qwen2_5_vl": ("qwen2_5_vl", wrapped("qwen2_5_vl_text", MROPE, depth=1, num_heads=2, intermediate_size=24, out_hidden_size=72, **TOWER)),
    "qwen3_vl": ("qwen3_vl", wrapped("qwen3_vl_text", dict(WIDE, head_dim=20, attention_bias=True), depth=1, num_heads=2, intermediate_size=24, out_hidden_size=72, deepstack_visual_indexes=[0], **TOWER)),
    "qwen3_vl_moe": ("qwen3_vl_moe", wrapped("qwen3_vl_moe_text", dict(EXPERTS, **WIDE, head_dim=20, decoder_sparse_step=2), depth=1, num_heads=2, intermediate_size=24, out_hidden_size=72, deepstack_visual_indexes=[0], **TOWER)),
    "glm4v": ("glm4v", wrapped("glm4v_text", MROPE, depth=1, num_heads=2, intermediate_size=24, out_hidden_size=72, **TOWER)),
    "glm4v_moe": ("glm4v_moe", wrapped("glm4v_moe_text", dict(ROUTED, **SHORT, head_dim=12), depth=1, num_heads=2, intermediate_size=24, out_hidden_size=72, **TOWER)),
    "gemma4_unified": ("gemma4_unified_text", dict(head_dim=24, global_head_dim=32, num_hidden_layers=4, sliding_window=7, layer_types=[SLIDES, ALL, SLIDES, ALL], tie_word_embeddings=True, final_logit_softcapping=9.0)),
    "gemma3_vl": ("gemma3", wrapped("gemma3_text", dict(GEMMA3, **by_type()), SIGLIP, mm_tokens_per_image=4)),
    "smolvlm": ("smolvlm", wrapped("llama", {}, dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4), scale_factor=2)),
    "idefics3": ("idefics3", wrapped("llama", {}, dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4), scale_factor=2)),
    "paligemma": ("paligemma", wrapped("gemma2", dict(head_dim=24, sliding_window=7, query_pre_attn_scalar=20), SIGLIP, projection_dim=72)),
    "mistral3": ("mistral3", wrapped("mistral", dict(head_dim=20, sliding_window=None), PIXTRAL, spatial_merge_size=2)),
    "afmoe": ("afmoe", dict(EXPERTS, head_dim=20, num_dense_layers=1, num_shared_experts=2, route_scale=1.7, sliding_window=7, mup_enabled=True, layer_types=[SLIDES, ALL, SLIDES, SLIDES], num_hidden_layers=4)),
    "mistral4": ("mistral3", wrapped("mistral4", {**ROUTED, **LATENT, "n_group": 1, "topk_group": 1, "rope_parameters": dict(rope_theta=1e6, **YARN, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=0.3)}, PIXTRAL, spatial_merge_size=2)),
    "falcon": ("falcon", dict(intermediate_size=ABSENT, num_key_value_heads=ABSENT, max_position_embeddings=ABSENT, tie_word_embeddings=True, **rope(3e4))),
    "falcon-groups": ("falcon", dict(intermediate_size=ABSENT, num_key_value_heads=ABSENT, ffn_hidden_size=100, new_decoder_architecture=True, num_kv_heads=3, bias=True)),
    "falcon-one-norm": ("falcon", dict(num_key_value_heads=ABSENT, ffn_hidden_size=100, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, layer_norm_epsilon=1e-3)),
    "falcon-heads": ("falcon", dict(num_key_value_heads=ABSENT, ffn_hidden_size=100, multi_query=False)),
    "bailing_moe": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=88, norm_topk_prob=True, qkv_bias=True, **rope(3e4))),
    "bailing_moe-biases": ("qwen2_moe", dict(EXPERTS, shared_expert_intermediate_size=44, norm_topk_prob=False, qkv_bias=True, **rope(3e4))),
    "bailing_moe_v2": ("glm4_moe", dict(ROUTED, head_dim=20, use_qk_norm=True, partial_rotary_factor=0.5, **rope(3e4))),
    "bailing_moe-v2": ("glm4_moe", dict(ROUTED, head_dim=20, use_qk_norm=True, partial_rotary_factor=0.5)),
    "hy_v3": ("hy_v3", dict(EXPERTS, head_dim=20, num_shared_experts=2, router_scaling_factor=1.7, **rope(3e4))),
    "cohere2_moe": ("cohere2_moe", dict(num_experts=6, num_experts_per_tok=2, num_shared_experts=2, expert_selection_fn="sigmoid", head_dim=20, sliding_window=7, layer_types=[ALL, SLIDES, ALL, SLIDES], mlp_layer_types=["dense", "sparse", "sparse", "sparse"], prefix_dense_intermediate_size=60, num_hidden_layers=4, logit_scale=0.3, tie_word_embeddings=True)),
    "cohere2_moe-softmax": ("cohere2_moe", dict(num_experts=6, num_experts_per_tok=3, norm_topk_prob=False, rms_norm_eps=1e-3, head_dim=20, sliding_window=7, first_k_dense_replace=1, sliding_window_pattern=2, logit_scale=0.3)),
    "apertus": ("apertus", dict(head_dim=20, attention_bias=True, **rope(5e5, **LLAMA3))),
    "nemotron_h-latent": ("nemotron_h", dict(layers_block_type=["mamba", "moe", "attention", "moe"], head_dim=20, mamba_num_heads=6, mamba_head_dim=16, n_groups=2, ssm_state_size=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=44, moe_shared_expert_intermediate_size=52, n_shared_experts=1, moe_latent_size=24)),
    "deci": ("llama", dict(num_key_value_heads=6)),
    "nemotron-nas": ("llama", dict(num_key_value_heads=6, num_hidden_layers=5, intermediate_size=512, **rope(5e5, **LLAMA3))),
    "smallthinker": ("smollm3", dict(num_hidden_layers=5, use_sliding_window=True, sliding_window=7, no_rope_layers=[0, 1, 1, 1, 0], layer_types=[ALL, SLIDES, SLIDES, SLIDES, ALL], tie_word_embeddings=True, **rope(3e4))),
    "smallthinker-softmax": ("smollm3", dict(num_hidden_layers=5, use_sliding_window=False, no_rope_layers=[1, 1, 1, 1, 1])),
    "gpt2": ("gpt2", dict(intermediate_size=None, num_key_value_heads=6, tie_word_embeddings=True)),
}
ENCODERS = {  # whose hidden states are averaged
    "bert": ("bert", dict(num_key_value_heads=6, layer_norm_eps=1e-5)),
    "roberta": ("roberta", dict(num_key_value_heads=6, pad_token_id=3)),
    "xlm-roberta": ("xlm-roberta", dict(num_key_value_heads=6, pad_token_id=1, type_vocab_size=1)),
    "nomic_bert": ("nomic_bert", dict(num_key_value_heads=6)),
    "modernbert": ("modernbert", dict(num_key_value_heads=6, local_attention=16, global_attn_every_n_layers=2, num_hidden_layers=5)),
    "modernbert-types": ("modernbert", dict(num_key_value_heads=6, local_attention=12, layer_types=[ALL, SLIDES, SLIDES, ALL], num_hidden_layers=4)),
    "gemma3-both": ("gemma3_text", dict(GEMMA3, use_bidirectional_attention=True, **by_type())),
    "eurobert": ("eurobert", dict(rms_norm_eps=1e-3)),
    "gte": ("gte", dict(num_key_value_heads=6)),
    "jina_embeddings_v3": ("jina_embeddings_v3", dict(num_key_value_heads=6, layer_norm_eps=1e-4)),
}


def auto_class(config, case):
    if case in ENCODERS:
        return transformers.AutoModel
    return transformers.AutoModelForImageTextToText if hasattr(config, "text_config") else transformers.AutoModelForCausalLM


def saved(case):
    """config.json and shapes of the tensors as this version writes them."""
    kind, more = {**CASES, **ENCODERS}[case]
    config = transformers.AutoConfig.for_model(kind, **({k: v for k, v in more.items() if k != "whole"} if "whole" in more else {k: v for k, v in {**BASE, **more}.items() if v is not ABSENT}))
    with tempfile.TemporaryDirectory() as d:
        auto_class(config, case).from_config(config).save_pretrained(d)
        with open(os.path.join(d, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        with safe_open(os.path.join(d, "model.safetensors"), "np") as f:
            return config, {name: list(f.get_slice(name).get_shape()) for name in f.keys()}


def make_folder(case):
    """A folder without scores."""
    config, shapes = saved(case)
    if case in STAND_INS:
        config, shapes = STAND_INS[case].folder(config, shapes)
    return {"version": VERSION, "config": config, "tensors": shapes}


def compute(folder, ids, case):
    w = {name: weight(name, shape) for name, shape in folder["tensors"].items()}
    config, state, stand_in = folder["config"], w, STAND_INS.get(case)
    if stand_in:
        config, shapes = saved(case)
        state = stand_in.tensors(shapes, config, w.get)
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        save_file({name: numpy.ascontiguousarray(t).reshape(t.shape) for name, t in state.items()}, os.path.join(d, "model.safetensors"), {"format": "pt"})
        auto = auto_class(transformers.AutoConfig.from_pretrained(d), case)
        model, info = auto.from_pretrained(d, dtype=torch.float64, output_loading_info=True, attn_implementation="eager", experts_implementation="eager")
    if stand_in:
        stand_in.patch(model, w.get)
    if info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]:
        print(f"{folder['version']}'s folder is not read again: {info}"[:200])
        return None
    if case in ENCODERS:
        with torch.no_grad():
            mean = model.eval()(torch.tensor([ids])).last_hidden_state[0].double().mean(0)
        return [round(float(v), 6) for v in mean / mean.norm()]
    with torch.no_grad():
        scores = model.eval()(torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1)
    return [round(float(scores[i, ids[i + 1]]), 5) for i in range(PROMPT - 1)]


def write(path, folders, ids):
    """Tensors and scores that the folder before has are left out."""
    lines, before = [], {}
    for one in folders:
        lines.append(json.dumps({k: v for k, v in one.items() if before.get(k) != v}, separators=(",", ":")))
        before = one
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"ids":' + json.dumps(ids, separators=(",", ":")) + ',"folders":[\n' + ",\n".join(lines) + "]}\n")


def main():
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    for case in sys.argv[1:] or [*CASES, *ENCODERS]:
        path, folders = os.path.join(FOLDER, f"{case}.json"), []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                for one in json.load(f)["folders"]:
                    folders.append({**(folders[-1] if folders else {}), **one})
        ids = [random.Random(f"{case} {i}").randrange(3, VOCAB) for i in range(PROMPT)]
        try:
            own = make_folder(case)
        except Exception as e:  # a family that this version lacks
            print(f"{case}: {type(e).__name__}: {e}"[:200])
            continue
        folders = sorted([x for x in folders if x["version"].split(".")[0] != VERSION.split(".")[0]] + [own], key=lambda x: x["version"])
        if V5:  # the newest says what either folder means
            for one in folders:
                one["scores"] = compute(one, ids, case)
            folders = [one for one in folders if one["scores"]]
            if max(abs(a - b) for a, b in zip(folders[0]["scores"], own["scores"])) > 1e-5:
                print(f"{case}: {folders[0]['version']} wrote something else")
        write(path, folders, ids)


if __name__ == "__main__":
    main()
