#!/usr/bin/env python3
"""Serving through HTTP beside llama-server: the same files, the same client, in turns.

    serving.py [--models llama-1b,…] [--types q4_0,…] [--threads N] [--clients 1,4,16,32] [--peers DIR [--peer-flags NAME=FLAG,…]] [--json FILE]
    serving.py --files MODEL.gguf --starts 7 --clients '' --sharers 0

For each file and each server: how long from the start of the process to the first answer of /health (the file in the page
cache; --starts: how often); N streaming clients in a closed loop (prompts of 128 random tokens, outputs of 64) by quire-bench; 16 requests at once
that share their first 1,024 tokens, cold and after one request has left that prefix behind. Prints a Markdown table; --json writes
everything that quire-bench said.

--peers DIR: every folder under DIR with a llama-server, or with another quire, is a peer. Everybody has a turn in each of --rounds;
medians are compared. --peer-flags NAME=FLAG[,FLAG…]: one more peer, "NAME FLAGS", of NAME's server with these flags. Client and server
share the CPUs. Nothing is asserted about time.

Random weights write random bytes, which some servers' parsers refuse. So every request, whoever answers it, has the same logit_bias,
to a few letters as /tokenize gives them: answers are text, and cost what any others of their length do. A request that fails,
or whose tokens are not as many as were asked for, ends the run.

"of roofline" of N clients is the time that their prompts' and outputs' operations at the measured rate, or the bytes of their decode
steps at the measured bandwidth, would take, by the time taken: bench_model's counts and limits.
"""
import argparse
import contextlib
import datetime
import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from models import DEFAULT_MODELS, ROOT, commit, machine, make, more_peers, peer_flags, progress, run, words  # noqa: E402

START_SECONDS = 120
DEFAULT_TYPES = ["q8_0", "q4_k_m"]  # one of 8 bits and one of 4: every file takes minutes


@contextlib.contextmanager
def free_port():
    """A port that nobody else is given while it is held: bound, but not listening, so that a server may have it."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # quire's way
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # llama-server's
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1]


def find_servers(folder):
    """{name: path}, named by the folder below DIR."""
    out = {}
    for path in sorted([*Path(folder).rglob("llama-server"), *Path(folder).rglob("quire")]):
        if path.is_file() and os.access(path, os.X_OK):
            name = str(path.parent.relative_to(folder)).removesuffix("/bin").removesuffix("/build")
            if name in ("quire", ".") or name in out:
                sys.exit(f"serving.py: {path} would be called {name!r}: one server in each folder, of another name")
            out[name] = path
    return out


class Server:
    """A process that answers /health with 200; ready is how many seconds that took."""

    def __init__(self, command, port):
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        self.folder = tempfile.TemporaryDirectory()  # some leave a log where they are started
        env = {k: v for k, v in os.environ.items() if not k.startswith(("QUIRE_", "LLAMA_"))}
        began = time.monotonic()
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log, env=env, cwd=self.folder.name)
        while not self.healthy():
            if self.process.poll() is not None or time.monotonic() - began > START_SECONDS:
                self.stop()
                self.log.seek(0)
                sys.exit(f"serving.py: {command[0]} did not come up\n{self.log.read().decode(errors='replace')[-2000:]}")
            time.sleep(0.002)
        self.ready = time.monotonic() - began

    def healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as r:
                return r.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def memory(self):
        """Resident bytes, and of those what is not a page of a file."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        size = {k: 1024 * int(v) for k, v in re.findall(r"^(VmRSS|RssAnon):\s+(\d+) kB", text, re.M)}
        return size["VmRSS"], size["RssAnon"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.log.close()
        self.folder.cleanup()


def start(a, engine, path, slots, length):
    with free_port() as port:
        return Server(command_of(a, engine, path, slots, length, port), port)


def command_of(a, engine, path, slots, length, port):
    binary, flags = a.servers[engine] if engine in a.servers else (a.quire, [])
    if binary.name == "quire":
        return [binary, "serve", path, "--port", port, "--threads", a.threads, "--max-num-seqs", slots, "--max-model-len", length,
                "--log-level", "warn", *a.quire_flags, *flags]
    return [binary, "-m", path, "--host", "127.0.0.1", "--port", port, "-t", a.threads, "-tb", a.threads, "-np", slots,
            "-c", slots * length, *flags]


def letters(server):
    """Token ids of a few letters, asked in llama.cpp's form, which we know, too."""
    body = json.dumps({"content": "a b c d e f g h"}).encode()
    request = urllib.request.Request(server.url + "/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return sorted(set(json.load(r)["tokens"]))


def load(a, server, num, lengths, flags):
    """The report of quire-bench on `num` requests; lengths: (shared prefix, prompt after it, output)."""
    prefix, prompt, output = lengths
    bias = {"logit_bias": {str(t): 100 for t in letters(server)}}
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "out.json"
        run([a.client, server.url, "--endpoint", "/v1/completions", "--dataset-name", "random", "--prompt-form", "ids", "--vocab-size",
             a.vocab, "--ignore-eos", "--temperature", 0, "--timeout", 1800, "--request-rate", "inf", "--json", out, "--quiet",
             "--extra-body", json.dumps(bias), "--num-prompts", num, "--random-prefix-len", prefix, "--random-input-len", prompt,
             "--random-output-len", output, *flags])
        r = json.loads(out.read_text())
    counts = r["completed"], r["total_input_tokens"], r["total_output_tokens"]
    if counts != (num, num * (prefix + prompt), num * output):
        sys.exit(f"serving.py: {num} requests for {prefix} + {prompt} tokens in, {output} out: completed, tokens in, tokens out are "
                 f"{counts}; {r['errors_by_kind']}")
    return r


def clients(a, server, n, seed):
    """--waves of n, two by default; of one client, twice as many."""
    return load(a, server, n * a.waves * (2 if n == 1 else 1), (0, a.prompt, a.output), ["--max-concurrency", n, "--seed", seed])


def shared(a, server, seed, resident):
    lengths, flags = (a.prefix, 32, 32), ["--max-concurrency", a.sharers, "--seed", seed]
    if resident:
        load(a, server, 1, lengths, flags)  # the first of them, which the others find; warm-ups have other prefixes
    return load(a, server, a.sharers, lengths, flags)


def measure(a, engine, path, seed):
    out = {"clients": {}, "ready_s": []}
    for last in [False] * (a.starts - 1) + [True]:
        with start(a, engine, path, max(a.clients, default=1), a.prompt + a.output + 64) as server:
            out["ready_s"].append(server.ready)
            out["rss"], out["rss_anon"] = server.memory()
            if last and a.clients:
                load(a, server, 2, (0, 16, 4), ["--seed", seed + 999])
            for n in a.clients if last else []:
                progress(f"{path.name}: {engine}, {n} clients")
                out["clients"][str(n)] = clients(a, server, n, seed + n)
    if a.sharers:
        for resident in (False, True):
            progress(f"{path.name}: {engine}, {a.sharers} requests that share {a.prefix} tokens, {'resident' if resident else 'cold'}")
            with start(a, engine, path, a.sharers, a.prefix + 128) as server:
                out["shared_resident" if resident else "shared_cold"] = shared(a, server, seed + 100, resident)
    return out


def into_page_cache(path):
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def limits(a, path):
    """bench_model's view of the same work, and the time it would take at the limits."""
    steps = 16
    context = a.prompt + a.output // 2 - steps // 2
    q = json.loads(run([a.bench, path, "--threads", a.threads, "--prefill", max(a.prompt, 128), "--batches", ",".join(map(str, a.clients)),
                        "--prompt", context, "--steps", steps, "--repeats", 2, "--limit-passes", a.limit_passes]))
    read, rate = q["limits"]["read_gb_s"], q["arithmetic_limit"]["gop_s"]
    p = q["prefill"]
    out = {"read_gb_s": read, "gop_s": rate, "with": q["arithmetic_limit"]["with"], "clients": {}}
    for d in q["decode"]:
        prompts = d["batch"] * p["gop_s"] * p["ms"] * a.prompt / p["tokens"] / rate
        step = max(d["gb_s"] * d["ms"] / read, d["gop_s"] * d["ms"] / rate)
        out["clients"][str(d["batch"])] = {"limit_tokens_s": d["batch"] * a.output * 1e3 / (prompts + a.output * step)}
    return out


def median(rounds, get):
    return statistics.median(get(r) for r in rounds)


# (name, unit, which value, more is better)
CLIENT_ROWS = [("output", "tokens/s", "output_throughput", True), ("TTFT p50", "ms", "median_ttft_ms", False),
               ("TTFT p99", "ms", "p99_ttft_ms", False), ("ITL p99", "ms", "p99_itl_ms", False)]
SHARED_ROWS = [("wall time", "s", "duration", False), ("TTFT p50", "ms", "median_ttft_ms", False)]


def rows_of(a, result):
    """(what, unit, {engine: value}, more is better, of roofline or None)"""
    engines = result["engines"]

    def each(get):
        return {name: median(rounds, get) for name, rounds in engines.items()}

    yield "start to /health", "s", each(lambda r: statistics.median(r["ready_s"])), False, None
    yield "resident memory", "MB", each(lambda r: r["rss"] / 1e6), False, None
    for n in map(str, a.clients):
        for name, unit, key, more in CLIENT_ROWS:
            values = each(lambda r: r["clients"][n][key])
            of = values["quire"] / result["limits"]["clients"][n]["limit_tokens_s"] if more and result["limits"] else None
            yield f"{n} clients: {name}", unit, values, more, of
    for kind in ("shared_cold", "shared_resident") if a.sharers else ():
        for name, unit, key, more in SHARED_ROWS:
            what = f"{a.sharers} × {a.prefix} shared, {kind.removeprefix('shared_')}: {name}"
            yield what, unit, each(lambda r: r[kind][key]), more, None


def better(ours, theirs, more):
    """By which factor ours is the better; a percentile may be 0 ms, when a client found all tokens of a request in one read."""
    above, below = (ours, theirs) if more else (theirs, ours)
    if below == 0:
        return "equal" if above == 0 else "theirs is 0" if more else "ours is 0"
    return f"{above / below:.2f} ×"


def markdown(a, report):
    m = report["machine"]
    out = [f"{m['cpu']}, {m['cpus']} CPUs, load {m['load']:.1f} at the start, {report['date'][:10]}, commit "
           f"{report['commit']}; `{report['command']}`", ""]
    names = sorted(a.servers)
    out.append("| " + " | ".join(["model", "type", "work", "unit", "quire", "of roofline", *[f"{n} (speed-up over it)" for n in names]]) + " |")
    out.append("|---|---|---|---|" + "--:|" * (2 + len(names)))
    for r in report["results"]:
        for what, unit, values, more, of in rows_of(a, r):
            ours = values["quire"]
            cells = [r["model"], r["type"], what, unit, f"{ours:.4g}", f"{100 * of:.0f} %" if of is not None else ""]
            cells += [f"{values[n]:.4g} ({better(ours, values[n], more)})" for n in names]
            out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", type=words, default=DEFAULT_MODELS)
    p.add_argument("--types", type=words, default=DEFAULT_TYPES)
    p.add_argument("--files", type=words, help="these instead of --models and --types")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--clients", type=lambda t: [int(w) for w in words(t)], default=[1, 4, 16, 32])
    p.add_argument("--prompt", type=int, default=128)
    p.add_argument("--output", type=int, default=64)
    p.add_argument("--prefix", type=int, default=1024)
    p.add_argument("--waves", type=int, default=2, help="requests of each client; of one client alone, twice as many")
    p.add_argument("--starts", type=int, default=1, help="how often each server is started in a round")
    p.add_argument("--sharers", type=int, default=16, help="0: not that part")
    p.add_argument("--vocab", type=int, default=30000, help="random prompts are sampled below it")
    p.add_argument("--peers", metavar="DIR")
    p.add_argument("--quire-flags", type=str.split, default=[], help="more of `quire serve`, in one word")
    p.add_argument("--peer-flags", type=peer_flags, action="append", default=[], metavar="NAME=FLAG[,FLAG…]", help="one more peer; repeatable")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--limit-passes", type=int, default=3, help="0: without limits")
    p.add_argument("--cache", type=Path, default=ROOT / "build/bench-models")
    p.add_argument("--build", type=Path, default=ROOT / "build/release")
    p.add_argument("--json", type=Path, metavar="FILE")
    a = p.parse_args()
    a.cache, a.build, a.peers = a.cache.resolve(), a.build.resolve(), a.peers and Path(a.peers).resolve()
    a.quire, a.client, a.bench = a.build / "quire", a.build / "quire-bench", a.build / "tests/bench_model"
    found = find_servers(a.peers) if a.peers else {}
    if a.peers and not found:
        p.error(f"no llama-server and no quire under {a.peers}")
    a.servers = {new: (found[name], flags) for new, (name, flags) in more_peers(p, found, a.peer_flags).items()}
    return a


def main():
    a = arguments()
    report = {"machine": machine(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": commit(), "command": " ".join(["serving.py", *sys.argv[1:]]), "results": []}
    for model, kind in [(f, "") for f in a.files] if a.files else itertools.product(a.models, a.types):
        path = Path(model).resolve() if a.files else make(model, kind, a.cache)
        into_page_cache(path)
        result = {"model": path.stem if a.files else model, "type": kind, "engines": {n: [] for n in ["quire", *a.servers]}}
        for i in range(a.rounds):
            for engine, rounds in result["engines"].items():
                rounds.append(measure(a, engine, path, 1000 * (i + 1)))
        # At the end: a hypervisor that takes back what it leaves behind would hold up whoever is measured next.
        result["limits"] = limits(a, path) if a.clients and a.limit_passes else None
        report["results"].append(result)
        if a.json:
            a.json.parent.mkdir(parents=True, exist_ok=True)
            a.json.write_text(json.dumps(report, indent=1) + "\n")
    print(markdown(a, report))


if __name__ == "__main__":
    main()
