#!/usr/bin/env python3
"""Measures the cost of a schema: the same load with and without `response_format`, in turns, through HTTP.

    structured.py [--models qwen3.5-0.8b] [--types q8_0] [--files MODEL.gguf] [--schemas objects,strings] [--clients 1,16] [--rounds 5]

One server for all. Every request has a random prompt of its own and temperature 1, and ends after --output tokens: the schemas
ask for more items than come. Prints tokens/s and the server's CPU time per token, medians of the rounds, and medians of
the ratios of rounds: above 1, a schema is the cheaper. Client and server share the CPUs. Nothing is asserted about time.

objects: members of bounded strings, numbers, an enum, a list. strings: free strings.
"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from models import ROOT, make, progress, run, words  # noqa: E402
from serving import Server, free_port, into_page_cache  # noqa: E402

ITEMS = {
    "objects": {"type": "object", "additionalProperties": False, "required": ["name", "kind", "count", "tags", "note"], "properties": {
        "name": {"type": "string", "maxLength": 40}, "kind": {"enum": ["book", "film", "record"]}, "count": {"type": "integer"},
        "price": {"type": "number", "minimum": 0}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "note": {"type": "string"}}},
    "strings": {"type": "string"},
}


def body_of(schema):
    if not schema:
        return {}
    items = {"type": "array", "minItems": 100000, "items": ITEMS[schema]}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": schema, "schema": items}}}


def processor_seconds(pid):
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), as Linux makes it


def masks(server):
    """Seconds that masks took so far, and steps that had some."""
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as r:
        text = r.read().decode()
    return [float(re.search(rf"^quire:mask_seconds_{part}{{.*}} (.*)$", text, re.M)[1]) for part in ("sum", "count")]


def load(a, server, schema, clients, seed):
    """Tokens per second; the server's processor time in ms per token; ms of a step's masks, which are made beside the step."""
    num = clients * a.waves
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "out.json"
        before, (took, steps) = processor_seconds(server.process.pid), masks(server)
        run([a.build / "quire-bench", server.url, "--endpoint", "/v1/completions", "--dataset-name", "random", "--prompt-form", "ids",
             "--vocab-size", a.vocab, "--ignore-eos", "--temperature", 1, "--seed", seed, "--request-rate", "inf", "--quiet",
             "--max-concurrency", clients, "--num-prompts", num, "--random-input-len", a.prompt, "--random-output-len", a.output,
             "--extra-body", json.dumps(body_of(schema) | json.loads(a.extra_body)), "--json", out])
        spent = processor_seconds(server.process.pid) - before
        took, steps = (now - then for now, then in zip(masks(server), (took, steps)))
        r = json.loads(out.read_text())
    if (r["completed"], r["total_output_tokens"]) != (num, num * a.output):
        sys.exit(f"structured.py: {r['completed']} of {num} requests, {r['total_output_tokens']} tokens; {r['errors_by_kind']}")
    return r["output_throughput"], 1e3 * spent / r["total_output_tokens"], 1e3 * took / max(steps, 1)


def rows(a, path):
    with free_port() as port, Server([a.build / "quire", "serve", path, "--port", port, "--threads", a.threads, "--max-num-seqs",
                                      max(a.clients), "--max-model-len", a.prompt + a.output + 64, "--log-level", "warn",
                                      *a.quire_flags], port) as server:
        for schema in ["", *a.schemas]:
            load(a, server, schema, max(a.clients), 999)  # compiles it
        for clients in a.clients:
            samples = {s: [] for s in ["", *a.schemas]}
            for i in range(a.rounds):
                progress(f"{path.name}: {clients} clients, round {i + 1} of {a.rounds}")
                for schema, got in samples.items():
                    got.append(load(a, server, schema, clients, 1000 * i + clients))
            for schema in a.schemas:
                rate, spent = (([x[i] for x in samples[""]], [x[i] for x in samples[schema]]) for i in (0, 1))
                yield clients, schema, rate, spent, statistics.median(x[2] for x in samples[schema])


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=words, default=["qwen3.5-0.8b"])
    p.add_argument("--types", type=words, default=["q8_0"])
    p.add_argument("--files", type=words, help="these instead of --models and --types")
    p.add_argument("--schemas", type=words, default=list(ITEMS))
    p.add_argument("--clients", type=lambda t: [int(w) for w in words(t)], default=[1, 16])
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--prompt", type=int, default=16)
    p.add_argument("--output", type=int, default=128)
    p.add_argument("--waves", type=int, default=1, help="requests of each client in a round")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--vocab", type=int, default=30000, help="random prompts are sampled below it")
    p.add_argument("--extra-body", default="{}", metavar="JSON", help="fields of every request")
    p.add_argument("--quire-flags", type=str.split, default=[], help="more of `quire serve`, in one word")
    p.add_argument("--cache", type=Path, default=ROOT / "build/bench-models")
    p.add_argument("--build", type=Path, default=ROOT / "build/release")
    a = p.parse_args()
    a.cache, a.build = a.cache.resolve(), a.build.resolve()
    return a


def main():
    a = arguments()
    median = statistics.median
    print("| model | clients | schema | tokens/s without | with | ratio | ms of processor per token without | with | ratio | ms of masks per step |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for path in [Path(f).resolve() for f in a.files] if a.files else [make(m, t, a.cache) for m in a.models for t in a.types]:
        into_page_cache(path)
        for clients, schema, rate, spent, mask in rows(a, path):
            cells = [path.stem, str(clients), schema]
            for (without, with_), better in ((rate, 1), (spent, -1)):
                ratio = median((w / o) ** better for o, w in zip(without, with_))
                cells += [f"{median(without):.4g}", f"{median(with_):.4g}", f"{ratio:.3f}"]
            print("| " + " | ".join([*cells, f"{mask:.2g}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
