"""Requests that clients have sent to OpenAI and others, recorded: each is served, as OpenAI's schema has it, or refused by name."""

import json
import re

import yaml
from goldens import ROOT, data
from schema import validate
from wire import check_error

# Our paths for those of a recording. wire.py validates responses.
PATHS = {"/chat/completions": "/v1/chat/completions", "/responses/input_tokens": "/v1/responses/input_tokens", "/responses": "/v1/responses"}
LIMITS = {"/v1/chat/completions": "max_completion_tokens", "/v1/responses": "max_output_tokens"}


def interactions():
    folder = data("api/cassettes")
    for file in sorted(folder.rglob("*.yaml")):
        for i, turn in enumerate(yaml.load(file.read_text(), yaml.CSafeLoader)["interactions"]):
            yield f"{file.relative_to(folder)}-{i}", turn["request"]


def recorded():
    """(name, path, body) of every request of the cassettes to these paths, the model aside; each body once."""
    found, seen = [], set()
    for name, request in interactions():
        path = next((p for p in PATHS if request["uri"].split("?")[0].endswith(p)), None)
        body = request.get("parsed_body") or json.loads(request.get("body") or "null")
        if path and request["method"] == "POST" and isinstance(body, dict):
            body.pop("model", None)
            text = path + json.dumps(body, sort_keys=True)
            if text not in seen:
                found.append((name, path, body))
            seen.add(text)
    return found


def test_recorded_requests(tiny):
    told = "".join((ROOT / f"docs/{page}.md").read_text() for page in ("api", "fields"))
    counts = {"served": 0, "refused": 0}
    for name, recorded_path, body in recorded():
        path = PATHS[recorded_path]
        if path in LIMITS:
            body = {LIMITS[path]: 12, "temperature": 0, **body}
            body[LIMITS[path]] = min(body[LIMITS[path]], 12)
        reply = tiny.post(path, body)
        if reply.status != 200:
            error = check_error(reply, 400)
            validate(reply.json(), "ErrorResponse")
            assert error["param"] and f"`{re.split(r'[.[]', error['param'])[0]}`" in told, (name, error)
            assert error["code"] in ("unsupported_parameter", "out_of_range", "template_error", "context_length_exceeded", None), (name, error)
            counts["refused"] += 1
        else:
            counts["served"] += 1
    assert counts["served"] >= 60 and counts["refused"] <= 44, counts


def test_other_paths(tiny):
    """Paths that are not served, as conversations, give a clean 4xx."""
    others = {(request["method"], request["uri"].split("openai.com")[1].split("?")[0]) for _, request in interactions()
              if "api.openai.com" in request["uri"] and not request["uri"].split("?")[0].endswith((*PATHS, "/responses/compact"))}  # fmt: skip
    assert len(others) >= 5
    for method, path in others:
        reply = tiny.call(method, path, b"{}" if method == "POST" else b"", headers={"Content-Type": "application/json"})
        assert reply.status in (404, 405), (method, path, reply)
        validate(reply.json(), "ErrorResponse")
