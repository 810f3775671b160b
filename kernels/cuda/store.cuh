// How a warp stores a head of queries, or of the cache.
#pragma once

#include "common.cuh"

// Rule 17 of kernels/README.md, by a warp.
KD_FN void store_int8(int8_t *q, float *scale, const float *x, int d) {
    float max = 0;
    bool finite = true;
    for (int i = kd_lane(); i < d; i += 32) {
        max = fmaxf(max, fabsf(x[i]));
        finite = finite && fabsf(x[i]) < INFINITY;
    }
    max = kd_warp_max(max);
    finite = __ballot_sync(ALL_LANES, finite) == ALL_LANES;
    bool zero = !finite || max < 7.88860905e-31f; // 2^-100
    float factor = zero ? 0 : kd_div(127, max);
    for (int i = kd_lane(); i < d; i += 32)
        q[i] = zero ? 0 : (int8_t)rintf(kd_mul(x[i], factor));
    if (kd_lane() == 0)
        *scale = !finite ? NAN : zero ? 0 : kd_div(max, 127);
}

// A head to element `to` of queries or of the cache, by a warp.
KD_FN void store_head(void *p, size_t to, enum dtype t, const float *x, int d) {
    if (d % 4 != 0 || t == DTYPE_F8_E4M3) {
        for (int i = kd_lane(); i < d; i += 32)
            store_kv(p, to + (size_t)i, t, x[i]);
        return;
    }
    enum act_dtype as = t == DTYPE_F32 ? ACT_DTYPE_F32 : t == DTYPE_F16 ? ACT_DTYPE_F16 : ACT_DTYPE_BF16;
    char *head = (char *)p + to * (t == DTYPE_F32 ? 4 : 2);
    for (int i = kd_lane() * 4; i < d; i += 128)
        store_act4(head, i, *(const float4 *)(const void *)(x + i), as);
}
