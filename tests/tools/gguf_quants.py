"""Quantises numbers into ggml's blocks, all that Quire reads. Standard library; with numpy the same bytes faster.

Each block takes the scales that just reach its largest numbers (and, in Q4_K and Q5_K, its smallest), then the nearest
number of the grid. No search for scales that lose less: what a test model needs is a file whose values are close to the
ones asked for. Only comparisons and single operations in double, so that both ways round alike.
"""
import math
import struct

from gguf_file import (IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, QUANTISED)

try:
    import numpy as np
except ImportError:
    np = None


# Values of the nibbles of IQ4_NL and IQ4_XS, and of MXFP4 (doubled), ascending, with their codes
IQ4 = list(enumerate((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)))
FP4 = [(15, -12), (14, -8), (13, -6), (12, -4), (11, -3), (10, -2), (9, -1), (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 6),
       (6, 8), (7, 12)]


def encode(kind, x):
    """Bytes of the floats x; their number is a multiple of the block. x: a numpy array where numpy is there."""
    if np is not None:
        return ARRAYS[kind](x.astype(np.float64).reshape(-1, QUANTISED[kind][0]))
    size = QUANTISED[kind][0]
    return b"".join(BLOCKS[kind](x[i : i + size]) for i in range(0, len(x), size))


# ---- with numpy: x is (blocks, block) --------------------------------------------------------------------------------


def _half(x):
    return x.astype("<f2").astype(np.float64)


def _half_bytes(x):
    return x.astype("<f2").view(np.uint8).reshape(len(x), 2)


def _whole(x, d, low, high):
    """The nearest whole number of x / d, kept within low and high; 0 where d is 0."""
    return np.clip(np.floor(np.where(d == 0, 0, x / np.where(d == 0, 1, d)) + 0.5), low, high)


def _largest(x):
    """The number furthest from 0 in the last axis, with its sign."""
    return np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)[..., 0]


def _q8_0(x):
    d = np.abs(x).max(axis=1) / 127
    q = _whole(x, d[:, None], -127, 127).astype(np.int8).view(np.uint8)
    return np.concatenate([_half_bytes(d), q], axis=1).tobytes()


def _q4_0(x):
    d = _half(_largest(x) / -8)
    q = (_whole(x, d[:, None], -8, 7) + 8).astype(np.uint8)
    return np.concatenate([_half_bytes(d), q[:, :16] | q[:, 16:] << 4], axis=1).tobytes()


def _q45_k(x, top):
    n = len(x)
    x = x.reshape(n, 8, 32)
    low = np.maximum(-x.min(axis=2), 0) + 0.0  # never -0
    span = (np.maximum(x.max(axis=2), 0) + low) / top
    d, dmin = _half(span.max(axis=1) / 63), _half(low.max(axis=1) / 63)
    scale, minimum = _whole(span, d[:, None], 0, 63), _whole(low, dmin[:, None], 0, 63)
    base = (dmin[:, None] * minimum)[:, :, None]
    q = _whole(x + base, (d[:, None] * scale)[:, :, None], 0, top).astype(np.uint8)
    s, m = scale.astype(np.uint8), minimum.astype(np.uint8)
    packed = [s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4]
    parts = [_half_bytes(d), _half_bytes(dmin), *packed]
    if top == 31:
        parts.append(np.bitwise_or.reduce((q >> 4) << np.arange(8, dtype=np.uint8)[:, None], axis=1))
    parts.append((q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).reshape(n, 128))
    return np.concatenate(parts, axis=1).tobytes()


def _q6_k(x):
    n = len(x)
    x = x.reshape(n, 16, 16)
    reach = _largest(x) / -32
    d = _half(np.abs(reach).max(axis=1) / 127)
    scale = _whole(reach, d[:, None], -127, 127)
    q = (_whole(x, (d[:, None] * scale)[:, :, None], -32, 31) + 32).astype(np.uint8).reshape(n, 2, 4, 32)
    low = (q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4).reshape(n, 128)
    high = np.bitwise_or.reduce((q >> 4) << np.array([0, 2, 4, 6], np.uint8)[:, None], axis=2).reshape(n, 64)
    return np.concatenate([low, high, scale.astype(np.int8).view(np.uint8), _half_bytes(d)], axis=1).tobytes()


def _halves(q):
    """Numbers 0..15 in the lower halves of 16 bytes, 16..31 in the upper ones."""
    q = q.astype(np.uint8)
    return q[:, :16] | q[:, 16:] << 4


def _fifths(q):
    return np.packbits(q.astype(np.uint8) >> 4, axis=1, bitorder="little")


def _q5_0(x):
    d = _half(_largest(x) / -16)
    q = _whole(x, d[:, None], -16, 15) + 16
    return np.concatenate([_half_bytes(d), _fifths(q), _halves(q % 16)], axis=1).tobytes()


def _q45_1(x, top):
    least = _half(x.min(axis=1))
    d = _half((x.max(axis=1) - least) / top)
    q = _whole(x - least[:, None], d[:, None], 0, top)
    fifths = [_fifths(q)] if top == 31 else []
    return np.concatenate([_half_bytes(d), _half_bytes(least), *fifths, _halves(q % 16)], axis=1).tobytes()


def _nearest(x, d, table):
    """The codes of the numbers of the table nearest to x / d; at a tie the larger."""
    steps = np.array([(a + b) / 2 for (_, a), (_, b) in zip(table, table[1:])])
    at = np.searchsorted(steps, np.where(d == 0, 0, x / np.where(d == 0, 1, d)), side="right")
    return np.array([code for code, _ in table], np.uint8)[at]


def _iq4_nl(x):
    d = _half(_largest(x) / -127)
    return np.concatenate([_half_bytes(d), _halves(_nearest(x, d[:, None], IQ4))], axis=1).tobytes()


def _mxfp4(x):
    e = np.array([exponent(v) for v in np.abs(x).max(axis=1).tolist()], np.uint8)
    d = np.ldexp(1.0, e.astype(np.int64) - 128)
    return np.concatenate([e[:, None], _halves(_nearest(x, d[:, None], FP4))], axis=1).tobytes()


def _six_bits(x, groups, reach):
    """The f16 scale of a block, signed scales of its groups below 32, and the product of both for each element."""
    n = len(x)
    reach = _largest(x.reshape(n, groups, -1)) / reach
    d = _half(np.abs(reach).max(axis=1) / 31)
    scale = _whole(reach, d[:, None], -31, 31)
    return d, scale, np.repeat(d[:, None] * scale, x.shape[1] // groups, axis=1)


def _twos(q):
    """Byte 32 a + i: the lower two bits of numbers 128 a + i, + 32, + 64 and + 96."""
    q = (q % 4).astype(np.uint8).reshape(len(q), 2, 4, 32)
    return np.bitwise_or.reduce(q << np.array([0, 2, 4, 6], np.uint8)[:, None], axis=2).reshape(len(q), 64)


def _q3_k(x):
    n = len(x)
    d, scale, step = _six_bits(x, 16, -4)
    q = _whole(x, step, -4, 3) + 4
    third = (q >= 4).astype(np.uint8).reshape(n, 8, 32) << np.arange(8, dtype=np.uint8)[:, None]
    s = (scale + 32).astype(np.uint8)
    high = s.reshape(n, 4, 4) >> 4 << np.array([0, 2, 4, 6], np.uint8)[:, None]
    packed = [s[:, :8] & 15 | (s[:, 8:] & 15) << 4, np.bitwise_or.reduce(high, axis=1)]
    return np.concatenate([np.bitwise_or.reduce(third, axis=1), _twos(q), *packed, _half_bytes(d)], axis=1).tobytes()


def _q2_k(x):
    n = len(x)
    x = x.reshape(n, 16, 16)
    low = np.maximum(-x.min(axis=2), 0) + 0.0
    span = (np.maximum(x.max(axis=2), 0) + low) / 3
    d, dmin = _half(span.max(axis=1) / 15), _half(low.max(axis=1) / 15)
    scale, minimum = _whole(span, d[:, None], 0, 15), _whole(low, dmin[:, None], 0, 15)
    base = (dmin[:, None] * minimum)[:, :, None]
    q = _whole(x + base, (d[:, None] * scale)[:, :, None], 0, 3).reshape(n, 256)
    both = scale.astype(np.uint8) | minimum.astype(np.uint8) << 4
    return np.concatenate([both, _twos(q), _half_bytes(d), _half_bytes(dmin)], axis=1).tobytes()


def _iq4_xs(x):
    n = len(x)
    d, scale, step = _six_bits(x, 8, -127)
    s = (scale + 32).astype(np.uint8)
    high = np.bitwise_or.reduce((s >> 4).reshape(n, 2, 4) << np.array([0, 2, 4, 6], np.uint8), axis=2)
    q = _halves(_nearest(x, step, IQ4).reshape(n * 8, 32)).reshape(n, 128)
    return np.concatenate([_half_bytes(d), high, s[:, 0::2] & 15 | (s[:, 1::2] & 15) << 4, q], axis=1).tobytes()


ARRAYS = {Q8_0: _q8_0, Q4_0: _q4_0, Q4_K: lambda x: _q45_k(x, 15), Q5_K: lambda x: _q45_k(x, 31), Q6_K: _q6_k,
          Q5_0: _q5_0, Q4_1: lambda x: _q45_1(x, 15), Q5_1: lambda x: _q45_1(x, 31), IQ4_NL: _iq4_nl, MXFP4: _mxfp4,
          Q3_K: _q3_k, Q2_K: _q2_k, IQ4_XS: _iq4_xs}

# ---- without: x is one block -----------------------------------------------------------------------------------------


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
