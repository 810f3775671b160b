#include "shard.h"

#include "log.h"

#include <string.h>

static int64_t num_blocks(int64_t n, int block) { return (n + block - 1) / block; }

// Why they cannot share recurrent layers.
static const char *mix_problem(const struct mix_spec *m, int block, int world) {
    int each = m->heads / world, of_group = m->groups ? m->heads / m->groups : 1;
    if (m->heads % world != 0)
        return "the heads of its recurrent layers do not divide among them";
    if ((int64_t)mix_values(m) % ((int64_t)block * world) != 0)
        return "the output of a recurrent layer would be cut inside a block of its weights";
    if (m->groups && m->tiled && each % m->groups != 0 && m->groups % each != 0)
        return "the key heads of its recurrent layers neither divide among them nor can be copied evenly";
    if (m->groups && !m->tiled && each % of_group != 0 && of_group % each != 0)
        return "the key heads of its recurrent layers neither divide among them nor can be copied evenly";
    if (m->norm && m->groups % world != 0)
        return "its norm of recurrent layers spans the heads of several";
    return NULL;
}

// Why `world` ranks cannot share the model, or NULL. *heads: of the layers that cannot be shared, or of the first.
static const char *problem(const struct model_config *m, const struct shard_blocks *b, int world,
                           const struct attn_spec **heads) {
    *heads = &m->attn[0];
    if (world < 1 || COMM_MAX_SUM % world != 0)
        return "sums are kept in 8 parts, which the ranks must divide";
    for (int i = 0; i < m->num_attn; i++) {
        const struct attn_spec *a = &m->attn[i];
        *heads = a;
        if (a->qk_norm == QK_NORM_WHOLE && world > 1)
            return "its norm of queries and keys spans all heads";
        if (a->heads % world != 0)
            return "its attention heads do not divide among them";
        if (a->kv_heads % world != 0 && world % a->kv_heads != 0)
            return "its kv heads neither divide among them nor can be copied evenly";
        if (attn_out_size(a) % (b->attn * world) != 0)
            return "the attention output would be cut inside a block of its weights";
    }
    for (int i = 0; i < m->num_ffn; i++) {
        const struct ffn_spec *f = &m->ffn[i];
        int hidden = f->experts > 0 ? f->shared_hidden : f->hidden;
        if (f->experts > 0 && f->experts < world)
            return "it has fewer experts than there would be ranks";
        if (hidden > 0 && num_blocks(hidden, b->down) < world)
            return "a row of the down matrix has fewer blocks than there would be ranks";
    }
    for (int i = 0; i < m->num_mix; i++)
        if (mix_problem(&m->mix[i], b->mix, world))
            return mix_problem(&m->mix[i], b->mix, world);
    if (num_blocks(m->vocab, 32) < world)
        return "its vocabulary is too small";
    return NULL;
}

enum status shard_check(const struct model_config *m, const struct shard_blocks *b, int world,
                        struct err *err) {
    const struct attn_spec *a, *other;
    const char *why = problem(m, b, world, &a);
    char good[32] = "";
    size_t n = 0;
    if (!why)
        return STATUS_OK;
    for (int w = 1; w <= COMM_MAX_SUM; w *= 2)
        if (!problem(m, b, w, &other))
            n += (size_t)snprintf(good + n, sizeof good - n, "%s%d", n ? ", " : "", w);
    return err_set(
        err, STATUS_INVALID,
        "--tensor-parallel-size %d does not suit this model (%d heads, %d kv heads): %s; possible: %s", world,
        a->heads, a->kv_heads, why, good);
}

enum status shard_check_stages(const struct model_config *m, int world, int stages, struct err *err) {
    if (stages < 1 || stages > m->num_layers)
        return err_set(
            err, STATUS_INVALID,
            "--pipeline-parallel-size %d does not suit this model: a stage has at least one of its %d "
            "layers",
            stages, m->num_layers);
    bool shares = m->layer_embed > 0;
    for (int i = 0; i < m->num_attn; i++)
        shares |= m->attn[i].shares_kv;
    if (stages > 1 && shares)
        return err_set(
            err, STATUS_INVALID,
            "--pipeline-parallel-size %d does not suit this model: its layers share keys and values, "
            "or take embeddings of their own, which one stage has",
            stages);
    if ((int64_t)stages * world > COMM_MAX_WORLD)
        return err_set(
            err, STATUS_INVALID,
            "--pipeline-parallel-size %d times --tensor-parallel-size %d makes %lld ranks; at most %d "
            "work together",
            stages, world, (long long)stages * world, COMM_MAX_WORLD);
    return STATUS_OK;
}

// Multiplications of a row in a layer, divided by D.
static int64_t latent_cost(const struct attn_spec *a, int64_t hidden) {
    int64_t q = (int64_t)a->heads * (a->nope_dim + a->rope_dim);
    int64_t heads = (int64_t)a->heads * a->kv_lora * (a->nope_dim + a->v_dim);
    return attn_out_size(a) + a->head_dim + (a->q_lora ? a->q_lora : q) + (a->q_lora * q + heads) / hidden;
}
static int64_t layer_cost(const struct model_config *m, int layer) {
    const struct attn_spec *a = model_attn(m, layer);
    const struct mix_spec *x = model_mix(m, layer);
    const struct ffn_spec *f = model_ffn(m, layer);
    int64_t cost = f->experts > 0 ? 3 * ((int64_t)f->top_k * f->hidden + f->shared_hidden) + f->experts
                                  : 3 * (int64_t)f->hidden;
    if (a && a->kind == ATTN_LATENT)
        cost += latent_cost(a, m->hidden);
    else if (a)
        cost += (int64_t)((2 + a->gate) * a->heads + 2 * a->kv_heads) * a->head_dim;
    if (x)
        cost += (x->kind == MIX_CONV ? 4 : 3) * (int64_t)mix_values(x) + 2 * (int64_t)x->groups * x->key_dim;
    return cost;
}

// Equal shares of the multiplications: a stage begins with the layer whose middle lies behind its share's beginning.
// The head counts half: a decoding row goes through it, a prompt's rows but one do not.
static int first_layer(const struct shard *s, int stage) {
    const struct model_config *m = s->whole;
    int64_t all = m->vocab / 2, before = 0, n = s->num_stages;
    int layer = 0, most = m->num_layers - (int)(n - stage);
    if (stage == n)
        return m->num_layers;
    for (int i = 0; i < m->num_layers; i++)
        all += layer_cost(m, i);
    while (layer < most && (2 * before + layer_cost(m, layer)) * n <= 2 * all * stage)
        before += layer_cost(m, layer++);
    return layer;
}

void shard_layers(const struct shard *s, int *begin, int *end) {
    *begin = s->num_stages > 1 ? first_layer(s, s->stage) : 0;
    *end = s->num_stages > 1 ? first_layer(s, s->stage + 1) : s->whole->num_layers;
}

bool shard_holds(const struct shard *s, enum weight_role role, int layer) {
    int begin, end;
    shard_layers(s, &begin, &end);
    if (layer >= 0)
        return layer >= begin && layer < end;
    bool first = role == WEIGHT_EMBED || role == WEIGHT_POSITIONS || role == WEIGHT_TYPES ||
                 role == WEIGHT_EMBED_NORM || role == WEIGHT_LAYER_EMBED || role == WEIGHT_LAYER_EMBED_IN ||
                 role == WEIGHT_STREAM_IN;
    return first ? s->stage == 0 : s->stage + 1 >= s->num_stages;
}

struct range {
    int64_t begin, end;
};

// Segments [8 / world * rank, 8 / world * (rank + 1)) of n elements in blocks.
static struct range segments(const struct shard *s, int64_t n, int block) {
    int64_t blocks = num_blocks(n, block), end = blocks * (s->rank + 1) / s->world * block;
    return (struct range){blocks * s->rank / s->world * block, end < n ? end : n};
}

// Rows, of `each` a head.
static struct range heads(const struct shard *s, const struct attn_spec *a, bool kv, int rows) {
    int num = kv ? a->kv_heads : a->heads;
    // Fewer kv heads than ranks: neighbours have the same one.
    int each = num >= s->world ? num / s->world : 1;
    int64_t first = (int64_t)num * s->rank / s->world;
    return (struct range){first * rows, (first + each) * rows};
}

static struct range mix_heads(const struct shard *s, const struct mix_spec *m) {
    int64_t each = m->heads / s->world;
    return (struct range){each * s->rank, each * (s->rank + 1)};
}

// The groups of the rank's heads.
static struct range mix_groups(const struct shard *s, const struct mix_spec *m) {
    struct range h = mix_heads(s, m);
    if (m->groups == 0 || (m->tiled && h.end - h.begin >= m->groups))
        return (struct range){0, m->groups};
    if (m->tiled)
        return (struct range){h.begin % m->groups, h.begin % m->groups + h.end - h.begin};
    int64_t of_group = m->heads / m->groups;
    return (struct range){h.begin / of_group, (h.end - 1) / of_group + 1};
}

// The layers of a stage, counted from 0, also in the pages of their groups. Groups keep their numbers: every rank gets
// the same steps.
static void stage_layers(struct model_config *own, int begin, int end) {
    own->num_layers = end - begin;
    own->kv_layers = own->state_layers = 0;
    for (int g = 0; g < own->num_groups; g++)
        own->groups[g].num_layers = 0;
    for (int i = 0; i < own->num_layers; i++) {
        struct layer_spec *layer = &own->layers[i];
        *layer = own->layers[begin + i];
        if (model_attn(own, i)) {
            int places = attn_kv_places(model_attn(own, i));
            layer->kv_layer = (uint16_t)(own->groups[layer->kv_group].num_layers++ * places);
            if (layer->kv_layer + places > own->kv_layers)
                own->kv_layers = layer->kv_layer + places;
        }
        if (model_mix(own, i)) {
            layer->state_layer = (uint16_t)own->groups[layer->state_group].num_layers++;
            if (layer->state_layer >= own->state_layers)
                own->state_layers = layer->state_layer + 1;
        }
    }
}

void shard_config(const struct shard *s, struct model_config *own) {
    int begin, end;
    shard_layers(s, &begin, &end);
    *own = *s->whole;
    own->tied &= s->num_stages <= 1;
    if (s->num_stages > 1)
        stage_layers(own, begin, end);
    if (s->world == 1)
        return;
    for (int i = 0; i < own->num_attn; i++) {
        struct attn_spec *a = &own->attn[i];
        a->heads /= s->world;
        a->kv_heads = a->kv_heads >= s->world ? a->kv_heads / s->world : 1;
    }
    for (int i = 0; i < own->num_mix; i++) {
        struct mix_spec *m = &own->mix[i];
        struct range groups = mix_groups(s, m);
        m->heads /= s->world;
        m->groups = (int)(groups.end - groups.begin);
    }
    for (int i = 0; i < own->num_ffn; i++) {
        int *hidden = own->ffn[i].experts > 0 ? &own->ffn[i].shared_hidden : &own->ffn[i].hidden;
        int64_t most = num_blocks(num_blocks(*hidden, s->blocks.down), s->world) * s->blocks.down;
        *hidden = most < *hidden ? (int)most : *hidden;
    }
}

// Of three dimensions, whole matrices.
static void cut_rows(struct weight_desc *w, int part, struct range r) {
    struct tensor *t = &w->part[part], *bias = &w->bias[part];
    int64_t rows = t->ndim == 3 ? t->shape[1] : 1, cols = t->ndim == 1 ? 1 : t->shape[t->ndim - 1];
    t->data = (const char *)t->data + (size_t)(r.begin * rows) * dtype_row_bytes(t->dtype, cols);
    t->shape[0] = r.end - r.begin;
    if (bias->data) {
        bias->data = (const float *)bias->data + r.begin * rows;
        bias->shape[0] = r.end - r.begin;
    }
}

static void cut_columns(struct weight_desc *w, struct range r, char *scratch) {
    struct tensor *t = &w->part[0];
    size_t row = dtype_row_bytes(t->dtype, t->shape[1]), first = dtype_row_bytes(t->dtype, r.begin),
           bytes = dtype_row_bytes(t->dtype, r.end - r.begin);
    for (int64_t i = 0; i < t->shape[0]; i++)
        memcpy(scratch + (size_t)i * bytes, (const char *)t->data + (size_t)i * row + first, bytes);
    t->data = scratch;
    t->shape[1] = r.end - r.begin;
}

// Rows of a part of a recurrent layer: `each` for each head, or for each group.
static void cut_mix(const struct shard *s, struct weight_desc *w, int part, bool groups, int each) {
    const struct mix_spec *m = model_mix(s->whole, w->layer);
    struct range r = groups ? mix_groups(s, m) : mix_heads(s, m);
    if (w->part[part].data)
        cut_rows(w, part, (struct range){r.begin * each, r.end * each});
}

void shard_cut(const struct shard *s, const struct weight_desc *whole, enum dtype down, void *scratch,
               struct weight_desc *part) {
    const struct model_config *m = s->whole;
    const struct attn_spec *a = model_attn(m, whole->layer < 0 ? 0 : whole->layer);
    const struct mix_spec *x = model_mix(m, whole->layer < 0 ? 0 : whole->layer);
    const struct ffn_spec *f = model_ffn(m, whole->layer < 0 ? 0 : whole->layer);
    int64_t hidden = f->experts > 0 ? f->shared_hidden : f->hidden;
    struct range r = {0, 0};
    int begin, end;
    *part = *whole;
    if (s->world == 1)
        return;
    switch (whole->role) {
    case WEIGHT_EMBED: // every rank looks up every token
    case WEIGHT_POSITIONS:
    case WEIGHT_TYPES:
    case WEIGHT_EMBED_NORM:
    case WEIGHT_ROUTER: // and chooses its experts
    case WEIGHT_SELECT_BIAS:
    case WEIGHT_EXPERT_SCALE:
    case WEIGHT_SHARED_GATE:
    case WEIGHT_LAYER_EMBED: // and takes what layers have of each
    case WEIGHT_LAYER_EMBED_IN:
    case WEIGHT_EMBED_GATE:
    case WEIGHT_EMBED_OUT:
    case WEIGHT_LAYER_SCALE:
    case WEIGHT_STREAM_IN: // and all streams
    case WEIGHT_STREAM_OUT:
    case WEIGHT_STREAM_ROUTER:
    case WEIGHT_STREAM_PREDICT:
    case WEIGHT_STREAM_CORRECT:
    case WEIGHT_LAUREL_LEFT:
    case WEIGHT_LAUREL_RIGHT:
    case WEIGHT_LATENT: // and has the latents, from which it makes what its heads need
    case WEIGHT_LATENT_QDOWN: return;
    case WEIGHT_NORM:
        if (whole->part[0].ndim == 2) { // a row for each head
            cut_rows(part, 0, heads(s, a, whole->part[0].shape[0] != a->heads, 1));
        }
        return;
    case WEIGHT_ATTN_GATE:
        part->total = (int64_t)a->heads * a->head_dim;
        r = heads(s, a, false, a->head_dim);
        cut_rows(part, 0, r);
        break;
    case WEIGHT_QKV:
        r = heads(s, a, false, a->head_dim);
        cut_rows(part, 0, r);
        for (int p = 1; p < 3 && part->part[p].data; p++)
            cut_rows(part, p, heads(s, a, true, a->head_dim));
        part->total = (int64_t)a->heads * a->head_dim;
        break;
    case WEIGHT_SINKS: cut_rows(part, 0, heads(s, a, false, 1)); return;
    case WEIGHT_LATENT_Q:
        part->total = (int64_t)a->heads * (a->nope_dim + a->rope_dim);
        r = heads(s, a, false, a->nope_dim + a->rope_dim);
        cut_rows(part, 0, r);
        break;
    case WEIGHT_LATENT_KEY:
    case WEIGHT_LATENT_VALUE:
        part->total = a->heads;
        r = heads(s, a, false, 1);
        cut_rows(part, 0, r);
        break;
    case WEIGHT_ATTN_OUT:
        part->total = attn_out_size(a);
        r = segments(s, part->total, dtype_sum_block(whole->part[0].dtype));
        CHECK(r.begin == heads(s, a, false, attn_out_size(a) / a->heads).begin &&
              r.end == heads(s, a, false, attn_out_size(a) / a->heads).end);
        cut_columns(part, r, scratch);
        break;
    case WEIGHT_GATE_UP:
        part->total = hidden;
        r = segments(s, hidden, dtype_sum_block(down));
        cut_rows(part, 0, r);
        if (part->part[1].data)
            cut_rows(part, 1, r);
        break;
    case WEIGHT_DOWN:
        part->total = hidden;
        r = segments(s, hidden, dtype_sum_block(down));
        cut_columns(part, r, scratch);
        break;
    case WEIGHT_MIX_IN:
    case WEIGHT_MIX_CONV:
        part->total = mix_channels(x);
        for (int i = 0; i < 3; i++)
            if (x->kind != MIX_CONV && i < 2)
                cut_mix(s, part, i, true, x->key_dim);
            else
                cut_mix(s, part, i, false, x->head_dim);
        return;
    case WEIGHT_MIX_GATE:
        part->total = mix_values(x);
        cut_mix(s, part, 0, false, x->head_dim);
        cut_mix(s, part, 1, false, 1);
        cut_mix(s, part, 2, false, 1);
        return;
    case WEIGHT_MIX_HEADS:
        part->total = x->heads;
        for (int i = 0; i < 3; i++)
            cut_mix(s, part, i, false, 1);
        return;
    case WEIGHT_MIX_NORM:
        if (x->kind == MIX_SSM)
            cut_mix(s, part, 0, true, 1);
        return;
    case WEIGHT_MIX_OUT:
        part->total = mix_values(x);
        r = segments(s, part->total, dtype_sum_block(whole->part[0].dtype));
        CHECK(r.begin == mix_heads(s, x).begin * x->head_dim && r.end == mix_heads(s, x).end * x->head_dim);
        cut_columns(part, r, scratch);
        break;
    case WEIGHT_EXPERT_GATE_UP:
    case WEIGHT_EXPERT_DOWN:
        part->total = f->experts;
        begin = backend_expert_bound(f->experts, COMM_MAX_SUM / s->world * s->rank);
        end = backend_expert_bound(f->experts, COMM_MAX_SUM / s->world * (s->rank + 1));
        r = (struct range){begin, end};
        for (int p = 0; p < 2 && part->part[p].data; p++)
            cut_rows(part, p, r);
        break;
    case WEIGHT_HEAD:
        part->total = m->vocab;
        backend_vocab_rows(m->vocab, s->rank, s->world, &begin, &end);
        r = (struct range){begin, end};
        cut_rows(part, 0, r);
        break;
    }
    part->start = r.begin;
}

void shard_cut_adapter(const struct shard *s, int layer, enum adapter_target target, enum dtype down,
                       void *scratch, struct adapter_matrix *m) {
    const struct attn_spec *a = model_attn(s->whole, layer);
    bool columns = target == ADAPTER_OUT || target == ADAPTER_DOWN;
    struct weight_desc w = {.part[0] = columns ? m->a : m->b};
    struct range r;
    if (s->world == 1)
        return;
    if (target == ADAPTER_OUT)
        r = heads(s, a, false, attn_out_size(a) / a->heads);
    else if (target == ADAPTER_GATE || target == ADAPTER_UP || target == ADAPTER_DOWN)
        r = segments(s, model_ffn(s->whole, layer)->hidden, dtype_sum_block(down));
    else
        r = heads(s, a, target != ADAPTER_Q, a->head_dim);
    if (columns)
        cut_columns(&w, r, scratch);
    else
        cut_rows(&w, 0, r);
    *(columns ? &m->a : &m->b) = w.part[0];
}
