// Quantised matrices of Hugging Face folders: their bytes, and what does not fit. That the numbers are those of each format:
// test_json_arch (tests/tools/folder_quants.py). Over 600 lines: a case for each format and each mistake in it.
#include "folder_fixture.h"

#include "half.h"
#include "models/convert.h"
#include "models/latent.h"
#include "models/tensor_read.h"
#include "quants.h"

#include <math.h>

#define FIT "its scales, zero points or order of columns are missing or do not fit"

TEST(test_quantised) {
    // E4M3: 1, 2, -2, 448, 2^-9, 0, 0.5, 1.125
    static const unsigned char numbers[8] = {0x38, 0x40, 0xc0, 0x7e, 0x01, 0x00, 0x30, 0x39};
    static const float values[8] = {1, 2, -2, 448, 0x1p-9f, 0, 0.5f, 1.125f}, scales[4] = {0.5f, 3, 0.25f, 1};
    static const uint16_t channels[8] = {0x3e80, 0x3f80, 0x4000, 0x3e80,
                                         0x3f80, 0x4000, 0x3e80, 0x3f80}; // .25, 1, 2
    static const uint16_t groups[2] = {0x3c00, 0xbe80};                   // 2^-7, -.25
    static unsigned char fp8[8 * 8], int8[8 * 8], int4[32];
    struct err err = {0};
    for (int i = 0; i < 64; i++) {
        fp8[i] = numbers[i % 8];
        int8[i] = (unsigned char)(i - 32);
    }
    for (int i = 0; i < 32; i++)
        int4[i] = (unsigned char)(i % 16 | (15 - i % 16) << 4);
    write_sound();
    write_text(
        "config.json",
        CONFIG(", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [4, 4]}"));
    // blocks of 4 rows and 4 columns; rows of q in another order; a scale for each row
    write_raw((struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", fp8, 64},
                                    {DOWN "_scale_inv", "F32", "2, 2", scales, 16},
                                    {Q_PROJ, "I8", "8, 8", int8, 64},
                                    {Q_PROJ "_scale", "BF16", "8, 1", channels, 16}},
              4);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    for (uint64_t i = 0; i < 64; i++)
        if (value_at(f, "blk.0.ffn_down.weight", i) != values[i % 8] * scales[i / 32 * 2 + i % 8 / 4])
            fail_msg("element %d is %g", (int)i, (double)value_at(f, "blk.0.ffn_down.weight", i));
    assert_true(value_at(f, "blk.0.attn_q.weight", 0) == -32 * 0.25f);
    assert_true(value_at(f, "blk.0.attn_q.weight", 9) == (2 * 8 + 1 - 32) * 2.0f); // row 2 of the file
    uint16_t all[64];
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), all, &err), STATUS_OK);
    assert_int_equal(all[32], 0x3e80);
    model_file_close(f);

    // int4 keeps its numbers: eight more than they mean, low and high halves of a block apart
    write_text("config.json", CONFIG(", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                                     "\"format\": \"pack-quantized\"}"));
    struct raw_tensor packed[] = {{DOWN "_packed", "I32", "1, 8", int4, 32},
                                  {DOWN "_scale", "BF16", "1, 2", groups, 4}};
    write_raw(packed, 2);
    f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    const struct model_tensor *t = model_file_find(f, "blk.0.ffn_down.weight");
    unsigned char blocks[36];
    assert_true(t->view.dtype == DTYPE_Q4_0 && t->view.shape[1] == 64 && t->bytes == 36);
    assert_int_equal(tensor_read(f, t, blocks, &err), STATUS_OK);
    assert_memory_equal(blocks, "\x00\x20", 2);
    assert_memory_equal(blocks + 18, "\x00\xb4", 2);
    for (int i = 0; i < 32; i++) {
        int first = i / 16 * 32 + i % 16, second = first + 16; // numbers of the row
        int low = int4[first / 2] >> 4 * (first % 2) & 15, high = int4[second / 2] >> 4 * (second % 2) & 15;
        assert_int_equal(blocks[2 + i / 16 * 18 + i % 16], low | high << 4);
    }
    model_file_close(f);

    // what does not fit
    static const uint16_t fine[2] = {0x3c00, 0x0080};
    packed[1].data = fine;
    write_raw(packed, 2);
    f = model_file_open(folder, &err);
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), blocks, &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "no number of F16"));
    model_file_close(f);
    write_raw(packed, 1);
    expect("no scales", FIT);
    packed[1].shape = "2, 1";
    write_raw(packed, 2);
    expect("scales of two rows", FIT);
    packed[1].shape = "1, 2";
    packed[0].shape = "2, 4";
    write_raw(packed, 2);
    expect("scales of one row", FIT);
    write_raw((struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", fp8, 64},
                                    {DOWN "_scale_inv", "F32", "2, 2", scales, 16}},
              2);
    expect("blocks of no size", FIT);
    fp8[3] = 0x7f;
    write_raw(
        (struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", fp8, 64}, {DOWN "_scale", "F32", "", scales, 4}}, 2);
    err = (struct err){0};
    f = model_file_open(folder, &err);
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), all, &err), STATUS_FORMAT);
    assert_non_null(strstr(err.msg, "NaN"));
    model_file_close(f);
}

static float e4m3(unsigned c) { // Open Compute Project's 8-bit floating point, 1.0
    float m = (float)(c & 7), v = c >> 3 & 15 ? ldexpf(8 + m, (int)(c >> 3 & 15) - 10) : ldexpf(m, -9);
    return c & 128 ? -v : v;
}

// Blocks that divide neither rows nor columns; rows of q in another order. Every code but those of NaN.
TEST(test_uneven) {
    static const int order[] = {0, 2, 1, 3, 4, 6, 5, 7};
    static const float scales[6] = {0.5f, 2, 0.25f, 4, 8, 1};
    unsigned char codes[4][64];
    struct err err = {0};
    write_sound();
    write_text("config.json", CONFIG(", \"quantization_config\": {\"quant_method\": \"fp8\", "
                                     "\"weight_block_size\": [3, 5]}"));
    for (int part = 0; part < 4; part++) {
        for (int i = 0; i < 64; i++)
            codes[part][i] = (unsigned char)(64 * part + i);
        codes[part][63] = part % 2 ? (unsigned char)(64 * part + 62) : codes[part][63]; // 127 and 255 are NaN
        write_raw((struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", codes[part], 64},
                                        {DOWN "_scale_inv", "F32", "3, 2", scales, sizeof scales},
                                        {Q_PROJ, "F8_E4M3", "8, 8", codes[part], 64},
                                        {Q_PROJ "_scale_inv", "F32", "3, 2", scales, sizeof scales}},
                  4);
        struct model_file *f = model_file_open(folder, &err);
        if (!f)
            fail_msg("%s", err.msg);
        for (int i = 0; i < 64; i++) {
            int r = i / 8, c = i % 8, from = order[r];
            float down = value_at(f, "blk.0.ffn_down.weight", (uint64_t)i),
                  q = value_at(f, "blk.0.attn_q.weight", (uint64_t)i);
            if (down != e4m3(codes[part][i]) * scales[r / 3 * 2 + c / 5] ||
                q != e4m3(codes[part][8 * from + c]) * scales[from / 3 * 2 + c / 5])
                fail_msg("code %02x at %d, %d: %g and %g", codes[part][i], r, c, (double)down, (double)q);
        }
        check_pieces(f, model_file_find(f, "blk.0.attn_q.weight"));
        model_file_close(f);
    }
}

// Scales that are no numbers, or too large, or nothing: what they make is refused with its byte, or is 0.
TEST(test_scales) {
    enum { COLS = 64 };
    static unsigned char codes[8 * COLS], nibbles[8 * COLS / 2], small[8 * COLS / 16], integers[8 * COLS];
    static uint16_t made[8 * COLS];
    memset(codes, 0x7e, sizeof codes);       // 448
    memset(nibbles, 0x77, sizeof nibbles);   // 6
    memset(small, 0x7e, sizeof small);       // 448
    memset(integers, 0x7f, sizeof integers); // 127
    static const struct {
        float scale;
        bool fp8, divided, multiplied, int8; // whether the numbers are read
    } cases[] = {
        {0, true, false, true, true},           {-0.0f, true, false, true, true},
        {1e-45f, true, false, true, true},      {1e30f, true, true, true, true},
        {-1, true, true, true, true},           {1e36f, false, true, false, true},
        {3e38f, false, true, false, false},     {INFINITY, false, true, false, false}, // 2688 / infinity is 0
        {-INFINITY, false, true, false, false}, {NAN, false, false, false, false}};
    write_sound();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float *s = &cases[i].scale;
        const struct {
            const char *what;
            struct raw_tensor raw[3];
            int num;
            bool good;
        } kinds[] = {{"fp8",
                      {{DOWN, "F8_E4M3", "8, 64", codes, sizeof codes}, {DOWN "_scale", "F32", "", s, 4}},
                      2,
                      cases[i].fp8},
                     {"nvfp4",
                      {{DOWN "_packed", "U8", "8, 32", nibbles, sizeof nibbles},
                       {DOWN "_scale", "F8_E4M3", "8, 4", small, sizeof small},
                       {DOWN "_global_scale", "F32", "1", s, 4}},
                      3,
                      cases[i].divided},
                     {"modelopt",
                      {{DOWN, "U8", "8, 32", nibbles, sizeof nibbles},
                       {DOWN "_scale", "F8_E4M3", "8, 4", small, sizeof small},
                       {DOWN "_scale_2", "F32", "", s, 4}},
                      3,
                      cases[i].multiplied},
                     {"int8",
                      {{DOWN, "I8", "8, 64", integers, sizeof integers}, {DOWN "_scale", "F32", "1", s, 4}},
                      2,
                      cases[i].int8}};
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            struct err err = {0};
            write_raw(kinds[k].raw, kinds[k].num);
            struct model_file *f = model_file_open(folder, &err);
            if (!f)
                fail_msg("%s, scale %g: %s", kinds[k].what, (double)*s, err.msg);
            enum status st = tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), made, &err);
            if (kinds[k].good ? st != STATUS_OK
                              : st != STATUS_FORMAT || !strstr(err.msg, DOWN) || !strstr(err.msg, "NaN"))
                fail_msg("%s, scale %g: status %d, '%s'", kinds[k].what, (double)*s, (int)st, err.msg);
            model_file_close(f);
        }
    }
}

// Experts of gpt-oss: exponents and blocks apart, gate and up in turns.
TEST(test_mxfp4) {
    enum { EXPERTS = 2, ROWS = 4 };
    unsigned char blocks[EXPERTS * ROWS * 16], scales[EXPERTS * ROWS], made[EXPERTS * ROWS / 2 * 17];
    float biases[EXPERTS * ROWS];
    struct err err = {0};
    for (int i = 0; i < EXPERTS * ROWS * 16; i++)
        blocks[i] = (unsigned char)(i * 37);
    for (int i = 0; i < EXPERTS * ROWS; i++)
        scales[i] = (unsigned char)(100 + i), biases[i] = (float)i;
    write_sound();
    write_text("config.json",
               "{\"model_type\": \"gpt_oss\", \"rope_scaling\": {\"type\": \"default\"}, " SIZES "}");
#define EXPERT "model.layers.0.mlp.experts.gate_up_proj_"
    struct raw_tensor raw[] = {{EXPERT "blocks", "U8", "2, 4, 1, 16", blocks, sizeof blocks},
                               {EXPERT "scales", "U8", "2, 4, 1", scales, sizeof scales},
                               {EXPERT "bias", "F32", "2, 4", biases, sizeof biases}};
    write_raw(raw, 3);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    for (int up = 0; up < 2; up++) {
        const struct model_tensor *t =
            model_file_find(f, up ? "blk.0.ffn_up_exps.weight" : "blk.0.ffn_gate_exps.weight");
        assert_true(t->view.dtype == DTYPE_MXFP4 && t->view.ndim == 3 && t->bytes == sizeof made);
        assert_true(t->view.shape[0] == 2 && t->view.shape[1] == 2 && t->view.shape[2] == 32);
        assert_int_equal(tensor_read(f, t, made, &err), STATUS_OK);
        for (int r = 0; r < EXPERTS * ROWS / 2; r++) {
            const unsigned char *from = blocks + (2 * r + up) * 16, *to = made + r * 17;
            assert_int_equal(to[0], scales[2 * r + up]);
            for (int i = 0; i < 32; i++)
                assert_int_equal(to[1 + i % 16] >> i / 16 * 4 & 15, from[i / 2] >> i % 2 * 4 & 15);
            assert_true(value_at(f, up ? "blk.0.ffn_up_exps.bias" : "blk.0.ffn_gate_exps.bias",
                                 (uint64_t)r) == (float)(2 * r + up));
        }
    }
    model_file_close(f);
    write_raw(raw, 1);
    expect("no exponents", FIT);
    raw[1].shape = "2, 2, 2";
    write_raw(raw, 2);
    expect("exponents of other rows", FIT);
    raw[0].shape = "1, 1, 8, 16", raw[1].shape = "1, 1, 8";
    write_raw(raw, 2);
    expect("no row for up", "has 1 rows, expected 0");
}

// ---- GPTQ and AWQ

#define LINEAR "model.layers.0.mlp.down_proj."
#define METHOD(text) CONFIG(", \"quantization_config\": {" text "}")
#define GPTQ(more) METHOD("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32" more)
enum { ROWS = 8, COLS = 64, GROUPS = 2 };

static uint32_t weights[COLS / 8 * ROWS], middles[GROUPS * ROWS / 8];
static uint16_t scales[GROUPS * ROWS];
static int32_t order[COLS];
enum { QWEIGHT, QZEROS, SCALES, G_IDX, NUM_PARTS };
static struct raw_tensor parts[NUM_PARTS];

static void write_parts_sound(void) {
    for (int i = 0; i < COLS / 8 * ROWS; i++)
        weights[i] = 0x9e3779b9u * (uint32_t)(i + 1);
    for (int i = 0; i < GROUPS * ROWS; i++)
        scales[i] = (uint16_t)(0x2c00 + 37 * i);
    for (int i = 0; i < COLS; i++)
        order[i] = i / 32;
    middles[0] = middles[1] = 0x77777777u;
    parts[QWEIGHT] = (struct raw_tensor){LINEAR "qweight", "I32", "8, 8", weights, sizeof weights};
    parts[QZEROS] = (struct raw_tensor){LINEAR "qzeros", "I32", "2, 1", middles, sizeof middles};
    parts[SCALES] = (struct raw_tensor){LINEAR "scales", "F16", "2, 8", scales, sizeof scales};
    parts[G_IDX] = (struct raw_tensor){LINEAR "g_idx", "I32", "64", order, sizeof order};
}

// Opens the folder of these parts and reads the matrix. word NULL: must be right, of this type.
static void expect_parts(const char *what, const char *config, int num, const char *word, enum dtype type) {
    static unsigned char made[2 * ROWS * COLS];
    struct err err = {0};
    write_sound();
    write_text("config.json", config);
    write_raw(parts, num);
    struct model_file *f = model_file_open(folder, &err);
    const struct model_tensor *t = f ? model_file_find(f, "blk.0.ffn_down.weight") : NULL;
    bool ok = t && tensor_read(f, t, made, &err) == STATUS_OK;
    if (word ? ok || !strstr(err.msg, word) || !err.code : !ok || t->view.dtype != type)
        fail_msg("%s: expected '%s', got '%s'", what, word ? word : "ok", err.msg);
    if (ok && (t->view.shape[0] != ROWS || t->view.shape[1] != COLS))
        fail_msg("%s: %d rows", what, (int)t->view.shape[0]);
    if (ok)
        check_pieces(f, t);
    model_file_close(f);
}

TEST(test_gptq) {
    static const struct {
        const char *config, *word;
        enum dtype type;
    } configs[] = {
        {GPTQ(""), NULL, DTYPE_Q4_0},
        {GPTQ(", \"sym\": false"), NULL, DTYPE_Q8_0},
        {GPTQ(", \"desc_act\": true"), NULL, DTYPE_F16},
        {GPTQ(", \"checkpoint_format\": \"gptq_v2\", \"sym\": false"), NULL, DTYPE_Q8_0},
        {GPTQ(", \"checkpoint_format\": \"gptq_v2\""), "not in the middle", DTYPE_COUNT},
        {GPTQ(", \"checkpoint_format\": \"marlin\""), "key checkpoint_format is marlin", DTYPE_COUNT},
        {GPTQ(", \"is_marlin_format\": true"), "is_marlin_format", DTYPE_COUNT},
        {GPTQ(", \"dynamic\": {\"-:.*lm_head\": {}}"), NULL, DTYPE_Q4_0},
        {GPTQ(", \"dynamic\": {\"+:.*\": {\"bits\": 8}}"), "key dynamic", DTYPE_COUNT},
        {GPTQ(", \"dynamic\": [1, 2]"), NULL, DTYPE_Q4_0},
        {METHOD("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 24"), FIT, DTYPE_COUNT},
        {METHOD("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1"), FIT, DTYPE_COUNT},
        {METHOD("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0"), "key group_size is 0",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -7"), "key group_size is -7",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 32"), FIT, DTYPE_COUNT},
        {METHOD("\"quant_method\": \"gptq\", \"bits\": 3"), "key bits is 3, expected 4 or 8", DTYPE_COUNT},
        {METHOD("\"quant_method\": \"gptq\""), "key bits is absent", DTYPE_COUNT},
        {METHOD("\"quant_method\": \"auto-round\", \"bits\": 4, \"group_size\": 32, \"packing_format\": "
                "\"auto_round:auto_gptq\""),
         NULL, DTYPE_Q4_0},
        {METHOD("\"quant_method\": \"auto-round\", \"bits\": 4"), "key packing_format is absent",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": \"fp8\""), "no quantization_config of gptq or awq", DTYPE_COUNT},
        {CONFIG(""), "no quantization_config of gptq or awq", DTYPE_COUNT},
        {METHOD("\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32"), FIT, DTYPE_COUNT},
        {METHOD("\"quant_method\": \"awq\", \"bits\": 8"), "key bits is 8, expected 4", DTYPE_COUNT},
        {METHOD("\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\""), "key version is gemv",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": \"bitsandbytes\""), "quantisation by bitsandbytes is not supported",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": \"hqq\""), "quantisation by hqq is not supported yet; supported: fp8",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": \"modelopt\", \"quant_algo\": \"INT4_AWQ\""), "key quant_algo is INT4_AWQ",
         DTYPE_COUNT},
        {METHOD("\"quant_method\": 7"), "quantisation by ? is not", DTYPE_COUNT},
        {METHOD("\"quant_method\": \"compressed-tensors\", \"format\": \"marlin-24\""),
         "key format is marlin-24", DTYPE_COUNT},
        {METHOD(
             "\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", \"config_groups\": "
             "{\"a\": {\"weights\": {\"type\": \"int\", \"num_bits\": 3}}}"),
         "num_bits 4 or 8", DTYPE_COUNT},
    };
    static const struct {
        int part;
        const char *type, *shape; // NULL: as they are
        const char *word;
    } shapes_of[] = {
        {QWEIGHT, NULL, "4, 16", FIT}, {QWEIGHT, NULL, "64", FIT},   {QWEIGHT, "F32", NULL, FIT},
        {QZEROS, NULL, "1, 2", FIT},   {QZEROS, "F32", NULL, FIT},   {SCALES, NULL, "8, 2", FIT},
        {SCALES, NULL, "1, 16", FIT},  {SCALES, "I16", NULL, FIT},   {G_IDX, NULL, "8, 8", FIT},
        {G_IDX, "F32", NULL, FIT},     {SCALES, "BF16", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        write_parts_sound();
        expect_parts(configs[i].config, configs[i].config, NUM_PARTS, configs[i].word, configs[i].type);
    }
    for (size_t i = 0; i < sizeof shapes_of / sizeof *shapes_of; i++) {
        write_parts_sound();
        struct raw_tensor *t = &parts[shapes_of[i].part];
        t->type = shapes_of[i].type ? shapes_of[i].type : t->type;
        t->shape = shapes_of[i].shape ? shapes_of[i].shape : t->shape;
        for (int k = 0; k < GROUPS * ROWS; k++)
            scales[k] = (uint16_t)(0x3c00 + k); // of F16 and BF16 alike
        expect_parts(t->shape, GPTQ(""), NUM_PARTS, shapes_of[i].word, DTYPE_Q4_0);
    }
    write_parts_sound();
    expect_parts("no g_idx", GPTQ(""), G_IDX, NULL, DTYPE_Q4_0);
    expect_parts("no scales", GPTQ(""), SCALES, FIT, DTYPE_COUNT);
}

TEST(test_gptq_values) {
    write_parts_sound();
    order[63] = 2;
    expect_parts("a group that is none", GPTQ(", \"desc_act\": true"), NUM_PARTS, "no group", DTYPE_COUNT);
    order[63] = -1;
    expect_parts("a negative group", GPTQ(", \"desc_act\": true"), NUM_PARTS, "no group", DTYPE_COUNT);
    order[63] = 0;
    expect_parts("out of order", GPTQ(""), NUM_PARTS, "not in order", DTYPE_COUNT);
    expect_parts("in an order of their own", GPTQ(", \"desc_act\": true"), NUM_PARTS, NULL, DTYPE_F16);
    write_parts_sound();
    middles[1] = 0x77677777u;
    expect_parts("a zero point of 7", GPTQ(""), NUM_PARTS, "not in the middle, and sym is true", DTYPE_COUNT);
    expect_parts("a zero point of 7", GPTQ(", \"sym\": false"), NUM_PARTS, NULL, DTYPE_Q8_0);
    middles[1] = 0x77f77777u;
    expect_parts("a zero point of 16", GPTQ(", \"sym\": false"), NUM_PARTS, "overflowed", DTYPE_COUNT);
    write_parts_sound();
    scales[5] = 0;
    expect_parts("a scale of 0", GPTQ(""), NUM_PARTS, NULL, DTYPE_Q4_0);
    scales[5] = 0x7c00;
    expect_parts("an infinite scale", GPTQ(""), NUM_PARTS, "NaN or an infinity", DTYPE_COUNT);
    scales[5] = 0xfe00;
    expect_parts("a scale of NaN", GPTQ(", \"sym\": false"), NUM_PARTS, "NaN or an infinity", DTYPE_COUNT);
    expect_parts("a scale of NaN", GPTQ(", \"desc_act\": true"), NUM_PARTS, "NaN or an infinity",
                 DTYPE_COUNT);
}

// Numbers less zero points need more than eight bits.
TEST(test_int8) {
    static const signed char numbers[64] = {127, -128}, zeros[2] = {-128, 127};
    static const uint16_t own[2] = {0x3f80, 0x4000}; // 1, 2
    struct err err = {0};
    struct raw_tensor raw[] = {{LINEAR "weight", "I8", "2, 32", numbers, sizeof numbers},
                               {LINEAR "weight_scale", "BF16", "2, 1", own, sizeof own},
                               {LINEAR "weight_zero_point", "I8", "2, 1", zeros, sizeof zeros}};
    write_sound();
    for (int num = 2; num <= 3; num++) {
        write_raw(raw, num);
        struct model_file *f = model_file_open(folder, &err);
        if (!f)
            fail_msg("%s", err.msg);
        const struct model_tensor *t = model_file_find(f, "blk.0.ffn_down.weight");
        assert_int_equal(t->view.dtype, num == 2 ? DTYPE_Q8_0 : DTYPE_BF16);
        if (num == 3) {
            assert_true(value_at(f, "blk.0.ffn_down.weight", 0) == 255);
            assert_true(value_at(f, "blk.0.ffn_down.weight", 32) == -254);
        }
        model_file_close(f);
    }
    raw[2].shape = "1, 2";
    write_raw(raw, 3);
    expect("zero points of columns", FIT);
}

// A scale for 32 columns: blocks, or BF16 with zero points.
TEST(test_int8_groups) {
    static const uint16_t own[4] = {0x3f80, 0x4000, 0x3e80, 0x4080}; // 1, 2, 0.25, 4
    static const float values[4] = {1, 2, 0.25f, 4};
    static const signed char zeros[4] = {-3, 0, 7, 100};
    signed char numbers[128];
    unsigned char blocks[4 * 34];
    struct err err = {0};
    for (int i = 0; i < 128; i++)
        numbers[i] = (signed char)(i * 37 - 128);
    struct raw_tensor raw[] = {{LINEAR "weight", "I8", "2, 64", numbers, sizeof numbers},
                               {LINEAR "weight_scale", "BF16", "2, 2", own, sizeof own},
                               {LINEAR "weight_zero_point", "I8", "2, 2", zeros, sizeof zeros}};
    write_sound();
    write_raw(raw, 2);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    const struct model_tensor *t = model_file_find(f, "blk.0.ffn_down.weight");
    assert_true(t->view.dtype == DTYPE_Q8_0 && t->bytes == sizeof blocks);
    assert_int_equal(tensor_read(f, t, blocks, &err), STATUS_OK);
    for (int g = 0; g < 4; g++) {
        assert_memory_equal(blocks + 34 * g, (&(uint16_t[]){0x3c00, 0x4000, 0x3400, 0x4400}[g]), 2);
        assert_memory_equal(blocks + 34 * g + 2, numbers + 32 * g, 32);
    }
    model_file_close(f);
    write_raw(raw, 3);
    f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    for (int i = 0; i < 128; i++) {
        float want = (float)(numbers[i] - zeros[i / 32]) * values[i / 32];
        assert_true(value_at(f, "blk.0.ffn_down.weight", (uint64_t)i) == want); // 8 bits and a sign
    }
    model_file_close(f);
    raw[1].shape = "2, 2, 1";
    write_raw(raw, 2);
    expect("scales of three dimensions", FIT);
    raw[1].shape = "4, 1";
    write_raw(raw, 2);
    expect("scales of other rows", FIT);
}

// Refuses tensors of size 0, also if the product of the other sizes overflows; a float of 8 bits that nothing reads.
TEST(test_refused) {
    static const char *const shapes_of[] = {"0, 8", "8, 0", "9007199254740991, 0"};
    static const char *const kinds[][2] = {{"qweight", "I32"},      {"weight_packed", "I32"},
                                           {"weight_packed", "U8"}, {"weight", "F8_E4M3"},
                                           {"weight", "I8"},        {"weight", "U8"}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof shapes_of / sizeof *shapes_of; s++) {
            char name[96];
            snprintf(name, sizeof name, LINEAR "%s", kinds[k][0]);
            write_sound();
            write_text("config.json", METHOD("\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": -1"));
            write_raw(&(struct raw_tensor){name, kinds[k][1], shapes_of[s], "", 0}, 1);
            expect(shapes_of[s], "none of size 0");
        }
    static unsigned char bytes[64];
    struct err err = {0};
    write_raw(
        (struct raw_tensor[]){{DOWN, "F8_E5M2", "8, 8", bytes, 64}, {DOWN "_scale", "F32", "", bytes, 4}}, 2);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    const struct model_tensor *t = model_file_find(f, "blk.0.ffn_down.weight");
    assert_int_equal(t->view.dtype, DTYPE_COUNT); // weights_check() refuses it by this name
    assert_string_equal(t->type_name, "F8_E5M2");
    model_file_close(f);
    write_text("config.json",
               "{\"model_type\": \"gpt_oss\", \"rope_scaling\": {\"type\": \"default\"}, " SIZES "}");
    write_raw(
        (struct raw_tensor[]){{EXPERT "blocks", "U8", "0, 1, 9007199254740991, 9007199254740991", "", 0},
                              {EXPERT "scales", "U8", "0, 1, 1", "", 0}},
        2);
    expect("blocks", "none of size 0");
}

// modelopt says it in a file of its own; NVFP4 without the scale of all, or with two.
TEST(test_nvfp4) {
    static unsigned char numbers[ROWS * COLS / 2], own[ROWS * COLS / 16];
    static const float all = 0.5f;
    struct err err = {0};
    for (size_t i = 0; i < sizeof numbers; i++)
        numbers[i] = (unsigned char)(0x52 + i % 3);
    memset(own, 0x38, sizeof own); // 1
    struct raw_tensor raw[] = {{LINEAR "weight", "U8", "8, 32", numbers, sizeof numbers},
                               {LINEAR "weight_scale", "F8_E4M3", "8, 4", own, sizeof own},
                               {LINEAR "weight_scale_2", "F32", "", &all, 4},
                               {LINEAR "weight_global_scale", "F32", "1", &all, 4}};
    write_sound();
    write_text("hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"NVFP4\"}}");
    write_raw(raw, 3);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    assert_true(value_at(f, "blk.0.ffn_down.weight", 0) == 0.5f &&
                value_at(f, "blk.0.ffn_down.weight", 1) == 1.5f);
    model_file_close(f);
    write_raw(raw, 2);
    expect("no scale of all", FIT);
    write_raw(raw, 4);
    expect("two", FIT);
    raw[2].type = "I32";
    write_raw(raw, 3);
    expect("an integer", FIT);
    raw[2].type = "F32", raw[1].shape = "4, 8";
    write_raw(raw, 3);
    expect("scales of other rows", FIT);
    write_text("hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"W4A8\"}}");
    expect("another algorithm", "hf_quant_config.json: quantization of modelopt: key quant_algo is W4A8");
    remove_file("hf_quant_config.json");
}

// FP8 with scales of whole rows, or of 128 columns, keeps its bytes, behind the scale of each block.
TEST(test_fp8_blocks) {
    enum { MAX = 3 * 256, BLOCK = 32, BLOCK_BYTES = 36 };
    static const float floats[] = {0.5f, 3, 0.1f, -7, 1e-6f, 0};
    static const uint16_t halves[] = {0x3f80, 0x4000, 0x3e80}; // BF16: 1, 2, 0.25
    static unsigned char codes[MAX], made[MAX / BLOCK * BLOCK_BYTES];
    static const struct {
        int rows, cols;
        const char *type, *of_scales;
        size_t num;        // of them
        const char *block; // of the configuration
        int down, across;  // rows and columns of a scale; 0: BF16
    } cases[] = {
        {3, 256, "F32", "", 1, "null", 3, 256},         {3, 256, "F32", "3", 3, "null", 1, 256},
        {3, 256, "F32", "3, 2", 6, "null", 1, 128},     {3, 256, "F32", "2, 2", 4, "[2, 128]", 2, 128},
        {3, 256, "F32", "2, 1", 2, "[2, 256]", 2, 256}, {3, 256, "BF16", "3, 1", 3, "null", 1, 256},
        {4, 192, "F32", "2, 2", 4, "[2, 128]", 2, 128}, {3, 160, "F32", "", 1, "null", 3, 160},
        {3, 256, "F32", "1, 4", 4, "[3, 64]", 0, 0},    {3, 208, "F32", "", 1, "null", 0, 0},
    };
    struct err err = {0};
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (unsigned char)(i % 127 | i / 127 % 2 << 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512], shape[32];
        int rows = cases[i].rows, cols = cases[i].cols, across = cases[i].across;
        size_t n = (size_t)(rows * cols);
        bool wide = cases[i].type[0] == 'F';
        snprintf(shape, sizeof shape, "%d, %d", rows, cols);
        snprintf(config, sizeof config,
                 CONFIG(", \"quantization_config\": {\"quant_method\": \"fp8\", "
                        "\"weight_block_size\": %s}"),
                 cases[i].block);
        write_sound();
        write_text("config.json", config);
        write_raw(
            (struct raw_tensor[]){{DOWN, "F8_E4M3", shape, codes, n},
                                  {DOWN "_scale", cases[i].type, cases[i].of_scales,
                                   wide ? (const void *)floats : halves, cases[i].num * (wide ? 4 : 2)}},
            2);
        struct model_file *f = model_file_open(folder, &err);
        if (!f)
            fail_msg("scales %s: %s", cases[i].of_scales, err.msg);
        const struct model_tensor *t = model_file_find(f, "blk.0.ffn_down.weight");
        assert_int_equal(t->view.dtype, across ? DTYPE_FP8 : DTYPE_BF16);
        if (across) {
            assert_true(t->bytes == n / BLOCK * BLOCK_BYTES && strcmp(t->type_name, "FP8") == 0);
            assert_int_equal(tensor_read(f, t, made, &err), STATUS_OK);
            for (int b = 0; b < (int)n / BLOCK; b++) {
                const unsigned char *block = &made[b * BLOCK_BYTES];
                int r = b * BLOCK / cols, c = b * BLOCK % cols;
                int at = r / cases[i].down * ((cols - 1) / across + 1) + c / across;
                float want = wide ? floats[at] : bf16_to_float(halves[at]), all[BLOCK];
                uint16_t brain[BLOCK];
                assert_memory_equal(block, &want, 4);
                assert_memory_equal(block + 4, codes + b * BLOCK, BLOCK);
                // what the CPU makes of it is what the loader once made
                quants_decode(all, block, DTYPE_FP8, BLOCK);
                assert_int_equal(convert_floats(brain, DTYPE_BF16, block, DTYPE_FP8, BLOCK), BLOCK);
                for (int k = 0; k < BLOCK; k++) {
                    uint16_t h = float_to_bf16(e4m3(block[4 + k]) * want);
                    assert_true(brain[k] == h && all[k] == bf16_to_float(h));
                }
            }
            check_pieces(f, t);
        }
        model_file_close(f);
    }
    // scales and bytes that are no numbers
    for (int i = 0; i < 8; i++) {
        static const float bad[] = {INFINITY, -INFINITY, NAN, 0x1p118f, -0x1p120f, 0x1p117f};
        float scale = i < 6 ? bad[i] : 1;
        write_sound();
        codes[300] = i == 6 ? 0x7f : i == 7 ? 0xff : 0x7e;
        write_raw((struct raw_tensor[]){{DOWN, "F8_E4M3", "3, 256", codes, sizeof codes},
                                        {DOWN "_scale", "F32", "", &scale, 4}},
                  2);
        struct model_file *f = model_file_open(folder, &err);
        err = (struct err){0};
        enum status st = tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), made, &err);
        assert_int_equal(st, i == 5 ? STATUS_OK : STATUS_FORMAT);
        assert_true(i == 5 || strstr(err.msg, "NaN"));
        model_file_close(f);
    }
}

// Values of a latent's matrix stay FP8; keys, which are transposed, become BF16.
TEST(test_fp8_latent) {
    enum { HEADS = 2, KEYS = 3, VALUES = 2, C = 64, BYTES = 2 * 36, ROWS_OF = HEADS * (KEYS + VALUES) };
    const struct attn_spec a = {.heads = HEADS, .nope_dim = KEYS, .v_dim = VALUES, .kv_lora = C};
    static unsigned char all[ROWS_OF * BYTES];
    static _Alignas(64) unsigned char to[ROWS_OF * C * 4];
    for (int r = 0; r < ROWS_OF; r++) {
        for (int b = 0; b < 2; b++)
            memcpy(&all[r * BYTES + b * 36], &(float){0.3f * (float)(r + 1)}, 4);
        for (int c = 0; c < C; c++)
            all[r * BYTES + c / 32 * 36 + 4 + c % 32] = (unsigned char)((r + c) % 127);
    }
    for (int values = 0; values < 2; values++) {
        struct tensor t = {all, DTYPE_FP8, 2, {ROWS_OF, C}};
        latent_split(&a, values ? WEIGHT_LATENT_VALUE : WEIGHT_LATENT_KEY, &t, to);
        assert_true(t.dtype == (values ? DTYPE_FP8 : DTYPE_BF16) && t.shape[2] == (values ? C : KEYS));
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < (values ? VALUES : KEYS); i++) {
                const unsigned char *row = &all[(h * (KEYS + VALUES) + values * KEYS + i) * BYTES];
                if (values)
                    assert_memory_equal(&to[(h * VALUES + i) * BYTES], row, BYTES);
                for (int c = 0; c < C && !values; c++)
                    assert_int_equal(((const uint16_t *)t.data)[(h * C + c) * KEYS + i], quants_fp8(row, c));
            }
    }
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
