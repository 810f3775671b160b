"""Trains the byte-level BPE tokenizer on generated text, and reads it again.

    python tokenizer.py tokenizer.json [--vocab 3072] [--documents 60000]

Text is cut as pre-tokenizer `qwen2` of GGUF cuts it (each digit alone), so the engine knows it by that name.
"""

import argparse
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import chats

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = [END_OF_TEXT, IM_START, IM_END]  # ids 0, 1, 2
# A contraction; a word with the character before it; one digit; marks; ends of lines; blanks.
CUT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(vocab, documents, seed=0):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CUT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    rng = random.Random(f"tokenizer {seed}")
    text = (chats.document(rng) for _ in range(documents))
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL]))
    return t


def load(path):
    return Tokenizer.from_file(path)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--vocab", type=int, default=3072)
    p.add_argument("--documents", type=int, default=60000)
    a = p.parse_args()
    t = train(a.vocab, a.documents)
    t.save(a.out)
    print(f"{t.get_vocab_size()} tokens")
