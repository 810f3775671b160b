#!/usr/bin/env python3
"""What several GPUs should give: tokens/s of tensor and pipeline parallelism, predicted from counts and rates.

    scaling.py                                 every table, in all types
    scaling.py --check docs/scaling.md         whether the document has these tables (exit 1: it has not)
    scaling.py --write docs/scaling.md         puts them there
    scaling.py --model llama-3-70b --type q8 --batch 64 --context 4096 --tp 8 --pp 2 [--set link=400e9 --set oneshot=4e-6 …]

The formula, for t ranks that share each layer and p stages; b sequences with contexts of c tokens, w bytes a weight, caches in 16
bits, D the hidden size:

    rows        r = ceil(b / p)
    stage       = weights + cache + sums + launches
    weights     = max(weights * w / t * ceil(r/256) / (read * kernel), 2 * r * weights / t / skinny)      skinny GEMM; the head by 64 rows
    cache       = r * c * cache bytes of the stage's layers / min(t, kv heads) / (read * kernel)
    sums        = 2 per layer: oneshot + max((t-1) * bytes / (link * linked), turns * far),  bytes = 4 r D,  a turn is 256 KiB
    launches    = kernels * launch in a CUDA graph, else max(kernels * single, kernels * issue - busy);  + step
    kernels     = 9 a layer, 11 with ranks, + 5 (7)
    between stages = 2 * (copy + bytes / pcie) + mpi + t * bytes / (net * linked) + sync + host
    token to token = max(all stages one after another, p * the slowest stage)
    prefill     = operations / (mma * prefill) + dequantised weights + NCCL sums + launches, of chunks that follow each other

--set changes a rate of RATES, so that measured numbers can take the place of published
ones. It needs nothing but Python.
"""
import argparse
import sys
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path

# Rates of one H200, its links and its host, each with its source.
RATES = {
    "read": 4.3e12,  # bytes/s of device memory; copying on one H200 through PyTorch, bytes read and written (data sheet: 4.8)
    "kernel": 0.92,  # of read, inside a product or an attention over the cache; a goal
    "skinny": 100e12,  # operations/s of the product that decodes go through; an estimate, 60 to 300: how much of the activations L1 instead of L2 serves
    "mma": 788e12,  # operations/s of a large product of the library, bf16; quantised weights are made bf16 for it; bf16 product of 8,192³ on one H200 through PyTorch (data sheet: 989 dense)
    "prefill": 0.6,  # of mma, over a whole prompt; a goal
    "launch": 1.3e-6,  # s between two kernels of a CUDA graph; on an H100: Hazy Research, "Look Ma, No Bubbles!", 2025
    "single": 2e-6,  # s between two that the host launches one by one, where it is ahead; an estimate
    "issue": 4e-6,  # s of the host for such a launch; an estimate (meta-pytorch/tritonbench, pull request 1017)
    "step": 10e-6,  # s of a step beside its kernels: a copy up, the start, a copy back; an estimate
    "graphs": 256,  # rows up to which a step is a CUDA graph
    "stage_graphs": 0,  # the same where there are stages
    "link": 450e9,  # bytes/s of NVLink 4 out of one GPU; H200 data sheet: 900 both ways
    "linked": 0.8,  # of link and net, what a transfer gets; an estimate
    "far": 1e-6,  # s of a read of another GPU's memory; an estimate, 0.7 to 2
    "oneshot": 5e-6,  # s of a sum in one kernel over peer memory, without the transfer; an estimate, 4 to 15: two handshakes of flags (pytorch/pytorch, issue 131739)
    "twoshot": inf,  # s of one in two halves, without the transfer; infinite: there is none; 8 µs where a table assumes it
    "nccl": 12e-6,  # s of a sum through NCCL, without the transfer; an estimate, 8 to 15 for 8 ranks (NVIDIA/nccl, issue 1259: about 6 for two H100)
    "unbounded": 0,  # of rows: sampled from all logits
    "host": 20e-6,  # s of a stage's host before its first kernel; an estimate
    "copy": 4e-6,  # s of a copy between a stage and its page-locked host memory, without the transfer; an estimate
    "pcie": 50e9,  # bytes/s of that copy; an estimate: PCIe 5 with 16 lanes has 63
    "sync": 5e-6,  # s from the end of a stage's work until its host knows; an estimate
    "mpi": 5e-6,  # s of a message between hosts, without the transfer; an estimate
    "net": 50e9,  # bytes/s of InfiniBand NDR out of one adapter
    "memory": 141e9,  # bytes of one GPU; data sheet
    "usable": 0.9,  # of memory; --gpu-memory-utilization
}

# Numbers of the code: kernels/cuda/step.c, peers.c, multiply.c, ops.h, work.h, ranks.cu.
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256)  # rows that a CUDA graph is padded to
LAYER_KERNELS = 8  # of a step that decodes: norm, qkv, its finish; attention; product; norm, gate and up; product
SKINNY_ROWS = 256  # of decodes that one launch of a product takes
HEAD_ROWS = 256  # of which logits are made at a time, where a step may have so many
CHUNK, MAX_ITEMS = 256, 4096  # tokens of one item of attention; items of one launch
MEET_BLOCKS, MEET_THREADS = 32, 512  # of a sum; each thread has 16 bytes of every rank at a time
FEW_BYTES = 516  # candidates of a row: 64 tokens and logits, and how many

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

    def stages(self, pp):
        """Layers of each stage, as engine/models/shard.c cuts them: equal multiplications, of which the head counts half."""
        layer, head = self.layer_weights() // self.hidden, self.vocab // 2
        whole = self.layers * layer + head
        begins = [min((2 * whole * s + pp * layer) // (2 * pp * layer), self.layers - (pp - s)) for s in range(pp)]
        return [end - begin for begin, end in zip(begins, [*begins[1:], self.layers])]


MODELS = {
    "llama-3-8b": Model(32, 4096, 32, 8, 128, 14336, 128256),
    "llama-3-70b": Model(80, 8192, 64, 8, 128, 28672, 128256),
}


def fits(r, m, kind, tp, pp, batch, context):
    """Whether every rank does: the first stage has the embedding table, whole on each of its ranks, the last one the head."""
    head = m.head_weights() * TYPES[kind]
    cache = batch * context * m.kv_values(tp) * 2
    stages = m.stages(pp)
    most = max(n * (m.layer_weights() * TYPES[kind] / tp + cache) + (head if s == 0 else 0) + (head / tp if s == pp - 1 else 0)
               for s, n in enumerate(stages))
    return most <= r["memory"] * r["usable"]


# ---- ranks of a stage

def decode_sum(r, tp, rows, hidden):
    """Seconds of a sum of rows that decode, which never go through NCCL: every rank reads what all have, in one kernel of few
    blocks, whose threads read 16 bytes of each rank, add them, and only then read the next."""
    if tp == 1:
        return 0
    size, rate = rows * hidden * 4, r["link"] * r["linked"]
    turns = ceil(size / (MEET_BLOCKS * MEET_THREADS * 16)) - 1  # the first is in oneshot
    one = r["oneshot"] + max((tp - 1) * size / rate, turns * r["far"])
    two = r["twoshot"] + max(2 * (tp - 1) / tp * size / rate, 2 * turns / tp * r["far"])
    return min(one, two)


def prompt_sum(r, tp, rows, hidden):
    """Of more than 64 rows of prompts: NCCL, and a kernel that adds what it gives to the residual stream."""
    if tp == 1:
        return 0
    size = rows * hidden * 4
    return r["nccl"] + 2 * (tp - 1) / tp * size / (r["link"] * r["linked"]) + 3 * size / (r["read"] * r["kernel"])


def gather(r, tp, rows, vocab):
    """Of bringing at most HEAD_ROWS rows of the head together: candidates, two reads after each other, or logits."""
    if tp == 1:
        return 0
    all_logits = rows * r["unbounded"]
    size = (rows - all_logits) * FEW_BYTES + all_logits * vocab / tp * 4  # of one rank
    turns = 2 * max((rows - all_logits) * tp / MEET_BLOCKS - 1, 0) + all_logits * vocab * 4 / (MEET_BLOCKS * MEET_THREADS * 16)
    return r["oneshot"] + max((tp - 1) * size / (r["link"] * r["linked"]), turns * r["far"])


# ---- a step that decodes

def between(r, kernels, busy, graph):
    """Seconds that a step loses between its kernels; where the host launches each, it may be behind a device that is that busy."""
    return kernels * r["launch"] if graph else max(kernels * r["single"], kernels * r["issue"] - busy)


@dataclass
class Step:
    """Seconds of one stage's part, by what they go to."""
    weights: float = 0
    cache: float = 0
    sums: float = 0
    launches: float = 0
    handing: float = 0

    def all(self):
        return self.weights + self.cache + self.sums + self.launches + self.handing


def product(r, weights, kind, tp, rows, at_once):
    """Of skinny products: weights from memory once for so many rows, or the arithmetic."""
    read = weights * TYPES[kind] / tp * ceil(rows / at_once) / (r["read"] * r["kernel"])
    return max(read, 2 * rows * weights / tp / r["skinny"])


def decode_stage(r, m, kind, tp, layers, head, rows, context, graph_rows):
    graph = rows <= min(graph_rows, MAX_ITEMS / ceil(context / CHUNK))
    real, rows = rows, next((n for n in BUCKETS if n >= rows), rows) if graph else rows
    s = Step(weights=product(r, layers * m.layer_weights(), kind, tp, rows, SKINNY_ROWS),
             cache=real * context * m.kv_values(tp) * 2 * layers / (r["read"] * r["kernel"]),
             sums=2 * layers * decode_sum(r, tp, rows, m.hidden))
    rounds = ceil(real * ceil(context / CHUNK) / MAX_ITEMS)
    kernels = layers * (LAYER_KERNELS + 4 * (ceil(rows / SKINNY_ROWS) - 1) + rounds - 1 + (2 if tp > 1 else 0)) + 2
    if head:
        s.weights += product(r, m.head_weights(), kind, tp, rows, HEAD_ROWS)
        full, rest = divmod(rows, HEAD_ROWS)
        s.sums += full * gather(r, tp, HEAD_ROWS, m.vocab) + (gather(r, tp, rest, m.vocab) if rest else 0)
        kernels += (3 if tp == 1 else 5) * ceil(rows / HEAD_ROWS)
    s.launches = between(r, kernels, s.all(), graph) + r["step"]
    return s


def hand(r, tp, size, stage, pp):
    """What a stage of several does beside its step: the residual stream goes device, host, MPI, host, device, of each rank a part
    to one of the next stage, whose ranks share them; the ranks of a stage are one process, which has one adapter."""
    if pp == 1:
        return 0  # the host is a step ahead
    seconds = r["host"] + r["sync"]
    if stage > 0:
        seconds += r["mpi"] + size / (r["net"] * r["linked"]) + r["copy"] + size / tp / r["pcie"]
        if tp > 1:
            seconds += r["oneshot"] + (tp - 1) / tp * size / (r["link"] * r["linked"])
    if stage < pp - 1:
        seconds += r["copy"] + size / tp / r["pcie"]
    return seconds


def decode_steps(r, m, kind, tp, pp, batch, context):
    part, steps = ceil(batch / pp), []
    for i, layers in enumerate(m.stages(pp)):
        s = decode_stage(r, m, kind, tp, layers, i == pp - 1, part, context, r["graphs"] if pp == 1 else r["stage_graphs"])
        s.handing = hand(r, tp, part * m.hidden * 4, i, pp)
        steps.append(s)
    return steps


def decode(r, m, kind, tp, pp, batch, context):
    """(tokens/s of all sequences, seconds from a token of one sequence to its next). The batch is cut into one part a stage; a
    part's next tokens begin when the last stage has told the first what it sampled."""
    seconds = [s.all() for s in decode_steps(r, m, kind, tp, pp, batch, context)]
    gap = max(sum(seconds) + (r["mpi"] if pp > 1 else 0), pp * max(seconds))
    return batch / gap, gap


def prefill(r, m, kind, tp, pp, tokens=8192, chunk=2048):
    """Tokens/s of long prompts in chunks, of more than 64 tokens, that follow each other through the stages."""
    attention = 2 * m.heads * m.head_dim * tokens / 2  # multiplications of a token and layer: scores and values
    quantised = kind != "bf16"
    slowest = 0
    for i, layers in enumerate(m.stages(pp)):
        seconds = 2 * chunk * layers * (m.layer_weights() + attention) / tp / (r["mma"] * r["prefill"])
        if quantised:  # read, and written as bf16, which the product then reads
            seconds += layers * m.layer_weights() * (TYPES[kind] + 2) / tp / (r["read"] * r["kernel"])
        seconds += 2 * layers * prompt_sum(r, tp, chunk, m.hidden)
        # norm, product, its finish; attention; product; norm, product, SwiGLU; product; four matrices to bf16; two sums of two
        kernels = layers * (9 + (4 if quantised else 0) + (4 if tp > 1 else 0)) + 2
        seconds += between(r, kernels, seconds, False) + r["step"]
        slowest = max(slowest, seconds + hand(r, tp, chunk * m.hidden * 4, i, pp))
    return chunk / slowest


def rows(head, body):
    out = ["| " + " | ".join(head) + " |", "|" + "---|" * 2 + "--:|" * (len(head) - 2)]
    return out + ["| " + " | ".join(str(c) for c in row) + " |" for row in body]


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def cell(r, m, kind, tp, pp, batch, context):
    if batch < pp or not fits(r, m, kind, tp, pp, batch, context):
        return ["", ""]
    rate, gap = decode(r, m, kind, tp, pp, batch, context)
    return [number(rate), f"{gap * 1e3:.2f}"]


def layouts_table(r, kinds=tuple(TYPES), short=False):
    """short: tokens/s alone, of one type."""
    body = []
    for name, m in MODELS.items():
        for kind in kinds:
            for tp, pp in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2)):
                cells = [c for batch in (1, 16, 64) for c in cell(r, m, kind, tp, pp, batch, 4096)[: 1 if short else 2]]
                for chunk in (2048,) if short else (512, 2048):
                    cells.append(number(prefill(r, m, kind, tp, pp, chunk=chunk)) if fits(r, m, kind, tp, pp, 1, 8192) else "")
                body.append([name, f"{tp} × {pp}", *cells] if short else [name, kind, tp, pp, *cells])
    if short:
        return rows(["model", "tp × pp", "× 1", "× 16", "× 64", "prefill by 2,048"], body)
    head = ["model", "type", "tp", "pp"]
    for batch in (1, 16, 64):
        head += [f"× {batch}, tokens/s", "ms/token"]
    return rows([*head, "prefill by 512", "by 2,048"], body)


def shares_table(r):
    """Of a decode step: where the time goes."""
    body = []
    for name, m in MODELS.items():
        for batch in (16, 64):
            for tp, pp in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2)):
                if not fits(r, m, "q8", tp, pp, batch, 4096):
                    continue
                _, gap = decode(r, m, "q8", tp, pp, batch, 4096)
                steps = decode_steps(r, m, "q8", tp, pp, batch, 4096)
                parts = [sum(getattr(s, part) for s in steps) for part in ("weights", "cache", "sums", "launches")]
                shares = [*parts, gap - sum(parts)]
                body.append([name, batch, tp, pp, f"{gap * 1e3:.2f}", *(f"{100 * x / gap:.0f} %" for x in shares)])
    return rows(["model", "sequences", "tp", "pp", "ms/token", "weights", "cache", "sums", "launches", "stages"], body)


def replicas_table(r, gpus=8):
    body = []
    for name, m in MODELS.items():
        for total in (8, 64, 512):
            cells = []
            for tp in (1, 2, 4, 8):
                each = total // (gpus // tp)
                if each < 1 or not fits(r, m, "q8", tp, 1, each, 2048):
                    cells.append("")
                    continue
                rate, gap = decode(r, m, "q8", tp, 1, each, 2048)
                cells.append(f"{number(rate * (gpus // tp))} ({gap * 1e3:.1f} ms)")
            body.append([name, total, *cells])
    return rows(["model", "sequences on 8 GPUs", "8 × tp 1", "4 × tp 2", "2 × tp 4", "1 × tp 8"], body)


def sums_table(r):
    """µs of a sum in the ways there are and could be."""
    body = []
    for tp in (2, 4, 8):
        for n in (16, 64, 128, 512):
            cells = []
            for m in MODELS.values():
                nccl = r["nccl"] + 2 * (tp - 1) / tp * n * m.hidden * 4 / (r["link"] * r["linked"])
                two = decode_sum(r | {"oneshot": inf} | TWO_SHOT, tp, n, m.hidden)
                cells += [f"{x * 1e6:.0f}" for x in (decode_sum(r, tp, n, m.hidden), two, nccl)]
            body.append([tp, n, *cells])
    return rows(["tp", "sequences", *(f"{name.removeprefix('llama-3-')}: {way}" for name in MODELS
                                      for way in ("one-shot", "two-shot", "NCCL"))], body)


TWO_SHOT = {"twoshot": 8e-6}

# What the code could do otherwise, or a request ask, as rates.
CHANGES = {
    "a two-shot sum": TWO_SHOT,
    "CUDA graphs for every decode step, also of stages": {"graphs": inf, "stage_graphs": inf},
    "the skinny GEMM at 60 TFLOP/s": {"skinny": 60e12},
    "the skinny GEMM at 300 TFLOP/s": {"skinny": 300e12},
    "that and a two-shot sum": {"skinny": 300e12} | TWO_SHOT,
    "sampling from all logits": {"unbounded": 1},
}


def changes_table(r):
    cases = (("llama-3-8b", 2, 1, 128, 2048), ("llama-3-8b", 8, 1, 512, 2048), ("llama-3-70b", 8, 1, 64, 4096),
             ("llama-3-70b", 8, 1, 512, 2048), ("llama-3-8b", 8, 2, 16, 4096), ("llama-3-70b", 8, 2, 64, 4096))
    predict = lambda case, change: decode(r | change, MODELS[case[0]], "q8", *case[1:])[0]
    body = [["as it is", *(number(predict(c, {})) for c in cases)]]
    for name, change in CHANGES.items():
        body.append([name, *(f"{100 * predict(c, change) / predict(c, {}) - 100:+.0f} %" for c in cases)])
    head = [f"{name.removeprefix('llama-3-')}, tp {tp}{f' × pp {pp}' if pp > 1 else ''}, {batch} × {context:,}"
            for name, tp, pp, batch, context in cases]
    table = rows(["tokens/s", *head], body)
    table[1] = "|---|" + "--:|" * len(cases)
    return table


TABLES = {"layouts": layouts_table, "shares": shares_table, "sums": sums_table, "replicas": replicas_table,
          "changes": changes_table}
PAGE = {"layouts": lambda r: layouts_table(r, ("q8",), short=True)}  # of docs/scaling.md


def with_tables(text, r):
    for name, table in PAGE.items():
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
    p.add_argument("--chunk", type=int, default=2048, help="tokens of a prompt in one step, --max-num-batched-tokens; over 64")
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
        if a.chunk <= 64:
            p.error(f"--chunk {a.chunk}: 64 rows of prompts and fewer go through the product of decodes")
        rate, gap = decode(r, m, a.type, a.tp, a.pp, a.batch, a.context)
        print(f"decode {number(rate)} tokens/s, {gap * 1e3:.2f} ms from token to token; prefill "
              f"{number(prefill(r, m, a.type, a.tp, a.pp, chunk=a.chunk))} tokens/s"
              + ("" if fits(r, m, a.type, a.tp, a.pp, a.batch, a.context) else "; does not fit into memory"))
    else:
        for table in TABLES.values():
            print("\n".join(table(r)), "\n")


if __name__ == "__main__":
    main()
