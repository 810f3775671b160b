#!/usr/bin/env python3
"""Those tensors of a safetensors file whose names hold WORD, as a file of their own: small enough to fuzz.

    first_tensors.py FILE WORD >OUT
"""
import json
import struct
import sys

data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
kept, out = {}, b""
for name, t in json.loads(data[8 : 8 + size]).items():
    if sys.argv[2] in name:
        begin, end = t["data_offsets"]
        kept[name] = {**t, "data_offsets": [len(out), len(out) + end - begin]}
        out += data[8 + size + begin : 8 + size + end]
text = json.dumps(kept).encode()
sys.stdout.buffer.write(struct.pack("<Q", len(text)) + text + out)
