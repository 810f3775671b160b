"""Responses in the background: they go on without a client, are asked for by their id, read again from any event on, cancelled, and a server that
ends under them says so afterwards."""

import json
import shutil
import signal

import openai
import pytest

from process import SLOW
from wire import check_error, parse_event, strict_json, wait_for

PATH = "/v1/responses"
STORY = {"input": "Tell me a story", "temperature": 0, "background": True, "ignore_eos": True}
ENDS = ("completed", "failed", "cancelled", "incomplete")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def keep(start, folder):
    return lambda *flags, **options: start("--store", "8M", "--store-dir", folder, *flags, model="", **options)


@pytest.fixture(params=["memory", "folder"])
def slow(request, start, folder):
    """A server whose steps are slow, with and without a folder."""
    where = ["--store-dir", folder] if request.param == "folder" else []
    return start("--store", "8M", *where, model="", env=SLOW)


def client(server, key="EMPTY"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=60)


def begin(server, headers=(), **fields):
    reply = server.post(PATH, STORY | fields, headers=headers)
    assert reply.status == 200, reply
    return reply.json()


def state(server, one, headers=()):
    return server.get(f"{PATH}/{one}", headers=headers).json()


def ended(server, one, headers=()):
    wait_for("an end", lambda: state(server, one, headers)["status"] in ENDS)
    return state(server, one, headers)


class Follower:
    """Reads events one by one, and may leave amid them."""

    def __init__(self, server, method, path, body=None):
        self.conn = server.connect()
        self.conn.send(server.bytes(method, path, body))
        head = self.conn.read_head()
        assert head.status == 200, head
        assert head.header("content-type") == "text/event-stream; charset=utf-8"

    def __iter__(self):
        while chunk := self.conn.read_chunk():
            event = parse_event(chunk[:-2])
            if event is not None:
                yield event

    def upto(self, number):
        events = []
        for event in self:
            events.append(event)
            if event["sequence_number"] == number:
                break
        self.conn.close()
        return events


def follow(server, one, after=None):
    return Follower(server, "GET", f"{PATH}/{one}?stream=true" + ("" if after is None else f"&starting_after={after}"))


def test_polled(slow):
    with client(slow) as c:
        first = c.responses.create(model="quire-tiny", input="What is the capital of Norway?", temperature=0, background=True)
        assert (first.status, first.background, first.store, first.output) == ("queued", True, True, [])
        wait_for("an end", lambda: c.responses.retrieve(first.id).status not in ("queued", "in_progress"))
        done = c.responses.retrieve(first.id)
        plain = c.responses.create(model="quire-tiny", input="What is the capital of Norway?", temperature=0)
        assert done.status == "completed" and done.output_text == plain.output_text and done.usage.total_tokens == plain.usage.total_tokens
        assert [item.content[0].text for item in c.responses.input_items.list(first.id)] == ["What is the capital of Norway?"]
        more = c.responses.create(model="quire-tiny", input="And of Sweden?", previous_response_id=first.id)
        assert more.usage.input_tokens > done.usage.input_tokens
        with pytest.raises(openai.BadRequestError) as caught:  # as OpenAI has it
            list(c.responses.retrieve(first.id, stream=True))
        assert caught.value.param == "stream"


def test_stages(slow):
    one = begin(slow, max_output_tokens=60)["id"]
    wait_for("tokens", lambda: state(slow, one)["status"] == "in_progress")
    check_error(slow.post(PATH, {"input": "a", "previous_response_id": one}), 400, "previous_response_id")
    assert slow.get(f"{PATH}/{one}/input_items").json()["data"][0]["content"][0]["text"] == "Tell me a story"
    done = ended(slow, one)
    assert done["status"] == "incomplete" and done["usage"]["output_tokens"] == 60 and done["output"]


def test_taken_up_again(slow):
    """By openai's client, as its documentation has it: after a break while it runs, at its end, and long after."""
    with client(slow) as c:
        stream = c.responses.create(model="quire-tiny", input="Tell me a story", temperature=0, background=True, stream=True, max_output_tokens=40,
                                    extra_body={"ignore_eos": True})  # fmt: skip
        seen = []
        for event in stream:
            seen.append(event)
            if event.sequence_number == 9:
                break
        stream.close()
        one = seen[0].response.id
        assert [e.type for e in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
        assert c.responses.retrieve(one).status == "in_progress"
        seen += c.responses.retrieve(one, stream=True, starting_after=9)
        assert [e.sequence_number for e in seen] == list(range(len(seen))) and seen[-1].type == "response.incomplete"
        final = seen[-1].response
        text = "".join(e.delta for e in seen if e.type == "response.output_text.delta")
        assert text == final.output_text and final.usage.output_tokens == 40 and c.responses.retrieve(one) == final
        for after in (0, 9, len(seen) - 2, len(seen) - 1):
            assert list(c.responses.retrieve(one, stream=True, starting_after=after)) == seen[after + 1 :]
        assert list(c.responses.retrieve(one, stream=True)) == seen
        with c.responses.stream(response_id=one, starting_after=9) as again:
            assert [e.sequence_number for e in again] == list(range(10, len(seen)))


def test_many_readers(slow):
    """All see the same, wherever they begin, leave and come back; one that never reads holds up nobody."""
    first = Follower(slow, "POST", PATH, STORY | {"stream": True, "max_output_tokens": 80})
    (created,) = first.upto(0)
    one = created["response"]["id"]
    idle = follow(slow, one)
    readers = [follow(slow, one, after) for after in range(12)]
    cut = [created] + follow(slow, one, 0).upto(20)
    parts = [list(reader) for reader in readers]
    whole = list(follow(slow, one))
    assert [e["sequence_number"] for e in whole] == list(range(len(whole))) and len(whole) > 80
    assert whole[: len(cut)] == cut and all(part == whole[k + 1 :] for k, part in enumerate(parts))
    assert list(idle) == whole and slow.metrics().value("quire:disconnects_total") == 0


def test_a_plain_stream_ends_with_its_client(slow):
    """Rule 12 stays: without `background` nobody can come back."""
    stream = Follower(slow, "POST", PATH, STORY | {"background": False, "stream": True, "max_output_tokens": 900})
    one = next(iter(stream))["response"]["id"]
    stream.conn.close()
    wait_for("the end", lambda: slow.metrics().value("quire:disconnects_total") == 1)
    check_error(slow.get(f"{PATH}/{one}"), 404)
    kept = slow.post(PATH, {"input": "Hello", "stream": True}).body.decode()
    done = json.loads(kept.rstrip().rsplit("data: ", 1)[1])["response"]["id"]
    check_error(slow.get(f"{PATH}/{done}?stream=true"), 400, "stream")
    check_error(slow.post(f"{PATH}/{done}/cancel", {}), 400)


@pytest.mark.parametrize("stream", [False, True])
def test_cancelled(slow, stream):
    if stream:
        reader = Follower(slow, "POST", PATH, STORY | {"stream": True, "max_output_tokens": 900})
        one = next(iter(reader))["response"]["id"]
    else:
        one = begin(slow, max_output_tokens=900)["id"]
    wait_for("tokens", lambda: state(slow, one)["status"] == "in_progress")
    with client(slow) as c:
        cut = c.responses.cancel(one)
        assert cut.status == "cancelled"
        wait_for("the record", lambda: c.responses.retrieve(one).output == cut.output)
        assert c.responses.cancel(one) == c.responses.retrieve(one) == cut
    slow.wait_idle()
    if stream:
        last = list(reader)[-1]
        assert last["type"] == "response.incomplete" and last["response"]["status"] == "cancelled" and last["response"]["output"]
        assert list(follow(slow, one))[-1] == last
    check_error(slow.post(f"{PATH}/{one}x/cancel", {}), 404)
    check_error(slow.get(f"{PATH}/{one}/cancel"), 405)


@pytest.mark.parametrize("stream", [False, True])
def test_deleted(slow, folder, stream):
    """It ends with that, and nothing of it stays."""
    if stream:
        reader = Follower(slow, "POST", PATH, STORY | {"stream": True, "max_output_tokens": 900})
        one = next(iter(reader))["response"]["id"]
    else:
        one = begin(slow, max_output_tokens=900)["id"]
    assert slow.call("DELETE", f"{PATH}/{one}").status == 200
    slow.wait_idle()
    wait_for("the end", lambda: slow.metrics().value("quire:streams") == 0)
    check_error(slow.get(f"{PATH}/{one}"), 404)
    assert slow.metrics().value("quire:stored_responses") == 0 and not list(folder.glob("*.response"))
    if stream:
        assert list(reader)[-1]["response"]["status"] == "cancelled"


def test_it_fails(start, folder):
    """An engine that fails it is told in its record and its stream."""
    server = start("--store", "1M", "--store-dir", folder, model="")
    forbidden = {"input": "Hello", "background": True, "logit_bias": {}, "allowed_token_ids": [0], "bad_words": [], "min_tokens": 4}
    one = server.post(PATH, forbidden | {"structured_outputs": {"regex": "[0-9]"}})
    assert one.status in (200, 400), one  # a constraint that leaves nothing is told at once, or later
    for stream in (False, True):
        body = {"input": "Hello", "background": True, "stream": stream, "structured_outputs": {"regex": "(a|aa)*b"}, "allowed_token_ids": [1]}
        reply = server.post(PATH, body)
        assert reply.status == 200, reply
        if stream:
            events = [parse_event(part) for part in reply.body.split(b"\n\n") if part]
            failed = events[-1]["response"]
            assert [e["type"] for e in events[-2:]] == ["error", "response.failed"]
            assert list(follow(server, failed["id"])) == events
        else:
            failed = ended(server, reply.json()["id"])
        assert failed["status"] == "failed" and failed["error"]["code"] == "invalid_prompt"
        assert state(server, failed["id"]) == failed


def test_two_keys(start, folder):
    server = start("--store", "1M", "--store-dir", folder, "--api-key", "first", "--api-key", "second", key="first", model="", env=SLOW)
    other = {"Authorization": "Bearer second"}
    one = begin(server, stream=False, max_output_tokens=200)["id"]
    for method, path in (("GET", ""), ("GET", "?stream=true"), ("GET", "/input_items"), ("DELETE", ""), ("POST", "/cancel")):
        check_error(server.call(method, f"{PATH}/{one}{path}", {} if method == "POST" else None, headers=other), 404)
    assert state(server, one)["status"] in ("queued", "in_progress")
    assert server.post(f"{PATH}/{one}/cancel", {}).json()["status"] == "cancelled"


def test_refused(start, tiny):
    check_error(tiny.post(PATH, {"input": "a", "background": True}), 400, "background", code="unsupported_parameter")
    server = start("--store", "1M", model="")
    check_error(server.post(PATH, {"input": "a", "background": True, "store": False}), 400, "background", code="unsupported_parameter")
    check_error(server.post(PATH, {"input": "a", "background": 1}), 400, "background")
    check_error(server.post("/v1/chat/completions", {"messages": [], "background": True}), 400, "background")
    one = Follower(server, "POST", PATH, {"input": "Hello", "background": True, "stream": True}).upto(0)[0]["response"]["id"]
    ended(server, one)
    assert server.post(f"{PATH}/compact", {"input": "Hello", "background": True}).status == 200  # it has none
    assert server.call("HEAD", f"{PATH}/{one}?stream=true").status == 200 == server.call("HEAD", f"{PATH}/{one}").status
    for bad in ("x", "-1", "", "1.5", "99999999999999999999"):
        check_error(server.get(f"{PATH}/{one}?stream=true&starting_after={bad}"), 400, "starting_after")


def test_a_queue_that_is_full(start):
    """In the background they wait like all others, and the queue is their bound."""
    server = start("--store", "1M", "--max-num-seqs", "1", "--max-num-queued-seqs", "2", model="", env=SLOW)
    replies = [server.post(PATH, STORY | {"max_output_tokens": 900}) for _ in range(5)]
    assert [reply.status for reply in replies] == [200, 200, 200, 503, 503]
    queued = [reply.json()["id"] for reply in replies[:3]]
    assert state(server, queued[2])["status"] == "queued"
    for one in reversed(queued):
        assert server.post(f"{PATH}/{one}/cancel", {}).json()["status"] == "cancelled"
    server.wait_idle()
    assert server.post(PATH, {"input": "Hello"}).status == 200


def test_restart(keep):
    """Events are there again, with their numbers."""
    server = keep()
    seen = [strict_json(json.dumps(e)) for e in Follower(server, "POST", PATH, STORY | {"stream": True, "max_output_tokens": 30})]
    one = seen[0]["response"]["id"]
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.kill()
    server = keep()
    assert list(follow(server, one)) == seen and list(follow(server, one, 12)) == seen[13:]
    assert state(server, one) == seen[-1]["response"]


@pytest.mark.parametrize("stream", [False, True])
def test_killed_while_it_is_made(keep, stream):
    """Its record says that it has failed, and a reader who comes back is told, too."""
    server = keep(env=SLOW)
    if stream:
        seen = Follower(server, "POST", PATH, STORY | {"stream": True, "max_output_tokens": 900}).upto(15)
        one = seen[0]["response"]["id"]
    else:
        one = begin(server, max_output_tokens=900)["id"]
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.kill()
    for _ in range(2):
        server = keep()
        failed = state(server, one)
        assert failed["status"] == "failed" and failed["error"] == {"code": "server_error", "message": "The server ended while it made this response."}
        assert server.post(f"{PATH}/{one}/cancel", {}).json() == failed
        if stream:
            (last,) = follow(server, one, 15)
            assert last["type"] == "response.failed" and last["response"] == failed
            assert [e["type"] for e in follow(server, one)] == ["response.created", "response.queued", "response.failed"]
        server.stop()


@pytest.mark.parametrize("stream", [False, True])
def test_drained(keep, stream):
    """SIGTERM lets one end that can, and says of another that it could not."""
    for limit, seconds, status in ((20, 60, "incomplete"), (900, 1, "failed")):
        server = keep("--drain-timeout", seconds, env=SLOW)
        if stream:
            reader = Follower(server, "POST", PATH, STORY | {"stream": True, "max_output_tokens": limit})
            one = next(iter(reader))["response"]["id"]
        else:
            one = begin(server, max_output_tokens=limit)["id"]
        server.signal()
        if stream:
            assert list(reader)[-1]["response"]["status"] == status
        server.wait()
        server.stop()
        server = keep()
        assert state(server, one)["status"] == status
        server.stop()


def test_a_disk_that_takes_nothing(keep, folder):
    """It is made all the same, and says that it will not outlive the server."""
    server = keep()
    shutil.rmtree(folder)
    one = begin(server, max_output_tokens=5)
    done = ended(server, one["id"])
    assert done["status"] == "incomplete" and done["store"] is False and done["output"]
