"""A pytest plugin with which llama.cpp's server tests (tools/server/tests/unit) run against `quire serve`.

Nothing is copied: their utils.py is imported from a checkout, and its ServerProcess gets another start(). What has another name here is
translated: flags by flags(), requests by ask(), responses by answer() and chunks().
"""

import json
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("http", "tools")]
sys.modules["wget"] = types.ModuleType("wget")  # nothing is downloaded

import goldens  # noqa: E402
import httpx2 as httpx  # noqa: E402
import make_encoders  # noqa: E402
import make_gguf  # noqa: E402
import openai  # noqa: E402
import process  # noqa: E402
import utils  # noqa: E402

CONTEXT = 2048  # of the model
STORIES = "ggml-org/test-model-stories260K"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLS = '{{ tools | tojson if tools }}{% for m in messages if m.tool_calls %}<tool_call>{"name", "arguments"}</tool_call>{% endfor %}'
TOLD = (
    '{% set enable_thinking = THINKS %}{% set functions = "" %}'
    '{% set date_string = strftime_now("%d %b %Y") %}{% set datetime = strftime_now("%b %d %Y") %}'
)
COMPLETIONS = ("/completion", "/completions", "/chat/completions")
OTHERS = ("/messages", "/count_tokens", "/responses", "/embeddings", "/rerank", "/infill")
ERRORS = {"context_length_exceeded": "exceed_context_size_error", "invalid_api_key": "authentication_error"}
METRICS = {  # theirs: ours
    "prompt_tokens_total": lambda m: m["prompt_tokens_total"] - m["prefix_cache_hits_total"],
    "prompt_tokens_cached_total": lambda m: m["prefix_cache_hits_total"],
    "tokens_predicted_total": lambda m: m["generation_tokens_total"],
}


# ---- flags


def write(text, suffix):
    with tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False) as file:
        file.write(text)
    return file.name


def template(server):
    """The value of --chat-template: a file or a name. If llama-server falls back to ChatML, so ChatML, with its own way to call
    tools if a test has some. The variables that it sets for templates are written before them."""
    if server.chat_template_file:
        known = TOLD.replace("THINKS", str(server.reasoning != "off").lower())
        return write(known + Path(server.chat_template_file).read_text(), ".jinja")
    text = server.chat_template
    if not text or text == "chatml":
        return write((CALLS if "anthropic" in (server.model_alias or "") else "") + CHATML, ".jinja")
    return write(text, ".jinja") if " " in text else text


def code_model():
    """One that fills in the middle."""
    path = tempfile.mkdtemp() + "/code.gguf"
    names = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
    control = [word for name in names for word in ("--control", name)]
    make_gguf.main([path, "--arch", "qwen3", "--vocab", "420", "--context", str(CONTEXT), *control])
    return path


def encoder(case):
    folder = tempfile.mkdtemp()
    make_encoders.Model(make_encoders.CASES[case] | {"context": CONTEXT}).write_folder(folder)
    return folder


def model(server):
    """That of the test, or a random one of its kind."""
    file, repo = server.model_hf_file or "", server.model_hf_repo
    if file.startswith("bert-bge"):
        return encoder("bert")
    if file.startswith("jina-reranker"):
        return encoder("bert-rank")
    if repo == STORIES + "-infill":
        return code_model()
    if repo not in (STORIES, None):
        pytest.skip(f"needs the model {repo}")
    return goldens.data("models/stories260K/stories260K.gguf")


def flags(server):
    if server.server_embeddings or server.server_reranking:
        return ["--pooling", server.pooling] if server.pooling else []
    slots = server.n_slots or 1
    context = (server.n_ctx or CONTEXT) // (1 if server.kv_unified else slots)
    given = ["--max-model-len", min(context, CONTEXT), "--max-num-seqs", slots, "--chat-template", template(server)]
    given += ["--no-page"] if server.no_ui else []
    for name in (server.model_alias or "default").split(","):
        given += ["--served-model-name", name]
    if server.api_key:
        given += ["--api-key", server.api_key]
    given += ["--allowed-origins", server.cors_origins or "*", "--allow-credentials"]
    return given


# ---- requests and responses


def ask(server, path, data):
    """Theirs takes any model's name, has flags for what a request does not say, and continues what the assistant said last. The prompt that
    `verbose` asks for is that of another path."""
    if isinstance(data, dict) and path.endswith(OTHERS):
        return {k: v for k, v in data.items() if k != "model"}
    if not isinstance(data, dict) or not path.endswith(COMPLETIONS):
        return data
    asked = {k: v for k, v in data.items() if k not in ("model", "verbose")}
    asked.setdefault("temperature", server.temperature)
    asked.setdefault("seed", server.seed)
    messages = data.get("messages")
    if isinstance(messages, list) and isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        asked |= {"continue_final_message": True, "add_generation_prompt": False} | data
    if not asked.keys() & {"n_predict", "max_tokens"} and (server.n_predict or -1) > 0:
        asked["n_predict"] = server.n_predict
    return asked


def answer(body):
    """Names of builds and of errors."""
    if isinstance(body, dict):
        if "system_fingerprint" in body:
            body["system_fingerprint"] = "b" + body["system_fingerprint"]
        error = body.get("error")
        if isinstance(error, dict):
            error["type"] = ERRORS.get(error.get("code"), error["type"])
    return body


def chunks(body):
    """A chunk of a stream. Theirs has null for the text beside the role, and a chunk of its own for how it ended."""
    body = answer(body)
    choice = next(iter(body.get("choices") or []), {})
    delta = choice.get("delta")
    if not delta:
        return [body]
    if "role" in delta:
        delta["content"] = None
    if choice["finish_reason"] is None or not delta.get("content"):
        return [body]
    end = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
    choice["finish_reason"] = None
    return [body, body | {"choices": [end]}]


class Transport(httpx.HTTPTransport):
    """The same for the OpenAI client."""

    def __init__(self, server):
        super().__init__()
        self.server = server

    def handle_request(self, request):
        path = request.url.path
        content = json.dumps(ask(self.server, path, json.loads(request.read()))).encode()
        headers = [(k, v) for k, v in request.headers.raw if k.lower() != b"content-length"]
        response = super().handle_request(
            httpx.Request(request.method, request.url, headers=headers, content=content, extensions=request.extensions)
        )
        kind = response.headers["content-type"]
        headers = [(k, v) for k, v in response.headers.raw if k.lower() != b"content-length"]
        return httpx.Response(response.status_code, headers=headers, content=renamed(response.read().decode(), kind).encode())


def renamed(text, kind):
    if "event-stream" not in kind:
        return json.dumps(answer(json.loads(text)))
    events = []
    for event in text.split("\n\n"):
        data = event.removeprefix("data: ")
        known = data == event or data == "[DONE]"
        events += [event] if known else ["data: " + json.dumps(chunk) for chunk in chunks(json.loads(data))]
    return "\n\n".join(events)


def metrics(text):
    """Their names of the counters, without labels."""
    ours = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name = line.partition(" ")[0].partition("{")[0].rpartition(":")[2]
            ours[name] = ours.get(name, 0) + float(line.rpartition(" ")[2])
    lines = []
    for name, value in METRICS.items():
        lines += [f"# TYPE llamacpp:{name} counter", f"llamacpp:{name} {value(ours)}"]
    return "\n".join(lines)


class Client(openai.OpenAI):
    def __init__(self, base_url, **options):
        server = next(s for s in utils.server_instances if f":{s.server_port}" in base_url)
        super().__init__(base_url=base_url, http_client=httpx.Client(transport=Transport(server)), **options)


# ---- their utils.py


class ServerProcess(utils.ServerProcess):
    def start(self, timeout_seconds=60):
        self.started = str(int(time.time()))
        self.ours = process.Server(*flags(self), model=model(self), key=self.api_key)
        self.server_host, self.server_port = self.ours.address
        utils.server_instances.add(self)

    def stop(self):
        utils.server_instances.discard(self)
        if getattr(self, "ours", None):
            self.ours.secrets = []
            self.ours.stop()

    def make_request(self, method, path, data=None, headers=None, timeout=60):
        path = "/completion" if path == "/completions" else path
        asked = ask(self, path, data)
        result = super().make_request(method, path, asked, headers, timeout)
        result.body = answer(result.body)
        if isinstance(data, dict) and result.status_code == 200 and data.get("verbose", self.debug) and "messages" in data:
            prompt = super().make_request("POST", "/apply-template", asked, headers, timeout).body["prompt"]
            result.body["__verbose"] = {"prompt": "<s> " + prompt.removeprefix("<s>")}
        if path == "/apply-template":  # theirs adds BOS to the ids
            result.body["prompt"] = result.body["prompt"].removeprefix("<s>")
        if path == "/metrics":
            result.body, result.headers["Process-Start-Time-Unix"] = metrics(result.body), self.started
        if method == "OPTIONS":  # 204; or 400 where the origin is not allowed, of which theirs says nothing
            result.status_code = 200
        return result

    def make_stream_request(self, method, path, data=None, headers=None):
        try:
            for body in super().make_stream_request(method, path, ask(self, path, data), headers):
                yield from chunks(body)
        except utils.ServerError as error:
            error.body = answer(error.body)
            raise


def match_regex(regex, text):
    """Sampled texts depend on their random numbers, so only that there is a text is asked."""
    return bool(text)


def pytest_configure(config):
    utils.ServerProcess = ServerProcess
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.match_regex = match_regex
    utils.OpenAI = Client
