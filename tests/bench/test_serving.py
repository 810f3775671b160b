#!/usr/bin/env python3
"""serving.py end to end on a tiny model, with peers that are our own server, one behind llama-server's flags, and against a server
that fails at answers that are no text; scaling.py's arithmetic.

usage: test_serving.py BUILD
"""
import argparse
import http.server
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import scaling  # noqa: E402
import serving  # noqa: E402
import spins  # noqa: E402

PEER = """#!/usr/bin/env python3
import os, sys
a = sys.argv
value = lambda flag: a[a.index(flag) + 1]
each = int(value("-c")) // int(value("-np"))
os.execv({quire!r}, ["quire", "serve", value("-m"), "--port", value("--port"), "--threads", value("-t"), "--max-num-seqs",
                     value("-np"), "--max-model-len", str(each), "--no-enable-prefix-caching"])
"""


OTHER = """#!/bin/sh
exec {quire} "$@"
"""


class Picky(http.server.BaseHTTPRequestHandler):
    """Fails like a server whose parser refuses what random weights say, unless answers are bent towards its two letters."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say(200, b'{"data": [{"id": "picky"}]}')

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.say(200, b'{"tokens": [7, 9, 7]}')
        # The client's first question fails, too.
        if asked.get("logit_bias") != {"7": 100, "9": 100} or not asked.get("stream"):
            return self.say(500, b'{"error": {"message": "invalid UTF-8"}}')
        num = asked["max_tokens"] - self.server.short
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": num}
        events = [{"choices": [{"text": "a", "finish_reason": "length" if i == num - 1 else None}]} for i in range(num)]
        events.append({"choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def check(condition, *what):
    if not condition:
        sys.exit(f"test_serving.py: {what}")


def test_serving(build):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        peer = tmp / "peers/made/build/bin/llama-server"
        peer.parent.mkdir(parents=True)
        peer.write_text(PEER.format(quire=str(build / "quire")))
        other = tmp / "peers/other/quire"
        other.parent.mkdir(parents=True)
        other.write_text(OTHER.format(quire=str(build / "quire")))
        for path in peer, other:
            path.chmod(0o755)
        command = [sys.executable, HERE / "serving.py", "--build", build, "--models", "tiny", "--types", "f32", "--cache", tmp / "cache",
                   "--clients", "1,3", "--prompt", 16, "--output", 8, "--prefix", 128, "--sharers", 4, "--vocab", 500, "--threads", 1,
                   "--limit-passes", 1, "--rounds", 2, "--starts", 2, "--waves", 3, "--peers", tmp / "peers",
                   "--peer-flags", "other=--no-enable-prefix-caching", "--json", tmp / "report.json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, done.stdout, done.stderr)
        report = json.loads((tmp / "report.json").read_text())
        result = report["results"][0]
        check(set(result["engines"]) == {"quire", "made", "other", "other --no-enable-prefix-caching"}, result["engines"])
        for rounds in result["engines"].values():
            check(len(rounds) == 2, rounds)
            for r in rounds:
                check(len(r["ready_s"]) == 2 and min(r["ready_s"]) > 0 and r["rss"] >= r["rss_anon"] > 0, r)
                for n, c in r["clients"].items():
                    num = 6 if n == "1" else 3 * int(n)
                    check(c["completed"] == num and c["total_output_tokens"] == 8 * num and c["total_input_tokens"] == 16 * num, c)
                for kind in ("shared_cold", "shared_resident"):
                    check(r[kind]["completed"] == 4 and r[kind]["total_input_tokens"] == 4 * (128 + 32), r[kind])
        # What stands between cold and resident: the prefix is cached for each of the four only by who caches.
        cached = {n: r[0]["shared_resident"]["total_cached_tokens"] for n, r in result["engines"].items()}
        check(cached["quire"] == cached["other"] >= 4 * 128 and not cached["made"], cached)
        check(not cached["other --no-enable-prefix-caching"], cached)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| tiny | f32 | ")]
        check(len(rows) == 2 + 2 * 4 + 2 * 2, rows)
        rates = {n: sorted(x["clients"]["3"]["output_throughput"] for x in r) for n, r in result["engines"].items()}
        ratio = sum(rates["quire"]) / sum(rates["made"])
        check(any("3 clients: output" in row and row.split("|")[7].endswith(f"({ratio:.2f} ×) ") for row in rows), rows, ratio)
        file = next((tmp / "cache").glob("*.gguf"))
        starts = [sys.executable, HERE / "serving.py", "--build", build, "--files", file, "--starts", 3, "--clients", "", "--sharers", 0]
        done = subprocess.run(list(map(str, starts)), capture_output=True, text=True, timeout=600)
        rows = [line for line in done.stdout.splitlines() if line.startswith(f"| {file.stem} |")]
        check(done.returncode == 0 and [r.split("|")[3].strip() for r in rows] == ["start to /health", "resident memory"], done)
        broken = subprocess.run(list(map(str, [*command, "--peers", tmp / "cache"])), capture_output=True)
        check(broken.returncode != 0, "no llama-server")
        peer.write_text("#!/bin/sh\nexit 3\n")
        broken = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        check(broken.returncode != 0 and "did not come up" in broken.stderr, broken.stderr)


def test_picky(build):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Picky) as server:
        server.daemon_threads, server.short = True, 0
        threading.Thread(target=server.serve_forever, daemon=True).start()
        a = argparse.Namespace(client=build / "quire-bench", vocab=500)
        there = argparse.Namespace(url=f"http://127.0.0.1:{server.server_port}")
        r = serving.load(a, there, 3, (4, 12, 5), ["--max-concurrency", 2])
        check((r["completed"], r["total_input_tokens"], r["total_output_tokens"]) == (3, 48, 15), r)
        check("as told" in r["prompt_form"] and "500" in r["prompt_form"], r["prompt_form"])
        server.short = 1
        try:
            serving.load(a, there, 3, (4, 12, 5), [])
        except SystemExit as e:
            check("(3, 48, 12)" in str(e), e)
        else:
            check(False, "shorter answers count as whole ones")
        server.shutdown()


def test_structured(build):
    command = [sys.executable, HERE / "structured.py", "--build", build, "--files", HERE.parents[1] / "models/quire-tiny.gguf", "--clients", "1,3",
               "--output", 24, "--rounds", 2, "--threads", 1, "--vocab", 500]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in done.stdout.splitlines()][2:]
    check([r[1:3] for r in rows] == [[n, s] for n in "13" for s in ("objects", "strings")], done)
    check(all(float(r[i]) > 0 for r in rows for i in (3, 4, 5, 9)), rows)


def test_spins():
    pool = spins.with_spins((HERE.parents[1] / "kernels/cpu/pool.c").read_text(), 77)
    check(pool.count("SPINS = 77,") == 1, "pool.c has no SPINS any more")


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
    nothing = dict.fromkeys(("launch", "single", "issue", "step", "host", "copy", "sync", "mpi", "far", "nccl"), 0)
    r = scaling.RATES | nothing | dict(read=1e3, kernel=1, skinny=1e30, mma=1e30, link=1e3, linked=1, oneshot=0.5, pcie=1e3, net=1e3)
    cache = lambda rows: rows * 10 * 2 * 2 * 4 * 2  # of 10 tokens each and one layer, K and V of 2 heads of 4, 2 bytes
    rate, gap = scaling.decode(r, m, "bf16", 1, 1, 3, 10)
    near(gap, (2 * weights + 2 * cache(3)) / 1e3)
    near(rate, 3 / gap)
    # two ranks: half of all; 2 sums a layer of 4 * 8 * 4 bytes, for the step is padded to 4 rows, and 4 rows of candidates; NCCL
    # would cost nothing, and decodes do not take it
    rate, gap = scaling.decode(r, m, "bf16", 2, 1, 3, 10)
    near(gap, (2 * weights + 2 * cache(3)) / 2e3 + 4 * (0.5 + 128 / 1e3) + 0.5 + 4 * 516 / 1e3)
    # a sum of 128 rows of 4,096 is 8 turns of 32 blocks; two halves, where there are such, read 2 * 7 / 8 instead of 7 times as much
    size = 128 * 4096 * 4
    near(scaling.decode_sum(r | {"far": 1e6}, 8, 128, 4096), 0.5 + 7e6)
    near(scaling.decode_sum(r, 8, 128, 4096), 0.5 + 7 * size / 1e3)
    near(scaling.decode_sum(r | {"twoshot": 0.7}, 8, 128, 4096), 0.7 + 2 * 7 / 8 * size / 1e3)
    near(scaling.prompt_sum(r | {"nccl": 0.3}, 8, 128, 4096), 0.3 + (2 * 7 / 8 + 3) * size / 1e3)
    # all logits: three quarters of the row from the other three
    near(scaling.gather(r | {"unbounded": 1}, 4, 2, 32), 0.5 + 2 * 3 * 8 * 4 / 1e3)
    # kernels: 8 a layer, 2 for the sums of ranks, 5 of the step, 2 more for ranks; a CUDA graph up to 256 rows, where there is one stage
    counted = scaling.RATES | nothing | dict(read=1e30, skinny=1e30, mma=1e30, oneshot=0, link=1e30, mpi=0, pcie=1e30, net=1e30)
    time = lambda tp, pp, batch, **rates: scaling.decode(counted | rates, m, "q8", tp, pp, batch, 1)[1]
    near(time(1, 1, 256, launch=1, single=100), 2 * 8 + 5)
    near(time(2, 1, 256, launch=1, single=100), 2 * 10 + 7)
    near(time(1, 1, 257, launch=100, single=1), 2 * 12 + 2 + 2 * 3)  # every product and the head twice
    near(time(1, 2, 2, launch=100, single=1), 2 * (8 + 5))  # the stage with the head; the other waits for it
    near(time(1, 1, 257, issue=3), 3 * (2 * 12 + 2 + 2 * 3))  # the host is behind a device that has nothing to do
    check(time(1, 1, 256, issue=3) < 1e-9, "a CUDA graph waits for the host")
    near(scaling.decode_stage(r, m, "bf16", 1, 2, True, 257, 10, 64).weights, (2 * 4 * m.layer_weights() + 2 * 2 * 256) / 1e3)
    near(scaling.product(r | {"skinny": 1.0}, 7, "bf16", 1, 3, 256), 2 * 3 * 7)
    # two stages: one layer each, the last has the head; what it starts from comes over the net and over PCIe
    rate, gap = scaling.decode(r, m, "bf16", 1, 2, 4, 10)
    near(gap, 2 * ((2 * (m.layer_weights() + 256) + cache(2)) / 1e3 + 2 * 2 * 8 * 4 / 1e3))
    near(rate, 4 / gap)
    near(scaling.hand(r | dict(host=1, mpi=2, copy=3, sync=4), 2, 64, 1, 3), 1 + 2 + 2 * 3 + 4 + 0.5 + (64 + 3 * 64 / 2) / 1e3)  # 0.5: the ranks share their halves
    # equal stages, of which a token passes all before the last one says what it is
    _, gap = scaling.decode(counted | dict(read=1e3, kernel=1, mpi=3), scaling.Model(4, 8, 2, 2, 4, 16, 0), "bf16", 1, 4, 4, 10)
    near(gap, 4 * ((2 * m.layer_weights() + cache(1)) / 1e3 + 3))
    # stages as the engine cuts them (it logs so: layers=0-2 and 3-4 of stories260K): the head counts half
    check(scaling.Model(5, 64, 8, 4, 8, 172, 512).stages(2) == [3, 2], "stages of stories260K")
    check(scaling.MODELS["llama-3-8b"].stages(4) == [8, 9, 8, 7] and scaling.MODELS["llama-3-70b"].stages(1) == [80], "stages")
    # a prompt of quantised weights reads them, and writes them as bf16 for the library
    free = counted | dict(read=1e3, kernel=1)
    near(scaling.prefill(free, m, "q8", 1, 1, chunk=128), 128 / (2 * m.layer_weights() * (34 / 32 + 2) / 1e3))
    near(scaling.prefill(counted | dict(single=1), m, "bf16", 2, 1, chunk=128), 128 / (2 * 13 + 2))
    # heads are repeated when there are more ranks
    check(m.kv_values(2) == 8 and m.kv_values(8) == 8, m.kv_values(8))
    done = subprocess.run([sys.executable, HERE / "scaling.py", "--check", HERE.parents[1] / "docs/scaling.md"], capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    old = subprocess.run([sys.executable, HERE / "scaling.py", "--check", HERE.parents[1] / "docs/scaling.md", "--set", "read=1e12"],
                         capture_output=True)
    check(old.returncode == 1, "another rate gives the same tables")


if __name__ == "__main__":
    test_better()
    test_spins()
    test_scaling()
    test_picky(Path(sys.argv[1]).resolve())
    test_structured(Path(sys.argv[1]).resolve())
    test_serving(Path(sys.argv[1]).resolve())
    print("predictions, reports, ratios and tables as expected")
