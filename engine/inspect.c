// `quire inspect`: a model file as lines for a person. Whatever a file holds, a line is printable: control
// characters come out as \xNN, so that a model cannot write escape sequences to a terminal.
#include "engine.h"
#include "model_config.h"
#include "tokenizer_gguf.h"
#include "weights.h"

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

static void say_config(const struct out *o, const struct model_config *c) {
    static const char *const scalings[] = {"none", "linear", "yarn", "llama3"};
    say(o, "layers:         %d", c->num_layers);
    say(o, "hidden size:    %d", c->hidden);
    say(o, "heads:          %d of %d, %d for keys and values", c->num_heads, c->head_dim, c->num_kv_heads);
    say(o, "feed-forward:   %d", c->ffn);
    say(o, "vocabulary:     %d%s", c->vocab, c->tied ? ", the head is the embedding" : "");
    say(o, "context:        %d tokens", c->max_context);
    say(o, "norm epsilon:   %g", (double)c->norm_eps);
    char window[32] = "whole context";
    if (c->window > 0)
        snprintf(window, sizeof window, "window of %d tokens", c->window);
    say(o, "attention:      %s, scale %g%s%s%s", window, (double)c->attn_scale,
        c->qk_norm ? ", norm of q and k" : "", c->qkv_bias ? ", biases of q, k and v" : "",
        c->out_bias ? ", bias of the output" : "");
    const struct rope_config *r = &c->rope;
    char scaling[64] = "";
    if (r->scaling == ROPE_LINEAR)
        snprintf(scaling, sizeof scaling, ", linear scaling by %g", (double)r->factor);
    else if (r->scaling != ROPE_NONE)
        snprintf(scaling, sizeof scaling, ", %s scaling by %g from %d tokens", scalings[r->scaling],
                 (double)r->factor, r->original_context);
    say(o, "rope:           base %g, %d dimensions, %s pairs%s%s", (double)r->theta, r->dim,
        r->interleaved ? "adjacent" : "split", scaling, r->freq_factors ? ", frequency factors" : "");
}

static void say_memory(const struct out *o, const struct model_config *c, uint64_t weights) {
    static const struct {
        const char *name;
        int bytes;
    } kinds[] = {{"f16", 2}, {"f32", 4}};
    char a[32], b[32];
    say(o, "weights:        %s", size_text((double)weights, a));
    for (size_t i = 0; i < 2; i++) {
        double token = 2.0 * c->num_layers * c->num_kv_heads * c->head_dim * kinds[i].bytes;
        say(o, "KV cache %s:   %s a token, %s for one full context", kinds[i].name, size_text(token, a),
            size_text(token * c->max_context, b));
    }
}

// What may follow --tensor-parallel-size and --pipeline-parallel-size.
static void say_ranks(const struct out *o, const struct model_config *c, const struct gguf *g) {
    struct shard_blocks blocks;
    char sizes[32] = "";
    size_t n = 0;
    int stages = c->num_layers < COMM_MAX_WORLD ? c->num_layers : COMM_MAX_WORLD;
    weights_blocks(c, g, DTYPE_COUNT, &blocks);
    for (int w = 1; w <= COMM_MAX_SUM; w *= 2)
        if (shard_check(c, &blocks, w, NULL) == STATUS_OK)
            n += (size_t)snprintf(sizes + n, sizeof sizes - n, "%s%d", n ? ", " : "", w);
    say(o, "parallel sizes: tensor %s; pipeline 1 to %d; %d ranks at most", sizes, stages, COMM_MAX_WORLD);
}

static void say_tokenizer(const struct out *o, const struct gguf *g) {
    struct err err = {0};
    struct gguf_str model = {"none", 4};
    token_id ends[16];
    size_t len;
    if (gguf_get_str(g, "tokenizer.ggml.model", false, 64, &model, &err)) {
        say(o, "tokenizer:      cannot be used: %s", err.msg);
        return;
    }
    struct tokenizer *t = tokenizer_from_gguf(g, &err);
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
    struct gguf_str arch = {"unknown", 7};
    char a[32], shape[96], text[128];
    uint64_t weights = 0;
    struct gguf *g = gguf_open(path, err);
    if (!g)
        return err ? err->code : STATUS_FORMAT;
    say(&o, "file:           %s, %s, GGUF version %u", gguf_name(g), size_text((double)gguf_size(g), a),
        gguf_version(g));
    if (gguf_trailing(g))
        say(&o, "                %zu bytes after the last tensor", gguf_trailing(g));
    struct gguf_str name = {"", 0};
    gguf_get_str(g, "general.architecture", false, 64, &arch, NULL);
    gguf_get_str(g, "general.name", false, 1 << 16, &name, NULL);
    say(&o, "architecture:   %.*s", (int)arch.len, arch.data);
    say(&o, "name:           %.*s", (int)(name.len < 128 ? name.len : 128), name.data);
    for (size_t i = 0; i < gguf_num_tensors(g); i++)
        weights += gguf_info_at(g, i)->bytes; // all inside the file
    say(&o, "parameters:     %llu in %zu tensors", (unsigned long long)weights_num_params(g),
        gguf_num_tensors(g));
    bool known = model_config_read(g, &config, &config_err) == STATUS_OK;
    if (known)
        say_config(&o, &config);
    if (known && gguf_num_tensors(g) > 0 && weights_check(&config, g, &config_err))
        known = false;
    if (known)
        say_memory(&o, &config, weights);
    if (known && gguf_num_tensors(g) > 0)
        say_ranks(&o, &config, g);
    if (!known)
        say(&o, "cannot be served: %s", config_err.msg);
    else if (gguf_num_tensors(g) == 0)
        say(&o, "cannot be served: the file has no tensors");
    say_tokenizer(&o, g);
    say(&o, "keys:           %zu", gguf_num_kv(g));
    for (size_t i = 0; i < gguf_num_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        say(&o, "  %.*s = %s", (int)(kv->key.len < 128 ? kv->key.len : 128), kv->key.data,
            gguf_kv_text(kv, text, sizeof text));
    }
    say(&o, "tensors:        %zu", gguf_num_tensors(g));
    for (size_t i = 0; i < gguf_num_tensors(g); i++) {
        const struct gguf_info *t = gguf_info_at(g, i);
        size_t n = 0;
        for (int d = 0; d < t->view.ndim && n < sizeof shape; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", d ? ", " : "",
                                  (long long)t->view.shape[d]);
        say(&o, "  %-32.*s %-8s (%s) at %llu", (int)t->name.len, t->name.data, t->type_name, shape,
            (unsigned long long)t->offset);
    }
    gguf_close(g);
    return STATUS_OK;
}
