// Layers with experts on the emulated device: routing, grouping and the experts' GEMMs against kernels/ref; whole steps
// of models with experts; and that a row's bits do not depend on its batch.
#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "device.h"

static const enum dtype types[] = {DTYPE_F32,    DTYPE_BF16, DTYPE_F16,    DTYPE_Q8_0,  DTYPE_Q4_0,
                                   DTYPE_Q4_K,   DTYPE_Q5_K, DTYPE_Q6_K,   DTYPE_MXFP4, DTYPE_Q4_1,
                                   DTYPE_Q5_0,   DTYPE_Q5_1, DTYPE_IQ4_NL, DTYPE_Q2_K,  DTYPE_Q3_K,
                                   DTYPE_IQ4_XS, DTYPE_FP8};
enum { NUM_TYPES = sizeof types / sizeof types[0] };

// ---- routing

enum { ROUTE_ROWS = 23, MAX_E = 70 };

static const struct {
    struct ffn_spec spec;
    bool ties, nan;
} routes[] = {
    {.spec = {.experts = 8, .top_k = 2, .gating = GATING_SOFTMAX_CHOSEN}},                // Mixtral
    {.spec = {.experts = 64, .top_k = 8, .gating = GATING_SOFTMAX, .renormalise = true}}, // Qwen3
    {.spec = {.experts = 60, .top_k = 4, .gating = GATING_SOFTMAX}},                      // Qwen2
    {.spec = {.experts = 70,
              .top_k = 6,
              .gating = GATING_SIGMOID,
              .renormalise = true,
              .scale = 1.5f,
              .select_bias = true}},
    {.spec = {.experts = 24,
              .top_k = 4,
              .gating = GATING_SIGMOID,
              .groups = 6,
              .top_groups = 2,
              .select_bias = true}},
    {.spec = {.experts = 66, .top_k = 3, .gating = GATING_SOFTMAX, .groups = 33, .top_groups = 2}},
    {.spec = {.experts = 33, .top_k = 33, .gating = GATING_SOFTMAX, .renormalise = true}},
    {.spec = {.experts = 5, .top_k = 1, .gating = GATING_SOFTMAX_CHOSEN, .router_bias = true}},
    {.spec = {.experts = 64, .top_k = 5, .gating = GATING_SIGMOID, .renormalise = true}, .ties = true},
    {.spec = {.experts = 40, .top_k = 4, .gating = GATING_SOFTMAX, .groups = 4, .top_groups = 2},
     .ties = true},
    {.spec = {.experts = 40, .top_k = 4, .gating = GATING_SOFTMAX}, .nan = true},
    {.spec = {.experts = 16, .top_k = 2, .gating = GATING_IN_TURN, .near = 0.4f}}, // Phi 3.5
    {.spec = {.experts = 41, .top_k = 5, .gating = GATING_IN_TURN, .near = 1.7f, .scale = 0.5f},
     .ties = true},
    {.spec = {.experts = 40, .top_k = 3, .gating = GATING_IN_TURN, .near = 0.2f}, .nan = true},
    {.spec = {.experts = 48,
              .top_k = 4,
              .gating = GATING_SOFTMAX,
              .renormalise = true,
              .router_scale = 0.3f,
              .expert_scale = true}},
};

TEST(test_route) {
    for (int c = 0; c < (int)(sizeof routes / sizeof routes[0]); c++) {
        const struct ffn_spec *f = &routes[c].spec;
        int E = f->experts, K = f->top_k;
        float *logits = random_floats((size_t)(ROUTE_ROWS * E), 3), *bias = random_floats((size_t)E, 1),
              *select = random_floats((size_t)E, 0.3f), *factors = random_floats((size_t)E, 2);
        int32_t seq_of[ROUTE_ROWS] = {0};
        seq_of[ROUTE_ROWS - 1] = -1;
        for (int i = 0; i < ROUTE_ROWS * E && routes[c].ties; i++)
            logits[i] = (float)(i % E % 4) - 1 + 0.1f * (float)(i / E);
        for (int e = 0; e < E && routes[c].nan; e++)
            logits[e] = NAN;
        void *d_logits = to_device(logits, sizeof *logits * (size_t)(ROUTE_ROWS * E)),
             *d_bias = to_device(bias, sizeof *bias * (size_t)E),
             *d_select = to_device(select, sizeof *select * (size_t)E),
             *d_factors = to_device(factors, sizeof *factors * (size_t)E),
             *d_seq = to_device(seq_of, sizeof seq_of);
        int32_t *experts = poisoned(sizeof(int32_t) * (size_t)(ROUTE_ROWS * K));
        float *weights = poisoned(sizeof(float) * (size_t)(ROUTE_ROWS * K));
        struct cuda_route a = {.logits = d_logits,
                               .bias = f->router_bias ? d_bias : NULL,
                               .select_bias = f->select_bias ? d_select : NULL,
                               .factors = f->expert_scale ? d_factors : NULL,
                               .seq_of = d_seq,
                               .experts = experts,
                               .weights = weights,
                               .rows = ROUTE_ROWS,
                               .num_experts = E,
                               .top_k = K,
                               .num_groups = f->groups,
                               .top_groups = f->top_groups,
                               .gating = f->gating,
                               .renormalise = f->renormalise,
                               .scale = model_scale(f->scale),
                               .logit_scale = model_scale(f->router_scale),
                               .near = f->near};
        rt_test_order(c % 3);
        cuda_route(rt, &a);
        int32_t *got = to_host(experts, sizeof(int32_t) * (size_t)(ROUTE_ROWS * K));
        float *w = to_host(weights, sizeof(float) * (size_t)(ROUTE_ROWS * K));
        for (int r = 0; r < ROUTE_ROWS; r++) {
            int want[MAX_E];
            float want_w[MAX_E], row[MAX_E];
            for (int e = 0; e < E; e++)
                row[e] = logits[r * E + e] * model_scale(f->router_scale) + (f->router_bias ? bias[e] : 0);
            ref_route(want, want_w, row, f->select_bias ? select : NULL, f->expert_scale ? factors : NULL, f);
            for (int k = 0; k < K; k++) {
                int32_t e = got[r * K + k];
                if (r == ROUTE_ROWS - 1) {
                    assert_int_equal(e, -1);
                } else if (routes[c].nan && r == 0) { // some experts, each once, and what fails the row
                    assert_true(e >= 0 && e < E && (k == 0 || e > got[r * K + k - 1]) && isnan(w[r * K + k]));
                } else if (e != want[k] || !(fabsf(w[r * K + k] - want_w[k]) <= 2e-6f * fabsf(want_w[k]))) {
                    fail_msg("case %d, row %d, place %d: expert %d of weight %g, not %d of %g", c, r, k, e,
                             (double)w[r * K + k], want[k], (double)want_w[k]);
                }
            }
        }
        free(got), free(w), free(logits), free(bias), free(select), free(factors);
        rt_free(rt, d_logits), rt_free(rt, d_bias), rt_free(rt, d_select), rt_free(rt, d_factors),
            rt_free(rt, d_seq);
        rt_free(rt, experts), rt_free(rt, weights);
    }
}

// ---- groups of slots

// Experts of rows: how they fall on them.
enum spread { RANDOM, ALL_OF_ONE, ONE_EACH, NUM_SPREADS };

// (rows, k) ids ascending of E experts; every fifth row is nobody's.
static int32_t *make_experts(enum spread spread, int rows, int k, int E) {
    int32_t *ids = must_calloc((size_t)(rows * k), sizeof *ids);
    for (int r = 0; r < rows; r++)
        for (int j = 0, e = 0; j < k; j++) {
            int left = E - e - (k - j - 1); // that the place may take
            e += spread == RANDOM     ? (int)(random_u32() % (uint32_t)(j + 1 < k ? (left + 1) / 2 : left))
                 : spread == ONE_EACH ? (j == 0 ? r * k % (E - k + 1) : 0)
                                      : 0;
            ids[r * k + j] = r % 5 == 4 ? -1 : e++;
        }
    return ids;
}

struct slots {
    int32_t *ids; // on the device
    struct cuda_group_slots a;
};

static struct slots make_slots(const int32_t *ids, int num, int E, int group_rows, int first, int own) {
    static const struct expert_counts before = {1000, 200, 30};
    struct slots s = {.ids = to_device(ids, sizeof *ids * (size_t)num)};
    s.a = (struct cuda_group_slots){.experts = s.ids,
                                    .num = num,
                                    .num_experts = E,
                                    .group_rows = group_rows,
                                    .first_own = first,
                                    .num_own = own,
                                    .slots = poisoned(sizeof(int32_t) * (size_t)num),
                                    .groups = poisoned(sizeof(struct cuda_expert_group) * (size_t)num),
                                    .num_groups = poisoned(sizeof(int32_t)),
                                    .counts = to_device(&before, sizeof before)};
    cuda_group_slots(rt, &s.a);
    return s;
}

static void free_slots(struct slots *s) {
    rt_free(rt, s->ids), rt_free(rt, s->a.slots), rt_free(rt, s->a.groups), rt_free(rt, s->a.num_groups),
        rt_free(rt, s->a.counts);
}

// Slots add to the counts that were there, whichever rank has their experts.
static void check_counts(const struct slots *s, const int32_t *ids) {
    struct expert_counts *got = to_host(s->a.counts, sizeof *got), want = {1000, 200, 30};
    int rows[CUDA_MAX_EXPERTS] = {0}, busiest = 0;
    for (int i = 0; i < s->a.num; i++)
        if (ids[i] >= 0) {
            int n = ++rows[ids[i]];
            want.rows++;
            want.reads += n == 1;
            busiest = n > busiest ? n : busiest;
        }
    want.busiest += (uint64_t)busiest;
    assert_memory_equal(got, &want, sizeof want);
    free(got);
}

// Every slot of a rank's experts, `own` of E, is in one group, of its expert, and groups are full but for an expert's last.
static void check_groups(const int32_t *ids, int rows, int k, int E, int group_rows, int first, int own) {
    int num = rows * k;
    struct slots s = make_slots(ids, num, E, group_rows, first, own);
    int32_t *n = to_host(s.a.num_groups, sizeof *n), *slots = to_host(s.a.slots, sizeof *slots * (size_t)num);
    struct cuda_expert_group *g = to_host(s.a.groups, sizeof *g * (size_t)num);
    bool *seen = must_calloc((size_t)num, sizeof *seen);
    int expert = -1, found = 0, wanted = 0;
    assert_true(*n >= 0 && *n <= cuda_max_groups(rows * (k < own ? k : own), own, group_rows));
    for (int i = 0; i < *n; i++) {
        bool last = i + 1 == *n || g[i + 1].expert != g[i].expert;
        assert_true(g[i].expert >= expert && g[i].expert < own && g[i].begin == found);
        assert_true(g[i].num > 0 && g[i].num <= group_rows && (last || g[i].num == group_rows));
        expert = g[i].expert;
        for (int j = 0; j < g[i].num; j++) {
            int32_t slot = slots[found++];
            assert_true(slot >= 0 && slot < num && !seen[slot] && ids[slot] == first + expert);
            seen[slot] = true;
        }
    }
    for (int i = 0; i < num; i++)
        wanted += ids[i] >= first && ids[i] < first + own;
    assert_int_equal(found, wanted);
    check_counts(&s, ids);
    free(n), free(slots), free(g), free(seen);
    free_slots(&s);
}

TEST(test_groups) {
    static const struct {
        int rows, k, E;
    } sizes[] = {{1, 8, 128}, {3, 2, 8}, {64, 8, 128}, {70, 4, 4}, {300, 6, 60}, {9, 1, 1000}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof sizes[0]); i++)
        for (int spread = 0; spread < NUM_SPREADS; spread++) {
            int32_t *ids = make_experts((enum spread)spread, sizes[i].rows, sizes[i].k, sizes[i].E);
            rt_test_order((i + spread) % 3);
            check_groups(ids, sizes[i].rows, sizes[i].k, sizes[i].E, 8 << i % 2, 0, sizes[i].E);
            for (int rank = 0; rank < 2; rank++) { // the first and third of four
                int first = backend_expert_bound(sizes[i].E, 4 * rank),
                    end = backend_expert_bound(sizes[i].E, 4 * rank + 2);
                check_groups(ids, sizes[i].rows, sizes[i].k, sizes[i].E, 8 << i % 2, first, end - first);
            }
            free(ids);
        }
}

// ---- GEMMs of slots, against kernels/ref

// With x a row for each slot, or for each row; by order without a bias, or with one, or with weights of x, too.
static void check_gemm(enum dtype type, enum spread spread, int rows, int k, int E, bool gated, bool by_slot,
                       int order) {
    int block = dtype_block(type), cols = block == 256 || type == DTYPE_FP8 ? 256 : 96, N = 44,
        num = rows * k;
    int group_rows = cuda_group_rows(rows, k, E);
    enum act act = (enum act)(num % NUM_ACTS);
    int x_rows = by_slot ? num : rows, parts = gated ? 2 : 1, each = (parts * (N + 7) / 8 * 8 + 15) / 16 * 16;
    struct tensor t[2];
    struct cuda_matrix w = matrix_alloc(type, E * each, cols);
    size_t one = (size_t)N * dtype_row_bytes(type, cols);
    for (int p = 0; p < parts; p++) {
        t[p] = random_tensor(type, E * N, cols, 0.3f);
        for (int e = 0; e < E; e++) {
            struct tensor mine = {(const char *)t[p].data + (size_t)e * one, type, 2, {N, cols}};
            matrix_pack(&w, &mine, e * each, gated ? 1 + p : 0);
        }
    }
    struct act_rows in = make_act_rows(w.layout, x_rows, cols, w.cols);
    int32_t *ids = make_experts(spread, rows, k, E);
    rt_test_order(order);
    struct slots s = make_slots(ids, num, E, group_rows, 0, E);
    int ld = N + 3;
    float *y = poisoned(sizeof(float) * (size_t)(num * ld)),
          *bias = random_floats((size_t)(E * parts * N), 1), *weights = random_floats((size_t)num, 2);
    void *d_bias = to_device(bias, sizeof *bias * (size_t)(E * parts * N)),
         *d_weights = to_device(weights, sizeof *weights * (size_t)num);
    struct cuda_expert_gemm a = {.gemm = {.w = w,
                                          .x = in.x,
                                          .scale = in.scale,
                                          .ldx = in.ld,
                                          .epilogue = gated ? EPILOGUE_GATED : EPILOGUE_STORE,
                                          .y = y,
                                          .h = y,
                                          .act = act,
                                          .act_dtype = ACT_DTYPE_F32,
                                          .ldy = ld,
                                          .n = N,
                                          .bias = order > 0 ? d_bias : NULL},
                                 .slots = s.a.slots,
                                 .groups = s.a.groups,
                                 .num_groups = s.a.num_groups,
                                 .max_groups = cuda_max_groups(num, E, group_rows),
                                 .group_rows = group_rows,
                                 .num_experts = E,
                                 .per_row = by_slot ? 1 : k,
                                 .input_weights = order > 1 ? d_weights : NULL};
    cuda_expert_gemm(rt, &a);
    float *got = to_host(y, sizeof(float) * (size_t)(num * ld));
    for (int slot = 0; slot < num; slot++) {
        float want[2][64];
        const float *x = in.values + (by_slot ? slot : slot / k) * cols, *mine = got + slot * ld;
        for (int p = 0; p < parts && ids[slot] >= 0; p++) {
            struct ref_matrix m = {(const char *)t[p].data + (size_t)ids[slot] * one, type, N, cols, NULL};
            ref_matvec(want[p], x, &m);
            for (int i = 0; i < N; i++)
                want[p][i] = want[p][i] * (order > 1 ? weights[slot] : 1) +
                             (order > 0 ? bias[(ids[slot] * parts + p) * N + i] : 0);
        }
        if (gated && ids[slot] >= 0)
            ref_act(want[0], act, want[0], want[1], N);
        double far = ids[slot] >= 0 ? distance(mine, want[0], (size_t)N) : 0;
        if (!(far < product_bound(5e-6)))
            fail_msg("%s, %d rows of %d of %d experts, spread %d, slot %d: %g", dtype_name(type), rows, k, E,
                     spread, slot, far);
        for (int i = ids[slot] >= 0 ? N : 0; i < ld; i++)
            assert_true(isnan(mine[i])); // nothing past the row, and none of nobody
    }
    for (int n = 8; n <= 32; n *= 2) { // the same bits by every kernel, however slots are grouped
        struct slots other = make_slots(ids, num, E, n, 0, E);
        a.slots = other.a.slots, a.groups = other.a.groups, a.num_groups = other.a.num_groups;
        a.group_rows = n, a.max_groups = cuda_max_groups(num, E, n);
        a.gemm.h = a.gemm.y = poisoned(sizeof(float) * (size_t)(num * ld));
        cuda_expert_gemm(rt, &a);
        float *again = to_host(a.gemm.y, sizeof(float) * (size_t)(num * ld));
        assert_memory_equal(again, got, sizeof(float) * (size_t)(num * ld));
        rt_free(rt, a.gemm.y);
        free(again);
        free_slots(&other);
    }
    free(got), free(ids), free(bias), free(weights);
    for (int p = 0; p < parts; p++)
        free((void *)(uintptr_t)t[p].data);
    free_act_rows(&in);
    free_slots(&s);
    matrix_free(&w);
    rt_free(rt, y), rt_free(rt, d_bias), rt_free(rt, d_weights);
}

TEST(test_gemm) {
    for (int i = 0; i < NUM_TYPES; i++) {
        check_gemm(types[i], RANDOM, 1, 2, 5, true, false, 0);
        check_gemm(types[i], RANDOM, 7, 2, 4, i % 2 == 0, i % 2 != 0, 1);
        check_gemm(types[i], ALL_OF_ONE, 37, 1, 3, i % 2 != 0, true, 2);
        check_gemm(types[i], RANDOM, 40, 2, 6, i % 2 == 0, false, i % 3);
        check_gemm(types[i], ONE_EACH, 9, 1, 9, false, true, 0);
        check_gemm(types[i], RANDOM, 61, 2, 4, i % 2 != 0, i % 2 != 0, 1);
        check_gemm(types[i], ALL_OF_ONE, 90, 1, 3, i % 2 == 0, false, 2);
    }
}

// ---- whole steps

// Two layers: one with experts, and another of the same spec, or a dense one.
static struct fixture *make_model(const struct ffn_spec *spec, enum dtype type, bool dense,
                                  float residual_scale) {
    bool big = dtype_block(type) == 256;
    struct shape s = {2, big ? 256 : 64, 2, 1, 64, big ? 256 : 96, 97, 0, false, false, false};
    struct model_config m = fixture_config(&s);
    struct ffn_spec own = *spec;
    own.index = dense;
    own.hidden = big ? 256 : 64;
    m.residual_scale = residual_scale;
    m.num_ffn = 1 + dense;
    m.ffn[dense] = own;
    m.layers[1].ffn = dense;
    return fixture_of(&m, type);
}

static const struct {
    struct ffn_spec spec;
    enum dtype type;
    bool dense;
    float residual_scale;
} models[] = {
    {.type = DTYPE_F32, .spec = {.experts = 8, .top_k = 2, .gating = GATING_SOFTMAX_CHOSEN}},
    {.type = DTYPE_BF16, .spec = {.experts = 16, .top_k = 4, .gating = GATING_SOFTMAX, .renormalise = true}},
    {.type = DTYPE_F16,
     .dense = true,
     .spec = {.experts = 11,
              .top_k = 3,
              .gating = GATING_SOFTMAX,
              .shared_hidden = 32,
              .shared_gate = true,
              .in_bias = true,
              .out_bias = true}},
    {.type = DTYPE_Q8_0,
     .dense = true,
     .spec = {.experts = 12,
              .top_k = 3,
              .gating = GATING_SIGMOID,
              .renormalise = true,
              .scale = 1.5f,
              .select_bias = true,
              .groups = 3,
              .top_groups = 2,
              .shared_hidden = 64}},
    {.type = DTYPE_Q4_0,
     .residual_scale = 0.5f,
     .spec = {.experts = 9,
              .top_k = 2,
              .gating = GATING_SOFTMAX_CHOSEN,
              .router_bias = true,
              .shared_hidden = 64}},
    {.type = DTYPE_Q4_K, .spec = {.experts = 8, .top_k = 2, .gating = GATING_SOFTMAX, .renormalise = true}},
    {.type = DTYPE_Q5_K, .spec = {.experts = 3, .top_k = 1, .gating = GATING_SIGMOID}},
    {.type = DTYPE_Q6_K, .spec = {.experts = 4, .top_k = 4, .gating = GATING_SOFTMAX, .renormalise = true}},
    {.type = DTYPE_MXFP4, // gpt-oss
     .spec = {.experts = 8,
              .top_k = 2,
              .gating = GATING_SOFTMAX_CHOSEN,
              .router_bias = true,
              .expert_bias = true}},
    {.type = DTYPE_F16, // Llama 4
     .dense = true,
     .spec = {.experts = 7, .top_k = 2, .gating = GATING_SIGMOID, .weigh_input = true, .shared_hidden = 64}},
    {.type = DTYPE_BF16, // Phi 3.5
     .spec = {.experts = 16, .top_k = 2, .gating = GATING_IN_TURN, .near = 0.2f, .expert_scale = true}},
    {.type = DTYPE_Q8_0, // Gemma 4, and a bias
     .spec = {.experts = 8,
              .top_k = 2,
              .gating = GATING_SOFTMAX,
              .renormalise = true,
              .act = ACT_GELU,
              .router_scale = 0.125f,
              .expert_scale = true,
              .own_norms = true,
              .out_bias = true,
              .shared_hidden = 96}},
    {.type = DTYPE_Q8_0, // Nemotron 3
     .spec = {.experts = 8,
              .top_k = 3,
              .gating = GATING_SIGMOID,
              .act = ACT_RELU2,
              .no_gate = true,
              .shared_hidden = 64}},
};
enum { NUM_MODELS = sizeof models / sizeof models[0] };

static struct fixture *model_of(int i) {
    return make_model(&models[i].spec, models[i].type, models[i].dense, models[i].residual_scale);
}

// With F32 every row is near; elsewhere roundings of 16 bits may choose another expert of nearly equal score, but seldom.
static void check_steps(int model, bool exact) {
    enum dtype type = exact ? DTYPE_F32 : models[model].type, kv = exact ? DTYPE_F32 : DTYPE_F16;
    struct fixture *f =
        make_model(&models[model].spec, type, models[model].dense, models[model].residual_scale);
    struct instance *ref = instance_open(f, (struct setup){&backend_ref, NULL, 1, 16, kv}, 64, 64, 3);
    struct instance *cuda = instance_open(f, (struct setup){&backend_cuda, NULL, 1, 16, kv}, 64, 64, 3);
    int all = 0, other = 0, V = f->config.vocab;
    assert_non_null(cuda);
    for (int n = 0; n < (exact ? FIXTURE_MIXES : 3); n++) {
        rt_test_order((model + n) % 3);
        struct step_out want = run_pieces(ref, fixture_mixes[n].pieces, fixture_mixes[n].n);
        struct step_out got = run_pieces(cuda, fixture_mixes[n].pieces, fixture_mixes[n].n);
        int rows = 0;
        for (int p = 0; p < fixture_mixes[n].n; p++)
            rows += fixture_mixes[n].pieces[p].rows ? fixture_mixes[n].pieces[p].count : 1;
        for (int r = 0; r < rows; r++, all++) {
            double far = distance(got.logits + (size_t)(r * V), want.logits + (size_t)(r * V), (size_t)V);
            if (!(far < (exact ? 2e-5 : 1)))
                fail_msg("model %d, step %d, row %d is %g apart", model, n, r, far);
            other += far > 2e-2;
        }
    }
    bool near = models[model].spec.gating == GATING_IN_TURN; // a second border to fall on either side of
    if (other * (near ? 2 : 5) > all)
        fail_msg("model %d: %d of %d rows are apart", model, other, all);
    instance_close(ref);
    instance_close(cuda);
    fixture_free(f);
}

TEST(test_steps) {
    for (int i = 0; i < NUM_MODELS; i++) {
        if (dtype_block(models[i].type) < 256) // K-quants say nothing new about what is chosen
            check_steps(i, true);
        if (models[i].type != DTYPE_F32)
            check_steps(i, false);
    }
}

// ---- the bits of a row

// A row that decodes has the same logits alone, among more rows than one group of slots holds, and beside prompts.
TEST(test_company) {
    enum { MANY = 20, AT = 3, V = 97 };
    for (int i = 1; i < 5; i++) {
        struct fixture *f = model_of(i);
        struct piece all[MANY + 1], mixed[3] = {{0, AT, 1, false}, {3, AT, 1, false}, {MANY, 0, 30, false}};
        struct instance *in =
            instance_open(f, (struct setup){&backend_cuda, NULL, 1, 16, DTYPE_F16}, 128, 64, MANY + 1);
        float alone[V];
        for (int s = 0; s < MANY; s++)
            all[s] = (struct piece){s, 0, AT, false};
        run_pieces(in, all, MANY);
        for (int s = 0; s < MANY; s++)
            all[s] = (struct piece){s, AT, 1, false};
        memcpy(alone, run_pieces(in, all, 1).logits, sizeof alone);
        rt_test_order(i % 3);
        for (int n = 2; n <= MANY; n = n == 2 ? 9 : n + 11)
            if (memcmp(run_pieces(in, all, n).logits, alone, sizeof alone) != 0)
                fail_msg("model %d: other bits among %d rows", i, n);
        if (memcmp(run_pieces(in, mixed, 3).logits, alone, sizeof alone) != 0)
            fail_msg("model %d: other bits beside a prompt", i);
        instance_close(in);
        fixture_free(f);
    }
}

// A step of `rows` rows counts its own, of all layers.
static void check_step_counts(const struct fixture *f, int rows, const struct expert_counts *c) {
    uint64_t most = 0, layers = 0;
    for (int i = 0; i < f->config.num_layers; i++) {
        const struct ffn_spec *s = model_ffn(&f->config, i);
        most += (uint64_t)(rows * s->top_k);
        layers += s->experts > 0;
    }
    assert_true(layers > 0 && c->rows == most);
    assert_true(c->busiest >= layers && c->busiest <= layers * (uint64_t)rows);
    assert_true(c->reads * (uint64_t)rows >= c->rows && c->reads <= c->rows);
}

// CUDA graphs, with rows that are nobody's: the same tokens and log-probabilities as without.
TEST(test_graphs) {
    enum { STEPS = 5, SEQS = 3 };
    for (int i = 0; i < 4; i++) {
        struct fixture *f = model_of(i);
        float logprobs[2][STEPS * SEQS];
        int32_t ids[2][STEPS * SEQS];
        for (int graphs = 0; graphs < 2; graphs++) {
            setenv("QUIRE_CUDA_GRAPHS", graphs ? "64" : "0", 1);
            struct setup s = {&backend_cuda, NULL, 1, 16, DTYPE_F16};
            struct instance *in = instance_open_as(f, s, INSTANCE_NO_LOGITS, 16, 64, SEQS);
            int replayed = 0;
            for (int t = 0; t < STEPS; t++) {
                struct piece pieces[SEQS];
                struct step_out out;
                for (int q = 0; q < SEQS; q++)
                    pieces[q] = (struct piece){q, t, 1, false};
                struct batch *b = batch_make(in, pieces, SEQS);
                replayed += forward(in, &b->step);
                assert_int_equal(in->ops->sync(in->dev, &out, NULL), STATUS_OK);
                check_step_counts(f, SEQS, &out.experts);
                memcpy(logprobs[graphs] + t * SEQS, out.logprob, SEQS * sizeof(float));
                memcpy(ids[graphs] + t * SEQS, out.ids, SEQS * sizeof(int32_t));
                free(b);
            }
            assert_int_equal(replayed, graphs ? STEPS - 2 : 0);
            instance_close(in);
        }
        unsetenv("QUIRE_CUDA_GRAPHS");
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
        assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
        fixture_free(f);
    }
}

// The device refuses, with a sentence, models that it does not compute: when it is opened, or when a matrix comes.
TEST(test_refused) {
    struct fixture *f = model_of(0);
    struct err err = {0};
    struct device_config config = {.model = &f->config, .kv_dtype = DTYPE_F16, .block_size = 16, .world = 1};
    f->config.ffn[0].own_norms = true;
    assert_null(backend_cuda.open(NULL, &config, &err));
    assert_int_equal(err.code, STATUS_FORMAT);
    assert_non_null(strstr(err.msg, "norms of their own"));
    f->config.ffn[0].own_norms = false;
    struct model_config as_it_is = f->config;
    for (int i = 0; i < 5; i++) {
        static const char *const words[] = {"experts take latents", "router goes before attention",
                                            "shared expert has a factor", "activation is xIELU",
                                            "experts stand beside attention"};
        struct ffn_spec *ffn = &f->config.ffn[0];
        ffn->latent = i == 0 ? 16 : 0, ffn->early_router = i == 1, ffn->shared_scale = i == 2 ? 0.5f : 0;
        ffn->act = i == 3 ? ACT_XIELU : as_it_is.ffn[0].act;
        f->config.block = i == 4 ? BLOCK_ONE_NORM : as_it_is.block;
        err = (struct err){0};
        assert_null(backend_cuda.open(NULL, &config, &err));
        assert_non_null(strstr(err.msg, words[i]));
    }
    f->config = as_it_is;
    struct device *dev = backend_cuda.open(NULL, &config, &err);
    assert_non_null(dev);
    for (int i = 0; i < f->num_weights; i++) {
        struct weight_desc w = f->weights[i];
        if (w.role != WEIGHT_EXPERT_GATE_UP)
            continue;
        w.part[1].dtype = DTYPE_BF16;
        err = (struct err){0};
        assert_null(backend_cuda.weight_load(dev, &w, &err));
        assert_non_null(strstr(err.msg, "gate and up of experts of one type, not F32 and BF16 (layer"));
    }
    backend_cuda.close(dev);
    fixture_free(f);
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
