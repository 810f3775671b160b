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
    return tokenizer_bytes(c->exchange.app->model.tokenizer, token, !c->request.skip_special, len);
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
    const struct token_buf *prompt = &r->base.prompts[ch->engine->index / r->n];
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
    ch->num_partial = 0; // an unfinished character is U+FFFD
    ch->has_new_text = ch->text.len > 0;
}

// ---- output

static void add_text(struct choice *ch, const char *text, size_t len) {
    if (ch->output)
        output_push(ch->output, text, len);
    else
        buf_add(&ch->text, text, len);
}

static size_t parsed_bytes(const struct choice *ch) {
    size_t num;
    const char *text;
    const struct output_part *parts = ch->output ? output_parts(ch->output, &num, &text) : NULL;
    return parts && num ? parts[num - 1].begin + parts[num - 1].len : 0;
}

// How many of the pending tokens from `first` on the text is; 0: it is not theirs.
static int match_pending(const struct choice *ch, int first, const char *text, size_t len) {
    size_t at = 0, all;
    int i = first;
    for (; i < ch->num_pending && at < len; i++) {
        size_t n = ch->pending[i].bytes, part = n < len - at ? n : len - at;
        const char *bytes = token_text(ch, ch->pending[i].event.token, &all);
        if (part && memcmp(text + at, bytes + (all - n), part) != 0)
            return 0;
        at += part;
    }
    return at == len ? i - first : 0;
}

// Where log-probabilities are those of content alone: since the output had `before` bytes, content has come of some of
// the pending tokens, and marks that say nothing of those before them; or reasoning or a call has, of all.
static void judge_pending(struct choice *ch, size_t before) {
    size_t num, more = parsed_bytes(ch) - before;
    const char *text;
    const struct output_part *parts = output_parts(ch->output, &num, &text);
    int first = 0, n = 0;
    if (more == 0) // undecided
        return;
    if (parts[num - 1].kind != PART_CONTENT) {
        ch->num_pending = 0;
        return;
    }
    while (first < ch->num_pending && (n = match_pending(ch, first, text + before, more)) == 0)
        first++;
    if (n == 0) { // U+FFFD stands for some bytes
        release_pending(ch, true);
        return;
    }
    ch->num_pending -= first;
    memmove(ch->pending, ch->pending + first, (size_t)ch->num_pending * sizeof *ch->pending);
    for (ch->released_bytes = 0; n > 0; n--)
        ch->released_bytes += ch->pending[n - 1].bytes;
    release_pending(ch, false);
}

// How much of a text comes before a line that is less indented than the request wants, or all of it.
static size_t keep_indented(struct choice *ch, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        bool blank = text[i] == ' ' || text[i] == '\t';
        if (text[i] == '\n') {
            ch->in_indent = true;
            ch->indent = 0;
        } else if (ch->in_indent && blank) {
            ch->indent++;
        } else if (ch->in_indent) {
            ch->in_indent = false;
            ch->limited = ch->indent < ch->completion->request.n_indent;
            if (ch->limited)
                return i;
        }
    }
    return len;
}

bool choice_add_token(struct choice *ch, const struct service_event *ev, bool is_stop) {
    const char *text = "";
    size_t len = 0;
    const struct completion_request *r = &ch->completion->request;
    bool shown = !is_stop || r->include_stop,
         of_content = ch->output && ch->completion->dialect->content_logprobs;
    size_t before = parsed_bytes(ch);
    bool hit = shown && detok_push(ch->detok, ev->token, &text, &len);
    len = keep_indented(ch, text, len);
    add_text(ch, text, len);
    ch->has_new_line |= memchr(text, '\n', len) != NULL;
    ch->limited |= r->max_predict_ms > 0 && ch->has_new_line &&
                   ms_between(ch->engine->engine_first, ch->engine->engine_last) > r->max_predict_ms;
    ch->num_reasoning += ch->output && output_is_thinking(ch->output);
    bool over = hit || ch->limited || (ch->output && r->one_call && output_calls_ended(ch->output) > 0);
    if (over && ch->output)
        output_end(ch->output);
    if (r->return_ids)
        buf_fmt(&ch->token_ids, ch->token_ids.len ? ",%d" : "%d", ev->token);
    if (r->logprobs >= 0) {
        add_pending(ch, ev, shown, ch->strip && ch->engine->num_tokens == 1);
        ch->released_bytes += len;
        if (of_content)
            judge_pending(ch, before);
        else
            release_pending(ch, hit || ch->output);
    }
    ch->has_new_text = choice_sendable(ch) > 0;
    return over;
}

void choice_end_text(struct choice *ch) {
    const char *text;
    size_t len;
    choice_echo_end(ch);
    size_t before = parsed_bytes(ch);
    detok_finish(ch->detok, &text, &len);
    add_text(ch, text, ch->limited ? 0 : len);
    if (ch->output)
        output_end(ch->output);
    if (ch->output && ch->completion->dialect->content_logprobs)
        judge_pending(ch, before);
    else
        release_pending(ch, true);
}

size_t choice_sendable(const struct choice *ch) {
    if (ch->output)
        return parsed_bytes(ch);
    if (ch->engine->complete || ch->num_pending == 0)
        return ch->text.len;
    size_t n = ch->text.len - (ch->released_bytes < ch->text.len ? ch->released_bytes : ch->text.len);
    while (n > 0 && n < ch->text.len && utf8_continues(ch->text.data[n]))
        n--; // never within a character
    return n;
}

bool choice_failed(const struct choice *ch) {
    return ch->text.failed || (ch->output && output_failed(ch->output)) || ch->prompt_logprobs.failed ||
           ch->token_ids.failed || logprobs_failed(&ch->lists);
}

size_t choice_kept(const struct choice *ch) {
    const struct logprob_lists *l = &ch->lists;
    return ch->text.len + parsed_bytes(ch) + ch->prompt_logprobs.len + ch->token_ids.len + l->tokens.len +
           l->values.len + l->tops.len + l->offsets.len;
}

void choice_free(struct choice *ch) {
    detok_free(ch->detok);
    detok_free(ch->echo);
    output_parser_free(ch->output);
    buf_free(&ch->text);
    buf_free(&ch->prompt_logprobs);
    buf_free(&ch->token_ids);
    logprobs_free(&ch->lists);
    free(ch->pending);
}
