#!/usr/bin/env python3
"""The GEMMs and attentions of bench_cuda through PyTorch, beside what bench_cuda gave.

    torch_kernels.py OUT [--only gemm,attention] [--beside BENCH.json] [--tiny] [--device cuda|cpu]

Writes OUT.json and OUT.md after every row. GEMMs: F.linear in bf16, torch._scaled_mm in FP8 (e4m3, a scale for each tensor).
Attention: scaled_dot_product_attention over dense keys and values, decode and causal prefill, and FlashInfer's over pages,
where it can be imported. As bench_cuda measures: the median of graphs that hold several launches, over so many copies that they are four
times the device's cache. --beside: bench_cuda's rows of the same shapes as one more column. --tiny: sizes for a CPU.
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

MATRICES = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
ROWS = [1, 8, 16, 32, 64, 128, 256]
DECODES = [(8, 4, 128, n, context) for context in (512, 4096, 32768) for n in (1, 16, 64, 256)]  # kv heads, group, d, sequences, context
PREFILLS = [(8, 4, 128, n) for n in (512, 2048, 8192, 32768)]


class Table:
    def __init__(self, a, device):
        self.out, self.rows, self.missing = a.out, [], []
        self.title = f"torch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}"
        self.ours = {}
        if a.beside:
            with open(a.beside) as f:
                for k in json.load(f)["kernels"]:
                    self.ours.setdefault(k["kernel"] + " " + k["shape"], k["us"])

    def add(self, kernel, shape, same, fn):
        """same: names of bench_cuda's rows that do the same work."""
        try:
            us = fn() * 1e6
        except Exception as e:  # too little memory, a version that cannot: the other rows remain
            self.missing.append({"kernel": kernel, "shape": shape, "why": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"})
        else:
            self.rows.append({"kernel": kernel, "shape": shape, "us": us, "ours": {n: self.ours[n] for n in same if n in self.ours}})
        self.write()

    def write(self):
        with open(self.out + ".json", "w") as f:
            json.dump({"versions": self.title, "kernels": self.rows, "missing": self.missing}, f, indent=1)
        with open(self.out + ".md", "w") as f:
            f.write(f"## Kernels of PyTorch\n\n{self.title}\n\n| kernel | shape | µs | ours, µs |\n|---|---|--:|---|\n")
            for r in self.rows:
                ours = ", ".join(f"{name.split(' (')[0].split(', K')[0]} {us:.1f}" for name, us in r["ours"].items())
                f.write(f"| {r['kernel']} | {r['shape']} | {r['us']:.1f} | {ours} |\n")
            for m in self.missing:
                f.write(f"| {m['kernel']} | {m['shape']} | {m['why']} | |\n")


def copies_of(device, size, tiny):
    """So many that they are four times the cache."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 1 << 16
    return 2 if tiny else max(1, min(64, math.ceil(4 * cache / size)))


def median_seconds(device, fn, num, tiny):
    """Times fn(i) over copy i: replays of a graph of 16 launches at least."""
    launches, replays = (2, 3) if tiny else (max(16, num), 20)
    for i in range(num):
        fn(i)
    if device != "cuda":
        replay = lambda: [fn(i % num) for i in range(launches)]
        wait = lambda: None
    else:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(launches):
                fn(i % num)
        replay, wait = graph.replay, torch.cuda.synchronize
    samples = []
    for i in range(replays + 2):
        wait()
        start = time.perf_counter()
        replay()
        wait()
        samples.append((time.perf_counter() - start) / launches)
    return statistics.median(samples[2:])


def gemms(table, device, tiny):
    for n, k in [(64, 256)] if tiny else MATRICES:
        num = copies_of(device, 2 * n * k, tiny)
        weights = [torch.randn(n, k, device=device, dtype=torch.bfloat16) for _ in range(num)]
        eighths = [w.to(torch.float8_e4m3fn) for w in weights]
        one = torch.ones((), device=device)
        for m in [1, 20] if tiny else ROWS:
            x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
            same = [f"gemm{t} ({n}, {k}) x {m}" for t in (" BF16", " Q8_0", " Q4_K", ", wgmma BF16")] + [f"cuBLASLt bf16 ({n}, {k}) x {m}"]
            table.add("F.linear, bf16", f"({n}, {k}) x {m}", same, lambda: median_seconds(device, lambda i: F.linear(x, weights[i]), num, tiny))
            padded = torch.zeros(max(16, m), k, device=device, dtype=torch.float8_e4m3fn)  # some versions want 16 rows
            padded[:m] = x.to(torch.float8_e4m3fn)
            table.add("_scaled_mm, FP8", f"({n}, {k}) x {m}", same[1:3], lambda: median_seconds(
                device, lambda i: torch._scaled_mm(padded, eighths[i].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16), num, tiny))
        del weights, eighths


def paged_decode(flashinfer, device, make, K, G, d, n, context, num):
    pages, ints = (context + 15) // 16, dict(dtype=torch.int32, device=device)
    caches, q = [make(n * pages, 2, 16, K, d) for _ in range(num)], make(n, K * G, d)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(256 << 20, dtype=torch.uint8, device=device), "NHD")
    wrapper.plan(torch.arange(n + 1, **ints) * pages, torch.randperm(n * pages, device=device).int(),
                 torch.full((n,), (context - 1) % 16 + 1, **ints), K * G, K, d, 16, q_data_type=torch.bfloat16)
    return median_seconds(device, lambda i: wrapper.run(q, caches[i]), num, False)


def attentions(table, device, tiny):
    try:
        import flashinfer
    except ImportError:
        flashinfer = None
        table.missing.append({"kernel": "FlashInfer", "shape": "", "why": "cannot be imported"})

    def make(*shape):
        return torch.randn(*shape, device=device, dtype=torch.bfloat16)

    for K, G, d, n, context in [(1, 4, 128, 2, 40)] if tiny else DECODES:
        size = 4 * K * d * n * context
        shape, num = f"K {K} G {G} d {d}, {n} x {context} tokens", copies_of(device, size, tiny)
        if device == "cuda" and size * num > torch.cuda.mem_get_info()[0] * 0.8:
            table.missing.append({"kernel": "decode", "shape": shape, "why": "does not fit"})
            continue
        cache = [(make(n, K, context, d), make(n, K, context, d)) for _ in range(num)]
        q = make(n, K * G, 1, d)
        same = [f"decode attention bf16, {shape}"]
        table.add("SDPA, decode", shape, same, lambda: median_seconds(
            device, lambda i: F.scaled_dot_product_attention(q, *cache[i], enable_gqa=True), num, tiny))
        del cache
        if flashinfer and device == "cuda":
            table.add("FlashInfer, decode", shape, same, lambda: paged_decode(flashinfer, device, make, K, G, d, n, context, num))
    for K, G, d, n in [(1, 4, 128, 20)] if tiny else PREFILLS:
        shape, num = f"K {K} G {G} d {d}, {n} tokens", copies_of(device, 4 * K * d * n, tiny)
        num = min(num, 8)
        q, cache = make(1, K * G, n, d), [(make(1, K, n, d), make(1, K, n, d)) for _ in range(num)]
        same = [f"prefill attention{w} bf16, {shape}" for w in ("", ", wgmma")]
        table.add("SDPA, prefill", shape, same, lambda: median_seconds(
            device, lambda i: F.scaled_dot_product_attention(q, *cache[i], is_causal=True, enable_gqa=True), num, tiny))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--only", default="gemm,attention")
    p.add_argument("--beside")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    torch.manual_seed(1)
    table = Table(a, a.device)
    with torch.inference_mode():
        if "gemm" in a.only:
            gemms(table, a.device, a.tiny)
        if "attention" in a.only:
            attentions(table, a.device, a.tiny)
    table.write()
    print(f"{len(table.rows)} rows, {len(table.missing)} missing")
    return 0 if table.rows else 1


if __name__ == "__main__":
    sys.exit(main())
