#!/usr/bin/env python3
"""Runs tests/gpu_check.sh --emulated: it builds, passes, and writes its report piece by piece; and what fails there makes
it fail. So the script does not rot between one GPU and the next.

compute-sanitizer is a stand-in here, which runs nothing: what is tested is what the script makes of its exit code.
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.join(ROOT, "build/gpu-emulated")
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
sys.dont_write_bytecode = True
import ptxas  # noqa: E402: the table of kernels, and what was launched
TESTS = ["intrinsics", "rows", "gemm", "attention", "sample", "forward", "steps", "ranks", "model"]


def check(want, *flags, **environment):
    """The report after gpu_check.sh has ended with `want`."""
    command = [os.path.join(ROOT, "tests/gpu_check.sh"), "--emulated", *flags]
    run = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable, **environment}, capture_output=True, text=True)
    if run.returncode != want:
        sys.exit(f"{command} {environment}: {run.returncode}, not {want}\n{run.stdout}{run.stderr}")
    with open(os.path.join(OUT, "report.json")) as f:
        report = json.load(f)
    with open(os.path.join(OUT, "report.md")) as f:
        text = f.read()
    for n in report["notes"]:
        assert n in text, n
    return {n.split(": ", 1)[0]: n.split(": ", 1)[1] for n in report["notes"]}, report, text


def check_kernels(report, launches):
    """Every kernel that runs within a step has a row in the benchmark, and was launched for it."""
    for kernel in ("gemm", "gemm, sum", "gemm, SwiGLU", "gemm, logits", "dequantise", "cuBLASLt", "bias, factor, sum",
                   "decode + combine", "combine", "prefill attention", "prefill attention, wgmma", "general attention",
                   "general prefill attention", "sum of ranks", "gather of ranks", "local top-k", "sample", "embed", "norm",
                   "bias, RoPE, KV write", "copy of a page", "SwiGLU", "clear", "scatter of the upload"):
        assert any(k["kernel"] == kernel for k in report), kernel
    for weights in ("F32", "BF16", "F16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"):
        assert any(k["kernel"] == "gemm" and k["shape"].startswith(weights + " ") for k in report), weights

    def names(kernels):
        return {k.split("<")[0] for k in kernels}
    missing = names(ptxas.table()) - names(ptxas.launches(launches)) - {"pack_rows"}  # of loading
    assert not missing, f"the benchmark launches no {missing}"


def main():
    with tempfile.TemporaryDirectory() as launches:
        check(0, "--only", "kernels", QUIRE_EMULATED_LAUNCHES=launches)
        with open(os.path.join(OUT, "report.json")) as f:
            check_kernels(json.load(f)["kernels"]["kernels"], launches)
    notes, report, text = check(0, "--no-build", "--only", "tests,steps,torch")
    for t in TESTS:
        assert " 0 failed" in notes[f"test {t}"], notes
        assert not notes[f"test {t}"].startswith("0 passed"), notes
    kernels, steps = report["kernels"]["kernels"], report["steps"]["steps"]
    assert len(kernels) > 50 and all(k["us"] > 0 and k["share"] > 0 for k in kernels), kernels
    assert len(steps) > 20 and all(s["ms"] > 0 for s in steps), steps
    for way in ("as served", "no overlap", "no graphs", "neither", "exact"):
        assert len([s for s in steps if s["shape"].endswith(": " + way)]) == 2, way
    for kind in ("prefill", "prefill, wgmma", "prefill, exact", "decode"):
        assert any(s["step"] == kind for s in steps), kind
    for row in kernels + steps:
        assert row["shape"] in text, row
    if not notes["PyTorch"].startswith("not compared"): # where torch and transformers are installed: PYTHON=… of this program
        torch = report["torch"]["steps"]
        assert len(torch) == 30 and all(r["ms"] > 0 and r["shape"] in text for r in torch), report["torch"]
    assert report["kernels"]["bandwidth"] > 0 and report["steps"]["matrix_rate"] > 0

    with tempfile.TemporaryDirectory() as tmp:
        tool, seen = os.path.join(tmp, "sanitizer"), os.path.join(tmp, "seen")
        with open(tool, "w") as f:
            f.write(f'#!/bin/sh\necho "$2 $5" >>{seen}\ncase "$2 $5" in $FINDS) echo "a race"; exit $4 ;; esac\n')
        os.chmod(tool, 0o755)

        def sanitizer(want, **environment):
            open(seen, "w").close()
            result = check(want, "--no-build", "--only", "sanitizer", *environment.pop("flags", []), COMPUTE_SANITIZER=tool,
                           **environment)
            return result[0], open(seen).read().splitlines(), result[1]

        # What it finds fails the run, and is in the report beside what was there.
        notes, ran, after = sanitizer(1, FINDS="racecheck */test_gemm")
        assert notes["racecheck of test gemm"] == "FAILED (a race)", notes
        assert notes["memcheck of test forward"] == notes["synccheck of test gemm"] == "no errors", notes
        assert "racecheck of test forward" not in notes
        assert after["kernels"] == report["kernels"] and "test rows" in notes
        # The next time that alone runs again.
        notes, again, _ = sanitizer(0)
        assert [line.split("/")[-1] for line in again] == ["test_gemm"] and again[0] in ran, again
        assert notes["racecheck of test gemm"] == "no errors", notes
        # No time: nothing is started, nothing has failed, and it is no success either.
        os.remove(os.path.join(OUT, "pieces/notes"))
        notes, none, _ = sanitizer(3, flags=["--seconds", "1"])
        assert none == [] and "memcheck of test rows" not in notes, notes

    # A test that fails, and a benchmark that does, whatever follows.
    notes, _, _ = check(1, "--no-build", "--only", "tests,kernels", QUIRE_EMULATED_FAULT="1")
    assert notes["test rows"].startswith("FAILED"), notes
    assert notes["benchmark of kernels"].startswith("FAILED"), notes
    print(f"{len(kernels)} kernels, {len(steps)} steps")


if __name__ == "__main__":
    main()
