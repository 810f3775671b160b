#!/usr/bin/env python3
"""models.py end to end on a tiny model, with three made-up peers: its numbers, ratios and tables, not the speed; its cache of files.

usage: test_models.py BENCH_MODEL
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import models  # noqa: E402

BENCH = """#!/usr/bin/env python3
import json, sys
a = sys.argv
assert a[a.index("-o") + 1] == "json" and a[a.index("-p") + 1] == "128" and int(a[a.index("-t") + 1]) == 1, a
open(a[a.index("-m") + 1], "rb").close()
tail = a[a.index("-o") + 2:]
assert tail in ([], ["-rtr", "1"], ["-ctk", "q8_0", "-v", "1"]), a
more = len(tail) + 1
row = {"build_commit": "abc", "n_prompt": 128, "n_gen": 0, "avg_ts": 99.0, "samples_ts": [100.0 * more, 300.0 * more, 200.0 * more]}
print(json.dumps([row, row | {"n_prompt": 0, "n_gen": 64, "samples_ts": [7.0 * more]}]))
"""
BATCHED = """#!/usr/bin/env python3
import sys
tail = sys.argv[sys.argv.index("-tb") + 2:]
assert tail in ([], ["-rtr"]), sys.argv
print("main: n_kv_max = 4096")
print("|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |")
print("|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|")
for b in sys.argv[sys.argv.index("-npl") + 1].split(","):
    print(f"|   30 |     6 | {b:>4} |    144 |    0.100 |  1000.00 |    0.200 | {int(b) * 10 + len(tail):8.2f} |    0.300 |   480.00 |")
"""
OPENVINO = {
    "numpy.py": "int64 = 1\ndef array(rows, dtype): return rows\ndef ones_like(rows): return [[1] * len(row) for row in rows]\n",
    "openvino.py": "def Tensor(rows): return rows\n",
    "openvino_genai/__init__.py": """
from types import SimpleNamespace as SchedulerConfig, SimpleNamespace as GenerationConfig, SimpleNamespace as Result
__version__ = "xyz"
def TokenizedInputs(ids, mask):
    assert [len(row) for row in ids] == [len(row) for row in mask]
    return ids
class LLMPipeline:
    def __init__(self, path, device, scheduler_config, **properties):
        assert device == "CPU" and properties["INFERENCE_NUM_THREADS"] == 1, (device, properties)
        open(path, "rb").close()
        self.most = scheduler_config.max_num_seqs
    def generate(self, ids, config):  # a pass takes 1 ms for each token of a prompt, 100 ms for a decode, once 10 s
        assert len(ids) <= self.most and config.ignore_eos and config.min_new_tokens == config.max_new_tokens
        decodes = [1e5] * (config.max_new_tokens - 1)
        raw = Result(token_infer_durations=[1e3 * sum(map(len, ids))] + [1e7] * (len(decodes) > 5) + decodes[1 if len(decodes) > 5 else 0:])
        raw.m_batch_sizes = [len(ids)] * len(raw.token_infer_durations)
        return Result(perf_metrics=Result(raw_metrics=raw))
""",
}


def write_openvino(folder):
    """A venv whose openvino_genai takes made-up times."""
    packages = folder / "venv/lib/python3.0/site-packages"
    (packages / "openvino_genai").mkdir(parents=True)
    for name, text in OPENVINO.items():
        (packages / name).write_text(text)
    python = folder / "venv/bin/python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} \"$@\"\n")
    python.chmod(0o755)


def check(condition, *what):
    if not condition:
        sys.exit(f"test_models.py: {what}")


def check_cache(tmp):
    """Files with real and with made-up words live beside each other; what other makers made goes."""
    data, cache = tmp / "data", tmp / "words"
    (data / "tokenizers").mkdir(parents=True)
    cache.mkdir()
    old = [cache / f"tiny-f32-{words}0123456789.gguf" for words in ("", "real-", "made-")]
    for path in old:
        path.touch()
    made = []
    for folder in (data, tmp / "none", data, tmp / "none"):
        os.environ["QUIRE_TEST_DATA"] = str(folder)
        made.append(models.make("tiny", "f32", cache))
        check(made[-1].stat().st_size > 0 and not old[1 if folder == data else 2].exists(), made)
    check(made[:2] == made[2:] and made[0] != made[1], made)
    check(sorted(cache.iterdir()) == sorted(made[:2]), list(cache.iterdir()), made)


def check_default_report(command):
    """Nobody asked for it, and it is there."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    said = [line.removeprefix("== report: ") for line in done.stderr.splitlines() if line.startswith("== report: ")]
    check(done.returncode == 0 and len(said) == 1 and Path(said[0]).is_relative_to(models.ROOT / "build"), done.stdout, done.stderr)
    report = json.loads(Path(said[0]).read_text())
    Path(said[0]).unlink()
    check([r["type"] for r in report["results"]] == ["f32"], report)


def main():
    bench = sys.argv[1]
    os.environ["BENCH_LIMITS_BRIEF"] = "1"
    with tempfile.TemporaryDirectory() as tmp:
        check_cache(Path(tmp))
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        for name, files in {"one/build/bin": {"llama-bench": BENCH, "llama-batched-bench": BATCHED}, "two": {"llama-bench": BENCH}}.items():
            folder = tmp / "peers" / name
            folder.mkdir(parents=True)
            for file, text in files.items():
                (folder / file).write_text(text)
                (folder / file).chmod(0o755)
        write_openvino(tmp / "peers/three")
        command = [sys.executable, HERE / "models.py", "--bench", bench, "--models", "tiny", "--types", "f32,q8_0,mxfp4", "--cache", tmp / "cache",
                   "--threads", 1, "--prefill", 128, "--prompt", 30, "--steps", 6, "--batches", "1,3", "--rounds", 3, "--repeats", 1, "--limit-passes", 1,
                   "--peers", tmp / "peers", "--peer-flags", "one=-rtr", "--peer-flags", "two=-ctk,q8_0,-v", "--json", tmp / "report.json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, done.stdout, done.stderr)
        report = json.loads((tmp / "report.json").read_text())
        check(report["machine"]["cpus"] > 0 and report["commit"] and report["date"].startswith("20"), report)
        check([(r["model"], r["type"]) for r in report["results"]] == [("tiny", "f32"), ("tiny", "q8_0"), ("tiny", "mxfp4")])
        for r in report["results"]:
            q = r["quire"]
            check(q["limits"]["threads"] == 1 and q["limits"]["read_gb_s"] > 0, q)
            check(q["weights_dtype"].lower() == r["type"], q)
            limit = "f32" if r["type"] == "f32" else "int8"
            check(q["arithmetic_limit"] == {"with": q["limits"][limit + "_with"], "gop_s": q["limits"][limit + "_gop_s"]}, q)
            # 2 layers of the tiny shape, and the head: macs per token as the file has them
            bytes_per = {"f32": 4, "q8_0": 34 / 32, "mxfp4": 17 / 32}[r["type"]]
            macs = 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 128 * 64) + 512 * 64
            check(abs(q["step_bytes"] - macs * bytes_per) < 1, q["step_bytes"], macs * bytes_per)
            check([d["batch"] for d in q["decode"]] == [1, 3], q)
            for d in [q["prefill"], *q["decode"]]:
                check(len(d["samples_tokens_s"]) == 3 and d["tokens_s"] == sorted(d["samples_tokens_s"])[1], d)
                check(d["gb_s"] > 0 and d["gop_s"] > 0 and d["of_limit"] > 0 and d["of_best"] > 0, d)
                check(len(d["samples_of_limit"]) == len(d["samples_tokens_s"]) and d["of_limit"] == median(d["samples_of_limit"]), d)
            for d in q["decode"]:
                check(30 < d["context"] < 30 + 6 + 4, d)
                kv = 2 * (4 if r["type"] == "f32" else 2) * 2 * 2 * 16 * d["context"] * d["batch"]  # K and V, layers, heads, d
                want = (macs * bytes_per + kv) / (d["ms"] / 1e3) / 1e9
                check(abs(d["gb_s"] / want - 1) < 0.02, d, want)
                check(abs(d["tokens_s"] * d["ms"] / 1e3 / d["batch"] - 1) < 0.01, d)
            check(set(r["peers"]) == {"one", "two", "three", "one -rtr", "two -ctk q8_0 -v"}, r["peers"])
            check(r["peers"]["one"]["prefill"] == 200 and r["peers"]["one"]["decode"] == {"1": 10, "3": 30}, r["peers"])
            check(r["peers"]["two"]["decode"] == {"1": 7}, r["peers"])
            three = r["peers"]["three"]
            check((three["build"], three["prefill"], three["generate"], three["decode"]) == ("xyz", 1000, 10, {"1": 10, "3": 30}), three)
            # With their flags, as each program takes them.
            check(r["peers"]["one -rtr"]["prefill"] == 600 and r["peers"]["one -rtr"]["decode"] == {"1": 11, "3": 31}, r["peers"])
            check(r["peers"]["two -ctk q8_0 -v"]["decode"] == {"1": 35}, r["peers"])
        rows = [line for line in done.stdout.splitlines() if line.startswith("| tiny | f32 | decode × 3 |")]
        ours = report["results"][0]["quire"]["decode"][1]["tokens_s"]
        check(len(rows) == 1 and rows[0].endswith(f"| 30.0 ({ours / 30:.2f} ×) | 31.0 ({ours / 31:.2f} ×) | 30.0 ({ours / 30:.2f} ×) |  |  |"), rows, ours)
        check("scaling" not in done.stdout and not report["results"][0]["fewer_threads"], done.stdout)
        alone = command[: command.index("--peers")]
        two = alone + ["--threads", 2, "--types", "f32", "--json", tmp / "report.json"]
        done = subprocess.run(list(map(str, two)), capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, done.stdout, done.stderr)
        r = json.loads((tmp / "report.json").read_text())["results"][0]
        check((r["fewer_threads"]["limits"]["threads"], r["quire"]["limits"]["threads"]) == (1, 2), r)
        few, all_of = (r[key]["decode"][1]["tokens_s"] for key in ("fewer_threads", "quire"))
        want = f"| tiny | f32 | decode × 3 | {few:.1f} | {all_of:.1f} | {all_of / few:.2f} × |"
        check(want in done.stdout and done.stdout.count("× |\n") == 4, want, done.stdout)
        for bad in (["--types", "q9"], ["--models", "none"], ["--peers", tmp / "cache"], ["--peer-flags", "four=-rtr"],
                    ["--peer-flags", "one"], ["--peer-flags", "one="]):
            check(subprocess.run(list(map(str, [*command, *bad])), capture_output=True).returncode != 0, bad)
        more = [*alone, "--models", "tiny-experts", "--types", "f32", "--layers", "1", "--json", tmp / "report.json"]
        done = subprocess.run(list(map(str, more)), capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, done.stdout, done.stderr)
        r = json.loads((tmp / "report.json").read_text())["results"][0]
        check(r["model"] == "tiny-experts, 1 layers", r["model"])
        for d in r["quire"]["decode"]:  # of three rows 1 - (3/4)^3 of all experts
            rest, share = 64 * 64 * 2 + 32 * 64 * 2 + 8 * 64 + 512 * 64, {1: 1 / 4, 3: 37 / 64}[d["batch"]]
            want = 4 * (rest + share * 8 * 3 * 128 * 64 + 2 * 2 * 16 * d["context"] * d["batch"]) / (d["ms"] / 1e3) / 1e9
            check(abs(d["gb_s"] / want - 1) < 0.02, d, want)
        check_default_report([*alone, "--types", "f32"])
        broken = tmp / "peers/one/build/bin/llama-batched-bench"
        broken.write_text("#!/bin/sh\necho no numbers\n")
        check(subprocess.run(list(map(str, command)), capture_output=True).returncode != 0, "a peer without numbers")
    print("reports, ratios and tables as expected")


if __name__ == "__main__":
    main()
