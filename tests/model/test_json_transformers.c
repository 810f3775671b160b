// Folders as the newest transformers 4 and 5 write them (tests/tools/make_transformers.py): a small model of each family, each
// with an unusual configuration, against what transformers computes. A case has names and shapes of tensors; their
// numbers are made here, as they were made there.
#include "driver.h"
#include "quantize.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#define CASES QUIRE_SOURCE_DIR "/tests/model/transformers"
#define TOKENIZER QUIRE_SOURCE_DIR "/tests/model/saved/tokenizer.json"

enum { MAX_IDS = 128, MIN_FOLDERS = 223 };

static char folder[256], file[320]; // the same model as a GGUF file, which quantize_file() writes

static uint32_t crc32_of(const char *s) { // zlib's
    uint32_t crc = ~0u;
    for (; *s; s++) {
        crc ^= (unsigned char)*s;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// The i-th number of a tensor: weight() of make_transformers.py.
static float weight(const char *name, uint64_t seed, uint64_t i, const json_t *shape, int64_t vocab) {
    size_t ndim = json_array_size(shape);
    uint64_t z = (i + 1 + (seed << 32)) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    float u = (float)(z >> 40) / (float)(1 << 23) - 1;
    if (ndim < 2)
        return strstr(name, "norm") && !ends_with(name, "bias") ? 1 + u / 4 : u / 2;
    int64_t rows = json_integer_value(json_array_get(shape, 0)),
            cols = json_integer_value(json_array_get(shape, ndim - 1));
    return u * (float)(rows == vocab ? 0.9 : 2.5 / sqrt((double)cols));
}

static uint64_t count(const json_t *shape) {
    uint64_t n = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        n *= (uint64_t)json_integer_value(json_array_get(shape, i));
    return n;
}

static FILE *create(const char *name) {
    char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}

static void write_weights(json_t *tensors, int64_t vocab) {
    json_t *header = json_object(), *shape;
    const char *name;
    uint64_t at = 0;
    json_object_foreach(tensors, name, shape) {
        uint64_t bytes = 4 * count(shape);
        json_object_set_new(header, name,
                            json_pack("{s:s,s:O,s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                      (json_int_t)at, (json_int_t)(at + bytes)));
        at += bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t size = strlen(text);
    FILE *f = create("model.safetensors");
    fwrite(&size, 8, 1, f);
    fwrite(text, 1, size, f);
    json_object_foreach(tensors, name, shape) {
        uint64_t seed = crc32_of(name);
        for (uint64_t i = 0, n = count(shape); i < n; i++) {
            float v = weight(name, seed, i, shape, vocab);
            fwrite(&v, sizeof v, 1, f);
        }
    }
    assert_int_equal(fclose(f), 0);
    free(text);
    json_decref(header);
}

static void write_folder(const json_t *config, json_t *tensors) {
    static char text[1 << 16];
    const json_t *inner = json_object_get(config, "text_config");
    char *words = json_dumps(config, 0);
    FILE *f = create("config.json"), *from = fopen(TOKENIZER, "rb");
    fputs(words, f);
    fclose(f);
    assert_non_null(from);
    size_t n = fread(text, 1, sizeof text, from);
    fclose(from);
    f = create("tokenizer.json");
    fwrite(text, 1, n, f);
    fclose(f);
    write_weights(tensors, json_integer_value(json_object_get(inner ? inner : config, "vocab_size")));
    free(words);
}

// Each returns NULL, or a sentence.
static const char *compare_scores(struct driver *d, struct got *got, const token_id *prompt, int n,
                                  const json_t *scores) {
    static char why[200];
    driver_add(d, prompt, n, 1, (struct sampling_params){.prompt_logprobs = true});
    driver_run(d, got);
    if (got->num_scores != n - 1)
        return "no scores";
    for (int t = 0; t < n - 1; t++) {
        double want = json_number_value(json_array_get(scores, (size_t)t));
        if (fabs(want - (double)got->scores[t]) <= 1e-3)
            continue;
        snprintf(why, sizeof why, "token %d has log-probability %.6f, expected %.6f", t + 1,
                 (double)got->scores[t], want);
        return why;
    }
    return NULL;
}

static const char *compare_vector(struct driver *d, struct got *got, const token_id *prompt, int n,
                                  const json_t *vector) {
    static char why[200];
    float v[1024] = {0};
    double length = 0;
    const struct engine_info *info = engine_info(d->engine);
    if ((size_t)info->vector_size != json_array_size(vector))
        return "a vector of another size";
    d->vector = v;
    driver_submit(
        d, (struct request_params){
               .prompt = prompt, .num_prompt = n, .pooling = POOLING_MEAN, .vector_size = info->vector_room});
    driver_run(d, got);
    for (int i = 0; i < info->vector_size; i++)
        length += (double)v[i] * (double)v[i];
    for (int i = 0; i < info->vector_size; i++) {
        double want = json_number_value(json_array_get(vector, (size_t)i)), is = (double)v[i] / sqrt(length);
        if (fabs(want - is) <= 2e-5)
            continue;
        snprintf(why, sizeof why, "element %d is %.6f, expected %.6f", i, is, want);
        return why;
    }
    return NULL;
}

static const char *compare(const char *model, const char *device, const json_t *ids, const json_t *scores) {
    static char why[900];
    token_id prompt[MAX_IDS];
    struct err err = {0};
    struct engine_config c = {.path = model,
                              .device = device,
                              .num_threads = 1,
                              .block_size = 16,
                              .kv_dtype = "f32",
                              .kv_cache_bytes = 16 << 20,
                              .max_num_seqs = 1,
                              .max_num_batched_tokens = 64};
    struct engine *e = engine_open(&c, &err);
    if (!e) {
        snprintf(why, sizeof why, "%s", err.msg);
        return why;
    }
    engine_close(e);
    struct driver d;
    struct got *got = calloc(1, sizeof *got);
    const bool encoder = json_array_size(scores) != json_array_size(ids) - 1;
    int n = (int)json_array_size(ids);
    assert_true(n >= 40 && n <= MAX_IDS && json_array_size(scores) >= 40);
    for (int i = 0; i < n; i++)
        prompt[i] = (token_id)json_integer_value(json_array_get(ids, (size_t)i));
    driver_open(&d,
                &(struct driver_config){
                    .path = model, .device = device, .kv_dtype = "f32", .pooling = encoder ? "mean" : NULL});
    const char *said =
        encoder ? compare_vector(&d, got, prompt, n, scores) : compare_scores(&d, got, prompt, n, scores);
    driver_close(&d);
    free(got);
    return said;
}

TEST(test_transformers) {
    struct dirent **files;
    const char *only = getenv("QUIRE_CASE"); // a part of the names
    int n = scandir(CASES, &files, NULL, alphasort), wrong = 0, num = 0;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *name = files[i]->d_name;
        char path[4096];
        json_error_t error;
        if (!ends_with(name, ".json") || (only && !strstr(name, only)))
            continue;
        snprintf(path, sizeof path, CASES "/%s", name);
        json_t *json = json_load_file(path, 0, &error), *one, *tensors = NULL;
        const json_t *scores = NULL;
        if (!json)
            fail_msg("%s: %s", path, error.text);
        size_t k;
        json_array_foreach(json_object_get(json, "folders"), k, one) {
            static const char *const ways[] = {"ref", "cpu", "cpu, as a file"};
            tensors = json_object_get(one, "tensors") ? json_object_get(one, "tensors") : tensors;
            scores = json_object_get(one, "scores") ? json_object_get(one, "scores") : scores;
            write_folder(json_object_get(one, "config"), tensors);
            const char *why = NULL;
            int way = 0;
            for (; way < 3 && !why; way++) {
                struct err err = {0};
                struct quantize_config to = {.in = folder, .out = file, .type = "f32", .num_threads = 1};
                struct quantize_result result;
                if (way == 2 && quantize_file(&to, &result, &err) != STATUS_OK)
                    why = "no file is written of it";
                else
                    why = compare(way == 2 ? file : folder, way ? "cpu" : "ref", json_object_get(json, "ids"),
                                  scores);
            }
            num++;
            wrong += why != NULL;
            if (why)
                printf("  %s, %s, on %s: %s\n", name, json_string_value(json_object_get(one, "version")),
                       ways[way - 1], why);
        }
        json_decref(json);
    }
    for (int i = 0; i < n; i++)
        free(files[i]);
    free(files);
    printf("  %d folders\n", num);
    assert_true(only || num >= MIN_FOLDERS);
    assert_int_equal(wrong, 0);
}

static void score(struct got *got, const struct driver_config *c, const json_t *ids) {
    token_id prompt[MAX_IDS];
    struct driver d;
    int n = (int)json_array_size(ids);
    memset(got, 0, sizeof *got);
    for (int i = 0; i < n; i++)
        prompt[i] = (token_id)json_integer_value(json_array_get(ids, (size_t)i));
    driver_open(&d, c);
    driver_add(&d, prompt, n, 1, (struct sampling_params){.prompt_logprobs = true});
    driver_run(&d, got);
    driver_close(&d);
}

// Arithmetic of few families: the same bits on ranks, in stages, in chunks and without vectors.
TEST(test_same_bits) {
    static const char *const names[] = {"apertus", "cohere2_moe", "nemotron_h-latent", "smallthinker"};
    struct got *one = calloc(1, sizeof *one), *other = calloc(1, sizeof *other);
    assert_true(one && other);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        json_error_t error;
        snprintf(path, sizeof path, CASES "/%s.json", names[i]);
        json_t *json = json_load_file(path, 0, &error), *ids = json_object_get(json, "ids"),
               *of = json_array_get(json_object_get(json, "folders"), 0);
        assert_non_null(of);
        write_folder(json_object_get(of, "config"), json_object_get(of, "tensors"));
        const struct driver_config ways[] = {{.path = folder, .kv_dtype = "f32"},
                                             {.path = folder, .kv_dtype = "f32", .ranks = 2},
                                             {.path = folder, .kv_dtype = "f32", .stages = 2},
                                             {.path = folder, .kv_dtype = "f32", .max_chunk = 7},
                                             {.path = folder, .kv_dtype = "f32", .variant = "scalar"}};
        score(one, &ways[0], ids);
        for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
            score(other, &ways[w], ids);
            if (one->num_scores < 40 || one->num_scores != other->num_scores ||
                memcmp(one->scores, other->scores, (size_t)one->num_scores * sizeof *one->scores) != 0)
                fail_msg("%s: other bits in way %zu", names[i], w);
        }
        json_decref(json);
    }
    free(one);
    free(other);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/quire-transformers-XXXXXX");
    bool made = mkdtemp(folder) != NULL;
    snprintf(file, sizeof file, "%s/model.gguf", folder);
    return made ? 0 : 1;
}

static int drop_folder(void **state) {
    static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors", "model.gguf"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        char path[320];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void) { return run_all_tests(make_folder, drop_folder); }
