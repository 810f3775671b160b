"""Families that transformers lacks: their folders, and models of its own that compute the same from their tensors.

A case of make_transformers.py names the relative, of which such a folder is made. A stand-in has
  config(c)     config.json as the family's repositories have it, from the relative's
  name(n)       the folder's tensor that has the rows of the relative's tensor n, behind those of others (q, k, v); None: no folder has it
  extra         names and shapes of tensors that only the folder has
  state(t, c)   the relative's tensors, from rows of the folder's
  patch(m, w)   modules of ours in the relative's model m; w(name) is a tensor of the folder
"""
import re

import numpy
import torch


class StandIn:
    extra = {}

    def __init__(self, kind):
        self.kind = kind

    def config(self, c):
        return {**c, "model_type": self.kind}

    def name(self, n):
        return n

    def state(self, t, c):
        return t

    def patch(self, m, w):
        pass

    def folder(self, config, shapes):
        """config.json and shapes of tensors."""
        return self.config(config), {**{to: [sum(shapes[n][0] for n in parts), *shapes[parts[0]][1:]] for to, parts in self.parts(shapes).items()}, **self.extra}

    def parts(self, shapes):
        found = {}
        for n in sorted(shapes, key=lambda n: re.sub("([qkv])_proj", lambda m: "qkv".index(m[1]).__str__(), n)):
            if self.name(n):
                found.setdefault(self.name(n), []).append(n)
        return found

    def tensors(self, shapes, config, w):
        """The relative's tensors, whose shapes are given, from the folder's."""
        state = {n: numpy.zeros(shape, numpy.float32) for n, shape in shapes.items()}
        for to, parts in self.parts(shapes).items():
            whole, at = w(to), 0
            for n in parts:
                state[n] = whole[at : at + shapes[n][0]]
                at += shapes[n][0]
        return self.state(state, config)


class Mimo(StandIn):
    extra = {"model.mtp_layers.0.input_layernorm.weight": [72], "model.mtp_layers.0.input_proj.weight": [72, 144]}


def keep(config, *keys):
    return {k: config[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
                                   "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "rms_norm_eps", "hidden_act", *keys) if k in config}  # fmt: skip


class Bailing(StandIn):
    """Ling 1: Qwen2 MoE, whose gate of the shared expert is one half here."""

    def config(self, c):
        return {"architectures": ["BailingMoeForCausalLM"], **keep(c, "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"), "model_type": "bailing_moe",
                "num_shared_experts": c["shared_expert_intermediate_size"] // c["moe_intermediate_size"], "first_k_dense_replace": 0, "head_dim": None,
                "rope_theta": c["rope_parameters"]["rope_theta"], "rope_scaling": None, "use_bias": False, "use_qkv_bias": self.kind != "plain", "norm_head": False, "norm_softmax": False,
                "embedding_dropout": 0.0, "output_dropout": 0.0, "use_cache": True}  # fmt: skip

    def name(self, n):
        n = re.sub(r"self_attn\.[qkv]_proj", "attention.query_key_value", n).replace("self_attn.o_proj", "attention.dense").replace("embed_tokens", "word_embeddings")
        n = n.replace("self_attn.q_norm", "attention.query_layernorm").replace("self_attn.k_norm", "attention.key_layernorm").replace("gate.e_score_correction_bias", "gate.expert_bias")
        return None if "shared_expert_gate" in n or (self.kind == "plain" and n.endswith("query_key_value.bias")) else n.replace("shared_expert.", "shared_experts.")

    def state(self, t, c):
        return {n: 2 * v if "shared_expert.down" in n else v for n, v in t.items()}


class Bailing2(Bailing):
    """Ling 2: GLM 4.5."""

    extra = {f"model.layers.3.{n}.weight": shape for n, shape in {"eh_proj": [72, 144], "enorm": [72], "input_layernorm": [72], "attention.query_key_value": [200, 72], "final_layernorm": [72]}.items()}

    def config(self, c):
        keys = keep(c, "n_group", "topk_group", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "routed_scaling_factor", "first_k_dense_replace", "head_dim")
        return {"architectures": ["BailingMoeV2ForCausalLM"], **keys, "model_type": self.kind, "num_experts": c["n_routed_experts"], "num_shared_experts": c["n_shared_experts"],
                "rope_theta": c["rope_parameters"]["rope_theta"], "partial_rotary_factor": c["rope_parameters"]["partial_rotary_factor"], "rotary_dim": 10, "rope_scaling": None,
                "use_bias": False, "use_qkv_bias": False, "use_rmsnorm": True, "use_qk_norm": True, "score_function": "sigmoid", "moe_router_enable_expert_bias": True,
                "moe_shared_expert_intermediate_size": c["moe_intermediate_size"], "num_nextn_predict_layers": 1, "mtp_loss_scaling_factor": 0, "max_window_layers": 20,
                "using_split_qkv_in_self_attention": False, "router_dtype": "fp32", "output_router_logits": False}  # fmt: skip

    def state(self, t, c):
        return t


def repeat_heads(t, kv, heads):
    """Keys or values of which each head has its own."""
    return numpy.repeat(t.reshape(kv, -1, *t.shape[1:]), heads // kv, 0).reshape(-1, *t.shape[1:])


class Deci(StandIn):
    """Llama: keys of all heads, zeros for what a layer lacks and behind the end of its feed-forward."""

    blocks = {0: (3, 2.625, 256), 1: (None, 10.0, 512), 2: (6, None, 0), 3: (None, None, 0), 4: (2, 1.3125, 256)}  # queries of a key, ffn_mult, size

    def config(self, c):
        blocks = [{"attention": {"n_heads_in_group": group, "no_op": group is None, "num_sink_tokens": 0, "replace_with_linear": False, "sparsify": None, "unshifted_sink": False,
                                 "use_prefill_window_in_sink_attention": False, "window_length": None},
                   "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False, "sparsify": None}} for group, mult, _ in self.blocks.values()]  # fmt: skip
        rope = dict(c["rope_parameters"])
        return {"architectures": ["DeciLMForCausalLM"], **keep(c), "model_type": "nemotron-nas", "attention_bias": False, "block_configs": blocks, "intermediate_size": None, "mlp_bias": False,
                "num_key_value_heads": None, "pretraining_tp": 1, "rope_theta": rope.pop("rope_theta"), "rope_scaling": rope, "use_cache": True}  # fmt: skip

    def sizes(self, n):
        """Heads for keys, and the size of the feed-forward, of the tensor's layer."""
        group, _, size = self.blocks[int(n.split(".")[2])]
        return 6 // group if group else 0, size

    def shape(self, n, shape):
        """The folder's; None: it has none."""
        if ".layers." not in n:
            return shape
        kv, size = self.sizes(n)
        if ".mlp." in n or "post_attention" in n:
            return None if size == 0 else [x if x == 72 else size for x in shape]
        return None if kv == 0 else [kv * 12, 72] if re.search("[kv]_proj", n) else shape

    def folder(self, config, shapes):
        return self.config(config), {n: self.shape(n, s) for n, s in shapes.items() if self.shape(n, s)}

    def tensors(self, shapes, config, w):
        state = {n: numpy.zeros(s, numpy.float32) for n, s in shapes.items()}
        for n, s in shapes.items():
            if not self.shape(n, s):
                continue
            t = repeat_heads(w(n), self.sizes(n)[0], 6) if re.search(r"\.[kv]_proj", n) else w(n)
            state[n][tuple(slice(k) for k in t.shape)] = t
        return state


class Deci7(Deci):
    blocks = {0: (3, 1, 100), 1: (6, 1, 100), 2: (2, 1, 100)}

    def config(self, c):
        keys = {k: v for k, v in keep(c).items() if k != "num_key_value_heads"}
        return {"architectures": ["DeciLMForCausalLM"], **keys, "model_type": "deci", "attention_bias": False, "num_key_value_heads_per_layer": [6 // group for group, _, _ in self.blocks.values()],
                "pretraining_tp": 1, "rope_scaling": None, "rope_theta": 10000.0, "use_cache": True}  # fmt: skip


class SmallThinker(StandIn):
    """SmolLM 3, with experts of ours."""

    E, K, F = 6, 2, 44

    def __init__(self, kind):
        super().__init__(kind)
        each = {"primary_router": [self.E, 72], **{f"experts.{e}.{part}": [72, self.F] if part == "down" else [self.F, 72] for e in range(self.E) for part in ("gate", "up", "down")}}
        self.extra = {f"model.layers.{i}.block_sparse_moe.{n}.weight": shape for i in range(5) for n, shape in each.items()}

    def config(self, c):
        keys = keep(c)
        del keys["intermediate_size"], keys["hidden_act"]
        windows = [int(kind == "sliding_attention") for kind in c["layer_types"]]
        return {"architectures": ["SmallThinkerForCausalLM"], **keys, "model_type": "smallthinker", "model_name": "smallthinker", "head_dim": 12, "moe_enable_secondary_experts": False,
                "moe_ffn_hidden_size": self.F, "moe_layer_layout": [1] * 5, "moe_num_active_primary_experts": self.K, "moe_num_primary_experts": self.E,
                "moe_primary_router_apply_softmax": self.kind == "softmax", "rope_layout": c["no_rope_layers"], "rope_scaling": None, "rope_theta": c["rope_parameters"]["rope_theta"],
                "sliding_window_layout": windows, "sliding_window_size": 7, "moe_num_secondary_experts": 0, "moe_secondary_expert_size": 0, "moe_shared_primary_experts": 0}  # fmt: skip

    def name(self, n):
        return None if ".mlp." in n else n

    def patch(self, m, w):
        for i, layer in enumerate(m.model.layers):
            tensors = lambda n, i=i: torch.tensor(w(f"model.layers.{i}.block_sparse_moe.{n}.weight"), dtype=torch.float64)  # noqa: E731
            layer.mlp = EarlyExperts(tensors, self.E, self.K, self.kind == "softmax")
            layer.register_forward_pre_hook(lambda own, args: setattr(own.mlp, "early", args[0]))


class EarlyExperts(torch.nn.Module):
    def __init__(self, w, num, k, softmax):
        super().__init__()
        self.router, self.k, self.softmax = w("primary_router"), k, softmax
        self.parts = [[w(f"experts.{e}.{part}") for part in ("gate", "up", "down")] for e in range(num)]

    def forward(self, x):
        best, chosen = (self.early @ self.router.T).topk(self.k, -1)
        weights = best.softmax(-1) if self.softmax else best.sigmoid() / best.sigmoid().sum(-1, keepdim=True)
        each = torch.stack([((x @ gate.T).relu() * (x @ up.T)) @ down.T for gate, up, down in self.parts], -2)
        return (weights[..., None] * each.gather(-2, chosen[..., None].expand(*chosen.shape, x.shape[-1]))).sum(-2)


STAND_INS = {
    "deci": Deci7("deci"),
    "nemotron-nas": Deci("nemotron-nas"),
    "smallthinker": SmallThinker("sigmoid"),
    "smallthinker-softmax": SmallThinker("softmax"),
    "mimo": Mimo("mimo"),
    "bailing_moe": Bailing("plain"),
    "bailing_moe-biases": Bailing("biases"),
    "bailing_moe_v2": Bailing2("bailing_moe_v2"),
    "bailing_moe-v2": Bailing2("bailing_moe"),
}
