#!/usr/bin/env python3
"""Writes a GGUF file again with all its tensors in F32: the same values, without the arithmetic of their own types.

    dequantise_gguf.py in.gguf out.gguf

Reads F32, F16 and Q8_0. Standard library only. `read` is also how other scripts look into a file.
"""
import array
import struct
import sys

from gguf_file import ALIGNMENT, F16, F32, Q8_0, Writer, type_bytes

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        out = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return out[0] if len(out) == 1 else out

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n : self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, n = self.take("IQ")
            return [self.value(element) for _ in range(n)]
        return self.take(FORMATS[kind])


def read(path):
    """(keys {name: value}, raw keys [bytes], tensors {name: (kind, shape outermost first, bytes)})"""
    r = Reader(open(path, "rb").read())
    magic, version, num_tensors, num_keys = r.take("4sIQQ")
    if magic != b"GGUF" or version != 3:
        sys.exit(f"{path}: not a GGUF 3 file")
    keys, raw, found, tensors = {}, [], [], {}
    for _ in range(num_keys):
        start = r.at
        name = r.string()
        keys[name] = r.value(r.take("I"))
        raw.append(r.data[start : r.at])
    for _ in range(num_tensors):
        name, dims = r.string(), r.take("I")
        shape = [r.take("Q") for _ in range(dims)][::-1]
        kind, offset = r.take("IQ")
        found.append((name, kind, shape, offset))
    base = r.at + -r.at % ALIGNMENT
    for name, kind, shape, offset in found:
        n = 1
        for d in shape:
            n *= d
        tensors[name] = kind, shape, r.data[base + offset : base + offset + type_bytes(kind, n)]
    return keys, raw, tensors


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
    w = Writer()
    w.keys = raw
    for name, (kind, shape, data) in tensors.items():
        w.tensor(name, F32, shape, lambda kind=kind, data=data: [values(kind, data).tobytes()])
    w.write(sys.argv[2])


if __name__ == "__main__":
    main()
