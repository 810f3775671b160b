#!/usr/bin/env python3
"""Measures the gain of the kernel threads' spinning between two phases: kernels/cpu/pool.c with other values of SPINS, in turns.

    spins.py [--spins 0,400,4000,40000] [FLAGS of serving.py]

Builds the server once for each value in a copy of the tree, and runs serving.py with these builds as peers of build/release.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPINS = re.compile(r"(enum \{ SPINS = )\d+")


def with_spins(text, value):
    new, num = SPINS.subn(rf"\g<1>{value}", text)
    if num != 1:
        sys.exit(f"spins.py: pool.c says SPINS {num} times")
    return new


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--spins", default="0,400,4000,40000")
    a, rest = p.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="quire-spins-") as tmp:
        tmp = Path(tmp)
        files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
        for name in files.split("\0")[:-1]:
            (tmp / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp / "tree" / name)
        pool = tmp / "tree/kernels/cpu/pool.c"
        text = pool.read_text()
        subprocess.run(["cmake", "-S", tmp / "tree", "-B", tmp / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"], check=True, stdout=sys.stderr)
        for value in a.spins.split(","):
            pool.write_text(with_spins(text, int(value)))
            subprocess.run(["cmake", "--build", tmp / "build", "--target", "quire"], check=True, stdout=sys.stderr)
            (tmp / "peers" / value).mkdir(parents=True)
            shutil.copy(tmp / "build/quire", tmp / "peers" / value)
        command = [sys.executable, ROOT / "tests/bench/serving.py", "--peers", tmp / "peers", *rest]
        sys.exit(subprocess.run(list(map(str, command))).returncode)


if __name__ == "__main__":
    main()
