"""--trace: what it writes is the format that chrome://tracing and Perfetto read, and it adds up."""

import json

import pytest

from goldens import cases, expected
from process import SLOW, run

PROMPT = "Once upon a time"


def read(path):
    return json.loads(path.read_text())


def spans(events, name):
    return [e for e in events if e["name"] == name and e["ph"] == "X"]


def test_trace(start, tmp_path):
    file = tmp_path / "trace.json"
    server = start("--trace", file, "--num-kv-blocks", "40", "--max-num-seqs", "4", env=SLOW)
    for i in range(3):
        assert server.complete(cases()[i]["prompt"], max_tokens=30)["choices"][0]["text"] == expected(i, 30)
    many = server.complete([c["prompt"] for c in cases()], n=2, max_tokens=40, temperature=1, ignore_eos=True)
    stream = server.open_stream(PROMPT, max_tokens=400, ignore_eos=True)
    next(iter(stream))
    stream.conn.reset()
    server.wait_idle()
    server.stop()
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    assert "Once" not in text and "listening" not in text
    events = read(file)

    steps = spans(events, "step")
    assert [s["args"]["plan"] for s in steps] == list(range(1, len(steps) + 1))
    for name in ("schedule", "execute", "update"):
        inner = spans(events, name)
        assert len(inner) == len(steps)
        for s, i in zip(steps, inner):
            assert s["ts"] - 0.01 <= i["ts"] and i["ts"] + i["dur"] <= s["ts"] + s["dur"] + 0.01
    for s in steps:
        a = s["args"]
        assert 1 <= a["decodes"] + a["prefills"] <= 4 and a["tokens"] >= a["decodes"] + a["prefills"]
        assert a["logit_rows"] <= a["tokens"]
    for before, after in zip(steps, steps[1:]):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.01
    cache = [e["args"] for e in events if e["name"] == "cache"]
    assert len(cache) > len(steps)  # and one whenever nothing is left to do
    assert all(c["blocks in use"] + c["blocks free"] == 40 for c in cache)
    assert cache[-1]["blocks in use"] == 0
    assert [e["args"] for e in events if e["name"] == "requests"][-1] == {"running": 0, "waiting": 0}

    # Each request is one pair of events with its phases inside, in order.
    requests = {e["id"]: e for e in events if e["name"].startswith("request ") and e["ph"] == "b"}
    assert len(requests) == 3 + 2 * len(cases()) + 1
    outputs = sum(r["args"]["output"] for r in requests.values())
    assert outputs >= 90 + many["usage"]["completion_tokens"]
    assert sum(r["args"]["finish"] == "cancelled" for r in requests.values()) == 1
    for ident, begin in requests.items():
        end = [e["ts"] for e in events if e.get("id") == ident and e["ph"] == "e" and e["name"] == begin["name"]]
        at = {(e["name"], e["ph"]): e["ts"] for e in events if e.get("id") == ident}
        assert len(end) == 1
        times = [begin["ts"], at["queued", "b"], at["queued", "e"], at["prefill", "b"], at["prefill", "e"],
                 at["decode", "b"], at["decode", "e"], end[0]]
        assert times == sorted(times) and times[0] == times[1] and times[-1] == times[-2]
    # Every sampled token was in a step: the decodes of a step are tokens of requests, prefills give at most one each.
    assert sum(s["args"]["decodes"] for s in steps) <= outputs <= sum(s["args"]["logit_rows"] for s in steps) + 8


def test_trace_of_a_command(model, tmp_path):
    file = tmp_path / "trace.json"
    result = run("generate", model, "-p", PROMPT, "-n", "5", "--trace", file)
    assert result.returncode == 0, result
    events = read(file)
    assert len(spans(events, "step")) == 5
    assert [e["args"]["output"] for e in events if e["ph"] == "b" and "args" in e] == [5]


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("generate", "-p", PROMPT)])
def test_trace_that_cannot_be_written(model, command):
    result = run(command[0], model, *command[1:], "--trace", "/nonexistent/trace.json")
    assert result.returncode == 2 and "/nonexistent/trace.json" in result.stderr, result


def test_full_disk_ends_the_trace_only(start):
    server = start("--trace", "/dev/full")
    assert server.complete(PROMPT, max_tokens=20)["choices"][0]["text"]
    assert server.complete(PROMPT, max_tokens=20)["choices"][0]["text"]
    assert "the trace ends here" in server.tail()
