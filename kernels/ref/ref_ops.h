// The primitives that the reference backend is composed of: the meaning of every operation, one scalar
// function each, sums in double. tests/ops compares every faster kernel with these. Row-major; letters of
// shapes as in model.h.
#pragma once

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// A weight part as the file gives it, or in F32, as the reference keeps it.
struct ref_matrix {
    const void *data; // (rows, cols)
    enum dtype dtype;
    int rows, cols;
    const float *bias; // (rows) or NULL
};

// Element (n, k), dequantised.
float ref_element(const struct ref_matrix *w, int n, int k);

// The same matrix in F32, all elements (rows, cols) in `to`, which the caller owns.
struct ref_matrix ref_decode(float *to, const struct ref_matrix *w);

// y[n] = sum over k of x[k] * w[n][k], + bias[n].  x (cols), y (rows)
void ref_matvec(float *y, const float *x, const struct ref_matrix *w);

// y = x / sqrt(mean(x^2) + eps) * w, w NULL: 1.  (n) each
void ref_rmsnorm(float *y, const float *x, const float *w, int n, float eps);

// y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b, where b is not NULL.  (n) each
void ref_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps);

// y = act(gate) * up, or act(gate) where up is NULL.  (n) each
void ref_act(float *y, enum act act, const float *gate, const float *up, int n);

// y = xielu(x).  (n) each
void ref_xielu(float *y, const float *x, int n, const struct xielu *p);

// The experts of a row, ids ascending, and their weights.  logits and select_bias (E), the latter or NULL; experts and
// weights (top_k)
void ref_route(int *experts, float *weights, const float *logits, const float *select_bias,
               const float *factors, const struct ffn_spec *ffn);

// cap * tanh(x / cap); x where cap is 0
double ref_softcap(double x, double cap);

// Rotates one head in place.  x (d)
void ref_rope(float *x, const struct rope_config *rope, const int32_t positions[ROPE_AXES]);

// Turns one head in place by a Hadamard matrix of hadamard_size(d) neighbours, times scale.  x (d)
void ref_hadamard(float *x, int d, double scale);

// o = softmax(softcap(q . k * scale)) v over n tokens; the sum has exp(sink), too.  q, o (d), k, v (n, d) with rows
// `stride` floats apart, sink -INFINITY: none
void ref_attention(float *o, const float *q, const float *k, const float *v, int n, int d, int stride,
                   double scale, double softcap, double sink);

// x stored as `dtype` (F32, F16, BF16) and read back.
void ref_store(void *dst, enum dtype dtype, float x);
float ref_fetch(const void *src, enum dtype dtype);

// q (d) of an I8 cache and their scale: max |x| / 127 and x * (127 / max |x|) to nearest even; both zero
// where max |x| < 2^-100; scale NaN and q zero where x holds a NaN or an infinity.
void ref_quantise(int8_t *q, float *scale, const float *x, int d);

struct ref_sample {
    int32_t id;
    bool failed;
    float logprob;
    int rank;
    float share;
    int num_top;
    int32_t top_ids[32];
    float top_logprobs[32];
};

// Samples from one row of logits (V): entries, mask, temperature, top-k, top-p, min-p as kernels/README.md
// defines them, by sorting the whole vocabulary. false: out of memory.
bool ref_sample(struct ref_sample *out, const float *logits, int vocab, const struct logits_row *row,
                const struct logit_entry *entries, const uint32_t *mask);

#ifdef __cplusplus
}
#endif
