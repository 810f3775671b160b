// quantize_file(): the types it chooses, what it keeps, and that its output appears whole or not at all. The
// command line and real models are in tests/http/test_quantize.py, the codecs' errors in test_codecs.c.
#include "harness.h"

#include "../tools/gguf_write.h"
#include "log.h"
#include "models/convert.h"
#include "models/gguf.h"
#include "quantize.h"
#include "quants.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

// ffn_down has rows of 96, which only blocks of 32 divide.
enum { V = 40, D = 256, F = 96, H = 4, K = 1, HEAD = 64, L = 8 };

static char folder[] = "/tmp/quire-quantize-XXXXXX", in_path[64], out_path[64];

static float uniform(uint32_t *seed) { // [-1, 1)
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed * 0x1p-31f;
}

// F16 matrices, F32 norms and factors. bad: replaces the last number of the last tensor, where not 0.
static void write_model(const char *path, bool tied, uint16_t bad) {
    static const struct {
        const char *name;
        int rows, cols;
    } parts[] = {{"attn_norm", 0, D},     {"attn_q", H * HEAD, D},      {"attn_k", K * HEAD, D},
                 {"attn_v", K * HEAD, D}, {"attn_output", D, H * HEAD}, {"ffn_norm", 0, D},
                 {"ffn_gate", F, D},      {"ffn_down", D, F},           {"ffn_up", F, D}};
    struct gguf_writer w = {.alignment = 64};
    static float x[D * D];
    static uint16_t h[D * D];
    uint32_t seed = 1;
    gw_str(&w, "general.architecture", "llama");
    gw_u32(&w, "general.alignment", 64);
    gw_u32(&w, "general.file_type", 1);
    gw_u32(&w, "llama.block_count", L);
    gw_u32(&w, "llama.context_length", 64);
    gw_u32(&w, "llama.embedding_length", D);
    gw_u32(&w, "llama.feed_forward_length", F);
    gw_u32(&w, "llama.attention.head_count", H);
    gw_u32(&w, "llama.attention.head_count_kv", K);
    gw_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    static char text[V][16];
    const char *tokens[V];
    for (int i = 0; i < V; i++) {
        snprintf(text[i], sizeof text[i], "t%d", i);
        tokens[i] = text[i];
    }
    gw_strings(&w, "tokenizer.ggml.tokens", V, tokens);
    gw_strings(&w, "some.words", 3, (const char *const[]){"", "one", "two words"});
    gw_array(&w, "some.numbers", 6, 3, (float[]){1, 2, 3}, 12);
    gw_bool(&w, "some.truth", 1);
    char name[64];
    for (int i = 0; i < HEAD / 2; i++)
        x[i] = 1 + uniform(&seed) * 0.1f;
    gw_tensor(&w, "rope_freqs.weight", 0, 1, (uint64_t[]){HEAD / 2}, x, HEAD / 2 * sizeof *x);
    for (int i = tied ? -2 : -3; i < 9 * L; i++) {
        static const char *const tops[] = {"output.weight", "token_embd.weight", "output_norm.weight"};
        int rows = i >= 0 ? parts[i % 9].rows : i == -1 ? 0 : V, cols = i >= 0 ? parts[i % 9].cols : D;
        if (i < 0)
            snprintf(name, sizeof name, "%s", tops[i + 3]);
        else
            snprintf(name, sizeof name, "blk.%d.%s.weight", i / 9, parts[i % 9].name);
        int n = (rows ? rows : 1) * cols;
        for (int k = 0; k < n; k++)
            x[k] = rows ? uniform(&seed) * 0.1f : 1 + uniform(&seed) * 0.1f;
        convert_floats(h, DTYPE_F16, x, DTYPE_F32, (uint64_t)n);
        if (bad && i == 9 * L - 1)
            h[n - 1] = bad;
        gw_tensor(&w, name, rows ? 1 : 0, rows ? 2 : 1, (uint64_t[]){(uint64_t)cols, (uint64_t)rows},
                  rows ? (void *)h : (void *)x, (size_t)n * (rows ? 2 : 4));
    }
    size_t size;
    unsigned char *data = gw_finish(&w, &size);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    free(data);
}

static unsigned char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *p = malloc(1 << 24);
    assert_non_null(p);
    *size = fread(p, 1, 1 << 24, f);
    fclose(f);
    return p;
}

static int count_files(void) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static struct quantize_result quantize(const char *type, bool pure, int threads) {
    struct err err = {0};
    struct quantize_result r;
    struct quantize_config c = {
        .in = in_path, .out = out_path, .type = type, .pure = pure, .num_threads = threads};
    if (quantize_file(&c, &r, &err) != STATUS_OK)
        fail_msg("%s: %s", type, err.msg);
    return r;
}

static void refused(const char *in, const char *out, const char *type, enum status code, const char *says) {
    struct err err = {0};
    struct quantize_result r;
    struct quantize_config c = {.in = in, .out = out, .type = type, .num_threads = 2};
    assert_int_equal(quantize_file(&c, &r, &err), code);
    if (!strstr(err.msg, says))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, says);
}

TEST(test_begin) {
    log_set_level(LOG_ERROR);
    assert_non_null(mkdtemp(folder));
    snprintf(in_path, sizeof in_path, "%s/in", folder);
    snprintf(out_path, sizeof out_path, "%s/out", folder);
}

// The numbers of a tensor of the output, next to those of the input.
static void check_numbers(struct model_file *in, struct model_file *out, const struct model_tensor *b,
                          float most) {
    char name[64];
    static float x[D * D], y[D * D];
    snprintf(name, sizeof name, "%.*s", (int)b->name.len, b->name.data);
    const struct model_tensor *a = model_file_find(in, name);
    assert_non_null(a);
    assert_memory_equal(a->view.shape, b->view.shape, sizeof a->view.shape);
    const void *from = model_file_keep(in, a, NULL), *to = model_file_keep(out, b, NULL);
    assert_non_null(from);
    assert_non_null(to);
    convert_floats(x, DTYPE_F32, from, a->view.dtype, a->elements);
    if (dtype_block(b->view.dtype) > 1)
        quants_decode(y, to, b->view.dtype, (int64_t)b->elements);
    else
        convert_floats(y, DTYPE_F32, to, b->view.dtype, b->elements);
    double apart = 0, size = 0;
    for (uint64_t i = 0; i < a->elements; i++) {
        apart += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)x[i] * (double)x[i];
    }
    if (sqrt(apart / size) > (double)most)
        fail_msg("%s: %g from what it was", name, sqrt(apart / size));
}

static void check_types(bool tied, const char *type, bool pure, enum dtype all, enum dtype head, bool mixed,
                        uint32_t file_type) {
    write_model(in_path, tied, 0);
    struct quantize_result r = quantize(type, pure, 0);
    assert_int_equal(r.num_other, dtype_block(all) > 32 ? L : 0);
    struct model_file *in = gguf_open(in_path, NULL), *out = gguf_open(out_path, NULL);
    assert_non_null(in);
    assert_non_null(out);
    assert_string_equal(out->format, "GGUF version 3");
    assert_int_equal(out->trailing, 0);
    assert_int_equal(out->size, r.bytes_out);
    assert_int_equal(out->num_tensors, in->num_tensors);
    for (size_t i = 0; i < out->num_tensors; i++) {
        const struct model_tensor *t = &out->tensors[i];
        int layer = 0;
        char part[32] = "", name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        sscanf(name, "blk.%d.%31[a-z_]", &layer, part);
        bool is_head = strcmp(name, tied ? "token_embd.weight" : "output.weight") == 0;
        bool more = mixed && (layer == 0 || layer == 3 || layer == 6 || layer == 7);
        bool down = strcmp(part, "ffn_down") == 0;
        enum dtype want = t->view.ndim == 1                     ? DTYPE_F32
                          : down && dtype_block(all) > 32       ? DTYPE_Q8_0
                          : is_head                             ? head
                          : more && strcmp(part, "attn_v") == 0 ? DTYPE_Q6_K
                                                                : all;
        if (t->view.dtype != want)
            fail_msg("%s in %s is %s, not %s", name, type, t->type_name, dtype_name(want));
        check_numbers(in, out, t, want == DTYPE_F32 || want == DTYPE_F16 ? 0 : 0.07f);
    }
    assert_int_equal(out->num_meta, in->num_meta + 1); // the version at the end
    for (size_t i = 0; i < in->num_meta; i++) {
        const struct meta *a = &in->meta[i], *b = &out->meta[i];
        assert_int_equal(a->key.len, b->key.len);
        assert_memory_equal(a->key.data, b->key.data, a->key.len);
        assert_true(a->type == b->type && a->elem == b->elem && a->count == b->count);
        assert_int_equal(meta_value_bytes(a), meta_value_bytes(b));
        if (a != meta_find(in, "general.file_type"))
            assert_memory_equal(a->value, b->value, meta_value_bytes(a));
    }
    int64_t number = -1, version = -1;
    assert_int_equal(meta_int(out, "general.file_type", true, 0, 100, &number, NULL), STATUS_OK);
    assert_int_equal(meta_int(out, "general.quantization_version", true, 0, 9, &version, NULL), STATUS_OK);
    assert_int_equal(number, file_type);
    assert_int_equal(version, 2);
    model_file_close(in);
    model_file_close(out);
}

TEST(test_types) {
    check_types(true, "F16", false, DTYPE_F16, DTYPE_F16, false, 1);
    check_types(false, "bf16", false, DTYPE_BF16, DTYPE_BF16, false, 32);
    check_types(false, "q4_0", true, DTYPE_Q4_0, DTYPE_Q4_0, false, 2);
    check_types(true, "q4_k_m", false, DTYPE_Q4_K, DTYPE_Q6_K, true, 15);
    if (SLOW) // the others go the same ways; their encoders have test_codecs
        return;
    check_types(true, "f32", false, DTYPE_F32, DTYPE_F32, false, 0);
    check_types(true, "Q8_0", false, DTYPE_Q8_0, DTYPE_Q8_0, false, 7);
    check_types(true, "q4_0", false, DTYPE_Q4_0, DTYPE_Q6_K, false, 2);
    check_types(false, "q4_K", false, DTYPE_Q4_K, DTYPE_Q6_K, false, 14);
    check_types(false, "q4_k_m", true, DTYPE_Q4_K, DTYPE_Q4_K, false, 15);
    check_types(true, "q5_k", false, DTYPE_Q5_K, DTYPE_Q6_K, false, 16);
    check_types(false, "Q5_K_M", false, DTYPE_Q5_K, DTYPE_Q6_K, true, 17);
    check_types(true, "q4_1", false, DTYPE_Q4_1, DTYPE_Q6_K, false, 3);
    check_types(false, "Q5_0", false, DTYPE_Q5_0, DTYPE_Q6_K, false, 8);
    check_types(true, "q5_1", true, DTYPE_Q5_1, DTYPE_Q5_1, false, 9);
    check_types(false, "iq4_nl", false, DTYPE_IQ4_NL, DTYPE_Q6_K, false, 25);
    check_types(false, "q6_k", false, DTYPE_Q6_K, DTYPE_Q6_K, false, 18);
}

TEST(test_same_bytes) {
    size_t size, again;
    write_model(in_path, true, 0);
    quantize("q4_k_m", false, 1);
    unsigned char *one = read_file(out_path, &size);
    static const int threads[] = {2, 3, 16, 300};
    for (int i = 0; i < 4; i++) {
        quantize("q4_k_m", false, threads[i]);
        unsigned char *two = read_file(out_path, &again);
        assert_int_equal(again, size);
        assert_memory_equal(one, two, size);
        free(two);
    }
    free(one);
}

static bool stop_later(void *arg, double fraction) {
    int *left = arg;
    assert_true(fraction >= 0 && fraction <= 1);
    return (*left)-- > 0;
}

TEST(test_nothing_half_done) {
    struct err err = {0};
    struct quantize_result r;
    write_model(in_path, true, 0);
    FILE *f = fopen(out_path, "w");
    assert_non_null(f);
    fputs("old", f);
    fclose(f);
    for (int calls = 0; calls <= 40; calls += 20) {
        int left = calls;
        struct quantize_config c = {.in = in_path,
                                    .out = out_path,
                                    .type = "q4_0",
                                    .num_threads = 1,
                                    .progress = stop_later,
                                    .arg = &left};
        err.code = STATUS_OK;
        assert_int_equal(quantize_file(&c, &r, &err), STATUS_CANCELLED);
        assert_int_equal(left, -1);
    }
    write_model(in_path, true, 0x7e00);
    refused(in_path, out_path, "q4_0", STATUS_FORMAT, "NaN");
    write_model(in_path, true, 0xfc00);
    refused(in_path, out_path, "f32", STATUS_FORMAT,
            "blk.7.ffn_up.weight holds a NaN or an infinity at byte");
    refused(out_path, in_path, "f32", STATUS_FORMAT, "no GGUF file");
    refused("/nowhere/in", out_path, "f32", STATUS_IO, "cannot open");
    write_model(in_path, true, 0);
    refused(in_path, folder, "f32", STATUS_IO, "no regular file");
    refused(in_path, "/nowhere/out", "f32", STATUS_IO, "cannot write /nowhere/out: No such file");
    refused(in_path, in_path, "f32", STATUS_INVALID, "the same file");
    refused(in_path, out_path, "q3_k", STATUS_INVALID, "known: f32, f16");
    size_t size;
    unsigned char *now = read_file(out_path, &size);
    assert_true(size == 3 && memcmp(now, "old", 3) == 0);
    free(now);
    assert_int_equal(count_files(), 2);
}

// A value that the next type cannot hold is an error with the value and its byte; nothing is cut in silence.
TEST(test_too_large) {
    write_model(in_path, true, 0);
    quantize("f32", false, 2);
    size_t size;
    unsigned char *data = read_file(out_path, &size);
    static const struct {
        float value;
        const char *type;
    } cases[] = {{65520, "f16"}, {5e5f, "q4_0"},  {4.2e6f, "q4_k"}, {4.2e6f, "q5_k_m"}, {9e6f, "q8_0"},
                 {3e8f, "q6_k"}, {65520, "q4_1"}, {65520, "q5_1"},  {1e6f, "q5_0"},     {7.5e6f, "iq4_nl"}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i += 1 + SLOW) {
        char says[160];
        float value = i % 2 ? -cases[i].value : cases[i].value;
        memcpy(data + size - 36, &value, 4); // 9 numbers before the end of the last tensor
        FILE *f = fopen(in_path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(data, 1, size, f), size);
        fclose(f);
        snprintf(says, sizeof says,
                 "blk.7.ffn_up.weight: the value at byte %zu holds a number that is too large", size - 36);
        refused(in_path, out_path, cases[i].type, STATUS_FORMAT, says);
        quantize("bf16", false, 2);
    }
    free(data);
}

TEST(test_end) {
    assert_int_equal(count_files(), 2); // no temporary file is left
    unlink(in_path);
    unlink(out_path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) { return run_all_tests(NULL, NULL); }
