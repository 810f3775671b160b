#!/usr/bin/env python3
"""Where the time between two tokens of one client goes: `./dev bench between`.

    between_tokens.py [--build build/release] [--model FILE] [--tokens 200]

One stream of one server, with drafts off. The engine's parts are quire:step_seconds_total; the loop's come from times that
between_tokens.c takes in the server (it is compiled here and preloaded): the engine wakes the loop, the loop is awake, it begins
a write, the write has ended. The engine goes on with the next step meanwhile, so the loop's parts delay a token and do not add
to the time between two. Medians of all tokens but the first and last ten.
"""
import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import models

HERE = Path(__file__).resolve().parent
PARTS = ("plan", "execute", "apply")


def metrics(url):
    text = urllib.request.urlopen(url + "/metrics").read().decode()

    def value(name):
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))

    parts = {p: float(re.search(rf'^quire:step_seconds_total{{.*part="{p}".*}} (\S+)$', text, re.M)[1]) for p in PARTS}
    return {**parts, "loop": value("quire:loop_cpu_seconds_total"), "tokens": value("vllm:generation_tokens_total")}


def stream(address, tokens):
    """Times at which each event of one completion reached this client."""
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True,
                       "temperature": 0, "stream": True}), {"Content-Type": "application/json"})  # fmt: skip
    response, times = connection.getresponse(), []
    while piece := response.read1():
        times += [time.monotonic()] * (b"data: {" in piece)
    return times


def loop_parts(path):
    """us of each token: the wake-up, from there to the write (events, text, framing), the write."""
    notes = [(what, main == "1", int(ns)) for what, main, ns in (line.split() for line in open(path))]
    out = []
    sent = awake = begun = None
    for what, main, ns in notes:
        if what == "n" and not main:
            sent, awake, begun = ns, None, None
        elif what == "w" and main and sent and not awake:
            awake = ns
        elif what == "s" and main and awake and not begun:
            begun = ns
        elif what == "e" and main and begun:
            out.append(((awake - sent) / 1e3, (begun - awake) / 1e3, (ns - begun) / 1e3))
            sent = awake = begun = None
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=models.ROOT / "build/release")
    p.add_argument("--model", type=Path, help="default: the shape of Qwen2.5-0.5B in Q8_0")
    p.add_argument("--tokens", type=int, default=200)
    a = p.parse_args()
    model = a.model or models.make("qwen2.5-0.5b", "q8_0", models.ROOT / "build/bench-models")
    with tempfile.TemporaryDirectory() as folder:
        shim, log = Path(folder) / "between_tokens.so", Path(folder) / "notes"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, HERE / "between_tokens.c"], check=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")} | {"LD_PRELOAD": str(shim), "BETWEEN_TOKENS": str(log)}
        server = subprocess.Popen([a.build / "quire", "serve", model, "--port", "0", "--max-num-seqs", "4", "--speculative-method", "none"],
                                  stderr=subprocess.PIPE, text=True, env=env)  # fmt: skip
        try:
            url = next(line.split()[2] for line in server.stderr if line.startswith("listening on "))
            stream(url.split("//")[1], 20)
            before = metrics(url)
            times = stream(url.split("//")[1], a.tokens)
            after = metrics(url)
        finally:
            server.terminate()
            server.communicate()
        waits = statistics.median(b - t for t, b in zip(times[10:-10], times[11:-10])) * 1e6
        steps = after["tokens"] - before["tokens"]
        loop = loop_parts(log)[-a.tokens + 10 : -10]
    mean = lambda key: (after[key] - before[key]) / steps * 1e6
    rest = (times[-1] - times[0]) / (len(times) - 1) * 1e6 - sum(mean(k) for k in PARTS)
    print("| what | us |\n|---|--:|")
    print(f"| between two tokens, as the client sees it: median | {waits:.0f} |")
    print(f"| mean | {(times[-1] - times[0]) / (len(times) - 1) * 1e6:.0f} |")
    for key, what in (("plan", "plan"), ("execute", "launch, forward pass, sampling"), ("apply", "outcome, events into the queue")):
        print(f"| engine thread: {what} | {mean(key):.1f} |")
    print(f"| engine thread: the rest (statistics, wake-up, inbox) | {rest:.1f} |")
    for i, what in enumerate(("awake after the engine's call", "events, detokenised and framed", "write to the socket")):
        print(f"| meanwhile the loop: {what} | {statistics.median(t[i] for t in loop):.1f} |")
    print(f"| meanwhile the loop: CPU time a token | {mean('loop'):.1f} |")


if __name__ == "__main__":
    main()
