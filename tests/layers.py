#!/usr/bin/env python3
"""Which file may know which: checks #include lines, symbols of objects, and cycles of files.

usage: layers.py SOURCE_DIR [BUILD_DIR]     BUILD_DIR has compile_commands.json; without it only includes are checked
       layers.py --self-test                plants one fault of each kind and expects it to be named

A file here is a pair x.c and x.h, and knows another one whose header it includes or whose function it calls. Rules:
  1. An #include points down: along ARROWS, or to base/; include/ is the seam, which everything above base may include.
  2. Between folders of the top level, and libraries in lib/, only headers of include/ and base/ are included, and front doors.
  3. A call points down.
  4. Files do not know each other in a circle, nor do rooms of ARROWS.
  5. The root of server/ has main.c alone; what is not in a room may know everything.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# Each room and those below it that it knows; what these know, it may know too. base knows nobody.
ARROWS = {
    "base": [],
    "include/filter": ["base"],  # the part of the seam that libraries may know
    "include": ["base", "include/filter"],
    "kernels": ["include"],
    "kernels/ref": ["kernels"],
    "kernels/cpu": ["kernels"],
    "kernels/cuda": ["kernels"],
    "engine/core": ["include", "kernels/ref", "kernels/cpu"],
    "lib/grammar": ["include/filter", "lib/json"],
    "lib/jinja": ["base"],
    "lib/json": ["base"],
    "engine/store": ["engine/core"],
    "engine/models": ["include", "lib/json"],
    "engine/text": ["engine/models", "lib/jinja"],
    "engine/ranks": ["engine/core", "engine/models"],
    "engine": ["engine/ranks", "engine/store", "engine/text"],
    "scheduler": ["engine"],
    "server/http": ["base"],
    "server/formats": ["engine", "lib/grammar"],
    "server/api": ["server/formats", "server/http"],
    "server/dialects": ["server/api"],
    "server/observe": ["server/api", "scheduler"],
    "server/process": ["server/observe"],
    "server/requests": ["server/dialects", "server/process"],
    "server/page": ["server/requests"],
    "server/endpoints": ["server/page"],
    "server/commands": ["server/endpoints"],
    "server": ["server/commands"],
    "bench": ["base"],
    "examples": ["scheduler"],
}
CORE = {"engine/batch", "engine/forward", "engine/kv_cache", "engine/kv_explain", "engine/kv_hash", "engine/kv_spans", "engine/step_layout", "engine/token_counts",
        "engine/token_history"}
FRONT_DOORS = {"lib/grammar/grammar", "lib/jinja/chat", "lib/json/jdoc"}  # what of a library others may include
SOURCES = {".c", ".h", ".cu", ".cuh", ".cpp", ".hpp"}


def room_of(unit):
    if unit in ARROWS:  # a file that is a room
        return unit
    if unit in CORE:
        return "engine/core"
    folder = unit.rpartition("/")[0]
    while folder and folder not in ARROWS:
        folder = folder.rpartition("/")[0]
    return folder


def house_of(room):
    return room if room.startswith("lib/") else room.split("/")[0]


def below(room):
    seen, todo = set(), [room]
    while todo:
        r = todo.pop()
        if r not in seen:
            seen.add(r)
            todo += ARROWS[r]
    return seen


def read_sources(root):
    """unit -> its files, for all rooms."""
    units = {}
    for path in sorted(p for r in {r.split("/")[0] for r in ARROWS} for p in (root / r).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in SOURCES and room_of(name.rpartition(".")[0]):
            units.setdefault(name.rpartition(".")[0], []).append(path)
    return units


def find_header(root, path, text):
    """The file that an #include means: beside it, in the folders above it up to the top, or in include/ or base/."""
    places = [p for p in path.parents if p == root or root in p.parents] + [root / "include", root / "base", root / "lib"]
    for place in places:
        if (place / text).is_file():
            return (place / text).resolve().relative_to(root).as_posix()
    return None


def includes(root, units):
    """(unit, header's unit, "file includes header")"""
    for unit, paths in units.items():
        for path in paths:
            for text in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
                header = find_header(root, path, text)
                if header:
                    name = path.relative_to(root).as_posix()
                    yield unit, header.rpartition(".")[0], f"{name} includes {header}"


def nm(objects, *flags):
    out = subprocess.run(["nm", "-g", *flags, *objects], capture_output=True, text=True).stdout
    name = objects[0] if objects else ""
    for line in out.splitlines():
        if line.endswith(":"):
            name = line[:-1]
        elif line.split():
            yield name, line.split()[-1]


def calls(root, build, units, callers=()):
    """(unit, unit, "file calls function of file"); callers: more files that call those of units, as tests do"""
    objects = {}
    for c in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(c["file"]).resolve()
        output = pathlib.Path(c["directory"]) / re.search(r" -o (\S+)", c["command"]).group(1)
        if root in source.parents and output.is_file():
            unit = source.relative_to(root).as_posix().rpartition(".")[0]
            if unit in units or unit in callers:
                objects[str(output)] = unit
    owners = {}
    for obj, symbol in nm([o for o, unit in objects.items() if unit in units], "--defined-only"):
        owners.setdefault(symbol, set()).add(objects[obj])
    for obj, symbol in nm(list(objects), "-u"):
        for owner in owners.get(symbol, ()):
            if len(owners[symbol]) == 1:  # else one of several builds or tools has its own
                yield objects[obj], owner, f"{objects[obj]} calls {symbol}() of {owner}"


def circles(edges):
    """Strongly connected components of more than one unit (Tarjan, 1972)."""
    graph, index, low, stack, found = {}, {}, {}, [], []
    for a, b in edges:
        graph.setdefault(a, set()).add(b)
        graph.setdefault(b, set())

    def visit(a):
        index[a] = low[a] = len(index)
        stack.append(a)
        for b in sorted(graph[a]):
            if b not in index:
                visit(b)
            if b in stack:
                low[a] = min(low[a], low[b])
        if low[a] == index[a]:
            part = stack[stack.index(a) :]
            del stack[stack.index(a) :]
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(10000)
    for a in sorted(graph):
        if a not in index:
            visit(a)
    return found


def check(root, build):
    root = root.resolve()
    units, faults, edges = read_sources(root), [], {}
    faults += [f"rule 4, a room that knows itself: {a}" for a in ARROWS if any(a in below(b) for b in ARROWS[a])]
    faults += [f"rule 5, a file that is in no room: {u}" for u in units if room_of(u) == "server" and u != "server/main"]
    for a, b, text in includes(root, units):
        ra, rb = room_of(a), room_of(b)
        if rb and house_of(ra) != house_of(rb) and house_of(rb) not in ("include", "base") and b not in FRONT_DOORS:
            faults.append(f"rule 2, another folder's private header: {text}")
        elif rb not in below(ra):
            faults.append(f"rule 1, an include that points up: {text}")
        if a != b:
            edges.setdefault((a, b), text)
    for a, b, text in calls(root, build, units) if build else ():
        if room_of(b) not in below(room_of(a)):
            faults.append(f"rule 3, a call that points up: {text}")
        if a != b:
            edges.setdefault((a, b), text)
    for part in circles(edges):
        faults.append("rule 4, files that know each other in a circle: " + ", ".join(part))
        faults += [f"    {t}" for (a, b), t in sorted(edges.items()) if a in part and b in part]
    return sorted(set(faults), key=faults.index), len(edges)


PLANTED = {
    "base/low.h": "int low(void);\n",
    "base/low.c": '#include "low.h"\nint low(void) { return 1; }\n',
    "engine/models/file.h": "int file(void);\n",
    "engine/models/file.c": '#include "file.h"\n#include "low.h"\nint file(void) { return low(); }\n',
    "engine/ranks/rank.h": "int rank(void);\n",
    "engine/ranks/rank.c": '#include "rank.h"\n#include "models/file.h"\nint rank(void) { return file(); }\n',
    "server/requests/app.c": '#include "low.h"\nint app(void) { return low(); }\n',
    "server/main.c": "int app(void);\nint main(void) { return app(); }\n",
}
FAULTS = [  # what is written instead, and what must be said; the sound tree has no fault
    ({}, None),
    ({"base/low.c": '#include "../include/seam.h"\nint low(void) { return 1; }\n', "include/seam.h": ""}, "rule 1"),
    ({"engine/models/file.c": '#include "text/text.h"\nint file(void) { return 1; }\n', "engine/text/text.h": ""}, "rule 1"),
    ({"server/requests/app.c": '#include "../../engine/ranks/rank.h"\nint app(void) { return 1; }\n'}, "rule 2"),
    ({"server/requests/app.c": '#include "endpoints/routes.h"\nint app(void) { return 1; }\n', "server/endpoints/routes.h": ""}, "rule 1"),
    ({"server/api/fields.c": "int app(void);\nint fields(void) { return app(); }\n"}, "rule 3"),
    ({"server/fields.c": "int fields(void) { return 1; }\n"}, "rule 5"),
    ({"lib/json/text.c": '#include "../../include/seam.h"\n', "include/seam.h": ""}, "rule 1"),
    ({"lib/grammar/mask.c": '#include "../../include/filter.h"\n', "include/filter.h": ""}, None),
    ({"lib/json/reader.h": "", "engine/models/file.c": '#include "json/reader.h"\nint file(void) { return 1; }\n'}, "rule 2"),
    ({"lib/json/jdoc.h": "", "engine/models/file.c": '#include "json/jdoc.h"\nint file(void) { return 1; }\n'}, None),
    ({"engine/models/file.c": "int rank(void);\nint file(void) { return 1 + rank(); }\n",
      "engine/ranks/rank.c": "int rank(void) { return 1; }\n"}, "rule 3"),
    ({"engine/models/other.c": "int file(void);\nint other(void) { return file(); }\n",
      "engine/models/file.c": "int other(void);\nint file(void) { return other(); }\n"}, "rule 4"),
    ({"base/low.h": '#pragma once\n#include "high.h"\nint low(void);\n', "base/high.h": '#pragma once\n#include "low.h"\n'},
     "rule 4"),
]


def self_test():
    failed = 0
    for changes, rule in FAULTS:
        with tempfile.TemporaryDirectory() as tmp:
            root, commands = pathlib.Path(tmp).resolve(), []
            for name, text in {**PLANTED, **changes}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            for source in root.rglob("*.c"):
                output = source.with_suffix(".o")
                subprocess.run(["cc", "-c", f"-I{root}/engine", f"-I{root}/server", f"-I{root}/base", f"-I{root}/lib", "-o", output, source], check=True)
                commands.append({"directory": str(root), "file": str(source), "command": f"cc -o {output}"})
            (root / "compile_commands.json").write_text(json.dumps(commands))
            faults, _ = check(root, root)
            rules = {f.split(",")[0] for f in faults if not f.startswith(" ")}
            if rules != ({rule} if rule else set()):
                print(f"expected {rule}, found {faults}")
                failed += 1
    ARROWS["server/http"].append("server/commands")
    failed += not any("a room that knows itself: server/http" in f for f in check(pathlib.Path(__file__).parents[1], None)[0])
    return failed


def main():
    if sys.argv[1:] == ["--self-test"]:
        failed = self_test()
        print(f"{len(FAULTS) + 1 - failed} passed, {failed} failed")
        return failed > 0
    root = pathlib.Path(sys.argv[1])
    faults, num = check(root, pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    print("\n".join(faults))
    print(f"{num} arrows between files, {sum(not f.startswith(' ') for f in faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
