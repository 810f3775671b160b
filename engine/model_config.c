// See model_config.h. To add an architecture: README.md, "Architectures".
#include "model_config.h"

#include "utf8.h"

#include <math.h>
#include <string.h>

enum presence { NEVER, OPTIONAL, ALWAYS };
static const struct arch {
    const char *name;        // general.architecture, and the prefix of its keys
    bool rope_interleaved;   // GGUF stores q and k so that pairs are (2i, 2i+1)
    enum presence qkv_bias;  //
    enum presence out_bias;  //
    bool qk_norm;            //
    bool window_every_layer; // a sliding window holds for all layers; else the file does not say for which
} archs[] = {
    {"llama", true, OPTIONAL, OPTIONAL, false, true}, // Llama 1 to 3.2, Mistral
    {"qwen2", false, ALWAYS, NEVER, false, false},    // Qwen2, Qwen2.5
    {"qwen3", false, NEVER, NEVER, true, false},
};
enum { NUM_ARCHS = sizeof archs / sizeof archs[0] };

// Keys under "<arch>." that change the mathematics only by these values. What `suspects` matches and this
// table lacks is unknown to us and refused.
enum rule { READ, ZERO, ONE, IS_TRUE, ANY };
static const struct known_key {
    const char *name;
    enum rule rule;
} known_keys[] = {
    {"attention.head_count", READ},
    {"attention.head_count_kv", READ},
    {"attention.key_length", READ},
    {"attention.value_length", READ},
    {"attention.layer_norm_rms_epsilon", READ},
    {"attention.scale", READ},
    {"attention.sliding_window", READ},
    {"attention.causal", IS_TRUE},
    {"attention.clamp_kqv", ZERO},
    {"attention.max_alibi_bias", ZERO},
    {"attn_logit_softcapping", ZERO},
    {"final_logit_softcapping", ZERO},
    {"rope.dimension_count", READ},
    {"rope.freq_base", READ},
    {"rope.scale_linear", READ},
    {"rope.scaling.type", READ},
    {"rope.scaling.factor", READ},
    {"rope.scaling.attn_factor", READ},
    {"rope.scaling.original_context_length", READ},
    {"rope.scaling.low_freq_factor", READ},
    {"rope.scaling.high_freq_factor", READ},
    {"rope.scaling.finetuned", ANY},
    {"rope.scaling.yarn_ext_factor", ONE},
    {"rope.scaling.yarn_attn_factor", ONE},
    {"rope.scaling.yarn_log_multiplier", ZERO},
    {"rope.scaling.yarn_beta_fast", READ},
    {"rope.scaling.yarn_beta_slow", READ},
    {"expert_count", READ},
    {"expert_used_count", ANY}, // means nothing without experts
    {"interleave_moe_layer_step", ZERO},
    {"moe_every_n_layers", ZERO},
    {"leading_dense_block_count", ZERO},
    {"nextn_predict_layers", ZERO},
    {"pooling_type", ZERO}, // else the model makes embeddings, or ranks
    {"logit_scale", ONE},
    {"residual_scale", ONE},
    {"embedding_scale", ONE},
    {"use_parallel_residual", ZERO},
    {"rescale_every_n_layers", ZERO},
    {"swin_norm", ZERO},
};

static const struct {
    bool anywhere; // else only the beginning of a name
    const char *part;
} suspects[] = {
    {false, "attention."},   {false, "rope."},        {false, "expert"},   {false, "ssm."},
    {false, "wkv."},         {false, "classifier."},  {true, "moe"},       {true, "_scale"},
    {true, "_multiplier"},   {true, "softcapping"},   {true, "window"},    {true, "activation"},
    {true, "hidden_act"},    {true, "pooling"},       {true, "residual"},  {true, "_norm"},
    {true, "nextn_predict"}, {true, "every_n_layer"}, {true, "deepstack"}, {true, "leading_dense"},
};

struct reader {
    const struct gguf *g;
    const struct arch *arch;
    struct err *err;
    char key[160];
};

static const char *arch_key(struct reader *r, const char *name) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch->name, name);
    return r->key;
}

// An integer, or an array of num_layers equal ones (0: arrays are not allowed).
static bool read_int(struct reader *r, const char *name, bool required, int64_t min, int64_t max,
                     int num_layers, int *value) {
    const char *key = arch_key(r, name);
    const struct gguf_kv *kv = gguf_find(r->g, key);
    int64_t v = *value;
    struct gguf_array a;
    if (!kv || kv->type != GGUF_ARRAY || num_layers == 0) {
        if (gguf_get_int(r->g, key, required, min, max, &v, r->err))
            return false;
        *value = (int)v;
        return true;
    }
    if (gguf_get_array(r->g, key, required, GGUF_I32, &a, r->err))
        return false;
    if (a.count != (uint64_t)num_layers) {
        gguf_bad(r->g, r->err, "key %s has %llu elements, expected one for each of %d layers", key,
                 (unsigned long long)a.count, num_layers);
        return false;
    }
    for (int i = 0; i < num_layers; i++) {
        v = gguf_array_int(&a, (uint64_t)i);
        if (v < min || v > max || v != gguf_array_int(&a, 0)) {
            gguf_bad(r->g, r->err,
                     "key %s is %lld for layer %d: expected %lld to %lld, the same for every layer", key,
                     (long long)v, i, (long long)min, (long long)max);
            return false;
        }
    }
    *value = (int)v;
    return true;
}

static bool read_float(struct reader *r, const char *name, bool required, double above, double max,
                       float *value) {
    const char *key = arch_key(r, name);
    double v = (double)*value;
    if (gguf_get_float(r->g, key, required, &v, r->err))
        return false;
    if (v <= above || v > max) {
        gguf_bad(r->g, r->err, "key %s is %g, expected above %g and at most %g", key, v, above, max);
        return false;
    }
    *value = (float)v;
    return true;
}

// Whether the key holds one of the values that change nothing.
static bool harmless(const struct gguf_kv *kv, enum rule rule) {
    char text[64];
    gguf_kv_text(kv, text, sizeof text);
    switch (rule) {
    case READ:
    case ANY: return true;
    case ZERO: return !strcmp(text, "0") || !strcmp(text, "false");
    case ONE: return !strcmp(text, "1");
    case IS_TRUE: return !strcmp(text, "true");
    }
    return false;
}

static bool suspect(const char *name, size_t len) {
    for (size_t k = 0; k < sizeof suspects / sizeof suspects[0]; k++) {
        size_t n = strlen(suspects[k].part);
        for (size_t i = 0; i + n <= len && (i == 0 || suspects[k].anywhere); i++)
            if (memcmp(name + i, suspects[k].part, n) == 0)
                return true;
    }
    return false;
}

// Refuses keys that would change the mathematics in a way we do not know.
static bool check_keys(struct reader *r) {
    size_t prefix = strlen(r->arch->name) + 1;
    for (size_t i = 0; i < gguf_num_kv(r->g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(r->g, i);
        if (kv->key.len <= prefix || memcmp(kv->key.data, arch_key(r, ""), prefix) != 0)
            continue;
        const char *name = kv->key.data + prefix;
        size_t len = kv->key.len - prefix;
        const struct known_key *known = NULL;
        for (size_t k = 0; k < sizeof known_keys / sizeof known_keys[0]; k++)
            if (strlen(known_keys[k].name) == len && memcmp(known_keys[k].name, name, len) == 0)
                known = &known_keys[k];
        char text[64];
        if (known ? harmless(kv, known->rule) : !suspect(name, len))
            continue;
        gguf_bad(r->g, r->err, "key %.*s is %s: Quire does not know how to compute that for architecture %s",
                 (int)(kv->key.len < 128 ? kv->key.len : 128), kv->key.data,
                 gguf_kv_text(kv, text, sizeof text), r->arch->name);
        return false;
    }
    return true;
}

// rope_freqs.weight divides each frequency: Llama 3's scaling, worked out by whoever made the file.
static bool read_freq_factors(struct reader *r, struct rope_config *rope) {
    const struct gguf_info *t = gguf_find_tensor(r->g, "rope_freqs.weight");
    if (!t)
        return true;
    if (t->view.dtype != DTYPE_F32 || t->view.ndim != 1 || t->view.shape[0] != rope->dim / 2) {
        gguf_bad(r->g, r->err, "tensor rope_freqs.weight is %s with %lld elements, expected F32 with %d",
                 t->type_name, (long long)t->elements, rope->dim / 2);
        return false;
    }
    const float *f = gguf_keep(r->g, t, r->err);
    if (!f)
        return false;
    for (int i = 0; i < rope->dim / 2; i++)
        if (!isfinite(f[i]) || f[i] <= 0) {
            gguf_bad(r->g, r->err,
                     "tensor rope_freqs.weight holds %g at byte %llu, expected a finite number above 0",
                     (double)f[i], (unsigned long long)t->offset + 4 * (unsigned)i);
            return false;
        }
    rope->freq_factors = f;
    return true;
}

// What the scaling of this kind needs beside the factor.
static bool read_scaling(struct reader *r, struct rope_config *rope) {
    bool llama3 = rope->scaling == ROPE_LLAMA3, yarn = rope->scaling == ROPE_YARN;
    if ((llama3 || yarn) &&
        !read_int(r, "rope.scaling.original_context_length", llama3, 1, 1 << 24, 0, &rope->original_context))
        return false;
    if (yarn && (!read_float(r, "rope.scaling.yarn_beta_fast", false, 0, 1e6, &rope->beta_fast) ||
                 !read_float(r, "rope.scaling.yarn_beta_slow", false, 0, 1e6, &rope->beta_slow)))
        return false;
    if (yarn && (rope->theta <= 1 || rope->factor < 1)) {
        gguf_bad(r->g, r->err, "yarn with base %g and factor %g: expected above 1 and at least 1",
                 (double)rope->theta, (double)rope->factor);
        return false;
    }
    if (yarn) // Peng et al., section 3.4: the temperature of attention, folded into cos and sin
        rope->attn_factor *= 0.1f * logf(rope->factor) + 1.0f;
    static const char *const bounds[] = {"rope.scaling.low_freq_factor", "rope.scaling.high_freq_factor"};
    for (int i = 0; i < 2 && !llama3; i++)
        if (gguf_find(r->g, arch_key(r, bounds[i]))) {
            gguf_bad(r->g, r->err, "key %s is there, which means something to scaling of type llama3 only",
                     r->key);
            return false;
        }
    if (llama3 && (!read_float(r, bounds[0], false, 0, 1e6, &rope->low_freq) ||
                   !read_float(r, bounds[1], false, 0, 1e6, &rope->high_freq)))
        return false;
    if (llama3 && rope->low_freq >= rope->high_freq) {
        gguf_bad(r->g, r->err, "key %s is %g, expected above low_freq_factor, %g", arch_key(r, bounds[1]),
                 (double)rope->high_freq, (double)rope->low_freq);
        return false;
    }
    if (llama3 && gguf_find_tensor(r->g, "rope_freqs.weight")) {
        gguf_bad(r->g, r->err,
                 "key %s is 'llama3' and tensor rope_freqs.weight is there, which may be the same scaling "
                 "again; expected one of them",
                 arch_key(r, "rope.scaling.type"));
        return false;
    }
    return true;
}

static bool read_rope(struct reader *r, struct model_config *c) {
    struct rope_config *rope = &c->rope;
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } kinds[] = {{"none", ROPE_NONE}, {"linear", ROPE_LINEAR}, {"yarn", ROPE_YARN}, {"llama3", ROPE_LLAMA3}};
    struct gguf_str type = {"", 0};
    *rope = (struct rope_config){
        .theta = 10000,
        .dim = c->head_dim,
        .interleaved = r->arch->rope_interleaved,
        .factor = 1,
        .original_context = c->max_context,
        .low_freq = 1,
        .high_freq = 4,
        .beta_fast = 32,
        .beta_slow = 1,
        .attn_factor = 1,
    };
    if (!read_float(r, "rope.freq_base", false, 0, 1e12, &rope->theta) ||
        !read_int(r, "rope.dimension_count", false, 2, c->head_dim, 0, &rope->dim) ||
        !read_float(r, "rope.scaling.attn_factor", false, 0, 1e6, &rope->attn_factor))
        return false;
    if (rope->dim % 2) {
        gguf_bad(r->g, r->err, "key %s is %d, expected an even number", arch_key(r, "rope.dimension_count"),
                 rope->dim);
        return false;
    }
    if (gguf_get_str(r->g, arch_key(r, "rope.scaling.type"), false, 64, &type, r->err))
        return false;
    const struct gguf_kv *factor = gguf_find(r->g, arch_key(r, "rope.scaling.factor"));
    const char *factor_key =
        factor ? "rope.scaling.factor" : "rope.scale_linear"; // the latter is its older name
    char text[32];
    factor = gguf_find(r->g, arch_key(r, factor_key));
    bool given = factor && strcmp(gguf_kv_text(factor, text, sizeof text), "0") != 0; // 0: not set
    if (given && !read_float(r, factor_key, false, 0, 1e6, &rope->factor))
        return false;
    if (type.len == 0) {
        rope->scaling = given && rope->factor != 1 ? ROPE_LINEAR : ROPE_NONE;
    } else {
        size_t k = 0, n = sizeof kinds / sizeof kinds[0];
        while (k < n &&
               (strlen(kinds[k].name) != type.len || memcmp(kinds[k].name, type.data, type.len) != 0))
            k++;
        if (k == n) {
            gguf_bad(r->g, r->err,
                     "key %s is '%.*s', which is not supported; supported: none, linear, yarn, llama3",
                     arch_key(r, "rope.scaling.type"), (int)type.len, type.data);
            return false;
        }
        rope->scaling = kinds[k].scaling;
    }
    if (rope->scaling == ROPE_LLAMA3 && !given) { // llama.cpp writes rope_freqs.weight instead of these keys
        gguf_bad(r->g, r->err, "key %s is missing, which scaling of type llama3 needs",
                 arch_key(r, "rope.scaling.factor"));
        return false;
    }
    if (rope->scaling == ROPE_NONE)
        rope->factor = 1;
    return read_scaling(r, rope) && read_freq_factors(r, rope);
}

// Copies s with what is not UTF-8, or a control character, as '?': names go to logs and JSON.
static void copy_text(char *dst, size_t size, struct gguf_str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        int len = utf8_len((const unsigned char *)s.data + i, s.len - i);
        size_t bytes = len ? (size_t)len : 1;
        if (n + bytes >= size)
            break;
        if (len == 0 || (unsigned char)s.data[i] < 0x20 || s.data[i] == 0x7f)
            dst[n++] = '?';
        else
            for (size_t k = 0; k < bytes; k++)
                dst[n++] = s.data[i + k];
        i += bytes;
    }
    dst[n] = 0;
}

static bool read_arch(struct reader *r, struct model_config *c) {
    const struct gguf *g = r->g;
    struct gguf_str s, type = {"", 0}, name = {"", 0};
    int64_t count = 0, no = 0;
    if (gguf_get_int(g, "split.count", false, 0, 1024, &count, r->err) || // (11)
        gguf_get_int(g, "split.no", false, 0, 1023, &no, r->err))
        return false;
    if (count > 0 && no >= count) {
        gguf_bad(g, r->err, "key split.no is %lld, expected less than split.count, %lld", (long long)no,
                 (long long)count);
        return false;
    }
    if (count > 1) {
        gguf_bad(g, r->err,
                 "key split.count is %lld: models split into several files are not supported yet; merge them "
                 "into one",
                 (long long)count);
        return false;
    }
    if (gguf_get_str(g, "general.type", false, 64, &type, r->err) ||
        gguf_get_str(g, "general.architecture", true, 64, &s, r->err) ||
        gguf_get_str(g, "general.name", false, GGUF_MAX_STRING, &name, r->err))
        return false;
    copy_text(c->arch, sizeof c->arch, s);
    copy_text(c->name, sizeof c->name, name);
    if (type.len && !(type.len == 5 && memcmp(type.data, "model", 5) == 0)) {
        gguf_bad(g, r->err, "key general.type is '%.*s', expected 'model'", (int)type.len, type.data);
        return false;
    }
    char supported[16 * NUM_ARCHS] = "";
    for (int i = 0; i < NUM_ARCHS; i++) {
        if (strlen(archs[i].name) == s.len && memcmp(archs[i].name, s.data, s.len) == 0)
            r->arch = &archs[i];
        size_t n = strlen(supported);
        snprintf(supported + n, sizeof supported - n, "%s%s", i ? ", " : "", archs[i].name);
    }
    if (!r->arch)
        gguf_bad(g, r->err, "architecture '%s' is not supported yet; supported: %s", c->arch, supported);
    return r->arch != NULL;
}

// 0 stands for the usual one, as in llama.cpp.
static bool read_attn_scale(struct reader *r, struct model_config *c) {
    const struct gguf_kv *kv = gguf_find(r->g, arch_key(r, "attention.scale"));
    char text[32];
    if (kv && strcmp(gguf_kv_text(kv, text, sizeof text), "0") == 0)
        return true;
    if (!read_float(r, "attention.scale", false, 0, 1e6, &c->attn_scale))
        return false;
    // Kernels take it times log2 e, and subnormal numbers as 0 (kernels/README.md): all weights would be
    // equal.
    if (isnormal(c->attn_scale) && isnormal(c->attn_scale * 1.44269504f))
        return true;
    gguf_bad(r->g, r->err, "key %s is %g, which times log2 e is no normal number of 32 bits",
             arch_key(r, "attention.scale"), (double)c->attn_scale);
    return false;
}

// W. Qwen's own configurations name the layers that have a window; GGUF has no key for that.
static bool read_window(struct reader *r, struct model_config *c) {
    if (!read_int(r, "attention.sliding_window", false, 0, INT32_MAX, c->num_layers, &c->window))
        return false;
    if (r->arch->window_every_layer || c->window == 0)
        return true;
    if (c->window < c->max_context) {
        gguf_bad(r->g, r->err,
                 "key %s is %d, and nothing says for which layers of architecture %s; expected 0, or at "
                 "least the context, %d",
                 arch_key(r, "attention.sliding_window"), c->window, r->arch->name, c->max_context);
        return false;
    }
    c->window = 0;
    return true;
}

// Any of the biases asks for all of them: weights_check() names one that is missing.
static void find_biases(const struct reader *r, struct model_config *c) {
    bool qkv = gguf_find_tensor(r->g, "blk.0.attn_q.bias") || gguf_find_tensor(r->g, "blk.0.attn_k.bias") ||
               gguf_find_tensor(r->g, "blk.0.attn_v.bias");
    bool out = gguf_find_tensor(r->g, "blk.0.attn_output.bias") != NULL;
    c->qkv_bias = r->arch->qkv_bias == ALWAYS || (r->arch->qkv_bias == OPTIONAL && qkv);
    c->out_bias = r->arch->out_bias == ALWAYS || (r->arch->out_bias == OPTIONAL && out);
}

// V: as many as tokens, and rows of the embedding.
static bool read_vocab(struct reader *r, struct model_config *c) {
    struct gguf_array tokens;
    if (gguf_get_array(r->g, "tokenizer.ggml.tokens", true, GGUF_STRING, &tokens, r->err))
        return false;
    if (tokens.count < 1 || tokens.count > 1 << 22) {
        gguf_bad(r->g, r->err, "key tokenizer.ggml.tokens has %llu tokens, expected 1 to %d",
                 (unsigned long long)tokens.count, 1 << 22);
        return false;
    }
    c->vocab = (int)tokens.count;
    int declared = c->vocab;
    if (!read_int(r, "vocab_size", false, 0, INT32_MAX, 0, &declared))
        return false;
    if (declared != c->vocab) {
        gguf_bad(r->g, r->err, "key %s is %d, expected %d, the number of tokens", arch_key(r, "vocab_size"),
                 declared, c->vocab);
        return false;
    }
    const struct tensor *embed = gguf_tensor(r->g, "token_embd.weight");
    if (embed && (embed->ndim != 2 || embed->shape[0] != c->vocab)) {
        gguf_bad(r->g, r->err, "tensor token_embd.weight has %lld rows, expected %d, the number of tokens",
                 (long long)embed->shape[0], c->vocab);
        return false;
    }
    return true;
}

enum status model_config_read(const struct gguf *g, struct model_config *c, struct err *err) {
    struct err local = {0};
    struct reader r = {.g = g, .err = err ? err : &local};
    int experts = 0, value_length, last;
    *c = (struct model_config){0};
    // (12)
    if (!read_arch(&r, c) || !read_int(&r, "expert_count", false, 0, 1024, 0, &experts))
        goto fail;
    if (experts > 0) {
        gguf_bad(g, r.err, "key %s is %d: mixture of experts is not supported yet",
                 arch_key(&r, "expert_count"), experts);
        goto fail;
    }
    if (!check_keys(&r) || !read_int(&r, "block_count", true, 1, MODEL_MAX_LAYERS, 0, &c->num_layers) ||
        !read_int(&r, "context_length", true, 1, 1 << 24, 0, &c->max_context) ||
        !read_int(&r, "embedding_length", true, 1, 1 << 20, 0, &c->hidden) ||
        !read_int(&r, "feed_forward_length", true, 1, 1 << 24, c->num_layers, &c->ffn) ||
        !read_int(&r, "attention.head_count", true, 1, 1 << 14, c->num_layers, &c->num_heads))
        goto fail;
    c->num_kv_heads = c->num_heads;
    if (!read_int(&r, "attention.head_count_kv", false, 1, c->num_heads, c->num_layers, &c->num_kv_heads) ||
        !read_float(&r, "attention.layer_norm_rms_epsilon", true, 0, 1, &c->norm_eps))
        goto fail;
    if (c->num_heads % c->num_kv_heads) {
        gguf_bad(g, r.err, "%d query heads are no multiple of %d key/value heads (key %s)", c->num_heads,
                 c->num_kv_heads, arch_key(&r, "attention.head_count_kv"));
        goto fail;
    }
    c->head_dim = c->hidden / c->num_heads;
    if (!gguf_find(g, arch_key(&r, "attention.key_length")) && c->hidden % c->num_heads) {
        gguf_bad(g, r.err, "key %s is %d, expected a multiple of %d heads, or a key_length",
                 arch_key(&r, "embedding_length"), c->hidden, c->num_heads);
        goto fail;
    }
    if (!read_int(&r, "attention.key_length", false, 2, 1 << 12, 0, &c->head_dim))
        goto fail;
    value_length = c->head_dim;
    if (!read_int(&r, "attention.value_length", false, 1, 1 << 12, 0, &value_length))
        goto fail;
    if (c->head_dim < 2 || value_length != c->head_dim) {
        gguf_bad(g, r.err, "heads have keys of %d and values of %d (key %s), expected the same, at least 2",
                 c->head_dim, value_length, arch_key(&r, "attention.value_length"));
        goto fail;
    }
    last = c->num_heads * c->head_dim; // at most 2^26
    if (last > 1 << 22) {
        gguf_bad(g, r.err, "%d heads of %d are more than %d (key %s)", c->num_heads, c->head_dim, 1 << 22,
                 arch_key(&r, "attention.key_length"));
        goto fail;
    }
    c->attn_scale = 1.0f / sqrtf((float)c->head_dim);
    c->logit_scale = 1;
    c->qk_norm = r.arch->qk_norm;
    find_biases(&r, c);
    if (!read_attn_scale(&r, c) || !read_window(&r, c) || !read_rope(&r, c) || !read_vocab(&r, c))
        goto fail;
    c->tied = gguf_find_tensor(g, "output.weight") == NULL;
    return STATUS_OK;
fail:
    return r.err->code;
}
