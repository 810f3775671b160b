// tensor_read(): large tensors in pieces by several threads. And the types of tensors that are not read.
#include "harness.h"

#include "../tools/gguf_write.h"
#include "models/gguf.h"
#include "models/tensor_read.h"
#include "models/weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 400000, BLOCK = 18, BYTES = BLOCKS * BLOCK, START = 128 }; // of Q4_0: 7 MB, no whole pieces

static unsigned char *put(unsigned char *at, const void *data, size_t size) {
    memcpy(at, data, size);
    return at + size;
}

static unsigned char *put64(unsigned char *at, uint64_t n) { return put(at, &n, sizeof n); }

// A file of one tensor, "w" (BLOCKS, 32), whose data begin at START.
static unsigned char *make_file(void) {
    unsigned char *file = calloc(1, START + BYTES), *at = file;
    const uint32_t version = 3, ndim = 2, q4_0 = 2;
    assert_non_null(file);
    at = put(at, "GGUF", 4);
    at = put(at, &version, 4);
    at = put64(put64(at, 1), 1); // tensors, keys
    at = put64(at, 17);
    at = put(at, "general.alignment", 17);
    at = put(at, &(uint32_t){4}, 4);
    at = put(at, &(uint32_t){START}, 4);
    at = put64(at, 1);
    at = put(at, "w", 1);
    at = put(at, &ndim, 4);
    at = put64(put64(at, 32), BLOCKS);
    at = put(at, &q4_0, 4);
    at = put64(at, 0);
    assert_true(at <= file + START);
    uint32_t x = 1;
    for (size_t i = 0; i < BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        file[START + i] = i % BLOCK == 1 ? 0x21 : (unsigned char)(x >> 24); // scales are finite
    }
    return file;
}

// Expects STATUS_FORMAT with the byte of the file's first mistake, however threads run.
static void expect_bad(const struct model_file *g, const struct model_tensor *t, unsigned char *data,
                       size_t byte) {
    char place[40];
    snprintf(place, sizeof place, " at byte %zu:", byte);
    for (int i = 0; i < 20; i++) {
        struct err err = {0};
        assert_int_equal(tensor_read(g, t, data, &err), STATUS_FORMAT);
        if (!strstr(err.msg, place))
            fail_msg("expected '%s', found '%s'", place, err.msg);
    }
}

TEST(test_pieces) {
    unsigned char *file = make_file(), *data = aligned_alloc(64, (BYTES + 63) / 64 * 64);
    char path[] = "/tmp/test_tensor_read.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && data);
    assert_int_equal(write(fd, file, START + BYTES), START + BYTES);
    struct err err = {0};
    struct model_file *opened = gguf_open(path, &err),
                      *parsed = gguf_parse(file, START + BYTES, "memory", &err);
    if (!opened || !parsed)
        fail_msg("%s", err.msg);
    for (int i = 0; i < 2; i++) {
        const struct model_file *g = i ? opened : parsed;
        memset(data, 0xff, BYTES);
        assert_int_equal(tensor_read(g, model_file_find(g, "w"), data, &err), STATUS_OK);
        assert_memory_equal(data, file + START, BYTES);
    }
    // The error names the first wrong place: in the last block, in the first of a piece, before another.
    static const size_t bad[] = {BLOCKS - 1, 300001, 58255, 58254, 17, 0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t at = START + bad[i] * BLOCK;
        file[at + 1] = 0x7c; // an infinity
        file[at] = 0;
        assert_int_equal(pwrite(fd, file + at, 2, (off_t)at), 2);
        expect_bad(opened, model_file_find(opened, "w"), data, at);
        expect_bad(parsed, model_file_find(parsed, "w"), data, at);
    }
    // A file that was cut: the first byte that is not there, or what is wrong before it.
    err = (struct err){0};
    assert_int_equal(ftruncate(fd, START + BYTES - 1000), 0);
    expect_bad(opened, model_file_find(opened, "w"), data, START);
    unsigned char fine[2] = {0, 0x21};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (bad[i] < BLOCKS - 1)
            assert_int_equal(pwrite(fd, fine, 2, (off_t)(START + bad[i] * BLOCK)), 2);
    char place[80];
    snprintf(place, sizeof place, " at byte %d: the file was cut", START + BYTES - 1000);
    assert_int_equal(tensor_read(opened, model_file_find(opened, "w"), data, &err), STATUS_IO);
    if (!strstr(err.msg, place))
        fail_msg("expected '%s', found '%s'", place, err.msg);
    model_file_close(opened);
    model_file_close(parsed);
    close(fd);
    unlink(path);
    free(data);
    free(file);
}

// Types of ggml that are not computed with: refused by name, with all that are.
TEST(test_other_types) {
    enum { ROWS = 3 };
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t block, bytes;
    } others[] = {{"IQ2_XXS", 16, 256, 66}, {"IQ2_XS", 17, 256, 74}, {"IQ3_XXS", 18, 256, 98},
                  {"IQ1_S", 19, 256, 50},   {"IQ3_S", 21, 256, 110}, {"IQ2_S", 22, 256, 82},
                  {"I8", 24, 1, 1},         {"F64", 28, 1, 8},       {"IQ1_M", 29, 256, 56},
                  {"TQ1_0", 34, 256, 54},   {"TQ2_0", 35, 256, 66},  {"NVFP4", 40, 64, 36},
                  {"Q1_0", 41, 128, 18},    {"Q2_0", 42, 64, 18}};
    struct model_config config = {.arch = "llama", .vocab = ROWS, .hidden = 256, .num_layers = 1};
    size_t size;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct err err = {0};
        struct gguf_writer w = {0};
        char want[128];
        snprintf(want, sizeof want,
                 "token_embd.weight has type %s, which is not supported yet; supported: F32, ",
                 others[i].name);
        gw_tensor(&w, "token_embd.weight", others[i].type, 2, (uint64_t[]){256, ROWS}, NULL,
                  256 / others[i].block * others[i].bytes * ROWS);
        unsigned char *file = gw_finish(&w, &size);
        struct model_file *g = gguf_parse(file, size, "test.gguf", &err);
        if (!g)
            fail_msg("%s: %s", others[i].name, err.msg);
        assert_int_equal(weights_check(&config, g, &err), STATUS_FORMAT);
        if (!strstr(err.msg, want))
            fail_msg("expected '%s', got '%s'", want, err.msg);
        assert_true(strstr(err.msg, "Q8_0, ") && strstr(err.msg, ", MXFP4, ") && !strstr(err.msg, "I32"));
        assert_int_equal(weights_main_dtype(g, DTYPE_COUNT), DTYPE_COUNT);
        model_file_close(g);
        free(file);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
