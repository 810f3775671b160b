"""examples/monitoring: every query of the board and the rules finds its metrics, by our reader and by Prometheus itself."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

import goldens
from process import SLOW
from wire import wait_for

FOLDER = goldens.ROOT / "examples/monitoring"
BOARD = json.loads((FOLDER / "grafana.json").read_text())
RULES = (FOLDER / "rules.yml").read_text()

# Metrics of the boards in vLLM's repository (examples/observability: prometheus_grafana/grafana.json and the seven of
# dashboards/grafana, as of November 2026): names of metrics by the labels that their queries filter and group by, beside those
# that Prometheus adds. Left out: panels that say themselves that they need a flag or a connector of vLLM (residency of blocks,
# transfers, sleep and weight updates, FLOPs).
VLLM_BOARDS = {
    "model_name engine le": """
        vllm:e2e_request_latency_seconds_bucket vllm:inter_token_latency_seconds_bucket vllm:request_generation_tokens_bucket
        vllm:iteration_tokens_total_bucket vllm:request_prompt_tokens_bucket vllm:request_queue_time_seconds_bucket
        vllm:request_time_per_output_token_seconds_bucket vllm:time_per_output_token_seconds_bucket
        vllm:time_to_first_token_seconds_bucket""",
    "model_name engine": """
        vllm:cache_config_info vllm:e2e_request_latency_seconds_count vllm:e2e_request_latency_seconds_sum
        vllm:external_prefix_cache_hits_total vllm:external_prefix_cache_queries_total vllm:generation_tokens_total
        vllm:inter_token_latency_seconds_count vllm:inter_token_latency_seconds_sum vllm:iteration_tokens_total_count
        vllm:iteration_tokens_total_sum vllm:kv_cache_usage_perc vllm:mm_cache_hits_total vllm:mm_cache_queries_total
        vllm:num_preemptions_total vllm:num_requests_running vllm:num_requests_waiting vllm:prefix_cache_hits_total
        vllm:prefix_cache_queries_total vllm:prompt_tokens_cached_total vllm:prompt_tokens_total
        vllm:request_decode_time_seconds_count vllm:request_decode_time_seconds_sum vllm:request_generation_tokens_count
        vllm:request_generation_tokens_sum vllm:request_inference_time_seconds_sum vllm:request_prefill_time_seconds_count
        vllm:request_prompt_tokens_count vllm:request_prompt_tokens_sum vllm:request_time_per_output_token_seconds_count
        vllm:request_time_per_output_token_seconds_sum
        vllm:request_max_num_generation_tokens_sum vllm:request_params_max_tokens_sum vllm:request_params_n_sum
        vllm:request_prefill_kv_computed_tokens_sum vllm:request_prefill_time_seconds_sum
        vllm:request_queue_time_seconds_count vllm:request_queue_time_seconds_sum vllm:spec_decode_num_accepted_tokens_total
        vllm:spec_decode_num_draft_tokens_total vllm:spec_decode_num_drafts_total vllm:time_to_first_token_seconds_count
        vllm:time_to_first_token_seconds_sum""",
    "model_name engine finished_reason": "vllm:request_success_total",
    "model_name engine reason": "vllm:num_requests_waiting_by_reason",
    "model_name engine source": "vllm:prompt_tokens_by_source_total",
    "model_name engine position": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "model_name engine sleep_state": "vllm:engine_sleep_state",
    "max_lora running_lora_adapters waiting_lora_adapters": "vllm:lora_requests_info",
    "engine num_gpu_blocks block_size cache_dtype enable_prefix_caching": "vllm:cache_config_info",
    "handler status": "http_requests_total",
    "handler": "http_request_duration_seconds_sum",
    "": """process_cpu_seconds_total process_max_fds process_open_fds process_resident_memory_bytes
        process_start_time_seconds""",
}
# Values of labels that their queries filter by.
VLLM_VALUES = {
    "vllm:engine_sleep_state": {"sleep_state": ["awake", "discard_all"]},
    "vllm:num_requests_waiting_by_reason": {"reason": ["capacity", "deferred"]},
    "vllm:prompt_tokens_by_source_total": {"source": ["local_compute", "local_cache_hit", "external_kv_transfer"]},
    "vllm:request_success_total": {"finished_reason": ["error"]},
}

promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt install prometheus")


def queries():
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for rule in re.findall(r"^ +expr: (.*)$", RULES, re.M):
        yield rule


def selectors(expr):
    """(name, labels that it filters or groups by) of each metric in a query."""
    groups = {l.strip() for g in re.findall(r"\bby \(([^)]*)\)", expr) for l in g.split(",")} - {"instance"}
    for name, labels in re.findall(r"([a-z_]+:[a-z0-9_]+|http_[a-z_]+|process_[a-z_]+)(?:\{([^}]*)\})?", expr):
        yield name, groups | set(re.findall(r"([a-z_]+)=", labels))


@pytest.fixture(scope="module")
def busy(model):
    """A server that has had every kind of traffic that a board asks for."""
    from process import Server

    server = Server("--max-num-seqs", "2", env=SLOW)
    for _ in range(2):
        server.complete("Once upon a time", max_tokens=8)
        server.complete("The", max_tokens=8, n=2)
    server.post("/v1/completions", {"prompt": "a", "n": 0})
    stream = server.open_stream("Once upon a time", max_tokens=1500, ignore_eos=True)
    next(iter(stream))
    stream.conn.reset()
    server.wait_idle()
    yield server
    server.stop()


@pytest.mark.parametrize("expr", sorted(set(queries())))
def test_queries(busy, expr):
    m, found = busy.metrics(), list(selectors(expr))
    assert found or "up{" in expr, expr
    for name, labels in found:
        have = [labels for labels, _ in m.samples(name)]
        assert have or name == "quire:adapter_requests_total", f"{name} of {expr}"
        assert not have or any(labels <= set(h) for h in have), f"{name} lacks one of {labels}"


def test_vllm_boards(busy):
    m = busy.metrics()
    for labels, names in VLLM_BOARDS.items():
        for name in names.split():
            have = [have for have, _ in m.samples(name)]
            assert have and all(set(labels.split()) <= set(h) for h in have), (name, labels)
    for name, values in VLLM_VALUES.items():
        for label, wanted in values.items():
            assert set(wanted) <= {have[label] for have, _ in m.samples(name)}, name
    assert m.value("vllm:engine_sleep_state", sleep_state="awake") == 1  # else the board of the service's status says: down


def test_process(busy):
    m = busy.metrics()
    assert 0 < time.time() - m.value("process_start_time_seconds") < 600
    assert 5 < m.value("process_open_fds") < m.value("process_max_fds")
    fds = m.value("process_open_fds")
    conns = [busy.connect() for _ in range(20)]
    wait_for("they are open", lambda: busy.metrics().value("process_open_fds") >= fds + 20)
    for conn in conns:
        conn.close()
    assert m.value("process_virtual_memory_bytes") > m.value("process_resident_memory_bytes") > 1 << 20


def test_board(server):
    ids = [p["id"] for p in BOARD["panels"]]
    assert len(ids) == len(set(ids)) and all(p["targets"] and p["title"] for p in BOARD["panels"])
    for p in BOARD["panels"]:
        assert p["gridPos"]["x"] + p["gridPos"]["w"] <= 24


@promtool
def test_promtool(busy):
    subprocess.run(["promtool", "check", "rules", FOLDER / "rules.yml"], check=True, capture_output=True)
    subprocess.run(["promtool", "check", "config", FOLDER / "prometheus.yml"], check=True, capture_output=True)
    done = subprocess.run(["promtool", "check", "metrics"], input=busy.get("/metrics").body, capture_output=True)
    # 3: it reads them, and would name them otherwise: without a colon, and not as vLLM names the tokens of a step.
    lines = [line for line in done.stderr.decode().splitlines()
             if not line.endswith("should not contain ':'") and "vllm:iteration_tokens_total" not in line]  # fmt: skip
    assert done.returncode in (0, 3) and lines == [], done.stderr.decode()


def ask(port, path, **query):
    url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=30) as reply:
        return json.load(reply)["data"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus: apt install prometheus")
def test_prometheus(busy, tmp_path):
    """Debian's Prometheus scrapes the server, loads the rules and evaluates every query."""
    config = (FOLDER / "prometheus.yml").read_text().replace("127.0.0.1:8000", busy.host_header)
    (tmp_path / "prometheus.yml").write_text(config.replace("10s", "1s"))
    (tmp_path / "rules.yml").write_text(RULES)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    log = open(tmp_path / "log", "wb")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                if float(ask(port, "/api/v1/query", query="count_over_time(up[1m])")["result"][0]["value"][1]) >= 3:
                    break
            except (OSError, IndexError):
                assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            busy.complete("Once upon a time", max_tokens=4)
            time.sleep(0.2)
        assert ask(port, "/api/v1/query", query="up")["result"][0]["value"][1] == "1"
        for panel in BOARD["panels"]:
            for target in panel["targets"]:
                expr = target["expr"].replace("$__rate_interval", "1m").replace("$model", ".*")
                found = ask(port, "/api/v1/query", query=expr)["result"]
                assert found or "adapter" in expr or "by_reason" in expr, expr
        for labels, names in VLLM_BOARDS.items():
            wanted = set(labels.split()) & {"model_name", "engine", "le", "position", "source"}
            chosen = 'model_name="NAME",engine=~".+"'.replace("NAME", busy.models()[0]) if "model_name" in wanted else ""
            for name in names.split():
                instant = name.endswith(("_info", "_perc", "_running", "_waiting", "_reason", "_state", "_bytes", "_fds", "time_seconds"))
                expr = name + "{" + chosen + "}" if instant else f"rate({name}{{{chosen}}}[1m])"
                found = ask(port, "/api/v1/query", query=f"sum by ({', '.join(wanted)}) ({expr})")["result"]
                assert found and all(wanted <= set(f["metric"]) for f in found), expr
        groups = ask(port, "/api/v1/rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert len(rules) == RULES.count("- alert:") and all(rule["health"] != "err" for rule in rules), rules
    finally:
        process.terminate()
        process.wait(60)
        log.close()
