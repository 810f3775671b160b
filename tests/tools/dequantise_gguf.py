#!/usr/bin/env python3
"""Writes a GGUF file again with all its tensors in F32: the same values, without the arithmetic of their own types.

    dequantise_gguf.py in.gguf out.gguf

Reads F32, F16 and Q8_0. Standard library only.
"""
import array
import struct
import sys

from gguf_file import F16, F32, Q8_0, read, write

def values(kind, data):
    """The numbers of a tensor, as F32."""
    if kind == F32:
        return array.array("f", data)
    if kind == F16:
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))
    if kind == Q8_0:
        out = array.array("f")
        for block in struct.iter_unpack("<e32b", data):
            d = block[0]
            out.extend([d * q for q in block[1:]])
        return out
    sys.exit(f"type {kind} is not read here")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    _, raw, tensors = read(sys.argv[1])
    write(sys.argv[2], raw, {name: (F32, shape, values(kind, data).tobytes()) for name, (kind, shape, data) in tensors.items()})


if __name__ == "__main__":
    main()
