// Ids back to text, one token at a time. Bytes pass three stations:
//
//   token → raw bytes → stop strings (on bytes, before anything is replaced) → UTF-8 → text
//
// Each stop string has a Knuth-Morris-Pratt automaton that sees every byte once. `raw` holds the longest
// suffix that may still become a stop: as many bytes as the automaton that has matched most. Its output
// goes through the decoder of the WHATWG Encoding Standard, which holds back an unfinished sequence and turns
// each maximal invalid part into one U+FFFD. All memory is allocated by detok_new(): a push cannot fail.
#include "tokenizer.h"

#include "log.h"
#include "tokenizer_internal.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

struct stop_string {
    char *bytes;    // (len)
    uint16_t *fail; // (len + 1) KMP: fail[n] is the longest border of the first n bytes
    size_t len, matched;
};

struct detok {
    const struct tokenizer *tokenizer;
    bool special; // control tokens give their name
    const token_id *shown;
    int num_shown;
    bool strip_space; // still waiting for the first byte, to drop it if it is a space
    struct stop_string stops[DETOK_MAX_STOPS];
    int num_stops, stop_index;
    int min_tokens; // tokens to come that no stop string ends
    bool keep_stop;
    char *raw; // bytes that may be the beginning of a stop
    size_t raw_len;
    char *text;
    size_t text_len;
    unsigned char partial[4]; // an unfinished UTF-8 sequence
    int partial_len, partial_need;
    unsigned char lo, hi; // bounds of its next byte
};

static bool stop_init(struct stop_string *s, const char *bytes, size_t len) {
    CHECK(len <= DETOK_MAX_STOP_LEN);
    s->len = len;
    s->bytes = malloc(len + 1);
    s->fail = calloc(len + 1, sizeof *s->fail);
    if (!s->bytes || !s->fail)
        return false;
    memcpy(s->bytes, bytes, len);
    for (size_t n = 1, k = 0; n < len; n++) {
        while (k > 0 && bytes[k] != bytes[n])
            k = s->fail[k];
        if (bytes[k] == bytes[n])
            k++;
        s->fail[n + 1] = (uint16_t)k;
    }
    return true;
}

// Takes one byte; true: the stop string is complete.
static bool stop_step(struct stop_string *s, char c) {
    while (s->matched > 0 && s->bytes[s->matched] != c)
        s->matched = s->fail[s->matched];
    if (s->bytes[s->matched] == c)
        s->matched++;
    return s->matched == s->len;
}

bool detok_strips_space(const struct detok *d) { return d->strip_space; }

struct detok *detok_new(const struct detok_params *p) {
    size_t longest = 0;
    CHECK(p->num_stops >= 0 && p->num_stops <= DETOK_MAX_STOPS);
    struct detok *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->tokenizer = p->tokenizer;
    d->special = !p->skip_special;
    d->shown = p->shown;
    d->num_shown = p->num_shown;
    d->strip_space = p->strip_space && p->tokenizer->add_space_prefix;
    d->stop_index = -1;
    d->min_tokens = p->min_tokens;
    d->keep_stop = p->keep_stop;
    for (int i = 0; i < p->num_stops; i++) {
        d->num_stops++; // so that detok_free() sees it
        if (!stop_init(&d->stops[i], p->stops[i], p->stop_lens[i]))
            goto fail;
        if (p->stop_lens[i] > longest)
            longest = p->stop_lens[i];
    }
    // Room for the bytes held back and one token. Each byte may become a U+FFFD of three bytes, as may the unfinished
    // sequence.
    size_t room = longest + p->tokenizer->max_token_len + 1;
    d->raw = malloc(room);
    d->text = malloc(3 * room + 8);
    if (!d->raw || !d->text)
        goto fail;
    return d;
fail:
    detok_free(d);
    return NULL;
}

void detok_free(struct detok *d) {
    if (!d)
        return;
    for (int i = 0; i < d->num_stops; i++) {
        free(d->stops[i].bytes);
        free(d->stops[i].fail);
    }
    free(d->raw);
    free(d->text);
    free(d);
}

static void append_text(struct detok *d, const void *bytes, size_t n) {
    memcpy(d->text + d->text_len, bytes, n);
    d->text_len += n;
}

static void append_replacement(struct detok *d) {
    append_text(d, "\xef\xbf\xbd", 3);
    d->partial_len = 0;
}

static void decode_byte(struct detok *d, unsigned char c) {
    if (d->partial_len > 0) {
        if (c >= d->lo && c <= d->hi) {
            d->partial[d->partial_len++] = c;
            d->lo = 0x80;
            d->hi = 0xbf;
            if (d->partial_len == d->partial_need) {
                append_text(d, d->partial, (size_t)d->partial_len);
                d->partial_len = 0;
            }
            return;
        }
        append_replacement(d); // and c begins anew
    }
    d->partial_need = utf8_lead(c, &d->lo, &d->hi);
    if (d->partial_need == 1)
        append_text(d, &c, 1);
    else if (d->partial_need == 0)
        append_replacement(d);
    else
        d->partial[d->partial_len++] = c;
}

static void decode_bytes(struct detok *d, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        decode_byte(d, (unsigned char)p[i]);
}

bool detok_push(struct detok *d, token_id id, const char **text, size_t *len) {
    size_t n;
    bool special = d->special;
    for (int i = 0; i < d->num_shown; i++)
        special |= d->shown[i] == id;
    const char *bytes = tokenizer_bytes(d->tokenizer, id, special, &n);
    d->text_len = 0;
    if (n > 0 && d->strip_space) {
        d->strip_space = false;
        if (*bytes == ' ') {
            bytes++;
            n--;
        }
    }
    bool may_end = d->min_tokens == 0;
    d->min_tokens -= !may_end;
    for (size_t i = 0; i < n && d->stop_index < 0; i++) {
        d->raw[d->raw_len++] = bytes[i];
        for (int s = 0; s < d->num_stops && d->stop_index < 0; s++)
            if (d->stops[s].len > 0 && stop_step(&d->stops[s], bytes[i])) {
                if (may_end)
                    d->stop_index = s; // of those that end here, the first
                else
                    d->stops[s].matched = d->stops[s].fail[d->stops[s].len];
            }
    }
    size_t held = 0;
    if (d->stop_index >= 0 && !d->keep_stop)
        held = d->raw_len < d->stops[d->stop_index].len ? d->raw_len : d->stops[d->stop_index].len;
    else if (!d->keep_stop)
        for (int s = 0; s < d->num_stops; s++)
            held = d->stops[s].matched > held ? d->stops[s].matched : held;
    decode_bytes(d, d->raw, d->raw_len - held);
    memmove(d->raw, d->raw + d->raw_len - held, held);
    d->raw_len = held;
    if (d->stop_index >= 0) {
        d->raw_len = 0;
        if (d->partial_len > 0)
            append_replacement(d);
    }
    *text = d->text;
    *len = d->text_len;
    return d->stop_index >= 0;
}

void detok_finish(struct detok *d, const char **text, size_t *len) {
    d->text_len = 0;
    decode_bytes(d, d->raw, d->raw_len);
    d->raw_len = 0;
    if (d->partial_len > 0)
        append_replacement(d);
    for (int s = 0; s < d->num_stops; s++)
        d->stops[s].matched = 0;
    *text = d->text;
    *len = d->text_len;
}

int detok_stop_index(const struct detok *d) { return d->stop_index; }
