// NCCL, loaded when it is first asked for (libnccl.so.2): the module works without it. The parts used are
// declared here, so that the same code is compiled where its header is not at hand, as the one of PyTorch's
// package often is not, and without the toolkit, for tests. Names, types and numbers are those of its
// documented interface, equal in all 2.x ("NCCL API", NVIDIA).
#include "rt_stream.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct group_name { // ncclUniqueId, given by value
    char internal[RT_NCCL_ID];
};
using nccl_result = int; // ncclResult_t
struct group_comm;       // ncclComm_t points to it
// ncclSuccess, ncclSum, ncclFloat32, ncclBfloat16; of the version
enum { SUCCESS = 0, SUM = 0, FLOAT32 = 7, BFLOAT16 = 9, MAJOR = 2, OLDEST = 21000 };

// The functions used: nccl<name>(arguments). NCCL's enumerations have int's size.
#define NCCL_MAP(X)                                                                                          \
    X(GetVersion, nccl_result, (int *))                                                                      \
    X(GetUniqueId, nccl_result, (group_name *))                                                              \
    X(CommInitRank, nccl_result, (group_comm **, int, group_name, int))                                      \
    X(AllReduce, nccl_result, (const void *, void *, size_t, int, int, group_comm *, CUstream_st *))         \
    X(CommGetAsyncError, nccl_result, (group_comm *, nccl_result *))                                         \
    X(CommAbort, nccl_result, (group_comm *))                                                                \
    X(CommDestroy, nccl_result, (group_comm *))                                                              \
    X(GetErrorString, const char *, (nccl_result))

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>) // where the headers are, they agree
#include <nccl.h>

template <class F> struct parts;
template <class R, class... A> struct parts<R(A...)> {
    static constexpr size_t count = sizeof...(A), bytes = sizeof(R) + (sizeof(A) + ... + 0);
};
#define X(name, result, arguments)                                                                           \
    static_assert(parts<decltype(nccl##name)>::count == parts<result arguments>::count &&                    \
                      parts<decltype(nccl##name)>::bytes == parts<result arguments>::bytes,                  \
                  "the arguments of nccl" #name);
NCCL_MAP(X)
#undef X
static_assert(sizeof(ncclUniqueId) == sizeof(group_name) && (int)ncclSuccess == SUCCESS &&
                  (int)ncclSum == SUM && (int)ncclFloat32 == FLOAT32 && (int)ncclBfloat16 == BFLOAT16 &&
                  NCCL_MAJOR == MAJOR,
              "the numbers of NCCL");
#endif

static struct {
#define X(name, result, arguments) result(*name) arguments;
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
#define X(name, result, arguments)                                                                           \
    nccl.name = (decltype(nccl.name))dlsym(library, "nccl" #name);                                           \
    if (!nccl.name && !nccl.problem[0])                                                                      \
        snprintf(nccl.problem, sizeof nccl.problem, "libnccl.so.2 has no nccl%s", #name);
    NCCL_MAP(X)
#undef X
    int version = 0;
    // 21903: 2.19.3
    if (!nccl.problem[0] &&
        (nccl.GetVersion(&version) != SUCCESS || version / 10000 != MAJOR || version < OLDEST))
        snprintf(nccl.problem, sizeof nccl.problem, "libnccl.so.2 is version %d, not 2.10 or later", version);
}

struct rt_nccl {
    struct rt *rt;
    group_comm *comm; // NULL: aborted
};

static bool nccl_ok(struct rt_nccl *n, nccl_result r) {
    char text[160];
    if (r != SUCCESS) {
        snprintf(text, sizeof text, "NCCL: %s", nccl.GetErrorString(r));
        rt_fail(n->rt, text);
    }
    return r == SUCCESS;
}

// NCCL waits without an end for a rank that does not come, and nothing ends that wait, but in a comm whose every sum would
// then begin a thread. So another thread opens it, which is left behind when this one gives up.
enum { BEGUN, TAKEN, OPENED, LEFT }; // TAKEN: it has no more use for rt
struct comm_opening {
    struct rt *rt;
    group_name name;
    int rank, world, state;
    group_comm *comm;
    nccl_result result;
};

static void *open_comm(void *arg) {
    struct comm_opening *o = (struct comm_opening *)arg;
    rt_stream(o->rt); // the device is now that of this thread
    __atomic_store_n(&o->state, TAKEN, __ATOMIC_RELEASE);
    nccl_result opened = nccl.CommInitRank(&o->comm, o->world, o->name, o->rank);
    o->result = opened;
    int taken = TAKEN;
    if (__atomic_compare_exchange_n(&o->state, &taken, OPENED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return NULL;
    if (opened == SUCCESS) {
        nccl_result ended = nccl.CommAbort(o->comm);
        (void)ended; // nobody is left to be told
    }
    free(o);
    return NULL;
}

// NULL with err. Frees o, but leaves it to a thread that it leaves behind.
static group_comm *wait_for_comm(pthread_t thread, struct comm_opening *o, bool (*go_on)(void *), void *arg,
                                 struct err *err) {
    const struct timespec pause = {0, 5000000};
    int state;
    while ((state = __atomic_load_n(&o->state, __ATOMIC_ACQUIRE)) != OPENED) {
        nanosleep(&pause, NULL);
        int taken = TAKEN;
        if (state == TAKEN && !go_on(arg) &&
            __atomic_compare_exchange_n(&o->state, &taken, LEFT, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            pthread_detach(thread);
            err_set(err, STATUS_DEVICE, "NCCL: another rank did not come");
            return NULL;
        }
    }
    pthread_join(thread, NULL);
    group_comm *comm = o->result == SUCCESS ? o->comm : NULL;
    if (!comm)
        err_set(err, STATUS_DEVICE, "NCCL: %s", nccl.GetErrorString(o->result));
    free(o);
    return comm;
}

extern "C" {

const char *rt_nccl_problem() {
    pthread_once(&once, load);
    return nccl.problem;
}

bool rt_nccl_id(struct rt *rt, unsigned char id[RT_NCCL_ID], struct err *err) {
    group_name name;
    pthread_once(&once, load);
    if (!rt_stream(rt) || nccl.problem[0]) {
        err_set(err, STATUS_DEVICE, "%s", nccl.problem[0] ? nccl.problem : "the GPU has failed");
        return false;
    }
    nccl_result r = nccl.GetUniqueId(&name);
    if (r != SUCCESS) {
        err_set(err, STATUS_DEVICE, "NCCL: %s", nccl.GetErrorString(r));
        return false;
    }
    memcpy(id, &name, sizeof name);
    return true;
}

struct rt_nccl *rt_nccl_open(struct rt *rt, const unsigned char id[RT_NCCL_ID], int rank, int world,
                             bool (*go_on)(void *), void *arg, struct err *err) {
    pthread_once(&once, load);
    if (!rt_stream(rt) || nccl.problem[0]) {
        err_set(err, STATUS_DEVICE, "%s", nccl.problem[0] ? nccl.problem : "the GPU has failed");
        return NULL;
    }
    struct rt_nccl *n = (struct rt_nccl *)calloc(1, sizeof *n);
    struct comm_opening *o = (struct comm_opening *)calloc(1, sizeof *o);
    pthread_t thread;
    if (n && o) {
        *o = {rt, {}, rank, world, BEGUN, NULL, SUCCESS};
        memcpy(&o->name, id, sizeof o->name);
    }
    if (!n || !o || pthread_create(&thread, NULL, open_comm, o) != 0) {
        err_set(err, STATUS_NOMEM, "NCCL: no memory or thread to open it in");
        free(o);
        free(n);
        return NULL;
    }
    n->rt = rt;
    if ((n->comm = wait_for_comm(thread, o, go_on, arg, err)))
        return n;
    free(n);
    return NULL;
}

void rt_nccl_sum(struct rt_nccl *n, void *x, size_t count, bool bf16) {
    CUstream_st *stream = rt_stream(n->rt);
    nccl_result before = SUCCESS;
    if (stream && n->comm && nccl_ok(n, nccl.CommGetAsyncError(n->comm, &before)) && nccl_ok(n, before))
        nccl_ok(n, nccl.AllReduce(x, x, count, bf16 ? BFLOAT16 : FLOAT32, SUM, n->comm, stream));
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
