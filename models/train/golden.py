"""What PyTorch computes with the exact weights of a GGUF file: ids, log-probabilities and logits that the engine must give.

    python golden.py MODEL.gguf OUT.json

In double precision, from the file's dequantised values. tests/model/test_json_golden.c reads the result.
"""

import json
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "tools"))
import dequantise_gguf  # noqa: E402

import chats  # noqa: E402
import model as net  # noqa: E402
from tokenizer import CUT  # noqa: E402

PLAIN = ["Once upon a time there was a little fox named Lily.", "One rainy morning", "The capital of France is"]
WEATHER = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "name of the city"}}, "required": ["city"]}}}]
CHATS = [
    ([{"role": "user", "content": "Who are you?"}], None),
    ([{"role": "user", "content": "What is 17 + 25?"}], None),
    ([{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "My name is Anna."},
      {"role": "assistant", "content": "Nice to meet you, Anna!"}, {"role": "user", "content": "What is my name?"}], None),
    ([{"role": "user", "content": "What is the weather in Paris?"}], WEATHER),
]


def tokenizer_of(keys):
    """The file's own tokenizer, rebuilt."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

    names, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in keys["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CUT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.add_special_tokens([AddedToken(n, special=True, normalized=False) for n, k in zip(names, types) if k == 3])
    return t


def load(path):
    keys, _, tensors = dequantise_gguf.read(path)
    c = lambda k: keys["llama." + k]
    config = net.Config(vocab=len(keys["tokenizer.ggml.tokens"]), hidden=c("embedding_length"), layers=c("block_count"),
                        heads=c("attention.head_count"), kv_heads=c("attention.head_count_kv"), head_size=c("rope.dimension_count"),
                        ffn=c("feed_forward_length"), context=c("context_length"), rope_base=c("rope.freq_base"),
                        eps=c("attention.layer_norm_rms_epsilon"))
    m = net.Llama(config)
    m.load_state_dict({n: torch.from_numpy(np.array(dequantise_gguf.values(kind, data)).reshape(shape))
                       for n, (kind, shape, data) in tensors.items()})
    return m.double().eval(), tokenizer_of(keys), keys


@torch.no_grad()
def case(m, tokenizer, text, special, ends, steps, with_logits):
    ids = tokenizer.encode(text).ids
    cache, new, out = net.Cache(), torch.tensor([ids]), {"prompt": text, "parse_special": special, "prompt_ids": ids}
    greedy, top5, first = [], [], None
    while len(greedy) < steps and (not greedy or greedy[-1] not in ends):
        logits = m(new, cache)[0, -1]
        first = logits if first is None else first
        best = torch.log_softmax(logits, -1).topk(5)
        top5.append({"top5": [[int(i), round(float(v), 6)] for v, i in zip(best.values, best.indices)]})
        greedy.append(int(best.indices[0]))
        new = torch.tensor([[greedy[-1]]])
    out.update(greedy_ids=greedy, greedy_text=tokenizer.decode([i for i in greedy if i not in ends], skip_special_tokens=False),
               steps=top5)
    if with_logits:
        out["last_prompt_logits"] = [round(float(v), 5) for v in first]
    return out


def main():
    path, out = sys.argv[1:]
    m, tokenizer, keys = load(path)
    from tokenizers import decoders

    tokenizer.decoder = decoders.ByteLevel()
    ends = {keys["tokenizer.ggml.eos_token_id"], keys["tokenizer.ggml.bos_token_id"]}
    cases = [case(m, tokenizer, t, False, ends, 32, i == 0) for i, t in enumerate(PLAIN)]
    cases += [case(m, tokenizer, chats.render(messages, tools, generation=True), True, ends, 48, i == 1)
              for i, (messages, tools) in enumerate(CHATS)]
    text = json.dumps({"model": os.path.basename(path), "made_by": "models/train/golden.py", "torch": torch.__version__, "cases": cases})
    with open(out, "w") as f:
        f.write(text.replace('{"prompt"', '\n{"prompt"').replace('"steps"', '\n"steps"').replace('"last_prompt_logits"',
                                                                                                   '\n"last_prompt_logits"') + "\n")
    for c in cases:
        print(repr(c["prompt"][-60:]), "->", repr(c["greedy_text"]))


if __name__ == "__main__":
    main()
