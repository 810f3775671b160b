"""/v1/cache/events: an index that is made of nothing else predicts what hits."""

import http.client
import json
import random
import threading

from goldens import BOS
from wire import wait_for

PATH = "/v1/cache/events"


class Index:
    """As a router has it: blocks by their parents and tokens, of group 0."""

    def __init__(self, server, key=None):
        self.hashes, self.children, self.batches, self.cleared, self.ended = {}, {}, 0, 0, False
        self.lock = threading.Lock()
        conn = http.client.HTTPConnection(*server.address)
        conn.request("GET", PATH, headers={"Authorization": f"Bearer {key}"} if key else {})
        self.stream = conn.getresponse()
        assert self.stream.status == 200 and self.stream.getheader("content-type") == "text/event-stream; charset=utf-8"
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.stream:
            if line.startswith(b"data: "):
                with self.lock:
                    self.batches += 1
                    for event in json.loads(line[6:])["events"]:
                        self.apply(event)
        self.ended = True

    def apply(self, event):
        if event["type"] == "AllBlocksCleared":
            self.hashes, self.children = {}, {}
            self.cleared += 1
            return
        assert event["group_idx"] == 0 and event["medium"] == "CPU"
        (name,) = event["block_hashes"]
        if event["type"] == "BlockRemoved":
            self.children.pop(self.hashes.pop(name, None), None)
            return
        assert event["type"] == "BlockStored" and len(event["token_ids"]) == event["block_size"] == 16
        self.hashes[name] = (event["parent_block_hash"], tuple(event["token_ids"]))
        self.children[self.hashes[name]] = name

    def predict(self, prompt):
        with self.lock:
            parent, at = None, 0
            while at + 16 < len(prompt) and (parent := self.children.get((parent, tuple(prompt[at : at + 16])))):
                at += 16
            return at


def prompts(seed, count):
    """With beginnings that some share."""
    some = random.Random(seed)
    stems = [[BOS] + [some.randrange(5, 500) for _ in range(some.randrange(20, 120))] for _ in range(12)]
    for _ in range(count):
        stem = some.choice(stems)
        yield stem[: some.randrange(1, len(stem))] + [some.randrange(5, 500) for _ in range(some.randrange(1, 80))]


def cached(server, prompt):
    return server.post("/v1/cache/explain", {"prompt": prompt}).json()["cached_tokens"]


def test_predicts(start):
    server = start("--num-kv-blocks", "120", "--max-model-len", "256")
    server.complete([BOS] + list(range(10, 90)), max_tokens=1)  # before anybody asks
    index = Index(server)
    wait_for("the first pages", lambda: index.predict([BOS] + list(range(10, 90))) == 80, seconds=30)
    for i, prompt in enumerate(prompts(7, 1500)):
        if i % 3 == 0:
            server.complete(prompt, max_tokens=4)
            wait_for("its blocks", lambda p=prompt: index.predict(p) == (len(p) - 1) // 16 * 16, seconds=30)
        else:  # what its last tokens evicted may be told a little later
            wait_for("what hits", lambda p=prompt: index.predict(p) == cached(server, p), seconds=30)
    assert index.cleared == 1
    late = Index(server)
    wait_for("all pages", lambda: set(late.hashes) == set(index.hashes), seconds=30)
    assert late.children == index.children and len(late.hashes) > 50
    assert server.metrics().value("quire:evictions_total") > 50


def test_it_ends(start):
    server = start()
    index = Index(server)
    wait_for("the first event", lambda: index.batches)
    server.stop()  # a router that looks on keeps no server from stopping
    index.thread.join(20)
    assert not index.thread.is_alive() and index.ended  # with the last chunk


def test_who_may(start):
    """Tokens of every key's prompts are in it: with several keys it is for admins."""
    server = start("--api-key", "sk-one", "--api-key", "sk-two", "--admin-api-key", "sk-admin", key="sk-one")
    for key, status in (("sk-one", 403), ("no", 401)):
        conn = http.client.HTTPConnection(*server.address, timeout=20)
        conn.request("GET", PATH, headers={"Authorization": f"Bearer {key}"})
        reply = conn.getresponse()
        assert reply.status == status
        assert json.load(reply)["error"]["code"] == ("admin_key_required" if status == 403 else "invalid_api_key")
    index = Index(server, "sk-admin")
    wait_for("the first event", lambda: index.batches)
