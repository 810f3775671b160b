// See config.h. Keys have their meaning in transformers 4.57 (configuration_*.py, modeling_rope_utils.py).
#include "config.h"

#include "models/architectures.h"
#include "reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- which family, and keys that none knows

// Layers of experts have names of their own in some families; and some have encoders.
static void find_variant(struct hf_reader *r) {
    const struct hf_family *f = r->c->family;
    const struct jdoc_value *experts = jdoc_get(r->j, r->text, "num_local_experts"),
                            *both = jdoc_get(r->j, r->text, "use_bidirectional_attention");
    int64_t n = 0;
    if (!experts)
        experts = jdoc_get(r->j, r->text, "n_routed_experts");
    if (!experts)
        experts = jdoc_get(r->j, r->text, "moe_every_n_layers");
    bool some = jdoc_integer(r->j, experts, &n) && n > 0;
    if (f->of_experts && (hf_count_parts(r, &some) > 0 || some) && some)
        r->c->family = f->of_experts;
    const struct jdoc_value *classes = jdoc_get(r->j, r->text, "architectures");
    if (f->of_code && classes && classes->type == JDOC_ARRAY && classes->len > 0 &&
        jdoc_is(r->j, jdoc_first(r->j, classes), f->code))
        r->c->family = f->of_code;
    if (f->of_both && both && both->type == JDOC_TRUE)
        r->c->family = f->of_both;
}

static bool read_family(struct hf_reader *r) {
    const struct jdoc_value *type = jdoc_get(r->j, r->text, "model_type");
    if (!type || type->type != JDOC_STRING) {
        jdoc_bad(r->j, r->err, "key model_type is %s, expected a string", jdoc_type_name(type));
        return false;
    }
    r->c->family = hf_family_find(jdoc_text(r->j, type));
    if (!r->c->family) {
        char known[800] = "";
        for (int i = 0; hf_family_at(i); i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                     hf_family_at(i)->model_type);
        jdoc_bad(r->j, r->err, "model_type '%.*s' is not supported yet%s; supported: %s",
                 (int)(type->len < 48 ? type->len : 48), r->j->text + type->at,
                 arch_lacks(r->j->text + type->at, type->len), known);
        return false;
    }
    find_variant(r);
    const char *defaults = r->c->family->defaults;
    char *copy = defaults ? malloc(strlen(defaults) + 1) : NULL;
    if (!copy)
        return !defaults || err_set(r->err, STATUS_NOMEM, "out of memory for config.json") == STATUS_OK;
    strcpy(copy, defaults);
    return jdoc_parse(&r->defaults, "defaults", copy, strlen(defaults), r->err) == STATUS_OK;
}

// Whether a value is the one that there must be.
static bool is_only(const struct jdoc *j, const struct jdoc_value *v, const char *only) {
    if (v->type == JDOC_NUMBER)
        return jdoc_number(j, v) == strtod(only, NULL);
    if (v->type == JDOC_STRING)
        return jdoc_is(j, v, only);
    return strcmp(only, v->type == JDOC_TRUE                   ? "true"
                        : v->type == JDOC_FALSE                ? "false"
                        : v->type == JDOC_ARRAY && v->len == 0 ? "[]"
                        : v->type == JDOC_NULL                 ? "null"
                                                               : "") == 0;
}

// Keys with one value that Quire computes, where config.json is silent and transformers takes another.
static bool check_absent(const struct hf_reader *r) {
    const struct hf_key *k;
    for (int i = 0; (k = hf_key_at(r->c->family, i)); i++) {
        struct hf_found f = hf_find_key(r, k->theirs);
        if (k->type != HF_ONLY || f.j == r->j || !f.v || is_only(f.j, f.v, k->ours))
            continue;
        jdoc_bad(r->j, r->err, "key %s is missing, expected %s", k->theirs, k->ours);
        return false;
    }
    return true;
}

static bool check_keys(const struct hf_reader *r) {
    // Its text alone is causal, whatever the file says: only the prefix of an image is not
    bool pali = jdoc_is(r->j, jdoc_get(r->j, r->root, "model_type"), "paligemma");
    JDOC_EACH_KEY(r->j, key, r->text) {
        struct text_view name = jdoc_text(r->j, key);
        const struct hf_key *known = hf_key_find(r->c->family, name);
        if (known && known->type == HF_ONLY && !is_only(r->j, key + 1, known->ours))
            return hf_refuse_value(r, known->theirs, (struct hf_found){.j = r->j, .v = key + 1}, known->ours);
        if (known || (pali && jdoc_is(r->j, key, "use_bidirectional_attention")) ||
            hf_is_neutral(r->j, key + 1) || !hf_key_is_suspect(name))
            continue;
        jdoc_bad(r->j, r->err,
                 "key %.*s at byte %u: Quire does not know how to compute that for model_type %s",
                 (int)(name.len < 96 ? name.len : 96), name.data, key->at, r->c->family->model_type);
        return false;
    }
    return check_absent(r);
}

static bool check_activation(const struct hf_reader *r) {
    const char *expected = r->c->family->act ? r->c->family->act : "silu", *key = "hidden_activation";
    struct hf_found f = hf_find_key(r, key);
    if (!f.v)
        f = hf_find_key(r, key = "hidden_act");
    // Gemma's first files say gelu and mean its approximation.
    bool gemma = strcmp(r->c->family->model_type, "gemma") == 0;
    if (!f.v || jdoc_is(f.j, f.v, expected) || (gemma && jdoc_is(f.j, f.v, "gelu")))
        return true;
    return hf_refuse_value(r, key, f, expected);
}

// ---- sizes

// Keys that mean what ours mean.
static bool read_plain(const struct hf_reader *r) {
    const struct hf_key *k;
    for (int i = 0; (k = hf_key_at(r->c->family, i)); i++) {
        int64_t n = -1;
        double d = NAN;
        const struct hf_key *own = hf_key_find(r->c->family, view_of(k->theirs));
        bool no_state = r->c->state_heads == 0 && k->ours && strncmp(k->ours, "ssm.", 4) == 0;
        bool no_group = r->c->ungrouped && k->ours && strncmp(k->ours, "expert_group", 12) == 0;
        if (k != own || !k->ours || k->type == HF_ONLY || no_state || no_group)
            continue;
        struct hf_found f = hf_find_key(r, k->theirs);
        const char *label = f.key && f.v ? f.key : k->theirs;
        if (k->type == HF_BOOL) {
            bool flag = false;
            if (!hf_read_flag(r, k->theirs, &flag))
                return false;
            if (f.v || f.null)
                hf_bool(r->keys, hf_our_key(r, k->ours), flag, label);
            continue;
        }
        if (k->type == HF_INT ? !hf_read_size(r, k->theirs, false, &n) : !hf_read_number(r, k->theirs, &d))
            return false;
        // null is off: said as 0, or the architecture's own default would be taken
        if (k->type == HF_INT && (n >= 0 || f.null))
            hf_add_int(r, k->ours, f.null ? 0 : n, label);
        if (k->type == HF_FLOAT && (!isnan(d) || f.null))
            hf_add_float(r, k->ours, f.null ? 0 : d, label);
    }
    return true;
}

// Falcon's first form has one head for all queries, or one for each.
static bool read_kv_heads(const struct hf_reader *r) {
    bool one = true, grouped = false;
    if (!hf_key_find(r->c->family, view_of("multi_query")))
        return hf_read_size(r, "num_key_value_heads", false, &r->c->kv_heads);
    if (!hf_read_flag(r, "multi_query", &one) || !hf_read_flag(r, "new_decoder_architecture", &grouped) ||
        !hf_read_size(r, "num_kv_heads", false, &r->c->kv_heads))
        return false;
    if (!grouped)
        r->c->kv_heads = one ? 1 : r->c->heads;
    return true;
}

static bool read_sizes(const struct hf_reader *r) {
    struct hf_config *c = r->c;
    int64_t ffn = 0;
    bool experts, needs_ffn = !c->family->four_times &&
                              !hf_key_find(c->family, view_of("moe_intermediate_size")) &&
                              !hf_key_find(c->family, view_of("block_configs")) &&
                              !hf_key_find(c->family, view_of("moe_ffn_hidden_size"));
    c->layers = hf_count_parts(r, &experts);
    if ((c->layers == 0 && !hf_read_size(r, "num_hidden_layers", true, &c->layers)) ||
        !hf_read_size(r, "hidden_size", true, &c->hidden) ||
        !hf_read_size(r, "num_attention_heads", true, &c->heads) ||
        !hf_read_size(r, "intermediate_size", needs_ffn, &ffn) ||
        !hf_read_size(r, "max_position_embeddings", true, &c->context) ||
        !hf_read_size(r, "vocab_size", false, &c->vocab))
        return false;
    if (c->family->positions_behind_pad) {
        if (!hf_read_size(r, "pad_token_id", true, &c->skipped_positions))
            return false;
        c->context -= ++c->skipped_positions;
    }
    c->kv_heads = c->heads;
    if (!read_kv_heads(r))
        return false;
    c->head_dim = c->heads ? c->hidden / c->heads : 0;
    if (!hf_read_size(r, "head_dim", false, &c->head_dim))
        return false;
    if (c->heads < 1 || c->kv_heads < 1 || c->head_dim < 1 || c->layers < 1 || c->context < 1) {
        jdoc_bad(r->j, r->err,
                 "%lld layers, %lld heads of %lld, %lld of keys, %lld positions: expected at least 1",
                 (long long)c->layers, (long long)c->heads, (long long)c->head_dim, (long long)c->kv_heads,
                 (long long)c->context);
        return false;
    }
    hf_add_int(r, "block_count", c->layers, "num_hidden_layers");
    if (c->family->four_times)
        hf_add_int(r, "feed_forward_length", ffn > 0 ? ffn : 4 * c->hidden, "intermediate_size");
    if (hf_key_find(c->family, view_of("global_head_dim"))) {
        c->window_dim = c->head_dim;
        if (!hf_read_size(r, "global_head_dim", false, &c->head_dim) ||
            !hf_read_overrides(r, &c->head_dim, &c->full_kv_heads))
            return false;
        hf_add_int(r, "attention.key_length_swa", c->window_dim, "head_dim");
        hf_add_int(r, "attention.value_length_swa", c->window_dim, "head_dim");
    }
    int64_t value = c->head_dim;                               // of MiniCPM 3, too: hidden / heads
    if (hf_key_find(c->family, view_of("qk_nope_head_dim"))) { // latent: what is not rotated, and what is
        int64_t nope = 0;
        if (!hf_read_size(r, "qk_nope_head_dim", true, &nope) ||
            !hf_read_size(r, "qk_rope_head_dim", true, &c->rope_dim) ||
            !hf_read_size(r, "v_head_dim", hf_key_find(c->family, view_of("v_head_dim")), &value))
            return false;
        c->head_dim = nope + c->rope_dim;
    }
    hf_add_int(r, "attention.key_length", c->head_dim, "head_dim");
    hf_add_int(r, "attention.value_length", value, "v_head_dim");
    return true;
}

// Factors that are worked out from several keys, each where its key is there.
static bool read_scales(const struct hf_reader *r) {
    const struct hf_config *c = r->c;
    double query = 0, depth = 0, base = 0;
    const struct hf_key *scale_depth = hf_key_find(c->family, view_of("scale_depth")),
                        *pre_attn = hf_key_find(c->family, view_of("query_pre_attn_scalar"));
    if (pre_attn && pre_attn->type == HF_FLOAT && // Gemma 3n's files say it, and its code does not
        !hf_read_number(r, "query_pre_attn_scalar", &query))
        return false;
    if (scale_depth && scale_depth->type != HF_ONLY && // MiniCPM 3's are the architecture's
        (!hf_read_number(r, "scale_depth", &depth) || !hf_read_number(r, "dim_model_base", &base)))
        return false;
    bool mup = false; // AFMoE's embeddings are multiplied by sqrt(D)
    if (hf_key_find(c->family, view_of("mup_enabled"))) {
        if (!hf_read_flag(r, "mup_enabled", &mup))
            return false;
        hf_add_float(r, "embedding_scale", mup ? sqrt((double)c->hidden) : 1, "mup_enabled");
    }
    if (query > 0)
        hf_add_float(r, "attention.scale", (double)(1.0f / sqrtf((float)query)), "query_pre_attn_scalar");
    if (depth > 0)
        hf_add_float(r, "residual_scale", depth / sqrt((double)c->layers), "scale_depth");
    if (base > 0)
        hf_add_float(r, "logit_scale", (double)c->hidden / base, "dim_model_base");
    return true;
}

// ---- how to generate

static void read_eos(const struct jdoc *j, const struct jdoc_value *v, struct hf_config *c) {
    int64_t id;
    if (jdoc_integer(j, v, &id) && id >= 0 && c->num_eos < HF_MAX_EOS)
        c->eos[c->num_eos++] = id;
    if (v && v->type == JDOC_ARRAY)
        JDOC_EACH(j, e, v)
    if (jdoc_integer(j, e, &id) && id >= 0 && c->num_eos < HF_MAX_EOS)
        c->eos[c->num_eos++] = id;
}

static void read_generation(struct hf_reader *r, const struct jdoc *g) {
    static const char *const names[][2] = {{"temperature", "general.sampling.temp"},
                                           {"top_p", "general.sampling.top_p"},
                                           {"min_p", "general.sampling.min_p"},
                                           {"repetition_penalty", "general.sampling.penalty_repeat"}};
    const struct jdoc_value *root = g ? g->values : NULL;
    int64_t top_k;
    if (g)
        read_eos(g, jdoc_get(g, root, "eos_token_id"), r->c);
    if (r->c->num_eos == 0)
        read_eos(r->j, jdoc_get(r->j, r->text, "eos_token_id"), r->c);
    if (r->c->num_eos == 0)
        read_eos(r->j, jdoc_get(r->j, r->root, "eos_token_id"), r->c);
    for (size_t i = 0; g && i < sizeof names / sizeof *names; i++) {
        double v = jdoc_number(g, jdoc_get(g, root, names[i][0]));
        if (isfinite(v))
            hf_float(r->keys, names[i][1], v, names[i][0]);
    }
    if (g && jdoc_integer(g, jdoc_get(g, root, "top_k"), &top_k) && top_k >= 0)
        hf_int(r->keys, "general.sampling.top_k", top_k, "top_k");
}

static bool read_all(struct hf_reader *r, const struct jdoc *generation, const struct jdoc *modelopt) {
    const struct jdoc_value *root = r->root;
    if (root->type != JDOC_OBJECT) {
        jdoc_bad(r->j, r->err, "the text is %s, expected an object", jdoc_type_name(root));
        return false;
    }
    const struct jdoc_value *text = jdoc_get(r->j, root, "text_config");
    r->text = text ? text : root;
    if (!read_family(r))
        return false;
    r->c->arch = r->c->family->arch;
    for (int i = 0; i < NUM_FACTORS; i++)
        r->c->factors[i] = 1;
    for (int i = 0; i < HF_STATE_PARTS; i++)
        r->c->state_factors[i] = 1;
    if (!hf_read_quantization(r, modelopt) || !check_keys(r) || !check_activation(r) || !read_sizes(r) ||
        !read_scales(r) || !hf_read_layers(r) || !hf_read_rope(r))
        return false;
    hf_str(r->keys, "general.architecture", view_of(r->c->arch), "model_type");
    struct hf_found tied = hf_found_in(r->j, r->text, "tie_word_embeddings");
    if (!tied.v && !tied.null)
        tied = hf_found_in(r->j, root, "tie_word_embeddings");
    if (!tied.v && !tied.null)
        tied = hf_find_key(r, hf_find_key(r, "tie_embedding").v ? "tie_embedding" : "tie_word_embeddings");
    r->c->tied = tied.v && tied.v->type == JDOC_TRUE;
    if (r->c->tied && r->c->factors[FACTOR_EMBED] != r->c->factors[FACTOR_HEAD])
        return hf_refuse_value(r, "tie_word_embeddings", tied,
                               "false where embedding_multiplier and lm_head_multiplier differ");
    const struct arch *a = arch_find(r->c->arch, strlen(r->c->arch));
    if (r->c->family->act && arch_may_have(a, H_ACT))
        hf_str(r->keys, hf_our_key(r, "hidden_activation"), view_of(r->c->family->act), "hidden_act");
    if (!read_plain(r))
        return false;
    bool causal = true; // of decoders that were trained on as embedders
    if (!hf_read_flag(r, "is_causal", &causal))
        return false;
    if (!causal)
        hf_bool(r->keys, hf_our_key(r, "attention.causal"), false, "is_causal");
    read_generation(r, generation);
    return true;
}

enum status hf_config_read(const struct jdoc *config, const struct jdoc *generation,
                           const struct jdoc *modelopt, struct hf_keys *keys, struct hf_config *c,
                           struct err *err) {
    struct err local = {0};
    struct hf_reader r = {
        .j = config, .root = config->values, .keys = keys, .c = c, .err = err ? err : &local};
    *c = (struct hf_config){.family = NULL};
    bool ok = read_all(&r, generation, modelopt);
    jdoc_free(&r.defaults);
    if (ok && keys->failed)
        return err_set(r.err, STATUS_NOMEM, "%s: out of memory", config->name);
    return ok ? STATUS_OK : r.err->code;
}
