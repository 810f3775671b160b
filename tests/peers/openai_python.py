"""A pytest plugin with which openai-python's tests/api_resources run against `quire serve`, in place of a mock of the service.

The mock answers any request that the schema allows. FORGOTTEN are the fields of such requests that ask for what no text model does, or
that have values which only a mock takes: the client does not send them.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))

import goldens  # noqa: E402
import openai  # noqa: E402
import process  # noqa: E402
import pytest  # noqa: E402

MODELS = ["gpt-6-astra", "gpt-3.5-turbo-instruct"]
KEY = "My API Key"
TEMPLATE = Path(__file__).with_name("roles.jinja")
FORGOTTEN = [
    *("audio", "moderation", "reasoning_effort", "store", "suffix", "verbosity", "web_search_options"),
    *("functions", "function_call", "tools", "tool_choice"),
    *("logit_bias", "best_of", "max_tokens", "max_completion_tokens"),  # {"foo": 0}, 0, 0
]


def without(options):
    body = options.json_data
    if isinstance(body, dict):
        options.json_data = {k: v for k, v in body.items() if k not in FORGOTTEN}
        if not body.get("stream"):
            options.json_data.pop("stream_options", None)
    return options


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):  # theirs reads the address as it is loaded
    names = [word for model in MODELS for word in ("--served-model-name", model)]
    model = goldens.data("models/stories260K/stories260K.gguf")
    global quire
    quire = process.Server("--api-key", KEY, "--chat-template", TEMPLATE, *names, model=model, key=KEY)
    quire.secrets = []
    host, port = quire.address
    os.environ["TEST_API_BASE_URL"] = f"http://{host}:{port}/v1"

    async def forget(self, options):
        return without(options)

    openai.OpenAI._prepare_options = lambda self, options: without(options)
    openai.AsyncOpenAI._prepare_options = forget


def pytest_unconfigure():
    quire.stop()
