#!/usr/bin/env python3
"""serving.py end to end on a tiny model, with peers that are our own server, one behind llama-server's flags, and against a server
that fails at answers that are no text.

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
import serving  # noqa: E402

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
        # Between cold and resident: only a server that caches has the prefix for each of the four.
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
        check("as configured" in r["prompt_form"] and "500" in r["prompt_form"], r["prompt_form"])
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


def test_kv_store(build):
    command = [sys.executable, HERE / "kv_store.py", "--build", build, "--tokens", 400, "--rounds", 2, "--requests", 6, "--clients", 2, "--threads", 1]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    row = [c.strip() for c in done.stdout.splitlines()[-1].split("|")[1:-1]]
    check(done.returncode == 0 and row[:2] == ["quire-tiny", "400"] and len(row) == 7, done)
    check(float(row[2].split()[0]) > float(row[4].split()[0]) > 0 and float(row[5][:-1]) > 0, row)


def test_better():
    check(serving.better(3.0, 2.0, True) == "1.50 ×" and serving.better(3.0, 2.0, False) == "0.67 ×", "ratios")
    check(serving.better(0.0, 2.0, False) == "ours is 0" and serving.better(2.0, 0.0, False) == "0.00 ×", "a percentile of ours is 0")
    check(serving.better(0.0, 0.0, False) == "equal" and serving.better(0.0, 0.0, True) == "equal", "both are 0")


if __name__ == "__main__":
    test_better()
    test_picky(Path(sys.argv[1]).resolve())
    test_structured(Path(sys.argv[1]).resolve())
    test_kv_store(Path(sys.argv[1]).resolve())
    test_serving(Path(sys.argv[1]).resolve())
    print("reports, ratios and tables as expected")
