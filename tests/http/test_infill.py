"""Code between two texts: llama-server's /infill and the suffix of /v1/completions, of models whose vocabularies have tokens for it."""

import json
import subprocess
import sys

import pytest

import goldens
from process import SLOW, Server
from wire import check_error

QWEN = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
CODELLAMA = ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>")
MISTRAL = ("[PREFIX]", "[MIDDLE]", "[SUFFIX]")
ASKED = {"input_prefix": "def sum(a, b):  # <|fim_suffix|>\n", "input_suffix": "\n\nprint(sum(1, 2))", "n_predict": 8, "temperature": 0}


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """A server of a random model whose vocabulary has these control tokens."""
    servers = {}

    def of(control, tool="make_gguf.py"):
        if (control, tool) not in servers:
            path = tmp_path_factory.mktemp("fim") / ("model.gguf" if tool == "make_gguf.py" else "model")
            shape = ["--arch", "qwen3", "--vocab", "420"] + [word for name in control for word in ("--control", name)]
            subprocess.run([sys.executable, str(goldens.ROOT / "tests/tools" / tool), str(path), *shape], check=True)
            servers[control, tool] = Server(model=path)
        return servers[control, tool]

    yield of
    for server in servers.values():
        server.stop()


def ids(server, text, special=False):
    return server.post("/tokenize", {"content": text, "add_special": False, "parse_special": special}).json()["tokens"]


def check_prompt(server, want, fields=()):
    """/infill answers as /completion does for these ids."""
    body = {"n_predict": 8, "temperature": 0, "return_tokens": True}
    reply = server.post("/infill", ASKED | body | dict(fields))
    usual = server.post("/completion", body | {"prompt": want})
    assert reply.status == usual.status == 200, (reply, usual)
    for key in ("prompt", "tokens", "content", "tokens_evaluated"):
        assert reply.json()[key] == usual.json()[key], key


@pytest.mark.parametrize("tool", ["make_gguf.py", "make_folder.py"])
def test_repository(serve, tool):
    server = serve(QWEN, tool)
    pre, mid, suf, _, repo, file = (ids(server, name, True)[0] for name in QWEN)
    before = [1, repo, *ids(server, "myproject\n")]
    between = [pre, *ids(server, ASKED["input_prefix"]), suf, *ids(server, ASKED["input_suffix"]), mid]
    check_prompt(server, before + [file, *ids(server, "filename\n")] + between)
    extra = [{"filename": "a.py", "text": "one = 1 <|fim_suffix|>"}, {"text": "two"}]
    files = [file, *ids(server, "a.py\n"), *ids(server, extra[0]["text"]), file, *ids(server, "tmp\n"), *ids(server, "two")]
    check_prompt(server, before + files + [file, *ids(server, "filename\n")] + between, {"input_extra": extra})
    begun = between[:]
    begun[between.index(suf) : between.index(suf)] = ids(server, "    return")
    check_prompt(server, before + [file, *ids(server, "filename\n")] + begun, {"prompt": "    return"})


def test_without_files(serve):
    server = serve(CODELLAMA)
    pre, mid, suf, _ = (ids(server, name, True)[0] for name in CODELLAMA)
    between = [pre, *ids(server, ASKED["input_prefix"]), suf, *ids(server, ASKED["input_suffix"]), mid]
    check_prompt(server, [1, *between])
    mark = ids(server, "\n\n--- snippet ---\n\n")
    check_prompt(server, [1, *mark, *ids(server, "one"), *between], {"input_extra": [{"filename": "a.py", "text": "one"}]})


def test_suffix_first(serve):
    server = serve(MISTRAL)
    pre, _, suf = (ids(server, name, True)[0] for name in MISTRAL)
    check_prompt(server, [1, suf, *ids(server, ASKED["input_suffix"]), pre, *ids(server, ASKED["input_prefix"])])


def test_long_texts(serve):
    """The context, 512 tokens here, keeps what is next to the gap."""
    server = serve(CODELLAMA)
    pre, mid, suf, _ = (ids(server, name, True)[0] for name in CODELLAMA)
    fields = {"input_prefix": "ab " * 1000, "input_suffix": "cd " * 1000, "input_extra": [{"text": "x"}]}
    room = 512 - 8 - 4
    prefix, suffix = ids(server, fields["input_prefix"]), ids(server, fields["input_suffix"])
    want = [1, pre, *prefix[-(room - room // 4) :], suf, *suffix[: room // 4], mid]
    check_prompt(server, want, fields)
    check_error(server.post("/v1/completions", {"prompt": "a", "suffix": "b " * 1000}), 400, "prompt", code="context_length_exceeded")


def test_suffix(serve):
    """/v1/completions: each prompt is what stands before; a stream gives the same."""
    server = serve(QWEN)
    prefix, suffix = ASKED["input_prefix"], ASKED["input_suffix"]
    want = [server.post("/infill", ASKED | {"input_prefix": p}).json()["content"] for p in (prefix, "")]
    body = {"suffix": suffix, "max_tokens": 8, "temperature": 0}
    assert [c["text"] for c in server.post("/v1/completions", body | {"prompt": [prefix, ""]}).json()["choices"]] == want
    reply = server.post("/v1/completions", body | {"prompt": prefix, "stream": True}).body.decode()
    events = [json.loads(e[6:]) for e in reply.split("\n\n") if e.startswith("data: {")]
    assert "".join(e["choices"][0]["text"] for e in events) == want[0]
    for fields, param in (({"prompt": [1]}, "prompt"), ({"suffix": 1}, "suffix"), ({"echo": True}, "suffix"), ({"truncate_prompt_tokens": 4}, "suffix")):
        check_error(server.post("/v1/completions", body | {"prompt": prefix} | fields), 400, param)


def test_ends(serve):
    """The next file, and padding, end what is filled in, and give no text."""
    server = serve(QWEN)
    for name in ("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"):
        got = server.post("/infill", ASKED | {"logit_bias": [[ids(server, name, True)[0], 100]]}).json()
        assert (got["content"], got["stop_type"], got["tokens_predicted"]) == ("", "eos", 1)


def test_stream(serve):
    server = serve(QWEN)
    whole = server.post("/infill", ASKED).json()
    reply = server.post("/infill", ASKED | {"stream": True}).body.decode()
    *parts, last = (json.loads(e[6:]) for e in reply.split("\n\n") if e)
    assert "".join(p["content"] for p in parts) == whole["content"]
    assert last["stop"] is True and last["prompt"] == whole["prompt"]


@pytest.mark.parametrize("change, param", [
    ({"input_prefix": None}, "input_prefix"), ({"input_suffix": None}, "input_suffix"), ({"input_prefix": 3}, "input_prefix"),
    ({"input_suffix": ["a"]}, "input_suffix"), ({"prompt": [1]}, "prompt"), ({"input_extra": "x"}, "input_extra"),
    ({"input_extra": [{"text": "x"}, {"filename": "y"}]}, "input_extra[1]"), ({"input_extra": [{"text": "x", "filename": 4}]}, "input_extra[0]"),
    ({"suffix": "x"}, "suffix"), ({"echo": True}, "input_suffix"), ({"grammar": "x"}, "grammar"), ({"n_predict": -3}, "n_predict"),
])  # fmt: skip
def test_refused(serve, change, param):
    check_error(serve(QWEN).post("/infill", ASKED | change), 400, param)


def test_of_no_such_model(server):
    for path, body, param in (("/infill", ASKED, "input_suffix"), ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix")):
        error = check_error(server.post(path, body), 400, param, code="unsupported_parameter")
        assert "does not fill in the middle" in error["message"]


# The editors' plugins send and read this: ggml-org/llama.vim a1c8e6e4, autoload/llama.vim; ggml-org/llama.vscode 3938fb35,
# src/llama-server.ts and src/statusbar.ts. The texts are ours.
TIMES = [f"timings/{what}" for kind in ("prompt", "predicted") for what in (f"{kind}_n", f"{kind}_ms", f"{kind}_per_token_ms", f"{kind}_per_second")]
RING = [{"text": "int one();\n", "time": [12, 345678], "filename": "one.h"}, {"text": "int two();\n", "filename": "two.h"}]
VIM_WARM_UP = {"id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": RING, "prompt": "", "n_predict": 0, "temperature": 0.0, "samplers": [],
               "stream": False, "cache_prompt": True, "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""]}  # fmt: skip
VIM = {"id_slot": 0, "input_prefix": "int three() {\n", "input_suffix": "\n}\n", "input_extra": RING, "prompt": "    return", "n_predict": 12, "stop": [],
       "n_indent": 0, "top_k": 40, "top_p": 0.90, "samplers": ["top_k", "top_p", "infill"], "stream": False, "cache_prompt": True, "t_max_prompt_ms": 500,
       "t_max_predict_ms": 60000, "response_fields": ["content", *TIMES, "truncated", "tokens_cached"]}  # fmt: skip
VSCODE = {"id_slot": 0, "input_prefix": "int three() {\n", "input_suffix": "\n}\n", "input_extra": RING, "prompt": "    return", "n_predict": 12, "n_cmpl": 3,
          "top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "n_indent": 1, "t_max_prompt_ms": 500,
          "t_max_predict_ms": 2500}  # fmt: skip
VSCODE_WARM_UP = {"id_slot": 0, "input_prefix": "a", "input_suffix": "b", "input_extra": RING, "prompt": "c", "n_predict": 0, "samplers": [], "cache_prompt": True,
                  "t_max_prompt_ms": 500, "t_max_predict_ms": 1}  # fmt: skip


def test_editors(serve):
    server = serve(QWEN)
    for body in (VIM_WARM_UP, VSCODE_WARM_UP):
        reply = server.post("/infill", body)
        assert reply.status == 200 and reply.json().get("content", "") == "", reply
    reply = server.post("/infill", VIM)
    assert reply.header("x-quire-ignored") == "t_max_prompt_ms, samplers"
    got = reply.json()
    assert set(got) == set(VIM["response_fields"]) and got["truncated"] is False and got["timings/predicted_n"] == 12
    assert got["tokens_cached"] == server.post("/infill", {**VIM, "response_fields": ["tokens_evaluated"]}).json()["tokens_evaluated"] + 12
    three = server.post("/infill", VSCODE).json()
    for one in three:
        assert isinstance(one["content"], str) and one["tokens_cached"] > 12 and one["generation_settings"]["n_ctx"] > 0
        assert {"prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_second"} <= set(one["timings"])
    assert len(three) == 3


def test_stages_that_are_off(server):
    """`samplers` turns off what it leaves out."""
    body = {"prompt": "Once", "n_predict": 4, "top_k": 2, "top_p": 0.5, "min_p": 0.2, "temperature": 0.3, "repeat_penalty": 1.5}
    settings = server.post("/completion", {**body, "samplers": ["top_k", "min_p"]}).json()["generation_settings"]
    assert settings | {"top_k": 2, "top_p": 1, "temperature": 1, "repeat_penalty": 1} == settings and settings["min_p"] > 0.1
    assert server.post("/completion", {**body, "samplers": []}).json()["generation_settings"]["top_k"] == 0
    check_error(server.post("/completion", {**body, "samplers": "kt"}), 400, "samplers")


@pytest.mark.parametrize("stream", [False, True])
def test_indented_lines(server, stream):
    """A line that begins with fewer blanks ends the output, behind what came before it on the line."""
    newline, blank, letter = (server.post("/tokenize", {"content": text, "add_special": False}).json()["tokens"][-1] for text in ("\n", "  ", "x"))
    allowed = {"prompt": "Once", "n_predict": 60, "temperature": 1, "allowed_token_ids": [newline, blank, letter], "logit_bias": [[letter, 7.0], [newline, 4.0]], "stream": stream}

    def text_of(**fields):
        reply = server.post("/completion", {**allowed, **fields})
        assert reply.status == 200 and reply.header("x-quire-ignored") is None, reply
        parts = [json.loads(chunk.removeprefix(b"data: ")) for chunk in reply.chunks] if stream else [reply.json()]
        return "".join(part["content"] for part in parts), parts[-1]

    cut = 0
    for seed in range(8):
        free, _ = text_of(seed=seed, n_indent=0)
        for indent in (1, 3):
            kept = []
            for i, line in enumerate(free.split("\n")):
                blanks = len(line) - len(line.lstrip(" "))
                short = i > 0 and blanks < indent and blanks < len(line)
                kept.append(line[:blanks] if short else line)
                if short:
                    break
            got, last = text_of(seed=seed, n_indent=indent)
            assert got == "\n".join(kept) and (last["stop_type"], last["truncated"]) == ("limit", False)
            cut += got != free
    assert cut > 2


def test_time_behind_a_line(start):
    server = start(env=SLOW)
    newline = server.post("/tokenize", {"content": "\n", "add_special": False}).json()["tokens"][-1]
    body = {"prompt": "Once", "n_predict": 50, "allowed_token_ids": [newline], "ignore_eos": True, "temperature": 0}
    got = server.post("/completion", {**body, "t_max_predict_ms": 1}).json()
    assert 2 <= got["tokens_predicted"] < 50 and got["stop_type"] == "limit"
    assert server.post("/completion", {**body, "n_predict": 3, "t_max_predict_ms": -1}).json()["tokens_predicted"] == 3
