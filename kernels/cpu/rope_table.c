#include "rope_table.h"

#include "log.h"
#include "rope.h"

#include <math.h>
#include <stdlib.h>

// Positions that are filled at once, at least: a step is held up by a millisecond or so once in as many
// tokens.
enum { FILL_POSITIONS = 1024 };

bool rope_table_open(struct rope_table *t, const struct rope_config *rope, int max_positions) {
    size_t pairs = (size_t)rope->dim / 2, all = (size_t)max_positions * pairs;
    *t = (struct rope_table){.magnitude = rope_magnitude(rope),
                             .pairs = (int)pairs,
                             .interleaved = rope->interleaved,
                             .sections = rope->sections,
                             .max_positions = max_positions};
    t->region = region_alloc(2 * all * sizeof(float));
    t->frequency = malloc((pairs + 1) * sizeof *t->frequency);
    if (!t->region.data || !t->frequency)
        return false;
    t->cos = t->region.data;
    t->sin = t->cos + all;
    for (int i = 0; i < t->pairs; i++)
        t->frequency[i] = rope_frequency(rope, i);
    return true;
}

void rope_table_close(struct rope_table *t) {
    region_free(&t->region);
    free(t->frequency);
    *t = (struct rope_table){0};
}

struct fill {
    struct rope_table *table;
    int begin, end;
};

static void fill_worker(void *ctx, int thread, int num_threads) {
    const struct fill *job = ctx;
    const struct rope_table *t = job->table;
    int begin, end;
    pool_partition(job->end - job->begin, thread, num_threads, &begin, &end);
    for (int p = job->begin + begin; p < job->begin + end; p++)
        for (int i = 0; i < t->pairs; i++) {
            size_t at = (size_t)p * (size_t)t->pairs + (size_t)i;
            t->cos[at] = (float)(cos(p * t->frequency[i]) * t->magnitude);
            t->sin[at] = (float)(sin(p * t->frequency[i]) * t->magnitude);
        }
}

void rope_table_fill(struct rope_table *t, struct pool *pool, int num_positions) {
    if (num_positions <= t->filled)
        return;
    CHECK(num_positions <= t->max_positions);
    int end = t->filled + FILL_POSITIONS;
    end = end < num_positions ? num_positions : end;
    end = end < t->max_positions ? end : t->max_positions;
    struct fill job = {t, t->filled, end};
    pool_run(pool, fill_worker, &job, true);
    t->filled = end;
}
