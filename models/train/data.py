"""Token ids and loss weights for training: rows of whole documents, drawn from a seed and a number alone.

Step n of a run with seed s always sees the same rows, wherever it is run and however often it was interrupted; no row is seen
twice.
"""

import random

import numpy as np

import chats
import tokenizer as tok

SHAPES = [(16, 256), (8, 512), (4, 1024)]  # rows x positions: 4,096 tokens each
SHARES = [62, 26, 12]
ASSISTANT, USER = 1.0, 0.1  # what a token counts in the loss: what the model must write, and what it reads


def weights_of(ids, roles):
    """(T) the weight of each id as a target. roles: ids of "user", "assistant", "system", and the specials."""
    w = np.ones(len(ids), np.float32)
    starts = np.flatnonzero(ids == roles["start"])
    if len(starts) == 0:
        return w  # a plain text
    w[:] = USER
    ends = np.flatnonzero(ids == roles["end"])
    for s, e in zip(starts, ends):
        if s + 1 < len(ids) and ids[s + 1] == roles["assistant"]:
            w[s + 3 : e + 1] = ASSISTANT  # after <|im_start|>assistant\n, its <|im_end|> too
    return w


def roles_of(tokenizer):
    one = lambda s: tokenizer.encode(s).ids[0]
    return {"start": one(tok.IM_START), "end": one(tok.IM_END), "assistant": tokenizer.encode(tok.IM_START + "assistant\n").ids[1],
            "text": one(tok.END_OF_TEXT)}


class Stream:
    """Documents of one length class as rows. A document longer than a row is cut; the rest of a row is filled likewise."""

    def __init__(self, tokenizer, seed, late=0):
        self.tokenizer, self.rng, self.late = tokenizer, random.Random(seed), late
        self.roles = roles_of(tokenizer)
        self.ready = []

    def next(self):
        if not self.ready:
            texts = [chats.document(self.rng, self.late) for _ in range(256)]
            self.ready = [np.array(e.ids, np.int64) for e in self.tokenizer.encode_batch(texts)]
        return self.ready.pop()

    def row(self, T, waiting):
        """ids (T + 1), weights (T + 1). waiting: documents that did not fit shorter rows."""
        ids, w, n = np.zeros(T + 1, np.int64), np.zeros(T + 1, np.float32), 0
        while n < T + 1:
            if T > 512 and waiting:
                d = waiting.pop()
            else:
                d = self.next()
                if len(d) > T + 1 and T <= 512:
                    if len(waiting) < 64:
                        waiting.append(d)
                    continue
            take = min(len(d), T + 1 - n)
            ids[n : n + take] = d[:take]
            w[n : n + take] = weights_of(d, self.roles)[:take]
            n += take
        return ids, w


class Batches:
    """batch(step) -> ids (B, T), targets (B, T), weights (B, T) as numpy arrays."""

    GROUP = 32  # steps that share one stream of documents
    LATER = (47, 90)  # the groups from which documents come from the later mixtures of chats.py: steps 1,504 and 2,880

    def __init__(self, tokenizer, seed, shapes=SHAPES, shares=SHARES):
        self.tokenizer, self.seed, self.shapes, self.shares = tokenizer, seed, shapes, shares
        self.group, self.made = -1, []

    def make(self, group):
        stream = Stream(self.tokenizer, f"{self.seed} {group}", late=sum(group >= g for g in self.LATER))
        shapes = stream.rng.choices(self.shapes, self.shares, k=self.GROUP)
        waiting, made = [], [None] * self.GROUP
        for i in sorted(range(self.GROUP), key=lambda i: shapes[i][1]):  # long rows take what was too long
            B, T = shapes[i]
            rows = [stream.row(T, waiting) for _ in range(B)]
            ids, w = np.stack([r[0] for r in rows]), np.stack([r[1] for r in rows])
            made[i] = (ids[:, :-1], ids[:, 1:], w[:, 1:])
        self.group, self.made = group, made

    def batch(self, step):
        if step // self.GROUP != self.group:
            self.make(step // self.GROUP)
        return self.made[step % self.GROUP]


def held_out_text(seed=7, documents=400):
    """Documents for perplexity: chats whose questions are all held out, and stories of another seed."""
    rng = random.Random(f"held out {seed}")
    texts = []
    for i in range(documents):
        if i % 8 == 0:
            texts.append(chats.stories.story(rng)[0] + tok.END_OF_TEXT)
        else:
            e = chats.exchange(rng, held=True)
            texts.append(chats.render([{"role": "user", "content": e.question}] + (e.steps or [{"role": "assistant", "content": e.answer}]),
                                      e.tools or None).rstrip("\n"))
    return texts
