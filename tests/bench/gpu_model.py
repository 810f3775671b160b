#!/usr/bin/env python3
"""Predicts the decode speed of kernels/cuda on an H200 by arithmetic, for Llama 3 8B and 512 tokens of context.

    gpu_model.py

Nothing here was measured. A GEMM takes as long as the slowest of: its weights from memory, its traffic from L2, shared
memory and instructions (counted in kernels/cuda/sass.txt), and at few rows a warp's latencies. The limit is weights and cache
from memory once, or the matrix rate. Standard library only.
"""
SMS, CLOCK, MEMORY, L2, MATRIX = 132, 1.755e9, 4.3e12, 5.5e12, 790e12
LATENCY, STREAM = 475e-9, 0.93  # of a load; what a stream reaches of MEMORY
SHAPES, HEAD, LAYERS = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)], (128256, 4096), 32
CACHE = 131072  # bytes of keys and values a token, all layers
# bytes a weight; columns of a k-step; instructions of a k-step of gemm_staged<F, 8>; bytes of its stage; registers of
# gemm<F, 1> before and after the ring
FORMATS = {"BF16": (2, 32, 134, 12288, 72, 48), "Q8_0": (34 / 32, 32, 213, 8448, 64, 48),
           "Q4_K": (0.578, 64, 408, 13312, 83, 72)}


def skinny(n, k, m, name, ring):
    """gemm.cu: blocks of 16 rows of W and up to 16 tokens (32 without the ring), eight warps."""
    size, step, _, _, before, after = FORMATS[name]
    tokens = 8 if m <= 8 else 16 if m <= 16 else 32
    slots = SMS * min(65536 // (256 * (after if ring else before)), 8)
    steps = -(-k // step // 8)
    serial = max(0, steps - 4) if not ring else steps / 6
    block = LATENCY + serial * LATENCY + steps * (60e-9 if name == "BF16" else 120e-9)
    waves = max(1, n / 16 * -(-m // tokens) / slots)
    traffic = n * k * size * -(-m // tokens) + (m * k * 2 * n / 16 * 0.6 if m > 8 else 0)  # x: 0.6 of it misses L1
    return max(n * k * size / MEMORY / STREAM, traffic / L2, waves * block) + (0.4e-6 if ring else 1.2e-6)


def staged(n, k, m, name):
    """gemm_staged.cu: blocks of 128 rows of W and 64 tokens, eight warps."""
    size, step, instructions, stage, _, _ = FORMATS[name]
    tokens = 32 if m <= 32 else 64
    tiles = -(-m // tokens)
    traffic = n * k * size * tiles + m * k * 2 * n / 128
    parts = 1
    while parts < 8 and n / 128 * tiles * parts < SMS:
        parts *= 2
    traffic += (parts > 1) * parts * m * n * 8
    steps = n / 128 * tiles * k / step / SMS  # of an SM
    reads = 8 * 512 * (2 if name == "BF16" else 1) + 8 * step // 32 * tokens * 64
    shared = steps * (reads + stage) / 128 / CLOCK / 0.85
    issue = steps * instructions * (0.6 if tokens == 32 else 1) * 2 / CLOCK / 0.8
    return max(n * k * size / MEMORY / STREAM, traffic / L2, shared, issue) + 1.5e-6


def wgmma(n, k, m):
    """gemm_wgmma.cu, BF16: blocks of 128 or 256 rows of W and up to 128 tokens, which read both from shared memory."""
    rows, tokens = (256, 32) if m <= 32 else (256, 64) if m <= 64 else (128, 128)
    tiles, parts = -(-m // tokens), 1
    while parts < 8 and n / rows * tiles * parts * 2 <= SMS:
        parts *= 2
    traffic = n * k * 2 * tiles + m * k * 2 * n / rows + (parts > 1) * parts * tiles * tokens * n * 8
    blocks = n / rows * tiles
    steps = -(-blocks * parts // SMS) * k / 32 / parts  # of the busiest SM
    shared = steps * (rows // 32 * (2048 + tokens * 32) + (rows + tokens) * 64) / 128 / CLOCK / 0.85
    matrix = steps * 2 * rows * tokens * 32 / (MATRIX / SMS)
    return max(n * k * 2 / MEMORY / STREAM, traffic / L2, shared, matrix) + 1.5e-6


def step(m, context, name, after):
    def gemm(n, k, rows):
        if after == "wgmma":
            return wgmma(n, k, rows)
        return staged(n, k, rows, name) if after and rows > 16 else skinny(n, k, rows, name, after)

    matrices = LAYERS * sum(gemm(n, k, m) for n, k in SHAPES)
    together = 256 if after else 64  # rows of which logits are made at a time, and that a CUDA graph has
    head = sum(gemm(*HEAD, min(together, m - r)) for r in range(0, m, together))
    attention = m * context * CACHE / MEMORY / 0.85
    merge = 1e-6 if after else 2.5e-6  # of splits: behind attention, or a kernel of its own
    small = LAYERS * (10.2e-6 + merge + m * 4096 * 24 / MEMORY / 0.4) + -(-m // together) * 40e-6 + 40e-6
    launches = LAYERS * 9e-6 if m > together else 0
    return matrices + head + attention + small + launches


def limit(m, context, name):
    weights = LAYERS * sum(n * k for n, k in SHAPES) + HEAD[0] * HEAD[1]
    return max((weights * FORMATS[name][0] + m * context * CACHE) / MEMORY, 2 * m * weights / MATRIX)


def main():
    print("| rows | " + " | ".join(FORMATS) + " | BF16, wgmma |\n|---" + "|---" * len(FORMATS) + "|---|")
    speeds = []
    for m in (1, 16, 32, 64, 128, 256):
        old, new = ([step(m, 512, name, after) for name in FORMATS] for after in (False, True))
        shares = [[100 * limit(m, 512, name) / t for name, t in zip(FORMATS, times)] for times in (old, new)]
        hopper = 100 * limit(m, 512, "BF16") / step(m, 512, "BF16", "wgmma")
        print(f"| {m} | " + " | ".join(f"{o:.0f}→{n:.0f}" for o, n in zip(*shares)) + f" | {hopper:.0f} |")
        speeds.append(f"{m:4} rows: " + "".join(f"{m / t:12,.0f}" for t in new))
    print("\ntokens/s:" + "".join(f"{name:>12}" for name in FORMATS), *speeds, sep="\n")


if __name__ == "__main__":
    main()
