// Sampling on the device: the same tokens, log-probabilities and failures as kernels/cpu/sampler.c from equal
// logits, bit for bit, over rows with everything a request may ask; and the ids of the full sort of
// kernels/ref.
#include "device.h"

#include "float_env.h"
#include "random_rows.h"
#include "request.h"
#include "work.h"

enum { MAX_ROWS = 8 };

struct outcome_of_rows {
    int32_t ids[MAX_ROWS], rank[MAX_ROWS], top_ids[MAX_ROWS * MAX_TOP_LOGPROBS];
    float logprob[MAX_ROWS], share[MAX_ROWS], top[MAX_ROWS * MAX_TOP_LOGPROBS];
    uint8_t failed[MAX_ROWS];
};

// All rows have the same vocabulary. Every fourth time one block counts a row, as of a small one; every other time
// none has a local top-k.
static void run(struct row *const *rows, int n, struct outcome_of_rows *got) {
    int V = rows[0]->vocab, ld = sampler_row_size(V), groups = ld / CUDA_GROUP, words = (V + 31) / 32;
    struct logits_row heads[MAX_ROWS + 1];
    struct cuda_row_prep prep[MAX_ROWS + 1];
    struct logit_entry entries[MAX_ROWS * MAX_ENTRIES];
    int32_t passes[MAX_ROWS * 66] = {0};
    uint32_t *seen = must_calloc((size_t)V, sizeof *seen), stamp = 0;
    float *logits = must_calloc((size_t)(n * ld), sizeof *logits);
    uint32_t *mask = must_calloc((size_t)(n * words), sizeof *mask);
    int num_passes = 0, adjusted = 0;
    static int runs;
    bool one_block = runs++ % 4 == 3;
    for (int i = 0; i < n; i++) {
        memcpy(logits + i * ld, rows[i]->logits, sizeof *logits * (size_t)V);
        for (int v = V; v < ld; v++)
            logits[i * ld + v] = NAN; // nobody may look
        heads[i] = rows[i]->head;
        heads[i].row = i;
        heads[i].entry_start += i * MAX_ENTRIES;
        heads[i].entry_end += i * MAX_ENTRIES;
        memcpy(entries + i * MAX_ENTRIES, rows[i]->entries, sizeof rows[i]->entries);
        prep[i] = work_row_prep(&heads[i]);
        prep[i].wanted = heads[i].entry_end;
        if (rows[i]->mask || heads[i].entry_end > heads[i].entry_start) {
            prep[i].adjusted = adjusted++;
            prep[i].pass_start = num_passes;
            num_passes += work_passes(passes + num_passes, entries, heads[i].entry_start, heads[i].entry_end,
                                      0, seen, &stamp);
            prep[i].pass_end = num_passes;
            passes[num_passes++] = heads[i].entry_end;
        }
        if (rows[i]->mask) {
            prep[i].mask = i * words;
            memcpy(mask + i * words, rows[i]->mask, sizeof *mask * (size_t)words);
        }
    }
    heads[n] = (struct logits_row){.row = -1}; // padding, as a graph has it
    prep[n] = work_row_prep(&heads[n]);
    int all = n + 1;
    float *d_logits = poisoned(sizeof *logits * (size_t)(all * ld));
    rt_upload_now(rt, d_logits, logits, sizeof *logits * (size_t)(n * ld));
    float *max = group_maxima(logits, n, V, ld, CUDA_GROUP),
          *d_max = poisoned(sizeof *max * (size_t)(all * groups));
    rt_upload_now(rt, d_max, max, sizeof *max * (size_t)(n * groups));
    struct cuda_sample a = {
        .rows = to_device(heads, sizeof heads[0] * (size_t)all),
        .prep = to_device(prep, sizeof prep[0] * (size_t)all),
        .entries = to_device(entries, sizeof entries),
        .passes = to_device(passes, sizeof passes),
        .mask_bits = to_device(mask, sizeof *mask * (size_t)(n * words)),
        .logits = d_logits,
        .max = d_max,
        .adjusted = poisoned(sizeof(float) * (size_t)(adjusted * ld)),
        .adjusted_max = poisoned(sizeof(float) * (size_t)(adjusted * groups)),
        .sums = poisoned(sizeof(float) * (size_t)(all * 2 * groups)),
        .parts = one_block ? NULL
                           : poisoned(sizeof *a.parts * (size_t)all * CUDA_SAMPLE_SLICES * CUDA_SAMPLE_PART),
        .num_rows = all,
        .num_adjusted = adjusted,
        .vocab = V,
        .ld = ld,
        .ldmax = groups,
        .end = V,
        .num_slices = CUDA_SAMPLE_SLICES,
        .max_topk = runs % 2 ? CUDA_TOPK : 0,
        .topk = poisoned(sizeof *a.topk * (size_t)all),
        .ids = poisoned(sizeof got->ids),
        .rank = poisoned(sizeof got->rank),
        .share = poisoned(sizeof got->share),
        .top_ids = poisoned(sizeof got->top_ids),
        .logprob = poisoned(sizeof got->logprob),
        .top_logprobs = poisoned(sizeof got->top),
        .failed = poisoned(sizeof got->failed),
    };
    cuda_sample(rt, &a);
    void *parts[] = {a.ids, a.rank, a.share, a.top_ids, a.logprob, a.top_logprobs, a.failed};
    void *to[] = {got->ids, got->rank, got->share, got->top_ids, got->logprob, got->top, got->failed};
    size_t bytes[] = {sizeof got->ids,     sizeof got->rank, sizeof got->share, sizeof got->top_ids,
                      sizeof got->logprob, sizeof got->top,  sizeof got->failed};
    for (int i = 0; i < 7; i++) {
        void *host = to_host(parts[i], bytes[i]);
        memcpy(to[i], host, bytes[i]);
        free(host);
        rt_free(rt, parts[i]);
    }
    const void *others[] = {a.rows, a.prep,     a.entries,      a.passes, a.mask_bits, a.logits,
                            a.max,  a.adjusted, a.adjusted_max, a.sums,   a.parts,     a.topk};
    for (int i = 0; i < 12; i++)
        rt_free(rt, (void *)(uintptr_t)others[i]);
    free(seen), free(logits), free(max), free(mask);
}

static void check(struct row *const *rows, int n, int *num_sampled) {
    struct outcome_of_rows got;
    run(rows, n, &got);
    const struct cpu_kernels *k = cpu_kernels_find("auto");
    struct sampler *sampler = sampler_open(rows[0]->vocab);
    for (int i = 0; i < n; i++) {
        struct row *r = rows[i];
        int32_t top_ids[TOP];
        float top[TOP];
        struct sample want = {.top_ids = top_ids, .top_logprobs = top};
        uint64_t env = float_env_enter();
        sampler_row(sampler, k, r->logits, &r->head, r->entries, r->mask, &want);
        float_env_leave(env);
        if (got.failed[i] != want.failed || got.ids[i] != want.id)
            fail_msg(
                "V %d, T %g, k %d, p %g, min-p %g, target %d, entries %d, mask %d: token %d (failed %d), "
                "not %d (%d)",
                r->vocab, (double)r->head.temperature, r->head.top_k, (double)r->head.top_p,
                (double)r->head.min_p, r->head.target, r->head.entry_end - r->head.entry_start,
                r->mask != NULL, got.ids[i], got.failed[i], want.id, want.failed);
        *num_sampled += !want.failed;
        if (want.failed)
            continue;
        if (r->head.num_logprobs >= 0 && memcmp(&got.logprob[i], &want.logprob, sizeof(float)) != 0)
            fail_msg("log-probability %g, not %g", (double)got.logprob[i], (double)want.logprob);
        assert_int_equal(got.rank[i], want.rank);
        assert_memory_equal(&got.share[i], &want.share, sizeof(float));
        int num_top = r->head.num_logprobs < r->vocab ? r->head.num_logprobs : r->vocab;
        for (int j = 0; j < num_top; j++) {
            int at = i * MAX_TOP_LOGPROBS + j;
            if (got.top_ids[at] != top_ids[j] || memcmp(&got.top[at], &top[j], sizeof(float)) != 0)
                fail_msg("place %d: token %d %g, not %d %g", j, got.top_ids[at], (double)got.top[at],
                         top_ids[j], (double)top[j]);
        }
        struct ref_sample sorted;
        assert_true(ref_sample(&sorted, r->logits, r->vocab, &r->head, r->entries, r->mask));
        assert_int_equal(sorted.id, got.ids[i]);
    }
    sampler_close(sampler);
}

TEST(test_random_rows) {
    int num_sampled = 0;
    for (int i = 0; i < 800; i++) {
        struct row row, *one = &row;
        row_random(&row);
        rt_test_order(i % 4);
        check(&one, 1, &num_sampled);
        row_close(&row);
    }
    printf("  %d rows sampled\n", num_sampled);
    assert_true(num_sampled > 500);
}

// Rows side by side, some with entries, some without.
TEST(test_batches) {
    int num_sampled = 0, tries = 0;
    for (int round = 0; round < 12; round++) {
        struct row rows[MAX_ROWS], *list[MAX_ROWS];
        int n = 0;
        while (n < MAX_ROWS - 1) {
            row_random(&rows[n]);
            assert_true(++tries < 100000);
            if (rows[n].vocab != (round % 2 ? 1000 : 4096)) {
                row_close(&rows[n]);
                continue;
            }
            list[n] = &rows[n];
            n++;
        }
        rt_test_order(round % 3);
        check(list, n, &num_sampled);
        for (int i = 0; i < n; i++)
            row_close(&rows[i]);
    }
    assert_true(num_sampled > 50);
}

// A vocabulary as large as those of real models, flat and peaked: more groups than threads.
TEST(test_large) {
    int num_sampled = 0;
    for (int i = 0; i < 6; i++) {
        struct row row, *one = &row;
        row_open(&row, 151936);
        for (int v = 0; v < row.vocab; v++)
            row.logits[v] = i == 4 ? 1 : normal() * (i % 2 ? 4 : 0.01f); // of 4 every group has a best token
        row.head.num_logprobs = i % 3 ? 20 : -1;
        row.head.top_k = i == 2 ? 50 : i == 3 ? 20000 : 0;
        row.head.top_p = i >= 3 ? 0.9f : 1;
        row.head.min_p = i == 5 ? 0.05f : 0;
        row.head.temperature = i == 1 ? 0 : 0.8f;
        row.head.seed = (uint64_t)i * 77;
        rt_test_order(i % 3);
        check(&one, 1, &num_sampled);
        row_close(&row);
    }
    assert_int_equal(num_sampled, 6);
}

// ---- the local top-k of a rank's slices

enum { TOPK_VOCAB = 700, TOPK_LD = 704, TOPK_ROWS = 9, TOPK_BEGIN = 256, TOPK_END = 605, TOPK_MOST = 50 };
enum { TOPK_SLICES = 2, TOPK_FIRST = 4, TOPK_SLICE = 176 }; // of 22 groups each has 11

static int by_logit(const float *logits, int a, int b) { // the order of rule 15
    return logits[a] != logits[b] ? (logits[a] < logits[b] ? 1 : -1) : a - b;
}

// The first k of the tokens [begin, end) that can be sampled, by ascending id. -1: one is not finite.
static int best_tokens(const float *logits, int begin, int end, int k, int *ids) {
    int n = 0;
    for (int v = begin; v < end; v++) {
        if (isnan(logits[v]) || logits[v] == INFINITY)
            return -1;
        int before = 0;
        for (int w = begin; w < end; w++)
            before += by_logit(logits, w, v) < 0;
        if (before < k && logits[v] > -INFINITY)
            ids[n++] = v;
    }
    return n;
}

TEST(test_topk) {
    static const struct logits_row heads[TOPK_ROWS] = {
        {.row = 0, .target = -1, .num_logprobs = -1},                                // greedy
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 5},  //
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 50}, // many ties
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 51}, // more than max_topk
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 3},  // a NaN
        {.row = -1, .target = -1, .num_logprobs = -1},                               // padding
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 4},  // a mask leaves two
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 2},  // none can be sampled
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 4, .entry_end = 2}, // entries
    };
    static const struct logit_entry entries[2] = {{300, 1, 50}, {301, 1, -INFINITY}};
    const int32_t passes[2] = {0, 2};
    uint32_t mask[TOPK_LD / 32] = {0};
    mask[270 / 32] |= 1u << 270 % 32, mask[400 / 32] |= 1u << 400 % 32, mask[1] = ~0u;
    for (int order = 0; order < 3; order++) {
        float *logits = random_floats(TOPK_ROWS * TOPK_LD, 5);
        struct cuda_row_prep prep[TOPK_ROWS];
        for (int r = 0; r < TOPK_ROWS; r++)
            prep[r] = work_row_prep(&heads[r]);
        for (int v = 0; v < TOPK_VOCAB; v++) {
            logits[2 * TOPK_LD + v] = roundf(logits[2 * TOPK_LD + v]);
            logits[7 * TOPK_LD + v] = -INFINITY;
        }
        logits[300] = logits[400] = 6, logits[4 * TOPK_LD + 400] = NAN;
        logits[TOPK_LD + 10] = NAN;     // another rank's
        logits[8 * TOPK_LD + 301] = 40; // until it is adjusted
        prep[6].adjusted = 0, prep[6].mask = 0;
        prep[8].adjusted = 1, prep[8].pass_start = 0, prep[8].pass_end = 1;
        float *max = group_maxima(logits, TOPK_ROWS, TOPK_VOCAB, TOPK_LD, CUDA_GROUP);
        struct cuda_topk *topk = poisoned(TOPK_ROWS * sizeof *topk);
        struct cuda_sample a = {.rows = to_device(heads, sizeof heads),
                                .prep = to_device(prep, sizeof prep),
                                .entries = to_device(entries, sizeof entries),
                                .passes = to_device(passes, sizeof passes),
                                .mask_bits = to_device(mask, sizeof mask),
                                .logits = to_device(logits, sizeof *logits * TOPK_ROWS * TOPK_LD),
                                .max = to_device(max, sizeof *max * TOPK_ROWS * TOPK_LD / CUDA_GROUP),
                                .adjusted = poisoned(sizeof(float) * 2 * TOPK_LD),
                                .adjusted_max = poisoned(sizeof(float) * 2 * TOPK_LD / CUDA_GROUP),
                                .num_rows = TOPK_ROWS,
                                .num_adjusted = 2,
                                .vocab = TOPK_VOCAB,
                                .ld = TOPK_LD,
                                .ldmax = TOPK_LD / CUDA_GROUP,
                                .begin = TOPK_BEGIN,
                                .end = TOPK_END,
                                .first_slice = TOPK_FIRST,
                                .num_slices = TOPK_SLICES,
                                .max_topk = TOPK_MOST,
                                .topk = topk};
        rt_test_order(order);
        cuda_local_topk(rt, &a);
        struct cuda_topk *got = to_host(topk, TOPK_ROWS * sizeof *topk);
        for (int v = 0; v < TOPK_VOCAB; v++)
            if (!(mask[v / 32] >> v % 32 & 1))
                logits[6 * TOPK_LD + v] = -INFINITY;
        logits[8 * TOPK_LD + 300] += 50, logits[8 * TOPK_LD + 301] = -INFINITY;
        static const int k[TOPK_ROWS] = {1, 5, 50, 0, 3, 0, 4, 2, 4}, // 0: the row is left alone
            nums[TOPK_ROWS][TOPK_SLICES] = {{1, 1}, {5, 5}, {50, 50}, {0, 0}, {-1, 3},
                                            {0, 0}, {2, 0}, {0, 0},   {4, 4}};
        const uint32_t poison = ~0u;
        for (int r = 0; r < TOPK_ROWS; r++)
            for (int slice = 0; slice < CUDA_SAMPLE_SLICES; slice++) {
                int own = slice - TOPK_FIRST, ids[CUDA_TOPK], at = slice * CUDA_TOPK;
                if (own < 0 || own >= TOPK_SLICES || k[r] == 0) {
                    assert_memory_equal(&got[r].logits[at], &poison, sizeof poison);
                    continue;
                }
                int begin = TOPK_BEGIN + own * TOPK_SLICE, end = begin + TOPK_SLICE;
                int n = best_tokens(logits + r * TOPK_LD, begin, end < TOPK_END ? end : TOPK_END, k[r], ids);
                assert_int_equal(n, nums[r][own]);
                for (int i = 0; i < CUDA_TOPK; i++, at++) {
                    float largest = got[r].max[at / CUDA_GROUP];
                    if (got[r].logits[at] != (i < n ? logits[r * TOPK_LD + ids[i]] : -INFINITY) ||
                        (i < n && got[r].ids[at] != ids[i]))
                        fail_msg("row %d, slice %d, order %d: token %d is %d, not %d", r, slice, order, i,
                                 (int)got[r].ids[at], i < n ? ids[i] : -1);
                    assert_true(n < 0 ? isnan(largest) : largest >= got[r].logits[at]);
                    assert_true(n != 0 || largest == -INFINITY);
                }
            }
        assert_true(got[0].ids[TOPK_FIRST * CUDA_TOPK] == 300 && got[8].ids[TOPK_FIRST * CUDA_TOPK] <= 300);
        free(logits), free(max), free(got);
        void *all[] = {(void *)(uintptr_t)a.rows,
                       (void *)(uintptr_t)a.prep,
                       (void *)(uintptr_t)a.entries,
                       (void *)(uintptr_t)a.passes,
                       (void *)(uintptr_t)a.mask_bits,
                       a.logits,
                       a.max,
                       a.adjusted,
                       a.adjusted_max,
                       topk};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            rt_free(rt, all[i]);
    }
    rt_test_order(0);
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
