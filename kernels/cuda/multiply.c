// Which kernel multiplies. Rows that decode always go through the skinny product, so that their bits do not
// depend on what else is in the step; so do the others up to CUDA_TOKENS of them. More go through cuBLASLt,
// which gets quantised weights as bf16. In exact mode, and for F32 weights, the skinny product takes all
// rows.
#include "device.h"

#include "log.h"

// F16 goes through `wide` on its way, so what both gate and up give lies behind that.
size_t cuda_both_offset(const struct device *dev) {
    size_t both = (size_t)dev->max_tokens * 2 * (size_t)round_up(dev->model.ffn, 8);
    return dev->formats & 1u << FORMAT_F16 ? both : 0;
}

enum cuda_form cuda_written_form(const struct activation *x) {
    return x->data[FORM_F32] || x->data[FORM_F16] ? FORM_F32 : FORM_BF16;
}

static void convert(struct device *dev, struct activation *x, int m, enum cuda_form form) {
    struct cuda_norm a = {.x = x->data[FORM_F32],
                          .out = x->data[form],
                          .scale = x->scale,
                          .form = form,
                          .rows = m,
                          .n = x->n,
                          .ldx = x->ld,
                          .ldout = x->ld};
    cuda_norm(dev->rt, &a);
}

void cuda_make_f16(struct device *dev, struct activation *x, int m) {
    if (x->data[FORM_F16])
        convert(dev, x, m, FORM_F16);
}

void cuda_make_bf16(struct device *dev, struct activation *x, int m) {
    if (x->data[FORM_BF16] && cuda_written_form(x) == FORM_F32)
        convert(dev, x, m, FORM_BF16);
}

// How many of a step's m rows, from the first on, the skinny product takes where the library has an algorithm
// for the rest. Rows that decode come first.
static int skinny_rows(const struct device *dev, const struct cuda_matrix *w, int m) {
    int others = m - dev->plan.num_decode;
    return others > CUDA_TOKENS && !dev->exact && w->format != FORMAT_F32 ? dev->plan.num_decode : m;
}

static char *row_of(const struct activation *x, enum cuda_form form, int row) {
    return (char *)x->data[form] + (size_t)row * (size_t)x->ld * (form == FORM_F32 ? 4 : 2);
}

// The skinny product of rows [0, m), SKINNY_ROWS at a time: a launch's blocks that share weights are
// neighbours, so that one of them reads the weights from memory for all, while the launch's rows of x stay in
// the cache, too. g has all but x, scale and m; y and h advance by rows.
enum { SKINNY_ROWS = 4 * CUDA_TOKENS };

static void skinny(struct device *dev, struct cuda_gemm g, const struct activation *x, int m) {
    enum cuda_form form = cuda_form_of(g.w.format);
    float *y = g.y;
    char *h = g.h;
    CHECK(x->data[form] && x->ld >= g.w.cols);
    g.ldx = x->ld;
    for (int row = 0; row < m; row += SKINNY_ROWS) {
        g.m = m - row < SKINNY_ROWS ? m - row : SKINNY_ROWS;
        g.x = row_of(x, form, row);
        g.scale = form == FORM_F16 ? x->scale + row : NULL;
        g.y = y ? y + (size_t)row * (size_t)g.ldy : NULL;
        g.h = h ? h + (size_t)row * (size_t)g.ldy * (g.form == FORM_F32 ? 4 : 2) : NULL;
        cuda_gemm(dev->rt, &g);
    }
}

// Rows [first, m) of y (m, ldy) = or += x w^T (+ bias) by the library: straight into y where nothing is left
// to do. False: it cannot, or there are none, and nothing was done.
static bool library(struct device *dev, const struct cuda_matrix *w, int n, const struct activation *x,
                    int first, int m, float *y, int ldy, const float *bias, bool add) {
    enum cuda_form form = cuda_form_of(w->format);
    bool half = form == FORM_F16, direct = !half && !bias;
    if (first >= m)
        return false;
    y += (size_t)first * (size_t)ldy;
    struct rt_gemm g = {.x = row_of(x, form, first),
                        .w = w->data,
                        .y = direct ? y : dev->wide,
                        .m = m - first,
                        .n = n,
                        .k = w->cols,
                        .ldx = x->ld,
                        .ldw = w->cols,
                        .ldy = direct ? ldy : n,
                        .half = half,
                        .add = direct && add};
    if (w->format > FORMAT_F16) {
        struct cuda_dequant d = {*w, dev->dequantised};
        cuda_dequant(dev->rt, &d);
        g.w = dev->dequantised;
    }
    if (!rt_matmul(dev->rt, &g))
        return false;
    if (!direct) {
        struct cuda_finish f = {.x = dev->wide,
                                .scale = half ? x->scale + first : NULL,
                                .bias = bias,
                                .y = y,
                                .rows = m - first,
                                .n = n,
                                .ldx = n,
                                .ldy = ldy,
                                .add = add};
        cuda_finish(dev->rt, &f);
    }
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
        int few = skinny_rows(dev, &w->matrix[i], m);
        bool rest = library(dev, &w->matrix[i], w->rows[i], x, few, m, g.y, ldy, NULL, false);
        skinny(dev, g, x, rest ? few : m);
    }
}

void cuda_multiply_add(struct device *dev, const struct weight *w, const struct activation *x, int m,
                       float *resid) {
    struct cuda_gemm g = {.w = w->matrix[0],
                          .epilogue = EPILOGUE_ADD,
                          .y = resid,
                          .ldy = dev->model.hidden,
                          .n = w->rows[0],
                          .bias = w->bias};
    int few = skinny_rows(dev, &w->matrix[0], m);
    bool rest = library(dev, &w->matrix[0], w->rows[0], x, few, m, resid, g.ldy, w->bias, true);
    skinny(dev, g, x, rest ? few : m);
}

void cuda_multiply_swiglu(struct device *dev, const struct weight *w, const struct activation *x, int m,
                          struct activation *h) {
    enum cuda_form form = cuda_written_form(h);
    int n = w->rows[0], up = round_up(n, 8), ld = 2 * up; // of this layer: ranks may share layers unevenly
    float *both = dev->wide ? dev->wide + cuda_both_offset(dev) : NULL;
    int few; // rows that the skinny product leaves finished
    if (!w->interleaved) {
        struct weight parts = *w;
        parts.column[1] = up;
        cuda_multiply(dev, &parts, x, m, both, ld);
        few = 0;
    } else {
        struct cuda_gemm g = {.w = w->matrix[0],
                              .epilogue = EPILOGUE_SWIGLU,
                              .h = h->data[form],
                              .ldy = h->ld,
                              .n = n,
                              .form = form};
        few = skinny_rows(dev, &w->matrix[0], m);
        if (!library(dev, &w->matrix[0], w->matrix[0].rows, x, few, m, both, ld, NULL, false))
            few = m;
        skinny(dev, g, x, few);
    }
    if (few < m) { // both results, then the product of the two
        struct cuda_swiglu s = {.x = both + (size_t)few * (size_t)ld,
                                .out = row_of(h, form, few),
                                .form = form,
                                .rows = m - few,
                                .n = n,
                                .ldx = ld,
                                .ldout = h->ld,
                                .interleaved = w->interleaved,
                                .up = up};
        cuda_swiglu(dev->rt, &s);
    }
    // What another layer left behind these columns must neither be multiplied nor count as the row's largest.
    cuda_clear(dev->rt, &(struct cuda_clear){h->data[form], form, m, n, h->n, h->ld});
    cuda_make_f16(dev, h, m);
    cuda_make_bf16(dev, h, m);
}
