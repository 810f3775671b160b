"""Writes a run's training text once more and looks in it for the questions of the evaluation.

    python unseen.py --work DIR [--steps N] [--seed 1]

DIR has the run's tokenizer.json and checkpoint.pt (which knows N). None of the held-out questions may have been a user's message
in training, whatever its capitals, marks and words of politeness.
"""

import argparse
import os
import re
import sys

import chats
import data
import evaluate
import tokenizer as tok


def plain(question):
    return re.sub(r"[^a-z0-9+*/-]+", " ", question.lower()).strip()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True)
    p.add_argument("--steps", type=int)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.steps is None:
        import torch

        a.steps = torch.load(os.path.join(a.work, "checkpoint.pt"), map_location="cpu", weights_only=True)["step"]
    seen, documents, write = set(), 0, chats.document

    def document(rng, late=0):
        nonlocal documents
        text = write(rng, late)
        documents += 1
        seen.update(map(plain, re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.S)))
        return text

    chats.document = document
    batches = data.Batches(tok.load(os.path.join(a.work, "tokenizer.json")), a.seed)
    for group in range(-(-a.steps // batches.GROUP)):
        batches.make(group)
    asked = [e.question for seed, n in ((1, 100), (2, 500)) for e in evaluate.held_out_questions(n, seed)] + evaluate.WHO
    found = [q for q in asked if plain(q) in seen]
    print(f"{documents} documents, {len(seen)} different questions in training; of {len(asked)} of the evaluation "
          f"{len(found)} are among them")
    for q in found:
        print("  " + q)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
