// How a model is shared: the parts of all ranks are the whole, byte for byte, cut where blocks and segments
// end; and what cannot be shared.
#include "harness.h"
#include "log.h"
#include "models/shard.h"
#include "weight_check.h"

#include <stdbool.h>

static const struct model_config config = {
    .num_layers = 1,
    .hidden = 64,
    .vocab = 1000,
    .num_attn = 1,
    .attn = {{.heads = 8, .kv_heads = 2, .head_dim = 32, .qkv_bias = true, .out_bias = true}},
    .num_ffn = 1,
    .ffn = {{.hidden = 352}},
    .num_groups = 1,
    .kv_layers = 1};

static unsigned char *bytes_of(size_t n, unsigned seed) {
    unsigned char *p = malloc(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
    return p;
}

static struct tensor matrix(enum dtype t, int rows, int cols) {
    size_t n = (size_t)rows * dtype_row_bytes(t, cols);
    return (struct tensor){.data = bytes_of(n, (unsigned)rows), .dtype = t, .ndim = 2, .shape = {rows, cols}};
}

static struct tensor vector(int n) {
    return (struct tensor){
        .data = bytes_of((size_t)n * 4, (unsigned)n + 1), .dtype = DTYPE_F32, .ndim = 1, .shape = {n}};
}

static void drop(struct weight_desc *w) {
    for (int i = 0; i < 3; i++) {
        free((void *)(uintptr_t)w->part[i].data);
        free((void *)(uintptr_t)w->bias[i].data);
    }
}

static struct weight_desc weight(enum weight_role role, enum dtype t) {
    const struct model_config *c = &config;
    struct weight_desc w = {.role = role};
    int q = c->attn[0].heads * c->attn[0].head_dim, kv = c->attn[0].kv_heads * c->attn[0].head_dim;
    switch (role) {
    case WEIGHT_ATTN_NORM: w.part[0] = vector(c->hidden); break;
    case WEIGHT_EMBED:
    case WEIGHT_HEAD: w.part[0] = matrix(t, c->vocab, c->hidden); break;
    case WEIGHT_ATTN_OUT:
        w.part[0] = matrix(t, c->hidden, q);
        w.bias[0] = vector(c->hidden);
        break;
    case WEIGHT_DOWN: w.part[0] = matrix(t, c->hidden, c->ffn[0].hidden); break;
    case WEIGHT_GATE_UP:
        w.part[0] = matrix(t, c->ffn[0].hidden, c->hidden),
        w.part[1] = matrix(t, c->ffn[0].hidden, c->hidden);
        break;
    case WEIGHT_QKV:
        for (int i = 0; i < 3; i++) {
            w.part[i] = matrix(t, i ? kv : q, c->hidden);
            w.bias[i] = vector(i ? kv : q);
        }
        break;
    default: break; // of recurrent layers: mix_weight(); of experts: test_experts()
    }
    return w;
}

// Rows [begin, begin + n) of a part, and the same numbers of its bias.
static void expect_rows(const struct weight_desc *whole, const struct weight_desc *part, int i,
                        int64_t begin) {
    const struct tensor *a = &whole->part[i], *b = &part->part[i];
    size_t row = dtype_row_bytes(a->dtype, a->shape[1]);
    assert_int_equal(a->shape[1], b->shape[1]);
    assert_memory_equal((const char *)a->data + (size_t)begin * row, b->data, (size_t)b->shape[0] * row);
    assert_int_equal(!whole->bias[i].data, !part->bias[i].data);
    if (!part->bias[i].data)
        return;
    assert_int_equal(part->bias[i].shape[0], b->shape[0]);
    assert_memory_equal((const char *)whole->bias[i].data + begin * 4, part->bias[i].data,
                        (size_t)b->shape[0] * 4);
}

static void check_role(enum weight_role role, enum dtype t, enum dtype down, int world) {
    struct weight_desc whole = weight(role, t), part;
    struct shard_blocks blocks = {dtype_sum_block(t), dtype_sum_block(down), 1};
    char *scratch = malloc(1 << 20);
    int64_t next = 0; // where the next rank must begin
    for (int rank = 0; rank < world; rank++) {
        struct shard s = {.whole = &config, .blocks = blocks, .rank = rank, .world = world};
        struct model_config own;
        shard_config(&s, &own);
        assert_int_equal(own.attn[0].heads, config.attn[0].heads / world);
        assert_int_equal(own.vocab, config.vocab);
        shard_cut(&s, &whole, down, scratch, &part);
        const struct tensor *a = &whole.part[0], *b = &part.part[0];
        switch (role) {
        case WEIGHT_EMBED:
        case WEIGHT_ATTN_NORM: assert_memory_equal(&whole, &part, sizeof part); continue;
        case WEIGHT_QKV: {
            int64_t kv_head = rank * config.attn[0].kv_heads / world; // of two, for ranks 0 to world
            assert_int_equal(part.part[1].shape[0], own.attn[0].kv_heads * config.attn[0].head_dim);
            expect_rows(&whole, &part, 1, kv_head * config.attn[0].head_dim);
            expect_rows(&whole, &part, 2, kv_head * config.attn[0].head_dim);
            expect_rows(&whole, &part, 0, next);
            next += b->shape[0];
            continue;
        }
        case WEIGHT_HEAD: assert_true(b->shape[0] > 0 && next % 32 == 0); break;
        case WEIGHT_GATE_UP:
            assert_true(b->shape[0] <= own.ffn[0].hidden && next % dtype_sum_block(down) == 0);
            expect_rows(&whole, &part, 1, next);
            break;
        case WEIGHT_DOWN: assert_true(b->shape[1] <= own.ffn[0].hidden); break;
        case WEIGHT_ATTN_OUT:
            assert_int_equal(b->shape[1], own.attn[0].heads * config.attn[0].head_dim);
            assert_true(part.bias[0].data == whole.bias[0].data); // whole: added once, after the sum
            break;
        default: fail();
        }
        assert_int_equal(part.start, next);
        assert_int_equal(part.total,
                         role == WEIGHT_DOWN || role == WEIGHT_ATTN_OUT ? a->shape[1] : a->shape[0]);
        if (role != WEIGHT_DOWN && role != WEIGHT_ATTN_OUT) {
            expect_rows(&whole, &part, 0, next);
            next += b->shape[0];
            continue;
        }
        assert_int_equal(next % dtype_sum_block(t), 0);
        // the border is that of segment 8 / world * rank
        int64_t n = (a->shape[1] + dtype_sum_block(t) - 1) / dtype_sum_block(t);
        assert_int_equal(next, n * (8 / world * rank) / 8 * dtype_sum_block(t));
        size_t row = dtype_row_bytes(t, a->shape[1]), first = dtype_row_bytes(t, next),
               bytes = dtype_row_bytes(t, b->shape[1]);
        for (int64_t r = 0; r < a->shape[0]; r++)
            assert_memory_equal((const char *)a->data + (size_t)r * row + first,
                                (const char *)b->data + (size_t)r * bytes, bytes);
        next += b->shape[1];
    }
    const struct tensor *a = &whole.part[0];
    if (role != WEIGHT_EMBED && role != WEIGHT_ATTN_NORM)
        assert_int_equal(next, role == WEIGHT_DOWN || role == WEIGHT_ATTN_OUT ? a->shape[1] : a->shape[0]);
    free(scratch);
    drop(&whole);
}

TEST(test_parts_are_the_whole) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0};
    static const enum weight_role roles[] = {WEIGHT_EMBED,   WEIGHT_ATTN_NORM, WEIGHT_QKV, WEIGHT_ATTN_OUT,
                                             WEIGHT_GATE_UP, WEIGHT_DOWN,      WEIGHT_HEAD};
    for (int world = 2; world <= 8; world *= 2)
        for (int t = 0; t < 5; t++)
            for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
                check_role(roles[i], types[t], roles[i] == WEIGHT_DOWN ? types[t] : types[(t + 2) % 5],
                           world);
}

// Experts are shared whole, in the order of their ids; what chooses them every rank has.
TEST(test_experts) {
    struct model_config c = config;
    c.ffn[0] = (struct ffn_spec){.hidden = 32, .experts = 11, .top_k = 2, .shared_hidden = 64};
    struct weight_desc gate_up = {.role = WEIGHT_EXPERT_GATE_UP}, router = {.role = WEIGHT_ROUTER}, part;
    for (int i = 0; i < 2; i++) {
        gate_up.part[i] = matrix(DTYPE_Q8_0, 11 * 32, 64);
        gate_up.part[i].ndim = 3;
        memcpy(gate_up.part[i].shape, (int64_t[]){11, 32, 64}, 3 * sizeof(int64_t));
        gate_up.bias[i] = vector(11 * 32);
        gate_up.bias[i].ndim = 2;
        memcpy(gate_up.bias[i].shape, (int64_t[]){11, 32}, 2 * sizeof(int64_t));
    }
    router.part[0] = matrix(DTYPE_F32, 11, 64);
    for (int world = 1; world <= 8; world *= 2) {
        int64_t next = 0;
        for (int rank = 0; rank < world; rank++) {
            struct shard s = {.whole = &c, .blocks = {1, 1}, .rank = rank, .world = world};
            struct model_config own;
            shard_config(&s, &own);
            assert_true(own.ffn[0].experts == 11 && own.ffn[0].hidden == 32);
            assert_int_equal(own.ffn[0].shared_hidden, 64 / world);
            shard_cut(&s, &gate_up, DTYPE_F32, NULL, &part);
            assert_true(part.start == next && part.total == (world > 1 ? 11 : 0));
            assert_true(next == backend_expert_bound(11, 8 / world * rank) && part.part[0].shape[0] > 0);
            for (int i = 0; i < 2; i++) {
                assert_ptr_equal(part.part[i].data, (const char *)gate_up.part[i].data +
                                                        next * 32 * (int64_t)dtype_row_bytes(DTYPE_Q8_0, 64));
                assert_ptr_equal(part.bias[i].data, (const float *)gate_up.bias[i].data + next * 32);
                assert_true(part.bias[i].shape[0] == part.part[i].shape[0] && part.bias[i].shape[1] == 32);
            }
            next += part.part[0].shape[0];
            shard_cut(&s, &router, DTYPE_F32, NULL, &part);
            assert_memory_equal(&router, &part, sizeof part);
        }
        assert_int_equal(next, 11);
    }
    drop(&gate_up);
    drop(&router);
}

// A layer that has every weight of some kinds; 0: with heads of its own norms, 1: with latents, 2 and 3: recurrent.
static struct model_config rich(int kind) {
    static const struct mix_spec mixes[] = {
        {.kind = MIX_DELTA, .heads = 8, .groups = 8, .key_dim = 4, .head_dim = 8, .taps = 4},
        {.kind = MIX_SSM, .heads = 8, .groups = 8, .key_dim = 4, .head_dim = 8, .taps = 4, .norm = true}};
    struct model_config c = config;
    c.layer_embed = 24, c.layer_vocab = 40, c.positions = 5, c.token_types = 2;
    c.altup_streams = ALTUP_STREAMS, c.laurel_rank = 12;
    c.layer_scale = c.embed_norm = c.norm_bias = c.head_bias = true;
    c.attn[0] = (struct attn_spec){
        .heads = 8, .kv_heads = 2, .head_dim = 32, .qk_norm = QK_NORM_EACH, .gate = true, .sinks = true};
    if (kind == 1)
        c.attn[0] = (struct attn_spec){.kind = ATTN_LATENT,
                                       .heads = 8,
                                       .kv_heads = 1,
                                       .head_dim = 40,
                                       .kv_lora = 32,
                                       .q_lora = 48,
                                       .nope_dim = 16,
                                       .rope_dim = 8,
                                       .v_dim = 24};
    c.ffn[0] = (struct ffn_spec){.hidden = 32,
                                 .experts = 11,
                                 .shared_hidden = 200,
                                 .shared_gate = true,
                                 .select_bias = true,
                                 .own_norms = true,
                                 .expert_scale = true,
                                 .router_bias = true,
                                 .expert_bias = true,
                                 .sum_bias = true,
                                 .latent = kind == 3 ? 48 : 0};
    c.mtp_layer = 1;
    c.num_mix = kind > 1;
    c.mix[0] = mixes[kind == 3];
    c.layers[0].mix = kind > 1 ? 0 : MODEL_NO_SPEC;
    return c;
}

// The whole weight, its numbers where they are not looked at.
static struct weight_desc any_weight(const struct model_config *c, enum weight_role role, const void *data) {
    struct weight_desc w = {.role = role, .layer = weight_in_layers(role) ? 0 : -1};
    for (int i = 0; i < 3; i++) {
        struct weight_shape s = weight_shape_of(c, role, 0, i);
        if (s.ndim == 0)
            continue;
        w.part[i] = (struct tensor){data, DTYPE_F32, s.ndim, {s.size[0], s.size[1], s.size[2]}};
        if (s.bias)
            w.bias[i] =
                (struct tensor){data, DTYPE_F32, s.ndim > 2 ? 2 : 1, {s.size[0], s.ndim > 2 ? s.size[1] : 0}};
    }
    return w;
}

// Every row of the table: each rank's part is one that its backend takes, and the parts are as much as the whole.
TEST(test_every_weight) {
    static float zeros[1 << 17], scratch[1 << 17];
    bool seen[NUM_WEIGHT_ROLES] = {false};
    for (int kind = 0; kind < 4; kind++)
        for (int n = 0; n < NUM_WEIGHT_ROLES * 4; n++) {
            enum weight_role role = (enum weight_role)(n / 4);
            struct model_config c = rich(kind), own;
            struct weight_desc whole = any_weight(&c, role, zeros), part;
            struct weight_shape shape = weight_shape_of(&c, role, 0, 0);
            struct err err = {0};
            int64_t sum = 0;
            int world = 1 << n % 4;
            seen[role] |= shape.ndim > 0;
            bool parted = shape.ndim > 0 && shape.cut != CUT_WHOLE && shape.cut != CUT_KV_HEADS && world > 1;
            for (int rank = 0; rank < world; rank++) {
                struct shard s = {.whole = &c, .blocks = {1, 1, 1}, .rank = rank, .world = world};
                shard_config(&s, &own);
                shard_cut(&s, &whole, DTYPE_F32, scratch, &part);
                if (!weight_check(&own, &part, &err))
                    fail_msg("rank %d of %d: %s", rank, world, err.msg);
                assert_true(!parted || part.start == sum);
                sum += part.part[0].shape[shape.axis];
                part.part[0].shape[1 - shape.axis]++; // another size of what ranks do not share
                part.part[0].ndim = shape.ndim == 1 ? 2 : shape.ndim;
                assert_false(shape.ndim > 0 && weight_check(&own, &part, &err));
            }
            assert_true(!parted || sum == shape.size[shape.axis]);
        }
    for (int role = 0; role < NUM_WEIGHT_ROLES; role++)
        if (!seen[role])
            fail_msg("no model here has %s", weight_info((enum weight_role)role)->name);
}

static void expect_problem(struct model_config c, struct shard_blocks b, int world, const char *words) {
    struct err err = {0};
    assert_int_equal(shard_check(&c, &b, world, &err), STATUS_INVALID);
    if (!strstr(err.msg, words))
        fail_msg("'%s' lacks '%s'", err.msg, words);
}

static const char *row_of(const struct tensor *t, int row) {
    return (const char *)t->data + (size_t)row * dtype_row_bytes(t->dtype, t->ndim == 1 ? 1 : t->shape[1]);
}

// Every head of every rank has the rows that are its own in the whole, and q and k of its group.
static void check_mix(const struct mix_spec *mix, int world) {
    struct model_config c = config, own;
    struct weight_desc in = {.role = WEIGHT_MIX_IN}, heads = {.role = WEIGHT_MIX_HEADS},
                       out = {.role = WEIGHT_MIX_OUT}, part;
    int n = mix->groups * mix->key_dim, v = mix_values(mix), N = mix->key_dim, P = mix->head_dim;
    size_t row = dtype_row_bytes(DTYPE_F16, 64);
    char *scratch = malloc(1 << 20);
    c.num_mix = 1;
    c.mix[0] = *mix;
    for (int i = 0; i < 3; i++)
        in.part[i] = matrix(DTYPE_F16, i < 2 && mix->kind != MIX_CONV ? n : v, 64);
    heads.part[0] = vector(mix->heads);
    out.part[0] = matrix(DTYPE_F16, 64, v);
    assert_int_equal(shard_check(&c, &(struct shard_blocks){1, 1, 1}, world, NULL), STATUS_OK);
    for (int rank = 0; rank < world; rank++) {
        struct shard s = {.whole = &c, .blocks = {1, 1, 1}, .rank = rank, .world = world};
        shard_config(&s, &own);
        const struct mix_spec *m = &own.mix[0];
        assert_int_equal(m->heads, mix->heads / world);
        shard_cut(&s, &in, DTYPE_F32, scratch, &part);
        assert_int_equal(part.part[2].shape[0], mix_values(m));
        assert_int_equal(part.part[0].shape[0], m->kind == MIX_CONV ? mix_values(m) : m->groups * N);
        for (int h = 0; h < m->heads; h++) {
            int whole = rank * m->heads + h;
            assert_memory_equal(row_of(&part.part[2], h * P), row_of(&in.part[2], whole * P),
                                (size_t)P * row);
            if (m->kind == MIX_CONV)
                continue;
            int group = m->tiled ? h % m->groups : h / (m->heads / m->groups);
            int from = m->tiled ? whole % mix->groups : whole / (mix->heads / mix->groups);
            for (int i = 0; i < 2; i++)
                assert_memory_equal(row_of(&part.part[i], group * N), row_of(&in.part[i], from * N),
                                    (size_t)N * row);
        }
        shard_cut(&s, &heads, DTYPE_F32, scratch, &part);
        assert_memory_equal(part.part[0].data, row_of(&heads.part[0], rank * m->heads),
                            (size_t)m->heads * sizeof(float));
        shard_cut(&s, &out, DTYPE_F32, scratch, &part);
        assert_true(part.start == rank * mix_values(m) && part.total == v);
        assert_memory_equal(part.part[0].data, row_of(&out.part[0], 0) + 2 * part.start,
                            (size_t)mix_values(m) * 2);
    }
    free(scratch);
    drop(&in), drop(&heads), drop(&out);
}

TEST(test_recurrent) {
    static const struct mix_spec mixes[] = {
        {.kind = MIX_CONV, .heads = 64, .head_dim = 1, .taps = 3},
        {.kind = MIX_DELTA, .heads = 16, .groups = 4, .key_dim = 8, .head_dim = 16, .taps = 4},
        {.kind = MIX_DELTA, .heads = 16, .groups = 4, .key_dim = 8, .head_dim = 16, .taps = 4, .tiled = true},
        {.kind = MIX_SSM, .heads = 16, .groups = 1, .key_dim = 8, .head_dim = 16, .taps = 4}};
    for (int i = 0; i < 4; i++)
        for (int world = 2; world <= 8; world *= 2)
            check_mix(&mixes[i], world);
}

TEST(test_problems) {
    struct shard_blocks small = {1, 1, 1};
    struct model_config c = config;
    struct err err = {0};
    for (int world = 1; world <= 8; world *= 2)
        assert_int_equal(shard_check(&c, &small, world, &err), STATUS_OK);
    static const int never[] = {0, 3, 5, 6, 7, 9, 16, -2};
    for (int i = 0; i < 8; i++)
        expect_problem(c, small, never[i], "possible: 1, 2, 4, 8");
    c.attn[0].qk_norm = QK_NORM_WHOLE;
    expect_problem(c, small, 2, "its norm of queries and keys spans all heads; possible: 1");
    c.attn[0].qk_norm = QK_NORM_NONE;
    c.attn[0].heads = 12, c.attn[0].kv_heads = 12;
    expect_problem(c, small, 8, "heads do not divide among them; possible: 1, 2, 4");
    c.attn[0].heads = 24, c.attn[0].kv_heads = 3;
    expect_problem(c, small, 8, "(24 heads, 3 kv heads): its kv heads neither");
    c = config;
    expect_problem(c, (struct shard_blocks){256, 1, 1}, 2, "inside a block of its weights; possible: 1");
    expect_problem(c, (struct shard_blocks){64, 1, 1}, 8, "inside a block of its weights; possible: 1, 2, 4");
    expect_problem(c, (struct shard_blocks){1, 64, 1}, 8,
                   "fewer blocks than there would be ranks; possible: 1, 2, 4");
    c.num_mix = 1;
    c.mix[0] = (struct mix_spec){.kind = MIX_SSM, .heads = 24, .groups = 2, .key_dim = 8, .head_dim = 16};
    expect_problem(c, (struct shard_blocks){1, 1, 32}, 8, "output of a recurrent layer would be cut inside");
    c.mix[0].norm = true;
    expect_problem(c, small, 4, "its norm of recurrent layers spans the heads of several; possible: 1, 2");
    c.mix[0].norm = false, c.mix[0].groups = 3; // of 8 heads each, where four ranks have 6
    expect_problem(c, small, 4, "key heads of its recurrent layers neither");
    c.mix[0].tiled = true, c.mix[0].groups = 8;
    expect_problem(c, small, 4, "key heads of its recurrent layers neither");
    c.mix[0].heads = 12;
    expect_problem(c, small, 8, "the heads of its recurrent layers do not divide among them");
    c.num_mix = 0;
    c.ffn[0].experts = 6;
    expect_problem(c, small, 8, "fewer experts than there would be ranks; possible: 1, 2, 4");
    c.ffn[0].experts = 0;
    c.vocab = 65;
    expect_problem(c, small, 4, "vocabulary is too small; possible: 1, 2");
}

// Parts of the vocabulary: whole words of a mask, in order, none empty, nothing left.
TEST(test_vocabulary) {
    for (int world = 1; world <= 8; world *= 2)
        for (int vocab = 32 * (world - 1) + 1; vocab < 2000; vocab += 7) {
            int next = 0, begin, end;
            for (int rank = 0; rank < world; rank++) {
                backend_vocab_rows(vocab, rank, world, &begin, &end);
                assert_int_equal(begin, next);
                assert_true(begin % 32 == 0 && end > begin);
                next = end;
            }
            assert_int_equal(next, vocab);
        }
    int begin, end;
    backend_vocab_rows(INT32_MAX, 7, 8, &begin, &end);
    assert_int_equal(end, INT32_MAX);
}

static struct shard stage_of(const struct model_config *c, int stage, int stages) {
    return (struct shard){.whole = c, .blocks = {1, 1, 1}, .world = 1, .stage = stage, .num_stages = stages};
}

// Every layer in one stage, in order; the embedding in the first, the head in the last, and so no longer
// tied.
TEST(test_stages) {
    struct model_config c = config, own;
    c.tied = true;
    for (int layers = 1; layers <= 80; layers++)
        for (int stages = 1; stages <= 8 && stages <= layers; stages++)
            for (c.vocab = 32; c.vocab < 10000000; c.vocab *= 30) {
                int next = 0, begin, end;
                c.num_layers = layers;
                assert_int_equal(shard_check_stages(&c, 1, stages, NULL), STATUS_OK);
                for (int i = 0; i < stages; i++) {
                    struct shard s = stage_of(&c, i, stages);
                    shard_layers(&s, &begin, &end);
                    assert_true(begin == next && end > begin);
                    next = end;
                    shard_config(&s, &own);
                    assert_int_equal(own.num_layers, end - begin);
                    assert_int_equal(own.attn[0].heads, c.attn[0].heads);
                    assert_int_equal(own.tied, stages == 1);
                    assert_int_equal(shard_holds(&s, WEIGHT_EMBED, -1), i == 0);
                    assert_int_equal(shard_holds(&s, WEIGHT_HEAD, -1), i == stages - 1);
                    assert_int_equal(shard_holds(&s, WEIGHT_OUT_NORM, -1), i == stages - 1);
                    for (int layer = 0; layer < layers; layer++)
                        assert_int_equal(shard_holds(&s, WEIGHT_ATTN_NORM, layer),
                                         layer >= begin && layer < end);
                }
                assert_int_equal(next, layers);
            }
    // Qwen2.5-0.5B: a layer is 2 * 896 + 2 * 128 + 3 * 4864 = 16,640 rows of D, half the head 75,968
    c = (struct model_config){.num_layers = 24,
                              .hidden = 896,
                              .vocab = 151936,
                              .num_attn = 1,
                              .attn = {{.heads = 14, .kv_heads = 2, .head_dim = 64}},
                              .num_ffn = 1,
                              .ffn = {{.hidden = 4864}}};
    int begin, end;
    struct shard s = stage_of(&c, 1, 2);
    shard_layers(&s, &begin, &end);
    assert_int_equal(begin, 14); // (24 + 4.57) / 2
}

// A stage counts its layers anew, also in the pages of their groups; groups keep their numbers.
TEST(test_stage_groups) {
    struct model_config c = config, own;
    c.num_layers = 8, c.vocab = 32;
    c.num_groups = 2, c.kv_layers = 6;
    c.groups[0] = (struct kv_group_spec){.kind = KV_WINDOW, .window = 64, .num_layers = 6};
    c.groups[1] = (struct kv_group_spec){.kind = KV_FULL, .num_layers = 2};
    for (int i = 0; i < 8; i++)
        c.layers[i] = (struct layer_spec){.kv_group = i >= 6, .kv_layer = (uint16_t)(i % 6)};
    struct shard s = stage_of(&c, 1, 2);
    shard_config(&s, &own);
    assert_true(own.num_layers == 4 && own.num_groups == 2 && own.kv_layers == 2);
    assert_true(own.groups[0].num_layers == 2 && own.groups[1].num_layers == 2);
    for (int i = 0; i < 4; i++)
        assert_true(own.layers[i].kv_group == i / 2 && own.layers[i].kv_layer == i % 2);
    s = stage_of(&c, 0, 2);
    shard_config(&s, &own);
    assert_true(own.kv_layers == 4 && own.groups[1].num_layers == 0);
    // Layers of the first group take three places of a page, of which two of the four are in stage 1.
    c.attn[1] = c.attn[0], c.num_attn = 2;
    c.attn[1].kv_places = 3;
    for (int i = 0; i < 6; i++)
        c.layers[i].attn = 1, c.layers[i].kv_layer = (uint16_t)(3 * i);
    s = stage_of(&c, 1, 2);
    shard_config(&s, &own);
    assert_true(own.kv_layers == 6 && own.layers[1].kv_layer == 3 && own.layers[3].kv_layer == 1);
    // The last four keep a state in place of keys and values.
    c.num_mix = 1;
    c.mix[0] = (struct mix_spec){.kind = MIX_CONV, .heads = 64, .head_dim = 1, .taps = 3};
    c.state_layers = 4;
    for (int i = 0; i < 8; i++)
        c.layers[i] = (struct layer_spec){.attn = i < 4 ? 0 : MODEL_NO_SPEC,
                                          .mix = i < 4 ? MODEL_NO_SPEC : 0,
                                          .state_group = 1,
                                          .kv_layer = (uint16_t)i,
                                          .state_layer = (uint16_t)(i < 4 ? 0 : i - 4)};
    s = stage_of(&c, 1, 2);
    shard_config(&s, &own);
    assert_true(own.num_layers == 4 && own.kv_layers == 0 && own.state_layers == 4);
    assert_true(own.groups[0].num_layers == 0 && own.groups[1].num_layers == 4 &&
                own.layers[3].state_layer == 3);
}

TEST(test_stage_problems) {
    static const struct {
        int world, stages;
        const char *words;
    } bad[] = {{1, 5, "a stage has at least one of its 4 layers"},
               {1, 0, "--pipeline-parallel-size 0"},
               {8, 3, "3 times --tensor-parallel-size 8 makes 24 ranks; at most 16"},
               {8, 4, "makes 32 ranks"}};
    struct model_config c = config;
    c.num_layers = 4;
    for (int i = 0; i < 4; i++) {
        struct err err = {0};
        assert_int_equal(shard_check_stages(&c, bad[i].world, bad[i].stages, &err), STATUS_INVALID);
        if (!strstr(err.msg, bad[i].words))
            fail_msg("'%s' lacks '%s'", err.msg, bad[i].words);
    }
    assert_int_equal(shard_check_stages(&c, 2, 4, NULL), STATUS_OK);
    assert_int_equal(shard_check_stages(&c, 8, 2, NULL), STATUS_OK); // two machines of eight
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        c.layer_embed = i ? 0 : 8, c.attn[0].shares_kv = i;
        assert_int_equal(shard_check_stages(&c, 1, 2, &err), STATUS_INVALID);
        assert_non_null(strstr(err.msg, "its layers share keys and values, or take embeddings of their own"));
        assert_int_equal(shard_check_stages(&c, 8, 1, NULL), STATUS_OK);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
