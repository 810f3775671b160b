// Recurrent layers on the emulated runtime: against kernels/ref, however tokens are cut and beside others, from a copied
// page, and as CUDA graphs.
#include "harness.h"

#include "../../kernels/cuda/device.h"
#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "mix_case.h"

static const struct mix_spec wide[] = {
    {.kind = MIX_DELTA, .heads = 2, .groups = 1, .key_dim = 80, .head_dim = 40, .taps = 4},
    {.kind = MIX_SSM, .heads = 2, .groups = 1, .key_dim = 200, .head_dim = 33, .taps = 16},
};
enum { NUM_CASES = NUM_MIXES + 2 };

static struct case_of *make_any_case(int i) {
    return make_case(i < NUM_MIXES ? &mixes[i] : &wide[i - NUM_MIXES]);
}

TEST(test_layers) {
    static const int chunks[] = {1, 16};
    static float want[SEQS * TOKENS * D], got[SEQS * TOKENS * D], input[SEQS * TOKENS * D];
    random_state = 12345;
    for (int i = 0; i < SEQS * TOKENS * D; i++)
        input[i] = random_float();
    for (int i = 0; i < NUM_CASES; i++) {
        struct case_of *c = make_any_case(i);
        assert_true(run(c, &backend_ref, NULL, 1, 7, true, want));
        assert_true(run(c, &backend_cuda, NULL, 1, TOKENS, true, got));
        double difference = 0, size = 0; // of what the layer adds
        for (int k = 0; k < SEQS * TOKENS * D; k++) {
            difference += pow((double)(want[k] - got[k]), 2);
            size += pow((double)(want[k] - input[k]), 2);
        }
        if (!(size > 1 && sqrt(difference / size) < 2e-3))
            fail_msg("mixer %d is %g from the reference", i, sqrt(difference / size));
        memcpy(want, got, sizeof want);
        for (int k = 0; k < 2; k++) {
            assert_true(run(c, &backend_cuda, NULL, 1, chunks[k], (k + i) % 2, got));
            if (memcmp(want, got, sizeof want) != 0)
                fail_msg("mixer %d, chunks of %d: other bits", i, chunks[k]);
        }
        free_case(c);
    }
}

// Sequences decode, a token each a step, and others the same in their pages. What the residual stream is after the last,
// (GRAPH_SEQS, D); returns how many steps were graphs.
enum { GRAPH_SEQS = 3, GRAPH_STEPS = 6 };

static int decode(const struct case_of *c, float *out) {
    struct device_config config = {.model = &c->config, .kv_dtype = DTYPE_F32, .block_size = 16, .world = 1};
    struct step_limits limits = {.max_tokens = GRAPH_SEQS,
                                 .max_seqs = GRAPH_SEQS,
                                 .max_rows = GRAPH_SEQS,
                                 .max_context = GRAPH_STEPS,
                                 .num_blocks = 5};
    static const int32_t starts[GRAPH_SEQS + 1] = {0, 1, 2, 3}, pages[GRAPH_SEQS] = {3, 1, 4};
    static const int64_t slots[GRAPH_SEQS] = {-1, -1, -1};
    struct err err = {0};
    struct device *dev = backend_cuda.open(NULL, &config, &err);
    struct weight_desc table = {
        .role = WEIGHT_EMBED, .layer = -1, .part = {random_tensor(DTYPE_F32, 64, D, 1)}};
    struct model model = {.config = c->config, .embed = backend_cuda.weight_load(dev, &table, &err)};
    struct layer layer = {.mix = c->config.mix[0]};
    load_case(c, &backend_cuda, dev, &layer);
    assert_int_equal(backend_cuda.reserve(dev, &limits, &err), STATUS_OK);
    int graphs = 0;
    float first[GRAPH_SEQS * D];
    for (int turn = 0; turn < 2 * GRAPH_STEPS; turn++) {
        int t = turn % GRAPH_STEPS;
        int32_t ids[GRAPH_SEQS], positions[GRAPH_SEQS], context[GRAPH_SEQS];
        struct logits_row rows[GRAPH_SEQS];
        for (int s = 0; s < GRAPH_SEQS; s++) {
            ids[s] = (t * 5 + s * 11) % 64, positions[s] = t, context[s] = t + 1;
            rows[s] = (struct logits_row){.row = s, .target = -1, .num_logprobs = -1};
        }
        struct step step = {.num_tokens = GRAPH_SEQS,
                            .num_seqs = GRAPH_SEQS,
                            .num_decode = GRAPH_SEQS,
                            .num_rows = GRAPH_SEQS,
                            .num_groups = 1,
                            .ids = ids,
                            .positions = positions,
                            .query_start = starts,
                            .context_len = context,
                            .rows = rows,
                            .groups = {{slots, starts, pages}}};
        struct step_out ignored;
        if (backend_cuda.step_begin(dev, &step)) {
            graphs++;
        } else {
            backend_cuda.embed(dev, &model, &step);
            backend_cuda.mix(dev, &layer, &step);
            backend_cuda.mix_out(dev, &layer, &step);
            backend_cuda.step_end(dev);
        }
        assert_int_equal(backend_cuda.sync(dev, &ignored, &err), STATUS_OK);
        rt_download_now(dev->rt, turn < GRAPH_STEPS ? first : out, dev->resid, sizeof first);
    }
    assert_memory_equal(first, out, sizeof first);
    backend_cuda.close(dev);
    free((void *)(uintptr_t)table.part[0].data);
    return graphs;
}

TEST(test_graphs) {
    float want[GRAPH_SEQS * D], got[GRAPH_SEQS * D];
    for (int i = 0; i < NUM_CASES; i += 2) {
        struct case_of *c = make_any_case(i);
        random_state = 777;
        setenv("QUIRE_CUDA_GRAPHS", "0", 1);
        assert_int_equal(decode(c, want), 0);
        unsetenv("QUIRE_CUDA_GRAPHS");
        random_state = 777;
        assert_true(decode(c, got) >= 9);
        assert_memory_equal(want, got, sizeof want);
        free_case(c);
    }
}

TEST(test_refused) {
    static const char *const words[] = {"more than 256 rows", "no multiple of its groups"};
    for (int i = 0; i < 2; i++) {
        struct case_of *c = make_case(&mixes[5]);
        struct err err = {0};
        struct device_config config = {
            .model = &c->config, .kv_dtype = DTYPE_F16, .block_size = 16, .world = 1};
        c->config.mix[0].key_dim = i == 0 ? CUDA_MIX_KEY + 1 : 24;
        c->config.mix[0].groups = i == 1 ? 3 : 1;
        assert_null(backend_cuda.open(NULL, &config, &err));
        assert_non_null(strstr(err.msg, words[i]));
        free_case(c);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
