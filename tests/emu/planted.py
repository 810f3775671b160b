#!/usr/bin/env python3
"""Plants bugs in the CUDA backend, one at a time, and demands that a test on the emulator finds each.

    planted.py BUILD [part of a bug's name ...]

Without a name every third, with QUIRE_SLOW=1 all. These are rows of tests/mutate.py, but quick: of each, the one source is
compiled, at -O0, and linked with what the build has of everything else, and the one case of a test runs that should notice.
Nothing but BUILD/tests/planted is written: there lie copies of kernels/cuda, of which one file at a time is wrong. First the
same is done without a bug, and must pass.
"""
import os
import shlex
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.dont_write_bytecode = True  # nor there
import mutate  # noqa: E402: its rows

LEAST = 20  # bugs; all must be found
TIMEOUT = 60  # seconds of one case; the slowest needs 3

# Source that is compiled, the bug (as mutate.py --list calls it), the case that finds it.
PLANTED = [
    ("attn_decode.cu", "large groups: a wait that is too weak", "test_decode"),
    ("attn_decode.cu", "scores are read before other lanes have written them", "test_decode"),
    ("attn_decode.cu", "a stage is written while others read it", "test_decode"),
    ("attn_decode.cu", "combining warps writes over a ring in use", "test_decode"),
    ("attn_decode.cu", "NaN of slots that are not the sequence's", "test_decode"),
    ("attn_decode.cu", "one token too many", "test_decode"),
    ("attn_decode.cu", "a warp takes the pages of another", "test_decode"),
    ("attn_decode.cu", "half of a row is left out", "test_decode"),
    ("attn_decode.cu", "too little shared memory", "test_decode"),
    ("attn_decode.cu", "split-KV partials are not rescaled", "test_decode"),
    ("attn_decode.cu", "the first split to arrive combines what the others have not left", "test_decode"),
    ("attn_decode.cu", "splits that have arrived are counted on in the next launch", "test_decode"),
    ("attn_decode.cu", "whether a split is the last is read before it is known", "test_decode"),
    ("attn_decode.cu", "int8: the scale of another token", "test_decode"),
    ("attn_prefill.cu", "prefill: copies of other threads are not waited for", "test_prefill"),
    ("attn_prefill.cu", "prefill: a stage is written while others read it", "test_prefill"),
    ("attn_prefill.cu", "a barrier that some do not reach", "test_prefill"),
    ("attn_prefill.cu", "values are not transposed", "test_prefill"),
    ("attn_prefill.cu", "a row sees the token after it", "test_prefill"),
    ("attn_prefill.cu", "a window one token too wide", "test_prefill"),
    ("attn_latent.cu", "latent: probabilities are read before they are there", "test_fast"),
    ("attn_latent.cu", "latent: a stage is written while others read it", "test_fast"),
    ("attn_latent.cu", "latent: NaN of slots that are not the sequence's", "test_fast"),
    ("attn_wgmma.cu", "wgmma: the next keys are not fenced", "test_wide_prefill"),
    ("attn_wgmma.cu", "wgmma: no swizzle", "test_wide_prefill"),
    ("attn_wgmma.cu", "wgmma: scores are read before they are there", "test_wide_prefill"),
    ("attn_wgmma.cu", "wgmma: outputs are rescaled while they are added to", "test_wide_prefill"),
    ("attn_wgmma.cu", "wgmma: a stage is written while others read it", "test_wide_prefill"),
    ("attn_wgmma.cu", "wgmma: outputs are not rescaled", "test_wide_prefill"),
    ("gemm.cu", "segments are added before they are there", "test_shapes"),
    ("gemm.cu", "x is read before the kernel before has written it", "test_shapes"),
    ("gemm.cu", "the ring holds the wrong step", "test_shapes"),
    ("gemm.cu", "the ring is read before its copies land", "test_shapes"),
    ("gemm.cu", "scales that other lanes copy are not waited for", "test_shapes"),
    ("gemm.cu", "sums are written over a ring in use", "test_shapes"),
    ("gemm.cu", "the ring overwrites the step that is multiplied", "test_shapes"),
    ("gemm.cu", "factors of other rows", "test_shapes"),
    ("gemm.cu", "the last steps are left out", "test_shapes"),
    ("gemm.cu", "scales of Q6_K without a sign", "test_dequant"),
    ("gemm.cu", "a NaN among logits is lost", "test_logits"),
    ("gemm.cu", "a segment twice, another never", "test_shapes"),
    ("gemm_staged.cu", "staged: a step is read before its copies land", "test_shapes"),
    ("gemm_staged.cu", "staged: copies of other warps are not waited for", "test_shapes"),
    ("gemm_staged.cu", "staged: the step that is multiplied is overwritten", "test_shapes"),
    ("gemm_staged.cu", "staged: x is read before the kernel before has written it", "test_shapes"),
    ("gemm_staged.cu", "staged: weights of one step, tokens of another", "test_shapes"),
    ("gemm_staged.cu", "staged: only the first segment is copied", "test_shapes"),
    ("gemm_staged.cu", "staged: two levels of the tree in one place", "test_shapes"),
    ("gemm_staged.cu", "staged: the right leaf is lost", "test_shapes"),
    ("gemm_staged.cu", "staged: sums are written over a ring in use", "test_shapes"),
    ("gemm_staged.cu", "staged: sums are read before other lanes have written them", "test_shapes"),
    ("gemm_staged.cu", "staged: maxima of tiles that are not there", "test_logits"),
    ("gemm_staged.cu", "staged: half of another token", "test_shapes"),
    ("gemm_staged.cu", "staged: the first block adds what the others have not left", "test_shapes"),
    ("gemm_staged.cu", "staged: whether a block is the last is read before it is known", "test_shapes"),
    ("gemm_staged.cu", "staged: parts in another order", "test_batch_invariance"),
    ("gemm_staged.cu", "staged: too little shared memory", "test_shapes"),
    ("phases.c", "a kernel is loaded while a graph is captured", "test_60_gb"),
    ("emu/rt_emu.cpp", "a kernel may have the shared memory of its first launch", "test_shared_memory"),
    ("gemm_wgmma.cu", "gemm of wgmma: copies are not fenced", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: a step is read before its copies land", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: copies of other warps are not waited for", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: the step before is overwritten", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: no swizzle", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: x is read before the kernel before has written it", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: both warpgroups have the first's rows", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: the second 128 rows are the first", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: a segment goes on with the sums of the one before", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: rows of another length", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: weights that are not its own", "test_wgmma"),
    ("gemm_wgmma.cu", "gemm of wgmma: sums are read before they are there", "test_wgmma"),
    ("experts.cu", "experts: of equal scores the higher id", "test_route"),
    ("experts.cu", "experts: a group is as good as its best", "test_route"),
    ("experts.cu", "experts: rows that are nobody's take some", "test_route"),
    ("experts.cu", "experts: groups begin where others have counted", "test_groups"),
    ("experts.cu", "experts: groups that are not full have no block", "test_gemm"),
    ("experts.cu", "experts: the shared one without its gate", "test_steps"),
    ("experts.cu", "ranks' experts: their places in the whole model", "test_groups"),
    ("experts.cu", "slots of others' experts", "test_groups"),
    ("gemm.cu", "W8A8: weights in the order of fragments", "test_w8a8"),
    ("gemm.cu", "W8A8: scales of other rows", "test_w8a8"),
    ("multiply.c", "W8A8: the rows before are quantised", "test_w8a8"),
    ("weight.c", "W8A8: a row has the scale of its first columns", "test_w8a8"),
    ("weight.c", "W8A8: 128 rows have the scales of the first", "test_w8a8"),
    ("multiply.c", "W8A8: rows behind the step's most are written", "test_w8a8"),
    ("gemm.cu", "W8A8: scales of blocks side by side", "test_w8a8_groups"),
    ("gemm.cu", "W8A8: scales of groups row by row", "test_w8a8_groups"),
    ("rows.cu", "W8A8: scales of activations row by row", "test_w8a8_groups"),
    ("rows.cu", "W8A8: two rows have the scale of one", "test_w8a8_groups"),
    ("multiply.c", "W8A8: scales of activations without their padding", "test_w8a8"),
    ("rows.cu", "W8A8: a factor that is infinite", "test_w8a8"),
    ("rows.cu", "bf16 sums: neighbours change places", "test_activations"),
    ("multiply.c", "bf16 sums: rows lie apart", "test_w8a8"),
    ("multiply.c", "bf16 sums: rows of q, k and v side by side", "test_w8a8"),
    ("qkv.cu", "bf16 sums: the first rows of q, k and v", "test_qkv"),
    ("rows.cu", "W8A8: weights without their scales", "test_finish"),
    ("rows.cu", "bf16 sums: rows to be finished lie apart", "test_finish"),
    ("gemm.cu", "experts: groups are read before they are made", "test_gemm"),
    ("gemm.cu", "experts: the weights of the first", "test_gemm"),
    ("gemm_staged.cu", "experts: staged, the weights of the first", "test_gemm"),
    ("gemm_staged.cu", "experts: staged groups are read before they are made", "test_gemm"),
    ("mix.cu", "recurrent: rows are read before their copies land", "test_layers"),
    ("mix.cu", "recurrent: copies of other warps are not waited for", "test_layers"),
    ("mix.cu", "recurrent: rows that are read are overwritten", "test_layers"),
    ("pack.cu", "nibbles in the order of the file", "test_dequant"),
    ("pack.cu", "half of a long part of an upload", "test_scatter"),
    ("rows.cu", "a GEMM of cuBLASLt writes past its columns", "test_finish"),
    ("qkv.cu", "a head is rotated before it is whole", "test_qkv"),
    ("qkv.cu", "padding is written somewhere", "test_qkv"),
    ("qkv.cu", "keys take the weights of other heads", "test_qkv"),
    ("qkv.cu", "a norm without weights subtracts the mean", "test_qkv"),
    ("rows.cu", "a bias behind the row counts as its largest", "test_norm"),
    ("phases.c", "parallel blocks take what attention has added", "test_parallel_blocks"),
    ("gemm.cu", "logits without their cap", "test_logits"),
    ("qkv.cu", "int8: vectors too small for a scale", "test_int8"),
    ("qkv.cu", "int8: a NaN that lane 0 does not see", "test_int8"),
    ("test_emu_intrinsics.cu", "fp8: large numbers wrap around", "test_e4m3"),
    ("ranks.cu", "parts are added before they are there", "test_sum"),
    ("ranks.cu", "a part is written while others read it", "test_sum"),
    ("ranks.cu", "another tree", "test_sum"),
    ("ranks.cu", "two shots: slices are read before they are there", "test_sum"),
    ("ranks.cu", "two shots: who has no sums says that they are there", "test_stop"),
    ("ranks.cu", "a block that has failed says in its next launch that it has come", "test_stop"),
    ("ranks.cu", "two shots: others keep what they had of a slice", "test_sum"),
    ("ranks.cu", "two shots: nobody adds the end", "test_sum"),
    ("ranks.cu", "two shots: the first four slices", "test_sum"),
    ("ranks.cu", "a bias on one rank alone", "test_sum"),
    ("ranks.cu", "the first rank's slices from all", "test_gather"),
    ("sample.cu", "a slice that is not finite is sampled from", "test_topk"),
    ("sample.cu", "a token behind the last of a local top-k", "test_topk"),
    ("sample.cu", "-0 below +0", "test_batches"),
    ("sample.cu", "the digit of another thread is read before it is written", "test_topk"),
    ("sample.cu", "entries of one token in any order", "test_topk"),
    ("sample.cu", "a row that holds NaN is sampled from", "test_topk"),
]


class Build:
    """Programs of a build folder, made again with other sources."""

    def __init__(self, folder, ninja):
        self.folder, self.work = os.path.abspath(folder), os.path.join(os.path.abspath(folder), "tests", "planted")
        self.ninja, self.commands = ninja, {}
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, "kernels", "cuda"), os.path.join(self.work, "cuda"))

    def run(self, command, **more):
        return subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", check=False, **more)

    def command(self, test, part):
        """The build's own command for a test that has `part` in it, as words."""
        if test not in self.commands:
            listed = self.run([self.ninja, "-t", "commands", f"tests/{test}"])
            if listed.returncode != 0:
                sys.exit(listed.stdout)
            self.commands[test] = [shlex.split(line) for line in listed.stdout.splitlines()]
        found = [c for c in self.commands[test] if part in c]
        if len(found) != 1:
            sys.exit(f"{len(found)} commands with {part} for {test}")
        return found[0]

    def compile(self, test, source, path, name):
        """The object of `path`, compiled as the build compiles `source`."""
        words = self.command(test, source)
        for flag in ("-MT", "-MF", "-o", "-c"):
            at = words.index(flag)
            words = words[:at] + words[at + 2:]
        words = [w for w in words if w not in ("-MD", "-Werror", "-O3")]
        at = next(i for i, w in enumerate(words) if w.startswith("-I"))
        out = os.path.join(self.work, name.replace("/", "-") + ".o")
        words[at:at] = ["-I" + os.path.join(self.work, "cuda")]
        made = self.run(words + ["-O0", "-w", "-UQUIRE_HAVE_CMOCKA", "-c", path, "-o", out])
        if made.returncode != 0:
            sys.exit(f"{name} does not compile:\n{made.stdout[-3000:]}")
        return out

    def kernel(self, test, file, name):
        """The object of a file of the copies; a test's own source has no copy, but takes its headers from them."""
        if file.startswith("test_"):
            source = os.path.join(ROOT, "tests", "emu", file)
            return self.compile(test, source, source, name)
        return self.compile(test, os.path.join(ROOT, "kernels", "cuda", file), os.path.join(self.work, "cuda", file), name)

    def link(self, test, objects, name):
        words = self.command(test, f"tests/{test}")
        words = words[words.index("&&") + 1:]
        words = words[:words.index("&&")]
        words[words.index("-o") + 1] = program = os.path.join(self.work, name)
        mine = next(i for i, w in enumerate(words) if w.startswith(f"tests/CMakeFiles/{test}.dir/"))
        words[mine:mine + 1] = objects
        made = self.run(words)
        if made.returncode != 0:
            sys.exit(f"{name} does not link:\n{made.stdout[-3000:]}")
        return program

    def passes(self, program, case):
        """Whether the case passes, None if it hung, and what was printed."""
        env = {**os.environ, "QUIRE_RUN": case}
        env.pop("QUIRE_EMULATED_LAUNCHES", None)
        env.setdefault("QUIRE_TEST_DATA", os.path.join(ROOT, "..", "shared", "data"))
        try:
            ran = self.run([program], env=env, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return None, f"nothing after {TIMEOUT} s"
        return ran.returncode == 0, ran.stdout


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build, words = Build(sys.argv[1], os.environ.get("NINJA", "ninja")), sys.argv[2:]
    by_name = {}
    for row, bug in zip(mutate.MUTATIONS, mutate.bugs()):
        by_name.setdefault(bug, []).append(row)
    for bug, rows in by_name.items():
        if len(rows) > 1:  # a name that other parts of the project use, too
            by_name[bug] = [row for row in rows if row[0].startswith("kernels/cuda/")]
    chosen = [(source, bug, case, by_name.get(bug, [])) for source, bug, case in PLANTED]
    for source, bug, case, rows in chosen:
        if len(rows) != 1:
            sys.exit(f"{len(rows)} rows of tests/mutate.py are called '{bug}'")
    if len({bug for _, bug, _, _ in chosen}) < LEAST:
        sys.exit(f"fewer than {LEAST} bugs")
    chosen = [c for c in chosen if any(w in c[1] for w in words)] if words else chosen[:: 1 if os.environ.get("QUIRE_SLOW") else 3]
    own = {}  # object of each test
    for test in sorted({c[3][0][3] for c in chosen}):
        mine = [c for c in chosen if c[3][0][3] == test]
        source = next(w for w in build.command(test, f"tests/{test}") if w.startswith(f"tests/CMakeFiles/{test}.dir/"))
        own[test] = build.kernel(test, os.path.basename(source)[:-2], test)
        objects = [own[test]] + [build.kernel(test, s, f"sound-{s}") for s in sorted({c[0] for c in mine})
                                 if not s.startswith("test_")]
        program = build.link(test, objects, test)
        for case in sorted({c[2] for c in mine}):
            ok, printed = build.passes(program, case)
            if not ok:
                sys.exit(f"{test} fails without a bug, in {case}:\n{printed[-3000:]}")
    survived = 0
    for source, bug, case, [(file, old, new, test)] in chosen:
        start, copy = time.monotonic(), os.path.join(build.work, os.path.relpath(file, "kernels"))
        text = mutate.read(file)
        if text.count(old) != 1:
            sys.exit(f"{file}: found {text.count(old)} times: {old!r}")
        with open(copy, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        wrong = build.kernel(test, source, "wrong")
        program = build.link(test, [wrong] if source.startswith("test_") else [own[test], wrong], "wrong")
        with open(copy, "w", encoding="utf-8") as f:
            f.write(text)
        ok, _ = build.passes(program, case)
        survived += ok is not False
        print(f"{'HUNG' if ok is None else 'SURVIVED' if ok else 'found':9} {time.monotonic() - start:5.1f} s  {test} {case}: {file}: {bug}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} bugs found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
