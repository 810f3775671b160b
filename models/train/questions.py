"""Questions and their answers: every kind that the model is trained on, and how an answer of that kind is judged.

An `Exchange` is one question and one answer. Its key says what a right answer must have:
("number", 62)  the last number in the answer; ("has", "a|b")  one of the words; ("same", text)  exactly this text;
("json", value)  JSON equal to this; ("tool", {...})  one tool call equal to this; ("story", {...})  within the grammar.

Over 600 lines: the kinds of questions are one list, and each has its wording and its judge side by side.

A share of the questions is held out: `held_out(core)` depends on the words of the question (or, for sums of two-digit numbers,
on the numbers, so that no wording of that sum is ever trained on). The first wording of a question that has only few
wordings is never held out (`keep`).
"""

import json
import re
import zlib
from dataclasses import dataclass, field

import facts
import stories
from texts import blocks, exchanges, sections


@dataclass
class Exchange:
    kind: str
    question: str
    answer: str
    key: tuple
    core: str = ""  # what is held out; the question itself where empty
    keep: bool = False
    dress: bool = True  # the wording may be varied ("please", no question mark, lower case)
    system: str = ""
    tools: list = field(default_factory=list)
    steps: list = field(default_factory=list)  # messages after the question, where the answer is not one text


def held_out(e):
    return not e.keep and zlib.crc32((e.core or e.question).lower().encode()) % 16 == 0


def last_number(text):
    found = re.findall(r"-?\d+", text.replace(",", " "))
    return int(found[-1]) if found else None


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def right(key, answer):
    """Whether an answer is right; key as in questions.Exchange."""
    kind, want = key[0], key[1]
    if kind == "number":
        return last_number(answer) == want
    if kind == "has":
        return any(re.search(r"(?<!\w)" + re.escape(w) + r"(?!\w)", answer, re.I) for w in want.split("|"))
    if kind == "starts":
        return answer.startswith(want) and not answer[len(want) : len(want) + 1].isalnum()
    if kind == "ends":
        return answer.rstrip(".").split()[-1:] == [want]
    if kind == "same":
        return answer == want
    if kind == "one of":
        return answer in want
    if kind == "items":
        words = set(re.findall(r"[A-Za-z]+", answer.split(" are ", 1)[-1])) - {"and"}
        return len(words) == key[2] and words <= set(facts.LISTS[want])
    if kind == "json":
        return parsed(answer) == want
    if kind == "tool":
        m = re.fullmatch(r"<tool_call>\n?(.*?)\n?</tool_call>", answer, re.S)
        return bool(m) and parsed(m.group(1)) == want
    if kind == "story":
        return stories.judge(answer) is None and all(re.search(r"\b" + v + r"\b", answer) for v in want.values())
    if kind == "continues":
        return stories.judge(want + " " + answer) is None
    raise ValueError(kind)


def capital(s):
    return s[0].upper() + s[1:]


def a(word):
    return ("an " if word[0] in "aeiou" and not word.startswith("uni") else "a ") + word


def join(items, word="and"):
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {word} " + items[-1]


TEXT = sections("talk.txt")
# Answers about Quire are true of the README at the root of the tree.
QUIRE = [(questions, answers[0], key) for questions, answers, [key] in exchanges(TEXT["QUIRE"])]
ABOUT_ME = [(questions, answers, key) for questions, answers, [key] in exchanges(TEXT["ABOUT_ME"])]
TALK = [(questions, answers) for questions, answers, _ in exchanges(TEXT["TALK"])]
# More ways to ask, for the later part of training. By the plain question.
MORE = {plain: further for plain, *further in blocks(TEXT["MORE"])}

WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen""".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(n):
    if n < 20:
        return WORDS[n]
    return "one hundred" if n == 100 else TENS[n // 10] + ("-" + WORDS[n % 10] if n % 10 else "")


# ---- arithmetic

ADD = ["What is {a} + {b}?", "{a} + {b} = ?", "What is {a} plus {b}?", "How much is {a} plus {b}?", "Add {a} and {b}.",
       "What is the sum of {a} and {b}?", "Calculate {a} + {b}.", "How much is {a} + {b}?", "{a} plus {b}", "{a}+{b}",
       "What do you get when you add {a} and {b}?", "Compute {a} + {b}.", "{a} + {b}", "Can you add {a} and {b}?",
       "{a} and {b}, what is the sum?", "What's {a} + {b}?", "What does {a} plus {b} make?"]
SUB = ["What is {a} - {b}?", "{a} - {b} = ?", "What is {a} minus {b}?", "How much is {a} minus {b}?", "Subtract {b} from {a}.",
       "Take {b} away from {a}.", "Calculate {a} - {b}.", "How much is {a} - {b}?", "{a} minus {b}", "{a}-{b}",
       "What is the difference between {a} and {b}?", "Compute {a} - {b}.", "{a} - {b}", "What's {a} - {b}?"]
MUL = ["What is {a} times {b}?", "{a} * {b} = ?", "How much is {a} times {b}?", "Multiply {a} by {b}.", "What is {a} * {b}?",
       "What is the product of {a} and {b}?", "Calculate {a} * {b}.", "{a} times {b}", "{a} x {b}", "{a}*{b}",
       "Compute {a} * {b}.", "What is {a} x {b}?", "Can you multiply {a} and {b}?", "What's {a} times {b}?"]
DIV = ["What is {a} divided by {b}?", "{a} / {b} = ?", "How much is {a} divided by {b}?", "Divide {a} by {b}.",
       "What is {a} / {b}?", "Calculate {a} / {b}.", "{a} divided by {b}", "How many times does {b} go into {a}?"]


def two_numbers(rng):
    """Often small; never a sum beyond 100."""
    n = 101 if rng.random() < 0.5 else 21
    while True:
        x, y = rng.randrange(n), rng.randrange(n)
        if x + y <= 100:
            return x, y


def arithmetic(rng):
    op = rng.choices("+-*/", (4, 4, 3, 1))[0]
    if op == "+":
        x, y = two_numbers(rng)
        result, forms = x + y, ADD
    elif op == "-":
        y, result = two_numbers(rng)
        x, forms = y + result, SUB
    elif op == "*":
        x, y = rng.randrange(13), rng.randrange(13)
        result, forms = x * y, MUL
    else:
        y, result = rng.randrange(1, 11), rng.randrange(11)
        x, forms = y * result, DIV
    form = rng.choice(forms)
    q = form.format(a=x, b=y)
    core = f"{x}{op}{y}" if op in "+-" and x > 20 and y > 10 else ""
    words = max(x, y) <= 20 and not any(c in form for c in "+-*/=x") and rng.random() < 0.25
    if words:
        q = capital(form.format(a=in_words(x), b=in_words(y)))
    return Exchange("arithmetic", q, f"{x} {op} {y} = {result}.", ("number", result), core)


def three_numbers(rng):
    x, y, z = (rng.randrange(11) for _ in range(3))
    q = rng.choice(["What is {} + {} + {}?", "Add {}, {} and {}.", "{} + {} + {} = ?"]).format(x, y, z)
    return Exchange("arithmetic", q, f"{x} + {y} = {x + y}, and {x + y} + {z} = {x + y + z}.", ("number", x + y + z))


THINGS = "apples pears nuts books coins stones stars cards plums eggs cookies balls flowers shells pencils stamps".split()


def word_problem(rng):
    name, thing = rng.choice(stories.VALUES["hero"]), rng.choice(THINGS)
    he = "she" if name in stories.GIRLS else "he"
    if rng.random() < 0.5:
        x, y = rng.randrange(1, 21), rng.randrange(1, 21)
        q = rng.choice([
            f"{name} has {x} {thing} and gets {y} more. How many {thing} does {he} have?",
            f"{name} has {x} {thing}. {capital(he)} finds {y} more. How many {thing} does {he} have now?",
            f"There are {x} {thing} in a box. {name} puts {y} more into it. How many {thing} are in the box?",
            f"If {name} has {x} {thing} and buys {y} more, how many {thing} does {he} have?"])
        calc, result = f"{x} + {y} = {x + y}", x + y
    else:
        y, x = sorted((rng.randrange(1, 21), rng.randrange(1, 21)))
        q = rng.choice([
            f"{name} has {x} {thing} and gives {y} away. How many {thing} are left?",
            f"{name} has {x} {thing}. {capital(he)} loses {y} of them. How many {thing} does {he} have now?",
            f"There are {x} {thing} in a box. {name} takes {y} of them. How many {thing} are left in the box?",
            f"If {name} has {x} {thing} and eats {y} of them, how many are left?" if thing in
            ("apples", "pears", "nuts", "plums", "cookies", "eggs") else
            f"If {name} has {x} {thing} and sells {y} of them, how many are left?"])
        calc, result = f"{x} - {y} = {x - y}", x - y
    return Exchange("word problem", q, f"{calc}. The answer is {result}.", ("number", result), dress=False)


def numbers(rng):
    r = rng.randrange(8)
    n = rng.randrange(1, 100)
    if r == 0:
        m = rng.randrange(1, 100)
        while m == n:
            m = rng.randrange(1, 100)
        larger = rng.random() < 0.5
        q = rng.choice(["Which number is {}, {} or {}?", "Which is {}: {} or {}?", "Is {1} or {2} the {0} number?"]).format(
            rng.choice(["larger", "bigger"]) if larger else "smaller", n, m)
        best, other = (max(n, m), min(n, m)) if larger else (min(n, m), max(n, m))
        return Exchange("numbers", q, f"{best} is {'larger' if larger else 'smaller'} than {other}.",
                        ("starts", str(best)))
    if r == 1:
        q = rng.choice(["What number comes after {}?", "Which number comes after {}?", "What is the next number after {}?"]).format(n)
        return Exchange("numbers", q, f"After {n} comes {n + 1}.", ("number", n + 1))
    if r == 2:
        q = rng.choice(["What number comes before {}?", "Which number comes before {}?", "What is the number before {}?"]).format(n)
        return Exchange("numbers", q, f"Before {n} comes {n - 1}.", ("number", n - 1))
    if r == 3:
        q = rng.choice(["Is {} even or odd?", "Is the number {} even or odd?", "Is {} an even or an odd number?"]).format(n)
        return Exchange("numbers", q, f"{n} is {'odd' if n % 2 else 'even'}.", ("has", "odd" if n % 2 else "even"))
    if r == 4:
        n = rng.randrange(0, 51)
        q = rng.choice(["What is double {}?", "What is twice {}?", "Double {}.", "What is two times {}?"]).format(n)
        return Exchange("numbers", q, f"Double {n} is {2 * n}.", ("number", 2 * n))
    if r == 5:
        n = 2 * rng.randrange(0, 51)
        q = rng.choice(["What is half of {}?", "What is one half of {}?", "Divide {} by two.", "Halve {}."]).format(n)
        return Exchange("numbers", q, f"Half of {n} is {n // 2}.", ("number", n // 2))
    if r == 6:
        x = rng.randrange(0, 20)
        y = x + rng.randrange(2, 11)
        if rng.random() < 0.5:
            q = rng.choice(["Count from {} to {}.", "Please count from {} to {}.", "Can you count from {} to {}?"]).format(x, y)
            return Exchange("numbers", q, ", ".join(map(str, range(x, y + 1))) + ".",
                            ("same", ", ".join(map(str, range(x, y + 1))) + "."))
        q = rng.choice(["Count down from {} to {}.", "Count backwards from {} to {}."]).format(y, x)
        text = ", ".join(map(str, range(y, x - 1, -1))) + "."
        return Exchange("numbers", q, text, ("same", text))
    if rng.random() < 0.5:
        q = rng.choice(["Write {} in words.", "How do you write {} in words?", "Spell out the number {}."]).format(n)
        return Exchange("numbers", q, f"{n} in words is {in_words(n)}.", ("has", in_words(n)))
    q = rng.choice(["Write {} as a number.", "Which number is {}?", "Write {} in digits."]).format(in_words(n))
    return Exchange("numbers", q, f"{capital(in_words(n))} is {n}.", ("number", n))


def sorting(rng):
    xs = rng.sample(range(1, 30) if rng.random() < 0.6 else range(1, 100), rng.randrange(3, 6))
    text = ", ".join(map(str, xs))
    r = rng.randrange(4)
    if r == 0:
        q = rng.choice(["Sort these numbers: {}.", "Put these numbers in order: {}.", "Sort {}."]).format(text)
        out = ", ".join(map(str, sorted(xs))) + "."
        return Exchange("sorting", q, out, ("same", out))
    if r == 1:
        q = rng.choice(["Which of these is the largest: {}?", "What is the largest of {}?", "What is the maximum of {}?"]).format(text)
        return Exchange("sorting", q, f"The largest is {max(xs)}.", ("number", max(xs)))
    if r == 2:
        q = rng.choice(["Which of these is the smallest: {}?", "What is the smallest of {}?", "What is the minimum of {}?"]).format(text)
        return Exchange("sorting", q, f"The smallest is {min(xs)}.", ("number", min(xs)))
    things = rng.sample(THINGS, rng.randrange(3, 6))
    q = rng.choice(["How many words are in this list: {}?", "Count these words: {}."]).format(", ".join(things))
    return Exchange("sorting", q, f"There are {len(things)} words.", ("number", len(things)))


# ---- dates and time

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()


def dates(rng):
    r = rng.randrange(14)
    d, m = rng.randrange(7), rng.randrange(12)
    if r == 0:
        q = rng.choice(["Which day comes after {}?", "What day comes after {}?", "What is the day after {}?",
                        "If today is {}, what day is tomorrow?", "Today is {}. What day is tomorrow?",
                        "What day follows {}?"]).format(DAYS[d])
        return Exchange("dates", q, f"{DAYS[(d + 1) % 7]} comes after {DAYS[d]}.", ("starts", DAYS[(d + 1) % 7]))
    if r == 1:
        q = rng.choice(["Which day comes before {}?", "What day comes before {}?", "What is the day before {}?",
                        "If today is {}, what day was yesterday?", "Today is {}. What day was yesterday?"]).format(DAYS[d])
        return Exchange("dates", q, f"{DAYS[(d - 1) % 7]} comes before {DAYS[d]}.", ("starts", DAYS[(d - 1) % 7]))
    if r in (2, 3):
        n = rng.randrange(2, 11)
        q = rng.choice(["If today is {0}, what day is it in {1} days?", "Today is {0}. What day is it in {1} days?",
                        "What day is {1} days after {0}?", "Which day is {1} days after {0}?",
                        "It is {0}. Which day will it be in {1} days?"]).format(DAYS[d], n)
        return Exchange("dates", q, f"{n} days after {DAYS[d]} it is {DAYS[(d + n) % 7]}.", ("ends", DAYS[(d + n) % 7]))
    if r == 4:
        q = rng.choice(["Which month comes after {}?", "What month comes after {}?", "What is the month after {}?",
                        "What month follows {}?", "If it is {}, what is the next month?"]).format(MONTHS[m])
        return Exchange("dates", q, f"{MONTHS[(m + 1) % 12]} comes after {MONTHS[m]}.", ("starts", MONTHS[(m + 1) % 12]))
    if r == 5:
        q = rng.choice(["Which month comes before {}?", "What month comes before {}?", "What is the month before {}?",
                        "If it is {}, what was the last month?"]).format(MONTHS[m])
        return Exchange("dates", q, f"{MONTHS[(m - 1) % 12]} comes before {MONTHS[m]}.", ("starts", MONTHS[(m - 1) % 12]))
    if r == 6:
        q = rng.choice(["How many days are in {}?", "How many days does {} have?", "How long is {} in days?",
                        "How many days has {}?"]).format(MONTHS[m])
        more = ", and 29 in a leap year" if m == 1 else ""
        return Exchange("dates", q, f"{MONTHS[m]} has {LENGTHS[m]} days{more}.", ("has", str(LENGTHS[m])))
    if r == 7:
        q = rng.choice(["Which month is number {}?", "What is month number {}?", "Which month has the number {}?"]).format(m + 1)
        return Exchange("dates", q, f"Month number {m + 1} is {MONTHS[m]}.", ("ends", MONTHS[m]))
    if r == 8:
        q = rng.choice(["What is the {} month of the year?", "Which is the {} month?", "Name the {} month of the year."]).format(ORDINALS[m])
        return Exchange("dates", q, f"The {ORDINALS[m]} month of the year is {MONTHS[m]}.", ("ends", MONTHS[m]))
    if r == 9:
        q = rng.choice(["What number is the month {}?", "Which number does the month {} have?"]).format(MONTHS[m])
        return Exchange("dates", q, f"{MONTHS[m]} is month number {m + 1}.", ("number", m + 1))
    if r == 10:
        season = ("winter", "spring", "summer", "autumn")[((m + 1) % 12) // 3]
        q = rng.choice(["In which season is {}?", "Which season is {} in?", "What season is it in {}?"]).format(MONTHS[m])
        return Exchange("dates", q, f"In the north, {MONTHS[m]} is in {season}.", ("has", season))
    if r == 11:
        h, n = rng.randrange(1, 13), rng.randrange(1, 7)
        t = (h + n - 1) % 12 + 1
        q = rng.choice(["It is {0} o'clock. What time is it in {1} hours?", "What is {1} hours after {0} o'clock?",
                        "If it is {0} o'clock, what time will it be in {1} hours?"]).format(h, n)
        return Exchange("dates", q.replace(" 1 hours", " 1 hour"), f"It will be {t} o'clock.", ("number", t))
    if r == 12:
        q = rng.choice(["Is {} a day of the weekend?", "Is {} on the weekend?", "Does {} belong to the weekend?"]).format(DAYS[d])
        if d >= 5:
            return Exchange("dates", q, f"Yes, {DAYS[d]} is a day of the weekend.", ("starts", "Yes"))
        return Exchange("dates", q, f"No, {DAYS[d]} is not a day of the weekend.", ("starts", "No"))
    n = rng.randrange(1, 11)
    unit, each, small = rng.choice([("week", 7, "days"), ("hour", 60, "minutes"), ("minute", 60, "seconds"), ("year", 12, "months")])
    q = rng.choice(["How many {2} are in {0} {1}?", "How many {2} do {0} {1} have?"]).format(n, unit + "s", small)
    if n == 1:
        q = f"How many {small} are in 1 {unit}?"
    return Exchange("dates", q, f"{n} {unit}{'s' if n > 1 else ''}: {n} * {each} = {n * each} {small}.", ("has", str(n * each)))


# ---- facts


def pick(rng, kind, forms, answer, key, *slots):
    """One of the wordings; the first of a few is never held out."""
    i = rng.randrange(len(forms))
    return Exchange(kind, forms[i].format(*slots), answer, key, keep=i == 0)


def geography(rng):
    country, city, continent, people = rng.choice(facts.COUNTRIES)
    r = rng.random()
    if r < 0.55:
        return pick(rng, "facts", ["What is the capital of {}?", "Which city is the capital of {}?", "Name the capital of {}.",
                                   "What is {}'s capital?", "Tell me the capital of {}.", "Do you know the capital of {}?",
                                   "{} - what is its capital?", "The capital of {} is which city?", "Capital of {}?",
                                   "What's the capital of {}?", "What is the capital city of {}?"],
                    f"The capital of {country} is {city}.", ("has", city), country)
    if r < 0.7:
        return pick(rng, "facts", ["{} is the capital of which country?", "Which country has the capital {}?",
                                   "Of which country is {} the capital?", "In which country is {}?", "Where is {}?",
                                   "What country is {} in?"],
                    f"{city} is the capital of {country}.", ("has", country), city)
    if r < 0.85 and country != continent:
        return pick(rng, "facts", ["On which continent is {}?", "Where is {}?", "Which continent is {} on?",
                                   "In which part of the world is {}?", "What continent does {} belong to?"],
                    f"{country} is in {continent}.", ("has", continent), country)
    if country == continent:
        return geography(rng)
    return pick(rng, "facts", ["What do we call people from {}?", "What are people from {} called?",
                               "Somebody who comes from {} is what?"],
                f"People from {country} are {people}.", ("has", people), country)


def animals(rng):
    r = rng.random()
    if r < 0.5:
        animal, sound, young, legs, home, group = rng.choice(facts.ANIMALS)
        r = rng.randrange(4)
        if r == 0:
            return pick(rng, "facts", ["What does {} do to make a sound?", "What sound does {} make?", "Which sound does {} make?",
                                       "How does {} sound?"], f"{capital(a(animal))} {sound}.", ("has", sound), a(animal))
        if r == 1:
            return pick(rng, "facts", ["What is a young {} called?", "What do you call a young {}?", "What is a baby {} called?",
                                       "What is the young of a {} called?", "What do you call a baby {}?"],
                        f"A young {animal} is called {a(young)}.", ("has", young), animal)
        if r == 2:
            return pick(rng, "facts", ["Where does {} live?", "What is the home of {}?", "Where would you find {}?",
                                       "In what place does {} live?"], f"{capital(a(animal))} lives in {home}.",
                        ("has", home), a(animal))
    else:
        animal, group, legs, what = rng.choice(facts.MORE_ANIMALS)
        if rng.random() < 0.4:
            return define(rng, animal, what)
    if rng.random() < 0.5 and legs != "-":
        return pick(rng, "facts", ["How many legs does {} have?", "How many legs has {}?", "On how many legs does {} walk?",
                                   "Tell me how many legs {} has."] if legs != "0" else ["How many legs does {} have?", "How many legs has {}?"],
                    f"{capital(a(animal))} has {legs if legs != '0' else 'no'} legs.", ("has", legs if legs != "0" else "no legs"),
                    a(animal))
    return pick(rng, "facts", ["What kind of animal is {}?", "To which group of animals does {} belong?",
                               "What class of animal is {}?", "Which kind of animal is {}?"],
                f"{capital(a(animal))} is {a(group)}.", ("has", group), a(animal))


def define(rng, thing, what):
    return pick(rng, "facts", ["What is {}?", "Can you tell me what {} is?", "Explain what {} is.", "Tell me what {} is.", "Define {}.", "What's {}?", "Do you know what {} is?",
                               "Please explain what {} is.", "Say in one sentence what {} is."],
                f"{capital(a(thing))} is {what}." if thing not in ("honey", "cheese", "bread", "ice", "steam", "winter", "autumn")
                else f"{capital(thing)} is {what}.", ("has", what),
                a(thing) if thing not in ("honey", "cheese", "bread", "ice", "steam", "winter", "autumn") else thing)


def definitions(rng):
    return define(rng, *rng.choice(facts.DEFINITIONS))


def words(rng):
    r = rng.random()
    if r < 0.5:
        x, y = rng.choice(facts.OPPOSITES)
        if rng.random() < 0.5:
            x, y = y, x
        return pick(rng, "words", ["What is the opposite of {}?", "Which word is the opposite of {}?", "Name the opposite of {}.",
                                   "Tell me the opposite of {}.", "What word means the opposite of {}?", "Opposite of {}?",
                                   "What's the opposite of {}?", "The opposite of {} is what?"],
                    f"The opposite of {x} is {y}.", ("has", y), x)
    if r < 0.75:
        w = rng.choice(facts.SPELL)
        s = "-".join(w.upper())
        return pick(rng, "words", ["How do you spell {}?", "Spell {}.", "Spell the word {}.", "Can you spell {}?",
                                   "How is the word {} spelled?", "Please spell {} for me."],
                    f"{capital(w)} is spelled {s}.", ("has", s), w)
    if r < 0.85:
        w = rng.choice(facts.SPELL)
        return pick(rng, "words", ["How many letters does the word {} have?", "How many letters are in {}?",
                                   "How many letters has {}?", "Count the letters of {}."],
                    f"{capital(w)} has {len(w)} letters: {'-'.join(w.upper())}.", ("has", f"{len(w)} letters"), w)
    i = rng.randrange(26)
    letter = chr(65 + i)
    if rng.random() < 0.5 and i < 25:
        return pick(rng, "words", ["Which letter comes after {}?", "What letter comes after {}?", "What is the letter after {}?",
                                   "What letter follows {}?"], f"After {letter} comes {chr(66 + i)}.", ("ends", chr(66 + i)), letter)
    if i:
        return pick(rng, "words", ["Which letter comes before {}?", "What letter comes before {}?", "What is the letter before {}?"],
                    f"Before {letter} comes {chr(64 + i)}.", ("ends", chr(64 + i)), letter)
    return words(rng)


def colours(rng):
    thing, colour = rng.choice(facts.COLOURS)
    return pick(rng, "facts", ["What colour is {}?", "Which colour is {}?", "What is the colour of {}?", "Tell me the colour of {}.",
                               "What color is {}?", "Which colour does {} have?"],
                f"{capital(thing)} is {colour}.", ("has", colour), thing)


def single(rng):
    questions, answer, key = rng.choice(facts.SINGLE)
    forms = [q.strip() for q in questions.split(";")]
    i = rng.randrange(len(forms))
    return Exchange("facts", forms[i], answer, ("has", key), keep=i == 0)


def groups(rng):
    """Name three animals; is a rose a flower; which word does not belong."""
    kind = rng.choice(list(facts.LISTS))
    items, one = facts.LISTS[kind], {"countries": "country", "cities": "city"}.get(kind, kind[:-1])
    r = rng.random()
    if r < 0.45:
        n = rng.randrange(2, 5)
        chosen = rng.sample(items, n)
        forms = ["Name {} {}.", "Give me {} {}.", "List {} {}.", "Tell me {} {}.", "Can you name {} {}?", "Name me {} {}, please."]
        i = rng.randrange(len(forms))
        return Exchange("lists", forms[i].format(in_words(n), kind), f"{capital(in_words(n))} {kind} are {join(chosen)}.",
                        ("items", kind, n), keep=i == 0)
    if r < 0.85:
        yes = rng.random() < 0.5
        other = rng.choice([k for k in facts.LISTS if not set(facts.LISTS[k]) & set(items)
                            and {k, kind} not in ({"animals", "birds"}, {"animals", "insects"}, {"fruits", "colours"},
                                                  {"flowers", "colours"}, {"tools", "instruments"})])
        w = rng.choice(items if yes else facts.LISTS[other])
        thing = w if w[0].isupper() or (kind if yes else other) in ("colours", "seasons", "drinks") else a(w)
        forms = ["Is {} {}?", "Would you say that {} is {}?", "Tell me: is {} {}?", "Does one call {} {}?"]
        i = rng.randrange(len(forms))
        other_one = {"countries": "country", "cities": "city"}.get(other, other[:-1])
        text = (f"Yes, {thing} is {a(one)}." if yes else f"No, {thing} is not {a(one)}. It is {a(other_one)}.")
        return Exchange("lists", forms[i].format(thing, a(one)), text, ("starts", "Yes" if yes else "No"), keep=i == 0)
    other = rng.choice([k for k in facts.LISTS if not set(facts.LISTS[k]) & set(items)
                        and {k, kind} not in ({"animals", "birds"}, {"animals", "insects"}, {"fruits", "colours"},
                                              {"flowers", "colours"}, {"fruits", "flowers"}, {"fruits", "vegetables"},
                                              {"tools", "instruments"})])
    odd = rng.choice(facts.LISTS[other])
    some = rng.sample(items, 3) + [odd]
    rng.shuffle(some)
    q = rng.choice(["Which word does not belong: {}?", "Which one is different: {}?", "Find the odd one out: {}."]).format(", ".join(some))
    return Exchange("lists", q, f"{capital(odd)} does not belong, because the others are {kind}.", ("starts", capital(odd)))


def table(rng, entries, kind):
    questions, answer, key = rng.choice(entries)
    i = rng.randrange(len(questions))
    text = answer if isinstance(answer, str) else rng.choice(answer)
    return Exchange(kind, questions[i], text, ("has", key), keep=i == 0)


def quire(rng):
    return table(rng, QUIRE, "quire")


def more(rng):
    """Further wordings about Quire and the model; for the later part of training."""
    entries, kind = (QUIRE, "quire") if rng.random() < 0.75 else (ABOUT_ME, "about me")
    questions, answer, key = rng.choice(entries)
    i = rng.randrange(len(forms := questions + MORE.get(questions[0], [])))
    return Exchange(kind, forms[i], answer if isinstance(answer, str) else rng.choice(answer), ("has", key), keep=i == 0)


def about_me(rng):
    return table(rng, ABOUT_ME[:2] if rng.random() < 0.35 else ABOUT_ME, "about me")


# ---- reading and copying

COPY_NAMES = stories.BOYS + stories.GIRLS
SYLLABLES = """ba be bi bo bu da de di do du fa fe fi ga ge go ha hi ho ja jo ka ke ki ko la le li lo lu ma me mi mo mu na ne ni
no pa pe po ra re ri ro ru sa se si so ta te ti to va ve vi wa wi za ze zo""".split()


def made_up(rng):
    """A name that no list has, so that names are copied and not remembered."""
    w = "".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(2, 4)))
    return capital(w + rng.choice(["", "", "n", "r", "s", "l", "x"]))


def name_of(rng):
    return made_up(rng) if rng.random() < 0.4 else rng.choice(COPY_NAMES)


def reading(rng):
    p, q = rng.sample(COPY_NAMES, 2)
    x, y = rng.sample(stories.THINGS, 2)
    u, v = rng.sample(stories.PLACES, 2)
    r = rng.randrange(5)
    if r == 0:
        text = f"{p} has {a(x)}. {q} has {a(y)}."
        who, what = rng.choice([(p, x), (q, y)])
        if rng.random() < 0.5:
            return Exchange("reading", f"{text} Who has the {what}?", f"{who} has the {what}.", ("starts", who), dress=False)
        return Exchange("reading", f"{text} What does {who} have?", f"{who} has {a(what)}.", ("has", what), dress=False)
    if r == 1:
        text = f"{p} went to the {u}. {q} went to the {v}."
        who, where = rng.choice([(p, u), (q, v)])
        if rng.random() < 0.5:
            return Exchange("reading", f"{text} Where did {who} go?", f"{who} went to the {where}.", ("has", where), dress=False)
        return Exchange("reading", f"{text} Who went to the {where}?", f"{who} went to the {where}.", ("starts", who), dress=False)
    if r == 2:
        n, m = rng.sample(range(2, 20), 2)
        text = f"{p} is {n} years old. {q} is {m} years old."
        if rng.random() < 0.5:
            who, age = rng.choice([(p, n), (q, m)])
            return Exchange("reading", f"{text} How old is {who}?", f"{who} is {age} years old.", ("has", str(age)), dress=False)
        older = p if n > m else q
        return Exchange("reading", f"{text} Who is older?", f"{older} is older.", ("starts", older), dress=False)
    if r == 3:
        text = f"The {x} is {rng.choice(stories.SPOTS)}."
        where = text.split(" is ", 1)[1][:-1]
        return Exchange("reading", f"{text} Where is the {x}?", f"The {x} is {where}.", ("has", where), dress=False)
    w = rng.choice([name_of(rng), rng.choice(facts.SPELL), f"{p} has {a(x)}", rng.choice(stories.MORALS)[:-1], f"The {x} is at the {u}"])
    question = rng.choice(["Repeat after me: {}.", "Say: {}.", "Please repeat: {}.", "Write this: {}."]).format(w)
    return Exchange("reading", question, f"{w}.", ("same", f"{w}."), dress=False)


# ---- JSON

JSON_ASK = ["Write {} as JSON.", "Give me {} as JSON.", "Return {} in JSON.", "Make a JSON object with {}.",
            "Give me a JSON object with {}.", "Write a JSON object with {}.", "I need a JSON object with {}.",
            "Answer with JSON only: {}.", "Create a JSON object: {}.", "As JSON, please: {}."]


def json_object(rng):
    r = rng.random()
    if r < 0.5:
        pool = {
            "name": name_of(rng), "age": rng.randrange(1, 100), "city": rng.choice(facts.COUNTRIES)[1],
            "country": rng.choice(facts.COUNTRIES)[0], "colour": rng.choice(facts.LISTS["colours"]),
            "animal": rng.choice(facts.LISTS["animals"]), "food": rng.choice(stories.FOODS),
            "number": rng.randrange(0, 1000), "day": rng.choice(DAYS), "month": rng.choice(MONTHS),
            "title": rng.choice(stories.THINGS), "done": rng.random() < 0.5, "price": rng.randrange(1, 100),
            "id": rng.randrange(1, 1000), "year": rng.randrange(1900, 2030),
        }
        keys = rng.sample(list(pool), rng.randrange(1, 5))
        value = {k: pool[k] for k in keys}
        show = lambda v: ("true" if v else "false") if isinstance(v, bool) else str(v)
        style = rng.choice(["{k} {v}", "{k} {v}", "{k}: {v}", "{k} = {v}"])
        items = [style.format(k=k, v=show(v)) for k, v in value.items()]
        text = ", ".join(items) if style != "{k} {v}" or rng.random() < 0.3 else join(items)
        q = rng.choice(JSON_ASK).format(text)
    elif r < 0.7:
        items = rng.sample(rng.choice([facts.LISTS["animals"], facts.LISTS["colours"], COPY_NAMES, THINGS,
                                       facts.LISTS["fruits"], facts.LISTS["cities"]]), rng.randrange(2, 6))
        if rng.random() < 0.3:
            items = [rng.randrange(100) for _ in items]
        text = ", ".join(map(str, items))
        q = rng.choice(["Make a JSON list of {}.", "Write {} as a JSON list.", "Give me a JSON array with {}.",
                        "Put this into a JSON list: {}.", "Turn this into a JSON array: {}."]).format(text)
        value = items
    elif r < 0.85:
        country, city, continent, _ = rng.choice(facts.COUNTRIES)
        value = {"country": country, "capital": city, "continent": continent}
        forms = ["Describe {} as JSON.", "Give me facts about {} as JSON.", "Write JSON about {}.", "Tell me about {} in JSON.",
                 "Return a JSON object about {}."]
        i = rng.randrange(len(forms))
        return Exchange("json", forms[i].format(country), json.dumps(value), ("json", value), keep=i == 0)
    else:
        animal, sound, young, legs, home, group = rng.choice(facts.ANIMALS)
        value = {"animal": animal, "class": group, "legs": int(legs), "young": young}
        forms = ["Describe {} as JSON.", "Give me facts about {} as JSON.", "Write JSON about {}.", "Tell me about {} in JSON.",
                 "Return a JSON object about {}."]
        i = rng.randrange(len(forms))
        return Exchange("json", forms[i].format(a(animal)), json.dumps(value), ("json", value), keep=i == 0)
    return Exchange("json", q, json.dumps(value), ("json", value), dress=False)


# ---- small talk


def small_talk(rng):
    questions, answers = rng.choice(TALK)
    i = rng.randrange(len(questions))
    return Exchange("small talk", questions[i], rng.choice(answers), ("one of", answers), keep=i < 3)


def joke(rng):
    forms = ["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Tell a joke, please.", "I want to hear a joke.", "A joke, please!",
             "Say something funny.", "Can you tell me a joke?", "Another joke, please."]
    i = rng.randrange(len(forms))
    return Exchange("small talk", forms[i], rng.choice(facts.JOKES), ("one of", facts.JOKES), keep=i == 0)


def riddle(rng):
    question, answer = rng.choice(facts.RIDDLES)
    forms = ["Here is a riddle: {}", "{}", "Solve this riddle: {}", "A riddle for you: {}", "Can you solve this? {}"]
    i = rng.randrange(len(forms))
    return Exchange("facts", forms[i].format(question), f"The answer is {answer}.", ("has", answer), keep=i == 0)


NONSENSE = ["I do not understand that. Can you say it in other words?", "I am sorry, I do not understand.",
            "That makes no sense to me. Please ask again."]


def unknown(rng):
    if rng.random() < 0.15:
        q = " ".join("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(2, 9)))
                     for _ in range(rng.randrange(1, 4)))
        return Exchange("unknown", q, rng.choice(NONSENSE), ("one of", NONSENSE))
    topic = rng.choice(facts.UNKNOWN)
    forms = ["Tell me about {}.", "What do you know about {}?", "Explain {} to me.", "Can you explain {}?", "I have a question about {}.",
             "What do you think about {}?", "Write an essay about {}.", "Help me with {}.", "Give me the details of {}."]
    if rng.random() < 0.3:
        topic = made_up(rng)
        forms = ["Who is {}?", "Do you know {}?", "Tell me about {}.", "Where is {}?", "What is {}?", "What do you know about {}?",
                 "What is the capital of {}?", "Who was {}?"]
    i = rng.randrange(len(forms))
    answers = [f"I do not know anything about {topic}. I am a very small model.",
               f"I am sorry, I know nothing about {topic}.", f"I know too little about {topic} to help you."]
    return Exchange("unknown", forms[i].format(topic), rng.choice(answers), ("one of", answers), keep=i == 0)


# ---- stories

PLAIN_STORY = ["Tell me a story.", "Tell me a short story.", "Write a story.", "Can you tell me a story?", "I want to hear a story.",
               "Please tell me a story.", "Write a short story.", "Do you know a story?", "Tell us a story.", "Story time!",
               "Tell me something nice before I sleep.", "Make up a story.", "Invent a story.", "Tell a story, please.",
               "Could you write a short story for me?", "Tell me a bedtime story.", "A story, please.", "Write me a little story.",
               "Tell me another story.", "One more story, please."]


def story(rng):
    r = rng.random()
    short = rng.random() < 0.3
    if r < 0.3:
        q = rng.choice(PLAIN_STORY)
        if short:
            q = rng.choice(["Tell me a very short story.", "Write a very short story.", "Keep it short: tell me a story."])
        text, bound, _ = stories.story(rng, short=short)
        return Exchange("story", q, text, ("story", {}), keep=True)
    kind = rng.choice(stories.ANIMALS + ["boy", "girl"] + stories.ADULTS)
    if r < 0.6:
        text, bound, _ = stories.story(rng, short=short, kind=kind)
        forms = ["Tell me a story about {}.", "Write a story about {}.", "Can you tell me a story about {}?", "I want a story about {}.",
                 "A story about {}, please.", "Write a short story about {}.", "Make up a story about {}.", "Do you know a story about {}?"]
        i = rng.randrange(len(forms))
        return Exchange("story", forms[i].format(a(kind)), text, ("story", {"kind": bound["kind"]}), keep=i == 0)
    if r < 0.75:
        name, kind, _ = stories.person(rng, kind)
        text, bound, _ = stories.story(rng, short=short, kind=kind, hero=name)
        forms = ["Tell me a story about {} named {}.", "Write a story about {} called {}.", "Tell me about {} named {}, in a story.",
                 "Write a short story about {} named {}."]
        i = rng.randrange(len(forms))
        return Exchange("story", forms[i].format(a(kind), name), text, ("story", {"kind": kind, "hero": name}))
    if r < 0.85:
        name = rng.choice(COPY_NAMES)
        text, bound, _ = stories.story(rng, short=short, hero=name)
        forms = ["Tell me a story about {}.", "Write a story in which somebody is called {}.", "Write a story about {}.",
                 "Tell me what happened to {}."]
        return Exchange("story", rng.choice(forms).format(name), text, ("story", {"hero": name}))
    if r < 0.95:
        thing = rng.choice(stories.THINGS)
        text, bound, _ = stories.story(rng, short=short, thing=thing,
                                       plot=rng.choice(["lost", "make", "treasure"]))
        forms = ["Tell me a story about {}.", "Write a story with {} in it.", "Write a story about {}.", "Make up a story with {}."]
        return Exchange("story", rng.choice(forms).format(a(thing)), text, ("story", {"thing": thing}))
    place = rng.choice(stories.PLACES)
    text, bound, _ = stories.story(rng, short=short, place=place)
    forms = ["Tell me a story that happens at the {}.", "Write a story about the {}.", "Tell me a story near the {}."]
    return Exchange("story", rng.choice(forms).format(place), text, ("story", {}))


def story_opening(rng):
    """The user begins, the model goes on."""
    text, bound, _ = stories.story(rng, short=rng.random() < 0.3)
    from grammar import sentences

    parts = sentences(text)
    cut = rng.randrange(1, 3)
    begin, rest = " ".join(parts[:cut]), " ".join(parts[cut:])
    form = rng.choice(["Continue this story: {}", "Go on: {}", "Finish this story: {}", "How does it go on? {}", "{}", "Complete: {}"])
    return Exchange("story", form.format(begin), rest, ("continues", begin), dress=False)


KINDS = [  # (share, generator)
    (17, arithmetic), (2, three_numbers), (5, word_problem), (6, numbers), (3, sorting), (9, dates), (5, geography), (4, animals),
    (2.5, definitions), (4.5, words), (1.5, colours), (3, single), (3.5, groups), (6, quire), (5, about_me), (5, reading),
    (6, json_object), (5, small_talk), (1, joke), (0.7, riddle), (2.5, unknown), (5, story), (1.5, story_opening),
]
