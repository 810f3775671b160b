#!/usr/bin/env python3
"""Reads the machine code of the GEMM and attention kernels (sm_90a): what ptxas decides and no emulator sees.

    sass.py [--nvcc nvcc] [--print] [--cubins FOLDER] [FILE.cu ...]

Of each kernel with a main loop (the innermost one that multiplies on tensor cores, else the one that copies):
- no local memory;
- asynchronous copies are of 128 bits, and at least `ahead` stand before the wait for the kernel before (ACQBULK);
- the loop waits for a group of copies only while `flight` younger ones are in flight, and reads no weights by other
  loads, which it would wait for in the same step;
- it has no more than `instructions`, for `HMMA` products (of wgmma: HGMMA).

The table is kernels/cuda/sass.txt; --print writes its rows. --cubins reads what the module was built of, FOLDER/SOURCE.o.cubin, and
compiles nothing. Needs nvcc, and nvdisasm of the toolkit or of PyPI
(nvidia-cuda-nvdisasm); without them it says SKIPPED and ends with 77, or with QUIRE_REQUIRE_NVCC set fails. Standard
library only.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import ptxas  # noqa: E402: names of kernels

PRODUCT = "HG?MMA"
TABLE = os.path.join(ptxas.CUDA, "sass.txt")
SOURCES = ["gemm.cu", "gemm_staged.cu", "gemm_wgmma.cu", "attn_decode.cu", "attn_prefill.cu", "attn_latent.cu"]


def find_nvdisasm(nvcc):
    beside = os.path.join(os.path.dirname(os.path.realpath(shutil.which(nvcc) or nvcc)), "nvdisasm")
    places = sys.path + glob.glob(os.path.join(ptxas.ROOT, ".venv", "lib", "python*", "site-packages"))
    wheels = [f for p in places for f in glob.glob(os.path.join(p, "nvidia", "*", "bin", "nvdisasm"))]
    return next((p for p in [shutil.which("nvdisasm"), beside, *wheels] if p and os.path.exists(p)), None)


def compile_one(nvcc, source, cubin):
    command = [nvcc, "-std=c++17", "-O3", "-ftz=true", "-arch=sm_90a", "-DQUIRE_SM90A", "-cubin", "-o", cubin]
    command += [f"-I{os.path.join(ptxas.ROOT, d)}" for d in ("base", "include", "kernels", "kernels/cuda")]
    subprocess.run(command + [os.path.join(ptxas.CUDA, source)], check=True)


def disassemble(nvcc, nvdisasm, sources, cubins):
    """{kernel: [(label or None, instruction)]}"""
    kernels = {}
    with tempfile.TemporaryDirectory() as tmp:
        for source in sources:
            cubin = os.path.join(cubins or tmp, f"{source}.o.cubin")
            if not cubins:
                compile_one(nvcc, source, cubin)
            text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
            code = None
            for line in text.splitlines():
                if m := re.match(r"\.text\.(\w+):", line):
                    code = kernels.setdefault(m.group(1), [])
                elif m := re.match(r"(\.L_\w+):", line):
                    code.append((m.group(1), None))
                elif m := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
                    code.append((None, m.group(1)))
    return kernels


def main_loop(code):
    """The instructions of the innermost loop with the most products, else copies."""
    labels, loops = {}, []
    for at, (label, instruction) in enumerate(code):
        if label:
            labels[label] = at
        elif (m := re.search(r"\bBRA\b.*`\((\.L_\w+)\)", instruction)) and m.group(1) in labels:
            loops.append((labels[m.group(1)], at))
    for kind in (PRODUCT, "LDGSTS"):
        found = [(sum(bool(re.search(kind, i)) for _, i in code[a:b] if i), -(b - a), a, b) for a, b in loops]
        found = [f for f in found if f[0] and not any(g[0] and f[2] <= g[2] and g[3] < f[3] for g in found)]
        if found:
            _, _, a, b = max(found)
            return [i for _, i in code[a:b + 1] if i]
    return []


def measure(code):
    loop, all_of = main_loop(code), [i for _, i in code if i]
    wait = next((n for n, i in enumerate(all_of) if "ACQBULK" in i), 0)
    groups = [int(m.group(1), 16) for i in loop if (m := re.search(r"DEPBAR\.LE SB0, (0x\w+)", i))]
    return {"instructions": len(loop), "HMMA": sum(bool(re.search(PRODUCT, i)) for i in loop),
            "ahead": sum("LDGSTS" in i for i in all_of[:wait]), "flight": min(groups, default=0)}


def problems(code, row, limit):
    loop, all_of = main_loop(code), [i for _, i in code if i]
    narrow = [i for i in all_of if "LDGSTS" in i and ".128" not in i]
    yield from (f"local memory: {i}" for i in all_of if re.search(r"\b(LDL|STL)\b", i))
    yield from (f"a copy of fewer than 128 bits: {i}" for i in narrow)
    yield from (f"a load beside the ring: {i}" for i in loop if re.search(r"\bLDG\S*(\.CONSTANT|\.NA)\b", i))
    for name, sign in (("instructions", 1), ("HMMA", 1), ("HMMA", -1), ("ahead", -1), ("flight", -1)):
        if sign * row[name] > sign * limit[name]:
            yield f"{row[name]} {name}, the table says {limit[name]}"


def read_table():
    names = ("instructions", "HMMA", "ahead", "flight")
    rows = {}
    for line in open(TABLE):
        if m := re.fullmatch(r"([^#]*\S)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*", line):
            rows[m.group(1)] = dict(zip(names, map(int, m.groups()[1:])))
    return rows or sys.exit("kernels/cuda/sass.txt: no row")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--nvcc", default="nvcc")
    p.add_argument("--print", action="store_true")
    p.add_argument("--cubins", metavar="FOLDER")
    p.add_argument("sources", nargs="*", default=SOURCES)
    a = p.parse_args()
    nvdisasm = find_nvdisasm(a.nvcc)
    if not shutil.which(a.nvcc) or not nvdisasm:
        print(f"SKIPPED: there is no {'nvdisasm' if shutil.which(a.nvcc) else a.nvcc}; the machine code is not read")
        sys.exit(1 if os.environ.get("QUIRE_REQUIRE_NVCC") else 77)
    limits, found, bad = {} if a.print else read_table(), {}, 0
    for mangled, code in disassemble(a.nvcc, nvdisasm, a.sources, a.cubins).items():
        row, kernel = measure(code), ptxas.short(mangled)
        if not row["instructions"]:
            continue
        if a.print:  # of kernels that differ only in type: the weakest
            old = found.get(kernel, row)
            found[kernel] = {k: (max if k == "instructions" else min)(row[k], old[k]) for k in row}
            continue
        found[kernel] = row
        for problem in problems(code, row, limits[kernel]) if kernel in limits else ["not in kernels/cuda/sass.txt"]:
            print(f"{kernel} ({mangled}): {problem}")
            bad += 1
    for kernel, row in sorted(found.items()) if a.print else []:
        print(f"{kernel:23}" + "".join(f"{row[k]:>{w}}" for k, w in zip(row, (13, 6, 7, 8))))
    for kernel in sorted(set(limits) - set(found)) if a.sources == SOURCES else []:
        print(f"{kernel} stands in kernels/cuda/sass.txt and is no kernel")
        bad += 1
    print(f"{len(found)} kernels, {bad} problems")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
