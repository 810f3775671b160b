#!/usr/bin/env python3
"""Measures --kv-store DIR: what it saves after a restart, and what it costs whoever never meets a hit.

    kv_store.py --file MODEL.gguf [--tokens 8000] [--rounds 5]

Saves: seconds to the first token of a prompt that nobody has seen, of the same after the server has ended and begun again, and once
more in memory; log-probabilities must be equal. Costs: --clients streaming clients with prompts that nothing shares, without a store
and with an empty one, in turns: medians of the rounds' ratios of throughput and of ITL p99. Client and server share the CPUs, and the
store's disk is that of --dir. Nothing is asserted about time.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from decisions import post  # noqa: E402
from models import ROOT, progress, run  # noqa: E402
from serving import Server, free_port, into_page_cache  # noqa: E402


def serve(a, *flags):
    with free_port() as port:
        command = [a.build / "quire", "serve", a.file, "--port", port, "--threads", a.threads, "--max-model-len", a.tokens + 64]
        return Server([*command, "--log-level", "warn", *flags], port)


def first_token(server, ids):
    """Seconds, and what must be equal."""
    began = time.monotonic()
    body = post(server, "/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 5})
    return time.monotonic() - began, body["choices"][0]["logprobs"]


def savings(a, folder, dice):
    store, ids = ["--kv-store", folder / "saves"], [dice.randrange(300, 400) for _ in range(a.tokens)]
    with serve(a, *store) as server:
        cold, want = first_token(server, ids)
    with serve(a, *store) as server:
        (again, got), (memory, same) = first_token(server, ids), first_token(server, ids)
    if not want == got == same:
        sys.exit("kv_store.py: other log-probabilities after a restart")
    return cold, again, memory


def load(a, *flags):
    """Tokens a second, and the ITL p99 in ms."""
    with serve(a, *flags) as server, tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "out.json"
        run([a.build / "quire-bench", server.url, "--endpoint", "/v1/completions", "--dataset-name", "random", "--prompt-form", "ids",
             "--vocab-size", 500, "--ignore-eos", "--num-prompts", a.requests, "--random-input-len", 256, "--random-output-len", 64,
             "--max-concurrency", a.clients, "--quiet", "--json", out])  # fmt: skip
        report = json.loads(out.read_text())
    if report["completed"] != a.requests:
        sys.exit(f"kv_store.py: {report['completed']} of {a.requests} requests were answered")
    return report["total_token_throughput"], report["p99_itl_ms"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, default=ROOT / "models/quire-tiny.gguf")
    p.add_argument("--tokens", type=int, default=8000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--requests", type=int, default=64)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--build", type=Path, default=ROOT / "build/release")
    p.add_argument("--dir", help="where stores are made; default: the folder for temporary files")
    a = p.parse_args()
    a.file, a.build = a.file.resolve(), a.build.resolve()
    into_page_cache(a.file)
    saved, cost, dice = [], [], random.Random(1)
    for i in range(a.rounds):
        progress(f"{a.file.name}: round {i + 1} of {a.rounds}")
        with tempfile.TemporaryDirectory(dir=a.dir) as folder:
            saved.append(savings(a, Path(folder), dice))
            without = load(a)
            cost.append((without, load(a, "--kv-store", Path(folder) / "costs")))
    median = statistics.median
    cold, again, memory = (median(r[k] for r in saved) for k in range(3))
    print("| model | tokens | first token, cold | after a restart | in memory | throughput with a store | ITL p99 |\n|---|--:|--:|--:|--:|--:|--:|")
    print(f"| {a.file.stem} | {a.tokens} | {cold:.3g} s | {again:.3g} s, {100 * median(r[1] / r[0] for r in saved):.2g} % | {memory:.3g} s | "
          + " | ".join(f"{median(on[k] / off[k] for off, on in cost):.3f}×" for k in range(2)) + " |")  # fmt: skip


if __name__ == "__main__":
    main()
