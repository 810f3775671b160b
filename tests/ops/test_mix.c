// Recurrent layers: rule 19 of kernels/README.md written a second time, operation by operation; the CPU backend against
// the reference; the same bits however tokens are cut, with any threads and instructions, and from a copied page.
#include "harness.h"

#include "float_env.h"
#include "kernels.h"
#include "mix_case.h"
#include "variants.h"

#include <math.h>

enum { NUM_VARIANTS = 4, MAX_VALUES = 128 };

TEST(test_layers) {
    static const int chunks[] = {TOKENS, 1, 2, 16, 5};
    static float want[SEQS * TOKENS * D], got[SEQS * TOKENS * D], input[SEQS * TOKENS * D];
    random_state = 12345;
    for (int i = 0; i < SEQS * TOKENS * D; i++)
        input[i] = random_float();
    for (int i = 0; i < NUM_MIXES; i++) {
        struct case_of *c = make_case(&mixes[i]);
        assert_true(run(c, &backend_ref, NULL, 1, 7, true, want));
        assert_true(run(c, &backend_cpu, "scalar", 1, TOKENS, true, got));
        double difference = 0, size = 0; // of what the layer adds
        for (int k = 0; k < SEQS * TOKENS * D; k++) {
            difference += pow((double)(want[k] - got[k]), 2);
            size += pow((double)(want[k] - input[k]), 2);
        }
        if (!(size > 1 && sqrt(difference / size) < 1e-5))
            fail_msg("mixer %d is %g from the reference", i, sqrt(difference / size));
        memcpy(want, got, sizeof want);
        for (int v = 0; v < NUM_VARIANTS; v++)
            for (int k = 0; k < 5; k++) {
                if (run(c, &backend_cpu, variants[v], 1 + (k + v) % 3, chunks[k], (k + v) % 2, got) &&
                    memcmp(want, got, sizeof want) != 0)
                    fail_msg("mixer %d, %s, chunks of %d: other bits", i, variants[v], chunks[k]);
            }
        free_case(c);
    }
}

// Rule 6
static float plain_silu(float x) {
    float e;
    struct {
        float y[16], x[16], one[16];
    } s;
    for (int i = 0; i < 16; i++)
        s.x[i] = x, s.one[i] = 1;
    cpu_kernels_find("scalar")->act[ACT_SILU](s.y, 0, s.x, s.one, 0, 1, 1);
    e = s.y[0];
    return e;
}

// The convolution: oldest token first, from the bias.
static void plain_conv(float *y, const float *x, const float *in, const float *out, float *window, int T,
                       int n, int taps, const float *w, const float *bias) {
    for (int t = 0; t < T; t++)
        for (int c = 0; c < n; c++) {
            float sum = bias ? bias[c] : 0, now = in ? in[t * n + c] * x[t * n + c] : x[t * n + c];
            for (int j = 0; j < taps; j++)
                sum = fmaf(w[j * n + c], j < taps - 1 ? window[j * n + c] : now, sum);
            for (int j = 0; j + 2 < taps; j++)
                window[j * n + c] = window[(j + 1) * n + c];
            window[(taps - 2) * n + c] = now;
            y[t * n + c] = out ? out[t * n + c] * sum : plain_silu(sum);
        }
}

// The recurrence: rows of the state in ascending order.
static void plain_recur(float *y, float *s, const float *q, const float *k, const float *v,
                        const float *decay, const float *dt, int T, int N, int P, bool delta, float d) {
    for (int t = 0; t < T; t++)
        for (int j = 0; j < P; j++) {
            float seen = 0, out = 0, x = v[t * P + j];
            for (int i = 0; i < N; i++)
                seen = fmaf(s[i * P + j], k[t * N + i], seen);
            float change = (delta ? x - decay[t] * seen : x) * dt[t];
            for (int i = 0; i < N; i++) {
                s[i * P + j] = fmaf(k[t * N + i], change, s[i * P + j] * decay[t]);
                out = fmaf(s[i * P + j], q[t * N + i], out);
            }
            y[t * P + j] = delta ? out : fmaf(d, x, out);
        }
}

static void fill(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = random_float() * 2;
}

TEST(test_rule) {
    enum { T = 6, N = 23, P = 64 };
    static float x[T * P], in[T * P], out[T * P], window[15 * P], w[16 * P], bias[P], y[2][T * P],
        win[2][15 * P];
    static float q[T * N], k[T * N], decay[T], dt[T], s[N * P], st[2][N * P];
    for (int round = 0; round < 60; round++) {
        int taps = 2 + round % 7, n = 1 + round % P, columns = 16 * (1 + round % 4);
        fill(x, T * P), fill(in, T * P), fill(out, T * P), fill(window, 15 * P), fill(w, 16 * P),
            fill(bias, P);
        fill(q, T * N), fill(k, T * N), fill(decay, T), fill(dt, T), fill(s, N * P);
        bool gated = round % 2, delta = round / 2 % 2;
        for (int v = 0; v < NUM_VARIANTS; v++) {
            const struct cpu_kernels *kernels = cpu_kernels_find(variants[v]);
            if (!kernels)
                continue;
            uint64_t env = float_env_enter();
            memcpy(win[0], window, sizeof window), memcpy(win[1], window, sizeof window);
            memcpy(st[0], s, sizeof s), memcpy(st[1], s, sizeof s);
            plain_conv(y[0], x, gated ? in : NULL, gated ? out : NULL, win[0], T, n, taps, w,
                       round % 3 ? bias : NULL);
            kernels->mix_conv(&(struct mix_conv){.y = y[1],
                                                 .x = x,
                                                 .in_gate = gated ? in : NULL,
                                                 .out_gate = gated ? out : NULL,
                                                 .ldx = (size_t)n,
                                                 .ldy = (size_t)n,
                                                 .num_tokens = T,
                                                 .channels = n,
                                                 .window = win[1],
                                                 .ldw = (size_t)n,
                                                 .taps = taps,
                                                 .w = w,
                                                 .bias = round % 3 ? bias : NULL});
            assert_memory_equal(y[0], y[1], (size_t)(T * n) * sizeof(float));
            assert_memory_equal(win[0], win[1], (size_t)((taps - 1) * n) * sizeof(float));
            plain_recur(y[0], st[0], q, k, x, decay, dt, T, N, columns, delta, 0.7f);
            // q and k in one row with v, as the layer has them
            static float rows[T * (2 * N + P)], gates[T * 2];
            size_t ld = (size_t)(2 * N + columns);
            for (int t = 0; t < T; t++) {
                memcpy(rows + (size_t)t * ld, q + t * N, N * sizeof(float));
                memcpy(rows + (size_t)t * ld + N, k + t * N, N * sizeof(float));
                memcpy(rows + (size_t)t * ld + 2 * N, x + t * columns, (size_t)columns * sizeof(float));
                gates[2 * t] = dt[t], gates[2 * t + 1] = decay[t];
            }
            kernels->mix_recur(&(struct mix_recur){.state = st[1],
                                                   .ld_state = (size_t)columns,
                                                   .key_dim = N,
                                                   .columns = columns,
                                                   .q = rows,
                                                   .k = rows + N,
                                                   .v = rows + 2 * N,
                                                   .dt = gates,
                                                   .decay = gates + 1,
                                                   .y = y[1],
                                                   .ldx = ld,
                                                   .ld_gate = 2,
                                                   .ldy = (size_t)columns,
                                                   .num_tokens = T,
                                                   .delta = delta,
                                                   .d = 0.7f});
            float_env_leave(env);
            assert_memory_equal(y[0], y[1], (size_t)(T * columns) * sizeof(float));
            assert_memory_equal(st[0], st[1], (size_t)(N * columns) * sizeof(float));
        }
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
