"""The page keeps written text: with two tabs, by leaving, with a full storage or none, by a click, by an error."""

import json

import pytest

from looks import until
from process import SLOW
from test_page import WHO, answer, ask, bodies, idle, say, serve_stream, settings, user
from wire import wait_for

TEXTS = "[...document.querySelectorAll('.message .text')].map((e) => e.textContent)"


def texts(page):
    return page.evaluate(TEXTS)


def shows(page, *wanted):
    until(page, f"JSON.stringify({TEXTS}) === JSON.stringify({json.dumps(wanted)})")


def titles(page):
    return page.evaluate("[...document.querySelectorAll('#chat-list li button:first-child')].map((e) => e.textContent)")


def records(page):
    """The browser's stored conversations."""
    return page.evaluate("""new Promise((done) => { const open = indexedDB.open('quire', 1); open.onsuccess = () => {
        const all = open.result.transaction('chats').objectStore('chats').getAll();
        all.onsuccess = () => { open.result.close(); done(all.result); }; }; })""")


def stored(page):
    return json.dumps(records(page), ensure_ascii=False)


def write_record(page, record):
    """As another tab does."""
    page.evaluate("""(record) => new Promise((done) => { const open = indexedDB.open('quire', 1); open.onsuccess = () => {
        const t = open.result.transaction('chats', 'readwrite'); t.objectStore('chats').put(record);
        t.oncomplete = () => { open.result.close(); new BroadcastChannel('quire.chats').postMessage(record.id); done(); }; }; })""", record)


def tab(page, url=None):
    """Another tab of the same browser."""
    other = page.context.new_page()
    other.goto(url or page.url)
    until(other, "document.querySelector('[name=model]').options.length")
    return other


def put(page, **records):
    """Puts texts into the storage, and loads the page anew."""
    for name, text in records.items():
        page.evaluate("([k, v]) => localStorage.setItem('quire.' + k, v)", [name.replace("__", "."), text])
    page.reload()
    until(page, "document.querySelector('[name=model]').options.length")


def old(*messages, title="Old"):
    """A record as it was before messages had ids."""
    return json.dumps({"id": "x", "title": title, "settings": {}, "messages": list(messages)})


def streaming(page, text, number=0):
    """Says something to a server that takes its time; until some of the answer has come."""
    settings(page, temperature="0", more='{"ignore_eos": true}')
    say(page, text)
    until(page, f"document.querySelectorAll('.message.assistant .text')[{number}]?.textContent.length > 20")


def stop(page):
    page.click("#stop")
    idle(page)


# ---- tabs


def test_tabs_keep_each_others_conversations(tiny, visit):
    page = visit(tiny.url)
    other = tab(page)
    ask(page, "First tab")
    ask(other, "Second tab")
    for one in (page, other):
        until(one, "document.querySelectorAll('#chat-list li').length == 2")
        assert titles(one) == ["Second tab", "First tab"]
    page.reload()
    assert titles(page) == ["Second tab", "First tab"]
    other.click("[aria-label='Delete First tab']")
    until(page, "document.querySelectorAll('#chat-list li').length == 1")


def test_tabs_write_one_conversation(start, visit):
    """Both speak at once; each sees its own, and the other's as another version."""
    server = start(env=SLOW)
    page = visit(server.url)
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    page.unroute("**/v1/chat/completions")
    other = tab(page)
    shows(other, WHO, "Well.")
    ask_one, ask_two = "Tell the first", "Tell the second"
    streaming(page, ask_one, 1)
    other.click("#chat-list li button")
    until(other, f"{TEXTS}[2] === '{ask_one}'")  # it comes while it is written
    other.locator(".message.user").nth(1).locator("[aria-label=Edit]").click()
    other.locator(".message textarea").fill(ask_two)
    other.locator(".message.user >> text=Send").click()
    until(other, f"{TEXTS}[2] === '{ask_two}' && {TEXTS}[3]?.length > 20")
    stop(page)
    stop(other)
    one, two = texts(page), texts(other)
    assert one[:3] == [WHO, "Well.", ask_one] and two[:3] == [WHO, "Well.", ask_two] and len(one[3]) > 20 and len(two[3]) > 20
    page.reload()
    until(page, f"{TEXTS}.length == 4")
    now = texts(page)
    page.locator(".message.user").nth(1).locator("[aria-label$=' version']:enabled").click()
    until(page, f"{TEXTS}.length == 4 && {TEXTS}[2] !== '{now[2]}'")
    assert sorted([now, texts(page)]) == sorted([one, two])


def test_tabs_that_write_at_the_same_moment(tiny, visit):
    """Each tab's record lacks the other's message when it is written."""
    page = visit(tiny.url)
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    wait_for("it is kept", lambda: "Well." in stored(page))
    (record,) = records(page)
    ask(page, "From here")
    other = tab(page)
    record["messages"].append({"id": "z", "parent": record["leaf"], **user("From there")})
    write_record(other, record | {"leaf": "z", "rev": "theirs"})
    wait_for("both are kept", lambda: "From here" in stored(page) and "From there" in stored(page))
    shows(page, WHO, "Well.", "From here", "Well.")


def test_page_that_was_put_aside(tiny, visit):
    """A page that a browser kept to go back to has missed what other tabs wrote. Chromium keeps none here: its event is ours."""
    page = visit(tiny.url)
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    ask(page, "Mine")
    wait_for("it is kept", lambda: stored(page).count("Well.") == 2)
    (record,) = records(page)
    page.evaluate("BroadcastChannel.prototype.postMessage = () => {}")
    record["messages"].append({"id": "z", "parent": record["leaf"], **user("Theirs")})
    write_record(page, record | {"leaf": "z", "rev": "theirs"})
    write_record(page, json.loads(old(user("Other"), title="Other")) | {"id": "other"})
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    shows(page, WHO, "Well.", "Mine", "Well.", "Theirs")
    until(page, "document.querySelectorAll('#chat-list li').length == 2")
    assert titles(page) == [WHO, "Other"]


# ---- leaving


def test_answer_goes_on_while_another_conversation_is_shown(start, visit):
    server = start(env=SLOW)
    page = visit(server.url)
    streaming(page, "Tell me a story")
    seen = texts(page)[1]
    page.click("#new-chat")
    assert page.is_visible("#send") and texts(page) == []
    wait_for("more is kept", lambda: len(stored(page)) > len(seen) + 400)
    page.click("#chat-list >> text=Tell me a story")
    until(page, f"{TEXTS}[1].length > {len(seen) + 20}")
    assert page.is_visible("#stop") and texts(page)[1].startswith(seen)
    stop(page)
    text = texts(page)
    page.reload()
    shows(page, *text)


@pytest.mark.parametrize("how", ["reload", "close"])
def test_partial_answer_stays(start, visit, how):
    server = start(env=SLOW)
    page = visit(server.url)
    page.allowed += ["Failed to load resource"]
    streaming(page, "Tell me a story")
    other = tab(page)
    wait_for("it is kept while it comes", lambda: "assistant" in stored(other))
    seen = texts(page)[1]
    page.reload() if how == "reload" else page.close()
    last = tab(other)
    until(last, f"{TEXTS}.length == 2")
    assert texts(last)[1].startswith(seen) and last.is_visible(".message.assistant .cut")


def test_what_is_not_sent_stays(tiny, visit):
    """The field, an edited message: each conversation's own, through a reload. Settings of a conversation without messages."""
    page = visit(tiny.url)
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    page.fill("#prompt", "half a sent")
    page.locator(".message.user >> [aria-label=Edit]").click()
    page.locator(".message textarea").fill("Who are they?")
    page.click("#new-chat")
    assert page.input_value("#prompt") == ""
    page.fill("#prompt", "another")
    settings(page, system="You are terse.")
    page.click(f"#chat-list >> text={WHO}")
    assert page.input_value("[name=system]") == ""
    page.click("#new-chat")
    assert page.input_value("#prompt") == "another" and page.input_value("[name=system]") == "You are terse."
    page.reload()
    assert page.input_value("#prompt") == "another" and page.input_value("[name=system]") == "You are terse."
    page.click(f"#chat-list >> text={WHO}")
    assert page.input_value("#prompt") == "half a sent"
    page.reload()
    assert page.input_value("#prompt") == "half a sent" and page.input_value(".message textarea") == "Who are they?"


# ---- storage


def quota(page, size):
    page.context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", {"origin": page.url.split("/#")[0].rstrip("/"), "quotaSize": size})


def test_full_storage_is_said_and_deletes_nothing(tiny, visit):
    page = visit(tiny.url)
    quota(page, 73728 + 3 * 50000 + 60000)  # an empty database, the talks, and some
    talks = {f"chat__c{i}": old(user(f"Question {i}"), answer(str(i) * 50000), title=f"Question {i}") for i in range(3)}
    put(page, chats='["c0","c1","c2"]', **talks)
    wait_for("they have moved", lambda: stored(page).count("Question") == 6)
    long = ("y" * 99 + " ") * 4000 + "end"
    serve_stream(page, {"content": long})
    ask(page, "New")
    until(page, "document.getElementById('storage').textContent.includes('full')")
    assert all(f"Question {i}" in stored(page) for i in range(3)) and long not in stored(page)
    with page.expect_download() as download:
        page.click("#storage >> text=Export")
    kept = json.loads(download.value.path().read_text())["conversations"]
    assert [c["title"] for c in kept] == ["New", "Question 0", "Question 1", "Question 2"] and long in json.dumps(kept)
    quota(page, 100000000)
    page.click("#storage >> text=Delete the oldest: Question 2")
    until(page, "document.getElementById('storage').textContent === ''")
    shows(tab(page), "New", long)
    assert titles(page) == ["New", "Question 0", "Question 1"]


def test_texts_of_an_older_page_become_records(tiny, visit):
    """Once; what another page of that age writes later joins them."""
    page = visit(tiny.url)
    put(page, chat__a=old(user("One"), answer("Eins"), title="One"))
    until(page, "document.querySelectorAll('#chat-list li').length == 1")
    wait_for("it has moved", lambda: "Eins" in stored(page) and not page.evaluate("localStorage.getItem('quire.chat.a')"))
    put(page, chat__a=old(user("One"), answer("Eins"), user("Two"), title="One"))
    wait_for("it has moved", lambda: "Two" in stored(page) and not page.evaluate("localStorage.getItem('quire.chat.a')"))
    page.click("#chat-list >> text=One")
    shows(page, "One", "Eins", "Two")


def test_export_and_import(tiny, visit):
    page, other = visit(tiny.url), visit(tiny.url)
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    with page.expect_download() as download:
        page.click("#export")
    page.click(".message.assistant >> [aria-label='Delete from here']")
    for one in (page, other):
        for _ in range(2):
            one.set_input_files("#import-file", download.value.path())
            until(one, "document.getElementById('toasts').textContent.includes('added: 1')")
        assert titles(one) == [WHO]
    other.click("#chat-list li button")
    shows(other, WHO, "Well.")
    shows(page, WHO, "Well.")
    other.set_input_files("#import-file", {"name": "x.json", "mimeType": "application/json", "buffer": b"{}"})
    until(other, "document.getElementById('toasts').textContent.includes('no file')")


@pytest.mark.parametrize("error", ["SecurityError", "QuotaExceededError"])
def test_no_storage(tiny, visit, error):
    """Refused altogether, or of size 0: the tab holds everything, and says that it does."""
    page = visit(tiny.url)
    refuse = f"() => {{ throw new DOMException('no', '{error}'); }}"
    page.add_init_script(
        f"for (const n of ['localStorage', 'sessionStorage', 'indexedDB']) Object.defineProperty(window, n, {{ get: {refuse} }});"
        if error == "SecurityError" else f"Storage.prototype.setItem = IDBObjectStore.prototype.put = {refuse};"
    )  # fmt: skip
    page.reload()
    until(page, "document.querySelector('[name=model]').options.length")
    serve_stream(page, {"content": "Well."})
    ask(page, WHO)
    until(page, "document.getElementById('storage').textContent.includes('lost when it is closed')")
    page.click("#new-chat")
    ask(page, "Hello")
    page.click(f"#chat-list >> text={WHO}")
    shows(page, WHO, "Well.")
    asked = []
    page.on("dialog", lambda d: (asked.append(d.type), d.dismiss()))
    page.close(run_before_unload=True)
    wait_for("it asks before it closes", lambda: page.context.pages and page.evaluate("1") and asked == ["beforeunload"])


def test_old_records(tiny, visit):
    """Those of the list in its order, then those that a list has lost."""
    page = visit(tiny.url)
    one, two = old(user("One"), answer("Eins"), user("More"), answer("Mehr"), title="One"), old(user("Two"), answer("Zwei"), title="Two")
    put(page, chats='["b","a"]', chat__a=one, chat__b=two, chat__lost=old(user("Lost"), answer("Verloren"), title="Lost"))
    until(page, "document.querySelectorAll('#chat-list li').length == 3")
    assert titles(page) == ["Two", "One", "Lost"]
    page.click("#chat-list >> text=Two")
    page.locator(".message.user >> [aria-label=Edit]").click()
    page.locator(".message textarea").fill("Three")
    page.click("#chat-list >> text=One")
    shows(page, "One", "Eins", "More", "Mehr")
    sent = bodies(page)
    serve_stream(page, {"content": "Well."})
    ask(page, "And?")
    assert sent[0]["messages"] == [user("One"), answer("Eins"), user("More"), answer("Mehr"), user("And?")]
    page.reload()
    shows(page, "One", "Eins", "More", "Mehr", "And?", "Well.")


BROKEN = [
    '{"id":"a","messages":[{"role":"user","content":"Half a reco',
    "null", "7", '"text"', "[]", "{}", '{"messages":7}', '{"messages":[7]}', '{"messages":[{"role":"user","content":{"a":1}}]}',
    '{"messages":[{"role":"assistant","content":"a","tool_calls":[{}]}]}', '{"messages":[{"role":"assistant","tokens":[{}]}]}',
    '{"messages":[{"role":"user","content":"loop","id":"a","parent":"b"},{"role":"user","content":"pool","id":"b","parent":"a"}],"leaf":"a"}',
    '{"messages":[{"role":"assistant","content":"a","usage":7,"first":"x"}],"settings":{"tools":7},"cut":7,"changed":"x","leaf":{}}',
]  # fmt: skip


def test_broken_records(tiny, visit):
    """A record that is none is shown as it is, hides no other, and stays."""
    page = visit(tiny.url)
    put(page, chats="{", settings="7", drafts="7", chat__good=old(user("Good"), answer("Gut"), title="Good"), **{f"chat__b{i}": t for i, t in enumerate(BROKEN)})
    until(page, f"document.querySelectorAll('#chat-list li').length == {len(BROKEN) + 1}")
    seen = []
    for i in range(len(BROKEN) + 1):
        page.locator("#chat-list li button:first-child").nth(i).click()
        seen += texts(page)
    assert BROKEN[0] in seen and "Good" in seen and "Gut" in seen
    kept = {r["id"]: r for r in records(page)}
    assert all(f"b{i}" in kept for i in range(len(BROKEN))) and kept["b0"]["messages"][0]["content"] == BROKEN[0]
    page.click("#new-chat")
    assert ask(page, WHO)


# ---- clicks


def test_versions(tiny, visit):
    """Another answer, or an edited message, leaves what was there before."""
    page = visit(tiny.url)
    settings(page, temperature="0")
    before = [WHO, ask(page, WHO), "Tell me more", ask(page, "Tell me more")]
    serve_stream(page, {"content": "Well."})
    page.locator(".message.assistant").nth(0).locator("[aria-label=Regenerate]").click()
    shows(page, WHO, "Well.")
    page.reload()
    shows(page, WHO, "Well.")
    page.locator(".message.assistant >> [aria-label='Previous version']").click()
    shows(page, *before)
    page.locator(".message.user").nth(0).locator("[aria-label=Edit]").click()
    page.locator(".message textarea").fill("Who else?")
    page.locator(".message.user >> text=Send").click()
    shows(page, "Who else?", "Well.")
    page.locator(".message.user >> [aria-label='Previous version']").click()
    page.locator(".message.assistant >> [aria-label='Previous version']").click()
    page.locator(".message.user").nth(1).locator("[aria-label=Edit]").click()
    page.locator(".message textarea").fill("Edited")
    page.locator(".message.user >> text=Save").click()
    shows(page, *before[:2], "Edited", before[3])
    page.locator(".message.user").nth(1).locator("[aria-label='Previous version']").click()
    shows(page, *before[:3])
    page.reload()
    shows(page, *before[:3])


def test_deleted_is_undone(tiny, visit):
    page = visit(tiny.url)
    serve_stream(page, {"content": "Well."})
    for text in ("One", "Two", "Three"):
        ask(page, text)
    page.locator(".message.user").nth(2).locator("[aria-label='Delete from here']").click()
    shows(page, "One", "Well.", "Two", "Well.")
    page.locator(".message.user").nth(1).locator("[aria-label='Delete from here']").click()
    shows(page, "One", "Well.")
    page.locator("#toasts >> text=Undo").nth(0).click()
    page.locator("#toasts >> text=Undo").nth(0).click()
    shows(page, "One", "Well.", "Two", "Well.", "Three", "Well.")
    page.locator(".message.user").nth(0).locator("[aria-label='Delete from here']").click()
    assert texts(page) == [] and titles(page) == []
    page.locator("#toasts >> text=Undo").click()
    page.click("[aria-label='Delete One']")
    assert titles(page) == [] and "Three" not in stored(page)
    page.click("#toasts >> text=Undo")
    shows(page, "One", "Well.", "Two", "Well.", "Three", "Well.")
    page.reload()
    shows(page, "One", "Well.", "Two", "Well.", "Three", "Well.")


def test_copy_from_another_host(start, visit):
    """Over HTTP from a name that is not this machine's, a browser has no navigator.clipboard."""
    server = start("--api-key", "opensesame", key="opensesame")
    page = visit(server.url.replace("127.0.0.1", "quire.test"), allowed=["401", "Cross-Origin-Opener-Policy"])
    assert page.evaluate("!isSecureContext && navigator.clipboard === undefined")
    page.fill("#key", "opensesame")
    page.click("dialog >> text=Use")
    until(page, "document.querySelector('[name=model]').options.length")
    serve_stream(page, {"content": "Copy me.\n\n```\ncode\n```"})
    ask(page, WHO)
    for name, text in (("Copy", "Copy me.\n\n```\ncode\n```"), ("Copy code", "code")):
        page.locator(".message.assistant").get_by_role("button", name=name, exact=True).click()
        page.wait_for_selector("#toasts >> text=Copied")
        page.fill("#prompt", "")
        page.press("#prompt", "Control+V")
        assert page.input_value("#prompt") == text
    page.evaluate("document.execCommand = () => false")
    page.click(".message.user >> [aria-label=Copy]")
    page.wait_for_selector("#toasts >> text=by hand")


# ---- errors


def test_refused_message_comes_back(tiny, visit):
    page = visit(tiny.url)
    page.allowed.append("400")
    first, long = ask(page, "Hello"), "much " * 20000
    say(page, long)
    until(page, "document.getElementById('problem').textContent.includes('tokens')")
    assert page.input_value("#prompt") == long and texts(page) == ["Hello", first]
    page.reload()
    assert page.input_value("#prompt") == long and texts(page) == ["Hello", first]
    sent = bodies(page)
    assert ask(page, WHO)
    assert sent[0]["messages"] == [user("Hello"), answer(first), user(WHO)]
    before = texts(page)
    page.locator(".message.user").nth(0).locator("[aria-label=Edit]").click()
    page.locator(".message textarea").fill(long)
    page.locator(".message.user >> text=Send").click()
    until(page, "document.getElementById('problem').textContent.includes('tokens')")
    assert page.input_value(".message textarea") == long
    page.click(".message.user >> text=Cancel")
    shows(page, *before)


def test_refused_first_message_and_one_refused_elsewhere(tiny, visit):
    page = visit(tiny.url)
    page.allowed.append("400")
    held = []
    page.route("**/v1/chat/completions", lambda r: held.append(r))
    say(page, "Refused")
    wait_for("it is asked", lambda: page.evaluate("1") and held)
    page.click("#new-chat")
    page.fill("#prompt", "and this")
    held[0].fulfill(status=400, content_type="application/json", body='{"error":{"message":"Too much."}}')
    until(page, "document.getElementById('toasts').textContent.includes('Too much.')")
    assert page.input_value("#prompt") == "Refused\nand this" and titles(page) == [] and "Refused" not in stored(page)


def test_refused_result_comes_back(tiny, visit):
    page = visit(tiny.url)
    page.allowed.append("400")
    serve_stream(page, {"tool_calls": [{"index": 0, "id": "call-1", "function": {"name": "look", "arguments": "{}"}}]})
    say(page, "Look")
    page.fill("[aria-label='Result of look']", "a result")
    page.reload()
    assert page.input_value("[aria-label='Result of look']") == "a result"
    page.unroute("**/v1/chat/completions")
    page.route("**/v1/chat/completions", lambda r: r.fulfill(status=400, content_type="application/json", body='{"error":{"message":"Too much."}}'))
    page.click("text=Send result")
    until(page, "document.getElementById('problem').textContent === 'Too much.'")
    assert page.input_value("[aria-label='Result of look']") == "a result" and page.locator(".message.tool").count() == 0
