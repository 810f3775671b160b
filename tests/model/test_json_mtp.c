// MTP layers against Hugging Face transformers (tests/tools/make_mtp.py; ERNIE's and Nemotron 3's: make_mtp_alone.py): the log-probability of each token of a prompt given
// the model's rows of those before, and a row of logits. And that drafts are of the right tokens and rows.
#include "draft_model.h"
#include "driver.h"

#include <unistd.h>

#include <jansson.h>

#ifndef QUIRE_GOLDEN_MODELS
#define QUIRE_GOLDEN_MODELS "" // no Python when the build was configured
#define QUIRE_MTP_ALONE ""
#endif

enum { MAX_PROMPT = 256, PIECE = 16, OUTPUT = 120, MAX_RECORDS = 128 };

static token_id prompt[MAX_PROMPT];
static int num_prompt;
static float *rows; // (num_prompt, D) of the model's final norm

// The model's rows of all of the prompt.
static void compute_rows(struct driver *d) {
    int D = engine_info(d->engine)->model.hidden;
    const struct plan *plan;
    struct step_result result;
    struct err err = {0};
    driver_add(d, prompt, num_prompt, 1, (struct sampling_params){.prompt_logprobs = true});
    rows = calloc((size_t)num_prompt * (size_t)D, sizeof *rows);
    while ((plan = sched_step(d->sched, PIECE))) {
        const struct plan_item *item = &plan->items[0];
        engine_launch(d->engine, plan, NULL);
        assert_int_equal(engine_collect(d->engine, &result, &err), STATUS_OK);
        memcpy(rows + (size_t)item->first * (size_t)D, result.out->hidden,
               (size_t)item->num_new * (size_t)D * sizeof *rows);
        assert_int_equal(result.first_row[1], item->num_new);
        if (sched_update(d->sched, plan->id, &result.outcome, d->events) &&
            d->events[0].finish != FINISH_NONE)
            request_free(d->events[0].req);
    }
}

// The largest difference of what the layer predicts for the tokens behind the first, each beside the model's row before it.
static double run_layer(struct engine *layer, const json_t *golden) {
    const struct engine_info *info = engine_info(layer);
    int D = info->mtp_size, n = num_prompt - 1;
    struct request_params p = {.id = 1, .prompt = prompt + 1, .num_prompt = n, .max_output = 1};
    p.sampling = (struct sampling_params){
        .prompt_logprobs = true, .top_p = 1, .repetition_penalty = 1, .logprobs = -1};
    struct request *r = request_new(&p, info->block_size);
    json_t *scores = json_object_get(golden, "scores"), *logits = json_object_get(golden, "logits");
    double most = 0;
    assert_int_equal(json_array_size(scores), n - 1);
    assert_int_equal(json_array_size(logits), info->model.vocab);
    r->mtp_size = D;
    r->mtp_rows = malloc((MTP_ROWS + MAX_DRAFTS) * (size_t)D * sizeof(float));
    for (int first = 0, id = 1; first < n; first += PIECE, id++) {
        int num = n - first < PIECE ? n - first : PIECE;
        bool last = first + num == n;
        struct plan_item item = {
            .req = r, .first = first, .num_new = num, .needs_token = last, .wants_prompt_logprobs = true};
        struct plan plan = {
            .id = (uint64_t)id, .items = &item, .num_items = 1, .num_tokens = num, .num_rows = num};
        struct step_result result;
        struct err err = {0};
        for (int i = first; i < first + num; i++)
            memcpy(request_mtp_row(r, i), rows + (size_t)i * (size_t)D, (size_t)D * sizeof(float));
        assert_true(kv_grow(engine_kv(layer), &r->seq, first + num));
        engine_launch(layer, &plan, NULL);
        assert_int_equal(engine_collect(layer, &result, &err), STATUS_OK);
        for (int i = 0; i < num - last; i++) {
            double want = json_number_value(json_array_get(scores, (size_t)(first + i)));
            most = fmax(most, fabs((double)result.out->logprob[i] - want));
        }
        const float *row = result.out->logits + (size_t)(num - 1) * (size_t)info->model.vocab;
        for (int v = 0; last && v < info->model.vocab; v++)
            most = fmax(most, fabs((double)row[v] - json_number_value(json_array_get(logits, (size_t)v))));
    }
    kv_release(engine_kv(layer), &r->seq);
    request_free(r);
    return most;
}

static void check(const char *name, const json_t *golden, const char *path, const char *device) {
    struct driver d;
    driver_open(&d, &(struct driver_config){
                        .path = path, .device = device, .keep_logits = true, .mtp = true, .no_cache = true});
    compute_rows(&d);
    double most = run_layer(engine_draft(d.engine), golden);
    printf("  %s, %s: %.2g\n", name, device, most);
    assert_true(most < 1e-4);
    driver_close(&d);
    free(rows);
}

static void read_prompt(const char *name) {
    char file[4096];
    snprintf(file, sizeof file, QUIRE_SOURCE_DIR "/tests/model/golden/%s.json", name);
    json_t *model = json_load_file(file, 0, NULL), *ids = json_object_get(model, "prompt_ids");
    num_prompt = (int)json_array_size(ids);
    assert_true(num_prompt > 2 && num_prompt <= MAX_PROMPT);
    for (int i = 0; i < num_prompt; i++)
        prompt[i] = (token_id)json_integer_value(json_array_get(ids, (size_t)i));
    json_decref(model);
}

// With rows that are made up.
static void check_alone(const char *name, const json_t *golden, const char *path, const char *device) {
    struct driver d;
    driver_open(&d, &(struct driver_config){
                        .path = path, .device = device, .keep_logits = true, .mtp = true, .no_cache = true});
    int D = engine_info(d.engine)->model.hidden;
    rows = malloc((size_t)num_prompt * (size_t)D * sizeof *rows);
    for (int t = 0; t < num_prompt; t++)
        for (int k = 0; k < D; k++)
            rows[t * D + k] = (float)((t * 31 + k * 17) % 64) / 32 - 1;
    double most = run_layer(engine_draft(d.engine), golden);
    printf("  %s, %s: %.2g\n", name, device, most);
    assert_true(most < 1e-4);
    driver_close(&d);
    free(rows);
}

typedef void check_fn(const char *name, const json_t *golden, const char *path, const char *device);

// All of a file of golden numbers, whose models are at models + their name + end.
static void check_each(const char *file, size_t num, const char *models, const char *end, check_fn *fn) {
    json_t *all = json_load_file(file, 0, NULL), *golden;
    const char *name;
    assert_int_equal(json_object_size(all), num);
    json_object_foreach(all, name, golden) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s%s", models, name, end);
        if (access(path, R_OK) != 0)
            skip();
        read_prompt(name);
        fn(name, golden, path, "cpu");
        fn(name, golden, path, "ref");
    }
    json_decref(all);
}

TEST(test_golden) {
    check_each(QUIRE_SOURCE_DIR "/tests/model/mtp.json", 3, QUIRE_GOLDEN_MODELS, ".gguf", check);
}

TEST(test_golden_of_folders) {
    check_each(QUIRE_SOURCE_DIR "/tests/model/mtp_alone.json", 2, QUIRE_MTP_ALONE, "", check_alone);
}

// ---- drafts as the service makes them, against the layer's rows of the whole text

struct drafted {
    int num_tokens, first; // known tokens; the first that the layer has seen
    token_id drafts[2];
};

// Samples what follows prompt[first..n): the layer's rows are the model's, then its own of the token before.
static void draft_again(struct engine *layer, const struct drafted *was) {
    const struct engine_info *info = engine_info(layer);
    int D = info->mtp_size, num = was->num_tokens - was->first;
    size_t bytes = (size_t)D * sizeof(float);
    struct request_params p = {.id = 1, .prompt = prompt + was->first, .num_prompt = num, .max_output = 2};
    p.sampling = (struct sampling_params){.top_p = 1, .repetition_penalty = 1, .logprobs = -1};
    struct request *r = request_new(&p, info->block_size);
    r->mtp_size = D;
    r->mtp_rows = malloc((MTP_ROWS + MAX_DRAFTS) * bytes);
    for (int first = 0, n, id = 1; first < num + 1; first += n, id++) {
        n = first == num ? 1 : num - first < PIECE ? num - first : PIECE;
        bool last = first + n >= num;
        struct plan_item item = {
            .req = r, .first = first, .num_new = n, .first_logit = last ? n - 1 : n, .needs_token = last};
        struct plan plan = {
            .id = (uint64_t)id, .items = &item, .num_items = 1, .num_tokens = n, .num_rows = last};
        struct step_result result;
        struct err err = {0};
        for (int i = first; i < first + n && i < num; i++) // the row before the token
            memcpy(request_mtp_row(r, i), rows + (size_t)(was->first + i - 1) * (size_t)D, bytes);
        assert_true(kv_grow(engine_kv(layer), &r->seq, first + n));
        engine_launch(layer, &plan, NULL);
        assert_int_equal(engine_collect(layer, &result, &err), STATUS_OK);
        if (!last)
            continue;
        if (result.outcome.tokens[0] != was->drafts[first + n - num])
            fail_msg("behind %d tokens draft %d is %d, not %d", was->num_tokens, first + n - num,
                     was->drafts[first + n - num], result.outcome.tokens[0]);
        r->tokens[num] = result.outcome.tokens[0];
        memcpy(request_mtp_row(r, num), result.out->hidden + (size_t)(result.first_row[1] - 1) * (size_t)D,
               bytes);
    }
    kv_release(engine_kv(layer), &r->seq);
    request_free(r);
}

TEST(test_drafts_of_the_right_rows) {
    static struct drafted records[MAX_RECORDS];
    static struct got known; // the text
    struct driver d;
    struct draft_model m;
    struct draft_length length = {0};
    const struct plan *plan;
    int num = 0, steps = 0, begun = 0, right = 0;
    if (access(QUIRE_GOLDEN_MODELS "/glm4moe.gguf", R_OK) != 0)
        skip();
    driver_open(&d, &(struct driver_config){
                        .path = QUIRE_GOLDEN_MODELS "/glm4moe.gguf", .mtp = true, .no_cache = true});
    struct engine *layer = engine_draft(d.engine);
    assert_true(draft_model_init(&m, layer, 1));
    num_prompt = 20;
    for (int i = 0; i < num_prompt; i++)
        prompt[i] = 5 + i * i % 200;
    driver_add(&d, prompt, num_prompt, OUTPUT, (struct sampling_params){0});
    driver_run(&d, &known);
    struct request *r = driver_submit(&d, (struct request_params){.prompt = prompt,
                                                                  .num_prompt = num_prompt,
                                                                  .max_output = OUTPUT,
                                                                  .draft = true,
                                                                  .mtp_size = engine_info(layer)->mtp_size});
    for (bool ended = false; !ended && (plan = sched_step(d.sched, PIECE)); steps++) {
        struct step_result result;
        struct err err = {0};
        engine_launch(d.engine, plan, NULL);
        assert_int_equal(engine_collect(d.engine, &result, &err), STATUS_OK);
        draft_model_keep(&result);
        int events = sched_update(d.sched, plan->id, &result.outcome, d.events);
        for (int i = 0; i < events; i++)
            ended |= d.events[i].finish != FINISH_NONE;
        memcpy(prompt, r->tokens, (size_t)r->num_tokens * sizeof *prompt);
        num_prompt = r->num_tokens;
        bool pause = steps > 20 && steps < 56; // longer than rows are kept
        if (ended || r->num_tokens == 20 || (steps > 10 && steps % 3 > 0) || pause ||
            r->num_tokens + 3 > r->max_tokens)
            continue;
        struct draft_offer o = {.req = r, .num = 2, .take = 2, .behind = draft_model_behind(&m, r)};
        assert_in_range(o.behind, 1, MTP_ROWS);
        begun += r->draft->mtp_first > 20;
        draft_model_run(&m, &o, 1, &length);
        assert_int_equal(o.num, 2);
        struct drafted *was = &records[num++];
        *was = (struct drafted){r->num_tokens, r->draft->mtp_first, {o.drafts[0], o.drafts[1]}};
        if (steps % 2) // the model's next rows are behind drafts
            right += request_draft(r, known.tokens + r->num_tokens - 20, 2);
    }
    assert_true(num > 20 && begun > 5 && right > 10);
    draft_model_drop(&m, r);
    request_free(r);
    int n = num_prompt;
    compute_rows(&d);
    for (int i = 0; i < num; i++)
        draft_again(layer, &records[i]);
    assert_int_equal(n, num_prompt);
    assert_int_equal(engine_kv(layer)->num_free, engine_info(layer)->num_blocks);
    draft_model_free(&m);
    driver_close(&d);
    free(rows);
}

int main(void) { return run_all_tests(NULL, NULL); }
