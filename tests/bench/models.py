#!/usr/bin/env python3
"""Speed of whole models of real shapes and random weights, beside this machine's limits, and beside llama.cpp's.

    models.py [--models llama-1b,…] [--types q8_0,…] [--layers N] [--threads N] [--variant avx2] [--peers DIR [--peer-flags NAME=FLAG,…]]
              [--json FILE]

Makes each file with tools/make_gguf.py where the cache has none, runs bench_model on it (prefill of 512 tokens; decode at
batches 1, 8, 16 and 32, contexts of about 128), and prints a Markdown table; everything with machine, date and commit goes
into a file of JSON, whose name it says first: --json, or one under build/bench-reports. "of roofline" is the time that reading
the weights and the KV cache at the measured bandwidth or calculating at the measured rate would take, whichever is longer, by
the time taken: for each sample by the limits measured just before and after it (the median of these); "of best" by the best
limits of the whole report.

--peers DIR: every folder under DIR with a llama-bench is a peer, and every one whose venv has openvino-genai (openvino_bench.py).
Peers and we take turns on the same file with the same number of threads (A B A B …, --rounds times); the medians of the rounds are
compared. llama-bench gives the prefill, llama-batched-bench beside it the decode at the same contexts as ours; without it,
llama-bench's decode stands for batch 1.
--peer-flags NAME=FLAG[,FLAG…]: one more peer, "NAME FLAGS", of NAME's programs with these flags. A value follows its flag
(ik=-ctk,q8_0). One without a value gets 1 in llama-bench, whose flags all have one: ik=-rtr is -rtr 1 there.

Nothing is asserted about time.
"""
import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tests/tools"
sys.path.insert(0, str(TOOLS))
import make_gguf  # noqa: E402

# Dense shapes of at most about a thousand million weights, and the types that files mostly have.
DEFAULT_MODELS = ["qwen2.5-0.5b", "llama-1b"]
DEFAULT_TYPES = ["q4_0", "q4_k_m", "q8_0", "bf16", "f16"]
RATES = ("read_gb_s", "int8_gop_s", "bf16_gop_s", "f32_gop_s")


def progress(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def words(text):
    return [w for w in text.split(",") if w]


def tokenizers():
    """The folder of real vocabularies in the test data; None where there is none."""
    folder = Path(os.environ.get("QUIRE_TEST_DATA") or ROOT.parent / "shared/data") / "tokenizers"
    return folder if folder.is_dir() else None


def file_name(model, kind):
    """The name says whose words the model has, the test data's or made-up ones, and a hash of the makers: a change of them
    makes the file again."""
    h = hashlib.sha256()
    for path in sorted(TOOLS.glob("*gguf*.py")) + sorted(TOOLS.glob("*quant*.py")):
        h.update(path.read_bytes())
    return f"{model}-{kind}-{'real' if tokenizers() else 'made'}-{h.hexdigest()[:10]}.gguf"


def outdated(path):
    """Files of other makers with the same words; and files named before words were in names."""
    stem = path.name.rpartition("-")[0]
    plain = stem.rpartition("-")[0]
    found = [*path.parent.glob(f"{stem}-*.gguf"), *path.parent.glob(f"{plain}-*.gguf")]
    ours = re.compile(rf"({re.escape(stem)}|{re.escape(plain)})-[0-9a-f]{{10}}\.gguf")
    return sorted({p for p in found if p != path and ours.fullmatch(p.name)})


def make(model, kind, cache, layers=0):
    path = cache / file_name(f"{model}-{layers}-layers" if layers else model, kind)
    if not path.exists():
        progress(f"making {path}")
        cache.mkdir(parents=True, exist_ok=True)
        for old in outdated(path):
            old.unlink()
        new = path.with_suffix(".new")
        words = ["--tokenizers", tokenizers()] if tokenizers() else []
        words += ["--layers", layers] if layers else []
        run([sys.executable, TOOLS / "make_gguf.py", new, "--preset", model, "--type", kind, *words])
        new.rename(path)
    return path


def run(command, both=False):
    """The output of a command; both: with stderr, where some peers print their tables."""
    command = [str(c) for c in command]
    env = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}
    with tempfile.TemporaryDirectory() as folder:  # some peers leave a log where they are started
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"models.py: {' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr if both else done.stdout


# ---- ours


def quire(a, path, repeats, threads):
    command = [a.bench, path, "--threads", threads, "--variant", a.variant, "--prefill", a.prefill, "--batches",
               ",".join(map(str, a.batches)), "--prompt", a.prompt, "--steps", a.steps, "--repeats", repeats,
               "--kv-cache-dtype", a.kv_cache_dtype, "--limit-passes", a.limit_passes]
    return json.loads(run(command))


def merge(rounds):
    """One result of several rounds: the medians of all samples, the best of the limits."""
    out = json.loads(json.dumps(rounds[0]))
    raise_limits(out, rounds)

    def combine(into, parts):
        for key in ("samples_tokens_s", "samples_of_limit"):
            into[key] = [s for p in parts for s in p[key]]
        into["of_limit"] = statistics.median(into["samples_of_limit"])
        median = statistics.median(into["samples_tokens_s"])
        faster = median / into["tokens_s"]
        into["tokens_s"] = median
        into["ms"] /= faster
        into["gb_s"] *= faster
        into["gop_s"] *= faster

    if "prefill" in out:
        combine(out["prefill"], [r["prefill"] for r in rounds])
    for i, entry in enumerate(out["decode"]):
        combine(entry, [r["decode"][i] for r in rounds])
    return out


def raise_limits(result, others):
    """Each limit becomes the best that any run measured: a busy moment may have lowered one, nothing raises it."""
    for key in RATES:
        result["limits"][key] = max(o["limits"][key] for o in [result, *others])
    a = result["arithmetic_limit"]
    kind = next((k for k in ("int8", "bf16", "f32") if result["limits"][k + "_with"] == a["with"]), None)
    a["gop_s"] = result["limits"][kind + "_gop_s"] if kind else 0


def compare_with_limits(results):
    for q in results:
        raise_limits(q, results)
        read, rate = q["limits"]["read_gb_s"], q["arithmetic_limit"]["gop_s"]
        for entry in [*([q["prefill"]] if "prefill" in q else []), *q["decode"]]:
            entry["of_best"] = max(entry["gb_s"] / read, entry["gop_s"] / rate if rate else 0)


# ---- peers


def peer_flags(text):
    """Parses NAME=FLAG[,FLAG…] to (NAME, [flags])."""
    name, _, flags = text.partition("=")
    if not name or not words(flags):
        raise argparse.ArgumentTypeError(f"expected NAME=FLAG[,FLAG…], found '{text}'")
    return name, words(flags)


def more_peers(parser, names, given):
    """{name: (NAME, [flags])} of all peers: those there are, and one for each --peer-flags, which has its flags in its name."""
    out = {name: (name, []) for name in names}
    for name, flags in given:
        if name not in names:
            parser.error(f"--peer-flags: no peer '{name}' among {', '.join(names) or 'none'}")
        out[" ".join([name, *flags])] = name, flags
    return out


def with_values(flags):
    """As llama-bench takes them: a flag without a value is switched on by 1."""
    out = []
    for flag, after in zip(flags, [*flags[1:], "-"]):
        out += [flag, "1"] if flag.startswith("-") and after.startswith("-") else [flag]
    return out


def find_peers(folder):
    """{name: {"llama-bench": command, "llama-batched-bench": command or None}}, named by the folder below DIR."""
    peers = {}
    for bench in sorted(Path(folder).rglob("llama-bench")):
        if bench.is_file() and os.access(bench, os.X_OK):
            batched = bench.with_name("llama-batched-bench")
            name = str(bench.parent.relative_to(folder)).removesuffix("/bin").removesuffix("/build")
            peers[name] = {"llama-bench": [bench], "llama-batched-bench": [batched] if os.access(batched, os.X_OK) else None}
    for package in sorted(Path(folder).rglob("venv/lib/python3*/site-packages/openvino_genai")):
        venv = package.parents[3]
        command = [venv / "bin/python", Path(__file__).with_name("openvino_bench.py")]
        peers[str(venv.parent.relative_to(folder))] = {"llama-bench": command, "llama-batched-bench": command}
    return peers


def parse_batched(text):
    """[(batch, decode tokens/s)] from the lines of JSON or the table of llama-batched-bench."""
    out = []
    for line in text.splitlines():
        if "{" in line and '"speed_tg"' in line:
            row = json.loads(line[line.index("{") : line.rindex("}") + 1])
            out.append((int(row["pl"]), float(row["speed_tg"])))
        elif line.startswith("|"):  # PP TG B N_KV T_PP S_PP T_TG S_TG T S
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if len(cells) == 10 and cells[0].isdigit():
                out.append((int(cells[2]), float(cells[7])))
    return out


def peer(a, tools, path, threads):
    """Tokens/s: {"prefill": x, "generate": x, "decode": {batch: x}, "build": …}."""
    rows = json.loads(run([*tools["llama-bench"], "-m", path, "-p", a.prefill, "-n", 64, "-t", threads, "-r", a.repeats,
                           "-o", "json", *with_values(tools["flags"])]))
    out = {"decode": {}, "build": rows[0].get("build_commit")}
    for row in rows:
        if row["n_prompt"] and not row["n_gen"]:
            out["prefill"] = statistics.median(row.get("samples_ts") or [row["avg_ts"]])
        elif row["n_gen"] and not row["n_prompt"]:
            out["generate"] = statistics.median(row.get("samples_ts") or [row["avg_ts"]])
    if tools["llama-batched-bench"]:
        context = max(a.batches) * (a.prompt + a.steps)
        text = run([*tools["llama-batched-bench"], "-m", path, "-c", context, "-npp", a.prompt, "-ntg", a.steps, "-npl",
                    ",".join(map(str, a.batches)), "-t", threads, "-tb", threads, *tools["flags"]], both=True)
        out["decode"] = {str(b): rate for b, rate in parse_batched(text)}
        if set(out["decode"]) != set(map(str, a.batches)):
            sys.exit(f"models.py: {tools['llama-batched-bench'][-1]}: a line of numbers is missing in\n{text[-2000:]}")
    elif 1 in a.batches and "generate" in out:
        out["decode"] = {"1": out["generate"]}
    return out


def merge_peer(rounds):
    out = {"build": rounds[0]["build"], "rounds": rounds}
    for key in ("prefill", "generate"):
        if key in rounds[0]:
            out[key] = statistics.median(r[key] for r in rounds)
    out["decode"] = {b: statistics.median(r["decode"][b] for r in rounds) for b in rounds[0]["decode"]}
    return out


# ---- all of it


def measure(a, model, kind, path):
    progress(f"{model} {kind}")
    rounds, fewer, theirs = [], [], {name: [] for name in a.peers}
    for _ in range(a.rounds if a.peers else 1):
        rounds.append(quire(a, path, a.repeats, a.threads))
        if 0 < a.scale_from < rounds[0]["limits"]["threads"]:
            progress(f"{model} {kind}: --threads {a.scale_from}")
            fewer.append(quire(a, path, a.repeats, a.scale_from))
        for name, tools in a.peers.items():
            progress(f"{model} {kind}: {name}")
            theirs[name].append(peer(a, tools, path, rounds[0]["limits"]["threads"]))
    shape = f"{model}, {a.layers} layers" if a.layers else model
    return {"model": shape, "type": kind, "quire": merge(rounds), "fewer_threads": merge(fewer) if fewer else None,
            "peers": {name: merge_peer(r) for name, r in theirs.items()}}


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"cpu": cpu, "cpus": len(os.sched_getaffinity(0)), "arch": platform.machine(), "kernel": platform.release(),
            "load": os.getloadavg()[0]}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def scaling(report):
    """Rows of what fewer threads gave beside all of them; what memory and arithmetic allow scales no better than the limits."""
    out = []
    for r in report["results"]:
        q, f = r["quire"], r["fewer_threads"]
        if not f:
            continue
        few, all_of = f["limits"], q["limits"]
        if not out:
            out = ["", f"| model | type | work | threads {few['threads']}, tokens/s | threads {all_of['threads']}, tokens/s | scaling |",
                   "|---|---|---|--:|--:|--:|"]
        pairs = [(f"prefill {q['prefill']['tokens']}", f["prefill"], q["prefill"])] if "prefill" in q else []
        pairs += [(f"decode × {d['batch']}", e, d) for e, d in zip(f["decode"], q["decode"])]
        out += [f"| {r['model']} | {r['type']} | {work} | {e['tokens_s']:.1f} | {d['tokens_s']:.1f} | {d['tokens_s'] / e['tokens_s']:.2f} × |"
                for work, e, d in pairs]
        read, rate = all_of["read_gb_s"] / few["read_gb_s"], q["arithmetic_limit"]["gop_s"] / (f["arithmetic_limit"]["gop_s"] or 1)
        out.append(f"| {r['model']} | {r['type']} | limits: read bandwidth, arithmetic | | | {read:.2f} ×, {rate:.2f} × |")
    return out


def markdown(report):
    m = report["machine"]
    out = [f"{m['cpu']}, {m['cpus']} CPUs, load {m['load']:.1f} at the start, {report['date'][:10]}, commit "
           f"{report['commit']}; `{report['command']}`", ""]
    names = sorted({name for r in report["results"] for name in r["peers"]})
    head = ["model", "type", "work", "tokens/s", "ms", "GB/s", "GOP/s", "of roofline", "of best"] + [f"{n}, tokens/s (speed-up over it)" for n in names]
    out += ["| " + " | ".join(head) + " |", "|---|---|---|" + "--:|" * (len(head) - 3)]
    for r in report["results"]:
        q = r["quire"]
        rows = [(f"prefill {q['prefill']['tokens']}", q["prefill"], lambda p: p.get("prefill"))] if "prefill" in q else []
        for d in q["decode"]:
            context = f", context {d['context']:.0f}" if d["context"] >= 1000 else ""
            rows.append((f"decode × {d['batch']}{context}", d, lambda p, b=str(d["batch"]): p["decode"].get(b)))
        for work, d, theirs in rows:
            cells = [r["model"], r["type"], work, f"{d['tokens_s']:.1f}", f"{d['ms']:.2f}", f"{d['gb_s']:.1f}",
                     f"{d['gop_s']:.0f}", f"{100 * d['of_limit']:.0f} %",
                     f"{100 * d['of_best']:.0f} %"]
            for name in names:
                rate = theirs(r["peers"][name]) if name in r["peers"] else None
                cells.append(f"{rate:.1f} ({d['tokens_s'] / rate:.2f} ×)" if rate else "")
            out.append("| " + " | ".join(cells) + " |")
    out += scaling(report)
    l = report["results"][0]["quire"]["limits"]
    out += ["", f"Limits with {l['threads']} threads: read {l['read_gb_s']:.1f} GB/s; {l['int8_with']} {l['int8_gop_s']:.0f}, "
            f"{l['bf16_with']} {l['bf16_gop_s']:.0f}, {l['f32_with']} {l['f32_gop_s']:.0f} GOP/s."]
    if m["load"] > m["cpus"] / 4:
        out.append(f"The machine was busy with something else at the start (load {m['load']:.1f}): the numbers are too low.")
    return "\n".join(out)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ",".join(make_gguf.PRESETS)
    p.add_argument("--models", type=words, help=f"of {known}; default: {','.join(DEFAULT_MODELS)}")
    p.add_argument("--layers", type=int, default=0, metavar="N", help="of each model only so many; 0: all")
    p.add_argument("--types", type=words, help=f"of {','.join(make_gguf.TYPES)}; default: {','.join(DEFAULT_TYPES)}")
    p.add_argument("--threads", type=int, default=0, help="0: all CPUs")
    p.add_argument("--scale-from", type=int, default=1, metavar="N", help="rows of N threads beside --threads; 0: none")
    p.add_argument("--variant", default="auto", help="as quire --cpu-variant")
    p.add_argument("--kv-cache-dtype", default="auto")
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--batches", type=lambda t: [int(w) for w in words(t)], default=[1, 8, 16, 32])
    p.add_argument("--prompt", type=int, default=112, help="tokens of a decoding request before the first step")
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--repeats", type=int, help="samples of each number; default 5, with --peers 2 in each round")
    p.add_argument("--limit-passes", type=int, default=5, help="how often each limit is measured; the best counts")
    p.add_argument("--peers", metavar="DIR")
    p.add_argument("--peer-flags", type=peer_flags, action="append", default=[], metavar="NAME=FLAG[,FLAG…]", help="one more peer; repeatable")
    p.add_argument("--rounds", type=int, default=3, help="with --peers: how often everybody has a turn")
    p.add_argument("--cache", type=Path, default=ROOT / "build/bench-models")
    p.add_argument("--bench", type=Path, default=ROOT / "build/release/tests/bench_model")
    p.add_argument("--json", type=Path, metavar="FILE", help="default: one named by the time, under build/bench-reports")
    a = p.parse_args()
    a.models = a.models or DEFAULT_MODELS
    a.types = a.types or DEFAULT_TYPES
    for given, what, of in ((a.models, "--models", make_gguf.PRESETS), (a.types, "--types", make_gguf.TYPES)):
        for word in given:
            if word not in of:
                p.error(f"{what}: expected some of {','.join(of)}, found '{word}'")
    a.cache, a.bench, a.peers = a.cache.resolve(), a.bench.resolve(), a.peers and Path(a.peers).resolve()
    a.repeats = a.repeats or (2 if a.peers else 5)
    found = find_peers(a.peers) if a.peers else {}
    if a.peers and not found:
        p.error(f"no llama-bench and no venv with openvino-genai under {a.peers}")
    a.peers = {new: found[name] | {"flags": flags} for new, (name, flags) in more_peers(p, found, a.peer_flags).items()}
    a.json = a.json or ROOT / f"build/bench-reports/models-{datetime.datetime.now():%Y%m%d-%H%M%S}.json"
    return a


def main():
    a = arguments()
    progress(f"report: {a.json}")
    a.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": commit(), "command": " ".join(["models.py", *sys.argv[1:]]), "results": []}
    for model in a.models:
        for kind in a.types:
            report["results"].append(measure(a, model, kind, make(model, kind, a.cache, a.layers)))
            for key in ("quire", "fewer_threads"):
                compare_with_limits([r[key] for r in report["results"] if r[key]])
            a.json.write_text(json.dumps(report, indent=1) + "\n")  # what is there stays, whatever happens to the next
    print(markdown(report))


if __name__ == "__main__":
    main()
