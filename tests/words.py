#!/usr/bin/env python3
"""Checks words of the sources: comments, tags and helpers.

usage: words.py SOURCE_DIR      prints each fault as FILE:LINE and ends with 1 if there is one
       words.py --self-test     plants one fault of each kind and expects it to be named

Rules:
  1. No comment, and no docstring, begins with what, who, whose or whoever: a sentence names its actor.
  2. No tag of a struct, union or enum is defined twice in the product. Implementations of one interface share its tags (SHARED).
  3. min_int(), max_int() and now_ns() are base/minmax.h's and base/clock.h's: nothing else defines them.
"""
import pathlib
import re
import sys
import tempfile

PRODUCT = ("base", "bench", "engine", "include", "kernels", "lib", "scheduler", "server")
LATER = ()
# device, weight: each backend has its own. rt*: a device's runtime and the emulator's. The rest: SIMD vectors of each instruction set.
SHARED = {"device", "weight", "rt", "rt_graph", "rt_nccl", "dots", "narrow", "pairs", "quads", "rows", "v16"}
WORD = re.compile(r"(?:what|who|whose|whoever)\b", re.I)
TAG = re.compile(r"\b(?:struct|union|enum)\s+(?:alignas\(\w+\)\s*)?(\w+)\s*(?::\s*\w+\s*)?\{")
HELPER = re.compile(r"^[\w \*]*\b(min_int|max_int|now_ns)\([^;]*\)\s*\{", re.M)


def comments(text, mark):
    """Line number and text of each comment: behind code, a block's first line, and lines in it that begin a sentence."""
    inside = False
    for n, line in enumerate(text.split("\n"), 1):
        code, found, rest = line.partition(mark)
        whole = found and not code.strip()
        if found and (not (inside and whole) or rest.strip()[:1].isupper()):
            yield n, rest.strip()
        inside = whole
        if mark == "#" and line.lstrip().startswith('"""'):
            yield n, line.strip()[3:]


def check(root):
    faults, tags = [], {}
    for folder in (*PRODUCT, "examples", "tests"):
        for path in sorted((root / folder).rglob("*")):
            name, python = path.relative_to(root).as_posix(), path.suffix == ".py"
            if path.suffix not in (".c", ".h", ".cu", ".cuh", ".cpp", ".py") or name.startswith(LATER):
                continue
            for n, comment in comments(text := path.read_text(), "#" if python else "//"):
                if WORD.match(comment) and (folder in PRODUCT or comment[0].isupper()):
                    faults.append(f"{name}:{n}: a comment begins with '{comment.split()[0]}'")
            for found in (*TAG.finditer(text), *HELPER.finditer(text)) if folder in PRODUCT and not python else ():
                at = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
                if found.re is TAG:
                    tags.setdefault(found[1], []).append(at)
                elif name not in ("base/minmax.h", "base/clock.h"):
                    faults.append(f"{at}: defines {found[1]}() again")
    return faults + [f"{at[1]}: tag '{tag}' is {at[0]}'s, too" for tag, at in sorted(tags.items()) if len(at) > 1 and tag not in SHARED]


def self_test():
    planted = {
        "": ("lib/a.c", "// A file, with\n// what it needs.\nstruct one {\n"),
        "begins with 'What'": ("lib/b.c", "int a; // What it is.\n"),
        "begins with 'whose'": ("lib/b.c", "// A line.\nint a; // whose it is\n"),
        "begins with 'Who'": ("tests/b.c", "// A line.\n// Who it is.\n"),
        "begins with 'Whoever'": ("tests/b.py", '"""Whoever it is."""\n'),
        "tag 'one' is": ("bench/b.h", "struct one {\n};\nenum one {\n"),
        "defines min_int() again": ("kernels/b.c", "static int min_int(int a, int b) {\n"),
    }
    for fault, (name, text) in planted.items():
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).parent.mkdir()
            (pathlib.Path(folder) / name).write_text(text)
            found = check(pathlib.Path(folder))
        if len(found) != (fault != "") or not all(fault in line for line in found):
            yield f"planted {fault or 'nothing'}, found {found}"


if __name__ == "__main__":
    problems = list(self_test()) if sys.argv[1:] == ["--self-test"] else check(pathlib.Path(sys.argv[1]))
    sys.exit("\n".join(problems) or 0)
