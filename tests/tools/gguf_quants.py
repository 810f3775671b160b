"""Quantises numbers into ggml's blocks, all that Quire reads. Standard library only.

Each block takes the scales that just reach its largest numbers (and, in Q4_K and Q5_K, its smallest), then the nearest
number of the grid. No search for scales that lose less: what a test model needs is a file whose values are close to the
ones asked for.
"""
import math
import struct

from gguf_file import (IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, QUANTISED)

# Values of the nibbles of IQ4_NL and IQ4_XS, and of MXFP4 (doubled), ascending, with their codes
IQ4 = list(enumerate((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)))
FP4 = [(15, -12), (14, -8), (13, -6), (12, -4), (11, -3), (10, -2), (9, -1), (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6),
       (6, 8), (7, 12)]


def encode(kind, x):
    """Bytes of the floats x; their number is a multiple of the block."""
    size = QUANTISED[kind][0]
    return b"".join(BLOCKS[kind](x[i : i + size]) for i in range(0, len(x), size))


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def whole(x, d, low, high):
    return min(max(math.floor(x / d + 0.5) if d else 0, low), high)


def block_q8_0(x):
    d = max(map(abs, x)) / 127
    return struct.pack("<e32b", d, *(whole(v, d, -127, 127) for v in x))


def block_q4_0(x):
    d = half(max(x, key=abs) / -8)
    q = [whole(v, d, -8, 7) + 8 for v in x]
    return struct.pack("<e", d) + bytes(a | b << 4 for a, b in zip(q[:16], q[16:]))


def block_q45_k(x, top):
    rows = [x[i : i + 32] for i in range(0, 256, 32)]
    low = [max(-min(r), 0.0) + 0.0 for r in rows]
    span = [(max(max(r), 0.0) + m) / top for r, m in zip(rows, low)]
    d, dmin = half(max(span) / 63), half(max(low) / 63)
    s, m = [whole(v, d, 0, 63) for v in span], [whole(v, dmin, 0, 63) for v in low]
    q = []
    for row, scale, minimum in zip(rows, s, m):
        step, base = d * scale, dmin * minimum
        q.append([whole(v + base, step, 0, top) for v in row])
    packed = [s[i] | s[i + 4] >> 4 << 6 for i in range(4)] + [m[i] | m[i + 4] >> 4 << 6 for i in range(4)]
    packed += [s[i] & 15 | (m[i] & 15) << 4 for i in range(4, 8)]
    fifth = [sum((q[j][i] >> 4) << j for j in range(8)) for i in range(32)] if top == 31 else []
    halves = [q[j][i] & 15 | (q[j + 1][i] & 15) << 4 for j in range(0, 8, 2) for i in range(32)]
    return struct.pack("<ee", d, dmin) + bytes(packed + fifth + halves)


def block_q6_k(x):
    rows = [x[i : i + 16] for i in range(0, 256, 16)]
    reach = [max(r, key=abs) / -32 for r in rows]
    d = half(max(map(abs, reach)) / 127)
    scale = [whole(v, d, -127, 127) for v in reach]
    q = []
    for row, s in zip(rows, scale):
        step = d * s
        q += [whole(v, step, -32, 31) + 32 for v in row]
    low = [q[h + i] & 15 | (q[h + 64 + i] & 15) << 4 for h in (0, 128) for i in range(64)]
    high = [sum((q[h + 32 * j + i] >> 4) << 2 * j for j in range(4)) for h in (0, 128) for i in range(32)]
    return bytes(low + high) + struct.pack("<16be", *scale, d)


def exponent(most):
    """The byte of MXFP4's scale 2^(e - 128) whose 8 is at most `most`, so that 12 is within a rounding of it."""
    return min(max(math.frexp(most)[1] - 1 - 3 + 128, 2), 252) if most > 0 else 0


def nearest(x, d, table):
    v, at = x / d if d else 0, 0
    while at + 1 < len(table) and v >= (table[at][1] + table[at + 1][1]) / 2:
        at += 1
    return table[at][0]


def halves(q):
    return bytes(a % 16 | b % 16 << 4 for a, b in zip(q[:16], q[16:]))


def fifths(q):
    return sum((v >> 4) << i for i, v in enumerate(q)).to_bytes(4, "little")


def block_q5_0(x):
    d = half(max(x, key=abs) / -16)
    q = [whole(v, d, -16, 15) + 16 for v in x]
    return struct.pack("<e", d) + fifths(q) + halves(q)


def block_q45_1(x, top):
    least = half(min(x))
    d = half((max(x) - least) / top)
    q = [whole(v - least, d, 0, top) for v in x]
    return struct.pack("<ee", d, least) + (fifths(q) if top == 31 else b"") + halves(q)


def block_iq4_nl(x):
    d = half(max(x, key=abs) / -127)
    return struct.pack("<e", d) + halves([nearest(v, d, IQ4) for v in x])


def block_mxfp4(x):
    e = exponent(max(map(abs, x)))
    return bytes([e]) + halves([nearest(v, math.ldexp(1.0, e - 128), FP4) for v in x])


def six_bits(x, groups, reach):
    size = 256 // groups
    r = [max(x[i : i + size], key=abs) / reach for i in range(0, 256, size)]
    d = half(max(map(abs, r)) / 31)
    return d, [whole(v, d, -31, 31) for v in r]


def twos(q):
    return bytes(sum((q[128 * a + 32 * j + i] & 3) << 2 * j for j in range(4)) for a in range(2) for i in range(32))


def block_q3_k(x):
    d, scale = six_bits(x, 16, -4)
    q = [whole(v, d * scale[i // 16], -4, 3) + 4 for i, v in enumerate(x)]
    third = bytes(sum((q[32 * j + i] >> 2) << j for j in range(8)) for i in range(32))
    s = [v + 32 for v in scale]
    packed = [s[i] & 15 | (s[i + 8] & 15) << 4 for i in range(8)]
    packed += [sum((s[i + 4 * j] >> 4) << 2 * j for j in range(4)) for i in range(4)]
    return third + twos(q) + bytes(packed) + struct.pack("<e", d)


def block_q2_k(x):
    rows = [x[i : i + 16] for i in range(0, 256, 16)]
    low = [max(-min(r), 0.0) + 0.0 for r in rows]
    span = [(max(max(r), 0.0) + m) / 3 for r, m in zip(rows, low)]
    d, dmin = half(max(span) / 15), half(max(low) / 15)
    s, m = [whole(v, d, 0, 15) for v in span], [whole(v, dmin, 0, 15) for v in low]
    q = [whole(v + dmin * m[i // 16], d * s[i // 16], 0, 3) for i, v in enumerate(x)]
    return bytes(a | b << 4 for a, b in zip(s, m)) + twos(q) + struct.pack("<ee", d, dmin)


def block_iq4_xs(x):
    d, scale = six_bits(x, 8, -127)
    s = [v + 32 for v in scale]
    high = bytes(sum((s[4 * a + j] >> 4) << 2 * j for j in range(4)) for a in range(2))
    q = [nearest(v, d * scale[i // 32], IQ4) for i, v in enumerate(x)]
    low = bytes(s[i] & 15 | (s[i + 1] & 15) << 4 for i in range(0, 8, 2))
    return struct.pack("<e", d) + high + low + b"".join(halves(q[i : i + 32]) for i in range(0, 256, 32))


BLOCKS = {
    Q8_0: block_q8_0,
    Q4_0: block_q4_0,
    Q4_K: lambda x: block_q45_k(x, 15),
    Q5_K: lambda x: block_q45_k(x, 31),
    Q6_K: block_q6_k,
    Q5_0: block_q5_0,
    Q4_1: lambda x: block_q45_1(x, 15),
    Q5_1: lambda x: block_q45_1(x, 31),
    IQ4_NL: block_iq4_nl,
    MXFP4: block_mxfp4,
    Q3_K: block_q3_k,
    Q2_K: block_q2_k,
    IQ4_XS: block_iq4_xs,
}
