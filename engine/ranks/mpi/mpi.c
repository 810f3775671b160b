// The transport over MPI (MPI Forum, "MPI: A Message-Passing Interface Standard", 3.1): non-blocking messages
// of one communicator, from several threads. A module of its own, because it alone links libmpi.
#include "transport.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mpi_transport {
    struct transport base;
    MPI_Comm comm; // our own, apart from MPI_COMM_WORLD
};

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits into its handle");

static struct mpi_transport *mpi_of(struct transport *t) { return (struct mpi_transport *)(void *)t; }

static enum status mpi_failed(const char *what, int code, struct err *err) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return err_set(err, STATUS_DEVICE, "%s: %.200s", what, text);
}

static void keep_request(struct transport_request *r, const MPI_Request *request) {
    memcpy(&r->handle, request, sizeof *request);
    r->active = true;
}

static enum status mpi_send(struct transport *t, const void *data, size_t bytes, int to, int tag,
                            struct transport_request *r, struct err *err) {
    MPI_Request request;
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, mpi_of(t)->comm, &request);
    if (code != MPI_SUCCESS)
        return mpi_failed("MPI_Isend", code, err);
    keep_request(r, &request);
    return STATUS_OK;
}

static enum status mpi_recv(struct transport *t, void *data, size_t bytes, int from, int tag,
                            struct transport_request *r, struct err *err) {
    MPI_Request request;
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, mpi_of(t)->comm, &request);
    if (code != MPI_SUCCESS)
        return mpi_failed("MPI_Irecv", code, err);
    keep_request(r, &request);
    return STATUS_OK;
}

static enum status mpi_test(struct transport *t, struct transport_request *r, bool *done, struct err *err) {
    MPI_Request request;
    MPI_Status status;
    int is = 0;
    (void)t;
    memcpy(&request, &r->handle, sizeof request);
    int code = MPI_Test(&request, &is, &status);
    memcpy(&r->handle, &request, sizeof request);
    *done = is != 0;
    if (is || code != MPI_SUCCESS)
        r->active = false;
    return code == MPI_SUCCESS ? STATUS_OK : mpi_failed("MPI_Test", code, err);
}

static void mpi_forget(struct transport *t, struct transport_request *r) {
    MPI_Request request;
    (void)t;
    memcpy(&request, &r->handle, sizeof request);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    r->active = false;
}

static void mpi_close(struct transport *t, bool clean) {
    if (clean) { // else MPI_Finalize() might wait for a process that is gone
        MPI_Comm_free(&mpi_of(t)->comm);
        MPI_Finalize();
    }
    free(t);
}

static const struct transport_ops ops;

static struct transport *mpi_open(struct err *err) {
    struct mpi_transport *m = calloc(1, sizeof *m);
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int provided = 0, n = 0, code;
    if (!m) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    if ((code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided)) != MPI_SUCCESS) {
        mpi_failed("MPI_Init_thread", code, err);
        free(m);
        return NULL;
    }
    // An error comes back as a code: what to do then is decided above.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Get_library_version(library, &n);
    snprintf(m->base.library, sizeof m->base.library, "%.*s", (int)strcspn(library, ",\n"), library);
    if (provided < MPI_THREAD_MULTIPLE) {
        err_set(err, STATUS_DEVICE, "%s is built without MPI_THREAD_MULTIPLE, which ranks need",
                m->base.library);
    } else if ((code = MPI_Comm_dup(MPI_COMM_WORLD, &m->comm)) != MPI_SUCCESS) {
        mpi_failed("MPI_Comm_dup", code, err);
    } else {
        MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
        MPI_Comm_rank(m->comm, &m->base.process);
        MPI_Comm_size(m->comm, &m->base.num_processes);
        m->base.ops = &ops;
        return &m->base;
    }
    MPI_Finalize();
    free(m);
    return NULL;
}

static const struct transport_ops ops = {
    .abi = TRANSPORT_ABI,
    .open = mpi_open,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .forget = mpi_forget,
    .close = mpi_close,
};

__attribute__((visibility("default"))) const struct transport_ops *quire_transport_v1(uint32_t abi);

const struct transport_ops *quire_transport_v1(uint32_t abi) { return abi == TRANSPORT_ABI ? &ops : NULL; }
