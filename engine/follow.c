#include "follow.h"

#include "batch.h"
#include "step_wire.h"

#include <stdlib.h>

enum { BEHIND = 2 }; // steps that a follower's stages may be at, at a time, before it waits for the oldest

enum status follow_init(struct follow *f, struct processes *processes, const struct step_limits *limits,
                        int vocab, int block_size, struct err *err) {
    *f = (struct follow){.processes = processes, .limits = *limits, .vocab = vocab, .block_size = block_size};
    f->bytes = step_wire_most(limits, vocab, block_size, batch_max_edits(limits, vocab));
    for (int i = 0; i < MAX_ORDERS; i++)
        if (posix_memalign((void **)&f->buffer[i], 64, f->bytes) != 0) {
            f->buffer[i] = NULL;
            follow_destroy(f);
            return err_set(err, STATUS_NOMEM, "out of memory for steps of %d tokens", limits->max_tokens);
        }
    return STATUS_OK;
}

void follow_destroy(struct follow *f) {
    for (int i = 0; i < MAX_ORDERS; i++)
        free(f->buffer[i]);
    *f = (struct follow){0};
}

void follow_post(struct follow *f, const struct step *step) {
    unsigned char *buffer = f->buffer[f->num++ % MAX_ORDERS];
    if (processes_may_order(f->processes) == STATUS_OK)
        (void)processes_order(f->processes, buffer, step_wire_write(buffer, step, f->vocab));
}

void follow_stop(struct follow *f) { (void)processes_order(f->processes, f->buffer[0], 0); }

enum status follow_run(struct follow *f, struct ranks *ranks, struct err *err) {
    struct step_out out;
    uint64_t synced = 0;
    for (;;) {
        int at = (int)(f->num % MAX_ORDERS);
        size_t bytes;
        if (processes_obey(f->processes, f->buffer[at], f->bytes, &bytes) != STATUS_OK)
            return err_set(err, STATUS_DEVICE, "%s", processes_error(f->processes));
        enum status st = STATUS_OK;
        if (bytes > 0) {
            st = step_wire_read(f->buffer[at], bytes, &f->limits, f->vocab, f->block_size, &f->step[at], err);
            if (st == STATUS_OK) {
                ranks_launch(ranks, &f->step[at]);
                f->num++;
            }
        }
        for (uint64_t left = bytes > 0 && ranks_here(ranks) > 1 ? BEHIND : 0;
             st == STATUS_OK && f->num - synced > left; synced++)
            st = ranks_sync(ranks, &out, err);
        if (st != STATUS_OK)
            processes_end(f->processes, err->msg);
        if (st != STATUS_OK || bytes == 0)
            return st;
    }
}
