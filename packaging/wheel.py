#!/usr/bin/env python3
"""Packs programs into a wheel, from which pip puts them beside python. Nothing of it is Python. Equal files give equal bytes.

usage: wheel.py FOLDER VERSION OUT     FOLDER has bin/, share/man/ and share/doc/; prints the path of the wheel, which is in OUT

The tag names the C library that the programs need, which their symbols tell; a program that needs a newer one than NEWEST, or a
library that PEP 600 does not promise on every Linux, is refused. SOURCE_DATE_EPOCH is the time of every file.
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

OLDEST, NEWEST = (2, 17), (2, 28)  # of RHEL 7, whose name is the lowest that pip knows for every processor; of RHEL 8, Debian 10 and Ubuntu 20.04
PROMISED = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
METADATA = """Metadata-Version: 2.1
Name: quire-server
Version: {version}
Summary: LLM inference server
License: Apache-2.0
Description-Content-Type: text/plain

An HTTP server of large language models with the APIs of OpenAI, Anthropic and Ollama, and its load-testing client. It brings a small
model, and reads GGUF files and folders of safetensors: quire serve MODEL. quire --help lists the rest.
"""


def platform(program):
    """(version of the C library, machine) that a program needs."""
    text = subprocess.run(["readelf", "-hdVW", program], check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    machine = MACHINES[re.search(r"Machine: +(.+)", text)[1]]
    others = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text)) - PROMISED
    if others:
        sys.exit(f"{program}: needs {', '.join(sorted(others))}, which not every Linux has")
    needs = max(OLDEST, *(tuple(map(int, v.split("."))) for v in re.findall(r"Name: GLIBC_([\d.]+)", text)))
    if needs > NEWEST:
        sys.exit(f"{program}: needs glibc {needs[0]}.{needs[1]}, and {NEWEST[0]}.{NEWEST[1]} is to be enough")
    return needs[:2], machine


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(folder, version, out):
    programs = sorted((folder / "bin").iterdir())
    needs = [platform(p) for p in programs]
    (major, minor), machine = max(needs)
    tag = f"py3-none-manylinux_{major}_{minor}_{machine}"
    name = f"quire_server-{version}"
    files = {f"{name}.data/scripts/{p.name}": p.read_bytes() for p in programs}
    for p in sorted(folder.glob("share/man/**/*.gz")):
        files[f"{name}.data/data/{p.relative_to(folder)}"] = p.read_bytes()
    for p in sorted(folder.glob("share/doc/*/*")):
        if "LICENSE" in p.name or "copyright" in p.name:
            files[f"{name}.dist-info/licenses/{p.parent.name}/{p.name}"] = p.read_bytes()
    files[f"{name}.dist-info/METADATA"] = METADATA.format(version=version).encode()
    files[f"{name}.dist-info/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: quire ({version})\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = f"{name}.dist-info/RECORD"
    files[record] = "".join(f"{p},{digest(data)},{len(data)}\n" for p, data in files.items()).encode() + f"{record},,\n".encode()
    wheel = out / f"{name}-{tag}.whl"
    date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for path, data in files.items():
            info = zipfile.ZipInfo(path, date)
            info.create_system = 3  # Unix, whose modes pip takes over
            info.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            z.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    print(wheel)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
