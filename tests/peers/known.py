"""A pytest plugin: tests of another project that do not pass against Quire, each with its reason.

QUIRE_PEERS_TABLE names a file with a line for each: kind, pattern of test ids, reason, between tabs. `-`: does not apply, not run. `!`:
runs and fails; once it passes that is a failure, so that the line goes. With QUIRE_PEERS_WHOLE a line that names no test is an error.
"""

import fnmatch
import os
from collections import Counter
from pathlib import Path

import pytest

counts = Counter()


def rows():
    for line in Path(os.environ["QUIRE_PEERS_TABLE"]).read_text().splitlines():
        if not line.startswith("#"):
            kind, pattern, reason = line.split("\t")
            yield kind, pattern.replace("[", "[[]"), reason


def pytest_collection_modifyitems(items):
    table = list(rows())
    used = set()
    for item in items:
        for kind, pattern, reason in table:
            if fnmatch.fnmatchcase(item.nodeid, pattern):
                used.add(pattern)
                mark = pytest.mark.skip(reason=reason) if kind == "-" else pytest.mark.xfail(reason=reason, strict=True)
                item.add_marker(mark)
                break
    unused = [pattern for _, pattern, _ in table if pattern not in used]
    if unused and os.environ.get("QUIRE_PEERS_WHOLE"):
        raise pytest.UsageError(f"lines that name no test: {unused}")


def pytest_runtest_logreport(report):
    if hasattr(report, "wasxfail") and report.skipped:
        counts["differs"] += 1
    elif report.skipped:
        counts["does not apply"] += 1
    elif report.failed:
        counts["failed"] += 1
    elif report.when == "call":
        counts["passed"] += 1


def pytest_terminal_summary(terminalreporter):
    applied = counts["passed"] + counts["differs"] + counts["failed"]
    terminalreporter.write_line(
        f"passed {counts['passed']} of {applied} that apply; {counts['differs']} differ as listed; "
        f"{counts['does not apply']} do not apply"
    )
