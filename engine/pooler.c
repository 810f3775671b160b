#include "pooler.h"

#include <math.h>
#include <string.h>

static void add_rows(struct request *r, const float *rows, int n, int hidden) {
    for (int i = 0; i < n; i++)
        for (int d = 0; d < hidden; d++)
            r->vector[d] += rows[(size_t)i * (size_t)hidden + (size_t)d];
}

// Rows of one chunk, the first of which is of position `first`; a preempted request begins again at 0.
static void pool_rows(struct request *r, int first, const float *rows, int n, int hidden) {
    size_t bytes = (size_t)hidden * sizeof *rows;
    if (r->pooling == POOLING_LAST && n > 0)
        memcpy(r->vector, rows + (size_t)(n - 1) * (size_t)hidden, bytes);
    if (r->pooling == POOLING_CLS && n > 0 && first == 0)
        memcpy(r->vector, rows, bytes);
    if (r->pooling == POOLING_MEAN && first == 0)
        memset(r->vector, 0, bytes);
    if (r->pooling == POOLING_MEAN)
        add_rows(r, rows, n, hidden);
}

static bool finish_vector(struct request *r, int hidden, const struct pool_head *head) {
    bool finite = true;
    for (int d = 0; d < hidden; d++)
        r->vector[d] /= r->pooling == POOLING_MEAN ? (float)r->num_prompt : 1;
    pool_head_run(head, r->vector);
    for (int d = 0; d < head->size; d++)
        finite &= isfinite(r->vector[d]) != 0;
    return finite;
}

void pooling_collect(const struct plan *plan, const int32_t *first_row, const struct step_out *out,
                     int hidden, const struct pool_head *head, uint8_t *failed) {
    for (int i = 0; i < plan->num_items; i++) {
        const struct plan_item *item = &plan->items[i];
        struct request *r = item->req;
        if (r->pooling == POOLING_NONE)
            continue;
        int n = first_row[i + 1] - first_row[i];
        pool_rows(r, item->first, out->hidden + (size_t)first_row[i] * (size_t)hidden, n, hidden);
        bool last = item->first + item->num_new == r->num_prompt;
        failed[i] = !last || finish_vector(r, hidden, head) ? ITEM_GOOD : ITEM_NOT_FINITE;
    }
}
