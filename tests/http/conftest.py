"""Fixtures: one server shared by most tests, and a way to start others with flags."""

import collections
import os
import resource
import subprocess
import sys

import pytest

import goldens
from process import BINARY, Server


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the long tests too")


def pytest_configure(config):
    # Tests with many connections need descriptors, here and in the server, which inherits the limit.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if 0 <= hard <= 65536 else 65536, hard))


# Files that take longest, the longest first: else one of two workers would be alone with the last of them. pytest-xdist goes by the
# number of tests, which says little.
LONGEST = [f"test_{name}.py" for name in (
    "processes", "models", "kv_store", "agent", "lifecycle", "hosts", "kv_store_device", "folder", "tls", "load", "quantised_quality",
    "encoders", "fields", "terminal", "odd_bodies", "anthropic", "structured", "examples", "http", "responses", "bench_hostile",
    "documented", "bad_input", "compiling")]  # fmt: skip


def pytest_collection_modifyitems(config, items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    if config.getoption("--slow") or os.environ.get("QUIRE_SLOW"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: --slow or QUIRE_SLOW=1 runs it"))


def pytest_terminal_summary(terminalreporter):
    """One line at the end: how many tests did not run, and why."""
    reasons = collections.Counter()
    for report in terminalreporter.stats.get("skipped", []):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reasons["without the test data (CONTRIBUTING.md)" if goldens.NO_DATA in why
                else "slow (--slow runs them)" if "QUIRE_SLOW" in why
                else "for reasons of their own (-rs tells them)"] += 1  # fmt: skip
    if reasons:
        terminalreporter.write_line("left out: " + ", ".join(f"{n} {why}" for why, n in sorted(reasons.items())))


@pytest.fixture(scope="session", autouse=True)
def binary():
    if not BINARY.exists():
        pytest.exit(f"no binary at {BINARY}: build it, or set QUIRE_BINARY", returncode=2)


@pytest.fixture(scope="session")
def model():
    return goldens.data(goldens.MODEL)


@pytest.fixture(scope="session")
def shared():
    """Holds the server that most tests share."""
    holder = {"server": None}
    yield holder
    if holder["server"]:
        holder["server"].stop()


@pytest.fixture
def server(shared, model):
    """A server with default flags, shared. The test during which it dies is the one that fails."""
    if not shared["server"]:
        shared["server"] = Server()
    one = shared["server"]
    yield one
    if not one.alive():
        shared["server"] = None
        one.stopped = True
        pytest.fail(f"the server died, exit code {one.process.returncode}:\n{one.tail()}")


@pytest.fixture
def start(model):
    """start(*flags, env=, key=, …): a server of the test's own, stopped and checked at its end."""
    servers = []

    def begin(*flags, **options):
        servers.append(Server(*flags, **options))
        return servers[-1]

    yield begin
    problems = []
    for one in servers:
        try:
            one.stop()
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="session")
def chatml(tmp_path_factory):
    """A small random model with a chat template."""
    path = tmp_path_factory.mktemp("models") / "chatml.gguf"
    subprocess.run([sys.executable, goldens.ROOT / "tests/tools/make_gguf.py", path, "--chatml"], check=True)
    return path


@pytest.fixture(scope="session")
def long_context(tmp_path_factory):
    """The same, with a context of 32,768 tokens."""
    path = tmp_path_factory.mktemp("models") / "long.gguf"
    tool = goldens.ROOT / "tests/tools/make_gguf.py"
    subprocess.run([sys.executable, tool, path, "--chatml", "--context", "32768"], check=True)
    return path


@pytest.fixture(scope="module")
def chat(chatml):
    server = Server(model=chatml)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def tiny():
    """The embedded model, which knows chats and tools."""
    server = Server(model="")
    yield server
    server.stop()
