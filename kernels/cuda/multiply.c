// Which kernel multiplies. Rows that decode go through the skinny GEMM, so that their bits do not
// depend on what else is in the step; so do the others up to CUDA_TOKENS of them. More go through cuBLASLt,
// which gets quantised weights as bf16, or FP8 as it is and activations quantised to that. With `--exact`, and
// for F32 weights, the skinny GEMM takes all rows. With `--no-batch-invariant` cuBLASLt takes those that decode, too, in
// steps of more than CUDA_TOKENS rows.
#include "device.h"

#include "log.h"

// A GEMM of F16 or FP8 goes through `wide` on its way, so what both gate and up give lies behind that.
size_t cuda_both_offset(const struct device *dev) {
    size_t both = (size_t)(dev->max_tokens + CUBLAS_ROWS) * 2 * (size_t)round_up(dev->max_ffn, 8);
    return dev->layouts & 1u << LAYOUT_F16 || dev->widest_e4m3 > 0 ? both : 0;
}

void cuda_activation_alloc(struct cuda_arena *a, struct activation *x, int rows, int n, unsigned dtypes) {
    x->n = n;
    x->ld = round_up(n, 256); // whole k-steps of every layout
    size_t all = (size_t)rows * (size_t)x->ld;
    bool f16 = dtypes & 1u << ACT_DTYPE_F16;
    x->data[ACT_DTYPE_F32] = f16 || dtypes & 1u << ACT_DTYPE_F32 ? arena_alloc(a, all, 4) : NULL;
    x->data[ACT_DTYPE_BF16] = dtypes & 1u << ACT_DTYPE_BF16 ? arena_alloc(a, all, 2) : NULL;
    x->data[ACT_DTYPE_F16] = f16 ? arena_alloc(a, all, 2) : NULL;
    x->scale = f16 ? arena_alloc(a, (size_t)rows, 4) : NULL;
}

enum act_dtype cuda_written_dtype(const struct activation *x) {
    return x->data[ACT_DTYPE_F32] || x->data[ACT_DTYPE_F16] ? ACT_DTYPE_F32 : ACT_DTYPE_BF16;
}

void cuda_convert(struct device *dev, struct activation *x, int m) {
    if (cuda_written_dtype(x) != ACT_DTYPE_F32)
        return; // nothing else is needed
    for (int dtype = ACT_DTYPE_BF16; dtype <= ACT_DTYPE_F16; dtype++) {
        struct cuda_norm a = {.x = x->data[ACT_DTYPE_F32],
                              .out = x->data[dtype],
                              .scale = x->scale,
                              .act_dtype = (enum act_dtype)dtype,
                              .rows = m,
                              .n = x->n,
                              .ldx = x->ld,
                              .ldout = x->ld};
        if (a.out)
            cuda_norm(dev->rt, &a);
    }
}

unsigned cuda_dtypes_of(const struct weight *w) {
    unsigned dtypes = 0;
    for (int i = 0; w && i < w->num_matrices; i++)
        dtypes |= 1u << cuda_act_dtype_of(w->matrix[i].layout);
    return dtypes;
}

struct cuda_norm cuda_norm_of(const struct device *dev, const float *from, const struct weight *norm,
                              int rows) {
    return (struct cuda_norm){.x = from,
                              .weight = norm ? norm->table : NULL,
                              .bias = norm ? norm->bias : NULL,
                              .kind = dev->model.norm,
                              .rows = rows,
                              .n = dev->model.hidden,
                              .ldx = dev->model.hidden,
                              .eps = dev->model.norm_eps};
}

void cuda_normalise(struct device *dev, struct activation *x, const float *from, const struct weight *norm,
                    int rows, const struct logits_row *of, unsigned dtypes) {
    struct cuda_norm a = cuda_norm_of(dev, from, norm, rows);
    a.of = of ? &of->row : NULL;
    a.of_stride = sizeof *of / sizeof(int32_t);
    a.scale = x->scale;
    a.ldout = x->ld;
    for (int dtype = 0; dtype < 3; dtype++) {
        a.out = x->data[dtype];
        a.act_dtype = (enum act_dtype)dtype;
        if (dtypes >> dtype & 1)
            cuda_norm(dev->rt, &a);
    }
}

void cuda_multiply_last(struct device *dev, const struct weight *w, int n, struct cuda_gemm g) {
    enum act_dtype dtype = cuda_act_dtype_of(w->matrix[0].layout);
    g.w = w->matrix[0];
    g.parts = dev->parts;
    g.x = dev->last.data[dtype];
    g.scale = dtype == ACT_DTYPE_F16 ? dev->last.scale : NULL;
    g.m = n;
    g.ldx = dev->last.ld;
    cuda_gemm(dev->rt, &g);
}

// How many of a step's m rows, from the first on, the skinny GEMM takes where cuBLASLt has an algorithm for
// the rest. Rows that decode come first.
static int skinny_rows(const struct device *dev, const struct cuda_matrix *w, int m) {
    int others = m - dev->work.num_decode;
    // Decodes alone are too few for weights that must become bf16 first: 4 bytes each to write and to read.
    bool all = dev->batch_dependent && (others > CUDA_TOKENS || w->layout <= LAYOUT_F16 || w->e4m3);
    if (!dev->cublas || w->layout == LAYOUT_F32 || (all ? m : others) <= CUDA_TOKENS)
        return m;
    return all ? 0 : dev->work.num_decode;
}

static char *row_of(const struct activation *x, enum act_dtype act_dtype, int row) {
    return (char *)x->data[act_dtype] + (size_t)row * (size_t)x->ld * (act_dtype == ACT_DTYPE_F32 ? 4 : 2);
}

// The skinny GEMM of rows [0, m), CUDA_SKINNY_ROWS at a time: a launch's blocks that share weights are
// neighbours, so that one of them reads the weights from memory for all, while the launch's rows of x stay in
// the cache, too. g has all but x, scale and m; y and h advance by rows.
static void skinny_gemm(struct device *dev, struct cuda_gemm g, const struct activation *x, int m) {
    enum act_dtype act_dtype = cuda_act_dtype_of(g.w.layout);
    float *y = g.y;
    char *h = g.h;
    CHECK(x->data[act_dtype] && x->ld >= g.w.cols);
    g.ldx = x->ld;
    g.parts = dev->parts;
    for (int row = 0; row < m; row += CUDA_SKINNY_ROWS) {
        g.m = m - row < CUDA_SKINNY_ROWS ? m - row : CUDA_SKINNY_ROWS;
        g.x = row_of(x, act_dtype, row);
        g.scale = act_dtype == ACT_DTYPE_F16 ? x->scale + row : NULL;
        g.y = y ? y + (size_t)row * (size_t)g.ldy : NULL;
        g.h = h ? h + (size_t)row * (size_t)g.ldy * (g.act_dtype == ACT_DTYPE_F32 ? 4 : 2) : NULL;
        cuda_gemm(dev->rt, &g);
    }
}

// W8A8: the matrix as E4M3 in order and g's rows of x as E4M3, or false: cuBLASLt does not multiply such sizes. Of E4M3_ROWS
// the scales are left to multiply by.
static bool quantise_operands(struct device *dev, const struct cuda_matrix *w, const struct activation *x,
                              int first, int m, struct rt_gemm *g, struct cuda_scales *left) {
    struct rt_gemm e4m3 = *g;
    e4m3.x = dev->quantised;
    e4m3.w = dev->dequantised;
    e4m3.m = round_up(m - first, CUBLAS_ROWS);
    e4m3.ldx = w->cols;
    e4m3.type = RT_E4M3;
    float *w_scale = (float *)(void *)((char *)dev->dequantised + (size_t)w->rows * (size_t)w->cols);
    if (w->e4m3 > E4M3_ROWS) {
        e4m3.x_scale = dev->quantised_scale;
        e4m3.w_scale = w_scale;
        e4m3.w_blocks = w->e4m3 == E4M3_BLOCKS;
    }
    if (!w->e4m3 || !rt_can_matmul(dev->rt, &e4m3))
        return false;
    cuda_dequant(dev->rt, &(struct cuda_dequant){*w, dev->dequantised, w_scale});
    cuda_quantise(dev->rt, &(struct cuda_quantise){.x = (uint16_t *)(void *)row_of(x, ACT_DTYPE_BF16, first),
                                                   .out = dev->quantised,
                                                   .scale = dev->quantised_scale,
                                                   .rows = m - first,
                                                   .n = w->cols,
                                                   .ldx = x->ld,
                                                   .ld_scale = e4m3.x_scale ? e4m3.m : 0});
    *g = e4m3;
    if (w->e4m3 == E4M3_ROWS)
        *left = (struct cuda_scales){dev->quantised_scale, w_scale};
    return true;
}

// Rows [first, m) of y (., ldy) = or += x w^T by cuBLASLt, still to be multiplied by what is left. Where the type leaves
// something, or is E4M3, y has CUBLAS_ROWS more rows than the step may have. False: it cannot, or there are none, and nothing was done.
static bool cublas_sums(struct device *dev, const struct cuda_matrix *w, int n, const struct activation *x,
                        int first, int m, void *y, int ldy, bool add, bool bf16, struct cuda_scales *left) {
    enum act_dtype act_dtype = cuda_act_dtype_of(w->layout);
    if (first >= m)
        return false;
    // Lengths that differ little share a plan of cuBLASLt. The rows behind the step's hold nothing.
    int rows = round_up(m - first, CUBLAS_ROWS), most = dev->max_tokens - first;
    struct rt_gemm g = {.x = row_of(x, act_dtype, first),
                        .w = w->data,
                        .y = (char *)y + (size_t)first * (size_t)ldy * (bf16 ? 2 : 4),
                        .m = rows < most ? rows : most,
                        .n = n,
                        .k = w->cols,
                        .ldx = x->ld,
                        .ldw = w->cols,
                        .ldy = ldy,
                        .type = act_dtype == ACT_DTYPE_F16 ? RT_F16 : RT_BF16,
                        .add = add,
                        .bf16 = bf16};
    *left = (struct cuda_scales){act_dtype == ACT_DTYPE_F16 ? x->scale + first : NULL, NULL};
    if (w->layout > LAYOUT_F16 && !quantise_operands(dev, w, x, first, m, &g, left)) {
        g.w = dev->dequantised;
        if (!rt_can_matmul(dev->rt, &g))
            return false;
        cuda_dequant(dev->rt, &(struct cuda_dequant){*w, dev->dequantised, NULL});
    }
    return rt_matmul(dev->rt, &g);
}

// The same (+ bias), finished: straight into y where nothing is left to do, and no row of E4M3 lies behind the step's most.
static bool cublas_gemm(struct device *dev, const struct cuda_matrix *w, int n, const struct activation *x,
                        int first, int m, float *y, int ldy, const float *bias, bool add) {
    bool behind = w->e4m3 && round_up(m - first, CUBLAS_ROWS) > dev->max_tokens - first;
    bool direct = w->layout != LAYOUT_F16 && w->e4m3 != E4M3_ROWS && !behind && !bias;
    struct cuda_scales left;
    if (direct)
        return cublas_sums(dev, w, n, x, first, m, y, ldy, add, false, &left);
    if (!cublas_sums(dev, w, n, x, first, m, dev->wide, n, false, false, &left))
        return false;
    cuda_finish(dev->rt, &(struct cuda_finish){.x = dev->wide + (size_t)first * (size_t)n,
                                               .scales = left,
                                               .bias = bias,
                                               .y = y + (size_t)first * (size_t)ldy,
                                               .rows = m - first,
                                               .n = n,
                                               .ldx = n,
                                               .ldy = ldy,
                                               .add = add});
    return true;
}

void cuda_multiply(struct device *dev, const struct weight *w, const struct activation *x, int m, float *y,
                   int ldy) {
    for (int i = 0; i < w->num_matrices; i++) {
        struct cuda_gemm g = {.w = w->matrix[i],
                              .segments = w->segments,
                              .epilogue = EPILOGUE_STORE,
                              .y = y + w->column[i],
                              .ldy = ldy,
                              .n = w->rows[i]};
        int skinny = skinny_rows(dev, &w->matrix[i], m);
        bool rest = cublas_gemm(dev, &w->matrix[i], w->rows[i], x, skinny, m, g.y, ldy, NULL, false);
        skinny_gemm(dev, g, x, rest ? skinny : m);
    }
}

void cuda_multiply_qkv(struct device *dev, const struct weight *w, const struct activation *x, float *y,
                       struct cuda_qkv *a) {
    const struct cuda_matrix *m = &w->matrix[0];
    int skinny = skinny_rows(dev, m, a->rows);
    bool brief = dev->kv_dtype != DTYPE_F32 &&
                 dev->kv_dtype != DTYPE_F16 &&  // no more than bf16 is kept of them
                 dev->limits.max_adapters == 0; // adapters add to f32
    a->x = y;
    if (w->num_matrices > 1 || m->layout == LAYOUT_F16 || !brief ||
        !cublas_sums(dev, m, w->rows[0], x, skinny, a->rows, y, 2 * a->ldx, false, true, &a->scales)) {
        cuda_multiply(dev, w, x, a->rows, y, a->ldx);
        return;
    }
    a->num_bf16 = a->rows - skinny;
    struct cuda_gemm g = {.w = *m, .epilogue = EPILOGUE_STORE, .y = y, .ldy = a->ldx, .n = w->rows[0]};
    skinny_gemm(dev, g, x, skinny);
}

void cuda_multiply_add(struct device *dev, const struct weight *w, const struct activation *x, int m,
                       float *resid) {
    struct cuda_gemm g = {.w = w->matrix[0],
                          .epilogue = EPILOGUE_ADD,
                          .y = resid,
                          .ldy = dev->model.hidden,
                          .n = w->rows[0],
                          .bias = w->bias};
    int skinny = skinny_rows(dev, &w->matrix[0], m);
    bool rest = cublas_gemm(dev, &w->matrix[0], w->rows[0], x, skinny, m, resid, g.ldy, w->bias, true);
    skinny_gemm(dev, g, x, rest ? skinny : m);
}

void cuda_multiply_ffn(struct device *dev, const struct layer *layer, const struct activation *x, int m,
                       struct activation *h) {
    const struct weight *w = layer->gate_up;
    const struct ffn_spec *f = &layer->ffn;
    enum act_dtype act_dtype = cuda_written_dtype(h);
    int n = w->rows[0], up = round_up(n, 8), ld = f->no_gate ? up : 2 * up; // ranks may share layers unevenly
    float *both = dev->wide;
    struct cuda_scales left = {NULL, NULL};
    bool bf16 = false; // sums of cuBLASLt are as what is made of them: half the bytes
    int skinny;        // rows that the skinny GEMM leaves finished
    bool lora = f->experts == 0 && dev->work.num_lora > 0, finished = dev->limits.max_adapters > 0;
    if (f->sparse || (!w->interleaved && !f->no_gate) || finished)
        both += cuda_both_offset(dev);
    if (f->sparse || (!w->interleaved && !f->no_gate) || lora) {
        struct weight parts = *w;
        parts.column[1] = up;
        parts.rows[0] = w->interleaved ? w->matrix[0].rows : n;
        cuda_multiply(dev, &parts, x, m, both, ld);
        if (f->experts == 0)
            cuda_lora_add(dev, layer, f->no_gate ? ADAPTER_UP : ADAPTER_GATE, x,
                          (struct cuda_lora){.num_targets = f->no_gate ? 1 : 2,
                                             .act_dtype = cuda_act_dtype_of(w->matrix[0].layout),
                                             .y = both,
                                             .ldy = ld,
                                             .widest = n,
                                             .column = {0, w->interleaved ? 8 : up},
                                             .interleaved = w->interleaved});
        skinny = 0;
    } else {
        struct cuda_gemm g = {.w = w->matrix[0],
                              .epilogue = f->no_gate ? EPILOGUE_ACT : EPILOGUE_GATED,
                              .h = h->data[act_dtype],
                              .ldy = h->ld,
                              .n = n,
                              .bias = w->bias,
                              .act = f->act,
                              .act_dtype = act_dtype};
        int rows = f->no_gate ? n : w->matrix[0].rows;
        skinny = skinny_rows(dev, &w->matrix[0], m);
        // Where adapters may come, f32 sums, as beside a row that has one: bits must not depend on others.
        bf16 = !finished && act_dtype == ACT_DTYPE_BF16 && w->matrix[0].layout != LAYOUT_F16;
        if (finished ? !cublas_gemm(dev, &w->matrix[0], rows, x, skinny, m, both, ld, NULL, false)
                     : !cublas_sums(dev, &w->matrix[0], rows, x, skinny, m, both, ld, false, bf16, &left))
            skinny = m;
        skinny_gemm(dev, g, x, skinny);
    }
    if (f->sparse)
        cuda_cut(dev->rt, &(struct cuda_cut){both, f->deviations, m, n, ld, w->interleaved});
    if (skinny < m) {
        struct cuda_act s = {.x = (char *)both + (size_t)skinny * (size_t)ld * (bf16 ? 2 : 4),
                             .bf16 = bf16,
                             .scales = left,
                             .bias = w->bias,
                             .act = f->act,
                             .gated = !f->no_gate,
                             .out = row_of(h, act_dtype, skinny),
                             .act_dtype = act_dtype,
                             .rows = m - skinny,
                             .n = n,
                             .ldx = ld,
                             .ldout = h->ld,
                             .interleaved = w->interleaved,
                             .up = up};
        cuda_act(dev->rt, &s);
    }
    // Clears columns that another layer has left: the GEMM and a row's largest must not see them.
    cuda_clear(dev->rt, &(struct cuda_clear){h->data[act_dtype], act_dtype, m, n, h->n, h->ld});
    cuda_convert(dev, h, m);
}
