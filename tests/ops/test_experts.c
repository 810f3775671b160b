// Layers with experts: rule 20 of kernels/README.md written a second time, operation by operation; the CPU backend against
// the reference; the same bits however rows are cut, with any threads and instructions.
#include "harness.h"

#include "plain.h"
#include "variants.h"

enum { NUM_VARIANTS = sizeof variants / sizeof *variants, D = 64, F = 32, ROWS = 60, MAX_E = 24, MAX_K = 8 };

static const struct {
    struct ffn_spec spec;
    enum dtype dtype;
    int rows; // 0: ROWS
    bool ties;
} cases[] = {
    {.dtype = DTYPE_F32, .rows = 530, .spec = {.experts = 8, .top_k = 2, .gating = GATING_SOFTMAX_CHOSEN}},
    {.dtype = DTYPE_BF16,
     .spec = {.experts = 11, .top_k = 3, .gating = GATING_SOFTMAX, .shared_hidden = 64, .shared_gate = true}},
    {.dtype = DTYPE_Q8_0,
     .spec = {.experts = 24, .top_k = 6, .gating = GATING_SOFTMAX, .renormalise = true, .scale = 2.5f}},
    {.dtype = DTYPE_F32,
     .spec = {.experts = 24,
              .top_k = 4,
              .gating = GATING_SIGMOID,
              .groups = 6,
              .top_groups = 2,
              .renormalise = true,
              .scale = 1.5f,
              .select_bias = true,
              .shared_hidden = 32}},
    {.dtype = DTYPE_F16,
     .spec = {.experts = 12, .top_k = 3, .gating = GATING_SOFTMAX, .groups = 3, .top_groups = 1}},
    {.dtype = DTYPE_Q4_0,
     .spec = {.experts = 9, .top_k = 1, .gating = GATING_SIGMOID, .weigh_input = true, .shared_hidden = 64}},
    {.dtype = DTYPE_MXFP4,
     .spec = {.experts = 10,
              .top_k = 4,
              .gating = GATING_SOFTMAX_CHOSEN,
              .act = ACT_CLAMPED,
              .router_bias = true,
              .expert_bias = true}},
    {.dtype = DTYPE_F32,
     .spec = {.experts = 8,
              .top_k = 2,
              .gating = GATING_SOFTMAX_CHOSEN,
              .act = ACT_CLAMPED,
              .expert_bias = true}},
    {.dtype = DTYPE_F32,
     .ties = true,
     .spec = {.experts = 16, .top_k = 5, .gating = GATING_SIGMOID, .renormalise = true}},
    {.dtype = DTYPE_F32, .spec = {.experts = 8, .top_k = 8, .gating = GATING_SOFTMAX, .renormalise = true}},
    {.dtype = DTYPE_F32,
     .ties = true,
     .spec = {.experts = 16, .top_k = 3, .gating = GATING_IN_TURN, .near = 0.5f, .scale = 1.5f}},
    {.dtype = DTYPE_BF16, .spec = {.experts = 12, .top_k = 2, .gating = GATING_IN_TURN, .near = 0.2f}},
    {.dtype = DTYPE_Q8_0,
     .spec = {.experts = 16,
              .top_k = 3,
              .gating = GATING_SOFTMAX,
              .act = ACT_GELU,
              .renormalise = true,
              .shared_hidden = 64,
              .own_norms = true,
              .router_scale = 0.7f,
              .expert_scale = true}},
    {.dtype = DTYPE_Q8_0,
     .spec = {.experts = 12,
              .top_k = 3,
              .gating = GATING_SIGMOID,
              .act = ACT_RELU,
              .renormalise = true,
              .shared_hidden = 64,
              .shared_scale = 0.5f}},
    {.dtype = DTYPE_BF16,
     .spec = {.experts = 16,
              .top_k = 4,
              .gating = GATING_SIGMOID,
              .renormalise = true,
              .latent = 32,
              .shared_hidden = 64,
              .scale = 2}},
    {.dtype = DTYPE_Q8_0,
     .spec = {.experts = 9, .top_k = 2, .gating = GATING_SOFTMAX, .renormalise = true, .latent = 32}},
};
enum { NUM_CASES = sizeof cases / sizeof *cases, MAX_ROWS = 530 };

// The layer's weights in the order of load().
enum {
    NORM,
    ROUTER,
    EXPERT_IN,
    EXPERT_OUT,
    SELECT_BIAS,
    SHARED_IN,
    SHARED_OUT,
    SHARED_GATE,
    LATENT_IN,
    LATENT_OUT,
    EXPERT_SCALE,
    ROUTER_NORM, // and so on with ffn_spec.own_norms
    EXPERT_NORM,
    SHARED_POST_NORM,
    EXPERT_POST_NORM,
    NUM_WEIGHTS
};

struct case_of {
    struct model_config config;
    struct weight_desc weights[NUM_WEIGHTS]; // part[0].data NULL: none
    int rows;
    float input[MAX_ROWS * D];
};

// parts of `stack` matrices; 0: one that is no stack
static void add(struct case_of *c, int which, enum weight_role role, enum dtype dtype, int parts, int stack,
                int rows, int cols, float scale, bool bias) {
    struct weight_desc *w = &c->weights[which];
    w->role = role;
    for (int i = 0; i < parts; i++) {
        int all = (stack ? stack : 1) * rows;
        w->part[i] = random_tensor(dtype, all, cols, scale);
        if (stack)
            w->part[i].ndim = 3, w->part[i].shape[0] = stack, w->part[i].shape[1] = rows,
            w->part[i].shape[2] = cols;
        if (!bias)
            continue;
        w->bias[i] = random_tensor(DTYPE_F32, 1, all, 2);
        w->bias[i].ndim = stack ? 2 : 1;
        w->bias[i].shape[0] = stack ? stack : rows;
        w->bias[i].shape[1] = stack ? rows : 0;
    }
}

static void make_vector(struct weight_desc *w, int n) { w->part[0].ndim = 1, w->part[0].shape[0] = n; }

static struct case_of *make_case(int i) {
    struct case_of *c = must_calloc(1, sizeof *c);
    struct ffn_spec f = cases[i].spec;
    enum dtype type = cases[i].dtype;
    float scale = f.act == ACT_CLAMPED ? 1.2f : 0.4f; // beyond 7 in places
    f.hidden = F;
    c->rows = cases[i].rows ? cases[i].rows : ROWS;
    c->config = (struct model_config){.num_layers = 1,
                                      .hidden = D,
                                      .vocab = 64,
                                      .norm_eps = 1e-5f,
                                      .residual_scale = i % 3 == 1 ? 0.7f : 1,
                                      .num_attn = 1,
                                      .num_ffn = 1,
                                      .num_groups = 1,
                                      .kv_layers = 1,
                                      .attn = {{.heads = 1, .kv_heads = 1, .head_dim = 16, .rope = -1}},
                                      .ffn = {f},
                                      .groups = {{.num_layers = 1}}};
    add(c, NORM, WEIGHT_FFN_NORM, DTYPE_F32, 1, 0, 1, D, 1.3f, false);
    make_vector(&c->weights[NORM], D);
    add(c, ROUTER, WEIGHT_ROUTER, DTYPE_F32, 1, 0, f.experts, D, 0.4f, f.router_bias);
    int dim = ffn_expert_dim(&f, D);
    add(c, EXPERT_IN, WEIGHT_EXPERT_GATE_UP, type, 2, f.experts, F, dim, scale, f.expert_bias);
    add(c, EXPERT_OUT, WEIGHT_EXPERT_DOWN, type, 1, f.experts, dim, F, 0.4f, f.expert_bias);
    if (f.latent > 0) {
        add(c, LATENT_IN, WEIGHT_EXPERT_IN, type, 1, 0, f.latent, D, 0.4f, false);
        add(c, LATENT_OUT, WEIGHT_EXPERT_OUT, type, 1, 0, D, f.latent, 0.4f, false);
    }
    if (f.select_bias) {
        add(c, SELECT_BIAS, WEIGHT_SELECT_BIAS, DTYPE_F32, 1, 0, 1, f.experts, 0.3f, false);
        make_vector(&c->weights[SELECT_BIAS], f.experts);
    }
    if (f.shared_hidden > 0) {
        add(c, SHARED_IN, WEIGHT_GATE_UP, type, 2, 0, f.shared_hidden, D, 0.4f, false);
        add(c, SHARED_OUT, WEIGHT_DOWN, type, 1, 0, D, f.shared_hidden, 0.4f, false);
    }
    if (f.shared_gate) {
        add(c, SHARED_GATE, WEIGHT_SHARED_GATE, DTYPE_F32, 1, 0, 1, D, 0.4f, false);
        make_vector(&c->weights[SHARED_GATE], D);
    }
    if (f.expert_scale) {
        add(c, EXPERT_SCALE, WEIGHT_EXPERT_SCALE, DTYPE_F32, 1, 0, 1, f.experts, 1.3f, false);
        make_vector(&c->weights[EXPERT_SCALE], f.experts);
    }
    for (int n = ROUTER_NORM; n <= EXPERT_POST_NORM && f.own_norms; n++) {
        add(c, n, (enum weight_role)(WEIGHT_ROUTER_NORM + n - ROUTER_NORM), DTYPE_F32, 1, 0, 1, D, 1.3f,
            false);
        make_vector(&c->weights[n], D);
    }
    float *router = (float *)(uintptr_t)c->weights[ROUTER].part[0].data;
    for (int e = 1; e < f.experts && cases[i].ties; e++) // four kinds of experts
        memcpy(router + e * D, router + e % 4 * D, D * sizeof *router);
    for (int k = 0; k < c->rows * D; k++)
        c->input[k] = random_float() * 2;
    return c;
}

static void free_case(struct case_of *c) {
    for (int i = 0; i < NUM_WEIGHTS; i++)
        for (int j = 0; j < 3; j++) {
            free((void *)(uintptr_t)c->weights[i].part[j].data);
            free((void *)(uintptr_t)c->weights[i].bias[j].data);
        }
    free(c);
}

// ---- the rule

static int compare_ids(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// The n best of num scores, each time the largest that is left: the first of equal ones.
static void plain_best(int *best, int n, const float *score, int num) {
    bool taken[MAX_E] = {false};
    for (int k = 0; k < n; k++) {
        best[k] = -1;
        for (int e = 0; e < num; e++)
            if (!taken[e] && (best[k] < 0 || score[e] > score[best[k]]))
                best[k] = e;
        taken[best[k]] = true;
    }
}

static void plain_route(const struct case_of *c, const float *x, int *chosen, float *w) {
    const struct ffn_spec *f = &c->config.ffn[0];
    const struct weight_desc *router = &c->weights[ROUTER];
    const float *bias = router->bias[0].data, *select = c->weights[SELECT_BIAS].part[0].data,
                *factors = c->weights[EXPERT_SCALE].part[0].data;
    float l[MAX_E], s[MAX_E], key[MAX_E], max = -INFINITY, sum = 0;
    int best[MAX_E];
    for (int e = 0; e < f->experts; e++) {
        l[e] = plain_dot(&router->part[0], e, x, 0, D) * model_scale(f->router_scale);
        l[e] += bias ? bias[e] : 0;
        max = fmaxf(max, l[e]);
    }
    for (int e = 0; e < f->experts; e++)
        sum += plain_exp(l[e] - max);
    for (int e = 0; e < f->experts; e++) {
        s[e] = f->gating == GATING_SOFTMAX   ? plain_exp(l[e] - max) / sum
               : f->gating == GATING_SIGMOID ? 1 / (1 + plain_exp(0 - l[e]))
                                             : l[e];
        key[e] = select ? s[e] + select[e] : s[e];
    }
    if (f->groups > 1) {
        int size = f->experts / f->groups;
        float of_group[MAX_E];
        for (int g = 0; g < f->groups; g++) {
            plain_best(best, 2, key + g * size, size);
            of_group[g] = key[g * size + best[0]];
            of_group[g] += f->gating == GATING_SOFTMAX ? 0 : key[g * size + best[1]];
        }
        plain_best(best, f->groups, of_group, f->groups);
        for (int g = f->top_groups; g < f->groups; g++)
            for (int e = best[g] * size; e < (best[g] + 1) * size; e++)
                key[e] = -INFINITY;
    }
    plain_best(chosen, f->top_k, key, f->experts);
    for (int k = 0; k < f->top_k && f->gating == GATING_IN_TURN; k++) {
        float m = l[chosen[k]], near = 0;
        for (int e = 0; e < f->experts; e++) {
            bool before = false;
            for (int i = 0; i < k; i++)
                before |= chosen[i] == e;
            near += before || (m - l[e]) / fmaxf(fabsf(l[e]), m) > f->near ? 0 : plain_exp(l[e] - m);
        }
        s[chosen[k]] = 1 / near;
    }
    qsort(chosen, (size_t)f->top_k, sizeof *chosen, compare_ids);
    sum = 0, max = -INFINITY;
    for (int k = 0; k < f->top_k; k++)
        max = fmaxf(max, l[chosen[k]]);
    for (int k = 0; k < f->top_k; k++) {
        w[k] = f->gating == GATING_SOFTMAX_CHOSEN ? plain_exp(l[chosen[k]] - max) : s[chosen[k]];
        sum += w[k];
    }
    for (int k = 0; k < f->top_k; k++) {
        if (f->renormalise || f->gating == GATING_SOFTMAX_CHOSEN)
            w[k] /= sum + 1e-20f;
        w[k] *= model_scale(f->scale);
        w[k] *= factors ? factors[chosen[k]] : 1;
    }
}

// One of the matrices of a stack.
static struct tensor plain_expert(const struct tensor *all, int e) {
    size_t bytes = (size_t)all->shape[1] * dtype_row_bytes(all->dtype, all->shape[2]);
    return (struct tensor){
        (const char *)all->data + (size_t)e * bytes, all->dtype, 2, {all->shape[1], all->shape[2]}};
}

static float plain_value(const struct tensor *w, const struct tensor *bias, int e, int row, const float *x) {
    float dot = plain_dot(w, row, x, 0, (int)w->shape[1]);
    return bias->data ? dot + ((const float *)bias->data)[e * (int)w->shape[0] + row] : dot;
}

static float plain_gated(enum act act, float g, float u) {
    if (act != ACT_CLAMPED)
        return plain_act(act, g) * u;
    g = fminf(g, 7), u = fmaxf(-7, fminf(u, 7));
    return g / (1 + plain_exp(0 - g * 1.702f)) * (u + 1);
}

// resid (D) += what the layer adds to the row
static void plain_experts(const struct case_of *c, float *resid) {
    const struct ffn_spec *f = &c->config.ffn[0];
    const struct weight_desc *w = c->weights;
    float own[D], x[D], weights[MAX_K], segment[8][D] = {{0}}, shared[64] = {0}, both[2][D] = {{0}};
    int chosen[MAX_E];
    bool apart = f->own_norms;
    plain_rmsnorm(own, resid, w[NORM].part[0].data, D, c->config.norm_eps);
    plain_rmsnorm(x, resid, w[apart ? ROUTER_NORM : NORM].part[0].data, D, c->config.norm_eps);
    plain_route(c, x, chosen, weights);
    plain_rmsnorm(x, resid, w[apart ? EXPERT_NORM : NORM].part[0].data, D, c->config.norm_eps);
    int dim = ffn_expert_dim(f, D);
    float latent[D];
    for (int i = 0; i < f->latent; i++)
        latent[i] = plain_dot(&w[LATENT_IN].part[0], i, x, 0, D);
    memcpy(x, latent, f->latent > 0 ? (size_t)dim * sizeof *x : 0);
    for (int k = 0, s = 0; k < f->top_k; k++) {
        int e = chosen[k];
        struct tensor gate = plain_expert(&w[EXPERT_IN].part[0], e),
                      up = plain_expert(&w[EXPERT_IN].part[1], e),
                      down = plain_expert(&w[EXPERT_OUT].part[0], e);
        float in[D], h[F];
        while (e >= f->experts * (s + 1) / 8)
            s++;
        for (int i = 0; i < dim; i++)
            in[i] = f->weigh_input ? x[i] * weights[k] : x[i];
        for (int i = 0; i < F; i++)
            h[i] = plain_gated(f->act, plain_value(&gate, &w[EXPERT_IN].bias[0], e, i, in),
                               plain_value(&up, &w[EXPERT_IN].bias[1], e, i, in));
        for (int i = 0; i < dim; i++)
            segment[s][i] +=
                (f->weigh_input ? 1 : weights[k]) * plain_value(&down, &w[EXPERT_OUT].bias[0], e, i, h);
    }
    struct tensor shared_gate = w[SHARED_GATE].part[0];
    shared_gate.ndim = 2, shared_gate.shape[0] = 1, shared_gate.shape[1] = D;
    float open = model_scale(f->shared_scale);
    open *= f->shared_gate ? 1 / (1 + plain_exp(0 - plain_dot(&shared_gate, 0, own, 0, D))) : 1;
    for (int i = 0; i < f->shared_hidden; i++)
        shared[i] = plain_act(f->act, plain_dot(&w[SHARED_IN].part[0], i, own, 0, D)) *
                    plain_dot(&w[SHARED_IN].part[1], i, own, 0, D) * open;
    for (int i = 0; i < D; i++) {
        float s[8];
        for (int k = 0; k < 8; k++)
            s[k] = segment[k][i];
        both[0][i] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        if (f->shared_hidden > 0)
            both[1][i] = plain_segments(&w[SHARED_OUT].part[0], i, shared);
    }
    memcpy(latent, both[0], sizeof latent);
    for (int i = 0; i < D && f->latent > 0; i++)
        both[0][i] = plain_dot(&w[LATENT_OUT].part[0], i, latent, 0, dim);
    for (int k = 0; k < 2 && apart; k++)
        plain_rmsnorm(both[k], both[k], w[k ? SHARED_POST_NORM : EXPERT_POST_NORM].part[0].data, D,
                      c->config.norm_eps);
    for (int i = 0; i < D; i++)
        resid[i] += model_scale(c->config.residual_scale) *
                    (f->shared_hidden > 0 ? both[0][i] + both[1][i] : both[0][i]);
}

// ---- the backends

// `chunk` rows a step. out: (rows, D). false: the machine lacks the variant.
static bool run(const struct case_of *c, const struct backend_ops *ops, const char *variant, int threads,
                int chunk, float *out) {
    struct device_config config = {.model = &c->config,
                                   .num_threads = threads,
                                   .variant = variant,
                                   .kv_dtype = DTYPE_F32,
                                   .block_size = 16,
                                   .world = 1};
    struct step_limits limits = {
        .max_tokens = chunk, .max_seqs = 1, .max_rows = 1, .max_context = 1, .num_blocks = 1};
    struct layer layer = {.ffn = c->config.ffn[0]};
    struct model model = {.layers = &layer};
    struct err err = {0};
    struct device *dev = ops->open(NULL, &config, &err);
    if (!dev) {
        assert_int_equal(err.code, STATUS_DEVICE);
        return false;
    }
    for (int i = 0; i < NUM_WEIGHTS; i++)
        if (c->weights[i].part[0].data &&
            !(*weight_at(&model, c->weights[i].role, 0, 0) = ops->weight_load(dev, &c->weights[i], &err)))
            fail_msg("%s", err.msg);
    assert_int_equal(ops->reserve(dev, &limits, &err), STATUS_OK);
    for (int t = 0; t < c->rows; t += chunk) {
        int n = t + chunk < c->rows ? chunk : c->rows - t;
        struct step step = {.num_tokens = n, .num_seqs = 1};
        struct step_out ignored;
        ops->step_begin(dev, &step);
        ops->resid_import(dev, c->input + t * D, &step);
        ops->ffn_in(dev, &layer, &step);
        ops->ffn_out(dev, &layer, &step);
        ops->resid_export(dev, out + t * D, &step);
        ops->step_end(dev);
        assert_int_equal(ops->sync(dev, &ignored, &err), STATUS_OK);
    }
    ops->close(dev);
    return true;
}

TEST(test_layers) {
    static const int chunks[] = {MAX_ROWS, 1, 17, 5};
    static float want[MAX_ROWS * D], got[MAX_ROWS * D];
    for (int i = 0; i < NUM_CASES; i++) {
        struct case_of *c = make_case(i);
        size_t n = (size_t)(c->rows * D);
        memcpy(want, c->input, n * sizeof *want);
        uint64_t env = float_env_enter();
        for (int t = 0; t < c->rows; t++)
            plain_experts(c, want + t * D);
        float_env_leave(env);
        for (int v = 0; v < NUM_VARIANTS; v++) {
            const char *name = variants[v];
            for (int k = 0; k < 4; k++)
                if (run(c, &backend_cpu, name, 1 + (k + v) % 3, chunks[k], got) &&
                    memcmp(want, got, n * sizeof *want) != 0)
                    fail_msg("experts %d, %s, %d rows a step: other bits", i, name, chunks[k]);
        }
        assert_true(run(c, &backend_ref, NULL, 1, 9, got));
        double difference = 0, size = 0; // of what the layer adds
        for (size_t k = 0; k < n; k++) {
            difference += pow((double)(want[k] - got[k]), 2);
            size += pow((double)(got[k] - c->input[k]), 2);
        }
        double limit = cases[i].dtype == DTYPE_F32 || cases[i].dtype == DTYPE_F16 ? 1e-5 : 2e-2;
        if (!(size > 1 && sqrt(difference / size) < limit))
            fail_msg("experts %d: %g from the reference", i, sqrt(difference / size));
        free_case(c);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
