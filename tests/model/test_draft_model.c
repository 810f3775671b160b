// A draft model: with one a request gets the tokens and the bits of log-probabilities that it gets without, whether the
// draft model agrees always (the same file), at times (its weights with noise) or never; its pages come back; and which
// files may draft.
#include "draft_runs.h"
#include "drafting.h"
#include "models/model_file.h"

// ---- files that draft

// Writes the model with each weight w as w + noise * u * w, u from -1 to 1: from 2 on nothing is left of it.
static const char *write_noisy(double noise) {
    static char paths[4][64];
    static int num;
    char *path = paths[num++];
    struct err err = {0};
    struct model_file *f = model_file_open(stories_model(), &err);
    assert_non_null(f);
    unsigned char *bytes = malloc(f->size);
    uint64_t stopped, random = 88172645463325252u;
    assert_null(f->ops->read(f, 0, f->size, bytes, &stopped));
    for (uint64_t i = 0; i < f->num_tensors; i++)
        for (uint64_t at = f->tensors[i].offset, end = at + f->tensors[i].bytes; at < end; at += 4) {
            float w;
            assert_int_equal(f->tensors[i].view.dtype, DTYPE_F32);
            memcpy(&w, bytes + at, sizeof w);
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            w += (float)(noise * ((double)(random >> 11) / 0x1p52 - 1)) * w;
            memcpy(bytes + at, &w, sizeof w);
        }
    return save_changed(path, f, bytes);
}

TEST(test_the_same_bits) {
    static const struct run runs[] = {
        {"together", 200, 40, 0, 0, 0, false, 0}, {"few", 200, 2, 0, 0, 0, false, 0},
        {"preempted", 24, 16, 0, 0, 0, false, 0}, {"asynchronous", 60, 8, 2, 0, 0, false, 0},
        {"stages", 60, 8, 0, 2, 0, false, 0},     {"ranks", 200, 32, 0, 0, 2, false, 0},
        {"what pays", 24, 4, 0, 0, 0, true, 0}};
    static const char *const names[] = {"always", "at times", "never"};
    const char *const drafts[] = {stories_model(), write_noisy(0.3), write_noisy(30)};
    uint64_t id = 1;
    open_all(&usual, NULL);
    run_round(plain, &id, false, false);
    close_all();
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
        for (int d = 0; d < 3; d++) {
            if (r > 0 && d != (int)r % 3)
                continue;
            char what[80];
            snprintf(what, sizeof what, "%s, agrees %s", runs[r].what, names[d]);
            id = 1;
            open_all(&runs[r], drafts[d]);
            for (int round = SLOW; round < 3; round++) { // the second finds the prompts in both caches
                run_round(got, &id, false, round == 2);
                check_same(what, round == 2);
            }
            struct service_stats s = stats_of_idle();
            printf("  %s: %llu drafts, %llu right, %llu preemptions\n", what,
                   (unsigned long long)s.draft_tokens, (unsigned long long)s.accepted,
                   (unsigned long long)s.preemptions);
            if (!runs[r].choose) {
                double right = (double)s.accepted / (double)s.draft_tokens;
                assert_true(s.draft_tokens > 200);
                assert_true(d == 0 ? right > 0.3 : d == 1 ? right > 0.03 : right < 0.03);
            }
            assert_true(runs[r].blocks != 24 || runs[r].max_running < 16 || s.preemptions > 0);
            close_all();
        }
    unlink(drafts[1]);
    unlink(drafts[2]);
}

// It samples by the request's own random numbers, so where it is the same model every draft is right at any temperature,
// and steps are as few as drafts allow.
TEST(test_the_same_model_is_always_right) {
    uint64_t id = 1;
    open_all(&usual, stories_model());
    run_round(got, &id, true, false);
    struct service_stats s = stats_of_idle();
    assert_true(s.draft_tokens > 200);
    assert_int_equal(s.accepted, s.draft_tokens);
    const struct kv_cache *kv = engine_kv(engine_draft(engine));
    assert_true(kv->num_cached[0] > 0); // nobody runs; the prompts stay for those who come with the same
    assert_int_equal(kv->num_active[0], 0);
    close_all();
}

// ---- memory

TEST(test_the_budget_is_of_both) {
    struct err err = {0};
    struct engine_config c = {.path = stories_model(),
                              .device = "cpu",
                              .num_threads = 1,
                              .block_size = 16,
                              .kv_cache_bytes = 4 << 20,
                              .max_num_seqs = 4,
                              .max_model_len = 256};
    struct engine *alone = engine_open(&c, &err);
    c.draft_path = c.path;
    struct engine *both = engine_open(&c, &err);
    assert_true(alone && both);
    int blocks = engine_info(alone)->num_blocks;
    assert_int_equal(engine_info(both)->num_blocks, blocks / 2); // the draft's pages are as large
    assert_int_equal(engine_info(engine_draft(both))->num_blocks, blocks / 2);
    assert_true(engine_info(both)->kv_bytes <= 4 << 20);
    engine_close(alone);
    engine_close(both);
}

// ---- who may draft

static void refuse(struct engine_config c, const char *draft, const char *why) {
    struct err err = {0};
    c.path = stories_model();
    c.device = c.device ? c.device : "cpu";
    c.num_threads = 1;
    c.num_kv_blocks = 8;
    c.max_num_seqs = 1;
    c.draft_path = draft;
    assert_null(engine_open(&c, &err));
    assert_true(err.code == STATUS_INVALID || err.code == STATUS_IO);
    if (!strstr(err.msg, why))
        fail_msg("%s", err.msg);
}

TEST(test_refusals) {
    refuse((struct engine_config){0}, "models/quire-tiny.gguf", "another tokenizer");
    refuse((struct engine_config){0}, "/nowhere.gguf", "/nowhere.gguf");
    refuse((struct engine_config){.device = "ref"}, stories_model(), "for the CPU, not for device 'ref'");
}

// A step that computes good drafts again is one of decodes; one that computes a prompt is not.
TEST(test_rows_of_a_step) {
    struct request r = {.num_prompt = 6, .state = REQUEST_RUNNING};
    struct plan_item item = {.req = &r, .first = 6, .num_new = 5, .num_drafts = 2, .needs_token = true};
    struct plan plan = {.items = &item, .num_items = 1, .num_tokens = 5};
    struct outcome out = {.start = (int32_t[]){0, 2}};
    struct drafting d = {0};
    assert_true(drafting_measure(&d, &plan, &out, 1000));
    assert_true(!d.prompts && d.length.costs[4].count == 1 && d.length.costs[4].ns[0] == 1000);
    assert_true(r.draft_rate.tried > 1.9f && r.draft_rate.right > 0.9f);
    item.first = 3;
    assert_true(drafting_measure(&d, &plan, &out, 1000));
    assert_true(d.prompts && d.length.costs[4].count == 1);
}

int main(void) { return run_all_tests(NULL, NULL); }
