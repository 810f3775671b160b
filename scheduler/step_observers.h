// Observes each step of the engine thread: counters, times, the trace, the record, views, and the measurements that
// predictions and the pace learn from. Nothing here decides what a step computes. Engine thread only.
#pragma once

#include "drafting.h"
#include "engine.h"
#include "inside.h"
#include "pace.h"
#include "predict.h"
#include "record.h"
#include "service.h"
#include "trace.h"

struct step_observers {
    int depth; // steps in flight at most
    struct pace pace;
    struct predictor predictor;
    struct record *record;
    struct trace *trace;
    struct service_stats stats;   // counters since the start; the rest is of the last observe_stats()
    struct service_inside inside; // the state that queries read
    // The step that ends now: its times, its shape, and the tokens generated before it.
    struct trace_step step;
    struct step_shape shape;
    uint64_t generated;
    int64_t last_applied; // when the last step ended; 0: the engine was idle since
};

// Opens the files that config asks for. sched and kv are borrowed; sched_config: what sched was opened with. False with
// err, and observers_close() is still due.
bool observers_open(struct step_observers *o, const struct service_config *config,
                    const struct sched_config *sched_config, struct scheduler *sched, struct kv_cache *kv,
                    struct err *err);
void observers_close(struct step_observers *o); // zeros are allowed

// ---- a request

// Before it is added: predicts its first token. A match that is undone leaves no trace.
void observe_arrival(struct step_observers *o, struct request *r);
// Its first plan is about to be launched.
void observe_start(struct step_observers *o, struct request *r);
// `finish` is its last event.
void observe_finish(struct step_observers *o, const struct request *r, const struct service_event *finish);

// ---- a step, in this order

// plan: as planned with max_chunk; NULL: nothing was planned, and in_flight says whether plans are in flight.
void observe_plan(struct step_observers *o, const struct plan *plan, int max_chunk, bool in_flight);
// It has been computed; before sched_update(), as requests of its plan may be gone after it.
void observe_computed(struct step_observers *o, const struct step_result *result, struct drafting *drafting);
// Its events are put; `drafted` ns of the time since it was computed went to drafts of the next.
void observe_applied(struct step_observers *o, int64_t drafted);
// No step is in flight, and nothing was planned at `when`.
void observe_idle(struct step_observers *o, int64_t when);

// ---- the counters

// Brings what the scheduler and the cache count into stats. dead: the engine is.
void observe_stats(struct step_observers *o, bool dead);
