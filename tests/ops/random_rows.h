// Rows of logits with everything a request may ask of them, for the tests of samplers.
#pragma once

#include "fixture.h"
#include "sampler.h"

enum { TOP = 20, MAX_ENTRIES = 64 + TOP };

// A row for all tests: logits padded, entries, mask.
struct row {
    int vocab;
    float *logits;
    uint32_t *mask; // or NULL
    struct logit_entry entries[MAX_ENTRIES];
    struct logits_row head;
};

static inline float normal(void) {
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += random_float();
    return sum / 2;
}

static inline void row_open(struct row *r, int vocab) {
    int padded = sampler_row_size(vocab);
    memset(r, 0, sizeof *r);
    r->vocab = vocab;
    r->logits = must_calloc((size_t)padded, sizeof(float));
    for (int i = vocab; i < padded; i++)
        r->logits[i] = -INFINITY;
    r->head = (struct logits_row){.target = -1, .temperature = 1, .top_p = 1, .num_logprobs = -1};
}

static inline void row_close(struct row *r) {
    free(r->logits);
    free(r->mask);
}

static inline bool one_in(unsigned n) { return random_u32() % n == 0; }

// Everything a request may ask for, and rows a broken model may give.
static inline void row_random(struct row *r) {
    static const int vocabs[] = {1, 2, 15, 16, 17, 100, 1000, 4096, 5000, 20011};
    row_open(r, vocabs[random_u32() % (one_in(8) ? 10 : 8)]);
    int kind = (int)(random_u32() % 8), V = r->vocab;
    float spread = kind == 0 ? 1e30f : kind == 1 ? 1e-3f : (float)(1 + random_u32() % 8);
    for (int i = 0; i < V; i++) {
        r->logits[i] = normal() * spread;
        if (kind == 2) // ties everywhere
            r->logits[i] = floorf(r->logits[i]);
        if (kind == 3) // one value, both zeros
            r->logits[i] = one_in(2) ? 0.0f : -0.0f;
        if (kind == 4 && one_in(3))
            r->logits[i] = -INFINITY;
    }
    if (one_in(40))
        r->logits[random_u32() % (unsigned)V] = one_in(2) ? NAN : INFINITY;
    struct logits_row *h = &r->head;
    h->seed = (uint64_t)random_u32() << 32 | random_u32();
    h->index = (int32_t)(random_u32() % 1000);
    static const float temperatures[] = {0, 1, 0.7f, 1.5f, 0.01f, 1e-20f, 1e-38f, 2, 100};
    h->temperature = temperatures[random_u32() % 9];
    if (one_in(2))
        h->top_k = (int32_t)(1 + random_u32() % (one_in(2) ? 5 : 300));
    if (one_in(2))
        h->top_p = one_in(4) ? 0.999f : one_in(8) ? 0 : (float)(random_u32() % 1000) / 1000;
    if (one_in(3))
        h->min_p = one_in(8) ? 1 : (float)(random_u32() % 1000) / 3000;
    if (one_in(3)) { // the chain
        if (one_in(2))
            h->typical_p = (float)(1 + random_u32() % 999) / 1000;
        if (one_in(3))
            h->top_n_sigma = (float)(random_u32() % 300) / 100;
        if (one_in(2)) {
            h->xtc_probability = (float)(random_u32() % 5) / 4;
            h->xtc_threshold = (float)(random_u32() % 400) / 1000;
        }
        if (one_in(3))
            h->least_share = exp2f(-(float)(random_u32() % 1500) / 100);
        if (one_in(3)) {
            h->dyn_low = one_in(3) ? 0 : (float)(random_u32() % 100) / 100;
            h->dyn_high = h->dyn_low + (float)(1 + random_u32() % 200) / 100;
            h->dyn_exponent = one_in(2) ? 1 : (float)(1 + random_u32() % 30) / 10;
            h->temperature = 1;
        }
    }
    h->num_logprobs = (int32_t)(random_u32() % (TOP + 2)) - 1;
    if (h->num_logprobs > 0 && one_in(6))
        h->num_wanted = h->num_logprobs; // entries are filled for all rows below
    if (one_in(10))
        h->target = (int32_t)(random_u32() % (unsigned)V);
    h->post_sampling = h->num_logprobs >= 0 && h->num_wanted == 0 && h->target < 0 && one_in(4);
    for (int i = 0; i < MAX_ENTRIES; i++)
        r->entries[i] = (struct logit_entry){(int32_t)(random_u32() % (unsigned)V), one_in(2) ? 1.0f : 1.3f,
                                             one_in(3) ? -INFINITY : random_float()};
    if (one_in(3)) {
        h->entry_start = 2;
        h->entry_end = 2 + (int32_t)(random_u32() % 60);
    }
    if (one_in(4)) {
        r->mask = must_calloc((size_t)(V + 31) / 32, 4);
        bool all = one_in(6);
        for (int i = 0; i < (V + 31) / 32; i++)
            r->mask[i] = all ? 0 : one_in(2) ? ~0u : random_u32() & random_u32();
    }
}
