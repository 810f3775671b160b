"""Arguments of tools as models have to write them, and as they are read: of every format and the schemas that Pydantic and MCP
servers write, judged by jsonschema. The calls come from test_server_arguments, which draws them from the grammars."""

import json
import os
import subprocess
from collections import Counter

import jsonschema
import pytest

from process import BINARY


def test_arguments_are_of_their_schema(tmp_path):
    program, lines = BINARY.parent / "tests/test_server_arguments", tmp_path / "calls"
    if not program.exists():
        pytest.skip(f"no {program}")
    if subprocess.run([program, lines], env=os.environ, capture_output=True).returncode == 77:
        pytest.skip("no test data")
    formats = Counter()
    for line in lines.read_text(encoding="utf-8").strip().split("\n"):
        call = json.loads(line)
        schema = call["schema"]
        checker = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
        wrong = [e.message for e in checker.iter_errors(json.loads(call["arguments"]))]
        assert not wrong, (call, wrong)
        formats[call["format"]] += 1
    assert len(formats) >= 20 and min(formats.values()) > 100
