// Adapters on CUDA's backend: beside kernels/ref over kinds of layers and types; the same bits in any company and in graphs; slots
// that change between steps.
#include "beside_ref.h"

#include "rt.h"

enum { SLOTS = 3, LAYERS = 3, RANK = 20, V = 97 };

// ---- adapters

struct recipe {
    enum dtype a, b;
    int rank;
    float scale;
    const char *targets; // of "qkvogud"
};
static const struct recipe recipes[SLOTS] = {{DTYPE_F32, DTYPE_F32, 18, 0.5f, "qkvogud"},
                                             {DTYPE_BF16, DTYPE_F16, 5, 1.5f, "qvd"},
                                             {DTYPE_F16, DTYPE_BF16, RANK, 0.25f, "kogu"}};

static bool has_target(const struct model_config *m, int layer, enum adapter_target t) {
    const struct attn_spec *a = model_attn(m, layer);
    const struct ffn_spec *f = model_ffn(m, layer);
    bool keys = t == ADAPTER_K || t == ADAPTER_V;
    if (t < ADAPTER_OUT)
        return a->kind == ATTN_GROUPED && !a->gate && !(keys && a->shares_kv);
    return t == ADAPTER_OUT || (f->experts == 0 && !(t == ADAPTER_GATE && f->no_gate));
}

static enum status load(struct instance *in, int slot, const struct recipe *r, struct err *err) {
    const struct model_config *m = &in->model.config;
    struct adapter_matrix all[LAYERS * ADAPTER_TARGETS] = {0};
    random_state = 88172645463325252u + (uint64_t)r->rank; // an adapter is what its recipe says
    for (int i = 0; i < m->num_layers * ADAPTER_TARGETS; i++) {
        enum adapter_target t = (enum adapter_target)(i % ADAPTER_TARGETS);
        int layer = i / ADAPTER_TARGETS;
        struct weight_shape s = adapter_target_shape(m, layer, t);
        if (!has_target(m, layer, t) || !strchr(r->targets, "qkvogud"[t]))
            continue;
        all[i].a = random_tensor(r->a, r->rank, (int)s.size[1], 1.7f / sqrtf((float)s.size[1]));
        all[i].b = random_tensor(r->b, (int)s.size[0], r->rank, 1.7f / sqrtf((float)r->rank));
        all[i].scale = r->scale;
    }
    enum status st = in->ops->adapter_load(in->dev, slot, &(struct adapter_desc){all}, err);
    for (int i = 0; i < m->num_layers * ADAPTER_TARGETS; i++) {
        free((void *)(uintptr_t)all[i].a.data);
        free((void *)(uintptr_t)all[i].b.data);
    }
    return st;
}

// ---- steps

enum { NO_ADAPTERS = 64 }; // beside flags of instances: the device has none

static struct instance *open_as(const struct fixture *f, const struct backend_ops *ops, enum dtype kv,
                                int flags, int tokens, int seqs) {
    struct instance *in = instance_load(f, (struct setup){ops, NULL, 1, 16, kv}, flags & ~NO_ADAPTERS);
    bool none = flags & NO_ADAPTERS;
    struct err err = {0};
    assert_non_null(in);
    instance_reserve(in, (struct step_limits){.max_tokens = tokens,
                                              .max_seqs = seqs,
                                              .max_rows = tokens,
                                              .max_context = 128,
                                              .num_blocks = f->config.num_groups * seqs * 8,
                                              .keep_logits = !(flags & INSTANCE_NO_LOGITS),
                                              .max_adapters = none ? 0 : SLOTS,
                                              .max_adapter_rank = RANK});
    for (int i = 0; !none && i < SLOTS; i++)
        if (load(in, i, &recipes[i], &err) != STATUS_OK)
            fail_msg("%s", err.msg);
    return in;
}

// One step; slots: of the pieces' adapters, -1: none; NULL: no piece has one. Whether it ran as a graph.
static bool run(struct instance *in, const struct piece *pieces, int n, const int32_t *slots,
                struct step_out *out) {
    struct batch *b = batch_make(in, pieces, n);
    struct err err = {0};
    b->step.adapters = slots;
    bool graph = forward(in, &b->step);
    if (in->ops->sync(in->dev, out, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    free(b);
    return graph;
}

// ---- beside kernels/ref

static void check_case(const struct model_config *m, enum dtype weights, enum dtype kv, double bound,
                       const char *what) {
    struct fixture *f = fixture_of(m, weights);
    struct instance *ref = open_as(f, &backend_ref, kv, 0, 64, 3),
                    *cuda = open_as(f, &backend_cuda, kv, 0, 64, 3);
    double most = 0;
    for (int i = 0; i < 3; i++) { // prompts, both, decoding
        const struct some_pieces *p = &fixture_mixes[i];
        int32_t slots[5];
        struct step_out want, got;
        for (int k = 0; k < p->n; k++)
            slots[k] = (p->pieces[k].seq + i / 2 + 1) % (SLOTS + 1) - 1;
        rt_test_order(i % 3);
        run(ref, p->pieces, p->n, slots, &want);
        run(cuda, p->pieces, p->n, slots, &got);
        compare(cuda, &got, &want, num_rows(p), bound, what);
        if (i > 0)
            continue;
        // and it does change something
        float *kept = malloc((size_t)num_rows(p) * V * sizeof *kept);
        memcpy(kept, got.logits, (size_t)num_rows(p) * V * sizeof *kept);
        run(cuda, p->pieces, p->n, NULL, &got);
        most = distance(got.logits, kept, (size_t)num_rows(p) * V);
        run(cuda, p->pieces, p->n, slots, &got); // the cache as ref has it
        free(kept);
    }
    if (!(most > 0.1))
        fail_msg("%s: adapters change %g", what, most);
    instance_close(ref);
    instance_close(cuda);
    fixture_free(f);
}

TEST(test_types) {
    static const struct {
        enum dtype weights, kv;
        double bound;
    } types[] = {{DTYPE_F32, DTYPE_F32, 2e-5},
                 {DTYPE_F16, DTYPE_F16, 3e-2},
                 {DTYPE_BF16, DTYPE_BF16, 4e-2},
                 {DTYPE_Q8_0, DTYPE_I8, 6e-2}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct shape s = {1,      64,         4,    2, 16, i == 0 ? 800 : i % 2 ? 64 : 44, V, i == 2 ? 9 : 0,
                          i == 1, i % 2 == 0, false};
        struct model_config m = fixture_config(&s);
        check_case(&m, types[i].weights, types[i].kv, types[i].bound, dtype_name(types[i].weights));
    }
}

// No gate, parallel blocks; norms behind sublayers and sparse gates; several specs, of which some gate attention and some share
// keys; latent attention; experts beside attention.
TEST(test_kinds) {
    static const struct attn_spec latent = {
        .heads = 3, .kv_lora = 32, .q_lora = 24, .nope_dim = 8, .rope_dim = 8, .v_dim = 12};
    for (int i = 0; i < 5; i++) {
        struct shape s = {3, 64, 4, 2, 16, 44, V, 0, false, true, false};
        struct model_config m = i == 3 ? fixture_latent_config(&latent, 2) : fixture_config(&s);
        if (i == 0)
            m.ffn[0].no_gate = m.ffn[0].in_bias = true, m.ffn[0].act = ACT_GELU, m.block = BLOCK_PARALLEL;
        if (i == 1)
            m.post_norms = true, m.ffn[0].sparse = true, m.ffn[0].deviations = 0.4f;
        if (i == 2) {
            m.num_layers = 4, fixture_mix(&m), fixture_share(&m);
            m.num_layers = m.kv_layers = 3, m.attn[1].gate = true;
        }
        if (i == 4)
            m.ffn[0].experts = 4, m.ffn[0].top_k = 2, m.ffn[0].shared_hidden = 20;
        check_case(&m, DTYPE_F32, DTYPE_F32, 2e-5, "kinds");
    }
}

// ---- company

static bool is_emulated(struct instance *in) {
    struct device_info info;
    in->ops->info(in->dev, &info);
    return strncmp(info.name, "cuda emulated", 13) == 0;
}

// Rows of steps of one piece each.
static float *alone(struct instance *in, const struct some_pieces *p, const int32_t *slots) {
    float *all = must_calloc((size_t)num_rows(p) * V, sizeof *all), *to = all;
    for (int k = 0; k < p->n; k++) {
        struct step_out out;
        size_t rows = p->pieces[k].rows ? (size_t)p->pieces[k].count : 1;
        run(in, &p->pieces[k], 1, slots && slots[k] >= 0 ? &slots[k] : NULL, &out);
        memcpy(to, out.logits, rows * V * sizeof *to);
        to += rows * V;
    }
    return all;
}

// A row has the bits that it has alone, and without an adapter those of a device that has none: in decode, and of prompts
// where our GEMMs take them and behind cuBLASLt (70 rows), which the emulator lets add in one order.
TEST(test_company) {
    static const struct some_pieces steps[] = {
        {4, {{0, 0, 9, true}, {1, 0, 12, true}, {2, 0, 3, true}, {3, 0, 20, true}}},
        {4, {{0, 9, 1, true}, {1, 12, 1, true}, {2, 3, 1, true}, {3, 20, 1, true}}},
        {3, {{0, 10, 1, true}, {1, 13, 70, true}, {3, 21, 66, true}}},
    };
    static const int32_t slots[][4] = {{0, -1, 1, 0}, {2, -1, 2, 0}, {1, -1, 0}};
    static const struct {
        enum dtype weights, kv;
    } types[] = {{DTYPE_BF16, DTYPE_BF16}, {DTYPE_F16, DTYPE_F16}, {DTYPE_FP8, DTYPE_BF16}};
    for (int i = 0; i < 3; i++) {
        struct shape s = {1, 128, 2, 1, 64, 128, V, 0, false, true, false};
        struct fixture *f = fixture_make(&s, types[i].weights);
        for (int w = 0; i == 2 && w < f->num_weights; w++)
            for (int p = 0; p < 3; p++)
                if (f->weights[w].part[p].dtype == DTYPE_FP8 && f->weights[w].part[p].data)
                    level_scales(&f->weights[w].part[p], 1, (size_t)f->weights[w].part[p].shape[1]); // W8A8
        struct instance *one = open_as(f, &backend_cuda, types[i].kv, 0, 160, 4),
                        *many = open_as(f, &backend_cuda, types[i].kv, 0, 160, 4),
                        *none = open_as(f, &backend_cuda, types[i].kv, NO_ADAPTERS, 160, 4),
                        *ref = open_as(f, &backend_ref, types[i].kv, 0, 160, 4);
        for (int k = 0; k < (is_emulated(one) ? 3 : 2); k++) {
            const struct some_pieces *p = &steps[k];
            float *want = alone(one, p, slots[k]);
            struct step_out out, of_ref;
            run(many, p->pieces, p->n, slots[k], &out);
            if (memcmp(want, out.logits, (size_t)num_rows(p) * V * sizeof *want) != 0)
                fail_msg("%s: other bits in company, step %d", dtype_name(types[i].weights), k);
            run(ref, p->pieces, p->n, slots[k], &of_ref);
            compare(many, &out, &of_ref, num_rows(p), 0.1, dtype_name(types[i].weights));
            size_t at = p->pieces[0].rows ? (size_t)p->pieces[0].count : 1;
            run(none, &p->pieces[1], 1, NULL, &out);
            if (k < 2 &&
                memcmp(want + at * V, out.logits, (size_t)p->pieces[1].count * V * sizeof *want) != 0)
                fail_msg("%s: other bits of a device with adapters", dtype_name(types[i].weights));
            free(want);
        }
        instance_close(one), instance_close(many), instance_close(none), instance_close(ref);
        fixture_free(f);
    }
}

// ---- graphs and slots

// Decoding with slots that change from step to step, and another adapter in one of them: a graph of each bucket with adapters
// and without, and the bits of kernels launched one by one.
TEST(test_graphs) {
    enum { SEQS = 5, STEPS = 12 };
    static const struct recipe other = {DTYPE_BF16, DTYPE_BF16, 17, 2, "qkvogud"};
    static const bool replays[STEPS] = {0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1},
                      with[STEPS] = {0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1};
    struct shape s = {2, 64, 2, 1, 64, 44, V, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    float logprobs[2][STEPS * SEQS];
    for (int graphs = 0; graphs < 2; graphs++) {
        setenv("QUIRE_CUDA_GRAPHS", graphs ? "64" : "0", 1);
        struct instance *in = open_as(f, &backend_cuda, DTYPE_F16, INSTANCE_NO_LOGITS, 32, SEQS);
        for (int t = 0; t < STEPS; t++) {
            struct piece pieces[SEQS];
            int32_t slots[SEQS];
            struct step_out out;
            struct err err = {0};
            for (int q = 0; q < SEQS; q++) {
                pieces[q] = (struct piece){q, t, 1, false};
                slots[q] = t < 7 ? (q == t % 3) - 1
                                 : (q + t) % (SLOTS + 1) - 1; // more groups than when it was captured
            }
            if (t == 8) {
                in->ops->adapter_free(in->dev, 1);
                assert_int_equal(load(in, 1, &other, &err), STATUS_OK);
            }
            assert_int_equal(run(in, pieces, SEQS, with[t] ? slots : NULL, &out), graphs && replays[t]);
            memcpy(logprobs[graphs] + t * SEQS, out.logprob, SEQS * sizeof(float));
        }
        instance_close(in);
    }
    unsetenv("QUIRE_CUDA_GRAPHS");
    assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
    fixture_free(f);
}

// A slot's memory is the device's until it is freed; one that does not fit is refused, and nothing else is.
TEST(test_memory) {
    struct shape s = {2, 64, 2, 1, 64, 44, V, 0, false, false, false};
    struct fixture *f = fixture_make(&s, DTYPE_BF16);
    struct instance *in = open_as(f, &backend_cuda, DTYPE_F16, 0, 32, 2);
    struct device_info before, after;
    struct err err = {0};
    struct piece p = {0, 0, 5, false};
    struct step_out out;
    float kept[V];
    bool emulated = is_emulated(in);
    in->ops->info(in->dev, &before);
    run(in, &p, 1, (int32_t[]){0}, &out);
    memcpy(kept, out.logits, sizeof kept);
    in->ops->adapter_free(in->dev, 0);
    in->ops->info(in->dev, &after);
    assert_true(after.memory_free > before.memory_free);
    run(in, &p, 1, (int32_t[]){-1}, &out);
    assert_true(distance(out.logits, kept, V) > 0.01);
    assert_int_equal(load(in, 0, &recipes[0], &err), STATUS_OK);
    in->ops->info(in->dev, &after);
    assert_int_equal(after.memory_free, before.memory_free);
    run(in, &p, 1, (int32_t[]){0}, &out);
    assert_memory_equal(out.logits, kept, sizeof kept);
    instance_close(in);
    if (!emulated) {
        fixture_free(f);
        return;
    }
    char least[32];
    snprintf(least, sizeof least, "%zu",
             before.memory_total - before.memory_free - 1); // all but one byte of it
    setenv("QUIRE_EMULATED_MEMORY", least, 1);
    in = instance_load(f, (struct setup){&backend_cuda, NULL, 1, 16, DTYPE_F16}, 0);
    instance_reserve(in, (struct step_limits){.max_tokens = 32,
                                              .max_seqs = 2,
                                              .max_rows = 32,
                                              .max_context = 128,
                                              .num_blocks = 16,
                                              .keep_logits = true,
                                              .max_adapters = SLOTS,
                                              .max_adapter_rank = RANK});
    unsetenv("QUIRE_EMULATED_MEMORY");
    assert_int_equal(load(in, 0, &recipes[0], &err), STATUS_OK);
    assert_int_equal(load(in, 1, &recipes[1], &err), STATUS_OK);
    assert_int_equal(load(in, 2, &recipes[2], &err), STATUS_NOMEM);
    assert_non_null(
        strstr(err.msg, "no device memory for an adapter of 0 MiB; lower --gpu-memory-utilization"));
    run(in, &p, 1, (int32_t[]){0}, &out);
    assert_memory_equal(out.logits, kept, sizeof kept);
    instance_close(in);
    fixture_free(f);
}

int main(void) { return run_all_tests(NULL, NULL); }
