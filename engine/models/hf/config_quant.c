// See reader.h: how matrices are quantised, as far as their tensors do not say it (quantized.h).
#include "reader.h"

#include <string.h>

enum quant_method { FP8, FBGEMM_FP8, MXFP4, COMPRESSED, MODELOPT, GPTQ, AWQ, AUTO_ROUND, NUM_METHODS };
static const char *const methods[NUM_METHODS] = {"fp8",      "fbgemm_fp8", "mxfp4", "compressed-tensors",
                                                 "modelopt", "gptq",       "awq",   "auto-round"};

struct quant_reader {
    const struct hf_reader *r;
    const struct jdoc *j;
    const struct jdoc_value *dict;
    const char *name; // of the method
};

static struct hf_found find(const struct quant_reader *p, const char *key) {
    return hf_found_in(p->j, p->dict, key);
}

// false, with a sentence that names the method.
static bool refuse(const struct quant_reader *p, const char *key, const char *expected) {
    struct hf_found f = find(p, key);
    struct text_view s = f.v && (f.v->type == JDOC_STRING || f.v->type == JDOC_NUMBER)
                             ? jdoc_text(p->j, f.v)
                             : view_of(jdoc_type_name(f.v));
    jdoc_bad(p->j, p->r->err, "quantization of %s: key %s is %.*s, expected %s", p->name, key,
             (int)(s.len < 48 ? s.len : 48), s.data, expected);
    return false;
}

// The members of a key; NULL: it is no object.
static const struct jdoc_value *object_of(const struct quant_reader *p, const char *key) {
    const struct jdoc_value *v = find(p, key).v;
    return v && v->type == JDOC_OBJECT ? v : NULL;
}

static bool is_one_of(const struct quant_reader *p, const char *key, const char *const *texts) {
    struct hf_found f = find(p, key);
    for (; f.v && *texts; texts++)
        if (jdoc_is(p->j, f.v, *texts))
            return true;
    return !f.v;
}

// Into *v, which stays as it is where neither key is there. false: no integer.
static bool read_int(const struct quant_reader *p, const char *key, const char *other, int64_t *v) {
    struct hf_found f = find(p, key);
    if (!f.v && other)
        f = find(p, other);
    return !f.v || jdoc_integer(p->j, f.v, v);
}

static bool is_true(const struct quant_reader *p, const char *key, bool absent) {
    struct hf_found f = find(p, key);
    return f.v ? f.v->type == JDOC_TRUE : absent;
}

static bool read_packed(const struct quant_reader *p, struct hf_quantization *q, bool eight) {
    if (!read_int(p, "bits", "w_bit", &q->bits) || (q->bits != 4 && !(eight && q->bits == 8)))
        return refuse(p, "bits", eight ? "4 or 8" : "4");
    if (!read_int(p, "group_size", "q_group_size", &q->group) || q->group < -1 || q->group == 0 ||
        q->group > INT32_MAX)
        return refuse(p, "group_size", "-1 or a positive integer");
    q->group = q->group < 0 ? 0 : q->group;
    return true;
}

static bool read_gptq(const struct quant_reader *p, struct hf_quantization *q) {
    static const char *const formats[] = {"gptq", "gptq_v2", "auto_round:auto_gptq", NULL};
    static const char *const keys[] = {"checkpoint_format", "format", "packing_format"};
    q->method = HF_GPTQ;
    q->group = 128;
    q->less_one = true;
    q->symmetric = is_true(p, "sym", true);
    q->ordered = is_true(p, "desc_act", false);
    for (int i = 0; i < 3; i++) {
        if (!is_one_of(p, keys[i], formats))
            return refuse(p, keys[i], "gptq or gptq_v2");
        if (jdoc_is(p->j, find(p, keys[i]).v, "gptq_v2"))
            q->less_one = false;
    }
    if (is_true(p, "is_marlin_format", false))
        return refuse(p, "is_marlin_format", "false");
    JDOC_EACH_KEY(p->j, key, object_of(p, "dynamic")) // modules of settings of their own; "-:": not quantised
    if (key->len < 2 || memcmp(p->j->text + key->at, "-:", 2) != 0)
        return refuse(p, "dynamic", "modules that are left out (-:) and no others");
    return read_packed(p, q, true);
}

static bool read_awq(const struct quant_reader *p, struct hf_quantization *q) {
    static const char *const versions[] = {"gemm", "GEMM", NULL};
    q->method = HF_AWQ;
    q->group = 128;
    if (!is_one_of(p, "version", versions))
        return refuse(p, "version", "gemm");
    return read_packed(p, q, false);
}

// Rows and columns of a scale. false: something else.
static bool read_block(const struct quant_reader *p, const struct jdoc_value *size,
                       struct hf_quantization *q) {
    const struct jdoc_value *rows = jdoc_first(p->j, size);
    return !size || size->type != JDOC_ARRAY || size->len != 2 ||
           (jdoc_integer(p->j, rows, &q->block_rows) && jdoc_integer(p->j, rows + 1, &q->block_cols) &&
            q->block_rows > 0 && q->block_cols > 0);
}

// The bits of all groups of modules whose weights are integers.
static bool read_compressed(const struct quant_reader *p, struct hf_quantization *q) {
    static const char *const formats[] = {"float-quantized",      "int-quantized",   "naive-quantized",
                                          "pack-quantized",       "dense",           "nvfp4-pack-quantized",
                                          "mxfp4-pack-quantized", "mixed-precision", NULL};
    static const char all[] = "float-, int-, naive-, pack-, nvfp4-pack- or mxfp4-pack-quantized";
    struct hf_found sparse = hf_found_in(p->j, find(p, "sparsity_config").v, "format"),
                    transforms = find(p, "transform_config");
    if (!find(p, "format").v || !is_one_of(p, "format", formats))
        return refuse(p, "format", all);
    if (sparse.v && !jdoc_is(p->j, sparse.v, "dense"))
        return refuse(p, "sparsity_config", "none, or dense");
    if (transforms.v && transforms.v->len)
        return refuse(p, "transform_config", "none");
    JDOC_EACH_KEY(p->j, key, object_of(p, "config_groups")) {
        const struct jdoc_value *weights = jdoc_get(p->j, key + 1, "weights");
        int64_t bits = 0;
        if (weights && !read_block(p, jdoc_get(p->j, weights, "block_structure"), q))
            return refuse(p, "config_groups", "block_structure of two positive integers");
        if (!weights || !jdoc_is(p->j, jdoc_get(p->j, weights, "type"), "int"))
            continue;
        if (!jdoc_integer(p->j, jdoc_get(p->j, weights, "num_bits"), &bits) || (bits != 4 && bits != 8) ||
            (q->bits != 0 && q->bits != bits))
            return refuse(p, "config_groups", "num_bits 4 or 8, the same for all integers");
        q->bits = bits;
    }
    q->bits = q->bits ? q->bits : 4;
    return true;
}

static bool read_method(const struct quant_reader *p, struct hf_quantization *q) {
    static const char *const algorithms[] = {"FP8", "NVFP4", NULL};
    int m = 0;
    while (m < NUM_METHODS && strcmp(p->name, methods[m]) != 0)
        m++;
    switch ((enum quant_method)m) {
    case FP8:
    case FBGEMM_FP8:
        return read_block(p, find(p, "weight_block_size").v, q) ||
               refuse(p, "weight_block_size", "two positive integers");
    case MXFP4: return true;
    case COMPRESSED: return read_compressed(p, q);
    case MODELOPT: return is_one_of(p, "quant_algo", algorithms) || refuse(p, "quant_algo", "FP8 or NVFP4");
    case AUTO_ROUND:
        if (!jdoc_is(p->j, find(p, "packing_format").v, "auto_round:auto_gptq"))
            return refuse(p, "packing_format", "auto_round:auto_gptq");
        return read_gptq(p, q);
    case GPTQ: return read_gptq(p, q);
    case AWQ: return read_awq(p, q);
    case NUM_METHODS: break;
    }
    char known[160] = "";
    for (m = 0; m < NUM_METHODS; m++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", m ? ", " : "", methods[m]);
    jdoc_bad(p->j, p->r->err, "quantisation by %s is not supported yet; supported: %s", p->name, known);
    return false;
}

bool hf_read_quantization(const struct hf_reader *r, const struct jdoc *modelopt) {
    struct quant_reader p = {.r = r, .j = r->j, .dict = jdoc_get(r->j, r->root, "quantization_config")};
    char name[48] = "modelopt";
    if (!p.dict)
        p.dict = jdoc_get(r->j, r->text, "quantization_config");
    if (!p.dict && modelopt) {
        p.j = modelopt;
        p.dict = jdoc_get(modelopt, modelopt->values, "quantization");
    } else if (p.dict) {
        const struct jdoc_value *method = jdoc_get(r->j, p.dict, "quant_method");
        struct text_view s = method && method->type == JDOC_STRING ? jdoc_text(r->j, method) : view_of("?");
        snprintf(name, sizeof name, "%.*s", (int)(s.len < 40 ? s.len : 40), s.data);
    }
    p.name = name;
    return !p.dict || read_method(&p, &r->c->quantization);
}
