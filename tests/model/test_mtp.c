// MTP layers: with one a request gets the tokens and the bits of log-probabilities that it gets without, whether what it drafts
// is right or not; and where a file's does not draft.
#include "draft_runs.h"
#include "models/architectures.h"
#include "models/model_config.h"
#include "models/model_file.h"
#include "models/mtp.h"
#include "quantize.h"

#ifndef QUIRE_GOLDEN_MODELS
#define QUIRE_GOLDEN_MODELS "" // no Python when the build was configured
#define QUIRE_TINY_MTP ""
#define QUIRE_MTP_ALONE ""
#endif

static const char *golden_model(const char *name) {
    static char paths[4][4096];
    static int num;
    char *path = paths[num++ % 4];
    snprintf(path, sizeof paths[0], QUIRE_GOLDEN_MODELS "/%s.gguf", name);
    if (access(path, R_OK) != 0)
        skip();
    return path;
}

static bool has_part(const struct model_tensor *t, const char *part) {
    char name[TENSOR_NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
    return strstr(name, part);
}

// Writes a golden model with layers that add `left` of what they did, so that a token follows from the one before alone,
// or nearly, and an MTP layer that lets the embedding through, so that it agrees.
static const char *write_agreeing(const char *name, float left) {
    static char path[32];
    struct err err = {0};
    struct model_file *f = model_file_open(golden_model(name), &err);
    assert_non_null(f);
    unsigned char *bytes = malloc(f->size);
    const struct model_tensor *norm = model_file_find(f, "output_norm.weight");
    uint64_t stopped, columns = norm->elements;
    assert_null(f->ops->read(f, 0, f->size, bytes, &stopped));
    for (uint64_t i = 0; i < f->num_tensors; i++) {
        const struct model_tensor *t = &f->tensors[i];
        float *w = (float *)(void *)(bytes + t->offset);
        bool adds = has_part(t, "attn_output") || has_part(t, "ssm_out") || has_part(t, "ffn_down");
        for (uint64_t k = 0; k < t->elements && adds; k++)
            w[k] *= left;
        if (has_part(t, "shared_head_norm"))
            memcpy(w, bytes + norm->offset, t->bytes);
        for (uint64_t k = 0; k < t->elements && has_part(t, "enorm"); k++)
            w[k] = 1;
        for (uint64_t k = 0; k < t->elements && has_part(t, "eh_proj"); k++)
            w[k] = k % (2 * columns) == k / (2 * columns);
    }
    return save_changed(path, f, bytes);
}

static void run_mtp(const char *path, const char *what, const struct run *runs, int num_runs, double right) {
    struct run alone = {"together", 400, 40, 0, 0, 0, false, 0};
    uint64_t id = 1;
    mtp_model = path;
    open_all(&alone, NULL);
    run_round(plain, &id, false, false);
    close_all();
    for (int i = 0; i < num_runs; i++) {
        id = 1;
        open_all(&runs[i], path);
        for (int round = SLOW; round < 3; round++) { // the second finds the prompts in the cache
            run_round(got, &id, false, round == 2);
            check_same(what, round == 2);
        }
        struct service_stats s = stats_of_idle();
        printf("  %s, %s, %s: %llu drafts, %llu right, %llu preemptions\n", what, device, runs[i].what,
               (unsigned long long)s.draft_tokens, (unsigned long long)s.accepted,
               (unsigned long long)s.preemptions);
        if (!runs[i].choose)
            assert_true(s.draft_tokens > 200 && (double)s.accepted >= right * (double)s.draft_tokens);
        assert_true(strcmp(runs[i].what, "preempted") != 0 || s.preemptions > 0);
        close_all();
    }
    mtp_model = NULL;
}

TEST(test_mtp_the_same_bits) {
    static const struct run runs[] = {
        {"together", 200, 40, 0, 0, 0, false, 0}, {"preempted", 24, 16, 0, 0, 0, false, 0},
        {"few", 200, 2, 0, 0, 0, false, 0},       {"asynchronous", 60, 8, 2, 0, 0, false, 0},
        {"stages", 60, 8, 0, 2, 0, false, 0},     {"ranks", 200, 32, 0, 0, 2, false, 0},
        {"what pays", 24, 4, 0, 0, 0, true, 0}};
    const char *agreeing = write_agreeing("glm4moe", 0);
    run_mtp(agreeing, "agrees", runs, 7, 0.3);
    run_mtp(golden_model("glm4moe"), "random", runs, 3, 0);
    run_mtp(golden_model("deepseek2-v3"), "latent", runs, 2, 0);
    device = "ref";
    run_mtp(agreeing, "agrees", runs, 1, 0.3);
    device = "cpu";
    unlink(agreeing);
}

// Of models with states, which go back where a draft is wrong, and compute the good ones before it again.
TEST(test_mtp_of_states) {
    static const struct run runs[] = {
        {"together", 400, 40, 0, 0, 0, false, 0},     {"preempted", 60, 16, 0, 0, 0, false, 0},
        {"small chunks", 400, 16, 0, 0, 0, false, 3}, {"few", 400, 2, 0, 0, 0, false, 0},
        {"asynchronous", 100, 8, 2, 0, 0, false, 0},  {"stages", 100, 8, 0, 2, 0, false, 0},
        {"ranks", 400, 32, 0, 0, 2, false, 0},        {"what pays", 60, 16, 0, 0, 0, true, 0}};
    const char *agreeing = write_agreeing("qwen35", 0.01f);
    run_mtp(agreeing, "states that agree", runs, 8, 0.1);
    device = "ref";
    run_mtp(agreeing, "states that agree", runs, 1, 0.1);
    device = "cpu";
    run_mtp(golden_model("qwen35"), "states", runs, 3, 0);
    unlink(agreeing);
}

// Asserts that the layers behind the model's are the same in both files. Returns how many tensors.
static int check_layers_behind(const struct model_file *a, const struct model_file *b, int layer) {
    char own[TENSOR_NAME_BYTES], name[TENSOR_NAME_BYTES];
    struct err err = {0};
    int num = 0;
    snprintf(own, sizeof own, "blk.%d.", layer);
    for (uint64_t i = 0; i < a->num_tensors; i++) {
        const struct model_tensor *t = &a->tensors[i];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        if (strncmp(name, own, strlen(own)) != 0 || strstr(name, "_b."))
            continue; // DeepSeek's attn_k_b and attn_v_b are one in a folder
        const struct model_tensor *u = model_file_find(b, name);
        if (!u)
            fail_msg("%s has no %s", b->name, name);
        assert_int_equal(u->bytes, t->bytes);
        unsigned char *x = malloc(t->bytes), *y = malloc(t->bytes);
        assert_int_equal(model_file_read(a, t, 0, t->bytes, x, &err), STATUS_OK);
        assert_int_equal(model_file_read(b, u, 0, u->bytes, y, &err), STATUS_OK);
        assert_memory_equal(x, y, t->bytes);
        free(x);
        free(y);
        num++;
    }
    return num;
}

// A folder's layer is in the file that `quire quantize` makes of it, counted by its keys.
TEST(test_mtp_of_a_folder_quantised) {
    static const char *const names[] = {"glm4moe", "deepseek2-v3", "qwen35"};
    static const struct run together = {"together", 400, 40, 0, 0, 0, false, 0};
    for (int i = 0; i < 3; i++) {
        struct err err = {0};
        char folder[4096], out[] = "/tmp/quire-quantised-XXXXXX";
        struct quantize_result result;
        struct model_config of, mtp;
        struct model_file *want = model_file_open(golden_model(names[i]), &err);
        close(mkstemp(out));
        unlink(out);
        snprintf(folder, sizeof folder, QUIRE_GOLDEN_MODELS "/%s", names[i]);
        log_set_level(LOG_ERROR);
        if (quantize_file(
                &(struct quantize_config){.in = folder, .out = out, .type = "f32", .num_threads = 2}, &result,
                &err) != STATUS_OK)
            fail_msg("%s", err.msg);
        struct model_file *f = model_file_open(out, &err);
        assert_true(want && f);
        assert_int_equal(model_config_read(f, &of, &err), STATUS_OK);
        assert_true(of.num_nextn == 1 && f->num_mtp == 0);
        assert_int_equal(mtp_config(f, &of, &mtp, &err), STATUS_OK);
        assert_true(check_layers_behind(want, f, of.num_layers) > 9);
        const struct meta *each = meta_find(f, "qwen35.attention.recurrent_layers");
        assert_true(!each || (each->count == 6 && each->value[4] == 1 && each->value[5] == 0));
        assert_int_equal(each != NULL, i == 2);
        model_file_close(f);
        model_file_close(want);
        run_mtp(out, "quantised", &together, 1, 0);
        unlink(out);
    }
}

// Of folders whose GGUF files cannot have the layer, and so what is quantised has none.
TEST(test_mtp_of_folders) {
    static const char *const names[] = {"ernie4_5-moe", "nemotron_h_moe"};
    static const struct run runs[] = {{"together", 400, 40, 0, 0, 0, false, 0},
                                      {"few", 400, 2, 0, 0, 0, false, 0}};
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        struct quantize_result result;
        char path[4096], out[] = "/tmp/quire-quantised-XXXXXX", name[TENSOR_NAME_BYTES];
        struct model_config of;
        snprintf(path, sizeof path, QUIRE_MTP_ALONE "/%s", names[i]);
        if (access(path, R_OK) != 0)
            skip();
        run_mtp(path, names[i], runs, 2, 0);
        close(mkstemp(out));
        unlink(out);
        const struct quantize_config c = {.in = path, .out = out, .type = "f32", .num_threads = 2};
        assert_int_equal(quantize_file(&c, &result, &err), STATUS_OK);
        struct model_file *f = model_file_open(out, &err);
        assert_non_null(f);
        assert_int_equal(model_config_read(f, &of, &err), STATUS_OK);
        snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", of.num_layers);
        assert_true(of.num_nextn == 0 && !model_file_find(f, name));
        model_file_close(f);
        unlink(out);
    }
}

// Of the embedded model, trained (models/train/mtp.py): it knows some of what comes even where prompts are no text.
TEST(test_mtp_trained) {
    static const struct run together = {"together", 200, 40, 0, 0, 0, false, 0};
    if (access(QUIRE_TINY_MTP, R_OK) != 0)
        skip();
    run_mtp(QUIRE_TINY_MTP, "trained", &together, 1, 0.08);
}

// It samples by the request's own random numbers.
TEST(test_mtp_is_right) {
    uint64_t id = 1;
    mtp_model = write_agreeing("glm4moe", 0);
    open_all(&usual, mtp_model);
    run_round(got, &id, true, false);
    struct service_stats s = stats_of_idle();
    assert_true(s.draft_tokens > 200 && s.accepted == s.draft_tokens);
    close_all();
    unlink(mtp_model);
    mtp_model = NULL;
}

// A file that lacks the layer, or a device that does not take it, is refused where the layer must draft, else it is left out.
TEST(test_mtp_refusals) {
    struct engine_config c = {
        .path = stories_model(), .device = "cpu", .num_threads = 1, .num_kv_blocks = 8, .max_num_seqs = 1};
    struct err err = {0};
    c.mtp = MTP_ALWAYS;
    assert_null(engine_open(&c, &err));
    assert_true(err.code == STATUS_INVALID && strstr(err.msg, "the file has no MTP layer"));
    c.mtp = MTP_IF_THERE;
    err = (struct err){0};
    struct engine *e = engine_open(&c, &err);
    assert_true(e && !engine_draft(e));
    engine_close(e);
    c.path = golden_model("qwen35");
    c.num_kv_blocks = 40;
    assert_non_null(e = engine_open(&c, &err));
    assert_non_null(engine_draft(e));
    engine_close(e);
    c.path = golden_model("glm4moe");
    assert_non_null(e = engine_open(&c, &err));
    assert_int_equal(engine_info(engine_draft(e))->mtp_size, 64);
    engine_close(e);
}

int main(void) { return run_all_tests(NULL, NULL); }
