#!/usr/bin/env python3
"""The folder tests/model/saved: a small random Qwen 3 as transformers' save_pretrained() writes it, with a byte-level tokenizer
of the tokenizers library, and golden.json, what transformers computes for it (as in make_goldens.py).

    make_saved.py           needs torch, transformers 4.57.1 and tokenizers
"""
import json
import os
import random

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from make_goldens import GOLDEN, GREEDY, MARGIN, PROMPT, logits_of

FOLDER = os.path.join(os.path.dirname(GOLDEN), "saved")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"


def tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    text = ["the sea and the sand, the rain in the hand"] * 4
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=277, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = tf.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", additional_special_tokens=["<|im_start|>"])
    fast.chat_template = TEMPLATE
    return fast


def main():
    torch.manual_seed(1)
    t = tokenizer()
    config = tf.Qwen3Config(vocab_size=288, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=24, max_position_embeddings=256, rope_theta=1e4, tie_word_embeddings=False,
                            rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
                            bos_token_id=None, eos_token_id=t.eos_token_id, torch_dtype=torch.bfloat16)
    model = tf.Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.rand_like(p) * 0.5 + 0.75 if "norm" in name else (torch.rand_like(p) - 0.5) * 2 * (3 / p.shape[1]) ** 0.5 * (2 if "embed" in name or "head" in name else 1))
    model.to(torch.bfloat16)
    model.generation_config = tf.GenerationConfig(do_sample=True, temperature=0.7, top_p=0.8, top_k=20, eos_token_id=[t.eos_token_id, 0])
    model.save_pretrained(FOLDER)
    t.save_pretrained(FOLDER)
    model = tf.AutoModelForCausalLM.from_pretrained(FOLDER, attn_implementation="eager", dtype=torch.float64).eval()
    for seed in range(100):
        prompt = [random.Random(f"{seed} {i}").randrange(288) for i in range(PROMPT)]
        rows, ids, margins = logits_of(model, prompt), list(prompt), []
        for _ in range(GREEDY):
            best = logits_of(model, ids)[-1].topk(2)
            margins.append(round(float(best.values[0] - best.values[1]), 4))
            ids.append(int(best.indices[0]))
        if min(margins) >= MARGIN and len(set(ids[PROMPT:])) > 3:
            break
    scores = rows.log_softmax(-1)
    text = "the sea, the <|im_end|> sånd 123"
    golden = {"name": "saved", "arguments": [], "weights": "bf16", "prompt_ids": prompt, "greedy_ids": ids[PROMPT:], "margins": margins,
              "scores": [round(float(scores[i, prompt[i + 1]]), 5) for i in range(PROMPT - 1)],
              "rows": [{"position": p, "logits": [round(float(v), 5) for v in rows[p]]} for p in (40, PROMPT - 1)],
              "text": text, "text_ids": t.encode(text)}
    with open(os.path.join(FOLDER, "golden.json"), "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in golden.items()) + "\n}\n")


if __name__ == "__main__":
    main()
