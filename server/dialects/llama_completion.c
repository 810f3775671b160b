#include "llama_completion.h"

#include "openai.h"

#include <limits.h>
#include <string.h>

// ---- in

static bool parse_body(struct completion_request *r, const struct served_model *m, const char *body,
                       size_t len, struct api_error *e) {
    if (!openai_completions_parse(r, m, body, len, INT_MAX, e))
        return false;
    const char *more = r->num_prompts > 1    ? "prompt"
                       : r->n > 1            ? "n"
                       : r->logprobs >= 0    ? "logprobs"
                       : r->echo             ? "echo"
                       : r->prompt_logprobs  ? "prompt_logprobs"
                       : r->include_usage    ? "stream_options"
                       : r->continuous_usage ? "stream_options"
                                             : NULL;
    if (r->seed == -1 || r->seed == UINT32_MAX) // its ways to say: a new one
        r->has_seed = false;
    if (!more)
        return true;
    completion_request_free(r);
    return api_fail(e, 400, "unsupported_parameter", more,
                    "/completion takes one prompt and gives one choice of text: '%s' is for /v1/completions.",
                    more);
}

// ---- out

static void begin_response(struct response *r) {
    if (r->request->stream)
        buf_lit(&r->head, "data: ");
}

static void write_content(struct buf *b, const struct response *r, const char *text, size_t len, bool stop) {
    const struct timings *t = &r->timings;
    buf_lit(b, "{\"index\":0,\"content\":");
    json_quote(b, text, len);
    buf_fmt(b, ",\"tokens\":[],\"stop\":%s,\"tokens_predicted\":%lld,\"tokens_evaluated\":%lld",
            stop ? "true" : "false", (long long)t->generated, (long long)(t->cached + t->computed));
}

// The rest of a response's last object.
static void write_end(struct buf *b, const struct response *r, const struct piece *p) {
    buf_lit(b, ",\"model\":");
    json_quote(b, r->request->model, strlen(r->request->model));
    buf_fmt(b, ",\"stop_type\":\"%s\",\"stopping_word\":",
            p->finish == FINISH_LENGTH ? "limit"
            : p->stop                  ? "word"
                                       : "eos");
    json_quote(b, p->stop ? p->stop : "", p->stop_len);
    buf_fmt(b, ",\"truncated\":false,\"tokens_cached\":%lld", (long long)r->timings.cached);
    openai_write_timings(b, &r->timings);
    buf_char(b, '}');
}

// Text and end are two events, as there.
static void write_piece(struct sse_queue *out, const struct response *r, const struct piece *p,
                        const struct usage *usage) {
    (void)usage;
    if (p->len) {
        write_content(openai_chunk_begin(out, r), r, p->text, p->len, false);
        buf_lit(&out->bytes, "}\n\n");
        sse_end(out);
    }
    if (p->finish != FINISH_NONE) {
        write_content(openai_chunk_begin(out, r), r, "", 0, true);
        write_end(&out->bytes, r, p);
        buf_lit(&out->bytes, "\n\n");
        sse_end(out);
    }
}

static void end_stream(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    (void)out; // no [DONE]
    (void)r;
    (void)usage;
}

static void write_whole(struct buf *b, const struct response *r, const struct piece *pieces,
                        const struct usage *usage) {
    (void)usage;
    write_content(b, r, pieces->text, pieces->len, true);
    write_end(b, r, pieces);
}

static void write_failure(struct sse_queue *out, const struct api_error *e) {
    struct buf *b = sse_begin(out);
    buf_lit(b, "data: ");
    openai_write_error(b, e);
    buf_lit(b, "\n\n");
    sse_end(out);
}

const struct dialect llama_completion = {
    .id_prefix = "cmpl-",
    .parse = parse_body,
    .begin = begin_response,
    .piece = write_piece,
    .done = end_stream,
    .fail = write_failure,
    .whole = write_whole,
    .error = openai_write_error,
};
