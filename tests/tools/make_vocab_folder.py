#!/usr/bin/env python3
"""Puts a real vocabulary into a Hugging Face folder without tensors, for tests of tokenizers.

    make_vocab_folder.py DATA NAME DIR         DATA: the test data; NAME: one of VOCABULARIES

Those that come without tokenizer.json get the one that the model's own repository has, as far as encoding goes. Standard
library only.
"""
import json
import os
import shutil
import struct
import sys

from make_vocab_gguf import read_merges

CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NFC = {"type": "NFC"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def split(regex):
    cut = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [cut, BYTES]}


GPT2 = dict(BYTES, use_regex=True)
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]}
VOCABULARIES = {
    "llama2": dict(copy="hf/llama2"),
    "phi-3": dict(copy="hf/phi-3"),
    "qwen2": dict(vocab="qwen2/vocab.json", merges="qwen2/merges.txt", normalizer=NFC, pre=split(CL100K % r"\p{N}"),
                  added=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], eos="<|im_end|>"),
    "llama3": dict(vocab="ollama-llama3.2/encoder.json", merges="ollama-llama3.2/vocab.bpe", pre=split(CL100K % r"\p{N}{1,3}"),
                   added=["<|begin_of_text|>", "<|end_of_text|>"], bos="<|begin_of_text|>", eos="<|end_of_text|>", whole=True),
    "gpt2": dict(vocab="gpt2/gpt2_vocab.json", merges="gpt2/gpt2_merges.txt", pre=GPT2, added=["<|endoftext|>"], eos="<|endoftext|>"),
    "digits": dict(vocab="gpt2/gpt2_vocab.json", merges="gpt2/gpt2_merges.txt", pre=DIGITS, added=["<|endoftext|>"], eos="<|endoftext|>"),
}


def tokenizer_json(data, v):
    with open(os.path.join(data, v["vocab"]), encoding="utf-8") as f:
        ids = json.load(f)
    for token in v["added"]:
        ids.setdefault(token, max(ids.values()) + 1)
    added = [{"id": ids[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for t in v["added"]]
    post = dict(BYTES)
    if "bos" in v:
        post = {"type": "Sequence", "processors": [post, {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": v["bos"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {v["bos"]: {"id": v["bos"], "ids": [ids[v["bos"]]], "tokens": [v["bos"]]}}}]}
    merges = [line for line in read_merges(os.path.join(data, v["merges"])) if line.count(" ") == 1]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": v.get("normalizer"),
            "pre_tokenizer": v["pre"], "post_processor": post, "decoder": BYTES,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": v.get("whole", False), "vocab": ids, "merges": merges}}


def make(data, name, folder):
    v = VOCABULARIES[name]
    data = os.path.join(data, "tokenizers")
    os.makedirs(folder, exist_ok=True)

    def write(file, value):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False)

    if "copy" in v:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(os.path.join(data, v["copy"], file), os.path.join(folder, file))
    else:
        write("tokenizer.json", tokenizer_json(data, v))
        write("tokenizer_config.json", {"bos_token": v.get("bos"), "eos_token": v["eos"], "tokenizer_class": "PreTrainedTokenizerFast"})
    write("config.json", dict(model_type="llama", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                              max_position_embeddings=64, rms_norm_eps=1e-5))
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", 2) + b"{}")


if __name__ == "__main__":
    make(*sys.argv[1:])
