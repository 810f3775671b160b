// Responses of OpenAI's APIs: the JSON that completions and chat share.
#include "openai.h"

#include <stdio.h>
#include <string.h>

void openai_write_error(struct buf *b, const struct api_error *e) {
    buf_lit(b, "{\"error\":{\"message\":");
    json_quote(b, e->message, strlen(e->message));
    buf_fmt(b, ",\"type\":\"%s\",\"param\":", e->type);
    if (*e->param)
        json_quote(b, e->param, strlen(e->param));
    else
        buf_lit(b, "null");
    if (e->code)
        buf_fmt(b, ",\"code\":\"%s\"", e->code);
    else
        buf_lit(b, ",\"code\":null");
    if (e->n_prompt_tokens)
        buf_fmt(b, ",\"n_prompt_tokens\":%zu", e->n_prompt_tokens);
    if (e->n_ctx)
        buf_fmt(b, ",\"n_ctx\":%d", e->n_ctx);
    buf_lit(b, "}}");
}

const struct api_form openai_form = {.error = openai_write_error};

void openai_write_count(struct buf *b, size_t tokens) {
    buf_fmt(b, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", tokens);
}

void openai_write_usage(struct buf *b, const struct usage *u) {
    buf_lit(b, "{\"prompt_tokens\":");
    buf_int(b, u->prompt);
    buf_lit(b, ",\"completion_tokens\":");
    buf_int(b, u->completion);
    buf_lit(b, ",\"total_tokens\":");
    buf_int(b, u->prompt + u->completion);
    buf_lit(b, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    buf_int(b, u->cached);
    buf_char(b, '}');
    if (u->reasoning >= 0)
        buf_fmt(b, ",\"completion_tokens_details\":{\"reasoning_tokens\":%lld}", (long long)u->reasoning);
    buf_char(b, '}');
}

void openai_write_head(struct response *r, const char *object) {
    struct buf *b = &r->head;
    if (r->request->stream)
        buf_lit(b, "data: ");
    buf_lit(b, "{\"id\":");
    json_quote(b, r->id, strlen(r->id));
    buf_fmt(b, ",\"object\":\"%s\",\"created\":", object);
    buf_int(b, r->created);
    buf_lit(b, ",\"model\":");
    json_quote(b, r->request->base.model, strlen(r->request->base.model));
    buf_lit(b, ",\"system_fingerprint\":");
    json_quote(b, r->fingerprint, strlen(r->fingerprint));
    buf_lit(b, ",\"choices\":[");
}

void openai_write_model(struct buf *b, const char *id, const char *parent, int64_t created,
                        const struct served_model *m) {
    buf_lit(b, "{\"id\":");
    json_quote(b, id, strlen(id));
    buf_lit(b, ",\"object\":\"model\",\"created\":");
    buf_int(b, created);
    buf_lit(b, ",\"owned_by\":\"quire\",\"root\":");
    json_quote(b, id, strlen(id));
    buf_lit(b, ",\"parent\":");
    if (parent)
        json_quote(b, parent, strlen(parent));
    else
        buf_lit(b, "null");
    buf_lit(b, ",\"max_model_len\":");
    buf_int(b, m->max_model_len);
    buf_fmt(b, ",\"batch_invariant\":%s", m->batch_dependent ? "false" : "true");
    openai_write_pooling(b, m);
    buf_lit(b, ",\"type\":\"model\",\"display_name\":"); // Anthropic's
    json_quote(b, id, strlen(id));
    buf_lit(b, ",\"created_at\":");
    dialect_write_time(b, created);
    buf_char(b, '}');
}

void openai_write_pooling(struct buf *b, const struct served_model *m) {
    if (m->pooling != POOLING_NONE)
        buf_fmt(b, ",\"pooling\":\"%s\"", pooling_name(m->ranks ? POOLING_RANK : m->pooling));
}

const char *openai_token_text(const struct tokenizer *t, token_id id, size_t *len) {
    return tokenizer_bytes(t, id, true, len);
}

void openai_label(struct token_label *l, const struct response *r, token_id id) {
    l->text = openai_token_text(r->model->tokenizer, id, &l->len);
    if (r->request->names_ids) {
        l->len = (size_t)snprintf(l->id, sizeof l->id, "token_id:%d", id);
        l->text = l->id;
    }
}

void openai_write_prompt_ids(struct buf *b, const struct token_buf *prompt) {
    if (!prompt)
        return;
    buf_lit(b, ",\"prompt_token_ids\":[");
    for (size_t i = 0; i < prompt->len; i++)
        buf_fmt(b, i ? ",%d" : "%d", prompt->ids[i]);
    buf_char(b, ']');
}

void openai_write_ids(struct buf *b, const struct buf *ids) {
    if (!ids)
        return;
    buf_lit(b, ",\"token_ids\":[");
    buf_add(b, ids->data, ids->len);
    buf_char(b, ']');
}

void openai_write_finish(struct buf *b, const struct response *r, const struct piece *p) {
    if (p->finish == FINISH_NONE)
        buf_lit(b, ",\"finish_reason\":null");
    else
        buf_fmt(b, ",\"finish_reason\":\"%s\"",
                p->finish == FINISH_STOP && p->output && output_num_calls(p->output) > 0
                    ? (r->request->functions ? "function_call" : "tool_calls")
                    : finish_name(p->finish));
    buf_lit(b, ",\"stop_reason\":"); // vLLM's; of the model's own ends it is null
    if (p->stop)
        json_quote(b, p->stop, p->stop_len);
    else if (p->stop_token)
        buf_int(b, *p->stop_token);
    else
        buf_lit(b, "null");
}

// ---- log-probabilities of the prompt, in vLLM's form: one object per token, by id, the prompt's own token first

static void write_ranked(struct buf *b, const struct tokenizer *t, token_id id, float logprob, int rank) {
    size_t len;
    const char *text = openai_token_text(t, id, &len);
    buf_fmt(b, "\"%d\":{\"logprob\":", id);
    json_float(b, logprob);
    buf_fmt(b, ",\"rank\":%d,\"decoded_token\":", rank);
    json_quote(b, text, len);
    buf_char(b, '}');
}

void openai_prompt_logprob(struct buf *b, const struct response *r, const struct service_event *ev) {
    if (b->len == 0)
        buf_lit(b, "null"); // nothing is before the first token
    buf_lit(b, ",{");
    write_ranked(b, r->model->tokenizer, ev->token, ev->logprob, ev->rank);
    for (int i = 0; i < ev->num_top && i < r->request->prompt_logprobs; i++)
        if (ev->top_ids[i] != ev->token) {
            buf_char(b, ',');
            write_ranked(b, r->model->tokenizer, ev->top_ids[i], ev->top_logprobs[i], i + 1);
        }
    buf_char(b, '}');
}

void openai_write_prompt_logprobs(struct buf *b, const struct buf *list) {
    if (!list)
        return;
    buf_lit(b, ",\"prompt_logprobs\":[");
    if (list->len)
        buf_add(b, list->data, list->len);
    else
        buf_lit(b, "null"); // a prompt of one token
    buf_char(b, ']');
}

// ---- chunks and bodies

struct buf *openai_chunk_begin(struct sse_queue *out, const struct response *r) {
    struct buf *b = sse_begin(out);
    buf_add(b, r->head.data, r->head.len);
    return b;
}

// `steps`: how many of the n tokens the time is spent on.
static void write_timing(struct buf *b, const char *name, int64_t n, int64_t steps, double ms) {
    buf_fmt(b, "\"%s_n\":%lld,\"%s_ms\":%.15g,\"%s_per_token_ms\":%.15g,\"%s_per_second\":%.15g", name,
            (long long)n, name, ms, name, steps > 0 ? ms / (double)steps : 0, name,
            ms > 0 ? (double)steps * 1e3 / ms : 0);
}

void openai_write_timings(struct buf *b, const struct timings *t) {
    buf_fmt(b, ",\"timings\":{\"cache_n\":%lld,", (long long)t->cached);
    write_timing(b, "prompt", t->computed, t->computed, t->prompt_ms);
    buf_char(b, ',');
    write_timing(b, "predicted", t->generated, t->decoded, t->generation_ms);
    buf_char(b, '}');
}

void openai_chunk_end(struct sse_queue *out, const struct response *r, const struct token_buf *prompt,
                      const struct usage *usage, bool timed) {
    struct buf *b = &out->bytes;
    buf_char(b, ']');
    openai_write_prompt_ids(b, prompt);
    if (usage) {
        buf_lit(b, ",\"usage\":");
        openai_write_usage(b, usage);
    } else if (r->request->include_usage) {
        buf_lit(b, ",\"usage\":null");
    }
    if (timed && r->request->timings)
        openai_write_timings(b, &r->timings);
    buf_lit(b, "}\n\n");
    sse_end(out);
}

void openai_body_end(struct buf *b, const struct response *r, const struct usage *usage) {
    buf_lit(b, ",\"usage\":");
    openai_write_usage(b, usage);
    if (r->request->timings)
        openai_write_timings(b, &r->timings);
    buf_char(b, '}');
}

void openai_done(struct sse_queue *out, const struct response *r, const struct usage *usage) {
    if (r->request->include_usage) {
        struct buf *b = openai_chunk_begin(out, r);
        buf_char(b, ']');
        openai_body_end(b, r, usage);
        buf_lit(b, "\n\n");
        sse_end(out);
    }
    sse_done(out);
}

void openai_fail(struct sse_queue *out, const struct response *r, const struct api_error *e) {
    (void)r;
    struct buf *b = sse_begin(out);
    buf_lit(b, "data: ");
    openai_write_error(b, e);
    buf_lit(b, "\n\n");
    sse_end(out);
    sse_done(out);
}
