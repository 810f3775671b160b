#!/usr/bin/env python3
"""The shapes of bench_cuda's steps through PyTorch and transformers, for the report of gpu_slot.sh.

    torch_same.py OUT [--tiny] [--device cuda|cpu]

Writes OUT.json and OUT.md. random bf16 weights, made on the device, a bf16 cache; the library's own forward pass with its
default attention (sdpa):
  prefill   a prompt of one row at once, logits of the last token alone, the cache filled
  decode    one token for each of a batch of sequences that have CONTEXT - 1 in the cache: as generate() runs it (a cache
            that grows, launches one by one), and from a CUDA graph over a cache of fixed size
and the argmax of the logits, as bench_cuda samples greedily. --tiny: sizes for a CPU; its numbers mean nothing.
"""
import argparse
import gc
import json
import time

import torch
import transformers

SHAPES = {  # layers, hidden, heads, kv heads, ffn, vocab, biases of q, k and v: as in bench_cuda_steps.c
    "Llama-3-8B": (32, 4096, 32, 8, 14336, 128256, False),
    "Qwen2.5-0.5B": (24, 896, 14, 2, 4864, 151936, True),
}
TINY = {"tiny": (1, 256, 4, 2, 256, 500, False), "tiny with biases": (1, 256, 4, 2, 256, 500, True)}


def make(shape, device):
    layers, hidden, heads, kv_heads, ffn, vocab, biases = shape
    kind = transformers.Qwen2Config if biases else transformers.LlamaConfig
    config = kind(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads,
                  intermediate_size=ffn, vocab_size=vocab, max_position_embeddings=16384, tie_word_embeddings=False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
    assert next(model.parameters()).dtype == torch.bfloat16 and next(model.parameters()).device.type == device
    return model.eval(), config


class Clock:
    """Seconds between start and stop, with all that was queued done."""

    def __init__(self, device):
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def start(self):
        self.wait()
        self.begin = time.perf_counter()

    def stop(self):
        self.wait()
        return time.perf_counter() - self.begin


def prefill(model, config, device, n, repeats):
    ids = torch.randint(config.vocab_size, (1, n), device=device)
    clock, best = Clock(device), float("inf")
    for i in range(repeats + 1):  # one to warm up
        cache = transformers.DynamicCache()
        clock.start()
        out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        out.logits.argmax(-1)
        seconds = clock.stop()
        if i > 0:
            best = min(best, seconds)
        assert cache.get_seq_length() == n
    return best


def random_cache(cache, config, device, batch, tokens):
    """Puts `tokens` random keys and values of every sequence into the cache."""
    d = config.hidden_size // config.num_attention_heads
    one = torch.randn(batch, config.num_key_value_heads, tokens, d, device=device, dtype=torch.bfloat16)
    for layer in range(config.num_hidden_layers):
        cache.update(one, one, layer, {"cache_position": torch.arange(tokens, device=device)})
    return cache


def decode_plain(model, config, device, batch, context, steps):
    """As generate() does it. The cache grows by a token a step: the context is that of the step in the middle."""
    cache = random_cache(transformers.DynamicCache(), config, device, batch, context - 1 - steps // 2)
    ids = torch.randint(config.vocab_size, (batch, 1), device=device)
    clock = Clock(device)
    for i in range(steps):
        if i == steps // 4:  # the first to warm up
            clock.start()
        ids = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
    seconds = clock.stop() / (steps - steps // 4)
    assert cache.get_seq_length() == context - 1 - steps // 2 + steps
    return seconds


def decode_graph(model, config, device, batch, context, steps):
    """From a graph, over a cache of fixed size, all of which every step reads. Where in it a step writes is the library's
    affair: transformers 4 asks for the place, 5 counts on; so there is room for all steps."""
    before = context - steps - 8
    cache = random_cache(transformers.StaticCache(config=config, max_cache_len=context), config, device, batch, before)
    ids = torch.randint(config.vocab_size, (batch, 1), device=device)
    at = torch.tensor([before], device=device)

    def step():
        return model(input_ids=ids, past_key_values=cache, use_cache=True, cache_position=at,
                     position_ids=at.expand(batch, 1)).logits[:, -1:].argmax(-1)

    clock, replay = Clock(device), step
    if device == "cuda":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sampled = step()
        replay = graph.replay
        replay()
        assert sampled.shape == (batch, 1)
    replay()
    clock.start()
    for _ in range(steps):
        replay()
    return clock.stop() / steps


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    torch.manual_seed(1)
    rows, missing = [], []
    name = torch.cuda.get_device_name() if a.device == "cuda" else "CPU"
    title = f"torch {torch.__version__}, transformers {transformers.__version__}, {name}"

    def measure(step, shape, tokens, fn, *arguments):
        try:
            with torch.inference_mode():
                seconds = fn(*arguments)
            rows.append({"step": step, "shape": shape, "ms": seconds * 1e3, "tokens_per_s": tokens / seconds})
        except Exception as e:  # too little memory, or a version of the library that cannot: the other rows remain
            missing.append({"step": step, "shape": shape, "why": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"})
        gc.collect()
        if a.device == "cuda":
            torch.cuda.empty_cache()
        write(a.out, title, rows, missing)

    for shape_name, shape in (TINY if a.tiny else SHAPES).items():
        model, config = make(shape, a.device)
        for n in (16, 32, 64) if a.tiny else (512, 2048, 8192):
            measure("prefill", f"{shape_name} bf16, {n} tokens", n, prefill, model, config, a.device, n, 1 if a.tiny else 3)
        for context in (32, 64) if a.tiny else (512, 4096):
            for batch in (1, 2, 4) if a.tiny else (1, 16, 64):
                text = f"{shape_name} bf16, batch {batch}, context {context}"
                steps = 4 if a.tiny else 32
                measure("decode", text, batch, decode_plain, model, config, a.device, batch, context, steps)
                measure("decode, graph", text, batch, decode_graph, model, config, a.device, batch, context, steps)
        del model
        gc.collect()
    print(f"{len(rows)} steps, {len(missing)} missing")
    return 0 if rows else 1


def write(out, title, rows, missing):
    with open(out + ".json", "w") as f:
        json.dump({"versions": title, "steps": rows, "missing": missing}, f, indent=1)
    with open(out + ".md", "w") as f:
        f.write(f"## The same shapes through PyTorch\n\n{title}. Plain: as `generate()` runs it; graph: a CUDA graph over a cache of "
                "fixed size.\n\n| step | shape | ms | tokens/s |\n|---|---|---|---|\n")
        for r in rows:
            f.write(f"| {r['step']} | {r['shape']} | {r['ms']:.3f} | {r['tokens_per_s']:.0f} |\n")
        for m in missing:
            f.write(f"| {m['step']} | {m['shape']} | {m['why']} | |\n")


if __name__ == "__main__":
    raise SystemExit(main())
