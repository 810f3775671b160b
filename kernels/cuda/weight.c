// Weights into device memory, in the order of the kernels that read them.
#include "device.h"
#include "weight_check.h"

#include <stdlib.h>
#include <string.h>

// A device that has failed gives no memory either: then that is what is said.
static struct weight *not_loaded(struct device *dev, struct weight *w, size_t bytes, struct err *err) {
    struct rt_info info;
    rt_describe(dev->rt, &info);
    if (rt_failed(dev->rt))
        rt_wait(dev->rt, 0, err);
    else
        err_set(err, STATUS_NOMEM,
                "no device memory for a weight of %zu MiB: %zu of %zu MiB are free; --tensor-parallel-size "
                "shares the model among GPUs, or use a smaller quantisation",
                (bytes + (1 << 20) - 1) >> 20, info.free >> 20, info.total >> 20);
    cuda_weight_free(dev, w);
    return NULL;
}

void cuda_weight_free(struct device *dev, struct weight *w) {
    for (int i = 0; i < w->num_matrices; i++) {
        rt_free(dev->rt, w->matrix[i].data);
        rt_free(dev->rt, w->matrix[i].scales);
        rt_free(dev->rt, w->matrix[i].supers);
    }
    rt_free(dev->rt, w->bias);
    rt_free(dev->rt, w->table);
    free(w);
}

// Rows of one expert, if the tensor is a stack of them.
static int part_rows(const struct tensor *t) { return t->ndim > 1 ? (int)t->shape[t->ndim - 2] : 1; }
static int part_stack(const struct tensor *t) { return t->ndim == 3 ? (int)t->shape[0] : 1; }
static int part_cols(const struct tensor *t) { return (int)t->shape[t->ndim - 1]; }
// Elements of its bias.
static size_t part_biases(const struct tensor *t) {
    return (size_t)(t->ndim == 1 ? part_cols(t) : part_rows(t));
}

static bool matrix_alloc(struct device *dev, struct cuda_matrix *m, enum dtype dtype, int rows, int cols,
                         size_t *all) {
    size_t bytes[3];
    m->layout = cuda_layout_of(dtype, cols);
    m->rows = round_up(rows, 16);
    m->cols = round_up(cols, cuda_layout_k_step(m->layout));
    cuda_matrix_bytes(m->layout, m->rows, m->cols, bytes);
    m->data = rt_alloc(dev->rt, bytes[0]);
    m->scales = bytes[1] ? rt_alloc(dev->rt, bytes[1]) : NULL;
    m->supers = bytes[2] ? rt_alloc(dev->rt, bytes[2]) : NULL;
    *all = bytes[0] + bytes[1] + bytes[2];
    dev->weight_bytes += *all;
    return m->data && (m->scales || !bytes[1]) && (m->supers || !bytes[2]);
}

void cuda_loading_free(struct device *dev) {
    struct loading *s = &dev->loading;
    for (int i = 0; i < 2; i++) {
        if (s->size > 0)
            rt_wait(dev->rt, i, NULL);
        rt_free_host(dev->rt, s->host[i]);
        rt_free(dev->rt, s->raw[i]);
    }
    *s = (struct loading){.target = s->target};
}

// Buffers of so many bytes at least. False: no device memory for them.
static bool loading_grow(struct device *dev, size_t bytes) {
    struct loading *s = &dev->loading;
    if (bytes <= s->size)
        return true;
    cuda_loading_free(dev);
    s->size = bytes;
    for (int i = 0; i < 2; i++) {
        s->host[i] = rt_alloc_host(dev->rt, bytes);
        s->raw[i] = rt_alloc(dev->rt, bytes);
    }
    if (s->raw[0] && s->raw[1])
        return true;
    cuda_loading_free(dev);
    return false;
}

// Uploads bytes as they are into the buffer whose turn it is, once that is free, and names it. False: the device failed.
static bool stage(struct device *dev, const void *from, size_t bytes, int *buffer) {
    struct loading *s = &dev->loading;
    *buffer = s->next;
    s->next ^= 1;
    if (rt_wait(dev->rt, *buffer, NULL) != STATUS_OK)
        return false;
    if (s->host[*buffer])
        from = memcpy(s->host[*buffer], from, bytes);
    rt_upload(dev->rt, s->raw[*buffer], from, bytes);
    return true;
}

// Uploads a part in pieces and lets the device pack them; the last two are still on their way when it returns. Pieces are
// groups of 8 rows, which interleaving leaves together. False: no memory for the buffers, or the device failed.
static bool pack(struct device *dev, struct cuda_matrix *m, const struct tensor *t, int row0,
                 int interleave) {
    int stack = part_stack(t);
    int rows = part_rows(t), buffer;
    size_t row = dtype_row_bytes(t->dtype, part_cols(t)), groups = dev->loading.target / (8 * row);
    int most = groups < 1 ? 8 : groups < (size_t)rows / 8 + 1 ? (int)groups * 8 : rows;
    if (!loading_grow(dev, (size_t)(most < rows ? most : rows) * row))
        return false;
    for (int i = 0; i < stack; i++)
        for (int first = 0; first < rows; first += most) {
            int num = rows - first < most ? rows - first : most;
            const char *from = (const char *)t->data + ((size_t)i * (size_t)rows + (size_t)first) * row;
            if (!stage(dev, from, (size_t)num * row, &buffer))
                return false;
            struct cuda_pack a = {.raw = dev->loading.raw[buffer],
                                  .dtype = t->dtype,
                                  .rows = num,
                                  .cols = part_cols(t),
                                  .w = *m,
                                  .row0 = row0 + i * (m->rows / stack) + first * (interleave ? 2 : 1),
                                  .interleave = interleave};
            cuda_pack(dev->rt, &a);
            rt_mark(dev->rt, buffer);
        }
    return true;
}

// Norms, embedding tables and other vectors stay as they are, parts one behind the other.
static bool load_table(struct device *dev, struct weight *w, const struct weight_desc *desc, size_t *bytes) {
    size_t part[3] = {0}, at = 0;
    for (int i = 0; i < 3 && desc->part[i].data; i++) {
        const struct tensor *t = &desc->part[i];
        part[i] = (size_t)part_rows(t) * dtype_row_bytes(t->dtype, part_cols(t));
    }
    *bytes = part[0] + part[1] + part[2];
    w->dtype = desc->part[0].dtype;
    w->table = rt_alloc(dev->rt, *bytes);
    if (!w->table)
        return false;
    for (int i = 0; i < 3 && part[i] > 0; at += part[i++])
        rt_upload_now(dev->rt, (char *)w->table + at, desc->part[i].data, part[i]);
    dev->weight_bytes += *bytes;
    return true;
}

static bool load_gate_up(struct device *dev, struct weight *w, const struct weight_desc *desc,
                         size_t *bytes) {
    const struct tensor *gate = &desc->part[0];
    w->interleaved = true;
    w->num_matrices = 1;
    w->rows[0] = part_rows(gate);
    return matrix_alloc(dev, &w->matrix[0], gate->dtype, part_stack(gate) * 2 * round_up(part_rows(gate), 8),
                        part_cols(gate), bytes) &&
           pack(dev, &w->matrix[0], gate, 0, 1) && pack(dev, &w->matrix[0], &desc->part[1], 0, 2);
}

static bool load_stack(struct device *dev, struct weight *w, const struct weight_desc *desc, size_t *bytes) {
    const struct tensor *t = &desc->part[0];
    w->num_matrices = 1;
    w->rows[0] = part_rows(t);
    return matrix_alloc(dev, &w->matrix[0], t->dtype, part_stack(t) * round_up(part_rows(t), 16),
                        part_cols(t), bytes) &&
           pack(dev, &w->matrix[0], t, 0, 0);
}

static bool load_parts(struct device *dev, struct weight *w, const struct weight_desc *desc, size_t *bytes) {
    int column = 0;
    for (int i = 0, end; i < 3 && desc->part[i].data; i = end) {
        int m = w->num_matrices++, rows = 0;
        for (end = i; end < 3 && desc->part[end].data && desc->part[end].dtype == desc->part[i].dtype; end++)
            rows += part_rows(&desc->part[end]);
        w->column[m] = column;
        w->rows[m] = rows;
        column += rows;
        if (!matrix_alloc(dev, &w->matrix[m], desc->part[i].dtype, rows, part_cols(&desc->part[i]), bytes))
            return false;
        for (int p = i, row = 0; p < end; row += part_rows(&desc->part[p++]))
            if (!pack(dev, &w->matrix[m], &desc->part[p], row, 0))
                return false;
    }
    return true;
}

static bool load_bias(struct device *dev, struct weight *w, const struct weight_desc *desc, size_t *bytes) {
    size_t column = 0, all = 0, stack = (size_t)part_stack(&desc->part[0]); // a row of each expert
    for (int i = 0; i < 3 && desc->part[i].data; i++)
        all += part_biases(&desc->part[i]);
    if (!desc->bias[0].data && !desc->bias[1].data && !desc->bias[2].data)
        return true;
    *bytes = stack * all * sizeof(float);
    w->bias = rt_alloc(dev->rt, *bytes); // parts without a bias keep its zeros
    if (!w->bias)
        return false;
    for (int i = 0; i < 3 && desc->part[i].data; i++) {
        size_t n = part_biases(&desc->part[i]);
        for (size_t e = 0; desc->bias[i].data && e < stack; e++)
            rt_upload_now(dev->rt, w->bias + e * all + column, (const float *)desc->bias[i].data + e * n,
                          n * sizeof(float));
        column += n;
    }
    return true;
}

// Columns of the whole matrix before segment `first` of 8, as one device cuts them.
static int64_t columns_before(const struct cuda_matrix *m, int64_t total, int first) {
    int unit = m->layout == LAYOUT_F32 ? 4 : cuda_layout_k_step(m->layout);
    int64_t steps = round_up((int)total, cuda_layout_k_step(m->layout)) / unit;
    return steps * first / 8 * unit;
}

// With `--exact` the sums of ranks are the tree of one (README, rule 13), so a rank's columns must be whole
// segments of it. False: they are not.
static bool find_segments(const struct device *dev, struct weight *w, const struct weight_desc *desc) {
    bool columns = weight_shape_of(&dev->model, desc->role, desc->layer, 0).axis == 1;
    if (!columns || desc->total == 0 || !dev->exact)
        return true;
    const struct peers *g = &dev->peers;
    const struct cuda_matrix *m = &w->matrix[0];
    int num = 8 / g->world;
    int64_t whole = round_up((int)desc->total, cuda_layout_k_step(m->layout)),
            end = columns_before(m, desc->total, num * (g->rank + 1));
    w->segments = (struct cuda_segments){num, num * g->rank, (int)whole};
    int64_t last = g->rank + 1 == g->world ? desc->total : end;
    return desc->start == columns_before(m, desc->total, num * g->rank) &&
           desc->start + desc->part[0].shape[1] == last;
}

// Whether so many ranks would have whole segments. The engine cuts between blocks of dtype_sum_block().
static bool suits_exact(const struct weight *w, const struct weight_desc *desc, int world) {
    int block = dtype_sum_block(desc->part[0].dtype);
    int64_t blocks = (desc->total + block - 1) / block;
    for (int rank = 1; rank < world; rank++)
        if (blocks * rank / world * block != columns_before(&w->matrix[0], desc->total, 8 / world * rank))
            return false;
    return true;
}

static struct weight *not_exact(struct device *dev, struct weight *w, const struct weight_desc *desc,
                                struct err *err) {
    char possible[16] = "1"; // ranks have the borders of half as many: more than these do not suit either
    size_t n = 1;
    for (int world = 2; world < dev->peers.world; world *= 2)
        if (suits_exact(w, desc, world))
            n += (size_t)snprintf(possible + n, sizeof possible - n, ", %d", world);
    err_set(err, STATUS_INVALID,
            "--exact with --tensor-parallel-size %d does not suit this model: %d columns of %s would be "
            "cut elsewhere than one device adds them; possible: %s",
            dev->peers.world, (int)desc->total, dtype_name(desc->part[0].dtype), possible);
    cuda_weight_free(dev, w);
    return NULL;
}

// Scales as pack_rows() leaves them.
static uint32_t scale_of(const uint32_t *scales, size_t groups, size_t row, size_t group) {
    return scales[(row / 16 * groups + group) * 16 + row % 8 * 2 + row / 8 % 2];
}

// `rows` are those of the file.
static enum cuda_e4m3 find_e4m3(struct device *dev, const struct cuda_matrix *m, int rows) {
    bool fp8 = m->layout == LAYOUT_FP8 || m->layout == LAYOUT_FP8_32;
    if (!fp8 || !cuda_takes_w8a8(dev))
        return E4M3_NO;
    size_t bytes[3], groups = (size_t)m->cols / (m->layout == LAYOUT_FP8 ? 128 : 32);
    cuda_matrix_bytes(m->layout, m->rows, m->cols, bytes);
    uint32_t *scales = malloc(bytes[2]);
    bool of_rows = scales, of_blocks = scales;
    if (scales)
        rt_download_now(dev->rt, scales, m->supers, bytes[2]);
    for (size_t row = 0; scales && row < (size_t)rows; row++)
        for (size_t group = 0; group < groups; group++) {
            uint32_t scale = scale_of(scales, groups, row, group);
            of_rows &= scale == scale_of(scales, groups, row, 0);
            of_blocks &= scale == scale_of(scales, groups, row / 128 * 128, group);
        }
    free(scales);
    bool grouped = scales && dev->info.group_scales && m->layout == LAYOUT_FP8;
    return of_rows ? E4M3_ROWS : !grouped ? E4M3_NO : of_blocks ? E4M3_BLOCKS : E4M3_GROUPS;
}

// Notes what inputs of the role must look like.
static void note_layout(struct device *dev, struct weight *w) {
    int input = w->role == WEIGHT_ATTN_OUT                                    ? 1
                : w->role == WEIGHT_DOWN                                      ? 2
                : w->role == WEIGHT_EXPERT_DOWN                               ? 3
                : w->role == WEIGHT_MIX_OUT                                   ? 4
                : w->role == WEIGHT_LATENT_Q && dev->model.attn[0].q_lora > 0 ? 5
                : w->role == WEIGHT_LATENT_KEY                                ? 6
                : w->role == WEIGHT_LATENT_VALUE                              ? 7
                : w->role == WEIGHT_EMBED_OUT                                 ? 8
                : w->role == WEIGHT_LAUREL_RIGHT                              ? 9
                                                                              : 0;
    for (int i = 0; i < w->num_matrices; i++) {
        struct cuda_matrix *m = &w->matrix[i];
        size_t all = (size_t)m->rows * (size_t)m->cols;
        dev->layouts |= 1u << m->layout;
        dev->act_dtypes[input] |= 1u << cuda_act_dtype_of(m->layout);
        bool library = w->role != WEIGHT_HEAD && w->num_experts == 0; // a GEMM may be cuBLASLt's
        if (m->layout > LAYOUT_F16 && library && all > dev->largest_quantised)
            dev->largest_quantised = all;
        m->e4m3 = library ? find_e4m3(dev, m, w->interleaved ? m->rows : w->rows[i]) : E4M3_NO;
        if (m->e4m3 && m->cols > dev->widest_e4m3)
            dev->widest_e4m3 = m->cols;
    }
}

struct weight *cuda_weight_load(struct device *dev, const struct weight_desc *desc, struct err *err) {
    if (!weight_check(&dev->model, desc, err))
        return NULL;
    if (desc->role == WEIGHT_EXPERT_GATE_UP && desc->part[1].data &&
        desc->part[0].dtype != desc->part[1].dtype) {
        err_set(err, STATUS_INVALID,
                "device cuda takes gate and up of experts of one type, not %s and %s (layer %d); use "
                "--device cpu",
                dtype_name(desc->part[0].dtype), dtype_name(desc->part[1].dtype), desc->layer);
        return NULL;
    }
    struct weight *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    w->role = desc->role;
    size_t bytes = 0;
    bool ok;
    w->num_experts = desc->part[0].ndim == 3 ? (int)desc->part[0].shape[0] : 0;
    if (weight_is_plain(desc->role) || desc->role == WEIGHT_EMBED || desc->role == WEIGHT_LAYER_EMBED ||
        desc->role == WEIGHT_STREAM_ROUTER)
        ok = load_table(dev, w, desc, &bytes);
    else if (w->num_experts > 0 && !desc->part[1].data)
        ok = load_stack(dev, w, desc, &bytes);
    else if (desc->part[1].data && desc->part[0].dtype == desc->part[1].dtype &&
             (desc->role == WEIGHT_GATE_UP || desc->role == WEIGHT_EXPERT_GATE_UP))
        ok = load_gate_up(dev, w, desc, &bytes);
    else
        ok = load_parts(dev, w, desc, &bytes);
    if (!ok || !load_bias(dev, w, desc, &bytes) || rt_failed(dev->rt))
        return not_loaded(dev, w, bytes, err);
    if (!find_segments(dev, w, desc))
        return not_exact(dev, w, desc, err);
    note_layout(dev, w);
    w->next = dev->weights;
    dev->weights = w;
    return w;
}
