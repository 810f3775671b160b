"""The cost of quantising: perplexities of the embedded model's variants, made by our own `quire quantize`, over its F32."""

import random
import re
import sys

import pytest

from goldens import ROOT
from process import SANITIZED, run

MODEL = ROOT / "models/quire-tiny.gguf"
# Largest rise over F32 that is taken for right, in percent.
BOUNDS = {"f16": 0.1, "bf16": 0.5, "q8_0": 0.5, "q6_k": 1, "q5_k": 2, "q5_1": 2, "q5_0": 2, "q4_k": 5, "q4_1": 8, "q4_0": 8, "iq4_nl": 8}


def perplexity(model, text):
    done = run("perplexity", model, "--file", text, timeout=300)
    assert done.returncode == 0, done.stderr
    return float(re.search(r"nll (\S+)", done.stdout)[1]), int(re.search(r"tokens (\d+)", done.stdout)[1])


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Stories of a seed that training did not have, by the model's own generator."""
    sys.path.insert(0, str(ROOT / "models/train"))
    import stories as generator

    sys.path.pop(0)
    rng = random.Random("held out 7")
    path = tmp_path_factory.mktemp("quality") / "stories.txt"
    path.write_text("\n\n".join(generator.story(rng)[0] for _ in range(20)))
    return path


@pytest.fixture(scope="module")
def floats(tmp_path_factory, stories):
    """The model in F32, and what the text costs with it."""
    path = tmp_path_factory.mktemp("quality") / "f32.gguf"
    done = run("quantize", MODEL, path, "f32")
    assert done.returncode == 0, done.stderr
    nll, tokens = perplexity(path, stories)
    assert tokens > 1500 and 0.1 < nll / tokens < 0.7, "the text is not what the model has learned"
    return path, nll, tokens


@pytest.mark.parametrize("kind", ["q4_k"] if SANITIZED else BOUNDS)  # a sanitizer would find the same in all
def test_a_variant_is_nearly_as_good(floats, stories, tmp_path, kind):
    path, base, tokens = floats
    done = run("quantize", path, tmp_path / "variant.gguf", kind)
    assert done.returncode == 0, done.stderr
    nll, same = perplexity(tmp_path / "variant.gguf", stories)
    assert same == tokens
    # perplexity / perplexity of F32 - 1, in percent
    rise = 100 * (2.718281828459045 ** ((nll - base) / tokens) - 1)
    assert rise < BOUNDS[kind], f"{kind}: {rise:+.3f} %"
    assert rise > -1, f"{kind}: {rise:+.3f} %: better than the original by more than chance"
