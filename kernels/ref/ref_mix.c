#include "ref_mix.h"

#include <math.h>
#include <string.h>

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }

// n inputs x become the sums over them and those of the last tokens, in `window` (taps - 1, channels).
static void convolve(float *x, int n, const float *window, int channels, int taps, const float *w,
                     const float *bias) {
    for (int c = 0; c < n; c++) {
        double sum = bias ? (double)bias[c] : 0;
        for (int j = 0; j < taps - 1; j++)
            sum += (double)w[c * taps + j] * (double)window[j * channels + c];
        x[c] = (float)(sum + (double)w[c * taps + taps - 1] * (double)x[c]);
    }
}

// The oldest token leaves the window, and x comes in.
static void shift(float *window, const float *x, int channels, int taps) {
    size_t row = (size_t)channels;
    memmove(window, window + row, (size_t)(taps - 2) * row * sizeof *window);
    memcpy(window + (size_t)(taps - 2) * row, x, row * sizeof *x);
}

static void unit(float *x, int n, double scale) {
    double sum = 1e-6;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * scale / sqrt(sum));
}

// One head: state (N, P), q and k (N), v and y (P).
static void recur(float *y, float *state, const float *q, const float *k, const float *v, double decay,
                  double factor, const struct mix_spec *m) {
    for (int j = 0; j < m->head_dim; j++) {
        double seen = 0, out = 0;
        for (int i = 0; i < m->key_dim && m->kind == MIX_DELTA; i++)
            seen += (double)state[i * m->head_dim + j] * (double)k[i];
        double delta = ((double)v[j] - decay * seen) * factor;
        for (int i = 0; i < m->key_dim; i++) {
            float *s = &state[i * m->head_dim + j];
            *s = (float)((double)*s * decay + (double)k[i] * delta);
            out += (double)*s * (double)q[i];
        }
        y[j] = (float)out;
    }
}

static void finish(float *y, const float *z, const struct ref_mix *m) {
    const struct mix_spec *s = m->spec;
    int v = mix_values(s);
    if (s->kind == MIX_SSM)
        ref_act(y, ACT_SILU, z, y, v);
    for (int h = 0; h < s->heads && s->kind == MIX_DELTA; h++)
        ref_rmsnorm(y + h * s->head_dim, y + h * s->head_dim, m->norm, s->head_dim, m->eps);
    for (int g = 0, n = v / s->groups; g < s->groups && s->norm; g++)
        ref_rmsnorm(y + g * n, y + g * n, m->norm + g * n, n, m->eps);
    if (s->kind == MIX_DELTA)
        ref_act(y, ACT_SILU, z, y, v);
}

void ref_mix(float *y, const float *raw, float *x, const float *gate, float *state, const struct ref_mix *m) {
    const struct mix_spec *s = m->spec;
    int channels = mix_channels(s), n = s->groups * s->key_dim, rows[3] = {n, n, mix_values(s)};
    float *window = state, *states = state + (size_t)(s->taps - 1) * (size_t)channels;
    if (s->kind == MIX_CONV) {
        for (int c = 0; c < channels; c++)
            y[c] = x[c] = raw[c] * raw[2 * channels + c];
        convolve(y, channels, window, channels, s->taps, m->conv[0], m->conv_bias[0]);
        shift(window, x, channels, s->taps);
        for (int c = 0; c < channels; c++)
            y[c] *= raw[channels + c];
        return;
    }
    memcpy(x, raw, (size_t)channels * sizeof *x);
    for (int i = 0, at = 0; i < 3; at += rows[i++])
        convolve(x + at, rows[i], window + at, channels, s->taps, m->conv[i], m->conv_bias[i]);
    shift(window, raw, channels, s->taps);
    for (int c = 0; c < channels; c++)
        x[c] = (float)((double)x[c] * sigmoid((double)x[c]));
    for (int g = 0; g < s->groups && s->kind == MIX_DELTA; g++) {
        unit(x + g * s->key_dim, s->key_dim, 1 / sqrt(s->key_dim));
        unit(x + n + g * s->key_dim, s->key_dim, 1);
    }
    for (int h = 0; h < s->heads; h++) {
        const float *per_head = gate + mix_values(s) + h, *v = x + 2 * n + h * s->head_dim;
        int g = s->tiled ? h % s->groups : h / (s->heads / s->groups);
        bool delta = s->kind == MIX_DELTA;
        double dt = softplus((double)per_head[delta ? s->heads : 0] + (double)m->bias[h]);
        double factor = delta ? sigmoid((double)per_head[0]) : dt;
        float *out = y + h * s->head_dim;
        recur(out, states + (size_t)h * (size_t)(s->key_dim * s->head_dim), x + g * s->key_dim,
              x + n + g * s->key_dim, v, exp(dt * (double)m->a[h]), factor, s);
        for (int j = 0; j < s->head_dim && !delta; j++)
            out[j] += m->d[h] * v[j];
    }
    finish(y, gate, m);
}
