"""Every command line that a document prints is tried: run as a reader would run it, or, where it takes minutes, read by the
program whose command line it is. A line that no rule below knows fails."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

import goldens
from process import BINARY, Server

ROOT, BUILD = goldens.ROOT, BINARY.parent
if BUILD != ROOT / "build/release":
    pytest.skip("documents speak of build/release", allow_module_level=True)

SKIP = ("build", ".venv", ".venv-peers", ".git")
PAGES = sorted(p for p in ROOT.rglob("*.md") if p.relative_to(ROOT).parts[0] not in SKIP)
DEV_WORDS = re.findall(r"^(?:\./dev )(\S+)", subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True).stdout, re.M)
DEV_WORDS += ["help"]
BENCHES = {"cpu": "models.py", "decisions": "decisions.py", "drafts": "drafts.py", "kv-store": "kv_store.py", "serving": "serving.py", "structured": "structured.py"}


def lines_of(text):
    """Commands of shell blocks: without comments, continued lines joined."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            if line:
                yield re.sub(r"\s+", " ", line)


COMMANDS = sorted({(str(page.relative_to(ROOT)), line) for page in PAGES for line in lines_of(page.read_text())})
PROGRAMS = [(str(page.relative_to(ROOT)), code) for page in PAGES for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)]
SPOKEN = sorted({(str(page.relative_to(ROOT)), code) for page in PAGES
                 for code in re.findall(r"`((?:\./dev|python3|build/release/|tests/|docs/|models/train/)[^`]*)`", page.read_text())
                 if code.startswith(("./dev", "python3")) or " " in code})  # fmt: skip


def bash(line, folder, seconds=300):
    env = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}
    env |= {"PATH": f"{BUILD}:{env['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1"}  # fmt: skip
    return subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=seconds)


def works(line, folder):
    done = bash(line, folder)
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def takes(script, words):
    """A Python program whose arguments argparse reads takes these words, and the word that it does not know it names."""
    done = bash(f"{sys.executable} {script} {words} --no-such-flag", ROOT)
    assert "error: unrecognized arguments: --no-such-flag\n" in done.stderr, f"{script} {words}\n{done.stderr[-2000:]}"


def dev(words):
    word, *rest = words.split()
    assert word in DEV_WORDS, word
    if word == "bench" and rest:
        assert rest[0] in (*BENCHES, "kernels", "attention", "sampler"), rest
        if rest[0] in BENCHES and len(rest) > 1:
            if "--peers" in rest:  # a folder of other engines, which the reader has built
                at = rest.index("--peers")
                del rest[at : at + 2]
            binary = f"{BINARY} " if rest[0] in ("watching", "server") else ""
            takes(f"tests/bench/{BENCHES[rest[0]]}", binary + " ".join(rest[1:]))


def python(words):
    script, _, rest = words.partition(" ")
    assert (ROOT / script).exists(), script
    if script == "tests/mutate.py":
        works(f"python3 {script} {rest}" if rest.startswith("--") else f"python3 {script} --list {rest}", ROOT)
    elif script.startswith("tests/bench/"):
        takes(script, rest)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which documented names exist: model.gguf, keys, the scripts."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "model.gguf").symlink_to(ROOT / "models/quire-tiny.gguf")
    (folder / "keys").write_text("sk-of-the-documents\n")
    for name in ("examples", "build", "models", "tests"):
        (folder / name).symlink_to(ROOT / name)
    trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"2023-11-16 18:17:0{i}.000,{40 + i},4\n" for i in range(8))
    (folder / "AzureLLMInferenceTrace_conv.csv").write_text(trace)
    return folder


@pytest.fixture(scope="module")
def tiny():
    server = Server(model=ROOT / "models/quire-tiny.gguf")
    server.secrets = []  # what the documents ask is no secret
    yield server
    server.stop()


def measured(line, server, folder):
    """quire-bench as printed, but on this server, for seconds."""
    line = line.replace("http://127.0.0.1:8000", f"http://{server.host_header}").replace("--port 8000", f"--port {server.address[1]}")
    line = re.sub(r"--duration \d+|--num-prompts \d+", "--num-prompts 20", line).replace("$TRACES", str(folder))
    if "--search" in line:  # three rates, of a few requests each
        line = re.sub(r" --search-(min|max|tolerance) \S+| --num-prompts \d+", "", line)
        line += " --search-min 5 --search-max 10 --search-tolerance 0.5 --num-prompts 10"
    out = works(line, folder)
    assert out.strip()
    for path in re.findall(r"--(?:json|html) (\S+)", line):
        assert (folder / path).stat().st_size > 100


def serves(line, folder):
    """A server under a launcher listens; SIGTERM ends it."""
    process = subprocess.Popen(["bash", "-c", f"exec {line} --port 0"], cwd=folder, text=True, stderr=subprocess.PIPE, start_new_session=True,
                               env=os.environ | {"PATH": f"{BUILD}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"})  # fmt: skip
    try:
        seen = ""
        for text in process.stderr:
            seen += text
            if "listening on" in text:
                break
        else:
            pytest.fail(f"{line} ended:\n{seen}")
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line[:60]}" for page, line in COMMANDS])
def test_command(page, line, place, tiny):
    head, _, rest = line.partition(" ")
    if head == "./dev":
        dev(rest.removesuffix(" &"))
    elif head in ("python3", "python"):
        python(rest)
    elif head == "quire-bench" and rest.startswith("compare"):
        for name in ("a", "b"):
            measured(f"quire-bench --port 8000 --num-prompts 4 --json {name}.json", tiny, place)
        works(line, place)
        table = works("quire-bench compare a.json b.json", place)
        assert re.search(r"output tokens/s +[\d.]+ +[\d.]+  x [\d.]+", table), table
    elif head == "quire-bench":
        measured(line, tiny, place)
    elif head == "curl":
        out = works(line.replace("127.0.0.1:8000", tiny.host_header), place)
        assert out.rstrip().endswith("data: [DONE]")
    elif head == "examples/curl.sh":
        works(f"{line} {tiny.url}", place)
    elif head == "mpirun" and "quire generate" in rest:
        if not shutil.which("mpirun"):
            pytest.skip("no MPI")
        assert works(line, place) == works(line.removeprefix("mpirun -np 2 "), place)  # printed once
    elif head == "mpirun" and "--host" in rest:
        pytest.skip("tests/http/test_hosts.py runs it on two hosts")
    elif head in ("mpirun", "examples/mpi/serve.sh"):
        if not shutil.which("mpirun"):
            pytest.skip("no MPI")
        serves(line, place)
    elif head == "mkdir" and "./dev gpu-slot " in rest:
        dev(rest.partition("./dev ")[2])
    elif head == "mkdir" and "gpu_slot.sh" in rest:
        pytest.skip("tests/emu/test_gpu_slot.py runs it on the emulator")
    elif head == "cmake" and rest.startswith("--preset"):
        works(f"cd {ROOT} && {line} -B {place}/by-hand", place)
    elif head == "cmake":
        assert rest.split()[0] in ("--build", "--install") and rest.split()[1] == "build/release", line
    elif (head == "tar" or line.startswith("pip install ")) and "build/package/out/" in rest:
        pytest.skip("./dev package tries the tarball and the wheel")
    elif head in ("pip", "hf", "ollama") and rest.split()[0] in ("download", "pull"):
        pytest.skip("fetches files; the names are those that unit.test_server_names finds")
    elif head in ("vllm", "llama-server", "text-generation-launcher"):  # the words of others: quire takes them, too
        works(f"quire serve {rest.removeprefix('serve ')} --help", place)
    elif line in ("quire serve", "quire serve model.gguf") or line.startswith("quire serve -m model.gguf"):
        serves(line.replace("-c 2048", "-c 512"), place)  # which is the embedded model here
    elif head == "quire":
        done = bash(line.replace("127.0.0.1:8000", tiny.host_header) + " </dev/null", place)
        if done.returncode != 0:  # of files that are not there
            assert done.returncode in (1, 2) and "model.gguf" not in line, done.stderr
            assert re.search(r"cannot open|No such file|`(hf download|ollama pull) ", done.stderr), done.stderr
    elif head == "sudo":
        assert rest.split()[0] in ("apt", "systemctl"), line
        pytest.skip("./dev package tries what is in the packages")
    elif head == "kubectl":
        assert rest.split()[0] in ("apply", "create", "port-forward"), line
        for folder in re.findall(r"-k (\S+)", rest):
            assert (ROOT / folder / "kustomization.yaml").is_file()
        pytest.skip("tests/http/test_kubernetes.py renders what is applied")
    elif head in ("sbatch", "./servers.sh"):
        name = next(word for word in line.split() if word.endswith((".sbatch", ".sh")))
        assert (ROOT / "examples/slurm" / name).is_file(), name
        pytest.skip("./dev slurm submits the jobs, and has proxies follow them")
    elif head == "docker":
        pytest.skip("tests/container.sh builds the image and serves from it")
    elif head.startswith("build/release/"):
        assert (ROOT / head).exists(), f"{head} is not built"
        if "example_engine" in head:
            assert works(line.replace("path/to/model.gguf", "model.gguf"), place).strip()
    elif head in ("docs/performance/tables.py", "tests/tools/structured_table.py", "tests/tools/loss_table.py"):
        assert (ROOT / head).exists()
    else:
        pytest.fail(f"{page} prints a command that nothing here tries: {line}")


@pytest.mark.parametrize(("page", "code"), PROGRAMS, ids=[f"{page}: {i}" for i, (page, _) in enumerate(PROGRAMS)])
def test_program(page, code, tiny):
    """A reader's Python, as printed, but for the server's address."""
    pytest.importorskip("openai")
    assert "127.0.0.1:8000" in code
    done = subprocess.run([sys.executable, "-c", code.replace("127.0.0.1:8000", tiny.host_header)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-2000:]


@pytest.mark.parametrize(("page", "code"), SPOKEN, ids=[f"{page}: {code[:60]}" for page, code in SPOKEN])
def test_spoken_of(page, code):
    """Commands within a sentence: the program exists and takes the words."""
    if code.startswith("./dev "):
        dev(code.removeprefix("./dev ").rstrip("…"))
    elif code.startswith("python3 "):
        python(code.removeprefix("python3 "))
    else:
        path = code.split()[0]
        assert (ROOT / path).exists() or (ROOT / page).parent.joinpath(path).exists(), path


def test_configuration_is_the_tables():
    assert works("quire help configuration", ROOT) == (ROOT / "docs/configuration.md").read_text()


def test_both_kinds_are_found():
    assert len(PROGRAMS) >= 2 and ("README.md", "./dev test") in COMMANDS and ("CONTRIBUTING.md", "./dev fuzz 60") in SPOKEN
