// The order of operations itself, written a second time from the rules of kernels/README.md, one number after
// another: a kernel that is right but sums in another order fails here. The bits are a promise to users.
#include "harness.h"

#include "kernels.h"
#include "plain.h"

static void random_floats(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = random_float();
}

// Rule 11: bias, norm, rotation of n heads
static void plain_heads(const struct fixture *f, float *x, int n, const struct tensor *bias,
                        const struct tensor *norm, int position) {
    const struct model_config *m = &f->config;
    int d = m->attn[0].head_dim;
    for (int i = 0; bias->data && i < n * d; i++)
        x[i] += ((const float *)bias->data)[i];
    for (int i = 0; i < n * d && m->attn[0].clip > 0; i++)
        x[i] = fminf(fmaxf(x[i], -m->attn[0].clip), m->attn[0].clip);
    for (int i = 0; i < n; i++, x += d) {
        const float *w = norm ? (const float *)norm->data + (norm->ndim == 2 ? i * d : 0) : NULL;
        if (w && m->norm == NORM_LAYER)
            plain_layernorm(x, x, w, NULL, d, m->norm_eps);
        else if (w)
            plain_rmsnorm(x, x, w, d, m->norm_eps);
        plain_rope(x, &f->config.ropes[0], position);
        if (m->attn[0].qk_norm == QK_NORM_UNIT)
            plain_rmsnorm(x, x, NULL, d, m->norm_eps);
    }
}

// resid += what a row-parallel matrix gives
static void plain_add(const struct model_config *m, float *resid, const struct weight_desc *w,
                      const struct weight_desc *post_norm, const float *x) {
    int D = m->hidden;
    float sum[256] = {0}, scale = model_scale(m->residual_scale);
    const float *bias = w->bias[0].data;
    for (int i = 0; i < D; i++) {
        sum[i] = plain_segments(&w->part[0], i, x);
        if (!post_norm && scale == 1) {
            resid[i] += sum[i];
            resid[i] += bias ? bias[i] : 0;
        } else {
            sum[i] += bias ? bias[i] : 0;
        }
    }
    if (post_norm && m->block != BLOCK_SUM_NORM)
        plain_norm(m, sum, sum, post_norm);
    for (int i = 0; i < D && (post_norm || scale != 1); i++)
        resid[i] += scale * sum[i];
    if (post_norm && m->block == BLOCK_SUM_NORM)
        plain_norm(m, resid, resid, post_norm);
}

// The residual stream of a row before all layers
static void plain_embed(const struct model_config *m, float *resid, const struct weight_desc *w, int id,
                        int position, int type) {
    int D = m->hidden;
    struct ref_matrix table = {w->part[0].data, w->part[0].dtype, m->vocab, D, NULL};
    const float *positions = m->positions ? (++w)->part[0].data : NULL,
                *types = m->token_types ? (++w)->part[0].data : NULL;
    for (int i = 0; i < D; i++) {
        resid[i] = ref_element(&table, id, i);
        resid[i] = types ? resid[i] + types[type * D + i] : resid[i];
        resid[i] = positions ? resid[i] + positions[position * D + i] : resid[i];
    }
    if (m->embed_norm)
        plain_norm(m, resid, resid, ++w);
}

static const char *variant; // NULL: of those that all give the same bits

// change: what the model has beside that, or NULL
static void check_layer(enum dtype dtype, enum dtype kv, int window, bool qk_norm, bool bias,
                        void (*change)(struct model_config *)) {
    bool wide = dtype_block(dtype) == 256; // else sizes that are multiples of few things
    const struct shape shape =
        wide ? (struct shape){1, 256, 8, 2, 32, 2304, 64, window, qk_norm, bias, window == 0}
             : (struct shape){1, 96, 6, 2, 24, 160, 64, window, qk_norm, bias, window == 0};
    enum { ROWS = 3, START = 598, END = START + ROWS };
    const int D = shape.hidden, d = shape.head_dim, Q = shape.heads * d, KV = 2 * d, F = shape.ffn;
    struct model_config config = fixture_config(&shape);
    if (change)
        change(&config);
    struct fixture *f = fixture_of(&config, dtype);
    const struct model_config *m = &f->config;
    const struct ffn_spec *ffn = &m->ffn[0];
    struct instance *in = instance_open(f, (struct setup){&backend_cpu, variant, 2, 16, kv}, 8, 608, 1);
    struct batch *b = batch_make(in, &(struct piece){0, START, ROWS, true}, 1);
    const struct layer *l = &in->layers[0];
    const bool posts = fixture_has_post_norms(m);
    const int num_embeds = 1 + (m->positions > 0) + (m->token_types > 0) + m->embed_norm;
    const struct weight_desc *w = &f->weights[num_embeds], *norm = w++, *qkv = w++,
                             *q_head = qk_norm ? w++ : NULL, *k_head = qk_norm ? w++ : NULL,
                             *sinks = m->attn[0].sinks ? w++ : NULL, *out = w++, *post = posts ? w++ : NULL,
                             *ffn_norm = m->block == BLOCK_ONE_NORM ? norm : w++, *gate_up = w++, *down = w++,
                             *ffn_post = posts ? w++ : NULL, *out_norm = w++, *lm_head = w;
    const struct tensor *q_norm = q_head ? &q_head->part[0] : NULL,
                        *k_norm = k_head ? &k_head->part[0] : NULL;
    uint64_t env = float_env_enter(); // the plain versions flush subnormals, too
    float resid[ROWS][D], before[ROWS][D], q[ROWS][Q], h[ROWS][Q], up[ROWS][F], keys[2][END * d],
        values[2][END * d];
    float key_scale[2][END], value_scale[2][END]; // 1 but for I8
    float x[256] = {0}, y[F];
    size_t bytes = in->ops->kv_block_bytes(in->dev), size = dtype_row_bytes(kv, 1);
    char *block = must_calloc(1, bytes);
    for (int i = 0; i < in->limits.num_blocks; i++) { // a past
        for (size_t j = 0; kv != DTYPE_I8 && j < bytes / size; j++)
            ref_store(block + j * size, kv, random_float() * 2);
        for (size_t j = 0; kv == DTYPE_I8 && j < bytes; j++)
            block[j] = (char)(random_u32() % 255 - 127);
        for (int j = 0; kv == DTYPE_I8 && j < 64; j++) // (2, B, K) scales
            memcpy(block + j / 32 * (16 * (KV + 8)) + 16 * KV + j % 32 * 4,
                   &(float){0.02f + 0.01f * random_float()}, 4);
        in->inspect->kv_import(in->dev, i, block);
    }
    const int32_t types[] = {1, 0, 0, 1, 1, 0, 1, 1};
    if (m->token_types)
        b->step.types = types;
    in->ops->step_begin(in->dev, &b->step);
    in->ops->embed(in->dev, &in->model, &b->step);
    for (int t = 0; t < ROWS; t++)
        plain_embed(m, resid[t], f->weights, b->step.ids[t], START + t, types[t]);
    assert_memory_equal(resid, in->act.resid, sizeof resid);
    random_floats(resid[0], ROWS * D);
    memcpy(in->act.resid, resid, sizeof resid);
    in->ops->qkv(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++) {
        plain_norm(m, x, resid[t], norm);
        for (int i = 0; i < Q; i++)
            q[t][i] = plain_dot(&qkv->part[0], i, x, 0, D);
        plain_heads(f, q[t], Q / d, &qkv->bias[0], q_norm, START + t);
        for (int i = 0; i < Q && m->attn[0].temp_scale > 0; i++)
            q[t][i] *=
                (float)(1 + (double)m->attn[0].temp_scale * log(1 + (START + t + 1) / m->attn[0].temp_step));
        for (int i = 0; i < Q && kv == DTYPE_I8; i += d)
            plain_turn(q[t] + i, d, 1.0f / (float)(d & -d));
    }
    assert_memory_equal(q, in->act.q, sizeof q);

    for (int t = 0; t < END; t++) { // (2, B, K, d) in each block
        if (t % 16 == 0)
            in->inspect->kv_export(in->dev, block_of(in, 0, t / 16), block);
        for (int which = 0; which < 2; which++)
            for (int i = 0; i < KV; i++) {
                const char *half = block + (size_t)which * bytes / 2;
                float *to = which ? values[i / d] : keys[i / d],
                      *scale = which ? value_scale[i / d] : key_scale[i / d];
                const char *at = half + (size_t)(t % 16 * KV + i) * size;
                to[t * d + i % d] = kv == DTYPE_I8 ? (float)*(const signed char *)at : ref_fetch(at, kv);
                scale[t] = 1;
                if (kv == DTYPE_I8)
                    memcpy(&scale[t], half + 16 * KV + (t % 16 * 2 + i / d) * 4, 4);
            }
    }
    for (int t = 0; t < ROWS; t++) { // what qkv wrote
        plain_norm(m, x, resid[t], norm);
        float key[KV];
        for (int i = 0; i < KV; i++)
            key[i] = plain_dot(&qkv->part[1], i, x, 0, D);
        plain_heads(f, key, KV / d, &qkv->bias[1], k_norm, START + t);
        for (int i = 0; i < KV && kv == DTYPE_I8; i += d)
            plain_turn(key + i, d, 1);
        float value[KV];
        for (int i = 0; i < KV; i++) {
            value[i] = plain_dot(&qkv->part[2], i, x, 0, D);
            if (bias)
                value[i] += ((const float *)qkv->bias[2].data)[i];
            if (m->attn[0].clip > 0)
                value[i] = fminf(fmaxf(value[i], -m->attn[0].clip), m->attn[0].clip);
        }
        for (int i = 0; i < 2 * KV; i++) {
            int head = i % KV / d, at = (START + t) * d + i % d;
            const float *vector = (i < KV ? key : value) + head * d;
            float got = i < KV ? keys[head][at] : values[head][at];
            float scale = i < KV ? key_scale[head][START + t] : value_scale[head][START + t];
            if (kv == DTYPE_I8) { // rule 17
                float max = 0;
                for (int j = 0; j < d; j++)
                    max = fmaxf(max, fabsf(vector[j]));
                assert_true(scale == max / 127);
                assert_true(got == nearbyintf(vector[i % d] * (127 / max)));
            } else {
                char stored[4];
                ref_store(stored, kv, vector[i % d]);
                assert_true(got == ref_fetch(stored, kv));
            }
        }
    }
    in->ops->attn_prefill(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++)
        for (int head = 0; head < shape.heads; head++) {
            int end = START + t + 1, begin = window > 0 && end > window ? end - window : 0;
            begin = m->attn[0].chunked ? (end - 1) / window * window : begin;
            if (m->attn[0].bidirectional) {
                begin = window > 0 ? START + t - window / 2 : 0;
                end = window > 0 && START + t + window / 2 < END ? START + t + window / 2 + 1 : END;
            }
            int of = head / (shape.heads / 2);
            plain_attention(h[t] + head * d, q[t] + head * d, keys[of], values[of], key_scale[of],
                            value_scale[of], kv == DTYPE_BF16 || kv == DTYPE_I8, begin, end, d,
                            m->attn[0].scale, m->attn[0].softcap,
                            sinks ? (const float *)sinks->part[0].data + head : NULL);
        }
    assert_memory_equal(h, in->act.h, sizeof h);

    random_floats(h[0], ROWS * Q);
    memcpy(in->act.h, h, sizeof h);
    in->ops->attn_out(in->dev, l, &b->step);
    memcpy(before, resid, sizeof before);
    for (int t = 0; t < ROWS; t++)
        plain_add(m, resid[t], out, post, h[t]);
    assert_memory_equal(resid, in->act.resid, sizeof resid);

    in->ops->ffn_in(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++) {
        plain_norm(m, x, block_is_parallel(m->block) ? before[t] : resid[t], ffn_norm);
        for (int i = 0; i < F; i++) {
            float sum[2] = {0};
            for (int p = 0; p < (ffn->no_gate ? 1 : 2); p++) {
                sum[p] = plain_dot(&gate_up->part[p], i, x, 0, D);
                sum[p] += ffn->in_bias ? ((const float *)gate_up->bias[p].data)[i] : 0;
            }
            up[t][i] = plain_act(ffn->act, sum[0]);
            up[t][i] *= ffn->no_gate ? 1 : sum[1];
        }
    }
    assert_memory_equal(up, in->act.h, sizeof up);
    in->ops->ffn_out(in->dev, l, &b->step);
    for (int t = 0; t < ROWS; t++)
        plain_add(m, resid[t], down, ffn_post, up[t]);
    assert_memory_equal(resid, in->act.resid, sizeof resid);

    struct step_out result;
    in->ops->head(in->dev, &in->model, &b->step);
    in->ops->step_end(in->dev);
    in->ops->sync(in->dev, &result, NULL);
    for (int t = 0; t < ROWS; t++) {
        plain_norm(m, x, resid[t], out_norm);
        for (int i = 0; i < 64; i++) {
            y[i] = plain_dot(&lm_head->part[0], i, x, 0, D);
            y[i] += m->head_bias ? ((const float *)lm_head->bias[0].data)[i] : 0;
            y[i] *= model_scale(m->logit_scale);
            y[i] = m->logit_softcap > 0 ? m->logit_softcap * plain_tanh(y[i] / m->logit_softcap) : y[i];
        }
        assert_memory_equal(y, result.logits + t * 64, 64 * sizeof *y);
        // log-probability: groups of 16, then the binary tree of neighbours
        float group[4], max = y[0];
        for (int i = 0; i < 64; i++)
            max = fmaxf(max, y[i]);
        for (int g = 0; g < 4; g++) {
            float e[16];
            for (int i = 0; i < 16; i++)
                e[i] = plain_exp(y[g * 16 + i] - max);
            group[g] = plain_tree(e);
        }
        float total = (float)log((double)((group[0] + group[1]) + (group[2] + group[3])));
        assert_true(result.logprob[t] == max - max - total); // greedy: the best token
        assert_true(y[result.ids[t]] == max);
    }
    float_env_leave(env);
    free(block);
    free(b);
    instance_close(in);
    fixture_free(f);
}

static void like_gemma2(struct model_config *m) {
    m->post_norms = true;
    m->attn[0].softcap = 3, m->logit_softcap = 2;
    m->ffn[0].act = ACT_GELU;
    m->residual_scale = 0.7f, m->logit_scale = 1.3f;
}

static void like_phi2(struct model_config *m) {
    m->norm = NORM_LAYER, m->norm_bias = true, m->block = BLOCK_ONE_NORM;
    m->head_bias = true, m->logit_scale = 0.25f;
    m->ffn[0] = (struct ffn_spec){
        .hidden = m->ffn[0].hidden, .act = ACT_GELU_ERF, .no_gate = true, .in_bias = true, .out_bias = true};
}

static void like_cohere(struct model_config *m) {
    m->norm = NORM_LAYER, m->block = BLOCK_PARALLEL;
    m->attn[0].qk_norm = QK_NORM_EACH, m->attn[0].clip = 0.25f;
    m->ffn[0].in_bias = true;
}

static void like_nemotron(struct model_config *m) {
    m->norm = NORM_LAYER, m->norm_bias = true;
    m->ffn[0].act = ACT_RELU2, m->ffn[0].no_gate = true;
}

static void like_llama4(struct model_config *m) {
    m->attn[0].chunked = true;
    m->attn[0].qk_norm = QK_NORM_UNIT;
    m->attn[0].temp_scale = 0.3f, m->attn[0].temp_step = 600, m->attn[0].temp_offset = 1;
}

static void like_bert(struct model_config *m) {
    m->norm = NORM_LAYER, m->norm_bias = true, m->block = BLOCK_SUM_NORM;
    m->positions = 700, m->token_types = 2, m->embed_norm = true;
    m->attn[0].bidirectional = true;
}

static void with_sinks(struct model_config *m) { m->attn[0].sinks = true; }

TEST(test_layer) {
    check_layer(DTYPE_F32, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_F16, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_BF16, DTYPE_BF16, 300, false, false, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_F16, 7, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_BF16, 0, true, false, NULL);
    check_layer(DTYPE_F32, DTYPE_I8, 0, true, false, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_I8, 301, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_F32, 300, true, false, NULL);
    check_layer(DTYPE_F16, DTYPE_F32, 0, false, true, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_F32, 7, true, true, NULL);
    check_layer(DTYPE_Q4_0, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_Q4_K, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q5_K, DTYPE_BF16, 0, false, false, NULL);
    check_layer(DTYPE_Q6_K, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q5_0, DTYPE_F16, 0, false, true, NULL);
    check_layer(DTYPE_Q4_1, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_Q5_1, DTYPE_F16, 7, false, false, NULL);
    check_layer(DTYPE_IQ4_NL, DTYPE_F32, 0, true, false, NULL);
    check_layer(DTYPE_MXFP4, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q3_K, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_Q2_K, DTYPE_F32, 0, false, false, NULL);
    check_layer(DTYPE_IQ4_XS, DTYPE_F16, 0, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_F32, 0, false, false, like_gemma2);
    check_layer(DTYPE_Q8_0, DTYPE_I8, 300, true, true, like_gemma2);
    check_layer(DTYPE_F32, DTYPE_F16, 0, false, true, like_phi2);
    check_layer(DTYPE_Q4_K, DTYPE_BF16, 0, false, true, like_phi2);
    check_layer(DTYPE_BF16, DTYPE_F32, 0, true, false, like_cohere);
    check_layer(DTYPE_Q6_K, DTYPE_F32, 7, false, false, like_nemotron);
    check_layer(DTYPE_F32, DTYPE_F16, 0, false, false, with_sinks);
    check_layer(DTYPE_MXFP4, DTYPE_I8, 128, false, true, with_sinks);
    check_layer(DTYPE_F32, DTYPE_BF16, 200, false, false, like_llama4);
    check_layer(DTYPE_Q8_0, DTYPE_F32, 599, false, false, like_llama4);
    check_layer(DTYPE_F32, DTYPE_F32, 0, false, true, like_bert);
    check_layer(DTYPE_Q8_0, DTYPE_I8, 2, false, true, like_bert);
    check_layer(DTYPE_F16, DTYPE_BF16, 500, false, false, like_bert);
}

// AMX's own order: bf16 weights, and caches whose elements are multiplied in pairs
TEST(test_amx) {
    variant = cpu_kernels_find("amx") ? "amx" : "amx-emulated";
    if (!cpu_kernels_find(variant))
        return;
    plain_on_amx = true;
    check_layer(DTYPE_BF16, DTYPE_BF16, 300, false, false, NULL);
    check_layer(DTYPE_F32, DTYPE_BF16, 0, true, false, NULL);
    check_layer(DTYPE_F32, DTYPE_I8, 0, true, false, NULL);
    check_layer(DTYPE_Q8_0, DTYPE_I8, 301, false, false, NULL);
    check_layer(DTYPE_Q5_K, DTYPE_BF16, 0, false, false, NULL);
    check_layer(DTYPE_BF16, DTYPE_I8, 7, true, true, like_gemma2);
    check_layer(DTYPE_BF16, DTYPE_F16, 0, false, false, with_sinks);
    check_layer(DTYPE_MXFP4, DTYPE_I8, 128, false, true, with_sinks);
    check_layer(DTYPE_F32, DTYPE_BF16, 200, false, false, like_llama4);
    check_layer(DTYPE_F16, DTYPE_BF16, 500, false, false, like_bert);
}

int main(void) { return run_all_tests(NULL, NULL); }
