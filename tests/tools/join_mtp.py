#!/usr/bin/env python3
"""Puts an MTP layer, whose tensors stand in a file of their own, behind the layers of its model.

    join_mtp.py MODEL.gguf HEAD.gguf OUT.gguf
    join_mtp.py MODEL.gguf HEAD.gguf OUT.gguf --random SEED     # of the same shapes, with weights that know nothing

Standard library only. models/train/mtp.py makes the layer of quire-tiny. llama.cpp does not open what comes out.
"""
import argparse
import random
import struct

import gguf_file
from gguf_file import Q8_0, Writer


def scrambled(rng, kind, shape, data):
    """Q8_0 of random numbers as large as those that keep a vector's size; others stay."""
    if kind != Q8_0:
        return kind, shape, data
    d = struct.pack("<e", shape[1] ** -0.5 / 73)  # bytes deviate by 73
    return kind, shape, b"".join(d + rng.randbytes(32).replace(b"\x80", b"\x81") for _ in range(len(data) // 34))


def join(model, head, out, seed=None):
    keys, raw, tensors = gguf_file.read(model)
    _, _, layer = gguf_file.read(head)
    arch, w = keys["general.architecture"], Writer()
    w.u32(f"{arch}.block_count", keys[f"{arch}.block_count"] + 1)
    w.u32(f"{arch}.nextn_predict_layers", 1)
    count, nextn = w.keys
    rng = random.Random(seed)
    more = {name: t if seed is None else scrambled(rng, *t) for name, t in layer.items()}
    gguf_file.write(out, raw | {f"{arch}.block_count": count, f"{arch}.nextn_predict_layers": nextn}, tensors | more)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("head")
    p.add_argument("out")
    p.add_argument("--random", type=int, metavar="SEED")
    a = p.parse_args()
    join(a.model, a.head, a.out, a.random)


if __name__ == "__main__":
    main()
