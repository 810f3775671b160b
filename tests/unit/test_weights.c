// Loading weights into a device that notes what it gets: types, conversions, and files that are damaged or cut.
#include "harness.h"

#include "model_fixture.h"

#include <unistd.h>

struct weight {
    struct weight_desc desc;
    float first[3];
};
struct device {
    struct weight weights[64];
    int num, cut_fd; // >= 0: cut the file after the first weight
    double progress;
};

static struct weight *fake_load(struct device *dev, const struct weight_desc *desc, struct err *err) {
    (void)err;
    if (dev->cut_fd >= 0 && ftruncate(dev->cut_fd, 4096) != 0)
        return NULL;
    struct weight *w = &dev->weights[dev->num++];
    w->desc = *desc;
    for (int i = 0; i < 3; i++)
        if (desc->part[i].data && desc->part[i].dtype == DTYPE_F32)
            memcpy(&w->first[i], (const char *)desc->part[i].data + 4, 4);
    return w;
}

static void on_progress(void *arg, double fraction) {
    struct device *dev = arg;
    assert_true(fraction > dev->progress && fraction <= 1);
    dev->progress = fraction;
}

static const struct backend_ops fake = {.name = "fake", .weight_load = fake_load};

static enum status load(struct model *m, const struct model_file *f, enum dtype floats, struct device *dev,
                        struct err *err) {
    struct weights_target one = {{.whole = &m->config, .world = 1}, m, dev, NULL};
    return weights_load(&one, 1, f, floats, &fake, on_progress, dev, err);
}

TEST(test_load) {
    static const uint32_t kinds[] = {0, 1, 30, 8, 2};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};
    for (size_t k = 0; k < 5; k++)
        for (int untied = 0; untied < 2; untied++) {
            static struct device dev;
            struct err err = {0};
            struct model m = {0};
            unsigned char *file;
            dev = (struct device){.cut_fd = -1};
            struct model_file *g = parse(&(struct change){.matrix_type = kinds[k], .untied = untied}, &file);
            assert_int_equal(model_config_read(g, &m.config, &err), STATUS_OK);
            if (load(&m, g, DTYPE_COUNT, &dev, &err))
                fail_msg("%s", err.msg);
            assert_int_equal(dev.num, 3 + 6 * L);
            assert_true(dev.progress == 1);
            assert_int_equal(weights_main_dtype(g, DTYPE_COUNT), dtypes[k]);
            assert_true(m.embed && m.head && m.out_norm);
            assert_int_equal(m.embed->desc.role, WEIGHT_EMBED);
            assert_int_equal(m.embed->desc.layer, -1);
            assert_int_equal(m.head->desc.role, WEIGHT_HEAD);
            for (int i = 0; i < L; i++) {
                const struct layer *l = &m.layers[i];
                assert_int_equal(l->index, i);
                assert_true(l->attn_norm && l->qkv && l->attn_out && l->ffn_norm && l->gate_up && l->down);
                assert_true(!l->q_norm && !l->k_norm);
                assert_int_equal(l->qkv->desc.layer, i);
                assert_int_equal(l->qkv->desc.role, WEIGHT_QKV);
                assert_int_equal(l->qkv->desc.part[1].shape[0], K * HD);
                assert_int_equal(l->qkv->desc.part[2].dtype, dtypes[k]);
                assert_int_equal(l->gate_up->desc.part[1].shape[0], F);
                assert_null(l->gate_up->desc.part[2].data);
                assert_null(l->qkv->desc.bias[0].data);
                assert_int_equal(l->down->desc.part[0].shape[1], F);
                assert_true(k != 0 || (l->qkv->first[0] == 1 && l->qkv->first[2] == 1));
            }
            weights_free(&m);
            assert_null(m.layers);
            model_file_close(g);
            free(file);
        }
}

// Biases and norms of heads come with their weights.
TEST(test_load_vectors) {
    static const struct change changes[] = {
        {.arch = "qwen2", .matrix_type = 8}, {.arch = "qwen3"}, {.biases = 1, .out_bias = 1}};
    for (int i = 0; i < 3; i++) {
        static struct device dev;
        struct err err = {0};
        struct model m = {0};
        unsigned char *file;
        dev = (struct device){.cut_fd = -1};
        struct model_file *g = parse(&changes[i], &file);
        assert_int_equal(model_config_read(g, &m.config, &err), STATUS_OK);
        if (load(&m, g, DTYPE_COUNT, &dev, &err))
            fail_msg("%s", err.msg);
        assert_int_equal(dev.num, 3 + (i == 1 ? 8 : 6) * L);
        assert_true(dev.progress == 1);
        for (int l = 0; l < L; l++) {
            const struct weight_desc *qkv = &m.layers[l].qkv->desc, *out = &m.layers[l].attn_out->desc;
            for (int p = 0; p < 3; p++) {
                assert_true((qkv->bias[p].data != NULL) == (i != 1));
                assert_true(i == 1 || (qkv->bias[p].dtype == DTYPE_F32 && qkv->bias[p].ndim == 1 &&
                                       qkv->bias[p].shape[0] == (p ? K : H) * HD));
            }
            assert_true((out->bias[0].data != NULL) == (i == 2));
            assert_true(i != 2 || out->bias[0].shape[0] == D);
            assert_true((m.layers[l].q_norm != NULL) == (i == 1) && (m.layers[l].k_norm != NULL) == (i == 1));
            if (i == 1) {
                assert_true(m.layers[l].q_norm != m.layers[l].k_norm);
                assert_int_equal(m.layers[l].k_norm->desc.part[0].shape[0], HD);
                assert_int_equal(m.layers[l].k_norm->desc.role, WEIGHT_K_NORM);
            }
        }
        weights_free(&m);
        model_file_close(g);
        free(file);
    }
    static struct device dev;
    struct err err = {0};
    struct model m = {0};
    unsigned char *file;
    dev = (struct device){.cut_fd = -1};
    struct model_file *g = parse(&(struct change){.arch = "qwen2", .poison = "blk.1.attn_k.bias"}, &file);
    assert_int_equal(model_config_read(g, &m.config, &err), STATUS_OK);
    assert_int_equal(load(&m, g, DTYPE_COUNT, &dev, &err), STATUS_FORMAT);
    assert_true(strstr(err.msg, "blk.1.attn_k.bias holds a NaN") != NULL);
    model_file_close(g);
    free(file);
}

TEST(test_poison) {
    // of a quantised type: the scale of its second block, and the minimum where there is one
    static const uint32_t kinds[] = {0,  1,  30, 8,  2,  3,  3,  6,  7,  7,  20,
                                     39, 12, 12, 13, 13, 14, 14, 10, 10, 11, 23};
    static const unsigned offsets[] = {0,  0,   0,   34,  18,  20,  22,  22,  24, 26,  18,
                                       17, 144, 146, 176, 178, 208, 418, 164, 82, 108, 136};
    enum { FIRST_WIDE = 12 };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        static struct device dev;
        struct err err = {0};
        struct model m = {0};
        unsigned char *file;
        char word[64];
        dev = (struct device){.cut_fd = -1};
        struct model_file *g = parse(
            &(struct change){.matrix_type = kinds[k],
                             .wide = k >= FIRST_WIDE,
                             .poison = "blk.1.attn_v.weight",
                             .poison_at = offsets[k],
                             .keys = {{"llama.embedding_length", 4, k >= FIRST_WIDE ? 256 : D, NULL},
                                      {"llama.feed_forward_length", 4, k >= FIRST_WIDE ? 256 : F, NULL}}},
            &file);
        assert_int_equal(model_config_read(g, &m.config, &err), STATUS_OK);
        assert_int_equal(load(&m, g, DTYPE_COUNT, &dev, &err), STATUS_FORMAT);
        unsigned at = offsets[k] ? offsets[k] : kinds[k] == 0 ? 28 : 14;
        snprintf(word, sizeof word, "at byte %llu",
                 (unsigned long long)model_file_find(g, "blk.1.attn_v.weight")->offset + at);
        if (!strstr(err.msg, "blk.1.attn_v.weight") || !strstr(err.msg, word))
            fail_msg("expected '%s', got '%s'", word, err.msg);
        assert_null(m.layers);
        model_file_close(g);
        free(file);
    }
}

// --dtype: matrices of float types change, norms do not, quantised ones do not.
TEST(test_dtype) {
    static const uint32_t kinds[] = {0, 1, 30, 8};
    static const enum dtype wanted[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t k = 0; k < 4; k++)
        for (size_t w = 0; w < 3; w++) {
            static struct device dev;
            struct err err = {0};
            struct model m = {0};
            unsigned char *file;
            dev = (struct device){.cut_fd = -1};
            struct model_file *g = parse(&(struct change){.matrix_type = kinds[k]}, &file);
            assert_int_equal(model_config_read(g, &m.config, &err), STATUS_OK);
            if (load(&m, g, wanted[w], &dev, &err))
                fail_msg("%s", err.msg);
            enum dtype want = kinds[k] == 8 ? DTYPE_Q8_0 : wanted[w];
            assert_int_equal(weights_main_dtype(g, wanted[w]), want);
            for (int i = 0; i < L; i++) {
                const struct layer *l = &m.layers[i];
                assert_int_equal(l->attn_norm->desc.part[0].dtype, DTYPE_F32);
                for (int p = 0; p < 3; p++) {
                    assert_int_equal(l->qkv->desc.part[p].dtype, want);
                    assert_true(kinds[k] != 0 || want != DTYPE_F32 || l->qkv->first[p] == 1);
                }
                assert_int_equal(l->down->desc.part[0].dtype, want);
            }
            weights_free(&m);
            model_file_close(g);
            free(file);
        }
}

// FP8 stays, unless --dtype says F32 or F16, or ranks would cut columns inside a block.
TEST(test_fp8) {
    static const struct {
        int world;
        enum dtype floats, qkv, out, down;
    } cases[] = {{1, DTYPE_COUNT, DTYPE_FP8, DTYPE_FP8, DTYPE_FP8},
                 {1, DTYPE_BF16, DTYPE_FP8, DTYPE_FP8, DTYPE_FP8},
                 {1, DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F32},
                 {1, DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_F16},
                 {2, DTYPE_COUNT, DTYPE_FP8, DTYPE_FP8, DTYPE_BF16},
                 {4, DTYPE_BF16, DTYPE_FP8, DTYPE_BF16, DTYPE_BF16},
                 {4, DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct device dev;
        struct err err = {0};
        struct model m = {0};
        unsigned char *file;
        dev = (struct device){.cut_fd = -1};
        struct model_file *g = parse(&(struct change){.matrix_type = 30}, &file);
        for (uint64_t k = 0; k < g->num_tensors; k++) {
            struct model_tensor *t = &g->tensors[k];
            int64_t cols = t->view.shape[t->view.ndim - 1];
            if (t->view.ndim < 2 || cols % 32)
                continue;
            t->view.dtype = DTYPE_FP8; // there is room for its bytes
            t->bytes = t->elements / 32 * 36;
            for (uint64_t at = 0; at < t->bytes; at++)
                file[t->offset + at] =
                    at % 36 < 4 ? (unsigned char)("\0\0\0\x3f"[at % 36]) : 0x3c; // 0.5, 1.5
        }
        assert_int_equal(model_config_read(g, &m.config, &err), STATUS_OK);
        struct model_config whole = m.config;
        struct weights_target one = {
            {.whole = &whole, .blocks = {2, 2, 1}, .world = cases[i].world}, &m, &dev, NULL};
        shard_config(&one.shard, &m.config);
        assert_int_equal(weights_main_dtype(g, cases[i].floats), cases[i].qkv);
        if (weights_load(&one, 1, g, cases[i].floats, &fake, on_progress, &dev, &err))
            fail_msg("%s", err.msg);
        const struct layer *l = &m.layers[1];
        for (int p = 0; p < 3; p++) {
            assert_int_equal(l->qkv->desc.part[p].dtype, cases[i].qkv);
            assert_true(cases[i].qkv != DTYPE_F32 || l->qkv->first[p] == 0.75f);
        }
        assert_int_equal(l->attn_out->desc.part[0].dtype, cases[i].out);
        assert_int_equal(l->down->desc.part[0].dtype, cases[i].down);
        assert_int_equal(l->down->desc.part[0].shape[1], F / cases[i].world);
        assert_int_equal(m.embed->desc.part[0].dtype, cases[i].qkv);
        weights_free(&m);
        model_file_close(g);
        free(file);
    }
}

// A file that is cut while it is loaded is an error, not a signal.
TEST(test_cut) {
    static struct device dev;
    struct err err = {0};
    struct model m = {0};
    size_t size;
    char path[] = "/tmp/test_model.XXXXXX";
    unsigned char *file = write_model(&(struct change){0}, &size);
    dev = (struct device){.cut_fd = mkstemp(path)};
    assert_true(dev.cut_fd >= 0);
    assert_int_equal(write(dev.cut_fd, file, size), size);
    struct model_file *g = gguf_open(path, &err);
    if (!g || model_config_read(g, &m.config, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(load(&m, g, DTYPE_COUNT, &dev, &err), STATUS_IO);
    assert_true(strstr(err.msg, "cut") != NULL);
    assert_null(m.layers);
    model_file_close(g);
    free(file);
    close(dev.cut_fd);
    unlink(path);
}

int main(void) { return run_all_tests(NULL, NULL); }
