#!/usr/bin/env python3
"""Tables of measurements: docs/performance/MACHINE.json → MACHINE.md, one page per machine.

    tables.py                          writes every page anew
    tables.py --check                  exit status 1 and a line for each page that is not its JSON file's
    tables.py --add REPORT MACHINE     appends the runs of a report (`--json` of models.py or serving.py) to MACHINE.json

A JSON file has the machine, its limits, and a list of runs; a run has a title, date, commit, commands and rows. Rows keep
each peer's own number; the pages show the ratio to the best one. It needs nothing but Python.
"""
import json
import statistics
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent


def number(x):
    return f"{x:,.0f}" if x >= 1000 else f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def best_peer(row, lower=False):
    """(name, value) of the best peer, or None."""
    peers = row.get("peers") or {}
    return (min if lower else max)(peers.items(), key=lambda p: p[1]) if peers else None


def markdown(head, body):
    lines = ["|" + "|".join(head) + "|", "|" + "---|" * len(head)]
    return lines + ["|" + "|".join(row) + "|" for row in body]


def cell(row):
    """tokens/s, of the limit, times the best peer; in bold where the peer is the faster one."""
    if row is None:
        return ""
    notes = [f"{100 * row['of_limit']:.0f}%"] if row.get("of_limit") is not None else []
    peer = best_peer(row)
    if peer:
        ratio = row["tokens_s"] / peer[1]
        notes.append(f"{ratio:.2f}×" if ratio >= 1 else f"**{ratio:.2f}×**")
    return number(row["tokens_s"]) + (f" ({', '.join(notes)})" if notes else "")


def models(run):
    works = list(dict.fromkeys(r["work"] for r in run["rows"]))
    files = list(dict.fromkeys((r["model"], r["type"]) for r in run["rows"]))
    at = {(r["model"], r["type"], r["work"]): r for r in run["rows"]}
    return markdown(["model", "type", *works], [[*f, *(cell(at.get((*f, w))) for w in works)] for f in files])


def serving(run):
    body = []
    for r in run["rows"]:
        line = [r["model"], r["type"], str(r["clients"]), cell({**r["output"], "of_limit": r.get("of_limit")})]
        for key in ("ttft_p50", "ttft_p99", "itl_p99"):
            value = r.get(key)
            peer = best_peer(value, lower=True) if value else None
            line.append(f"{number(value['ms'])}" + (f" ({number(peer[1])})" if peer else "") if value else "")
        body.append(line)
    return markdown(["model", "type", "clients", "output, tokens/s", "TTFT p50, ms", "TTFT p99", "ITL p99"], body)


def plain(run):
    return markdown(run["columns"], [[number(c) if isinstance(c, float) else str(c) for c in row] for row in run["rows"]])


KINDS = {"models": models, "serving": serving, "plain": plain}


def prose(text):
    return textwrap.wrap(text, 150, break_on_hyphens=False, break_long_words=False)


def command(line):
    """The lines of one command."""
    return " \\\n    ".join(prose(line)).split("\n")


def page(data):
    out = [f"# {data['machine']}", "", "Generated from the JSON file beside it by `tables.py`; README.md says how to read it.", ""]
    out += markdown(["limit", "measured"], [[k, v] for k, v in data["limits"].items()]) + [""]
    for run in data["runs"]:
        out += [f"## {run['title']}", "", *prose(f"{run['date']}, {run['commit']}. {run.get('note', '')}".strip()), ""]
        out += KINDS[run["kind"]](run) + ["", "```sh", *(line for c in run["commands"] for line in command(c)), "```", ""]
    return "\n".join(out[:-1]) + "\n"


def dump(data):
    """JSON with a line for each row."""
    text = json.dumps({**data, "runs": []}, ensure_ascii=False, indent=1)
    runs = []
    for run in data["runs"]:
        lines = json.dumps({**run, "rows": []}, ensure_ascii=False, indent=1)
        rows = ",\n   ".join(json.dumps(r, ensure_ascii=False) for r in run["rows"])
        runs.append("  " + lines.replace("\n", "\n  ").replace('"rows": []', f'"rows": [\n   {rows}\n   ]'))
    return text.replace('"runs": []', '"runs": [\n' + ",\n".join(runs) + "\n ]") + "\n"


def models_rows(results):
    for r in results:
        q = r["quire"]
        done = [(f"prefill {q['prefill']['tokens']}", q["prefill"], lambda p: p.get("prefill"))] if "prefill" in q else []
        done += [(f"decode × {d['batch']}", d, lambda p, b=str(d["batch"]): p["decode"].get(b)) for d in q["decode"]]
        for work, d, theirs in done:
            peers = {name: theirs(p) for name, p in r["peers"].items() if theirs(p)}
            yield {"model": r["model"], "type": r["type"], "work": work, "tokens_s": round(d["tokens_s"], 1),
                   "of_limit": round(d["of_limit"], 3), "peers": peers}


def serving_rows(results):
    for r in results:
        for n, one in r["engines"]["quire"][0]["clients"].items():
            values = {key: {name: statistics.median(x["clients"][n][key] for x in rounds) for name, rounds in r["engines"].items()}
                      for key in ("output_throughput", "median_ttft_ms", "p99_ttft_ms", "p99_itl_ms")}
            row = {"model": r["model"], "type": r["type"], "clients": int(n)}
            for name, key, unit in (("output", "output_throughput", "tokens_s"), ("ttft_p50", "median_ttft_ms", "ms"),
                                    ("ttft_p99", "p99_ttft_ms", "ms"), ("itl_p99", "p99_itl_ms", "ms")):
                row[name] = {unit: values[key].pop("quire"), "peers": values[key]}
            if r["limits"]:
                row["of_limit"] = round(row["output"]["tokens_s"] / r["limits"]["clients"][n]["limit_tokens_s"], 3)
            yield row


def add(report, path):
    report, data = json.loads(Path(report).read_text()), json.loads(path.read_text())
    kind = "serving" if "engines" in report["results"][0] else "models"
    rows = list((serving_rows if kind == "serving" else models_rows)(report["results"]))
    data["runs"].append({"kind": kind, "title": "Through HTTP" if kind == "serving" else "Whole models", "date": report["date"][:10],
                         "commit": report["commit"], "commands": [report["command"]], "rows": rows})
    path.write_text(dump(data))


def main(words):
    if words[:1] == ["--add"] and len(words) == 3:
        add(words[1], HERE / f"{words[2]}.json")
    elif words not in ([], ["--check"]):
        sys.exit(__doc__)
    bad = 0
    for path in sorted(HERE.glob("*.json")):
        text, out = page(json.loads(path.read_text())), path.with_suffix(".md")
        if words == ["--check"]:
            if not out.exists() or out.read_text() != text:
                print(f"docs/performance/{out.name} is not what {path.name} says: run docs/performance/tables.py")
                bad = 1
        else:
            out.write_text(text)
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
