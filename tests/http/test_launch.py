"""quire launch: what it gives a coding agent, by a program of that name that writes down its arguments and environment."""

import json
import os
import shlex
import subprocess
import tomllib

import pytest

from process import BINARY, Server


@pytest.fixture(scope="module")
def server():
    one = Server("--api-key", "a key's $x", model="", key="a key's $x")
    yield one
    one.stop()


@pytest.fixture
def launch(tmp_path, server):
    """launch(client, *words): what the client sees, (arguments, environment)."""
    for name in ("claude", "codex", "opencode"):
        path = tmp_path / name
        path.write_text('#!/usr/bin/env python3\nimport json, os, sys\njson.dump([sys.argv[1:], dict(os.environ)], open(os.environ["SEEN"], "w"))\nsys.exit(7)\n')
        path.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SEEN": str(tmp_path / "seen"), "ANTHROPIC_API_KEY": "of somebody", "QUIRE_API_KEY": server.key}

    def run(*words, **changes):
        return subprocess.run([BINARY, "launch", *words], env={**env, **changes}, capture_output=True, text=True, timeout=60)

    def seen(client, *words):
        done = run(client, "--url", server.url, "--", *words)
        assert done.returncode == 7, done.stderr  # the client's
        return json.loads((tmp_path / "seen").read_text())

    seen.run = run
    return seen


def context(server):
    return server.get("/v1/models").json()["data"][0]["max_model_len"]


def test_claude(launch, server):
    args, env = launch("claude", "-p", "a b")
    assert args == ["-p", "a b"]
    assert (env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_AUTH_TOKEN"], env["ANTHROPIC_API_KEY"]) == (server.url, server.key, "")
    models = {name for name, value in env.items() if value == "quire-tiny"}
    assert models == {"ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL", *(f"ANTHROPIC_DEFAULT_{kind}_MODEL" for kind in ("OPUS", "SONNET", "HAIKU"))}
    assert int(env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"]) + int(env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == context(server)


def test_codex(launch, server):
    args, env = launch("codex", "exec", "hi")
    assert args[-2:] == ["exec", "hi"] and set(args[:-2:2]) == {"-c"}
    config = tomllib.loads("\n".join(args[1:-2:2]))
    assert config == {"model": "quire-tiny", "model_provider": "quire", "model_context_window": context(server),
                      "model_providers": {"quire": {"name": "Quire", "base_url": server.url + "/v1", "wire_api": "responses", "env_key": "QUIRE_API_KEY"}}}  # fmt: skip
    assert env["QUIRE_API_KEY"] == server.key


def test_opencode(launch, server):
    args, env = launch("opencode")
    config = json.loads(env["OPENCODE_CONFIG_CONTENT"])
    assert args == [] and config["model"] == "quire/quire-tiny"
    assert config["provider"]["quire"]["options"] == {"baseURL": server.url + "/v1", "apiKey": server.key}
    assert config["provider"]["quire"]["models"]["quire-tiny"]["limit"]["context"] == context(server)


@pytest.mark.parametrize("client", ["claude", "codex", "opencode"])
def test_print(launch, server, client):
    """A shell that runs what it prints gives the client the same."""
    args, env = launch(client, "it's", "$HOME")
    done = launch.run(client, "--print", "--url", server.url, "--", "it's", "$HOME")
    assert done.returncode == 0 and not done.stderr
    *exports, command = done.stdout.splitlines()
    told = dict(shlex.split(line)[1].split("=", 1) for line in exports)
    assert shlex.split(command) == [client, *args] and told.items() <= env.items() and server.key in done.stdout.replace("'\\''", "'")


def test_failures(launch, server):
    nobody = launch.run("codex", "--port", "1")
    assert nobody.returncode == 1 and "quire serve" in nobody.stderr
    missing = launch.run("claude", "--url", server.url, PATH="/nowhere")
    assert missing.returncode == 1 and "claude is not installed" in missing.stderr
    refused = launch.run("claude", "--url", server.url, QUIRE_API_KEY="other")
    assert refused.returncode == 1 and "401" in refused.stderr
    for words in ((), ("vim",), ("claude", "--url", "ftp://x")):
        usage = launch.run(*words)
        assert usage.returncode == 2 and "usage: quire launch" in usage.stderr
