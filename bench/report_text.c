#include "report.h"

#include <math.h>
#include <string.h>

static void line(FILE *out, const char *name, const char *fmt, double v) {
    fprintf(out, "  %-38s", name);
    fprintf(out, fmt, v);
    fputc('\n', out);
}

static void row(FILE *out, const char *name, const struct summary *s) {
    if (s->n)
        fprintf(out, "  %-30s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, s->mean, s->p50, s->p90,
                s->p99, s->p999, s->max);
}

static void load_line(const struct report *r, FILE *out) {
    const struct load_plan *p = &r->run->plan;
    switch (p->arrival) {
    case ARRIVAL_CLOSED: fprintf(out, "closed loop"); break;
    case ARRIVAL_POISSON: fprintf(out, "open loop, Poisson arrivals at %g/s", p->rate); break;
    case ARRIVAL_GAMMA:
        fprintf(out, "open loop, gamma arrivals at %g/s, burstiness %g", p->rate, p->burstiness);
        break;
    case ARRIVAL_CONSTANT: fprintf(out, "open loop, constant arrivals at %g/s", p->rate); break;
    case ARRIVAL_TRACE: fprintf(out, "open loop, the trace's arrivals, times x %g", r->o->time_scale); break;
    }
    if (p->max_concurrency)
        fprintf(out, ", at most %lld at once", (long long)p->max_concurrency);
    fputc('\n', out);
}

static void warnings(const struct report *r, FILE *out) {
    const struct result *x = r->res;
    if (x->saturated)
        fprintf(out, "  WARNING: the client itself was late; these latencies are not the server's alone\n");
    if (x->completed && x->with_usage == 0)
        fprintf(out,
                "  note: the server counts no tokens; outputs are counted in chunks, inputs as asked for\n");
    else if (x->with_usage < x->completed)
        fprintf(out, "  note: %zu responses without usage; theirs are counted in chunks\n",
                x->completed - x->with_usage);
    if (r->run->turns_skipped)
        fprintf(out, "  note: %zu turns not sent, because one before failed\n", r->run->turns_skipped);
    if (r->run->interrupted)
        fprintf(out, "  note: interrupted; %zu requests were on their way\n", x->interrupted);
}

void report_text(const struct report *r, FILE *out) {
    const struct result *x = r->res;
    fprintf(out, "\n== %s%s%s  %s\n  ", r->o->label ? r->o->label : "", r->o->label ? ", " : "", r->model,
            r->o->path);
    load_line(r, out);
    fprintf(out, "  prompts: %s (%s)\n\n", dataset_names[r->o->dataset], r->form);
    line(out, "completed", "%12.0f", (double)x->completed);
    line(out, "failed", "%12.0f", (double)x->failed);
    for (size_t i = 0; i < x->num_errors; i++) {
        char status[24] = "";
        if (x->errors[i].kind == ERROR_STATUS)
            snprintf(status, sizeof status, " %d", x->errors[i].status);
        fprintf(out, "    %-8zu %s%s: %s\n", x->errors[i].count, error_name(x->errors[i].kind), status,
                x->errors[i].message);
    }
    line(out, "duration (s)", "%12.2f", x->duration);
    line(out, "input tokens", "%12.0f", (double)x->input_tokens);
    line(out, "output tokens", "%12.0f", (double)x->output_tokens);
    line(out, "request throughput (1/s)", "%12.2f", x->request_throughput);
    line(out, "output throughput (tokens/s)", "%12.2f", x->output_throughput);
    line(out, "total throughput (tokens/s)", "%12.2f", x->total_token_throughput);
    line(out, "most output tokens in a second", "%12.2f", x->max_output_tokens_per_s);
    line(out, "most requests at once", "%12.0f", (double)x->peak);
    if (r->o->has_goals) {
        line(out, "goodput (1/s)", "%12.2f", x->goodput);
        line(out, "share that meets the goals (%)", "%12.2f",
             x->completed + x->failed ? 100.0 * (double)x->good / (double)(x->completed + x->failed) : 0);
    }
    if (x->has_cached && x->input_tokens)
        line(out, "input tokens from the cache (%)", "%12.2f",
             100.0 * (double)x->cached_tokens / (double)x->input_tokens);
    if (x->has_ideal && x->input_tokens)
        line(out, "  an endless cache would have (%)", "%12.2f",
             100.0 * (double)x->ideal_cached_tokens / (double)x->input_tokens);
    fprintf(out, "\n  %-30s %10s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "p99.9",
            "max");
    row(out, "TTFT, from the intended time", &x->ttft);
    row(out, "TTFT, from the sending", &x->ttft_sent);
    row(out, "ITL", &x->itl);
    row(out, "TPOT", &x->tpot);
    row(out, "E2EL, from the intended time", &x->e2el);
    row(out, "E2EL, from the sending", &x->e2el_sent);
    fprintf(out, "\n  the client itself\n");
    if (r->run->plan.max_concurrency && r->run->plan.arrival != ARRIVAL_CLOSED)
        row(out, "waited for --max-concurrency", &x->queued);
    row(out, "sent late", &x->lag);
    if (x->read_lag_known)
        fprintf(out, "  %-30s %10s %10.2f %10s %10.2f %10s %10.2f\n", "read late", "", x->read_lag_p50, "",
                x->read_lag_p99, "", x->read_lag_max);
    fprintf(out, "  %-30s %9.1f%%\n", "of one core", 100 * x->cpu_share);
    warnings(r, out);
    fflush(out);
}
