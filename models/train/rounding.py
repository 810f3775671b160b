"""Measures the relative error of rounding activations to 8 bits: normally distributed values, rms over blocks.

    python rounding.py
"""

import math
import random


def error(block, step):
    d = step(max(map(abs, block)))
    return math.sqrt(sum((round(x / d) * d - x) ** 2 for x in block) / sum(x * x for x in block))


def rms(values):
    return math.sqrt(sum(v * v for v in values) / len(values))


def main():
    draw = random.Random(1)
    exact = lambda largest: largest / 127  # noqa: E731
    power = lambda largest: 2.0 ** math.ceil(math.log2(largest / 127))  # noqa: E731
    # Sizes over an octave: where in it a block lies decides how much wider than needed a power of two is.
    blocks = [[draw.gauss(0, size) for _ in range(32)] for size in (2 ** draw.random() for _ in range(20000))]
    print(f"32, max / 127: {rms([error(b, exact) for b in blocks]):.2%}; a power of two: {rms([error(b, power) for b in blocks]):.2%}")
    blocks = [[draw.gauss(0, 1) for _ in range(256)] for _ in range(2500)]
    plain = rms([error(b, exact) for b in blocks])
    for b in blocks:
        b[0] = 10.0
    print(f"256, max / 127: {plain:.2%}; where one number is 10 times the others' deviation: {rms([error(b, exact) for b in blocks]):.2%}")


if __name__ == "__main__":
    main()
