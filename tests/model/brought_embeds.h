// Requests that bring embeddings of their prompts' spans, which may be grids: what the engine makes of them, on whatever devices.
#pragma once

#include "driver.h"
#include "models/gguf.h"
#include "random_model.h"
#include "ref_ops.h"

enum { BROUGHT_PROMPT = 40, BROUGHT_OUTPUT = 10, BROUGHT_MATES = 6, BROUGHT_PLACEHOLDER = 7 };

// How a prompt's spans come: as the ids of their tokens; as the rows that the embedding table has of these, over other ids;
// as other embeddings.
enum brought { AS_IDS, AS_ROWS, AS_OTHERS };

// The first ends within a block, the second begins within one and ends with it.
static const struct kv_span brought_spans[] = {{.first = 3, .len = 9},
                                               {.first = 21, .len = 11, .whole = true}};
enum { BROUGHT_SPANS = 2, BROUGHT_ROWS = 20 };

// Which grids they are from here on: none; some; others for the second
static enum brought_grids { NO_GRIDS, GRIDS, OTHER_GRIDS } brought_grids;
static const int brought_grid_sizes[][BROUGHT_SPANS][3] = {
    {{0}, {0}}, {{1, 3, 3}, {1, 11, 1}}, {{1, 3, 3}, {1, 1, 11}}};

static inline token_id brought_token(int i) { return 3 + 256 + (i * 13 + i * i) % 250; }

// The rows that a GGUF file's embedding table has of the prompt's tokens, (BROUGHT_PROMPT, D), the caller's to free.
static inline float *brought_table(const char *path, int D) {
    struct err err = {0};
    struct model_file *f = model_file_open(path, &err);
    const struct model_tensor *t = f ? model_file_find(f, "token_embd.weight") : NULL;
    const void *data = t ? model_file_keep(f, t, &err) : NULL;
    if (!data)
        fail_msg("%s", err.msg);
    const struct ref_matrix table = {data, t->view.dtype, (int)t->view.shape[0], D, NULL};
    float *rows = must_calloc((size_t)(BROUGHT_PROMPT * D), sizeof *rows);
    for (int i = 0; i < BROUGHT_PROMPT; i++)
        for (int d = 0; d < D; d++)
            rows[i * D + d] = ref_element(&table, brought_token(i), d);
    model_file_close(f);
    return rows;
}

static inline void brought_submit(struct driver *d, const float *table, enum brought how, int max_output,
                                  struct sampling_params sampling) {
    int D = engine_info(d->engine)->embed_size, n = 0;
    token_id ids[BROUGHT_PROMPT];
    struct kv_span spans[BROUGHT_SPANS];
    float *embeds = must_calloc((size_t)(BROUGHT_ROWS * D), sizeof *embeds);
    for (int i = 0; i < BROUGHT_PROMPT; i++)
        ids[i] = brought_token(i);
    for (int s = 0; s < BROUGHT_SPANS; s++) {
        const int first = n;
        spans[s] = brought_spans[s];
        memcpy(spans[s].grid, brought_grid_sizes[brought_grids][s], sizeof spans[s].grid);
        for (int i = spans[s].first; i < spans[s].first + spans[s].len; i++, n++) {
            ids[i] = how == AS_IDS ? ids[i] : BROUGHT_PLACEHOLDER;
            for (int k = 0; k < D; k++)
                embeds[n * D + k] = table[i * D + k] * (how == AS_OTHERS && k % 2 ? -1 : 1);
        }
        spans[s].hash =
            kv_root(engine_kv(d->engine), embeds + first * D, (size_t)((n - first) * D) * sizeof *embeds);
    }
    driver_submit(d, (struct request_params){.prompt = ids,
                                             .num_prompt = BROUGHT_PROMPT,
                                             .max_output = max_output,
                                             .sampling = sampling,
                                             .spans = spans,
                                             .num_spans = how == AS_IDS && !brought_grids ? 0 : BROUGHT_SPANS,
                                             .embeds = how == AS_IDS ? NULL : embeds,
                                             .embed_size = D});
    free(embeds);
}

// After half of the mates, which have other prompts, come those with the spans: greedy, sampled, and with log-probabilities
// of the prompt.
enum { BROUGHT_REQUESTS = 3 + BROUGHT_MATES, BROUGHT_FIRST = BROUGHT_MATES / 2 };

static inline void brought_run(const struct driver_config *c, const float *table, enum brought how,
                               struct got *got, struct driver *d) {
    const struct sampling_params sampled = {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7};
    driver_open(d, c);
    memset(got, 0, sizeof *got * (BROUGHT_REQUESTS + 5));
    for (int m = 0; m < BROUGHT_MATES; m++) {
        token_id t[64];
        int n = 5 + m * 11 % 50;
        for (int i = 0; i < n; i++)
            t[i] = brought_token(i + 3 * m);
        driver_add(d, t, n, 26 - m * 2, m % 2 ? sampled : (struct sampling_params){0});
        if (m == BROUGHT_FIRST - 1) {
            brought_submit(d, table, how, BROUGHT_OUTPUT, (struct sampling_params){0});
            brought_submit(d, table, how, BROUGHT_OUTPUT, sampled);
            brought_submit(d, table, how, 2, (struct sampling_params){.prompt_logprobs = true});
        }
        if (m % 2 == 0)
            driver_step(d, got);
    }
    driver_run(d, got);
}

// Whether the log-probability of the token at a position is that of an id which stands for nothing.
static inline bool brought_covers(int position) {
    bool in = false;
    for (int s = 0; s < BROUGHT_SPANS; s++)
        in |= position >= brought_spans[s].first && position < brought_spans[s].first + brought_spans[s].len;
    return in;
}

// Embeddings equal to the tokens' rows give the bits of the tokens, also from the cache; others give others, and hit nothing
// of them. Returns how many requests with spans were preempted.
static inline int brought_check(struct driver_config c, const char *what) {
    struct got *want = must_calloc(2 * (BROUGHT_REQUESTS + 5), sizeof *want),
               *got = want + BROUGHT_REQUESTS + 5;
    struct driver d;
    c.prompt_embeds = true;
    driver_open(&d, &c);
    float *table = brought_table(c.path, engine_info(d.engine)->embed_size);
    driver_close(&d);
    brought_run(&c, table, AS_IDS, want, &d);
    brought_submit(&d, table, AS_IDS, BROUGHT_OUTPUT, (struct sampling_params){0}); // again
    driver_run(&d, want);
    driver_close(&d);
    brought_run(&c, table, AS_ROWS, got, &d);
    for (int i = 0; i < BROUGHT_REQUESTS; i++) {
        assert_true(want[i].num > 0 && want[i].finish == FINISH_LENGTH && got[i].finish == FINISH_LENGTH);
        assert_same(&want[i], &got[i], what);
        assert_int_equal(want[i].num_scores, got[i].num_scores);
        for (int p = 0; p < want[i].num_scores; p++)
            if (!brought_covers(p + 1) && memcmp(&want[i].scores[p], &got[i].scores[p], sizeof(float)) != 0)
                fail_msg("%s: other log-probabilities of the prompt", what);
    }
    const struct got *first = &want[BROUGHT_FIRST], *mine = &got[BROUGHT_FIRST];
    int preempted = mine[0].num_preemptions + mine[1].num_preemptions + mine[2].num_preemptions;
    assert_int_equal(mine[2].num_scores, BROUGHT_PROMPT - 1);
    // The same again; others, twice; and the ids alone that stood there.
    static const enum brought later[] = {AS_ROWS, AS_OTHERS, AS_OTHERS};
    struct got *next = got + BROUGHT_REQUESTS;
    for (int i = 0; i < 3; i++) {
        brought_submit(&d, table, later[i], BROUGHT_OUTPUT, (struct sampling_params){0});
        driver_run(&d, got);
    }
    assert_same(&want[BROUGHT_REQUESTS], &next[0], what);
    assert_true(memcmp(next[1].top, first->top, sizeof next[1].top) != 0);
    bool cuda = c.device && strcmp(c.device, "cuda") == 0; // whose bits depend on hits
    if (c.exact || !cuda) {
        assert_same(first, &next[0], what);
        assert_same(&next[1], &next[2], what);
    }
    assert_int_equal(next[1].num_cached, 0);
    if (!c.no_cache && c.num_blocks == 0) { // else others may have needed the pages meanwhile
        assert_int_equal(next[0].num_cached, 32);
        assert_int_equal(next[2].num_cached, 32);
    }
    token_id ids[BROUGHT_PROMPT];
    for (int i = 0; i < BROUGHT_PROMPT; i++)
        ids[i] = brought_covers(i) ? BROUGHT_PLACEHOLDER : brought_token(i);
    driver_add(&d, ids, BROUGHT_PROMPT, 3, (struct sampling_params){0});
    driver_run(&d, got);
    assert_int_equal(next[3].num_cached, 0);
    driver_close(&d);
    free(want), free(table);
    return preempted;
}

// All of that of grids, which give other bits than text, and than one another, and hit what lies before them alone.
static inline int brought_check_grids(struct driver_config c, const char *what) {
    struct driver d;
    struct got *got = must_calloc(5, sizeof *got);
    brought_grids = GRIDS;
    int preempted = brought_check(c, what);
    c.prompt_embeds = true;
    driver_open(&d, &c);
    assert_true(engine_info(d.engine)->has_axes);
    float *table = brought_table(c.path, engine_info(d.engine)->embed_size);
    brought_submit(&d, table, AS_ROWS, BROUGHT_OUTPUT, (struct sampling_params){0});
    driver_run(&d, got + 4); // of a device that has seen no text
    driver_close(&d);
    driver_open(&d, &c);
    bool recurrent = engine_info(d.engine)->model.num_mix > 0; // which has snapshots of a prompt's end alone
    const int cached[] = {0, 0, recurrent ? 0 : 16, 32};
    for (int i = 0; i < 4; i++) { // the last is the first one again
        brought_grids = (enum brought_grids)(i % 3);
        brought_submit(&d, table, AS_ROWS, BROUGHT_OUTPUT, (struct sampling_params){0});
        driver_run(&d, got);
        if (!c.no_cache && c.num_blocks == 0)
            assert_int_equal(got[i].num_cached, cached[i]);
        for (int k = 0; k < i && i < 3; k++)
            assert_true(memcmp(got[i].top, got[k].top, sizeof got[i].top) != 0);
    }
    assert_same(&got[1], &got[4], what);
    if (c.exact || !c.device || strcmp(c.device, "cuda") != 0)
        assert_same(&got[0], &got[3], what);
    driver_close(&d);
    free(got), free(table);
    brought_grids = NO_GRIDS;
    return preempted;
}

// However prompts are cut and whatever is preempted.
static inline void brought_check_all(struct driver_config c) {
    brought_check(c, "at once");
    struct driver_config cut = c;
    cut.max_running = 1, cut.max_step_tokens = 11;
    brought_check(cut, "in chunks");
    cut = c;
    cut.max_chunk = 3, cut.max_step_tokens = 64;
    brought_check(cut, "in chunks beside others");
    cut = c;
    cut.num_blocks = 10, cut.max_model_len = 112, cut.max_step_tokens = 64;
    assert_true(brought_check(cut, "preempted") > 0);
    cut.no_cache = true;
    assert_true(brought_check(cut, "preempted, without hits") > 0);
}

// The last token of a prompt, whose row decodes after a hit of all before it, behind steps of the same kind without one.
static inline void brought_check_last(struct driver_config c) {
    enum { N = 33 };
    struct got *got = must_calloc(4, sizeof *got);
    c.prompt_embeds = true;
    for (int how = AS_IDS; how <= AS_ROWS; how++) {
        struct driver d;
        token_id ids[N];
        driver_open(&d, &c);
        int D = engine_info(d.engine)->embed_size;
        float *table = brought_table(c.path, D), *last = table + (N - 1) * D;
        for (int i = 0; i < N; i++)
            ids[i] = brought_token(i);
        ids[N - 1] = BROUGHT_PLACEHOLDER;
        driver_add(&d, ids, N, BROUGHT_OUTPUT, (struct sampling_params){0});
        driver_run(&d, got + 2 * how);
        const struct kv_span span = {
            .first = N - 1, .len = 1, .hash = kv_root(engine_kv(d.engine), last, (size_t)D * sizeof *last)};
        if (how == AS_IDS)
            ids[N - 1] = brought_token(N - 1);
        struct request *r = driver_submit(&d, (struct request_params){.prompt = ids,
                                                                      .num_prompt = N,
                                                                      .max_output = BROUGHT_OUTPUT,
                                                                      .spans = &span,
                                                                      .num_spans = how == AS_ROWS,
                                                                      .embeds = last,
                                                                      .embed_size = D});
        assert_non_null(r);
        driver_run(&d, got + 2 * how);
        assert_int_equal(got[2 * how + 1].num_cached, N - 1);
        driver_close(&d);
        free(table);
    }
    assert_same(&got[0], &got[2], "the first");
    assert_same(&got[1], &got[3], "one row that decodes");
    assert_true(memcmp(got[2].top, got[3].top, sizeof got[2].top) != 0);
    free(got);
}
