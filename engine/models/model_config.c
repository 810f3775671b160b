// See model_config.h. What an architecture's keys are called and which values they may have: architectures.c.
#include "config_reader.h"

#include "kv_layers.h"
#include "model_config.h"
#include "utf8.h"

#include <math.h>
#include <string.h>

// Copies s with what is not UTF-8, or a control character, as '?': names go to logs and JSON.
static void copy_text(char *dst, size_t size, struct text_view s) {
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

static bool read_arch(struct config_reader *r, struct model_config *c) {
    const struct model_file *f = r->f;
    struct text_view s, type = {"", 0}, name = {"", 0};
    int64_t count = 0, no = 0;
    if (meta_int(f, "split.count", false, 0, 1024, &count, r->err) || // (11)
        meta_int(f, "split.no", false, 0, 1023, &no, r->err))
        return false;
    if (count > 0 && no >= count) {
        model_file_bad(f, r->err, "key split.no is %lld, expected less than split.count, %lld", (long long)no,
                       (long long)count);
        return false;
    }
    if (count > 1) {
        model_file_bad(
            f, r->err,
            "key split.count is %lld: models split into several files are not supported yet; merge them "
            "into one",
            (long long)count);
        return false;
    }
    if (meta_str(f, "general.type", false, 64, &type, r->err) ||
        meta_str(f, "general.architecture", true, 64, &s, r->err) ||
        meta_str(f, "general.name", false, SIZE_MAX, &name, r->err))
        return false;
    copy_text(c->arch, sizeof c->arch, s);
    copy_text(c->name, sizeof c->name, name);
    if (type.len && !(type.len == 5 && memcmp(type.data, "model", 5) == 0)) {
        model_file_bad(f, r->err, "key general.type is '%.*s', expected 'model'", (int)type.len, type.data);
        return false;
    }
    r->arch = arch_find(s.data, s.len);
    char supported[640] = "";
    for (int i = 0; arch_at(i); i++) {
        size_t n = strlen(supported);
        snprintf(supported + n, sizeof supported - n, "%s%s", i ? ", " : "", arch_at(i)->name);
    }
    if (!r->arch)
        model_file_bad(f, r->err, "architecture '%s' is not supported yet; supported: %s", c->arch,
                       supported);
    return r->arch != NULL;
}

// Factors of the embedding, the residual stream and the logits.
static bool read_scales(struct config_reader *r) {
    struct hparams *h = &r->h;
    h->embed_scale = r->arch->embed_sqrt ? sqrtf((float)h->hidden) : 1;
    h->residual_scale = h->logit_scale = 1;
    if (!config_read(r, H_ATTN_SOFTCAP) || !config_read(r, H_LOGIT_SOFTCAP) ||
        !config_read(r, H_EMBED_SCALE) || !config_read(r, H_RESIDUAL_SCALE) || !config_read(r, H_LOGIT_SCALE))
        return false;
    if (r->arch->logits_divided)
        h->logit_scale = 1 / h->logit_scale;
    return true;
}

static bool read_block(struct config_reader *r, struct model_config *c) {
    bool parallel = false;
    if (config_has_bit(r->arch->must, H_PARALLEL)) {
        const struct meta *m = config_find(r, H_PARALLEL);
        if (!m) {
            model_file_bad(r->f, r->err, "key %s is missing", config_key(r, H_PARALLEL));
            return false;
        }
        if (meta_bool(r->f, config_key(r, H_PARALLEL), &parallel, r->err))
            return false;
    }
    bool one_norm = r->arch->one_norm == ALWAYS ||
                    (r->arch->one_norm == OPTIONAL &&
                     !config_has_tensor(r, arch_slot_at(r->arch, offsetof(struct layer, ffn_norm))));
    c->block = one_norm ? BLOCK_ONE_NORM : parallel ? BLOCK_PARALLEL : BLOCK_SEQUENTIAL;
    return true;
}

// V: as many as tokens, and rows of the embedding. Without a vocabulary the key says it.
static bool read_vocab(struct config_reader *r, struct model_config *c) {
    enum { MAX_TOKENS = 1 << 22 };
    struct meta_array tokens = {0};
    struct text_view kind = {"", 0};
    char name[TENSOR_NAME_BYTES];
    if (meta_str(r->f, "tokenizer.ggml.model", false, 64, &kind, r->err))
        return false;
    bool none = kind.len == strlen("no_vocab") && memcmp(kind.data, "no_vocab", kind.len) == 0;
    if (!none && meta_array(r->f, "tokenizer.ggml.tokens", true, META_STRING, &tokens, r->err))
        return false;
    if (!none && (tokens.count < 1 || tokens.count > MAX_TOKENS)) {
        model_file_bad(r->f, r->err, "key tokenizer.ggml.tokens has %llu tokens, expected 1 to %d",
                       (unsigned long long)tokens.count, MAX_TOKENS);
        return false;
    }
    c->vocab = r->h.vocab = (int)tokens.count;
    if (!config_read(r, H_VOCAB))
        return false;
    if (none && (r->h.vocab < 1 || r->h.vocab > MAX_TOKENS)) {
        model_file_bad(r->f, r->err, "key %s is %d, expected 1 to %d where the file has no vocabulary",
                       config_key(r, H_VOCAB), r->h.vocab, MAX_TOKENS);
        return false;
    }
    c->vocab = none ? r->h.vocab : c->vocab;
    if (r->h.vocab != c->vocab) {
        model_file_bad(r->f, r->err, "key %s is %d, expected %d, the number of tokens",
                       config_key(r, H_VOCAB), r->h.vocab, c->vocab);
        return false;
    }
    arch_tensor_name(arch_slot(r->arch, WEIGHT_EMBED), 0, false, 0, name);
    const struct model_tensor *embed = model_file_find(r->f, name);
    if (embed && (embed->view.ndim != 2 || embed->view.shape[0] != c->vocab)) {
        model_file_bad(r->f, r->err, "tensor %s has %lld rows, expected %d, the number of tokens", name,
                       (long long)embed->view.shape[0], c->vocab);
        return false;
    }
    return true;
}

static uint8_t add_attn(struct model_config *c, const struct attn_spec *a) {
    int i = 0;
    while (i < c->num_attn && (c->attn[i].window != a->window || c->attn[i].rope != a->rope))
        i++;
    c->attn[i] = *a;
    c->attn[i].index = i;
    c->num_attn += i == c->num_attn;
    return (uint8_t)i;
}

static uint8_t add_ffn(struct model_config *c, const struct ffn_spec *ffn) {
    int i = 0;
    while (i < c->num_ffn && c->ffn[i].experts != ffn->experts)
        i++;
    c->ffn[i] = *ffn;
    c->ffn[i].index = i;
    c->num_ffn += i == c->num_ffn;
    return (uint8_t)i;
}

// Whether the layer rotates queries and keys.
static bool has_rope(const struct config_reader *r, int layer, bool windowed) {
    int every = r->arch->no_rope_every;
    bool still =
        r->arch->full_no_rope && config_find((struct config_reader *)(uintptr_t)r, H_WINDOW) && !windowed;
    return !r->no_rope && !still && !(every && layer % every == every - 1);
}

// Layers differ by their window and rotation, and share everything else.
static void make_specs(const struct config_reader *r, const bool *windowed, struct model_config *c) {
    c->ropes[0] = r->h.rope;
    c->num_ropes = 1;
    if (r->arch->window_rope) {
        c->num_ropes = 2;
        c->ropes[1] = (struct rope_config){.theta = r->h.window_theta,
                                           .dim = r->h.rope.dim,
                                           .interleaved = r->h.rope.interleaved,
                                           .factor = 1,
                                           .attn_factor = 1};
    }
    for (int i = 0; i < c->num_layers; i++) {
        struct attn_spec a = r->h.attn;
        a.window = windowed[i] ? a.window : 0;
        a.rope = !has_rope(r, i, windowed[i]) ? -1 : r->arch->window_rope && windowed[i];
        if (a.rope >= 0 && r->arch->still_temp > 0)
            a.temp_scale = 0;
        if (a.rope < 0 && a.qk_norm == QK_NORM_UNIT)
            a.qk_norm = QK_NORM_NONE;
        bool mix = r->recurrent[i] || r->arch->mix_beside;
        c->layers[i] =
            (struct layer_spec){.attn = r->recurrent[i] ? MODEL_NO_SPEC : add_attn(c, &a),
                                .mix = mix ? 0 : MODEL_NO_SPEC,
                                .ffn = add_ffn(c, config_has_experts(r, i) ? &r->h.expert : &r->h.ffn)};
        c->num_mix |= mix;
    }
    c->mix[0] = r->h.mix;
    kv_layers_group(c);
}

enum status model_config_read(const struct model_file *f, struct model_config *c, struct err *err) {
    struct err local = {0};
    struct config_reader r = {.f = f, .err = err ? err : &local};
    bool windowed[MODEL_MAX_LAYERS];
    char name[TENSOR_NAME_BYTES];
    *c = (struct model_config){0};
    // (12)
    if (!read_arch(&r, c) || !config_check_keys(&r) || !config_read(&r, H_LAYERS) ||
        !config_read(&r, H_CONTEXT) || !config_read(&r, H_HIDDEN) || !config_experts(&r) ||
        !config_heads(&r) || !config_attn_scale(&r) || !read_scales(&r) || !config_mix(&r) ||
        !config_window(&r, windowed) || !config_rope(&r) || !read_block(&r, c) || !read_vocab(&r, c) ||
        !config_read(&r, H_POOLING))
        return r.err->code;
    r.h.attn.qk_norm = r.arch->qk_norm;
    r.h.attn.gate = (r.arch->traits & TRAIT_ATTN_GATE) != 0;
    r.h.attn.sinks = (r.arch->traits & TRAIT_SINKS) != 0;
    if ((r.arch->qk_norm == QK_NORM_EACH || r.arch->qk_norm_optional) &&
        !config_has_tensor(&r, arch_slot_at(r.arch, offsetof(struct layer, q_norm))))
        r.h.attn.qk_norm = QK_NORM_NONE;
    if (r.arch->no_norm_experts && r.h.expert.experts == r.arch->no_norm_experts)
        r.h.attn.qk_norm = QK_NORM_NONE;
    r.h.ffn.act = r.arch->act;
    r.h.ffn.no_gate = (r.arch->traits & TRAIT_NO_GATE) != 0;
    r.h.ffn.in_bias = config_has_biases(&r, r.arch->ffn_bias, WEIGHT_GATE_UP);
    r.h.ffn.out_bias = config_has_biases(&r, r.arch->ffn_bias, WEIGHT_DOWN);
    r.h.attn.qkv_bias = config_has_biases(&r, r.arch->qkv_bias, WEIGHT_QKV);
    r.h.attn.out_bias = config_has_biases(&r, r.arch->out_bias, WEIGHT_ATTN_OUT);
    c->num_layers = r.h.layers - r.h.nextn;
    c->num_nextn = r.h.nextn;
    c->hidden = r.h.hidden;
    c->max_context = r.h.context;
    c->norm = r.arch->norm;
    c->norm_eps = r.h.norm_eps;
    c->norm_bias = config_has_biases(&r, r.arch->norm_bias, WEIGHT_NORM);
    c->head_bias = config_has_biases(&r, r.arch->head_bias, WEIGHT_HEAD);
    c->embed_scale = r.h.embed_scale;
    c->residual_scale = r.h.residual_scale;
    c->logit_scale = r.h.logit_scale;
    c->logit_softcap = r.h.logit_softcap;
    c->pooling = (enum pooling)r.h.pooling;
    c->post_norms = (r.arch->traits & TRAIT_POST_NORMS) != 0;
    c->tied = !model_file_find(f, arch_tensor_name(arch_slot(r.arch, WEIGHT_HEAD), 0, false, 0, name));
    make_specs(&r, windowed, c);
    return STATUS_OK;
}

void model_config_advice(const struct model_file *f, struct sampling_advice *a) {
    struct err ignored = {0};
    *a = (struct sampling_advice){-1, -1, -1, -1, -1};
    meta_float(f, "general.sampling.temp", false, &a->temperature, &ignored);
    meta_float(f, "general.sampling.top_p", false, &a->top_p, &ignored);
    meta_float(f, "general.sampling.min_p", false, &a->min_p, &ignored);
    meta_float(f, "general.sampling.penalty_repeat", false, &a->repetition_penalty, &ignored);
    meta_int(f, "general.sampling.top_k", false, 0, INT32_MAX, &a->top_k, &ignored);
}
