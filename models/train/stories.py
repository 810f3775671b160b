"""Short stories from a grammar of our own, and the judge that reads them with the same grammar.

A story follows one plot. A plot is a list of beats, a beat a list of templates of one or two sentences. Slots are bound
once for a story: {hero} a name, {kind} what the hero is, {he} {him} {his} the hero's pronouns, {friend} {fkind} the second
person, {thing} what the story turns about, {place}, {spot} a hiding place, {food}.
"""

import functools

from grammar import Recogniser, write

BOYS = """Tom Ben Max Sam Leo Jack Finn Noah Oscar Tim Felix Hugo Paul Nico Emil Adam Luke Theo Jonas Karl""".split()
GIRLS = """Anna Lily Mia Ella Nora Lucy Rosa Emma Clara Ida Sophie Zoe Julia Alma Greta Maya Ruth Tilly Hanna Eva""".split()
HE = {"he": "he", "him": "him", "his": "his"}
SHE = {"he": "she", "him": "her", "his": "her"}

CHILDREN = {"he": ["boy"], "she": ["girl"]}
ADULTS = ["baker", "farmer", "fisher", "gardener", "teacher", "painter", "postman", "shepherd"]
ANIMALS = """fox rabbit bear mouse cat dog owl duck frog hedgehog squirrel turtle bird lamb pony pig goat badger beaver
mole otter deer""".split()

THINGS = """red ball|blue kite|little drum|wooden boat|green hat|golden key|silver bell|old map|warm scarf|yellow umbrella|
toy train|paper lantern|shiny coin|small lamp|soft blanket|white shell|picture book|tin whistle|round mirror|brown basket|
pink ribbon|big button""".replace("\n", "").split("|")
PLACES = """forest|village|garden|meadow|farm|river|lake|hill|beach|market|old mill|valley|park|castle|harbour|
orchard""".replace("\n", "").split("|")
SPOTS = """under the bed|behind the door|under a bush|in the tall grass|behind the barn|under the bridge|in a hollow tree|
next to the well|behind a big stone|under a pile of leaves|on top of the wall|inside an empty barrel""".replace("\n", "").split("|")
FOODS = """apple pie|bread|cheese|soup|honey cake|berries|pancakes|cookies|carrots|nuts|plums|porridge""".replace("\n", "").split("|")

SYMBOLS = {
    "good": ["kind", "brave", "happy", "clever", "cheerful", "gentle", "curious", "friendly", "quiet", "patient", "young"],
    "size": ["little", "small", "young", "tiny"],
    "sun": ["sunny", "bright", "warm", "cold", "windy", "rainy", "foggy", "quiet", "fine", "grey"],
    "season": ["spring", "summer", "autumn", "winter"],
    "time": ["morning", "afternoon", "day", "evening"],
    "sad": ["sad", "worried", "unhappy", "upset"],
    "glad": ["happy", "glad", "proud", "very happy", "so happy", "full of joy"],
    "looked": ["looked", "searched"],
    "said": ["said", "asked", "called"],
    "went": ["went", "walked", "ran", "hurried"],
    "long": ["a long time", "an hour", "the whole morning", "a while", "the whole afternoon"],
    "loved": ["loved", "liked"],
    "hobby": ["to sing", "to climb trees", "to count the stars", "to paint", "to swim", "to dance", "to tell jokes",
              "to read books", "to watch the clouds", "to bake", "to collect stones", "to whistle", "to plant flowers",
              "to listen to the rain"],
    "weather": ["the sun was shining", "the wind was blowing", "it was raining", "the birds were singing",
                "snow was falling", "the sky was blue", "the leaves were falling", "the air was warm"],
    "sky": ["the moon came up", "the stars came out", "the sun went down", "it grew dark", "the lamps were lit"],
    "together": ["together", "side by side", "hand in hand"],
    "tree": ["oak", "apple tree", "pine tree", "willow", "cherry tree"],
    "sound": ["a soft cry", "a strange noise", "a small voice", "somebody crying", "a loud splash", "a quiet song"],
    "deep": ["deep", "wide", "fast", "cold"],
    "slowly": ["slowly", "carefully", "quietly", "bravely", "step by step"],
    "colour": ["red", "blue", "green", "yellow", "white", "orange", "purple"],
    "flower": ["roses", "tulips", "daisies", "sunflowers", "lilies", "bluebells"],
    "when": ["that evening", "that night", "at the end of the day", "when the day was over", "a little later"],
    "every": ["every day", "every morning", "every evening", "every Sunday", "all summer"],
}

OPENINGS = [
    "Once upon a time there was a [good] {kind} named {hero}.",
    "Once upon a time there was a [size] {kind} called {hero}.",
    "There once was a [good] {kind} named {hero}.",
    "Long ago, a [good] {kind} named {hero} lived near the {place}.",
    "Once upon a time, a [size] {kind} named {hero} lived near the {place}.",
    "{hero} was a [good] {kind}.",
    "{hero} was a [size] {kind} who lived near the {place}.",
    "One [sun] [time], a [good] {kind} named {hero} went to the {place}.",
    "In a small house near the {place} lived a [good] {kind} named {hero}.",
    "Near the {place} there lived a [size] {kind} called {hero}.",
]
ABOUT = [
    "{he} [loved] [hobby].",
    "{hero} [loved] [hobby].",
    "{hero} [loved] [hobby] and [hobby].",
    "[every] {he} [loved] [hobby].",
    "More than anything, {he} [loved] [hobby].",
    "{he} lived in a small house with a [colour] door.",
    "{hero} had a [colour] coat and a big smile.",
    "Everybody at the {place} knew {him}.",
    "{he} was [good] and [good].",
]
ONE_DAY = [
    "One [sun] [time], {hero} went to the {place}.",
    "One [time] in [season], [weather], and {hero} [went] to the {place}.",
    "One [sun] [time] in [season], {he} [went] to the {place}.",
    "One day {hero} woke up early, because [weather].",
    "It was a [sun] [time] in [season], and [weather].",
    "One [time], when [weather], {he} took a walk to the {place}.",
]
MEETS = [
    "There {he} met a {fkind} named {friend}.",
    "On the way {he} met {friend} the {fkind}.",
    "Soon {he} saw {friend}, a [good] {fkind}.",
    "Just then {friend} the {fkind} came along.",
    "Behind a [tree] stood a {fkind} named {friend}.",
]
THANKS = [
    "\"Thank you, {friend}!\" said {hero}.",
    "\"Thank you so much!\" said {hero}. \"You are a true friend.\"",
    "{hero} thanked {friend} and gave {fhim} some {food}.",
    "{hero} was [glad] and hugged {friend}.",
    "\"I could not have done it without you,\" said {hero}.",
]
CLOSINGS = [
    "From that day on, {hero} and {friend} were best friends.",
    "And {hero} and {friend} stayed friends for the rest of their lives.",
    "[when], {hero} and {friend} sat under the [tree] and ate {food}.",
    "[when], they ate {food} and laughed until [sky].",
    "Then [sky], and they walked home [together].",
    "They were [glad], and they never forgot that day.",
    "After that, {hero} and {friend} met [every] at the {place}.",
    "{hero} went to bed early and dreamed of the {place}.",
    "And if you go to the {place}, you may still see them there.",
]
ALONE_CLOSINGS = [
    "{hero} was [glad], and {he} never forgot that day.",
    "[when], {hero} fell asleep with a smile.",
    "Then [sky], and {hero} went home to eat {food}.",
    "After that, {hero} went to the {place} [every].",
    "[when], {he} ate {food} and thought about the day.",
    "{hero} went to bed early and dreamed of the {place}.",
]
MORALS = [
    "It is good to have a friend.",
    "A small kindness can change a whole day.",
    "Nobody is too small to help.",
    "What we share makes us happy twice.",
    "It is brave to ask for help.",
    "The best things take time.",
    "It is always good to tell the truth.",
    "Those who try again will find a way.",
]

PLOTS = {
    "lost": [
        OPENINGS, ABOUT,
        ["{he} had a {thing}, and {he} took it everywhere.",
         "{his} favourite thing in the world was a {thing}.",
         "For {his} birthday {hero} got a {thing}.",
         "{hero} owned a {thing} that once belonged to {his} grandmother."],
        ["One [sun] [time], the {thing} was gone.",
         "But one [time] {he} could not find the {thing}.",
         "One day {hero} lost the {thing} at the {place}.",
         "Then, one [sun] [time], the wind took the {thing} away."],
        ["{hero} [looked] everywhere, but {he} could not find it.",
         "{he} [looked] in the house and in the garden, but it was not there.",
         "{he} [looked] for [long] and found nothing.",
         "{hero} was [sad] and began to cry.",
         "\"Where is my {thing}?\" asked {hero}."],
        MEETS,
        ["\"Why are you [sad]?\" asked {friend}. \"I lost my {thing},\" said {hero}.",
         "\"Can I help you?\" asked {friend}. \"Please help me find my {thing},\" said {hero}.",
         "\"I am looking for my {thing},\" said {hero}. \"I will help you,\" said {friend}.",
         "\"Do not cry,\" said {friend}. \"Four eyes see more than two.\""],
        ["They looked {spot}, and there it was!",
         "Together they [looked] for [long]. At last {friend} found the {thing} {spot}.",
         "{friend} had a good idea and looked {spot}. There was the {thing}!",
         "They walked [slowly] and looked at every place. The {thing} was {spot}."],
        THANKS, CLOSINGS,
    ],
    "friend": [
        OPENINGS, ABOUT,
        ["But {hero} had nobody to play with.",
         "But {he} was often alone, and {he} wished for a friend.",
         "{hero} wanted a friend more than anything else.",
         "{he} had many toys, but {he} had no friend."],
        ONE_DAY, MEETS,
        ["\"Hello,\" said {hero}. \"Do you want to play with me?\"",
         "\"What is your name?\" asked {hero}. \"My name is {friend},\" said the {fkind}.",
         "At first they were both very shy. Then {hero} showed {fhim} the {thing}.",
         "{friend} was holding a {thing}. \"May I see it?\" asked {hero}."],
        ["They played with the {thing} for [long].",
         "They ran, they jumped and they laughed for [long].",
         "{friend} [loved] [hobby] too, and so they had a lot to talk about.",
         "{friend} showed {him} a secret path to the {place}.",
         "They shared some {food} and told each other stories."],
        ["\"Will you come again tomorrow?\" asked {hero}. \"Of course,\" said {friend}.",
         "\"You are my first friend,\" said {hero}. \"And you are mine,\" said {friend}.",
         "{hero} was [glad], because now {he} had a friend.",
         "\"Let us be friends,\" said {friend}, and {hero} smiled."],
        CLOSINGS,
    ],
    "rescue": [
        OPENINGS, ABOUT, ONE_DAY,
        ["There {he} heard [sound].",
         "Suddenly {he} heard [sound] near the water.",
         "{he} stopped, because {he} heard [sound].",
         "On the way home {he} heard [sound]."],
        ["It was {friend} the {fkind}, who had fallen into a hole.",
         "It was a {fkind} named {friend}, who was stuck {spot}.",
         "A {fkind} named {friend} had lost {fhis} way and was afraid.",
         "{friend} the {fkind} was caught in an old net."],
        ["\"Please help me!\" called {friend}.",
         "\"Do not be afraid,\" said {hero}. \"I will help you.\"",
         "{hero} was afraid too, but {he} did not run away.",
         "{hero} thought about it for a moment. Then {he} had an idea."],
        ["{he} took a long rope and pulled as hard as {he} could.",
         "{he} [went] home and came back with a {thing}. With it {he} helped {fhim} out.",
         "[slowly], {he} went closer and took {fhim} by the hand.",
         "{he} called the others, and all of them pulled together."],
        ["At last {friend} was safe.",
         "After [long], {friend} was free.",
         "It was hard work, but it went well."],
        ["\"You saved me,\" said {friend}. \"I will never forget it.\"",
         "\"Thank you, {hero}!\" said {friend}. \"You are very brave.\"",
         "{friend} was [glad] and gave {him} a {thing}.",
         "To say thank you, {friend} brought some {food}."],
        CLOSINGS,
    ],
    "share": [
        OPENINGS, ABOUT,
        ["One [time], {hero} made some {food}.",
         "One [sun] [time], {his} mother gave {him} some {food}.",
         "In [season], {hero} had a lot of {food}.",
         "{hero} had some {food}, and it smelled wonderful."],
        ["{he} sat down under the [tree] and wanted to eat it all alone.",
         "{he} put it into a basket and [went] to the {place}.",
         "\"All of this is for me,\" said {hero}."],
        MEETS,
        ["{friend} was hungry and had nothing to eat.",
         "\"I have not eaten since yesterday,\" said {friend}.",
         "{friend} looked at the {food} and said nothing.",
         "\"That smells so good,\" said {friend}."],
        ["{hero} thought about it. Then {he} gave {fhim} half of the {food}.",
         "\"Sit down and eat with me,\" said {hero}.",
         "At first {hero} did not want to share. But then {he} saw how [sad] {friend} was, and {he} gave {fhim} the bigger half.",
         "\"There is enough for two,\" said {hero} and smiled."],
        ["They ate [together], and it tasted better than ever.",
         "They ate and talked for [long].",
         "{friend} ate [slowly] and smiled.",
         "The next day {friend} came back with a {thing} for {hero}."],
        CLOSINGS,
    ],
    "make": [
        OPENINGS, ABOUT,
        ["{he} wanted to have a {thing} more than anything.",
         "One [time], {hero} saw a {thing} at the market, but it cost too much.",
         "\"I wish I had a {thing},\" said {hero}."],
        ["So {he} decided to make one.",
         "\"Then I will make one,\" {he} said.",
         "{he} had no money, but {he} had two hands and a lot of time."],
        ["{he} worked for [long], but it broke.",
         "The first one was too big, and the second one was too small.",
         "It was not easy, and the first one fell apart."],
        ["{hero} was [sad], but {he} did not give up.",
         "\"I will try again,\" said {hero}.",
         "{he} wanted to stop, but then {he} tried again."],
        MEETS,
        ["\"May I help you?\" asked {friend}.",
         "\"I know how to do it,\" said {friend}. \"Let me show you.\"",
         "{friend} held the pieces, and {hero} put them together."],
        ["[when], the {thing} was done.",
         "At last it was ready, and it was the best {thing} far and wide.",
         "They worked [together], and in the end they had a fine {thing}."],
        THANKS, CLOSINGS,
    ],
    "brave": [
        OPENINGS, ABOUT,
        ["But {hero} was afraid of the dark.",
         "But {he} was afraid of deep water.",
         "But {he} was afraid of thunder.",
         "But {hero} had never been far from home."],
        ONE_DAY,
        ["Then {he} heard that {friend} the {fkind} was lost near the {place}.",
         "Then {his} best friend, a {fkind} named {friend}, did not come home.",
         "{friend} the {fkind} was ill, and somebody had to bring {fhim} some {food}."],
        ["\"Somebody must go,\" said {hero}, \"and I will be that somebody.\"",
         "{hero} took a deep breath and went [slowly] into the night.",
         "{his} heart beat fast, but {he} went all the same.",
         "{he} took a {thing} with {him} and set out."],
        ["{he} crossed a [deep] river and climbed a steep hill.",
         "The way was long, and [weather].",
         "Twice {he} wanted to turn back, but {he} did not.",
         "{he} sang a song, and the song made {him} brave."],
        ["At last {he} found {friend} {spot}.",
         "In the end {he} saw a light, and there was {friend}.",
         "After [long], {he} came to {friend}."],
        ["\"You came!\" said {friend}. \"I was so afraid.\"",
         "\"Weren't you afraid?\" asked {friend}. \"I was,\" said {hero}, \"but you needed me.\"",
         "{friend} was [glad] to see {him}."],
        CLOSINGS,
    ],
    "treasure": [
        OPENINGS, ABOUT,
        ["One [sun] [time], {hero} found a {thing} {spot}.",
         "One [time], while {he} was playing at the {place}, {he} found a {thing}.",
         "One day, something shone {spot}. It was a {thing}."],
        ["\"Whose is this?\" {he} asked.",
         "{he} had never seen such a beautiful thing.",
         "\"How lucky I am!\" said {hero}.",
         "{he} wanted to keep it, but {he} knew that somebody must miss it."],
        ["{hero} [went] from door to door and asked everybody.",
         "{he} asked the baker, the farmer and the teacher, but it was not theirs.",
         "{he} put up a note at the {place} and waited for [long]."],
        MEETS,
        ["\"That is my {thing}!\" called {friend}. \"I have looked for it for days.\"",
         "{friend} was [sad]. \"I lost my {thing},\" {fhe} said.",
         "\"Have you seen a {thing}?\" asked {friend}."],
        ["{hero} gave it back at once.",
         "It was not easy, but {hero} gave it back.",
         "\"Here it is,\" said {hero}. \"I have kept it safe for you.\""],
        ["\"You are honest and kind,\" said {friend}.",
         "{friend} was [glad] and gave {him} some {food}.",
         "\"Thank you, {hero}!\" said {friend}. \"Come and play with me.\""],
        CLOSINGS,
    ],
    "garden": [
        OPENINGS, ABOUT,
        ["In [season], {hero} planted a small seed near the {place}.",
         "One [time], {hero} found a seed {spot} and planted it.",
         "{his} grandfather gave {him} a seed. \"Be patient,\" he said."],
        ["{he} gave it water [every].",
         "[every] {he} came and looked, but nothing happened.",
         "The rain came, and the sun came, and {he} waited."],
        ["\"It will never grow,\" said {friend} the {fkind}.",
         "{friend} the {fkind} laughed at {him}. \"Nothing will grow here,\" {fhe} said.",
         "\"Is it growing?\" asked {friend} the {fkind}. \"Not yet,\" said {hero}."],
        ["But {hero} did not give up.",
         "\"We will see,\" said {hero}.",
         "{hero} was patient and waited for weeks."],
        ["Then, one [sun] [time], there was a small green leaf.",
         "And one [time], when [weather], the first leaf came out of the ground.",
         "At last the ground opened, and a tiny plant looked at the sun."],
        ["It grew and grew, and in the end it was full of [colour] flowers.",
         "By the end of the [season], it was taller than {hero}.",
         "After a year it was a fine [tree], and birds lived in it.",
         "Soon the whole place was full of [flower]."],
        ["\"You were right,\" said {friend}.",
         "{friend} came to look and was very surprised.",
         "{hero} gave the first flower to {friend}."],
        CLOSINGS,
    ],
    "night": [
        OPENINGS, ABOUT,
        ["One [time], {hero} could not sleep.",
         "One night in [season], {hero} looked out of the window.",
         "[when], {he} sat at the window, and [sky]."],
        ["\"Where does the moon go in the morning?\" {he} asked.",
         "\"How many stars are there?\" asked {hero}.",
         "{he} saw a star that was brighter than all the others.",
         "A [colour] light was dancing near the {place}."],
        ["{he} took {his} {thing} and [went] outside.",
         "[slowly] {he} opened the door and went to the {place}.",
         "{he} put on a warm coat and climbed the hill."],
        ["{he} counted to one hundred, and then {he} began again.",
         "The grass was wet, and everything was very quiet.",
         "An owl sat in the [tree] and looked at {him}.",
         "The water of the lake was full of stars."],
        ["\"The moon only goes to sleep,\" said the owl, \"as you should do.\"",
         "Then {he} understood that the night is not dark at all.",
         "{he} lay down in the grass and listened to the wind.",
         "{he} made a wish and told nobody about it."],
        ALONE_CLOSINGS,
    ],
    "trip": [
        OPENINGS, ABOUT,
        ["{hero} had never seen the sea.",
         "{hero} had always wanted to see what was behind the hills.",
         "One [time], {hero} got a letter from {friend} the {fkind}. \"Please come and visit me,\" it said."],
        ["So {he} packed some {food} and a {thing} and set out.",
         "{he} said goodbye to everybody and [went] away early.",
         "{he} took a bag, a map and some {food}."],
        ["The first day {he} walked through a [deep] valley.",
         "{he} walked past the {place} and over a long bridge.",
         "On the way [weather], and {he} sang a song."],
        ["At noon {he} rested under a [tree] and ate {food}.",
         "{he} asked a farmer for the way. \"Always follow the river,\" said the farmer.",
         "Once {he} took the wrong path and had to go back."],
        ["[when], {he} saw a small light. It was the house of {friend} the {fkind}.",
         "At last {he} stood on the top of the hill, and there was {friend} the {fkind}.",
         "At the end of the road {friend} the {fkind} was waiting for {him}."],
        ["\"You have come so far!\" said {friend}.",
         "\"Welcome!\" said {friend}. \"You must be tired.\"",
         "They looked at the sea for [long], and nobody said a word.",
         "\"Tell me everything,\" said {friend}, and {hero} told {fhim} about the way."],
        CLOSINGS,
    ],
}

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
