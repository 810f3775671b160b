// See folder.h.
//
// Addresses: the files lie one after the other, so that a hash of all bytes is a hash of the folder; behind them lie the
// tensors that are made as they are read.
#include "folder.h"

#include "half.h"
#include "layout.h"
#include "log.h"
#include "places.h"
#include "sentence.h"
#include "vocab.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_SMALL = 16 << 20,  // bytes of a configuration or template
    MAX_VOCAB = 256 << 20, // of tokenizer.json
};

struct folder {
    struct model_file file; // first: they are one object
    struct hf_files files;
    struct hf_keys keys;
    struct hf_config config;
    struct hf_shards shards;
    struct hf_layout layout;
};

// ---- reading

static const char *read_folder(const struct model_file *f, uint64_t at, uint64_t bytes, void *dst,
                               uint64_t *stopped) {
    const struct folder *d = (const struct folder *)f;
    if (at < f->size)
        return hf_files_read(&d->files, at, bytes, dst, stopped);
    const struct hf_recipe *p = hf_layout_find(&d->layout, at);
    return hf_recipe_read(&d->files, &d->config, p, at - p->start, bytes, dst, stopped);
}

// The file that holds byte *at, which becomes an offset in it. A made tensor's byte maps to the byte that it comes
// from.
static const char *place_in_folder(const struct model_file *f, uint64_t *at) {
    const struct folder *d = (const struct folder *)f;
    if (*at >= f->size && d->layout.num) {
        const struct hf_recipe *p = hf_layout_find(&d->layout, *at);
        *at = hf_recipe_origin(&d->config, p, *at - p->start);
    }
    const struct hf_file *file = hf_files_at(&d->files, *at);
    *at -= file->start;
    return file->name;
}

static bool label_in_folder(const struct model_file *f, const char *name, char *buf, size_t size) {
    return hf_place_label(((const struct folder *)f)->config.family, name, buf, size);
}

static int descriptor_in_folder(const struct model_file *f, int i) {
    const struct hf_files *files = &((const struct folder *)f)->files;
    return i < files->num ? files->items[i].fd : -1;
}

static void close_folder(struct model_file *f) {
    struct folder *d = (struct folder *)f;
    hf_shards_free(&d->shards);
    hf_files_close(&d->files);
    hf_keys_free(&d->keys);
    free(d->layout.recipes);
    free(d);
}

// ---- opening

// The text of a file, where there is one. *own is the caller's.
static bool read_text(struct folder *d, const char *name, uint64_t max, char **own, struct text_view *text,
                      struct err *err) {
    struct err missing = {0};
    const struct hf_file *f = hf_files_add(&d->files, name, false, &missing);
    if (missing.code)
        return err_set(err, missing.code, "%s", missing.msg) == STATUS_OK;
    if (f && f->size > max)
        return err_set(err, STATUS_FORMAT, "%s is too long", name) == STATUS_OK;
    if (f && !(*own = hf_files_text(&d->files, f, 0, f->size, err)))
        return false;
    *text = (struct text_view){*own, f ? (size_t)f->size : 0};
    return true;
}

// Tokenizers by their files, from the one that goes first; those behind the first three are not read.
static const char *const tokenizers[] = {
    "tokenizer.json", "tokenizer.model", "tiktoken.model",          "spiece.model",
    "spm.model",      "qwen.tiktoken",   "sentencepiece.bpe.model", "vocab.json"};
enum { NUM_TOKENIZERS = sizeof tokenizers / sizeof *tokenizers };

// Which of them the folder has; the first where it has none. -1: one that is not read, and err.
static int find_tokenizer(const struct folder *d, struct err *err) {
    int i = 0;
    while (i < NUM_TOKENIZERS && faccessat(d->files.dir, tokenizers[i], F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        i++;
    if (i < 3 || i == NUM_TOKENIZERS)
        return i % NUM_TOKENIZERS;
    err_set(err, STATUS_FORMAT,
            "%s: tokenizer.json is missing, and %s is not read; transformers writes one: "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)",
            d->file.name, tokenizers[i]);
    return -1;
}

// Reads the configuration and the vocabulary, before the weights.
static bool read_keys(struct folder *d, struct err *err) {
    enum {
        CONFIG,
        GENERATION,
        TOKENIZER,
        TOKENIZER_CONFIG,
        SPECIAL_MAP,
        QUANTIZATION,
        TEMPLATE,
        ADDED,
        NUM_TEXTS
    };
    static const struct {
        const char *name;
        bool required;
        uint64_t max;
    } texts[NUM_TEXTS] = {{"config.json", true, MAX_SMALL},
                          {"generation_config.json", false, MAX_SMALL},
                          {"tokenizer.json", true, MAX_VOCAB},
                          {"tokenizer_config.json", false, MAX_SMALL},
                          {"special_tokens_map.json", false, MAX_SMALL},
                          {"hf_quant_config.json", false, MAX_SMALL},
                          {"chat_template.json", false, MAX_SMALL},
                          {"added_tokens.json", false, MAX_SMALL}};
    struct jdoc j[NUM_TEXTS] = {{.num = 0}};
    char *template = NULL, *tool_template = NULL, *vocabulary = NULL;
    struct text_view vocab = {NULL, 0};
    int kind = find_tokenizer(d, err);
    bool ok = kind >= 0;
    for (int i = 0; ok && i < NUM_TEXTS; i++)
        if ((i != TOKENIZER || kind == 0) && (i != ADDED || kind > 0))
            ok = hf_files_json(&d->files, texts[i].name, texts[i].required, texts[i].max, &j[i], err);
    if (ok && kind > 0) {
        hf_files_name(&d->files, tokenizers[kind], j[TOKENIZER].name);
        ok = read_text(d, tokenizers[kind], MAX_SMALL, &vocabulary, &vocab, err);
    }
    ok = ok && hf_config_read(&j[CONFIG], j[GENERATION].num ? &j[GENERATION] : NULL,
                              j[QUANTIZATION].num ? &j[QUANTIZATION] : NULL, &d->keys, &d->config,
                              err) == STATUS_OK;
    ok = ok && hf_sentence_read(&d->files, &j[CONFIG], &j[TOKENIZER], &j[TOKENIZER_CONFIG], &d->keys,
                                &d->config, err);
    struct hf_vocab_files files = {.tokenizer = &j[TOKENIZER],
                                   .config = j[TOKENIZER_CONFIG].num ? &j[TOKENIZER_CONFIG] : NULL,
                                   .special_map = j[SPECIAL_MAP].num ? &j[SPECIAL_MAP] : NULL,
                                   .template_json = j[TEMPLATE].num ? &j[TEMPLATE] : NULL,
                                   .added = j[ADDED].num ? &j[ADDED] : NULL};
    *(kind == 1 ? &files.spm : &files.tiktoken) = vocab;
    ok = ok && read_text(d, "chat_template.jinja", MAX_SMALL, &template, &files.chat_template, err) &&
         read_text(d, "additional_chat_templates/tool_use.jinja", MAX_SMALL, &tool_template,
                   &files.tool_template, err);
    ok = ok &&
         hf_vocab_read(&files, d->config.eos, d->config.num_eos, d->config.vocab, &d->keys, err) == STATUS_OK;
    for (int i = 0; i < NUM_TEXTS; i++)
        jdoc_free(&j[i]);
    free(template);
    free(tool_template);
    free(vocabulary);
    return ok;
}

// The number that a tensor is. false: err.
static bool read_scalar(const struct folder *d, const struct hf_source *s, float *v, struct err *err) {
    const struct st_tensor *t = s->tensor;
    bool wide = t->type == ST_F32, half = t->type == ST_F16;
    uint64_t stopped;
    uint16_t h;
    const char *why = "it is no number of F32, F16 or BF16";
    if ((wide || half || t->type == ST_BF16) && t->bytes == (wide ? sizeof *v : sizeof h))
        why = hf_files_read(&d->files, s->address, t->bytes, wide ? (void *)v : &h, &stopped);
    if (why)
        return hf_files_bad(&d->files, err, "tensor %.*s: %s", (int)(t->name.len < 96 ? t->name.len : 96),
                            t->name.data, why) == STATUS_OK;
    if (!wide)
        *v = half ? half_to_float(h) : bf16_to_float(h);
    return true;
}

// xIELU's parameters are tensors of a number each, and keys in GGUF files.
static bool read_xielu(struct folder *d, struct err *err) {
    static const struct {
        const char *name, *key;
        float usual; // of files without; NAN: all have it
    } parts[] = {{"alpha_p", "xielu.alpha_p", NAN},
                 {"alpha_n", "xielu.alpha_n", NAN},
                 {"beta", "xielu.beta", 0.5f},
                 {"eps", "xielu.eps", -1e-6f}};
    const char *act = d->config.family->act;
    for (size_t p = 0; act && strcmp(act, "xielu") == 0 && p < sizeof parts / sizeof *parts; p++) {
        float *v = hf_alloc(&d->keys, (size_t)d->config.layers * sizeof *v);
        for (int64_t i = 0; v && i < d->config.layers; i++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%lld.mlp.act_fn.%s", (long long)i, parts[p].name);
            const struct hf_source *s = hf_shards_find(&d->shards, view_of(name));
            v[i] = parts[p].usual;
            if (s ? !read_scalar(d, s, &v[i], err) : isnan(v[i]))
                return s ? false : hf_files_bad(&d->files, err, "tensor %s is missing", name) == STATUS_OK;
        }
        hf_array(&d->keys, parts[p].key, META_F32, (uint64_t)d->config.layers, v, NULL);
    }
    return true;
}

// The folder's own name, for people.
static void add_name(struct folder *d) {
    char real[PATH_MAX];
    const char *name = realpath(d->files.path, real) ? strrchr(real, '/') : NULL;
    hf_str(&d->keys, "general.name", view_of(name ? name + 1 : d->files.path), NULL);
}

static bool fill(struct folder *d, struct err *err) {
    add_name(d);
    bool ok = read_keys(d, err) && hf_shards_read(&d->shards, &d->files, d->config.dense, err);
    d->file.size = d->files.size;
    ok = ok && read_xielu(d, err);
    if (!ok || !hf_layout_make(&d->layout, &d->file, &d->shards, &d->config, &d->keys, err))
        return false;
    if (d->keys.failed)
        return err_set(err, STATUS_NOMEM, "%s: out of memory", d->file.name) == STATUS_OK;
    memcpy(d->file.meta, d->keys.items, d->keys.num * sizeof *d->keys.items);
    for (uint64_t i = 0; i < d->keys.num; i++)
        if (!model_file_add_meta(&d->file, i)) {
            const struct meta *m = &d->file.meta[i];
            return hf_files_bad(&d->files, err, "key %s of config.json says what another one says",
                                m->label ? m->label : m->key.data) == STATUS_OK;
        }
    snprintf(d->file.format, sizeof d->file.format, "folder of %d files", d->files.num);
    return true;
}

struct model_file *folder_open(const char *path, struct err *err) {
    static const struct model_file_ops ops = {read_folder, place_in_folder, close_folder, label_in_folder,
                                              descriptor_in_folder};
    struct err local = {0};
    struct folder *d = calloc(1, sizeof *d);
    err = err ? err : &local;
    if (!d) {
        err_set(err, STATUS_NOMEM, "out of memory for a folder");
        return NULL;
    }
    enum status st = model_file_init(&d->file, path, err);
    d->file.ops = &ops;
    if (st == STATUS_OK && hf_files_open(&d->files, path, d->file.name, err) == STATUS_OK && fill(d, err))
        return &d->file;
    model_file_close(&d->file);
    return NULL;
}
