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
    for (int i = 0; i < m->num_attn && m->kv_layers > 0; i++) {
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
    char good[32] = "", of[64] = "";
    size_t n = 0;
    if (!why)
        return STATUS_OK;
    for (int w = 1; w <= COMM_MAX_SUM; w *= 2)
        if (!problem(m, b, w, &other))
            n += (size_t)snprintf(good + n, sizeof good - n, "%s%d", n ? ", " : "", w);
    if (m->kv_layers > 0)
        snprintf(of, sizeof of, " (%d heads, %d kv heads)", a->heads, a->kv_heads);
    return err_set(err, STATUS_INVALID,
                   "--tensor-parallel-size %d does not suit this model%s: %s; possible: %s", world, of, why,
                   good);
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
    return weight_info(role)->stage == STAGE_FIRST ? s->stage == 0 : s->stage + 1 >= s->num_stages;
}

struct range {
    int64_t begin, end;
};

// Segments [8 / world * rank, 8 / world * (rank + 1)) of n elements in blocks.
static struct range segments(const struct shard *s, int64_t n, int block) {
    int64_t blocks = num_blocks(n, block), end = blocks * (s->rank + 1) / s->world * block;
    return (struct range){blocks * s->rank / s->world * block, end < n ? end : n};
}

// Fewer kv heads than ranks: neighbours have the same one.
static struct range heads(const struct shard *s, int num) {
    int each = num >= s->world ? num / s->world : 1;
    int64_t first = (int64_t)num * s->rank / s->world;
    return (struct range){first, first + each};
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

// The rank's of n rows, columns or matrices.
static struct range cut_range(const struct shard *s, enum weight_cut cut, int layer, enum dtype down,
                              int64_t n) {
    const struct attn_spec *a = model_attn(s->whole, layer);
    const struct mix_spec *m = model_mix(s->whole, layer);
    bool groups = cut == CUT_MIX_GROUPS && m->groups > 0;
    int begin, end, segment = COMM_MAX_SUM / s->world * s->rank;
    struct range r = {0, 1};
    int64_t num = 1; // heads or groups, of as many rows each
    switch (cut) {
    case CUT_WHOLE: break;
    case CUT_HEADS: num = a->heads, r = heads(s, a->heads); break;
    case CUT_KV_HEADS: num = a->kv_heads, r = heads(s, a->kv_heads); break;
    case CUT_MIX_HEADS:
    case CUT_MIX_GROUPS:
        num = groups ? m->groups : m->heads, r = groups ? mix_groups(s, m) : mix_heads(s, m);
        break;
    case CUT_FFN: return segments(s, n, dtype_sum_block(down));
    case CUT_EXPERTS:
        begin = backend_expert_bound((int)n, segment);
        end = backend_expert_bound((int)n, segment + COMM_MAX_SUM / s->world);
        return (struct range){begin, end};
    case CUT_VOCAB:
        backend_vocab_rows((int)n, s->rank, s->world, &begin, &end);
        return (struct range){begin, end};
    }
    return (struct range){r.begin * (n / num), r.end * (n / num)};
}

// Of a vector elements, of three dimensions whole matrices.
static void cut_rows(struct tensor *t, struct range r) {
    int64_t each = 1;
    for (int i = 1; i < t->ndim - 1; i++)
        each *= t->shape[i];
    size_t row = dtype_row_bytes(t->dtype, t->ndim > 1 ? t->shape[t->ndim - 1] : 1);
    t->data = (const char *)t->data + (size_t)(r.begin * each) * row;
    t->shape[0] = r.end - r.begin;
}

static void cut_columns(struct tensor *t, struct range r, char *scratch) {
    size_t row = dtype_row_bytes(t->dtype, t->shape[1]), first = dtype_row_bytes(t->dtype, r.begin),
           bytes = dtype_row_bytes(t->dtype, r.end - r.begin);
    for (int64_t i = 0; i < t->shape[0]; i++)
        memcpy(scratch + (size_t)i * bytes, (const char *)t->data + (size_t)i * row + first, bytes);
    t->data = scratch;
    t->shape[1] = r.end - r.begin;
}

void shard_cut(const struct shard *s, const struct weight_desc *whole, enum dtype down, void *scratch,
               struct weight_desc *part) {
    int layer = whole->layer < 0 ? 0 : whole->layer;
    *part = *whole;
    for (int i = 0; i < 3 && s->world > 1 && whole->part[i].data; i++) {
        struct tensor *t = &part->part[i], *bias = &part->bias[i];
        struct weight_shape shape = weight_shape_of(s->whole, whole->role, layer, i);
        if (shape.cut == CUT_WHOLE)
            continue;
        int64_t n = t->shape[shape.axis];
        struct range r = cut_range(s, shape.cut, layer, down, n);
        if (i == 0)
            part->start = r.begin, part->total = n;
        if (shape.axis == 1) {
            CHECK(shape.cut == CUT_FFN ||
                  (r.begin % dtype_sum_block(t->dtype) == 0 && r.begin == segments(s, n, 1).begin));
            cut_columns(t, r, scratch);
            continue;
        }
        cut_rows(t, r);
        if (bias->data)
            cut_rows(bias, r);
    }
}

void shard_cut_adapter(const struct shard *s, int layer, enum adapter_target target, enum dtype down,
                       void *scratch, struct adapter_matrix *m) {
    struct weight_shape shape = adapter_target_shape(s->whole, layer, target);
    struct tensor *t = shape.axis == 1 ? &m->a : &m->b;
    struct range r = cut_range(s, shape.cut, layer, down, t->shape[shape.axis]);
    if (s->world == 1)
        return;
    if (shape.axis == 1)
        cut_columns(t, r, scratch);
    else
        cut_rows(t, r);
}
