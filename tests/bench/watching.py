#!/usr/bin/env python3
"""What watching costs: tokens per second and the server's processor time per token, watched and alone, in turns.

usage: watching.py QUIRE [--rounds 10] [--seconds 8] [--blocks N] [--model FILE]

Watched is a server whose engine page polls and whose /metrics are scraped once a second, and which sends the spans of all requests to
a collector; alone is one of its own with --no-page, asked nothing. The load is as many streams as a server runs at a time. Turns
alternate, so that what else the machine does meets both alike; the medians of the pairs' ratios are the overhead. They are close to
the noise, so CPU time is measured besides: of 1,000 requests of one token, with spans and without, and of 200 polls of the idle
server, whose pool is as full as the load left it.
"""

import argparse
import http.server
import json
import os
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


def stream(url, stop, k):
    while not stop.is_set():
        body = {"prompt": f"Once upon a time, in town {k}", "max_tokens": 400, "ignore_eos": True, "stream": True, "temperature": 1}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            while reply.read1(65536) and not stop.is_set():
                pass


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
        self.watched = watched
        model = [a.model] if a.model else []
        command = [a.quire, "serve", *model, "--port", "0", "--max-num-seqs", str(CLIENTS), "--num-kv-blocks", a.blocks, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = next(line.split()[-1] for line in self.process.stderr if line.startswith("listening on "))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def turn(self, seconds):
        """Tokens per second, and microseconds of the server's processor per token, under load."""
        stop = threading.Event()
        clients = [threading.Thread(target=stream, args=(self.url, stop, k)) for k in range(CLIENTS)]
        for c in clients:
            c.start()
        time.sleep(1)
        before, cpu, began = tokens(self.url), cpu_seconds(self.process.pid), time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            if self.watched:
                for poll in POLLS:
                    get(self.url + poll)
            time.sleep(max(0, min(1, left)))
        made, took = tokens(self.url) - before, time.monotonic() - began
        cpu = cpu_seconds(self.process.pid) - cpu
        stop.set()
        for c in clients:
            c.join()
        return made / took, cpu / made * 1e6

    def request_cost(self, requests=1000):
        """Microseconds of the server's processor for a request of one token."""
        before = cpu_seconds(self.process.pid)
        for k in range(requests):
            body = {"prompt": f"Town {k}", "max_tokens": 1}
            request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=60).read()
        return (cpu_seconds(self.process.pid) - before) / requests * 1e6

    def stop(self):
        self.process.terminate()
        self.process.wait()


def overhead(ratios):
    q = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{100 * (statistics.median(ratios) - 1):.2f} % (quartiles {100 * (q[0] - 1):.2f} to {100 * (q[2] - 1):.2f})"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("quire")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--blocks", default="4096")
    p.add_argument("--model")
    a = p.parse_args()
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    engines = [Engine(a, False, "--no-page"), Engine(a, True, "--otlp-traces-endpoint", endpoint)]
    try:
        for e in engines:
            e.turn(1)  # warm
        pairs = []
        for i in range(a.rounds):
            of = {e.watched: e.turn(a.seconds) for e in (engines if i % 2 else engines[::-1])}
            pairs.append((of[False], of[True]))
        for what, unit, k in (("time per token", "tokens/s", 0), ("processor time per token", "us", 1)):
            alone, watched = ([pair[w][k] for pair in pairs] for w in (0, 1))
            ratios = [a / w if k == 0 else w / a for a, w in zip(alone, watched)]
            print(f"{what}: {statistics.median(alone):.1f} {unit} alone, {statistics.median(watched):.1f} watched: {overhead(ratios)}")
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
