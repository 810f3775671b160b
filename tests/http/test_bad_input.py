"""Every bad value is answered with a 400 that names the field, and harms nobody else."""

import json

import pytest

from goldens import data, expected
from wire import check_error

PROMPT = "Once upon a time"
PATH = "/v1/completions"


@pytest.fixture(scope="class", autouse=True)
def unharmed(request, shared):
    """After each group the server still gives the golden answer."""
    yield
    server = shared["server"]
    if server and server.alive():
        assert server.complete(PROMPT, max_tokens=32)["choices"][0]["text"] == expected(0, 32)


def bad(server, fields, param, status=400, **more):
    body = {"prompt": PROMPT, "max_tokens": 4, **fields}
    return check_error(server.post(PATH, body), status, param, **more)


# Values that are of the wrong kind for a field. JSON booleans are no numbers, and strings are not parsed.
NOT_INT = ["1", True, False, 1.5, [], [1], {}, 1e300]
NOT_NUMBER = ["1", True, [], {}, "NaN", ""]
NOT_BOOL = ["true", 1, 0, [], {}, "", 0.0]
NOT_STRING = [1, True, [], {}, 1.5]

TABLE = {
    "model": [5, True, [], {}],
    "max_tokens": NOT_INT + [-1, -(2**31), -(2**63)],
    "min_tokens": NOT_INT + [-1, 5, 2**31],
    "temperature": NOT_NUMBER + [-0.001, -1, 2.0001, 3, 1e300, -1e300],
    "top_p": NOT_NUMBER + [0, -0.1, 1.0001, 2, 1e300],
    "top_k": NOT_INT + [-2, -(2**31), -(2**63)],
    "min_p": NOT_NUMBER + [-0.1, 1.1, 1e300],
    "n": NOT_INT + [0, -1, 129, 2**31, 2**62],
    "stream": NOT_BOOL,
    "logprobs": NOT_INT + [-1, 21, 1000, 2**31],
    "echo": NOT_BOOL,
    "presence_penalty": NOT_NUMBER + [-2.001, 2.001, 1e300],
    "frequency_penalty": NOT_NUMBER + [-2.001, 2.001, -1e300],
    "repetition_penalty": NOT_NUMBER + [0, -1, -1e-9],
    "seed": NOT_INT,
    "ignore_eos": NOT_BOOL,
    "skip_special_tokens": NOT_BOOL,
    "add_special_tokens": NOT_BOOL,
    "priority": NOT_INT,
    "best_of": NOT_INT + [0, -1, 2, 21],
    "suffix": NOT_STRING,
    "stop": [
        1, True, {}, 1.5, "", [""], ["ok", ""], [1], [["a"]], [None, 2], ["a" * 1025], "b" * 1025,
        [f"s{i}" for i in range(33)], {"a": "b"},
    ],
    "stop_token_ids": [5, "5", {}, [-1], [512], [2**31], ["1"], [1.5], [True], [[1]], list(range(65))],
    "logit_bias": [
        5, "x", [], [[1, 2]], {"a": 1}, {"": 1}, {"-1": 1}, {"512": 1}, {"99999999999999999999": 1}, {"1.5": 1},
        {"1x": 1}, {" 1": 1}, {"0x1": 1}, {"5": 100.5}, {"5": -101}, {"5": "1"}, {"5": True}, {"5": []}, {"5": 1e300},
    ],
    "cache_salt": ["", "s" * 1025, 5, True, [], {}],
}  # fmt: skip


def short(value):
    text = json.dumps(value)
    return text if len(text) < 30 else text[:20] + f"..{len(text)}"


class TestFields:
    @pytest.mark.parametrize(
        "field, value",
        [pytest.param(f, v, id=f"{f}={short(v)}") for f, values in TABLE.items() for v in values],
    )
    def test_value(self, server, field, value):
        accepted = {"min_tokens": ("min_tokens", "max_tokens"), "best_of": ("best_of", "n")}
        bad(server, {field: value}, accepted.get(field, field))

    @pytest.mark.parametrize("field", sorted(TABLE))
    def test_streaming_too(self, server, field):
        """The check comes before the first byte of a stream."""
        value = TABLE[field][-1]
        more = {} if field == "stream" else {"stream": True}
        accepted = {"min_tokens": ("min_tokens", "max_tokens"), "best_of": ("best_of", "n")}
        bad(server, {**more, field: value}, accepted.get(field, field))


class TestPrompt:
    @pytest.mark.parametrize(
        "prompt",
        [
            5, 1.5, True, {}, {"text": "a"}, [], [[]], [["a"]], ["a", 1], [1, "a"], [[1], "a"], ["a", [1]], [1, [1]], [[1], []],
            [-1], [512], [2**31], [2**62], [-(2**63)], [1.5], [True], [None], [[None]], [[-1]], [[512]], [[1], [9999]],
            [[[1]]], [{}], [["1"]], [1, True], [1, None], ["a", None],
        ],
        ids=short,
    )  # fmt: skip
    def test_bad_prompt(self, server, prompt):
        check_error(server.post(PATH, {"prompt": prompt, "max_tokens": 4}), 400, "prompt")

    def test_missing_prompt(self, server):
        check_error(server.post(PATH, {}), 400, "prompt")
        check_error(server.post(PATH, {"max_tokens": 4}), 400, "prompt")
        check_error(server.post(PATH, {"prompt": None}), 400, "prompt")

    @pytest.mark.parametrize(
        "prompt, n", [(["a"] * 129, 1), ([[1]] * 129, 1), (["a"] * 64, 3), (["a"] * 100_000, 1)], ids=short
    )
    def test_too_many_choices(self, server, prompt, n):
        """A small body must not become an unbounded number of requests."""
        check_error(server.post(PATH, {"prompt": prompt, "n": n, "max_tokens": 1}), 400, ("prompt", "n"))

    def test_one_bad_prompt_refuses_all(self, server):
        """No half-served request: nothing runs when one of the prompts is bad."""
        before = server.metrics().value("vllm:generation_tokens_total")
        check_error(server.post(PATH, {"prompt": [[1], [2], [512]], "max_tokens": 64}), 400, "prompt")
        check_error(
            server.post(PATH, {"prompt": [[1], [300] * 50_000], "max_tokens": 64}),
            400,
            code="context_length_exceeded",
        )
        assert server.wait_idle().value("vllm:generation_tokens_total") == before

    def test_a_long_text_is_refused_quickly(self, server):
        """Megabytes of text that cannot fit: a 400 with numbers, not minutes of tokenizing."""
        for text in ("a" * 3_000_000, "\n" * 3_000_000, "é🙂" * 500_000):
            error = check_error(
                server.post(PATH, {"prompt": text, "max_tokens": 1}), 400, code="context_length_exceeded"
            )
            assert any(c.isdigit() for c in error["message"])

    def test_how_much_too_long(self, server):
        """llama-server's numbers, by which clients cut their histories; of what was not tokenised only the limit."""
        limit = server.get("/v1/models").json()["data"][0]["max_model_len"]
        for tokens in (limit, limit + 7):
            error = check_error(server.post(PATH, {"prompt": [7] * tokens}), 400, code="context_length_exceeded")
            assert (error["n_prompt_tokens"], error["n_ctx"]) == (tokens, limit)
            assert str(tokens) in error["message"]
        error = check_error(server.post(PATH, {"prompt": "a" * 3_000_000}), 400, code="context_length_exceeded")
        assert "n_prompt_tokens" not in error and error["n_ctx"] == limit


class TestCombinations:
    def test_stream_options_without_stream(self, server):
        for more in ({}, {"stream": False}, {"stream": None}):
            bad(server, {"stream_options": {"include_usage": True}, **more}, "stream_options")

    @pytest.mark.parametrize(
        "options",
        [5, "x", True, [], {"include_usage": "yes"}, {"include_usage": 1}, {"continuous_usage_stats": "yes"}],
        ids=short,
    )
    def test_stream_options(self, server, options):
        bad(server, {"stream": True, "stream_options": options}, "stream_options")

    def test_min_above_max(self, server):
        bad(server, {"max_tokens": 4, "min_tokens": 5}, ("min_tokens", "max_tokens"))

    def test_message_names_the_field(self, server):
        for field in ("temperature", "top_p", "n", "stop", "stream", "seed"):
            error = bad(server, {field: {}}, field)
            assert field in error["message"]

    def test_messages_are_valid_utf_8(self, server):
        """A message may quote and cut a client's text, but never within a character."""
        for k in range(4):
            for text in ("é", "日", "🙂", "\u0001\n", "</script>", "\\", '"', "%s%n"):
                long = "x" * k + text * 200
                error = check_error(server.post(PATH, {"prompt": "a", "model": long}), 404)
                assert len(error["message"]) < 1000
                bad(server, {"logit_bias": {long: 1}}, "logit_bias")
                bad(server, {"stop": [long * 10]}, "stop")
        reply = server.get("/v1/models/" + "%F0%9F%99%82" * 100)
        check_error(reply, 404)
        for path in ("/v1/models/%ff%fe", "/v1/models/%0d%0aX-Injected:%201", "/%f0%9f"):
            reply = server.get(path)
            check_error(reply, (404, 400))
            assert reply.header("x-injected") is None

    def test_two_faults(self, server):
        check_error(
            server.post(PATH, {"prompt": [], "n": 0, "temperature": 9}), 400, ("prompt", "n", "temperature")
        )


# ---- bodies that are no JSON object


def post(server, body):
    return server.post(PATH, body if isinstance(body, bytes) else body.encode())


def numbers(field, literal):
    return b'{"prompt": "Once", "max_tokens": 2, "%s": %s}' % (field.encode(), literal.encode())


class TestBodies:
    @pytest.mark.parametrize(
        "body",
        [
            "", " ", "\n", "{", "}", "[", "[]", "[1]", '["prompt"]', '"prompt"', "null", "true", "1", "nul", "{}x", "{} {}", "{,}",
            "{'prompt': 'a'}", '{"prompt": "a",}', '{prompt: "a"}', '{"prompt": "a"} // no', '{"prompt": "a\n"}', '{"prompt": "\\x41"}',
            '{"prompt": "\\ud800"}', '{"prompt": "\\udc00 a"}', '{"prompt": "\\ud800\\ud800"}', "\ufeff{\"prompt\": \"a\"}",
            '{"prompt": "a", "prompt": "b"}', '{"prompt": "a", "n": 1, "n": 2}', '{"prompt": "a", "x": {"y": 1, "y": 2}}',
            '{"prompt": "a", "a\\u0000b": 1}', "--", "prompt=a",
        ],
        ids=lambda b: ascii(b)[:40],
    )  # fmt: skip
    def test_text(self, server, body):
        check_error(post(server, body), 400)

    @pytest.mark.parametrize(
        "body",
        [
            b"\x00", b"\xff\xfe{\x00}\x00", b'{"prompt": "\xff"}', b'{"prompt": "\xc0\xaf"}', b'{"prompt": "\xed\xa0\x80"}',
            b'{"prompt": "\xf4\x90\x80\x80"}', b'{"prompt": "\xe2\x82"}', b'{"prompt": "a"}\x00', b'{"prompt": "a\x00b"}',
            b'{"\xff": 1}', b'\x00{"prompt": "a"}',
        ],
    )  # fmt: skip
    def test_bytes(self, server, body):
        """Invalid UTF-8, overlong forms, surrogates, raw NULs."""
        check_error(post(server, body), 400)

    @pytest.mark.parametrize(
        "literal",
        ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1", ".5", "1.", "0x10", "1_000"],
    )
    @pytest.mark.parametrize("field", ["temperature", "top_p", "seed", "unknown_field"])
    def test_no_numbers(self, server, field, literal):
        """Python clients send NaN and Infinity; they are not JSON and never reach the sampler."""
        check_error(post(server, numbers(field, literal)), 400)

    @pytest.mark.parametrize(
        "literal", ["9223372036854775808", "18446744073709551615", "-9223372036854775809", "1" + "0" * 400]
    )
    @pytest.mark.parametrize("field", ["seed", "n", "max_tokens", "top_k", "priority", "unknown_field"])
    def test_integers_beyond_64_bits(self, server, field, literal):
        check_error(post(server, numbers(field, literal)), 400)

    @pytest.mark.parametrize("literal", ["1e308", "1e-400", "-0", "-0.0", "0e0", "1E0", "2e-308"])
    def test_odd_but_legal_numbers(self, server, literal):
        """In range or not: never a 5xx."""
        for field in ("temperature", "top_p", "n", "repetition_penalty", "unknown_field"):
            reply = post(server, numbers(field, literal))
            assert reply.status in (200, 400), (field, reply)

    def test_nesting(self, server):
        """Depth is bounded: no stack is used up."""
        for depth in (100, 2_000, 100_000, 1_000_000):
            for opening, closing in (("[", "]"), ('{"a":', "}")):
                middle = "1" if opening != "[" else ""
                body = (
                    '{"prompt": "a", "max_tokens": 1, "x": '
                    + opening * depth
                    + middle
                    + closing * depth
                    + "}"
                )
                check_error(post(server, body), 400)
            check_error(post(server, "[" * depth), 400)

    def test_shallow_nesting_is_fine(self, server):
        reply = post(server, '{"prompt": "a", "max_tokens": 1, "x": ' + "[" * 20 + "]" * 20 + "}")
        assert reply.status == 200

    def test_nul_in_a_prompt_does_not_truncate(self, server):
        r"""\u0000 is a character like others, or refused; what follows it is never lost."""
        reply = post(server, '{"prompt": "Once\\u0000 upon a time", "max_tokens": 1}')
        if reply.status == 200:
            short = server.complete("Once", max_tokens=1)["usage"]["prompt_tokens"]
            assert reply.json()["usage"]["prompt_tokens"] > short + 2
        else:
            check_error(reply, 400)
        reply = post(server, '{"prompt": "a", "max_tokens": 1, "stop": "a\\u0000b"}')
        assert reply.status in (200, 400)

    def test_many_keys_and_long_strings(self, server):
        keys = ", ".join(f'"k{i}": {i}' for i in range(20_000))
        assert post(server, '{"prompt": "a", "max_tokens": 1, ' + keys + "}").status in (200, 400)
        assert post(server, '{"prompt": "a", "max_tokens": 1, "user": "' + "u" * 1_000_000 + '"}').status in (
            200,
            400,
        )
        check_error(post(server, '{"prompt": "a", "model": "' + "m" * 1_000_000 + '"}'), (400, 404))


class TestParsingSuite:
    """JSONTestSuite: n_ must be refused by every parser, y_ be accepted, i_ may be either."""

    def files(self, kind):
        files = sorted(data("structured/JSONTestSuite/test_parsing").glob(f"{kind}_*.json"))
        assert files
        return files

    def test_invalid(self, server):
        for path in self.files("n"):
            reply = server.post(PATH, path.read_bytes())
            assert reply.status == 400, (path.name, reply)
            check_error(reply, 400)

    def test_valid_and_undecided(self, server):
        """Valid JSON, but no completion request: refused as such, never a 5xx."""
        for kind in "yi":
            for path in self.files(kind):
                reply = server.post(PATH, path.read_bytes())
                assert reply.status == 400, (path.name, reply)
                check_error(reply, 400)

    def test_valid_as_the_value_of_an_unknown_field(self, server):
        """The server parses JSON that the suite calls valid, unless it has a key twice or a NUL in a key, or is nested deeply."""
        refused = []
        for path in self.files("y"):
            reply = server.post(PATH, b'{"prompt": "a", "max_tokens": 1, "x": ' + path.read_bytes() + b"}")
            if reply.status != 200:
                check_error(reply, 400)
                refused.append(path.stem)
        allowed = {
            "y_object_duplicated_key",
            "y_object_duplicated_key_and_value",
            "y_object_escaped_null_in_key",
            "y_string_null_escape",
        }
        assert set(refused) <= allowed, refused
        assert "y_object_duplicated_key" in refused
