#!/usr/bin/env python3
"""Puts vocabularies into Hugging Face folders without tensors, for tests of tokenizers.

    make_vocab_folder.py DATA DIR              one folder for each of VOCABULARIES; DATA: the test data
    make_vocab_folder.py DATA DIR FILE         and hashes of the ids of TEXTS into FILE: needs the packages tokenizers, 0.22.2, sentencepiece
                                               and tiktoken

Those that come without tokenizer.json get the one that the model's own repository has, as far as encoding goes; small ones
are made of TEXTS, by seed. Standard library only.
"""
import base64
import json
import os
import random
import re
import shutil
import struct
import sys
import unicodedata
import zlib

from gguf_file import CONTROL, NORMAL, Writer
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
    "CAFÉ Café cafe\u0301 ÅNGSTRÖM ẞ İstanbul ǅungla", "a\u0323\u0302\u0301 \u1ea5 \u1100\u1161\u11a8 \uac01 \u0958", "①② ｆｕｌｌ ﾊﾝｶｸ ㍿ ﬀ ½ x² ﹣",
    "日本語とenglishの混在、テスト。中文abc字符", "pre[MASK]post [CLS] x [SEP] <mask> </s>", "don't I'm we've you're n't , . ! ?",
    "\x85\xa0\u1680\u2000\u200b\u2028\u2029\u3000x", "a\u00adb\ufeffc\ufffdd\ue000e", "x" * 99 + " " + "y" * 100 + " " + "z" * 101,
    "ab" * 300, "\u0301" * 40, " " * 300 + "x", "🇩🇪🇫🇷🇺 👍🏽 ❤️ 1️⃣ 🧑🏿‍🚀", "12 345 6789 ⅷ Ⅷ ٣٤ १२ 𝟘𝟙 ²³", "_under__score_ a-b–c—d …",
    "$1,234.56 £9 €10 ¥ + = < > ^ ` | ~", "\r\n\r\n a\r b\n\n  c \r\n", "ఠ్ం ക്ഷ്മ ञ्ज्ञ กำ้ ᠮᠣᠩᠭᠣᠯ", "l'été l’hiver «guillemets» „Anführung“",
    "한국어 조선말 \u1112\u1161\u11ab", "ㄅㄆㄇ ｱｲｳ 。、・「」", "مُحَمَّد كِتَابٌ", "ש\u05c1\u05dc\u05d5\u05dd", "  a  b   c    d", "A1b2C3 v1.2.3-rc4",
    "HELLOworld helloWORLD XMLHttpRequest iPhone", "x = {'a': [1, 2.0], \"b\": None}  # ok\n\treturn", "##ing ▁the", "中文。\r\n「漢字」〆切、々・ー。\nカ゛ー。x",
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


def part(kind, **settings):
    return {"type": kind, **settings}


def sequence(*parts):
    """A Sequence of normalizers or of pre_tokenizers."""
    return part("Sequence", **{"pretokenizers" if parts[0]["type"] in PRE_TOKENIZERS else "normalizers": list(parts)})


PRE_TOKENIZERS = ("Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Metaspace", "ByteLevel", "CharDelimiterSplit")
SPACE_PREFIX = dict(BYTES, use_regex=True, add_prefix_space=True)


def bert(**settings):
    return part("BertNormalizer", **{"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True, **settings})


def split_by(pattern, behavior, invert=False):
    return part("Split", pattern=pattern, behavior=behavior, invert=invert)


def replace(pattern, content):
    return part("Replace", pattern=pattern, content=content)


def pieces(texts, count, seed):
    """Characters of some texts, and stretches of them."""
    rng = random.Random(seed)
    found = sorted({c for text in texts[::2] for c in text if not c.isspace() and unicodedata.category(c) != "Co"})
    words = sorted({w for text in texts for w in text.split() if len(w) < 40})
    while len(found) < count:
        w = words[int(rng.random() * len(words))]
        start = int(rng.random() * len(w))
        piece = w[start:start + 1 + int(rng.random() * 8)]
        if piece not in found:
            found.append(piece)
    return found, rng


def wordpiece(texts, seed, **settings):
    found, rng = pieces(texts, 1500, seed)
    vocab = {}
    for token in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + found + ["##" + p for p in found if rng.random() < 0.8]:
        vocab.setdefault(token, len(vocab))
    return dict(model={"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab},
                added=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], bos="[CLS]", eos="[SEP]", **settings)


def unigram(texts, seed, fallback=False, **settings):
    found, rng = pieces(texts, 1500, seed)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    listed = sorted(set(found + ["▁" + p for p in found if rng.random() < 0.5] + ["▁"]) - set(tokens))
    vocab = [[t, 0.0] for t in tokens] + [[t, -1 - 12 * rng.random()] for t in listed]
    return dict(model={"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": fallback}, added=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
                bos="<s>", eos="</s>", **settings)


def small():
    """WordPiece, Unigram, and GPT-2's merges behind the normalizers and pre_tokenizers that models use, and others."""
    lower = [unicodedata.normalize("NFC", "".join(c for c in unicodedata.normalize("NFD", t.lower()) if unicodedata.category(c) != "Mn")) for t in TEXTS]
    meta = dict(METASPACE, prepend_scheme="always", split=True)
    white, words = part("WhitespaceSplit"), part("BertPreTokenizer")
    collapse = replace({"Regex": " {2,}"}, " ")
    letters = {"Regex": r"\p{L}+"}
    made = {
        "bert": wordpiece(lower, 1, normalizer=bert(), pre=words),
        "bert-cased": wordpiece(TEXTS, 2, normalizer=bert(lowercase=False), pre=words),
        "bert-accents": wordpiece(TEXTS, 3, normalizer=bert(strip_accents=False, handle_chinese_chars=False, clean_text=False), pre=words),
        "wordpiece-words": wordpiece(lower, 4, normalizer=sequence(part("NFKC"), part("Lowercase"), part("StripAccents")), pre=part("Whitespace")),
        "xlm-r": unigram(TEXTS, 5, normalizer=part("Precompiled", precompiled_charsmap=None), pre=sequence(white, meta)),
        "t5": unigram(TEXTS, 6, normalizer=sequence(part("Precompiled", precompiled_charsmap=None), collapse), pre=meta),
        "sentencepiece": unigram(TEXTS, 6, normalizer=sequence(part("Precompiled", precompiled_charsmap=None), collapse,
                                                               replace({"Regex": r"\A +| +\z"}, ""), part("Prepend", prepend="▁"),
                                                               replace({"String": " "}, "▁")), pre=None),
        "albert": unigram(lower, 7, normalizer=sequence(replace({"String": "``"}, '"'), replace({"String": "''"}, '"'), part("NFKD"), part("StripAccents"),
                                                        part("Lowercase"), part("Precompiled", precompiled_charsmap=None)), pre=sequence(white, meta)),
        "unigram-bytes": unigram(TEXTS, 8, True, normalizer=sequence(part("Strip", strip_left=True, strip_right=True), part("NFKD")), pre=meta),
        "unigram-first": unigram(TEXTS, 10, pre=dict(meta, prepend_scheme="first"), normalizer=part("NFC")),
        "unigram-whole": unigram(TEXTS, 9, True, normalizer=sequence(part("Prepend", prepend="▁"), replace({"String": " "}, "▁")), pre=None),
    }
    cuts = {
        "pre-roberta": SPACE_PREFIX,
        "pre-punctuation": sequence(part("Punctuation", behavior="Isolated"), part("Digits", individual_digits=False), SPACE_PREFIX),
        "pre-contiguous": sequence(part("Punctuation", behavior="Contiguous"), BYTES),
        "pre-previous": sequence(part("Punctuation", behavior="MergedWithPrevious"), BYTES),
        "pre-next": sequence(split_by({"String": " "}, "MergedWithNext"), BYTES),
        "pre-removed": sequence(split_by({"Regex": r"\s+|\d"}, "Removed"), split_by({"String": "-"}, "Removed"), BYTES),
        "pre-kept": sequence(split_by(letters, "Removed", True), BYTES),
        # As tiiuae/falcon-7b has it: numbers among the characters that stand for bytes
        "pre-falcon": sequence(part("Punctuation", behavior="Contiguous"), GPT2, part("Digits", individual_digits=False),
                               split_by({"Regex": "[0-9][0-9][0-9]"}, "Isolated")),
        "pre-bloom": sequence(split_by({"Regex": r" ?[^(\s|[.,!?…。，、।۔،])]+"}, "Isolated"), BYTES),
        "pre-deepseek-llm": sequence(split_by({"Regex": "[\r\n]"}, "Isolated"), split_by({"Regex": r"\s?\p{L}+"}, "Isolated"),
                                     split_by({"Regex": r"\s?\p{P}+"}, "Isolated"), split_by({"Regex": r"\s+$"}, "Isolated"),
                                     split_by({"Regex": "[一-龥ࠀ-一가-퟿]+"}, "Isolated"), part("Digits", individual_digits=True), BYTES),
        "pre-kimi": sequence(split_by({"Regex": "|".join([r"[\p{Han}]+", KIMI_WORD % ("*", "+"), KIMI_WORD % ("+", "*"), r"\p{N}{1,3}",
                                                          r" ?[^\s\p{L}\p{N}]+[\r\n]*", SPACES])}, "Isolated"), BYTES),
        "pre-bailing": sequence(split_by({"Regex": BAILING}, "Isolated"), BYTES),
        "pre-exaone-moe": sequence(split_by({"Regex": EXAONE_MOE}, "Isolated"), BYTES),
        "pre-words": sequence(split_by({"Regex": r"\b\w+\b|\W\B"}, "Isolated"), BYTES),
        "pre-lines": sequence(split_by({"Regex": r"^\s*|\s*$"}, "Isolated"), BYTES),
        "pre-empty": sequence(split_by({"Regex": r"(?=(\d{3})+(?!\d))"}, "Isolated"), BYTES),
    }
    made.update({name: dict(OF_GPT2, pre=pre) for name, pre in cuts.items()})
    # Only as names of GGUF files, which have other expressions for the same words
    punctuation = split_by({"Regex": r"[\p{P}\$\+<=>\^~\|`]+"}, "Isolated")
    named = {
        "falcon": (punctuation, GPT2_CUT, r"[0-9][0-9][0-9]"),
        "viking": (r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{N}"),
        "laguna": (r"[^\n]+|[\n]+", CL100K % r"\p{N}"),
        "minicpm5": (r"\p{N}{1,3}", CL100K % r"\p{N}+"),
        "jais-2": ((CL100K % r"\p{N}{1,3}").replace(r"\s+(?!\S)|\s+", "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s{1}"),),
        "youtu": ("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", o200k(APOSTROPHE + "?", r"\p{N}")),
        "tiny_aya": (r"\d{1,3}(?=(?:\d{3})*\b)", o200k(APOSTROPHE + "?", r"\p{N}{1,3}")),
        "superbpe": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
        "afmoe": (r"\p{Nd}+", r"\A\d{1,2}(?=(?:\d{3})+\z)|\d{3}(?=(?:\d{3})*\z)",
                  "[一-\u9fff㐀-\u4dbf\u8c48-\ufaff\u3040-ヿ･-ﾟ\u2f00-\u2fdf\u0e40-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff"
                  "\uac00-\ud7af\u1100-\u11ff]+", DEEPSEEK3[2]),
        "chameleon": (r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2_CUT),
        "deepseek-coder": ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
        "deepseek-llm": ("[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+"),
        "default": (split_by({"Regex": r"[\p{P}\$\+<=>\^~\|]+"}, "Isolated"), GPT2_CUT, r"\p{N}+", "[0-9][0-9][0-9]"),
        "stablelm2": (CL100K % r"\p{N}",),
        "dbrx": (CL100K % r"\p{N}{1,3}",),
        "llama-bpe": (CL100K % r"\p{N}{1,3}",),
        "qwen2": (CL100K % r"\p{N}",),
        "tekken": (o200k("", r"\p{N}"),),
        "granite-embed-multi-97m": (o200k(APOSTROPHE + "?", r"\p{N}{1,3}"),),
    }
    beside = {"qwen2": dict(normalizer=NFC), **{name: dict(whole=True) for name in ("llama-bpe", "tekken", "granite-embed-multi-97m")}}
    for name, pre in named.items():
        parts = [p if isinstance(p, dict) else split_by({"Regex": p}, "Isolated") for p in pre]
        made["gguf-" + name] = dict(OF_GPT2, pre=sequence(*parts, BYTES), named=True, **beside.get(name, {}))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        made["norm-" + form.lower()] = dict(OF_GPT2, pre=GPT2, normalizer=part(form))
    return made


# Letters that have case, as deepseek-llm-7b's tokenizer.json lists them
DEEPSEEK_LETTERS = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b"
                    "-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0"
                    "-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
                    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0"
                    "-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
                    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2"
                    "\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
                    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0"
                    "-\U000118df\U0001e900-\U0001e943")
GPT2_CUT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
KIMI_WORD = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
EXAONE_MOE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|"
              r"\s*[\r\n]|\s+(?!\S)|\s+")
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
    **small(),
    "clip": dict(OF_GPT2, clip=True, added=["<|startoftext|>", "<|endoftext|>"], bos="<|startoftext|>",
                 normalizer=sequence(NFC, replace({"Regex": r"\s+"}, " "), part("Lowercase")),
                 pre=sequence(split_by({"Regex": CLIP}, "Removed", True), dict(BYTES, use_regex=True, trim_offsets=True))),
    # SentencePiece's files and tiktoken's, as they are: their own libraries are the oracles
    "spm-llama2": dict(file="llama2/llama2.tokenizer.model"),
    "spm-mistral": dict(file="mistral/mistral_instruct_tokenizer_240323.model.v3"),
    "spm-collapses": dict(file="open_llama/open_llama_3b.tokenizer.model"),
    "spm-unigram": dict(file="sentencepiece/test_model.model"),
    "tiktoken-kimi": dict(file="openai/cl100k_base.tiktoken"),
}
CL100K_RANKS = 100256
KIMI = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", None, "<|start_header_id|>", "<|end_header_id|>", None, "[EOT]", "<|im_system|>",
        *[None] * 6, "<|im_middle|>"]


def charsmap(data):
    """SentencePiece's map of characters, out of one of its model files: field 2 of message 3 (Protocol Buffers)."""
    def fields(message):
        at = 0

        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(message):
            key = number()
            if key & 7 == 0:
                number()
            else:
                size = {1: 8, 5: 4}.get(key & 7) or number()
                yield key >> 3, message[at:at + size]
                at += size

    with open(os.path.join(data, "sentencepiece/test_model.model"), "rb") as f:
        spec = next(value for key, value in fields(f.read()) if key == 3)
    return base64.b64encode(next(value for key, value in fields(spec) if key == 2)).decode()


def with_charsmap(normalizer, data):
    if normalizer and normalizer["type"] == "Sequence":
        return dict(normalizer, normalizers=[with_charsmap(n, data) for n in normalizer["normalizers"]])
    if normalizer and normalizer["type"] == "Precompiled":
        return dict(normalizer, precompiled_charsmap=charsmap(data))
    return normalizer


def small_json(data, v):
    model = v["model"]
    names = model["vocab"] if model["type"] == "WordPiece" else {t: i for i, (t, _) in enumerate(model["vocab"])}
    cls, sep = ([t, names[t]] for t in (v["bos"], v["eos"]))
    added = [{"id": names[t], "content": t, "single_word": False, "lstrip": t == "<mask>", "rstrip": False, "normalized": False, "special": True}
             for t in v["added"]]
    post = {"type": "RobertaProcessing" if model["type"] == "Unigram" else "BertProcessing", "cls": cls, "sep": sep}
    if model["type"] == "Unigram":
        post.update(trim_offsets=True, add_prefix_space=True)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": with_charsmap(v["normalizer"], data),
            "pre_tokenizer": v["pre"], "post_processor": post, "decoder": None, "model": model}


def with_word_ends(ids, merges, added):
    """Tokens and merges of words without a space, each also at the end of a word, as CLIP has them."""
    names = [t for t in ids if len(t) == 1]
    names += [t + "</w>" for t in names]
    known, listed = set(names), []
    for a, b in (merge.split(" ") for merge in merges if "Ġ" not in merge):
        for end in ("</w>", ""):
            if a in known and b + end in known:
                listed.append(f"{a} {b}{end}")
                names += [a + b + end] if a + b + end not in known else []
                known.add(a + b + end)
    return {t: i for i, t in enumerate(names + added)}, listed


def tokenizer_json(data, v):
    if "model" in v:
        return small_json(data, v)
    with open(os.path.join(data, v["vocab"]), encoding="utf-8") as f:
        ids = json.load(f)
    for token in v["added"]:
        ids.setdefault(token, max(ids.values()) + 1)
    merges = [line for line in read_merges(os.path.join(data, v["merges"])) if line.count(" ") == 1]
    if v.get("clip"):
        ids, merges = with_word_ends(ids, merges, v["added"])
    added = [{"id": ids[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for t in v["added"]]
    post = dict(BYTES)
    if "bos" in v:
        post = {"type": "Sequence", "processors": [post, {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": v["bos"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {v["bos"]: {"id": v["bos"], "ids": [ids[v["bos"]]], "tokens": [v["bos"]]}}}]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": v.get("normalizer"),
            "pre_tokenizer": v["pre"], "post_processor": post, "decoder": BYTES,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": "</w>" if v.get("clip") else None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": v.get("whole", False), "vocab": ids, "merges": merges}}


def make(data, name, folder):
    v = VOCABULARIES[name]
    data = os.path.join(data, "tokenizers")
    os.makedirs(folder, exist_ok=True)

    def write(file, value):
        with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False)

    if "file" in v:
        kimi = v["file"].endswith(".tiktoken")
        shutil.copyfile(os.path.join(data, v["file"]), os.path.join(folder, "tiktoken.model" if kimi else "tokenizer.model"))
        write("tokenizer_config.json", {"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]", "added_tokens_decoder": {
            str(CL100K_RANKS + i): {"content": t, "special": True, "normalized": False} for i, t in enumerate(KIMI) if t}} if kimi else {})
    elif "copy" in v:
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


def write_gguf(data, name, out):
    """The small vocabulary as llama.cpp's converter writes it: bert, or t5."""
    v = VOCABULARIES[name]
    w, model = Writer(), v["model"]
    tokens = list(model["vocab"]) if model["type"] == "WordPiece" else [t for t, _ in model["vocab"]]
    w.strings("tokenizer.ggml.tokens", [t if t in v["added"] else t[2:] if t.startswith("##") else "▁" + t for t in tokens]
              if model["type"] == "WordPiece" else tokens)
    w.i32s("tokenizer.ggml.token_type", [CONTROL if t in v["added"] else NORMAL for t in tokens])
    w.u32("tokenizer.ggml.unknown_token_id", 1 if model["type"] == "WordPiece" else 3)
    if model["type"] == "WordPiece":
        w.string("tokenizer.ggml.model", "bert")
        w.u32("tokenizer.ggml.cls_token_id", tokens.index(v["bos"]))
        w.u32("tokenizer.ggml.seperator_token_id", tokens.index(v["eos"]))
    else:
        w.string("tokenizer.ggml.model", "t5")
        w.f32s("tokenizer.ggml.scores", [score for _, score in model["vocab"]])
        w.u32("tokenizer.ggml.bos_token_id", tokens.index(v["bos"]))
        w.u32("tokenizer.ggml.eos_token_id", tokens.index(v["eos"]))
        for key in ("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces"):
            w.bool("tokenizer.ggml." + key, True)
        w.u8s("tokenizer.ggml.precompiled_charsmap", base64.b64decode(charsmap(data)))
    w.write(out)


def spm_encoder(folder):
    """SentencePiece gives control pieces to no text: texts are cut at them, as engine/text/README.md says."""
    import sentencepiece

    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    controls = {sp.id_to_piece(i): i for i in range(len(sp)) if sp.is_control(i) or sp.is_unknown(i)}
    marks = re.compile("(" + "|".join(map(re.escape, controls)) + ")")
    return lambda text: [i for part in marks.split(text) for i in ([controls[part]] if part in controls else sp.encode(part))]


def kimi_encoder(folder):
    import tiktoken
    import tiktoken.load

    ranks = tiktoken.load.load_tiktoken_bpe(os.path.join(folder, "tiktoken.model"))
    names = {t or f"<|reserved_token_{CL100K_RANKS + i}|>": CL100K_RANKS + i for i, t in enumerate(KIMI + [None] * (256 - len(KIMI)))}
    words = "|".join([r"[\p{Han}]+", KIMI_WORD % ("*", "+"), KIMI_WORD % ("+", "*"), r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", SPACES])
    kimi = tiktoken.Encoding("kimi", pat_str=words, mergeable_ranks=ranks, special_tokens=names)
    return lambda text: kimi.encode(text, allowed_special="all")


def encoder(folder):
    if os.path.exists(os.path.join(folder, "tokenizer.model")):
        return spm_encoder(folder)
    if os.path.exists(os.path.join(folder, "tiktoken.model")):
        return kimi_encoder(folder)
    from tokenizers import Tokenizer

    t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    return lambda text: t.encode(text, add_special_tokens=False).ids


def golden(folder):
    encode = encoder(folder)
    all_ids = [encode(text) for text in TEXTS]
    return [zlib.crc32(struct.pack(f"<{len(ids)}i", *ids)) for ids in all_ids]


def main(data, folder, out=None):
    for name, v in VOCABULARIES.items():
        if v.get("named") and not out:
            continue
        make(data, name, os.path.join(folder, name))
    for name in ("bert", "sentencepiece"):
        write_gguf(os.path.join(data, "tokenizers"), name, os.path.join(folder, name + ".gguf"))
    if out:
        with open(out, "w", encoding="utf-8") as f:
            lines = [json.dumps("texts") + ": " + json.dumps(TEXTS, ensure_ascii=False)]
            lines += [json.dumps(name) + ": " + json.dumps(golden(os.path.join(folder, name)), separators=(",", ":")) for name in VOCABULARIES]
            f.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
