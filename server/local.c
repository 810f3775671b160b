#include "local.h"

#include "buf.h"
#include "log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Names and texts of files may be in the message: what is no printable UTF-8 goes out as \\xNN.
void complain(const char *fmt, ...) {
    char text[600];
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    buf_lit(&b, "quire: ");
    for (size_t i = 0, len = strlen(text); i < len;) {
        const unsigned char *s = (const unsigned char *)text + i;
        size_t bad, n = utf8_sequence(s, len - i, &bad);
        bool control = s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && n == 2 && s[1] < 0xa0);
        if (n && !control) {
            buf_add(&b, s, n);
        } else {
            n = n ? n : bad;
            for (size_t k = 0; k < n; k++)
                buf_fmt(&b, "\\x%02x", s[k]);
        }
        i += n;
    }
    buf_char(&b, '\n');
    fwrite(b.data, 1, b.len, stderr);
    buf_free(&b);
}

int local_exit_code(enum status status) {
    switch (status) {
    case STATUS_INVALID:
    case STATUS_DEVICE: return EXIT_USAGE;
    default: return EXIT_MODEL;
    }
}

int local_service_exit_code(enum status status) {
    return status == STATUS_IO || status == STATUS_INVALID ? EXIT_USAGE : EXIT_ENGINE;
}

// Longer than the grace of serve.c.
enum { LINGER_SECONDS = 5 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void local_progress(void *arg, double fraction) {
    static double began; // of the one load of this process
    (void)arg;
    if (began == 0)
        began = now();
    if (!isatty(STDERR_FILENO) || now() - began < 1)
        return;
    fprintf(stderr, "\rloading %3.0f %%%s", fraction * 100, fraction >= 1 ? "\n" : "");
    fflush(stderr);
}

void local_engine_config(const struct config *c, struct engine_config *out) {
    *out = (struct engine_config){
        .path = c->args.items[0],
        .device = c->device,
        .variant = strcmp(c->variant, "auto") == 0 ? NULL : c->variant,
        .num_threads = c->threads,
        .kv_dtype = c->kv_dtype,
        .dtype = c->dtype,
        .tensor_parallel_size = c->tensor_parallel_size,
        .pipeline_parallel_size = c->pipeline_parallel_size,
        .block_size = c->block_size,
        .max_model_len = c->max_model_len,
        .max_num_seqs = c->max_num_seqs,
        .max_num_batched_tokens = c->max_num_batched_tokens,
        .num_kv_blocks = c->num_kv_blocks,
        .kv_cache_bytes = c->kv_cache_memory,
        .gpu_memory_utilization = c->gpu_memory_utilization,
        .exact = c->exact,
        .prefix_caching = c->prefix_caching,
        .processes = c->processes,
        .progress = local_progress,
    };
}

// While others decode, a prompt gets a quarter of a step at most, so that running streams slow down little;
// the queue takes as many tokens as that many requests of 1,024, but always a few of the longest.
void local_service_config(const struct config *c, const struct engine_info *info,
                          struct service_config *out) {
    int chunk = c->max_num_batched_tokens / 4;
    int64_t waiting = (int64_t)c->max_num_queued_seqs * 1024, few = (int64_t)info->max_model_len * 4;
    *out = (struct service_config){
        .sched = {.policy = c->policy && strcmp(c->policy, "priority") == 0 ? SCHED_PRIORITY : SCHED_FCFS,
                  .max_running = c->max_num_seqs,
                  .max_step_tokens = c->max_num_batched_tokens,
                  .max_chunk = chunk > 64                       ? chunk
                               : c->max_num_batched_tokens < 64 ? c->max_num_batched_tokens
                                                                : 64,
                  .max_waiting = c->max_num_queued_seqs,
                  .max_waiting_tokens = waiting > few ? waiting : few,
                  .max_model_len = info->max_model_len,
                  .depth = info->depth,
                  .run_ahead = info->run_ahead},
        .target_itl_ns = (int64_t)(c->target_itl * 1e6),
        .record = c->record,
        .trace = c->trace,
    };
}

int local_open(struct local *l, const struct config *c) {
    struct err err = {0};
    struct engine_config ec;
    struct service_config sc;
    *l = (struct local){0};
    if (c->args.len < 1) {
        complain("a MODEL is needed: a .gguf file");
        return EXIT_USAGE;
    }
    local_engine_config(c, &ec);
    l->path = ec.path;
    l->engine = engine_open(&ec, &err);
    if (!l->engine) {
        complain("%s", err.msg);
        return local_exit_code(err.code);
    }
    l->tokenizer = engine_tokenizer(l->engine);
    local_service_config(c, engine_info(l->engine), &sc);
    l->service = service_open(l->engine, &sc, &err);
    if (!l->service) {
        complain("%s", err.msg);
        engine_close(l->engine);
        return local_service_exit_code(err.code);
    }
    return 0;
}

int local_failed(const struct local *l) {
    struct service_stats stats;
    service_stats(l->service, &stats);
    if (stats.dead) {
        complain("the engine failed");
        return EXIT_ENGINE;
    }
    complain("%s: the logits are not finite: the weights overflow or are damaged", l->path);
    return EXIT_MODEL;
}

void local_close(struct local *l) {
    service_close(l->service);
    engine_close(l->engine);
    *l = (struct local){0};
}

// A follower ends when process 0 says so, which is the one that drains. Launchers send signals to all.
static volatile sig_atomic_t opening, told;

static void on_signal(int number) {
    (void)number;
    told = 1;
    if (opening)
        _exit(0); // as process 0 does: nothing has begun
}

int local_follow(const struct config *c) {
    struct err err = {0};
    struct engine_config ec;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    local_engine_config(c, &ec);
    opening = 1;
    struct engine *e = engine_open(&ec, &err);
    opening = 0;
    if (!e) {
        complain("%s", err.msg);
        return local_exit_code(err.code);
    }
    log_msg(LOG_INFO, "process=%d state=following", processes_index(c->processes));
    bool failed = engine_follow(e, &err) != STATUS_OK && !told; // signals may come after it
    if (failed) {
        log_msg(LOG_ERROR, "process=%d engine failed: %s", processes_index(c->processes), err.msg);
        // Most launchers end all processes when one fails: process 0 first answers who waits for it.
        sleep(LINGER_SECONDS);
    }
    engine_close(e);
    return failed ? EXIT_ENGINE : 0;
}
