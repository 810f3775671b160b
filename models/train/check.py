"""Checks the generator of the training text, with the standard library alone.

    python3 check.py

The judge of stories accepts what the grammar writes and refuses damaged stories; every answer that is trained on is right by
the rule that will judge the model; the answers about Quire name what README.md names.
"""

import os
import random
import re
import sys

import questions
import stories

HERE = os.path.dirname(os.path.abspath(__file__))


def damages(rng, text):
    """Copies of a story, each with one thing wrong."""
    words = text.split(" ")
    yield "cut short", " ".join(words[:-2])
    yield "a word twice", " ".join(words[:7] + [words[6]] + words[7:])
    yield "a word missing", " ".join(words[:5] + words[6:])
    yield "a new word", text.replace(" was ", " fjord ", 1) if " was " in text else " ".join(["Fjord"] + words)
    swaps = {"he": "she", "she": "he", "him": "her", "his": "her"}
    for i, w in enumerate(words):
        if w in swaps and i > 12:
            yield "another pronoun", " ".join(words[:i] + [swaps[w]] + words[i + 1 :])
            break


def check_judge():
    rng, refused, asked = random.Random(5), 0, 0
    for _ in range(300):
        text, _, plot = stories.story(rng)
        verdict = stories.judge(text)
        assert verdict is None, f"{plot}: {verdict}: {text}"
        for _, damaged in damages(rng, text):
            asked += 1
            refused += stories.judge(damaged) is not None
    print(f"judge: 300 stories accepted, {refused} of {asked} damaged ones refused")
    assert refused > 0.97 * asked  # a pronoun may belong to the other person, a missing "very" leaves a sentence


def check_answers():
    rng, held, kinds, wrong = random.Random(6), 0, {}, []
    makers = [g for _, g in questions.KINDS] + [questions.more]
    for _ in range(400):
        for make in makers:
            e = make(rng)
            if not questions.right(e.key, e.answer):
                wrong.append(f"{e.question!r} -> {e.answer!r}, key {e.key!r}")
            assert not (e.keep and questions.held_out(e))
            held += questions.held_out(e)
            kinds[e.kind] = kinds.get(e.kind, 0) + 1
    total = sum(kinds.values())
    assert not wrong, "\n".join(sorted(set(wrong)))
    print(f"answers: {total} right, {held} of them held out, kinds {len(kinds)}")
    assert 0.02 * total < held < 0.1 * total


def check_quire():
    """Paths, flags, commands, files and numbers in the answers about Quire stand in README.md."""
    readme = open(os.path.join(HERE, "..", "..", "README.md")).read()
    missing, named = [], 0
    for asked, answer, _ in questions.QUIRE:
        for word in re.findall(r"/[a-z][\w/]+|--[a-z][a-z-]+|\./dev \w+|quire [a-z]+(?= shows| measures| writes| checks|,)|\b\d{4}\b|[A-Z]+_[A-Z_]+|"
                               r"kernels/\w+|\bGGUF\b|Apache-2\.0|Prometheus", answer):
            named += 1
            if word not in readme:
                missing.append((word, answer))
    assert not missing, missing
    print(f"README.md: all of {named} names are there")


if __name__ == "__main__":
    check_judge()
    check_answers()
    check_quire()
    sys.exit(0)
