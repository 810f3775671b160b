"""Quantises numbers into ggml's blocks: Q8_0, Q4_0, Q4_K, Q5_K, Q6_K. Standard library; with numpy the same bytes faster.

Each block takes the scales that just reach its largest numbers (and, in Q4_K and Q5_K, its smallest), then the nearest
number of the grid. No search for scales that lose less: what a test model needs is a file whose values are close to the
ones asked for. Only comparisons and single operations in double, so that both ways round alike.
"""
import math
import struct

from gguf_file import Q4_0, Q4_K, Q5_K, Q6_K, Q8_0, QUANTISED

try:
    import numpy as np
except ImportError:
    np = None


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


ARRAYS = {Q8_0: _q8_0, Q4_0: _q4_0, Q4_K: lambda x: _q45_k(x, 15), Q5_K: lambda x: _q45_k(x, 31), Q6_K: _q6_k}

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


BLOCKS = {
    Q8_0: block_q8_0,
    Q4_0: block_q4_0,
    Q4_K: lambda x: block_q45_k(x, 15),
    Q5_K: lambda x: block_q45_k(x, 31),
    Q6_K: block_q6_k,
}
