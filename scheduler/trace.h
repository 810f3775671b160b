// Where the time went, for chrome://tracing and Perfetto: the steps of the engine and the phases of every
// request, in the JSON array form of the Trace Event Format.
//
//   step          how long a step took, and its plan; inside it `schedule`, `execute`, `update`
//   cache, requests, preemptions          counters after each step
//   request N     one that has ended: `queued`, `prefill`, `decode`, and what it took
//
// With several plans in flight each of them has a thread of its own, so that their steps may overlap.
//
// Times are microseconds of the monotonic clock since the trace began. No prompt, token or client name is in
// it. A server that was killed leaves an array without its end, which the viewers accept.
//
// Engine thread only, after trace_open(). NULL is a trace that writes nothing.
#pragma once

#include "scheduler.h"
#include "service.h"

struct trace;

struct trace *trace_open(const char *path, struct err *err);

// A step that has been computed and applied: its boundaries in monotonic nanoseconds.
struct trace_step {
    struct plan plan; // its numbers; the items are not looked at, they may be gone
    int lane;         // 0, or with plans in flight which of them: no two that overlap have the same
    int64_t began, planned, computed, applied;
};
void trace_step(struct trace *t, const struct trace_step *step, const struct kv_cache *kv,
                const struct sched_stats *sched);
// There is nothing to do any more: the counters once again, as requests may have left since the last step.
void trace_idle(struct trace *t, int64_t when, const struct kv_cache *kv, const struct sched_stats *sched);
void trace_finish(struct trace *t, const struct service_event *finish); // EVENT_FINISH
void trace_close(struct trace *t);
