#!/usr/bin/env python3
"""The manual pages have every command and flag, and are such as groff and mandoc want them.

usage: test_manual.py QUIRE QUIRE_BENCH
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def flags_of(help_text):
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_text, re.M)


def plain(page):
    return re.sub(r"\\f[BIR]", "", page).replace("\\-", "-").replace("\\(aq", "'").replace("\\(dq", '"')


def faults(page):
    """Complaints of the formatters about a page; those that are not installed say nothing."""
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "page.1"
        path.write_text(page)
        for linter in (["groff", "-man", "-ww", "-z", "-Tutf8"], ["mandoc", "-T", "lint", "-W", "style"]):
            if shutil.which(linter[0]):
                done = subprocess.run([*linter, path], capture_output=True, text=True)
                yield from (done.stdout + done.stderr).splitlines()
            else:
                print(f"{linter[0]} is not installed: left out")


quire, bench = sys.argv[1:]
page, wrong = plain(output(quire, "help", "man")), []
commands = re.findall(r"^  (\w+)", output(quire, "--help"), re.M)
items = dict(re.findall(r"^\.TP\n(?:-\w, )?(\S+)[^\n]*\n([^\n]+)", page, re.M))
for command in commands:
    wrong += [] if command in items else [f"quire(1) lacks {command}"]
    wrong += [f"quire(1) lacks {flag}" for flag in flags_of(output(quire, "help", command)) if flag not in items]
bench_page = plain(output(bench, "--man"))
bench_items = re.findall(r"^\.TP\n(--[\w-]+)", bench_page, re.M)
bench_flags = flags_of(output(bench, "--help"))
wrong += [f"quire-bench(1) lacks {flag}" for flag in bench_flags if flag not in bench_items]
assert len(commands) > 10 and len(items) > 80 and len(bench_flags) > 50, (len(commands), len(items), len(bench_flags))
for text in (output(quire, "help", "man"), output(bench, "--man")):
    wrong += faults(text)
assert not shutil.which("mandoc") or any("LINE" in f or "skipping" in f for f in faults(".TH A 1 2026-01-01 a b\n.SH NAME\n.PP\na \\- b\n"))
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
