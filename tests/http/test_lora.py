"""Adapters: chosen by the request's model, many in a batch, loaded and unloaded while others run; and an oracle: the model with
the adapter merged into its weights, in double."""

import json
import math
import random
import struct
import threading

import pytest

import goldens
from goldens import gguf_file
from launched import needs_emulated
from process import EMULATED, SLOW, Server
from wire import check_error, wait_for

PROMPT, ADMIN, KEY = "Once upon a time", "sk-admin-0123456789", "sk-user-0123456789"
D, HEADS, KV_HEADS, HEAD, F, LAYERS = 64, 8, 4, 8, 172, 5  # of stories260K
SHAPES = {"self_attn.q_proj": (HEADS * HEAD, D), "self_attn.k_proj": (KV_HEADS * HEAD, D), "self_attn.v_proj": (KV_HEADS * HEAD, D),
          "self_attn.o_proj": (D, HEADS * HEAD), "mlp.gate_proj": (F, D), "mlp.up_proj": (F, D), "mlp.down_proj": (D, F)}  # fmt: skip
OURS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip


def write_adapter(folder, seed, rank=4, alpha=8, targets=SHAPES, **config):
    """A PEFT folder of random F32 matrices; returns them by name."""
    rng, header, data, matrices = random.Random(seed), {}, b"", {}
    for layer in range(LAYERS):
        for target in targets:
            rows, cols = SHAPES[target]
            for part, shape, spread in (("A", (rank, cols), cols), ("B", (rows, rank), 16 * rank)):
                values = [rng.gauss(0, 1 / math.sqrt(spread)) for _ in range(shape[0] * shape[1])]
                packed = struct.pack(f"<{len(values)}f", *values)
                name = f"base_model.model.model.layers.{layer}.{target}.lora_{part}.weight"
                header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
                matrices[layer, target, part] = struct.unpack(f"<{len(values)}f", packed)
                data += packed
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": alpha} | config))
    return matrices


def merge(path, matrices, scale):
    """The model with W + scale * B A in place of W. GGUF has the pairs of a head of q and k beside each other."""
    _, raw, tensors = gguf_file.read(goldens.data(goldens.MODEL))
    for (layer, target, part), a in matrices.items():
        if part == "B":
            continue
        rows, cols = SHAPES[target]
        b, rank = matrices[layer, target, "B"], len(a) // cols
        name = f"blk.{layer}.{OURS[target]}.weight"
        kind, shape, data = tensors[name]
        old, new = struct.unpack(f"<{rows * cols}f", data), []
        for row in range(rows):
            head, i = divmod(row, HEAD)
            source = head * HEAD + i // 2 + (i % 2) * HEAD // 2 if target in ("self_attn.q_proj", "self_attn.k_proj") else row
            new += [w + scale * sum(b[source * rank + r] * a[r * cols + c] for r in range(rank))
                    for c, w in enumerate(old[row * cols : (row + 1) * cols])]  # fmt: skip
        tensors[name] = kind, shape, struct.pack(f"<{rows * cols}f", *new)
    gguf_file.write(path, raw, tensors)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    write_adapter(root / "all", 1)
    write_adapter(root / "few", 2, rank=2, alpha=4, targets=["self_attn.q_proj", "self_attn.v_proj"])
    write_adapter(root / "root", 3, rank=8, use_rslora=True)
    return root


@pytest.fixture(scope="module")
def lora(root, model):
    server = Server("--lora-modules", f"all={root}/all", "--lora-modules", f"few={root}/few", "--lora-root", root,
                    "--admin-api-key", ADMIN, "--api-key", KEY, "--max-loras", "4", "--served-model-name", "base", key=KEY)  # fmt: skip
    server.secrets += [ADMIN, KEY]
    yield server
    server.stop()


def admin(server, path, key=ADMIN, **body):
    return server.post(path, body, headers={"Authorization": f"Bearer {key}"} if key else {"Authorization": None})


def ask(server, model, prompt=PROMPT, tokens=24):
    choice = server.complete(prompt, model=model, max_tokens=tokens, logprobs=3, seed=5)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]


def test_names(lora):
    listed = lora.get("/v1/models").json()["data"]
    assert [(m["id"], m["root"], m["parent"]) for m in listed] == [
        ("base", "base", None), ("all", "all", "base"), ("few", "few", "base")
    ]  # fmt: skip
    assert lora.get("/v1/models/few").json()["parent"] == "base"
    assert [(a["path"], a["scale"]) for a in lora.get("/lora-adapters").json()] == [("all", 1.0), ("few", 1.0)]
    check_error(lora.post("/v1/completions", {"model": "al", "prompt": "x"}), 404, param="model", code="model_not_found")
    assert lora.complete("x", model="few", max_tokens=1)["model"] == "few"
    assert lora.post("/tokenize", {"model": "few", "prompt": "x"}).status == 200


@pytest.mark.parametrize("name, scale", [("all", 2.0), ("few", 2.0), ("root", 8 / math.sqrt(8))])
def test_merged(lora, root, tmp_path, name, scale):
    targets = ["self_attn.q_proj", "self_attn.v_proj"] if name == "few" else SHAPES
    seed, rank = {"all": (1, 4), "few": (2, 2), "root": (3, 8)}[name]
    matrices = write_adapter(tmp_path / name, seed, rank=rank, targets=targets)
    merge(tmp_path / "merged.gguf", matrices, scale)
    merged = Server(model=tmp_path / "merged.gguf")
    if name == "root":
        assert admin(lora, "/v1/load_lora_adapter", lora_name=name, lora_path="root").status == 200
    text, logprobs, top = ask(lora, name)
    other = ask(merged, None)
    assert text == other[0] and text != ask(lora, "base")[0]
    assert all(abs(a - b) < 1e-4 for a, b in zip(logprobs, other[1]))
    assert all(abs(v - b[k]) < 1e-4 for a, b in zip(top, other[2]) for k, v in a.items() if k in b)
    merged.stop()
    if name == "root":
        assert admin(lora, "/v1/unload_lora_adapter", lora_name=name).status == 200


def at_once(calls):
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def test_mixed(lora):
    models = ["base", "all", "few"]
    prompts = [PROMPT, "Lily saw", "The", "A little girl and her big, shiny ball went"]
    alone = {(m, p): ask(lora, m, p) for m in models for p in prompts}
    asked = list(alone) * 2
    random.Random(1).shuffle(asked)
    assert at_once([lambda q=q: ask(lora, *q) for q in asked]) == [alone[q] for q in asked]


def test_metrics(start, root):
    """Metrics: the adapters of requests in progress; requests by adapter."""
    server = start("--lora-modules", f"all={root}/all", "--lora-modules", f"few={root}/few", "--max-num-seqs", "1", env=SLOW)
    stream = server.open_stream(PROMPT, model="all", max_tokens=400, ignore_eos=True)
    waits = threading.Thread(target=server.complete, args=("x",), kwargs={"model": "few", "max_tokens": 1})
    waits.start()
    page = lambda: server.get("/metrics").body.decode()  # noqa: E731
    wait_for("both", lambda: 'max_lora="8",waiting_lora_adapters="few",running_lora_adapters="all"' in page())
    stream.conn.close()
    waits.join()
    assert 'waiting_lora_adapters="",running_lora_adapters=""' in page() and 'adapter="few"} 1' in page()


def test_held_to_a_schema(lora):
    """An adapter does not change the texts that a schema allows; requests together give the same as each alone."""
    schema = {"type": "object", "properties": {"word": {"enum": ["cat", "dog", "bird"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["word", "n"], "additionalProperties": False}  # fmt: skip
    models = [m["id"] for m in lora.get("/v1/models").json()["data"]][:3]
    bodies = [{"model": m, "prompt": PROMPT, "max_tokens": 200, "temperature": 1, "seed": seed, "structured_outputs": {"json": schema, "disable_any_whitespace": True}}
              for m in models for seed in range(2)]  # fmt: skip
    alone = [lora.post("/v1/completions", b).json()["choices"][0]["text"] for b in bodies]
    for text in alone:
        value = json.loads(text)
        assert value["word"] in ("cat", "dog", "bird") and 0 <= value["n"] <= 99
    assert at_once([lambda b=b: lora.post("/v1/completions", b).json()["choices"][0]["text"] for b in bodies]) == alone


def test_cache_is_kept_apart(lora):
    long = "Once there was a boy who had a dog and a cat and a bird and they all lived in a house by the sea. " * 2

    def cached(model):
        usage = lora.complete(long, model=model, max_tokens=1)["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [cached(m) for m in ("base", "all", "few")] == [0, 0, 0]
    assert all(cached(m) > 0 for m in ("base", "all", "few"))


def test_load_and_unload(lora, root):
    reply = admin(lora, "/v1/load_lora_adapter", lora_name="more", lora_path=str(root / "all"))
    assert reply.status == 200 and "success" in reply.body.decode()
    assert ask(lora, "more") == ask(lora, "all")
    assert "more" in lora.models()
    again = admin(lora, "/v1/load_lora_adapter", lora_name="more", lora_path="few")
    assert "has already been loaded" in check_error(again, 400, param="lora_name")["message"]
    assert admin(lora, "/v1/load_lora_adapter", lora_name="more", lora_path="few", load_inplace=True).status == 200
    assert ask(lora, "more") == ask(lora, "few")
    assert admin(lora, "/v1/unload_lora_adapter", lora_name="more").status == 200
    check_error(lora.post("/v1/completions", {"model": "more", "prompt": "x"}), 404, param="model", code="model_not_found")
    check_error(admin(lora, "/v1/unload_lora_adapter", lora_name="more"), 404, param="lora_name")


def test_unloaded_in_use(lora):
    assert admin(lora, "/v1/load_lora_adapter", lora_name="brief", lora_path="all").status == 200
    want = ask(lora, "all", tokens=400)[0]
    stream = lora.open_stream(PROMPT, model="brief", max_tokens=400, seed=5)
    first = next(iter(stream))
    assert admin(lora, "/v1/unload_lora_adapter", lora_name="brief").status == 200
    assert "brief" not in lora.models()
    events = [first, *stream.finish()]
    assert "".join(e["choices"][0]["text"] for e in events if e["choices"]) == want
    stream.conn.close()


@needs_emulated
def test_on_a_gpu(start, lora, root):
    """The texts of the CPU, with adapters together in a batch, and one loaded and unloaded while others run."""
    modules = ["--lora-modules", f"all={root}/all", "--lora-modules", f"few={root}/few", "--served-model-name", "base"]
    server = start(*modules, "--lora-root", root, "--admin-api-key", ADMIN, "--max-num-seqs", "4",
                   env={"QUIRE_DEVICE": "cuda", "QUIRE_CUDA_MODULE": str(EMULATED)})  # fmt: skip
    assert 'device="cuda' in server.log() and server.models() == ["base", "all", "few"]
    models = ["base", "all", "few", "all"]
    want = [ask(lora, m, tokens=8) for m in models]
    stream = server.open_stream(PROMPT, model="few", max_tokens=8, seed=5)
    first = next(iter(stream))
    assert admin(server, "/v1/load_lora_adapter", lora_name="more", lora_path="all").status == 200
    got = at_once([lambda m=m: ask(server, m, tokens=8) for m in models[:3] + ["more"]])
    assert admin(server, "/v1/unload_lora_adapter", lora_name="more").status == 200
    assert "".join(e["choices"][0]["text"] for e in [first, *stream.finish()] if e["choices"]) == want[2][0]
    stream.conn.close()
    for a, b in zip(got, want):
        assert a[0] == b[0] and all(abs(x - y) < 1e-2 for x, y in zip(a[1], b[1]))


def test_refusals(lora, root, tmp_path):
    outside = write_adapter(tmp_path / "outside", 9) and tmp_path / "outside"
    (root / "link").symlink_to(outside)
    (root / "links").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (root / "links" / name).symlink_to(outside / name)
    (root / "broken").mkdir()
    (root / "broken" / "adapter_config.json").write_text("{}")
    big = write_adapter(root / "big", 4, rank=65) and "big"
    path = "/v1/load_lora_adapter"
    for body, status, param in [
        ({}, 400, "lora_name"), ({"lora_name": "x"}, 400, "lora_path"), ({"lora_name": 1, "lora_path": "all"}, 400, "lora_name"),
        ({"lora_name": "a/b", "lora_path": "all"}, 400, "lora_name"), ({"lora_name": "base", "lora_path": "all"}, 400, "lora_name"),
        ({"lora_name": "x" * 65, "lora_path": "all"}, 400, "lora_name"), ({"lora_name": "x", "lora_path": "none"}, 404, "lora_path"),
        ({"lora_name": "x", "lora_path": "../" + root.name + "x"}, 404, "lora_path"), ({"lora_name": "x", "lora_path": "/etc"}, 400, "lora_path"),
        ({"lora_name": "x", "lora_path": "all/../.."}, 400, "lora_path"), ({"lora_name": "x", "lora_path": "link"}, 400, "lora_path"),
        ({"lora_name": "x", "lora_path": "links"}, 400, "lora_path"), ({"lora_name": "x", "lora_path": "broken"}, 400, "lora_path"),
        ({"lora_name": "x", "lora_path": big}, 400, "lora_path"), ({"lora_name": "x", "lora_path": "all", "load_inplace": 1}, 400, "load_inplace"),
        ({"lora_name": "x\0y", "lora_path": "all"}, 400, "lora_name"), ({"lora_name": "x", "lora_path": "all\0y"}, 400, "lora_path"),
    ]:  # fmt: skip
        said = check_error(admin(lora, path, **body), status, param=param)["message"]
        assert str(root) not in said and str(tmp_path) not in said and "/" not in said.replace("/adapter_config.json", ""), said
    assert "broken/adapter_config.json" in check_error(admin(lora, path, lora_name="x", lora_path="broken"), 400)["message"]
    assert f"{root}/broken/adapter_config.json" in lora.log()
    check_error(admin(lora, "/v1/unload_lora_adapter", lora_name="all\0"), 400, param="lora_name")
    check_error(lora.post("/v1/completions", {"model": "all\0", "prompt": "x"}), 400, param="model")
    for key in (None, "wrong", KEY):
        check_error(admin(lora, path, key=key, lora_name="x", lora_path="all"), 401, code="invalid_api_key")
        check_error(admin(lora, "/v1/unload_lora_adapter", key=key, lora_name="all"), 401, code="invalid_api_key")
    assert lora.models() == ["base", "all", "few"]
    names = [f"n{i}" for i in range(3)]
    replies = [admin(lora, path, lora_name=n, lora_path="few") for n in names]
    assert [r.status for r in replies] == [200, 200, 400] and "--max-loras" in replies[2].json()["error"]["message"]
    for n in names[:2]:
        assert admin(lora, "/v1/unload_lora_adapter", lora_name=n).status == 200


def test_bad_loads_under_traffic(lora, root):
    want = ask(lora, "all", tokens=100)
    bad = [lambda i=i: admin(lora, "/v1/load_lora_adapter", lora_name=f"bad{i}", lora_path="none").status for i in range(25)]
    got = at_once([lambda: ask(lora, "all", tokens=100)] * 4 + bad)
    assert got[:4] == [want] * 4 and set(got[4:]) == {404}


def test_switched_off(server, root):
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        check_error(server.post(path, {"lora_name": "x", "lora_path": "all"}), 403, code="adapters_disabled")
    assert server.get("/lora-adapters").json() == []


def test_start_is_refused(root):
    from process import run

    model = goldens.data(goldens.MODEL)
    for flags, code, word in [
        (["--lora-modules", "x"], 2, "NAME=PATH"), (["--lora-modules", f"stories260K={root}/all"], 2, "NAME=PATH"),
        (["--lora-modules", f"x={root}/none"], 1, "none"), (["--lora-modules", f"x={root}/root", "--max-lora-rank", "3"], 1, "rank"),
        (["--lora-modules", f"x={root}/all", "--lora-modules", f"x={root}/few"], 2, "two adapters"),
    ]:  # fmt: skip
        done = run("serve", model, "--port", "0", *flags)
        assert done.returncode == code and word in done.stderr, (flags, done)
