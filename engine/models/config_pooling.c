// See config_reader.h: encoders, which see whole texts and give vectors.
#include "config_reader.h"

bool config_causal(struct config_reader *r) {
    bool causal = !r->arch->encoder, usual = causal;
    if (meta_bool(r->f, config_key(r, H_CAUSAL), &causal, r->err))
        return false;
    r->h.attn.bidirectional = !causal;
    // Decoders that were trained on as embedders: gte-Qwen2. Windows and states of tokens before would mean something else.
    bool plain = r->arch->mix == MIX_NONE && !(r->arch->traits & TRAIT_LATENT) && !r->arch->chunk &&
                 !config_given(r, H_WINDOW);
    if (causal == usual || (usual && plain))
        return true;
    model_file_bad(r->f, r->err, "key %s is %s: Quire does not know how to compute that for architecture %s",
                   config_key(r, H_CAUSAL), causal ? "true" : "false", r->arch->name);
    return false;
}

bool config_act(struct config_reader *r) {
    static const struct {
        const char *name;
        enum act act;
    } known[] = {{"gelu", ACT_GELU_ERF}, {"geglu", ACT_GELU_ERF}, {"silu", ACT_SILU}, {"swiglu", ACT_SILU}};
    struct text_view name = {NULL, 0};
    r->h.ffn.act = r->arch->act;
    if (!arch_may_have(r->arch, H_ACT))
        return true;
    if (meta_str(r->f, config_key(r, H_ACT), false, 64, &name, r->err))
        return false;
    for (size_t i = 0; name.data && i < sizeof known / sizeof *known; i++)
        if (config_is(known[i].name, name.data, name.len)) {
            r->h.ffn.act = known[i].act;
            return true;
        }
    if (name.data)
        model_file_bad(r->f, r->err, "key %s is '%.*s', expected gelu or silu", config_key(r, H_ACT),
                       (int)name.len, name.data);
    return !name.data;
}

bool config_pooling(struct config_reader *r, struct model_config *c) {
    if (!config_read(r, H_POOLING))
        return false;
    c->pooling = (enum pooling)r->h.pooling;
    c->rank_pooling = !r->arch->encoder ? POOLING_LAST : r->arch->ranks_mean ? POOLING_MEAN : POOLING_CLS;
    c->is_reranker = c->pooling == POOLING_RANK;
    int64_t ranks_by = c->rank_pooling, longest = r->h.context; // these keys are of folders
    bool normalize = true;
    if (meta_int(r->f, "quire.rank_pooling", false, POOLING_MEAN, POOLING_LAST, &ranks_by, r->err) ||
        meta_int(r->f, "quire.max_seq_length", false, 1, INT32_MAX, &longest, r->err) ||
        meta_bool(r->f, "quire.normalize", &normalize, r->err))
        return false;
    c->max_context = longest < r->h.context ? (int)longest : r->h.context;
    c->rank_pooling = (enum pooling)ranks_by;
    c->raw_vectors = !normalize;
    if (c->is_reranker)
        c->pooling = c->rank_pooling;
    if (r->h.attn.bidirectional && c->pooling == POOLING_NONE)
        c->pooling = POOLING_MEAN; // as sentence-transformers
    c->positions = r->arch->traits & TRAIT_POSITIONS ? r->h.context : 0;
    c->token_types = r->arch->encoder ? config_rows(r, WEIGHT_TYPES, 1 << 16) : 0;
    c->embed_norm = (r->arch->traits & TRAIT_EMBED_NORM) != 0;
    return true;
}
