#!/usr/bin/env python3
"""Checks the compiler's code for kernels/cpu/amx.c, on machines that cannot run it: MMAs are there, and the shapes of tiles
that ldtilecfg reads are constants, whole.

    amx_code.py OBJECT…     the one that is named amx.c.o

Ends with 77 where there is no such object, or no objdump.
"""
import re
import shutil
import struct
import subprocess
import sys

OBJECT = next((o for o in sys.argv[1:] if o.endswith("/amx.c.o")), None)


def objdump(*options):
    return subprocess.run(["objdump", *options, OBJECT], capture_output=True, text=True, check=True).stdout


def constants(name, size):
    row = re.search(r"^([0-9a-f]+)\s.*\s(\.rodata\S*)\s+([0-9a-f]+)\s+" + name + "$", objdump("-t"), re.M)
    assert row, f"{name} are no constants"
    start, section = int(row.group(1), 16), row.group(2)
    assert int(row.group(3), 16) == size, row.group(3)
    words = re.findall(r"^ [0-9a-f]+ ((?:[0-9a-f]{2,8} ){1,4})", objdump("-s", "-j", section), re.M)
    return bytes.fromhex("".join(words).replace(" ", ""))[start:start + size]


def check_shapes():
    data = constants("configs", 2 * 16 * 64)
    for groups in (1, 2):
        for tokens in range(1, 17):
            palette, first, _, *rest = struct.unpack_from("<BB14s16H16B", data, ((groups - 1) * 16 + tokens - 1) * 64)
            assert (palette, first) == (1, 0), (palette, first)
            second = [64] * 2 if groups > 1 else [0] * 2
            assert rest[:16] == [64] * 2 + second + [64] * 2 + [0] * 10, rest[:16]
            second = [tokens] * 2 if groups > 1 else [0] * 2
            assert rest[16:] == [tokens] * 2 + second + [tokens, 16] + [0] * 10, rest[16:]
    data = constants("halves", 16 * 64)
    for tokens in range(1, 17):
        palette, first, _, *rest = struct.unpack_from("<BB14s16H16B", data, (tokens - 1) * 64)
        assert (palette, first) == (1, 0), (palette, first)
        assert rest == [64] * 4 + [32, 64] + [0] * 10 + [tokens] * 5 + [8] + [0] * 10, rest


def main():
    if not OBJECT or not shutil.which("objdump"):
        print("SKIPPED: no object of amx.c, or no objdump")
        return 77
    code = objdump("-d", "--no-show-raw-insn")
    for name in ("tdpbf16ps", "ldtilecfg", "tilestored"):
        assert f"\t{name} " in code, f"no {name}"
    check_shapes()
    print("products and shapes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
