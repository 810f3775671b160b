"""The web page at /: who gets it, its headers, its files. What it does is asked in tests/page, in a browser."""

import hashlib
import re

import pytest

import goldens
from wire import check_error

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGE = goldens.ROOT / "server/page"
FILES = sorted(str(p.relative_to(PAGE)) for p in PAGE.rglob("*.*") if p.suffix in (".html", ".css", ".js", ".svg"))
OTHERS = [name for name in FILES if name.startswith("vendor/")]
TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
LIMIT = 400 * 1024  # bytes of all files, as they are sent


def check_page(reply, kind="html"):
    assert reply.status == 200 and reply.header("content-type") == TYPES[kind], reply
    policy = dict(p.strip().split(" ", 1) for p in reply.header("content-security-policy").split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert {policy[k] for k in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in reply.header("content-security-policy")
    assert reply.header("x-content-type-options") == "nosniff" and reply.header("referrer-policy") == "no-referrer"
    return reply


@pytest.mark.parametrize("accept", [BROWSER["Accept"], "text/html", "TEXT/HTML;q=0.5", "application/json, text/html"])
def test_browsers_get_the_page(server, accept):
    reply = check_page(server.get("/", headers={"Accept": accept}))
    assert reply.body == (goldens.ROOT / "server/page/index.html").read_bytes() and "Accept" in reply.header("vary")


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/htmlx", "text/plain", "text/*", "xtext/html"])
def test_others_hear_that_it_runs(server, accept):
    """Ollama's clients look for this."""
    reply = server.get("/", headers={"Accept": accept} if accept else {})
    assert reply.status == 200 and reply.body == b"Quire is running" and reply.header("content-type").startswith("text/plain")


def test_head(server):
    reply = server.call("HEAD", "/", headers=BROWSER)
    assert reply.status == 200 and reply.header("content-type").startswith("text/plain")
    assert server.call("HEAD", "/page/app.js").header("content-length") == str((goldens.ROOT / "server/page/app.js").stat().st_size)


def test_files(server):
    """All files of the folder are there as they are, together small, and ask for nothing from elsewhere."""
    total = 0
    for name in FILES:
        reply = check_page(server.get("/page/" + name), name.split(".")[1])
        assert reply.body == (PAGE / name).read_bytes()
        total += len(reply.body)
        if name in OTHERS:
            continue
        for link in re.findall(rb"""(?:https?:)?//[\w.-]+\.\w+|@import|url\(""", reply.body):
            assert link == b"http://www.w3.org", (name, link)  # the namespaces of SVG and MathML
        assert not re.search(rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", reply.body), name
    assert total < LIMIT and len(FILES) > 5
    html = server.get("/", headers=BROWSER).body.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", html)
    for link in re.findall(r"(?:src|href)=\"(?!#)([^\"]+)", html):
        assert link.removeprefix("page/") in FILES
    for path in ("/page/none.js", "/page/../routes.c", "/page/app.js/x", "/page/app.js%00", "/page"):
        assert server.get(path).status in (400, 404), path
    for method in ("POST", "DELETE"):
        check_error(server.call(method, "/page/app.js", b"{}" if method == "POST" else None), 405)


def test_files_of_others():
    """As they came, each with its licence and where it is from."""
    rows = dict(re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (PAGE / "vendor/README.md").read_text(), re.M))
    assert sorted("vendor/" + name for name in rows) == OTHERS
    for name, digest in rows.items():
        assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == digest, name
        assert "free of charge" in (PAGE / "vendor" / name).with_suffix(".LICENSE").read_text()


def test_the_page_needs_no_key(start):
    """It asks for one itself, when data does."""
    server = start("--api-key", "opensesame", key="opensesame")
    none = {"Authorization": None}
    check_page(server.get("/", headers=BROWSER | none))
    check_page(server.get("/page/style.css", headers=none), "css")
    for path in ("/", "/page/none.js", "/page/", "/v1/models"):
        reply = server.get(path, headers=none if path != "/v1/models" else BROWSER | none)
        assert reply.status == (404 if path == "/page/none.js" else 401), path
    assert server.call("POST", "/", b"{}", headers=BROWSER | none).status == 401


def test_only_local_names(server):
    """Without a key a name that resolves to this machine gets no page either."""
    for path in ("/", "/page/app.js"):
        assert server.get(path, headers=BROWSER | {"Host": "evil.example"}).status == 403


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_no_page(start, how):
    server = start("--no-page") if how == "flag" else start(env={"QUIRE_NO_PAGE": "true"})
    assert server.get("/", headers=BROWSER).body == b"Quire is running"
    for name in FILES:
        check_error(server.get("/page/" + name), 404)


def test_no_page_and_a_key(start):
    server = start("--no-page", "--api-key", "opensesame", key="opensesame")
    for path in ("/", "/page/app.js"):
        assert server.get(path, headers=BROWSER | {"Authorization": None}).status == 401
