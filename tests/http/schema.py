"""OpenAI's published schema: whether a value is what it says."""

import functools
import json

import jsonschema

from goldens import data


@functools.lru_cache
def components():
    return json.loads(data("api/openapi.json").read_text())["components"]["schemas"]


def nullable(schema):
    """Translates OpenAPI 3.0's `nullable` to JSON Schema."""
    if isinstance(schema, list):
        return [nullable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {key: nullable(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [rest, {"type": "null"}]} if schema.get("nullable") is True else rest


@functools.lru_cache
def validator(name, streamed=False):
    schemas = {n: nullable(components()[n]) for n in needed(name)}
    if streamed:  # chunks of completions share the schema of whole responses, but a choice that goes on has no finish_reason
        whole = schemas["CreateCompletionResponse"]["properties"]
        choice = whole["choices"]["items"]["properties"]
        for members, key in ((choice, "finish_reason"), (whole, "usage")):
            members[key] = {"anyOf": [members[key], {"type": "null"}]}
    spec = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    return jsonschema.Draft202012Validator(spec)


def validate(value, name, streamed=False):
    problems = [f"{e.json_path}: {e.message[:400]}" for e in validator(name, streamed).iter_errors(value)]
    assert not problems, f"not a {name}: {problems}"


@functools.lru_cache
def event_names():
    """type of an event of /v1/responses: its schema."""
    names = [one["$ref"].split("/")[-1] for one in components()["ResponseStreamEvent"]["anyOf"]]
    return {components()[name]["properties"]["type"]["enum"][0]: name for name in names}


def validate_event(value):
    validate(value, event_names()[value["type"]])


@functools.lru_cache
def needed(name):
    """The schema and all that it refers to."""
    names, queue = set(), [name]
    while queue:
        one = queue.pop()
        if one in names:
            continue
        names.add(one)
        text = json.dumps(components()[one])
        queue += [part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]]
    return sorted(names)


# Whatever test asks these, a response is what the schema says.
BODIES = {
    "/v1/chat/completions": "CreateChatCompletionResponse",
    "/v1/embeddings": "CreateEmbeddingResponse",
    "/v1/models": "ListModelsResponse",
    "/v1/responses": "Response",
    "/v1/responses/input_tokens": "TokenCountsResource",
    "/v1/responses/compact": "CompactResource",
}
CHUNKS = {"/v1/chat/completions": "CreateChatCompletionStreamResponse"}


def check_reply(path, reply, event_of):
    """Validates a response of OpenAI's APIs, its body or each of its events. Of completions test_schema.py does, because log-probabilities of
    an echo begin with null, which OpenAI's own have and its schema does not."""
    kind = (reply.header("content-type") or "").split(";")[0]
    if path not in BODIES or reply.status != 200:
        return
    if kind == "application/json" and reply.body:
        body = reply.json()
        if path == "/v1/embeddings":  # the numbers are many, and not told of base64
            body["data"] = [{**one, "embedding": [0.5]} for one in body["data"][:1]]
        validate(body, BODIES[path])
    for chunk in reply.chunks or []:
        event = event_of(chunk[:-2])
        if isinstance(event, dict) and path in CHUNKS and "error" not in event:
            validate({k: v for k, v in event.items() if (k, v) != ("usage", None)}, CHUNKS[path])  # OpenAI's own have null
        elif isinstance(event, dict) and path not in CHUNKS:
            validate_event(event)
