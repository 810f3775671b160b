"""The test data: where it lies, what the model must answer, and the vocabulary to take an answer apart."""

import functools
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import gguf_file  # noqa: E402


def data_root():
    return Path(os.environ.get("QUIRE_TEST_DATA") or ROOT / "../shared/data").resolve()


NO_DATA = "no test data"


def data(name):
    """Path of a file or folder of the test data. Without it: skip, or fail where QUIRE_REQUIRE_DATA is set."""
    path = data_root() / name
    if not path.exists():
        reason = f"{NO_DATA}: {path} (set QUIRE_TEST_DATA)"
        if os.environ.get("QUIRE_REQUIRE_DATA"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


MODEL = "models/stories260K/stories260K.gguf"


@functools.lru_cache
def cases():
    """The six golden prompts: prompt, prompt_ids, 64 greedy_ids, greedy_text, top five per step."""
    golden = json.loads(data("models/golden/stories260K.greedy.json").read_text())
    for case in golden["cases"]:
        assert text_of(case["greedy_ids"]) == case["greedy_text"], "vocabulary and goldens disagree"
    return golden["cases"]


def expected(case, num_tokens):
    return text_of(cases()[case]["greedy_ids"][:num_tokens])


def pieces():
    """The bytes that each token of the test model adds to a text; control tokens add none."""
    return vocabulary()[0]


def shown(token):
    """How log-probabilities spell a token: a control token by its name."""
    return (pieces()[token] or vocabulary()[1][token]).decode("utf-8", "replace")


@functools.lru_cache
def vocabulary():
    keys, _, _ = gguf_file.read(data(MODEL))
    names, out = keys["tokenizer.ggml.tokens"], []
    for name, kind in zip(names, keys["tokenizer.ggml.token_type"]):
        if kind == 6:
            out.append(bytes([int(name[3:5], 16)]))
        else:
            out.append(name.replace("▁", " ").encode() if kind == 1 else b"")
    return out, [name.encode() for name in names]


BOS, EOS = 1, 2


def text_of(ids):
    return b"".join(pieces()[i] for i in ids).decode("utf-8", "replace")


def byte_token(byte):
    """The id of the token that stands for one raw byte."""
    return 3 + byte


def tokens_until(case, stop):
    """How many greedy tokens it takes until the text contains `stop`, and the text before it."""
    ids = cases()[case]["greedy_ids"]
    for n in range(1, len(ids) + 1):
        text = text_of(ids[:n])
        if stop in text:
            return n, text[: text.index(stop)]
    raise AssertionError(f"{stop!r} is not in the golden text")
