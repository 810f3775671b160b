// NCCL, loaded when it is first asked for: the module works without it. Its header gives types alone.
#include "launch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<nccl.h>)
#include <nccl.h>

static_assert(sizeof(ncclUniqueId) == RT_NCCL_ID, "the size of NCCL's name of a group");

// What is used of it, by name.
#define NCCL_MAP(X)                                                                                          \
    X(GetVersion)                                                                                            \
    X(GetUniqueId)                                                                                           \
    X(CommInitRank)                                                                                          \
    X(AllReduce)                                                                                             \
    X(CommGetAsyncError)                                                                                     \
    X(CommAbort)                                                                                             \
    X(CommDestroy)                                                                                           \
    X(GetErrorString)

static struct {
#define X(name) decltype(&nccl##name) name;
    NCCL_MAP(X)
#undef X
    char problem[200]; // why it is not there; "": it is
} nccl;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load() {
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(nccl.problem, sizeof nccl.problem, "%s", dlerror());
        return;
    }
#define X(name)                                                                                              \
    nccl.name = (decltype(nccl.name))dlsym(library, "nccl" #name);                                           \
    if (!nccl.name && !nccl.problem[0])                                                                      \
        snprintf(nccl.problem, sizeof nccl.problem, "libnccl.so.2 has no nccl%s", #name);
    NCCL_MAP(X)
#undef X
    int version = 0;
    if (!nccl.problem[0] && (nccl.GetVersion(&version) != ncclSuccess || version / 10000 != NCCL_MAJOR))
        snprintf(nccl.problem, sizeof nccl.problem, "libnccl.so.2 is version %d, not %d.x", version,
                 NCCL_MAJOR);
}

struct rt_nccl {
    struct rt *rt;
    ncclComm_t comm; // NULL: aborted
};

static bool nccl_ok(struct rt_nccl *n, ncclResult_t r) {
    char text[160];
    if (r != ncclSuccess) {
        snprintf(text, sizeof text, "NCCL: %s", nccl.GetErrorString(r));
        rt_fail(n->rt, text);
    }
    return r == ncclSuccess;
}

extern "C" {

bool rt_nccl_id(struct rt *rt, unsigned char id[RT_NCCL_ID], struct err *err) {
    ncclUniqueId name;
    pthread_once(&once, load);
    if (!rt_stream(rt) || nccl.problem[0]) {
        err_set(err, STATUS_DEVICE, "%s", nccl.problem[0] ? nccl.problem : "the GPU has failed");
        return false;
    }
    ncclResult_t r = nccl.GetUniqueId(&name);
    if (r != ncclSuccess) {
        err_set(err, STATUS_DEVICE, "NCCL: %s", nccl.GetErrorString(r));
        return false;
    }
    memcpy(id, &name, sizeof name);
    return true;
}

struct rt_nccl *rt_nccl_open(struct rt *rt, const unsigned char id[RT_NCCL_ID], int rank, int world,
                             struct err *err) {
    ncclUniqueId name;
    struct rt_nccl *n = (struct rt_nccl *)calloc(1, sizeof *n);
    pthread_once(&once, load);
    memcpy(&name, id, sizeof name);
    if (n && rt_stream(rt) && !nccl.problem[0]) { // the device is now that of this thread
        n->rt = rt;
        ncclResult_t r = nccl.CommInitRank(&n->comm, world, name, rank);
        if (r == ncclSuccess)
            return n;
        err_set(err, STATUS_DEVICE, "NCCL: %s", nccl.GetErrorString(r));
    } else {
        err_set(err, STATUS_DEVICE, "%s", nccl.problem[0] ? nccl.problem : "the GPU has failed");
    }
    free(n);
    return NULL;
}

void rt_nccl_sum(struct rt_nccl *n, float *x, size_t count) {
    cudaStream_t stream = rt_stream(n->rt);
    ncclResult_t before = ncclSuccess;
    if (stream && n->comm && nccl_ok(n, nccl.CommGetAsyncError(n->comm, &before)) && nccl_ok(n, before))
        nccl_ok(n, nccl.AllReduce(x, x, count, ncclFloat, ncclSum, n->comm, stream));
}

void rt_nccl_abort(struct rt_nccl *n) {
    if (n->comm)
        nccl_ok(n, nccl.CommAbort(n->comm));
    n->comm = NULL;
}

void rt_nccl_close(struct rt_nccl *n) {
    if (!n)
        return;
    if (n->comm && rt_failed(n->rt))
        rt_nccl_abort(n); // destroying would wait for others
    if (n->comm)
        nccl_ok(n, nccl.CommDestroy(n->comm));
    free(n);
}

} // extern "C"

#else

extern "C" {

bool rt_nccl_id(struct rt *, unsigned char[RT_NCCL_ID], struct err *err) {
    err_set(err, STATUS_DEVICE, "this module was built without nccl.h");
    return false;
}
struct rt_nccl *rt_nccl_open(struct rt *, const unsigned char[RT_NCCL_ID], int, int, struct err *) {
    return NULL;
}
void rt_nccl_sum(struct rt_nccl *, float *, size_t) {}
void rt_nccl_abort(struct rt_nccl *) {}
void rt_nccl_close(struct rt_nccl *) {}

} // extern "C"

#endif
