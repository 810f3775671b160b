// See model_config.h. architectures.c has the names of an architecture's keys and the values that they may have.
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
    char supported[1024] = "";
    for (int i = 0; arch_at(i); i++) {
        size_t n = strlen(supported);
        snprintf(supported + n, sizeof supported - n, "%s%s", i ? ", " : "", arch_at(i)->name);
    }
    if (!r->arch)
        model_file_bad(f, r->err, "architecture '%s' is not supported yet%s; supported: %s", c->arch,
                       arch_lacks(s.data, s.len), supported);
    return r->arch != NULL;
}

// Factors of the embedding, the residual stream and the logits.
static bool read_scales(struct config_reader *r) {
    struct hparams *h = &r->h;
    const struct arch *a = r->arch;
    h->embed_scale = a->embed_sqrt ? sqrtf((float)h->hidden) : model_scale(a->embed_scale);
    h->residual_scale = a->depth_scale > 0 ? a->depth_scale / sqrtf((float)h->layers) : 1;
    h->logit_softcap = a->logit_softcap;
    h->logit_scale = a->logit_base > 0 ? a->logit_base / (float)h->hidden : 1;
    if (!config_read(r, H_ATTN_SOFTCAP) || !config_read(r, H_LOGIT_SOFTCAP) ||
        !config_read(r, H_EMBED_SCALE) || !config_read(r, H_RESIDUAL_SCALE) || !config_read(r, H_LOGIT_SCALE))
        return false;
    if (a->logits_divided)
        h->logit_scale = 1 / h->logit_scale;
    return true;
}

static bool read_block(struct config_reader *r, struct model_config *c) {
    bool two = r->arch->traits & TRAIT_TWO_ATTN_NORMS, parallel = two;
    if (arch_must_have(r->arch, H_PARALLEL)) {
        const struct meta *m = config_find(r, H_PARALLEL);
        if (!m) {
            model_file_bad(r->f, r->err, "key %s is missing", config_key(r, H_PARALLEL));
            return false;
        }
        if (meta_bool(r->f, config_key(r, H_PARALLEL), &parallel, r->err))
            return false;
    }
    enum weight_role second = two ? WEIGHT_ATTN_NORM : WEIGHT_FFN_NORM;
    bool one_norm = r->arch->one_norm == ALWAYS ||
                    (r->arch->one_norm == OPTIONAL && !config_tensor(r, second, 0, false, 0));
    c->block = one_norm                            ? BLOCK_ONE_NORM
               : parallel                          ? BLOCK_PARALLEL
               : r->arch->traits & TRAIT_SUM_NORMS ? BLOCK_SUM_NORM
                                                   : BLOCK_SEQUENTIAL;
    return true;
}

// V: as many as tokens, and rows of the embedding. Without a vocabulary the key says it.
static bool read_vocab(struct config_reader *r, struct model_config *c) {
    enum { MAX_TOKENS = 1 << 22 };
    struct meta_array tokens = {0};
    struct text_view kind = {"", 0};
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
    const struct model_tensor *embed = config_tensor(r, WEIGHT_EMBED, 0, false, 0);
    if (embed && (embed->view.ndim != 2 || embed->view.shape[0] != c->vocab)) {
        model_file_bad(r->f, r->err, "tensor %.*s has %lld rows, expected %d, the number of tokens",
                       (int)embed->name.len, embed->name.data, (long long)embed->view.shape[0], c->vocab);
        return false;
    }
    return true;
}

static bool same_attn(const struct attn_spec *a, const struct attn_spec *b) {
    return a->window == b->window && a->rope == b->rope && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim && a->shares_kv == b->shares_kv && a->tied_values == b->tied_values;
}

// Their places; -1: there are too many.
static int add_attn(struct model_config *c, const struct attn_spec *a) {
    int i = 0;
    while (i < c->num_attn && !same_attn(&c->attn[i], a))
        i++;
    if (i == MODEL_MAX_SPECS)
        return -1;
    c->attn[i] = *a;
    c->attn[i].index = i;
    c->num_attn += i == c->num_attn;
    return i;
}
static int add_ffn(struct model_config *c, const struct ffn_spec *ffn) {
    int i = 0;
    while (i < c->num_ffn && (c->ffn[i].experts != ffn->experts || c->ffn[i].hidden != ffn->hidden ||
                              c->ffn[i].sparse != ffn->sparse || c->ffn[i].deviations != ffn->deviations ||
                              c->ffn[i].shared_hidden != ffn->shared_hidden))
        i++;
    if (i == MODEL_MAX_FFNS)
        return -1;
    c->ffn[i] = *ffn;
    c->ffn[i].index = i;
    c->num_ffn += i == c->num_ffn;
    return i;
}

// Whether the layer rotates queries and keys.
static bool has_rope(const struct config_reader *r, int layer, bool windowed) {
    int every = r->arch->no_rope_every;
    bool still = r->arch->full_no_rope && config_find((struct config_reader *)(uintptr_t)r, H_WINDOW) &&
                 !windowed && !(r->arch->dense_rope && !config_has_experts(r, layer));
    return !r->no_rope &&
           (r->lists_ropes ? r->rope_layer[layer] : !still && !(every && layer % every == every - 1));
}

// How layer i attends.
static struct attn_spec attn_of(const struct config_reader *r, int i, bool windowed) {
    struct attn_spec a = r->h.attn;
    a.window = windowed ? a.window : 0;
    a.rope = !has_rope(r, i, windowed) ? -1 : r->arch->window_rope && windowed;
    if (a.rope >= 0 && r->arch->still_temp > 0)
        a.temp_scale = 0;
    if (a.rope < 0 && a.qk_norm == QK_NORM_UNIT)
        a.qk_norm = QK_NORM_NONE;
    a.head_dim = windowed && r->h.window_key_dim ? r->h.window_key_dim : a.head_dim;
    a.kv_heads = r->kv_heads[i] ? r->kv_heads[i] : a.kv_heads;
    a.shares_kv = i >= r->h.layers - r->h.shared_kv;
    a.v_norm = (r->arch->traits & TRAIT_V_NORM) != 0;
    a.tied_values = a.v_norm && !a.shares_kv && !(r->arch->traits & TRAIT_STREAMS) &&
                    !config_tensor(r, WEIGHT_QKV, 2, false, i);
    return a;
}

// Layers differ by their window and rotation, some by sizes, and share everything else.
static bool make_specs(const struct config_reader *r, const bool *windowed, struct model_config *c) {
    c->ropes[0] = r->h.rope;
    c->num_ropes = 1;
    if (r->arch->window_rope) {
        c->num_ropes = 2;
        c->ropes[1] = (struct rope_config){.theta = r->h.window_theta,
                                           .dim = r->h.window_rope_dim ? r->h.window_rope_dim : r->h.rope.dim,
                                           .interleaved = r->h.rope.interleaved,
                                           .factor = 1,
                                           .attn_factor = 1};
    }
    for (int i = 0; i < c->num_layers; i++) {
        struct attn_spec a = attn_of(r, i, windowed[i]);
        struct ffn_spec f = config_has_experts(r, i) ? r->h.expert : r->h.ffn;
        int *dense = f.experts == 0 ? &f.hidden : &f.shared_hidden;
        *dense = r->ffn[i] ? r->ffn[i] : *dense;
        f.sparse = r->sparse[i];
        f.deviations = r->deviations[i];
        f = config_has_ffn(r, i) ? f : (struct ffn_spec){0};
        bool attends = !r->recurrent[i] && !r->ffn_alone[i] && !r->no_attn[i];
        int attn = attends ? add_attn(c, &a) : MODEL_NO_SPEC, ffn = add_ffn(c, &f);
        if (attn < 0 || ffn < 0) {
            model_file_bad(r->f, r->err, "layers are of more than %d kinds",
                           attn < 0 ? MODEL_MAX_SPECS : MODEL_MAX_FFNS);
            return false;
        }
        bool mix = r->recurrent[i] || r->arch->mix_beside;
        c->layers[i] =
            (struct layer_spec){.attn = (uint8_t)attn, .mix = mix ? 0 : MODEL_NO_SPEC, .ffn = (uint8_t)ffn};
        c->num_mix |= mix;
    }
    c->mix[0] = r->h.mix;
    if (c->num_attn == 0) {
        c->attn[0] = r->h.attn;
        c->attn[0].rope = -1;
        c->num_attn = 1;
    }
    kv_layers_group(c);
    return true;
}

enum status model_config_read(const struct model_file *f, struct model_config *c, struct err *err) {
    struct err local = {0};
    struct config_reader r = {.f = f, .err = err ? err : &local};
    bool windowed[MODEL_MAX_LAYERS];
    *c = (struct model_config){0};
    // (12)
    if (!read_arch(&r, c) || !config_check_keys(&r) || !config_read(&r, H_LAYERS) ||
        !config_read(&r, H_CONTEXT) || !config_read(&r, H_HIDDEN) || !config_experts(&r) ||
        !config_heads(&r) || !config_causal(&r) || !config_attn_scale(&r) || !read_scales(&r) ||
        !config_mix(&r) || !config_window(&r, windowed) || !config_shared_kv(&r, windowed) ||
        !config_rope(&r) || !config_flags(&r, "quire.rope_layers", r.rope_layer, &r.lists_ropes) ||
        !read_block(&r, c) || !read_vocab(&r, c) || !config_pooling(&r, c) || !config_act(&r) ||
        !config_read(&r, H_LAYER_EMBED) || !config_streams(&r, c))
        return r.err->code;
    r.h.attn.qk_norm = r.arch->qk_norm;
    r.h.attn.gate = (r.arch->traits & (TRAIT_ATTN_GATE | TRAIT_GATE_APART)) != 0;
    r.h.attn.sinks = (r.arch->traits & TRAIT_SINKS) != 0;
    if ((r.arch->qk_norm == QK_NORM_EACH || r.arch->qk_norm_optional) &&
        !config_tensor(&r, WEIGHT_Q_NORM, 0, false, 0))
        r.h.attn.qk_norm = QK_NORM_NONE;
    if (r.arch->no_norm_experts && r.h.expert.experts == r.arch->no_norm_experts)
        r.h.attn.qk_norm = QK_NORM_NONE;
    r.h.ffn.no_gate = (r.arch->traits & TRAIT_NO_GATE) != 0;
    r.h.ffn.in_bias = config_has_biases(&r, r.arch->ffn_bias, WEIGHT_GATE_UP);
    r.h.ffn.out_bias = config_has_biases(&r, r.arch->ffn_bias, WEIGHT_DOWN);
    r.h.attn.qkv_bias = config_has_biases(&r, r.arch->qkv_bias, WEIGHT_QKV);
    r.h.attn.out_bias = config_has_biases(&r, r.arch->out_bias, WEIGHT_ATTN_OUT);
    c->num_layers = r.h.layers - r.h.nextn;
    c->num_nextn = r.h.nextn > 0 ? r.h.nextn : f->num_mtp;
    c->hidden = r.h.hidden;
    c->norm = r.rms_norm ? NORM_RMS : r.arch->norm;
    c->norm_eps = r.h.norm_eps;
    enum weight_role norm = r.arch->traits & TRAIT_SUM_NORMS ? WEIGHT_ATTN_POST_NORM : WEIGHT_OUT_NORM;
    c->norm_bias = config_has_biases(&r, r.arch->norm_bias, norm);
    c->head_bias = config_has_biases(&r, r.arch->head_bias, WEIGHT_HEAD);
    c->embed_scale = r.h.embed_scale;
    c->residual_scale = r.h.residual_scale;
    c->logit_scale = r.h.logit_scale;
    c->logit_softcap = r.h.logit_softcap;
    c->post_norms = (r.arch->traits & TRAIT_POST_NORMS) != 0;
    c->tied = !config_tensor(&r, WEIGHT_HEAD, 0, false, 0);
    c->layer_embed = r.h.layer_embed;
    c->layer_scale = config_tensor(&r, WEIGHT_LAYER_SCALE, 0, false, 0) != NULL;
    return make_specs(&r, windowed, c) && config_xielu(&r, c) ? STATUS_OK : r.err->code;
}

const char *model_config_rank_template(const struct model_file *f, size_t *len) {
    struct text_view text = {NULL, 0};
    struct err ignored = {0};
    meta_str(f, "tokenizer.chat_template.rerank", false, SIZE_MAX, &text, &ignored);
    *len = text.len;
    return text.data;
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
