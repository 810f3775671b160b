"""Behaviour that clients of vLLM rely on: the facts that its own tests of the OpenAI server (tests/entrypoints/openai and serve) assert, asked of
this server. DIFFERS has those that do not hold here, with the reason.
"""

import pytest

import goldens
from process import SLOW, Server
from wire import Folded, Stream, wait_for

MESSAGES = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": "Once upon a time"}]
OPEN = [*MESSAGES, {"role": "assistant", "content": "There was"}]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
IDS = [1, 300, 301, 302, 303]
VOCABULARY = 512
DIFFERS = {
    "completions-beam-search": "beam search is refused",
    "completions-bias-out-of-range": "a bias beyond 100 is refused; vLLM cuts it",
    "completions-temperature-3": "above OpenAI's bound of 2",
    "chat-bias-of-two-bad-keys": "an error names the first bad value, not all",
    "chat-echo": "echo is of completions",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    file = tmp_path_factory.mktemp("template") / "roles.jinja"
    file.write_text(TEMPLATE)
    one = Server("--chat-template", file, model=goldens.data(goldens.MODEL))
    one.secrets = []
    yield one
    one.stop()


@pytest.fixture(autouse=True)
def known(request):
    reason = DIFFERS.get(request.node.name.partition("[")[2][:-1])
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


def body_of(where, fields):
    own = {"prompt": "Once upon a time"} if where == "completions" else {"messages": MESSAGES}
    return {**own, "max_tokens": 5, "temperature": 0, **fields}


def ask(api, where, **fields):
    path = "/v1/completions" if where == "completions" else "/v1/chat/completions"
    return api.post(path, body_of(where, fields))


def good(api, where, **fields):
    reply = ask(api, where, **fields)
    assert reply.status == 200, reply
    return reply.json()


def chunks(api, where, **fields):
    path = "/v1/completions" if where == "completions" else "/v1/chat/completions"
    with api.connect() as conn:
        conn.send(api.bytes("POST", path, body_of(where, {"stream": True, **fields})))
        return Stream(conn).finish()


def text(choice):
    return choice["text"] if "text" in choice else (choice.get("message") or choice["delta"]).get("content") or ""


BOTH = pytest.mark.parametrize("where", ["completions", "chat"])


def facts(**table):
    """A test for each entry: its name is the test's, its value what the test is called with."""
    return pytest.mark.parametrize("fact", [pytest.param(v, id=k.replace("_", "-")) for k, v in table.items()])


# ---- a whole answer


@BOTH
def test_answer(api, where):
    answer = good(api, where)
    usage, choice = answer["usage"], answer["choices"][0]
    assert answer["id"] and len(answer["choices"]) == 1
    assert choice["index"] == 0 and choice["finish_reason"] == "length" and len(text(choice)) >= 5
    assert choice.get("stop_reason") is None and choice["logprobs"] is None
    assert choice.get("prompt_logprobs") is None and answer.get("prompt_logprobs") is None
    assert choice.get("token_ids") is None and answer.get("prompt_token_ids") is None
    assert usage["completion_tokens"] == 5 and usage["prompt_tokens"] > 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0


def test_ids_are_a_prompt(api):
    answer = good(api, "completions", prompt=IDS)
    assert answer["usage"]["prompt_tokens"] == len(IDS) and text(answer["choices"][0])


def test_turns(api):
    first = good(api, "chat")["choices"][0]["message"]
    assert first["role"] == "assistant"
    longer = [*MESSAGES, first, {"role": "user", "content": "Go on."}]
    assert good(api, "chat", messages=longer)["usage"]["prompt_tokens"] > good(api, "chat")["usage"]["prompt_tokens"]


@BOTH
def test_choices(api, where):
    for fields in ({"n": 3, "seed": 42}, {"n": 3}):
        choices = good(api, where, temperature=1, max_tokens=40, **fields)["choices"]
        assert [c["index"] for c in choices] == [0, 1, 2]
        assert len({text(c) for c in choices}) == 3
        assert all(c["finish_reason"] in ("stop", "length") for c in choices)
    assert len(good(api, where, n=1)["choices"]) == 1


@BOTH
def test_choices_streamed(api, where):
    events = chunks(api, where, n=3, temperature=1, max_tokens=40, seed=42)
    ends = [e["choices"][0]["index"] for e in events if e["choices"][0]["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]
    parts = [[text(e["choices"][0]) for e in events if e["choices"][0]["index"] == i] for i in range(3)]
    assert len({"".join(p) for p in parts}) == 3
    whole = good(api, where, n=3, temperature=1, max_tokens=40, seed=42)["choices"]
    assert ["".join(p) for p in parts] == [text(c) for c in whole]


@pytest.mark.parametrize("prompts", [["Once upon a time"] * 2, [IDS] * 2], ids=["text", "ids"])
def test_batches(api, prompts):
    a, b = good(api, "completions", prompt=prompts)["choices"]
    assert text(a) == text(b) and (a["index"], b["index"]) == (0, 1)
    four = [text(c) for c in good(api, "completions", prompt=prompts, n=2, temperature=1, seed=7)["choices"]]
    assert len(four) == 4 and four[:2] == four[2:] and four[0] != four[1]
    folded = Folded(chunks(api, "completions", prompt=prompts))
    assert [c["text"] for c in folded.choices] == [text(a), text(b)]


# ---- streams


@BOTH
def test_stream(api, where):
    events = chunks(api, where)
    choices = [e["choices"][0] for e in events]
    assert "".join(map(text, choices)) == text(good(api, where)["choices"][0])
    assert [c["finish_reason"] for c in choices].count("length") == 1
    assert choices[-1]["finish_reason"] == "length" and text(choices[-1])
    assert all(e.get("usage") is None for e in events)
    if where == "chat":
        assert choices[0]["delta"]["role"] == "assistant"


@BOTH
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("include", [False, True])
def test_stream_options(api, where, include, continuous):
    options = {"include_usage": include, "continuous_usage_stats": continuous}
    events = chunks(api, where, max_tokens=10, min_tokens=10, stream_options=options)
    if not include:
        assert all(e.get("usage") is None for e in events)
        return
    *most, last = events
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 10
    assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 10
    if continuous:
        counts = [e["usage"]["completion_tokens"] for e in most]
        assert counts == sorted(counts) and counts[-1] == 10
        assert all(e["usage"]["prompt_tokens"] > 0 for e in most)
    else:
        assert all(e["usage"] is None for e in most)


@BOTH
def test_stream_options_of_nothing(api, where):
    assert all(e.get("usage") is None for e in chunks(api, where, stream_options={}))
    for name in ("include_usage", "continuous_usage_stats"):
        for value in (None, True):
            assert ask(api, where, stream_options={name: value}).status == 400, (name, value)


# ---- log-probabilities


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_logprobs(api, k):
    got = good(api, "completions", prompt=IDS, logprobs=k)["choices"][0]["logprobs"]
    assert len(got["tokens"]) == len(got["token_logprobs"]) == len(got["text_offset"]) == 5
    assert all(max(k, 1) <= len(top) <= k + 1 for top in got["top_logprobs"])
    chat = good(api, "chat", logprobs=True, top_logprobs=k)["choices"][0]["logprobs"]["content"]
    assert len(chat) == 5 and all(len(entry["top_logprobs"]) == k for entry in chat)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("k", [21, 30])
def test_too_many_logprobs(api, k, stream):
    assert ask(api, "completions", logprobs=k, stream=stream).status == 400
    assert ask(api, "chat", logprobs=True, top_logprobs=k, stream=stream).status == 400
    assert good(api, "completions")["choices"]


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("prompt", ["Once upon a time", IDS], ids=["text", "ids"])
def test_echo(api, k, prompt):
    choice = good(api, "completions", prompt=prompt, echo=True, logprobs=k)["choices"][0]
    own = api.post("/detokenize", {"tokens": prompt[1:]}).json()["prompt"] if prompt is IDS else prompt
    assert choice["text"].startswith(own.strip())
    got = choice["logprobs"]
    assert len(got["tokens"]) == len(got["text_offset"]) > 5
    assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None
    assert all(max(k, 1) <= len(top) <= k + 1 for top in got["top_logprobs"][1:])


@pytest.mark.parametrize("k", [0, 1, 2])
def test_prompt_logprobs(api, k):
    choices = good(api, "completions", prompt=["Once upon", "My name is"], prompt_logprobs=k)["choices"]
    chat = good(api, "chat", prompt_logprobs=k)["prompt_logprobs"]
    for got in (choices[0]["prompt_logprobs"], choices[1]["prompt_logprobs"], chat):
        assert got[0] is None and len(got) > 1
        assert all(max(k, 1) <= len(entry) <= k + 1 for entry in got[1:])
        assert all({"logprob", "rank", "decoded_token"} <= set(v) for entry in got[1:] for v in entry.values())


# ---- ids beside text


def test_token_ids(api):
    choice = good(api, "completions", return_token_ids=True, logprobs=1, return_tokens_as_token_ids=True)["choices"][0]
    assert len(choice["token_ids"]) == 5
    assert choice["prompt_token_ids"] == api.post("/tokenize", {"prompt": "Once upon a time"}).json()["tokens"]
    assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]]
    chat = good(api, "chat", return_token_ids=True)
    assert len(chat["choices"][0]["token_ids"]) == 5 and len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]


@BOTH
def test_token_ids_streamed(api, where):
    whole = good(api, where, return_token_ids=True)
    events = chunks(api, where, return_token_ids=True)
    ids = [i for e in events for i in e["choices"][0].get("token_ids") or []]
    assert ids == whole["choices"][0]["token_ids"]
    prompts = [e.get("prompt_token_ids") or e["choices"][0].get("prompt_token_ids") for e in events]
    assert prompts[0] and not any(prompts[1:])


@pytest.mark.parametrize("side", ["left", "right"])
def test_truncation(api, side):
    fields = {"truncate_prompt_tokens": 3, "truncation_side": side, "return_token_ids": True}
    got = good(api, "completions", prompt=IDS, **fields)["choices"][0]["prompt_token_ids"]
    assert got == (IDS[:3] if side == "right" else IDS[-3:])


# ---- tokens


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("strs", [False, True])
def test_tokenize(api, special, strs):
    body = {"prompt": "One day, Lily", "add_special_tokens": special, "return_token_strs": strs}
    got = api.post("/tokenize", body).json()
    assert got["count"] == len(got["tokens"]) and (got["tokens"][0] == 1) == special
    assert got["max_model_len"] == api.get("/v1/models").json()["data"][0]["max_model_len"]
    assert len(got["token_strs"]) == got["count"] if strs else got["token_strs"] is None
    back = api.post("/detokenize", {"tokens": got["tokens"][1 if special else 0 :]}).json()
    assert back["prompt"].strip() == body["prompt"]


@pytest.mark.parametrize("generation", [False, True])
def test_tokenize_chat(api, generation):
    body = {"messages": MESSAGES, "add_generation_prompt": generation}
    got = api.post("/tokenize", body).json()
    told = good(api, "chat", add_generation_prompt=generation)["usage"]["prompt_tokens"]
    assert got["count"] == len(got["tokens"]) == told and got["token_strs"] is None


def test_tokenizer_info(api):
    got = api.get("/tokenizer_info").json()
    assert got["chat_template"] == TEMPLATE
    kinds = {"add_bos_token": bool, "bos_token": str, "eos_token": str, "model_max_length": int, "added_tokens_decoder": dict}
    assert all(isinstance(got[k], kind) for k, kind in kinds.items() if got.get(k) is not None)
    for number, token in (got.get("added_tokens_decoder") or {}).items():
        assert number.isdigit() and isinstance(token["content"], str) and isinstance(token["special"], bool)


# ---- what a request may say


@facts(
    completions_extra_field={"foo": "bar"},
    completions_response_format_text={"response_format": {"type": "text"}},
    completions_no_stop={"stop": []},
    completions_top_k_off={"top_k": -1},
    completions_top_k_0={"top_k": 0},
    completions_min_p={"min_p": 0.05},
    completions_best_of={"n": 2, "best_of": 2, "temperature": 1},
    completions_no_limit_by_null={"max_tokens": None, "stop": ["."]},
    completions_bias_of_the_last_token={"logit_bias": {str(VOCABULARY - 1): 1.0}},
    completions_bias_out_of_range={"logit_bias": {"5": 1000}},
    completions_temperature_3={"temperature": 3},
    completions_beam_search={"n": 2, "use_beam_search": True},
    completions_allowed_tokens={"allowed_token_ids": [300, 301]},
    completions_bad_words={"bad_words": ["upon"]},
    completions_stop_in_the_text={"stop": ["."], "include_stop_str_in_output": True},
    completions_spaces={"spaces_between_special_tokens": False},
    completions_truncation={"truncate_prompt_tokens": -1},
    chat_extra_field_of_a_message={"messages": [{"role": "user", "content": "Hi", "extra_field": "0"}]},
    chat_response_format_text={"response_format": {"type": "text"}},
    chat_parts={"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
    chat_custom_role={"messages": [{"role": "my-custom-role", "content": "Hi"}]},
    chat_max_completion_tokens={"max_completion_tokens": 5, "max_tokens": None},
    chat_bias_of_the_last_token={"logit_bias": {str(VOCABULARY - 1): 1.0}},
    chat_no_generation_prompt={"add_generation_prompt": False},
    chat_continue={"messages": OPEN, "add_generation_prompt": False, "continue_final_message": True},
    chat_echo={"echo": True},
    chat_no_tools={"tools": None, "tool_choice": None},
)
def test_taken(api, request, fact):
    where = request.node.name.partition("[")[2].partition("-")[0]
    assert all(text(c) for c in good(api, where, **fact)["choices"])


@facts(
    completions_no_prompt=({"prompt": None}, "prompt"),
    completions_empty_list=({"prompt": []}, "prompt"),
    completions_empty_list_in_a_list=({"prompt": [[]]}, "prompt"),
    completions_out_of_vocabulary=({"prompt": [999999]}, "out of vocabulary"),
    completions_negative_id=({"prompt": [-1]}, "out of vocabulary"),
    completions_max_tokens=({"max_tokens": -1}, "max_tokens"),
    completions_no_choice=({"n": 0}, "'n'"),
    completions_half_a_choice=({"n": 1.5}, "'n'"),
    completions_temperature=({"temperature": -1}, "temperature"),
    completions_top_p=({"top_p": 0}, "top_p"),
    completions_top_p_above=({"top_p": 1.1}, "top_p"),
    completions_top_k=({"top_k": -2}, "top_k"),
    completions_top_k_half=({"top_k": 2.5}, "top_k"),
    completions_min_p=({"min_p": 1.1}, "min_p"),
    completions_presence=({"presence_penalty": 2.1}, "presence_penalty"),
    completions_frequency=({"frequency_penalty": -2.1}, "frequency_penalty"),
    completions_repetition=({"repetition_penalty": 0}, "repetition_penalty"),
    completions_min_tokens=({"min_tokens": 6}, "min_tokens"),
    completions_min_tokens_below=({"min_tokens": -1}, "min_tokens"),
    completions_logprobs=({"logprobs": -1}, "logprobs"),
    completions_prompt_logprobs=({"prompt_logprobs": -2}, "prompt_logprobs"),
    completions_prompt_logprobs_streamed=({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    completions_empty_stop=({"stop": ""}, "stop"),
    completions_empty_stop_in_a_list=({"stop": ["a", ""]}, "stop"),
    completions_stop_id=({"stop_token_ids": [VOCABULARY]}, "stop_token_ids"),
    completions_truncation=({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    completions_truncation_beyond=({"truncate_prompt_tokens": 10**6}, "truncate_prompt_tokens"),
    completions_no_allowed_token=({"allowed_token_ids": []}, "allowed_token_ids"),
    completions_allowed_token=({"allowed_token_ids": [VOCABULARY]}, "allowed_token_ids"),
    completions_structured=({"structured_outputs": {"regex": "[.*"}}, "structured_outputs"),
    completions_seed_below=({"seed": -(2**63) - 1}, "integer"),
    completions_seed_above=({"seed": 2**63}, "integer"),
    completions_too_long=({"prompt": [300] * 5000}, "context length"),
    chat_no_messages=({"messages": None}, "messages"),
    chat_empty_messages=({"messages": []}, "messages"),
    chat_bias=({"logit_bias": {str(VOCABULARY + 1): 1.0}}, str(VOCABULARY + 1)),
    chat_bias_of_no_id=({"logit_bias": {"not_a_token_id": 50}}, "not_a_token_id"),
    chat_bias_of_no_number=({"logit_bias": {"1": "not_a_number"}}, "logit_bias"),
    chat_bias_of_two_bad_keys=({"logit_bias": {"bad1": 50.0, "bad2": 20.0}}, "bad2"),
    chat_stop_id=({"stop_token_ids": [VOCABULARY]}, "stop_token_ids"),
    chat_top_logprobs_alone=({"top_logprobs": 5}, "top_logprobs"),
    chat_prompt_logprobs=({"prompt_logprobs": -2}, "prompt_logprobs"),
    chat_both_prompts=({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message"),
    chat_structured=({"structured_outputs": {"regex": {"1": "Python"}}}, "structured_outputs"),
    chat_seed=({"seed": 2**63}, "integer"),
)
def test_refused(api, request, fact):
    where = request.node.name.partition("[")[2].partition("-")[0]
    fields, named = fact
    reply = ask(api, where, **fields)
    assert reply.status == 400, reply
    error = reply.json()["error"]
    assert named in error["message"] + str(error["param"]), error
    assert good(api, where)["choices"]  # the server goes on


# ---- paths


def test_paths(api):
    assert api.get("/health").status == api.get("/ping").status == 200
    assert list(api.get("/version").json()) == ["version"]
    assert api.get("/load").json() == {"server_load": 0}
    model = api.get("/v1/models").json()["data"][0]
    assert model["object"] == "model" and model["max_model_len"] > 0 and model["root"]
    missing = ask(api, "chat", model="no-such-model")
    assert missing.status == 404 and "does not exist" in missing.json()["error"]["message"]
    form = api.post("/v1/completions", b"prompt=Hi", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert form.status >= 400


def test_load(start):
    slow = start(env=SLOW)
    stream = slow.open_stream("Once upon a time", max_tokens=1000, ignore_eos=True)
    wait_for("a request that runs", lambda: slow.get("/load").json() == {"server_load": 1})
    stream.conn.close()
    wait_for("none", lambda: slow.get("/load").json() == {"server_load": 0})
