"""Responses in a folder (--store-dir): what a client was told is kept is there after a restart and after kill -9, for its key alone; files that are
no good are left alone, and a disk that takes nothing costs no answer."""

import contextlib
import errno
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import threading

import openai
import pytest

import goldens
from process import SANITIZED, Server, run
from wire import check_error, wait_for

PATH = "/v1/responses"
TWO_KEYS = ("--api-key", "first", "--api-key", "second")
OTHER = {"Authorization": "Bearer second"}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def keep(start, folder):
    """keep(*flags, size=, …): a server with the folder."""
    return lambda *flags, size="4M", model="", **options: start("--store", size, "--store-dir", folder, *flags, model=model, **options)


def ask(server, headers=(), **fields):
    reply = server.post(PATH, {"input": "Hello", "temperature": 0} | fields, headers=headers)
    assert reply.status == 200, reply
    return reply.json()


def files(folder):
    return sorted(folder.glob("*.response"))


def end(server, how):
    """As an operator does, or as the kernel does."""
    if how == signal.SIGTERM:
        server.stop()
    else:
        server.process.send_signal(how)
        server.process.wait()
        server.kill()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_restart(keep, folder, how):
    server = keep(*TWO_KEYS, key="first")
    with openai.OpenAI(base_url=server.url + "/v1", api_key="first", max_retries=0) as c:
        first = c.responses.create(model="quire-tiny", input="What is the capital of Norway?", temperature=0)
        with c.responses.stream(model="quire-tiny", input="And of Sweden?", temperature=0, previous_response_id=first.id) as stream:
            second = stream.get_final_response()
        gone = c.responses.create(model="quire-tiny", input="Hello")
        c.responses.delete(gone.id)
        items = c.responses.input_items.list(second.id, order="asc").data
    others = ask(server, OTHER)
    assert len(files(folder)) == 3
    end(server, how)
    server = keep(*TWO_KEYS, key="first")
    with openai.OpenAI(base_url=server.url + "/v1", api_key="first", max_retries=0) as c:
        assert c.responses.retrieve(first.id).model_dump() == first.model_dump()
        assert c.responses.retrieve(second.id).output_text == second.output_text
        assert c.responses.input_items.list(second.id, order="asc").data == items
        third = c.responses.create(model="quire-tiny", input="Thanks", temperature=0, previous_response_id=second.id)
        assert third.usage.input_tokens > second.usage.input_tokens
        for absent in (gone.id, others["id"]):
            with pytest.raises(openai.NotFoundError):
                c.responses.retrieve(absent)
    check_error(server.get(f"{PATH}/{first.id}", headers=OTHER), 404)
    check_error(server.call("DELETE", f"{PATH}/{first.id}", headers=OTHER), 404)
    check_error(server.post(PATH, {"input": "a", "previous_response_id": first.id}, headers=OTHER), 400, "previous_response_id",
                code="previous_response_not_found")  # fmt: skip
    assert server.get(f"{PATH}/{others['id']}", headers=OTHER).json() == others
    assert server.call("DELETE", f"{PATH}/{first.id}").status == 200 and len(files(folder)) == 3
    metrics = server.metrics()
    assert metrics.value("quire:stored_responses") == 3 and metrics.value("quire:unsaved_responses_total") == 0


def test_another_key_after_a_restart(keep):
    """Also where the server has one key at a time."""
    server = keep("--api-key", "first", key="first")
    one = ask(server)
    server.stop()
    server = keep("--api-key", "second", key="second")
    check_error(server.get(f"{PATH}/{one['id']}"), 404)
    server.stop()
    server = keep()  # without keys it knows nobody
    check_error(server.get(f"{PATH}/{one['id']}", headers={"Authorization": "Bearer first"}), 404)
    server.stop()
    assert keep("--api-key", "first", key="first").get(f"{PATH}/{one['id']}").json() == one


def test_modes_and_secrets(keep, folder):
    old = os.umask(0)
    try:
        ask(keep(*TWO_KEYS, key="first"))
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    digest = hashlib.sha256(b"first").digest()
    for path in folder.iterdir():
        text = path.read_bytes()
        assert digest not in text and digest.hex().encode() not in text and digest.hex() not in path.name


def test_killed_under_load(keep, folder):
    """Every response whose end a client has read is there after kill -9, whatever the server was doing."""
    told = {}
    chance = random.Random(7)

    def load(server, k, stop):
        with contextlib.suppress(OSError, AssertionError, ValueError):
            for i in range(100000):
                if stop.is_set():
                    return
                body = {"input": f"Say {k} {i}", "stream": k % 2 == 1, "max_output_tokens": 8}
                with server.connect() as conn:
                    conn.send(server.bytes("POST", PATH, body))
                    reply = conn.read_reply("POST")
                if reply.status != 200:
                    continue
                if k % 2 == 0:
                    told[reply.json()["id"]] = reply.json()
                elif b"event: response.completed" in reply.body or b"event: response.incomplete" in reply.body:
                    last = json.loads(reply.body.decode().rstrip().rsplit("data: ", 1)[1])["response"]
                    told[last["id"]] = last

    for _ in range(3 if SANITIZED else 6):
        server = keep(size="64M")
        for one, body in told.items():
            assert server.get(f"{PATH}/{one}").json() == body
        assert server.metrics().value("quire:skipped_response_files") == 0
        before, stop = len(told), threading.Event()
        threads = [threading.Thread(target=load, args=(server, k, stop)) for k in range(6)]
        for t in threads:
            t.start()
        more = before + chance.randint(1, 40)
        wait_for("responses", lambda: len(told) >= more)
        end(server, signal.SIGKILL)
        stop.set()
        for t in threads:
            t.join()
    server = keep(size="64M")
    assert all(server.get(f"{PATH}/{one}").json() == body for one, body in told.items())
    assert not list(folder.glob("*.new"))


def test_bounded(keep, folder):
    """The folder has what memory has, and no more."""
    server = keep(size="64K")
    ids = [ask(server, max_output_tokens=1)["id"] for _ in range(80)]
    there = [one for one in ids if server.get(f"{PATH}/{one}").status == 200]
    assert 10 < len(there) < 80 and there == ids[-len(there) :] and len(files(folder)) == len(there)
    assert sum(path.stat().st_size for path in files(folder)) <= 65536
    server.stop()
    server = keep(size="32K")  # less than before: the newest
    left = [one for one in ids if server.get(f"{PATH}/{one}").status == 200]
    assert 5 < len(left) < len(there) and left == ids[-len(left) :] and len(files(folder)) == len(left)
    newest = ask(server, max_output_tokens=1)["id"]
    assert server.get(f"{PATH}/{newest}").status == 200 and server.get(f"{PATH}/{left[0]}").status == 404


def test_damaged_and_foreign_files(keep, folder):
    server = keep()
    ids = [ask(server, metadata={"n": str(i)})["id"] for i in range(6)]
    server.stop()
    cut, flipped, renamed, empty, link, _ = files(folder)
    cut.write_bytes(cut.read_bytes()[:-1])
    data = bytearray(flipped.read_bytes())
    data[-5] ^= 1
    flipped.write_bytes(data)
    renamed.rename(folder / ("ab" * 32 + ".response"))
    empty.write_bytes(b"")
    link.rename(folder / "elsewhere")
    link.symlink_to(folder / "elsewhere")
    (folder / "notes.txt").write_text("mine")
    os.mkfifo(folder / ("cd" * 32 + ".response"))
    (folder / ("ef" * 32 + ".response")).mkdir()
    (folder / ("12" * 32 + ".new")).write_bytes(b"half")
    skipped = 9  # five files, what the link leads to, the text, the pipe, the folder
    for _ in range(2):  # they stay as they are
        server = keep()
        assert sum(server.get(f"{PATH}/{one}").status == 200 for one in ids) == 1
        assert server.metrics().value("quire:skipped_response_files") == skipped
        assert server.log().count(f"skipped_files={skipped}") == 1 and (folder / "notes.txt").read_text() == "mine"
        assert not list(folder.glob("*.new")) and server.get(f"{PATH}/{ask(server)['id']}").status == 200
        server.stop()


def test_a_head_that_lies(keep, folder):
    """Lengths beyond the file, and numbers of any size, are damage."""
    server = keep()
    one = ask(server)["id"]
    server.stop()
    (path,) = files(folder)
    good = path.read_bytes()
    for at in range(8 + 32, 8 + 32 + 40, 8):  # number, unfinished, three lengths
        path.write_bytes(good[:at] + b"\xff" * 8 + good[at + 8 :])
        server = keep()
        assert server.get(f"{PATH}/{one}").status == 404 and server.metrics().value("quire:skipped_response_files") == 1
        server.stop()
    path.write_bytes(good)
    assert keep().get(f"{PATH}/{one}").status == 200


def check_unsaved(server, one, times):
    """The answer is whole, and says that it is not stored; while the server runs it is there all the same."""
    assert one["store"] is False and one["status"] == "completed"
    kept = server.get(f"{PATH}/{one['id']}")
    assert kept.status == 200 and kept.json()["output"] == one["output"]
    assert server.metrics().value("quire:unsaved_responses_total") == times
    assert server.log().count("stored=0") == 1


def stream_of(server, **fields):
    reply = server.post(PATH, {"input": "Hello", "temperature": 0, "stream": True} | fields)
    return json.loads(reply.body.decode().rstrip().rsplit("data: ", 1)[1])["response"]


def test_a_file_too_large(keep, folder):
    """`ulimit -f` ends no server."""
    server = keep(model=goldens.ROOT / "models/quire-tiny.gguf", prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000)))
    large = {str(i): "x" * 500 for i in range(16)}
    check_unsaved(server, ask(server, metadata=large), 1)
    assert stream_of(server, metadata=large)["store"] is False
    small = ask(server)
    assert small["store"] is True and server.log().count("stored=1") == 1
    assert len(files(folder)) == 1
    assert not list(folder.glob("*.new"))
    server.stop()
    assert keep().get(f"{PATH}/{small['id']}").json() == small


def test_no_folder_any_more(keep, folder):
    server = keep()
    shutil.rmtree(folder)
    check_unsaved(server, ask(server), 1)
    check_unsaved(server, stream_of(server), 2)
    one = ask(server)
    body = {"input": "And?", "previous_response_id": one["id"]}
    assert server.post(PATH, body).status == 200
    assert server.call("DELETE", f"{PATH}/{one['id']}").status == 200


def test_a_full_disk(keep, folder):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k,mode=0700", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        server = keep()
        stored = [ask(server, max_output_tokens=1) for _ in range(40)]
        there = [one for one in stored if one["store"]]
        assert 2 < len(there) < 40 and os.strerror(errno.ENOSPC) in server.log()
        assert server.call("DELETE", f"{PATH}/{there.pop()['id']}").status == 200  # makes room
        there.append(ask(server, max_output_tokens=1))
        assert there[-1]["store"] is True
        server.stop()
        server = keep()
        assert all(server.get(f"{PATH}/{one['id']}").json() == one for one in there)
        assert server.metrics().value("quire:stored_responses") == len(there)
        server.stop()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_one_server_a_folder(keep, folder):
    server = keep()
    one = ask(server)
    second = run("serve", "--port", "0", "--store", "1M", "--store-dir", folder)
    assert second.returncode == 2 and f"--store-dir {folder}: another server has it" in second.stderr
    assert server.get(f"{PATH}/{one['id']}").json() == one and ask(server)["store"] is True


def test_flags(tmp_path):
    alone = run("serve", "--port", "0", "--store-dir", tmp_path / "a")
    assert alone.returncode == 2 and "--store-dir needs --store BYTES" in alone.stderr and not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    for place, why in ((tmp_path / "file", errno.ENOTDIR), (tmp_path / "no/where", errno.ENOENT)):
        refused = run("serve", "--port", "0", "--store", "1M", "--store-dir", place)
        assert refused.returncode == 2 and f"--store-dir {place}: {os.strerror(why)}" in refused.stderr


def test_an_admin_key_sees_nothing(start):
    server = start("--store", "1M", "--api-key", "first", "--admin-api-key", "chief", key="first", model="")
    one = ask(server)["id"]
    assert server.get(f"{PATH}/{one}").status == 200
    check_error(server.get(f"{PATH}/{one}", headers={"Authorization": "Bearer chief"}), 401, code="invalid_api_key")
