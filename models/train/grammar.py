"""A small text grammar that writes sentences and recognises them again.

A template is a string with two kinds of holes. `{slot}` is bound: one value for a whole story (the hero, the place).
`[symbol]` is free: any of the symbol's expansions, which may hold holes themselves. `write` fills a template;
`Recogniser` turns the same templates into regular expressions with the bound slots captured, so that a text can be
judged by the grammar that the model learned from: every sentence must be one that the grammar can write, and all
sentences must agree about the bound slots.
"""

import re

HOLE = re.compile(r"\{(\w+)\}|\[(\w+)\]")
# "a" before a vowel sound becomes "an"; these begin with a vowel letter and a consonant sound
NOT_AN = ("one", "uni", "use", "usu")
AN = ("hour", "honest")


def fix_articles(text):
    def article(m):
        word = m.group(2)
        an = word.lower().startswith(AN) or (word[0].lower() in "aeiou" and not word.lower().startswith(NOT_AN))
        return m.group(1) + ("n " if an else " ") + word

    return re.sub(r"\b([Aa]) ([A-Za-z][a-z]*)", article, text)


def capitalise(text):
    return re.sub(r"(^|[.!?] |\.\" |^\"|\. \")([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)


def articles_right(text):
    return fix_articles(re.sub(r"\b([Aa])n (?=[A-Za-z])", r"\1 ", text)) == text


def write(rng, template, symbols, bound):
    """The template with every hole filled; bound: slot -> value."""

    def hole(m):
        if m.group(1):
            return bound[m.group(1)]
        return write_raw(rng, rng.choice(symbols[m.group(2)]), symbols, bound)

    def write_raw(rng, t, symbols, bound):
        return HOLE.sub(hole, t)

    return capitalise(fix_articles(HOLE.sub(hole, template)))


def sentences(text):
    """Cuts at the end of a sentence; a quotation stays with the words that introduce it."""
    parts, start = [], 0
    for m in re.finditer(r"[.!?]\"?(?= |$)", text):
        end = m.end()
        if text[start:end].count('"') % 2:
            continue  # inside a quotation
        rest = text[end + 1 : end + 2]
        if m.group().endswith('"') and rest and not (rest.isupper() or rest == '"'):
            continue  # "Hello!" said Tom.
        parts.append(text[start:end])
        start = end + 1
    if text[start:].strip():
        parts.append(text[start:])
    return parts


class Recogniser:
    """symbols: symbol -> expansions; values: slot -> every value it may take; templates: all of them.

    A template is cut into its sentences, so that a model that takes two sentences of different templates still writes
    within the grammar.
    """

    def __init__(self, templates, symbols, values):
        self.symbols, self.values = symbols, values
        self.cache = {}
        seen, self.patterns = set(), []
        for t in templates:
            for s in sentences(t):
                if s not in seen:
                    seen.add(s)
                    self.patterns.append(self.compile(s))

    def alternation(self, options):
        return "(?:" + "|".join(sorted(options, key=len, reverse=True)) + ")"

    def source(self, template, groups):
        out, at = [], 0
        for m in HOLE.finditer(template):
            out.append(re.escape(template[at : m.start()]))
            if m.group(1):
                groups.append(m.group(1))
                name = f"g{len(groups)}"
                out.append(f"(?P<{name}>" + self.alternation(map(re.escape, self.values[m.group(1)])) + ")")
            else:
                out.append(self.alternation([self.source(o, groups) for o in self.symbols[m.group(2)]]))
            at = m.end()
        out.append(re.escape(template[at:]))
        return re.sub(r"(^|\\ |\(\?:|\|)([Aa])\\ (?=\(|[A-Za-z])", r"\1\2n?\\ ", "".join(out))

    def compile(self, sentence):
        groups = []
        return re.compile(self.source(sentence, groups), re.IGNORECASE), groups

    def readings(self, sentence):
        """Every way to read it: a list of {slot: value}; empty where no template fits."""
        if sentence in self.cache:
            return self.cache[sentence]
        found = []
        for pattern, groups in self.patterns:
            m = pattern.fullmatch(sentence)
            if m:
                reading, ok = {}, True
                for i, slot in enumerate(groups, 1):
                    v = m.group(f"g{i}")
                    if v is not None and reading.setdefault(slot, v.lower()) != v.lower():
                        ok = False
                if ok and reading not in found:
                    found.append(reading)
        if len(self.cache) < 100000:
            self.cache[sentence] = found
        return found

    def judge(self, text, agree):
        """None if the text is within the grammar, else a sentence that says what is wrong.

        agree(bindings) -> False where bindings contradict each other.
        """
        if not re.search(r"[.!?]\"?$", text):
            return "does not end with a full stop"
        if not articles_right(text):
            return "a or an"
        states = [{}]
        for s in sentences(text):
            if not s[0].isupper() and s[0] != '"':
                return f"no capital: {s}"
            readings = self.readings(s)
            if not readings:
                return f"not in the grammar: {s}"
            joined = []
            for state in states:
                for r in readings:
                    if all(state.get(k, v) == v for k, v in r.items()):
                        new = {**state, **r}
                        if new not in joined and agree(new):
                            joined.append(new)
            if not joined:
                return f"contradicts what came before: {s}"
            states = joined[:64]
        return None
