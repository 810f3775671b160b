"""Short stories from a grammar of our own, and the judge that reads them with the same grammar.

A story follows one plot. A plot is a list of beats, a beat a list of templates of one or two sentences. Slots are bound
once for a story (text/stories.txt): {hero} a name, {kind} what the hero is, {he} {him} {his} the hero's pronouns, {friend} {fkind} the second
person, {thing} what the story turns about, {place}, {spot} a hiding place, {food}.
"""

import functools

from grammar import Recogniser, write
from texts import blocks, rows, sections, words

TEXT = sections("stories.txt")
BOYS, GIRLS, ADULTS, ANIMALS, THINGS, PLACES, SPOTS, FOODS = (
    words(TEXT[name]) for name in ("BOYS", "GIRLS", "ADULTS", "ANIMALS", "THINGS", "PLACES", "SPOTS", "FOODS"))
HE = {"he": "he", "him": "him", "his": "his"}
SHE = {"he": "she", "him": "her", "his": "her"}
SYMBOLS = {name: values for name, *values in rows(TEXT["SYMBOLS"])}
OPENINGS, ABOUT, MORALS = TEXT["OPENINGS"], TEXT["ABOUT"], TEXT["MORALS"]
# A beat that several plots have stands once, and a plot names it behind an @.
PLOTS = {heading.removeprefix("plot "): [TEXT[beat[0][1:]] if beat[0][0] == "@" else beat for beat in blocks(lines)]
         for heading, lines in TEXT.items() if heading.startswith("plot ")}  # fmt: skip

VALUES = {
    "hero": BOYS + GIRLS,
    "friend": BOYS + GIRLS,
    "kind": ["boy", "girl"] + ANIMALS + ADULTS,
    "fkind": ["boy", "girl"] + ANIMALS + ADULTS,
    "thing": THINGS,
    "place": PLACES,
    "spot": SPOTS,
    "food": FOODS,
    "he": ["he", "she"],
    "him": ["him", "her"],
    "his": ["his", "her"],
    "fhe": ["he", "she"],
    "fhim": ["him", "her"],
    "fhis": ["his", "her"],
}


def person(rng, kind=None, not_kind=None, name=None):
    """(name, kind, pronouns): a kind and a name that agree."""
    if name is None:
        female = kind == "girl" or (kind != "boy" and rng.random() < 0.5)
        name = rng.choice(GIRLS if female else BOYS)
    female = name in GIRLS
    while kind is None or kind == not_kind:
        pool = rng.random()
        kind = (("girl" if female else "boy") if pool < 0.25 else rng.choice(ANIMALS if pool < 0.85 else ADULTS))
        if kind == "postman" and female:
            kind = None
    return name, kind, SHE if female else HE


def bind(rng, hero=None, kind=None, thing=None, place=None, friend_kind=None):
    name, kind, pronouns = person(rng, kind, name=hero)
    friend, fkind, fpronouns = person(rng, friend_kind, not_kind=kind)
    while friend == name:
        friend, fkind, fpronouns = person(rng, friend_kind, not_kind=kind)
    bound = dict(hero=name, kind=kind, friend=friend, fkind=fkind, **pronouns)
    bound.update({"f" + k: v for k, v in fpronouns.items()})
    bound["thing"] = thing or rng.choice(THINGS)
    bound["place"] = place or rng.choice(PLACES)
    bound["spot"] = rng.choice(SPOTS)
    bound["food"] = rng.choice(FOODS)
    return bound


def story(rng, plot=None, short=False, **given):
    """(text, bound slots, plot)."""
    bound = bind(rng, **given)
    plot = plot or rng.choice(list(PLOTS))
    parts = []
    for i, beat in enumerate(PLOTS[plot]):
        if beat is ABOUT and rng.random() < (0.8 if short else 0.35):
            continue
        template = rng.choice(beat)
        if short and len(template) > 110:
            template = min(beat, key=len)
        parts.append(write(rng, template, SYMBOLS, bound))
    if rng.random() < 0.25:
        parts.append(rng.choice(MORALS))
    return " ".join(parts), bound, plot


def opening(rng):
    """The first sentence or two of a story, cut where a sentence ends."""
    bound = bind(rng)
    parts = [write(rng, rng.choice(OPENINGS), SYMBOLS, bound)]
    if rng.random() < 0.4:
        parts.append(write(rng, rng.choice(ABOUT), SYMBOLS, bound))
    return " ".join(parts)


def templates():
    found = []
    for beats in PLOTS.values():
        for beat in beats:
            found += [t for t in beat if t not in found]
    return found + MORALS


def agree(b):
    """Whether pronouns agree with names, and hero and friend are two."""
    lower = {n.lower() for n in GIRLS}
    for name, slots in (("hero", ("he", "him", "his")), ("friend", ("fhe", "fhim", "fhis"))):
        if name in b:
            female = b[name] in lower
            for s in slots:
                if s in b and (b[s] in ("she", "her")) != female:
                    return False
    for a in ("", "f"):
        female = {b[a + s] in ("she", "her") for s in ("he", "him", "his") if a + s in b}
        if len(female) > 1:
            return False
        kind = b.get(a + "kind")
        if female and kind in ("boy", "girl") and (kind == "girl") not in female:
            return False
    return not ("hero" in b and b.get("friend") == b["hero"])


@functools.cache
def recogniser():
    return Recogniser(templates(), SYMBOLS, VALUES)


def judge(text):
    """None for a story within the grammar, else what is wrong."""
    return recogniser().judge(text, agree)


if __name__ == "__main__":  # the judge accepts what the grammar writes
    import random
    import sys
    import time

    rng = random.Random(1)
    n, bad, t = 500, 0, time.time()
    for i in range(n):
        text, bound, plot = story(rng)
        verdict = judge(text)
        if i < 3:
            print(text, "\n")
        if verdict:
            bad += 1
            print(verdict, "|", text, "\n")
    print(f"{n} stories, {bad} refused, {time.time() - t:.1f} s")
    sys.exit(bad > 0)
