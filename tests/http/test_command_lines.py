"""Command lines as the documents of other servers print them, behind the name of the program and the model: each is taken, or
answered in one go with what to write in its place. Sources: docs.vllm.ai (serving, features, recipes), llama.cpp's tools/server/README.md
and docs/, docs.sglang.ai (server arguments), huggingface.co/docs/text-generation-inference (launcher), model cards of Qwen and gpt-oss."""

import re
import shlex
import subprocess

import pytest

from goldens import ROOT
from process import BINARY, Server

LINES = """
vllm: --dtype auto --api-key token-abc123
vllm: --enable-auto-tool-choice --tool-call-parser llama3_json --chat-template examples/tool_chat_template_llama3.1_json.jinja
vllm: --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3
vllm: --reasoning-parser deepseek_r1
vllm: --enable-reasoning --reasoning-parser deepseek_r1
vllm: --tensor-parallel-size 4
vllm: --tensor-parallel-size 4 --pipeline-parallel-size 2 --distributed-executor-backend ray
vllm: --enable-lora --lora-modules sql-lora=/path/to/lora
vllm: --max-model-len 2048 --gpu-memory-utilization 0.8 --max-num-seqs 8
vllm: --runner generate --trust-remote-code --max-model-len 4096 --limit-mm-per-prompt '{"image":2}'
vllm: --kv-cache-dtype fp8
vllm: --quantization awq --dtype half
vllm: --enforce-eager --max-model-len 1024
vllm: --speculative-config '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}'
vllm: --enable-chunked-prefill --max-num-batched-tokens 2048
vllm: --swap-space 16 --disable-log-requests
vllm: --data-parallel-size 4
vllm: --async-scheduling --tensor-parallel-size 2
vllm: --task embed --trust-remote-code
vllm: --runner pooling --convert embed
vllm: --enable-prefix-caching --prefix-caching-hash-algo sha256
vllm: -O3
vllm: --compilation-config '{"cudagraph_mode": "FULL_AND_PIECEWISE"}'
vllm: --tensor-parallel-size 8 --enable-expert-parallel --max-model-len 131072 --served-model-name minimax
vllm: --hf-overrides '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}' --max-model-len 131072
vllm: --tool-call-parser openai --enable-auto-tool-choice --no-enable-log-requests
vllm: --cpu-offload-gb 10 --max-parallel-loading-workers 2
vllm: --uvicorn-log-level warning --disable-log-stats --root-path /llm
llama: -c 2048
llama: --port 8080
llama: -c 16384 -np 4
llama: -md draft.gguf --draft-max 16 --draft-min 5
llama: --embedding --pooling cls -ub 8192
llama: --reranking
llama: --grammar-file grammar.gbnf
llama: --jinja -fa on
llama: --ctx-size 0 --jinja -ub 2048 -b 2048 -ngl 99 -fa
llama: --n-cpu-moe 30 -ngl 99 -fa 1
llama: --jinja --chat-template-file models/templates/google-gemma-2-2b-it.jinja
llama: -ctk q8_0 -ctv q8_0 -fa on
llama: --jinja --color -ngl 99 -fa -sm row --temp 0.6 --top-k 20 --top-p 0.95 --min-p 0 -c 40960 -n 32768 --no-context-shift
llama: --threads 8 --n-gpu-layers 99 --prio 3 --temp 0.7 --min-p 0.01
llama: --host 0.0.0.0 --port 8012 --ubatch-size 1024 --batch-size 1024 --cache-reuse 256 -ngl 99 -fa --ctx-size 0
llama: --mlock --no-mmap --numa distribute -t 8
llama: --slots --metrics --no-webui --log-disable
llama: -a gpt-3.5-turbo --api-key secret --timeout 600
llama: --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768
llama: --lora my.gguf
llama: --reasoning-format deepseek --reasoning-budget 0
llama: -v --log-file server.log
llama: --ssl-key-file key.pem --ssl-cert-file cert.pem
sglang: --host 0.0.0.0 --port 30000 --mem-fraction-static 0.7
sglang: --tp 8 --trust-remote-code --context-length 65536
sglang: --chunked-prefill-size 4096 --schedule-conservativeness 0.3
sglang: --enable-torch-compile --torch-compile-max-bs 8
sglang: --quantization fp8 --kv-cache-dtype fp8_e5m2
sglang: --tool-call-parser qwen25 --reasoning-parser deepseek-r1
sglang: --tp 4 --nnodes 2 --node-rank 0 --dist-init-addr sgl-dev-0:50000
sglang: --enable-lora --lora-paths lora0=/path/lora --max-loras-per-batch 4
sglang: --is-embedding --attention-backend triton --sampling-backend pytorch
sglang: --disable-cuda-graph --disable-radix-cache --grammar-backend xgrammar
sglang: --speculative-algorithm EAGLE --speculative-draft-model-path draft --speculative-num-steps 3 --speculative-eagle-topk 4
sglang: --enable-metrics --random-seed 42 --max-running-requests 64 --dp 2
tgi: --num-shard 4 --quantize bitsandbytes
tgi: --max-input-length 2048 --max-total-tokens 4096 --max-batch-prefill-tokens 4096
tgi: --sharded true --num-shard 2 --validation-workers 2 --cors-allow-origin '*' --usage-stats off --speculate 2 --cuda-graphs 1,2,4
tgi: --otlp-endpoint http://localhost:4317 --lora-adapters predibase/magicoder --payload-limit 2000000 --enable-prefill-logprobs
tgi: --hostname 0.0.0.0 --port 8080 --cuda-memory-fraction 0.9 --max-concurrent-requests 512
""".strip().splitlines()
assert len(LINES) >= 60


def problems(words):
    """The faults of the arguments of `quire serve`, a line each; [] where it would start."""
    done = subprocess.run([BINARY, "serve", "model.gguf", *words, "--help"], capture_output=True, text=True, timeout=20)
    assert (done.returncode == 2) == bool(done.stderr), done.stderr
    return done.stderr.splitlines()


def without(words, lines):
    """The words without the flags that the lines name, and without their values."""
    named, left = {re.match(r"quire: (?:unknown flag )?(-[\w-]+)", line)[1] for line in lines}, []
    for word in words:
        if word.startswith("-"):
            skips = word.split("=")[0] in named
        if not skips:
            left.append(word)
    return left


def answer(line):
    """'starts', 'told': every problem has a way out, and without the flags that it names the rest starts; or 'unknown'."""
    words = shlex.split(line.split(": ", 1)[1])
    lines = problems(words)
    if not lines:
        return "starts"
    assert not problems(without(words, lines)), "not all was told at once"
    return "told" if all(re.search(r" is no flag of Quire: |: expected |did you mean", each) for each in lines) else "unknown"


def test_lines_of_others_start_or_are_told_once():
    answers = {line: answer(line) for line in LINES}
    unknown = [line for line, how in answers.items() if how == "unknown"]
    assert len(unknown) <= len(LINES) - 50, "\n".join(unknown)
    assert sum(how == "starts" for how in answers.values()) >= 40, answers


@pytest.mark.parametrize("line", ["--jinja -fa on -ngl 99 -c 512 -np 4 --mlock --no-webui -a gpt-3.5-turbo",
                                  "--enable-auto-tool-choice --tool-call-parser openai --swap-space 16 --disable-log-requests"])  # fmt: skip
def test_a_line_of_others_starts(line):
    server = Server(*line.split(), model=ROOT / "models/quire-tiny.gguf")  # which comes up, or says why
    assert "needs nothing here" in server.log()
    server.stop()


def pages_tables():
    """Flags by what docs/configuration.md says of them: ours, and others' with the word behind them."""
    page = subprocess.run([BINARY, "help", "configuration"], capture_output=True, text=True).stdout
    own, _, others = page.partition("## Flags of vLLM")
    ours = set(re.findall(r"^\| `(?:-\w`, `)?(--[a-z0-9-]+)", own, re.M))
    foreign = {flag: word for names, word in re.findall(r"^\| (`.*?`) \| (.*) \|$", others, re.M) for flag in re.findall(r"`(-[^`]+)`", names)}
    return ours, foreign


@pytest.mark.parametrize("page", ["vllm", "llama-server", "tgi", "ollama"])
def test_pages_for_those_who_come(page):
    """docs/from-*.md: each row says what becomes of the flag."""
    ours, foreign = pages_tables()
    rows = re.findall(r"^\| (.*`.*) \| (.*) \|$", (ROOT / f"docs/from-{page}.md").read_text(), re.M)
    assert len(rows) >= 10
    for theirs, said in rows:
        named = re.findall(r"`(--[a-z0-9-]+)", said)
        assert set(named) <= ours, (theirs, set(named) - ours)
        for i, flag in enumerate(re.findall(r"`(-[^`]+)`", theirs)):
            if said.startswith("the same"):
                assert flag in ours or foreign[flag] == "the argument MODEL", flag
            elif said.startswith(("left out", "refused")):
                assert foreign[flag].startswith(said[:7]), (flag, foreign[flag])
            else:
                assert foreign[flag] == f"`{named[min(i, len(named) - 1)]}`", (flag, foreign[flag])
