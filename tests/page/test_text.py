"""Text of models as it is shown: Markdown, formulas, code; files beside a message; the field one writes in."""

import pytest

from looks import until
from test_page import WHO, ask, bodies, serve_stream

WHOLE = r"""# Title

A **bold** and *slanted* `code`, 2 * 3 * 4, a **lone mark, ***both*** ~~gone~~ [link](https://example.org/x) https://example.org and &lt;b&gt;.

1. one
   - nested
     - deeper
2. two

- [x] done
- [ ] to do

| left | right |
|---|--:|
| a \| b | **1** |

> said
> > again

---

```c
int main(void) { return 0x2a; } // end
```

~~~
tildes
~~~

    indented

مرحبا بالعالم
"""


def box(page, text):
    """The element of an answer that is this text, sent in pieces of seven."""
    serve_stream(page, *({"content": text[i : i + 7]} for i in range(0, len(text), 7)))
    ask(page, "x")
    return page.locator(".message.assistant .text").last


def test_markdown(tiny, visit):
    page = visit(tiny.url)
    b = box(page, WHOLE)
    assert b.locator("h3").text_content() == "Title" and b.locator("p strong").all_text_contents()[0] == "bold"
    assert b.locator("em").all_text_contents()[0] == "slanted" and b.locator("p code").all_text_contents() == ["code"]
    assert b.locator("em strong, strong em").text_content() == "both" and b.locator("del").text_content() == "gone"
    assert "2 * 3 * 4, a **lone mark" in b.text_content() and "and <b>." in b.text_content()
    assert [a.get_attribute("href") for a in b.locator("a").all()] == ["https://example.org/x", "https://example.org/"]
    assert b.locator("ol > li").count() == 2 and b.locator("ol > li > ul > li > ul > li").text_content() == "deeper"
    assert b.locator("li.task input").evaluate_all("(all) => all.map((e) => [e.checked, e.disabled])") == [[True, True], [False, True]]
    assert b.locator("th").all_text_contents() == ["left", "right"] and b.locator("td").all_text_contents() == ["a | b", "1"]
    assert b.locator("td").nth(1).evaluate("(e) => getComputedStyle(e).textAlign") == "right"
    assert b.locator("blockquote blockquote").text_content() == "again" and b.locator("hr").count() == 1
    assert b.locator("pre code").all_text_contents() == ["int main(void) { return 0x2a; } // end", "tildes", "indented"]
    kinds = b.locator("pre span").evaluate_all("(all) => all.map((e) => [e.className, e.textContent])")
    assert kinds == [["kw", "int"], ["fn", "main"], ["kw", "void"], ["kw", "return"], ["nu", "0x2a"], ["co", "// end"]]
    assert b.locator("p").last.evaluate("(e) => getComputedStyle(e).direction") == "rtl"


FORMULAS = [  # source, whether it stands alone, its text in MathML; None: it is shown as it was written
    (r"$a^2 + b_{i}$", False, "a2+bi"), (r"\(\frac{1}{\sqrt[3]{x}}\)", False, "1x3"), (r"$$\sum_{i=1}^n i$$", True, "∑i=1ni"),
    (r"\[ \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} \]", True, "(1234)"), (r"$\mathbb{R} \le \text{so much}$", False, "ℝ≤so much"),
    (r"$\left( x \right]$", False, "(x]"), (r"$\hat{y}'$", False, "y^′"), (r"$\begin{cases} 1 & x > 0 \\ 0 \end{cases}$", False, "{1x>00"),
    (r"$\nonsense{x}$", False, None), (r"$\frac{1}$", False, None), (r"$" + "{" * 200 + "}" * 200 + "$", False, None),
]  # fmt: skip


def test_formulas(tiny, visit):
    page = visit(tiny.url)
    b = box(page, "\n\n".join(source for source, _, _ in FORMULAS) + "\n\nIt costs $5, or $10 a pair.")
    shown = b.evaluate("(e) => [...e.children].map((p) => [p.querySelector('math')?.getAttribute('display') ?? null, p.querySelector('math') !== null, p.textContent])")
    for (source, alone, text), (display, is_math, content) in zip(FORMULAS, shown):
        assert (is_math, content) == (text is not None, text or source), source
        assert (display == "block") == (alone and text is not None), source
    assert shown[-1] == [None, False, "It costs $5, or $10 a pair."]
    assert b.locator("mfrac > mn").text_content() == "1" and b.locator("mroot").count() == 1 and b.locator("mtr").count() == 4


PILES = ["[", "*a ", "_a", "`a ", "[a](", "<a ", "$a ", "**a _b ", "~~a ", "![", "[a][", "a@", ">", "- ", "|a", "\\(", "$$", "&#", "- a\n  ", "> - "]


def test_piles_of_marks_take_no_time(tiny, visit):
    page = visit(tiny.url)
    page.goto(tiny.url + "/#chat")
    slow = page.evaluate(
        """async (piles) => { const { showMarkdown } = await import('/page/markdown.js'), out = [];
        for (const pile of piles) { const text = pile.repeat(20000 / pile.length), box = document.createElement('div'), began = performance.now();
          showMarkdown(box, text); out.push([pile, performance.now() - began, box.textContent.length]); }
        return out; }""",
        PILES,
    )
    assert all(ms < 20000 for _, ms, _ in slow), slow  # on a busy machine; the square of the marks takes minutes there


def test_what_stands_is_not_drawn_anew(tiny, visit):
    """While a text grows, what is selected in it stays."""
    page = visit(tiny.url)
    kept = page.evaluate(
        """async () => { const { showMarkdown } = await import('/page/markdown.js'), box = document.createElement('div');
        showMarkdown(box, 'One\\n\\n- a\\n- b\\n\\nTw'); const before = [...box.children];
        showMarkdown(box, 'One\\n\\n- a\\n- b\\n\\nTwo more'); return [...box.children].map((e, i) => e === before[i]); }"""
    )
    assert kept == [True, True, False]


# ---- files


@pytest.fixture
def composed(tiny, visit):
    page = visit(tiny.url)
    serve_stream(page, {"content": "Read."})
    return page


def paste(page, text):
    page.evaluate(
        """(text) => { const d = new DataTransfer(); d.setData('text/plain', text);
        document.getElementById('prompt').dispatchEvent(new ClipboardEvent('paste', { clipboardData: d, bubbles: true, cancelable: true })); }""",
        text,
    )


def test_files_and_long_pastes(composed):
    page = composed
    sent = bodies(page)
    page.set_input_files("#attach-file", [
        {"name": "a.py", "mimeType": "text/x-python", "buffer": b"print('```')\n````\n"}, {"name": "b.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"}])  # fmt: skip
    page.wait_for_selector("#toasts >> text=b.png is no text")
    paste(page, "long " * 1000)
    paste(page, "short")
    assert page.locator("#files .chip span").all_text_contents() == ["a.py", "pasted-1.txt"]
    page.reload()
    until(page, "document.querySelectorAll('#files .chip').length == 2")
    page.click("[aria-label='Remove pasted-1.txt']")
    ask(page, "What is this?")
    assert sent[-1]["messages"] == [{"role": "user", "content": "File a.py:\n\n`````\nprint('```')\n````\n\n`````\n\nWhat is this?"}]
    assert page.locator("#files .chip").count() == 0
    page.click(".message.user .chip summary")
    assert page.text_content(".message.user .chip pre") == "print('```')\n````\n"
    page.reload()
    until(page, "document.querySelectorAll('.message.user .chip').length == 1")


def test_the_field_grows(composed):
    page = composed
    height = "document.getElementById('prompt').offsetHeight"
    low = page.evaluate(height)
    page.fill("#prompt", "line\n" * 8)
    assert page.evaluate(height) > 4 * low / 2
    page.fill("#prompt", "line\n" * 100)
    assert page.evaluate(height) < 500 and page.is_visible("#send")
    page.fill("#prompt", "")
    assert page.evaluate(height) == low


def test_before_the_first_message(tiny, visit):
    page = visit(tiny.url)
    facts = tiny.get("/v1/engine").json()["facts"]
    until(page, "document.querySelector('.empty .facts').textContent.includes('context')")
    assert page.text_content(".empty .name") == tiny.models()[0] and facts["architecture"] in page.text_content(".empty .facts")
    sent = bodies(page)
    serve_stream(page, {"content": "Tea."})
    page.click(".beginnings button >> nth=1")
    until(page, "document.querySelector('.message.assistant .text')?.textContent === 'Tea.'")
    assert sent[0]["messages"][0]["content"] == page.text_content(".message.user .text")


def test_context_used_and_left(tiny, visit):
    page = visit(tiny.url)
    usage = tiny.post("/v1/chat/completions", {"messages": [{"role": "user", "content": WHO}], "temperature": 0}).json()["usage"]
    page.click("#settings-button")
    page.fill("[name=temperature]", "0")
    ask(page, WHO)
    left = tiny.get("/props").json()["default_generation_settings"]["n_ctx"] - usage["total_tokens"]
    until(page, f"document.getElementById('context').textContent.startsWith('{usage['total_tokens']} of ')")
    assert page.text_content("#context").replace(",", "").endswith(f" {left} left")
