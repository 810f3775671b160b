#include "ref_streams.h"

#include <math.h>
#include <string.h>

// x (D) gets the magnitude of `like` (D).
static void match(float *x, const float *like, int D) {
    double has = 0, wants = 0;
    for (int i = 0; i < D; i++) {
        has += (double)x[i] * (double)x[i] / D;
        wants += (double)like[i] * (double)like[i] / D;
    }
    for (int i = 0; i < D; i++)
        x[i] = (float)((double)x[i] * sqrt(wants) / sqrt(fmax(has, 1e-5)));
}

void ref_altup_embed(float *others, const float *x, const struct ref_altup *s) {
    for (int n = 1; n < s->num; n++) {
        ref_matvec(others + n * s->hidden, x, s->matrices[n - 1]);
        match(others + n * s->hidden, x, s->hidden);
    }
}

// c = coefs tanh(router(norm(x)) / D)
static void coefficients(float *c, const float *x, const struct ref_altup *s) {
    float m[ALTUP_STREAMS];
    ref_rmsnorm(s->scratch, x, s->norm, s->hidden, s->eps);
    ref_matvec(m, s->scratch, s->router);
    for (int n = 0; n < s->num; n++)
        m[n] = (float)tanh((double)m[n] / s->hidden);
    ref_matvec(c, m, s->coefs);
}

void ref_altup_predict(float *others, float *x, const struct ref_altup *s) {
    float c[ALTUP_STREAMS * ALTUP_STREAMS], was[ALTUP_STREAMS];
    coefficients(c, x, s);
    for (int i = 0; i < s->hidden; i++) {
        for (int n = 0; n < s->num; n++)
            was[n] = n == 0 ? x[i] : others[n * s->hidden + i];
        for (int n = 0; n < s->num; n++) {
            double sum = (double)was[n];
            for (int k = 0; k < s->num; k++)
                sum += (double)c[n * s->num + k] * (double)was[k];
            others[n * s->hidden + i] = (float)sum;
        }
    }
    memcpy(x, others, (size_t)s->hidden * sizeof *x);
}

void ref_altup_correct(float *others, float *x, const struct ref_altup *s) {
    float c[ALTUP_STREAMS];
    coefficients(c, x, s);
    for (int i = 0; i < s->hidden; i++) {
        double more = (double)x[i] - (double)others[i];
        x[i] = (float)((double)others[i] + more * (1 + (double)c[0]));
        for (int n = 1; n < s->num; n++)
            others[n * s->hidden + i] += (float)(more * (1 + (double)c[n]));
    }
}

void ref_altup_merge(float *y, const float *others, const float *x, const struct ref_altup *s) {
    memcpy(y, x, (size_t)s->hidden * sizeof *y);
    for (int n = 1; n < s->num; n++) {
        ref_matvec(s->scratch, others + n * s->hidden, s->matrices[n - 1]);
        match(s->scratch, x, s->hidden);
        for (int i = 0; i < s->hidden; i++)
            y[i] += s->scratch[i];
    }
    for (int i = 0; i < s->hidden; i++)
        y[i] /= (float)s->num;
}
