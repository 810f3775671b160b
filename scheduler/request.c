// One request's memory: everything it will ever need is allocated here, at admission.
#include "request.h"

#include "drafter.h"
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

// A copy of sequences with the 0 that ends them; NULL where there are none.
static token_id *copy_sequences(const token_id *from, bool *ok) {
    int n = 0;
    while (from && from[n] > 0)
        n += 1 + from[n];
    return copy_of(from, n > 0 ? n + 1 : 0, sizeof *from, ok);
}

// Makes the salt, which names the domain of the prefix cache: 8 bytes of the adapter, then the client's; neither: the
// common domain.
static bool make_salt(struct request *r, const struct request_params *p) {
    uint64_t id = p->adapter ? p->adapter->domain : 0;
    if (id == 0 && p->num_salt == 0)
        return true;
    r->num_salt = (int)sizeof id + p->num_salt;
    if (!(r->salt = malloc((size_t)r->num_salt)))
        return false;
    memcpy(r->salt, &id, sizeof id);
    if (p->num_salt > 0)
        memcpy(r->salt + sizeof id, p->salt, (size_t)p->num_salt);
    return true;
}

static bool has_penalty(const struct sampling_params *p) {
    return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

// The draft model's copy of a request: the same tokens, sampled by the same random numbers. It has no options about
// single tokens, such as biases and penalties: the draft model may have another vocabulary, and drafts need not be
// right.
static struct request *draft_copy(const struct request_params *p, int block_size) {
    struct request_params copy = {.id = p->id,
                                  .prompt = p->prompt,
                                  .num_prompt = p->num_prompt,
                                  .max_output = p->max_output,
                                  .sampling = p->sampling};
    copy.sampling.repetition_penalty = 1;
    copy.sampling.frequency_penalty = copy.sampling.presence_penalty = 0;
    copy.sampling.logprobs = -1;
    copy.sampling.prompt_logprobs = false;
    struct request *r = request_new(&copy, block_size);
    if (!r || p->mtp_size == 0)
        return r;
    r->mtp_size = p->mtp_size;
    r->mtp_rows = malloc((MTP_ROWS + MAX_DRAFTS) * (size_t)p->mtp_size * sizeof *r->mtp_rows);
    if (r->mtp_rows)
        return r;
    request_free(r);
    return NULL;
}

// Copies the spans and what stands in them.
static bool copy_spans(struct request *r, const struct request_params *p) {
    bool ok = true;
    int64_t rows = 0;
    for (int i = 0, end = 0; i < p->num_spans; i++) {
        const struct kv_span *s = &p->spans[i];
        CHECK(s->len >= 1 && s->first >= end && s->len <= p->num_prompt - s->first);
        int64_t plane = (int64_t)s->grid[1] * s->grid[2];
        CHECK(s->grid[0] == 0 ? plane == 0
                              : s->grid[0] > 0 && s->grid[1] > 0 && plane * s->grid[0] == s->len);
        end = s->first + s->len;
        rows += s->len;
    }
    r->seq.spans = copy_of(p->spans, p->num_spans, sizeof *p->spans, &ok);
    r->seq.num_spans = p->num_spans;
    if (!p->embeds || rows == 0)
        return ok;
    CHECK(p->embed_size >= 1);
    r->embed_size = p->embed_size;
    r->embeds = copy_of(p->embeds, (int)rows, (size_t)p->embed_size * sizeof *p->embeds, &ok);
    return ok;
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
    r->mirostat_mu = 2 * p->sampling.mirostat_tau;
    r->num_stop = p->num_stop;
    r->num_bias = p->num_bias;
    r->stop = copy_of(p->stop, p->num_stop, sizeof *p->stop, &ok);
    r->bias = copy_of(p->bias, p->num_bias, sizeof *p->bias, &ok);
    r->history = p->history;
    int words = p->num_mask_words;
    r->history.dry_breakers = copy_of(p->history.dry_breakers, p->history.dry_breakers ? words : 0, 4, &ok);
    r->history.dry_sequences = copy_sequences(p->history.dry_sequences, &ok);
    r->allowed = copy_of(p->allowed, p->allowed ? words : 0, sizeof *p->allowed, &ok);
    r->bad_words = copy_sequences(p->bad_words, &ok);
    if (p->logprob_ids)
        r->logprob_ids = copy_of(p->logprob_ids, p->sampling.logprobs, sizeof *p->logprob_ids, &ok);
    ok &= make_salt(r, p);
    r->adapter = p->adapter ? adapter_hold(p->adapter) : NULL;
    r->pooling = p->pooling;
    r->second_text = p->second_text;
    CHECK(p->pooling == POOLING_NONE || (p->max_output == 0 && p->vector_size > 0));
    if (p->pooling != POOLING_NONE)
        ok &= (r->vector = calloc((size_t)p->vector_size, sizeof *r->vector)) != NULL;
    int cap = (r->max_tokens + block_size - 1) / block_size;
    // Room for the tables of every group there may be: what a model does not have is never touched.
    block_id *ids = malloc(KV_MAX_GROUPS * (size_t)cap * sizeof *ids);
    if (ids)
        kv_seq_init(&r->seq, ids, cap);
    r->seq.retain = p->retain;
    ok &= (r->seq.hashes = malloc(((size_t)cap + 1) * sizeof *r->seq.hashes)) != NULL;
    ok &= copy_spans(r, p);
    r->tokens = malloc((size_t)r->max_tokens * sizeof *r->tokens);
    if (r->tokens)
        memcpy(r->tokens, p->prompt, (size_t)p->num_prompt * sizeof *r->tokens);
    // A draft model has embeddings of its own.
    if (p->draft && p->max_output > 0 && p->sampling.mirostat_tau <= 0 && p->num_spans == 0)
        ok &= (r->draft = draft_copy(p, block_size)) != NULL;
    bool history = token_history_on(&r->history);
    if (history)
        r->scratch = malloc((size_t)r->max_tokens * sizeof *r->scratch);
    if (!ok || !ids || !r->tokens || (history && !r->scratch) ||
        ((has_penalty(&r->sampling) || history) &&
         !token_counts_init(&r->counts, r->max_tokens, r->tokens, r->num_prompt))) {
        request_free(r);
        return NULL;
    }
    r->filter = p->filter; // last: a request that could not be made leaves them to the caller
    r->drafter = p->drafter;
    r->matcher = p->matcher;
    return r;
}

void request_free(struct request *r) {
    if (!r)
        return;
    drafter_free(r->drafter);
    request_free(r->draft);
    if (r->filter) {
        if (r->filter->free)
            r->filter->free(r->filter->state);
        free(r->filter);
    }
    if (r->matcher) {
        if (r->matcher->free)
            r->matcher->free(r->matcher->state);
        free(r->matcher);
    }
    free(r->tokens);
    free(r->seq.tables[0].ids);
    free(r->seq.hashes);
    free((void *)(uintptr_t)r->seq.spans);
    free(r->embeds);
    free(r->mtp_rows);
    free(r->stop);
    free((void *)(uintptr_t)r->history.dry_breakers);
    free((void *)(uintptr_t)r->history.dry_sequences);
    free(r->allowed);
    free(r->bad_words);
    free(r->scratch);
    free(r->bias);
    free(r->logprob_ids);
    free(r->salt);
    free(r->vector);
    token_counts_free(&r->counts);
    adapter_release(r->adapter);
    free(r);
}

bool request_sees_tokens(const struct request *r) {
    return r->filter || r->drafter || r->draft || r->counts.list || r->bad_words ||
           r->sampling.mirostat_tau > 0;
}

int request_draft(struct request *r, const token_id *drafts, int n) {
    int room = r->max_tokens - r->num_tokens - 1; // the row of the last draft samples one more token
    if (r->state != REQUEST_RUNNING || r->num_in_flight > 0 || !request_sees_tokens(r))
        room = 0;
    if (r->sampling.mirostat_tau > 0) // a draft's surprise is known only when its token is
        room = 0;
    room = room < MAX_DRAFTS ? room : MAX_DRAFTS;
    n = n < room ? n : room;
    r->num_drafts = n > 0 ? n : 0;
    for (int i = 0; i < r->num_drafts; i++)
        r->tokens[r->num_tokens + i] = drafts[i];
    return r->num_drafts;
}

bool request_needs_all_rows(const struct request *r) {
    return r->sampling.prompt_logprobs || r->pooling == POOLING_MEAN || r->pooling == POOLING_CLS;
}

bool request_is_stop(const struct request *r, token_id token) {
    for (int i = 0; i < r->num_stop; i++)
        if (r->stop[i] == token)
            return true;
    return false;
}
