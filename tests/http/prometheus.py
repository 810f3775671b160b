"""A strict reader of the Prometheus text format 0.0.4: what a scraper would stumble over fails here."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")


class Family:
    def __init__(self, name):
        self.name, self.type, self.help = name, None, None
        self.samples = []  # (name, labels, value)


class Metrics:
    def __init__(self, families):
        self.families = families

    def samples(self, name, **labels):
        for family in self.families.values():
            for sample, have, value in family.samples:
                if sample == name and all(have.get(k) == v for k, v in labels.items()):
                    yield have, value

    def value(self, name, **labels):
        """Sum over all samples of this name with these labels; the name must exist."""
        values = [v for _, v in self.samples(name, **labels)]
        known = values or labels and any(True for _ in self.samples(name))
        assert known, f"no metric {name}"
        return sum(values)

    def buckets(self, name):
        return [have["le"] for have, _ in self.samples(name + "_bucket")]


def labels_of(text):
    out, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        assert found, f"bad labels {text!r}"
        assert found[1] not in out, f"label {found[1]} twice"
        out[found[1]] = found[2]
        at = found.end()
        if at < len(text):
            assert text[at] == ",", f"bad labels {text!r}"
            at += 1
    return out


def number(text):
    assert re.fullmatch(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+|Inf)|NaN", text), f"bad number {text!r}"
    return float(text)


def parse(text):
    assert text.endswith("\n"), "the last line has no newline"
    assert "\r" not in text
    families, current = {}, None
    for line in text[:-1].split("\n"):
        found = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.*)", line)
        if found:
            if current is None or current.name != found[2]:
                assert found[2] not in families, f"{found[2]} comes in two places"
                current = families[found[2]] = Family(found[2])
            what = found[1].lower()
            assert getattr(current, what) is None, f"{what} of {current.name} twice"
            assert not current.samples, f"{what} of {current.name} after its samples"
            setattr(current, what, found[3])
            continue
        if not line or line.startswith("#"):
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"not a sample: {line!r}"
        name, labels, value = found[1], labels_of(found[2] or ""), number(found[3])
        assert current, f"sample without a type: {line!r}"
        ends = ("_bucket", "_sum", "_count") if current.type == "histogram" else ("",)
        assert name in [current.name + e for e in ends], f"{name} among the samples of {current.name}"
        current.samples.append((name, labels, value))
    for family in families.values():
        check(family)
    return Metrics(families)


def check(family):
    assert family.type in ("counter", "gauge", "histogram"), f"{family.name} has type {family.type}"
    assert family.help, f"{family.name} has no help"
    keys = [(n, tuple(sorted(l.items()))) for n, l, _ in family.samples]
    assert len(keys) == len(set(keys)), f"a sample of {family.name} twice"
    for name, labels, value in family.samples:
        if family.type == "counter":
            assert value >= 0 and math.isfinite(value), (name, value)
    if family.type != "histogram":
        return
    series = {}
    for name, labels, value in family.samples:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        entry = series.setdefault(rest, {"buckets": []})
        if name.endswith("_bucket"):
            entry["buckets"].append((number(labels["le"]), value))
        else:
            entry[name[len(family.name) :]] = value
    for entry in series.values():
        bounds = [b for b, _ in entry["buckets"]]
        counts = [c for _, c in entry["buckets"]]
        assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf, f"bounds of {family.name}: {bounds}"
        assert counts == sorted(counts), f"{family.name} is not cumulative"
        assert counts[-1] == entry["_count"], f"{family.name}: +Inf is not the count"
        assert entry["_sum"] >= 0
