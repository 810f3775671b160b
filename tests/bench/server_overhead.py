#!/usr/bin/env python3
"""Loop-thread CPU per streamed token: what the server itself costs, with a model of one tiny layer.

usage: server_overhead.py QUIRE [--streams 64] [--tokens 256] [--rounds 3]

Starts the server, streams from many connections at once, and divides the growth of quire:loop_cpu_seconds_total by the
tokens delivered. The client runs in this process: its cost is not in that number.
"""
import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics") as r:
        text = r.read().decode()
    found = re.findall(r"^" + re.escape(name) + r"(?:\{[^}]*\})? (\S+)$", text, re.M)
    return sum(float(v) for v in found)


async def stream(host, port, tokens, seed):
    reader, writer = await asyncio.open_connection(host, port)
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "temperature": 1,
                       "seed": seed, "stream": True}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    data = await reader.read()
    writer.close()
    return data.count(b"data: {")


async def all_streams(host, port, n, tokens):
    return sum(await asyncio.gather(*(stream(host, port, tokens, i) for i in range(n))))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("quire")
    ap.add_argument("--streams", type=int, default=64)
    ap.add_argument("--tokens", type=int, default=256)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        model = os.path.join(tmp, "tiny.gguf")
        subprocess.run([sys.executable, os.path.join(HERE, "..", "tools", "make_gguf.py"), model, "--layers", "1", "--hidden",
                        "64", "--heads", "1", "--kv-heads", "1", "--head-dim", "64", "--ffn", "64", "--vocab", "1024",
                        "--context", "2048", "--type", "f32"], check=True)
        server = subprocess.Popen([a.quire, "serve", model, "--port", "0", "--threads", "1", "--max-num-seqs",
                                   str(a.streams)], stderr=subprocess.PIPE, text=True)
        try:
            url = next(line.split()[2] for line in server.stderr if line.startswith("listening on "))
            host, port = url.split("//")[1].rsplit(":", 1)
            threading_drain(server.stderr)
            wait_ready(url)
            for r in range(a.rounds):
                cpu, gen = metric(url, "quire:loop_cpu_seconds_total"), metric(url, "vllm:generation_tokens_total")
                events = asyncio.run(all_streams(host, int(port), a.streams, a.tokens))
                cpu = metric(url, "quire:loop_cpu_seconds_total") - cpu
                gen = metric(url, "vllm:generation_tokens_total") - gen
                print(f"round {r + 1}: {a.streams} streams, {gen:.0f} tokens, {events} events, "
                      f"loop thread {cpu / gen * 1e6:.2f} us per token")
        finally:
            server.terminate()
            server.wait()


def wait_ready(url):
    import time
    for _ in range(100):
        try:
            urllib.request.urlopen(url + "/readyz")
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server does not become ready")


def threading_drain(pipe):
    import threading
    threading.Thread(target=lambda: [None for _ in pipe], daemon=True).start()


if __name__ == "__main__":
    main()
