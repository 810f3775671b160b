// Streams beside the residual one (kernels/README.md, rule 23). A block takes a row.
#include "common.cuh"

enum { STREAM_THREADS = 128, STREAMS = ALTUP_STREAMS };

KD_FN float *stream_at(const struct cuda_streams &a, int stream, size_t row) {
    return a.streams + (size_t)stream * a.stride + row * (size_t)a.n;
}

// The sum of the squares of a row's elements, less `mean`.
KD_FN float squares(const float *x, float mean, int n, float *scratch) {
    float sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += STREAM_THREADS)
        sum = kd_fma(kd_add(x[i], -mean), kd_add(x[i], -mean), sum);
    return block_sum(sum, scratch);
}

// The factor that gives x the root mean square of `like`.
KD_FN float match(const float *x, const float *like, int n, float *scratch) {
    float has = kd_div(squares(x, 0, n, scratch), (float)n),
          wants = kd_div(squares(like, 0, n, scratch), (float)n);
    return wants > 0 ? kd_div(kd_rsqrt(fmaxf(has, 1e-5f)), kd_rsqrt(wants)) : wants; // a NaN stays one
}

// m = tanh(router . norm(x) / n)
KD_FN void coefficients(float m[STREAMS], const struct cuda_streams &a, const float *x, float *scratch) {
    float rms = kd_rsqrt(kd_add(kd_div(squares(x, 0, a.n, scratch), (float)a.n), a.eps));
    float sum[STREAMS] = {0, 0, 0, 0};
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.n; i += STREAM_THREADS) {
        float v = kd_mul(kd_mul(x[i], rms), a.norm[i]);
#pragma unroll
        for (int k = 0; k < STREAMS; k++)
            sum[k] = kd_fma(v, a.router[(size_t)k * (size_t)a.n + (size_t)i], sum[k]);
    }
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
        m[k] = kd_tanh(kd_div(block_sum(sum[k], scratch), (float)a.n));
}
KD_FN float coefficient(const float *row, const float m[STREAMS]) {
    return kd_fma(row[3], m[3], kd_fma(row[2], m[2], kd_fma(row[1], m[1], kd_mul(row[0], m[0]))));
}

__global__ void __launch_bounds__(STREAM_THREADS) streams_embed(struct cuda_streams a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    const float *x = a.resid + (size_t)blockIdx.x * (size_t)a.n;
    float *y = stream_at(a, 1 + (int)blockIdx.y, blockIdx.x), factor = match(y, x, a.n, scratch);
    for (int i = (int)threadIdx.x; i < a.n; i += STREAM_THREADS)
        y[i] = kd_mul(y[i], factor);
}

__global__ void __launch_bounds__(STREAM_THREADS) streams_predict(struct cuda_streams a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    float *x = a.resid + (size_t)blockIdx.x * (size_t)a.n, m[STREAMS], c[STREAMS][STREAMS];
    coefficients(m, a, x, scratch);
#pragma unroll
    for (int i = 0; i < STREAMS * STREAMS; i++)
        c[i / STREAMS][i % STREAMS] = coefficient(a.coefs + i * STREAMS, m);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.n; i += STREAM_THREADS) {
        float was[STREAMS], is[STREAMS];
#pragma unroll
        for (int k = 0; k < STREAMS; k++)
            was[k] = k == 0 ? x[i] : stream_at(a, k, blockIdx.x)[i];
#pragma unroll
        for (int k = 0; k < STREAMS; k++) {
            is[k] = kd_add(was[k], coefficient(c[k], was));
            stream_at(a, k, blockIdx.x)[i] = is[k];
        }
        x[i] = is[0];
    }
}

// LAuReL, after attention has added to x, with p the prediction and y = laurel(p):
//   x = (x + norm(p) + norm(y)) * sqrt(0.5)
__global__ void __launch_bounds__(STREAM_THREADS) add_laurel(struct cuda_laurel a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    size_t first = (size_t)blockIdx.x * (size_t)a.n;
    float *x = a.resid + first;
    const float *p = a.predicted + first, *y = a.laurel + first;
    float of_p = kd_rsqrt(kd_add(kd_div(squares(p, 0, a.n, scratch), (float)a.n), a.eps)),
          of_y = kd_rsqrt(kd_add(kd_div(squares(y, 0, a.n, scratch), (float)a.n), a.eps));
    for (int i = (int)threadIdx.x; i < a.n; i += STREAM_THREADS) {
        float more = kd_add(kd_mul(kd_mul(p[i], of_p), a.in_norm[i]), kd_mul(kd_mul(y[i], of_y), a.norm[i]));
        x[i] = kd_mul(kd_add(x[i], more), 0.70710678f);
    }
}

__global__ void __launch_bounds__(STREAM_THREADS) streams_correct(struct cuda_streams a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    float *x = a.resid + (size_t)blockIdx.x * (size_t)a.n, m[STREAMS], c[STREAMS];
    coefficients(m, a, x, scratch);
#pragma unroll
    for (int k = 0; k < STREAMS; k++)
        c[k] = kd_add(coefficient(a.coefs + k * STREAMS, m), 1);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.n; i += STREAM_THREADS) {
        float p = stream_at(a, 0, blockIdx.x)[i], more = kd_add(x[i], -p);
        x[i] = kd_fma(more, c[0], p);
#pragma unroll
        for (int k = 1; k < STREAMS; k++) {
            float *y = stream_at(a, k, blockIdx.x) + i;
            *y = kd_fma(more, c[k], *y);
        }
        a.out[(size_t)blockIdx.x * (size_t)a.n + (size_t)i] = kd_mul(x[i], a.scale[i]);
    }
}

__global__ void __launch_bounds__(STREAM_THREADS) streams_merge(struct cuda_streams a) {
    KD_SHARED(float, scratch); // (32)
    kd_grid_release();
    kd_grid_wait();
    int from = a.of[(size_t)blockIdx.x * (size_t)a.of_stride];
    float *out = a.out + (size_t)blockIdx.x * (size_t)a.n, factor[STREAMS];
    const float *x = a.resid + (size_t)(from < 0 ? 0 : from) * (size_t)a.n;
    for (int k = 1; k < STREAMS; k++)
        factor[k] = match(stream_at(a, k - 1, blockIdx.x), x, a.n, scratch);
    for (int i = (int)threadIdx.x; i < a.n; i += STREAM_THREADS) {
        float sum = x[i];
#pragma unroll
        for (int k = 1; k < STREAMS; k++)
            sum = kd_fma(stream_at(a, k - 1, blockIdx.x)[i], factor[k], sum);
        out[i] = kd_mul(sum, 1.0f / STREAMS);
    }
}

extern "C" {

void cuda_altup_embed(struct rt *rt, const struct cuda_streams *a) {
    if (a->rows > 0)
        rt_launch(rt, streams_embed, rt_grid_of(a->rows, STREAMS - 1, STREAM_THREADS, 32 * sizeof(float)),
                  *a);
}

void cuda_altup_predict(struct rt *rt, const struct cuda_streams *a) {
    if (a->rows > 0)
        rt_launch(rt, streams_predict, rt_grid_of(a->rows, 1, STREAM_THREADS, 32 * sizeof(float)), *a);
}

void cuda_laurel(struct rt *rt, const struct cuda_laurel *a) {
    if (a->rows > 0)
        rt_launch(rt, add_laurel, rt_grid_of(a->rows, 1, STREAM_THREADS, 32 * sizeof(float)), *a);
}

void cuda_altup_correct(struct rt *rt, const struct cuda_streams *a) {
    if (a->rows > 0)
        rt_launch(rt, streams_correct, rt_grid_of(a->rows, 1, STREAM_THREADS, 32 * sizeof(float)), *a);
}

void cuda_altup_merge(struct rt *rt, const struct cuda_streams *a) {
    if (a->rows > 0)
        rt_launch(rt, streams_merge, rt_grid_of(a->rows, 1, STREAM_THREADS, 32 * sizeof(float)), *a);
}

} // extern "C"
