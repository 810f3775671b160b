// The kinds of layers that models differ in, on the emulated runtime beside kernels/ref: feed-forwards, norms, blocks,
// attention of several specs, latent attention; and what is refused.
#include "beside_ref.h"

#include "../../kernels/cuda/device.h"
#include "axes_case.h"
#include "embeds_case.h"

// Layers of three attn_specs and two ffn_specs, whose pages are those of two groups.
TEST(test_mixed_specs) {
    static const struct {
        struct shape s;
        int block_size;
        enum dtype type, kv;
    } cases[] = {
        {{5, 64, 2, 1, 64, 44, 97, 21, true, true, false}, 16, DTYPE_BF16, DTYPE_F16},
        // Rows scaled by their largest.
        {{4, 64, 2, 1, 256, 64, 97, 0, false, false, true}, 16, DTYPE_F16, DTYPE_I8},
        // The kernel for any shape.
        {{4, 64, 4, 2, 16, 44, 97, 13, false, true, false}, 5, DTYPE_F32, DTYPE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config m = fixture_config(&cases[i].s);
        fixture_mix(&m);
        m.attn[0].sinks = m.attn[2].sinks = true;
        m.attn[0].chunked = m.groups[0].chunked = i == 0;
        m.attn[0].gate = m.attn[2].gate = true;
        m.attn[1].bidirectional = i > 0;
        m.attn[1].softcap = 1.5f;
        struct fixture *f = fixture_of(&m, cases[i].type);
        check_fixture(f, cases[i].block_size, cases[i].kv, cases[i].type == DTYPE_F32 ? 2e-5 : 3e-2,
                      "mixed specs");
        fixture_free(f);
    }
}

// Layers that keep unlike numbers of heads, or heads of unlike size, and layers that keep nothing.
TEST(test_places) {
    static const struct {
        struct shape s;
        int block_size;
        enum dtype type, kv;
    } cases[] = {
        {{4, 64, 4, 1, 64, 44, 97, 21, true, true, false}, 16, DTYPE_BF16, DTYPE_F16},
        {{4, 64, 2, 1, 64, 64, 97, 0, false, false, true}, 16, DTYPE_F16, DTYPE_I8},
        {{4, 64, 4, 2, 16, 44, 97, 13, true, true, false}, 5, DTYPE_F32, DTYPE_F32},
        {{4, 64, 4, 1, 16, 44, 97, 13, false, true, false}, 5, DTYPE_F32, DTYPE_I8},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        struct model_config m = fixture_config(&cases[i / 2].s);
        fixture_mix_places(&m);
        if (i % 2)
            fixture_share(&m);
        struct fixture *f = fixture_of(&m, cases[i / 2].type);
        check_fixture(f, cases[i / 2].block_size, cases[i / 2].kv, cases[i / 2].kv == DTYPE_F32 ? 2e-5 : 3e-2,
                      "places");
        fixture_free(f);
    }
}

// A page of such layers is copied whole, and no other is touched.
TEST(test_copied_places) {
    struct shape s = {4, 64, 4, 1, 16, 44, 97, 13, false, true, false};
    struct model_config m = fixture_config(&s);
    fixture_mix_places(&m);
    struct fixture *f = fixture_of(&m, DTYPE_F32);
    struct instance *in = open_instance(f, &backend_cuda, 5, DTYPE_I8, 8, 16, 1);
    size_t bytes = in->ops->kv_block_bytes(in->dev);
    unsigned char *pages = must_calloc(4, bytes), *got = must_calloc(1, bytes);
    for (size_t i = 0; i < 4 * bytes; i++)
        pages[i] = (unsigned char)random_u32();
    for (int i = 0; i < 4; i++)
        in->inspect->kv_import(in->dev, i, pages + (size_t)i * bytes);
    static const struct kv_move moves[] = {{.from = 1, .to = 2},
                                           {.from = 0, .to = 1, .to_tier = KV_HOST},
                                           {.from = 1, .to = 0, .to_tier = KV_HOST},
                                           {.from = 1, .from_tier = KV_HOST, .to = 3}};
    static const int holds[][4] = {{0, 1, 1, 3}, {0, 1, 1, 0}}; // after the first; after all
    for (int k = 0; k < 2; k++) {
        in->ops->kv_copy(in->dev, moves + k, k ? 3 : 1);
        for (int i = 0; i < 4; i++) {
            in->inspect->kv_export(in->dev, i, got);
            assert_memory_equal(got, pages + (size_t)holds[k][i] * bytes, bytes);
        }
    }
    free(pages), free(got);
    instance_close(in);
    fixture_free(f);
}

// Embeddings that layers have of their own, and factors of the residual stream.
TEST(test_layer_out) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0};
    for (int i = 0; i < 5; i++) {
        struct shape s = {2, 64, 4, 2, 16, 44, 97, 0, false, false, false};
        struct model_config m = fixture_config(&s);
        m.layer_scale = i > 0, m.layer_embed = i == 4 ? 0 : i == 1 ? 18 : 32, m.layer_vocab = 90;
        m.ffn[0].act = ACT_GELU, m.residual_scale = i == 2 ? 0.5f : 1;
        m.norm = i == 0 ? NORM_LAYER : NORM_RMS, m.norm_bias = i == 0;
        struct fixture *f = fixture_of(&m, types[i % 4]);
        check_fixture(f, 16, DTYPE_F32, i % 4 == 0 ? 2e-5 : 6e-2, "layers' ends");
        fixture_free(f);
    }
}

// Streams beside the residual one, LAuReL, and sparse gates; with 70 rows also behind cuBLASLt.
TEST(test_streams) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < 3; i++) {
        struct shape s = {2, 64, 4, 2, 16, 44, 97, 0, false, false, false};
        struct model_config m = fixture_config(&s);
        m.altup_streams = ALTUP_STREAMS, m.laurel_rank = i == 0 ? 12 : 16, m.post_norms = true;
        m.layer_embed = 32, m.layer_vocab = 97;
        m.ffn[0].act = ACT_GELU, m.ffn[0].sparse = true, m.ffn[0].deviations = 0.4f;
        struct fixture *f = fixture_of(&m, types[i]);
        for (int w = 0; i == 2 && w < f->num_weights; w++)
            if (f->weights[w].role == WEIGHT_GATE_UP) { // gate and up are two GEMMs
                free((void *)(uintptr_t)f->weights[w].part[1].data);
                f->weights[w].part[1] = random_tensor(DTYPE_F16, 44, 64, 0.2f);
            }
        check_fixture(f, 16, DTYPE_F32, i == 0 ? 5e-5 : 12e-2, "streams");
        struct instance *ref = open_instance(f, &backend_ref, 16, DTYPE_F32, 100, 128, 2);
        struct instance *cuda = open_instance(f, &backend_cuda, 16, DTYPE_F32, 100, 128, 2);
        struct piece prompts[] = {{0, 0, 70, true}, {1, 0, 5, true}};
        struct step_out want = run_pieces(ref, prompts, 2), got = run_pieces(cuda, prompts, 2);
        compare(cuda, &got, &want, 75, i == 0 ? 5e-5 : 12e-2, "prompts");
        instance_close(ref);
        instance_close(cuda);
        fixture_free(f);
    }
}

// Feed-forwards of every activation, with and without a gate and biases; with 70 rows also behind cuBLASLt.
TEST(test_feed_forward) {
    for (int act = 0; act < NUM_ACTS; act++)
        for (int c = 0; c < 4; c++) {
            struct shape s = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};
            struct model_config m = fixture_config(&s);
            struct ffn_spec *ffn = &m.ffn[0];
            ffn->act = (enum act)act, ffn->no_gate = c / 2 && act != ACT_CLAMPED,
            ffn->in_bias = ffn->out_bias = c % 2;
            struct fixture *f = fixture_of(&m, act % 2 ? DTYPE_F16 : DTYPE_BF16);
            struct instance *ref = open_instance(f, &backend_ref, 16, DTYPE_F16, 100, 128, 2);
            struct instance *cuda = open_instance(f, &backend_cuda, 16, DTYPE_F16, 100, 128, 2);
            struct piece prompts[] = {{0, 0, 70, false}, {1, 0, 5, true}}, decode = {1, 5, 1, true};
            struct step_out want = run_pieces(ref, prompts, 2), got = run_pieces(cuda, prompts, 2);
            compare(cuda, &got, &want, 6, 2e-2, "prompts");
            want = run_pieces(ref, &decode, 1), got = run_pieces(cuda, &decode, 1);
            compare(cuda, &got, &want, 1, 2e-2, "decode");
            instance_close(ref);
            instance_close(cuda);
            fixture_free(f);
        }
}

// LayerNorms, with biases or none: before layers, behind what they add, and of heads.
TEST(test_layer_norms) {
    struct shape s = {2, 68, 4, 2, 16, 44, 97, 0, true, true, false};
    for (int i = 0; i < 2; i++) {
        struct model_config m = fixture_config(&s);
        m.norm = NORM_LAYER, m.norm_bias = m.post_norms = m.embed_norm = i == 0;
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        check_fixture(f, 16, DTYPE_F32, 2e-5, "LayerNorm");
        fixture_free(f);
    }
}

// The residual stream normalised after each sum; embeddings of positions and of types, which steps have or not.
TEST(test_sum_norms) {
    struct shape s = {2, 68, 4, 4, 16, 44, 97, 0, false, true, false};
    for (int i = 0; i < 2; i++) {
        struct model_config m = fixture_config(&s);
        m.norm = i == 0 ? NORM_LAYER : NORM_RMS, m.norm_bias = i == 0, m.block = BLOCK_SUM_NORM;
        m.positions = i == 0 ? 64 : 0, m.token_types = 2 - i, m.embed_norm = true;
        m.attn[0].bidirectional = true;
        m.residual_scale = i == 0 ? 1 : 0.5f;
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        check_fixture(f, 16, DTYPE_F32, 2e-5, "norms of sums");
        fixture_free(f);
    }
}

// Attention and feed-forward side by side, by a norm each or by one, of weights whose inputs differ in dtype.
TEST(test_parallel_blocks) {
    struct shape s = {2, 64, 4, 2, 16, 44, 97, 0, false, true, false};
    for (int i = 0; i < 3; i++) {
        struct model_config m = fixture_config(&s);
        m.block = i == 0 ? BLOCK_PARALLEL : BLOCK_ONE_NORM, m.residual_scale = i == 2 ? 0.5f : 1;
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        for (int w = 0; w < f->num_weights; w++)
            if (f->weights[w].role == WEIGHT_QKV)
                for (int p = 0; p < 3; p++) {
                    int rows = (int)f->weights[w].part[p].shape[0];
                    free((void *)(uintptr_t)f->weights[w].part[p].data);
                    f->weights[w].part[p] = random_tensor(DTYPE_F16, rows, 64, 0.2f);
                }
        check_fixture(f, 16, DTYPE_F32, 2e-3, "parallel blocks");
        fixture_free(f);
    }
}

// Norms of queries, keys and values in every order, and temperatures, of layers that differ in them.
TEST(test_head_norms) {
    struct shape s = {2, 68, 4, 2, 16, 44, 97, 0, false, true, false};
    for (int i = QK_NORM_HEADS; i <= QK_NORM_UNIT; i++) {
        struct model_config m = fixture_config(&s);
        m.norm = i % 2 ? NORM_LAYER : NORM_RMS;
        m.num_attn = 2;
        m.layers[1].attn = 1;
        m.attn[1] = m.attn[0];
        m.attn[1].index = 1, m.attn[1].qk_norm = (enum qk_norm)i, m.attn[1].v_norm = i % 3 == 0;
        m.attn[1].temp_scale = 0.7f, m.attn[1].temp_step = 5, m.attn[1].temp_offset = 2;
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        check_fixture(f, 16, DTYPE_F32, 2e-5, "norms of heads");
        fixture_free(f);
    }
}

// A head with a bias, a factor and a soft cap.
TEST(test_head) {
    struct shape s = {1, 64, 4, 2, 16, 44, 97, 0, false, false, false};
    for (int i = 0; i < 2; i++) {
        struct model_config m = fixture_config(&s);
        m.head_bias = true, m.logit_scale = 1.5f, m.logit_softcap = i == 0 ? 2 : 0;
        struct fixture *f = fixture_of(&m, DTYPE_F32);
        check_fixture(f, 16, DTYPE_F32, 2e-5, "head");
        fixture_free(f);
    }
}

// ---- latent attention

TEST(test_latent) {
    static const struct {
        struct attn_spec spec;
        int block_size;
        enum dtype type, kv;
    } cases[] = {
        {{.heads = 3, .kv_lora = 40, .nope_dim = 12, .rope_dim = 6, .v_dim = 20}, 5, DTYPE_F32, DTYPE_F32},
        {{.heads = 4, .kv_lora = 64, .q_lora = 32, .nope_dim = 32, .rope_dim = 64, .v_dim = 16},
         16,
         DTYPE_Q8_0,
         DTYPE_F16},
        {{.heads = 5, .kv_lora = 48, .q_lora = 24, .nope_dim = 17, .rope_dim = 10, .v_dim = 18, .window = 13},
         32,
         DTYPE_BF16,
         DTYPE_BF16},
        {{.heads = 2, .kv_lora = 64, .q_lora = 40, .nope_dim = 20, .rope_dim = 8, .v_dim = 24, .rope = -1},
         16,
         DTYPE_F16,
         DTYPE_I8},
        // Tensor cores.
        {{.heads = 3, .kv_lora = 512, .nope_dim = 16, .rope_dim = 64, .v_dim = 16, .window = 21},
         16,
         DTYPE_BF16,
         DTYPE_F16},
        {{.heads = 17, .kv_lora = 512, .q_lora = 24, .nope_dim = 8, .rope_dim = 64, .v_dim = 8},
         32,
         DTYPE_F16,
         DTYPE_I8},
        {{.heads = 2, .kv_lora = 512, .nope_dim = 16, .rope_dim = 64, .v_dim = 16},
         16,
         DTYPE_Q8_0,
         DTYPE_F8_E4M3},
        {{.heads = 2, .kv_lora = 32, .nope_dim = 16, .rope_dim = 0, .v_dim = 16, .rope = -1},
         16,
         DTYPE_BF16,
         DTYPE_F8_E4M3},
        {{.heads = 3,
          .kv_lora = 40,
          .nope_dim = 12,
          .rope_dim = 6,
          .v_dim = 20,
          .temp_scale = 0.7f,
          .temp_step = 5},
         5,
         DTYPE_F32,
         DTYPE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config m = fixture_latent_config(&cases[i].spec, 2);
        struct fixture *f = fixture_of(&m, cases[i].type);
        check_fixture(f, cases[i].block_size, cases[i].kv,
                      cases[i].type == DTYPE_F32     ? 2e-5
                      : cases[i].kv == DTYPE_F8_E4M3 ? 15e-2
                                                     : 5e-2,
                      dtype_name(cases[i].type));
        fixture_free(f);
    }
}

// More rows than heads multiply at once, and more than the skinny GEMM takes.
TEST(test_latent_rows) {
    struct attn_spec a = {
        .heads = 2, .kv_lora = 32, .q_lora = 24, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
    struct model_config m = fixture_latent_config(&a, 1);
    static const enum dtype types[] = {DTYPE_F16, DTYPE_Q8_0};
    struct piece pieces[] = {{0, 0, 4, false}, {1, 0, CUDA_LATENT_ROWS + 9, true}};
    for (int i = 0; i < 2; i++) {
        struct fixture *f = fixture_of(&m, types[i]);
        struct instance *ref = open_instance(f, &backend_ref, 16, DTYPE_F16, 300, 300, 2);
        struct instance *cuda = open_instance(f, &backend_cuda, 16, DTYPE_F16, 300, 300, 2);
        struct step_out want = run_pieces(ref, pieces, 2), got = run_pieces(cuda, pieces, 2);
        compare(cuda, &got, &want, CUDA_LATENT_ROWS + 10, 5e-2, dtype_name(types[i]));
        instance_close(ref);
        instance_close(cuda);
        fixture_free(f);
    }
}

// With --exact rows that decode are no splits, and have the bits of a prompt.
TEST(test_latent_exact) {
    enum { N = 280 };
    struct attn_spec a = {.heads = 2, .kv_lora = 512, .nope_dim = 8, .rope_dim = 64, .v_dim = 8};
    struct model_config m = fixture_latent_config(&a, 1);
    struct fixture *f = fixture_of(&m, DTYPE_BF16);
    float *whole = prompt_logits(f, DTYPE_BF16, N, N), *cut = prompt_logits(f, DTYPE_BF16, N, N - 1);
    assert_memory_equal(whole, cut, N * 97 * sizeof *whole);
    free(whole), free(cut);
    fixture_free(f);
}

// ---- refusals

TEST(test_latent_refused) {
    static const char *const words[] = {"some layers have latent attention and some not",
                                        "or of another size", "sizes of latent attention do not fit",
                                        "has a soft cap"};
    struct attn_spec a = {
        .heads = 2, .kv_lora = 32, .q_lora = 24, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
    for (int i = 0; i < 4; i++) {
        struct model_config m = fixture_latent_config(&a, 2);
        m.attn[1] = m.attn[0];
        m.num_attn = 2;
        if (i == 0)
            m.attn[1].kind = ATTN_GROUPED;
        m.attn[1].v_dim += i == 1;
        m.ropes[0].dim -= i == 2 ? 2 : 0;
        m.attn[1].gate = i == 3;
        struct err err = {0};
        struct device_config config = {.model = &m, .kv_dtype = DTYPE_F16, .block_size = 16, .world = 1};
        assert_null(backend_cuda.open(NULL, &config, &err));
        assert_int_equal(err.code, STATUS_FORMAT);
        assert_non_null(strstr(err.msg, words[i]));
    }
}

// The device refuses a model that it cannot compute when it is opened, with a sentence.
TEST(test_refused_specs) {
    struct shape s = {4, 64, 2, 1, 64, 44, 97, 0, false, false, false};
    for (int i = 0; i < 8; i++) {
        struct fixture *f = fixture_make_mixed(&s, DTYPE_BF16);
        struct model_config *m = &f->config;
        static const char *const words[] = {
            "is no multiple of the least", "is no multiple of the least",   "recurrent layer is not positive",
            "rotation is not among",       "sparse gates of experts",       "AltUp streams do not fit",
            "without a feed-forward",      "ranks would share sparse gates"};
        if (i == 0)
            m->attn[1].kv_heads = 2; // and no more places
        else if (i == 1)
            m->attn[1].head_dim = 32;
        else if (i == 2)
            m->num_mix = 1;
        m->attn[1].rope = i == 3 ? 2 : m->attn[1].rope;
        m->ffn[1].sparse = i == 4 || i == 7, m->ffn[1].no_gate = i == 4;
        m->altup_streams = i == 5 ? ALTUP_STREAMS : 0, m->layer_scale = i == 6;
        m->ffn[1].hidden = i == 6 ? 0 : m->ffn[1].hidden;
        struct err err = {0};
        struct device_config config = {.model = m,
                                       .kv_dtype = DTYPE_F16,
                                       .block_size = 16,
                                       .world = i == 7 ? 2 : 1,
                                       .comm = i == 7 ? (struct comm *)(void *)f : NULL}; // not looked at
        assert_null(backend_cuda.open(NULL, &config, &err));
        assert_int_equal(err.code, STATUS_FORMAT);
        assert_non_null(strstr(err.msg, words[i]));
        fixture_free(f);
    }
}

TEST(test_embeds) { check_embeds_of_all((struct setup){&backend_cuda, NULL, 1, 16, DTYPE_F16}); }

TEST(test_axes) { check_axes_of_all((struct setup){&backend_cuda, NULL, 1, 16, DTYPE_F32}, 2e-5); }

int main(void) { return run_all_tests(NULL, NULL); }
