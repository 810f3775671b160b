// Embeddings that requests bring, over whole models: the bits of the tokens whose rows they are, on each device that needs no
// emulator, with ranks and stages, and what is refused.
#include "brought_embeds.h"
#include "service.h"
#include "variants.h"

static char path[] = "/tmp/quire-embeds-XXXXXX";

// A model of a family, with a table of a type.
static void make_model(const char *arch, enum dtype table) {
    strcpy(path + strlen(path) - 6, "XXXXXX");
    random_shape.arch = arch;
    random_model_write(&(struct random_model){.matrices = {table, DTYPE_F32}, .num_types = 2, .tied = false},
                       path);
    random_shape.arch = NULL;
}

TEST(test_cpu) {
    make_model(NULL, DTYPE_Q8_0);
    brought_check_all((struct driver_config){.path = path, .threads = 2});
    brought_check_last((struct driver_config){.path = path});
    brought_check((struct driver_config){.path = path, .variant = NARROW_VARIANT}, NARROW_VARIANT);
    unlink(path);
}

// Embeddings that the model scales; two kinds of layers, of which one has windows.
TEST(test_families) {
    static const char *const families[] = {"gemma2", "granitehybrid", "phi2"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        random_shape.window = i == 0 ? 24 : 0;
        make_model(families[i], DTYPE_F16);
        random_shape.window = 0;
        brought_check((struct driver_config){.path = path, .max_step_tokens = 64}, families[i]);
        unlink(path);
    }
}

// With grids, in sections and in turns.
TEST(test_grids) {
    make_model("qwen35moe", DTYPE_F16);
    brought_check_grids((struct driver_config){.path = path, .max_step_tokens = 64, .max_chunk = 3},
                        "in turns");
    unlink(path);
    make_model("qwen2", DTYPE_F16);
    struct driver_config c = {.path = path, .max_step_tokens = 64, .threads = 2};
    brought_check_grids(c, "at once");
    c.max_chunk = 3;
    brought_check_grids(c, "in chunks");
    for (c.ranks = 2, c.stages = 1; c.stages <= 2; c.stages++)
        brought_check_grids(c, "ranks");
    c = (struct driver_config){.path = path, .max_step_tokens = 64, .num_blocks = 10, .max_model_len = 112};
    assert_true(brought_check_grids(c, "preempted") > 0);
    brought_check_grids((struct driver_config){.path = path, .variant = NARROW_VARIANT}, NARROW_VARIANT);
    unlink(path);
    random_shape.hidden = 64, random_shape.head_dim = 16;
    make_model("qwen2", DTYPE_BF16);
    brought_check_grids((struct driver_config){.path = path, .device = "ref"}, "ref");
    unlink(path);
    random_shape.hidden = 512, random_shape.head_dim = 64;
}

TEST(test_ref) {
    random_shape.hidden = 64, random_shape.head_dim = 16;
    make_model(NULL, DTYPE_BF16);
    brought_check_all((struct driver_config){.path = path, .device = "ref"});
    unlink(path);
    random_shape.hidden = 512, random_shape.head_dim = 64;
}

TEST(test_ranks_and_stages) {
    static const int cuts[][2] = {{2, 1}, {4, 1}, {1, 2}, {2, 2}};
    make_model(NULL, DTYPE_F16);
    for (int i = 0; i < 4; i++)
        brought_check_all(
            (struct driver_config){.path = path, .threads = 2, .ranks = cuts[i][0], .stages = cuts[i][1]});
    unlink(path);
}

// The service: an embedding in place of a token's gives the events of the token; a record of it replays.
TEST(test_service) {
    enum { PROMPT = 20, OUTPUT = 4, D = 512 };
    char record[] = "/tmp/quire-embeds-rec-XXXXXX";
    close(mkstemp(record));
    make_model(NULL, DTYPE_F32);
    struct err err = {0};
    struct engine_config c = {.path = path,
                              .device = "cpu",
                              .num_threads = 1,
                              .block_size = 16,
                              .num_kv_blocks = 32,
                              .max_num_seqs = 2,
                              .max_num_batched_tokens = 32,
                              .prefix_caching = true,
                              .prompt_embeds = true};
    struct engine *e = engine_open(&c, &err);
    assert_non_null(e);
    const struct engine_info *info = engine_info(e);
    struct service_config sc = {.sched = {.max_running = 2,
                                          .max_step_tokens = 32,
                                          .max_waiting = 4,
                                          .max_waiting_tokens = 1000,
                                          .max_model_len = info->max_model_len,
                                          .depth = info->depth,
                                          .async = info->async,
                                          .embed_size = info->embed_size},
                                .max_chunk = 32,
                                .record = record};
    struct service *s = service_open(e, &sc, &err);
    assert_non_null(s);
    assert_int_equal(info->embed_size, D);
    float *table = brought_table(path, D);
    struct kv_span span = {.first = 5, .len = 4, .whole = true};
    token_id got[2][OUTPUT] = {{0}};
    for (int i = 0; i < 3; i++) { // the ids; their rows; rows of another size
        token_id ids[PROMPT];
        for (int t = 0; t < PROMPT; t++)
            ids[t] = brought_token(t);
        for (int t = span.first; i > 0 && t < span.first + span.len; t++)
            ids[t] = BROUGHT_PLACEHOLDER;
        struct request_params p = {.id = (uint64_t)i + 1,
                                   .prompt = ids,
                                   .num_prompt = PROMPT,
                                   .max_output = OUTPUT,
                                   .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = -1},
                                   .spans = &span,
                                   .num_spans = i > 0,
                                   .embeds = table + span.first * D,
                                   .embed_size = i == 2 ? D / 2 : D};
        span.hash = kv_root(engine_kv(e), p.embeds, (size_t)(span.len * D) * sizeof *table);
        struct request *r = request_new(&p, info->block_size);
        struct service_event event = {.kind = EVENT_PROMPT};
        if (i >= 2) {
            struct err refused = {0};
            assert_int_equal(service_submit(s, r, &refused), STATUS_INVALID);
            assert_non_null(strstr(refused.msg, "256 values; the model's have 512"));
            request_free(r);
            continue;
        }
        assert_int_equal(service_submit(s, r, &err), STATUS_OK);
        while (event.kind != EVENT_FINISH) {
            service_wait(s, INT64_MAX);
            if (service_take(s, &event, 1) == 1 && event.kind == EVENT_TOKEN)
                got[i][event.position] = event.token;
        }
        assert_int_equal(event.finish, FINISH_LENGTH);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    service_close(s);
    engine_close(e);
    uint64_t plans = 0;
    if (service_replay(record, &plans, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    assert_true(plans >= 2 * OUTPUT);
    free(table);
    unlink(path), unlink(record);
}

TEST(test_refused) {
    struct err err = {0};
    random_shape.window = 24;
    make_model("gemma3n", DTYPE_F16); // whose layers take embeddings by id, too
    random_shape.window = 0;
    struct engine_config c = {.path = path,
                              .device = "cpu",
                              .num_threads = 1,
                              .block_size = 16,
                              .max_num_seqs = 2,
                              .max_num_batched_tokens = 32,
                              .prompt_embeds = true};
    log_set_level(LOG_ERROR);
    assert_null(engine_open(&c, &err));
    if (err.code != STATUS_INVALID || !strstr(err.msg, "by the token's id"))
        fail_msg("%s", err.msg);
    c.prompt_embeds = false;
    struct engine *e = engine_open(&c, NULL);
    assert_non_null(e);
    assert_int_equal(engine_info(e)->embed_size, 0);
    engine_close(e);
    unlink(path);
}

int main(void) { return run_all_tests(NULL, NULL); }
