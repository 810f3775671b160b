// A completion as a span, when its response is over.
#include "completion_state.h"
#include "observe/otlp.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

// What a clock of ns since 1970 has beyond the monotonic one.
static int64_t epoch_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - http_now();
}

static void set_times(struct span *s, const struct completion *c) {
    int64_t scheduled = INT64_MAX, first = INT64_MAX, last = 0, epoch = epoch_ns();
    for (int i = 0; i < c->num_choices; i++) {
        const struct choice *ch = &c->choices[i];
        if (ch->num_tokens == 0)
            continue;
        scheduled = ch->engine.scheduled < scheduled ? ch->engine.scheduled : scheduled;
        first = ch->engine.first < first ? ch->engine.first : first;
        last = ch->engine.last > last ? ch->engine.last : last;
    }
    if (last == 0 && c->timing.time_scheduled) { // no token came, or it is a vector
        scheduled = c->timing.time_scheduled;
        last = c->timing.time_finished;
    }
    s->start = epoch + c->http->arrived;
    s->end = epoch + http_now();
    s->submitted = c->submitted ? epoch + c->submitted : 0;
    s->scheduled = last ? epoch + scheduled : 0;
    s->first = first != INT64_MAX ? epoch + first : 0;
    s->last = last ? epoch + last : 0;
}

void completion_trace(const struct completion *c, const struct usage *usage, int status, const char *finish) {
    struct trace_parent parent;
    uint8_t random[TRACE_ID + SPAN_ID];
    bool known = c->response.request != NULL, child = trace_parent_read(&parent, c->http->head.traceparent);
    if ((child && !parent.sampled) || getrandom(random, sizeof random, 0) != sizeof random)
        return;
    struct span s = {.finish = finish,
                     .status = status,
                     .failed = status >= 500 || (status < 400 && strcmp(finish, "error") == 0),
                     .num_prompt = usage->prompt,
                     .num_cached = usage->cached,
                     .num_output = usage->completion};
    memcpy(s.trace, child ? parent.trace : random, TRACE_ID);
    memcpy(s.id, random + TRACE_ID, SPAN_ID);
    memcpy(s.parent, parent.span, child ? SPAN_ID : 0);
    snprintf(s.path, sizeof s.path, "%s", c->http->path);
    snprintf(s.request_id, sizeof s.request_id, "%s", known ? c->id : c->http->request_id);
    if (known) {
        const struct completion_request *r = &c->request;
        snprintf(s.model, sizeof s.model, "%s", r->model);
        s.n = r->n;
        s.num_choices = c->num_choices;
        s.max_tokens = r->max_tokens;
        s.temperature = r->sampling.temperature;
        s.top_p = r->sampling.top_p;
    }
    set_times(&s, c);
    otlp_add(c->app->otlp, &s);
}
