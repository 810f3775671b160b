"""Custom tools of /v1/responses: the text that a model may write for one follows the tool's Lark grammar, whatever it would rather
write, in formats whose arguments are JSON and in those where they stand between tags. Checked by Lark itself."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import lark
import pytest

from process import Server
from wire import check_error

PATH = "/v1/responses"
SAMPLES = 1000 if os.environ.get("QUIRE_SLOW") else 48

# openai/codex, codex-rs/core/src/tools/handlers/tool_apply_patch.lark: what Codex sends with its tool apply_patch.
APPLY_PATCH = """start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

# core/src/tools/handlers/tool_apply_patch.lark
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
# Lark's own reader takes no terminal that may be empty.
PATCH = lark.Lark(APPLY_PATCH.replace("/(.*)/", "/.+/?").replace("# core", "// core"))
# All but its last line, of a patch that the limit of tokens has cut.
HUNKS = r"(\*\*\* Add File: .+\n(\+.*\n)+|\*\*\* Delete File: .+\n|\*\*\* Update File: .+\n(\*\*\* Move to: .+\n)?(((@@( .+)?|[-+ ].*)\n)+(\*\*\* End of File\n)?)?)*"
CUT = re.compile(r"\*\*\* Begin Patch\n" + HUNKS + r"(\*\*\* (Add|Update) File: .+\n)?(\*\*\* End Patch\n)?")

NESTED = r"""start: item ("\n" item)~0..2
item: "(" item? ")" | /[<\/"\\a>]/ | "</parameter" | "b"
"""


@pytest.fixture(scope="module", params=["hermes", "qwen3_coder"])
def caller(request):
    server = Server("--tool-call-parser", request.param, model="")
    server.between_tags = request.param == "qwen3_coder"
    yield server
    server.stop()


def tool(definition, syntax="lark"):
    return {"type": "custom", "name": "edit", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}


def sampled(server, definition, **fields):
    """The texts, and those of them that have been cut."""
    body = {"input": "Go.", "tools": [tool(definition)], "tool_choice": {"type": "custom", "name": "edit"}, "parallel_tool_calls": False,
            "temperature": 1.5, **fields}  # fmt: skip
    whole, cut = [], []
    with ThreadPoolExecutor(16) as pool:
        for reply in pool.map(lambda seed: server.post(PATH, {**body, "seed": seed}), range(SAMPLES)):
            assert reply.status == 200, reply
            [item] = [item for item in reply.json()["output"] if item["type"] == "custom_tool_call"]
            (whole if reply.json()["status"] == "completed" else cut).append(item["input"])
    return whole, cut


def test_patches(caller):
    """Line feeds are likely, so that some patches end."""
    likely = {"\n": 9.0} if caller.between_tags else {"\\": 11.0, "n": 9.0}
    bias = {str(caller.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"][0]): more for text, more in likely.items()}
    whole, cut = sampled(caller, APPLY_PATCH, max_output_tokens=200, logit_bias=bias)
    for text in whole:
        PATCH.parse(text)
    lines = [text[: text.rindex("\n") + 1] for text in cut if text.startswith("***") and "\n" in text and "</" not in text]
    for text in lines:
        assert CUT.fullmatch(text), text
    assert sum(text.count("\n") > 2 for text in [*whole, *lines]) > SAMPLES // 4, [*whole, *lines][:5]


def test_nested_texts(caller):
    """Texts that need escapes in JSON, and tags in their midst."""
    whole, _ = sampled(caller, NESTED, max_output_tokens=120)
    for text in whole:
        lark.Lark(NESTED).parse(text)
    assert len(whole) > SAMPLES // 2 and any(set(text) & set('"\\\n') for text in whole)


def test_model_that_may_call(tiny):
    """Text before a call is free; the call is not."""
    reply = tiny.post(PATH, {"input": "What is the weather in Oslo?", "tools": [tool('start: "a" "b"?')], "temperature": 1.5, "seed": 1, "max_output_tokens": 40})
    assert reply.status == 200 and reply.header("x-quire-ignored") is None
    for item in reply.json()["output"]:
        assert item["type"] != "custom_tool_call" or item["input"] in ("a", "ab")


def test_calls_without_marks(start):
    """Such a model's calls cannot be told from its text: the grammar is left out, and that is told."""
    server = start("--tool-call-parser", "llama3_json", model="")
    body = {"input": "Go.", "tools": [tool('start: "a"+')], "max_output_tokens": 8}
    free = server.post(PATH, body)
    assert free.status == 200 and free.header("x-quire-ignored") == "tools.format"
    held = server.post(PATH, {**body, "tool_choice": "required", "max_output_tokens": 200})
    assert held.status == 200 and held.header("x-quire-ignored") is None and set(held.json()["output"][0]["input"]) == {"a"}


@pytest.mark.parametrize(
    "definition, says",
    [("start: (", "Lark grammar, line 1"), ("start: other", "this rule is not defined"), ("start: %json {}", "JSON by a schema")],
)
def test_grammar_that_is_none(tiny, definition, says):
    error = check_error(tiny.post(PATH, {"input": "Go.", "tools": [tool(definition)]}), 400, "tools")
    assert says in error["message"]
