#!/usr/bin/env python3
"""serving.py end to end on a tiny model, with a peer that is our own server behind llama-server's flags; scaling.py's arithmetic.

usage: test_serving.py BUILD
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import scaling  # noqa: E402
import serving  # noqa: E402

PEER = """#!/usr/bin/env python3
import os, sys
a = sys.argv
value = lambda flag: a[a.index(flag) + 1]
each = int(value("-c")) // int(value("-np"))
os.execv({quire!r}, ["quire", "serve", value("-m"), "--port", value("--port"), "--threads", value("-t"), "--max-num-seqs",
                     value("-np"), "--max-model-len", str(each), "--no-enable-prefix-caching"])
"""


def check(condition, *what):
    if not condition:
        sys.exit(f"test_serving.py: {what}")


def test_serving(build):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        peer = tmp / "peers/made/build/bin/llama-server"
        peer.parent.mkdir(parents=True)
        peer.write_text(PEER.format(quire=str(build / "quire")))
        peer.chmod(0o755)
        command = [sys.executable, HERE / "serving.py", "--build", build, "--models", "tiny", "--types", "f32", "--cache", tmp / "cache",
                   "--clients", "1,3", "--prompt", 16, "--output", 8, "--prefix", 128, "--sharers", 4, "--vocab", 500, "--threads", 1,
                   "--limit-passes", 1, "--rounds", 2, "--peers", tmp / "peers", "--json", tmp / "report.json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, done.stdout, done.stderr)
        report = json.loads((tmp / "report.json").read_text())
        result = report["results"][0]
        check(set(result["engines"]) == {"quire", "made"}, result["engines"])
        for rounds in result["engines"].values():
            check(len(rounds) == 2, rounds)
            for r in rounds:
                check(r["ready_s"] > 0 and r["rss"] >= r["rss_anon"] > 0, r)
                for n, c in r["clients"].items():
                    num = 4 if n == "1" else 2 * int(n)
                    check(c["completed"] == num and c["total_output_tokens"] == 8 * num and c["total_input_tokens"] == 16 * num, c)
                for kind in ("shared_cold", "shared_resident"):
                    check(r[kind]["completed"] == 4 and r[kind]["total_input_tokens"] == 4 * (128 + 32), r[kind])
        # What stands between cold and resident: the prefix is cached for each of the four only by who caches.
        cached = {n: r[0]["shared_resident"]["total_cached_tokens"] for n, r in result["engines"].items()}
        check(cached["quire"] >= 4 * 128 and not cached["made"], cached)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| tiny | f32 | ")]
        check(len(rows) == 2 + 2 * 4 + 2 * 2, rows)
        rates = {n: sorted(x["clients"]["3"]["output_throughput"] for x in r) for n, r in result["engines"].items()}
        ratio = sum(rates["quire"]) / sum(rates["made"])
        check(any("3 clients: output" in row and row.endswith(f"({ratio:.2f} ×) |") for row in rows), rows, ratio)
        broken = subprocess.run(list(map(str, [*command, "--peers", tmp / "cache"])), capture_output=True)
        check(broken.returncode != 0, "no llama-server")
        peer.write_text("#!/bin/sh\nexit 3\n")
        broken = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        check(broken.returncode != 0 and "did not come up" in broken.stderr, broken.stderr)


def test_better():
    check(serving.better(3.0, 2.0, True) == "1.50 ×" and serving.better(3.0, 2.0, False) == "0.67 ×", "ratios")
    check(serving.better(0.0, 2.0, False) == "ours is 0" and serving.better(2.0, 0.0, False) == "0.00 ×", "a percentile of ours is 0")
    check(serving.better(0.0, 0.0, False) == "equal" and serving.better(0.0, 0.0, True) == "equal", "both are 0")


def test_scaling():
    near = lambda a, b: check(abs(a / b - 1) < 1e-9, a, b)
    # A model that can be counted by hand: 2 layers, 2 heads of 4, the head 32 * 8 = 256 weights.
    m = scaling.Model(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=16, vocab=32)
    check(m.layer_weights() == 8 * (2 * 2 + 2 * 2) * 4 + 3 * 8 * 16, m.layer_weights())
    weights = 2 * m.layer_weights() + 256
    r = dict(scaling.RATES, read=1e3, kernel=1, mma=1e30, launch=0, link=1e3, linked=1, oneshot=0.5, nccl=1e9, net=1e3, hop=0.25)
    cache = 3 * 10 * 2 * 2 * 4 * 2 * 2  # 3 sequences of 10 tokens, K and V of 2 heads of 4, 2 bytes, 2 layers
    rate, gap = scaling.decode(r, m, "bf16", 1, 1, 3, 10)
    near(gap, (2 * weights + cache) / 1e3)
    near(rate, 3 / gap)
    # two ranks: half of all; 2 sums a layer of 3 * 8 * 4 bytes, one of 3 * 8192
    rate, gap = scaling.decode(r, m, "bf16", 2, 1, 3, 10)
    near(gap, (2 * weights + cache) / 2e3 + 4 * (0.5 + 96 / 1e3) + 0.5 + 3 * 8192 / 1e3)
    # two stages: the last one has a layer and the head; a token passes two
    rate, gap = scaling.decode(r, m, "bf16", 1, 2, 4, 10)
    near(gap, 2 * ((2 * (m.layer_weights() + 256) + 2 * 10 * 2 * 2 * 4 * 2) / 1e3 + 0.25 + 2 * 8 * 4 / 1e3))
    near(rate, 4 / gap)
    # heads are repeated when there are more ranks
    check(m.kv_values(2) == 8 and m.kv_values(8) == 8, m.kv_values(8))
    done = subprocess.run([sys.executable, HERE / "scaling.py", "--check", HERE.parents[1] / "docs/scaling.md"], capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    old = subprocess.run([sys.executable, HERE / "scaling.py", "--check", HERE.parents[1] / "docs/scaling.md", "--set", "read=1e12"],
                         capture_output=True)
    check(old.returncode == 1, "another rate gives the same tables")


if __name__ == "__main__":
    test_better()
    test_scaling()
    test_serving(Path(sys.argv[1]).resolve())
    print("predictions, reports, ratios and tables as expected")
