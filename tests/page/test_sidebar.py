"""The list of conversations: by date, searched, renamed; models and adapters; the server that goes and comes back."""

import json
import time

from looks import until
from process import Server
from test_keeping import old, put, stored, tab, titles
from test_page import WHO, answer, ask, bodies, say, serve_stream, user
from wire import wait_for

DAY = 86400e3


def record(title, age_days, *messages):
    return json.dumps(json.loads(old(*messages, title=title)) | {"changed": time.time() * 1000 - age_days * DAY})


def test_dates_and_search(tiny, visit):
    page = visit(tiny.url)
    put(page, chat__a=record("Now", 0, user("Now"), answer("Of herrings")), chat__b=record("Week", 3.5, user("Week")), chat__c=record("Old", 400, user("Old")),
        chat__d=old(user("Undated"), title="Undated"))  # fmt: skip
    until(page, "document.querySelectorAll('#chat-list li').length == 4")
    assert page.locator("#chat-list h2").all_text_contents()[::3] == ["Today", "Before"] and titles(page) == ["Now", "Week", "Old", "Undated"]
    assert page.locator("#chat-list h2").all_text_contents()[1] == "Last 7 days"
    page.keyboard.press("Control+k")
    page.keyboard.type("HERRING")
    assert titles(page) == ["Now"]
    page.fill("#search", "whales")
    assert titles(page) == [] and page.is_visible("text=No conversation has these words")
    page.fill("#search", "")
    assert len(titles(page)) == 4


def test_rename(tiny, visit):
    page = visit(tiny.url)
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    other = tab(page)
    for end, want in (("Escape", WHO), ("Enter", "Introductions")):
        page.click(f"[aria-label='Rename {WHO}']")
        page.keyboard.type("Introductions")
        page.keyboard.press(end)
        until(page, f"document.querySelector('#chat-list li button')?.textContent === '{want}'")
    wait_for("the other tab hears of it", lambda: titles(other) == ["Introductions"])
    ask(page, "Hello")
    page.reload()
    until(page, "document.querySelector('#chat-list li')")
    assert titles(page) == ["Introductions"]


def test_models_and_adapters(tiny, visit):
    page = visit(tiny.url)
    models = [{"id": "base", "parent": None}, {"id": "pirate", "parent": "base"}]
    page.route("**/v1/models", lambda r: r.fulfill(content_type="application/json", body=json.dumps({"data": models})))
    page.reload()
    until(page, "document.getElementById('model').options.length == 2")
    assert page.locator("#model optgroup[label=Adapters] option").all_text_contents() == ["pirate"]
    sent = bodies(page)
    serve_stream(page, {"content": "Arr."})
    page.select_option("#model", "pirate")
    ask(page, WHO)
    assert sent[0]["model"] == "pirate"
    page.reload()
    until(page, "document.getElementById('model').value === 'pirate'")


def test_server_that_comes_back(start, visit):
    server = start()
    page = visit(server.url)
    page.allowed.append("Failed to load resource")
    ask(page, "Hello")
    server.stop()
    say(page, WHO)
    until(page, "document.getElementById('problem').textContent.startsWith('The server cannot be reached.')")
    assert page.input_value("#prompt") == WHO
    failed = f"document.getElementById('prompt').value === {json.dumps(WHO)} && !!document.querySelector('#problem button')"
    page.click("#problem >> text=Retry")
    until(page, failed)
    again = Server("--port", server.url.rsplit(":", 1)[1], model="")
    until(page, "document.getElementById('problem').textContent === ''")  # the line goes by itself
    page.press("#prompt", "Enter")
    until(page, "document.querySelectorAll('.message.assistant').length == 2 && document.getElementById('stop').hidden")
    assert page.input_value("#prompt") == "" and WHO in stored(page)
    again.stop()


def test_settings_reset(tiny, visit):
    page = visit(tiny.url)
    page.click("#settings-button")
    page.fill("[name=temperature]", "0.1")
    page.fill("[name=system]", "You are terse.")
    assert "You are terse." in page.text_content(".system-line")
    page.click("#reset")
    assert page.input_value("[name=temperature]") == "" and page.locator(".system-line").count() == 0
    page.keyboard.press("Escape")
    assert not page.is_visible("#settings") and page.evaluate("document.activeElement.id") == "settings-button"
