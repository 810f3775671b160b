// The comm of ranks that are in several processes: collectives made of messages (transport.h), with the same
// bits as comm_threads.h gives.
#pragma once

#include "comm.h"
#include "ending.h"
#include "transport.h"

struct comm_processes_config {
    struct transport *transport; // borrowed
    struct ending *ending;       // borrowed; abort() and every failure set it, and it ends every wait
    int channel;                 // 1 to 255, the same for all ranks of this comm, and of no other comm
    int rank, world;
    int process[COMM_MAX_WORLD]; // where each rank is
    // How long a rank waits for another, not counting time in which its process is stopped. 0: until the
    // ending says so.
    int deadline_ms;
};

// NULL with err: STATUS_NOMEM. QUIRE_COMM_DELAY_US (for tests, processes of one machine): every message takes
// at least so long, as if the processes were so far apart. Opens without asking the others.
struct comm *comm_processes_open(const struct comm_processes_config *config, struct err *err);
// The owner is in no operation. NULL is allowed.
void comm_processes_close(struct comm *c);

// Messages of a length that the receiver does not know. post() begins one; data must stay as it is until
// settle() has waited until all to that rank but the last `left` are under way no longer.
enum status comm_processes_post(struct comm *c, const void *data, size_t bytes, int to);
enum status comm_processes_settle(struct comm *c, int to, int left);
// At most max bytes. A longer one ends the group.
enum status comm_processes_recv(struct comm *c, void *data, size_t max, size_t *bytes, int from);
