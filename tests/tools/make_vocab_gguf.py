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


def add_vocabulary(w, vocab, merges, pre, size=0, added=None, control=(), bos=None, eos=None, config=None):
    """Adds the tokenizer's keys to a Writer; tokens up to `size` that nothing names are unused. Paths, and texts."""
    with open(vocab, encoding="utf-8") as f:
        ids = json.load(f)
    controls = {token: int(i) for i, token in (c.split("=", 1) for c in control)}
    if added:
        with open(added, encoding="utf-8") as f:
            controls.update(json.load(f))
    for token in (bos, eos):
        if token in ids:
            controls[token] = ids[token]
    ids.update(controls)
    size = max(size, max(ids.values()) + 1)
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size
    for token, i in ids.items():
        tokens[i], kinds[i] = token, CONTROL if token in controls else NORMAL
    settings = {}
    if config:
        with open(config, encoding="utf-8") as f:
            settings = json.load(f)
    eos = eos or settings.get("eos_token")
    w.string("tokenizer.ggml.model", "gpt2")
    w.string("tokenizer.ggml.pre", pre)
    w.strings("tokenizer.ggml.tokens", tokens)
    w.i32s("tokenizer.ggml.token_type", kinds)
    w.strings("tokenizer.ggml.merges", read_merges(merges))
    if bos:
        w.u32("tokenizer.ggml.bos_token_id", ids[bos])
    if eos:
        w.u32("tokenizer.ggml.eos_token_id", ids[eos])
    if settings.get("chat_template"):
        w.string("tokenizer.chat_template", settings["chat_template"])


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
    w = Writer()
    w.string("general.architecture", "llama")
    w.string("general.name", a.pre)
    add_vocabulary(w, a.vocab, a.merges, a.pre, 0, a.added, a.control, a.bos, a.eos, a.config)
    w.write(a.out)


if __name__ == "__main__":
    main()
