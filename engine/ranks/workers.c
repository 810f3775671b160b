#include "workers.h"

#include "batch.h"
#include "step_wire.h"

#include <stdlib.h>

enum { WORKER_DEPTH = 2 }; // steps in flight through the stages of one worker before it waits for the oldest

enum status workers_init(struct workers *w, struct processes *processes, const struct step_limits *limits,
                         const struct model_config *model, int block_size, struct err *err) {
    *w =
        (struct workers){.processes = processes, .limits = *limits, .model = model, .block_size = block_size};
    w->bytes = step_wire_max_bytes(limits, model, block_size, batch_max_entries(limits, model->vocab));
    for (int i = 0; i < MAX_STEPS_AHEAD; i++)
        if (posix_memalign((void **)&w->buffer[i], 64, w->bytes) != 0) {
            w->buffer[i] = NULL;
            workers_destroy(w);
            return err_set(err, STATUS_NOMEM, "out of memory for steps of %d tokens", limits->max_tokens);
        }
    return STATUS_OK;
}

void workers_destroy(struct workers *w) {
    for (int i = 0; i < MAX_STEPS_AHEAD; i++)
        free(w->buffer[i]);
    *w = (struct workers){0};
}

void workers_send_step(struct workers *w, const struct step *step) {
    unsigned char *buffer = w->buffer[w->num++ % MAX_STEPS_AHEAD];
    if (processes_wait_sent(w->processes) == STATUS_OK)
        (void)processes_send_step(w->processes, buffer, step_wire_write(buffer, step, w->model));
}

void workers_stop(struct workers *w) { (void)processes_send_step(w->processes, w->buffer[0], 0); }

enum status worker_loop(struct workers *w, struct ranks *ranks, struct err *err) {
    struct step_out out;
    uint64_t synced = 0;
    for (;;) {
        int at = (int)(w->num % MAX_STEPS_AHEAD);
        size_t bytes;
        if (processes_receive_step(w->processes, w->buffer[at], w->bytes, &bytes) != STATUS_OK)
            return err_set(err, STATUS_DEVICE, "%s", processes_error(w->processes));
        enum status st = STATUS_OK;
        if (bytes > 0) {
            st = step_wire_read(w->buffer[at], bytes, &w->limits, w->model, w->block_size, &w->step[at], err);
            if (st == STATUS_OK) {
                ranks_launch(ranks, &w->step[at]);
                w->num++;
            }
        }
        for (uint64_t left = bytes > 0 && ranks_here(ranks) > 1 ? WORKER_DEPTH : 0;
             st == STATUS_OK && w->num - synced > left; synced++)
            st = ranks_sync(ranks, &out, err);
        if (st != STATUS_OK)
            processes_abort(w->processes, err->msg);
        if (st != STATUS_OK || bytes == 0)
            return st;
    }
}
