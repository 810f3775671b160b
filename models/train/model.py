"""The network of quire-tiny: a llama with grouped-query attention, in the shapes that GGUF names.

Letters: B sequences, T positions, D hidden, H query heads, K key/value heads, d head size, F feed-forward, V vocabulary.
Weights are stored as (out, in), as GGUF has them. RoPE turns neighbouring pairs (2i, 2i+1), which is what
architecture `llama` means in GGUF, so that nothing is permuted on export.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 3072
    hidden: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    ffn: int = 768
    context: int = 1024
    rope_base: float = 10000.0
    eps: float = 1e-5

    def dict(self):
        return asdict(self)


def rope_table(config, positions):
    """cos and sin of (positions, d/2), in F32."""
    half = torch.arange(0, config.head_size, 2, dtype=torch.float64) / config.head_size
    angle = torch.outer(torch.arange(positions, dtype=torch.float64), config.rope_base**-half)
    return angle.cos().float(), angle.sin().float()


def rope(x, cos, sin):
    """x (B, heads, T, d): each pair (2i, 2i+1) turned by its position's angle."""
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden))
        self.eps = config.eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def attention(q, k, v):
    """q (B, heads, T, d), k and v (B, kv_heads, S, d): the last T of S positions look back. Gives (B, heads, T, d)."""
    B, heads, T, d = q.shape
    kv_heads, S = k.shape[1:3]
    if T == S and T > 512:
        group = heads // kv_heads
        return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)
    # In single steps: on a CPU a training step with rows of 256 is so a fifth faster than with the fused attention. The query
    # heads that share a key head stand as one longer list of queries.
    scores = (q.reshape(B, kv_heads, -1, d) @ k.transpose(2, 3)).view(B, heads, T, S)
    scores = scores.to(torch.promote_types(q.dtype, torch.float32)) * d**-0.5
    later = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T + 1)
    weights = scores.masked_fill(later, float("-inf")).softmax(-1).to(v.dtype)
    return (weights.view(B, kv_heads, -1, S) @ v).view(B, heads, T, d)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = self.config = config
        kv = c.kv_heads * c.head_size
        self.attn_norm, self.ffn_norm = Norm(c), Norm(c)
        self.attn_q = nn.Linear(c.hidden, c.heads * c.head_size, bias=False)
        self.attn_k = nn.Linear(c.hidden, kv, bias=False)
        self.attn_v = nn.Linear(c.hidden, kv, bias=False)
        self.attn_output = nn.Linear(c.heads * c.head_size, c.hidden, bias=False)
        self.ffn_gate = nn.Linear(c.hidden, c.ffn, bias=False)
        self.ffn_up = nn.Linear(c.hidden, c.ffn, bias=False)
        self.ffn_down = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x, cos, sin, cache=None):
        c = self.config
        B, T, _ = x.shape
        h = self.attn_norm(x)
        q = rope(self.attn_q(h).view(B, T, c.heads, c.head_size).transpose(1, 2), cos, sin)
        k = rope(self.attn_k(h).view(B, T, c.kv_heads, c.head_size).transpose(1, 2), cos, sin)
        v = self.attn_v(h).view(B, T, c.kv_heads, c.head_size).transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(self, k, v)
        x = x + self.attn_output(attention(q, k, v).transpose(1, 2).reshape(B, T, -1))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Cache:
    """Keys and values of the positions seen so far, for generation."""

    def __init__(self):
        self.kv = {}
        self.length = 0

    def extend(self, layer, k, v):
        old = self.kv.get(id(layer))
        if old is not None:
            k, v = torch.cat((old[0], k), 2), torch.cat((old[1], v), 2)
        self.kv[id(layer)] = (k, v)
        return k, v


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.vocab, config.hidden)
        self.blk = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.output_norm = Norm(config)
        cos, sin = rope_table(config, config.context)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "embd" in name else p.shape[1] ** -0.5 * 0.7)
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                nn.init.normal_(p, std=p.shape[1] ** -0.5 * 0.7 * (2 * config.layers) ** -0.5)

    def hidden(self, ids, cache=None):
        start = cache.length if cache is not None else 0
        T = ids.shape[1]
        x = self.token_embd(ids)
        if torch.is_autocast_enabled(ids.device.type):
            x = x.to(torch.get_autocast_dtype(ids.device.type))
        for layer in self.blk:
            x = layer(x, self.cos[start : start + T], self.sin[start : start + T], cache)
        if cache is not None:
            cache.length += T
        return self.output_norm(x)

    def forward(self, ids, cache=None):
        """Logits (B, T, V); the output matrix is the embedding."""
        return F.linear(self.hidden(ids, cache), self.token_embd.weight)
