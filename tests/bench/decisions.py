#!/usr/bin/env python3
"""Measures the cost of questions: ten about one text through /v1/systemone, and one prefill of such a text as a message, in turns.

    decisions.py --file MODEL.gguf [--tokens 4000] [--rounds 5]

Every text is new to the server. Prints seconds and the server's processor seconds, medians of the rounds, medians of the ratios of
rounds, and how many tokens were computed. Client and server share the CPUs. Nothing is asserted about time.
"""
import argparse
import json
import os
import random
import re
import statistics
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from models import ROOT, progress  # noqa: E402
from serving import Server, free_port, into_page_cache  # noqa: E402
from structured import processor_seconds  # noqa: E402

LABELS = {"billing": "Payments and refunds", "bug": "Software errors", "account": "Login and account access"}
LEVELS = ["Routine", "Soon", "Immediate"]
QUESTIONS = {f"noul{i}": {"type": "noul", "instructions": f"Is it about {word}?"} for i, word in enumerate(["money", "a car", "software", "food", "law"])}
QUESTIONS |= {f"choice{i}": {"type": "choice", "instructions": f"Which label fits its {part}?", "criteria": LABELS}
              for i, part in enumerate(["beginning", "middle", "end"])}  # fmt: skip
QUESTIONS |= {f"score{i}": {"type": "score", "instructions": f"How {word} is it?", "criteria": LEVELS} for i, word in enumerate(["urgent", "important"])}


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as reply:
        return json.loads(reply.read())


def computed(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as reply:
        text = reply.read().decode()
    total, hits = (float(re.search(rf"^vllm:{name}_total{{.*}} (.*)$", text, re.M)[1]) for name in ("prompt_tokens", "prefix_cache_hits"))
    return total - hits


def measured(server, path, body):
    """Seconds, processor seconds, tokens computed."""
    tokens, spent, began = computed(server), processor_seconds(server.process.pid), time.monotonic()
    post(server, path, body)
    return time.monotonic() - began, processor_seconds(server.process.pid) - spent, computed(server) - tokens


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--file", type=Path, default=ROOT / "models/quire-tiny.gguf")
    p.add_argument("--tokens", type=int, default=4000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--build", type=Path, default=ROOT / "build/release")
    a = p.parse_args()
    path, dice, rows = a.file.resolve(), random.Random(1), []
    words = (ROOT / "README.md").read_text().split()
    into_page_cache(path)
    with free_port() as port, Server([a.build.resolve() / "quire", "serve", path, "--port", port, "--threads", a.threads, "--log-level", "warn"], port) as server:
        def text():
            ids = post(server, "/tokenize", {"prompt": " ".join(dice.choices(words, k=a.tokens)), "add_special_tokens": False})["tokens"]
            return post(server, "/detokenize", {"tokens": ids[: a.tokens]})["prompt"]

        for i in range(a.rounds):
            progress(f"{path.name}: round {i + 1} of {a.rounds}")
            one = measured(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": text()}], "max_tokens": 1})
            rows.append((one, measured(server, "/v1/systemone", {"state": text(), "questions": QUESTIONS})))
    print("| model | tokens | seconds of one prefill | ten questions | ratio | processor seconds | ten questions | ratio | tokens computed | ten questions |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    median, cells = statistics.median, [path.stem, str(a.tokens)]
    for k in range(2):
        cells += [f"{median(r[side][k] for r in rows):.3g}" for side in range(2)] + [f"{median(r[1][k] / r[0][k] for r in rows):.3f}"]
    print("| " + " | ".join(cells + [f"{median(r[side][2] for r in rows):.0f}" for side in range(2)]) + " |")


if __name__ == "__main__":
    main()
