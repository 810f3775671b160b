// What went into the scheduler and what came out, as text lines in order, so that a run can be replayed
// without a model.
//
//   quire-record 1
//   config policy max_running max_step_tokens max_chunk max_model_len blocks block_size share key0 key1 [D]
//   add id priority max_output min_output score stops N… salt N hex prompt N… [1]
//   remove id why
//   chunk tokens                       max_chunk of the plans from here on
//   plan id items (request first new first_logit needs_token)…      id 0: there was nothing to do
//   outcome id (count token… failed)…
//
// [D]: depth run_ahead; missing: one plan at a time. [1]: the request sees each token before the next is
// drawn (filter, penalties); missing: it does not.
//
// With several plans in flight, the outcome of a plan comes after later plans.
//
// The file holds the prompts' token ids: whoever asks for it must guard it. Engine thread only.
#pragma once

#include "scheduler.h"

struct record; // NULL is a recorder that writes nothing

struct record *record_open(const char *path, const struct sched_config *config, const struct kv_cache *kv,
                           struct err *err);
void record_add(struct record *r, const struct request *req);
void record_remove(struct record *r, uint64_t id, enum finish_reason why);
void record_chunk(struct record *r, int max_chunk);
void record_plan(struct record *r, const struct plan *plan);
void record_outcome(struct record *r, const struct plan *plan, const struct outcome *out);
void record_close(struct record *r);
