#!/usr/bin/env python3
"""Compiles the CUDA kernels and reads what ptxas says: no spills, registers and shared memory within a table.

    ptxas.py [--nvcc nvcc] [--archs 80,89,90a,100] [--print] [--logs FOLDER]
    ptxas.py --launches FOLDER

The table is kernels/cuda/registers.txt: a row per kernel with the most registers and the threads and bytes of shared
memory that a launcher asks for at most, which is not ptxas' to know: --launches compares them with what the tests on the emulator did ask for (QUIRE_EMULATED_LAUNCHES=FOLDER, see
kernels/cuda/emu/rt_emu.cpp), and needs nm instead of nvcc. --print writes rows from what is measured. --logs reads what ptxas said when the module was built,
in FOLDER/SOURCE.o.log, and compiles nothing.

Without nvcc the compile gate cannot be: it says SKIPPED and ends with 77, or with QUIRE_REQUIRE_NVCC set fails.
Standard library only.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CUDA = os.path.join(ROOT, "kernels/cuda")
SOURCES = ["rows.cu", "qkv.cu", "latent.cu", "lora.cu", "gemm.cu", "gemm_staged.cu", "experts.cu", "mix.cu", "streams.cu", "pack.cu", "attn_decode.cu", "attn_prefill.cu", "attn_latent.cu", "sample.cu", "ranks.cu"]
HOPPER = ["attn_wgmma.cu", "gemm_wgmma.cu"]  # their kernels exist for sm_90a alone
REGISTERS = 65536  # of a processor, on every architecture here
SHARED = {"80": 163 << 10, "89": 99 << 10, "90a": 227 << 10, "100": 227 << 10}  # of a block; of others, no more than any has


def hopper_kernel(kernel):
    text = "".join(open(os.path.join(CUDA, source)).read() for source in HOPPER)
    return kernel.split("<")[0] in re.findall(r"__global__[^;{]*?(\w+)\(struct", text)


def launched_on(kernel):
    """Architectures; a launcher asks the device before it takes some kernels."""
    if hopper_kernel(kernel):
        return ["90a"]
    return [a for a in SHARED if a != "89" or not re.fullmatch(r"gemm_staged<\d+, 8>", kernel)]


def shared_max(kernel):
    return min(SHARED[a] for a in launched_on(kernel))


def table():
    rows = {}
    for line in open(os.path.join(CUDA, "registers.txt")):
        m = re.fullmatch(r"([^#]*\S)\s+(\d+)\s+(\d+)\s+(\d+)\s*", line)
        if m:
            rows[m.group(1)] = tuple(map(int, m.group(2, 3, 4)))
    if not rows:
        sys.exit("kernels/cuda/registers.txt: no row")
    return rows


def read_all(nvcc, archs, logs):
    """{kernel: {arch: (registers, spilled bytes, static shared bytes)}}, kernels by demangled name without template arguments
    that differ only in type."""
    found = {}
    for source in SOURCES + HOPPER * ("90a" in archs):
        text = open(os.path.join(logs, source + ".o.log")).read() if logs else compile_one(nvcc, archs, source)
        if "serialized" in text:  # products of warpgroups that ptxas makes wait for each other
            sys.exit(text)
        read(text, found)
    return found


def compile_one(nvcc, archs, source):
    with tempfile.TemporaryDirectory() as tmp:
        command = [nvcc, "-std=c++17", "-O3", "-ftz=true", "-Xcompiler=-fPIC", "-Xptxas=-v", "--threads", "2"]
        command += [f"-gencode=arch=compute_{a},code=sm_{a}" for a in archs if source not in HOPPER or a == "90a"]
        command += ["-DQUIRE_SM90A"] * (source in HOPPER)
        command += [f"-I{os.path.join(ROOT, d)}" for d in ("base", "include", "kernels", "kernels/cuda")]
        command += ["-c", os.path.join(CUDA, source), "-o", os.path.join(tmp, "o")]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(run.stderr)
        return run.stdout + run.stderr


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


def launches(folder):
    """{kernel: (threads, shared bytes)}: the most that was asked for."""
    most = {}
    for name in sorted(os.listdir(folder)):
        lines = open(os.path.join(folder, name)).read().splitlines()
        if not os.path.exists(lines[0]):
            continue  # a program that was built under another name once
        symbols = {}
        for line in subprocess.run(["nm", lines[0]], capture_output=True, text=True, check=True).stdout.splitlines():
            cells = line.split()
            if len(cells) == 3 and cells[1] == "t" and cells[2].startswith("_Z"):  # a kernel is static there
                symbols[int(cells[0], 16)] = cells[2].replace("_ZL", "_Z", 1)
        for line in lines[1:]:
            place, threads, shared = line.split()
            mangled = symbols.get(int(place, 16))
            if not mangled:
                sys.exit(f"{name}: no kernel at {place} of {lines[0]}")
            old = most.get(short(mangled), (0, 0))
            most[short(mangled)] = (max(old[0], int(threads)), max(old[1], int(shared)))
    return most


def check_launches(folder):
    most, limits, bad = launches(folder), table(), 0
    for kernel, (registers, threads, shared) in sorted(limits.items()):
        if kernel not in most:
            print(f"{kernel} is launched by no test")
            bad += 1
            continue
        if most[kernel][0] != threads:
            print(f"{kernel} is launched with {most[kernel][0]} threads, the table says {threads}")
            bad += 1
        if most[kernel][1] > shared:
            print(f"{kernel} asks for {most[kernel][1]} bytes of shared memory, the table allows {shared}")
            bad += 1
        if shared > shared_max(kernel):
            print(f"{kernel}: {shared} bytes of shared memory are more than every architecture that has it")
            bad += 1
    print(f"{len(most)} kernels launched, {bad} problems")
    return bad > 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nvcc", default="nvcc")
    p.add_argument("--archs", default="80,89,90a,100")
    p.add_argument("--print", action="store_true")
    p.add_argument("--launches")
    p.add_argument("--logs")
    a = p.parse_args()
    if a.launches:
        sys.exit(check_launches(a.launches))
    if not shutil.which(a.nvcc):
        print(f"SKIPPED: there is no {a.nvcc}; spills, registers and static shared memory of the CUDA kernels are not checked")
        sys.exit(1 if os.environ.get("QUIRE_REQUIRE_NVCC") else 77)
    archs = a.archs.split(",")
    found, limits, bad = read_all(a.nvcc, archs, a.logs), {} if a.print else table(), 0
    for kernel in sorted(found):
        most = max(r[0] for arch in found[kernel].values() for r in arch)
        spills = [(arch, r[3], r[1]) for arch, rows in found[kernel].items() for r in rows if r[1] > 0]
        if a.print:
            print(f"{kernel:24}{most:10}")
        for arch, name, n in spills:
            print(f"{kernel} ({name}) spills {n} bytes on sm_{arch}")
            bad += 1
        if a.print:
            continue
        if kernel not in limits:
            print(f"{kernel} is not in kernels/cuda/registers.txt ({most} registers)")
            bad += 1
            continue
        registers, threads, shared = limits.pop(kernel)
        if most > registers:
            print(f"{kernel} uses {most} registers, the table allows {registers}")
            bad += 1
        if registers * threads > REGISTERS:
            print(f"{kernel}: {threads} threads of {registers} registers do not fit a processor")
            bad += 1
        for arch in found[kernel]:
            static = max(r[2] for r in found[kernel][arch])
            has = SHARED.get(arch, shared_max(kernel))
            if shared + static > has and arch in launched_on(kernel):
                print(f"{kernel} asks for {shared + static} bytes of shared memory, sm_{arch} has {has}")
                bad += 1
    for kernel in limits if not a.print else []:
        if hopper_kernel(kernel) and "90a" not in archs:
            continue
        print(f"{kernel} stands in the table and is no kernel")
        bad += 1
    print(f"{len(found)} kernels, {len(archs)} architectures, {bad} problems")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
