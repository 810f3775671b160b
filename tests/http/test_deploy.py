"""docs/deploy.md does what it says: its two proxies stream and hide a rolling restart, its unit and its configuration file are read."""

import contextlib
import os
import re
import shutil
import subprocess
import threading

import pytest

import goldens
from process import BINARY, Server, environment
from test_surroundings import free_port
from wire import Api, TIMEOUT, parse_events, wait_for

PAGE = (goldens.ROOT / "docs/deploy.md").read_text()
KEY = "key-of-the-proxies"
NGINX = """daemon off;\nmaster_process off;\npid {0}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{
access_log off;\nclient_body_temp_path {0}/a;\nproxy_temp_path {0}/b;\nfastcgi_temp_path {0}/c;\nuwsgi_temp_path {0}/d;\nscgi_temp_path {0}/e;
{1}}}\n"""  # fmt: skip


def block(language):
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return text


def configured(name, ports, folder):
    """The page's configuration with these ports, as a command that runs it in the foreground."""
    text = block(name)
    for old, new in zip(("8001", "8002", "8080"), ports, strict=True):
        assert re.search(rf"\b{old}\b", text)
        text = re.sub(rf"\b{old}\b", str(new), text)
    path = folder / "proxy.conf"
    path.write_text(NGINX.format(folder, text) if name == "nginx" else text)
    return ["nginx", "-p", folder, "-e", "stderr", "-c", path] if name == "nginx" else ["haproxy", "-db", "-f", path]


@contextlib.contextmanager
def running(command):
    path = os.environ["PATH"] + ":/usr/sbin"
    process = subprocess.Popen([*map(str, command)], env=environment({"PATH": path}), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT)


def replica(port):
    return Server("--port", port, "--max-num-seqs", 8, key=KEY, env={"QUIRE_API_KEY": KEY})


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_nobody_notices_a_rolling_restart(name, tmp_path):
    if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin"):
        pytest.skip(f"no {name}")
    ports = [free_port() for _ in range(3)]
    servers, failures, stop = [replica(port) for port in ports[:2]], [], threading.Event()
    proxy = Api("127.0.0.1", ports[2], KEY)

    def ask(i):
        while not stop.is_set():
            body = {"prompt": "One day", "max_tokens": 12, "temperature": 0, "stream": i % 2 == 0}
            try:
                reply = proxy.post("/v1/completions", body)
                good = reply.status == 200 and (not body["stream"] or reply.body.rstrip().endswith(b"data: [DONE]"))
                if not good or body["stream"] and len(parse_events(reply.body)) < 3:
                    failures.append(reply)
            except Exception as e:  # whatever a client would see
                failures.append(e)

    def both_serve():
        return all(answered(server) for server in servers)

    with running(configured(name, ports, tmp_path)):
        wait_for("the proxy", lambda: answers(proxy))
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            for i in range(2):
                wait_for("requests at both", both_serve)
                servers[i].signal()
                assert servers[i].wait() == 0
                servers[i] = replica(ports[i])
            wait_for("requests at both", both_serve)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            for server in servers:
                server.stop()
    assert not failures, failures[:3]


def answered(server):
    """How many completions a replica has given, unless they were refused."""
    samples = server.metrics().samples("quire:http_requests_total")
    return sum(value for labels, value in samples if labels["route"] == "/v1/completions" and labels["status"] == "200")


def answers(api):
    try:
        return api.get("/health").status == 200
    except OSError:
        return False


def test_a_server_without_a_key_tells_what_the_proxy_has_to_send(server):
    """The Host of nginx's upstream is not this machine's."""
    reply = server.call("GET", "/v1/models", headers=[("Host", "quire")])
    assert reply.status == 403 and reply.json()["error"]["code"] == "host_not_allowed"
    assert "`host_not_allowed`" in PAGE or "403\n`host_not_allowed`" in PAGE


def test_the_unit_is_read(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze")
    unit = tmp_path / "quire.service"
    unit.write_text((goldens.ROOT / "packaging/quire.service").read_text().replace("/usr/bin/quire", str(BINARY)).replace("User=quire\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert done.returncode == 0 and "quire.service" not in done.stderr, done.stderr


def test_the_configuration_is_read(tmp_path):
    (tmp_path / "keys").write_text(KEY + "\n")
    text = block("yaml").replace("/etc/quire/keys", str(tmp_path / "keys")).replace("8001", "0").replace("8G", "8M")
    text = re.sub("^model: .*", f"model: {goldens.ROOT}/models/quire-tiny.gguf", text)
    (tmp_path / "quire.yml").write_text(text)
    server = Server("--config", tmp_path / "quire.yml", model="", key=KEY)
    assert [model["id"] for model in server.get("/v1/models").json()["data"]] == ["qwen3-4b"]
    server.stop()
