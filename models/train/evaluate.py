"""Measures quire-tiny through the server that ships it: questions that training never saw, stories, perplexity.

    python evaluate.py [--binary build/release/quire] [--model models/quire-tiny.gguf] [--url URL] [--show]
    python evaluate.py --variants F32.gguf     # instead: perplexity of each type that `quire quantize` makes of it
    python evaluate.py --caches                # instead: perplexity with each type of key-value cache

Prints a table and, with --show, every answer that was judged wrong. Needs jinja2 for the chat template of the held-out text.
The held-out questions are those that questions.py keeps from training (see `held_out` there). Everything is seeded.
"""

import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import urllib.request

import chats
import data
import questions
import stories
import tools
from grammar import articles_right

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# Never in the training text, in these words; see check_fresh().
WHO = ["Who am I chatting with?", "Tell me, who are you really?", "Could you tell me your name?", "Say, who are you?",
       "I wonder who you are.", "What may I call you?", "Please say who you are.", "So, what is your name?",
       "Are you a model? Who are you?", "Would you introduce yourself to me?"]


class Server:
    def __init__(self, a):
        self.process, self.url = None, a.url
        if not a.url:
            self.process = subprocess.Popen([a.binary, "serve", a.model, "--port", "0", "--log-level", "error",
                                             "--threads", str(a.threads),
                                             "--kv-cache-dtype", a.kv_cache_dtype],
                                            stderr=subprocess.PIPE, text=True)
            for line in self.process.stderr:
                if line.startswith("listening on "):
                    self.url = line.split()[-1]
                    break
            else:
                sys.exit("the server did not start")

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as r:
            return json.load(r)

    def raw(self, prompt, **fields):
        r = self.post("/v1/completions", prompt=prompt, **{"temperature": 0, "max_tokens": 400, **fields})
        return r["choices"][0]["text"], r["choices"][0]["finish_reason"]

    def chat(self, messages, tools=None, **fields):
        """The template is rendered here, so that tools can be asked whether or not the server offers them."""
        return self.raw(chats.render(messages, tools, generation=True), **fields)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def held_out_questions(n, seed):
    """n different questions of the kinds that training has, none of them in it."""
    rng, seen, out = random.Random(f"evaluate {seed}"), set(), []
    while len(out) < n:
        e = chats.exchange(rng, held=True)
        if e.question not in seen and not chats.may_follow(e):
            seen.add(e.question)
            out.append(e)
    return out


def ask(server, exchanges, show):
    """{kind: [right, asked]}; an answer that does not end by itself is wrong."""
    table = collections.defaultdict(lambda: [0, 0])
    for e in exchanges:
        answer, finish = server.chat([{"role": "user", "content": e.question}], e.tools or None)
        ok = finish == "stop" and questions.right(e.key, answer)
        table[e.kind][0] += ok
        table[e.kind][1] += 1
        if show and not ok:
            print(f"  wrong ({e.kind}, {finish}): {e.question!r} -> {answer!r}, expected {e.answer or e.key!r}")
    return table


def perplexity(server, texts):
    """(of all tokens, of the tokens that the model has to write)"""
    total, answers = [0.0, 0], [0.0, 0]
    control = {"text": None, "start": None, "end": None, "assistant": None}
    one = lambda s: server.post("/tokenize", prompt=s, add_special_tokens=False, parse_special=True)["tokens"]
    control.update(text=one("<|endoftext|>")[0], start=one("<|im_start|>")[0], end=one("<|im_end|>")[0],
                   assistant=one("<|im_start|>assistant\n")[1])
    import numpy as np

    for text in texts:
        ids = one(text)
        r = server.post("/v1/completions", prompt=ids, max_tokens=0, echo=True, logprobs=0)
        scores = r["choices"][0]["logprobs"]["token_logprobs"]
        weights = data.weights_of(np.array(ids), control)
        for s, w in list(zip(scores, weights))[1:]:
            total[0] -= s
            total[1] += 1
            if w == data.ASSISTANT:
                answers[0] -= s
                answers[1] += 1
    return [2.718281828459045 ** (x / n) for x, n in (total, answers)]


def recall(server, n, turns, seed, show):
    """How often a name from the first turn is known after so many turns (at most 1,000 tokens); and the tokens of the longest chat."""
    rng, good, longest = random.Random(f"recall {seed}"), 0, 0
    for _ in range(n):
        name = rng.choice(questions.COPY_NAMES)
        messages = [{"role": "user", "content": f"My name is {name}."}, {"role": "assistant", "content": f"Nice to meet you, {name}!"}]
        while len(messages) < 2 * turns:
            e = chats.exchange(rng)
            if not e.tools and e.kind not in ("small talk", "story"):
                messages += [{"role": "user", "content": e.question}, {"role": "assistant", "content": e.answer}]
        ask = {"role": "user", "content": "What is my name?"}
        while True:  # what does not fit the context loses its last turns
            text = chats.render(messages + [ask], generation=True)
            tokens = server.post("/tokenize", prompt=text, parse_special=True)["count"]
            if tokens <= 1000:
                break
            messages = messages[:-2]
        longest = max(longest, tokens)
        answer, finish = server.raw(text, max_tokens=20)
        ok = name in answer and finish == "stop"
        good += ok
        if show and not ok:
            print(f"  wrong (recall): {name} -> {answer!r}")
    return good, longest


def tool_round(server, n, seed, show):
    """A tool's result put into words."""
    rng, good, asked = random.Random(f"tool results {seed}"), 0, 0
    while asked < n:
        e = tools.tool_call(rng)
        if len(e.steps) < 3:
            continue
        asked += 1
        answer, finish = server.chat([{"role": "user", "content": e.question}] + e.steps[:2], e.tools)
        ok = finish == "stop" and answer == e.steps[2]["content"]
        good += ok
        if show and not ok:
            print(f"  wrong (tool result): {e.question!r} {e.steps[1]['content']} -> {answer!r}")
    return good


def story_openings(server, n, show):
    """Plain completions at temperature 0.8: within the grammar to the end; and ended by itself."""
    rng, good, ended = random.Random("openings"), 0, 0
    for i in range(n):
        begin = stories.opening(rng)
        text, finish = server.raw(begin, temperature=0.8, seed=i, max_tokens=400)
        wrong = stories.judge(begin + text)
        ended += finish == "stop"
        good += finish == "stop" and wrong is None
        if show and (wrong or finish != "stop"):
            print(f"  story {i}: {wrong or finish} | {begin}{text}")
    return good, ended


def check_fresh():
    """The ten ways to ask are in no table."""
    known = {q.lower() for entries in (questions.ABOUT_ME, questions.QUIRE, questions.TALK) for e in entries for q in e[0]}
    known |= {q.lower() for further in questions.MORE.values() for q in further}
    return not known & {q.lower() for q in WHO}


# Without mixtures, and those that a model of every purpose is offered in.
VARIANTS = "f32 f16 bf16 q8_0 q6_k q5_k q4_k q4_0".split()


def compared(a, name, texts, base, digits):
    """Prints the row of a server's perplexities, and how far they are over those of the first row, which it returns."""
    server = Server(a)
    try:
        now = perplexity(server, texts)
    finally:
        server.stop()
    base = base or now
    over = [f"{100 * (n / b - 1):+.{digits}f} %" for n, b in zip(now, base)]
    print(f"| {name} | {now[0]:.{digits + 2}f} | {over[0]} | {now[1]:.{digits + 2}f} | {over[1]} |", flush=True)
    return base


def compare_variants(a):
    texts, base = data.held_out_text(), None
    print("| type | per token | over F32 | of answers and stories | over F32 |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in VARIANTS:
            a.model = os.path.join(folder, kind + ".gguf")
            subprocess.run([a.binary, "quantize", a.variants, a.model, kind], check=True, stdout=subprocess.DEVNULL)
            base = compared(a, kind, texts, base, 2)


def compare_caches(a):
    """Perplexity with each type of key-value cache."""
    texts, base = data.held_out_text(), None
    print("| cache | per token | over F32 | of answers and stories | over F32 |\n|---|---|---|---|---|")
    for a.kv_cache_dtype in "f32 f16 bf16 int8".split():
        base = compared(a, a.kv_cache_dtype, texts, base, 3)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=os.path.join(ROOT, "build/release/quire"))
    p.add_argument("--model", default=os.path.join(ROOT, "models/quire-tiny.gguf"))
    p.add_argument("--threads", type=int, default=0, help="of the server; 0: all")
    p.add_argument("--url", help="a server that runs already")
    p.add_argument("--questions", type=int, default=100)
    p.add_argument("--more", type=int, default=0, help="so many further held-out questions, by kind")
    p.add_argument("--show", action="store_true", help="print what was judged wrong")
    p.add_argument("--variants", metavar="F32.gguf", help="compare the types that quire quantize makes of this file")
    p.add_argument("--kv-cache-dtype", default="auto", help="of the server")
    p.add_argument("--caches", action="store_true", help="compare the types of key-value cache on --model")
    a = p.parse_args()
    if a.caches:
        return compare_caches(a)
    if a.variants:
        return compare_variants(a)
    assert check_fresh()
    server = Server(a)
    try:
        table = ask(server, held_out_questions(a.questions, 1), a.show)
        print(f"held-out questions right: {sum(r for r, _ in table.values())} of {a.questions}")
        if a.more:
            table = ask(server, held_out_questions(a.more, 2), a.show)
            print(f"further held-out questions right: {sum(r for r, _ in table.values())} of {a.more}")
            for kind in sorted(table):
                print(f"  {kind}: {table[kind][0]} of {table[kind][1]}")
        good, ended = story_openings(server, 50, a.show)
        print(f"stories at temperature 0.8 within the grammar to the end: {good} of 50; ended by themselves: {ended} of 50")
        good = 0
        for q in WHO:
            answer, finish = server.chat([{"role": "user", "content": q}])
            ok = finish == "stop" and re.search(r"quire-tiny|language model", answer) and articles_right(answer)
            good += bool(ok)
            print(f"  {q} -> {answer}" + ("" if ok else "   WRONG"))
        print(f"\"Who are you?\" in ten other ways: {good} of 10")
        for turns in (3, 10, 30):
            good, longest = recall(server, 20, turns, turns, a.show)
            print(f"the user's name after {turns} turns (up to {longest} tokens): {good} of 20")
        print(f"tool results put into words: {tool_round(server, 20, 1, a.show)} of 20")
        every, answers = perplexity(server, data.held_out_text())
        print(f"held-out perplexity: {every:.3f} per token, {answers:.3f} per token of answers and stories")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
