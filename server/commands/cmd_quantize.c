// quire quantize IN OUT TYPE: a model file with its matrices in another type. A signal or an error leaves
// nothing behind; the process then ends as the signal would have ended it.
#include "commands.h"
#include "process/console.h"
#include "process/setup.h"
#include "quantize.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t caught; // signal, or 0

static void on_signal(int number) { caught = number; }

static bool show_progress(void *arg, double fraction) {
    static int shown = -1;
    int percent = (int)(fraction * 100);
    (void)arg;
    if (percent != shown)
        console_bar("quantizing", fraction);
    shown = percent;
    return !caught;
}

int cmd_quantize(const struct config *c) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal}, ignored;
    struct err err = {0};
    struct quantize_result r;
    if (c->args.len != 3) {
        complain("usage: quire quantize IN OUT TYPE; types: %s", quantize_types());
        return EXIT_USAGE;
    }
    for (int i = 0; i < 3; i++) // nohup stays nohup
        if (sigaction(signals[i], NULL, &ignored) == 0 && ignored.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    signal(SIGXFSZ, SIG_IGN); // a file limit is an error of write(), not our end
    enum status status = quantize_file(&(struct quantize_config){.in = c->args.items[0],
                                                                 .out = c->args.items[1],
                                                                 .type = c->args.items[2],
                                                                 .num_threads = c->threads,
                                                                 .pure = c->pure,
                                                                 .progress = show_progress},
                                       &r, &err);
    if (status == STATUS_CANCELLED) {
        complain("%s", err.msg);
        signal(caught, SIG_DFL);
        raise(caught);
    }
    if (status != STATUS_OK) {
        complain("%s", err.msg);
        return setup_engine_exit_code(status);
    }
    printf("%.1f MiB -> %.1f MiB, %.2f bits per weight\n", (double)r.bytes_in / 1048576,
           (double)r.bytes_out / 1048576, 8 * (double)r.bytes_out / (double)r.elements);
    return 0;
}
