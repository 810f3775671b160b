#!/usr/bin/env python3
"""Makes small_pool.rec anew: a busy server with a tiny cache, recorded.

usage: record.py QUIRE MODEL OUT.rec
"""
import http.client
import json
import random
import subprocess
import sys
import threading


def one(host, i, rng_seed):
    rng = random.Random(rng_seed)
    prompt = [1] + [260 + (i % 4) * 50 + j % 40 for j in range(rng.randrange(4, 100))]
    body = {"prompt": prompt, "max_tokens": rng.randrange(1, 60), "n": 3 if i % 7 == 0 else 1, "stream": True,
            "ignore_eos": True, "seed": i, "priority": rng.randrange(3)}
    c = http.client.HTTPConnection(host, timeout=60)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    if i % 5 == 0:
        r.read(200)
        c.sock and c.sock.close()
        r.close()
    else:
        r.read()
    c.close()


def main():
    quire, model, out = sys.argv[1:]
    server = subprocess.Popen([quire, "serve", model, "--port", "0", "--num-kv-blocks", "24", "--max-num-seqs", "8",
                               "--max-num-batched-tokens", "48", "--scheduling-policy", "priority", "--record", out],
                              stderr=subprocess.PIPE, text=True)
    host = next(line.split("//")[1].strip() for line in server.stderr if line.startswith("listening on "))
    threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
    threads = [threading.Thread(target=one, args=(host, i, i)) for i in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    server.terminate()
    server.wait()


if __name__ == "__main__":
    main()
