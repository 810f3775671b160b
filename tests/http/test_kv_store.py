"""--kv-store: what a server computed is hit after a restart with the same bits, whatever became of the server or of DIR."""

import ctypes
import os
import random
import resource
import shutil
import threading
import time

import pytest

import goldens
from process import BINARY, Server, run
from test_lora import write_adapter
from wire import outcome, wait_for

MODELS = BINARY.parent / "tests/golden-models"  # of random weights
WARNING = "the KV store fails"
HEAD, RECORD = 24, 40 + 4 * 16  # bytes of an index: its head, and of each page
PAGE = 10240  # of stories260K
IDS = [(i * 15485863) % 500 + 5 for i in range(100)]


def prompt_of(i, n=100):
    rng = random.Random(i)
    return [rng.randrange(5, 500) for _ in range(n)]


def ask(server, prompt, key=None, **fields):
    """How many tokens were hit, and the answer."""
    body = {"prompt": prompt, "temperature": 0, "max_tokens": 12, "logprobs": 2} | fields
    reply = server.post("/v1/completions", body, headers={"Authorization": f"Bearer {key}"} if key else {})
    assert reply.status == 200, reply
    answer = reply.json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"], outcome(answer)


def files_in(folder):
    """Path and size of each file, which may go meanwhile."""
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.path.join(where, name), os.lstat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                pass


def pages_in(folder):
    return sum((size - HEAD) // RECORD for path, size in files_in(folder) if path.endswith(".index"))


def bytes_in(folder):
    return sum(size for _, size in files_in(folder))


def wait_for_pages(folder, n):
    wait_for(f"{n} pages", lambda: pages_in(folder) >= n)


# ---- restarts


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_restart(start, tmp_path, killed):
    flags = ["--kv-store", tmp_path / "kv"]
    server = start(*flags)
    computed = ask(server, IDS)
    hit = ask(server, IDS)
    assert computed[0] == 0 and hit[0] == 96 and hit[1] == computed[1]
    if killed:
        wait_for_pages(tmp_path / "kv", 6)
        server.kill()
    else:
        server.stop()
    again = start(*flags)
    assert ask(again, IDS) == hit
    assert ask(again, IDS + prompt_of(1))[0] == 96
    assert ask(again, [7] + IDS)[0] == 0
    assert ask(again, IDS, echo=True, max_tokens=0)[0] == 0  # log-probabilities of a prompt are computed
    assert ask(again, IDS, cache_salt="mine")[0] == 0
    assert (tmp_path / "kv").stat().st_mode & 0o777 == 0o700


FAMILIES = [
    ("gemma3", []), ("qwen35", []), ("granitehybrid", []), ("mamba2", ["--block-size", "16"]), ("deepseek2", []), ("gpt-oss", []), ("gemma3n", []), ("gemma4", []),
    ("gemma3", ["--kv-cache-dtype", "int8"]), ("", ["--kv-cache-dtype", "int8"]), ("", ["--kv-cache-dtype", "bf16", "--block-size", "32"]),
    ("qwen35", ["--speculative-method", "ngram"]), ("qwen35", ["--speculative-method", "mtp"]), ("glm4moe", ["--speculative-method", "mtp"]),
]  # fmt: skip


@pytest.mark.parametrize("family, flags", FAMILIES, ids=[" ".join([f or "stories", *x]) for f, x in FAMILIES])
def test_restart_of_families(start, tmp_path, family, flags):
    """Windows, states, latents, and cells of other types."""
    model = MODELS / f"{family}.gguf" if family else goldens.data(goldens.MODEL)
    if not model.exists():
        pytest.skip(f"no {model}: it is made by the tests' build")
    ids = [5 + i * i % 50 for i in range(150)]
    fields = dict(ignore_eos=True, max_tokens=20)
    flags = ["--max-model-len", 256, *flags]
    server = start("--kv-store", tmp_path, *flags, model=model)
    computed, hit = ask(server, ids, **fields), ask(server, ids, **fields)
    longer = ask(server, ids + ids[:40], **fields)
    assert hit[0] >= 96 and hit[1] == computed[1]
    server.stop()
    again = start("--kv-store", tmp_path, *flags, model=model)
    assert ask(again, ids + ids[:40], **fields)[1] == longer[1]
    again.stop()
    again = start("--kv-store", tmp_path, *flags, model=model)
    assert ask(again, ids, **fields) == hit
    again.stop()
    plain = start(*flags, model=model)
    assert ask(plain, ids, **fields) == computed


def test_restart_with_other_settings(start, tmp_path):
    """Cells of another type or size are no hit; and what was there is when they are back."""
    server = start("--kv-store", tmp_path)
    hit = [ask(server, IDS) for _ in range(2)][1]
    server.stop()
    for other in (["--kv-cache-dtype", "int8"], ["--block-size", "32"]):
        server = start("--kv-store", tmp_path, *other)
        assert ask(server, IDS)[0] == 0
        server.stop()
    assert ask(start("--kv-store", tmp_path), IDS) == hit


def test_adapters(start, tmp_path):
    """An adapter is known by what is in it."""
    for i in (1, 2):
        write_adapter(tmp_path / f"lora{i}", i)
    flags = ["--kv-store", tmp_path / "kv", "--served-model-name", "base", "--lora-modules"]
    server = start(*flags, f"a={tmp_path}/lora1")
    assert ask(server, IDS, model="a")[0] == 0 == ask(server, IDS, model="base")[0]
    hit, base = ask(server, IDS, model="a"), ask(server, IDS, model="base")
    assert hit[0] == base[0] == 96 and hit[1] != base[1]
    server.stop()
    server = start(*flags, f"another={tmp_path}/lora1")
    assert ask(server, IDS, model="another") == hit
    assert ask(server, IDS, model="base") == base
    server.stop()
    server = start(*flags, f"a={tmp_path}/lora2")
    other = ask(server, IDS, model="a")
    assert other[0] == 0 and other[1] != hit[1]
    server.stop()


def test_chat(start, tmp_path):
    body = {"messages": [{"role": "system", "content": "You answer in one word. " * 20}, {"role": "user", "content": "Which colour has the sky?"}],
            "temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}  # fmt: skip
    answers = []
    for _ in range(2):
        server = start("--kv-store", tmp_path, model="")
        answers += [server.post("/v1/chat/completions", body).json() for _ in range(2)]
        server.stop()
    cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
    assert cached[0] == 0 and cached[1] == cached[2] == cached[3] > 64
    assert all(a["choices"] == answers[0]["choices"] for a in answers)


def test_evicted(start, tmp_path):
    """Blocks that the cache let go come back, whether all of a prompt is gone or its end."""
    server = start("--kv-store", tmp_path, "--num-kv-blocks", 30)
    prompts = [prompt_of(i, 200) for i in range(5)]
    first = [ask(server, p) for p in prompts]
    assert all(cached == 0 for cached, _ in first)
    for i in (0, 1, 2, 3, 4, 0, 2, 4, 1, 3):
        assert ask(server, prompts[i]) == (192, first[i][1])
    half = [ask(server, prompt_of(9, 300)), ask(server, prompt_of(8, 190))]  # evicts the end of the one before
    assert ask(server, prompt_of(9, 300)) == (288, half[0][1])


def test_clients_that_leave(start, tmp_path):
    """Requests end while they fetch."""
    flags = ["--kv-store", tmp_path, "--num-kv-blocks", 60]
    server = start(*flags)
    first = [ask(server, prompt_of(i, 300)) for i in range(8)]
    for i in range(60):
        stream = server.open_stream(prompt_of(i % 8, 300), max_tokens=4)
        if i % 3:
            next(iter(stream))
        stream.conn.reset()
    server.wait_idle()
    for i in range(8):
        cached, answer = ask(server, prompt_of(i, 300))
        assert cached == 288 and answer == first[i][1]
    for i in range(20):  # and at its end
        server.open_stream(prompt_of(i % 8, 300), max_tokens=4)
    server.stop()


# ---- kills


@pytest.mark.parametrize("kills", [pytest.param(8, id="few"), pytest.param(200, id="many", marks=pytest.mark.slow)])
def test_killed_under_load(start, model, tmp_path, kills):
    """Whenever the server is killed, the next one gives no wrong bit."""
    rng = random.Random(kills)
    shared = prompt_of(100, 80)
    prompts = [shared[: rng.randrange(0, 80)] + prompt_of(i, rng.randrange(20, 200)) for i in range(24)]
    plain = start()
    want = [ask(plain, p, max_tokens=6)[1] for p in prompts]
    plain.stop()
    wrong, done, hits, starts = [], [0], [0], []

    def client(server, numbers):
        for i in numbers:
            try:
                cached, got = ask(server, prompts[i], max_tokens=6)
            except (AssertionError, OSError):  # it was killed
                return
            done[0] += 1
            hits[0] += cached > 0
            if got != want[i]:
                wrong.append((i, cached, got))

    for _ in range(kills):
        began = time.monotonic()
        server = Server("--kv-store", tmp_path, "--kv-store-size", 80 * PAGE, "--num-kv-blocks", 60, model=model)
        starts.append(time.monotonic() - began)
        threads = [threading.Thread(target=client, args=(server, rng.choices(range(24), k=1000))) for _ in range(4)]
        for t in threads:
            t.start()
        before = done[0]
        if rng.random() < 0.7:
            wait_for("an answer", lambda before=before: done[0] > before)
        time.sleep(rng.random() * 0.4)  # the moment of the kill
        server.kill()
        for t in threads:
            t.join()
        assert bytes_in(tmp_path) <= 80 * PAGE
    assert not wrong, wrong[:3]
    assert done[0] > kills / 2 and hits[0] > 0
    print(f"{kills} kills, {done[0]} answers, {hits[0]} with hits; starts of {min(starts):.2f} to {max(starts):.2f} s")
    server = start("--kv-store", tmp_path)
    assert all(ask(server, p, max_tokens=6)[1] == w for p, w in zip(prompts, want))


# ---- directories that fail


@pytest.fixture
def want(start):
    """Answers to prompts 0 to 19, and what they must be."""
    plain = start()
    return [ask(plain, prompt_of(i))[1] for i in range(20)]


def misses_at_worst(server, want, again=True):
    for i, answer in enumerate(want):
        assert ask(server, prompt_of(i))[1] == answer
    assert server.log().count(WARNING) <= 1
    if again:  # the cache itself goes on
        assert ask(server, prompt_of(len(want) - 1)) == (96, want[-1])


def test_limit_of_file_size(start, tmp_path, want):
    server = start("--kv-store", tmp_path, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150000, 150000)))
    misses_at_worst(server, want)
    assert server.log().count(WARNING) == 1
    assert max(size for _, size in files_in(tmp_path)) <= 150000
    server.stop()
    server = start("--kv-store", tmp_path)
    assert ask(server, prompt_of(0)) == (96, want[0])
    misses_at_worst(server, want)


@pytest.fixture
def disk(tmp_path):
    """A disk of 300 KB, and a function that makes it one for reading alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = str(tmp_path / "disk").encode()
    os.mkdir(path)
    if libc.mount(b"tmpfs", path, b"tmpfs", 0, b"size=300k"):
        pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    yield tmp_path / "disk", lambda: libc.mount(b"tmpfs", path, b"tmpfs", 32 | 1, b"size=300k")
    libc.umount2(path, 2)


def test_full_disk(start, disk, want):
    server = start("--kv-store", disk[0])
    misses_at_worst(server, want)
    assert server.log().count(WARNING) == 1
    server.stop()
    server = start("--kv-store", disk[0])
    assert ask(server, prompt_of(0)) == (96, want[0])
    misses_at_worst(server, want)


def test_read_only(start, disk, want, model):
    server = start("--kv-store", disk[0])
    assert ask(server, prompt_of(0))[0] == 0
    wait_for_pages(disk[0], 6)
    if disk[1]() != 0:  # files are open for writing: Linux does not do it to a busy disk
        server.stop()
        assert disk[1]() == 0
    else:
        misses_at_worst(server, want)
        server.stop()
    result = run("serve", model, "--port", "0", "--kv-store", disk[0])
    assert result.returncode == 1 and str(disk[0]) in result.stderr and "Read-only" in result.stderr, result


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "a file"])
def test_removed_while_it_runs(start, tmp_path, want, replaced):
    server = start("--kv-store", tmp_path / "kv", "--kv-store-size", 80 * PAGE)
    assert ask(server, prompt_of(0))[0] == 0
    wait_for_pages(tmp_path / "kv", 6)
    shutil.rmtree(tmp_path / "kv")
    if replaced:
        (tmp_path / "kv").write_text("no folder")
    misses_at_worst(server, want)
    server.stop()
    assert (tmp_path / "kv").exists() == replaced


def test_no_folder(model, tmp_path):
    (tmp_path / "file").write_text("no folder")
    for where in (tmp_path / "file", tmp_path / "file/below", "/proc/nowhere"):
        result = run("serve", model, "--port", "0", "--kv-store", where)
        assert result.returncode == 1 and str(where) in result.stderr, result


def test_damage(start, tmp_path, want):
    """Bytes change at random places, and files end early."""
    rng = random.Random(5)
    hits = 0
    for damage in range(6):
        server = start("--kv-store", tmp_path, "--kv-store-size", 320 * PAGE, "--num-kv-blocks", 40)
        misses_at_worst(server, want)
        hits += sum(ask(server, prompt_of(i))[0] > 0 for i in range(20))
        server.stop()
        for path, size in files_in(tmp_path):
            if size > HEAD and path.endswith((".pages", ".index")):
                with open(path, "r+b") as f:
                    for _ in range(damage):
                        f.seek(rng.randrange(size))
                        f.write(rng.randbytes(rng.choice([1, 8, 5000])))
                    if damage > 3:
                        f.truncate(rng.randrange(size))
    assert hits > 20


# ---- who sees what


@pytest.mark.parametrize("shared", [False, True])
def test_keys(start, tmp_path, shared):
    flags = ["--kv-store", tmp_path, "--api-key", "key-of-one", "--api-key", "key-of-two"] + ["--share-prefixes"] * shared
    server = start(*flags, key="key-of-one")
    assert ask(server, IDS, key="key-of-one")[0] == 0
    assert ask(server, IDS, key="key-of-one", cache_salt="guessed")[0] == 0
    server.stop()
    server = start(*flags, key="key-of-one")
    for fields in ({}, {"cache_salt": "guessed"}):
        assert ask(server, IDS, key="key-of-two", **fields)[0] == (96 if shared else 0)
        assert ask(server, IDS, key="key-of-one", **fields)[0] == 96


def test_private(start, tmp_path):
    """Of requests with a key, a salt or an adapter nothing is in DIR."""
    write_adapter(tmp_path / "lora", 1)
    flags = ["--kv-store", tmp_path / "kv", "--kv-store-private"]
    server = start(*flags, "--api-key", "key-of-one", "--api-key", "key-of-two", key="key-of-one")
    assert [ask(server, IDS, key="key-of-one")[0] for _ in range(2)] == [0, 96]
    server.stop()
    server = start(*flags, "--lora-modules", f"a={tmp_path}/lora", "--served-model-name", "base")
    assert [ask(server, IDS, model="a")[0] for _ in range(2)] == [0, 96]
    assert [ask(server, IDS, model="base", cache_salt="mine")[0] for _ in range(2)] == [0, 96]
    server.stop()
    assert pages_in(tmp_path / "kv") == 0
    server = start(*flags)
    ask(server, IDS)
    server.stop()
    assert pages_in(tmp_path / "kv") == 6


@pytest.mark.parametrize("family", ["qwen35", "granitehybrid", "gemma3"])
@pytest.mark.parametrize("cells", ["auto", "int8"])
def test_private_leavings(start, tmp_path, family, cells):
    """Pages that others had before have none of their bytes in DIR."""
    model = MODELS / f"{family}.gguf"
    if not model.exists():
        pytest.skip(f"no {model}: it is made by the tests' build")
    found = []
    for before in (0, 24):
        folder = tmp_path / str(before)
        server = start("--kv-store", folder, "--kv-store-private", "--kv-cache-dtype", cells, "--max-model-len", 128, "--block-size", 16, "--num-kv-blocks", 70, model=model)
        for k in range(before):
            ask(server, [5 + (k * 7 + i * i * (k + 2)) % 50 for i in range(100)], ignore_eos=True, cache_salt="mine")
        ask(server, [5 + i * i % 50 for i in range(100)], ignore_eos=True)
        server.stop()
        found.append(b"".join(open(path, "rb").read() for path, _ in sorted(files_in(folder)) if path.endswith(".pages")))
    assert found[0] == found[1] != b""


def test_two_servers(start, tmp_path):
    """The second reads what the first writes, and writes when that is gone."""
    first, second = start("--kv-store", tmp_path), start("--kv-store", tmp_path)
    prompts = [prompt_of(i) for i in range(400)]
    answers = {i: ask(first, prompts[i])[1] for i in range(30)}
    wait_for_pages(tmp_path, 30 * 6)
    number = iter(range(30))

    def hits():
        i = next(number)
        cached, answer = ask(second, prompts[i])
        assert answer == answers[i]
        return cached == 96

    wait_for("a page of the first", hits, pause=0.3)
    assert pages_in(tmp_path) == 30 * 6
    first.kill()
    number = iter(range(100, 400))

    def writes():
        ask(second, prompts[next(number)])
        return pages_in(tmp_path) > 30 * 6

    wait_for("the second writes", writes, pause=0.1)
    second.stop()


def test_size(start, tmp_path):
    """DIR is never larger than it may be, and keeps what is asked for."""
    most = 100 * PAGE
    server = start("--kv-store", tmp_path, "--kv-store-size", most, "--num-kv-blocks", 40)
    sizes, ended = [], threading.Event()

    def watch():
        while not ended.is_set():
            sizes.append(bytes_in(tmp_path))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for i in range(60):
            ask(server, prompt_of(i), max_tokens=1)
            ask(server, IDS, max_tokens=1)
    finally:
        ended.set()
        watcher.join()
    server.stop()
    assert most / 2 < max(sizes) <= most and bytes_in(tmp_path) <= most
    server = start("--kv-store", tmp_path, "--kv-store-size", most // 2)
    assert bytes_in(tmp_path) <= most // 2
    ask(server, prompt_of(99))


def test_record(start, tmp_path):
    """A run that fetched is replayed to the same plans."""
    for i in range(2):
        file = tmp_path / f"run{i}.rec"
        server = start("--kv-store", tmp_path / "kv", "--record", file, "--num-kv-blocks", 40, "--max-num-seqs", 4)
        clients = [threading.Thread(target=lambda k: [ask(server, prompt_of(n % 9, 200)) for n in range(k, k + 9)], args=(k,)) for k in range(6)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        server.wait_idle()
        server.stop()
        lines = file.read_bytes().splitlines()
        assert sum(line.startswith(b"hold ") for line in lines) > 3 and sum(line.startswith(b"adopt ") for line in lines) > 10
        result = run("replay", file)
        assert result.returncode == 0, result
