#!/usr/bin/env python3
"""Measures the gain of drafts: the same requests with and without them, in turns, one client and 32, on a model of random weights.

    drafts.py [--build build/release] [--rounds N] [--json FILE]

Prompt lookup: the shape of Qwen2.5-0.5B in Q8_0, held to outputs that copy from their prompts as people's do (code with a name
changed, quoted sentences, arguments of tools, answers from a text), and to some that do not. A draft model: a made-up shape of
0.4B; its layers from the third on are scaled down until the first two alone, which are the draft model, agree with it at the
rate that the table states. An MTP layer: that of the embedded model (models/train/mtp.py), and one of random weights, over stories
and answers of its own. bench_drafts.c measures; `right` is the share of drafts that steps found right.

But for --only mtp needs the test data (QUIRE_TEST_DATA). Nothing is asserted about time.
"""
import argparse
import datetime
import gzip
import itertools
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import models
import gguf_file
import join_mtp

ROOT = models.ROOT
DATA = models.tokenizers().parent if models.tokenizers() else None
SHAPE = ["--layers", 24, "--hidden", 1024, "--heads", 16, "--kv-heads", 8, "--head-dim", 64, "--ffn", 4096, "--vocab", 32000,
         "--context", 4096, "--type", "q8_0"]
DRAFT_LAYERS = 2
Q8_0_BYTES = 34


# ---- texts that copy


def sentences(name):
    text = re.sub(r"\s+", " ", (DATA / "texts" / name).read_text(errors="replace"))
    return [s for s in re.split(r"(?<=[.!?]) ", text) if 40 < len(s) < 200]


def code_edits():
    for line in gzip.open(DATA / "prompts/HumanEval.jsonl.gz", "rt"):
        task = json.loads(line)
        code = task["prompt"] + task["canonical_solution"]
        name = task["entry_point"]
        yield f"Rename {name} to compute_{name}, and give the whole file.\n\n{code}\n", code.replace(name, f"compute_{name}")


def quotes():
    found = sentences("GrimmsFairyTales.txt")
    for at in itertools.count(100, 40):
        part = found[at : at + 12]
        yield "Summarise by quoting what matters.\n\n" + " ".join(part), "The tale says: " + " And then: ".join(part[2:10:2])


def tool_calls():
    records = json.loads((DATA / "prompts/instruction-data.json").read_text())
    for at in itertools.count(0, 7):
        part = [{"id": f"rec-{(at + i) * 7919 % 100000:05}", **r} for i, r in enumerate(records[at : at + 6])]
        call = {"name": "store_records", "arguments": {"records": [{"id": r["id"], "text": r["output"]} for r in part[1:4]]}}
        yield json.dumps(part) + "\n\nStore the second to the fourth record.\n", json.dumps(call)


def answers():
    found = sentences("war-and-peace.txt")
    for at in itertools.count(500, 30):
        part = found[at : at + 14]
        yield " ".join(part) + "\n\nWhat does the text say of this?\n", f"According to the text, “{part[5]}” It also says: “{part[9]}”"


def others():
    found, own = sentences("botchan.txt"), sentences("tinyshakespeare.txt")
    for at in itertools.count(50, 20):
        yield " ".join(found[at : at + 12]), " ".join(own[at : at + 5])


WORKS = {"code edit": code_edits, "quotes": quotes, "tool call": tool_calls, "answer": answers, "no copy": others}


def ids(quire, model, text):
    done = subprocess.run([quire, "tokenize", model, "--ids", "--no-special", "-"], input=text, capture_output=True, text=True, check=True)
    return done.stdout.split()


def write_work(path, quire, model, work, num, most, most_prompt=4096):
    """num requests whose prompts and outputs are cut after so many tokens."""
    with open(path, "w") as f:
        for prompt, output in itertools.islice(WORKS[work](), num):
            p, o = ids(quire, model, prompt)[:most_prompt], ids(quire, model, output)[:most]
            f.write(" ".join([work.replace(" ", "-"), str(len(p)), *p, str(len(o)), *o]) + "\n")
    return path


# ---- two models that agree at times


def scaled_blocks(body, scale):
    """Blocks of Q8_0, whose first two bytes are a scale of F16, of so much smaller values."""
    out, num = bytearray(body), len(body) // Q8_0_BYTES
    pairs = bytearray(2 * num)
    pairs[0::2], pairs[1::2] = out[0::Q8_0_BYTES], out[1::Q8_0_BYTES]
    pairs = struct.pack(f"<{num}e", *(d * scale for d in struct.unpack(f"<{num}e", pairs)))
    out[0::Q8_0_BYTES], out[1::Q8_0_BYTES] = pairs[0::2], pairs[1::2]
    return out


def split(source, target, draft, scale):
    """From a GGUF file of Q8_0: `target`, whose layers from DRAFT_LAYERS on add only `scale` of what they added, and `draft`
    without them."""
    keys, raw, tensors = gguf_file.read(source)
    count = f"{keys['general.architecture']}.block_count"
    fewer = raw | {count: raw[count][:-4] + struct.pack("<I", DRAFT_LAYERS)}

    def layer(name):
        return int(name.split(".")[1]) if name.startswith("blk.") else -1

    def scaled(name, kind, shape, data):
        less = layer(name) >= DRAFT_LAYERS and re.search(r"\.(attn_output|ffn_down)\.weight$", name)
        return kind, shape, scaled_blocks(data, scale) if less else data

    gguf_file.write(target, raw, {name: scaled(name, *t) for name, t in tensors.items()})
    gguf_file.write(draft, fewer, {name: t for name, t in tensors.items() if layer(name) < DRAFT_LAYERS})


def make_pair(cache, scale):
    source, target, draft = (cache / f"drafts-{name}.gguf" for name in ("source", f"target-{scale}", f"draft-{scale}"))
    cache.mkdir(parents=True, exist_ok=True)
    if not source.exists():
        models.progress(f"making {source}")
        models.run([sys.executable, models.TOOLS / "make_gguf.py", source, *SHAPE])
    if not target.exists() or not draft.exists():
        split(source, target, draft, scale)
    return target, draft


# ---- measuring


def measure(a, model, work, *flags):
    """Tokens/s with and without drafts of all rounds together, what was drafted, and the share that was right."""
    lines = models.run([a.build / "tests/bench_drafts", model, work, "--rounds", a.rounds, "--threads", a.threads, *flags])
    out = {}
    for drafts in (False, True):
        runs = [r for r in map(json.loads, lines.splitlines()) if r["drafts"] == drafts]
        out["with" if drafts else "without"] = sum(r["tokens"] for r in runs) / sum(r["seconds"] for r in runs)
        if drafts:
            drafted = sum(r["drafted"] for r in runs)
            out["right"] = sum(r["right"] for r in runs) / drafted if drafted else None
            out["tokens_per_step"] = sum(r["tokens"] for r in runs) / sum(r["steps"] for r in runs)
            out["draft_share"] = sum(r["draft_seconds"] for r in runs) / sum(r["seconds"] for r in runs)
    return out


def lookups(a, quire, folder):
    model = models.make("qwen2.5-0.5b", "q8_0", a.cache)
    for work in a.works:
        path = write_work(folder / "one.txt", quire, model, work, a.requests, 160)
        yield {"drafts": "prompt lookup", "work": work, "clients": 1, **measure(a, model, path)}
    for work in [w for w in a.works if w in ("code edit", "no copy")]:
        path = write_work(folder / "many.txt", quire, model, work, 32, 64)
        yield {"drafts": "prompt lookup", "work": work, "clients": 32, **measure(a, model, path, "--together")}


def draft_models(a, quire, folder):
    for scale in a.scales:
        target, draft = make_pair(a.cache, scale)
        for clients, temperature in ((1, 0), (1, 1), (32, 0)):
            num, most = (a.requests, 160) if clients == 1 else (clients, 64)
            path = write_work(folder / "free.txt", quire, target, "no copy", num, most, 200)
            flags = ["--draft", draft, "--temperature", temperature] + (["--together"] if clients > 1 else [])
            yield {"drafts": f"draft model, scale {scale:g}", "work": f"temperature {temperature}", "clients": clients, **measure(a, target, path, *flags)}


ASKED = ["Tell me a story about {}.", "Please write a story about {}.", "Do you know a story about {}?", "I want to hear a story about {}."]
HEROES = ["a fox", "an owl", "a girl", "a boy", "a rabbit", "a boat", "a dragon", "a cat"]


def mtp_layers(a, quire, folder):
    tiny = ROOT / "models/quire-tiny.gguf"
    asked = [f.format(hero) for f in ASKED for hero in HEROES]
    for name, seed in (("trained", None), ("random", 1)):
        model = folder / f"mtp-{name}.gguf"
        join_mtp.join(tiny, tiny.with_suffix(".mtp.gguf"), model, seed)
        for clients, temperature in ((1, 0), (1, 0.8), (32, 0)):
            length = 120 if clients == 1 else 480  # together they take as many steps as answers have tokens
            with open(folder / "asked.txt", "w") as f:
                for text in asked[: max(clients, a.requests)]:
                    prompt = ids(quire, model, f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
                    f.write(" ".join(["story", str(len(prompt)), *prompt, str(length), *["0"] * length]) + "\n")
            flags = ["--mtp", "--context", 1024, "--temperature", temperature] + (["--together"] if clients > 1 else [])
            yield {"drafts": f"MTP layer, {name}", "work": f"temperature {temperature}", "clients": clients,
                   **measure(a, model, folder / "asked.txt", *flags)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build/release")
    p.add_argument("--cache", type=Path, default=ROOT / "build/bench-models")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--requests", type=int, default=2, help="of each work, for one client")
    p.add_argument("--works", type=models.words, default=list(WORKS), help=f"of {','.join(WORKS)}")
    p.add_argument("--only", choices=["lookup", "model", "mtp"], help="what drafts; default: all, one after the other")
    p.add_argument("--scales", type=lambda t: [float(x) for x in t.split(",")], default=[0.01, 0.05])
    p.add_argument("--json", type=Path)
    a = p.parse_args()
    if not DATA and a.only != "mtp":
        sys.exit("drafts.py: no test data: set QUIRE_TEST_DATA")
    found, folder = [], a.cache / "drafts"
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [f for name, f in (("lookup", lookups), ("model", draft_models), ("mtp", mtp_layers)) if a.only in (None, name)]
    print("| drafts | work | clients | without, tokens/s | with | times | right | tokens a step |\n|---|---|--:|--:|--:|--:|--:|--:|")
    for r in (r for f in kinds for r in f(a, a.build / "quire", folder)):
        found.append(r)
        right = "–" if r["right"] is None else f"{100 * r['right']:.0f} %"
        print(f"| {r['drafts']} | {r['work']} | {r['clients']} | {r['without']:.1f} | {r['with']:.1f} | {r['with'] / r['without']:.2f} | {right} | "
              f"{r['tokens_per_step']:.2f} |", flush=True)
    if a.json:
        report = {"date": datetime.date.today().isoformat(), "machine": models.machine(), "commit": models.commit(), "rows": found}
        a.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
