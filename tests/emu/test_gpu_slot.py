#!/usr/bin/env python3
"""usage: test_gpu_slot.py BUILD. What tests/gpu_slot.sh makes of programs that pass, fail, hang or are killed: stand-ins in a
bundle that takes the machine for one with a GPU, all at the same time. Then a bundle of BUILD, on the emulator: it unpacks and
runs, and the benchmark has every kernel. `./dev slow` runs the rest of that.
"""
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
sys.dont_write_bytecode = True
import ptxas  # noqa: E402: the table of kernels, and what was launched

# Every program of the bundle, Python, nvidia-smi, compute-sanitizer (whose arguments are --tool TOOL --error-exitcode CODE
# PROGRAM) and ncu. The environment names those that do something else than pass.
STAND_IN = r"""#!/bin/sh
name=${0##*/} of=
case $name in
nvidia-smi)
    case "$*" in
    *timestamp*) while sleep 0.1 && [ -d /proc/$PPID ]; do echo "now, 1980, 2619, 412.5, 55, 98, 0x0"; done ;;
    *=name*) echo "NVIDIA Stand-in" ;;
    esac
    exit ;;
compute-sanitizer) of=$2:${5##*/} code=$4 ;;
bench_cuda) echo "| of $3 |" >"$1.md" ;;
esac
echo "$name $*"
case " $FAILS " in *" ${of:-$name} "*) echo "it went wrong"; exit ${code:-1} ;; esac
case " $SKIPS " in *" $name "*) echo "there is only one"; exit 77 ;; esac
case " $KILLED " in *" $name "*) kill -9 $$ ;; esac
case " $DEAF " in *" $name "*) trap '' TERM ;; esac
case " $DEAF $HANGS " in *" $name "*) echo $$ >"${PIDS:-/dev/null}"; echo "it began"; while :; do sleep 0.1; done ;; esac
echo "3 passed"
"""
TESTS = ["intrinsics", "rows", "gemm", "experts", "attention", "sample", "forward", "steps", "peers", "model", "real_shapes"]


class Slot:
    """A command of a bundle, with its page and archive in a folder of its own."""

    def __init__(self, bundle, *command, **environment):
        self.out = tempfile.mkdtemp(dir=os.path.dirname(bundle))
        self.name = command[0]
        tools = os.path.join(os.path.dirname(bundle), "tools")
        env = {**os.environ, "PATH": tools + ":" + os.environ["PATH"], "PYTHON": tools + "/python", "TMPDIR": self.out, **environment}
        self.process = subprocess.Popen([bundle + "/gpu_slot.sh", *command, "--out", self.out], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self, want):
        self.said = self.process.communicate()[0]
        assert self.process.returncode == want, (self.name, self.process.returncode, want, self.said, self.page())
        return self

    def page(self):
        try:
            with open(f"{self.out}/{self.name}.md") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def pieces(self):
        """What became of each, with its last words."""
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in self.page().splitlines() if line.startswith("| ")]
        return {row[0]: (row[1], row[3]) for row in rows if len(row) == 4 and row[0] != "piece"}

    def archive(self):
        with tarfile.open(f"{self.out}/{self.name}.tar.gz") as t:
            return {os.path.basename(m.name): t.extractfile(m).read().decode() for m in t if m.isfile()}


def stand_ins(tmp):
    bundle, tools = tmp + "/bundle", tmp + "/tools"
    paths = [f"{bundle}/bin/{name}" for name in ["bench_cuda"] + ["test_" + t for t in TESTS]]
    paths += [f"{tools}/{name}" for name in ("python", "nvidia-smi", "compute-sanitizer", "ncu")]
    for path in paths:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(STAND_IN)
        os.chmod(path, 0o755)
    with open(bundle + "/about", "w") as f:
        f.write("commit 0, built for sm_90a\n")
    shutil.copy(ROOT + "/tests/gpu_slot.sh", bundle)
    return bundle


def passes(bundle):
    s = Slot(bundle, "right", SKIPS="test_peers").end(0)
    pieces = s.pieces()
    assert pieces["test gemm"] == pieces["real shapes 8b, wgmma"] == pieces["memcheck of test forward"] == ("ran", "3 passed"), pieces
    assert pieces["test peers"][0] == "skipped because there is only one", pieces
    assert len([p for p in pieces if p.startswith("test ")]) == len(TESTS) - 1, pieces
    assert "racecheck of test gemm" in pieces and "racecheck of test forward" not in pieces, pieces
    assert "# right: NVIDIA Stand-in" in s.page() and "SM 1980 to 1980 MHz, median 1980; at most 412.5 W" in s.page(), s.page()
    assert "--tool racecheck" in "".join(s.archive().values())


def compares(bundle):
    pieces = Slot(bundle, "fast").end(0).pieces()
    assert pieces["gemm of PyTorch, round 2"] == pieces["steps of PyTorch"] == pieces["ncu"] == ("ran", "3 passed"), pieces
    pieces = Slot(bundle, "serves").end(0).pieces()
    assert pieces["clients: 256"][0] == pieces["device that fails"][0] == pieces["too little memory"][0] == "ran", pieces


def lacks_torch(bundle):
    pieces = Slot(bundle, "fast", "--only", "steps,PyTorch", FAILS="python").end(0).pieces()
    assert pieces["steps"][0] == "ran" and "has no torch" in pieces["PyTorch"][0] and len(pieces) == 2, pieces


def fails(bundle):
    """A test and a benchmark, whatever follows them; one that something else kills; what compute-sanitizer finds."""
    pieces = Slot(bundle, "right", "--only", "test rows,test gemm", FAILS="test_rows racecheck:test_gemm", KILLED="test_gemm").end(1).pieces()
    assert pieces["test rows"] == ("**FAILED** (exit code 1)", "it went wrong"), pieces
    assert pieces["test gemm"][0] == "**FAILED** (killed)", pieces
    assert pieces["racecheck of test gemm"] == ("**FAILED** (exit code 9)", "it went wrong"), pieces
    assert pieces["memcheck of test gemm"][0] == pieces["racecheck of test rows"][0] == "ran", pieces
    pieces = Slot(bundle, "fast", "--only", "gemm,other", FAILS="bench_cuda").end(1).pieces()
    assert pieces["other kernels"][0] == "**FAILED** (exit code 1)", pieces


def is_cut(bundle):
    """What it had measured stays; what does not begin is no success either. Also where SIGTERM means nothing to it."""
    cut, deaf = (Slot(bundle, "fast", "--only", "steps,ncu", "--seconds", "12", **{how: "bench_cuda"}) for how in ("HANGS", "DEAF"))
    for s in cut, deaf:
        pieces = s.end(3).pieces()
        assert re.fullmatch(r"\*\*cut at \d+ s\*\*", pieces["steps"][0]) and pieces["steps"][1] == "it began", pieces
        assert pieces["ncu"][0] == "skipped because no time was left", pieces
        assert "| of steps |" in s.page() and "| of steps |" in s.archive()["steps.md"], s.page()


def is_killed(bundle):
    pids = bundle + "/pids"
    s = Slot(bundle, "right", "--only", "test rows,test gemm,test sample", HANGS="test_gemm", PIDS=pids)
    try:
        while "test gemm" not in s.pieces() or not os.path.exists(pids):
            time.sleep(0.05)
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
    finally:
        s.process.kill()
        with open(pids) as f:
            os.kill(int(f.read()), signal.SIGKILL)
    pieces = s.pieces()
    assert pieces == {"test rows": ("ran", "3 passed"), "test gemm": ("began, and the command ended first", "")}, pieces
    assert s.archive()["001-test-rows.log"].endswith("3 passed\n"), s.archive()


def is_misused(bundle):
    for command, words in ((["left"], "build, right, fast"), (["right", "--soon"], "unknown flag"), (["right", "--only"], "wants a value"),
                           (["right", "--only", "misspelt"], "no piece of right has one of the words")):  # fmt: skip
        s = subprocess.run([bundle + "/gpu_slot.sh", *command[:1], "--out", bundle + "/misused", *command[1:]], capture_output=True, text=True,
                           env={**os.environ, "PATH": os.path.dirname(bundle) + "/tools:" + os.environ["PATH"]})  # fmt: skip
        assert s.returncode == 2 and words in s.stderr and not os.path.exists(bundle + "/misused/right.md"), s
    s = subprocess.run([bundle + "/gpu_slot.sh", "right"], capture_output=True, text=True)
    assert s.returncode == 2 and "--out DIR is missing" in s.stderr, s


def emulated(tmp, build):
    """A bundle of BUILD, as it arrives elsewhere."""
    subprocess.run([ROOT + "/tests/gpu_slot.sh", "build", "--emulated", "--from", build, "--out", tmp], check=True)
    shutil.rmtree(tmp + "/bundle")
    subprocess.run(["tar", "-C", tmp, "-xf", tmp + "/quire-gpu.tar.xz"], check=True)
    failed = Slot(tmp + "/bundle", "right", "--only", "test rows", QUIRE_EMULATED_FAULT="1", COMPUTE_SANITIZER="true")
    launches = {part: tempfile.mkdtemp(dir=tmp) for part in ("round 1", "attention", "other", "steps")}
    parts = {part: Slot(tmp + "/bundle", "fast", "--only", part, PYTHON="false", QUIRE_EMULATED_LAUNCHES=launches[part])
             for part in launches}  # fmt: skip
    assert failed.end(1).pieces()["test rows"][0].startswith("**FAILED**"), failed.page()
    report, launched = {"kernels": [], "steps": []}, set()
    for part, s in parts.items():
        page, files = s.end(0).page(), s.archive()
        assert "these numbers mean nothing" in page
        new = json.loads(files["gemm-1.json" if part == "round 1" else part + ".json"])
        for kind in report:
            assert all(row["shape"] in page for row in new[kind]), page
            report[kind] += new[kind]
        with open(launches[part] + "/bench_cuda.bench_cuda", "r+") as f:  # whose program is stripped
            text = f.read().replace(tmp + "/bundle/bin", build + "/tests")
            f.seek(0), f.write(text), f.truncate()
        launched |= set(ptxas.launches(launches[part]))
    check_benchmark(report["kernels"], report["steps"], launched)
    return f"{len(report['kernels'])} kernels, {len(report['steps'])} steps"


def check_benchmark(kernels, steps, launched):
    """Every kernel that runs within a step has a row in the benchmark, and was launched for it."""
    for kernel in ("gemm", "gemm, wgmma", "gemm, sum", "gemm, SwiGLU", "gemm, logits", "dequantise", "unpack FP8", "quantise", "quantise, groups", "cuBLASLt", "bias, factor, sum",
                   "decode attention", "prefill attention", "prefill attention, wgmma", "general attention",
                   "general prefill attention", "sum of ranks", "gather of ranks", "parts of a stage's input", "local top-k", "sample", "embed", "norm",
                   "bias, RoPE, KV write", "copy of a page", "SwiGLU", "clear", "scatter of the upload", "route", "group of slots",
                   "gemm, experts", "sum of experts", "gate of attention", "norm, RoPE, write of latents", "latent attention",
                   "general latent attention", "convolution", "norms of recurrence", "recurrence",
                   "recurrence of a prompt", "gated norm"):
        assert any(k["kernel"] == kernel for k in kernels), kernel
    for weights in ("F32", "BF16", "F16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4", "FP8"):
        assert any(k["kernel"] == "gemm" and k["shape"].startswith(weights + " ") for k in kernels), weights

    def names(some):
        return {k.split("<")[0] for k in some}
    loads = {"pack_rows"}
    missing = names(ptxas.table()) - names(launched) - loads
    assert not missing, f"the benchmark launches no {missing}"
    assert len(kernels) > 50 and all(k["us"] > 0 and k["share"] > 0 for k in kernels), kernels
    assert len(steps) > 20 and all(s["ms"] > 0 for s in steps), steps
    for way in ("as served", "no overlap", "no graphs", "neither", "exact"):
        assert len([s for s in steps if s["shape"].endswith(": " + way)]) == 2, way
    for kind in ("prefill", "prefill, wgmma", "prefill, exact", "decode", "decode, wgmma"):
        assert any(s["step"] == kind for s in steps), kind


def main():
    with tempfile.TemporaryDirectory() as tmp:
        bundle = stand_ins(tmp)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            cases = [pool.submit(case, bundle) for case in (is_cut, passes, compares, lacks_torch, fails, is_killed, is_misused)]
            print(emulated(tempfile.mkdtemp(dir=tmp), os.path.abspath(sys.argv[1])))
            for case in cases:
                case.result()


if __name__ == "__main__":
    main()
