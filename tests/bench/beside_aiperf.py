"""The same loads by quire-bench and by NVIDIA's aiperf (PyPI), in turns, against the same servers.

    python3 -m venv /tmp/aiperf && /tmp/aiperf/bin/pip install aiperf==0.13.0
    python3 tests/bench/beside_aiperf.py /tmp/aiperf/bin/aiperf [BUILD]

The servers: tools/fake_openai.c, which writes down what it truly did, and `quire serve` with the embedded model and without a
prefix cache, so that the second client does not find the first one's prompts. Both clients send the same prompts from a file.
aiperf wants a tokenizer although the server counts: one that splits at blanks is made here.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tools"))
import true_latencies  # noqa: E402

WORDS = "time person year way day thing man world life hand part child eye woman place work week case point".split()
TOKENS = 32
# quire-bench's name of a metric (from the sending), and aiperf's
METRICS = {
    "ttft_from_send": "time_to_first_token",
    "itl": "inter_chunk_latency",
    "tpot": "inter_token_latency",
    "e2el_from_send": "request_latency",
}
POINTS = {"mean": "avg", "p50": "p50", "p90": "p90", "p99": "p99"}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"},
}


def write_inputs(folder, num):
    rng = random.Random(5)
    prompts = [" ".join(rng.choices(WORDS, k=24)) for _ in range(num)]
    (folder / "ours.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    (folder / "theirs.jsonl").write_text("".join(json.dumps({"text": p}) + "\n" for p in prompts))
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (tokenizer / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<unk>",
                    "eos_token": "<unk>", "pad_token": "<unk>"})
    )  # fmt: skip


class Server:
    def __init__(self, command, model):
        self.model = model
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = None
        for line in self.process.stdout:
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1]
                break
        assert self.url, "the server did not come up"

    def stop(self):
        self.process.terminate()
        self.process.stdout.read()
        self.process.wait()


def ours(args, folder, server, load, num):
    out = folder / "ours.json"
    flags = {"closed": ["--max-concurrency", load[1]], "constant": ["--request-rate", load[1], "--arrivals", "constant"]}
    subprocess.run(
        [f"{args.build}/quire-bench", server.url, "--model", server.model, "--dataset-name", "custom", "--dataset-path",
         str(folder / "ours.jsonl"), "--disable-shuffle", "--num-prompts", str(num), "--output-len", str(TOKENS), "--ignore-eos",
         "--json", str(out), "--quiet", *map(str, flags[load[0]])], check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    r = json.loads(out.read_text())
    row = {(m, p): r[f"{p}_{m}_ms"] for m in METRICS for p in POINTS}
    return row | {"requests/s": r["request_throughput"], "tokens/s": r["output_throughput"], "failed": r["failed"]}


def theirs(args, folder, server, load, num):
    out = folder / "aiperf"
    flags = {
        "closed": ["--concurrency", load[1]],
        "constant": ["--request-rate", load[1], "--arrival-pattern", "constant"],
    }
    done = subprocess.run(
        [args.aiperf, "profile", "--model", server.model, "--url", server.url, "--endpoint-type", "completions", "--streaming",
         "--input-file", str(folder / "theirs.jsonl"), "--custom-dataset-type", "single_turn", "--dataset-sampling-strategy",
         "sequential", "--tokenizer", str(folder / "tokenizer"), "--use-server-token-count", "--use-legacy-max-tokens",
         "--extra-inputs", f"max_tokens:{TOKENS}", "--extra-inputs", "ignore_eos:true", "--request-count", str(num), "--ui", "none",
         "--no-gpu-telemetry", "--no-server-metrics", "--output-artifact-dir", str(out), *map(str, flags[load[0]])],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(done.stdout[-4000:] + done.stderr[-2000:])
    r = json.loads((out / "profile_export_aiperf.json").read_text())
    row = {(m, p): r[theirs][POINTS[p]] for m, theirs in METRICS.items() for p in POINTS}
    failed = num - r["request_count"]["avg"]
    return row | {"requests/s": r["request_throughput"]["avg"], "tokens/s": r["output_token_throughput"]["avg"], "failed": failed}


def truth(log):
    values = true_latencies.read_log(log)
    return {
        (m, p): sum(v) / len(v) if p == "mean" else true_latencies.percentile(v, float(p[1:]))
        for m, v in values.items()
        for p in POINTS
    }


def show(rows):
    print("| | requests/s | " + " | ".join(f"{m.removesuffix('_from_send')} {p}" for m in METRICS for p in POINTS) + " |")
    print("|---" * (2 + len(METRICS) * len(POINTS)) + "|")
    for name, row in rows:
        rate = f"{row['requests/s']:.1f}" if "requests/s" in row else ""
        print(f"| {name} | {rate} | " + " | ".join(f"{row[m, p]:.2f}" for m in METRICS for p in POINTS) + " |")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("aiperf")
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    quire = [f"{args.build}/quire", "serve", "--port", "0", "--no-enable-prefix-caching", "--log-level", "warn"]
    cases = [
        ("a server of known latencies, 16 at once", None, ("closed", 16)),
        ("quire serve, 4 at once", quire, ("closed", 4)),
        ("quire serve, 25 requests a second", quire, ("constant", 25)),
    ]
    for title, command, load in cases:
        print(f"{title}\n")
        rows = []
        for _ in range(args.rounds):
            for name, client in (("quire-bench", ours), ("aiperf", theirs)):
                with tempfile.TemporaryDirectory() as d:
                    folder = pathlib.Path(d)
                    write_inputs(folder, args.requests)
                    log = folder / "log"
                    fake = [f"{args.build}/tests/fake_openai", "--ttft", "40", "--itl", "10", "--jitter", "0.5", "--log", str(log)]
                    server = Server(command or fake, "quire-tiny" if command else "fake")
                    try:
                        row = client(args, folder, server, load, args.requests)
                    finally:
                        server.stop()
                    assert row["failed"] == 0
                    if not command:
                        rows.append((f"what the server did under {name}", truth(log)))
                    rows.append((name, row))
        show(rows)


if __name__ == "__main__":
    main()
