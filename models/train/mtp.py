"""Trains an MTP layer for quire-tiny: a layer behind the model's own, which drafts (`--speculative-method mtp`).

    python mtp.py [--model models/quire-tiny.gguf] [--batches 64] [--passes 2] HEAD.gguf

HEAD.gguf has the layer's tensors alone, in Q8_0; tests/tools/join_mtp.py puts them behind the model's. The text is the model's own,
of a seed that training did not have. The layer learns the model's next row and what the model thinks of the next token, not what
the text says: it begins with what is linear of that, by least squares. Rows are used as the engine will use them: of an answer it sees
what was answered so far, and of DEPTH drafts in a row the later ones follow from what the earlier ones were made of.
"""

import argparse
import os
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from torch import nn

import data
import export
import golden
from gguf_file import F32, Q8_0, Writer  # found by export
from model import Layer, Norm, rope, rope_table

DEPTH = 2
ROWS = 768  # of a step, of which all tokens are scored: half of what a step takes is scores
LONGEST = 128  # tokens of an answer that are learned from at once
SEED = "mtp"


class Head(nn.Module):
    def __init__(self, m):
        super().__init__()
        c = self.config = m.config
        self.enorm, self.hnorm, self.shared_head_norm = Norm(c), Norm(c), Norm(c)
        self.eh_proj = nn.Linear(2 * c.hidden, c.hidden, bias=False)
        self.layer = Layer(c)
        self.layer.load_state_dict(m.blk[-1].state_dict())
        self.shared_head_norm.load_state_dict(m.output_norm.state_dict())
        nn.init.zeros_(self.layer.attn_output.weight)
        nn.init.zeros_(self.layer.ffn_down.weight)
        cos, sin = rope_table(c, LONGEST)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def inputs(self, embedded, rows):
        return torch.cat((self.enorm(embedded), self.hnorm(rows)), -1)

    @torch.no_grad()
    def begin(self, m, answers):
        """What of the model's next row, before its norm's weights, follows from the inputs by a matrix."""
        x, y = [], []
        for tokens, rows, own, answer, _ in answers:
            x.append(self.inputs(m.token_embd(tokens), rows)[answer >= 0])
            y.append(own[answer >= 0] / self.shared_head_norm.weight)
        x, y = torch.cat(x), torch.cat(y)
        square = x.T @ x + 1e-3 * len(x) * torch.eye(x.shape[1])
        self.eh_proj.weight.copy_(torch.linalg.solve(square, x.T @ y).T)

    def heads(self, x, w, n):
        B, T, _ = x.shape
        return w(x).view(B, T, n, self.config.head_size).transpose(1, 2)

    def forward(self, embedded, rows, answer, earlier):
        """embedded (S, T, D) of the tokens, rows (S, T, D) of the tokens before them; gives rows (S, T, D). answer (S, T): a row sees
        those of its own. earlier: keys and values of the steps before, of which this is the next; its own are added."""
        c, l = self.config, self.layer
        x = self.eh_proj(self.inputs(embedded, rows))
        S, T, _ = x.shape
        h = l.attn_norm(x)
        q = rope(self.heads(h, l.attn_q, c.heads), self.cos[:T], self.sin[:T])
        k = rope(self.heads(h, l.attn_k, c.kv_heads), self.cos[:T], self.sin[:T]).repeat_interleave(c.heads // c.kv_heads, 1)
        v = self.heads(h, l.attn_v, c.kv_heads).repeat_interleave(c.heads // c.kv_heads, 1)
        earlier.append((k, v))
        step = len(earlier)  # from 1 on. Row j sees the first step's up to row j - step + 1, then one of each step up to its own
        seen = (answer[:, None, :, None] == answer[:, None, None, :]).tril(1 - step)
        seen[..., 0] |= ~seen.any(-1)  # of rows that do not count
        scores = [(q @ earlier[0][0].transpose(2, 3)).float().masked_fill(~seen, float("-inf"))]
        for i in range(1, step):
            scores.append((q * shifted(earlier[i][0], step - 1 - i)).float().sum(-1, keepdim=True))
        p = (torch.cat(scores, -1) * c.head_size**-0.5).softmax(-1).to(v.dtype)
        o = p[..., :T] @ earlier[0][1]
        for i in range(1, step):
            o = o + p[..., T + i - 1 : T + i] * shifted(earlier[i][1], step - 1 - i)
        x = x + l.attn_output(o.transpose(1, 2).reshape(S, T, -1))
        h = l.ffn_norm(x)
        return self.shared_head_norm(x + l.ffn_down(F.silu(l.ffn_gate(h)) * l.ffn_up(h)))


def shifted(x, n):
    """Row j is row j - n of x (..., T, d); the first rows are zeros."""
    return F.pad(x, (0, 0, n, 0))[..., : x.shape[-2], :]


def answers(ids, rows, weights):
    """Of rows (B, T, D) of ids (B, T) what the layer sees, one answer behind the other: (S, L) ids, (S, L, D) rows of the tokens before
    them and rows of their own, (S, L) numbers of answers, -1: none, and (S, L) tokens of the answer before."""
    parts = []
    for b in range(len(ids)):
        first = last = None
        for t in (weights[b] >= data.ASSISTANT).nonzero().flatten().tolist() + [None]:
            if first is not None and (t != last + 1 or t - first == LONGEST):
                parts.append((b, max(first, 1), last + 1))
                first = None
            first, last = t if first is None else first, t
    lines = []
    for part in sorted((p for p in parts if p[2] - p[1] > DEPTH), key=lambda p: p[1] - p[2]):
        n = part[2] - part[1]
        line = next((l for l in lines if sum(e - s for _, s, e in l) + n <= LONGEST), None)
        if line is None:
            lines.append(line := [])
        line.append(part)
    of = lambda what: nn.utils.rnn.pad_sequence([torch.cat([what(*p) for p in l]) for l in lines], batch_first=True)
    number = iter(range(1, len(parts) + 1))
    return (of(lambda b, s, e: ids[b, s:e]), of(lambda b, s, e: rows[b, s - 1 : e - 1]), of(lambda b, s, e: rows[b, s:e]),
            of(lambda b, s, e: torch.full((e - s,), next(number))) - 1, of(lambda b, s, e: torch.arange(e - s)))


@torch.no_grad()
def batch_of(m, batch):
    ids, _, weights = (torch.from_numpy(x) for x in batch)
    weights = torch.cat((torch.zeros(len(ids), 1), weights[:, :-1]), 1)  # of the ids, no longer of what follows them
    return answers(ids, m.hidden(ids), weights)


def losses(head, m, batch):
    """The loss, and of each depth how often the layer's best token is the model's."""
    tokens, rows, own, answer, at = batch
    follows = (answer >= 0) & (F.pad(answer[:, 1:], (0, 1), value=-1) == answer)
    embedded, earlier, loss, right = m.token_embd(tokens), [], 0.0, []
    for depth in range(DEPTH):
        rows = head(embedded, rows if depth == 0 else shifted(rows, 1), answer, earlier)
        counts = follows & (at >= depth)
        got, want = rows[counts], own[counts]
        some = torch.randperm(len(got))[:ROWS]
        says, thinks = (F.linear(x[some], m.token_embd.weight) for x in (got, want))
        loss = loss + F.cross_entropy(says, thinks.softmax(-1)) + F.mse_loss(got, want) / want.square().mean()
        right.append(float((says.argmax(-1) == thinks.argmax(-1)).float().mean()))
    return loss, right


def write(head, path):
    w = Writer()
    for name, t in head.state_dict().items():
        x = t.detach().float().numpy()
        place = "" if name.startswith("layer.") else "nextn."
        quantised = x.ndim == 2
        w.tensor(f"blk.{head.config.layers}.{place}{name.removeprefix('layer.')}", Q8_0 if quantised else F32, list(x.shape),
                 lambda x=x, q=quantised: [export.q8_0(x) if q else x.astype("<f4").tobytes()])
    w.write(path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default=os.path.join(export.HERE, "..", "quire-tiny.gguf"))
    p.add_argument("--batches", type=int, default=64)
    p.add_argument("--passes", type=int, default=2)
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("out")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    m, tokenizer, _ = golden.load(a.model)
    m = m.float().requires_grad_(False)
    head = Head(m)
    matrices = [p for p in head.parameters() if p.dim() == 2]
    optims = [torch.optim.Muon(matrices, lr=a.rate, weight_decay=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
              torch.optim.AdamW([p for p in head.parameters() if p.dim() == 1], lr=a.rate, betas=(0.9, 0.95), weight_decay=0.0)]
    text, began, mean, known = data.Batches(tokenizer, SEED), time.process_time(), None, []
    print(f"{sum(p.numel() for p in head.parameters())} parameters", flush=True)
    last = a.batches * a.passes
    for step in range(last):
        if len(known) <= step and len(known) < a.batches:
            n = len(known)
            known += [batch_of(m, text.batch(n + i + data.Batches.LATER[1] * data.Batches.GROUP)) for i in range(8)]
            if n == 0:
                head.begin(m, known)
        for o in optims:
            for g in o.param_groups:
                g["lr"] = a.rate * min(1, (step + 1) / 10) * (1 - step / last)
        loss, right = losses(head, m, known[step % a.batches])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for o in optims:
            o.step()
            o.zero_grad(set_to_none=True)
        mean = right if mean is None else [0.95 * x + 0.05 * y for x, y in zip(mean, right)]
        if step % 8 == 7:
            write(head, a.out)
            print(f"step {step + 1} loss {loss.item():.4f} right {' '.join(f'{100 * x:.1f}' for x in mean)} % "
                  f"CPU seconds {time.process_time() - began:.0f}", flush=True)
    write(head, a.out)
    print(f"{a.out}: {os.path.getsize(a.out)} bytes")


if __name__ == "__main__":
    sys.exit(main())
