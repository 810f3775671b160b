#!/usr/bin/env python3
"""Puts a real vocabulary into a Hugging Face folder without tensors, for tests of tokenizers.

    make_vocab_folder.py DATA DIR              one folder for each of VOCABULARIES; DATA: the test data
    make_vocab_folder.py DATA DIR FILE         and the ids of TEXTS into FILE: needs the tokenizers package, 0.22.2

Those that come without tokenizer.json get the one that the model's own repository has, as far as encoding goes. Standard
library only.
"""
import json
import os
import struct
import sys

from make_vocab_gguf import read_merges

CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
NFC = {"type": "NFC"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


# Some thirty scripts, white space, digits, emoji, marks of dialogues.
TEXTS = [
    "Hello world", "The quick brown fox jumps over the lazy dog.  It's 3:45pm; don't WE'LL we'RE you'd I'm", "Привет, мир! Как дела?",
    "Γειά σου Κόσμε, τι κάνεις;", "Բարեւ աշխարհ", "שלום עולם, מה שלומך?", "مرحبا بالعالم، كيف حالك؟ ١٢٣", "سلام دنیا ۴۵۶",
    "नमस्ते दुनिया, आप कैसे हैं? १२३", "ওহে বিশ্ব", "ਸਤ ਸ੍ਰੀ ਅਕਾਲ ਦੁਨਿਆ", "હેલો વર્લ્ડ", "ହେଲୋ ୱାର୍ଲ୍ଡ", "வணக்கம் உலகம்", "హలో ప్రపంచం",
    "ಹಲೋ ವರ್ಲ್ಡ್", "ഹലോ വേൾഡ്", "හෙලෝ වර්ල්ඩ්", "สวัสดีชาวโลก ๑๒๓", "ສະບາຍດີຊາວໂລກ", "བཀྲ་ཤིས་བདེ་ལེགས།", "မင်္ဂလာပါကမ္ဘာလောက",
    "გამარჯობა მსოფლიო", "ሰላም ልዑል", "\u179f\u17bd\u179f\u17d2\u178f\u17b8\u200b\u1796\u17b7\u1797\u1796\u179b\u17c4\u1780", "ᠰᠠᠶᠢᠨ ᠪᠠᠶᠢᠨ᠎ᠠ",
    "你好，世界！今天是2024年。", "こんにちは世界、カタカナ ひらがな", "안녕하세요 세계", "ᎣᏏᏲ ᎡᎶᎯ", "ᐊᐃᓐᖓᐃ", "ߊߟߎ ߞߎߟߎ", "Ⅷ ½ ² ٣ 𝟘 𝟙",
    "e\u0301 vs \xe9, A\u030a \xc5 \ufb01 \u1e9b\u0323",
    "\U0001f642\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f3f3\ufe0f\u200d\U0001f308 emoji \U0001f1e9\U0001f1ea",
    "  leading and trailing   ", "\t\ttabs\n\n\nnewlines\r\n\r\n x \xa0nbsp\u3000ideographic\u2028ls", "▁literal ▁▁ lower one eighth",
    "<s>special</s> <|im_start|>user\n<|im_end|><|endoftext|><|end|> <|user|>\n hi", "1234567890123 0x1F 3.14159e-10",
    "def f(x):\n    return x**2  # comment\n\n\n\tif y:\n\t\tpass", "https://example.com/?q=1&r=%20#frag",
    "CamelCaseIdentifier snake_case_name SCREAMING_CASE", "Ünïcödé Straße ŒUVRE ǅ ǈ", "x\u200by\u200cz\u200d\ufeff", "\x00\x01\x7f control",
    "", "'", "''S 'T 'll'LL", "   \n   \n  x", "\u0645\u064f\u062d\u064e\u0645\u064e\u0651\u062f\u064c \u0300\u0300\u0300", "ﷺ ﻼ ① ㍿",
    "𐍈𐌰 𒀀 𓀀",
]


def split(*regexes, removed=False):
    cuts = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Removed" if removed else "Isolated", "invert": removed} for regex in regexes]
    return {"type": "Sequence", "pretokenizers": [*cuts, BYTES]}


UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
APOSTROPHE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


def o200k(end, digits):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{end}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{end}|{digits}|"
            rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}")


DEEPSEEK3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
             "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n]*|\\s*[\r\n]+|" r"\s+(?!\S)|\s+"]
QWEN35 = APOSTROPHE + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
SEED = APOSTROPHE + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|" + r"\s+(?!\S)|\s+"
GPT2 = dict(BYTES, use_regex=True)
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, GPT2]}
OF_GPT2 = dict(vocab="gpt2/gpt2_vocab.json", merges="gpt2/gpt2_merges.txt", added=["<|endoftext|>"], eos="<|endoftext|>")
METASPACE = {"type": "Metaspace", "replacement": "▁"}
VOCABULARIES = {
    "phi-3": dict(copy="hf/phi-3"),
    "qwen2": dict(vocab="qwen2/vocab.json", merges="qwen2/merges.txt", normalizer=NFC, pre=split(CL100K % r"\p{N}"),
                  added=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], eos="<|im_end|>"),
    "llama3": dict(vocab="ollama-llama3.2/encoder.json", merges="ollama-llama3.2/vocab.bpe", pre=split(CL100K % r"\p{N}{1,3}"),
                   added=["<|begin_of_text|>", "<|end_of_text|>"], bos="<|begin_of_text|>", eos="<|end_of_text|>", whole=True),
    "gpt2": dict(OF_GPT2, pre=GPT2),
    # GPT-2's tokens with other models' words
    "gpt-4o": dict(OF_GPT2, pre=split(o200k(APOSTROPHE + "?", r"\p{N}{1,3}"), removed=True)),
    "tekken": dict(OF_GPT2, pre=split(o200k("", r"\p{N}"))),
    "deepseek-v3": dict(OF_GPT2, pre=split(*DEEPSEEK3)),
    "qwen35": dict(OF_GPT2, pre=split(QWEN35), normalizer=NFC),
    "seed-coder": dict(OF_GPT2, pre=split(SEED)),
    # Phi 3's with other treatments of spaces
    "first": dict(copy="hf/phi-3", change=dict(normalizer=None, pre_tokenizer=dict(METASPACE, prepend_scheme="first", split=False))),
    "cuts": dict(copy="hf/phi-3", change=dict(normalizer=None, pre_tokenizer=dict(METASPACE, prepend_scheme="always", split=True))),
    "gemma": dict(copy="hf/phi-3", change=dict(
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False})),
    "digits": dict(OF_GPT2, pre=DIGITS),
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
            with open(os.path.join(data, v["copy"], file), encoding="utf-8") as f:
                value = json.load(f)
            if file == "tokenizer.json":
                value.update(v.get("change", {}))
            write(file, value)
    else:
        write("tokenizer.json", tokenizer_json(data, v))
        write("tokenizer_config.json", {"bos_token": v.get("bos"), "eos_token": v["eos"], "tokenizer_class": "PreTrainedTokenizerFast"})
    write("config.json", dict(model_type="llama", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                              max_position_embeddings=64, rms_norm_eps=1e-5))
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", 2) + b"{}")


def golden(folder):
    from tokenizers import Tokenizer

    t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    return [t.encode(text, add_special_tokens=False).ids for text in TEXTS]


def main(data, folder, out=None):
    for name in VOCABULARIES:
        make(data, name, os.path.join(folder, name))
    if out:
        with open(out, "w", encoding="utf-8") as f:
            lines = [json.dumps("texts") + ": " + json.dumps(TEXTS, ensure_ascii=False)]
            lines += [json.dumps(name) + ": " + json.dumps(golden(os.path.join(folder, name)), separators=(",", ":")) for name in VOCABULARIES]
            f.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
