// The comm of ranks in several processes: collectives made of messages (transport.h), with the same bits as
// those of comm_threads.h.
#pragma once

#include "abort_state.h"
#include "comm.h"
#include "transport.h"

struct comm_processes_config {
    struct transport *transport; // borrowed
    struct abort_state *abort;   // borrowed; abort() and every failure set it, and it ends every wait
    int channel;                 // 1 to 255, the same for all ranks of this comm, and of no other comm
    int rank, world;
    int process[COMM_MAX_WORLD]; // of each rank
    // How long a rank waits for another, not counting time in which its process is stopped. 0: until the
    // group is aborted.
    int deadline_ms;
};

// NULL with err: STATUS_NOMEM. Opens without communication.
struct comm *comm_processes_open(const struct comm_processes_config *config, struct err *err);
// The owner is in no operation. NULL is allowed.
void comm_processes_close(struct comm *c);

// isend() and wait_sent() of the comm, for messages whose length the receiver does not know.
enum status comm_processes_isend(struct comm *c, const void *data, size_t bytes, int to);
enum status comm_processes_wait_sent(struct comm *c, int to, int left);
// Receives one, of at most max bytes; a longer one aborts the group.
enum status comm_processes_recv(struct comm *c, void *data, size_t max, size_t *bytes, int from);
