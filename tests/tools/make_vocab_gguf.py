#!/usr/bin/env python3
"""Puts a byte-level vocabulary, vocab.json and merges.txt, into a GGUF file without tensors.

    make_vocab_gguf.py vocab.json merges.txt out.gguf --pre NAME [--added added_tokens.json] [--control ID=TOKEN]...
                       [--bos TOKEN] [--eos TOKEN] [--config tokenizer_config.json]

Tokens of --added and --control become control tokens; ids between that nothing names become unused tokens. --config
gives the chat template and eos. Standard library only.
"""
import argparse
import json

from gguf_file import CONTROL, NORMAL, UNUSED, Writer


def read_merges(path):
    with open(path, encoding="utf-8", newline="\n") as f:
        lines = f.read().split("\n")
    return [line for i, line in enumerate(lines) if line and not (i == 0 and line.startswith("#version"))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("vocab")
    p.add_argument("merges")
    p.add_argument("out")
    p.add_argument("--pre", required=True)
    p.add_argument("--added")
    p.add_argument("--control", action="append", default=[], metavar="ID=TOKEN")
    p.add_argument("--bos")
    p.add_argument("--eos")
    p.add_argument("--config")
    a = p.parse_args()
    with open(a.vocab, encoding="utf-8") as f:
        ids = json.load(f)
    control = dict(reversed(c.split("=", 1)) for c in a.control)
    control = {token: int(i) for token, i in control.items()}
    if a.added:
        with open(a.added, encoding="utf-8") as f:
            control.update(json.load(f))
    for token in (a.bos, a.eos):
        if token in ids:
            control[token] = ids[token]
    ids.update(control)
    size = max(ids.values()) + 1
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size
    for token, i in ids.items():
        tokens[i], kinds[i] = token, CONTROL if token in control else NORMAL
    config = {}
    if a.config:
        with open(a.config, encoding="utf-8") as f:
            config = json.load(f)
    bos, eos = a.bos, a.eos or config.get("eos_token")
    w = Writer()
    w.string("general.architecture", "llama")
    w.string("general.name", a.pre)
    w.string("tokenizer.ggml.model", "gpt2")
    w.string("tokenizer.ggml.pre", a.pre)
    w.strings("tokenizer.ggml.tokens", tokens)
    w.i32s("tokenizer.ggml.token_type", kinds)
    w.strings("tokenizer.ggml.merges", read_merges(a.merges))
    if bos:
        w.u32("tokenizer.ggml.bos_token_id", ids[bos])
    if eos:
        w.u32("tokenizer.ggml.eos_token_id", ids[eos])
    if config.get("chat_template"):
        w.string("tokenizer.chat_template", config["chat_template"])
    w.write(a.out)


if __name__ == "__main__":
    main()
