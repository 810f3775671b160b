// Records the scheduler's inputs and outputs, as text lines in order, so that a run can be replayed without a model.
//
//   quire-record 1
//   config policy max_running max_step_tokens max_chunk max_model_len blocks block_size share key0 key1 [D [G]]
//   add id priority max_output min_output score stops N… salt N hex prompt N… [1]
//   remove id why
//   chunk tokens                       max_chunk of the plans from here on, where it changes
//   ready id                           the request's late mask is there, or what was to be fetched for it
//   hold id                            the waiting request's pages are being fetched
//   adopt group lo hi parent token…    a page of this hash came, and became a cache entry
//   draft id count token…              tokens for the request's next plan to verify
//   plan id items (request first new first_logit samples)…      id 0: there was nothing to do; samples: rows that do
//   outcome id (count token… failed)…
//
// [D]: depth async; missing: one plan at a time. [G]: max_ahead snapshot_tokens groups (kind window)…, of
// kv_config, the window of chunks below 0; missing: one group of full attention. [1]: the request sees each token
// before the next is sampled (filter, drafter, penalties), and 2 more: its pages are retained; missing: neither.
//
// With several plans in flight, the outcome of a plan comes after later plans.
//
// The file holds the prompts' token ids: its owner must guard it. Engine thread only.
#pragma once

#include "scheduler.h"

struct record; // NULL is a recorder that writes nothing

struct record *record_open(const char *path, const struct sched_config *config, int max_chunk,
                           const struct kv_cache *kv, struct err *err);
void record_add(struct record *r, const struct request *req);
void record_remove(struct record *r, uint64_t id, enum finish_reason why);
// NULL: nothing was planned, though plans are in flight: a request may have been preempted.
void record_plan(struct record *r, const struct plan *plan, int max_chunk);
void record_ready(struct record *r, uint64_t id);
void record_hold(struct record *r, uint64_t id);
void record_adopt(struct record *r, const struct kv_wanted *w, const token_id *names, int block_size);
void record_draft(struct record *r, const struct request *req); // after request_draft()
void record_outcome(struct record *r, const struct plan *plan, const struct outcome *out);
void record_close(struct record *r);
