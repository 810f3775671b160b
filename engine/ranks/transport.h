// Messages between the processes of one model: the interface of a module such as quire-mpi.so. Everything
// above messages (collectives, deadlines, heartbeats, status checks) is comm_processes.c and processes.c.
//
// Messages of one pair of processes with one tag arrive in the order in which they were sent; nothing else is
// ordered. All functions may be called by any thread, several at a time, but for one request.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_ABI 1 // raise on any change to this file

struct transport_ops;

struct transport { // the first member of the module's own
    const struct transport_ops *ops;
    int process, num_processes;
    char library[64]; // e.g. "Open MPI 4.1.4"
};

struct transport_request { // of one message in flight; zeroed: none
    uint64_t handle;
    bool active;
};

struct transport_ops {
    uint32_t abi;

    // Joins the processes that the launcher started. NULL with err: STATUS_DEVICE.
    struct transport *(*open)(struct err *err);
    // Starts a message. data belongs to it until test() says done. STATUS_DEVICE with err.
    enum status (*send)(struct transport *t, const void *data, size_t bytes, int to, int tag,
                        struct transport_request *request, struct err *err);
    // The same; a message longer than bytes is a failure of test().
    enum status (*recv)(struct transport *t, void *data, size_t bytes, int from, int tag,
                        struct transport_request *request, struct err *err);
    // Whether an active message is done, moving all messages of the process on. Done: the request is no
    // longer active. Never waits.
    enum status (*test)(struct transport *t, struct transport_request *request, bool *done, struct err *err);
    // Gives up an active message: its data may still be touched while the process lives.
    void (*forget)(struct transport *t, struct transport_request *request);
    // clean: every process calls it, with no message of its own in flight, and it may wait for them all.
    // Otherwise it waits for no process.
    void (*close)(struct transport *t, bool clean);
};

// The one symbol that a module exports. NULL: it does not speak this version.
typedef const struct transport_ops *transport_entry(uint32_t abi);
#define TRANSPORT_ENTRY "quire_transport_v1"
