// Written is ExportTraceServiceRequest as protobuf's JSON, but for ids, which OTLP has in hexadecimal.
// Names are vLLM's, as of its SpanAttributes, and those of OpenTelemetry's conventions for generative AI.
#include "span.h"
#include "build_id.h"

#include <stdlib.h>
#include <string.h>

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_CODE_ERROR = 2 };

// ---- the header

static bool read_hex(uint8_t *out, const char *s, int len) {
    bool any = false;
    for (int i = 0; i < 2 * len; i++) {
        const char *digits = "0123456789abcdef", *at = s[i] ? strchr(digits, s[i]) : NULL;
        if (!at)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (at - digits));
        any |= at != digits;
    }
    return any;
}

bool trace_parent_read(struct trace_parent *out, const char *s) {
    enum { VERSION = 0, TRACE = 3, SPAN = 36, FLAGS = 53, END = 55 };
    uint8_t version = 0, flags = 0;
    *out = (struct trace_parent){0};
    if (!s || strlen(s) < END || s[TRACE - 1] != '-' || s[SPAN - 1] != '-' || s[FLAGS - 1] != '-')
        return false;
    bool zero = memcmp(s, "00", 2) == 0;
    if (!zero && (!read_hex(&version, s, 1) || version == 0xff))
        return false;
    if (s[END] && (zero || s[END] != '-')) // later versions may go on
        return false;
    if (!read_hex(&flags, s + FLAGS, 1) && memcmp(s + FLAGS, "00", 2) != 0)
        return false;
    out->sampled = flags & 1;
    return read_hex(out->trace, s + TRACE, TRACE_ID) && read_hex(out->span, s + SPAN, SPAN_ID);
}

// ---- the body

static void write_hex(struct buf *b, const char *name, const uint8_t *id, int len) {
    buf_fmt(b, "\"%s\":\"", name);
    for (int i = 0; i < len; i++)
        buf_fmt(b, "%02x", id[i]);
    buf_lit(b, "\",");
}

static void begin_attribute(struct buf *b, const char *key, const char *type) {
    if (b->len && b->data[b->len - 1] == '}')
        buf_char(b, ',');
    buf_fmt(b, "{\"key\":\"%s\",\"value\":{\"%s\":", key, type);
}

static void write_text(struct buf *b, const char *key, const char *value) {
    begin_attribute(b, key, "stringValue");
    json_quote(b, value, strlen(value));
    buf_lit(b, "}}");
}

static void write_int(struct buf *b, const char *key, int64_t value) {
    begin_attribute(b, key, "intValue");
    buf_fmt(b, "\"%lld\"}}", (long long)value);
}

static void write_double(struct buf *b, const char *key, double value) {
    begin_attribute(b, key, "doubleValue");
    buf_fmt(b, "%.9g}}", value);
}

static void write_seconds(struct buf *b, const char *key, int64_t from, int64_t to) {
    if (from && to)
        write_double(b, key, to > from ? (double)(to - from) / 1e9 : 0);
}

static const char *operation_of(const char *path) {
    static const struct {
        const char *part, *operation;
    } parts[] = {{"embed", "embeddings"}, {"chat", "chat"},     {"messages", "chat"},
                 {"responses", "chat"},   {"rerank", "rerank"}, {"score", "score"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(path, parts[i].part))
            return parts[i].operation;
    return "text_completion";
}

static void write_attributes(struct buf *b, const struct span *s) {
    write_text(b, "gen_ai.operation.name", operation_of(s->path));
    write_text(b, "gen_ai.provider.name", "quire");
    write_text(b, "gen_ai.request.id", s->request_id);
    write_text(b, "url.path", s->path);
    write_int(b, "http.response.status_code", s->status);
    if (s->failed) {
        char code[16];
        snprintf(code, sizeof code, "%d", s->status);
        write_text(b, "error.type", s->status >= 400 ? code : s->finish);
    }
    if (s->n == 0)
        return;
    write_text(b, "gen_ai.request.model", s->model);
    write_text(b, "gen_ai.response.model", s->model);
    write_int(b, "gen_ai.request.n", s->n);
    write_int(b, "gen_ai.request.max_tokens", s->max_tokens);
    write_double(b, "gen_ai.request.temperature", s->temperature);
    write_double(b, "gen_ai.request.top_p", s->top_p);
    write_int(b, "gen_ai.usage.num_sequences", s->num_choices);
    write_int(b, "gen_ai.usage.prompt_tokens", s->num_prompt);
    write_int(b, "gen_ai.usage.completion_tokens", s->num_output);
    write_int(b, "gen_ai.usage.input_tokens", s->num_prompt);
    write_int(b, "gen_ai.usage.output_tokens", s->num_output);
    write_int(b, "gen_ai.usage.cache_read.input_tokens", s->num_cached);
    begin_attribute(b, "gen_ai.response.finish_reasons", "arrayValue");
    buf_fmt(b, "{\"values\":[{\"stringValue\":\"%s\"}]}}}", s->finish);
    write_seconds(b, "gen_ai.latency.time_in_queue", s->submitted, s->scheduled);
    write_seconds(b, "gen_ai.latency.time_to_first_token", s->start, s->first);
    write_seconds(b, "gen_ai.latency.time_in_model_prefill", s->scheduled, s->first);
    write_seconds(b, "gen_ai.latency.time_in_model_decode", s->first, s->last);
    write_seconds(b, "gen_ai.latency.time_in_model_inference", s->scheduled, s->last);
    write_seconds(b, "gen_ai.latency.e2e", s->start, s->end);
}

static void begin_span(struct buf *b, const struct span *s, const uint8_t *id, const uint8_t *parent,
                       const char *name, int kind, int64_t start, int64_t end) {
    static const uint8_t none[SPAN_ID];
    if (b->len && b->data[b->len - 1] == '}')
        buf_char(b, ',');
    buf_char(b, '{');
    write_hex(b, "traceId", s->trace, TRACE_ID);
    write_hex(b, "spanId", id, SPAN_ID);
    if (memcmp(parent, none, SPAN_ID) != 0)
        write_hex(b, "parentSpanId", parent, SPAN_ID);
    buf_fmt(b, "\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%lld\",\"endTimeUnixNano\":\"%lld\"",
            name, kind, (long long)start, (long long)(end > start ? end : start));
}

// A phase that began; one that did not end ended with the request.
static void write_phase(struct buf *b, const struct span *s, int number, const char *name, int64_t from,
                        int64_t to) {
    uint8_t id[SPAN_ID];
    if (!from)
        return;
    memcpy(id, s->id, SPAN_ID);
    id[SPAN_ID - 1] ^= (uint8_t)number; // as random as the request's
    begin_span(b, s, id, s->id, name, KIND_INTERNAL, from, to ? to : s->end);
    buf_char(b, '}');
}

static void write_span(struct buf *b, const struct span *s) {
    begin_span(b, s, s->id, s->parent, "llm_request", KIND_SERVER, s->start, s->end);
    buf_lit(b, ",\"attributes\":[");
    write_attributes(b, s);
    buf_lit(b, "]");
    if (s->failed)
        buf_fmt(b, ",\"status\":{\"code\":%d}", STATUS_CODE_ERROR);
    buf_lit(b, "}");
    write_phase(b, s, 1, "queue", s->submitted, s->scheduled);
    write_phase(b, s, 2, "prefill", s->scheduled, s->first ? s->first : s->last);
    write_phase(b, s, 3, "decode", s->first, s->last);
}

void spans_write(struct buf *b, const struct span *const *spans, int num) {
    const char *service = getenv("OTEL_SERVICE_NAME");
    buf_lit(b, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    write_text(b, "service.name", service && *service ? service : "quire");
    write_text(b, "service.version", build_version);
    buf_fmt(b, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"quire\",\"version\":\"%s\"},\"spans\":[",
            build_version);
    for (int i = 0; i < num; i++)
        write_span(b, spans[i]);
    buf_lit(b, "]}]}]}");
}
