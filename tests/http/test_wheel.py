"""packaging/wheel.py: what pip installs runs, its tag is that of the programs, and programs for this system alone are refused."""

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import goldens
from process import BINARY

WHEEL = goldens.ROOT / "packaging/wheel.py"
# Asks no newer C library than any Linux has, whichever it is compiled with.
OLD = """#include <unistd.h>\nvoid _start(void) {{ write(1, "hello\\n", 6); {call}_exit(0); }}\n"""

pytestmark = pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")


def pack(folder, out, epoch="1795824000"):
    out.mkdir(exist_ok=True)
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    return subprocess.run([sys.executable, WHEEL, folder, "1.2.3", out], capture_output=True, text=True, env=env)


def packed(folder, out, **more):
    done = pack(folder, out, **more)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.strip()


def compiled(folder, call="", flags=("-nostartfiles",), source=OLD):
    (folder / "bin").mkdir(parents=True)
    (folder / "c.c").write_text(source.format(call=call))
    subprocess.run(["gcc", "-w", *flags, folder / "c.c", "-o", folder / "bin/hello", "-lm"], check=True)
    return folder


def test_pip_installs_it(tmp_path):
    folder = compiled(tmp_path / "in")
    for name in ("man/man1/hello.1.gz", "doc/quire/LICENSE", "doc/quire/libuv1.copyright", "doc/quire/changelog.gz"):
        (folder / "share" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "share" / name).write_bytes(name.encode())
    wheel = packed(folder, tmp_path / "out")
    assert wheel.name == f"quire_server-1.2.3-py3-none-manylinux_2_17_{os.uname().machine}.whl"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--prefix", tmp_path / "there", wheel], check=True)
    assert subprocess.run([tmp_path / "there/bin/hello"], capture_output=True, check=True).stdout == b"hello\n"
    assert (tmp_path / "there/share/man/man1/hello.1.gz").read_bytes() == b"man/man1/hello.1.gz"
    licences = [p.name for p in (tmp_path / "there").rglob("licenses/quire/*")]
    assert sorted(licences) == ["LICENSE", "libuv1.copyright"]


def test_record_has_every_file(tmp_path):
    with zipfile.ZipFile(packed(compiled(tmp_path / "in"), tmp_path / "out")) as z:
        record = "quire_server-1.2.3.dist-info/RECORD"
        rows = {name: (digest, size) for name, digest, size in csv.reader(z.read(record).decode().splitlines())}
        assert set(rows) == set(z.namelist()) and rows.pop(record) == ("", "")
        for name, (digest, size) in rows.items():
            want = base64.urlsafe_b64encode(hashlib.sha256(z.read(name)).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={want}", str(len(z.read(name)))), name


def test_equal_files_give_equal_bytes(tmp_path):
    folder = compiled(tmp_path / "in")
    first = packed(folder, tmp_path / "a").read_bytes()
    os.utime(folder / "bin/hello", (0, 0))
    assert packed(folder, tmp_path / "b").read_bytes() == first
    assert packed(folder, tmp_path / "c", epoch="1795824002").read_bytes() != first


def test_a_newer_library_is_refused(tmp_path):
    """glibc 2.29 has exp() anew, which a plain link takes."""
    newer = compiled(tmp_path / "in", source="#include <math.h>\nint main(int c, char **v) {{ return (int)exp(c); }}\n", flags=("-fno-builtin",))
    done = pack(newer, tmp_path / "out")
    assert done.returncode == 1 and "needs glibc 2." in done.stderr and "2.28 is to be enough" in done.stderr, done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_library_of_this_system_is_refused(tmp_path):
    (tmp_path / "in/bin").mkdir(parents=True)
    (tmp_path / "in/bin/quire").symlink_to(BINARY)
    done = pack(tmp_path / "in", tmp_path / "out")
    assert done.returncode == 1 and "libmicrohttpd.so" in done.stderr and "not every Linux has" in done.stderr, done.stderr
