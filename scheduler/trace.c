#include "trace.h"

#include "append_log.h"
#include "clock.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_LANES = PLAN_MAX_DEPTH };

struct trace {
    struct append_log log;
    int64_t origin;        // monotonic ns
    bool named[MAX_LANES]; // lanes
};

static double to_us(const struct trace *t, int64_t ns) { return (double)(ns - t->origin) / 1e3; }

struct trace *trace_open(const char *path, struct err *err) {
    struct trace *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    if (append_log_open(&t->log, "trace", path, err) != STATUS_OK) {
        free(t);
        return NULL;
    }
    t->origin = clock_now_ns();
    fputs("[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"quire\"}},\n"
          "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"engine\"}}",
          t->log.file);
    t->named[0] = true;
    append_log_check(&t->log, true);
    return t;
}

static void write_span(struct trace *t, int lane, const char *name, int64_t from, int64_t to) {
    fprintf(t->log.file, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
            name, lane + 1, to_us(t, from), to_us(t, to) - to_us(t, from));
}

static void write_counters(struct trace *t, int64_t when, const struct kv_cache *kv,
                           const struct sched_stats *sched) {
    fprintf(
        t->log.file,
        ",\n{\"name\":\"cache\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"blocks in use\":%d,\"blocks "
        "free\":%d}}",
        to_us(t, when), kv->config.num_blocks - kv_available(kv), kv_available(kv));
    fprintf(t->log.file,
            ",\n{\"name\":\"requests\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"running\":%d,"
            "\"waiting\":%d}}",
            to_us(t, when), sched->running, sched->waiting);
    fprintf(t->log.file,
            ",\n{\"name\":\"preemptions\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"total\":%" PRIu64
            "}}",
            to_us(t, when), sched->preemptions);
}

void trace_idle(struct trace *t, int64_t when, const struct kv_cache *kv, const struct sched_stats *sched) {
    if (!t || append_log_ended(&t->log))
        return;
    write_counters(t, when, kv, sched);
    append_log_check(&t->log, true);
}

void trace_step(struct trace *t, const struct trace_step *s, const struct kv_cache *kv,
                const struct sched_stats *sched) {
    if (!t || append_log_ended(&t->log))
        return;
    FILE *f = t->log.file;
    const struct plan *plan = &s->plan;
    if (!t->named[s->lane]) {
        fprintf(f,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,"
                "\"args\":{\"name\":\"engine, in-flight step %d\"}}",
                s->lane + 1, s->lane + 1);
        t->named[s->lane] = true;
    }
    fprintf(f,
            ",\n{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
            "\"plan\":%" PRIu64 ",\"tokens\":%d,\"decodes\":%d,\"prefills\":%d,\"logit_rows\":%d}}",
            s->lane + 1, to_us(t, s->began), to_us(t, s->applied) - to_us(t, s->began), plan->id,
            plan->num_tokens, plan->num_decode, plan->num_items - plan->num_decode, plan->num_rows);
    write_span(t, s->lane, "schedule", s->began, s->planned);
    write_span(t, s->lane, "execute", s->planned, s->computed);
    write_span(t, s->lane, "update", s->computed, s->applied);
    write_counters(t, s->applied, kv, sched);
    append_log_check(&t->log, true);
}

// One phase of a request: a pair of asynchronous events, which may overlap those of other requests.
static void write_phase(struct trace *t, uint64_t id, const char *name, int64_t from, int64_t to) {
    fprintf(t->log.file,
            ",\n{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"b\",\"pid\":1,\"tid\":1,\"id\":\"%" PRIx64
            "\",\"ts\":%.3f},\n{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"e\",\"pid\":1,\"tid\":1,\"id\":"
            "\"%" PRIx64 "\",\"ts\":%.3f}",
            name, id, to_us(t, from), name, id, to_us(t, to));
}

void trace_finish(struct trace *t, const struct service_event *e) {
    static const char *const reasons[] = {"none",  "stop",      "length", "cancelled",
                                          "error", "forbidden", "limit"};
    if (!t || append_log_ended(&t->log))
        return;
    FILE *f = t->log.file;
    fprintf(f,
            ",\n{\"name\":\"request %" PRIu64
            "\",\"cat\":\"request\",\"ph\":\"b\",\"pid\":1,\"tid\":1,\"id\":\"%" PRIx64
            "\",\"ts\":%.3f,\"args\":{\"prompt\":%d,\"cached\":%d,\"output\":%d,\"preemptions\":%d,"
            "\"finish\":\"%s\"}}",
            e->id, e->id, to_us(t, e->time_submitted), e->num_prompt, e->num_cached, e->num_output,
            e->num_preemptions, reasons[e->finish]);
    write_phase(t, e->id, "queued", e->time_submitted,
                e->time_scheduled ? e->time_scheduled : e->time_finished);
    if (e->time_scheduled)
        write_phase(t, e->id, "prefill", e->time_scheduled,
                    e->time_first_token ? e->time_first_token : e->time_finished);
    if (e->time_first_token)
        write_phase(t, e->id, "decode", e->time_first_token, e->time_finished);
    fprintf(f,
            ",\n{\"name\":\"request %" PRIu64
            "\",\"cat\":\"request\",\"ph\":\"e\",\"pid\":1,\"tid\":1,\"id\":\"%" PRIx64 "\",\"ts\":%.3f}",
            e->id, e->id, to_us(t, e->time_finished));
    append_log_check(&t->log, false);
}

void trace_close(struct trace *t) {
    if (!t)
        return;
    if (!append_log_ended(&t->log))
        fputs("\n]\n", t->log.file);
    append_log_close(&t->log);
    free(t);
}
