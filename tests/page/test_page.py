"""The chat and the engine view as a person has them: talks held, texts that would be code, keys, colours, small screens, access."""

import base64
import json
import re
import struct

import pytest
from axe_playwright_python.sync_playwright import Axe

from looks import until
from process import SLOW
from wire import wait_for

WHO = "Who are you?"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
OTHERS = (
    "| <img src=x onerror=window.hacked=1> | [b](<javascript:window.hacked=1>) |\n|---|---|\n| <b>x</b> | ![c](data:text/html,x) |\n\n"
    "<iframe srcdoc='x'></iframe> <a href='javascript:window.hacked=1'>d</a> <style>*{display:none}</style>\n\n"
    "[e](java\nscript:alert(1)) [f](&#106;avascript:alert(1)) [g](vbscript:x) [h](file:///etc/passwd) [i]: javascript:alert(1)\n\n[i][i] <javascript:alert(1)>\n\n"
    "$\\href{javascript:alert(1)}{x}$ $\\text{<img src=x onerror=window.hacked=1>}$ \\(<script>window.hacked=1</script>\\)\n\n[good](https://example.org/?a=1&b=2)\n"
)
ALL_SORTS = (
    "# Title\n\n- [x] done\n- [ ] to do\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n> said\n\n"
    "```py\ndef f(x): # a comment\n    return 'text', 1\n```\n\n$x^2$ and [link](https://example.org)"
)
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


def idle(page):
    until(page, "document.getElementById('stop').hidden && !document.querySelector('.running')")


def say(page, text):
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def ask(page, text):
    """Says something, and gives the answer when it is complete."""
    n = page.locator(".message.assistant").count()
    say(page, text)
    page.locator(".message.assistant").nth(n).wait_for()
    idle(page)
    return page.locator(".message.assistant .text").nth(n).text_content()


def settings(page, **values):
    if not page.is_visible("#settings"):
        page.click("#settings-button")
    for name, value in values.items():
        page.fill(f"#parameters [name={name}]", value)


def bodies(page):
    """The bodies that the page sends from now on."""
    sent = []
    page.on("request", lambda r: sent.append(r.post_data_json) if r.url.endswith("/v1/chat/completions") else None)
    return sent


def expected(server, *messages, **fields):
    """The answer of the API itself."""
    body = {"messages": list(messages), "temperature": 0} | fields
    return server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"role": "assistant", "content": text}


# ---- talks


def test_conversation(tiny, visit):
    page = visit(tiny.url)
    settings(page, temperature="0")
    sent = bodies(page)
    first = ask(page, WHO)
    assert first == expected(tiny, user(WHO)) and first
    second = ask(page, "Tell me more")
    assert second == expected(tiny, user(WHO), answer(first), user("Tell me more"))
    assert sent[1]["messages"] == [user(WHO), answer(first), user("Tell me more")]
    page.click("#new-chat")
    assert page.locator(".message").count() == 0
    ask(page, "Hello")
    page.reload()
    titles = page.locator("#chat-list li button:first-child")
    until(page, "document.querySelectorAll('#chat-list li').length == 2")
    assert titles.all_inner_texts() == ["Hello", WHO]
    page.click(f"#chat-list >> text={WHO}")
    assert page.locator(".message.assistant .text").all_text_contents() == [first, second]
    page.click(f"[aria-label='Delete {WHO}']")
    assert page.locator("#chat-list li").count() == 1
    page.wait_for_timeout(300)
    page.reload()
    until(page, "document.querySelectorAll('#chat-list li').length == 1")
    assert titles.all_inner_texts() == ["Hello"]


def test_parameters(tiny, visit):
    page = visit(tiny.url)
    sent = bodies(page)
    ask(page, WHO)
    usual = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}  # of a model that gives no advice
    assert {k: v for k, v in sent[0].items() if k not in ("messages", "stream", "stream_options")} == usual
    for name, value in usual.items():
        assert page.get_attribute(f"#parameters [name={name}]", "placeholder") == str(value)
    numbers = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.05, "max_tokens": 9, "seed": 3, "repetition_penalty": 1.5,
               "presence_penalty": 0.25, "frequency_penalty": -0.5}  # fmt: skip
    settings(page, **{k: str(v) for k, v in numbers.items()}, stop="zzz", system="You are terse.", more='{"min_tokens": 2}')
    ask(page, "Hello")
    body = sent[1]
    assert {k: body[k] for k in numbers} == numbers and body["stop"] == ["zzz"] and body["min_tokens"] == 2
    assert body["messages"][0] == {"role": "system", "content": "You are terse."}
    settings(page, more="{")
    assert page.text_content("#settings-problem").startswith("More fields")
    say(page, "x")
    until(page, "document.getElementById('problem').textContent.startsWith('More fields')")
    assert len(sent) == 2


def test_the_models_advice(start, visit):
    page = visit(start("--override-generation-config", '{"temperature": 0.25, "top_k": 3}').url)
    sent = bodies(page)
    ask(page, WHO)
    assert {k: sent[0][k] for k in ("temperature", "top_k", "top_p", "min_p")} == {"temperature": 0.25, "top_k": 3, "top_p": 0.95, "min_p": 0.05}


def test_error_is_the_servers(tiny, visit):
    page = visit(tiny.url)
    page.allowed.append("400")
    settings(page, more='{"temperature": 7}')
    say(page, WHO)
    until(page, "document.getElementById('problem').textContent.includes('temperature')")
    idle(page)
    assert page.locator(".message.assistant").count() == 0
    settings(page, more="")
    assert ask(page, WHO) and page.text_content("#problem") == ""


def test_stop(start, visit):
    server = start(env=SLOW)
    page = visit(server.url)
    settings(page, temperature="0", more='{"ignore_eos": true}')
    say(page, "Tell me a story")
    until(page, "document.querySelector('.message.assistant .text')?.textContent.length > 20")
    page.click("#stop")
    idle(page)
    server.wait_idle()
    text = page.text_content(".message.assistant .text")
    assert len(text) > 20 and "stopped" in page.text_content(".message.assistant .acts")
    page.reload()
    assert page.text_content(".message.assistant .text") == text
    say(page, "And then?")
    until(page, "document.querySelectorAll('.message.assistant').length == 2")
    page.keyboard.press("Escape")
    idle(page)
    server.wait_idle()


def test_edit_and_regenerate(tiny, visit):
    page = visit(tiny.url)
    settings(page, temperature="0")
    sent = bodies(page)
    ask(page, "Hello")
    first = ask(page, WHO)
    page.locator(".message.user").nth(1).locator("[aria-label=Edit]").click()
    page.locator(".message textarea").fill("What is a quire?")
    page.locator(".message.user >> text=Send").click()
    until(page, "document.querySelectorAll('.message.assistant .acts button').length >= 8")
    idle(page)
    assert [m["content"] for m in sent[-1]["messages"]][::2] == ["Hello", "What is a quire?"]
    assert page.locator(".message").count() == 4
    assert page.locator(".message.assistant .text").nth(1).text_content() != first
    settings(page, temperature="1", seed="5")
    page.locator(".message.assistant").nth(0).locator("[aria-label=Regenerate]").click()
    until(page, "document.querySelectorAll('.message').length == 2")
    idle(page)
    assert sent[-1]["messages"] == [user("Hello")] and sent[-1]["seed"] == 5
    page.locator(".message.assistant >> [aria-label=Edit]").click()
    page.locator(".message textarea").fill("I am edited.")
    page.locator(".message.assistant >> text=Save").click()
    ask(page, "Bye")
    assert sent[-1]["messages"] == [user("Hello"), answer("I am edited."), user("Bye")]
    page.locator(".message.assistant").nth(0).locator("[aria-label='Delete from here']").click()
    assert page.locator(".message").count() == 2 and "2 of 2" in page.text_content(".message.assistant .acts")  # the other version


def test_tool_call(tiny, visit):
    page = visit(tiny.url)
    settings(page, temperature="0", tools=json.dumps(TOOLS))
    sent = bodies(page)
    say(page, "What is the weather in Oslo?")
    page.wait_for_selector("text=Calls get_weather")
    idle(page)
    assert page.locator(".fold pre").is_visible()  # open: a result is asked for
    assert json.loads(page.text_content(".fold pre")) == {"city": "Oslo"}
    page.fill("[aria-label='Result of get_weather']", '{"temperature": 21}')
    page.click("text=Send result")
    until(page, "document.querySelectorAll('.message.assistant').length == 2")
    idle(page)
    roles = [m["role"] for m in sent[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]
    call = sent[-1]["messages"][1]["tool_calls"][0]
    assert sent[-1]["messages"][2] == {"role": "tool", "content": '{"temperature": 21}', "tool_call_id": call["id"]}
    assert page.locator(".message.assistant .text").nth(1).text_content()


def test_tokens(tiny, visit):
    page = visit(tiny.url)
    settings(page, temperature="0")
    page.check("[name=logprobs]")
    text = ask(page, WHO)
    tokens = page.locator(".tok").all_text_contents()
    want = expected(tiny, user(WHO))
    assert "".join(tokens) == want == (text or want) and len(tokens) > 5
    page.locator(".tok").nth(1).hover()
    reply = tiny.post("/v1/chat/completions", {"messages": [user(WHO)], "temperature": 0, "logprobs": True, "top_logprobs": 5}).json()
    entry = reply["choices"][0]["logprobs"]["content"][1]
    tip = page.text_content("#tip")
    assert json.dumps(entry["token"], ensure_ascii=False) in tip and f"{entry['logprob']:.3f}" in tip
    assert len(tip.splitlines()) == 6
    page.locator(".tok").nth(0).focus()
    page.keyboard.press("ArrowRight")
    assert page.text_content("#tip") == tip
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    page.click(".message.assistant >> [aria-label=Text]")
    assert page.locator(".message.assistant .text").text_content() == want and not page.locator(".tok").first.is_visible()


# ---- texts that would be code, reasoning, pieces


def stream(*deltas):
    """A stream that a server might send."""
    events = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"


def serve_stream(page, *deltas):
    page.route("**/v1/chat/completions", lambda r: r.fulfill(content_type="text/event-stream", body=stream(*deltas)))


def test_hostile_texts_do_not_run(start, visit):
    """A model's words, calls and reasoning, a person's own, and the model's name are texts, whatever is in them."""
    server = start("--served-model-name", HOSTILE)
    page = visit(server.url)
    call = {"index": 0, "id": HOSTILE, "function": {"name": HOSTILE, "arguments": HOSTILE}}
    fenced = f"{HOSTILE}\n\n# {HOSTILE}\n\n- {HOSTILE}\n\n```{HOSTILE}\n{HOSTILE}\n```\n**{HOSTILE}** `{HOSTILE}` [a](javascript:alert(1))\n\n" + OTHERS
    serve_stream(page, {"reasoning_content": HOSTILE}, {"content": fenced}, {"tool_calls": [call]})
    settings(page, system=HOSTILE)
    say(page, HOSTILE)
    page.wait_for_selector(".message.assistant .acts button")
    assert page.text_content("#model") == HOSTILE == page.text_content(".message.user .text") and HOSTILE in page.text_content(".system-line")
    assert page.locator(".message.assistant .text").text_content().count("<script>") >= 6
    page.click(".message.assistant details >> nth=0 >> summary")
    page.reload()
    page.wait_for_selector(".message.assistant .acts button")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main iframe, main style, main object, main [onerror]").count() == 0
    links = page.evaluate("[...document.querySelectorAll('.text a')].map((a) => [a.protocol, a.rel, a.target])")
    assert links == [["https:", "noopener noreferrer", "_blank"]]
    assert page.is_visible("main")  # no style of theirs holds


def test_policy_stops_code(tiny, visit):
    """Were text ever taken for HTML, the policy would still refuse to run it."""
    page = visit(tiny.url)
    page.allowed += ["TrustedHTML", "Content Security Policy", "Content-Security-Policy", "TrustedScript"]
    assert page.evaluate("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'taken'; } catch { return 'refused'; } })()") == "refused"
    inline = "(() => { try { document.body.setAttribute('onclick', 'window.hacked = 1'); return 'taken'; } catch { return 'refused'; } })()"
    assert page.evaluate(inline) == "refused"
    foreign = "new Promise((done) => fetch('http://127.0.0.1:9/').then(() => done('sent'), (e) => done(e.message)))"
    assert page.evaluate(foreign) == "Failed to fetch"


def test_reasoning_is_folded(tiny, visit):
    page = visit(tiny.url)
    serve_stream(page, {"reasoning_content": "Let me "}, {"reasoning_content": "think."}, {"content": "Four."})
    assert ask(page, "2 + 2?") == "Four."
    assert not page.is_visible("text=Let me think.")
    page.click(".message.assistant summary")
    assert page.is_visible("text=Let me think.")


def test_stream_that_breaks(tiny, visit):
    page = visit(tiny.url)
    body = 'data: {"choices":[{"index":0,"delta":{"content":"So far"}}]}\n\ndata: {"error":{"message":"The engine failed.","code":"internal_error"}}\n\n'
    page.route("**/v1/chat/completions", lambda r: r.fulfill(content_type="text/event-stream", body=body))
    assert ask(page, "x") == "So far"
    assert page.text_content("#problem") == "The engine failed."
    page.click(".message.assistant .cut >> text=Retry")
    until(page, "document.querySelectorAll('.message.assistant .acts .round').length == 6")  # the other version


# ---- keys


def test_key(start, visit):
    server = start("--api-key", "opensesame", key="opensesame")
    page = visit(server.url, allowed=["401"])
    page.wait_for_selector("dialog[open]")
    assert "API key" in page.text_content("#key-why") and "Bearer" not in page.text_content("dialog")
    page.fill("#key", "wrong")
    page.click("dialog >> text=Use")
    until(page, "document.getElementById('key-why').textContent.includes('not accept')")
    page.fill("#key", "opensesame")
    page.click("dialog >> text=Use")
    until(page, "document.querySelector('[name=model]').options.length")
    assert ask(page, WHO)
    assert "opensesame" not in page.evaluate("JSON.stringify(localStorage)")
    page.click("#key-button")
    page.check("#keep-key")
    page.click("dialog >> text=Use")
    page.reload()
    until(page, "document.querySelector('[name=model]').options.length")
    assert not page.is_visible("dialog")
    assert ask(page, WHO)


# ---- looks and access


def back(page):
    return sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))


def test_light_and_dark(tiny, visit):
    light, dark = visit(tiny.url, color_scheme="light"), visit(tiny.url, color_scheme="dark")
    assert back(light) > 700 and back(dark) < 100
    dark.click("#theme")
    assert back(dark) > 700 and dark.get_attribute("#theme", "aria-pressed") == "false"
    dark.reload()
    assert back(dark) > 700


@pytest.mark.parametrize("width, height", [(390, 800), (320, 640), (640, 400)])  # the last: 200 % of 1280 x 800
def test_small_screen(tiny, visit, width, height):
    page = visit(tiny.url, viewport={"width": width, "height": height}, has_touch=True)
    serve_stream(page, {"content": "A" * 300 + "\n\n```\n" + "b" * 300 + "\n```\n\n" + ALL_SORTS})
    ask(page, "x" * 200)
    assert page.is_visible("#send") and page.is_visible("#prompt")
    assert page.evaluate("document.getElementById('messages').clientHeight") > height / 2
    for view in ("#nav-engine", "#nav-chat"):
        page.click(view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button, panel in (("#menu", "#sidebar"), ("#settings-button", "#settings")):
        assert not page.is_visible(panel)
        page.click(button)
        assert page.is_visible(panel) and page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#menu" if button == "#menu" else "#settings-close")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe(tiny, visit, scheme):
    page = visit(tiny.url, color_scheme=scheme)
    found = []

    def look():
        found.extend((v["impact"], v["id"], [n["html"][:200] for n in v["nodes"]]) for v in Axe().run(page).response["violations"])

    look()  # nothing is said yet
    settings(page, temperature="0", tools=json.dumps(TOOLS), system="You are terse.")
    page.check("[name=logprobs]")
    ask(page, WHO)
    ask(page, "What is the weather in Oslo?")
    look()
    page.click("#settings-close")
    page.set_input_files("#attach-file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"a file"})
    serve_stream(page, {"reasoning_content": "So."}, {"content": ALL_SORTS})
    ask(page, "Show me all")
    page.locator(".message.user").first.locator("[aria-label=Edit]").click()
    page.locator("[aria-label^=Rename]").first.click()
    look()
    page.set_viewport_size({"width": 390, "height": 800})
    look()
    page.evaluate("document.getElementById('key-button').hidden = false")  # as where the server wants one
    page.click("#key-button")
    look()
    page.click("dialog >> text=Cancel")
    page.click("#nav-engine")
    page.wait_for_selector("#figures dd")
    look()
    assert not found, found


def test_keyboard(tiny, visit):
    """Everything that a talk needs without a pointer."""
    page = visit(tiny.url)
    page.keyboard.press("Tab")
    seen = []
    for _ in range(40):
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        page.keyboard.press("Tab")
    for name in ("nav-chat", "nav-engine", "theme", "settings-button", "new-chat", "search", "messages", "prompt", "send"):
        assert name in seen, (name, seen)
    page.focus("#nav-engine")
    page.keyboard.press("Enter")
    page.wait_for_selector("#engine:not([hidden])")


# ---- the engine


def test_engine(start, visit):
    server = start("--max-num-seqs", "2", env=SLOW)
    streams = [server.connect() for _ in range(3)]
    for conn in streams:
        conn.send(server.bytes("POST", "/v1/completions", {"prompt": WHO * 9, "max_tokens": 1500, "ignore_eos": True, "stream": True}))
    page = visit(server.url + "/#engine")
    until(page, "document.querySelectorAll('#requests tbody tr').length == 3")
    states = page.locator("#requests tbody td:nth-child(2)").all_text_contents()
    assert sorted(states) == ["decode", "decode", "waiting"]
    until(page, "[...document.querySelectorAll('#figures dd')].some((e) => e.textContent === '2 of 2')")
    same = """(() => { const tile = (name) => [...document.querySelectorAll('#figures div')].find((d) => d.firstChild.textContent === name).lastChild.firstChild.textContent;
        return ['Output', 'Prompt', 'Step', 'First token'].map(tile); })()"""
    legends = "[...document.querySelectorAll('#tokens-legend b, #latency-legend b')].map((b) => b.textContent)"
    until(page, f"{same}[0] > 0 && {same}[2] !== '–'")
    tiles, told = page.evaluate(f"[{same}, {legends}]")
    assert tiles == told and tiles[3] != "–"
    facts = server.get("/v1/engine").json()["facts"]
    assert all(str(facts[k]) in page.text_content("#model-facts") for k in ("architecture", "layers", "weights", "cache", "device"))
    for span in ("10", "60", "1"):
        page.check(f"[name=span][value='{span}']")
    label = page.get_attribute("#pool", "aria-label")
    active = int(re.search(r"(\d+) active", label)[1])
    assert active > 0
    for name in ("plot-tokens", "plot-latency", "plot-steps", "pool"):
        drawn = f"((c) => new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size)(document.getElementById('{name}'))"
        assert page.evaluate(drawn) > 3, name
    page.fill("#page-number", "0")
    page.press("#page-number", "Enter")
    page.wait_for_selector("#page-detail dd")
    assert "References" in page.text_content("#page-detail")
    for conn in streams:
        conn.reset()
    until(page, "document.querySelector('#requests tbody').textContent == 'No request runs.'")
    server.wait_idle()


def test_store(start, visit, tmp_path):
    """The tier behind the cache has its tiles, and what was read from it is told."""
    flags = "--kv-store", str(tmp_path / "kv"), "--kv-store-size", "1G"
    body = {"prompt": WHO * 30, "max_tokens": 1, "temperature": 0}
    server = start(*flags)
    server.post("/v1/completions", body)
    server.stop()
    server = start(*flags)
    server.post("/v1/completions", body)
    page = visit(server.url + "/#engine")
    tile = """((name) => [...document.querySelectorAll('#figures div')].find((d) => d.firstChild.textContent.startsWith(name))?.textContent)"""
    until(page, f"{tile}('From the store')")
    assert re.fullmatch(r"Store: disk[\d.]+ MiB of 1.0 GiB", page.evaluate(f"{tile}('Store: ')"))
    assert int(re.search(r"(\d+) prompt tokens", page.evaluate(f"{tile}('From the store')"))[1]) >= 16


def test_history_of_an_hour(tiny, visit):
    """A point a second, an hour of them; the numbers of tiles are means of the last; another server begins anew."""
    page = visit(tiny.url)
    page.allowed.append("Failed to load resource")
    page.route("**/v1/engine*", lambda r: r.abort())
    got = page.evaluate(
        """async () => { const h = await import('/page/history.js'), fields = ['id', 'age_ms', 'schedule_us', 'execute_us', 'update_us'];
        const view = (i) => ({ totals: { steps: i, prompt_tokens: 100 * i, generated_tokens: 20 * i },
          steps: { fields, rows: [[i, 0, 1000, 3000, 1000]] }, requests: [{ id: i, age_s: 1, first_token_s: i > 3990 ? 0.5 : 0.25 }] });
        for (let i = 1; i <= 4000; i++) h.take(view(i), 1000 * i);
        const all = [h.series.output.points.length, h.recentRate('generated_tokens'), h.recentRate('prompt_tokens'), h.recentStep(4e6), h.recentFirst(4e6)];
        h.take(view(1), 4001e3);
        return [...all, h.series.output.points.length, h.recentRate('generated_tokens')]; }"""
    )
    assert got == [3601, 20, 100, 5, 250, 0, None]


def test_page_text(start, visit):
    """Only the admin sees the content of a page, as text."""
    server = start("--api-key", "one", "--admin-api-key", "boss", key="one")
    server.complete(HOSTILE * 12, max_tokens=1)
    page = visit(server.url + "/#engine", allowed=["401"])
    page.fill("#key", "one")
    page.click("dialog >> text=Use")
    page.wait_for_selector("#figures dd")
    page.check("[name=draw][value=tree]")
    until(page, "document.getElementById('pool').height > 0")
    seen = server.get("/v1/engine?pages=state").json()
    number = base64.b64decode(seen["pages"]["state"]).index(1)
    page.fill("#page-number", str(number))
    page.press("#page-number", "Enter")
    page.wait_for_selector("text=admin key only")
    page.click("#key-button")
    page.click("#admin-box > summary")
    page.fill("#admin-key", "boss")
    page.click("dialog >> text=Use")
    page.wait_for_selector("#page-detail pre")
    assert "onerror" in page.text_content("#page-detail pre")
    assert page.evaluate("window.hacked") is None and page.locator("main img, main script").count() == 0


def pool_of(n):
    """An engine's answer with n pages: chains of ten that begin alike in fours."""
    def pack(code, values):
        return base64.b64encode(struct.pack(f"<{n}{code}", *values)).decode()

    parents = [-1 if i % 40 == 0 else i - i % 10 - 1 + (0 if i % 10 else -9 * (i % 40 // 10 - 1)) if i % 10 == 0 else i - 1 for i in range(n)]
    parents = [min(p, i - 1) if i % 40 else -1 for i, p in enumerate(parents)]
    return {
        "object": "engine", "model": "m", "uptime_s": 5,
        "limits": {"max_num_seqs": 4, "max_num_batched_tokens": 8, "max_model_len": 9, "pages": n, "page_tokens": 16},
        "groups": [{"kind": "full", "window": 0, "layers": 1, "active": n // 2, "cached": n // 2}], "free_pages": 0,
        "queue": {"running": 1, "waiting": 0, "deferred": 0, "waiting_tokens": 0},
        "throughput": {"seconds": 1, "prompt_tokens_per_s": 1, "generated_tokens_per_s": 1, "steps_per_s": 1},
        "totals": {k: 1 for k in ("steps", "prompt_tokens", "generated_tokens", "prefix_queries", "prefix_hits", "preemptions", "evictions")},
        "requests": [{"id": 1, "request_id": HOSTILE, "state": "decode", "priority": 0, "prompt_tokens": 1, "computed_tokens": 1,
                      "generated_tokens": 1, "cached_tokens": 0, "tokens_per_s": 1, "age_s": 1, "queued_s": 0, "first_token_s": 0.5,
                      "pages": 1, "preemptions": 0, "adapter": None}],
        "steps": {"fields": ["id"], "rows": []},
        "pages": {"count": n, "state": pack("B", [1 + i % 2 for i in range(n)]), "refs": pack("B", [i % 3 for i in range(n)]),
                  "owner": pack("H", [i % 2 for i in range(n)]), "parent": pack("i", parents)},
    }  # fmt: skip


def test_large_pool(tiny, visit):
    """100,000 pages are drawn, by number and as a tree, and found again by a click."""
    page = visit(tiny.url)
    body = json.dumps(pool_of(100000))
    page.route("**/v1/engine?*", lambda r: r.fulfill(content_type="application/json", body=body))
    page.route("**/v1/engine/pages/*", lambda r: r.fulfill(status=404, content_type="application/json", body='{"error":{"message":"gone"}}'))
    page.allowed.append("404")
    page.click("#nav-engine")
    until(page, "document.getElementById('pool').getAttribute('aria-label').startsWith('100000 pages')")
    page.locator("#pool").click(position={"x": 1, "y": 1})
    until(page, "document.getElementById('page-number').value == '0'")
    page.wait_for_selector("#page-detail >> text=gone")
    page.check("[name=draw][value=tree]")
    until(page, "document.getElementById('pool').offsetHeight > 2000")
    page.locator("#pool").click(position={"x": 50, "y": 1})
    until(page, "Number(document.getElementById('page-number').value) > 0")
    assert page.evaluate("window.hacked") is None


def test_server_gone(start, visit):
    server = start()
    page = visit(server.url + "/#engine")
    page.allowed.append("Failed to load resource")
    page.wait_for_selector("#figures dd")
    server.stop()
    until(page, "document.getElementById('engine-problem').textContent == 'The server cannot be reached.'")
    page.click("#nav-chat")
    say(page, WHO)
    until(page, "document.getElementById('problem').textContent === 'The server cannot be reached.Retry'")
