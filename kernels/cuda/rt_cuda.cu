// The runtime on a device. Every call of CUDA goes through ok(), which keeps the first error
// (tests/tools/cuda_calls.py).
#include "big_kernels.h"
#include "launch.h"
#include "rt_cublas.h"

#if __has_include(<nvtx3/nvToolsExt.h>) // headers alone; some packages of the toolkit are without
#include <nvtx3/nvToolsExt.h>
#endif

#include <stdio.h>
#include <stdlib.h>

enum { GEMM_WORKSPACE = 64 << 20, MAX_PLANS = 256 };

// A GEMM of cuBLASLt with the algorithm that it chose for these sizes.
struct gemm_plan {
    struct rt_gemm key;      // sizes and types
    cublasLtMatmulDesc_t op; // NULL: it has no algorithm for them
    cublasLtMatrixLayout_t x, w, y;
    cublasLtMatmulAlgo_t algorithm;
    bool has_run;
};

struct rt {
    int ordinal;
    cudaStream_t stream, uploads, loads; // loads: rt_load()
    cudaEvent_t marks[3], events[RT_EVENTS];
    cudaDeviceProp prop;
    char error[200];
    bool capturing, overlap; // overlap: a kernel may begin before the one before it has ended
    struct big_kernels big;
    cublasLtHandle_t blas; // NULL: there is no cuBLASLt
    void *blas_workspace;
    struct gemm_plan plans[MAX_PLANS];
    int num_plans, num_forgot;
};

struct rt_graph {
    cudaGraphExec_t exec;
};

static bool ok(struct rt *rt, cudaError_t e, const char *what) {
    if (e != cudaSuccess && !rt->error[0])
        snprintf(rt->error, sizeof rt->error, "%s: %s", what, cudaGetErrorString(e));
    return e == cudaSuccess;
}

static bool blas_ok(struct rt *rt, cublasStatus_t s, const char *what) {
    if (s != CUBLAS_STATUS_SUCCESS && !rt->error[0])
        snprintf(rt->error, sizeof rt->error, "%s: %s", what, lt.GetStatusString(s));
    return s == CUBLAS_STATUS_SUCCESS;
}

// Makes the device that of the calling thread: the current device belongs to a thread, starts at 0 in each,
// and the server opens a device in one thread and steps in another. False: something has failed.
static bool take(struct rt *rt) {
    static thread_local int current = -1;
    if (rt->error[0])
        return false;
    if (current != rt->ordinal)
        current = ok(rt, cudaSetDevice(rt->ordinal), "taking the GPU") ? rt->ordinal : -1;
    return current == rt->ordinal;
}

static bool make_stream(struct rt *rt, cudaStream_t *s) {
    return ok(rt, cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "making a stream");
}

static bool make_event(struct rt *rt, cudaEvent_t *e) {
    return ok(rt, cudaEventCreateWithFlags(e, cudaEventDisableTiming), "making an event");
}

extern "C" {

static void drop_plan(struct rt *rt, struct gemm_plan *p);

static bool takes_group_scales(const struct rt *rt) {
    return !lt.problem[0] && lt.GetVersion() >= LT_GROUP_SCALES && rt->prop.major == 9 && rt->prop.minor == 0;
}

static enum status no_gpu(int ordinal, int count, struct err *err) {
    return err_set(err, STATUS_DEVICE,
                   "there is no GPU %d, only %d of them (see nvidia-smi, CUDA_VISIBLE_DEVICES); each rank of "
                   "--tensor-parallel-size takes one, and processes of one machine must see the same "
                   "(srun --gpu-bind=none)",
                   ordinal, count);
}

struct rt *rt_open(int ordinal, struct err *err) {
    int driver = 0, runtime = 0, count = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
        err_set(err, STATUS_DEVICE, "the CUDA runtime does not say its version");
        return NULL;
    }
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        err_set(err, STATUS_DEVICE, "no NVIDIA driver (libcuda.so.1) is installed");
        return NULL;
    }
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver) {
        err_set(err, STATUS_DEVICE,
                "the NVIDIA driver is too old: it speaks CUDA %d.%d, this module needs %d.%d", driver / 1000,
                driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        return NULL;
    }
    if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0)) {
        err_set(err, STATUS_DEVICE, "the NVIDIA driver finds no GPU (see nvidia-smi, CUDA_VISIBLE_DEVICES)");
        return NULL;
    }
    if (e == cudaSuccess && count <= ordinal) {
        no_gpu(ordinal, count, err);
        return NULL;
    }
    struct rt *rt = (struct rt *)calloc(1, sizeof *rt);
    if (!rt) {
        err_set(err, STATUS_NOMEM, "out of memory");
        return NULL;
    }
    rt->ordinal = ordinal;
    if (!ok(rt, e, "counting GPUs") || !take(rt) ||
        !ok(rt, cudaGetDeviceProperties(&rt->prop, ordinal), "asking the GPU") ||
        !make_stream(rt, &rt->stream) || !make_stream(rt, &rt->uploads) || !make_stream(rt, &rt->loads) ||
        !make_event(rt, &rt->marks[0]) || !make_event(rt, &rt->marks[1]) || !make_event(rt, &rt->marks[2]) ||
        !make_event(rt, &rt->events[RT_UPLOADED]) || !make_event(rt, &rt->events[RT_UPLOAD_READ])) {
        err_set(err, STATUS_DEVICE, "GPU %d: %s", ordinal, rt->error);
        rt_close(rt);
        return NULL;
    }
    if (rt->prop.major < 8) {
        err_set(err, STATUS_DEVICE, "GPU %d (%s) has compute capability %d.%d; this module needs 8.0",
                ordinal, rt->prop.name, rt->prop.major, rt->prop.minor);
        rt_close(rt);
        return NULL;
    }
    const char *overlap = getenv("QUIRE_CUDA_OVERLAP"); // 0: for measuring what it gains
    rt->overlap = rt->prop.major >= 9 && (!overlap || strcmp(overlap, "0") != 0);
    // Now, not at the first long prompt: by then the cache has taken the memory, and it would be an error of
    // the device.
    pthread_once(&lt_once, lt_load);
    if (!lt.problem[0] && !(rt->blas_workspace = rt_alloc(rt, GEMM_WORKSPACE)) && !rt_failed(rt)) {
        struct rt_info now;
        rt_describe(rt, &now);
        err_set(err, STATUS_NOMEM,
                "GPU %d has no room for the %d MiB that cublasLt works in: %zu of %zu MiB are free; others "
                "use it "
                "(nvidia-smi), CUDA_VISIBLE_DEVICES names another one",
                ordinal, GEMM_WORKSPACE >> 20, now.free >> 20, now.total >> 20);
        rt_close(rt);
        return NULL;
    }
    if (rt_failed(rt) || (!lt.problem[0] && !blas_ok(rt, lt.Create(&rt->blas), "opening cublasLt"))) {
        err_set(err, STATUS_DEVICE, "GPU %d: %s", ordinal, rt->error);
        rt_close(rt);
        return NULL;
    }
    return rt;
}

int rt_num_devices(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void rt_close(struct rt *rt) {
    if (!rt)
        return;
    take(rt);
    for (int i = 0; i < rt->num_plans; i++)
        drop_plan(rt, &rt->plans[i]);
    if (rt->blas)
        blas_ok(rt, lt.Destroy(rt->blas), "closing cublasLt");
    rt_free(rt, rt->blas_workspace);
    for (cudaEvent_t e :
         {rt->marks[0], rt->marks[1], rt->marks[2], rt->events[RT_UPLOADED], rt->events[RT_UPLOAD_READ]})
        if (e)
            ok(rt, cudaEventDestroy(e), "freeing an event");
    for (cudaStream_t s : {rt->stream, rt->uploads, rt->loads})
        if (s)
            ok(rt, cudaStreamDestroy(s), "freeing a stream");
    free(rt);
}

void rt_describe(struct rt *rt, struct rt_info *info) {
    *info = {};
    snprintf(info->name, sizeof info->name, "%.79s", rt->prop.name);
    info->major = rt->prop.major;
    info->minor = rt->prop.minor;
    info->num_sms = rt->prop.multiProcessorCount;
    info->shared_max = rt->prop.sharedMemPerBlockOptin;
    info->cache = (size_t)rt->prop.l2CacheSize;
    static_assert(sizeof rt->prop.uuid == sizeof info->uuid, "a UUID");
    memcpy(info->uuid, &rt->prop.uuid, sizeof info->uuid);
    snprintf(info->no_matmul, sizeof info->no_matmul, "%s", lt.problem);
    info->group_scales = takes_group_scales(rt);
    if (take(rt))
        ok(rt, cudaMemGetInfo(&info->free, &info->total), "asking for free memory");
}

bool rt_failed(const struct rt *rt) { return rt->error[0] != 0; }

void rt_fail(struct rt *rt, const char *what) {
    if (!rt_failed(rt))
        snprintf(rt->error, sizeof rt->error, "%s", what);
}

void *rt_alloc(struct rt *rt, size_t bytes) {
    void *p = NULL;
    if (!take(rt))
        return NULL;
    cudaError_t e = cudaMalloc(&p, bytes > 0 ? bytes : 1);
    if (e != cudaSuccess) {
        cudaGetLastError(); // an allocation that fails leaves the device as it was
        if (e != cudaErrorMemoryAllocation)
            ok(rt, e, "allocating memory");
        return NULL;
    }
    ok(rt, cudaMemsetAsync(p, 0, bytes, rt->stream), "clearing memory");
    return p;
}

void rt_free(struct rt *rt, void *p) {
    if (p)
        ok(rt, cudaFree(p), "freeing memory");
}

// From a pool, which waits for no kernel: cudaMalloc() and cudaFree() may, of every GPU that maps the memory, while ranks' kernels
// wait for each other. What is freed stays in the pool. A stream of its own: those of the rt may be under capture. No failure
// is kept, as the rt's thread reads what is; nor is it lost, as that meets it, too.
enum status rt_load(struct rt *rt, void **p, const void *host, size_t bytes, struct err *err) {
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    *p = NULL;
    if (!take(rt))
        return err_set(err, STATUS_DEVICE, "the GPU failed: %s", rt->error);
    bool done = cudaDeviceGetDefaultMemPool(&pool, rt->ordinal) == cudaSuccess &&
                cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess &&
                cudaMallocAsync(p, bytes, rt->loads) == cudaSuccess &&
                cudaMemcpyAsync(*p, host, bytes, cudaMemcpyHostToDevice, rt->loads) == cudaSuccess;
    cudaError_t e = cudaStreamSynchronize(rt->loads);
    if (done && e == cudaSuccess)
        return STATUS_OK;
    e = done ? e : cudaGetLastError();
    rt_unload(rt, *p);
    *p = NULL;
    return e == cudaErrorMemoryAllocation
               ? STATUS_NOMEM
               : err_set(err, STATUS_DEVICE, "the GPU failed: loading: %s", cudaGetErrorString(e));
}

void rt_unload(struct rt *rt, void *p) {
    if (p && take(rt) && cudaFreeAsync(p, rt->loads) != cudaSuccess)
        cudaGetLastError(); // the rt's thread meets what has failed
}

void *rt_alloc_host(struct rt *rt, size_t bytes) {
    void *p = NULL;
    if (!take(rt))
        return NULL;
    cudaError_t e = cudaMallocHost(&p, bytes > 0 ? bytes : 1);
    if (e != cudaSuccess) {
        cudaGetLastError(); // as in rt_alloc()
        if (e != cudaErrorMemoryAllocation)
            ok(rt, e, "allocating host memory");
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

void rt_free_host(struct rt *rt, void *p) {
    if (p)
        ok(rt, cudaFreeHost(p), "freeing host memory");
}

void rt_upload(struct rt *rt, void *device, const void *host, size_t bytes) {
    if (take(rt) && bytes > 0)
        ok(rt, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, rt->stream), "uploading");
}

void rt_download(struct rt *rt, void *host, const void *device, size_t bytes) {
    if (take(rt) && bytes > 0)
        ok(rt, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, rt->stream), "downloading");
}

void rt_upload_ahead(struct rt *rt, void *device, const void *host, size_t bytes) {
    if (take(rt) && bytes > 0)
        ok(rt, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, rt->uploads), "uploading");
}

void rt_record(struct rt *rt, enum rt_queue on, enum rt_event e) {
    if (take(rt))
        ok(rt, cudaEventRecord(rt->events[e], on == RT_UPLOADS ? rt->uploads : rt->stream),
           "ordering uploads");
}

void rt_order(struct rt *rt, enum rt_queue on, enum rt_event e) {
    if (take(rt))
        ok(rt, cudaStreamWaitEvent(on == RT_UPLOADS ? rt->uploads : rt->stream, rt->events[e], 0),
           "ordering uploads");
}

void rt_upload_now(struct rt *rt, void *device, const void *host, size_t bytes) {
    rt_upload(rt, device, host, bytes);
    if (!rt_failed(rt))
        ok(rt, cudaStreamSynchronize(rt->stream), "uploading");
}

void rt_download_now(struct rt *rt, void *host, const void *device, size_t bytes) {
    rt_download(rt, host, device, bytes);
    if (!rt_failed(rt))
        ok(rt, cudaStreamSynchronize(rt->stream), "downloading");
}

void rt_mark(struct rt *rt, int slot) {
    if (take(rt))
        ok(rt, cudaEventRecord(rt->marks[slot], rt->stream), "marking a step");
}

enum status rt_wait(struct rt *rt, int slot, struct err *err) {
    if (!rt_failed(rt))
        ok(rt, cudaEventSynchronize(rt->marks[slot]), "running a step");
    return rt_failed(rt) ? err_set(err, STATUS_DEVICE, "the GPU failed: %s", rt->error) : STATUS_OK;
}

bool rt_done(struct rt *rt, int slot) {
    if (rt_failed(rt))
        return true;
    cudaError_t e = cudaEventQuery(rt->marks[slot]);
    return e != cudaErrorNotReady && (ok(rt, e, "running a step") || rt_failed(rt));
}

enum status rt_can_reach(struct rt *rt, int ordinal, struct err *err) {
    int can = 0, count = 0;
    if (!take(rt) || !ok(rt, cudaGetDeviceCount(&count), "counting GPUs"))
        return err_set(err, STATUS_DEVICE, "GPU %d: %s", rt->ordinal, rt->error);
    if (ordinal < 0 || ordinal >= count)
        return no_gpu(ordinal, count, err);
    if (!ok(rt, cudaDeviceCanAccessPeer(&can, rt->ordinal, ordinal), "asking for peer access"))
        return err_set(err, STATUS_DEVICE, "GPU %d: %s", rt->ordinal, rt->error);
    if (!can)
        return err_set(err, STATUS_DEVICE,
                       "GPU %d cannot read the memory of GPU %d (see nvidia-smi topo -p2p r)", rt->ordinal,
                       ordinal);
    return STATUS_OK;
}

enum status rt_reach(struct rt *rt, int ordinal, struct err *err) {
    if (rt_can_reach(rt, ordinal, err) != STATUS_OK)
        return STATUS_DEVICE;
    cudaError_t e = cudaDeviceEnablePeerAccess(ordinal, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError(); // it is kept otherwise, and reported by a launch
    else if (!ok(rt, e, "peer access"))
        return err_set(err, STATUS_DEVICE, "GPU %d: %s", rt->ordinal, rt->error);
    return STATUS_OK;
}

static_assert(sizeof(cudaIpcMemHandle_t) == RT_SHARED, "CUDA's name of memory");

// Whole pages of the device: what cudaMalloc() puts beside a smaller piece, others could read, too.
void *rt_alloc_shared(struct rt *rt, size_t bytes) {
    const size_t page = (size_t)2 << 20;
    return rt_alloc(rt, (bytes + page - 1) / page * page);
}

void rt_share(struct rt *rt, void *p, unsigned char name[RT_SHARED]) {
    cudaIpcMemHandle_t handle = {};
    if (take(rt))
        ok(rt, cudaIpcGetMemHandle(&handle, p), "sharing memory");
    memcpy(name, &handle, sizeof handle);
}

// The peer's device needs no context here, as cudaDeviceEnablePeerAccess() would: that takes memory there.
void *rt_open_shared(struct rt *rt, const unsigned char name[RT_SHARED]) {
    void *p = NULL;
    cudaIpcMemHandle_t handle;
    memcpy(&handle, name, sizeof handle);
    bool done = take(rt) && ok(rt, cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess),
                               "opening memory of another process (in containers, one PID namespace)");
    return done ? p : NULL;
}

void rt_close_shared(struct rt *rt, void *p) {
    if (take(rt))
        ok(rt, cudaIpcCloseMemHandle(p), "closing memory of another process");
}

void rt_capture_begin(struct rt *rt) {
    rt->capturing =
        take(rt) && ok(rt, cudaStreamBeginCapture(rt->stream, cudaStreamCaptureModeThreadLocal), "recording");
}

struct rt_graph *rt_capture_end(struct rt *rt) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!rt->capturing)
        return NULL;
    rt->capturing = false;
    if (!ok(rt, cudaStreamEndCapture(rt->stream, &graph), "recording a graph") || rt_failed(rt))
        return NULL;
    bool made = ok(rt, cudaGraphInstantiate(&exec, graph, 0), "making a graph");
    made = ok(rt, cudaGraphDestroy(graph), "freeing what was captured") && made;
    struct rt_graph *g = made ? (struct rt_graph *)calloc(1, sizeof *g) : NULL;
    if (g)
        g->exec = exec;
    else if (exec)
        ok(rt, cudaGraphExecDestroy(exec), "freeing a graph"), rt_fail(rt, "out of host memory for a graph");
    return g;
}

void rt_graph_launch(struct rt *rt, struct rt_graph *graph) {
    if (take(rt))
        ok(rt, cudaGraphLaunch(graph->exec, rt->stream), "launching a graph");
}

void rt_graph_free(struct rt *rt, struct rt_graph *graph) {
    if (graph)
        ok(rt, cudaGraphExecDestroy(graph->exec), "freeing a graph");
    free(graph);
}

// ---- cuBLASLt. It is column-major: y (m, n) row-major is y^T = w x^T, with w transposed.

static void drop_plan(struct rt *rt, struct gemm_plan *p) {
    if (p->x)
        blas_ok(rt, lt.MatrixLayoutDestroy(p->x), "cublasLt");
    if (p->w)
        blas_ok(rt, lt.MatrixLayoutDestroy(p->w), "cublasLt");
    if (p->y)
        blas_ok(rt, lt.MatrixLayoutDestroy(p->y), "cublasLt");
    if (p->op)
        blas_ok(rt, lt.MatmulDescDestroy(p->op), "cublasLt");
    *p = {};
}

// Asks for an algorithm; false: there is none for these sizes.
static bool find_algorithm(struct rt *rt, struct gemm_plan *p) {
    // Pointers and rows are aligned to 16 bytes, not to the 256 that cuBLASLt takes for granted.
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    size_t workspace = GEMM_WORKSPACE;
    uint32_t aligned = 16;
    int num = 0;
    bool asked = blas_ok(rt, lt.MatmulPreferenceCreate(&wish), "cublasLt") &&
                 blas_ok(rt,
                         lt.MatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &workspace, sizeof workspace),
                         "cublasLt");
    for (int i = 0; asked && i < 4; i++)
        asked = blas_ok(rt, lt.MatmulPreferenceSetAttribute(wish, alignments[i], &aligned, sizeof aligned),
                        "cublasLt");
    if (asked && lt.MatmulAlgoGetHeuristic(rt->blas, p->op, p->w, p->x, p->y, p->y, wish, 1, &found, &num) !=
                     CUBLAS_STATUS_SUCCESS)
        num = 0;
    if (num > 0)
        p->algorithm = found.algo;
    if (wish)
        blas_ok(rt, lt.MatmulPreferenceDestroy(wish), "cublasLt");
    return num > 0;
}

static bool set_attribute(struct rt *rt, cublasLtMatmulDesc_t op, int attribute, const void *value,
                          size_t bytes) {
    return blas_ok(rt, lt.MatmulDescSetAttribute(op, (cublasLtMatmulDescAttributes_t)attribute, value, bytes),
                   "cublasLt");
}

static bool set_scales(struct rt *rt, cublasLtMatmulDesc_t op, const struct rt_gemm *g) {
    int32_t of_w = g->w_blocks ? LT_BLOCKS : LT_GROUPS, of_x = LT_GROUPS;
    return !g->x_scale ||
           (set_attribute(rt, op, LT_W_SCALE_MODE, &of_w, sizeof of_w) &&
            set_attribute(rt, op, LT_X_SCALE_MODE, &of_x, sizeof of_x) &&
            set_attribute(rt, op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->w_scale, sizeof g->w_scale) &&
            set_attribute(rt, op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->x_scale, sizeof g->x_scale));
}

// NULL: it cannot be done.
static struct gemm_plan *find_plan(struct rt *rt, const struct rt_gemm *g) {
    for (int i = 0; i < rt->num_plans; i++)
        if (rt_gemm_is_alike(&rt->plans[i].key, g))
            return rt->plans[i].op && (rt->plans[i].has_run || !rt->capturing) ? &rt->plans[i] : NULL;
    if (rt->capturing)
        return NULL;
    if (rt->num_plans == MAX_PLANS) { // rare: many chunk lengths; begin again
        while (rt->num_plans > 0)
            drop_plan(rt, &rt->plans[--rt->num_plans]);
        rt->num_forgot++;
    }
    struct gemm_plan *p = &rt->plans[rt->num_plans++];
    *p = {};
    p->key = *g;
    // cuBLASLt keeps sums of E4M3 in f32, as CUBLASLT_MATMUL_DESC_FAST_ACCUM is off unless set; scales are 1 unless
    // set.
    static const cudaDataType_t types[] = {CUDA_R_16BF, CUDA_R_16F, CUDA_R_8F_E4M3}; // by enum rt_operand
    cudaDataType_t type = types[g->type];
    cublasOperation_t transposed = CUBLAS_OP_T;
    uint64_t m = (uint64_t)g->m, n = (uint64_t)g->n, k = (uint64_t)g->k;
    bool made = blas_ok(rt, lt.MatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLt") &&
                set_attribute(rt, p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) &&
                set_scales(rt, p->op, g) &&
                blas_ok(rt, lt.MatrixLayoutCreate(&p->w, type, k, n, g->ldw), "cublasLt") &&
                blas_ok(rt, lt.MatrixLayoutCreate(&p->x, type, k, m, g->ldx), "cublasLt") &&
                blas_ok(rt, lt.MatrixLayoutCreate(&p->y, g->bf16 ? CUDA_R_16BF : CUDA_R_32F, n, m, g->ldy),
                        "cublasLt");
    if (made && find_algorithm(rt, p))
        return p;
    drop_plan(rt, p);
    p->key = *g; // so that it is not asked again
    return NULL;
}

// NULL: it cannot be done.
static struct gemm_plan *usable_plan(struct rt *rt, const struct rt_gemm *g) {
    bool takes = rt->blas && rt_gemm_is_aligned(g) && (!g->x_scale || takes_group_scales(rt));
    return takes ? find_plan(rt, g) : NULL;
}

bool rt_can_matmul(struct rt *rt, const struct rt_gemm *g) { return !take(rt) || usable_plan(rt, g); }

bool rt_matmul(struct rt *rt, const struct rt_gemm *g) {
    if (!take(rt))
        return true; // nothing runs any more
    struct gemm_plan *p = usable_plan(rt, g);
    if (!p)
        return false;
    set_scales(rt, p->op, g); // which may lie elsewhere than when it was planned
    const float one = 1, beta = g->add ? 1 : 0;
    blas_ok(rt,
            lt.Matmul(rt->blas, p->op, &one, g->w, p->w, g->x, p->x, &beta, g->y, p->y, g->y, p->y,
                      &p->algorithm, rt->blas_workspace, GEMM_WORKSPACE, rt->stream),
            "cublasLtMatmul");
    p->has_run = true;
    return true;
}

int rt_matmul_forgot(const struct rt *rt) { return rt->num_forgot; }

#ifdef NVTX_VERSION
void rt_range_begin(struct rt *rt, const char *name) { (void)rt, nvtxRangePushA(name); }
void rt_range_end(struct rt *rt) { (void)rt, nvtxRangePop(); }
#else
void rt_range_begin(struct rt *rt, const char *name) { (void)rt, (void)name; }
void rt_range_end(struct rt *rt) { (void)rt; }
#endif

const char *rt_test_ranges(struct rt *rt) { return (void)rt, ""; }
void rt_test_order(int order) { (void)order; }
void rt_test_dry(int num_sms, size_t memory) { (void)num_sms, (void)memory; }
struct rt_copies rt_test_copies(void) {
    return {};
}

} // extern "C"

cudaStream_t rt_stream(struct rt *rt) { return take(rt) ? rt->stream : NULL; }

void rt_launch_raw(struct rt *rt, const void *kernel, const struct rt_grid *g, void *args) {
    if (!take(rt))
        return;
    if (size_t wish = big_kernels_wish(&rt->big, kernel, g->shared, rt->prop.sharedMemPerBlockOptin))
        ok(rt, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)wish),
           "asking for shared memory");
    cudaLaunchConfig_t config = {};
    config.gridDim = g->grid;
    config.blockDim = dim3((unsigned)g->threads);
    config.dynamicSmemBytes = g->shared;
    config.stream = rt->stream;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = rt->overlap ? 1 : 0;
    void *list[] = {args};
    ok(rt, cudaLaunchKernelExC(&config, kernel, list), "launching a kernel");
}
