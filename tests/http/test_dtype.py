"""--dtype: float weights change their type on the way into memory."""

import json
import struct
import subprocess
import sys

import pytest

from goldens import ROOT, cases
from process import run


def make(tmp_path, kind):
    path = tmp_path / f"{kind}.gguf"
    shape = "--layers 2 --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 512".split()
    tool = ROOT / "tests" / "tools" / "make_gguf.py"
    subprocess.run([sys.executable, tool, path, *shape, "--type", kind], check=True)
    return path


def answer(model, *flags):
    result = run("generate", model, "-p", "hello there", "-n", "24", "--ignore-eos", "--json", "--logprobs", "3", *flags)
    assert result.returncode == 0, result
    body = json.loads(result.stdout)
    del body["timings"]
    return body


@pytest.mark.parametrize("wider", ["float32", "float", "f32"])
def test_wider_is_the_same(tmp_path, wider):
    """F16 numbers are F32 numbers, and both are summed alike: not a bit moves."""
    model = make(tmp_path, "f16")
    plain = answer(model, "--kv-cache-dtype", "f16")
    assert answer(model, "--kv-cache-dtype", "f16", "--dtype", wider) == plain
    assert answer(model, "--kv-cache-dtype", "f16", "--dtype", "auto") == plain


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrower_is_the_file_of_that_type(tmp_path, kind):
    """An F32 file loaded as F16 gives what the same numbers stored as F16 give: both round to nearest even."""
    assert answer(make(tmp_path, "f32"), "--dtype", kind) == answer(make(tmp_path, kind))
    assert answer(make(tmp_path, "f32"), "--dtype", kind) != answer(make(tmp_path, "f32"))


def test_quantised_stays(tmp_path):
    model = make(tmp_path, "q8_0")
    assert answer(model, "--dtype", "float16") == answer(model)


def test_log_and_cache_follow(start):
    server = start("--dtype", "bfloat16")
    cache = "BF16" if 'device="cpu amx' in server.tail() else "F16"
    assert " dtype=BF16" in server.tail() and f"kv_dtype={cache}" in server.tail()
    server = start("--dtype", "bfloat16", "--cpu-variant", "scalar")
    assert " dtype=BF16" in server.tail() and "kv_dtype=F16" in server.tail()
    text = server.complete(cases()[0]["prompt"], max_tokens=8)["choices"][0]["text"]
    assert text and start().complete(cases()[0]["prompt"], max_tokens=8)["choices"][0]["text"][:3] == text[:3]


def test_too_large_for_half(tmp_path):
    """65,520 is the first number that F16 cannot hold."""
    blob = bytearray(make(tmp_path, "f32").read_bytes())
    start = len(blob) - 4  # the last number of the file
    blob[start:] = struct.pack("<f", 65520.0)
    path = tmp_path / "large.gguf"
    path.write_bytes(blob)
    result = run("generate", path, "-p", "a", "-n", "1", "--dtype", "float16")
    assert result.returncode == 1 and f"at byte {start}" in result.stderr and "--dtype" in result.stderr, result
    assert run("generate", path, "-p", "a", "-n", "1", "--dtype", "bfloat16").returncode == 0
