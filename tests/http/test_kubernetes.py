"""examples/kubernetes: manifests parse and render, and what they say of Quire is so: flags, ports, paths, metrics, times.

Kustomize and Helm are rendered here, as far as these files use them; `kubectl kustomize` and `helm template` say the same where they
are installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import goldens
from process import run

FOLDER = goldens.ROOT / "examples/kubernetes"
CHART = FOLDER / "chart"
KUSTOMIZED = ["base", "overlays/cpu", "overlays/cuda", "overlays/tp"]
PLAIN = sorted(p for p in FOLDER.rglob("*.yaml") if CHART not in p.parents)
CHART_VALUES = [
    {},
    {"model": "m.gguf", "flags": ["--max-num-seqs=8", "--log-format=json"], "nodeSelector": {"disk": "ssd"}},
    {"autoscale": {"max": 6}, "tolerations": [{"key": "x", "operator": "Exists"}], "drainTimeout": 20},
]


def load(text):
    return [d for d in yaml.safe_load_all(text) if d]


# ---- Kustomize


def merge(base, patch):
    """A strategic merge: lists of named things by their names, others as a whole."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {k: merge(base[k], v) if k in base else v for k, v in patch.items()}
    if isinstance(base, list) and patch and all(isinstance(x, dict) and "name" in x for x in base + patch):
        by_name = {x["name"]: x for x in base}
        news = [x for x in patch if x["name"] not in by_name]
        return news + [merge(x, p) if (p := next((p for p in patch if p["name"] == x["name"]), None)) else x for x in base]
    return patch


def kustomize(folder):
    recipe = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(recipe) <= {"apiVersion", "kind", "resources", "patches", "images"}, "this renderer knows no more"
    docs = []
    for name in recipe["resources"]:
        path = folder / name
        docs += kustomize(path) if path.is_dir() else load(path.read_text())
    for entry in recipe.get("patches", []):
        patch = yaml.safe_load((folder / entry["path"]).read_text())
        hit = [i for i, d in enumerate(docs) if (d["kind"], d["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])]
        assert len(hit) == 1, entry
        docs[hit[0]] = merge(docs[hit[0]], patch)
    for image in recipe.get("images", []):
        for pod in pods(docs):
            for c in pod["containers"]:
                if c["image"].partition(":")[0] == image["name"]:
                    c["image"] = f"{image['newName']}:{image['newTag']}"
    return docs


def pods(docs):
    """The pod specs in manifests: what has containers."""
    found = []

    def walk(x):
        if isinstance(x, dict):
            if isinstance(x.get("containers"), list):
                found.append(x)
            for v in x.values():
                walk(v)
        elif isinstance(x, list):
            for v in x:
                walk(v)

    walk(docs)
    return found


def ordered(x):
    """Lists of named things in the order of their names."""
    if isinstance(x, dict):
        return {k: ordered(v) for k, v in x.items()}
    if isinstance(x, list):
        out = [ordered(v) for v in x]
        return sorted(out, key=lambda v: v["name"]) if out and all(isinstance(v, dict) and "name" in v for v in out) else out
    return x


# ---- Helm


def template(text, values, release="quire"):
    """Go's templates as far as the chart uses them."""
    scope = {"Values": values, "Release": {"Name": release, "Namespace": "default"}}
    text = re.sub(r"\s*\{\{-", "{{", text)  # a dash takes the blanks before it
    parts = re.split(r"\{\{\s*(.*?)\s*\}\}", text)
    at = 0

    def value(word, dot):
        if word == ".":
            return dot
        if not word.startswith("."):
            return yaml.safe_load(word)
        x = scope
        for key in word[1:].split("."):
            x = x[key]
        return x

    def output(action, dot):
        head, *pipes = [p.split() for p in action.split("|")]
        if head[0] == "add":
            return str(sum(int(value(w, dot)) for w in head[1:]))
        if head[0] == "toYaml":
            assert pipes and pipes[0][0] == "nindent"
            lines = yaml.safe_dump(value(head[1], dot), sort_keys=False).splitlines()
            return "".join("\n" + " " * int(pipes[0][1]) + line for line in lines)
        assert len(head) == 1 and not pipes, action
        return str(value(head[0], dot))

    def block(dot, live):
        nonlocal at
        out = ""
        while at < len(parts):
            out += parts[at] if live else ""
            at += 1
            if at == len(parts):
                break
            action = parts[at]
            at += 1
            word, *rest = action.split()
            if word in ("end", "else"):
                return out, word
            if word in ("if", "with"):
                negated = rest[0] == "not"
                got = value(rest[-1], dot) if live else None
                holds = live and bool(got) != negated
                inner, ended = block(got if word == "with" else dot, holds)
                out += inner
                if ended == "else":
                    out += block(dot, live and not holds)[0]
            elif live:
                out += output(action, dot)
        return out, None

    return block(None, True)[0]


def chart(more):
    values = merge(yaml.safe_load((CHART / "values.yaml").read_text()), more)
    return [d for path in sorted((CHART / "templates").iterdir()) for d in load(template(path.read_text(), values))]


def everything():
    for name in KUSTOMIZED:
        yield name, kustomize(FOLDER / name)
    for i, values in enumerate(CHART_VALUES):
        yield f"chart {i}", chart(values)
    for path in PLAIN:
        if path.parent.name in ("autoscale", "gateway", "kserve", "ranks"):
            yield path.name, load(path.read_text())


# ---- tests


def test_they_parse():
    assert len(PLAIN) >= 15
    for path in PLAIN:
        for doc in load(path.read_text()):
            assert doc["apiVersion"] and doc["kind"], path
            assert doc["kind"] == "Kustomization" or doc["metadata"]["name"], path
    for name, docs in everything():
        assert docs or "autoscale" in name, name


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl: its kustomize is the judge of ours")
@pytest.mark.parametrize("name", KUSTOMIZED)
def test_kubectl_says_the_same(name):
    got = subprocess.run(["kubectl", "kustomize", FOLDER / name], capture_output=True, text=True, timeout=60)
    if got.returncode:
        pytest.skip(f"kubectl cannot: {got.stderr[:200]}")

    def keyed(docs):
        return {(d["kind"], d["metadata"]["name"]): ordered(d) for d in docs}

    assert keyed(load(got.stdout)) == keyed(kustomize(FOLDER / name))


@pytest.mark.skipif(not shutil.which("helm"), reason="no helm: its template is the judge of ours")
@pytest.mark.parametrize("values", CHART_VALUES)
def test_helm_says_the_same(values, tmp_path):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    got = subprocess.run(["helm", "template", "quire", CHART, "-f", tmp_path / "values.yaml"], capture_output=True, text=True, check=True)
    assert sorted(map(str, load(got.stdout))) == sorted(map(str, chart(values)))


def servers():
    """Each container that serves: where it is, its pod, the container, the words behind `serve`."""
    for name, docs in everything():
        for pod in pods(docs):
            for c in pod["containers"]:
                args = [str(a) for a in c.get("args", [])]
                script = re.search(r"quire (serve [^&]*)&", " ".join(args))
                words = script[1].split() if script else args
                if words and words[0] == "serve":
                    yield name, pod, c, words[1:]


def flags_of(words):
    """{flag: value} of a command line."""
    found, name = {}, None
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found[name] = value
        elif name and not found[name]:
            found[name] = word
    return found


def test_flags_are_flags():
    known = set(re.findall(r"^ *(?:-\w, )?--([a-z0-9-]+)", run("help", "serve").stdout, re.M))
    seen = list(servers())
    assert len(seen) >= 9
    for name, _, _, words in seen:
        assert set(flags_of(words)) <= known, (name, set(flags_of(words)) - known)
        # Their values, too: what is wrong then is the model's file alone.
        mine = [re.sub(r"^/(models|mnt)\S*|^\{\{.*", "/none.gguf", w) for w in words if not re.match(r"--(device|served)", w)]
        if "/none.gguf" not in mine:
            mine.insert(0, "/none.gguf")
        got = run("serve", *mine, "--port=0", env={"QUIRE_API_KEY": "k"})
        assert got.returncode == 1 and "/none.gguf" in got.stderr and "expected" not in got.stderr, (name, got.stderr)


def test_ports_and_paths(tiny):
    port = int(re.search(r"QUIRE_PORT=(\d+)", (goldens.ROOT / "Dockerfile").read_text())[1])
    probes = set()
    for name, pod, c, words in servers():
        ports = {p.get("name"): p["containerPort"] for p in c["ports"]}
        assert set(ports.values()) == {int(flags_of(words).get("port", port))}, name
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if kind in c:
                get = c[kind]["httpGet"]
                assert get["port"] in ports or get["port"] in ports.values(), (name, kind)
                probes.add(get["path"])
        assert c["livenessProbe"]["httpGet"]["path"] == "/livez", f"{name}: one that drains or loads is not restarted"
    assert probes == {"/livez", "/readyz", "/health"}
    for path in probes:
        assert tiny.get(path, headers={"Authorization": None}).status == 200
    for name, docs in everything():
        for d in docs:
            if d["kind"] == "Service":
                assert [(p["port"], p["targetPort"]) for p in d["spec"]["ports"]] == [(port, "http")], name
            if d["kind"] == "InferencePool":
                assert d["spec"]["targetPorts"] == [{"number": port}]
                assert d["spec"]["selector"]["matchLabels"] == kustomize(FOLDER / "base")[0]["metadata"]["labels"]


def test_environment():
    """Names of variables are those of flags; and no Service's name becomes one, such as QUIRE_PORT."""
    page = run("help", "configuration").stdout
    for name, pod, c, words in servers():
        for e in c.get("env", []):
            flag = e["name"].removeprefix("QUIRE_").lower().replace("_", "-")
            assert e["name"].startswith("QUIRE_") and f"`--{flag} " in page, (name, e)
        if name != "runtime.yaml":  # KServe makes the pod
            assert pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False, name


def test_time_to_drain():
    for name, pod, c, words in servers():
        if "terminationGracePeriodSeconds" in pod:
            stop = c.get("lifecycle", {}).get("preStop", {"sleep": {"seconds": 0}})
            needs = stop["sleep"]["seconds"] + float(flags_of(words)["drain-timeout"]) + 4
            assert needs < pod["terminationGracePeriodSeconds"], name


def test_it_is_shut_in():
    """No root, no writing, no capabilities; keys come from Secrets, and without one it does not start."""
    for name, pod, c, words in servers():
        if name == "leaderworkerset.yaml":  # ssh wants root
            continue
        s = c["securityContext"]
        assert s["readOnlyRootFilesystem"] and not s["allowPrivilegeEscalation"] and s["capabilities"] == {"drop": ["ALL"]}, name
        assert (s | pod.get("securityContext", {})).get("runAsNonRoot"), name
        if name != "runtime.yaml":
            assert "require-key" in flags_of(words) and all("valueFrom" in e for e in c["env"]), name


def test_metrics(tiny):
    """All that autoscalers ask for; and all that the endpoint picker reads of a model server (docs/proposals/003-model-server-protocol of
    gateway-api-inference-extension, 84436a9)."""
    text = tiny.get("/metrics").body.decode()
    names = {n for path in FOLDER.rglob("*.yaml") for n in re.findall(r"vllm:\w+", path.read_text())}
    assert "vllm:num_requests_waiting" in names
    for name in names | {"vllm:num_requests_running", "vllm:kv_cache_usage_perc"}:
        assert re.search(rf"^# TYPE {name} gauge$", text, re.M), name
    cache = re.search(r"^vllm:cache_config_info\{(.*)\} 1$", text, re.M)[1]
    assert re.search(r'\bblock_size="\d+"', cache) and re.search(r'num_gpu_blocks="\d+"', cache)
    adapters = re.search(r"^vllm:lora_requests_info\{(.*)\} [\d.e+]+$", text, re.M)[1]
    assert all(f'{label}="' in adapters for label in ("max_lora", "running_lora_adapters", "waiting_lora_adapters"))


def test_the_base_serves(start):
    """The base's own command line."""
    (_, _, _, words) = next(servers())
    server = start(*words, model="", env={"QUIRE_API_KEY": "cluster-key"}, key="cluster-key")
    server.secrets.append("cluster-key")
    assert server.complete("Once upon a time", max_tokens=2)["choices"]
    assert '"level":"info"' in server.log()


def test_the_readme_names_each_folder():
    text = (FOLDER / "README.md").read_text()
    for path in {p.parent.relative_to(FOLDER) for p in PLAIN} | {Path("chart")}:
        assert f"`{path.as_posix()}/`" in text, path
