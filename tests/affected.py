#!/usr/bin/env python3
"""Which tests a change can reach, for `./dev test --since REV`.

usage: affected.py BUILD_DIR REV        BUILD_DIR is built; REV: what is compared with the work tree, as `git diff` names it
       affected.py --self-test

Prints three lines: `ctest` with names, `http` with files (`all`: every one), `kernels` with yes or no (the checks of machine code, of
planted bugs and of ARM64). A file reaches those that include its header or call its functions (layers.py knows these arrows),
and those that these reach. What cannot be followed so (a build file, a tool) reaches everything.
"""
import json
import pathlib
import re
import subprocess
import sys

import layers

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = {r.split("/")[0] for r in layers.ARROWS}
CHEAP = ["unit.build_id", "unit.cuda_calls", "unit.documents", "unit.layers", "unit.layers_planted", "unit.mutations_apply", "unit.purity",
         "unit.readme_grammar", "unit.readme_jinja", "unit.readme_json"]
MACHINE_CODE = ["emu.planted", "emu.ptxas", "emu.sass", "emu.launches", "emu.gpu_slot", "ops.amx_code", "cuda.module"]
LOADED = ("kernels/cuda/", "engine/ranks/mpi/")  # modules: who opens them names no symbol of theirs


def changed_files(rev):
    done = subprocess.run(["git", "-C", ROOT, "diff", "--name-only", rev], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"affected.py: {done.stderr.strip()}")
    untracked = subprocess.run(["git", "-C", ROOT, "ls-files", "--others", "--exclude-standard"], capture_output=True, text=True)
    return sorted(set(done.stdout.split() + untracked.stdout.split()))


def reached(changed, edges):
    """Units that know a changed one, directly or not."""
    users = {}
    for a, b in edges:
        users.setdefault(b, set()).add(a)
    seen, todo = set(), list(changed)
    while todo:
        unit = todo.pop()
        if unit not in seen:
            seen.add(unit)
            todo += users.get(unit, ())
    return seen


def everything(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True).stdout
    return re.findall(r"Test +#\d+: (\S+)", listed)


def select(files, edges, programs, names):
    """files: changed; edges: (unit, unit it knows); programs: name of a ctest -> units it knows; names: of all ctests."""
    sources = {f.rpartition(".")[0] for f in files if f.split("/")[0] in ROOMS and pathlib.PurePath(f).suffix in layers.SOURCES}
    of_tests = {f for f in files if f.startswith("tests/")}
    rest = {f for f in files if f.rpartition(".")[0] not in sources and f not in of_tests and not f.endswith((".md", ".svg", ".png"))}
    helpers = {f for f in of_tests if not re.match(r"tests/(\w+/test_[^/]*|docs/.*|page/.*|clients/.*|mutants/.*)$", f) and not f.endswith(".md")}
    if rest or helpers:
        return list(names), "all", True
    units = reached(sources, edges)
    chosen = [n for n in names if n in CHEAP or programs.get(n, set()) & units]
    chosen += [n for n in names if n not in chosen and any(f.endswith(f"/{n.partition('.')[2]}.c") for f in of_tests)]
    loaded = any(f.startswith(LOADED) for f in files)
    if loaded:
        chosen += [n for n in names if n not in chosen and n.startswith(("emu.", "mpi.", "cuda."))]
    kernels = any(f.startswith(("kernels/", "base/", "include/")) for f in files)
    chosen = [n for n in chosen if kernels or n not in MACHINE_CODE]
    if kernels:
        chosen += [n for n in names if n in MACHINE_CODE and n not in chosen]
    if "server/main" in units or loaded:
        return chosen, "all", kernels
    http = {pathlib.PurePath(f).name for f in of_tests if re.match(r"tests/http/test_\w+\.py$", f)}
    if any(u.startswith("bench/") for u in units):
        http |= {p.name for p in (ROOT / "tests/http").glob("test_bench*.py")}
    if any(f.endswith(".md") for f in files):
        http.add("test_documented.py")
    if "docs/deploy.md" in files:
        http.add("test_deploy.py")
    return chosen, " ".join(sorted(http)), kernels


def arrows(build):
    """The product's edges, and what each test program knows."""
    units = layers.read_sources(ROOT)
    edges = {(a, b) for a, b, _ in layers.includes(ROOT, units)}
    tests = {p.relative_to(ROOT).as_posix().rpartition(".")[0]: [p] for p in (ROOT / "tests").rglob("test_*.c*")}
    known = {(a, b) for a, b, _ in layers.includes(ROOT, tests)} | {(a, b) for a, b, _ in layers.calls(ROOT, build, units, tests)}
    edges |= {(a, b) for a, b in known if a in units}
    programs = {}
    for a, b in known:
        if a in tests:
            _, label, name = a.split("/")
            programs.setdefault(f"{label}.{name}", set()).add(b)
    return edges, programs


EDGES = {("server/main", "server/app"), ("server/app", "engine/a"), ("engine/a", "base/b"), ("bench/main", "base/b")}
PROGRAMS = {"unit.test_a": {"engine/a"}, "unit.test_b": {"base/b"}, "unit.test_bench_m": {"bench/main"}}
NAMES = ["unit.layers", "unit.test_a", "unit.test_b", "unit.test_bench_m", "emu.test_emu_gemm", "emu.planted"]
CASES = [  # changed files, programs, HTTP tests, kernels
    (["engine/a.c"], {"unit.layers", "unit.test_a"}, "all", False),
    (["base/b.h"], {"unit.layers", "unit.test_a", "unit.test_b", "unit.test_bench_m", "emu.planted"}, "all", True),
    (["bench/main.c"], {"unit.layers", "unit.test_bench_m"}, "test_bench.py test_bench_hostile.py", False),
    (["kernels/cuda/gemm.cu"], {"unit.layers", "emu.test_emu_gemm", "emu.planted"}, "all", True),
    (["tests/unit/test_b.c"], {"unit.layers", "unit.test_b"}, "", False),
    (["tests/http/test_chat.py"], {"unit.layers"}, "test_chat.py", False),
    (["docs/api.md"], {"unit.layers"}, "test_documented.py", False),
    (["tests/harness.h"], set(NAMES), "all", True),
    (["CMakeLists.txt"], set(NAMES), "all", True),
]


def self_test():
    failed = 0
    for files, programs, http, kernels in CASES:
        found = select(files, EDGES, PROGRAMS, NAMES)
        if (set(found[0]), *found[1:]) != (programs, http, kernels):
            print(f"{files}: found {found}")
            failed += 1
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return failed > 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    files = changed_files(sys.argv[2])
    chosen, http, kernels = select(files, *arrows(build), everything(build))
    print("ctest", " ".join(chosen))
    print("http", http)
    print("kernels", "yes" if kernels else "no")
    print(f"{len(files)} files reach {len(chosen)} programs; HTTP tests: {http or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
