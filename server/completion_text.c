// The text of a choice: echo, detokenized output, and log-probabilities that go out with their text.
#include "completion_state.h"

#include "utf8.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// ---- pending log-probabilities

static void release_pending(struct choice *ch, bool all) {
    struct completion *c = ch->completion;
    int n = 0;
    while (n < ch->num_pending && (all || ch->pending[n].bytes <= ch->released_bytes)) {
        struct pending_token *p = &ch->pending[n++];
        ch->released_bytes -= p->bytes < ch->released_bytes ? p->bytes : ch->released_bytes;
        c->dialect->logprob(&ch->lists, &c->response, &p->event, p->offset);
    }
    ch->num_pending -= n;
    if (n && ch->num_pending > 0)
        memmove(ch->pending, ch->pending + n, (size_t)ch->num_pending * sizeof *ch->pending);
    if (ch->num_pending == 0)
        ch->released_bytes = 0; // U+FFFD is longer than the byte it stands for
}

// A character counts where it begins; of what is no UTF-8 each part that becomes one U+FFFD is a character.
static void count_byte(struct choice *ch, unsigned char byte) {
    ch->partial[ch->num_partial++] = byte;
    if (ch->num_partial > 1) {
        size_t bad, len = utf8_sequence(ch->partial, ch->num_partial, &bad);
        if (len == ch->num_partial) {
            ch->num_partial = 0;
            return;
        }
        if (bad == ch->num_partial)
            return;
        ch->partial[0] = byte;
        ch->num_partial = 1;
    }
    ch->chars++;
    ch->num_partial = byte >= 0x80;
}

static const char *token_text(const struct choice *ch, token_id token, size_t *len) {
    const struct completion *c = ch->completion;
    return tokenizer_bytes(c->app->model.tokenizer, token, !c->request.skip_special, len);
}

// `text`: the token is part of it; `strip`: without its first space.
static void add_pending(struct choice *ch, const struct service_event *ev, bool text, bool strip) {
    if (ch->num_pending == ch->cap_pending) {
        int cap = ch->cap_pending ? 2 * ch->cap_pending : 4;
        struct pending_token *grown = realloc(ch->pending, (size_t)cap * sizeof *grown);
        if (!grown) {
            ch->text.failed = true;
            return;
        }
        ch->pending = grown;
        ch->cap_pending = cap;
    }
    size_t len = 0;
    const char *bytes = token_text(ch, ev->token, &len);
    if (!text) {
        len = 0;
    } else if (strip && len > 0 && bytes[0] == ' ') {
        bytes++; // the dummy space that the text does not have
        len--;
    }
    ch->pending[ch->num_pending++] = (struct pending_token){.event = *ev, .bytes = len, .offset = ch->chars};
    for (size_t i = 0; i < len; i++)
        count_byte(ch, (unsigned char)bytes[i]);
}

// ---- echo

// One token of the prompt, as the text and with log-probabilities as those of the output.
static void echo_token(struct choice *ch, const struct service_event *ev) {
    const char *text;
    size_t len;
    detok_push(ch->echo, ev->token, &text, &len);
    buf_add(&ch->text, text, len);
    if (ch->completion->request.logprobs < 0)
        return;
    size_t num_bytes, spaces = 0, out = 0; // those before the first word
    const char *bytes = token_text(ch, ev->token, &num_bytes);
    while (spaces < num_bytes && bytes[spaces] == ' ')
        spaces++;
    while (out < len && text[out] == ' ')
        out++;
    add_pending(ch, ev, true, !ch->echo_begun && out < spaces);
    ch->echo_begun |= num_bytes > 0;
    ch->released_bytes += len;
    release_pending(ch, false);
}

// Echoes the prompt up to its token `end`; these have no log-probabilities.
static void echo_upto(struct choice *ch, int end) {
    const struct completion_request *r = &ch->completion->request;
    const struct token_buf *prompt = &r->prompts[ch->index / r->n];
    for (; ch->num_echoed < end && ch->num_echoed < (int)prompt->len; ch->num_echoed++) {
        const struct service_event ev = {.token = prompt->ids[ch->num_echoed], .num_top = -1};
        echo_token(ch, &ev);
    }
}

void choice_echo(struct choice *ch, const struct service_event *ev) {
    if (!ch->echo || ev->position < ch->num_echoed)
        return;
    echo_upto(ch, ev->position);
    echo_token(ch, ev);
    ch->num_echoed++;
}

void choice_echo_end(struct choice *ch) {
    const char *text;
    size_t len;
    if (!ch->echo)
        return;
    echo_upto(ch, INT_MAX);
    detok_finish(ch->echo, &text, &len);
    buf_add(&ch->text, text, len);
    release_pending(ch, true);
    detok_free(ch->echo);
    ch->echo = NULL;
    ch->num_partial = 0; // what was unfinished is U+FFFD
    ch->has_new_text = ch->text.len > 0;
}

// ---- output

bool choice_add_token(struct choice *ch, const struct service_event *ev, bool is_stop) {
    const char *text = "";
    size_t len = 0;
    const struct completion_request *r = &ch->completion->request;
    bool shown = !is_stop || r->include_stop;
    bool hit = shown && detok_push(ch->detok, ev->token, &text, &len);
    buf_add(&ch->text, text, len);
    ch->has_new_line |= memchr(text, '\n', len) != NULL;
    if (r->return_ids)
        buf_fmt(&ch->token_ids, ch->token_ids.len ? ",%d" : "%d", ev->token);
    if (r->logprobs >= 0) {
        add_pending(ch, ev, shown, ch->strip && ch->num_tokens == 1);
        ch->released_bytes += len;
        release_pending(ch, hit);
    }
    ch->has_new_text = ch->text.len > 0;
    return hit;
}

void choice_end_text(struct choice *ch) {
    const char *text;
    size_t len;
    choice_echo_end(ch);
    detok_finish(ch->detok, &text, &len);
    buf_add(&ch->text, text, len);
    release_pending(ch, true);
}

size_t choice_sendable(const struct choice *ch) {
    if (ch->complete || ch->num_pending == 0)
        return ch->text.len;
    size_t n = ch->text.len - (ch->released_bytes < ch->text.len ? ch->released_bytes : ch->text.len);
    while (n > 0 && n < ch->text.len && utf8_continues(ch->text.data[n]))
        n--; // never within a character
    return n;
}

bool choice_failed(const struct choice *ch) {
    return ch->text.failed || ch->prompt_logprobs.failed || ch->token_ids.failed ||
           logprobs_failed(&ch->lists);
}

size_t choice_kept(const struct choice *ch) {
    const struct logprob_lists *l = &ch->lists;
    return ch->text.len + ch->prompt_logprobs.len + ch->token_ids.len + l->tokens.len + l->values.len +
           l->tops.len + l->offsets.len;
}

void choice_free(struct choice *ch) {
    detok_free(ch->detok);
    detok_free(ch->echo);
    buf_free(&ch->text);
    buf_free(&ch->prompt_logprobs);
    buf_free(&ch->token_ids);
    logprobs_free(&ch->lists);
    free(ch->pending);
}
