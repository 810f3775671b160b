#include "local.h"

#include "log.h"
#include "process/console.h"
#include "process/setup.h"

#include <signal.h>
#include <unistd.h>

// Longer than the grace of serve.c.
enum { LINGER_SECONDS = 5 };

int local_open(struct local *l, const struct config *c) {
    struct err err = {0};
    struct engine_config ec;
    struct service_config sc;
    *l = (struct local){0};
    if (c->args.len < 1) {
        complain("a MODEL is needed: a .gguf file or a Hugging Face folder");
        return EXIT_USAGE;
    }
    setup_engine(c, &ec);
    l->path = ec.path;
    l->engine = engine_open(&ec, &err);
    if (!l->engine) {
        complain("%s", err.msg);
        return setup_engine_exit_code(err.code);
    }
    l->tokenizer = engine_tokenizer(l->engine);
    setup_service(c, engine_info(l->engine), &sc);
    l->service = service_open(l->engine, &sc, &err);
    if (!l->service) {
        complain("%s", err.msg);
        engine_close(l->engine);
        return setup_service_exit_code(err.code);
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

// A worker process ends when process 0 says so, which is the one that drains. Launchers send signals to all.
static volatile sig_atomic_t opening, signalled;

static void on_signal(int number) {
    (void)number;
    signalled = 1;
    if (opening)
        _exit(0); // as process 0 does: nothing has begun
}

int local_work(const struct config *c) {
    struct err err = {0};
    struct engine_config ec;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); // of a launcher: process 0 has the keys
    setup_engine(c, &ec);
    opening = 1;
    struct engine *e = engine_open(&ec, &err);
    opening = 0;
    if (!e) {
        complain("%s", err.msg);
        return setup_engine_exit_code(err.code);
    }
    log_msg(LOG_INFO, "process=%d state=following", processes_index(c->processes));
    bool failed = engine_follow(e, &err) != STATUS_OK && !signalled; // signals may come after it
    if (failed) {
        log_msg(LOG_ERROR, "process=%d engine failed: %s", processes_index(c->processes), err.msg);
        // Most launchers end all processes when one fails: process 0 first responds to its clients.
        sleep(LINGER_SECONDS);
    }
    engine_close(e);
    return failed ? EXIT_ENGINE : 0;
}
