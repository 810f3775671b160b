#!/usr/bin/env python3
"""How well x-quire-predicted-ttft-ms predicts: a server answers a conversation trace, and each first token is compared.

usage: predict.py QUIRE TRACE [--model FILE] [--requests N] [--speed X] [-- flags of serve]

TRACE is Mooncake's (timestamp in ms, input_length, output_length, hash_ids of 512 tokens each). So that a small machine keeps up,
a hash id stands for 16 tokens, outputs are an eighth, and time passes X times as fast. Prints one line of JSON: the relative error
|predicted - measured| / measured in percentiles, and how many were predicted. Measured is what the server's log calls ttft_ms."""

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WARM = 20  # requests that are not counted: the model is fitted while they run


def prompt_of(row):
    ids = [1]
    for block in row["hash_ids"]:
        ids += [(block * 7919 + i * 104729) % 400 + 20 for i in range(16)]
    return ids[: max(2, row["input_length"] // 32)]


def ask(port, row, name, out):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt_of(row), "max_tokens": max(1, row["output_length"] // 8), "ignore_eos": True}
    conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", "X-Request-Id": name})
    reply = conn.getresponse()
    predicted = reply.getheader("x-quire-predicted-ttft-ms")
    reply.read()
    conn.close()
    if reply.status == 200 and predicted:
        out[name] = float(predicted)


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    p.add_argument("quire")
    p.add_argument("trace")
    p.add_argument("--model", default="")
    p.add_argument("--requests", type=int, default=300)
    p.add_argument("--speed", type=float, default=1)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a, flags = p.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    with open(a.trace) as f:
        rows = [json.loads(line) for _, line in zip(range(a.requests), f)]
    log = tempfile.NamedTemporaryFile(mode="r", suffix=".log")
    command = [a.quire, "serve", *([a.model] if a.model else []), "--port", "0", *flags]
    server = subprocess.Popen(command, stderr=open(log.name, "w"))
    try:
        while not (found := re.search(r"listening on http://[^:]+:(\d+)", log.read() if not log.seek(0) else "")):
            assert server.poll() is None, "the server ended"
            time.sleep(0.05)
        port, out, threads = int(found[1]), {}, []
        start = time.perf_counter()
        for row in rows:
            wait = row["timestamp"] / 1e3 / a.speed - (time.perf_counter() - start)
            if wait > 0:
                time.sleep(wait)
            threads.append(threading.Thread(target=ask, args=(port, row, f"request-{len(threads)}", out)))
            threads[-1].start()
        for t in threads:
            t.join()
    finally:
        server.terminate()
        server.wait(60)
    with open(log.name) as f:
        measured = dict(re.findall(r"request id=(\S+) .* ttft_ms=(\S+) ", f.read()))
    told = [(out[name], float(measured[name])) for name in list(out)[WARM:]]
    errors = sorted(abs(p - m) / m for p, m in told)
    quantiles = statistics.quantiles(errors, n=20)
    print(json.dumps({
        "requests": len(measured), "predicted": len(told), "error_p50": round(quantiles[9], 4), "error_p90": round(quantiles[17], 4),
        "bias_p50": round(statistics.median((p - m) / m for p, m in told), 4),
        "ttft_p50_ms": round(statistics.median(m for _, m in told), 2),
        "ttft_p90_ms": round(statistics.quantiles([m for _, m in told], n=10)[8], 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
