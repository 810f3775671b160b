#include "shard.h"

#include "log.h"

#include <string.h>

int shard_block(enum dtype dtype) { return dtype == DTYPE_BF16 ? 2 : dtype_block(dtype); }

static int64_t num_blocks(int64_t n, int block) { return (n + block - 1) / block; }

// Why `world` ranks cannot share the model, or NULL.
static const char *problem(const struct model_config *m, const struct shard_blocks *b, int world) {
    int64_t q = (int64_t)m->num_heads * m->head_dim;
    if (world < 1 || COMM_MAX_SUM % world != 0)
        return "sums are kept in 8 parts, which the ranks must divide";
    if (m->num_heads % world != 0)
        return "its attention heads do not divide among them";
    if (m->num_kv_heads % world != 0 && world % m->num_kv_heads != 0)
        return "its kv heads neither divide among them nor can be copied evenly";
    if (q % ((int64_t)b->attn * world) != 0)
        return "the attention output would be cut inside a block of its weights";
    if (num_blocks(m->ffn, b->down) < world)
        return "a row of the down matrix has fewer blocks than there would be ranks";
    if (num_blocks(m->vocab, 32) < world)
        return "its vocabulary is too small";
    return NULL;
}

enum status shard_check(const struct model_config *m, const struct shard_blocks *b, int world,
                        struct err *err) {
    const char *why = problem(m, b, world);
    char good[32] = "";
    size_t n = 0;
    if (!why)
        return STATUS_OK;
    for (int w = 1; w <= COMM_MAX_SUM; w *= 2)
        if (!problem(m, b, w))
            n += (size_t)snprintf(good + n, sizeof good - n, "%s%d", n ? ", " : "", w);
    return err_set(
        err, STATUS_INVALID,
        "--tensor-parallel-size %d does not suit this model (%d heads, %d kv heads): %s; possible: %s", world,
        m->num_heads, m->num_kv_heads, why, good);
}

enum status shard_check_stages(const struct model_config *m, int world, int stages, struct err *err) {
    if (stages < 1 || stages > m->num_layers)
        return err_set(
            err, STATUS_INVALID,
            "--pipeline-parallel-size %d does not suit this model: a stage has at least one of its %d "
            "layers",
            stages, m->num_layers);
    if ((int64_t)stages * world > COMM_MAX_WORLD)
        return err_set(
            err, STATUS_INVALID,
            "--pipeline-parallel-size %d times --tensor-parallel-size %d makes %lld ranks; at most %d "
            "work together",
            stages, world, (long long)stages * world, COMM_MAX_WORLD);
    return STATUS_OK;
}

// Equal shares of the multiplications, in units of a layer's. The head counts half: a decoding row goes
// through it, a prompt's rows but one do not.
static int first_layer(const struct shard *s, int stage) {
    const struct model_config *m = s->whole;
    int64_t q = (int64_t)m->num_heads * m->head_dim, kv = (int64_t)m->num_kv_heads * m->head_dim;
    int64_t layer = 2 * q + 2 * kv + 3 * (int64_t)m->ffn, head = m->vocab / 2; // times D
    int64_t all = m->num_layers * layer + head, n = s->num_stages;
    int64_t begin = (2 * all * stage + n * layer) / (2 * n * layer), most = m->num_layers - (n - stage);
    return stage == n ? m->num_layers : (int)(begin < most ? begin : most);
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
    return role == WEIGHT_EMBED ? s->stage == 0 : s->stage + 1 >= s->num_stages;
}

struct range {
    int64_t begin, end;
};

// Segments [8 / world * rank, 8 / world * (rank + 1)) of n elements in blocks.
static struct range segments(const struct shard *s, int64_t n, int block) {
    int64_t blocks = num_blocks(n, block), end = blocks * (s->rank + 1) / s->world * block;
    return (struct range){blocks * s->rank / s->world * block, end < n ? end : n};
}

static struct range heads(const struct shard *s, bool kv) {
    int d = s->whole->head_dim, num = kv ? s->whole->num_kv_heads : s->whole->num_heads;
    int each =
        num >= s->world ? num / s->world : 1; // fewer kv heads than ranks: neighbours have the same one
    int64_t first = (int64_t)num * s->rank / s->world;
    return (struct range){first * d, (first + each) * d};
}

void shard_config(const struct shard *s, struct model_config *own) {
    const struct model_config *m = s->whole;
    int begin, end;
    shard_layers(s, &begin, &end);
    *own = *m;
    own->num_layers = end - begin;
    own->tied &= s->num_stages <= 1;
    if (s->world == 1)
        return;
    int64_t most = num_blocks(num_blocks(m->ffn, s->blocks.down), s->world) * s->blocks.down;
    own->num_heads = m->num_heads / s->world;
    own->num_kv_heads = m->num_kv_heads >= s->world ? m->num_kv_heads / s->world : 1;
    own->ffn = most < m->ffn ? (int)most : m->ffn;
}

static void cut_rows(struct weight_desc *w, int part, struct range r) {
    struct tensor *t = &w->part[part], *bias = &w->bias[part];
    t->data = (const char *)t->data + (size_t)r.begin * dtype_row_bytes(t->dtype, t->shape[1]);
    t->shape[0] = r.end - r.begin;
    if (bias->data) {
        bias->data = (const float *)bias->data + r.begin;
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

void shard_cut(const struct shard *s, const struct weight_desc *whole, enum dtype down, void *scratch,
               struct weight_desc *part) {
    const struct model_config *m = s->whole;
    struct range r = {0, 0};
    int begin, end;
    *part = *whole;
    if (s->world == 1)
        return;
    switch (whole->role) {
    case WEIGHT_EMBED: // every rank looks up every token
    case WEIGHT_NORM: return;
    case WEIGHT_QKV:
        r = heads(s, false);
        cut_rows(part, 0, r);
        cut_rows(part, 1, heads(s, true));
        cut_rows(part, 2, heads(s, true));
        part->total = (int64_t)m->num_heads * m->head_dim;
        break;
    case WEIGHT_ATTN_OUT:
        part->total = (int64_t)m->num_heads * m->head_dim;
        r = segments(s, part->total, shard_block(whole->part[0].dtype));
        CHECK(r.begin == heads(s, false).begin && r.end == heads(s, false).end);
        cut_columns(part, r, scratch);
        break;
    case WEIGHT_GATE_UP:
        part->total = m->ffn;
        r = segments(s, m->ffn, shard_block(down));
        cut_rows(part, 0, r);
        cut_rows(part, 1, r);
        break;
    case WEIGHT_DOWN:
        part->total = m->ffn;
        r = segments(s, m->ffn, shard_block(down));
        cut_columns(part, r, scratch);
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
