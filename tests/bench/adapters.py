#!/usr/bin/env python3
"""Measures the cost of adapters: decode with an adapter for each request and without, in turns.

    adapters.py [--models llama-1b] [--types q8_0] [--layers N] [--num 8] [--rank 16] [--targets q,k,v,o,gate,up,down] [--batches 16]

Makes the model as models.py does, and PEFT folders of random BF16 matrices for it, and runs bench_model. Prints tokens/s, medians of
the samples, the median of the ratios of samples that follow each other, and what a step reads of adapters by what it reads of
the model's matrices. Nothing is asserted about time.
"""
import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from models import ROOT, make, run, words  # noqa: E402

import make_folder  # noqa: E402
import make_gguf  # noqa: E402

PLACES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
          "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip


def shapes(model, layers):
    """(rows, columns) by target; the number of layers."""
    m = make_gguf.PRESETS[model]
    d, q, k, f = m["hidden"], m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"], m["ffn"]
    return {"q": (q, d), "k": (k, d), "v": (k, d), "o": (d, q), "gate": (f, d), "up": (f, d), "down": (d, f)}, layers or m["layers"]


def write_adapter(folder, seed, a, model):
    """Returns its bytes."""
    of, layers = shapes(model, a.layers)
    tensors, size = [], 0
    for layer in range(layers):
        for t in a.targets:
            rows, cols = of[t]
            for part, shape in (("A", [a.rank, cols]), ("B", [rows, a.rank])):
                chunks = make_gguf.random_tensor(seed + len(tensors), make_gguf.TYPES["bf16"], shape[0] * shape[1], 0.02)
                data = b"".join(chunks())
                tensors.append((f"base_model.model.model.layers.{layer}.{PLACES[t]}.lora_{part}.weight", "BF16", shape, data))
                size += len(data)
    folder.mkdir()
    make_folder.write_safetensors(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": a.rank, "lora_alpha": a.rank}))
    return size


def rows(a, model, path):
    with tempfile.TemporaryDirectory() as tmp:
        folders = [Path(tmp) / str(i) for i in range(a.num)]
        size = sum(write_adapter(f, 1000 * i, a, model) for i, f in enumerate(folders))
        result = json.loads(run([a.bench, path, "--threads", a.threads, "--prefill", 0, "--batches", ",".join(map(str, a.batches)),
                                 "--steps", a.steps, "--repeats", a.repeats, *(w for f in folders for w in ("--adapter", f))]))
    for one in result["decode"]:
        without, with_ = one["samples_tokens_s"], one["samples_with_adapters"]
        read = size * min(a.num, one["batch"]) / a.num / result["step_bytes"]
        yield one["batch"], statistics.median(without), statistics.median(with_), statistics.median(w / o for o, w in zip(without, with_)), read


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=words, default=["llama-1b"])
    p.add_argument("--types", type=words, default=["q8_0"])
    p.add_argument("--layers", type=int, default=0, help="of each model only so many; 0: all")
    p.add_argument("--num", type=int, default=8, help="of adapters")
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--targets", type=words, default=list(PLACES))
    p.add_argument("--batches", type=lambda t: [int(w) for w in words(t)], default=[16])
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--cache", type=Path, default=ROOT / "build/bench-models")
    p.add_argument("--bench", type=Path, default=ROOT / "build/release/tests/bench_model")
    a = p.parse_args()
    print("| model | batch | tokens/s without | with | ratio | read by adapters / model |")
    print("|---|--:|--:|--:|--:|--:|")
    for model in a.models:
        for kind in a.types:
            path = make(model, kind, a.cache.resolve(), a.layers)
            for batch, without, with_, ratio, read in rows(a, model, path):
                print(f"| {path.stem} | {batch} | {without:.4g} | {with_:.4g} | {ratio:.3f} | {read:.3f} |", flush=True)


if __name__ == "__main__":
    main()
