#!/usr/bin/env python3
"""A covering set: few architectures, or few golden models, that together have every feature that any of them has.

    cover.py archs | goldens            their names, the ones that add most first

Features are read from the text of engine/models/architectures.c (each field with its value, trait, key, kind of router) and
from the arguments and weights of tests/model/golden/*.json. What a row does that another one does, too, is tested once per
change; every row in `./dev slow`.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VALUED = ("--rope", "--method")  # whose value is a kind, not a size


def fields(text):
    """Fields, with values that are words, not sizes; and words in capitals: traits, hyperparameters, macros."""
    pairs = re.findall(r"\.(\w+)\s*=\s*([^,{}|]+)", text)
    capitals = re.findall(r"\b(?:TRAIT|H)_\w+|\b(?:NORM_LAYERS|FFN_BIASES|BERT|SSM|EXPERTS|EXPERT_GROUPS|SCALES)\b", text)
    return {f"{name} {value.strip()}" if value[0].isupper() else name for name, value in pairs if not value.startswith(("&", "LIST"))} | set(capitals)


def architectures():
    """name -> features, in the order of the table."""
    text = re.sub(r"//.*", "", (ROOT / "engine/models/architectures.c").read_text())
    routers = {name: fields(body) for name, body in re.findall(r"(\w+) = \{(\.gating[^}]*)\}", text)}
    table = text[text.index("static const struct arch archs[]") :]
    table = table[: table.index("\n};")]
    found = {}
    for row in re.split(r'\n\s*\{(?=")', table)[1:]:
        name = re.match(r'"([^"]+)"', row)[1]
        router = re.search(r"\.experts = &(\w+)", row)
        found[name] = fields(row) | {f"router {f}" for f in routers[router[1]]} if router else fields(row)
    return found


def goldens():
    """name -> features: those of its architecture, its weights, and the arguments that make it what it is."""
    rows, found = architectures(), {}
    for path in sorted((ROOT / "tests/model/golden").glob("*.json")):
        golden = json.loads(path.read_text())
        words = golden["arguments"]
        arch = words[words.index("--arch") + 1] if "--arch" in words else "llama"
        flags = {w for w in words if w.startswith("--")}
        flags |= {f"{w} {words[i + 1]}" for i, w in enumerate(words) if w in VALUED}
        flags |= {words[i + 1].split("=")[0] for i, w in enumerate(words) if w in ("--f32", "--u32", "--bool")}
        found[golden["name"]] = rows.get(arch, set()) | flags | {f"weights {golden['weights']}"}
    return found


def cover(features):
    """Greedy; of equals the first."""
    left, chosen = set().union(*features.values()), []
    while left:
        best = max(features, key=lambda name: len(features[name] & left))
        chosen.append(best)
        left -= features[best]
    return chosen


def main():
    kinds = {"archs": architectures, "goldens": goldens}
    if sys.argv[1:] not in [[k] for k in kinds]:
        sys.exit(__doc__)
    print("\n".join(cover(kinds[sys.argv[1]]())))


if __name__ == "__main__":
    main()
