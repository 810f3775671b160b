// Kernels with a cross-GPU barrier, on several devices, each with a thread of its own; test_emu_ranks.c has the models that
// run by them.
#include "device.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

// ---- the sum of all ranks, as a kernel

enum { ROUNDS = 30 };

struct sum_job {
    int rank, world, rows, n, rounds;
    bool bias, two_shots;
    struct rt *rt;
    struct cuda_sum a;
    float *mine;               // this rank's part in device memory
    const float *part[ROUNDS]; // in host memory
    float *got, *shared;       // (rows, n) after all rounds; of the parts of the first
    bool ok;
};

static void *sum_rounds(void *arg) {
    struct sum_job *j = arg;
    size_t bytes = (size_t)(j->rows * j->n) * sizeof(float);
    for (int i = 0; i < j->rounds; i++) { // whoever is first writes its next part at once
        rt_upload_now(j->rt, j->mine, j->part[i], bytes);
        j->a.two_shots = j->two_shots && i % 3 != 2; // some in one, between
        cuda_sum(j->rt, &j->a);
        rt_mark(j->rt, 0);
        j->ok &= rt_wait(j->rt, 0, NULL) == STATUS_OK;
    }
    rt_download_now(j->rt, j->got, j->a.y, bytes);
    // Each rank brings its own numbers, and garbage for the rest.
    size_t all = (size_t)(j->rows * j->n), part = backend_resid_part(all, j->world),
           at = part * (size_t)j->rank;
    struct cuda_share s = {.peers = j->a.peers, .y = j->a.y, .n = all, .each = part};
    memcpy(s.part, j->a.part, sizeof s.part);
    rt_upload_now(j->rt, j->mine, j->part[1], bytes);
    rt_upload_now(j->rt, j->mine + at, j->part[0] + at,
                  backend_resid_count(all, j->rank, j->world) * sizeof *s.y);
    cuda_share(j->rt, &s);
    rt_upload_now(j->rt, j->mine, j->part[1], bytes); // all have read it
    rt_download_now(j->rt, j->shared, j->a.y, bytes);
    return NULL;
}

// Adds as the kernel promises to: neighbours first.
static float tree(const struct sum_job *j, int world, int round, size_t i) {
    float v[COMM_MAX_SUM];
    for (int r = 0; r < world; r++)
        v[r] = j[r].part[round][i];
    for (int n = world; n > 1; n /= 2)
        for (int r = 0; r < n / 2; r++)
            v[r] = v[2 * r] + v[2 * r + 1];
    return v[0];
}

static void check_sum(int world, int rows, int n, bool bias, bool two_shots, uint32_t epoch) {
    struct sum_job jobs[COMM_MAX_SUM] = {0};
    struct cuda_peers peers = {.world = world};
    uint32_t *epochs[COMM_MAX_SUM], first[CUDA_BARRIER_BLOCKS * COMM_MAX_SUM], *stop[COMM_MAX_SUM];
    pthread_t threads[COMM_MAX_SUM];
    size_t all = (size_t)(rows * n);
    float *b = random_floats((size_t)n, 1), *want = malloc(all * sizeof *want);
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        first[i] = epoch;
    for (int r = 0; r < world; r++) {
        struct err err = {0};
        struct sum_job *j = &jobs[r];
        *j = (struct sum_job){.rank = r,
                              .world = world,
                              .rows = rows,
                              .n = n,
                              .two_shots = two_shots,
                              .ok = true,
                              .rounds = all < 1 << 16 ? ROUNDS : 3};
        if (!(j->rt = rt_open(r, &err)))
            fail_msg("%s", err.msg);
        j->mine = rt_alloc(j->rt, all * sizeof(float));
        j->a.part[r] = j->mine;
        j->a.rows = rows, j->a.n = n, j->a.add = true;
        j->a.y = rt_alloc(j->rt, all * sizeof(float));
        if (bias) {
            float *p = rt_alloc(j->rt, (size_t)n * sizeof *p);
            rt_upload_now(j->rt, p, b, (size_t)n * sizeof *p);
            j->a.bias = p;
        }
        peers.flags[r] = rt_alloc(j->rt, sizeof first);
        rt_upload_now(j->rt, peers.flags[r], first, sizeof first);
        epochs[r] = rt_alloc(j->rt, sizeof first / COMM_MAX_SUM);
        rt_upload_now(j->rt, epochs[r], first, sizeof first / COMM_MAX_SUM);
        stop[r] = rt_alloc_host(j->rt, sizeof *stop[r]);
        j->got = malloc(all * sizeof *j->got);
        j->shared = malloc(all * sizeof *j->shared);
        for (int i = 0; i < j->rounds; i++)
            j->part[i] = random_floats(all, i % 2 ? 1e3f : 1);
        for (int other = 0; other < r; other++)
            if (rt_reach(j->rt, other, &err) != STATUS_OK || rt_reach(jobs[other].rt, r, &err) != STATUS_OK)
                fail_msg("%s", err.msg);
    }
    for (int r = 0; r < world; r++) {
        jobs[r].a.peers = peers;
        jobs[r].a.peers.rank = r, jobs[r].a.peers.epochs = epochs[r], jobs[r].a.peers.stop = stop[r];
        for (int other = 0; other < world; other++)
            jobs[r].a.part[other] = jobs[other].mine;
    }
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, sum_rounds, &jobs[r]), 0);
    for (int r = 0; r < world; r++)
        pthread_join(threads[r], NULL);
    memset(want, 0, all * sizeof *want);
    for (int i = 0; i < jobs[0].rounds; i++)
        for (size_t e = 0; e < all; e++) {
            float v = tree(jobs, world, i, e);
            if (bias)
                v += b[e % (size_t)n];
            want[e] += v;
        }
    for (int r = 0; r < world; r++) {
        assert_true(jobs[r].ok);
        assert_int_equal(*stop[r], 0);
        if (memcmp(jobs[r].got, want, all * sizeof *want) != 0)
            fail_msg("%d ranks, %d x %d: rank %d has other bits", world, rows, n, r);
        for (size_t e = 0; e < all; e++)
            if (jobs[r].shared[e] != jobs[e / backend_resid_part(all, world)].part[0][e])
                fail_msg("%d ranks, %d x %d: rank %d shares something else", world, rows, n, r);
        rt_free(jobs[r].rt, jobs[r].mine), rt_free(jobs[r].rt, jobs[r].a.y);
        rt_free(jobs[r].rt, (void *)(uintptr_t)jobs[r].a.bias), rt_free(jobs[r].rt, peers.flags[r]);
        rt_free(jobs[r].rt, epochs[r]), rt_free_host(jobs[r].rt, stop[r]);
        rt_close(jobs[r].rt);
        free(jobs[r].got), free(jobs[r].shared);
    }
    for (int r = 0; r < world; r++)
        for (int i = 0; i < jobs[r].rounds; i++)
            free((void *)(uintptr_t)jobs[r].part[i]);
    free(b), free(want);
}

// How many devices a test may have: on a machine with fewer, ranks are not tested.
static int num_devices(void) {
    int n = 0;
    struct err err = {0};
    for (struct rt *one; n < COMM_MAX_SUM && (one = rt_open(n, &err)); n++)
        rt_close(one);
    return n;
}

TEST(test_sum) {
    static const struct {
        int world, rows, n;
        bool bias, two_shots;
        uint32_t epoch;
    } cases[] = {
        {1, 3, 64, true, false, 0},
        {2, 1, 8, false, false, 0},
        {2, 3, 7, true, false, 0xfffffff2u}, // flags wrap around
        {2, 5, 900, true, false, 18},
        {4, 2, 300, false, false, 0},
        {8, 1, 68, true, false, 0},
        {4, 2, 300, false, true, 0},         // the last rank has no slice
        {4, 3, 75, true, true, 0xfffffff2u}, // not by fours; the last one is shorter
        {8, 5, 900, true, true, 18},
        {4, 67, 4096, true, true, 0}, // some threads have two elements of a slice
    };
    int have = num_devices();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rt_test_order((int)i % 3);
        if (cases[i].world <= have)
            check_sum(cases[i].world, cases[i].rows, cases[i].n, cases[i].bias, cases[i].two_shots,
                      cases[i].epoch);
    }
    rt_test_order(0);
}

// ---- NCCL

struct nccl_job {
    struct rt *rt;
    int rank, world;
    const unsigned char *id;
    float x[100];
    uint16_t brief[100]; // in bf16
    struct err err;
    int patience; // how often it goes on waiting; -1: always
};

static bool go_on(void *job) {
    struct nccl_job *j = job;
    return j->patience < 0 || j->patience-- > 0;
}

static void *sum_by_nccl(void *arg) {
    struct nccl_job *j = arg;
    float *x = rt_alloc(j->rt, sizeof j->x);
    uint16_t *brief = rt_alloc(j->rt, sizeof j->brief);
    struct rt_nccl *n = rt_nccl_open(j->rt, j->id, j->rank, j->world, go_on, j, &j->err);
    if (n) {
        rt_upload_now(j->rt, x, j->x, sizeof j->x);
        rt_upload_now(j->rt, brief, j->brief, sizeof j->brief);
        for (int i = 0; i < 2; i++) {
            rt_nccl_sum(n, x, 100, false);
            rt_nccl_sum(n, brief, 100, true);
        }
        rt_mark(j->rt, 0);
        rt_wait(j->rt, 0, &j->err);
        rt_download_now(j->rt, j->x, x, sizeof j->x);
        rt_download_now(j->rt, j->brief, brief, sizeof j->brief);
    }
    rt_nccl_close(n);
    rt_free(j->rt, x), rt_free(j->rt, brief);
    return NULL;
}

TEST(test_nccl) {
    struct nccl_job jobs[2] = {0};
    pthread_t threads[2];
    unsigned char id[RT_NCCL_ID];
    struct err err = {0};
    int world = num_devices() < 2 ? 1 : 2;
    setenv("QUIRE_EMULATED_NCCL", "1", 1);
    if (!rt_nccl_id(rt, id, &err)) {
        unsetenv("QUIRE_EMULATED_NCCL");
        printf("sums by NCCL are not tested: %s\n", err.msg);
        return;
    }
    for (int r = 0; r < world; r++) {
        jobs[r].rank = r, jobs[r].world = world, jobs[r].id = id, jobs[r].patience = -1;
        if (!(jobs[r].rt = rt_open(r, &err)))
            fail_msg("%s", err.msg);
        for (int i = 0; i < 100; i++) {
            jobs[r].x[i] = (float)(i * (r + 1));
            jobs[r].brief[i] = float_to_bf16((float)(i % 42 * (r + 1)));
        }
        assert_int_equal(pthread_create(&threads[r], NULL, sum_by_nccl, &jobs[r]), 0);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(threads[r], NULL);
        if (jobs[r].err.code != STATUS_OK)
            fail_msg("%s", jobs[r].err.msg);
    }
    unsetenv("QUIRE_EMULATED_NCCL");
    for (int r = 0; r < world; r++) {
        for (int i = 0; i < 100; i++) { // integers: exact in any order. The second sum doubles the first
            assert_true(jobs[r].x[i] == (float)(world == 1 ? i : 2 * 3 * i));
            assert_true(bf16_to_float(jobs[r].brief[i]) == (float)(i % 42 * (world == 1 ? 1 : 6)));
        }
        rt_close(jobs[r].rt);
    }
}

// A rank waits for one that does not come as long as it is told to.
TEST(test_nccl_alone) {
    struct nccl_job job = {.rank = 0, .world = 2, .patience = 3};
    unsigned char id[RT_NCCL_ID];
    struct rt_info info;
    rt_describe(rt, &info);
    if (!info.emulated)
        return; // NCCL's own thread would wait on
    setenv("QUIRE_EMULATED_NCCL", "1", 1);
    if (!(job.rt = rt_open(0, &job.err)) || !rt_nccl_id(job.rt, id, &job.err)) {
        printf("sums by NCCL are not tested: %s\n", job.err.msg);
    } else {
        job.id = id;
        sum_by_nccl(&job);
        assert_int_equal(job.err.code, STATUS_DEVICE);
        assert_non_null(strstr(job.err.msg, "another rank did not come"));
        assert_true(job.patience < 1);
    }
    rt_close(job.rt);
    unsetenv("QUIRE_EMULATED_NCCL");
}

// Sums that are long enough for two shots; half of four ranks' reading is saved, and nothing of two's.
TEST(test_two_shots) {
    assert_false(cuda_two_shots(1, 1 << 30, 0));
    assert_false(cuda_two_shots(2, 1 << 30, 0));
    assert_false(cuda_two_shots(4, 1000, 1500));
    assert_true(cuda_two_shots(4, 1001, 1500));
    assert_false(cuda_two_shots(8, 6 * 8192 * sizeof(float), CUDA_TWO_SHOTS));
    assert_true(cuda_two_shots(8, 7 * 8192 * sizeof(float), CUDA_TWO_SHOTS));
}

// A kernel whose twin never comes ends when it is told to.
TEST(test_stop) {
    float *x = poisoned(64);
    uint32_t *stop = rt_alloc_host(rt, sizeof *stop);
    struct cuda_sum a = {.peers = {.world = 2, .epochs = device_alloc(256), .stop = stop},
                         .part = {x, x},
                         .y = device_alloc(64),
                         .rows = 1,
                         .n = 16};
    a.peers.flags[0] = device_alloc(4 * CUDA_BARRIER_BLOCKS * COMM_MAX_SUM);
    a.peers.flags[1] = device_alloc(4 * CUDA_BARRIER_BLOCKS * COMM_MAX_SUM);
    __atomic_store_n(stop, 1, __ATOMIC_RELEASE);
    // Nor do its next launches, whatever they are, tell its twin that this rank has come: what it has made is wrong.
    struct cuda_share share = {.peers = a.peers, .part = {x, x}, .y = a.y, .n = 16, .each = 8};
    for (int launch = 0; launch < 4; launch++) {
        if (launch == 2)
            cuda_share(rt, &share);
        else
            cuda_sum(rt, &a);
        float *sum = to_host(a.y, 64);
        uint32_t *told = to_host(a.peers.flags[1], sizeof(uint32_t));
        for (int i = 0; i < 16; i++)
            assert_true(sum[i] == 0); // nothing was added
        assert_int_equal(told[0], 1);
        free(sum), free(told);
        if (launch == 0) // its twin comes, too late
            rt_upload_now(rt, a.peers.flags[0], &(uint32_t[2]){9, 9}, 2 * sizeof(uint32_t));
    }
    float *got;
    // Nor where others fail between the shots. Who has not passed a barrier does not come to the next.
    enum { FLAGS = CUDA_BARRIER_BLOCKS * COMM_MAX_SUM };
    for (uint32_t epoch = 0; epoch < 2; epoch++) { // of the others
        uint32_t flags[FLAGS] = {0};
        for (int r = 0; r < 4; r++)
            flags[r] = epoch, a.part[r] = x;
        a.peers.world = 4, a.two_shots = true;
        rt_upload_now(rt, a.peers.flags[0], flags, sizeof flags);
        rt_upload_now(rt, a.peers.epochs, &(uint32_t){0}, sizeof(uint32_t));
        a.peers.flags[2] = a.peers.flags[3] = a.peers.flags[1];
        cuda_sum(rt, &a);
        got = to_host(a.y, 64);
        for (int i = 0; i < 16; i++)
            assert_true(got[i] == 0);
        free(got);
        uint32_t *told = to_host(a.peers.flags[1], sizeof flags);
        assert_int_equal(told[0], 1 + epoch);
        free(told);
    }
    rt_free(rt, x), rt_free(rt, a.y), rt_free(rt, a.peers.epochs), rt_free(rt, a.peers.flags[0]),
        rt_free(rt, a.peers.flags[1]), rt_free_host(rt, stop);
}

// ---- gathering logits and local top-k of all ranks

enum {
    GATHER_ROWS = 4,
    GATHER_WORLD = 4,
    GATHER_VOCAB = 250,
    GATHER_LD = 256,
    GATHER_MAX = GATHER_LD / CUDA_GROUP
};

struct gather_job {
    struct rt *rt;
    struct cuda_gather a;
    float logits[GATHER_ROWS][GATHER_LD], max[GATHER_ROWS][GATHER_MAX]; // then what the rank has of all
    struct cuda_topk topk[GATHER_ROWS];                                 // likewise
    bool ok;
};

static void *gather(void *arg) {
    struct gather_job *j = arg;
    int rank = j->a.peers.rank;
    cuda_gather(j->rt, &j->a);
    rt_mark(j->rt, 0);
    j->ok = rt_wait(j->rt, 0, NULL) == STATUS_OK;
    rt_download_now(j->rt, j->logits, j->a.logits[rank], sizeof j->logits);
    rt_download_now(j->rt, j->max, j->a.max[rank], sizeof j->max);
    rt_download_now(j->rt, j->topk, j->a.topk[rank], sizeof j->topk);
    return NULL;
}

static void *put(struct rt *on, const void *host, size_t bytes) {
    void *p = rt_alloc(on, bytes);
    assert_non_null(p);
    if (host)
        rt_upload_now(on, p, host, bytes);
    return p;
}

// Rows 0 and 2 are sampled from the local top-k, row 1 from all logits, row 3 is padding.
TEST(test_gather) {
    static const struct logits_row heads[GATHER_ROWS] = {
        {.row = 0, .target = -1, .num_logprobs = -1, .temperature = 1, .top_k = 7},
        {.row = 1, .target = -1, .num_logprobs = -1, .temperature = 1},
        {.row = 2, .target = -1, .num_logprobs = -1},
        {.row = -1, .target = -1, .num_logprobs = -1}};
    if (num_devices() < GATHER_WORLD)
        return;
    for (int order = 0; order < 3; order++) {
        struct gather_job *jobs = must_calloc(GATHER_WORLD, sizeof *jobs);
        struct cuda_gather a = {.peers = {.world = GATHER_WORLD},
                                .num_rows = GATHER_ROWS,
                                .max_topk = 40,
                                .begin = {0, 64, 96, 192, GATHER_VOCAB},
                                .ld = GATHER_LD,
                                .ldmax = GATHER_MAX};
        float whole[GATHER_ROWS][GATHER_LD];
        struct cuda_topk topk[GATHER_ROWS];
        pthread_t threads[GATHER_WORLD];
        for (int r = 0; r < GATHER_ROWS; r++)
            for (int v = 0; v < GATHER_LD; v++)
                whole[r][v] = 10 * random_float();
        for (int r = 0; r < GATHER_ROWS; r++)
            for (int i = 0; i < CUDA_TOPK_ROW; i++) {
                topk[r].ids[i] = 1000 * r + i;
                topk[r].logits[i] = random_float();
                topk[r].max[i / CUDA_GROUP] = random_float();
            }
        for (int rank = 0; rank < GATHER_WORLD; rank++) {
            struct gather_job *j = &jobs[rank];
            struct err err = {0};
            if (!(j->rt = rt_open(rank, &err)))
                fail_msg("%s", err.msg);
            memset(j->logits, 0xff, sizeof j->logits), memset(j->max, 0xff, sizeof j->max);
            memset(j->topk, 0xff, sizeof j->topk);
            for (int r = 0; r < GATHER_ROWS; r++) {
                for (int v = a.begin[rank]; v < a.begin[rank + 1]; v++)
                    j->logits[r][v] = whole[r][v];
                for (int g = a.begin[rank] / CUDA_GROUP; g * CUDA_GROUP < a.begin[rank + 1]; g++)
                    j->max[r][g] = (float)(100 * r + g); // whatever it is: it is handed on
                const int own = CUDA_TOPK_ROW / GATHER_WORLD, at = rank * own;
                memcpy(j->topk[r].ids + at, topk[r].ids + at, sizeof(int32_t[own]));
                memcpy(j->topk[r].logits + at, topk[r].logits + at, sizeof(float[own]));
                memcpy(j->topk[r].max + at / CUDA_GROUP, topk[r].max + at / CUDA_GROUP,
                       sizeof(float[own / CUDA_GROUP]));
            }
            a.logits[rank] = put(j->rt, j->logits, sizeof j->logits);
            a.max[rank] = put(j->rt, j->max, sizeof j->max);
            a.topk[rank] = put(j->rt, j->topk, sizeof j->topk);
            a.peers.flags[rank] = put(j->rt, NULL, sizeof(uint32_t) * CUDA_BARRIER_BLOCKS * COMM_MAX_SUM);
            for (int other = 0; other < rank; other++)
                if (rt_reach(j->rt, other, &err) != STATUS_OK ||
                    rt_reach(jobs[other].rt, rank, &err) != STATUS_OK)
                    fail_msg("%s", err.msg);
        }
        rt_test_order(order);
        for (int rank = 0; rank < GATHER_WORLD; rank++) {
            struct gather_job *j = &jobs[rank];
            j->a = a;
            j->a.peers.rank = rank;
            j->a.peers.epochs = put(j->rt, NULL, sizeof(uint32_t) * CUDA_BARRIER_BLOCKS);
            j->a.peers.stop = rt_alloc_host(j->rt, sizeof(uint32_t));
            j->a.rows = put(j->rt, heads, sizeof heads);
        }
        // Only now: a kernel that waits for the others could hold up an allocation, and not yet have its
        // flags zeroed.
        for (int rank = 0; rank < GATHER_WORLD; rank++)
            assert_int_equal(pthread_create(&threads[rank], NULL, gather, &jobs[rank]), 0);
        for (int rank = 0; rank < GATHER_WORLD; rank++)
            pthread_join(threads[rank], NULL);
        for (int rank = 0; rank < GATHER_WORLD; rank++) {
            const struct gather_job *j = &jobs[rank];
            assert_true(j->ok);
            assert_memory_equal(j->logits[1], whole[1], sizeof(float) * GATHER_VOCAB);
            for (int g = 0; g * CUDA_GROUP < GATHER_VOCAB; g++)
                assert_true(j->max[1][g] == (float)(100 + g));
            for (int v = 0; v < GATHER_VOCAB; v++) // of the others only the rank's own are there
                if (v < a.begin[rank] || v >= a.begin[rank + 1])
                    assert_true(isnan(j->logits[0][v]) && isnan(j->logits[2][v]) && isnan(j->logits[3][v]));
            for (int r = 0; r < 3; r += 2)
                assert_memory_equal(&j->topk[r], &topk[r], sizeof topk[r]);
        }
        for (int rank = 0; rank < GATHER_WORLD; rank++) {
            struct gather_job *j = &jobs[rank];
            void *all[] = {a.logits[rank],      a.max[rank],       a.topk[rank],
                           a.peers.flags[rank], j->a.peers.epochs, (void *)(uintptr_t)j->a.rows};
            for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
                rt_free(j->rt, all[i]);
            rt_free_host(j->rt, j->a.peers.stop);
            rt_close(j->rt);
        }
        free(jobs);
    }
    rt_test_order(0);
}

int main(void) {
    device_open();
    return run_all_tests(NULL, NULL);
}
