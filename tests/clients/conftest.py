"""Frameworks that people put before a model, as they come, against the embedded model; their packages are many, so ./dev slow has
a virtual environment for them. Servers are those of tests/http."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))

from process import BINARY, Server  # noqa: E402

MODEL = "quire-tiny"
# A framework that asks nobody but itself what a model can do knows it by this name.
CLAUDE = "claude-sonnet-4-5"


@pytest.fixture(scope="session")
def server():
    one = Server("--served-model-name", MODEL, "--served-model-name", CLAUDE, model="")
    yield one
    one.stop()


@pytest.fixture(scope="session")
def embedder():
    one = Server("--pooling", "last", model=BINARY.parent / "tests/golden-models/qwen3.gguf")
    yield one
    one.stop()
