// One step: the upload, CUDA graphs, and the results.
#include "device.h"

#include "log.h"

#include <stdio.h>
#include <string.h>

// Only steps in which every sequence decodes and is sampled become graphs: they come by the thousand, and
// launching bounds their kernels.
static bool suits_graph(const struct device *dev, const struct step *step) {
    return dev->max_graphs > 0 && step->num_embeds == 0 && !dev->limits.keep_logits &&
           !dev->limits.keep_hidden && !dev->exact && step->num_decode == step->num_seqs &&
           step->num_rows == step->num_tokens && step->num_tokens == step->num_seqs &&
           work_graph_rows(step->num_tokens) > 0;
}

static int power_of_two(int n) {
    int p = 64;
    while (p < n)
        p *= 2;
    return p;
}

// A place for another bucket: a free one, or that of the bucket not used for longest.
static struct graph *free_place(struct device *dev) {
    if (dev->num_graphs < dev->max_graphs)
        return &dev->graphs[dev->num_graphs++];
    struct graph *oldest = &dev->graphs[0];
    for (int i = 1; i < dev->num_graphs; i++)
        if (dev->graphs[i].last_step < oldest->last_step)
            oldest = &dev->graphs[i];
    if (oldest->graph)
        rt_graph_free(dev->rt, oldest->graph);
    return oldest;
}

// The graph of this step's bucket, or a place for it; NULL if a spec's splits are too many for one launch, or the
// entries do not all fit.
static struct graph *find_graph(struct device *dev, int tokens, bool has_axes) {
    struct graph key = {.num_tokens = tokens, .has_axes = has_axes, .has_lora = dev->work.num_lora > 0};
    if (!dev->work.one_launch || dev->work.entries_apart)
        return NULL;
    for (int a = 0; a < dev->model.num_attn; a++) {
        int splits = power_of_two(dev->work.attn[a].num_splits);
        key.max_splits[a] = splits < dev->max_splits ? splits : dev->max_splits;
    }
    for (int i = 0; i < dev->num_graphs; i++) {
        struct graph *g = &dev->graphs[i];
        bool same_splits = memcmp(g->max_splits, key.max_splits, sizeof key.max_splits) == 0;
        if (g->num_tokens == tokens && g->has_axes == has_axes && g->has_lora == key.has_lora &&
            same_splits) {
            g->last_step = dev->num_begun;
            return g;
        }
    }
    struct graph *g = free_place(dev);
    *g = key;
    g->last_step = dev->num_begun;
    return g;
}

// Whether a step may be captured: the one before of its bucket (once may be chance) has loaded its kernels and found
// cuBLASLt's algorithms, which are still there.
static bool can_capture(struct device *dev, struct graph *g) {
    int forgot = rt_matmul_forgot(dev->rt);
    bool can = g->num_seen++ > 0 && g->num_forgot == forgot;
    g->num_forgot = forgot;
    return can;
}

// Whether kernels read entries, passes or masks, which stay in the upload when cuda_scatter() has copied the rest.
static bool has_entries(const struct step_work *w) { return w->entries_apart || w->bytes > w->entries; }

// Where a step is in flight, beside it; else nothing would be won by another stream.
static void upload(struct device *dev, const void *from) {
    if (dev->num_begun - dev->num_synced == 1) {
        rt_upload(dev->rt, dev->staging, from, dev->work.bytes);
    } else {
        rt_order(dev->rt, RT_UPLOADS, RT_UPLOAD_READ); // by the step before
        rt_upload_ahead(dev->rt, dev->staging, from, dev->work.bytes);
        rt_record(dev->rt, RT_UPLOADS, RT_UPLOADED);
        rt_order(dev->rt, RT_WORK, RT_UPLOADED);
    }
    cuda_scatter(dev->rt, &(struct cuda_scatter){dev->staging, work_num_parts(&dev->work_config)});
    if (!has_entries(&dev->work))
        rt_record(dev->rt, RT_WORK, RT_UPLOAD_READ);
}

// Copies back what rows gave, and marks the end of the step.
static void finish_step(struct device *dev, const struct step *step) {
    int slot = (int)(dev->num_begun & 1);
    struct cuda_result *r = &dev->result[slot];
    size_t R = (size_t)dev->max_rows, n = (size_t)step->num_rows;
    bool tops = false;
    if (has_entries(&dev->work))
        rt_record(dev->rt, RT_WORK, RT_UPLOAD_READ);
    for (int i = 0; i < step->num_rows; i++)
        tops |= step->rows[i].num_logprobs > 0;
    rt_download(dev->rt, r->ids, dev->ids, 4 * R * sizeof(int32_t) + sizeof *dev->counts + n);
    if (tops) {
        rt_download(dev->rt, r->top_ids, dev->top_ids, n * MAX_TOP_LOGPROBS * sizeof(int32_t));
        rt_download(dev->rt, r->top_logprobs, dev->top_logprobs, n * MAX_TOP_LOGPROBS * sizeof(float));
    }
    r->num_rows = step->num_rows;
    rt_mark(dev->rt, slot);
}

static void check_step(const struct device *dev, const struct step *step) {
    const struct step_limits *l = &dev->limits;
    CHECK(step->num_tokens <= l->max_tokens && step->num_seqs <= l->max_seqs &&
          step->num_rows <= l->max_rows);
    CHECK(step->num_decode >= 0 && step->num_decode <= step->num_seqs &&
          step->max_context_len <= l->max_context);
    CHECK(step->num_groups == dev->model.num_groups);
    CHECK(dev->num_begun - dev->num_synced < 2); // results of two steps are kept
    for (int t = 0; t < step->num_tokens; t++) {
        CHECK(step->ids[t] < dev->model.vocab &&
              (step->ids[t] >= 0 || -1 - step->ids[t] < dev->result[dev->num_begun & 1].num_rows));
        CHECK(step->positions[t] >= 0 && step->positions[t] < l->max_context);
        for (int a = 0; step->rope_positions && a < ROPE_AXES; a++) {
            int at = step->rope_positions[a * step->num_tokens + t];
            CHECK(l->has_axes && at >= 0 && at <= step->positions[t]);
        }
        CHECK(dev->model.positions == 0 || step->positions[t] < dev->model.positions);
        CHECK(!step->types || (step->types[t] >= 0 && step->types[t] < dev->model.token_types));
        for (int g = 0; g < step->num_groups; g++)
            CHECK(step->groups[g].slots[t] < (int64_t)l->num_blocks * dev->block_size);
    }
    for (int s = 0; step->adapters && s < step->num_seqs; s++)
        CHECK(step->adapters[s] < 0 ||
              (step->adapters[s] < l->max_adapters && dev->adapters[step->adapters[s]]));
    CHECK(step->num_embeds == 0 || l->embed_size == dev->model.hidden);
    for (int e = 0; e < step->num_embeds; e++)
        CHECK(step->embed_rows[e] >= 0 && step->embed_rows[e] < step->num_tokens);
    for (int r = 0; r < step->num_rows; r++) {
        const struct logits_row *row = &step->rows[r];
        CHECK(row->row >= 0 && row->row < step->num_tokens && row->target < dev->model.vocab);
        CHECK(row->num_logprobs <= MAX_TOP_LOGPROBS && row->entry_end + row->num_wanted <= step->num_entries);
        for (int e = row->entry_start; e < row->entry_end + row->num_wanted; e++)
            CHECK(step->entries[e].token >= 0 && step->entries[e].token < dev->model.vocab);
    }
}

// A range of a profiler until the step is queued.
static void begin_range(struct device *dev, const struct step *step) {
    char name[80];
    int decode = step->num_decode;
    snprintf(name, sizeof name, "step %llu: %d decode, %d prefill", (unsigned long long)dev->num_begun,
             decode, step->num_tokens - decode);
    rt_range_begin(dev->rt, name);
}

bool cuda_step_begin(struct device *dev, const struct step *step) {
    check_step(dev, step);
    cuda_peers_join(dev);
    dev->num_begun++;
    int slot = (int)(dev->num_begun & 1);
    begin_range(dev, step);
    bool suits = suits_graph(dev, step);
    int tokens = suits ? work_graph_rows(step->num_tokens) : step->num_tokens;
    if (step->masks && step->masks_wait)
        step->masks_wait(step->masks_arg); // the upload has their bits
    work_fill(&dev->work, &dev->work_config, &dev->inputs, dev->upload[slot], step, tokens, dev->seen,
              &dev->stamp);
    CHECK(dev->work.bytes <= dev->upload_bytes);
    rt_range_begin(dev->rt, "upload");
    upload(dev, dev->upload[slot]);
    rt_range_end(dev->rt);
    dev->step = step; // until step_end()
    dev->capturing = false;
    dev->experts.counted = false;
    struct graph *g = suits ? find_graph(dev, tokens, step->rope_positions) : NULL;
    if (g && g->graph) {
        rt_range_begin(dev->rt, "graph");
        rt_graph_launch(dev->rt, g->graph);
        rt_range_end(dev->rt);
        finish_step(dev, step);
        rt_range_end(dev->rt);
        return true;
    }
    dev->bucket = g;
    if (g && can_capture(dev, g)) {
        dev->capturing = true;
        rt_capture_begin(dev->rt);
    }
    return false;
}

void cuda_step_end(struct device *dev) {
    if (dev->capturing) {
        dev->bucket->graph = rt_capture_end(dev->rt);
        if (dev->bucket->graph)
            rt_graph_launch(dev->rt, dev->bucket->graph);
        else
            rt_fail(dev->rt, "a step could not be captured as a CUDA graph");
    }
    finish_step(dev, dev->step);
    rt_range_end(dev->rt);
    cuda_peers_check(dev);
}

enum status cuda_sync(struct device *dev, struct step_out *out, struct err *err) {
    CHECK(dev->num_synced < dev->num_begun);
    int slot = (int)(++dev->num_synced & 1);
    const struct cuda_result *r = &dev->result[slot];
    *out = (struct step_out){.ids = r->ids,
                             .logprob = r->logprob,
                             .rank = r->rank,
                             .share = r->share,
                             .top_ids = r->top_ids,
                             .top_logprobs = r->top_logprobs,
                             .failed = r->failed,
                             .logits = r->logits,
                             .hidden = r->hidden,
                             .max_top = MAX_TOP_LOGPROBS};
    rt_range_begin(dev->rt, "sync");
    enum status st = dev->peers.world > 1 ? cuda_peers_wait(dev, slot, err) : rt_wait(dev->rt, slot, err);
    rt_range_end(dev->rt);
    out->experts = *r->counts;
    return st;
}
