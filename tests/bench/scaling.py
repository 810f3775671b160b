#!/usr/bin/env python3
"""What several GPUs should give: tokens/s of tensor and pipeline parallelism, predicted from counts and rates.

    scaling.py                                 the tables of docs/scaling.md
    scaling.py --check docs/scaling.md         whether the document has these tables (exit 1: it has not)
    scaling.py --write docs/scaling.md         puts them there
    scaling.py --model llama-3-70b --type q8 --batch 64 --context 4096 --tp 8 --pp 2 [--set link=400e9 --set oneshot=4e-6 …]

The formula stands in docs/scaling.md; --set changes a rate of RATES, so that measured numbers can take the place of published
ones. It needs nothing but Python.
"""
import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

# Rates of one H200 and its links. docs/scaling.md says where each comes from.
RATES = {
    "read": 4.3e12,  # bytes/s of device memory
    "mma": 788e12,  # bf16 operations/s of a large product; 8-bit weights are multiplied as bf16
    "kernel": 0.92,  # of read, inside a product or an attention over the cache
    "prefill": 0.6,  # of mma, over a whole prompt
    "launch": 1.3e-6,  # s between two kernels of a recorded step
    "kernels": 6,  # kernels of a layer
    "link": 450e9,  # bytes/s of NVLink 4 out of one GPU
    "linked": 0.8,  # of link and net, what a transfer gets
    "oneshot": 5e-6,  # s of an all-reduce over peer memory, without the transfer
    "nccl": 12e-6,  # the same through NCCL
    "net": 50e9,  # bytes/s of InfiniBand NDR out of one GPU's adapter
    "hop": 5e-6,  # s of a message between machines, without the transfer
    "memory": 141e9,  # bytes of one GPU
    "usable": 0.9,  # of memory
}

TYPES = {"bf16": 2.0, "q8": 34 / 32, "q4": 18 / 32}  # bytes of a weight; q8 is Q8_0, q4 is Q4_0


@dataclass
class Model:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int

    def layer_weights(self):
        d = self.head_dim
        return self.hidden * (2 * self.heads + 2 * self.kv_heads) * d + 3 * self.hidden * self.ffn

    def head_weights(self):
        return self.vocab * self.hidden

    def kv_values(self, tp):
        """Of one token and layer on one rank: key/value heads are repeated where there are fewer than ranks."""
        return 2 * max(self.kv_heads // tp, 1) * self.head_dim


MODELS = {
    "llama-3-8b": Model(32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3-70b": Model(80, 8192, 64, 8, 128, 28672, 128256),
}


def weight_bytes(m, kind, tp, pp):
    """Of the rank that has the most: one of the last stage. The embedding table stands whole on each rank of the first."""
    layers = -(-m.layers // pp)
    return (layers * m.layer_weights() + m.head_weights()) * TYPES[kind] / tp


def fits(r, m, kind, tp, pp, batch, context):
    table = m.head_weights() * TYPES[kind]
    cache = batch * context * m.kv_values(tp) * 2 * -(-m.layers // pp)
    return weight_bytes(m, kind, tp, pp) + table + cache <= r["memory"] * r["usable"]


def all_reduce(r, tp, size):
    """Seconds for size bytes: one-shot over peer memory, or NCCL's ring, whichever is shorter."""
    if tp == 1:
        return 0
    rate = r["link"] * r["linked"]
    return min(r["oneshot"] + (tp - 1) * size / rate, r["nccl"] + 2 * (tp - 1) / tp * size / rate)


def to_next_stage(r, pp, size):
    return 0 if pp == 1 else r["hop"] + size / (r["net"] * r["linked"])


def decode(r, m, kind, tp, pp, batch, context):
    """(tokens/s of all sequences, seconds from a token of one sequence to its next). The batch is cut into one part a stage."""
    part = batch / pp
    layers = -(-m.layers // pp)
    read = weight_bytes(m, kind, tp, pp) + part * context * m.kv_values(tp) * 2 * layers
    math = 2 * part * (layers * m.layer_weights() + m.head_weights()) / tp / r["mma"]
    sums = 2 * layers * all_reduce(r, tp, part * m.hidden * 4) + all_reduce(r, tp, part * 8192)
    stage = max(read / (r["read"] * r["kernel"]), math) + layers * r["kernels"] * r["launch"] + sums
    stage += to_next_stage(r, pp, part * m.hidden * 4)
    return part / stage, pp * stage


def prefill(r, m, kind, tp, pp, tokens=8192, chunk=2048):
    """Tokens/s of long prompts in chunks that follow each other through the stages."""
    layers = -(-m.layers // pp)
    attention = 2 * m.heads * m.head_dim * tokens / 2 * layers  # multiplications of a token: scores and values
    math = 2 * chunk * (layers * m.layer_weights() + attention) / tp / (r["mma"] * r["prefill"])
    sums = 2 * layers * all_reduce(r, tp, chunk * m.hidden * 4)
    return chunk / (math + sums + to_next_stage(r, pp, chunk * m.hidden * 4))


def rows(head, body):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * 2 + "--:|" * (len(head) - 2)]
    return out + ["| " + " | ".join(str(c) for c in row) + " |" for row in body]


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def layouts_table(r):
    body = []
    for name, m in MODELS.items():
        for kind in TYPES:
            for tp, pp in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2)):
                cells = []
                for batch in (1, 16, 64):
                    if batch < pp or not fits(r, m, kind, tp, pp, batch, 4096):
                        cells += ["", ""]
                        continue
                    rate, gap = decode(r, m, kind, tp, pp, batch, 4096)
                    cells += [number(rate), f"{gap * 1e3:.2f}"]
                fill = number(prefill(r, m, kind, tp, pp)) if fits(r, m, kind, tp, pp, 1, 8192) else ""
                body.append([name, kind, tp, pp, *cells, fill])
    head = ["model", "type", "tp", "pp"]
    for batch in (1, 16, 64):
        head += [f"× {batch}, tokens/s", "ms/token"]
    return rows([*head, "prefill, tokens/s"], body)


def shares_table(r):
    """Of a decode step: where the time goes."""
    body = []
    for name, m in MODELS.items():
        for tp in (1, 2, 4, 8):
            if not fits(r, m, "q8", tp, 1, 16, 4096):
                continue
            _, gap = decode(r, m, "q8", tp, 1, 16, 4096)
            sums = 2 * m.layers * all_reduce(r, tp, 16 * m.hidden * 4) + all_reduce(r, tp, 16 * 8192)
            launch = m.layers * r["kernels"] * r["launch"]
            body.append([name, tp, f"{gap * 1e3:.2f}", f"{100 * (gap - sums - launch) / gap:.0f} %", f"{100 * sums / gap:.0f} %",
                         f"{100 * launch / gap:.0f} %"])
    return rows(["model", "tp", "ms/token", "memory", "sums", "launches"], body)


def replicas_table(r, gpus=8):
    body = []
    for name, m in MODELS.items():
        for total in (8, 64, 512):
            cells = []
            for tp in (1, 2, 4, 8):
                each = total / (gpus // tp)
                if each < 1 or not fits(r, m, "q8", tp, 1, each, 2048):
                    cells.append("")
                    continue
                rate, gap = decode(r, m, "q8", tp, 1, each, 2048)
                cells.append(f"{number(rate * (gpus // tp))} ({gap * 1e3:.1f} ms)")
            body.append([name, total, *cells])
    return rows(["model", "sequences on 8 GPUs", "8 × tp 1", "4 × tp 2", "2 × tp 4", "1 × tp 8"], body)


TABLES = {"layouts": layouts_table, "shares": shares_table, "replicas": replicas_table}


def with_tables(text, r):
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, rest = text.split(begin, 1)
        text = head + begin + "\n".join(table(r)) + "\n" + end + rest.split(end, 1)[1]
    return text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", type=Path)
    p.add_argument("--write", type=Path)
    p.add_argument("--model", choices=MODELS)
    p.add_argument("--type", choices=TYPES, default="bf16")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--context", type=int, default=4096)
    p.add_argument("--tp", type=int, choices=(1, 2, 4, 8), default=1)
    p.add_argument("--pp", type=int, default=1)
    p.add_argument("--set", action="append", default=[], metavar="RATE=VALUE", help=", ".join(RATES))
    a = p.parse_args()
    r = dict(RATES)
    for word in a.set:
        name, _, value = word.partition("=")
        if name not in r:
            p.error(f"--set: expected one of {', '.join(RATES)}, found '{name}'")
        r[name] = float(value)
    if a.check:
        if with_tables(a.check.read_text(), r) != a.check.read_text():
            sys.exit(f"scaling.py: the tables of {a.check} are old: scaling.py --write {a.check}")
    elif a.write:
        a.write.write_text(with_tables(a.write.read_text(), r))
    elif a.model:
        m = MODELS[a.model]
        if a.batch < a.pp:
            p.error(f"--batch {a.batch} is less than --pp {a.pp}: some stages would have nothing to do")
        rate, gap = decode(r, m, a.type, a.tp, a.pp, a.batch, a.context)
        print(f"decode {number(rate)} tokens/s, {gap * 1e3:.2f} ms from token to token; prefill "
              f"{number(prefill(r, m, a.type, a.tp, a.pp))} tokens/s"
              + ("" if fits(r, m, a.type, a.tp, a.pp, a.batch, a.context) else "; does not fit into memory"))
    else:
        for table in TABLES.values():
            print("\n".join(table(r)), "\n")


if __name__ == "__main__":
    main()
