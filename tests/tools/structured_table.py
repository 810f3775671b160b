#!/usr/bin/env python3
"""Schemas of maskbench through Quire, llguidance and xgrammar in one run: coverage, verdicts, times.

    structured_table.py BENCH VOCAB.json MERGES [--every N] [--peers llguidance,xgrammar] > table.md

BENCH: build/release/tests/structured_bench. The vocabulary is byte-level (encoder.json and vocab.bpe of Llama 3.2 in the test
data: 128,256 tokens). Peers are imported: pip install llguidance xgrammar. All get the same schemas and the same texts of instances,
Quire's tokens for itself, greedy ones for the others, which changes no verdict.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
DATA = pathlib.Path(os.environ.get("QUIRE_TEST_DATA", HERE / "../../../shared/data")) / "structured/maskbench"


def schemas(every):
    """(family, schema as text, [(valid, instance as text)])"""
    for path in sorted(DATA.glob("*.jsonl")):
        for i, line in enumerate(open(path, encoding="utf-8")):
            if i % every == 0:
                case = json.loads(line)
                tests = [(t["valid"], json.dumps(t["data"], ensure_ascii=False)) for t in case["tests"]]
                yield path.stem, json.dumps(case["schema"], ensure_ascii=False), tests


def byte_tokens(vocabulary):
    """The bytes of each token of a byte-level vocabulary, by id."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = {chr(b): b for b in plain}
    chars.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in plain)})
    words = json.load(open(vocabulary, encoding="utf-8"))
    tokens = [b""] * (max(words.values()) + 1)
    for word, i in words.items():
        tokens[i] = bytes(chars[c] for c in word) if all(c in chars for c in word) else word.encode()
    return tokens


class Greedy:
    """The longest token first: tokens for peers that take a tokenizer as a list of bytes."""

    def __init__(self, tokens):
        self.ids = {t: i for i, t in enumerate(tokens) if t}
        self.longest = max(map(len, tokens))

    def __call__(self, text):
        text = text if isinstance(text, bytes) else text.encode()
        ids = []
        while text:
            n = next(n for n in range(min(len(text), self.longest), 0, -1) if text[:n] in self.ids)
            ids.append(self.ids[text[:n]])
            text = text[n:]
        return ids


def run_quire(bench, vocabulary, merges, cases, order):
    with tempfile.TemporaryDirectory() as folder:
        gguf = f"{folder}/vocab.gguf"
        subprocess.run([sys.executable, HERE / "make_vocab_gguf.py", vocabulary, merges, gguf, "--pre", "llama-bpe",
                        "--control", "128001=<|end_of_text|>", "--eos", "<|end_of_text|>"], check=True)  # fmt: skip
        lines = "".join(json.dumps({"schema": s, "tests": [{"valid": v, "text": t} for v, t in tests]}) + "\n" for _, s, tests in cases)
        out = subprocess.run([bench, gguf, order], input=lines, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def timed(call):
    begin = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - begin) * 1e6


def run_peer(cases, greedy, compile, matcher):
    """compile(schema) gives a grammar; matcher(grammar) gives mask(), take(id), ends()."""
    for _, schema, tests in cases:
        out = {"masks": [], "taken": []}
        try:
            grammar, out["compile"] = timed(lambda: compile(schema))
        except Exception as problem:  # whatever a peer raises is a refusal
            yield {"error": str(problem)}
            continue
        for _, text in tests:
            mask, take, ends = matcher(grammar)
            ok = True
            for i in greedy(text):
                out["masks"].append(timed(mask)[1])
                if not take(i):
                    ok = False
                    break
            out["taken"].append(ok and ends())
        yield out


def run_llguidance(tokens, cases):
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    greedy = Greedy(tokens)

    class Tokenizer:
        eos_token_id, bos_token_id, special_token_ids = len(tokens) - 1, None, [len(tokens) - 1]

        def __call__(self, text):
            return greedy(text)

    Tokenizer.tokens = tokens
    tokenizer = LLTokenizer(TokenizerWrapper(Tokenizer()))

    def compile(schema):
        m = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema))
        if m.is_error():
            raise ValueError(m.get_error())
        return m

    def matcher(grammar):
        m = grammar.deep_copy()
        return m.compute_bitmask, lambda i: m.try_consume_tokens([i]) == 1, m.is_accepting

    return list(run_peer(cases, greedy, compile, matcher))


def run_xgrammar(tokens, cases):
    import xgrammar

    info = xgrammar.TokenizerInfo(tokens, stop_token_ids=[len(tokens) - 1])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)

    def matcher(grammar):
        m = xgrammar.GrammarMatcher(grammar)
        return lambda: m.fill_next_token_bitmask(bits), m.accept_token, lambda: m.accept_token(len(tokens) - 1)

    return list(run_peer(cases, Greedy(tokens), lambda s: compiler.compile_json_schema(s, strict_mode=False), matcher))


def part(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def row(name, cases, results):
    compiled = [(c, r) for c, r in zip(cases, results) if "error" not in r]
    verdicts = [(valid, taken) for c, r in compiled for (valid, _), taken in zip(c[2], r["taken"])]
    times, masks = [r["compile"] for _, r in compiled], [m for _, r in compiled for m in r["masks"]]
    refused, let = sum(v and not t for v, t in verdicts), sum(t and not v for v, t in verdicts)
    return (f"| {name} | {len(compiled)} ({len(compiled) / len(cases):.1%}) | {refused} | {let} | {part(times, 0.5) / 1e3:.2f}, "
            f"{part(times, 0.99) / 1e3:.1f} ms | {part(masks, 0.5):.0f}, {part(masks, 0.99):.0f} µs |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("vocabulary")
    parser.add_argument("merges")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--peers", default="")
    parser.add_argument("--wrong", action="store_true", help="print Quire's wrong verdicts")
    args = parser.parse_args()
    cases = list(schemas(args.every))
    tokens = byte_tokens(args.vocabulary)
    tokens += [b""] * (128001 - len(tokens)) + [b"<|end_of_text|>"]
    print(f"{len(cases)} schemas, {sum(len(c[2]) for c in cases)} instances, {len(tokens)} tokens.\n")
    print("| | compiled | valid refused | invalid taken | compile p50, p99 | mask p50, p99 |\n|---|---|---|---|---|---|")
    for order in ("any", "schema"):
        results = run_quire(args.bench, args.vocabulary, args.merges, cases, order)
        print(row(f"Quire, order {order}", cases, results), flush=True)
        for c, r in zip(cases, results if args.wrong and order == "any" else []):
            for (valid, text), taken in zip(c[2], r.get("taken", [])):
                if valid != taken:
                    print("wrong:", valid, c[0], text[:300], c[1][:600], file=sys.stderr)
    for peer in filter(None, args.peers.split(",")):
        print(row(peer, cases, {"llguidance": run_llguidance, "xgrammar": run_xgrammar}[peer](tokens, cases)), flush=True)


if __name__ == "__main__":
    main()
