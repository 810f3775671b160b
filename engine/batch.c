#include "batch.h"

#include "log.h"
#include "step_layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Work that the masks of a step may take, about 3 ms, and each of them at least, 50 us: what takes more is late.
enum { STEP_WORK = 1 << 16, LEAST_WORK = 1 << 10 };

// Entries of one sampling row: every distinct token of the context, every bias, bad word and stop token, every token whose
// log-probability is wanted.
size_t batch_max_entries(const struct step_limits *limits, int vocab) {
    size_t distinct = (size_t)(limits->max_context < vocab ? limits->max_context : vocab);
    return (size_t)limits->max_seqs *
           (distinct + MAX_LOGIT_BIAS + MAX_BAD_WORDS + MAX_STOP_TOKENS + MAX_TOP_LOGPROBS);
}

// Lays out the packed buffer for the most that a step holds: with base NULL it only measures. Returns the bytes.
static size_t lay_out(const struct batch *b, unsigned char *base, struct step_arrays *a) {
    const struct step_limits *l = &b->limits;
    int per_seq = (l->max_context + b->kv.block_size - 1) / b->kv.block_size;
    struct step_counts c = {.tokens = l->max_tokens,
                            .seqs = l->max_seqs,
                            .rows = l->max_rows,
                            .entries = (int)batch_max_entries(l, b->vocab),
                            .moves = l->max_seqs * b->kv.num_groups * KV_SEQ_MOVES,
                            .masks = l->max_seqs,
                            .has_masks = true,
                            .has_adapters = l->max_adapters > 0,
                            .has_types = l->has_types,
                            .has_axes = l->has_axes,
                            .embeds = l->embed_size > 0 ? l->max_tokens : 0,
                            .embed_size = l->embed_size,
                            .groups = b->kv.num_groups};
    for (int g = 0; g < c.groups; g++)
        c.blocks[g] = l->max_seqs * (b->kv.groups[g].kind == KV_STATE ? 1 : per_seq);
    return step_layout(&c, b->vocab, 0, base, a);
}

enum status batch_init(struct batch *b, const struct step_limits *limits, int vocab,
                       const struct kv_config *kv) {
    *b = (struct batch){.limits = *limits, .vocab = vocab, .kv = *kv};
    struct step_arrays v;
    size_t S = (size_t)limits->max_seqs;
    b->bytes = lay_out(b, NULL, &v);
    // The tail is for the worst case; pages that no step touches cost nothing.
    if (posix_memalign((void **)&b->packed, 64, b->bytes) != 0)
        b->packed = NULL;
    b->first_row = calloc(S + 1, sizeof *b->first_row);
    b->start = calloc(S + 1, sizeof *b->start);
    b->tokens = calloc(S, sizeof *b->tokens);
    b->failed = calloc(S, sizeof *b->failed);
    b->sample_row = calloc(S, sizeof *b->sample_row);
    b->masks = calloc(S, sizeof *b->masks);
    if (b->packed && b->first_row && b->start && b->tokens && b->failed && b->sample_row && b->masks)
        return STATUS_OK;
    batch_destroy(b);
    return STATUS_NOMEM;
}

void batch_destroy(struct batch *b) {
    free(b->packed);
    free(b->first_row);
    free(b->start);
    free(b->tokens);
    free(b->failed);
    free(b->sample_row);
    free(b->masks);
    *b = (struct batch){0};
}

// Appends the entries of a row that samples the token at `position`: penalties, then bias, then tokens that
// may not come there.
static int add_entries(struct logit_entry *e, struct request *r, int position) {
    const struct sampling_params *p = &r->sampling;
    token_id banned[MAX_BAD_WORDS];
    int n = 0;
    if (token_history_on(&r->history))
        token_history_adjust(&r->counts, &r->history, r->tokens, position, r->scratch);
    for (int i = 0; i < r->counts.num; i++) {
        const struct token_count *c = &r->counts.list[i];
        float add = c->output > 0 ? -p->presence_penalty - p->frequency_penalty * (float)c->output : 0;
        add += c->add;
        if (p->repetition_penalty != 1 || add != 0)
            e[n++] = (struct logit_entry){.token = c->token, .div = p->repetition_penalty, .add = add};
    }
    for (int i = 0; i < r->num_bias; i++)
        e[n++] = (struct logit_entry){.token = r->bias[i].token, .div = 1, .add = r->bias[i].add};
    int num_banned =
        token_history_banned(r->bad_words, r->tokens + r->num_prompt, position - r->num_prompt, banned);
    for (int i = 0; i < num_banned; i++)
        e[n++] = (struct logit_entry){.token = banned[i], .div = 1, .add = -INFINITY};
    for (int i = 0; position < r->min_tokens && i < r->num_stop; i++)
        e[n++] = (struct logit_entry){.token = r->stop[i], .div = 1, .add = -INFINITY};
    return n;
}

static struct logits_row sampling_row(const struct request *r, int row, int position) {
    const struct sampling_params *p = &r->sampling;
    bool dynamic = p->dynatemp_range > 0;
    return (struct logits_row){
        .row = row,
        .target = -1,
        .temperature = dynamic ? 1 : p->temperature,
        .typical_p = p->typical_p < 1 ? p->typical_p : 0,
        .top_n_sigma = p->top_n_sigma,
        .xtc_probability = p->xtc_threshold < 1 ? p->xtc_probability : 0,
        .xtc_threshold = p->xtc_threshold,
        .least_share = p->mirostat_tau > 0 ? exp2f(-r->mirostat_mu) : 0,
        .dyn_low = dynamic ? fmaxf(p->temperature - p->dynatemp_range, 0) : 0,
        .dyn_high = dynamic ? p->temperature + p->dynatemp_range : 0,
        .dyn_exponent = p->dynatemp_exponent,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .top_k = p->top_k,
        .num_logprobs = p->logprobs,
        .post_sampling = p->post_sampling,
        .index = position + r->mtp_first - r->num_prompt,
        .seed = p->seed,
    };
}

// Where a token that is still pending comes from: the logits row of the step before that samples for the same
// request, which has no drafts there.
static int32_t pending_source(const struct batch *prev, const struct plan *prev_plan,
                              const struct request *r) {
    CHECK(prev && prev_plan);
    for (int i = 0; i < prev_plan->num_items; i++)
        if (prev_plan->items[i].req == r && prev->sample_row[i] >= 0)
            return -1 - prev->sample_row[i];
    CHECK(!"a pending token has no source");
    return 0;
}

// The sampling rows of an item, the first of them row T of the step: each as if the drafts before it were the
// request's.
static void add_samples(struct batch *b, struct step_arrays *v, const struct plan *plan, int number, int T,
                        int *R, int *num_entries, int *num_mask_rows) {
    const struct plan_item *item = &plan->items[number];
    struct request *r = item->req;
    int known = item->first + item->num_new - item->num_drafts;
    uint32_t *bits = v->mask_bits + (size_t)*num_mask_rows * step_mask_words(b->vocab);
    CHECK(*R + item->num_drafts < b->limits.max_rows);
    for (int j = 0; j <= item->num_drafts; j++) {
        if (j > 0)
            token_counts_add(&r->counts, r->tokens[known + j - 1]);
        struct logits_row row = sampling_row(r, T + j, known + j);
        row.entry_start = *num_entries;
        *num_entries += add_entries(v->entries + *num_entries, r, known + j);
        row.entry_end = *num_entries;
        row.num_wanted = r->logprob_ids ? row.num_logprobs : 0;
        for (int i = 0; i < row.num_wanted; i++)
            v->entries[(*num_entries)++] = (struct logit_entry){.token = r->logprob_ids[i], .div = 1};
        v->masks[*R] = r->filter || r->allowed ? bits + (size_t)j * step_mask_words(b->vocab) : NULL;
        v->rows[(*R)++] = row;
    }
    for (int j = item->num_drafts; j > 0; j--)
        token_counts_take_back(&r->counts, r->tokens[known + j - 1]);
    if (r->filter || r->allowed) {
        b->masks[b->num_masks++] = (struct mask_job){.req = r,
                                                     .item = number,
                                                     .drafts = r->tokens + known,
                                                     .num_drafts = item->num_drafts,
                                                     .bits = bits};
        *num_mask_rows += 1 + item->num_drafts;
    }
}

// The pages of sequence i, whose rows begin at row t, in each group.
static void add_pages(const struct batch *b, struct step_arrays *v, const struct plan_item *item, int i,
                      int t, const struct kv_cache *kv) {
    const struct kv_seq *seq = &item->req->seq;
    int blocks = kv_blocks_for(kv, item->first + item->num_new);
    for (int g = 0; g < b->kv.num_groups; g++) {
        const struct block_table *table = &seq->tables[g];
        bool state = b->kv.groups[g].kind == KV_STATE;
        int start = v->groups[g].block_start[i], n = state ? 1 : blocks,
            given_back = state ? 0 : table->first;
        int32_t *ids = v->groups[g].block_ids + start;
        memset(ids, 0, (size_t)given_back * sizeof *ids);
        memcpy(ids + given_back, state ? &table->live : table->ids + given_back,
               (size_t)(n - given_back) * sizeof *ids);
        v->groups[g].block_start[i + 1] = start + n;
        for (int j = 0; j < item->num_new; j++)
            v->groups[g].slots[t + j] = state ? -1 : kv_slot(kv, seq, g, item->first + j);
    }
}

// The embeddings of an item whose rows begin at row t of the step, behind the E that there are. Returns how many there are
// then.
static int add_embeds(const struct batch *b, struct step_arrays *v, const struct plan_item *item, int t,
                      int E) {
    const struct request *r = item->req;
    const struct kv_seq *seq = &r->seq;
    int end = item->first + item->num_new;
    for (int at = item->first; at < end;) {
        int s = kv_find_span(seq->spans, seq->num_spans, at), n;
        if (s == seq->num_spans || seq->spans[s].first >= end)
            break;
        at = at > seq->spans[s].first ? at : seq->spans[s].first;
        n = end - at;
        const float *rows = request_embeds(r, at, &n);
        CHECK(r->embed_size == b->limits.embed_size);
        memcpy(v->embeds + (size_t)E * (size_t)r->embed_size, rows,
               (size_t)n * (size_t)r->embed_size * sizeof *rows);
        for (int i = 0; i < n; i++)
            v->embed_rows[E++] = t + at + i - item->first;
        at += n;
    }
    return E;
}

// The rows of the other model beside the tokens of an MTP layer's item.
static int add_mtp_rows(const struct batch *b, struct step_arrays *v, const struct plan_item *item, int t,
                        int E) {
    const struct request *r = item->req;
    CHECK(r->mtp_size == b->limits.embed_size);
    for (int i = 0; i < item->num_new; i++, E++) {
        memcpy(v->embeds + (size_t)E * (size_t)r->mtp_size,
               request_mtp_row(r, r->mtp_first + item->first + i), (size_t)r->mtp_size * sizeof(float));
        v->embed_rows[E] = t + i;
    }
    return E;
}

// Fills in the positions by which the T rows rotate. Whether any is not the row's own.
static bool add_rope_positions(struct step_arrays *v, const struct plan *plan, int T) {
    bool differ = false;
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        differ |= kv_seq_rope_positions(&item->req->seq, item->first, item->num_new,
                                        v->rope_positions + v->query_start[i], (size_t)T);
    }
    return differ;
}

void batch_fill(struct batch *b, const struct plan *plan, const struct kv_cache *kv, const struct batch *prev,
                const struct plan *prev_plan) {
    struct step_arrays v;
    lay_out(b, b->packed, &v);
    bool adapted = false, has_spans = false;
    int T = 0, R = 0, E = 0, num_entries = 0, num_samples = 0, num_mask_rows = 0, max_query = 0,
        max_context = 0;
    CHECK(plan->num_items <= b->limits.max_seqs && plan->num_tokens <= b->limits.max_tokens);

    b->num_masks = 0;
    CHECK((size_t)plan->num_moves <= (size_t)b->limits.max_seqs * (size_t)b->kv.num_groups * KV_SEQ_MOVES);
    if (plan->num_moves > 0)
        memcpy(v.moves, plan->moves, (size_t)plan->num_moves * sizeof *v.moves);
    v.query_start[0] = 0;
    for (int g = 0; g < b->kv.num_groups; g++)
        v.groups[g].block_start[0] = 0;
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const struct request *r = item->req;
        int context = item->first + item->num_new;
        CHECK(context <= b->limits.max_context);
        b->first_row[i] = R;
        for (int j = 0; j < item->num_new; j++) {
            int position = item->first + j;
            v.ids[T + j] =
                r->tokens[position] >= 0 ? r->tokens[position] : pending_source(prev, prev_plan, r);
            v.positions[T + j] = position;
            if (b->limits.has_types)
                v.types[T + j] = r->second_text > 0 && position >= r->second_text;
        }
        // The first that samples.
        int sample = item->needs_token ? item->num_new - 1 - item->num_drafts : item->num_new;
        int end = r->pooling == POOLING_CLS && item->first_logit < sample ? item->first_logit + 1 : sample;
        for (int j = item->first_logit; j < end; j++) {
            CHECK(R < b->limits.max_rows);
            if (r->pooling != POOLING_NONE) {
                v.masks[R] = NULL;
                v.rows[R++] = (struct logits_row){.row = T + j, .num_logprobs = -1};
                continue;
            }
            struct logits_row row = sampling_row(r, T + j, item->first + j + 1);
            row.target = r->tokens[item->first + j + 1];
            row.num_logprobs = r->sampling.num_prompt_logprobs;
            row.post_sampling = 0;
            row.entry_start = row.entry_end = num_entries;
            v.masks[R] = NULL;
            v.rows[R++] = row;
        }
        b->sample_row[i] = item->needs_token ? R : -1;
        if (item->needs_token) {
            num_samples += 1 + item->num_drafts;
            CHECK(num_samples <= b->limits.max_seqs);
            add_samples(b, &v, plan, i, T + sample, &R, &num_entries, &num_mask_rows);
        }
        add_pages(b, &v, item, i, T, kv);
        if (r->embeds && item->first < r->num_prompt)
            E = add_embeds(b, &v, item, T, E);
        if (r->mtp_size > 0)
            E = add_mtp_rows(b, &v, item, T, E);
        T += item->num_new;
        v.query_start[i + 1] = T;
        v.context_len[i] = context;
        if (b->limits.max_adapters > 0)
            v.adapters[i] = r->adapter ? r->adapter->slot : -1;
        adapted |= r->adapter != NULL;
        has_spans |= r->seq.num_spans > 0;
        if (item->num_new > max_query)
            max_query = item->num_new;
        if (context > max_context)
            max_context = context;
    }
    b->first_row[plan->num_items] = R;

    b->step = (struct step){
        .packed = b->packed,
        .packed_bytes = b->bytes,
        .num_tokens = T,
        .num_seqs = plan->num_items,
        .num_decode = plan->num_decode,
        .num_rows = R,
        .max_query_len = max_query,
        .max_context_len = max_context,
        .num_entries = num_entries,
        .seq = plan->id,
        .num_groups = b->kv.num_groups,
        .num_moves = plan->num_moves,
    };
    struct step_counts has = {
        .groups = b->kv.num_groups,
        .has_masks = b->num_masks > 0,
        .has_adapters = adapted,
        .has_types = b->limits.has_types,
        .has_axes = b->limits.has_axes && has_spans && add_rope_positions(&v, plan, T),
        .embeds = E,
    };
    step_set_arrays(&b->step, &has, &v);
}

// Clears the bits of tokens that the request never takes.
static void forbid(uint32_t *bits, const uint32_t *allowed, size_t words) {
    for (size_t i = 0; allowed && i < words; i++)
        bits[i] &= allowed[i];
}

// A filter is asked as if the drafts before a row were accepted. Behind a draft that it does not allow no row
// is good, so there is no mask.
static void compute_masks(struct mask_job *m, int vocab, int64_t *work) {
    const struct token_filter *f = m->req->filter;
    size_t words = step_mask_words(vocab);
    enum mask_result result = MASK_DONE;
    int accepted = 0;
    memset(m->bits, 0xff, (size_t)(1 + m->num_drafts) * words * sizeof *m->bits);
    for (; m->num_done <= m->num_drafts; m->num_done++) {
        uint32_t *bits = m->bits + (size_t)m->num_done * words;
        if (f && accepted < m->num_done) {
            if (!f->accept(f->state, m->drafts[accepted]))
                break;
            accepted++;
        }
        if (f && (result = f->mask(f->state, bits, vocab, work)) != MASK_DONE) {
            memset(bits, 0xff, words * sizeof *bits);
            break;
        }
        forbid(bits, m->req->allowed, words);
    }
    m->limit = result == MASK_LIMIT && m->num_done == 0;
    if (accepted > 0)
        f->rollback(f->state, accepted);
}

// Computes the masks within STEP_WORK; work that one mask leaves of its part goes to the later ones.
void batch_masks(struct batch *b) {
    int64_t left = STEP_WORK;
    for (int i = 0; i < b->num_masks; i++) {
        int64_t share = left / (b->num_masks - i), work = share > LEAST_WORK ? share : LEAST_WORK;
        left -= work;
        compute_masks(&b->masks[i], b->vocab, &work);
        left += work;
        left = left > 0 ? left : 0;
    }
}

// Whether a sampling row failed because its mask and its entries forbid every token.
static bool row_is_forbidden(const struct batch *b, const struct logits_row *row, const uint32_t *mask) {
    size_t words = step_mask_words(b->vocab);
    uint32_t *left = calloc(words, sizeof *left), any = 0;
    for (int t = 0; left && t < b->vocab; t++)
        left[t / 32] |= mask ? mask[t / 32] & 1u << (t % 32) : 1u << (t % 32);
    for (int i = row->entry_start; left && i < row->entry_end; i++)
        if (b->step.entries[i].add == -INFINITY)
            left[b->step.entries[i].token / 32] &= ~(1u << (b->step.entries[i].token % 32));
    for (size_t i = 0; left && i < words; i++)
        any |= left[i];
    bool forbidden = left && !any;
    free(left);
    return forbidden;
}

void batch_outcome(struct batch *b, const struct plan *plan, const struct step_out *out,
                   struct outcome *outcome) {
    int n = 0;
    const struct mask_job *m = b->masks;
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const token_id *drafts = item->req->tokens + item->first + item->num_new - item->num_drafts;
        int sample = b->sample_row[i] >= 0 ? b->sample_row[i] : b->first_row[i + 1];
        int end = b->first_row[i + 1];
        enum item_failure masked = ITEM_GOOD;
        if (m < b->masks + b->num_masks && m->item == i) {
            end = sample + (m->num_done > 0 ? m->num_done : 1);
            masked = m->limit ? ITEM_LIMIT : mask_job_is_late(m) ? ITEM_LATE : ITEM_GOOD;
            m++;
        }
        b->start[i] = n;
        b->failed[i] = ITEM_GOOD;
        for (int row = b->first_row[i]; row < sample; row++)
            b->failed[i] |= out->failed[row] ? ITEM_NOT_FINITE : ITEM_GOOD;
        if (!b->failed[i])
            b->failed[i] = (uint8_t)masked;
        // A row is good where all drafts before it are what was sampled; others say nothing, not even that
        // they failed.
        for (int row = sample; row < end; row++) {
            if (out->failed[row] && !b->failed[i])
                b->failed[i] =
                    row_is_forbidden(b, &b->step.rows[row], b->step.masks ? b->step.masks[row] : NULL)
                        ? ITEM_FORBIDDEN
                        : ITEM_NOT_FINITE;
            b->tokens[n++] = out->ids[row];
            if (row + 1 < end && out->ids[row] != drafts[row - sample])
                break;
        }
    }
    b->start[plan->num_items] = n;
    *outcome = (struct outcome){.start = b->start, .tokens = b->tokens, .failed = b->failed};
}
