"""The page in Debian's chromium, without a window; ./dev slow has a virtual environment for it. Servers are those of tests/http.

A console error, a violation of the content security policy or an exception of the page fails the test that has it."""

import os
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))

from looks import until  # noqa: E402
from process import Server  # noqa: E402

CHROMIUM = os.environ.get("QUIRE_CHROMIUM", "/usr/bin/chromium")
TIMEOUT_MS = 30000


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as p:
        # no sandbox: containers have no user namespaces, and the browser sees nothing but our page
        one = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP quire.test 127.0.0.1"])
        yield one
        one.close()


@pytest.fixture(scope="session")
def tiny():
    server = Server(model="")
    yield server
    server.stop()


@pytest.fixture
def start():
    servers = []

    def begin(*flags, **options):
        servers.append(Server(*flags, **{"model": ""} | options))
        return servers[-1]

    yield begin
    for one in servers:
        one.stop()


@pytest.fixture
def visit(browser):
    """visit(url, allowed, **options of the browser's context): a page whose storage is its own. allowed: words of errors that are meant to be."""
    contexts, problems = [], []

    def go(url, allowed=(), **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        page = context.new_page()
        page.allowed = list(allowed)

        def note(kind, text):
            if not any(word in text for word in page.allowed):
                problems.append(f"{kind}: {text}")

        page.on("console", lambda m: note(m.type, m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: note("exception", str(e)))
        page.goto(url)
        until(page, "document.querySelector('[name=model]').options.length || document.querySelector('dialog').open")
        return page

    yield go
    for one in contexts:
        one.close()
    assert not problems, problems
