// One request's memory: everything it will ever need is allocated here, at admission.
#include "request.h"

#include "log.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

// A copy of n elements. NULL with *ok cleared when out of memory; NULL where n is 0.
static void *copy_of(const void *from, int n, size_t size, bool *ok) {
    if (n <= 0)
        return NULL;
    void *to = malloc((size_t)n * size);
    if (to)
        memcpy(to, from, (size_t)n * size);
    *ok &= to != NULL;
    return to;
}

static bool has_penalty(const struct sampling_params *p) {
    return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

// The token's entry, added where it is new. The index is at most half full, so the search ends.
static struct token_count *count_entry(struct request *r, token_id token) {
    unsigned mask = (unsigned)r->count_cap - 1;
    unsigned at = (unsigned)token * 2654435769u & mask; // Knuth's multiplicative hash
    while (r->count_index[at] != 0 && r->counts[r->count_index[at] - 1].token != token)
        at = (at + 1) & mask;
    if (r->count_index[at] == 0) {
        r->counts[r->num_counts] = (struct token_count){.token = token};
        r->count_index[at] = ++r->num_counts;
    }
    return &r->counts[r->count_index[at] - 1];
}

static bool counts_init(struct request *r) {
    r->count_cap = 2;
    while (r->count_cap / 2 < r->max_tokens)
        r->count_cap *= 2;
    r->counts = malloc((size_t)r->max_tokens * sizeof *r->counts);
    r->count_index = calloc((size_t)r->count_cap, sizeof *r->count_index);
    if (!r->counts || !r->count_index)
        return false;
    for (int i = 0; i < r->num_prompt; i++)
        count_entry(r, r->tokens[i])->prompt++;
    return true;
}

struct request *request_new(const struct request_params *p, int block_size) {
    bool ok = true;
    // An eighth of the integers is far beyond any context length, and keeps every sum below in range.
    CHECK(p->num_prompt >= 1 && p->max_output >= 0 && p->min_output >= 0 && block_size >= 1);
    if (p->num_prompt > INT_MAX / 8 || p->max_output > INT_MAX / 8 || p->min_output > INT_MAX / 8)
        return NULL;
    struct request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->id = p->id;
    r->num_prompt = r->num_tokens = p->num_prompt;
    r->max_tokens = p->num_prompt + p->max_output;
    r->min_tokens = p->num_prompt + p->min_output;
    r->num_cached = -1;
    r->priority = p->priority;
    r->sampling = p->sampling;
    r->num_stop = p->num_stop;
    r->num_bias = p->num_bias;
    r->num_salt = p->num_salt;
    r->stop = copy_of(p->stop, p->num_stop, sizeof *p->stop, &ok);
    r->bias = copy_of(p->bias, p->num_bias, sizeof *p->bias, &ok);
    r->salt = copy_of(p->salt, p->num_salt, 1, &ok);
    r->blocks.cap = (r->max_tokens + block_size - 1) / block_size;
    r->blocks.ids = malloc((size_t)r->blocks.cap * sizeof *r->blocks.ids);
    r->tokens = malloc((size_t)r->max_tokens * sizeof *r->tokens);
    if (r->tokens)
        memcpy(r->tokens, p->prompt, (size_t)p->num_prompt * sizeof *r->tokens);
    if (!ok || !r->blocks.ids || !r->tokens || (has_penalty(&r->sampling) && !counts_init(r))) {
        request_free(r);
        return NULL;
    }
    r->filter = p->filter; // last: a request that could not be made leaves it to the caller
    return r;
}

void request_free(struct request *r) {
    if (!r)
        return;
    if (r->filter) {
        if (r->filter->free)
            r->filter->free(r->filter->state);
        free(r->filter);
    }
    free(r->tokens);
    free(r->blocks.ids);
    free(r->stop);
    free(r->bias);
    free(r->salt);
    free(r->counts);
    free(r->count_index);
    free(r);
}

void request_count_token(struct request *r, token_id token) {
    if (r->counts)
        count_entry(r, token)->output++;
}

bool request_is_stop(const struct request *r, token_id token) {
    for (int i = 0; i < r->num_stop; i++)
        if (r->stop[i] == token)
            return true;
    return false;
}
