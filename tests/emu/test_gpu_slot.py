#!/usr/bin/env python3
"""usage: test_gpu_slot.py BUILD. What tests/gpu_slot.sh makes of programs that pass, fail, hang or are killed: stand-ins in a
bundle that takes the machine for one with a GPU, all at the same time. With QUIRE_SLOW=1 also a bundle of BUILD, on the emulator:
it unpacks and runs, and the benchmark has every part.
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
sys.dont_write_bytecode = True

# Every program of the bundle, Python, nvidia-smi, ldd, compute-sanitizer (whose arguments are --tool TOOL --error-exitcode CODE
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
ldd) exit ;;
quire) echo "Once upon a time $(case " $DIFFERS " in *" words "*) echo $* ;; esac)"; exit ;;
compute-sanitizer) of=$2:${5##*/} code=$4 ;;
bench_cuda) echo "| of $3 |" >"$1.md"; echo "{}" >"$1.json" ;;
esac
echo "$name $*"
case " $FAILS " in *" ${of:-$name} "*) echo "a number is wrong"; echo "[ FAILED ] test_it"; echo "2 passed"; exit ${code:-1} ;; esac
case " $SKIPS " in *" $name "*) echo "there is only one"; exit 77 ;; esac
case " $KILLED " in *" $name "*) kill -9 $$ ;; esac
case " $DEAF " in *" $name "*) trap '' TERM ;; esac
case " $DEAF $HANGS " in *" $name "*) echo $$ >"${PIDS:-/dev/null}"; echo "it began"; while :; do sleep 0.1; done ;; esac
echo "3 passed"
"""
TESTS = ["intrinsics", "rows", "gemm", "experts", "attention", "sample", "forward", "lora", "steps", "peers", "processes", "model", "real_shapes"]


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
        """The outcome of each piece, with its last words."""
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in self.page().splitlines() if line.startswith("| ")]
        return {row[0]: (row[1], row[3]) for row in rows if len(row) == 4 and row[0] != "piece"}

    def archive(self):
        with tarfile.open(f"{self.out}/{self.name}.tar.gz") as t:
            return {os.path.basename(m.name): t.extractfile(m).read().decode() for m in t if m.isfile()}


def stand_ins(tmp):
    bundle, tools = tmp + "/bundle", tmp + "/tools"
    paths = [f"{bundle}/bin/{name}" for name in ["bench_cuda", "quire"] + ["test_" + t for t in TESTS]]
    paths += [f"{tools}/{name}" for name in ("python", "nvidia-smi", "ldd", "compute-sanitizer", "ncu")]
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
    s = Slot(bundle, "one", SKIPS="test_peers").end(0)
    pieces = s.pieces()
    assert pieces["test gemm"] == pieces["real shapes 8b"] == pieces["GEMM of PyTorch"] == ("ran", "3 passed"), pieces
    assert pieces["words"] == ("ran", "the same 60 tokens on both") and pieces["environment"] == ("ran", "0 libraries missing"), pieces
    assert pieces["test peers"][0] == "skipped because there is only one", pieces
    assert pieces["two processes on one device"][0] == pieces["clients"][0] == "ran", pieces
    assert len([p for p in pieces if p.startswith("test ")]) == len(TESTS) - 2, pieces
    assert "# one: NVIDIA Stand-in" in s.page() and "SM 1980 to 1980 MHz, median 1980; at most 412.5 W" in s.page(), s.page()
    assert "| of brief |" in s.said and "| test gemm | ran |" in s.said, s.said  # a reply is all that some see
    assert "--waves 1" in "".join(s.archive().values())


def asks(bundle):
    """Command `two`, with every word."""
    words = "ncu torch wgmma rest shapes graphs faults memcheck-forward racecheck-gemm synccheck-rows"
    s = Slot(bundle, "two", WHAT=words, FAILS="racecheck:test_gemm").end(1)
    pieces = s.pieces()
    assert pieces["racecheck-gemm"] == ("**FAILED** (exit code 9)", "a number is wrong [ FAILED ] test_it"), pieces
    others = ["ncu", "steps of PyTorch", "real shapes 8b, wgmma", "steps, wgmma", "rest of test forward", "real shapes half_b", "test steps, no graphs",
              "test forward, no overlap", "device that fails", "too little memory", "memcheck-forward", "synccheck-rows"]  # fmt: skip
    assert all(pieces[name] == ("ran", "3 passed") for name in others), pieces
    assert "--tool synccheck" in "".join(s.archive().values())
    assert set(Slot(bundle, "two").end(0).pieces()) == {"ncu", "steps of PyTorch"}


def lacks_torch(bundle):
    pieces = Slot(bundle, "two", FAILS="python").end(0).pieces()
    assert pieces["ncu"][0] == "ran" and "has no torch" in pieces["steps of PyTorch"][0] and len(pieces) == 2, pieces


def fails(bundle):
    """A test and a benchmark, whatever follows them; one that something else kills; other words."""
    s = Slot(bundle, "one", "--only", "test rows,test gemm,words,steps,attention", FAILS="test_rows bench_cuda", KILLED="test_gemm", DIFFERS="words").end(1)
    pieces = s.pieces()
    assert pieces["test rows"] == ("**FAILED** (exit code 1)", "a number is wrong [ FAILED ] test_it"), pieces
    assert pieces["test gemm"][0] == "**FAILED** (killed)" and pieces["test attention"][0] == "ran", pieces
    assert pieces["steps"][0] == pieces["words"][0] == "**FAILED** (exit code 1)", pieces


def is_cut(bundle):
    """A piece that is cut keeps its measurements; one that does not begin is no success. Also if it ignores SIGTERM."""
    cut, deaf = (Slot(bundle, "one", "--only", "real,steps,clients", "--seconds", "9", **{how: "bench_cuda"}) for how in ("HANGS", "DEAF"))
    for s in cut, deaf:
        pieces = s.end(3).pieces()
        assert re.fullmatch(r"\*\*cut at \d+ s\*\*", pieces["steps"][0]) and pieces["steps"][1] == "it began", pieces
        assert pieces["clients"][0] == "skipped because no time was left" and pieces["real shapes 8b"][0] == "ran", pieces
        assert "| of brief |" in s.page() and "| of brief |" in s.archive()["1-steps.md"], s.page()


def is_killed(bundle):
    pids = bundle + "/pids"
    s = Slot(bundle, "one", "--only", "intrinsics,steps,clients", HANGS="bench_cuda", PIDS=pids)
    try:
        while "steps" not in s.pieces() or not os.path.exists(pids):
            time.sleep(0.05)
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
    finally:
        s.process.kill()
        with open(pids) as f:
            os.kill(int(f.read()), signal.SIGKILL)
    pieces = s.pieces()
    assert pieces["test intrinsics"] == ("ran", "3 passed") and pieces["steps"] == ("began, and the command ended first", ""), pieces
    assert s.archive()["001-test-intrinsics.log"].endswith("3 passed\n"), s.archive()


def is_misused(bundle):
    for command, words in ((["left"], "build, one, two"), (["one", "--soon"], "unknown flag"), (["one", "--only"], "wants a value"),
                           (["one", "--only", "misspelt"], "no piece of one has one of the words")):  # fmt: skip
        s = subprocess.run([bundle + "/gpu_slot.sh", *command[:1], "--out", bundle + "/misused", *command[1:]], capture_output=True, text=True,
                           env={**os.environ, "PATH": os.path.dirname(bundle) + "/tools:" + os.environ["PATH"]})  # fmt: skip
        assert s.returncode == 2 and words in s.stderr and not os.path.exists(bundle + "/misused/one.md"), s
    s = subprocess.run([bundle + "/gpu_slot.sh", "one"], capture_output=True, text=True)
    assert s.returncode == 2 and "--out DIR is missing" in s.stderr, s
    assert "there is no 'misspelt'" in Slot(bundle, "two", WHAT="misspelt").end(2).said


def emulated(tmp, build):
    """A bundle of BUILD, as it arrives elsewhere; its benchmark by parts, which is more than `one` runs."""
    subprocess.run([ROOT + "/tests/gpu_slot.sh", "build", "--emulated", "--from", build, "--out", tmp], check=True)
    assert os.listdir(tmp) == ["quire-gpu.tar.xz"], os.listdir(tmp)  # all of it is carried
    subprocess.run(["tar", "-C", tmp, "-xf", tmp + "/quire-gpu.tar.xz"], check=True)
    bundle, report, parts = tmp + "/bundle", {"kernels": [], "steps": []}, {}
    failed = Slot(bundle, "one", "--only", "test rows", QUIRE_EMULATED_FAULT="1", PYTHON="false")
    brief = Slot(bundle, "one", "--only", "steps,two processes", PYTHON="false")
    for part in ("gemm", "attention", "sampling", "steps"):
        folder = tempfile.mkdtemp(dir=tmp)
        parts[folder] = subprocess.Popen([bundle + "/bin/bench_cuda", folder + "/report", "--tiny", "--only", part], cwd=bundle)
    pieces = failed.end(1).pieces()
    assert pieces["test rows"][0].startswith("**FAILED**") and "it was asked to fail" in pieces["test rows"][1], pieces
    assert {piece[0] for piece in brief.end(0).pieces().values()} == {"ran"} and "these numbers mean nothing" in brief.page(), brief.page()
    assert len(json.loads(brief.archive()["1-steps.json"])["steps"]) == 9, brief.page()
    for folder, process in parts.items():
        assert process.wait() == 0, folder
        with open(folder + "/report.md") as page, open(folder + "/report.json") as report_json:
            page, new = page.read(), json.load(report_json)
        for kind in report:
            assert all(row["shape"] in page for row in new[kind]), page
            report[kind] += new[kind]
    check_benchmark(report["kernels"], report["steps"])
    return f"{len(report['kernels'])} kernels, {len(report['steps'])} steps"


def check_benchmark(kernels, steps):
    """The benchmark has each kind of kernel, of weights and of steps."""
    for kernel in ("gemm", "gemm, wgmma", "gemm, sum", "gemm, SwiGLU", "gemm, logits", "dequantise", "unpack FP8", "quantise", "quantise, groups", "cuBLASLt", "bias, factor, sum",
                   "decode attention", "prefill attention", "prefill attention, wgmma", "general attention",
                   "general prefill attention", "sample"):
        assert any(k["kernel"] == kernel for k in kernels), kernel
    for weights in ("F32", "BF16", "F16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4", "FP8"):
        assert any(k["kernel"] == "gemm" and k["shape"].startswith(weights + " ") for k in kernels), weights
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
            cases = [pool.submit(case, bundle) for case in (is_cut, passes, asks, lacks_torch, fails, is_killed, is_misused)]
            if os.environ.get("QUIRE_SLOW"):
                print(emulated(tempfile.mkdtemp(dir=tmp), os.path.abspath(sys.argv[1])))
            for case in cases:
                case.result()


if __name__ == "__main__":
    main()
