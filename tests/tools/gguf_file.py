"""Reads and writes GGUF 3 files. Standard library only; shared by the generators beside it, and by tests."""
import math
import struct
import sys

F32, F16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 8, 12, 13, 14, 30
Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, IQ4_NL, IQ4_XS, MXFP4 = 3, 6, 7, 10, 11, 20, 23, 39
QUANTISED = {Q4_0: (32, 18), Q4_1: (32, 20), Q5_0: (32, 22), Q5_1: (32, 24), Q8_0: (32, 34), IQ4_NL: (32, 18), MXFP4: (32, 17),
             Q2_K: (256, 84), Q3_K: (256, 110), Q4_K: (256, 144), Q5_K: (256, 176), Q6_K: (256, 210),
             IQ4_XS: (256, 136)}  # elements, bytes
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
ALIGNMENT = 32


def type_bytes(kind, n):
    """Bytes of n elements."""
    block, size = QUANTISED.get(kind) or (1, 4 if kind == F32 else 2)
    return n // block * size


class Writer:
    """Keys first, then tensors by name, type and shape; then the data of each in the same order."""

    def __init__(self):
        self.keys, self.tensors = [], []

    def _add(self, key, kind, payload):
        self.keys.append(self._string(key) + struct.pack("<I", kind) + payload)

    @staticmethod
    def _string(s):
        b = s if isinstance(s, bytes) else s.encode()
        return struct.pack("<Q", len(b)) + b

    def u32(self, key, v):
        self._add(key, 4, struct.pack("<I", v))

    def f32(self, key, v):
        self._add(key, 6, struct.pack("<f", v))

    def bool(self, key, v):
        self._add(key, 7, struct.pack("<B", v))

    def string(self, key, v):
        self._add(key, 8, self._string(v))

    def strings(self, key, values):
        self._add(key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(self._string, values)))

    def f32s(self, key, values):
        self._add(key, 9, struct.pack(f"<IQ{len(values)}f", 6, len(values), *values))

    def i32s(self, key, values):
        self._add(key, 9, struct.pack(f"<IQ{len(values)}i", 5, len(values), *values))

    def bools(self, key, values):
        self._add(key, 9, struct.pack(f"<IQ{len(values)}B", 7, len(values), *values))

    def u8s(self, key, values):
        self._add(key, 9, struct.pack("<IQ", 0, len(values)) + bytes(values))

    def tensor(self, name, kind, shape, chunks):
        """shape: outermost first. chunks: a function that yields the encoded bytes."""
        self.tensors.append((name, kind, shape, type_bytes(kind, math.prod(shape)), chunks))

    def write(self, path):
        pad = lambda n: -n % ALIGNMENT
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)))
            f.write(b"".join(self.keys))
            offset = 0
            for name, kind, shape, size, _ in self.tensors:
                ne = shape[::-1]
                f.write(self._string(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, offset))
                offset += size + pad(size)
            f.write(bytes(pad(f.tell())))
            for name, _, _, size, chunks in self.tensors:
                written = sum(f.write(c) for c in chunks())
                if written != size:
                    raise ValueError(f"{name}: {written} bytes written, {size} expected")
                f.write(bytes(pad(size)))


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
    """(keys {name: value}, raw keys {name: bytes with the name}, tensors {name: (kind, shape outermost first, bytes)})"""
    with open(path, "rb") as f:
        r = Reader(f.read())
    magic, version, num_tensors, num_keys = r.take("4sIQQ")
    if magic != b"GGUF" or version != 3:
        sys.exit(f"{path}: not a GGUF 3 file")
    keys, raw, found, tensors = {}, {}, [], {}
    for _ in range(num_keys):
        start = r.at
        name = r.string()
        keys[name] = r.value(r.take("I"))
        raw[name] = r.data[start : r.at]
    for _ in range(num_tensors):
        name, dims = r.string(), r.take("I")
        shape = [r.take("Q") for _ in range(dims)][::-1]
        kind, offset = r.take("IQ")
        found.append((name, kind, shape, offset))
    base = r.at + -r.at % ALIGNMENT
    for name, kind, shape, offset in found:
        tensors[name] = kind, shape, r.data[base + offset : base + offset + type_bytes(kind, math.prod(shape))]
    return keys, raw, tensors


def write(path, raw, tensors):
    """A file of what read() gives of another."""
    w = Writer()
    w.keys = list(raw.values())
    for name, (kind, shape, data) in tensors.items():
        w.tensor(name, kind, shape, lambda data=data: [data])
    w.write(path)
