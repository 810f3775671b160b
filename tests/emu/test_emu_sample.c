// Drawing on the device: the same tokens, log-probabilities and failures as kernels/cpu/sampler.c from equal
// logits, bit for bit, over rows with everything a request may ask; and the ids of the full sort of
// kernels/ref.
#include "device.h"

#include "float_env.h"
#include "plan.h"
#include "random_rows.h"
#include "request.h"

enum { MAX_ROWS = 8 };

struct outcome_of_rows {
    int32_t ids[MAX_ROWS], top_ids[MAX_ROWS * MAX_TOP_LOGPROBS];
    float logprob[MAX_ROWS], top[MAX_ROWS * MAX_TOP_LOGPROBS];
    uint8_t failed[MAX_ROWS];
};

// All rows have the same vocabulary.
static void run(struct row *const *rows, int n, struct outcome_of_rows *got) {
    int V = rows[0]->vocab, ld = sampler_row_size(V), groups = ld / CUDA_GROUP, words = (V + 31) / 32;
    struct head_row heads[MAX_ROWS + 1];
    struct cuda_draw draws[MAX_ROWS + 1];
    struct logit_edit edits[MAX_ROWS * 64];
    int32_t rounds[MAX_ROWS * 66] = {0};
    uint32_t *seen = must_calloc((size_t)V, sizeof *seen), stamp = 0;
    float *logits = must_calloc((size_t)(n * ld), sizeof *logits);
    uint32_t *mask = must_calloc((size_t)(n * words), sizeof *mask);
    int num_rounds = 0, edited = 0;
    for (int i = 0; i < n; i++) {
        memcpy(logits + i * ld, rows[i]->logits, sizeof *logits * (size_t)V);
        for (int v = V; v < ld; v++)
            logits[i * ld + v] = NAN; // nobody may look
        heads[i] = rows[i]->head;
        heads[i].row = i;
        heads[i].edit_start += i * 64;
        heads[i].edit_end += i * 64;
        memcpy(edits + i * 64, rows[i]->edits, sizeof rows[i]->edits);
        draws[i] = plan_draw(&heads[i]);
        if (rows[i]->mask || heads[i].edit_end > heads[i].edit_start) {
            draws[i].edited = edited++;
            draws[i].round_start = num_rounds;
            num_rounds += plan_rounds(rounds + num_rounds, edits, heads[i].edit_start, heads[i].edit_end, 0,
                                      seen, &stamp);
            draws[i].round_end = num_rounds;
            rounds[num_rounds++] = heads[i].edit_end;
        }
        if (rows[i]->mask) {
            draws[i].mask = i * words;
            memcpy(mask + i * words, rows[i]->mask, sizeof *mask * (size_t)words);
        }
    }
    heads[n] = (struct head_row){.row = -1}; // padding, as a graph has it
    draws[n] = plan_draw(&heads[n]);
    int all = n + 1;
    float *d_logits = poisoned(sizeof *logits * (size_t)(all * ld));
    rt_upload_now(rt, d_logits, logits, sizeof *logits * (size_t)(n * ld));
    struct cuda_sample a = {
        .rows = to_device(heads, sizeof heads[0] * (size_t)all),
        .draws = to_device(draws, sizeof draws[0] * (size_t)all),
        .edits = to_device(edits, sizeof edits),
        .rounds = to_device(rounds, sizeof rounds),
        .mask_bits = to_device(mask, sizeof *mask * (size_t)(n * words)),
        .logits = d_logits,
        .max = poisoned(sizeof(float) * (size_t)(all * groups)),
        .edited = poisoned(sizeof(float) * (size_t)(edited * ld)),
        .edited_max = poisoned(sizeof(float) * (size_t)(edited * groups)),
        .sums = poisoned(sizeof(float) * (size_t)(all * 2 * groups)),
        .num_rows = all,
        .num_edited = edited,
        .vocab = V,
        .ld = ld,
        .ldmax = groups,
        .ids = poisoned(sizeof got->ids),
        .top_ids = poisoned(sizeof got->top_ids),
        .logprob = poisoned(sizeof got->logprob),
        .top_logprobs = poisoned(sizeof got->top),
        .failed = poisoned(sizeof got->failed),
    };
    cuda_group_max(rt, d_logits, a.max, n, V, ld, groups, 1);
    cuda_sample(rt, &a);
    void *parts[] = {a.ids, a.top_ids, a.logprob, a.top_logprobs, a.failed};
    void *to[] = {got->ids, got->top_ids, got->logprob, got->top, got->failed};
    size_t bytes[] = {sizeof got->ids, sizeof got->top_ids, sizeof got->logprob, sizeof got->top,
                      sizeof got->failed};
    for (int i = 0; i < 5; i++) {
        void *host = to_host(parts[i], bytes[i]);
        memcpy(to[i], host, bytes[i]);
        free(host);
        rt_free(rt, parts[i]);
    }
    const void *others[] = {a.rows,   a.draws, a.edits,  a.rounds,     a.mask_bits,
                            a.logits, a.max,   a.edited, a.edited_max, a.sums};
    for (int i = 0; i < 10; i++)
        rt_free(rt, (void *)(uintptr_t)others[i]);
    free(seen), free(logits), free(mask);
}

static void check(struct row *const *rows, int n, int *drawn) {
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
        sampler_row(sampler, k, r->logits, &r->head, r->edits, r->mask, &want);
        float_env_leave(env);
        if (got.failed[i] != want.failed || got.ids[i] != want.id)
            fail_msg("V %d, T %g, k %d, p %g, min-p %g, target %d, edits %d, mask %d: token %d (failed %d), "
                     "not %d (%d)",
                     r->vocab, (double)r->head.temperature, r->head.top_k, (double)r->head.top_p,
                     (double)r->head.min_p, r->head.target, r->head.edit_end - r->head.edit_start,
                     r->mask != NULL, got.ids[i], got.failed[i], want.id, want.failed);
        *drawn += !want.failed;
        if (want.failed)
            continue;
        if (r->head.num_logprobs >= 0 && memcmp(&got.logprob[i], &want.logprob, sizeof(float)) != 0)
            fail_msg("log-probability %g, not %g", (double)got.logprob[i], (double)want.logprob);
        int num_top = r->head.num_logprobs < r->vocab ? r->head.num_logprobs : r->vocab;
        for (int j = 0; j < num_top; j++) {
            int at = i * MAX_TOP_LOGPROBS + j;
            if (got.top_ids[at] != top_ids[j] || memcmp(&got.top[at], &top[j], sizeof(float)) != 0)
                fail_msg("place %d: token %d %g, not %d %g", j, got.top_ids[at], (double)got.top[at],
                         top_ids[j], (double)top[j]);
        }
        struct ref_sample sorted;
        assert_true(ref_sample(&sorted, r->logits, r->vocab, &r->head, r->edits, r->mask));
        assert_int_equal(sorted.id, got.ids[i]);
    }
    sampler_close(sampler);
}

static void test_random_rows(void **state) {
    (void)state;
    int drawn = 0;
    for (int i = 0; i < 800; i++) {
        struct row row, *one = &row;
        row_random(&row);
        rt_test_order(i % 4);
        check(&one, 1, &drawn);
        row_close(&row);
    }
    printf("  %d rows drew\n", drawn);
    assert_true(drawn > 500);
}

// Rows side by side, some with edits, some without.
static void test_batches(void **state) {
    (void)state;
    int drawn = 0, tries = 0;
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
        check(list, n, &drawn);
        for (int i = 0; i < n; i++)
            row_close(&rows[i]);
    }
    assert_true(drawn > 50);
}

// A vocabulary as large as those of real models, flat and peaked: more groups than threads.
static void test_large(void **state) {
    (void)state;
    int drawn = 0;
    for (int i = 0; i < 6; i++) {
        struct row row, *one = &row;
        row_open(&row, 151936);
        for (int v = 0; v < row.vocab; v++)
            row.logits[v] = normal() * (i % 2 ? 4 : 0.01f);
        row.head.num_logprobs = i % 3 ? 20 : -1;
        row.head.top_k = i == 2 ? 50 : i == 3 ? 20000 : 0;
        row.head.top_p = i >= 3 ? 0.9f : 1;
        row.head.min_p = i == 5 ? 0.05f : 0;
        row.head.temperature = i == 1 ? 0 : 0.8f;
        row.head.seed = (uint64_t)i * 77;
        rt_test_order(i % 3);
        check(&one, 1, &drawn);
        row_close(&row);
    }
    assert_int_equal(drawn, 6);
}

int main(void) {
    device_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
