// See layout.h.
#include "layout.h"

#include "places.h"

#include "log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME(s) (int)((s).len < 96 ? (s).len : 96), (s).data // for %.*s

struct tensor_maker {
    struct hf_layout *layout;
    struct model_file *file;
    const struct hf_shards *shards;
    const struct hf_config *config;
    struct hf_keys *keys;
};

struct placed { // a tensor in its place
    const struct hf_source *source;
    const struct hf_name *name;
    int layer, number;
    bool bias;
};

struct tensor_placing {
    struct placed *items;
    size_t num, cap;
    const struct hf_source *source;
    bool failed;
};

static void add_place(void *arg, const struct hf_place *p) {
    struct tensor_placing *l = arg;
    if (p->name->ours[0] == 0)
        return;
    if (l->num == l->cap) {
        size_t cap = l->cap + l->cap / 2 + 256;
        struct placed *items = realloc(l->items, cap * sizeof *items);
        l->failed |= !items;
        if (!items)
            return;
        l->items = items;
        l->cap = cap;
    }
    l->items[l->num++] = (struct placed){l->source, p->name, p->layer, p->number, p->bias};
}

static const char *end_of(const struct placed *p) {
    return p->name->end ? p->name->end : p->bias ? ".bias" : ".weight";
}

static int compare_tensors(const struct placed *x, const struct placed *y) {
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    int c = strcmp(x->name->ours, y->name->ours);
    return c ? c : strcmp(end_of(x), end_of(y));
}

static int compare_placed(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    int c = compare_tensors(x, y);
    return c ? c : (x->number > y->number) - (x->number < y->number);
}

static enum dtype dtype_of(enum st_type t) {
    switch (t) {
    case ST_F32: return DTYPE_F32;
    case ST_F16: return DTYPE_F16;
    case ST_BF16: return DTYPE_BF16;
    default: return DTYPE_COUNT;
    }
}

// How many of a tensor's dimensions count its rows: all of a vector and of biases.
static int row_dims(const struct placed *p, const struct st_tensor *s) {
    return s->ndim == 1 || p->bias ? s->ndim : s->ndim - 1;
}

// Whether a tensor has as many rows, and columns, as their order asks for.
static bool check_rows(const struct tensor_maker *d, const struct placed *p, int64_t rows, int64_t cols,
                       struct err *err) {
    const struct hf_config *c = d->config;
    int64_t values = c->state_heads * c->state_columns, expected = 0, found = rows;
    switch (p->name->rows) {
    case ROWS_SAME: return true;
    case ROWS_POSITIONS: expected = c->context + c->skipped_positions; break;
    case ROWS_Q: expected = c->heads * c->head_dim; break;
    case ROWS_K:
        expected = c->kv_heads_differ ? rows / c->head_dim * c->head_dim : c->kv_heads * c->head_dim;
        break;
    case ROWS_QKV:
    case ROWS_GROUPED_Q:
    case ROWS_GROUPED_K:
    case ROWS_GROUPED_V: expected = (c->heads + 2 * c->kv_heads) * c->head_dim; break;
    case ROWS_EVEN:
    case ROWS_ODD:
    case ROWS_FIRST_HALF:
    case ROWS_SECOND_HALF: expected = rows / 2 * 2; break;
    case ROWS_VALUES: expected = values; break;
    case ROWS_HEADS: expected = c->state_heads; break;
    case ROWS_MIXED_QKV:
    case ROWS_MIXED_GATES: expected = 2 * (c->state_groups * c->state_rows + values); break;
    case ROWS_KEYS_VALUES: expected = 2 * c->state_groups * c->state_rows + values; break;
    case COLUMNS_VALUES:
        expected = values;
        found = cols;
        break;
    }
    if (found == expected && expected > 0 && c->heads % c->kv_heads == 0 && c->head_dim % 2 == 0)
        return true;
    model_file_bad(d->file, err,
                   "tensor %.*s has %lld %s, expected %lld of %lld heads and %lld for keys and values, of "
                   "%lld, an even number",
                   NAME(p->source->tensor->name), (long long)found,
                   p->name->rows == COLUMNS_VALUES ? "columns" : "rows", (long long)expected,
                   (long long)c->heads, (long long)c->kv_heads, (long long)c->head_dim);
    return false;
}

// A tensor's shape, without dimensions of 1 where ours has none, or with one of experts.
static struct st_tensor flat_tensor(const struct hf_config *c, const struct placed *p) {
    struct st_tensor s = *p->source->tensor;
    int n = 0;
    if (p->name->form == FORM_EXPERTS && s.ndim == 2 && c->experts > 0 && s.shape[0] % c->experts == 0) {
        s.ndim = 3; // else refused as a shape that is not expected
        s.shape[2] = s.shape[1];
        s.shape[1] = s.shape[0] / c->experts;
        s.shape[0] = c->experts;
    }
    if (p->name->form != FORM_FLAT)
        return s;
    for (int i = 0; i < s.ndim; i++)
        if (s.shape[i] != 1)
            s.shape[n++] = s.shape[i];
    n += n == 0;
    for (int i = n; i < s.ndim; i++)
        s.shape[i] = 0;
    s.ndim = n;
    return s;
}

static bool is_turned(const struct hf_config *c, const struct placed *p, const struct st_tensor *s) {
    bool down = strcmp(p->name->ours, "ffn_down_exps") == 0;
    if (!p->name->turned || p->bias || s->ndim < 2)
        return false;
    return !p->name->either || s->shape[s->ndim - (down ? 2 : 1)] != c->hidden;
}

// A tensor whose lines are columns, as of rows.
static void turn_matrix(struct st_tensor *s) {
    if (s->ndim < 2)
        return;
    int64_t rows = s->shape[s->ndim - 1];
    s->shape[s->ndim - 1] = s->shape[s->ndim - 2];
    s->shape[s->ndim - 2] = rows;
}

// Shapes that the elements have in other words.
static void reshape(const struct hf_config *c, enum hf_form form, struct tensor *t) {
    if (t->ndim != 1 || form == FORM_SAME || form == FORM_FLAT || form == FORM_EXPERTS)
        return;
    int64_t groups = form == FORM_COLUMN ? t->shape[0] : c->state_groups;
    if (groups < 1 || t->shape[0] % groups)
        return; // refused as a shape that is not expected
    *t = (struct tensor){.dtype = t->dtype, .ndim = 2, .shape = {groups, t->shape[0] / groups}};
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// By what weights are multiplied; NAN: each row by its own.
static float weight_factor(const struct hf_config *c, enum hf_factor factor) {
    bool same = true;
    for (int i = 0; i < HF_STATE_PARTS; i++)
        same &= c->state_factors[i] == 1;
    return factor == FACTOR_SSM_IN ? (same ? 1 : NAN) : c->factors[factor];
}

// One tensor of num placed ones, which all go to the same place: one, or as many as their numbers count.
static bool make_tensor(struct tensor_maker *d, const struct placed *p, int num, struct model_tensor *t,
                        struct hf_recipe *recipe, struct err *err) {
    const struct st_tensor *s = p->source->tensor;
    const struct hf_config *c = d->config;
    const char *end = end_of(p);
    bool stacked = strchr(p->name->theirs, '#') != NULL;
    for (int i = 0; i < num; i++) {
        const struct st_tensor *o = p[i].source->tensor;
        if (!stacked && i > 0)
            return model_file_bad(d->file, err, "tensors %.*s and %.*s are the same one", NAME(s->name),
                                  NAME(o->name)),
                   false;
        if (stacked && p[i].number != i)
            return model_file_bad(d->file, err, "tensor %.*s is there, expected that of number %d",
                                  NAME(o->name), i),
                   false;
        if (o->type != s->type || o->ndim != s->ndim || memcmp(o->shape, s->shape, sizeof s->shape) != 0)
            return model_file_bad(d->file, err, "tensor %.*s has another type or shape than %.*s",
                                  NAME(o->name), NAME(s->name)),
                   false;
    }
    int ndim = s->ndim + stacked;
    if (s->ndim < 1 || ndim > TENSOR_MAX_DIMS || s->bytes == 0)
        return model_file_bad(d->file, err, "tensor %.*s has %d dimensions, expected 1 to %d, none of size 0",
                              NAME(s->name), s->ndim, TENSOR_MAX_DIMS - stacked),
               false;
    enum hf_rows rows = p->name->rows;
    const struct hf_source **sources = hf_alloc(d->keys, (size_t)num * sizeof *sources);
    char *name = p->layer < 0 ? hf_text(d->keys, "%s%s", p->name->ours, end)
                              : hf_text(d->keys, "blk.%d.%s%s", p->layer, p->name->ours, end);
    if (!name || !sources)
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", d->file->name), false;
    for (int i = 0; i < num; i++)
        sources[i] = p[i].source;
    struct st_tensor flat = flat_tensor(c, p);
    *recipe = (struct hf_recipe){.sources = sources, .num = num};
    struct hf_quant *q = &recipe->quant;
    if (!hf_quantized_make(d->shards, c, d->keys, sources, num, &flat, q, d->file, err))
        return false;
    bool turned = q->scheme == HF_PLAIN && is_turned(c, p, &flat);
    if (turned)
        turn_matrix(&flat);
    s = &flat;
    ndim = s->ndim + stacked;
    int dims = row_dims(p, s);
    if (!check_rows(d, p, s->shape[dims - 1], s->shape[s->ndim - 1], err))
        return false;
    if ((rows == ROWS_Q || rows == ROWS_K || rows == ROWS_QKV) && !c->family->adjacent)
        rows = ROWS_SAME;
    bool plain = q->scheme == HF_PLAIN, norm = ends_with(p->name->ours, "norm") && !p->bias,
         floats = dtype_of(s->type) != DTYPE_COUNT;
    if (!plain && (weight_factor(c, p->name->factor) != 1 || rows == COLUMNS_VALUES))
        return model_file_bad(d->file, err,
                              "tensor %.*s of type %s: quantised ones are not supported yet here",
                              NAME(s->name), st_type_name(s->type)),
               false;
    bool router = ends_with(p->name->ours, "gate_inp"); // routers, norms and vectors are F32
    bool conv = ends_with(p->name->ours, "conv") || ends_with(p->name->ours, "conv1d");
    bool table = rows == ROWS_POSITIONS || strcmp(p->name->ours, "token_types") == 0;
    bool vector = s->ndim == 1 || p->bias || norm || router || conv || table;
    bool widens = floats && !turned && vector && s->type != ST_F32;
    enum dtype dtype = plain ? widens ? DTYPE_F32 : dtype_of(s->type) : q->dtype;
    *t = (struct model_tensor){.name = view_of(name),
                               .label = s->name,
                               .type_name = dtype == DTYPE_COUNT ? st_type_name(s->type) : dtype_name(dtype)};
    t->view = (struct tensor){.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < s->ndim; i++)
        t->view.shape[i + stacked] = s->shape[i];
    t->view.shape[stacked + dims - 1] = hf_recipe_rows(c, rows, s->shape[dims - 1]);
    int64_t rows_in = 1, rows_out = 1;
    for (int i = 0; i < dims; i++) {
        rows_in *= s->shape[i]; // of a tensor that has as many elements: no overflow
        rows_out *= t->view.shape[stacked + i];
    }
    if (stacked)
        t->view.shape[0] = num;
    uint64_t bytes = st_type_bytes(s->type), row = plain ? s->bytes / (uint64_t)rows_in : 0,
             cols = plain ? row / bytes : (uint64_t)q->cols;
    recipe->rows = rows;
    recipe->row_bytes = row;
    recipe->out_row_bytes = plain ? cols * (widens ? 4 : bytes) : q->out_row_bytes;
    recipe->out_rows = rows_out;
    recipe->matrix_rows = t->view.shape[stacked + dims - 1];
    recipe->type = s->type;
    recipe->widens = widens;
    recipe->turned = turned;
    recipe->source_rows = (uint64_t)s->shape[dims - 1];
    recipe->decays = floats && p->name->decay;
    recipe->plus = floats && norm && c->family->norms_less_one && !p->name->unlike_norms ? 1 : 0;
    recipe->times = floats ? weight_factor(c, p->name->factor) : 1;
    t->elements = cols * (uint64_t)rows_out * (uint64_t)num;
    t->bytes = recipe->bytes = recipe->out_row_bytes * (uint64_t)rows_out * (uint64_t)num;
    reshape(c, p->name->form, &t->view);
    return true;
}

// Gives a tensor its address: in its file, or behind all files where it is made as it is read.
static void place_tensor(struct tensor_maker *d, struct model_tensor *t, struct hf_recipe recipe,
                         uint64_t *end) {
    bool made = recipe.turned || recipe.quant.scheme != HF_PLAIN || recipe.memory || recipe.num > 1 ||
                recipe.rows != ROWS_SAME || hf_recipe_changes_elements(&recipe);
    if (!made) {
        t->offset = recipe.sources[0]->address;
        return;
    }
    t->offset = recipe.start = *end;
    *end += recipe.bytes; // each below 2^53, and at most 2^20 of them: no overflow
    d->layout->recipes[d->layout->num++] = recipe;
}

static void memory_tensor(struct tensor_maker *d, struct model_tensor *t, const char *name,
                          const float *values, uint64_t *end) {
    uint64_t n = (uint64_t)d->config->num_factors;
    *t = (struct model_tensor){.name = view_of(name), .label = view_of(name), .type_name = "F32"};
    t->view = (struct tensor){.dtype = DTYPE_F32, .ndim = 1, .shape = {(int64_t)n}};
    t->elements = n;
    t->bytes = 4 * n;
    place_tensor(d, t, (struct hf_recipe){.bytes = t->bytes, .memory = values, .times = 1}, end);
}

static bool make_tensors(struct tensor_maker *d, struct tensor_placing *l, struct err *err) {
    uint64_t end = d->file->size, num = 0;
    if (l->num)
        qsort(l->items, l->num, sizeof *l->items, compare_placed);
    for (size_t i = 0, k; i < l->num; i = k, num++)
        for (k = i + 1; k < l->num && compare_tensors(&l->items[i], &l->items[k]) == 0;)
            k++;
    uint64_t extra = d->config->short_factors ? 2 : d->config->freq_factors != NULL;
    if (model_file_room(d->file, d->keys->num, num + extra, err))
        return false;
    if (!(d->layout->recipes = calloc((size_t)(num + extra) + 1, sizeof *d->layout->recipes)))
        return err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", d->file->name), false;
    struct model_tensor *t = d->file->tensors;
    for (size_t i = 0, k; i < l->num; i = k, t++) {
        struct hf_recipe recipe;
        for (k = i + 1; k < l->num && compare_tensors(&l->items[i], &l->items[k]) == 0;)
            k++;
        if (!make_tensor(d, &l->items[i], (int)(k - i), t, &recipe, err))
            return false;
        place_tensor(d, t, recipe, &end);
    }
    if (d->config->freq_factors)
        memory_tensor(d, t, "rope_freqs.weight", d->config->freq_factors, &end);
    if (d->config->short_factors) {
        memory_tensor(d, t, "rope_factors_short.weight", d->config->short_factors, &end);
        memory_tensor(d, t + 1, "rope_factors_long.weight", d->config->long_factors, &end);
    }
    for (uint64_t i = 0; i < num + extra; i++)
        CHECK(model_file_add_tensor(d->file, i));
    return true;
}

// Leaves out what lies behind the model's layers where it is no MTP layer that can be told from its names. Returns how many.
static size_t leave_mtp(struct tensor_maker *d, struct tensor_placing *l) {
    size_t kept = 0, num = l->num;
    for (size_t i = 0; i < num; i++)
        if (l->items[i].layer == d->config->layers && ends_with(l->items[i].name->ours, "nextn.eh_proj") +
                                                          ends_with(l->items[i].name->ours, "nextn.he_proj"))
            d->file->num_mtp = 1;
    for (size_t i = 0; i < num; i++)
        if (l->items[i].layer < d->config->layers || d->file->num_mtp > 0)
            l->items[kept++] = l->items[i];
    l->num = kept;
    return num - kept;
}

static bool place_all(struct tensor_maker *d, struct err *err) {
    struct tensor_placing l = {.items = NULL};
    bool ok = true;
    size_t others = 0;
    for (size_t i = 0; ok && i < d->shards->num; i++) {
        l.source = &d->shards->sources[i];
        struct text_view name = l.source->tensor->name;
        size_t before = l.num;
        if (hf_quantized_is_part(d->shards, name))
            continue;
        name = hf_quantized_stem(name);
        enum hf_part part = hf_places(d->config->family, name, add_place, &l);
        int layer = hf_name_layer(d->config->family, name);
        bool behind = d->config->more_layers && layer >= d->config->layers;
        for (size_t k = before; k < l.num; k++)
            if (l.items[k].layer == HF_MTP_LAYER)
                l.items[k].layer = (int)d->config->layers;
        if (behind && (layer > d->config->layers || part == HF_UNKNOWN)) {
            l.num = before; // of speculation, as are those of HF_OTHER
            part = HF_OTHER;
        }
        others += part == HF_OTHER;
        bool known = part != HF_UNKNOWN;
        // A tied head may be there; it is the embedding.
        if (known && d->config->tied && l.num > before && strcmp(l.items[before].name->ours, "output") == 0)
            l.num = before;
        if (!known)
            ok = model_file_bad(d->file, err, "tensor %.*s is not part of model_type %s", NAME(name),
                                d->config->family->model_type) == STATUS_OK;
    }
    if (ok && l.failed)
        ok = err_set(err, STATUS_NOMEM, "%s: out of memory for tensors", d->file->name) == STATUS_OK;
    others += leave_mtp(d, &l);
    ok = ok && make_tensors(d, &l, err);
    if (ok && others)
        log_msg(LOG_INFO, "%s: %zu tensors of vision, audio or speculation are skipped", d->file->name,
                others);
    free(l.items);
    return ok;
}

bool hf_layout_make(struct hf_layout *l, struct model_file *f, const struct hf_shards *shards,
                    const struct hf_config *config, struct hf_keys *keys, struct err *err) {
    struct tensor_maker d = {l, f, shards, config, keys};
    return place_all(&d, err);
}

const struct hf_recipe *hf_layout_find(const struct hf_layout *l, uint64_t address) {
    size_t lo = 0, hi = l->num;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (l->recipes[mid].start <= address)
            lo = mid;
        else
            hi = mid;
    }
    return &l->recipes[lo];
}
