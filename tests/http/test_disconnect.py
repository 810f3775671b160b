"""Clients that vanish: at any moment, in any way. Nothing leaks, and nobody else notices."""

import contextlib
import os
import random
import socket
import threading
import time

import pytest

from goldens import cases, expected
from process import SANITIZED, SLOW, WITH_TSAN
from wire import Folded, Stream, outcome, parse_events, request_bytes, wait_for

PROMPT = "Once upon a time"
COUNT = int(os.environ.get("QUIRE_DISCONNECTS") or (100 if WITH_TSAN else 300))
LONG = {"max_tokens": 1500, "ignore_eos": True, "temperature": 0}
PATH = "/v1/completions"


def leave(conn, how):
    if how == "rst":
        conn.reset()
    elif how == "fin":
        conn.close()
    else:  # half-closed, and gone a little later
        with contextlib.suppress(OSError):  # where the server has left first
            conn.sock.shutdown(socket.SHUT_WR)
        time.sleep(0.01)
        conn.close()


def vanish(server, dice):
    """One client that sends a request, or part of it, and leaves at a random moment."""
    body = dict(LONG, prompt=[1] + [dice.randrange(5, 512) for _ in range(dice.choice([1, 20, 200, 480]))])
    body["stream"] = dice.random() < 0.6
    body["n"] = dice.choice([1, 1, 1, 3])
    if dice.random() < 0.3:
        body["logprobs"] = 5
    if dice.random() < 0.15:
        body["padding"] = "x" * 200_000  # large bodies take another way
    data = server.bytes("POST", PATH, body)
    conn = server.connect()
    how = dice.choice(["rst", "fin", "half"])
    try:
        moment = dice.random()
        if moment < 0.1:
            conn.send(data[: dice.randrange(len(data))])
        else:
            conn.send(data)
            if moment < 0.6:
                time.sleep(dice.random() ** 3 * 0.2)  # queued, in prefill, or decoding
            elif body["stream"]:
                wanted = dice.randrange(1, 20_000)  # after some of the stream
                conn.sock.settimeout(5)
                while len(conn.buf) < wanted:
                    got = conn.sock.recv(4096)
                    if not got:
                        break
                    conn.buf += got
    except (TimeoutError, ConnectionError):
        pass
    leave(conn, how)


def storm(server, count, seed):
    mates = [dict(prompt=cases()[i]["prompt"], max_tokens=50, logprobs=2) for i in range(6)]
    mates[1] |= {"temperature": 1, "seed": 5}
    alone = [outcome(server.complete(**m)) for m in mates]
    problems, done = [], threading.Event()

    def mate(i):
        try:
            while not done.is_set():
                ask = server.stream if i % 2 else server.complete
                assert outcome(ask(**mates[i])) == alone[i], f"mate {i} got something else"
        except BaseException as problem:  # shown by the main thread
            problems.append(problem)

    def leaver(number):
        dice = random.Random(seed * 1000 + number)
        try:
            for _ in range(count // 8 + 1):
                vanish(server, dice)
        except BaseException as problem:
            problems.append(problem)

    friends = [threading.Thread(target=mate, args=(i,)) for i in range(6)]
    leavers = [threading.Thread(target=leaver, args=(i,)) for i in range(8)]
    for thread in friends + leavers:
        thread.start()
    for thread in leavers:
        thread.join()
    done.set()
    for thread in friends:
        thread.join()
    assert not problems, problems[0]
    assert server.alive(), server.tail()
    server.wait_idle()
    for i, m in enumerate(mates):
        assert outcome(server.complete(**m)) == alone[i]


def test_storm(start):
    """Hundreds of clients leave at random; the others' answers are the same bits, and all memory comes back."""
    storm(start("--max-num-seqs", "8"), COUNT, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_storm_in_a_tiny_cache(start):
    """The same with so little cache that requests are preempted all the time."""
    storm(
        start("--max-num-seqs", "16", "--num-kv-blocks", "140", "--max-num-batched-tokens", "64"),
        2000,
        seed=2,
    )


def watch(server, name, wanted):
    wait_for(f"{name} in {wanted}", lambda: server.metrics().value(name) in wanted)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["rst", "fin", "half"])
def test_running_requests_are_aborted(start, stream, how):
    """A request whose client has left stops being computed: streaming or not."""
    server = start("--max-num-seqs", "4", env=SLOW)
    total = 24
    conns = []
    for _ in range(total):
        conn = server.connect()
        conn.send(server.bytes("POST", PATH, dict(LONG, prompt=PROMPT, stream=stream)))
        conns.append(conn)
    watch(server, "vllm:num_requests_running", [4])
    for conn in conns:
        leave(conn, how)
    m = server.wait_idle()
    made = m.value("vllm:generation_tokens_total")
    assert made < total * LONG["max_tokens"] * 0.7, f"{made} tokens for nobody"
    assert server.complete(PROMPT, max_tokens=20)["choices"][0]["text"] == expected(0, 20)


def test_a_crowd_that_leaves(start):
    """200 long requests given up after half a second; then one more is answered at once."""
    server = start()
    conns = []
    for _ in range(200):
        conn = server.connect()
        conn.send(server.bytes("POST", PATH, dict(LONG, prompt=PROMPT)))
        conns.append(conn)
    time.sleep(0.5)
    for i, conn in enumerate(conns):
        leave(conn, ("rst", "fin")[i % 2])
    answer = server.complete(PROMPT, max_tokens=20)
    assert answer["choices"][0]["text"] == expected(0, 20)
    server.wait_idle()


def test_one_of_a_list_of_prompts(start):
    """All choices of one request end with its client."""
    server = start(env=SLOW)
    conn = server.connect()
    conn.send(server.bytes("POST", PATH, dict(LONG, prompt=[PROMPT] * 8, n=4, temperature=1)))
    watch(server, "vllm:num_requests_running", range(8, 33))
    conn.reset()
    server.wait_idle()


def test_slow_readers_disturb_nobody(start):
    """Clients that do not read their streams: others get the same bits; when they leave all comes back."""
    server = start()
    slow = []
    for i in range(12):
        conn = server.connect(rcvbuf=4096)
        conn.send(server.bytes("POST", PATH, dict(LONG, prompt=PROMPT, stream=True, logprobs=20, n=2)))
        slow.append(conn)
    for _ in range(1 if SANITIZED else 4):
        for i in range(6):
            assert server.complete(cases()[i]["prompt"], max_tokens=40)["choices"][0]["text"] == expected(
                i, 40
            )
            assert server.stream(cases()[i]["prompt"], max_tokens=40).choices[0]["text"] == expected(i, 40)
    for conn in slow:
        conn.reset()
    server.wait_idle()


def test_a_slow_reader_gets_everything(start):
    """A stream that is paused by its reader goes on and is complete."""
    server = start()
    count = 400 if WITH_TSAN else 1000
    whole = server.complete(PROMPT, max_tokens=count, ignore_eos=True)["choices"][0]["text"]
    conn = server.connect(rcvbuf=4096)
    conn.send(server.bytes("POST", PATH, dict(LONG, prompt=PROMPT, stream=True, max_tokens=count)))
    time.sleep(2)
    folded = Folded(Stream(conn).finish())
    conn.close()
    assert folded.choices[0]["text"] == whole
    server.wait_idle()


def test_a_slow_reader_gets_every_number(start):
    """The same with log-probabilities: what gathers while the reader sleeps comes in larger chunks, and is all there."""
    server = start()
    fields = dict(LONG, prompt=PROMPT, logprobs=5, max_tokens=400 if WITH_TSAN else 1200)
    whole = outcome(server.post(PATH, fields).json())
    for pause in (0.5, 2):
        with server.connect(rcvbuf=4096) as conn:
            conn.send(server.bytes("POST", PATH, dict(fields, stream=True)))
            time.sleep(pause)
            reply = conn.read_reply()
        assert reply.status == 200
        assert outcome(Folded(parse_events(reply.body))) == whole
    server.wait_idle()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_reader_that_stopped_is_given_up(start):
    """A stream that nobody reads holds its memory for a while, not for ever: it is ended after a minute or two."""
    server = start()
    conns = []
    for n in (1, 8):
        conns.append(server.connect(rcvbuf=4096))
        conns[-1].send(server.bytes("POST", PATH, dict(LONG, prompt=PROMPT, stream=True, logprobs=20, n=n)))
    server.wait_idle(200)
    end = time.monotonic() + 200
    while server.metrics().value("quire:streams") > 0:
        assert time.monotonic() < end, "the stream is still kept"
        time.sleep(1)
    for conn in conns:
        conn.close()


def test_http_1_0_clients_that_leave(start):
    server = start("--max-num-seqs", "2", env=SLOW)
    for i in range(20):
        conn = server.connect()
        body = dict(LONG, prompt=PROMPT, stream=bool(i % 2))
        conn.send(request_bytes("POST", PATH, body, host=server.host_header, version="HTTP/1.0"))
        time.sleep(0.01)
        leave(conn, ("rst", "fin")[i % 2])
    made = server.wait_idle().value("vllm:generation_tokens_total")
    assert made < 20 * LONG["max_tokens"] * 0.7


def test_a_large_body_whose_client_leaves(start):
    """Bodies that are read and parsed aside: leaving in the middle of that is no trouble either."""
    server = start()
    data = server.bytes("POST", PATH, dict(LONG, prompt=PROMPT, stream=True, padding="x" * 3_000_000))
    for i in range(24):
        conn = server.connect()
        conn.send(data if i % 3 else data[: 1_000_000 + i])
        time.sleep(i * 0.0005)
        leave(conn, ("rst", "fin", "half")[i % 3])
    server.wait_idle()
    assert server.complete(PROMPT, max_tokens=20)["choices"][0]["text"] == expected(0, 20)


def test_leaving_between_requests(start):
    """A kept connection that is closed between requests, and one closed after a pipelined request."""
    server = start()
    for i in range(30):
        conn = server.connect()
        conn.send(server.bytes("POST", PATH, {"prompt": PROMPT, "max_tokens": 3}))
        conn.read_reply()
        if i % 2:
            conn.send(
                server.bytes("POST", PATH, dict(LONG, prompt=PROMPT))
                + server.bytes("POST", PATH, dict(LONG, prompt=PROMPT))
            )
        leave(conn, ("rst", "fin", "half")[i % 3])
    server.wait_idle()
