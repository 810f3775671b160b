#!/usr/bin/env python3
"""Plants bugs in the CUDA backend, one at a time, and demands that a test on the emulator finds each.

    planted.py BUILD [part of a bug's name ...]

Without a name all. These are the rows of tests/mutate.py that name a case, but quick: of each, the one source is
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
    chosen = []  # source that is compiled, bug, case that finds it, row
    for row, how, bug in zip(mutate.MUTATIONS, mutate.HOW, mutate.bugs()):
        if how.startswith("test_"):
            case, _, source = how.partition(" ")
            chosen.append((source or os.path.basename(row[0]), bug, case, row))
    if len(chosen) < LEAST:
        sys.exit(f"fewer than {LEAST} bugs")
    chosen = [c for c in chosen if not words or any(w in c[1] for w in words)]
    own = {}  # object of each test
    for test in sorted({c[3][3] for c in chosen}):
        mine = [c for c in chosen if c[3][3] == test]
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
    for source, bug, case, (file, old, new, test) in chosen:
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
