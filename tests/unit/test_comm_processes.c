// The comm of ranks in several processes, over a transport between threads: sums to the bit, whose data goes
// where, messages beside collectives, and what ends a group. tests/mpi has the same over MPI.
#include "comm_cases.h"
#include "fake_transport.h"
#include "harness.h"
#include "models/model_hash.h"
#include "ranks/comm_processes.h"
#include "ranks/process_group.h"
#include "ranks/result_message.h"
#include "ranks/step_wire.h"
#include "request.h"

enum { MAX = COMM_MAX_WORLD, BIG = 1300007 };

struct group {
    struct fake_net net;
    struct abort_state abort[MAX]; // each process has one; no heartbeat carries it to the others here
    struct fake_transport transport[MAX];
    struct comm *comm[MAX];
    int world;
};

static void open_group(struct group *g, int world, int deadline_ms) {
    fake_net_init(&g->net);
    g->world = world;
    for (int r = 0; r < world; r++) {
        g->transport[r] = (struct fake_transport){{&fake_ops, r, world, "fake"}, &g->net};
        assert_true(abort_state_init(&g->abort[r]));
        struct comm_processes_config config = {.transport = &g->transport[r].base,
                                               .abort = &g->abort[r],
                                               .channel = 3,
                                               .rank = r,
                                               .world = world,
                                               .deadline_ms = deadline_ms};
        struct err err = {0};
        for (int other = 0; other < world; other++)
            config.process[other] = other;
        assert_non_null(g->comm[r] = comm_processes_open(&config, &err));
    }
}

static void close_group(struct group *g) {
    for (int r = 0; r < g->world; r++) {
        comm_processes_close(g->comm[r]);
        abort_state_destroy(&g->abort[r]);
    }
    fake_net_destroy(&g->net);
}

struct start {
    void (*fn)(struct comm *c, void *arg);
    struct comm *comm;
    void *arg;
};

static void *run_rank(void *p) {
    struct start *s = p;
    s->fn(s->comm, s->arg);
    return NULL;
}

static void run_all(struct group *g, void (*fn)(struct comm *c, void *arg), void *arg) {
    pthread_t threads[MAX];
    struct start start[MAX];
    atomic_store(&failures, 0);
    for (int r = 0; r < g->world; r++) {
        start[r] = (struct start){fn, g->comm[r], arg};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &start[r]), 0);
    }
    for (int r = 0; r < g->world; r++)
        pthread_join(threads[r], NULL);
    assert_int_equal(atomic_load(&failures), 0);
}

// A length that takes every way: frame, window, the next window.
static void reduce_big(struct comm *c, void *arg) {
    (void)arg;
    float *x = malloc(BIG * sizeof *x);
    for (int i = 0; i < BIG; i++)
        x[i] = number(c->rank, i, 0);
    expect(c->ops->all_reduce(c, x, BIG) == STATUS_OK);
    for (int i = 0; i < BIG; i++) {
        float want = tree(0, c->world, i, 0);
        expect(memcmp(&want, &x[i], sizeof want) == 0);
    }
    free(x);
}

// Messages arrive in order, past a collective, however late they are received.
static void post_past_barrier(struct comm *c, void *arg) {
    (void)arg;
    enum { BYTES = 100000 };
    char *text = malloc(BYTES * 2), *got = malloc(BYTES);
    for (int i = 0; i < 2; i++)
        memset(text + i * BYTES, 'a' + i, BYTES);
    if (c->rank == 0) {
        expect(c->ops->isend(c, text, BYTES, 1) == STATUS_OK);
        expect(c->ops->isend(c, text + BYTES, BYTES, 1) == STATUS_OK);
    }
    expect(c->ops->barrier(c) == STATUS_OK);
    for (int i = 0; i < 2 && c->rank == 1; i++) {
        expect(c->ops->recv(c, got, BYTES, 0) == STATUS_OK);
        expect(memcmp(got, text + i * BYTES, BYTES) == 0);
    }
    expect(c->ops->wait_sent(c, 1 - c->rank, 0) == STATUS_OK);
    size_t bytes = 0;
    if (c->rank == 0)
        expect(comm_processes_isend(c, text, 17, 1) == STATUS_OK);
    else
        expect(comm_processes_recv(c, got, BYTES, &bytes, 0) == STATUS_OK && bytes == 17 && got[16] == 'a');
    free(text);
    free(got);
}

static void run_collectives(int late) {
    for (int world = 1; world <= MAX; world *= 2) {
        struct group g;
        open_group(&g, world, 60000);
        g.net.late = late;
        run_all(&g, reduce, NULL);
        run_all(&g, collect, NULL);
        if (world > 1)
            run_all(&g, exchange, NULL);
        if (world == 4)
            run_all(&g, reduce_big, NULL);
        if (world == 2)
            run_all(&g, post_past_barrier, NULL);
        close_group(&g);
    }
}

TEST(test_collectives) { run_collectives(0); }

// Messages that are under way when they are waited for, as over a network: the same bits.
TEST(test_late_messages) { run_collectives(30); }

static void disagree(struct comm *c, void *arg) {
    float x[8] = {0};
    if (*(int *)arg == 0)
        expect(c->ops->all_reduce(c, x, c->rank ? 4 : 8) == STATUS_DEVICE);
    else if (c->rank == 0)
        expect(c->ops->recv(c, x, 8, 1) == STATUS_DEVICE);
    else
        expect(c->ops->send(c, x, 4, 0) == STATUS_OK);
    if (*(int *)arg == 0 || c->rank == 0)
        expect(c->ops->barrier(c) == STATUS_DEVICE);
}

TEST(test_disagreement) {
    static const char *const why[] = {"rank 0 is in all_reduce of 32 bytes, rank 1 in all_reduce of 16",
                                      "rank 0 expects 8 bytes of rank 1, which sends 4"};
    for (int kind = 0; kind < 2; kind++) {
        struct group g;
        open_group(&g, 2, 60000);
        run_all(&g, disagree, &kind);
        assert_string_equal(g.comm[0]->ops->error(g.comm[0]), why[kind]);
        close_group(&g);
    }
}

static void wait_in_vain(struct comm *c, void *arg) {
    (void)arg;
    if (c->rank == 0)
        expect(c->ops->recv(c, &(int){0}, 4, 1) == STATUS_DEVICE);
}

TEST(test_deadline) {
    struct group g;
    open_group(&g, 2, 100);
    run_all(&g, wait_in_vain, NULL);
    assert_string_equal(g.comm[0]->ops->error(g.comm[0]), "rank 0 has waited 0.1 s for rank 1");
    close_group(&g);
}

// Any one byte; the end, too.
TEST(test_model_hash) {
    unsigned char data[300];
    char base[MODEL_HASH_BYTES], other[MODEL_HASH_BYTES];
    struct model_hash f;
    for (int i = 0; i < 300; i++)
        data[i] = (unsigned char)(i * 37);
    model_hash_begin(&f);
    model_hash_add(&f, data, sizeof data);
    model_hash_end(&f, base);
    for (int i = 0; i < 300 * 8; i++) {
        data[i / 8] ^= (unsigned char)(1u << i % 8);
        model_hash_begin(&f);
        model_hash_add(&f, data, 128);
        model_hash_add(&f, data + 128, sizeof data - 128);
        model_hash_end(&f, other);
        assert_true(strcmp(base, other) != 0);
        data[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    data[299] = 0; // a file that ends with a zero is not one that lacks it
    model_hash_begin(&f);
    model_hash_add(&f, data, 300);
    model_hash_end(&f, base);
    model_hash_begin(&f);
    model_hash_add(&f, data, 299);
    model_hash_end(&f, other);
    assert_true(strcmp(base, other) != 0);
}

static void fill_mask(void *arg) { *(uint32_t *)arg = 1; }

TEST(test_step_wire) {
    enum { VOCAB = 70, T = 5, S = 2, R = 3 };
    const struct step_limits limits = {.max_tokens = 8,
                                       .max_seqs = 4,
                                       .max_rows = 8,
                                       .max_context = 64,
                                       .num_blocks = 8,
                                       .num_host_pages = 2,
                                       .has_types = true,
                                       .embed_size = 3,
                                       .has_axes = true};
    struct model_config model = {.vocab = VOCAB,
                                 .hidden = 3,
                                 .token_types = 2,
                                 .num_groups = 2,
                                 .groups = {{KV_FULL, 0, 1}, {KV_WINDOW, 48, 1}}};
    int32_t ids[T] = {3, -1, 5, 6, 7}, positions[T] = {9, 0, 1, 2, 3}, types[T] = {0, 0, 1, 1, 1},
            turns[3 * T] = {9, 0, 1, 1, 2, 8, 0, 0, 1, 3, 5, 0, 1, 0, 3}, starts[S + 1] = {0, 1, 5},
            context[S] = {10, 4}, block_start[S + 1] = {0, 1, 2}, blocks[S] = {7, 2},
            window_start[S + 1] = {0, 2, 3}, window_blocks[3] = {0, 5, 6};
    int64_t slots[T] = {121, 32, 33, 34, 35}, window_slots[T] = {89, 96, 97, 98, -1};
    struct kv_move moves[3] = {{.from = 3, .to = 4},
                               {.from = 7, .to = 1, .to_tier = KV_HOST},
                               {.from = 1, .to = 2, .from_tier = KV_HOST}};
    struct logits_row rows[R] = {{.row = 0, .seed = 9}, {.row = 3, .target = 4}, {.row = 4, .entry_end = 1}};
    struct logit_entry entries[1] = {{.token = 8, .div = 2}};
    int32_t embed_rows[T + 1] = {0, 3, 4, 5, 6, 7}; // of which the step has two
    const float embeds[4 * (T + 1)] = {1, 2, 3, 4, 5, 6};
    uint32_t bits[3] = {0, 2, 3}; // the first word comes late
    const uint32_t *masks[R] = {NULL, bits, NULL};
    struct step out,
        step = {.num_tokens = T,
                .num_seqs = S,
                .num_decode = 1,
                .num_rows = R,
                .max_query_len = 4,
                .max_context_len = 10,
                .num_entries = 1,
                .num_groups = 2,
                .num_moves = 3,
                .seq = 77,
                .ids = ids,
                .positions = positions,
                .rope_positions = turns,
                .types = types,
                .query_start = starts,
                .context_len = context,
                .groups = {{slots, block_start, blocks}, {window_slots, window_start, window_blocks}},
                .moves = moves,
                .rows = rows,
                .entries = entries,
                .masks = masks,
                .num_embeds = 2,
                .embed_rows = embed_rows,
                .embeds = embeds,
                .masks_wait = fill_mask,
                .masks_arg = bits};
    struct err err = {0};
    size_t most = step_wire_max_bytes(&limits, &model, 16, 10);
    void *buffer = aligned_alloc(64, most);
    size_t bytes = step_wire_write(buffer, &step, &model);
    assert_true(bytes <= most && bytes % 64 == 0);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, &err), STATUS_OK);
    assert_true(out.num_tokens == T && out.num_seqs == S && out.num_decode == 1 && out.num_rows == R);
    assert_true(out.num_entries == 1 && out.seq == 77 && out.max_query_len == 4 && out.max_context_len == 10);
    assert_memory_equal(out.ids, ids, sizeof ids);
    assert_memory_equal(out.positions, positions, sizeof positions);
    assert_memory_equal(out.rope_positions, turns, sizeof turns);
    assert_memory_equal(out.types, types, sizeof types);
    assert_memory_equal(out.groups[0].slots, slots, sizeof slots);
    assert_memory_equal(out.query_start, starts, sizeof starts);
    assert_memory_equal(out.context_len, context, sizeof context);
    assert_memory_equal(out.groups[0].block_start, block_start, sizeof block_start);
    assert_memory_equal(out.groups[0].block_ids, blocks, sizeof blocks);
    assert_true(out.num_groups == 2 && out.num_moves == 3 && !out.masks_wait);
    assert_memory_equal(out.groups[1].slots, window_slots, sizeof window_slots);
    assert_memory_equal(out.groups[1].block_start, window_start, sizeof window_start);
    assert_memory_equal(out.groups[1].block_ids, window_blocks, sizeof window_blocks);
    assert_memory_equal(out.moves, moves, sizeof moves);
    assert_memory_equal(out.rows, rows, sizeof rows);
    assert_int_equal(out.num_embeds, 2);
    assert_memory_equal(out.embed_rows, embed_rows, 2 * sizeof *embed_rows);
    assert_memory_equal(out.embeds, embeds, 2 * 3 * sizeof *embeds);
    assert_memory_equal(out.entries, entries, sizeof entries);
    assert_true(out.masks && !out.masks[0] && out.masks[1] && !out.masks[2]);
    assert_memory_equal(out.masks[1], ((uint32_t[]){1, 2, 3}), sizeof bits);
    // Bytes beyond the limits, or not whole, are no step.
    struct step_limits small = limits;
    small.max_tokens = T - 1;
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &small, &model, 16, &out, &err), STATUS_DEVICE);
    assert_int_equal(step_wire_read(buffer, bytes - 64, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    assert_int_equal(step_wire_read(buffer, 8, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    struct step_limits one_axis = limits;
    one_axis.has_axes = false;
    assert_int_equal(step_wire_read(buffer, bytes, &one_axis, &model, 16, &out, NULL), STATUS_DEVICE);
    // Nor is one with an index out of range.
    const struct {
        int32_t *number, wrong;
    } cases[] = {{&ids[0], VOCAB},
                 {&ids[1], -9},
                 {&positions[2], 64},
                 {&positions[2], 2},
                 {&positions[0], -1},
                 {&turns[1], 1},
                 {&turns[5], -1},
                 {&turns[14], 4},
                 {&types[0], 2},
                 {&types[1], -1},
                 {&starts[0], 1},
                 {&starts[1], 2},
                 {&starts[1], -1},
                 {&starts[2], 6},
                 {&starts[2], 0},
                 {&context[0], 11},
                 {&context[1], 3},
                 {&block_start[1], 3},
                 {&block_start[0], -1},
                 {&blocks[1], 8},
                 {&blocks[0], -1},
                 {&window_start[1], 0},
                 {&window_start[2], 2},
                 {&window_blocks[2], 8},
                 {&moves[1].from, 8},
                 {&moves[1].to, 2},
                 {&moves[2].from, 2},
                 {&moves[2].to, 8},
                 {&moves[0].to, -1},
                 {&rows[1].row, T},
                 {&rows[1].target, VOCAB},
                 {&rows[2].entry_end, 2},
                 {&rows[2].entry_start, 2},
                 {&entries[0].token, -1},
                 {&embed_rows[0], -1},
                 {&embed_rows[1], T},
                 {&embed_rows[1], 0},
                 {&model.hidden, 4},
                 {&step.num_embeds, T + 1},
                 {&step.max_query_len, T + 1},
                 {&step.max_query_len, 3},
                 {&step.max_context_len, 65},
                 {&rows[0].num_logprobs, MAX_TOP_LOGPROBS + 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t right = *cases[i].number;
        *cases[i].number = cases[i].wrong;
        bytes = step_wire_write(buffer, &step, &model);
        *cases[i].number = right;
        if (step_wire_read(buffer, bytes, &limits, &model, 16, &out, &err) != STATUS_DEVICE)
            fail_msg("case %zu is taken", i);
    }
    moves[0].from_tier = 2; // no such tier; and between two of the host's
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    moves[0] = (struct kv_move){.from = 0, .to = 1, .from_tier = KV_HOST, .to_tier = KV_HOST};
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    moves[0] = (struct kv_move){.from = 3, .to = 4};
    slots[4] = 8 * 16;
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    slots[4] = -1; // padding
    window_slots[0] = -2;
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    window_slots[0] = 89;
    // A state has one page of each sequence and no slots; and the model says how many groups there are.
    const int64_t no_slots[T] = {-1, -1, -1, -1, -1};
    const struct step_group window = step.groups[1];
    model.groups[1].kind = KV_STATE;
    step.groups[1] = (struct step_group){no_slots, (const int32_t[]){0, 1, 2}, window_blocks};
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, &err), STATUS_OK);
    step.groups[1].slots = window_slots;
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    step.groups[1] = (struct step_group){no_slots, window_start, window_blocks};
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    step.groups[1] = window;
    model.groups[1].kind = KV_WINDOW;
    step.num_groups = 1;
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, NULL), STATUS_DEVICE);
    step.num_groups = 2;
    bytes = step_wire_write(buffer, &step, &model);
    assert_int_equal(step_wire_read(buffer, bytes, &limits, &model, 16, &out, &err), STATUS_OK);
    free(buffer);
}

TEST(test_result_message) {
    enum { VOCAB = 5, HIDDEN = 3, R = 2 };
    const struct step_limits limits = {.max_rows = 4};
    const int32_t ids[R] = {4, 2}, top_ids[R][MAX_TOP_LOGPROBS] = {{0}, {3, 1}};
    const int32_t rank[R] = {4, 1};
    const float share[R] = {0.25f, 0};
    const float logprob[R] = {-1, -2}, top_logprobs[R][MAX_TOP_LOGPROBS] = {{0}, {-3, -4}},
                logits[R * VOCAB] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
                hidden[R * HIDDEN] = {10, 11, 12, 13, 14, 15};
    const uint8_t failed[R] = {1, 0};
    const struct logits_row rows[R] = {{.num_logprobs = -1}, {.num_logprobs = 2}};
    const struct step step = {.num_rows = R, .rows = rows};
    for (int kept = 0; kept < 4; kept++) {
        const struct result_shape shape = {VOCAB, HIDDEN, kept & 1, kept & 2};
        const struct step_out out = {.ids = ids,
                                     .logprob = logprob,
                                     .rank = rank,
                                     .share = share,
                                     .top_ids = top_ids[0],
                                     .top_logprobs = top_logprobs[0],
                                     .failed = failed,
                                     .logits = kept & 1 ? logits : NULL,
                                     .hidden = kept & 2 ? hidden : NULL,
                                     .max_top = MAX_TOP_LOGPROBS,
                                     .experts = {9, 7, 5}};
        struct step_out got;
        struct results results;
        size_t bytes = result_message_bytes(&shape, &step);
        void *message = malloc(bytes);
        assert_true(bytes <= result_message_max_bytes(&shape, &limits));
        assert_int_equal(results_init(&results, &shape, &limits), STATUS_OK);
        result_message_write(&shape, message, &out, &step);
        result_message_read(&shape, &results, message, &step, &got);
        assert_memory_equal(got.ids, ids, sizeof ids);
        assert_memory_equal(got.logprob, logprob, sizeof logprob);
        assert_memory_equal(got.rank, rank, sizeof rank);
        assert_memory_equal(got.share, share, sizeof share);
        assert_memory_equal(got.top_ids + got.max_top, top_ids[1], 2 * sizeof **top_ids);
        assert_memory_equal(got.top_logprobs + got.max_top, top_logprobs[1], 2 * sizeof **top_logprobs);
        assert_memory_equal(got.failed, failed, sizeof failed);
        assert_memory_equal(&got.experts, &out.experts, sizeof out.experts);
        assert_true(!got.logits == !out.logits && !got.hidden == !out.hidden);
        if (got.logits)
            assert_memory_equal(got.logits, logits, sizeof logits);
        if (got.hidden)
            assert_memory_equal(got.hidden, hidden, sizeof hidden);
        results_destroy(&results);
        free(message);
    }
}

TEST(test_launchers) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_PROCID",
                                        "SLURM_NTASKS",         "PMIX_RANK",
                                        "PMIX_NAMESPACE"};
    static const struct {
        const char *values[7];
        const char *launcher; // NULL: none
        int process, num_processes;
    } cases[] = {
        {{NULL}, NULL, 0, 0},
        {{"2", "1"}, "mpirun", 1, 2},
        {{"1", "0"}, NULL, 0, 0},
        {{NULL, NULL, "4", "3", "4"}, "srun", 3, 4},
        {{NULL, NULL, "1", "0", "1"}, NULL, 0, 0},
        {{NULL, NULL, NULL, "0", "4"}, NULL, 0, 0}, // a batch script
        {{NULL, NULL, NULL, NULL, NULL, "1", "job"}, "PMIx", 1, 0},
        {{NULL, NULL, NULL, NULL, NULL, "1", NULL}, NULL, 0, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct launch launch;
        for (int i = 0; i < 7; i++)
            if (cases[c].values[i])
                setenv(names[i], cases[c].values[i], 1);
            else
                unsetenv(names[i]);
        assert_int_equal(processes_launched(&launch), cases[c].launcher != NULL);
        assert_true(!cases[c].launcher == !launch.launcher &&
                    (!launch.launcher || strcmp(launch.launcher, cases[c].launcher) == 0));
        assert_int_equal(launch.process, cases[c].process);
        assert_int_equal(launch.num_processes, cases[c].num_processes);
    }
}

// mpirun waits a second unless its parameter says otherwise.
TEST(test_patience) {
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "7", 1);
    assert_true(launch_patience() < 0);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_true(launch_patience() == 7);
    unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
    assert_true(launch_patience() == 1);
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

int main(void) { return run_all_tests(NULL, NULL); }
