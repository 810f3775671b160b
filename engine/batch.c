#include "batch.h"

#include "log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Writable views of the packed upload, in its order.
struct views {
    int32_t *ids, *positions;
    int64_t *slots;
    int32_t *query_start, *context_len, *block_start, *block_ids;
    struct head_row *rows;
    struct logit_edit *edits;
    const uint32_t **masks;
    uint32_t *mask_bits; // (max_seqs, words)
};

static size_t words(int vocab) { return ((size_t)vocab + 31) / 32; }

// Edits of one drawing row: every distinct token of the context, every bias, every stop token.
size_t batch_max_edits(const struct step_limits *limits, int vocab) {
    size_t distinct = (size_t)(limits->max_context < vocab ? limits->max_context : vocab);
    return (size_t)limits->max_seqs * (distinct + MAX_LOGIT_BIAS + MAX_STOP_TOKENS);
}

// Lays out the packed buffer: with base NULL it only measures. Returns the bytes.
static size_t lay_out(const struct batch *b, unsigned char *base, struct views *v) {
    size_t T = (size_t)b->limits.max_tokens, S = (size_t)b->limits.max_seqs, R = (size_t)b->limits.max_rows;
    size_t per_seq = (size_t)(b->limits.max_context + b->block_size - 1) / (size_t)b->block_size;
    size_t at = 0;
#define ROOM(field, count) /* the next field, 64-byte aligned */                                             \
    v->field = base ? (void *)(base + at) : NULL;                                                            \
    at = (at + (count) * sizeof *v->field + 63) & ~(size_t)63
    ROOM(ids, T);
    ROOM(positions, T);
    ROOM(slots, T);
    ROOM(query_start, S + 1);
    ROOM(context_len, S);
    ROOM(block_start, S + 1);
    ROOM(block_ids, S * per_seq);
    ROOM(rows, R);
    ROOM(edits, batch_max_edits(&b->limits, b->vocab));
    ROOM(masks, R);
    ROOM(mask_bits, S * words(b->vocab));
#undef ROOM
    return at;
}

enum status batch_init(struct batch *b, const struct step_limits *limits, int vocab, int block_size) {
    *b = (struct batch){.limits = *limits, .vocab = vocab, .block_size = block_size};
    struct views v;
    size_t S = (size_t)limits->max_seqs;
    b->bytes = lay_out(b, NULL, &v);
    // The tail is for the worst case; pages that no step touches cost nothing.
    if (posix_memalign((void **)&b->packed, 64, b->bytes) != 0)
        b->packed = NULL;
    b->first_row = calloc(S + 1, sizeof *b->first_row);
    b->start = calloc(S + 1, sizeof *b->start);
    b->tokens = calloc(S, sizeof *b->tokens);
    b->failed = calloc(S, sizeof *b->failed);
    b->draw_row = calloc(S, sizeof *b->draw_row);
    if (b->packed && b->first_row && b->start && b->tokens && b->failed && b->draw_row)
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
    free(b->draw_row);
    *b = (struct batch){0};
}

// Appends the edits of a row that draws the token at `position`: penalties, then bias, then tokens that may
// not come yet.
static int add_edits(struct logit_edit *e, const struct request *r, int position) {
    const struct sampling_params *p = &r->sampling;
    int n = 0;
    for (int i = 0; i < r->num_counts; i++) {
        const struct token_count *c = &r->counts[i];
        float add = c->output > 0 ? -p->presence_penalty - p->frequency_penalty * (float)c->output : 0;
        if (p->repetition_penalty != 1 || add != 0)
            e[n++] = (struct logit_edit){.token = c->token, .div = p->repetition_penalty, .add = add};
    }
    for (int i = 0; i < r->num_bias; i++)
        e[n++] = (struct logit_edit){.token = r->bias[i].token, .div = 1, .add = r->bias[i].add};
    for (int i = 0; position < r->min_tokens && i < r->num_stop; i++)
        e[n++] = (struct logit_edit){.token = r->stop[i], .div = 1, .add = -INFINITY};
    return n;
}

static struct head_row draw_row(const struct request *r, int row, int position) {
    const struct sampling_params *p = &r->sampling;
    return (struct head_row){
        .row = row,
        .target = -1,
        .temperature = p->temperature,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .top_k = p->top_k,
        .num_logprobs = p->logprobs,
        .index = position - r->num_prompt,
        .seed = p->seed,
    };
}

// Where a token that is still pending comes from: the head row of the step before that draws for the same
// request.
static int32_t pending_source(const struct batch *prev, const struct plan *prev_plan,
                              const struct request *r) {
    CHECK(prev && prev_plan);
    for (int i = 0; i < prev_plan->num_items; i++)
        if (prev_plan->items[i].req == r && prev->draw_row[i] >= 0)
            return -1 - prev->draw_row[i];
    CHECK(!"a pending token has no source");
    return 0;
}

void batch_fill(struct batch *b, const struct plan *plan, const struct kv_cache *kv, const struct batch *prev,
                const struct plan *prev_plan) {
    struct views v;
    lay_out(b, b->packed, &v);
    int T = 0, R = 0, num_edits = 0, num_masks = 0, max_query = 0, max_context = 0;
    CHECK(plan->num_items <= b->limits.max_seqs && plan->num_tokens <= b->limits.max_tokens);

    v.query_start[0] = v.block_start[0] = 0;
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        const struct request *r = item->req;
        int context = item->first + item->num_new;
        CHECK(context <= b->limits.max_context);
        b->first_row[i] = R;
        b->draw_row[i] = -1;
        for (int j = 0; j < item->num_new; j++) {
            int position = item->first + j;
            v.ids[T + j] =
                r->tokens[position] >= 0 ? r->tokens[position] : pending_source(prev, prev_plan, r);
            v.positions[T + j] = position;
            v.slots[T + j] = kv_slot(kv, &r->blocks, position);
        }
        for (int j = item->first_logit; j < item->num_new; j++) {
            int next = item->first + j + 1; // the position this row predicts
            CHECK(R < b->limits.max_rows);
            struct head_row row = draw_row(r, T + j, next);
            row.edit_start = num_edits;
            v.masks[R] = NULL;
            if (item->needs_token && j == item->num_new - 1) {
                num_edits += add_edits(v.edits + num_edits, r, next);
                if (r->filter) {
                    uint32_t *bits = v.mask_bits + (size_t)num_masks++ * words(b->vocab);
                    r->filter->mask(r->filter->state, bits, b->vocab);
                    v.masks[R] = bits;
                }
                b->draw_row[i] = R;
            } else {
                row.target = r->tokens[next];
                row.num_logprobs = row.num_logprobs > 0 ? row.num_logprobs : 0;
            }
            row.edit_end = num_edits;
            v.rows[R++] = row;
        }
        T += item->num_new;
        v.query_start[i + 1] = T;
        v.context_len[i] = context;
        int blocks = kv_blocks_for(kv, context);
        memcpy(v.block_ids + v.block_start[i], r->blocks.ids, (size_t)blocks * sizeof *v.block_ids);
        v.block_start[i + 1] = v.block_start[i] + blocks;
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
        .num_edits = num_edits,
        .seq = plan->id,
        .ids = v.ids,
        .positions = v.positions,
        .slots = v.slots,
        .query_start = v.query_start,
        .context_len = v.context_len,
        .block_start = v.block_start,
        .block_ids = v.block_ids,
        .rows = v.rows,
        .edits = v.edits,
        .masks = num_masks > 0 ? v.masks : NULL,
    };
}

void batch_outcome(struct batch *b, const struct plan *plan, const struct step_out *out,
                   struct outcome *outcome) {
    int n = 0;
    for (int i = 0; i < plan->num_items; i++) {
        b->start[i] = n;
        b->failed[i] = 0;
        for (int row = b->first_row[i]; row < b->first_row[i + 1]; row++)
            b->failed[i] |= out->failed[row];
        if (b->draw_row[i] >= 0)
            b->tokens[n++] = out->ids[b->draw_row[i]];
    }
    b->start[plan->num_items] = n;
    *outcome = (struct outcome){.start = b->start, .tokens = b->tokens, .failed = b->failed};
}
