#!/usr/bin/env python3
"""What an open engine page costs: tokens per second with and without a poll a second, in turns, and the CPU time of one poll.

usage: page_overhead.py QUIRE [--rounds 10] [--seconds 8] [--blocks N] [--model FILE]

The load is as many streams as the server runs at a time. Turns alternate, so that what else the machine does meets both alike; the
median of the pairs' ratios is the overhead. It is close to the noise, so the CPU time of a poll is measured besides: of 200 polls
of the idle server, whose pool is as full as the load left it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

POLL = "/v1/engine?pages=state,refs,owner"  # server/page/engine.js


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


def rate(url, seconds, poll):
    """Tokens per second; poll: with the page open."""
    before, began = tokens(url), time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        if poll:
            get(url + POLL)
        time.sleep(min(1, left))
    return (tokens(url) - before) / (time.monotonic() - began)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("quire")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--blocks", default="4096")
    p.add_argument("--model")
    a = p.parse_args()
    command = [a.quire, "serve", *([a.model] if a.model else []), "--port", "0", "--max-num-seqs", "8", "--num-kv-blocks", a.blocks]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    url = next(line.split()[-1] for line in server.stderr if line.startswith("listening on "))
    threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
    stop, ratios, rates = threading.Event(), [], {True: [], False: []}
    clients = [threading.Thread(target=stream, args=(url, stop, k)) for k in range(8)]
    try:
        for c in clients:
            c.start()
        rate(url, 3, False)  # warm
        for i in range(a.rounds):
            pair = {poll: rate(url, a.seconds, poll) for poll in ((True, False) if i % 2 else (False, True))}
            for poll, r in pair.items():
                rates[poll].append(r)
            ratios.append(pair[True] / pair[False])
        stop.set()
        for c in clients:
            c.join()
        before = cpu_seconds(server.pid)
        for _ in range(200):
            size = len(get(url + POLL))
        each = (cpu_seconds(server.pid) - before) / 200
    finally:
        stop.set()
        server.terminate()
        server.wait()
    q = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    print(f"tokens/s without {statistics.median(rates[False]):.0f}, with a poll a second {statistics.median(rates[True]):.0f}")
    print(f"overhead {100 * (1 - statistics.median(ratios)):.2f} % (quartiles {100 * (1 - q[2]):.2f} to {100 * (1 - q[0]):.2f})")
    print(f"a poll: {size} bytes, {each * 1e3:.2f} ms of CPU: {100 * each / os.cpu_count():.3f} % of {os.cpu_count()} CPUs at one a second")


if __name__ == "__main__":
    sys.exit(main())
