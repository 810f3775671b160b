#!/usr/bin/env python3
"""tests/model/mtp.json: what MTP layers of the models of tests/model/golden predict, from Hugging Face transformers.

    make_mtp.py                  needs torch, transformers, gguf

transformers leaves the layer out, so it is a model of one layer here, whose input embeddings are the layer's projection of
embeddings and of the other model's rows. Of each prompt `scores` has the log-probability of token i + 2 by the layer, of token
i + 1 and the model's row i, and `logits` the row for the last."""
import copy
import json
import os
import tempfile
from types import SimpleNamespace

import make_goldens
import make_gguf

CASES = ("glm4moe", "deepseek2-v3", "qwen35")


def one_layer(a, tensors):
    """The arguments of the model that the layer is, and its tensors."""
    b, own = copy.copy(a), f"blk.{a.layers}."
    b.layers, b.dense_layers, b.nextn, b.attends = 1, 0, 0, [True]
    renamed = {own + "nextn.shared_head_norm.weight": "output_norm.weight"}
    kept = [t for t in tensors if t.name.startswith(own) and ".nextn." not in t.name or t.name in renamed
            or t.name in ("token_embd.weight", "output.weight")]
    return b, [SimpleNamespace(name=renamed.get(t.name, t.name.replace(own, "blk.0.")), data=t.data, tensor_type=t.tensor_type, shape=t.shape)
               for t in kept]


def case(name):
    import gguf
    import numpy as np
    import torch

    with open(os.path.join(make_goldens.GOLDEN, name + ".json")) as f:
        golden = json.load(f)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        make_gguf.main(golden["arguments"] + [path])
        a = make_gguf.parse(golden["arguments"] + [path])
        ids, reader = golden["prompt_ids"], gguf.GGUFReader
        tensors = reader(path).tensors
        model = make_goldens.load(a, path, None)
        b, own = one_layer(a, tensors)
        gguf.GGUFReader = lambda path: SimpleNamespace(tensors=own)
        layer = make_goldens.load(b, path, None)
        gguf.GGUFReader = reader

    def weight(part):
        t = next(t for t in tensors if t.name == f"blk.{a.layers}.nextn.{part}.weight")
        return torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64).reshape([int(n) for n in reversed(t.shape)]))

    def norm(x, w):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w

    with torch.no_grad():
        scores = make_goldens.logits_of(model, ids).log_softmax(-1)[range(len(ids) - 1), ids[1:]]
        assert (scores - torch.tensor(golden["scores"])).abs().max() < 1e-3, "transformers has changed"
        rows = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0].double()[:-1]
        embeds = model.model.embed_tokens(torch.tensor(ids[1:])).double()
        x = torch.cat([norm(embeds, weight("enorm")), norm(rows, weight("hnorm"))], -1) @ weight("eh_proj").T
        logits = layer(inputs_embeds=x[None], use_cache=False).logits[0].double()
    return {"scores": [round(float(s), 5) for s in logits.log_softmax(-1)[range(len(ids) - 2), ids[2:]]],
            "logits": [round(float(x), 5) for x in logits[-1]]}


def main():
    path = os.path.join(os.path.dirname(make_goldens.GOLDEN), "mtp.json")
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(f'"{name}": {json.dumps(case(name), separators=(",", ":"))}' for name in CASES) + "\n}\n")


if __name__ == "__main__":
    main()
