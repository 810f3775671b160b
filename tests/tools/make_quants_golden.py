#!/usr/bin/env python3
"""Writes tests/ops/quants.golden: blocks of every quantised type, and the numbers that the `gguf` package makes of them.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install gguf==0.19.0
    /tmp/oracle/bin/python tests/tools/make_quants_golden.py > tests/ops/quants.golden

One block a line: type, its bytes, its elements as the bits of f32; all in hex, bytes in the order of the file. The test
(tests/ops/test_quants.c) needs neither Python nor the package.
"""
import numpy as np
from gguf import GGMLQuantizationType, quants

# type: elements, bytes, where the f16 scales are
TYPES = {"Q8_0": (32, 34, [0]), "Q4_0": (32, 18, [0]), "Q4_K": (256, 144, [0, 2]), "Q5_K": (256, 176, [0, 2]),
         "Q6_K": (256, 210, [208]), "Q4_1": (32, 20, [0, 2]), "Q5_0": (32, 22, [0]), "Q5_1": (32, 24, [0, 2]),
         "IQ4_NL": (32, 18, [0]), "MXFP4": (32, 17, []), "Q3_K": (256, 110, [108]), "Q2_K": (256, 84, [80, 82]),
         "IQ4_XS": (256, 136, [0])}
# Bytes of the numbers, and the scales as f16 bits: ordinary, negative, subnormal, the largest, zero and minus zero. The
# last is the scale of MXFP4, a power of two, which is subnormal in f32 below 2.
CASES = [(None, 0x2C66, 0x2A00, 122), (None, 0xA4D2, 0x9123, 2), (None, 0x0003, 0x8001, 1), (0xFF, 0x7BFF, 0x7BFF, 252),
         (0x00, 0xFBFF, 0x3555, 128), (0x80, 0x3C01, 0xBC01, 127), (None, 0x0000, 0x8000, 0)]


def main():
    rng = np.random.default_rng(20240607)
    for name, (_, size, places) in TYPES.items():
        for fill, d, least, exponent in CASES:
            block = rng.integers(0, 256, size, dtype=np.uint8) if fill is None else np.full(size, fill, np.uint8)
            for at, bits in zip(places, (d, least)):
                block[at : at + 2] = np.frombuffer(np.uint16(bits).tobytes(), np.uint8)
            if name == "MXFP4":
                block[0] = exponent
            y = quants.dequantize(block[None], GGMLQuantizationType[name]).astype("<f4").reshape(-1)
            print(name, block.tobytes().hex(), "".join(f"{u:08x}" for u in y.view("<u4")))


if __name__ == "__main__":
    main()
