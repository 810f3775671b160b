#!/usr/bin/env python3
"""Takes the pictures of README and docs: chat and engine, light and dark.

    build/page-venv/bin/python tests/page/screenshots.py [FOLDER]      docs/ without FOLDER; ./dev page makes the environment
"""

import json
import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "http")]

from conftest import CHROMIUM  # noqa: E402
from looks import until  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from process import Server, faulty  # noqa: E402
from test_page import TOOLS, ask, settings  # noqa: E402

SIZE = {"width": 1180, "height": 760}


def talk(page):
    """A call of a tool with its result, and an answer by its tokens."""
    settings(page, temperature="0", system="You are the embedded model of Quire.")
    ask(page, "Who are you?")
    page.click("#new-chat")
    settings(page, system="", tools=json.dumps(TOOLS))
    ask(page, "What is the weather in Oslo?")
    page.fill(".message textarea", '{"temperature": 4, "sky": "rain"}')
    page.click("text=Send result")
    until(page, "document.querySelectorAll('.message.assistant').length == 2 && !document.querySelector('.running')")
    settings(page, tools="")
    page.check("[name=logprobs]")
    page.click("#settings-close")
    ask(page, "What is a quire?")
    page.evaluate("document.getElementById('messages').scrollTop = 1e6")
    page.locator(".message.assistant >> nth=2 >> .tok >> nth=4").hover()


def keep_busy(server, stop):
    """Conversations that share a beginning, until stop is set."""
    def one(k):
        talk = "You are a helpful assistant of the harbour office. " * 6
        for turn in range(1000):
            if stop.is_set():
                return
            text = f"Question {turn} of ship {k}: when does the tide turn, and who must be told? " * (1 + (k + turn) % 4)
            stream = server.open_stream(talk + text, max_tokens=40 + 30 * (k % 4), ignore_eos=True, temperature=1)
            for _ in stream:
                if stop.is_set():
                    stream.conn.reset()
                    return
            talk = talk + text if turn % 4 else talk[:306]

    threads = [threading.Thread(target=one, args=(k,)) for k in range(7)]
    for t in threads:
        t.start()
    return threads


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "docs")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def pages(server, view):
            for scheme in ("light", "dark"):
                page = browser.new_context(viewport=SIZE, device_scale_factor=0.8, color_scheme=scheme).new_page()
                page.goto(server.url + "/#" + view)
                yield page, folder / f"page-{view}-{scheme}.png"

        server = Server(model="")
        for page, path in pages(server, "chat"):
            until(page, "document.querySelector('[name=model]').options.length > 0")
            talk(page)
            page.screenshot(path=path)
        server.stop()
        server, stop = Server("--max-num-seqs", "6", "--num-kv-blocks", "900", model="", env=faulty(delay_us=10000)), threading.Event()
        threads = keep_busy(server, stop)
        for page, path in pages(server, "engine"):
            page.check("[name=draw][value=tree]")
            page.check("[name=draw][value=pool]")
            page.wait_for_timeout(25000)  # plots over time want some
            page.evaluate("document.getElementById('engine').scrollTop = 0")
            page.set_viewport_size(SIZE | {"height": 1660})
            page.wait_for_timeout(1500)
            page.screenshot(path=path)
        stop.set()
        for t in threads:
            t.join()
        server.stop()
        browser.close()
    for path in sorted(folder.glob("page-*.png")):
        print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
