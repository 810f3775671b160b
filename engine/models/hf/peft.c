// See peft.h. Keys and names are those of PEFT 0.17.
#include "peft.h"

#include "keys.h"
#include "places.h"
#include "shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 20 }; // bytes of adapter_config.json

struct module { // of a tensor
    double alpha;
    bool halves;
};

struct peft {
    struct model_file file; // first: they are one object
    struct hf_files files;
    struct hf_keys keys; // names of tensors
    struct hf_shards shards;
    struct module *modules; // (num_tensors)
    bool by_root;           // rsLoRA: alpha is divided by the square root of the rank
};

#define NAME(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

static const char *read_peft(const struct model_file *f, uint64_t at, uint64_t bytes, void *dst,
                             uint64_t *stopped) {
    return hf_files_read(&((const struct peft *)f)->files, at, bytes, dst, stopped);
}

static const char *place_in_peft(const struct model_file *f, uint64_t *at) {
    const struct hf_file *file = hf_files_at(&((const struct peft *)f)->files, *at);
    *at -= file->start;
    return file->name;
}

static void close_peft(struct model_file *f) {
    struct peft *d = (struct peft *)f;
    hf_shards_free(&d->shards);
    hf_files_close(&d->files);
    hf_keys_free(&d->keys);
    free(d->modules);
    free(d);
}

// ---- adapter_config.json

// Whether a value says nothing: false, empty, or "none".
static bool is_unset(const struct jdoc *j, const struct jdoc_value *v) {
    return !v || v->type == JDOC_FALSE || jdoc_is(j, v, "none") ||
           ((v->type == JDOC_ARRAY || v->type == JDOC_OBJECT) && v->len == 0);
}

// Variants of LoRA that compute something else, or train more than the matrices.
static bool check_config(const struct jdoc *j, struct err *err) {
    static const char *const variants[] = {
        "use_dora",          "use_qalora",        "bias",
        "lora_bias",         "modules_to_save",   "trainable_token_indices",
        "layer_replication", "target_parameters", "alora_invocation_tokens"};
    static const char *const starts[] = {"pissa", "olora", "corda"}; // change the model's own weights
    const struct jdoc_value *root = j->values, *init = jdoc_get(j, root, "init_lora_weights");
    if (!jdoc_is(j, jdoc_get(j, root, "peft_type"), "LORA"))
        return jdoc_bad(j, err, "peft_type is not \"LORA\"; other adapters are not supported yet"), false;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct jdoc_value *v = jdoc_get(j, root, variants[i]);
        if (!is_unset(j, v))
            return jdoc_bad(j, err, "%s is set at byte %u, which is not supported yet", variants[i], v->at),
                   false;
    }
    for (size_t i = 0; init && init->type == JDOC_STRING && i < sizeof starts / sizeof *starts; i++)
        if (strncmp(j->text + init->at, starts[i], strlen(starts[i])) == 0)
            return jdoc_bad(j, err,
                            "init_lora_weights is %.*s, which changes the model's own weights; save the "
                            "adapter as plain LoRA",
                            (int)init->len, j->text + init->at),
                   false;
    return true;
}

// Whether a key of alpha_pattern means this module: its whole name, or with what stands before a point.
static bool is_meant(struct text_view key, struct text_view module) {
    bool whole = key.len > 0 && key.data[0] == '^';
    key.data += whole, key.len -= whole;
    if (key.len > module.len || memcmp(module.data + module.len - key.len, key.data, key.len) != 0)
        return false;
    return key.len == module.len || (!whole && module.data[module.len - key.len - 1] == '.');
}

// PEFT takes keys for regular expressions; here they are names.
static bool is_name(struct text_view key) {
    for (size_t i = 0; i < key.len; i++) {
        char c = key.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '.' || (c == '^' && i == 0)))
            return false;
    }
    return key.len > 0;
}

static bool check_patterns(const struct jdoc *j, struct err *err) {
    const struct jdoc_value *patterns = jdoc_get(j, j->values, "alpha_pattern");
    if (patterns && patterns->type != JDOC_OBJECT)
        return jdoc_bad(j, err, "alpha_pattern is %s, expected an object", jdoc_type_name(patterns)), false;
    JDOC_EACH_KEY(j, key, patterns) {
        double alpha = jdoc_number(j, key + 1);
        if (!is_name(jdoc_text(j, key)))
            return jdoc_bad(j, err,
                            "the key '%.*s' of alpha_pattern at byte %u is a regular expression, which is "
                            "not supported yet; expected names of modules",
                            NAME(jdoc_text(j, key)), key->at),
                   false;
        if (!isfinite(alpha))
            return jdoc_bad(j, err, "the value of alpha_pattern at byte %u is no finite number", key[1].at),
                   false;
    }
    return true;
}

static double alpha_of(const struct jdoc *j, struct text_view module) {
    JDOC_EACH_KEY(j, key, jdoc_get(j, j->values, "alpha_pattern"))
    if (is_meant(jdoc_text(j, key), module))
        return jdoc_number(j, key + 1);
    return jdoc_number(j, jdoc_get(j, j->values, "lora_alpha"));
}

// ---- adapter_model.safetensors

struct places_found {
    int num;
    struct hf_place place; // the last
};

static void note_place(void *arg, const struct hf_place *place) {
    struct places_found *f = arg;
    f->num++;
    f->place = *place;
}

static bool ends_with(struct text_view *s, const char *end) {
    size_t n = strlen(end);
    if (s->len <= n || memcmp(s->data + s->len - n, end, n) != 0)
        return false;
    s->len -= n;
    return true;
}

// The family of this architecture that knows the module, and its place. NULL: none has one tensor for it whose rows are
// in an order of ours.
static const struct hf_family *find_module(const char *arch, struct text_view module,
                                           struct places_found *found) {
    const struct hf_family *f;
    for (int i = 0; (f = hf_family_at(i)); i++) {
        *found = (struct places_found){0};
        if (strcmp(f->arch, arch) != 0 || hf_places(f, module, note_place, found) != HF_TEXT)
            continue;
        const struct hf_name *n = found->place.name;
        bool rows = n->rows == ROWS_SAME || n->rows == ROWS_Q || n->rows == ROWS_K;
        return found->num == 1 && rows && n->factor == FACTOR_NONE && found->place.layer >= 0 &&
                       !strchr(n->theirs, '#')
                   ? f
                   : NULL;
    }
    return NULL;
}

static enum dtype dtype_of(enum st_type t) {
    return t == ST_F32 ? DTYPE_F32 : t == ST_F16 ? DTYPE_F16 : t == ST_BF16 ? DTYPE_BF16 : DTYPE_COUNT;
}

static bool add_tensor(struct peft *d, const struct jdoc *config, const char *arch, size_t i,
                       struct err *err) {
    static const char before[] = "base_model.model.";
    const struct hf_source *s = &d->shards.sources[i];
    const struct st_tensor *from = s->tensor;
    struct model_tensor *t = &d->file.tensors[i];
    struct text_view module = from->name;
    struct places_found found;
    bool a = ends_with(&module, ".lora_A.weight"), b = !a && ends_with(&module, ".lora_B.weight");
    size_t skip = module.len > sizeof before && memcmp(module.data, before, sizeof before - 1) == 0
                      ? sizeof before - 1
                      : 0;
    module.data += skip, module.len -= skip;
    if (!a && !b)
        return model_file_bad(&d->file, err,
                              "tensor %.*s is no lora_A.weight or lora_B.weight of a matrix in a layer; "
                              "others are not supported yet",
                              NAME(from->name)),
               false;
    const struct hf_family *f = find_module(arch, module, &found);
    if (!f)
        return model_file_bad(&d->file, err,
                              "tensor %.*s is for a part of the model, of architecture %s, that takes no "
                              "adapter",
                              NAME(from->name), arch),
               false;
    char *name = hf_text(&d->keys, "blk.%d.%s.weight.lora_%c", found.place.layer, found.place.name->ours,
                         a ? 'a' : 'b');
    if (!name)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", d->file.name), false;
    *t = (struct model_tensor){.name = view_of(name),
                               .label = from->name,
                               .type_name = st_type_name(from->type),
                               .offset = s->address,
                               .bytes = from->bytes,
                               .elements = from->bytes / st_type_bytes(from->type)};
    t->view = (struct tensor){.dtype = dtype_of(from->type), .ndim = from->ndim};
    for (int k = 0; k < from->ndim && k < TENSOR_MAX_DIMS; k++)
        t->view.shape[k] = from->shape[k];
    d->modules[i] =
        (struct module){alpha_of(config, module), b && f->adjacent && found.place.name->rows != ROWS_SAME};
    if (!model_file_add_tensor(&d->file, i))
        return model_file_bad(&d->file, err, "tensor %.*s is there twice", NAME(from->name)), false;
    return true;
}

static bool fill(struct peft *d, const char *arch, struct jdoc *config, struct err *err) {
    bool ok = hf_files_json(&d->files, "adapter_config.json", true, MAX_CONFIG, config, err) &&
              check_config(config, err) && check_patterns(config, err);
    double alpha = ok ? jdoc_number(config, jdoc_get(config, config->values, "lora_alpha")) : 0;
    if (ok && !isfinite(alpha))
        ok = jdoc_bad(config, err, "lora_alpha is missing, or no finite number") == STATUS_OK;
    ok = ok && hf_shards_add(&d->shards, &d->files, "adapter_model.safetensors", err);
    if (!ok)
        return false;
    const struct jdoc_value *root = jdoc_get(config, config->values, "use_rslora");
    d->by_root = root && root->type == JDOC_TRUE;
    d->file.size = d->files.size;
    snprintf(d->file.format, sizeof d->file.format, "PEFT folder");
    if (model_file_room(&d->file, 0, d->shards.num, err))
        return false;
    if (!(d->modules = calloc(d->shards.num + 1, sizeof *d->modules)))
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", d->file.name), false;
    for (size_t i = 0; ok && i < d->shards.num; i++)
        ok = add_tensor(d, config, arch, i, err);
    return ok;
}

struct model_file *peft_open(const char *path, const char *arch, struct err *err) {
    static const struct model_file_ops ops = {.read = read_peft, .place = place_in_peft, .close = close_peft};
    struct jdoc config = {.num = 0};
    struct peft *d = calloc(1, sizeof *d);
    if (!d) {
        err_set(err, STATUS_NOMEM, "out of memory for an adapter");
        return NULL;
    }
    enum status st = model_file_init(&d->file, path, err);
    d->file.ops = &ops;
    bool ok = st == STATUS_OK && hf_files_open(&d->files, path, d->file.name, err) == STATUS_OK &&
              fill(d, arch, &config, err);
    jdoc_free(&config);
    if (ok)
        return &d->file;
    model_file_close(&d->file);
    return NULL;
}

double peft_scale(const struct model_file *f, const struct model_tensor *t, int64_t rank) {
    const struct peft *d = (const struct peft *)f;
    return d->modules[t - f->tensors].alpha / (d->by_root ? sqrt((double)rank) : (double)rank);
}

bool peft_has_halves(const struct model_file *f, const struct model_tensor *t) {
    return ((const struct peft *)f)->modules[t - f->tensors].halves;
}
