"""Tool calls: descriptions of tools, questions that need them, the calls, the results and what is said about them."""

import json

import facts
import stories
from questions import COPY_NAMES, DAYS, SYLLABLES, Exchange, made_up, name_of

CITIES = [c[1] for c in facts.COUNTRIES]
ROOMS = "kitchen bedroom bathroom garden hall office cellar garage".split()
SKIES = ["sunny", "rainy", "cloudy", "windy", "foggy", "snowy"]
SONGS = ["morning song", "river song", "night music", "the old drum", "summer rain", "blue train", "happy day", "slow waltz"]


def text(description):
    return {"type": "string", "description": description}


def integer(description):
    return {"type": "integer", "description": description}


def choice(*values):
    return {"type": "string", "enum": list(values)}


def tool(name, description, /, **properties):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": properties, "required": list(properties)}}}


def weather(rng):
    city = rng.choice(CITIES) if rng.random() < 0.8 else made_up(rng)
    q = rng.choice(["What is the weather in {}?", "How is the weather in {}?", "Is it raining in {}?", "What is the weather like in {}?",
                    "Tell me the weather in {}.", "Do I need an umbrella in {}?", "How warm is it in {}?", "Is it cold in {}?",
                    "What's the weather in {} today?", "Weather in {}, please."]).format(city)
    name = rng.choice(["get_weather", "weather", "get_weather", "current_weather"])
    key = rng.choice(["city", "city", "location", "place"])
    sky, t = rng.choice(SKIES), rng.randrange(-10, 36)
    return (tool(name, rng.choice(["Get the weather of a city", "The weather at a place", "Current weather"]), **{key: text("name of the city")}),
            q, {key: city}, {"weather": sky, "temperature": t}, f"It is {sky} in {city}, and the temperature is {t} degrees.")


def clock(rng):
    city = rng.choice(CITIES)
    q = rng.choice(["What time is it in {}?", "Tell me the time in {}.", "How late is it in {}?", "Which time is it in {}?"]).format(city)
    key = rng.choice(["city", "place"])
    now = f"{rng.randrange(24):02}:{rng.randrange(60):02}"
    return (tool(rng.choice(["get_time", "current_time"]), "Get the time in a city", **{key: text("name of the city")}),
            q, {key: city}, {"time": now}, f"It is {now} in {city}.")


def calculator(rng):
    x, y = rng.randrange(100, 1000), rng.randrange(100, 1000)
    op, word, result = rng.choice([("+", "plus", x + y), ("-", "minus", x - y), ("*", "times", x * y)])
    q = rng.choice(["What is {} {} {}?", "Calculate {} {} {}.", "How much is {} {} {}?"]).format(x, rng.choice([op, word]), y)
    e = f"{x} {op} {y}"
    return (tool(rng.choice(["calculate", "calculator"]), "Calculate with numbers", expression=text("what to calculate")),
            q, {"expression": e}, {"result": result}, f"{e} = {result}.")


def timer(rng):
    n = rng.randrange(1, 61)
    q = rng.choice(["Set a timer for {} minutes.", "Wake me in {} minutes.", "Remind me in {} minutes.", "Please start a timer of {} minutes.",
                    "Timer, {} minutes."]).format(n)
    return (tool(rng.choice(["set_timer", "start_timer"]), "Start a timer", minutes=integer("how many minutes")),
            q, {"minutes": n}, {"ok": True}, f"The timer is set for {n} minutes.")


def music(rng):
    song = rng.choice(SONGS)
    q = rng.choice(["Play {}.", "Please play {}.", "I want to hear {}.", "Can you play {}?"]).format(song)
    return (tool(rng.choice(["play_music", "play_song"]), "Play a song", song=text("name of the song")),
            q, {"song": song}, {"ok": True}, f"Now playing {song}.")


def light(rng):
    room, state = rng.choice(ROOMS), rng.choice(["on", "off"])
    q = rng.choice([f"Turn {state} the light in the {room}.", f"Switch the {room} light {state}.", f"Please turn the light in the {room} {state}.",
                    f"Light {state} in the {room}, please."])
    return (tool(rng.choice(["set_light", "switch_light"]), "Switch the light of a room", room=text("which room"), state=choice("on", "off")),
            q, {"room": room, "state": state}, {"ok": True}, f"The light in the {room} is {state} now.")


def message(rng):
    to = name_of(rng)
    what = rng.choice(["I am late", "see you soon", "the soup is ready", "happy birthday", "come home", "I am at the market", "thank you",
                       "good night", "call me", "dinner is at seven"])
    q = rng.choice(["Send a message to {0}: {1}.", "Write to {0}: {1}.", "Tell {0}: {1}.", "Please send {0} this message: {1}."]).format(to, what)
    return (tool(rng.choice(["send_message", "send_text"]), "Send a message to a person", to=text("who gets it"), text=text("the message")),
            q, {"to": to, "text": what}, {"sent": True}, f"I sent the message to {to}.")


def search(rng):
    topic = rng.choice(facts.UNKNOWN)
    q = rng.choice(["Search for {}.", "Look up {}.", "Find something about {}.", "Please search for {}."]).format(topic)
    return (tool(rng.choice(["search", "web_search"]), "Search for a text", query=text("what to look for")),
            q, {"query": topic}, {"results": n}, f"I found {n} results about {topic}.") if (n := rng.randrange(2, 90)) else None


def calendar(rng):
    day, what = rng.choice(DAYS), rng.choice(["lunch", "dinner", "a meeting", "the dentist", "a walk", "piano lesson", "school"])
    hour = rng.randrange(8, 20)
    q = rng.choice([f"Put {what} into my calendar on {day} at {hour}.", f"Add {what} on {day} at {hour} to my calendar.",
                    f"I have {what} on {day} at {hour}, please note it."])
    return (tool(rng.choice(["add_event", "create_event"]), "Add an event to the calendar", title=text("what it is"), day=text("day of the week"),
                 hour=integer("hour of the day")),
            q, {"title": what, "day": day, "hour": hour}, {"ok": True}, f"I added {what} on {day} at {hour}.")


def invented(rng):
    """A tool that exists in no list: name and arguments have to be read from its description."""
    verb, noun = rng.choice(["get", "find", "show", "open", "count", "check"]), rng.choice(
        ["price", "stock", "color", "owner", "size", "book", "page", "score", "file", "door", "order", "status"])
    key = rng.choice(["item", "name", "object", "title", "id"])
    thing = rng.choice(stories.THINGS) if rng.random() < 0.6 else made_up(rng)
    q = rng.choice([f"{verb.capitalize()} the {noun} of {thing}.", f"Please {verb} the {noun} of {thing}.", f"Can you {verb} the {noun} of {thing}?"])
    n = rng.randrange(1, 500)
    return (tool(f"{verb}_{noun}", f"{verb.capitalize()} the {noun} of something", **{key: text("what it is about")}),
            q, {key: thing}, {noun: n}, f"The {noun} of {thing} is {n}.")


TOOLS = [(4, weather), (2, clock), (2, calculator), (2, timer), (1, music), (2, light), (2, message), (1.5, search), (2, calendar), (4, invented)]


def draw(rng):
    return rng.choices([t for _, t in TOOLS], [w for w, _ in TOOLS])[0](rng)


def tool_call(rng):
    """One question that needs a tool, with one to four tools at hand."""
    mine = draw(rng)
    name = mine[0]["function"]["name"]
    tools = [mine[0]]
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        other = draw(rng)
        if other[0]["function"]["name"] not in [t["function"]["name"] for t in tools] and other[0]["function"][
                "description"] != mine[0]["function"]["description"]:
            tools.append(other[0])
    rng.shuffle(tools)
    _, q, arguments, result, said = mine
    call = {"name": name, "arguments": arguments}
    steps = [{"role": "assistant", "content": "", "tool_calls": [{"function": call}]}]
    if rng.random() < 0.6:
        shown = json.dumps(result) if rng.random() < 0.8 else ", ".join(f"{k}: {v}" for k, v in result.items())
        steps += [{"role": "tool", "content": shown}, {"role": "assistant", "content": said}]
    return Exchange("tool call", q, "", ("tool", call), tools=tools, steps=steps, dress=rng.random() < 0.5)
