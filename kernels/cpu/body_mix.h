// The inner loops of recurrent layers (rule 19).

// 16 channels, or the first n of them.
INLINE void conv_lanes(const struct mix_conv *c, int channel, int n) {
    struct v16 before[MIX_MAX_TAPS - 1], bias = v16_set1(0);
    int last = c->taps - 1;
    if (c->bias)
        bias = v16_load_part(c->bias + channel, n);
    for (int j = 0; j < last; j++)
        before[j] = c->begins ? v16_set1(0) : v16_load_part(c->window + (size_t)j * c->ldw + channel, n);
    for (int t = 0; t < c->num_tokens; t++) {
        size_t at = (size_t)t * c->ldx + (size_t)channel;
        struct v16 x = v16_load_part(c->x + at, n), sum = bias;
        if (c->in_gate)
            x = v16_mul(v16_load_part(c->in_gate + at, n), x);
        for (int j = 0; j < last; j++)
            sum = v16_fma(v16_load_part(c->w + (size_t)j * c->ldw + channel, n), before[j], sum);
        sum = v16_fma(v16_load_part(c->w + (size_t)last * c->ldw + channel, n), x, sum);
        for (int j = 0; j + 1 < last; j++)
            before[j] = before[j + 1];
        before[last - 1] = x;
        sum = c->out_gate ? v16_mul(v16_load_part(c->out_gate + at, n), sum)
                          : v16_div(sum, v16_add(v16_set1(1), exp_v16(v16_sub(v16_set1(0), sum))));
        v16_store_part(c->y + (size_t)t * c->ldy + (size_t)channel, sum, n);
    }
    for (int j = 0; j < last; j++)
        v16_store_part(c->window + (size_t)j * c->ldw + channel, before[j], n);
}

static void mix_conv(const struct mix_conv *c) {
    int i = 0;
    for (; i + LANES <= c->channels; i += LANES)
        conv_lanes(c, i, LANES);
    if (i < c->channels)
        conv_lanes(c, i, c->channels - i);
}

// N vectors of columns, whose sums stay in registers.
INLINE void recur_columns(const struct mix_recur *r, const int N) {
    for (int t = 0; t < r->num_tokens; t++) {
        const float *q = r->q + (size_t)t * r->ldx, *k = r->k + (size_t)t * r->ldx;
        const float *v = r->v + (size_t)t * r->ldx;
        struct v16 decay = v16_set1(r->decay[(size_t)t * r->ld_gate]),
                   dt = v16_set1(r->dt[(size_t)t * r->ld_gate]);
        struct v16 delta[4], out[4];
        UNROLL for (int j = 0; j < N; j++) delta[j] = out[j] = v16_set1(0);
        for (int i = 0; i < r->key_dim && r->delta; i++) {
            const float *row = r->state + (size_t)i * r->ld_state;
            struct v16 ki = v16_set1(k[i]);
            UNROLL for (int j = 0; j < N; j++) delta[j] = v16_fma(v16_load(row + j * LANES), ki, delta[j]);
        }
        UNROLL for (int j = 0; j < N; j++) {
            struct v16 x = v16_load(v + j * LANES);
            if (r->delta)
                x = v16_sub(x, v16_mul(decay, delta[j]));
            delta[j] = v16_mul(x, dt);
        }
        for (int i = 0; i < r->key_dim; i++) {
            float *row = r->state + (size_t)i * r->ld_state;
            struct v16 ki = v16_set1(k[i]), qi = v16_set1(q[i]);
            UNROLL for (int j = 0; j < N; j++) {
                struct v16 s = v16_fma(ki, delta[j], v16_mul(v16_load(row + j * LANES), decay));
                v16_store(row + j * LANES, s);
                out[j] = v16_fma(s, qi, out[j]);
            }
        }
        UNROLL for (int j = 0; j < N; j++) {
            if (!r->delta)
                out[j] = v16_fma(v16_set1(r->d), v16_load(v + j * LANES), out[j]);
            v16_store(r->y + (size_t)t * r->ldy + j * LANES, out[j]);
        }
    }
}

static void mix_recur(const struct mix_recur *r) {
    switch (r->columns / LANES) {
    case 1: recur_columns(r, 1); break;
    case 2: recur_columns(r, 2); break;
    case 3: recur_columns(r, 3); break;
    default: recur_columns(r, 4); break;
    }
}
