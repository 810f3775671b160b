// The bits of logits, against hashes in golden/logits.golden: what a model computes on the CPU changes with a rule of
// kernels/README.md or not at all. Every small model of golden/README.md, the embedded one and stories260K, with the
// cache that goes with the weights and with int8: a prompt in chunks, then greedy steps.
//
//   test_logits                  compares
//   test_logits --write FILE     makes the golden file
#include "driver.h"

#include <dirent.h>
#include <unistd.h>

#ifndef QUIRE_GOLDEN_MODELS
#define QUIRE_GOLDEN_MODELS "" // no Python when the build was configured
#endif

enum { PROMPT = 37, STEPS = 8, MAX_LINE = 256, MAX_LINES = 512 };

static const char golden_path[] = QUIRE_SOURCE_DIR "/tests/model/golden/logits.golden";

// A line of the golden file: the model, its cache, a hash of the logits of each step. false: the model has no logits.
static bool write_line(char line[MAX_LINE], const char *name, const char *path, const char *kv_dtype) {
    struct driver d;
    static struct got got;
    memset(&got, 0, sizeof got);
    driver_open(&d, &(struct driver_config){.path = path,
                                            .kv_dtype = kv_dtype,
                                            .threads = 2,
                                            .keep_logits = true,
                                            .max_chunk = 16,
                                            .max_model_len = 64});
    const struct model_config *m = &engine_info(d.engine)->model;
    if (m->pooling != POOLING_NONE || m->is_reranker) {
        driver_close(&d);
        return false;
    }
    int vocab = m->vocab;
    token_id prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (token_id)((3 + 7 * i + i * i) % vocab);
    driver_add(&d, prompt, PROMPT, STEPS, (struct sampling_params){0});
    driver_run(&d, &got);
    driver_close(&d);
    int n = snprintf(line, MAX_LINE, "%s %s", name, kv_dtype);
    for (int i = 0; i < got.num; i++)
        n += snprintf(line + n, (size_t)(MAX_LINE - n), " %016llx", (unsigned long long)got.logits_hash[i]);
    return true;
}

static char lines[MAX_LINES][MAX_LINE];
static int num_lines;

static void add_model(const char *name, const char *path) {
    static const char *const kv_dtypes[] = {"auto", "int8"};
    for (int i = 0; i < 2 && access(path, R_OK) == 0; i++) {
        assert_true(num_lines < MAX_LINES);
        num_lines += write_line(lines[num_lines], name, path, kv_dtypes[i]);
    }
}

// The lines of all models that are there.
static void compute_lines(void) {
    struct dirent **files;
    int n = scandir(QUIRE_GOLDEN_MODELS, &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *end = strstr(files[i]->d_name, ".gguf");
        char path[4096], name[64];
        snprintf(path, sizeof path, "%s/%s", QUIRE_GOLDEN_MODELS, files[i]->d_name);
        snprintf(name, sizeof name, "%.*s", (int)(end ? end - files[i]->d_name : 0), files[i]->d_name);
        if (end)
            add_model(name, path);
        free(files[i]);
    }
    if (n >= 0)
        free(files);
    add_model("quire-tiny", QUIRE_SOURCE_DIR "/models/quire-tiny.gguf");
    const char *stories = test_data("models/stories260K/stories260K.gguf");
    if (stories)
        add_model("stories260K", stories);
}

// Every model that is there has the bits of the file, and every line of the file has its model, where models can be
// made and data is there.
TEST(test_logits) {
    char golden[MAX_LINE];
    int found = 0, i = 0;
    compute_lines();
    FILE *f = fopen(golden_path, "r");
    assert_non_null(f);
    while (fgets(golden, sizeof golden, f)) {
        golden[strcspn(golden, "\n")] = 0;
        size_t name = strcspn(golden, " ");
        name += 1 + strcspn(golden + name + 1, " "); // and the cache
        for (i = 0; i < num_lines && strncmp(lines[i], golden, name + 1) != 0; i++)
            ;
        if (i == num_lines)
            continue;
        found++;
        if (strcmp(lines[i], golden) != 0)
            fail_msg("other bits: %s, expected %s", lines[i], golden + name + 1);
    }
    fclose(f);
    assert_int_equal(found, num_lines);
    assert_true(num_lines >= 2); // the embedded model is always there
}

int main(int argc, char **argv) {
    if (argc != 3 || strcmp(argv[1], "--write") != 0)
        return run_all_tests(NULL, NULL);
    FILE *f = fopen(argv[2], "w");
    if (!f)
        return 1;
    compute_lines();
    for (int i = 0; i < num_lines; i++)
        fprintf(f, "%s\n", lines[i]);
    return fclose(f) == 0 ? 0 : 1;
}
