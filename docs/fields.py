#!/usr/bin/env python3
"""Writes docs/fields.md: every name that a request may have and what becomes of it, from the tables of the source.

usage: docs/fields.py [--check]     --check: whether the page is today's
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs/fields.md"
# What a table calls a place, and what the page and the tests call it.
PLACES = {
    "C": "completions", "CHAT": "chat", "RESPONSES": "responses", "ANSWER": "chat", "ITEM": "item", "ITEM_PART": "item part", "OPTION": "option",
    "MESSAGE": "message", "PART": "part", "STREAM": "stream_options", "EMBED": "embeddings", "RERANK": "rerank", "SCORE": "score",
    "SYSTEMONE": "systemone", "QUESTION": "question", "CLASSIFY": "classify",
    "TOKENIZE": "tokenize", "DETOKENIZE": "detokenize", "RENDER": "apply-template",
    "ANTHROPIC": "anthropic", "TURN": "turn", "BLOCK": "block", "TOOL": "tool",
    "OLLAMA_CHAT": "ollama_chat", "OLLAMA_GENERATE": "ollama_generate", "VECTOR": "ollama_embed", "OPTIONS": "ollama_options", "OLLAMA_MESSAGE": "ollama_message",
}  # fmt: skip
# The page's tables: a heading, and the places that are its columns.
OPENAI = ("completions", "chat", "responses")
TABLES = [
    ("`messages[]` of chat, and its `content[]`", {"message": "messages[]", "part": "content[]"}),
    ("`stream_options`", {"stream_options": "stream_options"}),
    ("`/v1/responses`: items, their parts, `reasoning` and `text`", {"item": "input[]", "item part": "content[]", "option": "reasoning, text"}),
    ("`/tokenize`, `/detokenize`, `/apply-template`", {"tokenize": "tokenize", "detokenize": "detokenize", "apply-template": "apply-template"}),
    ("`/v1/embeddings`, `/v1/rerank`, `/v1/score`", {"embeddings": "embeddings", "rerank": "rerank", "score": "score"}),
    ("`/v1/systemone`, `/classify`", {"systemone": "systemone", "question": "questions{}", "classify": "classify"}),
    ("`/v1/messages`", {"anthropic": "body", "turn": "messages[]", "block": "content[]", "tool": "tools[]"}),
    ("`/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`",
     {"ollama_chat": "chat", "ollama_generate": "generate", "ollama_embed": "embed, embeddings", "ollama_options": "options",
      "ollama_message": "messages[]"}),
]  # fmt: skip
EMPTY = ["", [], {}]
SETS = {"off": EMPTY + [False, 0], "empty": EMPTY}


def tabled():
    """{(name, place): (fate, word, values)} of field_table.c and of the tables in dialects."""
    texts = [path.read_text() for path in sorted((ROOT / "server").rglob("*.[ch]"))]
    text = "".join(t for t in texts if re.search(r'^#include "(api/)?field_rows\.h"|^#define READ\(', t, re.M))
    defines = dict(re.findall(r"^#define (\w+) (\S.*)$", text, re.M))

    def literal(expression):
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"|(\w+)', expression)
        return "".join(json.loads(f'"{quoted}"') if not name else literal(defines[name]) for quoted, name in parts if name != "NULL")

    rows, num = {}, 0
    for fate, name, places, rest in re.findall(r'^    ([A-Z]+)\("([^"]+)", ([A-Z_| ]+)(?:, (.*))?\),$', text, re.M):
        fate, word, values = fate.lower(), None, rest
        if fate == "alias":
            word, values = rest.split(", ", 1)
        elif fate == "harmless":
            word, values = rest, ""
        num += 1
        places = places.replace("ALL", "C | CHATS").replace("CHATS", "CHAT | RESPONSES")
        for place in re.sub(r"\bOLLAMA\b", "OLLAMA_CHAT | OLLAMA_GENERATE", places).split(" | "):
            assert place in PLACES, f"{place}, a place of {name!r}, has no name in docs/fields.py yet"
            assert (name, PLACES[place]) not in rows, f"{name} twice"
            rows[name, PLACES[place]] = (fate, literal(word) if word else None, json.loads(f"[{literal(values)}]"))
    assert num == len(re.findall(r"^    [A-Z]+\(", text, re.M)), "rows of another form"
    return rows


def values_in_words(values):
    words = []
    for word, of in SETS.items():
        if values[: len(of)] == of:
            words, values = [word], values[len(of) :]
            break
    return ", ".join(words + [f"`{json.dumps(v)}`" for v in values])


def cell(row):
    if row is None:
        return ""
    fate, word, values = row
    if fate == "read":
        return "read"
    if fate == "alias":
        return f"= `{word}`" + (f"; {values_in_words(values)}: no limit" if values else "")
    if fate == "harmless":
        return f"no effect: {word}"
    if fate == "template":
        return "the template's" + (f", else refused unless {values_in_words(values)}" if values else "")
    return f"refused unless {values_in_words(values)}"


def table(heads, rows):
    return ["| name |" + "".join(f" {head} |" for head in heads), "|---|" + "---|" * len(heads)] + [
        f"| `{name}` |" + "".join(f" {text} |" for text in cells) for name, cells in rows]  # fmt: skip


def page():
    rows = tabled()
    cells = {name: [cell(rows.get((name, place))) for place in OPENAI] for name, place in sorted(rows, key=lambda r: r[0].lower()) if place in OPENAI}
    same = [(name, three[:1]) for name, three in cells.items() if len(set(three)) == 1 and three[0] != "read"]
    all_read = [name for name, three in cells.items() if set(three) == {"read"}]
    differ = [(name, three) for name, three in cells.items() if len(set(three)) > 1]
    out = ["# Names of fields", "",
           "`docs/fields.py` writes this page from the tables of `server/api/field_table.c` and `server/dialects/`.", "",
           "- *read*: [api.md](api.md) says what it does.",
           "- *= `name`*: another server's word for that field; both with different values are 400.",
           "- *refused unless …*: 400 `unsupported_parameter`, but where the value asks for nothing: empty is `null`, `\"\"`, `[]` or `{}`;",
           "  off is empty, `false` or `0`.",
           "- *no effect*: the answer is right without it, and nothing is said; *needs another*: alone it means nothing, and that other is refused.",
           "- *the template's*: given to the chat template if that names it, else told in `x-quire-ignored`.",
           "", "A name that no table has is ignored, and told in `x-quire-ignored`; with `--strict-fields` it is 400 `unknown_parameter`.", "",
           "## `/v1/completions`, `/v1/chat/completions`, `/v1/responses`", "", "Read by all three:", ""]  # fmt: skip
    line = ""
    for i, name in enumerate(all_read):
        word = f"`{name}`" + (", " if i + 1 < len(all_read) else ".")
        if len(line) + len(word) > 130:
            out.append(line.rstrip())
            line = ""
        line += word
    out += [line, "", "Where they differ:", "", *table(OPENAI, differ), "", "The same on all three:", "", *table(["all"], same)]
    for title, columns in TABLES:
        names = sorted({name for name, place in rows if place in columns}, key=str.lower)
        out += ["", f"## {title}", "", *table(columns.values(), [(n, [cell(rows.get((n, place))) for place in columns]) for n in names])]
    assert {place for _, place in rows} == {*OPENAI, *(place for _, columns in TABLES for place in columns)}
    return "\n".join(out) + "\n"


def main(words):
    if words == ["--check"]:
        if not OUT.exists() or OUT.read_text() != page():
            print("docs/fields.md is not today's: run docs/fields.py")
            return 1
    elif words:
        sys.exit(__doc__)
    else:
        OUT.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
