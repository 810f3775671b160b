#include "openai.h"

#include <string.h>

void write_error(struct buf *b, const struct api_error *e) {
    buf_lit(b, "{\"error\":{\"message\":");
    json_quote(b, e->message, strlen(e->message));
    buf_fmt(b, ",\"type\":\"%s\",\"param\":", e->type);
    if (*e->param)
        json_quote(b, e->param, strlen(e->param));
    else
        buf_lit(b, "null");
    if (e->code)
        buf_fmt(b, ",\"code\":\"%s\"}}", e->code);
    else
        buf_lit(b, ",\"code\":null}}");
}

void write_usage(struct buf *b, const struct usage *u) {
    buf_lit(b, "{\"prompt_tokens\":");
    buf_int(b, u->prompt);
    buf_lit(b, ",\"completion_tokens\":");
    buf_int(b, u->completion);
    buf_lit(b, ",\"total_tokens\":");
    buf_int(b, u->prompt + u->completion);
    buf_lit(b, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    buf_int(b, u->cached);
    buf_lit(b, "}}");
}

void write_head(struct buf *b, const char *id, const char *object, int64_t created, const char *model,
                const char *fingerprint) {
    buf_lit(b, "{\"id\":");
    json_quote(b, id, strlen(id));
    buf_fmt(b, ",\"object\":\"%s\",\"created\":", object);
    buf_int(b, created);
    buf_lit(b, ",\"model\":");
    json_quote(b, model, strlen(model));
    buf_lit(b, ",\"system_fingerprint\":");
    json_quote(b, fingerprint, strlen(fingerprint));
    buf_lit(b, ",\"choices\":[");
}

void write_choice(struct buf *b, int index, const char *text, size_t len, const struct logprob_lists *l,
                  const char *finish) {
    buf_lit(b, "{\"index\":");
    buf_int(b, index);
    buf_lit(b, ",\"text\":\"");
    json_escape(b, text, len);
    if (l) {
        buf_lit(b, "\",\"logprobs\":{\"tokens\":[");
        buf_add(b, l->tokens.data, l->tokens.len);
        buf_lit(b, "],\"token_logprobs\":[");
        buf_add(b, l->values.data, l->values.len);
        buf_lit(b, "],\"top_logprobs\":[");
        buf_add(b, l->tops.data, l->tops.len);
        buf_lit(b, "],\"text_offset\":[");
        buf_add(b, l->offsets.data, l->offsets.len);
        buf_lit(b, "]},\"finish_reason\":");
    } else {
        buf_lit(b, "\",\"logprobs\":null,\"finish_reason\":");
    }
    if (finish) {
        buf_char(b, '"');
        buf_str(b, finish);
        buf_lit(b, "\"}");
    } else {
        buf_lit(b, "null}");
    }
}

void write_model(struct buf *b, const char *id, int64_t created, int max_model_len) {
    buf_lit(b, "{\"id\":");
    json_quote(b, id, strlen(id));
    buf_lit(b, ",\"object\":\"model\",\"created\":");
    buf_int(b, created);
    buf_lit(b, ",\"owned_by\":\"quire\",\"root\":");
    json_quote(b, id, strlen(id));
    buf_lit(b, ",\"parent\":null,\"max_model_len\":");
    buf_int(b, max_model_len);
    buf_char(b, '}');
}

const char *finish_name(enum finish_reason why) {
    switch (why) {
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH: return "length";
    case FINISH_CANCELLED: return "abort"; // in logs and metrics only: clients know but five words
    case FINISH_ERROR: return "error";
    case FINISH_NONE: break;
    }
    return "none";
}

// ---- log-probabilities

void logprobs_clear(struct logprob_lists *l) {
    buf_clear(&l->tokens);
    buf_clear(&l->values);
    buf_clear(&l->tops);
    buf_clear(&l->offsets);
    l->count = 0;
}

void logprobs_free(struct logprob_lists *l) {
    buf_free(&l->tokens);
    buf_free(&l->values);
    buf_free(&l->tops);
    buf_free(&l->offsets);
    l->count = 0;
}

static const char *token_text(const struct tokenizer *t, token_id id, size_t *len) {
    return tokenizer_bytes(t, id, true, len); // a control token is shown by its name
}

static bool same_text(const struct tokenizer *t, token_id a, token_id b) {
    size_t na, nb;
    const char *sa = token_text(t, a, &na), *sb = token_text(t, b, &nb);
    return na == nb && memcmp(sa, sb, na) == 0;
}

static void write_top(struct buf *b, const struct tokenizer *t, token_id id, float logprob, bool first) {
    size_t len;
    const char *s = token_text(t, id, &len);
    if (!first)
        buf_char(b, ',');
    json_quote(b, s, len);
    buf_char(b, ':');
    json_float(b, logprob);
}

// Two tokens may have one text (a byte token and a letter, or two broken bytes that are both shown as
// U+FFFD). A JSON object holds it once: the likelier one, which comes first.
static bool is_shown(const struct tokenizer *t, const struct service_event *ev, int upto, token_id id) {
    size_t bad, len;
    const char *s = token_text(t, id, &len);
    bool valid = true;
    for (size_t i = 0; i < len && valid;) {
        size_t n = utf8_sequence((const unsigned char *)s + i, len - i, &bad);
        valid = n > 0;
        i += n;
    }
    if (valid) {
        for (int i = 0; i < upto; i++)
            if (same_text(t, ev->top_ids[i], id))
                return true;
        return false;
    }
    struct buf mine = {0}, other = {0}; // rare: compare what would be printed
    json_escape(&mine, s, len);
    bool found = false;
    for (int i = 0; i < upto && !found; i++) {
        size_t n;
        const char *o = token_text(t, ev->top_ids[i], &n);
        buf_clear(&other);
        json_escape(&other, o, n);
        found = other.len == mine.len && memcmp(other.data, mine.data, mine.len) == 0;
    }
    buf_free(&mine);
    buf_free(&other);
    return found;
}

void logprobs_add(struct logprob_lists *l, const struct tokenizer *t, const struct service_event *ev, int k,
                  int64_t offset) {
    size_t len;
    const char *s = token_text(t, ev->token, &len);
    if (l->count++) {
        buf_char(&l->tokens, ',');
        buf_char(&l->values, ',');
        buf_char(&l->tops, ',');
        buf_char(&l->offsets, ',');
    }
    json_quote(&l->tokens, s, len);
    buf_int(&l->offsets, offset);
    if (ev->num_top < 0) { // the first token of a prompt: nothing is before it
        buf_lit(&l->values, "null");
        buf_lit(&l->tops, "null");
        return;
    }
    json_float(&l->values, ev->logprob);
    buf_char(&l->tops, '{');
    int top = ev->num_top < k ? ev->num_top : k;
    bool first = true, chosen = false;
    for (int i = 0; i < top; i++) {
        chosen |= ev->top_ids[i] == ev->token;
        if (is_shown(t, ev, i, ev->top_ids[i]))
            continue;
        write_top(&l->tops, t, ev->top_ids[i], ev->top_logprobs[i], first);
        first = false;
    }
    if (!chosen && !is_shown(t, ev, top, ev->token))
        write_top(&l->tops, t, ev->token, ev->logprob, first);
    buf_char(&l->tops, '}');
}

// ---- chat

static void write_shown(struct buf *b, const struct tokenizer *t, token_id id, float logprob) {
    size_t len;
    const char *s = token_text(t, id, &len);
    buf_lit(b, "{\"token\":");
    json_quote(b, s, len);
    buf_lit(b, ",\"logprob\":");
    json_float(b, logprob);
    buf_lit(b, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++) {
        if (i)
            buf_char(b, ',');
        buf_int(b, (unsigned char)s[i]);
    }
    buf_char(b, ']');
}

void logprobs_add_chat(struct logprob_lists *l, const struct tokenizer *t, const struct service_event *ev,
                       int k) {
    struct buf *b = &l->tops;
    if (l->count++)
        buf_char(b, ',');
    write_shown(b, t, ev->token, ev->logprob);
    buf_lit(b, ",\"top_logprobs\":[");
    for (int i = 0; i < k && i < ev->num_top; i++) {
        if (i)
            buf_char(b, ',');
        write_shown(b, t, ev->top_ids[i], ev->top_logprobs[i]);
        buf_char(b, '}');
    }
    buf_lit(b, "]}");
}

static void write_chat_end(struct buf *b, const struct logprob_lists *l, const char *finish) {
    if (l) {
        buf_lit(b, ",\"logprobs\":{\"content\":[");
        buf_add(b, l->tops.data, l->tops.len);
        buf_lit(b, "],\"refusal\":null}");
    } else {
        buf_lit(b, ",\"logprobs\":null");
    }
    if (finish)
        buf_fmt(b, ",\"finish_reason\":\"%s\"}", finish);
    else
        buf_lit(b, ",\"finish_reason\":null}");
}

void write_message(struct buf *b, int index, const char *text, size_t len, const struct logprob_lists *l,
                   const char *finish) {
    buf_fmt(b, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", index);
    json_quote(b, text, len);
    buf_lit(b, ",\"refusal\":null}");
    write_chat_end(b, l, finish);
}

void write_delta(struct buf *b, int index, bool role, const char *text, size_t len,
                 const struct logprob_lists *l, const char *finish) {
    buf_fmt(b, "{\"index\":%d,\"delta\":{", index);
    if (role)
        buf_lit(b, "\"role\":\"assistant\",");
    if (role || len) {
        buf_lit(b, "\"content\":");
        json_quote(b, text, len);
    }
    buf_char(b, '}');
    write_chat_end(b, l, finish);
}
