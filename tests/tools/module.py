#!/usr/bin/env python3
"""Checks the imports and exports of the CUDA module.

usage: module.py 80,89,90a,100 quire-cuda.so [quire]

It needs none of CUDA's libraries: cudart is inside, cuBLASLt, NCCL and the driver are looked for when they are wanted. It exports one
symbol. Every file of kernels in it has code for all architectures, so that a device may load them all at once
(CUDA_MODULE_LOADING=EAGER), and PTX of the last. The binary needs none of this.
"""

import re
import struct
import subprocess
import sys

FATBIN = 0xBA55ED50  # of crt/fatbinary_section.h's data: what nvcc embeds for one source file
PTX, CODE = 1, 2


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def needed(path):
    """Libraries by name that are of CUDA or MPI."""
    names = re.findall(r"\(NEEDED\).*\[(.*?)\.so", output("readelf", "-dW", path))
    return sorted(n for n in names if re.match(r"lib(cu|nv|nccl|mpi)", n))


def exported(path):
    return [line.split()[-1] for line in output("nm", "-D", "--defined-only", path).splitlines()]


def images(path):
    """For each source file: the set of (PTX or CODE, architecture without its letter)."""
    section = re.search(r"\.nv_fatbin\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", output("readelf", "-SW", path))
    begin, size = int(section[1], 16), int(section[2], 16)
    with open(path, "rb") as f:
        f.seek(begin)
        data = f.read(size)
    files, at = [], 0
    while at + 16 <= size:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN:
            at += 8  # padding
            continue
        found, entry, at = set(), at + header, at + header + length
        while entry < at:
            kind, _, entry_header, bytes_ = struct.unpack_from("<HHIQ", data, entry)
            found.add((kind, struct.unpack_from("<I", data, entry + 28)[0]))
            entry += entry_header + bytes_
        files.append(found)
    return files


def main(archs, module, binary=None):
    numbers = [int(re.match(r"\d+", a)[0]) for a in archs.split(",")]
    wanted = {(CODE, n) for n in numbers} | {(PTX, numbers[-1])}
    files = images(module)
    checks = [
        ("libraries that the module needs", needed(module), []),
        ("symbols that the module gives", exported(module), ["quire_backend_v1"]),
        ("files of kernels", len(files) >= 8, True),
        ("architectures", [f for f in files if f != wanted], []),
    ]
    if binary:
        checks.append(("libraries that the binary needs", needed(binary), []))
    failed = 0
    for what, found, expected in checks:
        if found != expected:
            print(f"{what}: {found}, not {expected}")
            failed += 1
    print(f"{len(checks) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
