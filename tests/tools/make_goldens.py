#!/usr/bin/env python3
"""Golden files of small random models of every architecture, from Hugging Face transformers.

    make_goldens.py --models DIR                the models of tests/model/golden/*.json as GGUF, those of floats also as folders;
                                                standard library only
    make_goldens.py [CASE ...]                  makes the golden files anew; needs torch, transformers, gguf

The weights come from make_gguf.py: the same arguments give the same bytes, so only arguments and results are kept. The
oracle reads the GGUF with the `gguf` package, dequantised, and takes its configuration from the arguments, not from the
file's keys: a key that is written or read wrongly shows. Over 600 lines: each
family has its own words for one configuration. GGUF stores the rows of q and k of PERMUTED with the two
halves of each head interleaved, and the oracle wants them apart.

A golden file holds the arguments, a prompt, the log-probability of each of its tokens given those before, some full rows
of logits, and a greedy continuation with `margins`: how far the two best logits of each step lie apart. `effect` is how far
the logits move when the feature that the case is about is left out; a case whose feature hardly matters is refused. The
seed is the first with which every margin is larger than rounding, and the continuation more than one token repeated.
With `grids` the prompt has images, as rows of ids, which rotate by the positions that Qwen2-VL's get_rope_index() gives them.
Where activations are rounded, the prompt goes round tokens whose choice of experts is close: rounding would change it.
"""
import argparse
import array
import functools
import glob
import json
import math
import os
import random
import sys
import tempfile

import folder_quants
import make_folder
import make_gguf

FLOATS = ("f32", "f16", "bf16")
# no config.json says an attention scale for llama; ../model/transformers has folders of the others
NO_FOLDER = ("llama-scale", "qwen2vl", "qwen3vl", "qwen3vlmoe", "chatglm", "arcee")
GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "model", "golden")
PROMPT, GREEDY, MARGIN = 90, 16, 0.005
ROUTED, COMPARED = 0.15, 0.2  # of models with experts whose activations are rounded: see watch_routers()
BASE = "--layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 300 --context 256"
PERMUTED = ("llama", "granite", "granitehybrid", "granitemoe", "minicpm", "smollm3", "internlm2", "mistral3", "arcee")  # whose converters interleave rows of q and k
PATTERNS = {"olmo2": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "cohere2": 4, "gpt-oss": 2}  # of so many layers the last has no window
K = "--layers 1 --hidden 256 --kv-heads 1 --ffn 256 --vocab 290"  # what blocks of 256 divide, and no more than that
YARN = "--rope yarn --rope-original 16"
LATENT = "--arch deepseek2 --no-tied --rope-dim 8 --nope-dim 24 --v-dim 20 --kv-lora 40"

# name: (arguments beyond BASE, what to leave out to see that it matters)
CASES = {
    "llama-mha": ("--kv-heads 4 --no-tied", None),
    "llama-gqa-tied": ("", None),
    "llama-head-dim": ("--head-dim 40 --no-tied --rope-base 500000", None),
    "llama-bias": ("--bias --out-bias --no-tied", "bias"),
    "llama-qkv-bias": ("--bias", "bias"),
    "llama-linear": ("--rope linear --rope-factor 3", "rope"),
    "llama-yarn": (f"{YARN} --rope-factor 8 --head-dim 32 --no-tied", "rope"),
    "llama-yarn-betas": (f"{YARN} --rope-factor 4 --head-dim 32 --f32 rope.scaling.yarn_beta_fast=1.2 "
                         "--f32 rope.scaling.yarn_beta_slow=0.1 --f32 rope.scaling.attn_factor=1.3", "rope"),
    "llama3-factors": ("--rope llama3 --rope-factor 8 --rope-original 32 --head-dim 32", "rope"),
    "llama3-keys": ("--rope llama3-keys --rope-factor 8 --rope-original 32 --head-dim 32 --no-tied", "rope"),
    "llama-scale": ("--f32 attention.scale=0.5", "scale"),
    "mistral-window": ("--window 24 --no-tied", "window"),
    "mistral-window-1": ("--window 1 --kv-heads 4", "window"),
    "qwen2": ("--arch qwen2 --no-tied --rope-base 1000000", "bias"),
    "qwen2-axes": ("--arch qwen2 --no-tied --sections 2,3,3", "axes"),
    "qwen2-tied": ("--arch qwen2", "bias"),
    "qwen2-yarn": (f"--arch qwen2 {YARN} --rope-factor 4 --no-tied", "rope"),
    "qwen3": ("--arch qwen3 --head-dim 32 --no-tied --rope-base 1000000", "qk_norm"),
    "qwen3-tied": ("--arch qwen3", "qk_norm"),
    "qwen3-yarn": (f"--arch qwen3 {YARN} --rope-factor 4 --head-dim 32 --no-tied", "rope"),
    "qwen2vl": ("--arch qwen2vl --no-tied --rope-base 1000000", "bias"),
    "qwen3vl": ("--arch qwen3vl --head-dim 32 --u32 n_deepstack_layers=3", "qk_norm"),
    "qwen3vlmoe": ("--arch qwen3vlmoe --no-tied --experts 12 --top-k 3 --expert-ffn 48 --u32 n_deepstack_layers=3", "top_k"),
    "chatglm": ("--arch chatglm --bias --rope-dim 8 --no-tied --head-dim 16", "bias"),
    "arcee": ("--arch arcee --no-tied --head-dim 32", "act"),
    "granite": ("--arch granite --bias --out-bias --no-tied --f32 attention.scale=0.2 --f32 embedding_scale=2 --f32 residual_scale=0.4 --f32 logit_scale=2",
                "scales"),
    "minicpm": ("--arch minicpm --layers 3 --no-tied --f32 embedding_scale=2 --f32 residual_scale=0.5 --f32 logit_scale=0.7", "scales"),
    "smollm3": ("--arch smollm3 --layers 5 --rope-base 50", "no_rope"),
    "internlm2": ("--arch internlm2 --no-tied", None),
    "ernie4_5": ("--arch ernie4_5 --head-dim 32 --rope-base 500000", None),
    "seed_oss": ("--arch seed_oss --bias --head-dim 32 --no-tied", "bias"),
    "hunyuan-dense": ("--arch hunyuan-dense --head-dim 24 --no-tied", "qk_norm"),
    "mistral3": ("--arch mistral3 --head-dim 32 --no-tied --rope-base 100000", None),
    "mistral3-temperature": (f"--arch mistral3 {YARN} --rope-factor 8 --head-dim 32 --no-tied --f32 attention.temperature_scale=0.4 "
                             "--f32 rope.scaling.yarn_log_multiplier=0.7", "temperature"),
    "phi3": ("--arch phi3 --rope-dim 12 --no-tied --window 40", "window"),
    "phi3-long": ("--arch phi3 --rope longrope --rope-original 64 --f32 rope.scaling.attn_factor=1.1547005384", "rope"),
    "phi3-short": ("--arch phi3 --rope longrope --context 200 --rope-original 200", "rope"),
    "phimoe": ("--arch phimoe --no-tied --experts 16 --rope longrope --rope-original 64 --f32 rope.scaling.attn_factor=1.25", "in_turn"),
    "phimoe-window": ("--arch phimoe --no-tied --experts 8 --window 40", "bias"),
    "olmo2": ("--arch olmo2 --no-tied", "post_norm"),
    "olmo3": ("--arch olmo2 --no-tied --layers 5 --window 24 --rope yarn --rope-original 32 --rope-factor 8 --head-dim 32", "window"),
    "glm4": ("--arch glm4 --bias --rope-dim 8 --no-tied --head-dim 16", "post_norm"),
    "exaone4": ("--arch exaone4 --no-tied", "post_norm"),
    "exaone4-window": ("--arch exaone4 --no-tied --layers 5 --window 24", "window"),
    "gemma": ("--arch gemma --no-tied --head-dim 24", None),
    "gemma2": ("--arch gemma2 --no-tied --layers 3 --head-dim 24 --window 24 --f32 attn_logit_softcapping=2 --f32 final_logit_softcapping=6",
               "softcap"),
    "gemma3": ("--arch gemma3 --no-tied --layers 7 --head-dim 24 --window 24 --rope-base 1000000 --rope linear --rope-factor 4", "window"),
    "gemma4": ("--arch gemma4 --no-tied --layers 6 --window 24 --window-pattern 3 --head-dim 32 --window-dim 16 --kv-heads 1 --window-kv 4 --tied-values "
               "--rope-base 1000000 --f32 final_logit_softcapping=6", "v_norm"),
    "gemma4-e2b": ("--arch gemma4 --layers 6 --window 24 --window-pattern 3 --head-dim 32 --window-dim 16 --kv-heads 1 --shared-kv 3 "
                   "--layer-embed 24 --rope-base 1000000 --f32 final_logit_softcapping=6", "layer_embed"),
    "gemma4-bf16": ("--arch gemma4 --layers 6 --window 24 --window-pattern 3 --head-dim 32 --window-dim 16 --kv-heads 2 --shared-kv 3 "
                    "--layer-embed 32 --type bf16 --rope-base 1000000 --f32 final_logit_softcapping=6", "window"),
    "gemma4-q8_0": ("--arch gemma4 --no-tied --layers 2 --window 24 --window-pattern 2 --head-dim 32 --window-dim 16 --layer-embed 32 --type q8_0 "
                    "--ffn 128 --rope-base 1000000 --f32 final_logit_softcapping=6", "layer_embed"),
    "gemma4-moe": ("--arch gemma4 --no-tied --layers 4 --window 24 --window-pattern 2 --head-dim 32 --window-dim 16 --kv-heads 1 --window-kv 4 --tied-values "
                   "--rope-base 1000000 --f32 final_logit_softcapping=6 --experts 12 --top-k 3 --expert-ffn 48 --fused-experts", "expert_scale"),
    "gemma4-moe-q8_0": ("--arch gemma4 --no-tied --window 24 --window-pattern 2 --head-dim 32 --window-dim 16 --type q8_0 --rope-base 1000000 "
                        "--f32 final_logit_softcapping=6 --experts 8 --top-k 2 --expert-ffn 64", "shared"),
    "gemma3n": ("--arch gemma3n --layers 6 --window 24 --window-pattern 3 --head-dim 32 --shared-kv 3 --layer-embed 24 --laurel 12 --sparse 2 "
                "--rope-base 1000000", "sparse"),
    "gemma3n-bf16": ("--arch gemma3n --layers 3 --window 24 --window-pattern 2 --head-dim 32 --kv-heads 1 --layer-embed 32 --layer-vocab 200 --type bf16 "
                     "--rope-base 1000000 --f32 final_logit_softcapping=6", "laurel"),
    "gemma3n-q8_0": ("--arch gemma3n --layers 2 --window 24 --head-dim 32 --layer-embed 32 --laurel 32 --sparse 3 --type q8_0 --ffn 128 "
                     "--rope-base 1000000 --window-pattern 2", "predict"),
    "lfm2": ("--arch lfm2 --layers 4 --rope-base 1000000", "conv"),
    "lfm2-q8_0": ("--arch lfm2 --layers 5 --attention 2 --taps 4 --type q8_0", "conv"),
    "qwen3moe": ("--arch qwen3moe --no-tied --experts 16 --top-k 3 --expert-ffn 48", "top_k"),
    "qwen3moe-q8_0": ("--arch qwen3moe --type q8_0 --no-tied --experts 16 --top-k 3 --expert-ffn 64", "top_k"),
    "qwen2moe": ("--arch qwen2moe --no-tied --experts 12 --top-k 4 --expert-ffn 32 --shared-ffn 80", "shared"),
    "olmoe": ("--arch olmoe --no-tied --experts 16 --top-k 4 --kv-heads 4", "top_k"),
    "granitemoe": ("--arch granitemoe --no-tied --experts 10 --top-k 3 --f32 attention.scale=0.2 --f32 embedding_scale=2 --f32 residual_scale=0.4 --f32 logit_scale=2",
                   "top_k"),
    "granitemoe-shared": ("--arch granitemoe --experts 8 --top-k 2 --shared-ffn 48 --f32 residual_scale=0.6 --f32 logit_scale=2", "shared"),
    "glm4moe": ("--arch glm4moe --no-tied --layers 3 --bias --qk-norm --experts 16 --top-k 4 --expert-ffn 32 --shared-ffn 32 --dense-layers 1 "
                "--nextn 1 --rope-dim 8 --u32 expert_group_count=4 --u32 expert_group_used_count=2 --f32 expert_weights_scale=2.5", "select_bias"),
    "glm4moe-groups": ("--arch glm4moe --no-tied --experts 12 --top-k 3 --expert-ffn 32 --shared-ffn 64 --rope-dim 8 "
                       "--u32 expert_group_count=6 --u32 expert_group_used_count=2", "groups"),
    "ernie4_5-moe": ("--arch ernie4_5-moe --layers 4 --experts 8 --top-k 3 --expert-ffn 48 --shared-ffn 96 --dense-layers 1 --expert-step 2", "shared"),
    "hunyuan-moe": ("--arch hunyuan-moe --no-tied --experts 8 --top-k 2 --expert-ffn 96 --shared-ffn 96", "shared"),
    "dots1": ("--arch dots1 --no-tied --experts 8 --top-k 3 --expert-ffn 32 --shared-ffn 64 --dense-layers 1 --f32 expert_weights_scale=1.5", "select_bias"),
    "gpt-oss": ("--arch gpt-oss --no-tied --layers 3 --head-dim 24 --window 24 --experts 8 --top-k 3 --expert-ffn 96", "sinks"),
    "gpt-oss-yarn": (f"--arch gpt-oss --no-tied --window 24 --head-dim 32 --experts 4 --expert-ffn 96 {YARN} --rope-factor 8", "rope"),
    "gpt-oss-mxfp4": (f"--arch gpt-oss --no-tied --window 24 --head-dim 32 --experts 4 --expert-ffn 96 --type bf16 --expert-type mxfp4 {YARN} "
                      "--rope-factor 16", "sinks"),
    "llama4": ("--arch llama4 --no-tied --layers 5 --head-dim 32 --experts 6 --top-k 1 --expert-ffn 48 --shared-ffn 48 --expert-step 2 "
               "--rope-base 50000", "qk_norm"),
    "llama4-chunk": ("--arch llama4 --layers 4 --experts 6 --top-k 2 --expert-ffn 48 --shared-ffn 48 --window 24 "
                     "--f32 attention.temperature_scale=0.5 --u32 attention.temperature_length=16", "window"),
    "llama4-maverick": ("--arch llama4 --no-tied --layers 4 --hidden 32 --experts 128 --top-k 1 --expert-ffn 16 --shared-ffn 16 --rope llama3 "
                        "--rope-factor 8 --rope-original 32", "shared"),
    "mixtral": ("--no-tied --experts 8", "top_k"),
    "mixtral-bf16": ("--type bf16 --no-tied --experts 8", "top_k"),
    "qwen2moe-q4_k_m": (f"--arch qwen2moe --type q4_k_m {K} --no-tied --experts 6 --top-k 2 --expert-ffn 256 --shared-ffn 256", "shared"),
    "qwen35": ("--arch qwen35 --layers 5 --nextn 1 --head-dim 32 --rope-dim 8 --no-tied --rope-base 1000000 --taps 4", "conv"),
    "qwen35-axes": ("--arch qwen35 --layers 4 --head-dim 32 --rope-dim 32 --no-tied --taps 4 --sections 8,5,3", "axes"),
    "qwen35-grouped": ("--arch qwen35 --layers 4 --taps 4 --states 6,3,32,32", "gate"),
    "granitehybrid": ("--arch granitehybrid --layers 4 --taps 4 --states 8,1,16,16 --no-tied --f32 attention.scale=0.2 "
                      "--f32 embedding_scale=2 --f32 residual_scale=0.4 --f32 logit_scale=2", "conv"),
    "falcon-h1": ("--arch falcon-h1 --layers 2 --taps 4 --states 4,2,16,16 --no-tied", "conv"),
    "mamba2": ("--arch mamba2 --layers 3 --taps 4 --states 8,2,16,16 --no-tied", "conv"),
    "mamba2-tied": ("--arch mamba2 --layers 2 --states 4,1,24,32", "conv"),
    "nemotron_h": ("--arch nemotron_h --pattern M-M*-MM- --taps 4 --states 8,2,16,16 --head-dim 24 --no-tied", "conv"),
    "nemotron_h_moe": ("--arch nemotron_h_moe --pattern M-*M- --taps 4 --states 4,2,16,16 --no-tied --experts 8 --top-k 3 --expert-ffn 48 "
                       "--shared-ffn 96 --f32 expert_weights_scale=2.5", "select_bias"),
    "qwen35moe": ("--arch qwen35moe --layers 4 --head-dim 32 --rope-dim 8 --no-tied --rope-base 1000000 --taps 4 --experts 12 --top-k 3 "
                  "--expert-ffn 32 --shared-ffn 48", "shared"),
    "qwen3next": ("--arch qwen3next --layers 4 --head-dim 32 --rope-dim 8 --no-tied --taps 4 --states 6,3,16,16 --experts 8 --top-k 2 "
                  "--expert-ffn 32 --shared-ffn 32", "conv"),
    "granitehybrid-moe": ("--arch granitehybrid --layers 3 --taps 4 --states 8,1,16,16 --experts 8 --top-k 3 --shared-ffn 48 --f32 residual_scale=0.6 "
                          "--f32 logit_scale=2", "shared"),
    "lfm2moe": ("--arch lfm2moe --layers 4 --rope-base 1000000 --experts 8 --top-k 3 --expert-ffn 32 --dense-layers 1", "exp_probs_b"),
    "starcoder2": ("--arch starcoder2 --bias --out-bias --ffn-bias --no-tied", "bias"),
    "stablelm": ("--arch stablelm --kv-heads 4 --rope-dim 4 --no-tied", "norm_bias"),
    "stablelm-parallel": ("--arch stablelm --bias --qk-norm --one-norm --rope-dim 4 --no-tied", "qk_norm"),
    "phi2": ("--arch phi2 --kv-heads 4 --bias --out-bias --ffn-bias --rope-dim 8 --no-tied", "bias"),
    "gptneox": ("--arch gptneox --kv-heads 4 --bias --out-bias --ffn-bias --rope-dim 4 --no-tied", "sequential"),
    "gptneox-parallel": ("--arch gptneox --kv-heads 4 --bias --out-bias --ffn-bias --parallel --rope-dim 4 --no-tied", "parallel"),
    "nemotron": ("--arch nemotron --rope-dim 8 --no-tied", "act"),
    "command-r": ("--arch command-r --f32 logit_scale=0.25", "scales"),
    "command-r-plus": ("--arch command-r --no-tied --qk-norm --f32 logit_scale=0.25", "qk_norm"),
    "cohere2": ("--arch cohere2 --layers 5 --window 24 --rope-base 50000 --f32 logit_scale=0.5", "window"),
    "deepseek2": (f"{LATENT} --q-lora 48", None),
    "deepseek2-lite": (f"{LATENT} --layers 3", None),
    "deepseek2-kv-b": (f"{LATENT} --q-lora 48 --kv-b", None),
    "deepseek2-yarn": (f"{LATENT} --q-lora 48 {YARN} --rope-factor 8 --f32 rope.scaling.yarn_log_multiplier=0.1", "mscale"),
    "deepseek2-v2": (f"{LATENT} --layers 3 --q-lora 48 --experts 12 --top-k 3 --expert-ffn 32 --shared-ffn 64 --dense-layers 1 "
                     "--u32 expert_group_count=4 --u32 expert_group_used_count=2 --f32 expert_weights_scale=4", "groups"),
    "deepseek2-v3": (f"{LATENT} --layers 3 --q-lora 48 --experts 16 --top-k 4 --expert-ffn 32 --shared-ffn 32 --dense-layers 1 --nextn 1 "
                     "--select-bias --u32 expert_group_count=4 --u32 expert_group_used_count=2 --f32 expert_weights_scale=2.5", "groups"),
    "deepseek2-q8_0": (f"{LATENT} --q-lora 64 --kv-lora 64 --nope-dim 32 --v-dim 32 --type q8_0", None),
    "gptq": ("--method gptq --no-tied", None),  # what folders have beside floats, and the same numbers as GGUF
    "gptq-8": ("--method gptq-8 --no-tied", None),
    "gptq-zeros": ("--method gptq-zeros --ffn 128", None),
    "gptq-order": ("--method gptq-order --no-tied --type f16", None),
    "qwen3moe-gptq": ("--arch qwen3moe --method gptq --no-tied --experts 8 --top-k 2 --expert-ffn 32", "top_k"),
    "awq": ("--method awq --ffn 128 --no-tied", None),
    "packed-zeros": ("--arch qwen2 --method packed-zeros --ffn 128", "bias"),
    "int8": ("--method int8 --no-tied", None),
    "fp8": ("--method fp8 --no-tied", None),
    "nvfp4": ("--method nvfp4 --no-tied", None),
    "mxfp4": ("--method mxfp4 --no-tied", None),
    "minicpm3": ("--arch minicpm3 --no-tied --layers 3 --q-lora 48 --kv-b --rope-dim 8 --nope-dim 24 --v-dim 16 --kv-lora 40", "scales"),
    "minicpm3-long": ("--arch minicpm3 --no-tied --q-lora 48 --kv-b --rope-dim 16 --nope-dim 16 --v-dim 16 --kv-lora 40 --rope longrope --rope-original 256",
                      "rope"),
    "llama-f16": ("--type f16 --no-tied", None),
    "mistral-bf16": ("--type bf16 --window 20", "window"),
    "qwen2-q8_0": ("--arch qwen2 --type q8_0 --no-tied", "bias"),
    "qwen3-bf16": ("--arch qwen3 --type bf16 --head-dim 32 --no-tied", "qk_norm"),
    "llama-q8_0": ("--type q8_0", None),
    "llama-q4_0": ("--type q4_0 --no-tied", None),
    "llama-q4_k": (f"--type q4_k {K}", None),
    "llama-q5_k": (f"--type q5_k {K} --no-tied", None),
    "llama-q6_k": (f"--type q6_k {K}", None),
    "llama-q4_k_m": (f"--type q4_k_m {K} --layers 2 --no-tied", None),
    "qwen2-q4_0": ("--arch qwen2 --type q4_0", "bias"),
    "qwen2-q4_k_m": (f"--arch qwen2 --type q4_k_m {K} --layers 2 --no-tied", "bias"),
    "qwen2-q5_k": (f"--arch qwen2 --type q5_k {K} --layers 2 --no-tied", "bias"),
    "qwen3-q4_k": (f"--arch qwen3 --type q4_k {K} --layers 2 --no-tied", "qk_norm"),
    "qwen3-q6_k": (f"--arch qwen3 --type q6_k {K} --layers 2 --no-tied", "qk_norm"),
    "qwen3-q8_0": ("--arch qwen3 --type q8_0 --head-dim 32 --no-tied", "qk_norm"),
}
# Of the prompts of cases with --sections: first row, frames, lines, columns
GRIDS = [[10, 1, 4, 6], [60, 1, 3, 3], [70, 1, 5, 2]]


def weights_of(a):
    return folder_quants.WEIGHTS[folder_quants.METHODS[a.method]["kind"]] if a.method else a.expert_type or a.type


def path_of(name):
    return os.path.join(GOLDEN, name + ".json")


def make_models(folder):
    # Of the same arguments a file and a folder have the same numbers, and most cases share some.
    make_gguf.uniform = functools.lru_cache(2000)(lambda *a, numbers=make_gguf.uniform: array.array("d", numbers(*a)))
    os.makedirs(folder, exist_ok=True)
    for path in sorted(glob.glob(path_of("*"))):
        with open(path, encoding="utf-8") as f:
            golden = json.load(f)
        make_gguf.main([os.path.join(folder, golden["name"] + ".gguf")] + golden["arguments"])
        a = make_gguf.parse(["x"] + golden["arguments"])
        if (golden["weights"] in FLOATS or a.expert_type or a.method) and golden["name"] not in NO_FOLDER and a.arch in make_folder.ARCHS:
            make_folder.main([os.path.join(folder, golden["name"])] + golden["arguments"])


# ---- the oracle


def configuration(a, off):
    """The transformers model that the arguments ask for; `off` names what to leave out."""
    import transformers as tf

    common = dict(vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers,
                  num_attention_heads=a.heads, num_key_value_heads=a.kv_heads, head_dim=a.head_dim,
                  max_position_embeddings=a.context, rms_norm_eps=1e-5, rope_theta=a.rope_base,
                  tie_word_embeddings=a.tied, attention_dropout=0.0, attn_implementation="eager", hidden_act="silu")
    more = dict(a.f32)
    if a.arch == "gemma4":
        return gemma4_model(a, more, off).double().eval()
    if a.arch == "gemma3n":
        return gemma3n_model(a, more, off).double().eval()
    if a.alone:
        return mamba2_model(a).double().eval()
    if a.rope == "longrope":
        short, far = make_gguf.long_factors(a)
        common["original_max_position_embeddings"] = a.rope_original
        attention = more.pop("rope.scaling.attn_factor", None)  # theirs is worked out from the contexts
        if off != "rope":
            common["rope_scaling"] = dict(type="longrope", short_factor=short, long_factor=far)
        if a.arch == "phimoe":  # which has it
            common["rope_scaling"].update(short_mscale=attention, long_mscale=attention, original_max_position_embeddings=a.rope_original)
    elif a.rope != "none" and off != "rope":
        scaling = dict(rope_type=a.rope.split("-")[0], factor=a.rope_factor)
        if a.rope == "yarn":
            scaling["original_max_position_embeddings"] = a.rope_original
            scaling["beta_fast"] = more.pop("rope.scaling.yarn_beta_fast", 32.0)
            scaling["beta_slow"] = more.pop("rope.scaling.yarn_beta_slow", 1.0)
            scaling["truncate"] = a.arch != "gpt-oss"
            if "rope.scaling.attn_factor" in more:  # GGUF's multiplies what the factor implies, theirs replaces it
                scaling["attention_factor"] = more.pop("rope.scaling.attn_factor") * (0.1 * math.log(a.rope_factor) + 1)
        elif scaling["rope_type"] == "llama3":
            scaling.update(low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=a.rope_original)
        common["rope_scaling"] = scaling
    if a.latent:
        return latent_model(a, common, more, off).double().eval()
    names = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
             "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
    scales = {theirs: more.pop(ours) for ours, theirs in names.items() if ours in more}
    scale = None if a.arch.startswith("granite") else scales.pop("attention_multiplier", None)
    caps = {k.removesuffix("ping") + "ping": None if off == "softcap" else more.pop(k, None) for k in
            ("attn_logit_softcapping", "final_logit_softcapping")}
    more.pop("expert_weights_scale", None)
    temperature = more.pop("attention.temperature_scale", 0)
    if temperature and a.arch == "mistral3":
        common["rope_scaling"].update(mscale=1.0, mscale_all_dim=more.pop("rope.scaling.yarn_log_multiplier"))
    if a.arch == "mistral3":
        warm_queries(0 if off == "temperature" else temperature, a.rope_original)
    if a.arch == "llama4":
        return llama4_model(a, common, temperature, off)
    layer_types = None
    if a.arch in PATTERNS:
        n = PATTERNS[a.arch]
        full = off == "window" or not a.window
        layer_types = ["full_attention" if full or i % n == n - 1 else "sliding_attention" for i in range(a.layers)]
    layer_norms = layer_norm_model(a, common, layer_types, scales.get("logits_scaling", 1.0), off)
    gemma = dict(common, query_pre_attn_scalar=a.head_dim, hidden_activation="gelu_pytorch_tanh", sliding_window=a.window or 4096)
    gemma.pop("hidden_act")
    if off == "softcap":
        more = {}
    if more and off != "rope":
        sys.exit(f"no oracle for {more}")
    states = dict(mamba_n_heads=a.state_heads, mamba_n_groups=a.state_groups, mamba_d_state=a.state_rows, mamba_d_head=a.state_columns,
                  mamba_d_conv=a.taps, mamba_chunk_size=64)
    experts = dict(num_experts_per_tok=1 if off == "top_k" else a.top_k, moe_intermediate_size=a.expert_ffn)
    if layer_norms:
        model = layer_norms
    elif a.arch in ("qwen3moe", "qwen3vlmoe"):
        model = tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**common, **experts, num_experts=a.experts, norm_topk_prob=True))
    elif a.arch == "qwen2moe":
        model = tf.Qwen2MoeForCausalLM(tf.Qwen2MoeConfig(**common, **experts, num_experts=a.experts, norm_topk_prob=False, use_sliding_window=False,
                                                         shared_expert_intermediate_size=a.shared_ffn))
    elif a.arch == "olmoe":
        model = tf.OlmoeForCausalLM(tf.OlmoeConfig(**common, **experts, num_experts=a.experts, norm_topk_prob=False, pad_token_id=None))
    elif a.arch == "granitemoe":
        scales = {"attention_multiplier": a.head_dim**-0.5, **scales}
        model = tf.GraniteMoeSharedForCausalLM(tf.GraniteMoeSharedConfig(**common, **experts, **scales, num_local_experts=a.experts,
                                                                         shared_intermediate_size=a.shared_ffn, attention_bias=a.bias))
    elif a.arch in ("glm4moe", "dots1"):
        glm = a.arch == "glm4moe"
        groups = (1, 1) if off == "groups" else (a.u32.get("expert_group_count", 1), a.u32.get("expert_group_used_count", 1))
        sigmoid = dict(experts, n_routed_experts=a.experts, n_shared_experts=a.shared_ffn // a.expert_ffn, first_k_dense_replace=a.dense_layers,
                       n_group=groups[0], topk_group=groups[1], norm_topk_prob=True, pad_token_id=None,
                       routed_scaling_factor=dict(a.f32).get("expert_weights_scale", 1.0), attention_bias=a.bias)
        if glm:
            sigmoid.update(use_qk_norm=a.qk_norm, partial_rotary_factor=a.rope_dim / a.head_dim)
        model = (tf.Glm4MoeForCausalLM(tf.Glm4MoeConfig(**common, **sigmoid)) if glm else tf.Dots1ForCausalLM(tf.Dots1Config(**common, **sigmoid)))
    elif a.arch == "ernie4_5-moe":
        model = tf.Ernie4_5_MoeForCausalLM(tf.Ernie4_5_MoeConfig(
            **common, moe_num_experts=a.experts, moe_k=a.top_k, moe_intermediate_size=a.expert_ffn, use_bias=False, pad_token_id=None,
            moe_num_shared_experts=a.shared_ffn // a.expert_ffn, moe_layer_start_index=a.dense_layers, moe_layer_interval=a.expert_step))
    elif a.arch == "hunyuan-moe":
        model = tf.HunYuanMoEV1ForCausalLM(tf.HunYuanMoEV1Config(**common, num_experts=a.experts, moe_topk=a.top_k, pad_token_id=None))
    elif a.arch == "gpt-oss":
        model = tf.GptOssForCausalLM(tf.GptOssConfig(**{"rope_scaling": None, **common}, num_local_experts=a.experts, num_experts_per_tok=a.top_k,
                                                     sliding_window=a.window, layer_types=layer_types))
    elif a.arch == "llama" and a.experts:
        model = tf.MixtralForCausalLM(tf.MixtralConfig(**common, **experts, num_local_experts=a.experts))
    elif a.arch in ("qwen2", "qwen2vl"):
        model = tf.Qwen2ForCausalLM(tf.Qwen2Config(**common, use_sliding_window=False))
    elif a.arch in ("qwen3", "qwen3vl"):
        model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**common, use_sliding_window=False, attention_bias=False))
    elif a.arch in ("granite", "minicpm"):  # MiniCPM's code comes with its weights; Granite's does the same
        scales = {"attention_multiplier": a.head_dim**-0.5, **({} if off == "scales" else scales)}
        model = tf.GraniteForCausalLM(tf.GraniteConfig(**common, **scales, attention_bias=a.bias))
    elif a.arch == "olmo2" and a.window:
        model = tf.Olmo3ForCausalLM(tf.Olmo3Config(**common, sliding_window=a.window, layer_types=layer_types, pad_token_id=None))
    elif a.arch == "olmo2":
        model = tf.Olmo2ForCausalLM(tf.Olmo2Config(**common, pad_token_id=None))
    elif a.arch == "chatglm":
        model = tf.GlmForCausalLM(tf.GlmConfig(**common, attention_bias=a.bias, pad_token_id=None, partial_rotary_factor=a.rope_dim / a.head_dim))
    elif a.arch == "arcee":
        model = tf.ArceeForCausalLM(tf.ArceeConfig(**{**common, "hidden_act": "silu" if off == "act" else "relu2"}, attention_bias=False, mlp_bias=False))
    elif a.arch == "glm4":
        model = tf.Glm4ForCausalLM(tf.Glm4Config(**common, attention_bias=a.bias, pad_token_id=None,
                                                 partial_rotary_factor=a.rope_dim / a.head_dim))
    elif a.arch == "exaone4":
        model = tf.Exaone4ForCausalLM(tf.Exaone4Config(**common, sliding_window=a.window or None, layer_types=layer_types,
                                                       sliding_window_pattern=4 if a.window else None))
    elif a.arch == "gemma":
        model = tf.GemmaForCausalLM(tf.GemmaConfig(**{**common, "hidden_act": "gelu_pytorch_tanh"}, pad_token_id=None))
    elif a.arch == "gemma2":
        model = tf.Gemma2ForCausalLM(tf.Gemma2Config(**gemma, **caps, layer_types=layer_types))
    elif a.arch == "gemma3":
        model = tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**gemma, layer_types=layer_types, rope_local_base_freq=10000.0))
    elif a.arch == "lfm2":
        kinds = ["full_attention" if attends else "conv" for attends in a.attends]
        model = tf.Lfm2ForCausalLM(tf.Lfm2Config(**common, norm_eps=1e-5, conv_L_cache=a.taps, layer_types=kinds, pad_token_id=None,
                                                 block_auto_adjust_ff_dim=False))
    elif a.arch == "lfm2moe":
        kinds = ["full_attention" if attends else "conv" for attends in a.attends]
        model = tf.Lfm2MoeForCausalLM(tf.Lfm2MoeConfig(
            **common, **experts, norm_eps=1e-5, conv_L_cache=a.taps, layer_types=kinds, num_experts=a.experts, num_dense_layers=a.dense_layers,
            rope_parameters=dict(rope_type="default", rope_theta=a.rope_base)))
    elif a.arch == "granitehybrid":
        kinds = ["attention" if attends else "mamba" for attends in a.attends]
        scales = {"attention_multiplier": a.head_dim**-0.5, **scales}
        model = tf.GraniteMoeHybridForCausalLM(tf.GraniteMoeHybridConfig(
            **{**common, **scales}, layer_types=kinds, num_local_experts=a.experts, num_experts_per_tok=a.top_k,
            shared_intermediate_size=a.shared_ffn or a.ffn, position_embedding_type="rope", **states, mamba_expand=a.state_heads * a.state_columns // a.hidden))
    elif a.one_part:
        kinds = {"M": "linear_attention", "*": "full_attention", "-": "moe" if a.experts else "mlp"}
        model = tf.NemotronHForCausalLM(tf.NemotronHConfig(
            **common, **experts, layers_block_type=[kinds[part] for part in a.pattern], layer_norm_epsilon=1e-5, ssm_state_size=a.state_rows,
            mamba_num_heads=a.state_heads, mamba_head_dim=a.state_columns, n_groups=a.state_groups, conv_kernel=a.taps, chunk_size=64,
            expand=a.state_heads * a.state_columns // a.hidden, time_step_min=1e-30, n_routed_experts=a.experts or 8,
            moe_shared_expert_intermediate_size=a.shared_ffn, routed_scaling_factor=dict(a.f32).get("expert_weights_scale", 1.0)))
    elif a.arch == "falcon-h1":
        model = tf.FalconH1ForCausalLM(tf.FalconH1Config(**common, **states, mamba_d_ssm=a.state_heads * a.state_columns))
    elif a.mix == "delta":  # Qwen 3.5 is Qwen3-Next, but for the order of rows
        kinds = ["full_attention" if attends else "linear_attention" for attends in a.attends[: a.layers]]
        model = tf.Qwen3NextForCausalLM(tf.Qwen3NextConfig(
            **common, **experts, layer_types=kinds, num_experts=a.experts, norm_topk_prob=True, shared_expert_intermediate_size=a.shared_ffn, partial_rotary_factor=(a.rope_dim or a.head_dim) / a.head_dim,
            linear_conv_kernel_dim=a.taps, linear_num_value_heads=a.state_heads, linear_num_key_heads=a.state_groups,
            linear_key_head_dim=a.state_rows, linear_value_head_dim=a.state_columns))
    elif a.arch == "phi3":
        window = None if off == "window" else a.window or None
        model = tf.Phi3ForCausalLM(tf.Phi3Config(**common, sliding_window=window, pad_token_id=None, resid_pdrop=0.0,
                                                 partial_rotary_factor=(a.rope_dim or a.head_dim) / a.head_dim))
    elif a.arch == "smollm3":
        no_rope = [1] * a.layers if off == "no_rope" else None
        model = tf.SmolLM3ForCausalLM(tf.SmolLM3Config(**common, pad_token_id=None, no_rope_layers=no_rope))
    elif a.arch == "ernie4_5":
        model = tf.Ernie4_5ForCausalLM(tf.Ernie4_5Config(**common))
    elif a.arch == "seed_oss":
        model = tf.SeedOssForCausalLM(tf.SeedOssConfig(**common, attention_bias=True, attention_out_bias=False, residual_dropout=0.0))
    elif a.arch == "hunyuan-dense":
        model = tf.HunYuanDenseV1ForCausalLM(tf.HunYuanDenseV1Config(**common))
    elif a.window or a.arch == "mistral3":
        model = tf.MistralForCausalLM(tf.MistralConfig(**common, sliding_window=None if off == "window" else a.window or None))
    else:
        model = tf.LlamaForCausalLM(tf.LlamaConfig(**common, attention_bias=True, mlp_bias=False))
    for layer in (model.gpt_neox if a.arch == "gptneox" else model.model).layers:
        if scale is not None and off != "scale":
            layer.self_attn.scaling = scale
        if off == "post_norm":
            import torch
            for name in ("post_attention_layernorm", "post_feedforward_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"):
                if hasattr(layer, name) and not (a.arch == "glm4" and name == "post_attention_layernorm"):
                    setattr(layer, name, torch.nn.Identity())
        if off == "qk_norm":
            import torch
            for name in ("q_norm", "k_norm", "query_layernorm", "key_layernorm", "q_layernorm", "k_layernorm"):
                if hasattr(layer.self_attn, name):
                    setattr(layer.self_attn, name, torch.nn.Identity())
    model = model.double().eval()
    for layer in model.model.layers:
        gate = getattr(layer.mlp, "gate", None) if hasattr(layer, "mlp") else None
        if a.arch == "ernie4_5-moe" and gate is not None:
            gate.float()  # they give it float32
        if a.arch in ("glm4moe", "dots1") and gate is not None:
            widen_weights(gate)
    return model


def warm_queries(scale, step):
    """Ministral 3's temperature, which this version of transformers lacks, in Mistral's attention."""
    import torch
    from transformers.models.mistral import modeling_mistral as mistral

    warm_queries.rotate = getattr(warm_queries, "rotate", mistral.apply_rotary_pos_emb)

    def rotate(q, k, cos, sin, *rest, **more):
        q, k = warm_queries.rotate(q, k, cos, sin, *rest, **more)
        return q * (1 + scale * torch.log(1 + torch.arange(q.shape[2]).double() // step))[:, None], k

    mistral.apply_rotary_pos_emb = rotate


def widen_weights(router):
    router.register_forward_hook(lambda m, x, chosen: (chosen[0], chosen[1].double()))  # it gives float32


def expert_tensors(a, base, x, off):
    """The model's names of the tensors of a file's layer with experts, which has those of all experts as one."""
    mlp = "block_sparse_moe" if a.arch in ("llama", "phimoe") or a.arch.startswith("granite") else "mlp"
    part = {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"}
    if a.arch in ("llama", "phimoe"):
        part = {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}
    if a.arch == "gemma4":
        ours = {"ffn_gate_inp": "router.proj.weight"}
        ours.update({"ffn_gate_up_exps": "experts.gate_up_proj", "ffn_down_exps": "experts.down_proj"} if a.fused_experts else {})
        return {ours.get(base, base): x}
    if a.one_part:
        ours = {"ffn_gate_inp": "gate.weight", "exp_probs_b": "gate.e_score_correction_bias", "ffn_up_exps": "experts.up_proj",
                "ffn_down_exps": "experts.down_proj", "ffn_up_shexp": "shared_experts.up_proj.weight", "ffn_down_shexp": "shared_experts.down_proj.weight"}
        return {f"mixer.{ours[base]}": x * (off != "select_bias" or base != "exp_probs_b")}
    if a.arch == "lfm2moe":
        return {{"ffn_gate_inp": "feed_forward.gate.weight", "exp_probs_b": "feed_forward.expert_bias"}.get(base, base): x * (off != base)}
    if base == "ffn_gate_inp":
        router = {"granitemoe": "router.layer", "granitehybrid": "router.layer", "hunyuan-moe": "gate.wg"}.get(a.arch, "gate")
        return {f"{mlp}.{router}.weight": x}
    if base == "exp_probs_b":
        x = x * (off != "select_bias")
        return {"mlp.moe_statics.e_score_correction_bias": x[None]} if a.arch == "ernie4_5-moe" else {"mlp.gate.e_score_correction_bias": x}
    if base == "ffn_gate_inp_shexp":
        return {"mlp.shared_expert_gate.weight": x[None]}
    if base.endswith("_shexp"):
        x = x * (off != "shared")
        shared = {"qwen2moe": "shared_expert", "hunyuan-moe": "shared_mlp"}.get(a.arch, "shared_expert" if a.mix else "shared_experts")
        if a.arch.startswith("granite"):
            return {f"shared_mlp.{base}": x}
        return {f"mlp.{shared}.{part[base.removesuffix('_shexp')]}.weight": x}
    if a.arch.startswith("granite"):
        return {f"{mlp}.{base}": x}
    return {f"{mlp}.experts.{e}.{part[base.removesuffix('_exps')]}.weight": x[e] for e in range(a.experts)}


DELTA = ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha", "ssm_ba", "ssm_conv1d", "ssm_a", "ssm_dt", "ssm_norm", "ssm_out")


def delta_net(a, t, off):
    """The weights of a gated delta net: theirs lie group by group of heads, with q, k, v, z of each group beside each other; the file
    of Qwen 3.5 has the first head of each group, then the second."""
    import numpy as np

    heads, groups, rows, columns = a.state_heads, a.state_groups, a.state_rows, a.state_columns
    each, keys = heads // groups, groups * rows

    def by_group(x, size):
        return x if a.beta_alpha else x.reshape(each, groups, size, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    q, k, v = np.split(t["attn_qkv"], [keys, 2 * keys])
    parts = [q, k, by_group(v, columns), by_group(t["attn_gate"], columns)]
    beta_alpha = t.get("ssm_ba")
    if beta_alpha is None:
        beta_alpha = np.concatenate([by_group(t[name], 1).reshape(groups, each, a.hidden) for name in ("ssm_beta", "ssm_alpha")], 1)
    conv = t["ssm_conv1d"].copy()
    conv[2 * keys:] = by_group(conv[2 * keys:], columns)
    if off == "conv":
        conv[:, :-1] = 0
    return {"in_proj_qkvz.weight": np.concatenate([x.reshape(groups, -1, a.hidden) for x in parts], 1).reshape(-1, a.hidden),
            "in_proj_ba.weight": beta_alpha.reshape(-1, a.hidden),
            "conv1d.weight": conv[:, None], "A_log": np.log(-by_group(t["ssm_a"], 1)), "dt_bias": by_group(t["ssm_dt"], 1),
            "norm.weight": t["ssm_norm"], "out_proj.weight": by_group(t["ssm_out"].T, columns).T}


def mamba2_model(a):
    import transformers as tf

    return tf.Mamba2ForCausalLM(tf.Mamba2Config(
        vocab_size=a.vocab, hidden_size=a.hidden, num_hidden_layers=a.layers, num_heads=a.state_heads, head_dim=a.state_columns, n_groups=a.state_groups,
        state_size=a.state_rows, conv_kernel=a.taps, expand=a.state_heads * a.state_columns // a.hidden, layer_norm_epsilon=1e-5, chunk_size=64,
        tie_word_embeddings=a.tied, use_bias=False, use_conv_bias=True))


def layer_norm_model(a, common, layer_types, scale, off):
    """The model of a family whose norms are LayerNorm; None: another family."""
    import transformers as tf

    common = {**common, "layer_norm_eps": 1e-5, "norm_eps": 1e-5, "norm_epsilon": 1e-5, "partial_rotary_factor": (a.rope_dim or a.head_dim) / a.head_dim}
    scale = 1.0 if off == "scales" else scale
    if a.arch == "phimoe":
        return tf.PhimoeForCausalLM(tf.PhimoeConfig(**common, attention_bias=True, lm_head_bias=True, num_local_experts=a.experts, sliding_window=a.window or None,
                                                    num_experts_per_tok=a.top_k, router_jitter_noise=0 if off == "in_turn" else 0.01))
    if a.arch == "starcoder2":
        return tf.Starcoder2ForCausalLM(tf.Starcoder2Config(**{**common, "hidden_act": "gelu_pytorch_tanh"}, use_bias=True))
    if a.arch == "stablelm":
        tf.StableLmPreTrainedModel._init_weights = lambda self, module: None  # theirs asks norms without biases for them
        return tf.StableLmForCausalLM(tf.StableLmConfig(**common, use_qkv_bias=a.bias, qk_layernorm=a.qk_norm, use_parallel_residual=a.one_norm))
    if a.arch == "phi2":
        return tf.PhiForCausalLM(tf.PhiConfig(**{**common, "hidden_act": "gelu_new"}))
    if a.arch == "gptneox":
        return tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**{**common, "hidden_act": "gelu"}, rotary_pct=common["partial_rotary_factor"],
                                                      rotary_emb_base=a.rope_base, use_parallel_residual=a.parallel != (off in ("parallel", "sequential"))))
    if a.arch == "nemotron":
        return tf.NemotronForCausalLM(tf.NemotronConfig(**{**common, "hidden_act": "gelu" if off == "act" else "relu2"}))
    if a.arch == "command-r":
        return tf.CohereForCausalLM(tf.CohereConfig(**common, logit_scale=scale, use_qk_norm=a.qk_norm))
    if a.arch == "cohere2":
        return tf.Cohere2ForCausalLM(tf.Cohere2Config(**common, logit_scale=scale, sliding_window=a.window, layer_types=layer_types))
    return None


# Names of the modules of some families, if not Llama's.
RENAMED = {"starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
           "stablelm": {"attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm"},
           "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2", "output_norm": "model.final_layernorm"},
           "gptneox": {"attn_qkv": "attention.query_key_value", "attn_output": "attention.dense", "ffn_up": "mlp.dense_h_to_4h",
                       "ffn_down": "mlp.dense_4h_to_h", "token_embd": "model.embed_in", "output_norm": "model.final_layer_norm",
                       "output": "embed_out"},
           "nemotron_h": {"attn_norm": "norm", "attn_q": "mixer.q_proj", "attn_k": "mixer.k_proj", "attn_v": "mixer.v_proj",
                          "attn_output": "mixer.o_proj", "ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj", "ssm_in": "mixer.in_proj",
                          "ssm_conv1d": "mixer.conv1d", "ssm_dt": "mixer.dt_bias", "ssm_a": "mixer.A_log", "ssm_d": "mixer.D",
                          "ssm_norm": "mixer.norm", "ssm_out": "mixer.out_proj", "token_embd": "model.embeddings", "output_norm": "model.norm_f"}}
RENAMED["nemotron_h_moe"] = RENAMED["nemotron_h"]
RENAMED["mamba2"] = RENAMED["nemotron_h"]
PREFIXES = {"gptneox": "gpt_neox.", "mamba2": "backbone."}  # if not model.


def latent_model(a, common, more, off):
    """MiniCPM 3's code comes with its weights; DeepSeek's does the same. DeepSeek V3's attention is V2's, and also knows mscale_all_dim; without it, and without its experts, V2's is taken."""
    import transformers as tf

    common.update(q_lora_rank=a.q_lora or None, kv_lora_rank=a.kv_lora, qk_nope_head_dim=a.nope_dim, qk_rope_head_dim=a.rope_dim,
                  v_head_dim=a.v_dim, num_key_value_heads=a.heads, head_dim=a.rope_dim, pad_token_id=None,
                  first_k_dense_replace=a.dense_layers if a.experts else a.layers)
    if a.experts:
        groups = (1, 1) if off == "groups" else (a.u32.get("expert_group_count", 1), a.u32.get("expert_group_used_count", 1))
        common.update(n_routed_experts=a.experts, num_experts_per_tok=a.top_k, moe_intermediate_size=a.expert_ffn, n_group=groups[0],
                      n_shared_experts=a.shared_ffn // a.expert_ffn, topk_group=groups[1], norm_topk_prob=a.select_bias,
                      routed_scaling_factor=more.pop("expert_weights_scale", 1.0), topk_method="group_limited_greedy")
    log = more.pop("rope.scaling.yarn_log_multiplier", 0)
    if log and off != "mscale":
        common["rope_scaling"].update(mscale=10 * log, mscale_all_dim=10 * log)
    if more:
        sys.exit(f"no oracle for {more}")
    common["rope_interleave"] = a.arch == "deepseek2"
    if a.rope == "longrope" and off != "rope":
        common["rope_scaling"]["factor"] = 1.0
    v3 = a.q_lora and (a.select_bias or not a.experts)
    model = tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(**common)) if v3 else tf.DeepseekV2ForCausalLM(tf.DeepseekV2Config(**common))
    for layer in model.model.layers:  # theirs have an epsilon of their own, 1e-6; files have one
        for norm in ("q_a_layernorm", "kv_a_layernorm"):
            if hasattr(layer.self_attn, norm):
                getattr(layer.self_attn, norm).variance_epsilon = common["rms_norm_eps"]
        if v3 and hasattr(layer.mlp, "gate"):
            widen_weights(layer.mlp.gate)
    return model


def join_granite(state):
    """GraniteMoe, LFM2 MoE and Gemma 4 have gate and up as one tensor."""
    import torch

    for name in [n for n in state if n.endswith(".ffn_gate_exps") and "moe" not in n]:
        base = name.removesuffix("ffn_gate_exps")
        mlp = "" if f"{base}router.proj.weight" in state else "feed_forward."
        state[f"{base}{mlp}experts.gate_up_proj"] = torch.cat([state.pop(name), state.pop(f"{base}ffn_up_exps")], dim=-2)
        state[f"{base}{mlp}experts.down_proj"] = state.pop(f"{base}ffn_down_exps")
    for name in [n for n in state if n.endswith(("ffn_gate_exps", "ffn_gate_shexp"))]:
        base, kind = name.rsplit("ffn_gate_", 1)
        state[f"{base}input_linear.weight"] = torch.cat([state.pop(name), state.pop(f"{base}ffn_up_{kind}")], dim=-2)
        state[f"{base}output_linear.weight"] = state.pop(f"{base}ffn_down_{kind}")


def gemma4_model(a, more, off):
    """Needs transformers 5."""
    import torch
    import transformers as tf

    rope = {"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
            "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=a.rope_base)}
    model = tf.Gemma4ForCausalLM(tf.Gemma4TextConfig(
        vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers, num_attention_heads=a.heads,
        num_key_value_heads=a.window_kv or a.kv_heads, num_global_key_value_heads=a.kv_heads, head_dim=a.window_dim,
        global_head_dim=a.head_dim, hidden_activation="gelu_pytorch_tanh", max_position_embeddings=a.context, rms_norm_eps=1e-5,
        tie_word_embeddings=a.tied, rope_parameters=rope, sliding_window=4096 if off == "window" else a.window,
        layer_types=["sliding_attention" if window else "full_attention" for window in a.windowed],
        final_logit_softcapping=more.get("final_logit_softcapping"), vocab_size_per_layer_input=a.vocab,
        hidden_size_per_layer_input=a.layer_embed, attention_k_eq_v=a.tied_values, num_kv_shared_layers=a.shared_kv,
        use_double_wide_mlp=a.shared_kv > 0, pad_token_id=None, attn_implementation="eager", enable_moe_block=a.experts > 0,
        num_experts=a.experts or None, top_k_experts=a.top_k, moe_intermediate_size=a.expert_ffn))
    for layer in model.model.layers:
        if off == "v_norm" and hasattr(layer.self_attn, "v_norm"):
            layer.self_attn.v_norm = torch.nn.Identity()
    return model


def gemma3n_model(a, more, off):
    import transformers as tf

    return tf.Gemma3nForCausalLM(tf.Gemma3nTextConfig(
        vocab_size=a.vocab, hidden_size=a.hidden, intermediate_size=a.ffn, num_hidden_layers=a.layers, num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads, head_dim=a.head_dim, max_position_embeddings=a.context, rms_norm_eps=1e-5, rope_theta=a.rope_base,
        tie_word_embeddings=a.tied, sliding_window=a.window, pad_token_id=None, attn_implementation="eager", laurel_rank=a.laurel,
        layer_types=["sliding_attention" if slides else "full_attention" for slides in a.slides], num_kv_shared_layers=a.shared_kv,
        final_logit_softcapping=more.get("final_logit_softcapping", 30.0), vocab_size_per_layer_input=a.vocab,
        hidden_size_per_layer_input=a.layer_embed,
        activation_sparsity_pattern=[make_gguf.SPARSITY * (i < a.sparse and off != "sparse") for i in range(a.layers)]))


def llama4_model(a, common, temperature, off):
    import transformers as tf

    more = dict(intermediate_size=a.expert_ffn, intermediate_size_mlp=a.ffn, num_local_experts=a.experts, num_experts_per_tok=a.top_k,
                interleave_moe_layer_step=a.expert_step, use_qk_norm=a.experts != 128 and off != "qk_norm", pad_token_id=None,
                attention_chunk_size=4096 if off == "window" else a.window or 8192)
    if temperature:
        more.update(attn_scale=temperature, floor_scale=a.u32["attention.temperature_length"])
    return tf.Llama4ForCausalLM(tf.Llama4TextConfig(**{**common, **more})).double().eval()


def join_experts(a, state):
    """Theirs has gate and up of all experts in one, gpt-oss its columns in turns."""
    import torch

    for name in [n for n in state if n.endswith("ffn_gate_exps.weight")]:
        base = name.removesuffix("ffn_gate_exps.weight")
        for end, theirs in (("weight", ""), ("bias", "_bias"))[: 1 + a.expert_bias]:
            gate, up, down = (state.pop(f"{base}ffn_{part}_exps.{end}") for part in ("gate", "up", "down"))
            both = torch.stack([gate, up], 2).flatten(1, 2) if a.arch == "gpt-oss" else torch.cat([gate, up], 1)
            state[f"{base}gate_up_proj{theirs}"] = both.mT if end == "weight" else both
            state[f"{base}down_proj{theirs}"] = down.mT if end == "weight" else down


def load(a, path, off):
    """The model with the weights of a GGUF file, in float64."""
    import gguf
    import numpy as np
    import torch

    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    if a.latent:
        names.update({"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
                      "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
                      "attn_kv_b": "self_attn.kv_b_proj"})
    if a.arch.startswith("hunyuan"):
        names.update({"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"})
    if a.fused:
        names["attn_qkv"] = "self_attn.qkv_proj"
    if a.fused_ffn:
        names["ffn_up"] = "mlp.gate_up_proj"
    if a.post_norms:
        glm, gemma = a.arch == "glm4", a.arch.startswith("gemma")
        names["post_attention_norm"] = "post_self_attn_layernorm" if glm else "post_attention_layernorm"
        names["post_ffw_norm"] = "post_mlp_layernorm" if glm else "post_feedforward_layernorm"
        if gemma:
            names["ffn_norm"] = "pre_feedforward_layernorm"
    if a.arch == "gemma3n":
        names.update({ours: theirs for ours, theirs in make_folder.LAYERS["gemma3n"].items() if ours not in names})
    if a.arch == "gemma4":
        names.update({"inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
                      "layer_output_scale": "layer_scalar", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
                      "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2"})
    if a.arch in ("seed_oss", "glm4moe") or a.mix == "delta":
        names["post_attention_norm"] = "post_attention_layernorm"
    if a.mix == "ssm":
        names.update({"ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d", "ssm_dt": "mamba.dt_bias", "ssm_a": "mamba.A_log",
                      "ssm_d": "mamba.D", "ssm_norm": "mamba.norm", "ssm_out": "mamba.out_proj"})
    if a.arch == "falcon-h1":
        names.update({"ffn_norm": "pre_ff_layernorm", "ffn_gate": "feed_forward.gate_proj", "ffn_up": "feed_forward.up_proj",
                      "ffn_down": "feed_forward.down_proj"})
    if a.arch == "gpt-oss":
        names.update({"attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router", "post_attention_norm": "post_attention_layernorm",
                      **{f"ffn_{part}_exps": f"mlp.experts.ffn_{part}_exps" for part in ("gate", "up", "down")}})
    if a.arch == "llama4":
        names.update({"ffn_gate_inp": "feed_forward.router",
                      **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
                      **{f"ffn_{part}_exps": f"feed_forward.experts.ffn_{part}_exps" for part in ("gate", "up", "down")},
                      **{f"ffn_{part}_shexp": f"feed_forward.shared_expert.{part}_proj" for part in ("gate", "up", "down")}})
    if a.arch == "granitehybrid":
        names["ffn_down"] = "shared_mlp.output_linear"
    if a.mix == "conv":
        names.update({"attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj",
                      "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm", "ffn_gate": "feed_forward.w1",
                      "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2", "in_proj": "conv.in_proj", "conv": "conv.conv",
                      "out_proj": "conv.out_proj"})
    last = "model.final_layernorm" if a.arch == "falcon-h1" else "model.norm"
    whole = {"token_embd_norm": "model.embedding_norm", "token_embd": "model.embed_tokens", "output_norm": last, "output": "lm_head",
             "per_layer_token_embd": "model.embed_tokens_per_layer", "per_layer_model_proj": "model.per_layer_model_projection",
             "per_layer_proj_norm": "model.per_layer_projection_norm"}
    for name, module in RENAMED.get(a.arch, {}).items():
        (names if name in names or name == "attn_qkv" else whole)[name] = module
    state, mixed = {}, {}  # of recurrent layers: by layer, the file's tensors
    for t in gguf.GGUFReader(path).tensors:
        if t.name.startswith("rope_f"):
            continue
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
        x = x.reshape([int(n) for n in reversed(t.shape)])
        parts = t.name.split(".")
        if parts[0] == "blk" and int(parts[1]) >= a.layers:  # of an MTP layer
            continue
        base, end = parts[-2:] if parts[-1] in ("weight", "bias") else (parts[-1], "")
        if a.arch in PERMUTED and base in ("attn_q", "attn_k"):
            heads = a.heads if base == "attn_q" else a.kv_heads
            x = x.reshape(heads, a.head_dim // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
        if base in ("attn_k_b", "attn_v_b"):  # of each head the rows of keys, then those of values
            name = f"model.layers.{parts[1]}.self_attn.kv_b_proj.weight"
            part = torch.from_numpy((x.swapaxes(1, 2) if base == "attn_k_b" else x).copy())
            state[name] = torch.cat([state[name], part], 1).reshape(-1, a.kv_lora) if name in state else part
            continue
        if base in ("layer_output_scale", "altup_correct_scale"):
            end = ""
        if (base, off) in (("laurel_r", "laurel"), ("altup_predict_coef", "predict")):
            x = x * 0
        if base == "per_layer_token_embd":  # tokens behind the table take the first row, as in Gemma3nModel
            x = np.concatenate([x, np.repeat(x[:1], a.vocab - len(x), 0)])
        if base in ("altup_proj", "altup_unembd_proj"):
            theirs = "altup_projections" if base == "altup_proj" else "altup_unembed_projections"
            state.update({f"model.{theirs}.{i}.weight": torch.from_numpy(m.copy()) for i, m in enumerate(x)})
            continue
        if base == "scale":
            part = "scale" if parts[2] == "ffn_gate_inp" else "per_expert_scale"
            x = x * 0 + 1 if part == "per_expert_scale" and off == "expert_scale" else x
            state[f"model.layers.{parts[1]}.router.{part}"] = torch.from_numpy(x.copy())
            continue
        if base == "post_ffw_norm_1" and off == "shared":
            x = x * 0
        if base == "post_norm" and off == "layer_embed":
            x = x * 0
        if a.arch == "gemma4" and parts[0] == "blk" and int(parts[1]) >= a.layers - a.shared_kv and base in ("attn_k", "attn_v", "attn_k_norm"):
            continue  # left behind
        if (a.arch in ("gemma", "gemma2", "gemma3") or a.arch == "nemotron") and base.endswith("norm") and end == "weight":
            x = x - 1  # theirs is added to 1
        if a.mix == "delta" and base in DELTA and not a.attends[int(parts[1])]:
            mixed.setdefault(parts[1], {})[base] = x
            continue
        if off == "gate" and base == "attn_q":  # one half everywhere
            x.reshape(a.heads, 2, a.head_dim, -1)[:, 1] = 0
        if a.mix == "delta" and base.endswith("norm"):
            x = x - 1
        if a.mix == "ssm" and base.startswith("ssm_") and base not in ("ssm_in", "ssm_out", "ssm_conv1d"):
            x = np.log(-x.ravel()) if base == "ssm_a" else x.ravel()
            end = "weight" if base == "ssm_norm" else ""
        if a.arch == "granitehybrid" and base in ("ffn_gate", "ffn_up"):
            mixed.setdefault(parts[1], {})[base] = x
            continue
        if base in ("conv", "ssm_conv1d") and end == "weight":
            x = x[:, None]
            if off == "conv":
                x[..., :-1] = 0  # tokens before are not seen
        if a.arch == "minicpm3" and off != "scales":
            depth = 1.4 / math.sqrt(a.layers)
            x = x * {"token_embd": 12, "attn_output": depth, "ffn_down": depth, "output": 256 / a.hidden}.get(base, 1)
        if a.arch == "gptneox" and base == "attn_qkv":  # theirs has q, k and v of a head together
            x = x.reshape(3, a.heads, a.head_dim, -1).swapaxes(0, 1).reshape(x.shape)
        if end == "bias" and off == ("norm_bias" if base.endswith("norm") else "bias"):
            x = x * 0
        if base.endswith("_shexp") and off == "shared":
            x = x * 0
        if base == "attn_sinks":
            x, end = x - (1e4 if off == "sinks" else 0), ""
        if base.endswith(("_exps", "_shexp", "exp_probs_b", "ffn_gate_inp")) and a.arch not in ("gpt-oss", "llama4"):
            for name, t in expert_tensors(a, base, x, off).items():
                state[f"model.layers.{parts[1]}.{name}"] = torch.from_numpy(t.copy())
            continue
        name = f"model.layers.{parts[1]}.{names[base]}" if parts[0] == "blk" else whole[base]
        if a.arch == "stablelm" and base in ("attn_q_norm", "attn_k_norm"):
            state.update({f"{name}.norms.{h}.weight": torch.from_numpy(x[h].copy()) for h in range(len(x))})
            continue
        state[f"{name.replace('model.', PREFIXES.get(a.arch, 'model.'))}.{end}".rstrip(".")] = torch.from_numpy(x.copy())
    join_granite(state)
    join_experts(a, state)
    for layer, tensors in mixed.items():
        if a.mix == "ssm":
            both = np.concatenate([tensors["ffn_gate"], tensors["ffn_up"]])
            state[f"model.layers.{layer}.shared_mlp.input_linear.weight"] = torch.from_numpy(both)
            continue
        for name, x in delta_net(a, tensors, off).items():
            state[f"model.layers.{layer}.linear_attn.{name}"] = torch.from_numpy(np.ascontiguousarray(x))
    model = configuration(a, off)
    for name, p in model.named_parameters():
        if name.endswith(".bias") and name not in state:  # llama with some biases only
            state[name] = torch.zeros_like(p)
    missing, unexpected = model.load_state_dict(state, strict=False)
    allowed = {"lm_head.weight"} if a.tied else set()
    extra = [n for n in unexpected if not (off == "qk_norm" and ("_norm" in n or "y_layernorm" in n or "layernorm.norms" in n)) and
             not (off == "post_norm" and "layernorm" in n)]
    if set(missing) - allowed or extra:
        sys.exit(f"weights do not fit: missing {missing}, unexpected {extra}")
    return model


def logits_of(model, ids):
    import torch

    with torch.no_grad():
        cached = model.config.model_type == "gemma3n_text"  # whose layers share keys and values by the cache alone
        return model(torch.tensor([ids]), use_cache=cached).logits[0].double()


def watch_routers(model, a):
    """A list that gets, with each call of the model, how far the router logits of the last expert chosen and of the next lie
    apart: the least over all layers, of each row. Rounded activations move logits by up to 0.1: a smaller distance may
    make a row go to other experts, with other logits behind them. None: nothing is rounded, or routers are no plain matrices."""
    import torch

    if not a.experts or (a.type in ("f32", "f16") and not a.method):
        return None
    gates = [m for n, m in model.named_modules() if n.endswith((".gate", ".router.proj")) and isinstance(m, torch.nn.Linear)]
    if len(gates) != a.layers:
        return None
    apart = []

    def note(module, x, logits):
        best = logits.reshape(-1, a.experts).topk(a.top_k + 1).values
        gap = best[:, -2] - best[:, -1]
        apart[:] = gap.tolist() if module is gates[0] else [min(pair) for pair in zip(apart, gap.tolist())]

    for gate in gates:
        gate.register_forward_hook(note)
    return apart


def make_prompt(name, model, a, apart):
    prompt = [1]
    for i in range(1, PROMPT):
        rng = random.Random(f"{name} {i}")
        prompt.append(rng.randrange(3, a.vocab))
        while apart is not None and (logits_of(model, prompt), apart[-1])[1] < ROUTED:
            prompt[-1] = rng.randrange(3, a.vocab)
    return prompt


def rotate_by_grids(model, a):
    """Makes the model, of text alone, rotate as its relative does that sees: Qwen2.5-VL's text model is Qwen2."""
    import torch
    from types import SimpleNamespace
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as chunked
    from transformers.models.qwen3_5 import modeling_qwen3_5 as in_turns

    config = SimpleNamespace(head_dim=a.rope_dim or a.head_dim, max_position_embeddings=a.context, hidden_size=a.hidden,
                             rope_parameters=dict(rope_type="default", rope_theta=a.rope_base, mrope_section=a.sections))
    rotary = in_turns.Qwen3_5TextRotaryEmbedding(config) if a.mix else chunked.Qwen2_5_VLRotaryEmbedding(config)
    kinds = torch.zeros(1, a.context, dtype=torch.int)
    for first, t, h, w in GRIDS:
        kinds[0, first : first + t * h * w] = 1
    sees = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=1, tokens_per_second=1)),
                           get_vision_position_ids=lambda *a, **k: chunked.Qwen2_5_VLModel.get_vision_position_ids(None, *a, **k))
    positions, _ = chunked.Qwen2_5_VLModel.get_rope_index(sees, torch.zeros_like(kinds).long(), kinds, torch.tensor([g[1:] for g in GRIDS]))

    class Rotary(torch.nn.Module):
        def forward(self, x, position_ids):
            return rotary(x, positions[:, :, : x.shape[1]])

    model.model.rotary_emb = Rotary()


def try_case(name, seed):
    """The golden of a case with this seed, or None where a greedy step is too close or all sample the same."""
    text, off = CASES[name]
    arguments = BASE.split() + text.split() + ["--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        a = make_gguf.parse([path] + arguments)
        make_gguf.main([path] + arguments)
        model = load(a, path, None)
        if off == "axes":
            rotate_by_grids(model, a)
        apart = watch_routers(model, a)
        prompt = make_prompt(name, model, a, apart)
        rows = logits_of(model, prompt)
        if apart and apart[0] < ROUTED:
            return None
        ids, margins = list(prompt), []
        for _ in range(GREEDY * (2 if a.mix else 1)):  # states go on
            best = logits_of(model, ids)[-1].topk(2)
            margins.append(round(float(best.values[0] - best.values[1]), 4))
            ids.append(int(best.indices[0]))
            if margins[-1] < MARGIN or (apart and apart[-1] < ROUTED and min(margins) > COMPARED):
                return None
        if len(set(ids[PROMPT:])) < 4:
            return None
        scores = rows.log_softmax(-1)
        golden = {
            "name": name,
            "arguments": arguments,
            "weights": weights_of(a),
            **({"grids": GRIDS} if off == "axes" else {}),
            "prompt_ids": prompt,
            "greedy_ids": ids[PROMPT:],
            "margins": margins,
            "scores": [round(float(scores[i, prompt[i + 1]]), 5) for i in range(PROMPT - 1)],
            "rows": [{"position": p, "logits": [round(float(v), 5) for v in rows[p]]} for p in (40, PROMPT - 1)],
        }
        if off:
            without = logits_of(load(a, path, off), prompt)
            golden["effect"] = {"of": off, "largest": round(float((without - rows).abs().max()), 3)}
            if golden["effect"]["largest"] < 0.1:
                sys.exit(f"{name}: leaving out {off} hardly matters")
        return golden


def make_case(name):
    for seed in range(1, 200):
        golden = try_case(name, seed)
        if golden:
            break
    else:
        sys.exit(f"{name}: no seed will do")
    with open(path_of(name), "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in golden.items()))
        f.write("\n}\n")
    print(name, len(set(golden["greedy_ids"])), "distinct, seed", seed, "margin", min(golden["margins"]), "effect", golden.get("effect", {}).get("largest", "-"), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    p.add_argument("--models", metavar="DIR")
    a = p.parse_args()
    if a.models:
        make_models(a.models)
        return
    for name in a.cases or CASES:
        make_case(name)


if __name__ == "__main__":
    main()
