"""Computes, in PyTorch with the exact weights of a GGUF file, the ids, log-probabilities and logits that the engine must give.

    python golden.py MODEL.gguf OUT.json

In double precision, from the file's dequantised values; and what Jinja makes of the chat template. tests/model/test_json_golden.c
and tests/unit/test_json_chat.c read the result.
"""

import json
import os
import sys

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "tools"))
import gguf_file  # noqa: E402
from dequantise_gguf import values  # noqa: E402

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

CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln \"am\" Rhein"}}}]}
TEXT_CALL = {"role": "assistant", "content": "Let me see.", "tool_calls": [
    {"id": "call_2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}},
    {"id": "call_3", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "{\"weather\": \"sunny\", \"temperature\": 3}"}
TEMPLATES = [  # what a template may be given; the engine's own Jinja must give the same text
    *({"messages": m, **({"tools": t} if t else {}), "add_generation_prompt": g} for m, t in CHATS for g in (True, False)),
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is it in Köln?"}, CALL, RESULT],
     "tools": WEATHER, "add_generation_prompt": True},
    {"messages": [{"role": "user", "content": "Both, please."}, TEXT_CALL, RESULT, RESULT, {"role": "assistant", "content": "Fine."}],
     "tools": WEATHER * 2, "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "  <|im_end|>\n{{ 1 }} "}], "tools": [], "add_generation_prompt": True},
    {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "late"}], "add_generation_prompt": True},
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
    keys, _, tensors = gguf_file.read(path)
    c = lambda k: keys["llama." + k]
    config = net.Config(vocab=len(keys["tokenizer.ggml.tokens"]), hidden=c("embedding_length"), layers=c("block_count"),
                        heads=c("attention.head_count"), kv_heads=c("attention.head_count_kv"), head_size=c("rope.dimension_count"),
                        ffn=c("feed_forward_length"), context=c("context_length"), rope_base=c("rope.freq_base"),
                        eps=c("attention.layer_norm_rms_epsilon"))
    m = net.Llama(config)
    m.load_state_dict({n: torch.from_numpy(np.array(values(kind, data)).reshape(shape))
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
    templates = [{"context": t, "expected": chats.TEMPLATE.render(**t)} for t in TEMPLATES]
    text = json.dumps({"model": os.path.basename(path), "made_by": "models/train/golden.py", "torch": torch.__version__, "cases": cases,
                       "templates": templates})
    with open(out, "w") as f:
        f.write(text.replace('{"prompt"', '\n{"prompt"').replace('{"context"', '\n{"context"').replace('"steps"', '\n"steps"').replace('"last_prompt_logits"',
                                                                                                   '\n"last_prompt_logits"') + "\n")
    for c in cases:
        print(repr(c["prompt"][-60:]), "->", repr(c["greedy_text"]))


if __name__ == "__main__":
    main()
