#!/usr/bin/env python3
"""Compiles the CUDA kernels and reads what ptxas says: no spills, registers and shared memory within a table.

    ptxas.py [--nvcc nvcc] [--archs 80,89,90a,100] [--print]

The table stands in kernels/cuda/README.md, between the lines `<!-- ptxas -->` and `<!-- /ptxas -->`: a row per kernel
with the most registers and the bytes of shared memory that a block asks for at most (which is not ptxas' to know: it is
what the launcher passes, checked against the least of all architectures). --print writes rows from what is measured.
Standard library only.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CUDA = os.path.join(ROOT, "kernels/cuda")
SOURCES = ["rows.cu", "qkv.cu", "gemm.cu", "pack.cu", "attn_decode.cu", "attn_prefill.cu", "sample.cu", "ranks.cu"]
REGISTERS = 65536  # of a processor, on every architecture here
SHARED = {"80": 163 << 10, "89": 99 << 10, "90a": 227 << 10, "100": 227 << 10}  # of a block


def table():
    text = open(os.path.join(CUDA, "README.md")).read()
    body = re.search(r"<!-- ptxas -->(.*?)<!-- /ptxas -->", text, re.S).group(1)
    rows = {}
    for line in body.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].isdigit():
            rows[cells[0].strip("`")] = (int(cells[1]), int(cells[2]), int(cells[3]))
    return rows


def compile_all(nvcc, archs):
    """{kernel: {arch: (registers, spilled bytes, static shared bytes)}}, kernels by demangled name without template arguments
    that differ only in type."""
    found = {}
    with tempfile.TemporaryDirectory() as tmp:
        for source in SOURCES:
            command = [nvcc, "-std=c++17", "-O3", "-ftz=true", "-Xcompiler=-fPIC", "-Xptxas=-v", "--threads", "2"]
            command += [f"-gencode=arch=compute_{a},code=sm_{a}" for a in archs]
            command += [f"-I{os.path.join(ROOT, d)}" for d in ("include", "kernels", "kernels/cuda")]
            command += ["-c", os.path.join(CUDA, source), "-o", os.path.join(tmp, "o")]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(run.stderr)
            read(run.stdout + run.stderr, found)
    return found


def read(text, found):
    name = arch = spill = None
    for line in text.splitlines():
        m = re.search(r"Compiling entry function '(\w+)' for 'sm_(\w+)'", line)
        if m:
            name, arch = m.groups()
            spill = 0
        m = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if m:
            spill = int(m.group(1)) + int(m.group(2))
        m = re.search(r"Used (\d+) registers", line)
        if m and name:
            shared = re.search(r"(\d+) bytes smem", line)
            found.setdefault(short(name), {}).setdefault(arch, []).append(
                (int(m.group(1)), spill, int(shared.group(1)) if shared else 0, name))
            name = None


def short(mangled):
    """gemm<4, 2> of _Z4gemmIL11cuda_format4ELi2EEv9cuda_gemm; bool arguments are left out."""
    m = re.match(r"_Z(\d+)", mangled)
    start, n = m.end(), int(m.group(1))
    args = re.findall(r"L(?:\d+\w+?|[ib])(\d+)E", mangled[start + n:].split("EEv")[0] + "E")
    kinds = re.findall(r"L(\d+[a-z_]+|[ib])\d+E", mangled[start + n:].split("EEv")[0] + "E")
    keep = [a for a, k in zip(args, kinds) if k != "b"]
    return mangled[start:start + n] + (f"<{', '.join(keep)}>" if keep else "")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nvcc", default="nvcc")
    p.add_argument("--archs", default="80,89,90a,100")
    p.add_argument("--print", action="store_true")
    a = p.parse_args()
    archs = a.archs.split(",")
    found, limits, bad = compile_all(a.nvcc, archs), {} if a.print else table(), 0
    for kernel in sorted(found):
        most = max(r[0] for arch in found[kernel].values() for r in arch)
        spills = [(arch, r[3], r[1]) for arch, rows in found[kernel].items() for r in rows if r[1] > 0]
        if a.print:
            print(f"| `{kernel}` | {most} |")
        for arch, name, n in spills:
            print(f"{kernel} ({name}) spills {n} bytes on sm_{arch}")
            bad += 1
        if a.print:
            continue
        if kernel not in limits:
            print(f"{kernel} is not in the table of kernels/cuda/README.md ({most} registers)")
            bad += 1
            continue
        registers, threads, shared = limits.pop(kernel)
        if most > registers:
            print(f"{kernel} uses {most} registers, the table allows {registers}")
            bad += 1
        if registers * threads > REGISTERS:
            print(f"{kernel}: {threads} threads of {registers} registers do not fit a processor")
            bad += 1
        for arch in archs:
            static = max(r[2] for r in found[kernel].get(arch, [(0, 0, 0, "")]))
            if shared + static > SHARED[arch]:
                print(f"{kernel} asks for {shared + static} bytes of shared memory, sm_{arch} has {SHARED[arch]}")
                bad += 1
    for kernel in limits if not a.print else []:
        print(f"{kernel} stands in the table and is no kernel")
        bad += 1
    print(f"{len(found)} kernels, {len(archs)} architectures, {bad} problems")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
