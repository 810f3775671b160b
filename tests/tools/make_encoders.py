#!/usr/bin/env python3
"""Small random encoders, as GGUF and as Hugging Face folders, and what transformers gives for them.

    make_encoders.py --models DIR      the models of CASES; standard library only
    make_encoders.py                   writes tests/model/encoders.json anew; needs torch, transformers, safetensors

The golden file holds, of each case, inputs as ids and their vectors in float64: pooled and of length 1; of rerankers, a query,
documents and their scores. The oracle reads the
folder, whose names and configuration are written down here apart from the product's; nomic-bert, which transformers lacks or
has without experts, is torch's own operations (nomic()). Jina's needs transformers 5.
"""
import argparse
import array
import json
import math
import os
import random
import sys
import tempfile

import make_folder
import make_gguf
from gguf_file import F32, Writer

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "model", "encoders.json")
HIDDEN, HEADS, FFN, VOCAB = 64, 4, 96, 300
LENGTHS = (1, 2, 17, 63, 128, 300)
MEAN, CLS, LAST, RANK = 1, 2, 3, 4  # pooling_type of GGUF
QUERY = "what is the tallest of these"
DOCUMENTS = ["a hill", "the mountain in the north is very tall and it has been there for a long time", "", "no", "it is " * 12]
QWEN3 = "--arch qwen3 --layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 300 --context 256 --no-tied --seed 3".split()
QWEN2 = "--arch qwen2 --layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 300 --context 512 --no-tied --seed 8".split()  # gte-Qwen2
GEMMA = ("--arch gemma3 --layers 7 --hidden 64 --heads 4 --kv-heads 2 --head-dim 24 --ffn 96 --vocab 300 --context 512 --window 48 "
         "--rope-base 1000000 --tied --no-vocab --seed 5").split()
DENSE = [("dense_2", [96, HIDDEN], make_gguf.random_tensor(78, F32, 96 * HIDDEN, 0.2)),  # EmbeddingGemma's, behind the pooling
         ("dense_3", [HIDDEN, 96], make_gguf.random_tensor(79, F32, 96 * HIDDEN, 0.2))]
TEMPLATE = "<s>judge by {query} this one {document}</s>it is"
NOMIC_MOE = dict(model_type="nomic_bert", architectures=["NomicBertModel"], activation_function="gelu", n_embd=HIDDEN, n_inner=FFN, n_head=HEADS,
                 n_positions=512, max_trained_positions=512, layer_norm_epsilon=1e-5, rotary_emb_base=10000.0, rotary_emb_fraction=1.0,
                 rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None, scale_attn_weights=True, prenorm=False,
                 parallel_block=False, causal=False, qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True, type_vocab_size=1, num_experts=4,
                 moe_top_k=2, moe_every_n_layers=2, moe_normalize_expert_weights=False, num_shared_experts=0, expert_choice_router=False, ffn_div=1,
                 moe_impl="megablocks", moe_resid_pdrop=0.0, router_aux_loss_coef=0.1, use_flash_attn=True, fused_bias_fc=True)
# context, layers; what else is written as it is into config.json
CASES = {
    "bert": dict(arch="bert", context=512, layers=2, pooling=CLS, types=2,
                 config=dict(model_type="bert", architectures=["BertModel"], hidden_act="gelu", type_vocab_size=2)),
    "bert-mean": dict(arch="bert", context=320, layers=3, pooling=MEAN, types=2, seed=2, normalize=False,
                      config=dict(model_type="bert", architectures=["BertModel"], hidden_act="gelu", type_vocab_size=2)),
    "nomic-bert": dict(arch="nomic-bert", context=512, layers=2, pooling=MEAN, types=2, gate=True, bias=False, theta=1000.0,
                       config=dict(model_type="nomic_bert", architectures=["NomicBertModel"], activation_function="swiglu", n_embd=HIDDEN, n_inner=FFN,
                                   n_head=HEADS, n_layer=2, n_positions=2048, max_trained_positions=512, layer_norm_epsilon=1e-5,
                                   rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_scaling_factor=2, scale_attn_weights=True,
                                   prenorm=False, qkv_proj_bias=False, type_vocab_size=2)),
    # as llama.cpp's converter writes Nomic Embed 2: without the bias behind the experts; and with it, which the repository has
    "nomic-bert-moe": dict(arch="nomic-bert-moe", context=512, layers=4, pooling=MEAN, types=1, theta=10000.0, seed=11, experts=4,
                           config=dict(NOMIC_MOE, n_layer=4)),
    "nomic-bert-moe-bias": dict(arch="nomic-bert-moe", context=512, layers=3, pooling=MEAN, types=1, theta=10000.0, seed=12, experts=4, sum_bias=True,
                                config=dict(NOMIC_MOE, n_layer=3)),
    "jina-bert-v3": dict(arch="jina-bert-v3", context=512, layers=2, pooling=MEAN, types=1, theta=20000.0, seed=13,
                         config=dict(model_type="jina_embeddings_v3", architectures=["JinaEmbeddingsV3Model"], hidden_act="gelu", type_vocab_size=1,
                                     pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 20000.0})),
    "modern-bert": dict(arch="modern-bert", context=1024, layers=4, pooling=CLS, bias=False, theta=160000.0, window=64, seed=6,
                        config=dict(model_type="modernbert", architectures=["ModernBertModel"], local_attention=64, norm_eps=1e-5,
                                    global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0, pad_token_id=0,
                                    norm_bias=False, attention_bias=False, mlp_bias=False, hidden_activation="gelu")),
    "modern-bert-rank": dict(arch="modern-bert", context=256, layers=3, pooling=RANK, bias=False, theta=160000.0, window=32, seed=7, prefix="model.",
                             config=dict(model_type="modernbert", architectures=["ModernBertForSequenceClassification"], local_attention=32,
                                         norm_eps=1e-5, global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0,
                                         classifier_pooling="mean", classifier_bias=False, norm_bias=False, pad_token_id=0, num_labels=1)),
    "bert-rank": dict(arch="bert", context=256, layers=2, pooling=RANK, types=2, seed=9, prefix="bert.", names={"cls": "pooler.dense", "output": "classifier"},
                      config=dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_act="gelu", type_vocab_size=2,
                                  num_labels=1)),
    "xlm-r-rank": dict(arch="bert", context=256, layers=2, pooling=RANK, types=1, seed=4, skip=1, prefix="roberta.",
                       config=dict(model_type="xlm-roberta", architectures=["XLMRobertaForSequenceClassification"], hidden_act="gelu",
                                   type_vocab_size=1, pad_token_id=0, num_labels=1)),
}
BERT = {"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
        "attn_q": "encoder.layer.#.attention.self.query", "attn_k": "encoder.layer.#.attention.self.key",
        "attn_v": "encoder.layer.#.attention.self.value", "attn_output": "encoder.layer.#.attention.output.dense",
        "attn_output_norm": "encoder.layer.#.attention.output.LayerNorm", "ffn_up": "encoder.layer.#.intermediate.dense",
        "ffn_down": "encoder.layer.#.output.dense", "layer_output_norm": "encoder.layer.#.output.LayerNorm",
        "cls": "classifier.dense", "output": "classifier.out_proj"}
NOMIC = {"token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "emb_ln",
         "attn_qkv": "encoder.layers.#.attn.Wqkv", "attn_output": "encoder.layers.#.attn.out_proj", "attn_output_norm": "encoder.layers.#.norm1",
         "ffn_gate": "encoder.layers.#.mlp.fc12", "ffn_up": "encoder.layers.#.mlp.fc11", "ffn_down": "encoder.layers.#.mlp.fc2",
         "layer_output_norm": "encoder.layers.#.norm2"}
MODERN = {"token_embd": "embeddings.tok_embeddings", "token_embd_norm": "embeddings.norm", "attn_norm": "layers.#.attn_norm",
          "attn_qkv": "layers.#.attn.Wqkv", "attn_output": "layers.#.attn.Wo", "ffn_norm": "layers.#.mlp_norm", "ffn_up": "layers.#.mlp.Wi",
          "ffn_down": "layers.#.mlp.Wo", "output_norm": "final_norm", "cls": "head.dense", "norm": "head.norm", "output": "classifier"}
NOMIC_2 = NOMIC | {"ffn_up": "encoder.layers.#.mlp.fc1", "ffn_gate_inp": "encoder.layers.#.mlp.router.layer",
                   "ffn_up_exps": "encoder.layers.#.mlp.experts.mlp.w1", "ffn_down_exps": "encoder.layers.#.mlp.experts.mlp.w2",
                   "ffn_exps_sum": "encoder.layers.#.mlp.experts"}
JINA = NOMIC | {"attn_qkv": "encoder.layers.#.mixer.Wqkv", "attn_output": "encoder.layers.#.mixer.out_proj", "ffn_up": "encoder.layers.#.mlp.fc1"}
NAMES = {"nomic-bert-moe": NOMIC_2, "jina-bert-v3": JINA, "bert": BERT, "nomic-bert": NOMIC, "modern-bert": MODERN}


class Model:
    """The tensors of a case, in the order of the file: (GGUF name, shape, chunks)."""

    def __init__(self, case):
        self.case, self.tensors = case, []
        self.bias = case.get("bias", True)
        self.matrix("token_embd", VOCAB, HIDDEN, scale=0.5)
        if "position_embd" in NAMES[case["arch"]]:
            self.matrix("position_embd", case["context"], HIDDEN, scale=0.5, bias=False)
        if case.get("types"):
            self.matrix("token_types", case["types"], HIDDEN, scale=0.5, bias=False)
        modern = case["arch"] == "modern-bert"
        self.norm("token_embd_norm", not modern)
        if modern:
            self.norm("output_norm", False)
        for i in range(case["layers"]):
            (self.modern_layer if modern else self.layer)(f"blk.{i}.", i)
        if case["pooling"] == RANK:
            self.matrix("cls", HIDDEN, HIDDEN)
            if modern:
                self.norm("cls.norm", False)
                self.bias = True  # the last matrix has one
            self.matrix("cls.output", 1, HIDDEN)

    def add(self, name, shape, scale, centre=0.0):
        n = math.prod(shape)
        key = ((self.case.get("seed", 1) << 32) + len(self.tensors) + 1) * 0xD1342543DE82EF95 & make_gguf.MASK
        self.tensors.append((name, shape, make_gguf.random_tensor(key, F32, n, scale, centre)))

    def matrix(self, name, rows, cols, scale=None, bias=None):
        self.add(name + ".weight", [rows, cols], scale or (3 / cols) ** 0.5)
        if self.bias and bias is not False and scale is None:
            self.add(name + ".bias", [rows], 0.5)

    def norm(self, name, bias=True):
        self.add(name + ".weight", [HIDDEN], 0.25, 1.0)
        if bias:
            self.add(name + ".bias", [HIDDEN], 0.5)

    def modern_layer(self, b, i):
        if i > 0:
            self.norm(b + "attn_norm", False)
        self.matrix(b + "attn_qkv", 3 * HIDDEN, HIDDEN)
        self.matrix(b + "attn_output", HIDDEN, HIDDEN)
        self.norm(b + "ffn_norm", False)
        self.matrix(b + "ffn_up", 2 * FFN, HIDDEN)
        self.matrix(b + "ffn_down", HIDDEN, FFN)

    def experts(self, b):
        n = self.case["experts"]
        self.matrix(b + "ffn_gate_inp", n, HIDDEN, bias=False)
        self.add(b + "ffn_up_exps.weight", [n, FFN, HIDDEN], (3 / HIDDEN) ** 0.5)
        self.add(b + "ffn_down_exps.weight", [n, HIDDEN, FFN], (3 / FFN) ** 0.5)
        if self.case.get("sum_bias"):
            self.add(b + "ffn_exps_sum.bias", [HIDDEN], 0.5)

    def layer(self, b, i):
        if "attn_qkv" in NAMES[self.case["arch"]]:
            self.matrix(b + "attn_qkv", 3 * HIDDEN, HIDDEN)
        else:
            for part in "qkv":
                self.matrix(b + f"attn_{part}", HIDDEN, HIDDEN)
        self.matrix(b + "attn_output", HIDDEN, HIDDEN)
        self.norm(b + "attn_output_norm")
        if self.case.get("gate"):
            self.matrix(b + "ffn_gate", FFN, HIDDEN)
        if self.case.get("experts") and i % 2 == 1:
            self.experts(b)
        else:
            self.matrix(b + "ffn_up", FFN, HIDDEN)
            self.matrix(b + "ffn_down", HIDDEN, FFN)
        self.norm(b + "layer_output_norm")

    def write_gguf(self, path):
        w, case = Writer(), self.case
        a = case["arch"]
        w.string("general.architecture", a)
        for key, value in {"block_count": case["layers"], "context_length": case["context"], "embedding_length": HIDDEN,
                           "feed_forward_length": FFN, "attention.head_count": HEADS, "vocab_size": VOCAB,
                           "pooling_type": case["pooling"]}.items():  # fmt: skip
            w.u32(f"{a}.{key}", value)
        w.f32(f"{a}.attention.layer_norm_epsilon", 1e-5)
        w.bool(f"{a}.attention.causal", False)
        if "experts" in case:
            w.u32(f"{a}.expert_count", case["experts"])
            w.u32(f"{a}.expert_used_count", 2)
            w.u32(f"{a}.moe_every_n_layers", 2)
        if "window" in case:
            w.u32(f"{a}.attention.sliding_window", case["window"])
            w.u32(f"{a}.attention.sliding_window_pattern", 3)
            w.f32(f"{a}.rope.freq_base_swa", 10000.0)
        if "theta" in case:
            w.f32(f"{a}.rope.freq_base", case["theta"])
        if case["pooling"] == RANK:
            make_gguf.made_up(w, argparse.Namespace(no_vocab=False, vocab=VOCAB, seed=1, chatml=False, control=()))
            w.bool("tokenizer.ggml.add_bos_token", True)
            w.bool("tokenizer.ggml.add_eos_token", True)
        else:
            w.string("tokenizer.ggml.model", "no_vocab")
        for name, shape, chunks in self.tensors:
            w.tensor(name, F32, shape, chunks)
        w.write(path)

    def write_folder(self, folder):
        names, tensors = NAMES[self.case["arch"]] | self.case.get("names", {}), []
        for name, shape, chunks in self.tensors:
            base, end = name.rsplit(".", 1)
            layer = base.split(".")[1] if base.startswith("blk.") else ""
            theirs, data = names[base.split(".")[-1]].replace("#", layer), b"".join(chunks())
            if base == "position_embd" and self.case.get("skip"):  # RoBERTa counts positions from the one behind pad_token_id
                data, shape = bytes(len(data) // shape[0]) + data, [shape[0] + 1, shape[1]]
            if base.endswith("_exps"):  # rows of all experts; those of w2 are columns
                end, shape = None, [shape[0] * FFN, HIDDEN]
                data = turned(data, self.case["experts"], HIDDEN, FFN) if "down" in base else data
            prefix = "" if theirs.startswith(("classifier", "head")) else self.case.get("prefix", "")
            tensors.append((f"{prefix}{theirs}.{end}" if end else theirs, F32, shape, data))
        if "experts" in self.case and not self.case.get("sum_bias"):
            tensors += [(f"encoder.layers.{i}.mlp.experts.bias", F32, [HIDDEN], bytes(4 * HIDDEN)) for i in range(1, self.case["layers"], 2)]
        os.makedirs(folder, exist_ok=True)
        make_folder.write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        config = dict(hidden_size=HIDDEN, intermediate_size=FFN, num_attention_heads=HEADS, num_hidden_layers=self.case["layers"],
                      vocab_size=VOCAB, max_position_embeddings=self.case["context"] + self.case.get("skip", 0), layer_norm_eps=1e-5,
                      torch_dtype="float32")
        if self.case["arch"].startswith("nomic-bert"):  # whose keys are GPT-2's
            config = {key: config[key] for key in ("vocab_size", "torch_dtype")}
        make_folder.write_json(folder, "config.json", config | self.case["config"])
        self.write_sentence_files(folder)

    def write_sentence_files(self, folder):
        write_vocabulary(folder)
        if self.case["pooling"] != RANK:
            write_modules(folder, self.case["pooling"], [("2_Normalize", "Normalize")] * self.case.get("normalize", True))


def turned(data, matrices, rows, cols):
    """The columns of each matrix, one after the other."""
    values, size = array.array("f", data), rows * cols
    return b"".join(values[m * size + c:(m + 1) * size:cols].tobytes() for m in range(matrices) for c in range(cols))


def write_vocabulary(folder):
    tokenizer = make_folder.tokenizer(argparse.Namespace(vocab=VOCAB, seed=1, chatml=False, control=()))
    first, text, last, other = ({kind: {"id": name, "type_id": 0}} for kind, name in
                                (("SpecialToken", "<s>"), ("Sequence", "A"), ("SpecialToken", "</s>"), ("Sequence", "B")))
    tokenizer["post_processor"] |= {"single": [first, text, last], "pair": [first, text, last, other, last]}
    tokenizer["post_processor"]["special_tokens"]["</s>"] = {"id": "</s>", "ids": [2], "tokens": ["</s>"]}
    make_folder.write_json(folder, "tokenizer.json", tokenizer)


def write_modules(folder, pooling, behind):
    """Those of sentence-transformers."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *behind]
    make_folder.write_json(folder, "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                                    for i, (path, kind) in enumerate(modules)])
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    make_folder.write_json(os.path.join(folder, "1_Pooling"), "config.json", {
        "word_embedding_dimension": HIDDEN, "pooling_mode_cls_token": pooling == CLS, "pooling_mode_mean_tokens": pooling == MEAN,
        "pooling_mode_max_tokens": False, "include_prompt": True,
        **({"pooling_mode_lasttoken": True} if pooling == LAST else {})})


def make_models(folder):
    os.makedirs(folder, exist_ok=True)
    for name, case in CASES.items():
        Model(case).write_gguf(os.path.join(folder, name + ".gguf"))
        Model(case).write_folder(os.path.join(folder, name))
    write_qwen3(os.path.join(folder, "qwen3-rank.gguf"))
    make_gguf.main([os.path.join(folder, "gemma-embedding.gguf")] + GEMMA, Gemma())
    write_gemma_folder(os.path.join(folder, "gemma-embedding"))
    make_gguf.main([os.path.join(folder, "qwen2-both.gguf")] + QWEN2, BothWays())
    write_decoder_folder(os.path.join(folder, "qwen2-both"), QWEN2, {"is_causal": False})
    write_modules(os.path.join(folder, "qwen2-both"), LAST, [("2_Normalize", "Normalize")])


class Gemma(Writer):
    """EmbeddingGemma: Gemma 3, and two matrices behind the pooling."""

    def _add(self, key, kind, payload):
        super()._add(key.replace("gemma3.", "gemma-embedding."), kind, payload)

    def write(self, path):
        self.keys.pop(0)
        self.string("general.architecture", "gemma-embedding")
        self.u32("gemma-embedding.pooling_type", MEAN)
        for name, shape, chunks in DENSE:
            self.tensor(name + ".weight", F32, shape, chunks)
        super().write(path)


class BothWays(Writer):
    """A decoder that sees what follows, too."""

    def write(self, path):
        self.bool("qwen2.attention.causal", False)
        self.u32("qwen2.pooling_type", LAST)
        super().write(path)


def write_decoder_folder(folder, shape, more):
    """As saved without the head, so that names lack "model."."""
    a, tensors = make_gguf.parse([folder] + shape), make_folder.Tensors()
    make_gguf.main([folder] + shape, tensors)
    os.makedirs(folder, exist_ok=True)
    named = [(name.removeprefix("model."), *rest) for name, *rest in make_folder.folder_tensors(a, tensors.tensors)]
    make_folder.write_safetensors(os.path.join(folder, "model.safetensors"), named)
    make_folder.write_json(folder, "config.json", make_folder.config(a) | more)
    write_vocabulary(folder)


def write_gemma_folder(folder):
    write_decoder_folder(folder, GEMMA, {"architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True})
    write_modules(folder, MEAN, [("2_Dense", "Dense"), ("3_Dense", "Dense"), ("4_Normalize", "Normalize")])
    for number, (_, (rows, cols), chunks) in enumerate(DENSE, 2):
        path = os.path.join(folder, f"{number}_Dense")
        os.makedirs(path, exist_ok=True)
        make_folder.write_safetensors(os.path.join(path, "model.safetensors"), [("linear.weight", F32, [rows, cols], b"".join(chunks()))])
        make_folder.write_json(path, "config.json", {"in_features": cols, "out_features": rows, "bias": False,
                                                     "activation_function": "torch.nn.modules.linear.Identity"})


def write_qwen3(path):
    """Qwen3-Reranker: a decoder whose classifier holds the head's rows of "yes" and "no", and a template."""

    class Ranker(Writer):
        def write(self, path):
            self.u32("qwen3.pooling_type", RANK)
            self.strings("qwen3.classifier.output_labels", ["yes", "no"])
            self.string("tokenizer.chat_template.rerank", TEMPLATE)
            self.tensor("cls.output.weight", F32, [2, HIDDEN], make_gguf.random_tensor(77, F32, 2 * HIDDEN, 0.2))
            super().write(path)

    make_gguf.main([path] + QWEN3, Ranker())


def encode(text):
    """Ids of small letters: a vocabulary of this size has pieces of one letter."""
    tokens = make_gguf.vocabulary(VOCAB, 1, False)[0]
    return [tokens.index(c) for c in text.replace(" ", "▁")]


# ---- the oracle


def nomic(folder, case):
    """Hidden states of Nomic Embed 1.5: BERT with rotary positions and SwiGLU; of 2: with GELU, and experts in every second layer."""
    import torch
    from safetensors.torch import load_file
    from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu

    w = {k: v.double() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    d = HIDDEN // HEADS

    def norm(x, name):
        return layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def rotate(x, angles):
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def experts(x, b):
        n = case["experts"]
        w1, w2 = (w[f"{b}mlp.experts.mlp.w{i}"].view(n, FFN, HIDDEN) for i in (1, 2))
        weights, chosen = torch.topk((x @ w[b + "mlp.router.layer.weight"].T).softmax(-1), 2)
        rows = [sum(weights[t, k] * gelu(x[t] @ w1[e].T) @ w2[e] for k, e in enumerate(chosen[t])) for t in range(len(x))]
        return torch.stack(rows) + w[b + "mlp.experts.bias"]

    def feed_forward(x, b, i):
        if "experts" not in case:
            return linear(silu(x @ w[b + "mlp.fc12.weight"].T) * (x @ w[b + "mlp.fc11.weight"].T), b + "mlp.fc2")
        return experts(x, b) if i % 2 == 1 else linear(gelu(linear(x, b + "mlp.fc1")), b + "mlp.fc2")

    def hidden(ids):
        x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0], "emb_ln")
        angles = torch.arange(len(ids)).double()[:, None] * case["theta"] ** (-torch.arange(0, d, 2).double() / d)
        for i in range(case["layers"]):
            b = f"encoder.layers.{i}."
            q, k, v = linear(x, b + "attn.Wqkv").reshape(len(ids), 3, HEADS, d).permute(1, 2, 0, 3)
            o = scaled_dot_product_attention(rotate(q, angles), rotate(k, angles), v).transpose(0, 1).reshape(len(ids), HIDDEN)
            x = norm(x + linear(o, b + "attn.out_proj"), b + "norm1")
            x = norm(x + feed_forward(x, b, i), b + "norm2")
        return x

    return hidden


def oracle(folder, case):
    """ids -> hidden states (n, HIDDEN)"""
    import torch
    import transformers

    if case["arch"].startswith("nomic-bert"):
        return nomic(folder, case)
    kind = transformers.AutoModelForSequenceClassification if case["pooling"] == RANK else transformers.AutoModel
    model, loading = kind.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    if sorted(loading["missing_keys"]) not in ([], ["pooler.dense.bias", "pooler.dense.weight"]) or loading["unexpected_keys"]:
        sys.exit(f"weights do not fit: {loading}")
    model = model.double().eval()
    if case["pooling"] == RANK:

        def logit(ids):
            types = [int(i > ids.index(2)) for i in range(len(ids))]  # 1 behind the first </s>
            return model(torch.tensor([ids]), **({"token_type_ids": torch.tensor([types])} if case.get("types") == 2 else {})).logits[0, 0]

        return logit
    return lambda ids: model(torch.tensor([ids])).last_hidden_state[0]


def ranking(name, logit, ids_of):
    import torch

    with torch.no_grad():
        scores = [round(float(torch.sigmoid(logit(ids_of(d)))), 7) for d in DOCUMENTS]
    return {"model": name, "query": QUERY, "documents": DOCUMENTS, "scores": scores}


def qwen3_goldens():
    import gguf
    import numpy as np
    import torch
    from make_goldens import load

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        make_gguf.main([path] + QWEN3)
        model = load(make_gguf.parse([path] + QWEN3), path, None)
        write_qwen3(path)
        rows = next(t for t in gguf.GGUFReader(path).tensors if t.name == "cls.output.weight").data.astype(np.float64)

    def margin(ids):
        yes, no = torch.from_numpy(rows.copy()) @ model.model(torch.tensor([ids])).last_hidden_state[0, -1]
        return yes - no

    def ids_of(document):
        return [1] + encode(f" judge by {QUERY} this one {document}") + [2] + encode(" it is")

    return ranking("qwen3-rank", margin, ids_of)


def gemma_goldens():
    import gguf
    import torch
    from make_goldens import load

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        make_gguf.main([path] + GEMMA)
        model = load(make_gguf.parse([path] + GEMMA), path, None).model
        make_gguf.main([path] + GEMMA, Gemma())
        dense = [torch.from_numpy(t.data.copy()).double() for t in gguf.GGUFReader(path).tensors if t.name.startswith("dense")]
    model.config.use_bidirectional_attention = True
    model.config.sliding_window = model.config.sliding_window // 2 + 1  # as its configuration class does

    def vector(ids):
        return dense[1] @ (dense[0] @ model(torch.tensor([ids])).last_hidden_state[0].mean(0))

    return vectors("gemma-embedding", vector)


def qwen2_goldens():
    import torch
    from make_goldens import load

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        make_gguf.main([path] + QWEN2)
        model = load(make_gguf.parse([path] + QWEN2), path, None).model

    def vector(ids):
        nothing_hidden = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
        return model(torch.tensor([ids]), attention_mask=nothing_hidden).last_hidden_state[0, -1]

    return vectors("qwen2-both", vector)


def vectors(name, vector):
    import torch

    rows = []
    for n in LENGTHS:
        rng = random.Random(f"{name} {n}")
        ids = [rng.randrange(3, VOCAB) for _ in range(n)]
        with torch.no_grad():
            v = vector(ids)
        rows.append({"model": name, "ids": ids, "vector": [round(x, 7) for x in (v / v.norm()).tolist()]})
    return rows


def make_goldens():
    rows = []
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            Model(case).write_folder(folder)
            hidden = oracle(folder, case)
            if case["pooling"] == RANK:
                rows.append(ranking(name, hidden, lambda d: [1] + encode(" " + QUERY) + [2] + (encode(" " + d) if d else []) + [2]))
                continue
            rows += vectors(name, lambda ids: hidden(ids).mean(0) if case["pooling"] == MEAN else hidden(ids)[0])
    rows += gemma_goldens() + qwen2_goldens() + [qwen3_goldens()]
    with open(GOLDEN, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", metavar="DIR")
    a = p.parse_args()
    make_models(a.models) if a.models else make_goldens()


if __name__ == "__main__":
    main()
