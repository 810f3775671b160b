#!/usr/bin/env python3
"""docs/troubleshoot.md has every message with which a command ends, and every code of the API; and none that the source lacks.

Messages about a model's file (engine/models, engine/text) are one row there: each begins with the file's name and says what it found.

usage: test_messages.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshoot.md").read_text()
FOLDERS = ["server/commands", "server/process", "server/observe", "server/http", "server/dialects/response_files.c", "scheduler", "engine", "kernels/cpu", "kernels/cuda", "kernels/weight_check.c"]
ABOUT_FILES = ("engine/models/", "engine/text/")
MADE_BY = {"server/process/config_file.c": "|refuse", "server/process/environment.c": "|snprintf"}  # besides
PIECES = ("several files", "an earlier write failed", "--gpu-memory-utilization or lower --max-num-batched-tokens")  # of sentences
NEVER_SHOWN = ("engine/inspect.c", "server/http/unreadable.c")  # a description; responses
# Refusals of requests, which the API's codes stand for; sizes that an engine's caller gets wrong; bytes between ranks; a stage of a sampler.
OF_REQUESTS = re.compile(
    r"a scheduler of these sizes|a request needs|… prompt tokens|requests may bring|embeddings of|a span of|the last span|the queue is full"
    r"|the server is shutting|a step (of|points|names|could)|a group has 1|the (target|point|largest)|the sample_token|… … …")  # fmt: skip


def argument_list(text, at):
    """The arguments of a call whose bracket opens before `at`, apart."""
    depth, quoted, begin, found = 1, False, at, []
    while depth:
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if depth == 0 or depth == 1 and c == "," and not quoted:
            found.append(text[begin:at])
            begin = at + 1
        at += 1
    return found


def literals(argument):
    for group in re.findall(r'"(?:[^"\\]|\\.)*"(?:\s*(?:\w+\s*)?"(?:[^"\\]|\\.)*")*', argument):
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', group)).replace('\\"', '"')
        yield re.sub(r"%[-.*0-9]*(?:ll|l|z)?[a-zA-Z]", "…", text)


def calls(name, text):
    for found in re.finditer(rf"\b(?:{name})\(", text):
        yield argument_list(text, found.end())


def messages():
    """{message: where}: the formats of errors, without pieces of sentences."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.c")) or [ROOT / folder]:
            name = str(path.relative_to(ROOT))
            if name.startswith((*ABOUT_FILES, *NEVER_SHOWN)):
                continue
            made = calls("complain|err_set|fail_peers" + MADE_BY.get(name, ""), path.read_text())
            for message in (m for arguments in made for argument in arguments for m in literals(argument)):
                if re.match(r"[^ ;,]", message) and " " in message and not re.search(r"[:(] ?$", message):
                    found.setdefault(message, name)
    return found


def codes():
    found = set()
    for path in (ROOT / "server").rglob("*.[ch]"):
        text = path.read_text()
        for arguments in calls("api_fail|REPLY_ERROR|exchanges_fail", text):
            found |= set(re.findall(r'"([a-z_]+)"', arguments[2])) if len(arguments) > 3 else set()
        if path.name == "handlers.c":  # /health
            found |= set(re.findall(r'(?:problem =|return) "([a-z]+_[a-z_]+)"', text))
    return found


def pattern(row):
    return re.compile(".*".join(re.escape(part) for part in row.split("…")) + "$", re.S)


first, _, second = PAGE.partition("## Codes of the API")
cells = [line.split(" | ")[0] for line in first.splitlines() if line.startswith("| `") or line.startswith("| `…")]
rows = [row.replace("\0", "`") for cell in cells for row in re.findall(r"`([^`]+)`", cell.replace("``", "\0"))]
wrong, used, told = [], set(), messages()
for text, name in told.items():
    fits = [row for row in rows if pattern(row).match(text)]
    specific = [row for row in fits if len(row.replace("…", "").strip(": ")) > 3]
    used |= set(fits)
    if not fits or not specific and re.search(r"[a-z]{3}", text):
        wrong += [] if text in PIECES or OF_REQUESTS.match(text) else [f"docs/troubleshoot.md lacks: {text}  ({name})"]
wrong += [f"docs/troubleshoot.md has a message that no source has: {row}" for row in rows if row not in used]

listed = set(re.findall(r"`([a-z]+_[a-z_]+|overloaded)`", "\n".join(line.split(" | ")[1] for line in second.splitlines() if line.startswith("| "))))
wrong += [f"docs/troubleshoot.md lacks the code {code}" for code in sorted(codes() - listed)]
wrong += [f"docs/troubleshoot.md has a code that no source has: {code}" for code in sorted(listed - codes())]
statuses = {int(n) for n in re.findall(r"\b\d{3}\b", re.search(r"statuses\[\] = {([^}]*)}", (ROOT / "server/observe/metrics.c").read_text())[1])}
shown = {int(n) for line in second.splitlines() if line.startswith("| ") for n in re.findall(r"\b\d{3}\b", line.split("|")[1])}
wrong += [f"docs/troubleshoot.md lacks status {n}" for n in sorted(statuses - shown - {499, 504}) if n >= 400]
assert len(told) > 150 and len(codes()) > 20, (len(told), len(codes()))
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
