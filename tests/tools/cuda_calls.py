#!/usr/bin/env python3
"""Every call of CUDA, cuBLASLt and NCCL in kernels/cuda is checked: rule 10 of kernels/cuda/README.md. And a file launches blocks
of as many threads as a kernel in it is bounded to (__launch_bounds__), in the same words.

usage: cuda_calls.py FOLDER. A call counts as checked within ok(), blas_ok() or nccl_ok(), where its result is compared at once, or
where it is kept as an error to look at. QUIET gives no error of its own. Prints what is not, and exits with 1.
"""

import pathlib
import re
import sys

QUIET = {"cudaGetErrorString", "cudaGetLastError", "lt.GetStatusString", "lt.GetVersion", "nccl.GetErrorString"}
CALL = re.compile(r"\b(cuda[A-Z]\w*|cublas[A-Z]\w*|lt\.[A-Z]\w*|nccl\.[A-Z]\w*|nccl[A-Z]\w*)\s*\(")
KEPT = re.compile(r"(cudaError_t|cublasStatus_t|nccl_result) \w+ = $")
CHECKS = re.compile(r"\b(ok|blas_ok|nccl_ok)\s*\($")


def blank(text):
    """Without comments, strings and lines of the preprocessor; of the same length."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL | re.MULTILINE)


def end_of(text, opening):
    """Behind the parenthesis that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return at + 1
    return len(text)


def is_within_check(text, at):
    """Whether a parenthesis that is open at `at` is that of a check."""
    depth = 0
    for i in range(at - 1, -1, -1):
        if text[i] in ";{}":
            return False
        depth += (text[i] == ")") - (text[i] == "(")
        if depth < 0:
            if CHECKS.search(text, max(0, i - 20), i + 1):
                return True
            depth = 0
    return False


def unchecked(text):
    """(line, name) of calls that nobody looks at, and the number of all."""
    text = blank(text)
    bad, num = [], 0
    for call in CALL.finditer(text):
        if call[1] in QUIET:
            continue
        num += 1
        after = text[end_of(text, call.end() - 1):].lstrip()
        if not (is_within_check(text, call.start()) or after.startswith(("==", "!=")) or KEPT.search(text, 0, call.start())):
            bad.append((text.count("\n", 0, call.start()) + 1, call[1]))
    if "<<<" in text:
        bad.append((text.count("\n", 0, text.index("<<<")) + 1, "a launch by <<<>>>"))
    return bad, num


def arguments(text, opening):
    parts, depth = [""], 0
    for c in re.sub(r"<(\w+), ?(\w+)>", r"<\1;\2>", text[opening + 1:end_of(text, opening) - 1]):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        elif not c.isspace():
            parts[-1] += c
    return parts


def unbounded(text):
    """(line, threads) of grids whose blocks no kernel of the file is bounded to."""
    text = blank(text)
    bounds = {arguments(text, m.end() - 1)[0] for m in re.finditer(r"__launch_bounds__\(", text)}
    grids = [(text.count("\n", 0, m.start()) + 1, arguments(text, m.end() - 1)[2]) for m in re.finditer(r"\brt_grid_of\(", text)]
    return [(line, threads) for line, threads in grids if not bounds & set(threads.split(":"))]


def main(folder):
    num = failed = 0
    for path in sorted(pathlib.Path(folder).glob("*.cu*")):
        text = path.read_text()
        bad, found = unchecked(text)
        num += found
        failed += len(bad)
        for line, name in bad:
            print(f"{path.name}:{line}: nobody looks at what {name} returns")
        for line, threads in unbounded(text) if path.suffix == ".cu" else []:
            failed += 1
            print(f"{path.name}:{line}: no kernel here is bounded to {threads} threads")
    print(f"{num} calls, {failed} problems")
    return failed > 0 or num == 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
