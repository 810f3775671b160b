#!/usr/bin/env python3
"""What the compiler makes of kernels/cpu/amx.c, on machines that cannot run it: each kind of product is there, the loops of
quantised types keep their sums in registers, and the shapes of tiles that ldtilecfg reads are constants, whole.

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


def functions():
    """{name: its instructions}"""
    found, name = {}, None
    for line in objdump("-d", "--no-show-raw-insn").splitlines():
        head = re.match(r"[0-9a-f]+ <(.+)>:", line)
        if head:
            name = head.group(1)
        elif name and "\t" in line:
            found.setdefault(name, []).append(line.split("\t", 1)[1].strip())
    return found


def check_shapes():
    row = re.search(r"^([0-9a-f]+)\s.*\s(\.rodata\S*)\s+([0-9a-f]+)\s+configs$", objdump("-t"), re.M)
    assert row, "the shapes are no constants"
    start, section, size = int(row.group(1), 16), row.group(2), int(row.group(3), 16)
    assert size == 3 * 16 * 64, size
    words = re.findall(r"^ [0-9a-f]+ ((?:[0-9a-f]{2,8} ){1,4})", objdump("-s", "-j", section), re.M)
    data = bytes.fromhex("".join(words).replace(" ", ""))[start:start + size]
    for i, k in enumerate((16, 32, 64)):
        for tokens in range(1, 17):
            palette, first, _, *rest = struct.unpack_from("<BB14s16H16B", data, (i * 16 + tokens - 1) * 64)
            assert (palette, first) == (1, 0), (palette, first)
            assert rest[:16] == [64] * 4 + [k] * 2 + [64] * 2 + [0] * 8, rest[:16]
            assert rest[16:] == [tokens] * 6 + [k // 4] * 2 + [0] * 8, rest[16:]


def main():
    if not OBJECT or not shutil.which("objdump"):
        print("SKIPPED: no object of amx.c, or no objdump")
        return 77
    code = functions()
    all_code = [line for lines in code.values() for line in lines]
    for name in ("tdpbssd", "tdpbsud", "tdpbf16ps", "ldtilecfg", "tilestored"):
        assert any(line.startswith(name) for line in all_code), f"no {name}"
    loops = {name: lines for name, lines in code.items() if name.startswith("multiply_")}
    assert len(loops) == 20, sorted(loops)
    for name, lines in loops.items():
        assert any(line.startswith("tdpb") for line in lines), name
        spills = [line for line in lines if re.match(r"vmov\w+\s+%zmm\d+,.*\(%r[sb]p\b", line)]
        assert not spills, (name, spills)
    check_shapes()
    print(f"{len(loops)} loops without spills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
