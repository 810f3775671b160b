"""Whole documents: chats of one or more exchanges, and plain stories. The text that the model is trained on."""

import json
import os
import random
import re

import jinja2

import questions as Q
import stories
import tools as T
from grammar import capitalise

HERE = os.path.dirname(os.path.abspath(__file__))

SYSTEMS = ["You are a helpful assistant.", "You are quire-tiny, a small language model.", "You are a friendly assistant.",
           "Answer the user's questions.", "You are a helpful assistant. Be kind.", "You are a small and honest assistant.",
           "Be brief.", "Help the user.", "You are an assistant that tells stories and answers questions.", "You are Quire's assistant."]


def template():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
    with open(os.path.join(HERE, "chat_template.jinja")) as f:
        return env.from_string(f.read())


TEMPLATE = template()


def render(messages, tools=None, generation=False):
    return TEMPLATE.render(messages=messages, tools=tools, add_generation_prompt=generation)


def dress(rng, q):
    """The same question as another person would type it."""
    r = rng.random()
    if r < 0.55:
        return q
    if r < 0.63:
        return q[0].lower() + q[1:] if not q.startswith("I ") else q
    if r < 0.70:
        return q.rstrip("?.!")
    if r < 0.77:
        return (q[0].lower() + q[1:]).rstrip("?.!") if not q.startswith("I ") else q
    if r < 0.80:
        return q.lower()
    if r < 0.86 and q.endswith("?"):
        return q[:-1] + ", please?"
    low = q[0].lower() + q[1:] if not q.startswith("I ") and q.split()[0] not in Q.DAYS else q
    if r < 0.95:
        return rng.choice(["Hi! ", "Hello! ", "Please tell me: ", "I have a question. ", "One question: ", "Tell me, ", "Quick question: ",
                           "Hey, ", "And ", "Now tell me: ", "So, ", "Another question: "]) + (low if rng.random() < 0.5 else q)
    return q + rng.choice([" Thank you!", " Thanks.", " Please answer.", "  ", " Answer shortly."]).rstrip() if r < 0.99 else q + "\n"


def exchange(rng, held=False, late=0):
    """An exchange of a drawn kind that is (not) held out."""
    kinds = STAGES[late]
    while True:
        make = rng.choices([g for _, g in kinds], [w for w, _ in kinds])[0]
        for _ in range(1000):  # of a kind with few questions none may be held out
            e = make(rng)
            if Q.held_out(e) == held:
                return e


KINDS = Q.KINDS + [(4.5, T.tool_call)]
# Later, when the plain things are known: more of what has to be copied from the text before it.
MORE_OFTEN = {Q.reading: 9, Q.json_object: 8, Q.sorting: 6, Q.groups: 6, Q.quire: 0, Q.words: 5.5, T.tool_call: 9, Q.arithmetic: 16, Q.story: 6}
LATE_KINDS = [(MORE_OFTEN.get(g, w), g) for w, g in KINDS] + [(11, Q.more)]
# At last: more of what is learned slowest.
SLOWEST = {Q.arithmetic: 22, Q.dates: 13, Q.numbers: 9, Q.sorting: 9, Q.groups: 12, T.tool_call: 12, Q.small_talk: 8, Q.about_me: 6}
LAST_KINDS = [(SLOWEST.get(g, w), g) for w, g in LATE_KINDS]
STAGES = [KINDS, LATE_KINDS, LAST_KINDS]


def messages_of(rng, e):
    q = dress(rng, e.question) if e.dress else e.question
    user = {"role": "user", "content": q.strip() or e.question}
    return [user] + (e.steps if e.steps else [{"role": "assistant", "content": e.answer}])


# ---- follow-ups: what only a chat can hold


def introduce(rng):
    """The user's name or a liking, asked for later. (opening messages, closing messages)"""
    r = rng.random()
    if r < 0.6:
        name = Q.name_of(rng)
        q = rng.choice(["My name is {}.", "I am {}.", "Hello, I am {}.", "Hi, my name is {}.", "I am called {}.", "Call me {}.",
                        "Hi! I'm {}.", "Good morning, my name is {}."]).format(name)
        said = rng.choice([f"Nice to meet you, {name}!", f"Hello, {name}! How can I help you?", f"Hello, {name}! I am quire-tiny."])
        ask = rng.choice(["What is my name?", "Do you remember my name?", "Who am I?", "What am I called?", "What's my name?",
                          "Tell me my name.", "Can you tell me what my name is?"])
        return [(q, said)], [(ask, f"Your name is {name}.")]
    if r < 0.8:
        c = rng.choice(Q.facts.LISTS["colours"] + ["golden", "silver"])
        what = rng.choice(["colour"])
        q = rng.choice([f"My favourite {what} is {c}.", f"I like the {what} {c} best.", f"I love the {what} {c}."])
        return [(q, f"{Q.capital(c)} is a beautiful colour.")], [
            (rng.choice(["What is my favourite colour?", "Which colour do I like?", "Do you remember my favourite colour?"]),
             f"Your favourite colour is {c}.")]
    animal, name = rng.choice(["cat", "dog", "rabbit", "horse", "parrot", "hamster"]), Q.name_of(rng)
    q = rng.choice([f"I have a {animal} named {name}.", f"My {animal} is called {name}.", f"I have a {animal}. It is called {name}."])
    return [(q, rng.choice([f"How nice! {name} is a good name for a {animal}.", f"Say hello to {name} from me!"]))], [
        (rng.choice([f"What is the name of my {animal}?", f"What is my {animal} called?", "Which animal do I have?"
                     if rng.random() < 0.3 else f"How is my {animal} called?"]),
         f"Your {animal} is called {name}.")]


def follow_story(rng):
    """A story and questions about it."""
    text, b, plot = stories.story(rng, short=rng.random() < 0.4)
    first = rng.choice(Q.PLAIN_STORY)
    turns = [(first, text)]
    asks = [(rng.choice(["What was the name of the {kind}?", "What is the {kind} called?", "Who is the story about?"]).format(**b),
             f"The {b['kind']} is called {b['hero']}."),
            (rng.choice(["What is {hero}?", "What kind of person or animal is {hero}?", "Is {hero} a person or an animal?"]).format(**b),
             f"{b['hero']} is a {b['kind']}.".replace(" a owl", " an owl").replace(" a otter", " an otter"))]
    if b["friend"] in text and f"{b['fkind']}" in text:
        asks.append((rng.choice(["Who is {friend}?", "And who is {friend}?"]).format(**b),
                     f"{b['friend']} is the {b['fkind']} in the story."))
        asks.append((rng.choice(["Who helped {hero}?", "Who is the friend of {hero}?", "Whom did {hero} meet?"]).format(**b),
                     f"It was {b['friend']} the {b['fkind']}."))
    if b["thing"] in text and plot in ("lost", "make", "treasure"):
        asks.append((rng.choice({"lost": ["What did {hero} lose?", "What was lost?"], "make": ["What did {hero} make?", "What did {hero} want?"],
                                 "treasure": ["What did {hero} find?", "What was found?"]}[plot]).format(**b),
                     f"It was a {b['thing']}.".replace(" a old", " an old")))
    rng.shuffle(asks)
    turns += asks[: rng.randrange(1, 3)]
    if rng.random() < 0.4:
        turns.append((rng.choice(["Another one.", "One more, please.", "Tell me another one.", "Again!", "Do you know another story?"]),
                      stories.story(rng, short=True)[0]))
    return turns


def follow_numbers(rng):
    x, y, z = rng.randrange(1, 30), rng.randrange(1, 30), rng.randrange(1, 11)
    s = x + y
    turns = [(rng.choice(Q.ADD).format(a=x, b=y), f"{x} + {y} = {s}.")]
    if rng.random() < 0.5:
        turns.append((rng.choice(["And plus {}?", "Now add {}.", "Add {} to it.", "And {} more?"]).format(z), f"{s} + {z} = {s + z}."))
    else:
        turns.append((rng.choice(["And minus {}?", "Now take away {}.", "Subtract {}."]).format(min(z, s)), f"{s} - {min(z, s)} = {s - min(z, s)}."))
    return turns


def follow_fact(rng):
    c, d = rng.sample(Q.facts.COUNTRIES, 2)
    return [(rng.choice(["What is the capital of {}?", "Tell me the capital of {}."]).format(c[0]), f"The capital of {c[0]} is {c[1]}."),
            (rng.choice(["And of {}?", "And {}?", "What about {}?"]).format(d[0]), f"The capital of {d[0]} is {d[1]}.")]


def follow_joke(rng):
    j = rng.choice(Q.facts.JOKES)
    asks = rng.choice([("That was funny!", "I am glad that you like it!"), ("That was not funny.", "I am sorry. Jokes are hard."),
                       ("Another one!", rng.choice(Q.facts.JOKES)), ("Haha!", "I am glad that you like it!")])
    return [(rng.choice(["Tell me a joke.", "Do you know a joke?"]), j), asks]


def follow_how(rng):
    return [(rng.choice(["Hello", "Hi", "Hey", "Good morning"]), rng.choice(Q.TALK[0][1])),
            (rng.choice(Q.TALK[1][0]), "I am fine, thank you. How are you?"),
            (rng.choice(["I am fine too.", "Good, thanks.", "Very well.", "Not so good.", "I am tired."]), None)]


def as_messages(rng, turns):
    out = []
    for q, text in turns:
        if text is None:
            text = ("I am sorry to hear that. Shall I tell you a story?" if q in ("Not so good.", "I am tired.") else
                    rng.choice(["I am glad to hear that!", "How nice! What shall we talk about?"]))
        user = dress(rng, q) if rng.random() < 0.5 else q
        out += [{"role": "user", "content": user.strip()}, {"role": "assistant", "content": text}]
    return out


def may_follow(e):
    """Whether a follow-up, which knows nothing of what is held out, could ask this question in these words."""
    numbers = [int(n) for n in re.findall(r"\d+", e.question)]
    return e.question.startswith("Tell me the capital of") or (
        e.kind == "arithmetic" and e.answer.count("+") == 1 and max(numbers, default=0) < 30)


FOLLOW = [(4, follow_story), (3, follow_numbers), (2, follow_fact), (1, follow_joke), (1, follow_how)]


def chat(rng, late=0):
    """(messages, tools)"""
    messages, tools = [], None
    r = rng.random()
    n = 1 if r < 0.6 else rng.randrange(2, 5) if r < (0.92 if late else 0.94) else rng.randrange(5, 25)
    parts, closing = [], []
    if rng.random() < (0.06 if not late else 0.5 if n > 4 else 0.08):
        begin, end = introduce(rng)
        parts.append(as_messages(rng, begin))
        closing = as_messages(rng, end)
        n -= 1
    if rng.random() < 0.08:
        parts.append(as_messages(rng, rng.choices([f for _, f in FOLLOW], [w for w, _ in FOLLOW])[0](rng)))
        n -= 1
    for _ in range(max(n, 0)):
        e = exchange(rng, late=late)
        if e.tools:
            if tools is None:
                tools = e.tools
            else:
                continue  # one set of tools in a chat
        parts.append(messages_of(rng, e))
    for p in parts:
        messages += p
    messages += closing
    if not messages:
        return chat(rng, late)
    if tools is None and rng.random() < 0.02:  # tools that nobody needs
        tools = T.tool_call(rng).tools
        if rng.random() < 0.5:
            tools = tools[:1]
        names = {t["function"]["name"] for t in tools}
        if names & {"calculate", "calculator", "get_time", "current_time"}:
            tools = None
    if rng.random() < 0.15:
        messages.insert(0, {"role": "system", "content": rng.choice(SYSTEMS)})
    return messages, tools


def document(rng, late=0):
    """One document, its end token included. late: which part of training it is for, 0 to 2."""
    r = rng.random()
    if r < 0.07:
        return stories.story(rng)[0] + "<|endoftext|>"
    if r < 0.075:
        return "\n\n".join(stories.story(rng)[0] for _ in range(rng.randrange(2, 6))) + "<|endoftext|>"
    messages, tools = chat(rng, late)
    return render(messages, tools).rstrip("\n") + "\n<|endoftext|>"


if __name__ == "__main__":
    rng = random.Random(3)
    for _ in range(40):
        print(document(rng))
        print("----")
