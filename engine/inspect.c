// `quire inspect`: a model file as lines for a person. Whatever a file holds, a line is printable: control
// characters come out as \xNN, so that a model cannot write escape sequences to a terminal.
#include "engine.h"
#include "models/model_config.h"
#include "models/mtp.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

#include <string.h>

struct out {
    void (*line)(void *arg, const char *text);
    void *arg;
};

__attribute__((format(printf, 2, 3))) static void say(const struct out *o, const char *fmt, ...) {
    char text[512], safe[4 * sizeof text];
    size_t n = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f)
            n += (size_t)snprintf(safe + n, sizeof safe - n, "\\x%02x", c);
        else
            safe[n++] = (char)c;
    }
    safe[n] = 0;
    o->line(o->arg, safe);
}

static const char *size_text(double bytes, char buf[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(buf, 32, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return buf;
}

// Layers without a window have one of 0.
static void window_text(const struct model_config *c, char *text, size_t size) {
    int window = 0, num = 0, all = 0;
    const char *what = "window";
    for (int l = 0; l < c->num_layers; l++) {
        const struct attn_spec *a = model_attn(c, l);
        all += a != NULL;
        if (a && a->window > 0) {
            window = a->window;
            what = a->chunked ? "chunks" : "window";
            num++;
        }
    }
    if (num == 0)
        snprintf(text, size, "whole context");
    else if (num == all)
        snprintf(text, size, "%s of %d tokens", what, window);
    else
        snprintf(text, size, "%s of %d tokens in %d of %d layers", what, window, num, all);
}

static void say_recurrent(const struct out *o, const struct model_config *c) {
    static const char *const kinds[] = {
        [MIX_CONV] = "short convolution", [MIX_DELTA] = "gated delta net", [MIX_SSM] = "Mamba 2"};
    const struct mix_spec *m = &c->mix[0];
    char heads[96] = "", state[32];
    int num = 0;
    for (int l = 0; l < c->num_layers; l++)
        num += model_mix(c, l) != NULL;
    if (num == 0)
        return;
    if (m->kind != MIX_CONV)
        snprintf(heads, sizeof heads, ", %d heads of %d by %d in %d groups", m->heads, m->key_dim,
                 m->head_dim, m->groups);
    say(o, "recurrent:      %d of %d layers, %s over %d tokens%s, state of %s each", num, c->num_layers,
        kinds[m->kind], m->taps, heads, size_text((double)mix_state_size(m) * sizeof(float), state));
}

// One line for each kind of feed-forward part; where there are two, with the number of layers.
static void say_ffn(const struct out *o, const struct model_config *c, const struct ffn_spec *f) {
    static const char *const gatings[] = {[GATING_SOFTMAX] = "softmax",
                                          [GATING_SOFTMAX_CHOSEN] = "softmax of those",
                                          [GATING_SIGMOID] = "sigmoid",
                                          [GATING_IN_TURN] = "softmax in turn"};
    char layers[64] = "", shared[64] = "", groups[64] = "", latent[48] = "";
    int num = 0;
    for (int l = 0; l < c->num_layers; l++)
        num += model_ffn(c, l)->index == f->index;
    if (num < c->num_layers)
        snprintf(layers, sizeof layers, " in %d of %d layers", num, c->num_layers);
    if (f->experts > 0 && f->shared_hidden > 0)
        snprintf(shared, sizeof shared, ", and one of %d for all%s", f->shared_hidden,
                 f->shared_gate ? " with a gate" : "");
    if (f->experts > 0 && f->groups > 1)
        snprintf(groups, sizeof groups, " in %d of %d groups", f->top_groups, f->groups);
    if (f->latent > 0)
        snprintf(latent, sizeof latent, " between latents of %d", f->latent);
    if (f->hidden == 0)
        return;
    if (f->experts == 0)
        say(o, "feed-forward:   %d%s%s", f->hidden, f->sparse ? ", sparse gates" : "", layers);
    else
        say(o, "feed-forward:   %d of %d experts of %d%s%s, by %s%s%s", f->top_k, f->experts, f->hidden,
            latent, groups, gatings[f->gating], shared, layers);
}

static void say_config(const struct out *o, const struct model_config *c) {
    static const char *const scalings[] = {"none", "linear", "yarn", "llama3"};
    const struct attn_spec *a = &c->attn[0];
    say(o, "layers:         %d", c->num_layers);
    say(o, "hidden size:    %d", c->hidden);
    const bool attends = c->kv_layers > 0;
    if (a->kind == ATTN_LATENT)
        say(o, "heads:          %d of %d, with values of %d; a latent of %d and a key of %d for all",
            a->heads, a->nope_dim + a->rope_dim, a->v_dim, a->kv_lora, a->rope_dim);
    else if (attends)
        say(o, "heads:          %d of %d, %d for keys and values", a->heads, a->head_dim, a->kv_heads);
    for (int i = 0; i < c->num_ffn; i++)
        say_ffn(o, c, &c->ffn[i]);
    if (c->altup_streams > 0)
        say(o, "streams:        %d (AltUp), LAuReL of rank %d", c->altup_streams, c->laurel_rank);
    say(o, "vocabulary:     %d%s", c->vocab, c->tied ? ", the head is the embedding" : "");
    say(o, "context:        %d tokens", c->max_context);
    say(o, "norm epsilon:   %g", (double)c->norm_eps);
    char window[64];
    window_text(c, window, sizeof window);
    if (attends)
        say(o, "attention:      %s, scale %g%s%s%s", window, (double)a->scale,
            a->qk_norm ? ", norm of q and k" : "", a->qkv_bias ? ", biases of q, k and v" : "",
            a->out_bias ? ", bias of the output" : "");
    say_recurrent(o, c);
    bool rotates = false;
    for (int i = 0; i < c->num_attn; i++)
        rotates |= c->attn[i].rope >= 0;
    if (!rotates) {
        say(o, "rope:           none");
        return;
    }
    const struct rope_config *r = &c->ropes[0];
    char scaling[64] = "";
    if (r->scaling == ROPE_LINEAR)
        snprintf(scaling, sizeof scaling, ", linear scaling by %g", (double)r->factor);
    else if (r->scaling != ROPE_NONE)
        snprintf(scaling, sizeof scaling, ", %s scaling by %g from %d tokens", scalings[r->scaling],
                 (double)r->factor, r->original_context);
    say(o, "rope:           base %g, %d dimensions, %s pairs%s%s", (double)r->theta, r->dim,
        r->interleaved ? "adjacent" : "split", scaling, r->freq_factors ? ", frequency factors" : "");
}

// Whether the layers behind the model's, if there are any, draft.
static void say_mtp(const struct out *o, const struct model_config *c, const struct model_file *f) {
    struct model_config mtp;
    struct err err = {0};
    if (c->num_nextn == 0)
        return;
    if (mtp_config(f, c, &mtp, &err) == STATUS_OK && weights_check(&mtp, f, &err) == STATUS_OK)
        say(o, "MTP layer:      %d, drafts (--speculative-method)", c->num_layers);
    else
        say(o, "MTP layer:      none that drafts: %s", err.msg);
}

static void say_memory(const struct out *o, const struct model_config *c, uint64_t weights) {
    static const struct {
        const char *name;
        int bytes;
    } kinds[] = {{"f16", 2}, {"f32", 4}};
    char a[32], b[32];
    say(o, "weights:        %s", size_text((double)weights, a));
    for (size_t i = 0; i < 2; i++) {
        double token = 0;
        for (int l = 0; l < c->num_layers; l++) {
            const struct attn_spec *attn = model_attn(c, l);
            token += attn && !attn->shares_kv
                         ? (double)attn_kv_vectors(attn) * attn->kv_heads * attn->head_dim * kinds[i].bytes
                         : 0;
        }
        say(o, "KV cache %s:   %s a token, %s for one full context", kinds[i].name, size_text(token, a),
            size_text(token * c->max_context, b));
    }
}

// Prints the values that --tensor-parallel-size and --pipeline-parallel-size may have.
static void say_ranks(const struct out *o, const struct model_config *c, const struct model_file *f) {
    struct shard_blocks blocks;
    char sizes[32] = "";
    size_t n = 0;
    int stages = c->num_layers < COMM_MAX_WORLD ? c->num_layers : COMM_MAX_WORLD;
    weights_blocks(c, f, DTYPE_COUNT, &blocks);
    for (int w = 1; w <= COMM_MAX_SUM; w *= 2)
        if (shard_check(c, &blocks, w, NULL) == STATUS_OK)
            n += (size_t)snprintf(sizes + n, sizeof sizes - n, "%s%d", n ? ", " : "", w);
    while (stages > 1 && shard_check_stages(c, 1, stages, NULL) != STATUS_OK)
        stages--;
    say(o, "parallel sizes: tensor %s; pipeline 1 to %d; %d ranks at most", sizes, stages, COMM_MAX_WORLD);
}

static void say_tokenizer(const struct out *o, const struct model_file *f) {
    struct err err = {0};
    struct text_view model = {"none", 4};
    token_id ends[16];
    size_t len;
    if (meta_str(f, "tokenizer.ggml.model", false, 64, &model, &err)) {
        say(o, "tokenizer:      cannot be used: %s", err.msg);
        return;
    }
    struct tokenizer *t = tokenizer_load(f, &err);
    if (!t) {
        say(o, "tokenizer:      '%.*s' cannot be used: %s", (int)model.len, model.data, err.msg);
        return;
    }
    say(o, "tokenizer:      '%.*s', %d tokens, bos %d%s, eos %d", (int)model.len, model.data,
        tokenizer_vocab(t), tokenizer_bos(t), tokenizer_adds_bos(t) ? " (added)" : "", tokenizer_eos(t));
    int n = tokenizer_ends(t, ends, 16);
    for (int i = 0; i < n; i++) {
        const char *name = tokenizer_name(t, ends[i], &len);
        say(o, "ends with:      %d '%.*s'", ends[i], (int)(len < 64 ? len : 64), name);
    }
    if (tokenizer_chat_template(t, &len))
        say(o, "chat template:  %zu bytes", len);
    else
        say(o, "chat template:  none");
    tokenizer_free(t);
}

enum status model_inspect(const char *path, void (*line)(void *arg, const char *text), void *arg,
                          struct err *err) {
    struct out o = {line, arg};
    struct model_config config;
    struct err config_err = {0};
    struct text_view arch = {"unknown", 7};
    char a[32], shape[96], text[128];
    uint64_t weights = 0;
    struct model_file *f = model_file_open(path, err);
    if (!f)
        return err ? err->code : STATUS_FORMAT;
    say(&o, "file:           %s, %s, %s", f->name, size_text((double)f->size, a), f->format);
    if (f->trailing)
        say(&o, "                %zu bytes after the last tensor", f->trailing);
    struct text_view name = {"", 0};
    meta_str(f, "general.architecture", false, 64, &arch, NULL);
    meta_str(f, "general.name", false, 1 << 16, &name, NULL);
    say(&o, "architecture:   %.*s", (int)arch.len, arch.data);
    say(&o, "name:           %.*s", (int)(name.len < 128 ? name.len : 128), name.data);
    for (size_t i = 0; i < f->num_tensors; i++)
        weights += f->tensors[i].bytes; // all inside the file
    say(&o, "parameters:     %llu in %zu tensors", (unsigned long long)weights_num_params(f), f->num_tensors);
    bool known = model_config_read(f, &config, &config_err) == STATUS_OK;
    if (known)
        say_config(&o, &config);
    if (known && f->num_tensors > 0 && weights_check(&config, f, &config_err))
        known = false;
    if (known)
        say_memory(&o, &config, weights), say_mtp(&o, &config, f);
    if (known && f->num_tensors > 0)
        say_ranks(&o, &config, f);
    if (!known)
        say(&o, "cannot be served: %s", config_err.msg);
    else if (f->num_tensors == 0)
        say(&o, "cannot be served: the file has no tensors");
    say_tokenizer(&o, f);
    say(&o, "keys:           %zu", f->num_meta);
    for (size_t i = 0; i < f->num_meta; i++) {
        const struct meta *kv = &f->meta[i];
        say(&o, "  %.*s = %s", (int)(kv->key.len < 128 ? kv->key.len : 128), kv->key.data,
            meta_text(kv, text, sizeof text));
    }
    say(&o, "tensors:        %zu", f->num_tensors);
    for (size_t i = 0; i < f->num_tensors; i++) {
        const struct model_tensor *t = &f->tensors[i];
        size_t n = 0;
        for (int d = 0; d < t->view.ndim && n < sizeof shape; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", d ? ", " : "",
                                  (long long)t->view.shape[d]);
        say(&o, "  %-32.*s %-8s (%s) at %llu", (int)t->name.len, t->name.data, t->type_name, shape,
            (unsigned long long)t->offset);
    }
    model_file_close(f);
    return STATUS_OK;
}
