"""Files of every quantised type, made from the same values: the same bits however they run, and answers near the F32 file's."""

import json
import math
import subprocess
import sys

import pytest

from goldens import ROOT
from process import run

# Largest root mean square distance of the likely tokens' log-probabilities to the F32 file's: measured (0.047, 0.094, 0.20,
# 0.31, 0.34, 0.23; the same on every machine), and half as much again. Their spread is about 2.
TYPES = {"q8_0": 0.07, "q6_k": 0.14, "q5_k": 0.3, "q4_k": 0.47, "q4_0": 0.5, "q4_k_m": 0.35}
TO_REFERENCE = 0.07  # what rounding activations to 8 bits costs: 0.047 at most


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("quants"), {}
    shape = "--layers 1 --hidden 256 --heads 4 --kv-heads 1 --ffn 256 --vocab 320".split()

    def make(kind):
        if kind not in made:
            made[kind] = folder / f"{kind}.gguf"
            tool = ROOT / "tests" / "tools" / "make_gguf.py"
            subprocess.run([sys.executable, tool, made[kind], *shape, "--type", kind], check=True)
        return made[kind]

    return make


def answer(model, *flags):
    result = run("generate", model, "-p", "what a quire is", "-n", "8", "--ignore-eos", "--json", "--logprobs", "20",
                 *flags)
    assert result.returncode == 0, result
    body = json.loads(result.stdout)
    del body["timings"]
    return body


def first(body):
    """{token: log-probability} after the prompt."""
    return {t["token"]: t["logprob"] for t in body["logprobs"][0]["top"]}


def distance(a, b):
    both = a.keys() & b.keys()
    assert len(both) >= 8
    return math.sqrt(sum((a[t] - b[t]) ** 2 for t in both) / len(both))


@pytest.mark.parametrize("kind", TYPES)
def test_same_bits(make, kind):
    model = make(kind)
    plain = answer(model, "--threads", "1")
    assert answer(model, "--threads", "2", "--block-size", "48", "--max-num-seqs", "2", "--max-num-batched-tokens", "3") == plain
    variants = 0
    for variant in ("scalar", "avx2", "avxvnni", "avx512"):
        result = run("generate", model, "-p", "", "-n", "1", "--cpu-variant", variant)
        if result.returncode == 2:  # not on this machine
            continue
        assert answer(model, "--cpu-variant", variant) == plain
        variants += 1
    assert variants


@pytest.mark.parametrize("kind", TYPES)
def test_near_f32(make, kind):
    body = first(answer(make(kind)))
    assert distance(body, first(answer(make("f32")))) < TYPES[kind]
    assert distance(body, first(answer(make(kind), "--device", "ref"))) < TO_REFERENCE
