"""--otlp-traces-endpoint: what a collector gets is read by OpenTelemetry's own messages; one that is not well harms nothing."""

import base64
import http.server
import json
import socket
import threading
import time

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from process import SLOW, faulty, run
from wire import wait_for

PATH = "/v1/completions"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def read(body):
    """ExportTraceServiceRequest of its JSON. OTLP has ids in hexadecimal where protobuf has base64."""

    def converted(value):
        if isinstance(value, list):
            return [converted(v) for v in value]
        if not isinstance(value, dict):
            return value
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ("traceId", "spanId", "parentSpanId") else converted(v)
                for k, v in value.items()}  # fmt: skip

    return json_format.ParseDict(converted(json.loads(body)), ExportTraceServiceRequest())


def plain(value):
    kind = value.WhichOneof("value")
    return [plain(v) for v in value.array_value.values] if kind == "array_value" else getattr(value, kind)


class Collector:
    """Answers each POST with the next status of a list, the last one for ever."""

    def __init__(self, *statuses):
        collector, self.exports, self.seen = self, [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.seen.append((self.path, self.headers["Content-Type"]))
                status = statuses[min(len(collector.seen), len(statuses)) - 1]
                if status == 200:
                    collector.exports.append(read(body))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def spans(self):
        return [s for e in self.exports for r in e.resource_spans for scope in r.scope_spans for s in scope.spans]

    def request(self, request_id):
        """The span of a request, its attributes, and its phases by name, when they are there."""

        def mine():
            return [s for s in self.spans() if attributes(s).get("gen_ai.request.id", "").endswith(request_id)]

        wait_for(f"the span of {request_id}", mine, seconds=30)
        [span] = mine()
        return span, attributes(span), {s.name: s for s in self.spans() if s.parent_span_id == span.span_id}

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def attributes(span):
    return {a.key: plain(a.value) for a in span.attributes}


@pytest.fixture
def collect():
    made = []

    def begin(*statuses):
        made.append(Collector(*statuses or [200]))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def counts(server):
    return {l["result"]: v for l, v in server.metrics().samples("quire:trace_spans_total")}


def test_span(start, collect):
    collector = collect()
    server = start("--otlp-traces-endpoint", collector.url, env={"OTEL_SERVICE_NAME": 'a "house"'})
    before = time.time_ns()
    reply = server.post(
        PATH,
        {"prompt": "Once upon a time", "max_tokens": 12, "n": 2, "temperature": 0.5, "top_p": 0.75, "ignore_eos": True},
        headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "request-a"},
    )
    usage = reply.json()["usage"]
    server.wait_idle()
    after = time.time_ns()
    span, have, phases = collector.request("request-a")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.name == "llm_request" and span.kind == Span.SPAN_KIND_SERVER and span.status.code == Status.STATUS_CODE_UNSET
    assert before <= span.start_time_unix_nano < span.end_time_unix_nano <= after
    assert have["gen_ai.request.id"] == reply.json()["id"]
    assert have["gen_ai.request.model"] == server.models()[0]
    assert have["gen_ai.operation.name"] == "text_completion" and have["http.response.status_code"] == 200
    assert (have["gen_ai.request.n"], have["gen_ai.request.max_tokens"], have["gen_ai.usage.num_sequences"]) == (2, 12, 2)
    assert (have["gen_ai.request.temperature"], have["gen_ai.request.top_p"]) == (0.5, 0.75)
    assert have["gen_ai.usage.prompt_tokens"] == have["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert have["gen_ai.usage.completion_tokens"] == have["gen_ai.usage.output_tokens"] == 24
    assert have["gen_ai.response.finish_reasons"] == ["length"]

    queue, prefill, decode = phases["queue"], phases["prefill"], phases["decode"]
    ids = {span.span_id, queue.span_id, prefill.span_id, decode.span_id}
    assert len(ids) == 4 and all(len(i) == 8 and any(i) for i in ids)
    assert all(p.trace_id == span.trace_id and p.kind == Span.SPAN_KIND_INTERNAL for p in phases.values())
    times = [span.start_time_unix_nano, queue.start_time_unix_nano, queue.end_time_unix_nano, prefill.start_time_unix_nano,
             prefill.end_time_unix_nano, decode.start_time_unix_nano, decode.end_time_unix_nano, span.end_time_unix_nano]  # fmt: skip
    assert times == sorted(times)
    assert queue.end_time_unix_nano == prefill.start_time_unix_nano and prefill.end_time_unix_nano == decode.start_time_unix_nano
    for name, want in (
        ("time_in_queue", queue.end_time_unix_nano - queue.start_time_unix_nano),
        ("time_in_model_prefill", prefill.end_time_unix_nano - prefill.start_time_unix_nano),
        ("time_in_model_decode", decode.end_time_unix_nano - decode.start_time_unix_nano),
        ("time_in_model_inference", decode.end_time_unix_nano - prefill.start_time_unix_nano),
        ("time_to_first_token", prefill.end_time_unix_nano - span.start_time_unix_nano),
        ("e2e", span.end_time_unix_nano - span.start_time_unix_nano),
    ):
        assert have[f"gen_ai.latency.{name}"] == pytest.approx(want / 1e9, abs=1e-8), name
    [resource] = collector.exports[0].resource_spans
    assert {a.key: plain(a.value) for a in resource.resource.attributes}["service.name"] == 'a "house"'
    assert collector.seen[0] == ("/v1/traces", "application/json")
    wait_for("it is counted", lambda: counts(server) == {"sent": 1, "dropped": 0, "refused": 0})


GOOD = [f"00-{TRACE}-{PARENT}-01", f"01-{TRACE}-{PARENT}-ff-more"]
BAD = ["", "00", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-01-", f"00-{TRACE}-{PARENT}-0g", f"ff-{TRACE}-{PARENT}-01",
       f"00-{TRACE.upper()}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01",
       f"00_{TRACE}_{PARENT}_01", f"01-{TRACE}-{PARENT}-01more", "x" * 4000]  # fmt: skip


def test_parents(start, collect):
    """A parent that is none begins a new trace; one that is not sampled leaves no span."""
    collector = collect()
    server = start("--otlp-traces-endpoint", collector.url + "/custom")
    sent = GOOD + BAD
    for i, parent in enumerate([f"00-{TRACE}-{PARENT}-00", *sent]):
        server.post(PATH, {"prompt": "a", "max_tokens": 1}, headers={"traceparent": parent, "X-Request-Id": f"request-{i}"})
    seen = set()
    for i, parent in enumerate(sent, 1):
        span, _, _ = collector.request(f"-request-{i}")
        if parent in GOOD:
            assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT), parent
        else:
            assert span.trace_id.hex() != TRACE and len(span.trace_id) == 16 and any(span.trace_id), parent
            assert span.parent_span_id == b"", parent
            seen.add(span.trace_id)
    assert len(seen) == len(BAD)
    assert sum(s.name == "llm_request" for s in collector.spans()) == len(sent)
    assert collector.seen[0][0] == "/custom"


def test_other_ends(start, collect):
    """A refused body, a client that leaves, the other APIs."""
    collector = collect()
    server = start(env=SLOW | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.url})
    server.post(PATH, {"prompt": "a", "n": 0}, headers={"X-Request-Id": "bad"})
    server.post("/v1/messages", {"model": "", "max_tokens": 0}, headers={"X-Request-Id": "message"})
    conn = server.connect()
    conn.send(server.bytes("POST", PATH, {"prompt": "a", "max_tokens": 1500, "ignore_eos": True},
                           headers={"X-Request-Id": "gone"}))  # fmt: skip
    wait_for("it runs", lambda: server.metrics().value("vllm:generation_tokens_total") > 2)
    conn.reset()
    server.wait_idle()
    span, have, phases = collector.request("bad")
    assert have["http.response.status_code"] == 400 and span.status.code == Status.STATUS_CODE_UNSET and not phases
    assert "gen_ai.request.model" not in have
    assert collector.request("message")[1]["gen_ai.operation.name"] == "chat"
    span, have, phases = collector.request("gone")
    assert have["gen_ai.response.finish_reasons"] == ["abort"] and have["http.response.status_code"] == 499
    assert span.status.code == Status.STATUS_CODE_UNSET and list(phases) == ["queue", "prefill", "decode"]


def test_engine_failure(start, collect):
    """The spans of a server whose device has failed are sent before it goes."""
    collector = collect()
    server = start("--otlp-traces-endpoint", collector.url, env=faulty(step=4))
    reply = server.post(PATH, {"prompt": "a", "max_tokens": 80, "ignore_eos": True}, headers={"X-Request-Id": "failed"})
    assert reply.status == 503
    assert server.wait() == 70
    server.stopped = True
    server.discard_log()
    span, have, phases = collector.request("failed")
    assert span.status.code == Status.STATUS_CODE_ERROR and have["error.type"] == "503"
    assert have["gen_ai.usage.completion_tokens"] == 3 and "decode" in phases


def test_end(start, collect):
    """The server sends queued spans when it stops."""
    collector = collect()
    server = start("--otlp-traces-endpoint", collector.url)
    server.post(PATH, {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "last"})
    server.stop()
    assert [a for s in collector.spans() if (a := attributes(s)).get("gen_ai.request.id") == "cmpl-last"]


def test_again(start, collect):
    """A collector that is not ready is asked again, one that refuses is not."""
    collector = collect(503, 200, 400, 200)
    server = start("--otlp-traces-endpoint", collector.url)
    server.post(PATH, {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "first"})
    collector.request("first")
    server.post(PATH, {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "refused"})
    wait_for("it is refused", lambda: counts(server)["refused"], seconds=30)
    server.post(PATH, {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "third"})
    collector.request("third")
    assert not any(attributes(s).get("gen_ai.request.id") == "cmpl-refused" for s in collector.spans())
    assert "traces=failing" in server.log() and "traces=recovered" in server.log() and "traces=refused" in server.log()


@pytest.fixture(params=["closed", "hung", "garbage", "endless"])
def sick(request):
    """The address of a collector that is not well."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "closed":
            yield listener.getsockname()[1]
            return
        listener.listen(16)
        done, conns = threading.Event(), []

        def serve():
            listener.settimeout(0.1)
            while not done.is_set():
                try:
                    conns.append(listener.accept()[0])
                except TimeoutError:
                    continue
                if request.param == "garbage":
                    conns[-1].sendall(b"\x00\xff" * 4000)
                    conns.pop().close()
                elif request.param == "endless":
                    conns[-1].settimeout(0.1)
                    try:
                        conns[-1].sendall(b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 22))
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        done.set()
        thread.join()
        for conn in conns:
            conn.close()


def test_sick_collectors(start, sick):
    """Requests go on, the queue stays bounded, what does not fit is counted, and the server stops."""
    server = start("--otlp-traces-endpoint", f"http://127.0.0.1:{sick}")
    want = server.complete("Once upon a time", max_tokens=8)["choices"][0]["text"]
    with server.connect() as conn:
        for _ in range(2100):
            conn.send(server.bytes("POST", PATH, {"n": 0}))
            assert conn.read_reply().status == 400
    assert server.complete("Once upon a time", max_tokens=8)["choices"][0]["text"] == want
    have = counts(server)
    assert have["sent"] == have["refused"] == 0 and have["dropped"] == 2100 + 2 - 2048
    assert server.get("/health").status == 200
    server.signal()
    assert server.wait(30) == 0


@pytest.mark.parametrize("url", ["https://127.0.0.1:4318", "grpc://127.0.0.1:4317", "127.0.0.1:4318", "http://", "http://u@h"])
def test_urls(url):
    done = run("serve", "--otlp-traces-endpoint", url)
    assert done.returncode == 2 and "--otlp-traces-endpoint" in done.stderr and "http://HOST" in done.stderr


def test_off(server):
    assert counts(server) == {"sent": 0, "dropped": 0, "refused": 0}
