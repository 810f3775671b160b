"""Trains quire-tiny, from nothing or from a checkpoint.

    python train.py --work DIR [--miniature]

DIR keeps tokenizer.json, checkpoint.pt (every few minutes; a run that finds one goes on from it) and log.txt. The learning
rate rises, stays, falls to a fifth and then to nothing (--knots). Two files in DIR steer a run: while `pause` exists it
sleeps, and `decay` (steps in it) lets the rate fall to nothing from now on, so that a run can be ended early and well.
"""

import argparse
import json
import os
import sys
import time

# threads that wait must sleep: a machine with other work would spend its time on their spinning (2.7 times slower, measured)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F

import data
import tokenizer as tok
from model import Config, Llama

MINIATURE = dict(hidden=256, layers=2, ffn=256)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True)
    p.add_argument("--knots", default="0:0,100:1,1200:1,2800:0.2,3800:0", help="STEP:SHARE of the rate, joined by straight lines")
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--weight-decay", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--save-every", type=float, default=180, help="seconds")
    p.add_argument("--vocab", type=int, default=3072)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--miniature", action="store_true", help="a few steps of a small network, to see the loss fall")
    return p.parse_args()


def rate_at(step, knots):
    """Straight lines between the knots (step, share of --rate)."""
    for (a, x), (b, y) in zip(knots, knots[1:]):
        if step < b:
            return x + (y - x) * (step - a) / (b - a)
    return 0.0


def optimisers(model, a):
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and n.startswith("blk.")]
    others = [p for n, p in model.named_parameters() if not (p.dim() == 2 and n.startswith("blk."))]
    return [torch.optim.Muon(matrices, lr=a.rate, weight_decay=a.weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=a.rate, betas=(0.9, 0.95), weight_decay=0.0, eps=1e-8)]


def save(path, **state):
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)


def main():
    a = arguments()
    os.makedirs(a.work, exist_ok=True)
    if a.threads:
        torch.set_num_threads(a.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    at = lambda name: os.path.join(a.work, name)
    out = open(at("log.txt"), "a", buffering=1)

    def log(line):
        print(line, flush=True)
        out.write(line + "\n")

    if not os.path.exists(at("tokenizer.json")):
        tok.train(a.vocab, 2000 if a.miniature else 60000).save(at("tokenizer.json"))
    tokenizer = tok.load(at("tokenizer.json"))
    torch.manual_seed(a.seed)
    config = Config(vocab=tokenizer.get_vocab_size(), **(MINIATURE if a.miniature else {}))
    if a.miniature:
        a.knots, a.save_every, a.no_compile = "0:0,5:1,20:1,40:0", 1e9, True
    knots = [(int(s), float(r)) for s, r in (k.split(":") for k in a.knots.split(","))]
    model = Llama(config).to(device)
    optims = optimisers(model, a)
    start, tokens, seconds, told = 0, 0, 0.0, None
    if os.path.exists(at("checkpoint.pt")):
        c = torch.load(at("checkpoint.pt"), map_location=device, weights_only=True)
        model.load_state_dict(c["model"])
        for o, s in zip(optims, c["optimisers"]):
            o.load_state_dict(s)
        start, tokens, seconds = c["step"], c["tokens"], c["seconds"]
        if c.get("told"):  # by the file `decay`, in an earlier run
            knots = told = c["told"]
        log(f"goes on at step {start}")
    shapes = [(4, 256)] if a.miniature else data.SHAPES
    batches = data.Batches(tokenizer, a.seed, shapes, [1] if a.miniature else data.SHARES)

    def losses_of(ids, targets):  # (B * T) in F32
        return F.cross_entropy(model(ids).float().flatten(0, 1), targets.flatten(), reduction="none")

    forward = losses_of if a.no_compile else torch.compile(losses_of, dynamic=False)
    log(json.dumps({"parameters": sum(p.numel() for p in model.parameters()), "device": device, "torch": torch.__version__,
                    **config.dict(), **vars(a)}))

    began, saved, losses, mean = time.time(), time.time(), [], None
    step = start

    def keep():
        save(at("checkpoint.pt"), model=model.state_dict(), optimisers=[o.state_dict() for o in optims], step=step, tokens=tokens,
             seconds=seconds, config=config.dict(), told=told)

    while step < knots[-1][0]:
        while os.path.exists(at("pause")):
            time.sleep(1)
        if os.path.exists(at("decay")) and not told:
            share, more = rate_at(step, knots), int(open(at("decay")).read())
            knots = told = [(step, share), (step + more, 0.0)]
            log(f"the rate falls from step {step} to {step + more}")
        t = time.time()
        ids, targets, weights = (torch.from_numpy(x).to(device) for x in batches.batch(step))
        rate = a.rate * rate_at(step + 1, knots)
        for o in optims:
            for g in o.param_groups:
                g["lr"] = rate
        with torch.autocast(device, torch.bfloat16):
            each = forward(ids, targets)
        weights = weights.flatten()
        loss = (each * weights).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in optims:
            o.step()
            o.zero_grad(set_to_none=True)
        spent = weights == data.ASSISTANT
        losses.append(float(each.detach()[spent].mean()))
        mean = losses[-1] if mean is None else 0.95 * mean + 0.05 * losses[-1]
        step, tokens, seconds = step + 1, tokens + ids.numel(), seconds + time.time() - t
        if step % 20 == 0 or a.miniature:
            log(f"step {step} loss {losses[-1]:.4f} mean {mean:.4f} rate {rate:.2e} tokens {tokens} seconds {seconds:.0f} "
                f"speed {ids.numel() / (time.time() - t):.0f} shape {tuple(ids.shape)}")
        if time.time() - saved > a.save_every:
            keep()
            saved = time.time()
    keep()
    log(f"done: {step} steps, {tokens} tokens, {seconds:.0f} seconds of steps")
    if a.miniature and not sum(losses[-5:]) / 5 < 0.8 * sum(losses[:5]) / 5:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    main()
