#!/usr/bin/env python3
"""The documents: what they refer to exists, generated pages are those of their sources, folders' READMEs are short and no diaries.

usage: test_documents.py
"""
import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_LINE = 160
# A folder's README holds rules that the code cites, for one who reads it. What helps users is as long as they need, in docs/.
MAX_README, LONG_READMES = 1900, {"scheduler/README.md": 2000, "server/README.md": 1950, "kernels/README.md": 3300, "kernels/cuda/README.md": 2400}
# How it came to be belongs in commit messages; what was measured, under docs/performance.
DIARY = re.compile(r"\b(used to be|no longer|formerly|was replaced|we tried|turned out|at first|last (?:week|month)|20\d\d-\d\d-\d\d)\b", re.I)
MEASURED = ("docs/performance/", "docs/gpu/", "docs/benchmarking.md", "docs/structured.md", "models/")
wrong = []


def check(condition, *what):
    if not condition:
        wrong.append(" ".join(map(str, what)))


def documents():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()]
    skip = ("build", ".venv", ".git")
    return [p for p in ROOT.rglob("*.md") if not p.relative_to(ROOT).parts[0].startswith(skip)]


def check_texts():
    for path in documents():
        text, name = path.read_text(), path.relative_to(ROOT)
        if str(name).startswith("docs/gpu/"):
            continue  # pages as ./dev gpu-slot writes them
        if path.name == "README.md" and len(path.relative_to(ROOT).parts) > 1:
            words = len(text.split())
            check(words <= LONG_READMES.get(str(name), MAX_README), f"{name} has {words} words: what is not a rule goes to docs/")
        if not str(name).startswith(MEASURED):
            for found in DIARY.finditer(text):
                check(False, f"{name}: '{found[0]}': documents say what holds, commit messages how it came to be")
        for number, line in enumerate(text.splitlines(), 1):
            check(len(line) < MAX_LINE or line.startswith("|"), f"{name}:{number}: {len(line)} characters, at most {MAX_LINE - 1}")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            check((path.parent / target).exists(), f"{name}: a link to {target}, which does not exist")
        for target in re.findall(r"`([\w./-]+\.md)`", text):
            check((path.parent / target).exists() or (ROOT / target).exists() or target.startswith("docs/gpu/"),
                  f"{name}: speaks of {target}, which does not exist")


def check_sources():
    """Documents that comments of sources refer to exist, too."""
    for folder in ("base", "bench", "engine", "examples", "include", "kernels", "lib", "scheduler", "server", "tests"):
        for path in (p for p in (ROOT / folder).rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh", ".cpp")):
            for target in re.findall(r"//.*?([\w./-]*\w\.md)\b", path.read_text()):
                check(target == "OUT.md" or (ROOT / target).exists() or (path.parent / target).exists(),
                      f"{path.relative_to(ROOT)}: speaks of {target}, which does not exist")


SOURCES = (".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".cmake", ".txt", ".json", ".def", ".js", ".jinja", ".yml", ".sbatch", "")
# Flags of programs that are not ours.
THEIR_FLAGS = set("""abbrev-ref attn-backend branch gpu-bind gpus gres host include mca memory mpi network no-deps no-install-recommends platform prefix
    preset rm signal system no-create-home target build install test-dir output-on-failure label-exclude bind-to chunked-prefill component from-literal
    set""".split())


def known_words(pattern):
    """Every match in the sources."""
    found = set()
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if not parts[0].startswith(("build", ".venv", ".git")) and path.suffix in SOURCES and path.is_file() and path.name != "test_documents.py":
            found |= set(re.findall(pattern, path.read_text(errors="ignore")))
    return found


def check_names():
    """Flags, variables, commands and files that documents name exist."""
    options = "".join((ROOT / name).read_text() for name in ("server/process/options.c", "server/process/foreign_flags.c", "bench/options.c"))
    ours = {name.lstrip("-") for text in re.findall(r'\{"([-\w| ]+)",', options) for name in re.split(r"[| ]+", text)} | {"man", "version"}
    flags = ours | THEIR_FLAGS | {flag[2:] for flag in known_words(r"--[a-z][\w-]*")}
    variables = {f"QUIRE_{flag.upper().replace('-', '_')}" for flag in flags} | known_words(r"QUIRE_[A-Z0-9_]+")
    others = re.search(r"others\[\] = {([^}]*)}", (ROOT / "server/process/environment.c").read_text())[1]
    variables |= {f"QUIRE_{name}" for name in re.findall(r'"(\w+)"', others)}
    commands = set(re.findall(r'^    \{"(\w+)", "', (ROOT / "server/commands/quire_main.c").read_text(), re.M)) | {"help", "version"}
    for path in documents():
        name, text = str(path.relative_to(ROOT)), path.read_text()
        if name in ("docs/configuration.md", "CHANGELOG.md"):  # generated from the table; of other days
            continue
        code = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S)) + re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
        for piece in code:
            for flag in re.findall(r"(?<![\w-])--([a-z][\w-]*)", piece):
                check(flag.rstrip("-") in flags or flag.removeprefix("no-") in flags, f"{name}: speaks of --{flag}, which nothing takes")
            for line in re.findall(r"^(?:mpirun .*)?quire(?:-bench)? .*", piece.replace("\\\n", " "), re.M):
                line = re.sub(r"^mpirun.*?(?=quire )| (#|--|\|) .*", "", line)
                for flag in re.findall(r" --([a-z][\w-]*)", line):
                    check(flag in ours, f"{name}: speaks of --{flag}, which Quire does not take")
            for variable in re.findall(r"\bQUIRE_[A-Z0-9_]+\b", piece):
                check(variable in variables, f"{name}: speaks of {variable}, which nothing reads")
            for command in re.findall(r"^(?:\$ )?quire ([a-z]+)\b", piece, re.M):
                check(command in commands, f"{name}: speaks of `quire {command}`, which is no command")
            for target in re.findall(r"^[\w.-]+(?:/[\w.-]+)+\.(?:c|h|cu|cuh|py|sh|jinja|json|def|js|yml)$", piece):
                there = [path.parent / target, ROOT / target, *(p / target for p in (ROOT / "tests", ROOT / "tests/http", ROOT / "kernels"))]
                check(any(t.exists() for t in there), f"{name}: speaks of {target}, which does not exist")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPORT = {
    "date": "2026-01-02T03:04:05+00:00", "commit": "abc", "command": "./dev bench cpu " + "--types q8_0 " * 20,
    "results": [{"model": "tiny", "type": "q8_0", "fewer_threads": None,
                 "quire": {"prefill": {"tokens": 8, "tokens_s": 1200.0, "of_limit": 0.5},
                           "decode": [{"batch": 1, "tokens_s": 9.0, "of_limit": 0.25}]},
                 "peers": {"a": {"prefill": 600.0, "decode": {"1": 10.0}}, "b": {"prefill": 400.0, "decode": {"1": 5.0}}}}],
}  # fmt: skip
CLIENTS = {"output_throughput": 50.0, "median_ttft_ms": 20.0, "p99_ttft_ms": 30.0, "p99_itl_ms": 4.0}
SERVED = REPORT | {"results": [{"model": "tiny", "type": "q8_0", "limits": {"clients": {"4": {"limit_tokens_s": 100.0}}}, "engines": {
    "quire": [{"clients": {"4": CLIENTS}}], "a": [{"clients": {"4": {k: 2 * v for k, v in CLIENTS.items()}}}]}}]}


def check_tables():
    """A report becomes rows; a row becomes a cell; a page that is not its file's is found."""
    tables = load(ROOT / "docs/performance/tables.py")
    with tempfile.TemporaryDirectory() as tmp:
        tables.HERE = tmp = Path(tmp)
        (tmp / "one.json").write_text(tables.dump({"machine": "One", "limits": {"read": "1 GB/s"}, "runs": []}))
        for name, report in (("cpu.report", REPORT), ("served.report", SERVED)):
            (tmp / name).write_text(json.dumps(report))
            check(tables.main(["--add", tmp / name, "one"]) == 0, "--add fails")
        text = (tmp / "one.md").read_text()
        check("|tiny|q8_0|1,200 (50%, 2.00×)|9 (25%, **0.90×**)|" in text, text)
        check("|tiny|q8_0|4|50 (50%, **0.50×**)|20 (40)|30 (60)|4 (8)|" in text, text)
        check(all(len(line) < MAX_LINE for line in text.splitlines()) and text.count("q8_0 \\\n") == 2, text)
        check(tables.main(["--check"]) == 0, "a page that is its file's is refused")
        (tmp / "one.md").write_text(text.replace("0.90", "1.90"))
        with contextlib.redirect_stdout(io.StringIO()):
            check(tables.main(["--check"]) == 1, "a number that was changed by hand is not found")


def check_generated():
    for script in ("docs/performance/tables.py", "docs/architecture.py", "docs/fields.py"):
        done = subprocess.run([sys.executable, ROOT / script, "--check"], capture_output=True, text=True)
        check(done.returncode == 0, done.stdout, done.stderr)


check_texts()
check_sources()
check_names()
check_tables()
check_generated()
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
