"""Matrices as quantised folders have them, and the same numbers as GGUF: what make_folder.py and make_gguf.py write with
--method. Packing is as compressed-tensors 0.20, GPTQModel 7.7, AutoAWQ 0.2.9 and modelopt define it; all four read what
stands here as the values in the GGUF file. Standard library only.
"""
import bisect
import struct

from gguf_file import BF16, F16, MXFP4, Q4_0, Q8_0

METHODS = {  # kind: what the numbers are as GGUF; group 0: a scale for a row; size: of a block of FP8
    "gptq": dict(style="gptq", kind=Q4_0, bits=4, group=32),
    "gptq-8": dict(style="gptq", kind=Q8_0, bits=8, group=0),
    "gptq-zeros": dict(style="gptq", kind=Q8_0, bits=4, group=64, zeros=True),
    "gptq-v2": dict(style="gptq", kind=Q8_0, bits=4, group=32, zeros=True, v2=True),
    "gptq-order": dict(style="gptq", kind=F16, bits=4, group=32, zeros=True, order=True),
    "gptq-fine": dict(style="gptq", kind=F16, bits=4, group=16),
    "awq": dict(style="awq", kind=Q8_0, bits=4, group=64, zeros=True),
    "packed": dict(style="packed", kind=Q4_0, bits=4, group=32, brain=True),
    "packed-8": dict(style="packed", kind=Q8_0, bits=8, group=0, brain=True),
    "packed-zeros": dict(style="packed", kind=Q8_0, bits=4, group=64, zeros=True, brain=True),
    "packed-order": dict(style="packed", kind=BF16, bits=4, group=32, order=True, brain=True),
    "int8": dict(style="int8", kind=Q8_0, bits=8, group=0, brain=True),
    "int8-zeros": dict(style="int8", kind=BF16, bits=8, group=0, zeros=True, brain=True),
    "fp8": dict(style="fp8", kind=BF16, size=(16, 32)),
    "fp8-blocks": dict(style="fp8", kind=BF16, size=(128, 128)),
    "fp8-row": dict(style="fp8", kind=BF16, size=(1, 0)),
    "fp8-whole": dict(style="fp8", kind=BF16, size=(0, 0)),
    "nvfp4": dict(style="nvfp4", kind=BF16, group=16),
    "modelopt": dict(style="modelopt", kind=BF16, group=16),
    "mxfp4": dict(style="mxfp4", kind=MXFP4, group=32),
}
WEIGHTS = {Q4_0: "q4_0", Q8_0: "q8_0", F16: "f16", BF16: "bf16", MXFP4: "mxfp4"}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the row that each four bits of a word have
E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
E4M3 = [m / 512 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][:127]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def brain(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (u + 0x7FFF + ((u >> 16) & 1)) >> 16 << 16))[0]


def brain_bytes(values):
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def nearest(x, grid):
    high = min(bisect.bisect(grid, abs(x)), len(grid) - 1)
    low = max(high - 1, 0)
    return (low if abs(x) - grid[low] <= grid[high] - abs(x) else high) | (128 if len(grid) > 8 else 8) * (x < 0)


def words(values, bits):
    """Rows of small integers as words of 32 bits, the first in the lowest bits."""
    per = 32 // bits
    for row in values:
        row = row + [0] * (-len(row) % per)
        for i in range(0, len(row), per):
            yield sum(v << bits * k for k, v in enumerate(row[i : i + per]))


def turn(rows):
    return [list(column) for column in zip(*rows)]


class Matrix:
    """One of rows x cols floats x: codes, zero points and scales of each row."""

    def __init__(self, method, rows, cols, x):
        m = self.m = {"bits": 4, "zeros": False, "brain": False, "order": False, "v2": False, "size": None, "group": 0, **METHODS[method]}
        self.rows, self.cols = rows, cols
        x = [[float(v) for v in x[r * cols : (r + 1) * cols]] for r in range(rows)]
        group = m["group"] or cols
        self.groups = -(-cols // group)
        self.group_of = [(7 * i + 3) % cols // group if m["order"] else i // group for i in range(cols)]
        if m["style"] == "fp8":
            self.fp8(x)
        elif m["style"] in ("nvfp4", "modelopt", "mxfp4"):
            self.fp4(x)
        else:
            self.integers(x)

    def integers(self, x):
        m, top = self.m, 2 ** self.m["bits"] - 1
        middle = (top + 1) // 2
        self.codes, self.zeros, self.scales = [], [], []
        for row in x:
            scales, zeros = [], []
            for g in range(self.groups):
                own = [v for v, of in zip(row, self.group_of) if of == g]
                low, high = min(0, *own), max(0, *own)
                reach = (high - low) / top if m["zeros"] else 2 * max(high, -low) / top
                scales.append(brain(reach) if m["brain"] else half(reach))
                # Version 1 of GPTQ cannot say 0: it stores one less.
                zeros.append(min(top, max(1, round(-low / scales[-1]))) if m["zeros"] else middle)
            self.codes.append([min(top, max(0, round(v / scales[g]) + zeros[g])) for v, g in zip(row, self.group_of)])
            self.zeros.append(zeros)
            self.scales.append(scales)
        self.values = [[(q - z[g]) * s[g] for q, g in zip(c, self.group_of)] for c, z, s in zip(self.codes, self.zeros, self.scales)]

    def fp8(self, x):
        down, across = (n or whole for n, whole in zip(self.m["size"], (self.rows, self.cols)))
        self.scales = [[single(max(abs(v) for row in x[r : r + down] for v in row[c : c + across]) / 448) for c in range(0, self.cols, across)]
                       for r in range(0, self.rows, down)]
        at = [[self.scales[r // down][c // across] for c in range(self.cols)] for r in range(self.rows)]
        self.codes = [[nearest(v / s, E4M3) for v, s in zip(*pair)] for pair in zip(x, at)]
        self.values = [[single((-1) ** (q >> 7) * E4M3[q & 127] * s) for q, s in zip(*pair)] for pair in zip(self.codes, at)]

    def fp4(self, x):
        group, most = self.m["group"], max(abs(v) for row in x for v in row)
        self.all = single(6 * 448 / most) if self.m["style"] == "nvfp4" else single(most / (6 * 448))
        self.codes, self.scales, self.values = [], [], []
        for row in x:
            codes, scales, values = [], [], []
            for own in (row[i : i + group] for i in range(0, self.cols, group)):
                reach = max(abs(v) for v in own) / 6
                if self.m["style"] == "mxfp4":
                    scales.append(struct.unpack("<I", struct.pack("<f", 1.5 * reach))[0] >> 23)
                    scale = 2.0 ** (scales[-1] - 127)
                else:
                    whole = self.all if self.m["style"] == "modelopt" else 1 / self.all
                    scales.append(nearest(reach / whole, E4M3))
                    scale = single(E4M3[scales[-1]] * self.all if self.m["style"] == "modelopt" else E4M3[scales[-1]] / self.all)
                codes += [nearest(v / (scale or 1), E2M1) for v in own]
                values += [single((-1) ** (q >> 3) * E2M1[q & 7] * scale) for q in codes[-len(own) :]]
            self.codes.append(codes)
            self.scales.append(scales)
            self.values.append(values)

    def gguf(self):
        kind, out = self.m["kind"], b""
        for r in range(self.rows):
            if kind == F16:
                out += struct.pack(f"<{self.cols}e", *self.values[r])
            elif kind == BF16:
                out += brain_bytes(map(brain, self.values[r]))
            for at in range(0, self.cols, 32) if kind in (Q4_0, Q8_0, MXFP4) else ():
                q, g = self.codes[r][at : at + 32], self.group_of[at]
                if kind == MXFP4:
                    out += bytes([self.scales[r][g]])
                else:
                    out += struct.pack("<e", self.scales[r][g])
                if kind == Q8_0:
                    out += struct.pack("<32b", *(v - self.zeros[r][g] for v in q))
                else:
                    out += bytes(q[i] | q[i + 16] << 4 for i in range(16))
        return out

    def parts(self, order):
        """[(end of its name, dtype, shape, bytes)], of rows in this order."""
        m, rows, cols, bits = self.m, self.rows, self.cols, self.m["bits"]
        codes = [self.codes[r] for r in order]
        per, packed = 32 // bits, [c for c in codes]
        groups = struct.pack(f"<{cols}i", *self.group_of)
        if m["style"] == "fp8":
            scales = [self.scales[r] for r in order] if m["size"][0] == 1 else self.scales
            shape = [len(scales), len(scales[0])] if m["size"][0] else []
            return [(".weight", "F8_E4M3", [rows, cols], b"".join(map(bytes, codes))),
                    (".weight_scale_inv" if m["size"][1] else ".weight_scale", "F32", shape, b"".join(struct.pack(f"<{len(s)}f", *s) for s in scales))]
        scales = [self.scales[r] for r in order]
        if m["style"] in ("nvfp4", "modelopt", "mxfp4"):
            parts = [(".weight" if m["style"] == "modelopt" else ".weight_packed", "U8", [rows, cols // 2],
                      b"".join(bytes(c[i] | c[i + 1] << 4 for i in range(0, cols, 2)) for c in codes)),
                     (".weight_scale", "U8" if m["style"] == "mxfp4" else "F8_E4M3", [rows, self.groups], b"".join(map(bytes, scales)))]
            if m["style"] == "nvfp4":
                parts.append((".weight_global_scale", "F32", [1], struct.pack("<f", self.all)))
            if m["style"] == "modelopt":
                parts.append((".weight_scale_2", "F32", [], struct.pack("<f", self.all)))
            return parts
        zeros = [self.zeros[r] for r in order]
        if m["style"] == "int8":
            parts = [(".weight", "I8", [rows, cols], b"".join(struct.pack(f"<{cols}b", *(v - 128 for v in c)) for c in codes)),
                     (".weight_scale", "BF16", [rows, 1], brain_bytes(s[0] for s in scales))]
            return parts + [(".weight_zero_point", "I8", [rows, 1], struct.pack(f"<{rows}b", *(z[0] - 128 for z in zeros)))] * m["zeros"]
        if m["style"] == "packed":
            parts = [(".weight_packed", "I32", [rows, cols // per], self.words(packed, bits)),
                     (".weight_scale", "BF16", [rows, self.groups], brain_bytes(v for s in scales for v in s)),
                     (".weight_shape", "I64", [2], struct.pack("<2q", rows, cols))]
            if m["zeros"]:  # packed down the rows
                lines = turn([list(words([z], bits)) for z in turn(zeros)])
                parts.append((".weight_zero_point", "I32", [len(lines), self.groups], b"".join(struct.pack(f"<{self.groups}I", *line) for line in lines)))
            return parts + [(".weight_g_idx", "I32", [cols], groups)] * m["order"]
        scales = (".scales", "F16", [self.groups, rows], b"".join(struct.pack(f"<{rows}e", *s) for s in turn(scales)))
        if m["style"] == "awq":
            def shuffle(lines):
                return [[line[i + k] for i in range(0, rows, 8) for k in AWQ_ORDER] for line in lines]
            return [(".qweight", "I32", [cols, rows // 8], self.words(shuffle(turn(codes)), 4)),
                    (".qzeros", "I32", [self.groups, rows // 8], self.words(shuffle(turn(zeros)), 4)), scales]
        lines = turn([list(words([c], bits)) for c in codes])
        return [(".qweight", "I32", [cols // per, rows], b"".join(struct.pack(f"<{rows}I", *line) for line in lines)),
                (".qzeros", "I32", [self.groups, rows // per], self.words([[z - (not m["v2"]) for z in line] for line in turn(zeros)], bits)),
                scales, (".g_idx", "I32", [cols], groups)]

    @staticmethod
    def words(rows, bits):
        return b"".join(struct.pack("<I", w) for w in words(rows, bits))


def config(method):
    """quantization_config of config.json."""
    m = METHODS[method]
    style, group, zeros = m["style"], m.get("group") or -1, m.get("zeros", False)
    if style == "gptq":
        return dict(quant_method="gptq", bits=m["bits"], group_size=group, sym=not zeros, desc_act=m.get("order", False), lm_head=False,
                    checkpoint_format="gptq_v2" if m.get("v2") else "gptq")
    if style == "awq":
        return dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm", modules_to_not_convert=None)
    if style == "fp8":
        return dict(quant_method="fp8", weight_block_size=list(m["size"]) if all(m["size"]) else None, activation_scheme="dynamic")
    if style == "modelopt":
        return dict(quant_method="modelopt", quant_algo="NVFP4")
    form = {"packed": "pack-quantized", "int8": "int-quantized", "nvfp4": "nvfp4-pack-quantized", "mxfp4": "mxfp4-pack-quantized"}[style]
    weights = dict(num_bits=m.get("bits", 4), type="int" if "bits" in m else "float", symmetric=not zeros, group_size=group,
                   strategy="group" if group > 0 else "channel", actorder="group" if m.get("order") else None)
    return dict(quant_method="compressed-tensors", format=form, config_groups={"group_0": dict(targets=["Linear"], weights=weights)})
