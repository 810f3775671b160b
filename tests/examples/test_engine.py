#!/usr/bin/env python3
"""examples/engine.c gives the text of the goldens, and what `quire generate` gives on the same files.

usage: test_engine.py EXAMPLE_ENGINE [QUIRE]

Exit code 77: nothing could be compared (neither QUIRE nor the test data).
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("QUIRE_TEST_DATA") or ROOT / "../shared/data")
TOKENS = 64


def output(*command):
    env = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}  # which would be flags
    return subprocess.run(list(map(str, command)), capture_output=True, check=True, timeout=300, env=env).stdout


def main():
    example, quire = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    compared = 0

    def compare(model, prompt, want, what):
        nonlocal compared
        got = output(example, model, prompt, TOKENS)
        if got != want:
            sys.exit(f"{model}, {prompt!r}: expected from {what} {want!r}, found {got!r}")
        compared += 1

    golden, model = DATA / "models/golden/stories260K.greedy.json", DATA / "models/stories260K/stories260K.gguf"
    prompts = ["Once upon a time", ""]
    if golden.exists() and model.exists():
        cases = json.loads(golden.read_text())["cases"]
        for case in cases:
            compare(model, case["prompt"], case["greedy_text"].encode() + b"\n", "the golden")
    elif os.environ.get("QUIRE_REQUIRE_DATA"):
        sys.exit(f"no test data: {golden}")
    with tempfile.TemporaryDirectory() as tmp:
        models = [model] if model.exists() else []
        for i, kind in enumerate(["f32", "q8_0"]):
            path = Path(tmp) / f"{kind}.gguf"
            output(sys.executable, ROOT / "tests/tools/make_gguf.py", path, "--type", kind, "--chatml", "--seed", i)
            models.append(path)
        for path in models if quire else []:
            for prompt in [*prompts, "<|im_start|>user\nHello <|im_end|>"]:
                want = output(quire, "generate", path, "--raw", "-p", prompt, "-n", TOKENS, "--temperature", 0)
                compare(path, prompt, want, "quire generate")
        for arguments in [(), (Path(tmp) / "none.gguf", "x"), (models[-1], "word " * 600)]:
            refused = subprocess.run([example, *map(str, arguments)], capture_output=True, timeout=60)
            if refused.returncode != 1 or not refused.stderr or refused.stdout:
                sys.exit(f"{arguments}: expected a refusal, found {refused}")
    print(f"{compared} texts, all equal")
    return 0 if compared else 77


if __name__ == "__main__":
    sys.exit(main())
