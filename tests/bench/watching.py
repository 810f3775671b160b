#!/usr/bin/env python3
"""Measures the cost of watching: tokens per second and the server's CPU time per token, watched and alone, in turns.

usage: watching.py QUIRE [--pairs 600] [--seconds 0.2] [--blocks N] [--model FILE]

Watched is a server whose engine page polls and whose /metrics are scraped once a second, and which sends the spans of all requests to
a collector; alone is one of its own with --no-page, asked nothing. Both stand under the load of quire-bench all the time, as many
streams as a server runs at a time, and one of them is stopped (SIGSTOP) while the other has its turn. Turns are short and many, so that
what else the machine does meets both alike: the sums over all turns are compared, and resampling the pairs gives the 95 % interval.
CPU time is measured besides: of 1,000 requests of one token, with spans and without, and of 200 polls of the idle server, whose pool is
as full as the load left it.
"""

import argparse
import http.server
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

POLLS = ("/v1/engine?pages=state,refs,owner", "/metrics")  # the first is server/page/engine.js's
CLIENTS = 8


def get(url):
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.read()


def tokens(url):
    return json.loads(get(url + "/v1/engine"))["totals"]["generated_tokens"]


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes spans and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Engine:
    """A server, alone or watched."""

    def __init__(self, a, watched, *flags):
        self.watched, self.bench, self.ran, self.polled = watched, None, 0, -1
        model = [a.model] if a.model else []
        command = [a.quire, "serve", *model, "--port", "0", "--max-num-seqs", str(CLIENTS), "--num-kv-blocks", a.blocks, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = next(line.split()[-1] for line in self.process.stderr if line.startswith("listening on "))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def load(self, bench):
        """Keeps it under load until stop_load()."""
        flags = ["--max-concurrency", str(CLIENTS), "--num-prompts", "1000000", "--random-input-len", "64", "--random-output-len", "400"]
        self.bench = subprocess.Popen([bench, self.url, *flags, "--ignore-eos", "--temperature", "1"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        time.sleep(3)
        self.process.send_signal(signal.SIGSTOP)

    def stop_load(self):
        self.process.send_signal(signal.SIGCONT)
        self.bench.kill()
        self.bench.wait()
        self.bench = None
        time.sleep(1)  # the server cancels what nobody reads any longer

    def turn(self, seconds):
        """Tokens, seconds and seconds of the server's processor."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(0.02)
        before, cpu, began = tokens(self.url), cpu_seconds(self.process.pid), time.monotonic()
        if self.watched and int(self.ran) > self.polled:
            self.polled = int(self.ran)
            for poll in POLLS:
                get(self.url + poll)
        time.sleep(max(0, began + seconds - time.monotonic()))
        made, took = tokens(self.url) - before, time.monotonic() - began
        self.ran += took
        cpu = cpu_seconds(self.process.pid) - cpu
        self.process.send_signal(signal.SIGSTOP)
        return made, took, cpu

    def request_cost(self, requests=1000):
        """Microseconds of the server's processor for a request of one token."""
        before = cpu_seconds(self.process.pid)
        for k in range(requests):
            body = {"prompt": f"Town {k}", "max_tokens": 1}
            request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=60).read()
        return (cpu_seconds(self.process.pid) - before) / requests * 1e6

    def stop(self):
        if self.bench:
            self.stop_load()
        self.process.terminate()
        self.process.wait()


def per_token(turns, k):
    """Seconds (k = 1), or seconds of the processor (k = 2), per token."""
    return sum(t[k] for t in turns) / sum(t[0] for t in turns)


def overhead(pairs, k):
    def ratio(of):
        return 100 * (per_token([watched for _, watched in of], k) / per_token([alone for alone, _ in of], k) - 1)

    again = sorted(ratio(random.choices(pairs, k=len(pairs))) for _ in range(2000))
    return f"{ratio(pairs):.2f} % (95 % interval {again[50]:.2f} to {again[1949]:.2f})"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("quire")
    p.add_argument("--pairs", type=int, default=600)
    p.add_argument("--seconds", type=float, default=0.2)
    p.add_argument("--blocks", default="4096")
    p.add_argument("--model")
    a = p.parse_args()
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    engines = [Engine(a, False, "--no-page"), Engine(a, True, "--otlp-traces-endpoint", endpoint)]
    try:
        for e in engines:
            e.load(a.quire + "-bench")
        pairs = []
        for i in range(a.pairs):
            of = {e.watched: e.turn(a.seconds) for e in (engines if i % 2 else engines[::-1])}
            pairs.append((of[False], of[True]))
        for e in engines:
            e.stop_load()
        for what, k in (("time per token", 1), ("processor time per token", 2)):
            alone, watched = (per_token([pair[w] for pair in pairs], k) * 1e6 for w in (0, 1))
            print(f"{what}: {alone:.1f} us alone, {watched:.1f} watched: {overhead(pairs, k)}")
        costs = [[e.request_cost() for e in engines] for _ in range(3)]
        alone, watched = (statistics.median(c[k] for c in costs) for k in (0, 1))
        print(f"a request of one token: {alone:.0f} us of CPU, with its spans {watched:.0f}")
        for poll in POLLS:
            before = cpu_seconds(engines[1].process.pid)
            for _ in range(200):
                size = len(get(engines[1].url + poll))
            each = (cpu_seconds(engines[1].process.pid) - before) / 200
            share = 100 * each / os.cpu_count()
            print(f"{poll}: {size} bytes, {each * 1e3:.2f} ms of CPU: {share:.3f} % of {os.cpu_count()} CPUs at one a second")
    finally:
        for e in engines:
            e.stop()


if __name__ == "__main__":
    sys.exit(main())
