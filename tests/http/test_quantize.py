"""`quire quantize IN OUT TYPE`: what it writes, what it refuses, and that it leaves nothing half done."""

import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time

import pytest

from goldens import ROOT, gguf_file
from process import BINARY, environment, run

TYPES = "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl q4_k q4_k_m q5_k q5_k_m q6_k".split()
FILE_TYPE = dict(f32=0, f16=1, bf16=32, q8_0=7, q4_0=2, q4_k=14, q4_k_m=15, q5_k=16, q5_k_m=17, q6_k=18, q4_1=3,
                 q5_0=8, q5_1=9, iq4_nl=25)
NUMBER = dict(f32=0, f16=1, bf16=30, q8_0=8, q4_0=2, q4_k=12, q4_k_m=12, q5_k=13, q5_k_m=13, q6_k=14, q4_1=3, q5_0=6,
              q5_1=7, iq4_nl=20)
F32, F16, Q8_0, Q6_K = 0, 1, 8, 14


def make(path, *shape):
    tool = ROOT / "tests" / "tools" / "make_gguf.py"
    subprocess.run([sys.executable, tool, path, *map(str, shape)], check=True)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """8 layers, so that a mixture mixes; rows of 256 and 512."""
    path = tmp_path_factory.mktemp("quantize") / "source.gguf"
    return make(path, *"--layers 8 --hidden 256 --heads 4 --kv-heads 1 --ffn 256 --vocab 320 --chatml".split())


def quantize(*arguments, code=0, **options):
    result = run("quantize", *arguments, **options)
    assert result.returncode == code, result
    return result


def leftovers(path):
    return sorted(p.name for p in path.parent.iterdir() if ".part" in p.name or p == path)


@pytest.mark.parametrize("kind", TYPES)
def test_every_type(source, tmp_path, kind):
    out = tmp_path / "out.gguf"
    line = quantize(source, out, kind.upper() if kind != "f16" else "f16").stdout
    assert re.fullmatch(r"[\d.]+ MiB -> [\d.]+ MiB, [\d.]+ bits per weight\n", line)
    _, raw, before = gguf_file.read(source)
    _, now, after = gguf_file.read(out)
    own = {"general.file_type": FILE_TYPE[kind], "general.quantization_version": 2}
    want = raw | {k: struct.pack("<Q", len(k)) + k.encode() + struct.pack("<II", 4, v) for k, v in own.items()}
    assert list(now.items()) == list(want.items())  # every key as it was, in its place
    assert [(n, t[1]) for n, t in after.items()] == [(n, t[1]) for n, t in before.items()]
    better = {"token_embd.weight"} if kind.startswith(("q4", "q5", "iq4")) else set()
    if kind.endswith("_m"):  # the first of 8 layers, the last, and every third between
        better |= {f"blk.{i}.{n}.weight" for i in (0, 3, 6, 7) for n in ("attn_v", "ffn_down")}
    for name, (number, shape, _) in after.items():
        assert number == (F32 if len(shape) == 1 else Q6_K if name in better else NUMBER[kind]), name
    answer = run("generate", out, "-p", "hello there", "-n", "8", "--ignore-eos")
    assert answer.returncode == 0 and answer.stdout, answer


def test_the_same_bytes(source, tmp_path):
    """Again, with other threads, and from the result itself: the bytes depend on nothing else."""
    one, two = tmp_path / "one.gguf", tmp_path / "two.gguf"
    for kind in ("q4_k_m", "q6_k", "q4_0"):
        quantize(source, one, kind)
        for threads in (1, 2, 7):
            quantize(source, two, kind, "--threads", threads)
            assert two.read_bytes() == one.read_bytes()
        quantize(one, two, kind)
        assert two.read_bytes() == one.read_bytes()


def test_floats_and_back(source, tmp_path):
    """F32 and F16 hold what a smaller type holds: the way through them changes nothing."""
    half, wide, back = (tmp_path / f"{n}.gguf" for n in ("half", "wide", "back"))
    quantize(source, half, "f16")
    quantize(half, wide, "f32")
    quantize(wide, back, "f16")
    assert back.read_bytes() == half.read_bytes()
    quantize(half, back, "q4_k", "--log-level", "warn")
    again = quantize(back, wide, "f32", "--log-level", "warn")
    assert "quantised already" in again.stderr  # and the numbers of a Q4_K file are its own:
    texts = [run("generate", f, "-p", "hello", "-n", "8", "--ignore-eos", "--device", "ref").stdout for f in (back, wide)]
    assert texts[0] and texts[0] == texts[1]


def test_pure(source, tmp_path):
    out = tmp_path / "out.gguf"
    quantize(source, out, "q4_k_m", "--pure")
    assert {t[0] for t in gguf_file.read(out)[2].values() if len(t[1]) == 2} == {NUMBER["q4_k"]}


def test_untied_head(tmp_path):
    source, out = make(tmp_path / "in.gguf", *"--no-tied --hidden 256 --ffn 256 --layers 1 --vocab 300".split()), tmp_path / "out"
    quantize(source, out, "q4_k")
    _, _, tensors = gguf_file.read(out)
    assert tensors["output.weight"][0] == Q6_K and tensors["token_embd.weight"][0] == NUMBER["q4_k"]


def test_rows_that_do_not_fit(tmp_path):
    """Rows of 96 become Q8_0, rows of 72 F16; each with a line in the log."""
    source, out = make(tmp_path / "in.gguf", *"--hidden 96 --heads 3 --kv-heads 3 --ffn 72 --layers 1".split()), tmp_path / "out"
    result = quantize(source, out, "q4_k")
    _, _, tensors = gguf_file.read(out)
    assert tensors["blk.0.attn_q.weight"][0] == Q8_0 and tensors["blk.0.ffn_down.weight"][0] == F16
    lines = [line for line in result.stderr.splitlines() if "no multiple of 256" in line]
    assert len(lines) == 8 and sum("tensor=blk.0.ffn_down.weight type=F16" in line for line in lines) == 1
    assert run("generate", out, "-p", "hello", "-n", "4").returncode == 0


def test_usage(source, tmp_path):
    out = tmp_path / "out.gguf"
    for arguments in ([], [source], [source, out], [source, out, "q8_0", "more"]):
        assert "usage: quire quantize IN OUT TYPE" in quantize(*arguments, code=2).stderr
    for kind in ("q3_k", "", "q4", "q8_0 ", "f33"):
        assert "known: f32, f16" in quantize(source, out, kind, code=2).stderr
    assert "--pure" in quantize("--help").stdout
    assert quantize(source, out, "q8_0", "--treads", "2", code=2).stderr.count("did you mean --threads") == 1
    assert not out.exists()


def test_same_file(source, tmp_path):
    here = tmp_path / "in.gguf"
    here.write_bytes(source.read_bytes())
    (tmp_path / "symbolic").symlink_to(here)
    os.link(here, tmp_path / "hard")
    for out in (here, tmp_path / "symbolic", tmp_path / "hard", tmp_path / "." / "in.gguf"):
        assert "the same file" in quantize(here, out, "q8_0", code=2).stderr
    assert here.read_bytes() == source.read_bytes()


def test_bad_input(source, tmp_path):
    out, bad = tmp_path / "out.gguf", tmp_path / "bad.gguf"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/pytorch_model.bin").touch()
    for name, says in ((tmp_path / "none", "cannot open"), (tmp_path, "cannot open config.json: "), (ROOT / "README.md", "no GGUF"),
                       (tmp_path / "torch", "cannot open config.json; the folder has pytorch_model.bin, which Quire does not read")):  # fmt: skip
        assert says in quantize(name, out, "q8_0", code=1).stderr
    blob = source.read_bytes()
    bad.write_bytes(blob[:-200])
    assert "cut short" in quantize(bad, out, "q8_0", code=1).stderr
    at = len(blob) - 400
    for bits, says in ((0x7FC00000, "NaN or an infinity"), (0xFF800000, "NaN or an infinity"), (0x7F000000, "too large for")):
        bad.write_bytes(blob[:at] + struct.pack("<I", bits) + blob[at + 4 :])
        for kind in ("q4_k", "q8_0", "f16"):
            stderr = quantize(bad, out, kind, code=1).stderr
            assert says in stderr and re.search(rf"at byte {at}\b", stderr) and "blk.7.ffn_down.weight" in stderr, stderr
    assert not leftovers(out)


def test_bad_output(source, tmp_path):
    assert "No such file" in quantize(source, tmp_path / "none" / "out", "q8_0", code=1).stderr
    for out in (tmp_path, "/dev/full", "/dev/null"):
        assert "no regular file" in quantize(source, out, "q8_0", code=1).stderr
    assert "name too long" in quantize(source, tmp_path / ("x" * 255), "q8_0", code=1).stderr
    if os.geteuid():
        tmp_path.chmod(0o555)
        assert "Permission denied" in quantize(source, tmp_path / "out", "q8_0", code=1).stderr


def limited(*arguments, size):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run([BINARY, "quantize", *map(str, arguments)], capture_output=True, text=True, env=environment(),
                          preexec_fn=limit, timeout=60)  # fmt: skip


def test_no_room(source, tmp_path):
    """A limit on files behaves as a full disk: one sentence, exit code 1, and the old file as it was."""
    out = tmp_path / "out.gguf"
    out.write_text("old")
    result = limited(source, out, "q8_0", size=100_000)
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result
    assert "cannot write" in result.stderr and "File too large" in result.stderr
    assert leftovers(out) == ["out.gguf"] and out.read_text() == "old"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal(tmp_path_factory, source, number):
    """It ends by the signal, and nothing is left beside the old file."""
    out = tmp_path_factory.mktemp("signal") / "out.gguf"
    out.write_text("old")
    # One thread, a type that takes long, and a process that yields to all others: it is at work when the signal comes.
    p = subprocess.Popen(["nice", "-n", "19", BINARY, "quantize", source, out, "q5_k", "--threads", "1"],
                         stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())  # fmt: skip
    while p.poll() is None and len(leftovers(out)) < 2:
        time.sleep(0.001)
    p.send_signal(number)
    _, stderr = p.communicate(timeout=240)
    if p.returncode == 0:
        pytest.skip("it was done before the signal came")
    assert p.returncode == -number and b"stopped" in stderr, (p.returncode, stderr)
    assert leftovers(out) == ["out.gguf"] and out.read_text() == "old"


def test_replaces_the_output(source, tmp_path):
    """Through a temporary file and a rename: who has the old one open keeps it."""
    out = tmp_path / "out.gguf"
    quantize(source, out, "f16")
    with open(out, "rb") as old:
        before = out.read_bytes()
        quantize(source, out, "q8_0")
        assert old.read() == before != out.read_bytes()
    assert leftovers(out) == ["out.gguf"]
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o666 & ~mask
