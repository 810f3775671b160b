#include "warm_up.h"

#include "clock.h"
#include "log.h"
#include "minmax.h"
#include "step_layout.h"

#include <stdlib.h>
#include <string.h>

enum {
    WARM_UP_SECONDS = 10,   // no step begins later
    SHORTEST_PROMPT = 8,    // tokens; each further prompt has twice as many
    MOST_ROWS = 256,        // of a CUDA graph
    LONGEST_CONTEXT = 2048, // of its rows
    MOST_GRAPHS = 64,       // that a device keeps
};

struct clocked {
    const struct warm_up *w;
    double began;
    int steps;
};

// `seqs` sequences, each the last `count` of `context` tokens. All pages are page 0. NULL: no memory.
static void *make_step(const struct warm_up *w, int seqs, int count, int context, struct step *step) {
    struct step_counts c = {
        .tokens = seqs * count, .seqs = seqs, .rows = seqs, .entries = 1, .groups = w->model->num_groups};
    struct step_arrays a;
    int pages[KV_MAX_GROUPS];
    for (int g = 0; g < c.groups; g++) {
        bool state = w->model->groups[g].kind == KV_STATE;
        pages[g] = state ? 1 : (context + w->block_size - 1) / w->block_size;
        c.blocks[g] = seqs * pages[g];
    }
    size_t bytes = step_layout(&c, w->model->vocab, 0, NULL, &a);
    unsigned char *packed = aligned_alloc(64, bytes);
    if (!packed)
        return NULL;
    memset(packed, 0, bytes);
    step_layout(&c, w->model->vocab, 0, packed, &a);
    for (int t = 0; t < c.tokens; t++) {
        a.positions[t] = context - count + t % count;
        for (int g = 0; g < c.groups; g++)
            a.groups[g].slots[t] = -1;
    }
    for (int s = 0; s < seqs; s++) {
        a.query_start[s + 1] = (s + 1) * count;
        a.context_len[s] = context;
        a.rows[s] =
            (struct logits_row){.row = (s + 1) * count - 1, .target = -1, .top_p = 1, .num_logprobs = -1};
        for (int g = 0; g < c.groups; g++)
            a.groups[g].block_start[s + 1] = (s + 1) * pages[g];
    }
    a.entries[0] = (struct logit_entry){.div = 1};
    *step = (struct step){.packed = packed,
                          .packed_bytes = bytes,
                          .num_tokens = c.tokens,
                          .num_seqs = seqs,
                          .num_decode = count == 1 ? seqs : 0,
                          .num_rows = seqs,
                          .max_query_len = count,
                          .max_context_len = context,
                          .num_entries = 1,
                          .num_groups = c.groups};
    step_set_arrays(step, &c, &a);
    if (count > 1) { // prompts: kernels for logits that are adjusted, too
        a.rows[0].temperature = 1;
        a.rows[0].entry_end = 1;
    }
    return packed;
}

static bool has_time(const struct clocked *k) { return clock_now_s() - k->began < WARM_UP_SECONDS; }

static enum status run_step(struct clocked *k, int seqs, int count, int context, int times, struct err *err) {
    const struct warm_up *w = k->w;
    struct step step;
    struct step_out out;
    void *packed = make_step(w, seqs, count, context, &step);
    enum status st = packed ? STATUS_OK : err_set(err, STATUS_NOMEM, "out of memory");
    for (int i = 0; i < times && st == STATUS_OK; i++) {
        step.seq = (uint64_t)++k->steps;
        if (w->workers)
            workers_send_step(w->workers, &step);
        ranks_launch(w->ranks, &step);
        st = ranks_sync(w->ranks, &out, err);
    }
    free(packed);
    return st;
}

static enum status run_prompts(struct clocked *k, struct err *err) {
    const struct step_limits *l = &k->w->limits;
    int most = min_int(l->max_tokens, l->max_context);
    enum status st = STATUS_OK;
    for (int n = min_int(SHORTEST_PROMPT, most), last = 0; n > last && st == STATUS_OK && has_time(k);
         last = n, n = min_int(2 * n, most))
        st = run_step(k, 1, n, n, 1, err);
    return st;
}

// The sizes of graph buckets (kernels/cuda/README.md, rule 9).
static int next_size(int n) { return n < 8 ? 2 * n : n < 32 ? n + 8 : n < 64 ? n + 16 : n + 32; }

// Each bucket twice, as a device captures it then: every number of rows with short contexts, then with longer ones, which
// have more KV splits.
static enum status run_decodes(struct clocked *k, int graphs, struct err *err) {
    int rows = min_int(k->w->max_seqs, MOST_ROWS);
    enum status st = STATUS_OK;
    for (int context = 1; context <= min_int(LONGEST_CONTEXT, k->w->limits.max_context);
         context = context == 1 ? 512 : 2 * context)
        for (int n = 1, last = 0; n > last && st == STATUS_OK && graphs-- > 0 && has_time(k);
             last = n, n = min_int(next_size(n), rows))
            st = run_step(k, n, 1, context, 2, err);
    return st;
}

enum status warm_up_run(const struct warm_up *w, struct err *err) {
    const char *wanted = getenv("QUIRE_CUDA_GRAPHS"); // more buckets would push the first out again
    int graphs = wanted ? min_int(atoi(wanted), MOST_GRAPHS) : MOST_GRAPHS;
    struct clocked k = {.w = w, .began = clock_now_s()};
    struct device_info device;
    ranks_info(w->ranks, &device);
    if (device.memory_total == 0 || graphs < 1)
        return STATUS_OK;
    enum status st = run_prompts(&k, err);
    if (st == STATUS_OK && !w->limits.keep_hidden) // else no token is sampled
        st = run_decodes(&k, graphs, err);
    log_msg(LOG_INFO, "warm_up_steps=%d warm_up_ms=%.0f", k.steps, (clock_now_s() - k.began) * 1e3);
    return st;
}
