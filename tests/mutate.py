#!/usr/bin/env python3
"""Breaks the code on purpose, one place at a time, and expects a test to notice.

A test that no mutation kills is decoration. Each row of MUTATIONS is one mutant:

    (file, exact old text, new text, test program that must fail[, how])

how: "hangs", or for emu/planted.py the case of the test that finds it, and the source to compile where that is not the file. In place
of a program may stand a file of tests/http; how is then what pytest's -k takes.

The old text must stand in the file exactly once. To cover a new module, append rows in tests/mutants, each with a comment
behind it that names the bug, and run `tests/mutate.py [part of a file or test name ...]`; `--list [part ...]` prints the rows, and `--check`
says whether every old text stands where it should. A mutant that does not compile is an error of its row; so is a
test that is killed after a timeout, but where the row says "hangs": there it is what must happen, or a failure.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from mutants import cuda, files, grammar, models, schema, scheduling, server

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMEOUT = 200  # seconds a test may run; the slowest sound one, test_ops, needs 35 on a quiet core
FAILED = re.compile(r"\[ +FAILED +\] test_")
SIM_REQUESTS = "200000"
TABLES = (scheduling, files, models, cuda, server, grammar, schema)
MUTATIONS = [row[:4] for table in TABLES for row in table.ROWS]
HOW = [(row + ("",))[4] for table in TABLES for row in table.ROWS]


def run(cmd, cwd, timeout, until=None, more={}):
    """(exit status or None when it hung, output); it is killed at the first line that `until` matches"""
    env = dict(os.environ, QUIRE_SIM_REQUESTS=SIM_REQUESTS, **more)
    env.setdefault("QUIRE_TEST_DATA", os.path.join(ROOT, "..", "shared", "data"))  # the copy has none beside it
    env.pop("QUIRE_SIM_SEED", None)
    p = subprocess.Popen(cmd, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace")
    hung = threading.Event()
    timer = threading.Timer(timeout, lambda: (hung.set(), p.kill()))
    timer.start()
    out = []
    with p.stdout:
        for line in p.stdout:
            out.append(line)
            if until and until.match(line):
                p.kill()
                break
    status = p.wait()
    timer.cancel()
    return (None, "") if hung.is_set() else (status, "".join(out))


def make(build, tree, test, timeout):
    """As run() returns it."""
    targets = ["quire", "quire-cuda-emulated", "quire-mpi", "fault-backend", "golden_models"] if test.endswith(".py") else [test]
    return run(["ninja", "-C", build, *targets], tree, timeout)


def ask(build, tree, test, how):
    """As run() returns it; the first test that fails is enough."""
    if not test.endswith(".py"):
        return run([find_program(build, test)], tree, TIMEOUT, FAILED)
    python = os.path.join(ROOT, ".venv", "bin", "python")
    return run([python, "-m", "pytest", "-q", "-x", "-rs", test, "-k", how], os.path.join(tree, "tests", "http"), TIMEOUT,
               more={"QUIRE_BINARY": os.path.join(build, "quire")})


def try_mutant(tree, build, row, how):
    """'caught', 'SURVIVED', or what is wrong with the row"""
    path, old, new, test = row
    name = os.path.join(tree, path)
    with open(name, encoding="utf-8") as f:
        text = f.read()
    if text.count(old) != 1:
        return f"ERROR: old text found {text.count(old)} times"
    try:
        with open(name, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        status, out = make(build, tree, test, 600)
        if status != 0:
            print(out[-2000:], file=sys.stderr)
            return "ERROR: does not compile"
        status, _ = ask(build, tree, test, how)
        if status is None:
            return "caught (hung)" if how == "hangs" else "ERROR: hung"
        return "SURVIVED" if status == 0 else "caught"
    finally:
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)


def find_program(build, test):
    for folder, _, files in os.walk(build):
        if test in files and os.access(os.path.join(folder, test), os.X_OK):
            return os.path.join(folder, test)
    sys.exit(f"no program {test} under {build}")


def bugs():
    """The name of each row's bug: the comment behind it."""
    notes = []
    for table in TABLES:
        with open(table.__file__, encoding="utf-8") as f:
            notes += re.findall(r'"test_\w+(?:\.py)?"(?:, "[\w ./]+")?\),\s+# (.*)$', f.read(), re.MULTILINE)
    if len(notes) != len(MUTATIONS):
        sys.exit(f"{len(MUTATIONS)} rows, {len(notes)} comments behind them")
    return notes


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def chosen(words):
    return [i for i, row in enumerate(MUTATIONS) if not words or any(w in row[0] or w in row[3] for w in words)]


def print_list(words):
    """Files as headings; below each the test that must fail, and the bug."""
    notes, last = bugs(), None
    for i in chosen(words):
        path, test = MUTATIONS[i][0], MUTATIONS[i][3]
        if path != last:
            print(("\n" if last else "") + path)
        print(f"  {test:20} {notes[i]}")
        last = path
    print(f"\n{len(chosen(words))} of {len(MUTATIONS)} mutations")


def check():
    """Rows rot where the code changes: exit status 1 and a line for each that no longer says anything."""
    bad = [f"{path}: found {read(path).count(old)} times: {old!r}" for path, old, _, _ in MUTATIONS if read(path).count(old) != 1]
    bugs()
    marks = run(["git", "grep", "-nE", "^(<{7}|>{7}) "], ROOT, 60)  # left by a merge
    bad += marks[1].splitlines() if marks[0] == 0 else []
    print("\n".join(bad) or f"{len(MUTATIONS)} rows apply")
    return 1 if bad else 0


def main():
    if sys.argv[1:2] == ["--list"]:
        print_list(sys.argv[2:])
        return 0
    if sys.argv[1:] == ["--check"]:
        return check()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    words = sys.argv[1:]
    rows, hows = [MUTATIONS[i] for i in chosen(words)], [HOW[i] for i in chosen(words)]
    # the last three read the golden models, which CMake makes with the server alone
    needs_server = any(r[3].startswith(("test_json_", "test_server_", "test_ranks", "test_logits", "test_mtp")) or r[3].endswith(".py") for r in rows)
    os.environ.setdefault("QUIRE_TEST_DATA", os.path.join(os.path.dirname(root), "shared", "data"))
    if not os.path.isdir(os.environ["QUIRE_TEST_DATA"]):
        print(f"no test data at {os.environ['QUIRE_TEST_DATA']}: mutants survive whose tests need it", file=sys.stderr)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quire-mutate-") as tmp:
        tree, build = os.path.join(tmp, "tree"), os.path.join(tmp, "build")
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".git", "build", "build-*"))
        status, out = run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DQUIRE_CUDA=OFF",
                           "-DQUIRE_SERVER=" + ("ON" if needs_server else "OFF")], tree, 300)
        if status != 0:
            sys.exit(out)
        if any(r[3].startswith("test_json_") for r in rows):  # without these they leave cases out
            run(["ctest", "--test-dir", build, "-R", "^unit.convert_"], tree, 900)
            os.environ["QUIRE_VOCABULARIES"] = os.path.join(build, "tests")
        sound = sorted({(r[3], how if r[3].endswith(".py") else "") for r, how in zip(rows, hows)})
        for test, how in sound:  # these pass, or nothing below means anything
            status, out = make(build, tree, test, 900)
            if status == 0:
                status, out = ask(build, tree, test, how)
            if status != 0 or (test.endswith(".py") and "SKIPPED" in out):
                print(out)
                print(f"{test} fails without a mutation")
                print(f"0 passed, {len(rows)} failed")
                return 1
        for row, how in zip(rows, hows):
            result = try_mutant(tree, build, row, how)
            failed += not result.startswith("caught")
            print(f"{result:14} {row[3]:18} {row[0]:26} {' '.join(row[1].split())[:70]}", flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
