"""Tables of facts. Every row is common knowledge, put into words here; text/facts.txt says which columns they have."""

from texts import rows, sections

TEXT = sections("facts.txt")
COUNTRIES = rows(TEXT["COUNTRIES"])
ANIMALS = rows(TEXT["ANIMALS"])
MORE_ANIMALS = rows(TEXT["MORE_ANIMALS"])
OPPOSITES = rows(TEXT["OPPOSITES"])
COLOURS = rows(TEXT["COLOURS"])
DEFINITIONS = rows(TEXT["DEFINITIONS"])
SINGLE = rows(TEXT["SINGLE"])
RIDDLES = rows(TEXT["RIDDLES"])
LISTS = {kind: items.split() for kind, items in rows(TEXT["LISTS"])}
SPELL = " ".join(TEXT["SPELL"]).split()
JOKES = TEXT["JOKES"]
UNKNOWN = TEXT["UNKNOWN"]
