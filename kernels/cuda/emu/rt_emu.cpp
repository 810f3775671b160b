// The runtime on the host: memory is the host's (so that AddressSanitizer sees what kernels do), a graph is a list
// of launches and products. Queued work runs when the host waits for it, as late as on a slow device. A launch that a device would
// refuse fails the runtime as there.
#include "big_kernels.h"
#include "launch.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

struct rt_graph {
    std::vector<std::function<void()>> launches;
};

using event = std::shared_ptr<bool>; // whether it has come; null: never recorded

struct op {
    event after; // it begins then
    bool early;  // of an upload: as soon as it may; else when it is waited for
    std::function<void()> run;
};

struct rt {
    int ordinal;
    char error[160];
    rt_graph *capture;        // being captured
    size_t limit;             // bytes that rt_alloc() may give in all
    std::atomic<size_t> used; // rt_load() and rt_unload() are other threads'
    size_t shared_max;        // bytes of shared memory that a block may have
    struct big_kernels big;
    bool overlap; // launches may overlap, as on a device: then kernels must wait (QUIRE_CUDA_OVERLAP)
    // Nothing is kept back: kernels of other devices, whose hosts are not waited for, may wait for these.
    bool at_once;
    std::deque<op> queues[2]; // by enum rt_queue
    event marks[3], events[RT_EVENTS];
    bool early; // the next upload is
    bool notes_ranges;
    std::string ranges, told;      // since they were asked for; as they were then
    std::vector<rt_gemm> products; // that have run, and whose like may be captured
    int num_forgot;
};

static bool has_come(const event &e) { return !e || *e; }

static void run_next(rt *rt, rt_queue on);

// Runs a queue until an event that comes in it, or to its end.
static void run_until(rt *rt, rt_queue on, const event &e) {
    while (!rt->queues[on].empty() && !(e && *e))
        run_next(rt, on);
}

static void run_next(rt *rt, rt_queue on) {
    op next = std::move(rt->queues[on].front());
    rt->queues[on].pop_front();
    if (!has_come(next.after))
        run_until(rt, on == RT_WORK ? RT_UPLOADS : RT_WORK, next.after);
    if (!rt_failed(rt))
        next.run();
}

static void run_all(rt *rt) { run_until(rt, RT_WORK, nullptr); }

static void begin_uploads(rt *rt) {
    std::deque<op> &uploads = rt->queues[RT_UPLOADS];
    while (!uploads.empty() && uploads.front().early && has_come(uploads.front().after))
        run_next(rt, RT_UPLOADS);
}

static void queue(rt *rt, rt_queue on, std::function<void()> run, event after = nullptr) {
    if (rt->capture)
        rt_fail(rt, "only launches can be captured");
    if (rt_failed(rt))
        return;
    rt->queues[on].push_back({after, rt->early, std::move(run)});
    if (rt->at_once)
        run_all(rt);
    begin_uploads(rt);
}

static event queue_event(rt *rt, rt_queue on) {
    event e = std::make_shared<bool>(false);
    queue(rt, on, [rt, e] {
        *e = true;
        begin_uploads(rt);
    });
    return e;
}

// The header in front of an allocation's bytes, so that rt_free() knows its size.
enum { HEADER = 256, OF_HEAP = -1, OF_PAGES = -2 };
struct header {
    size_t bytes;
    int file; // that other processes map, or one of the above
};
static header *header_of(void *p) { return (header *)((char *)p - HEADER); }

enum { NUM_DEVICES = 16 };

// The properties of devices that are opened from now on; rt_test_dry() sets them.
static struct {
    int num_sms;
    size_t memory; // 0: not dry
} dry = {4, 0};

static std::atomic<unsigned long> num_up, num_down; // ranks are threads

// Host memory of rt_alloc_host(): where it begins and ends.
static std::mutex pinned_lock;
static std::map<uintptr_t, uintptr_t> pinned;

static bool is_pinned(const void *p, size_t bytes) {
    std::lock_guard<std::mutex> lock(pinned_lock);
    auto after = pinned.upper_bound((uintptr_t)p);
    return after != pinned.begin() && (uintptr_t)p + bytes <= std::prev(after)->second;
}

// The most that launches have asked for, by kernel. If QUIRE_EMULATED_LAUNCHES names a folder, the process writes a
// file there at its end: the path of the program or module, then a line per kernel with its address there, threads
// and bytes of shared memory. tests/tools/ptxas.py compares it with registers.txt.
struct asked {
    std::mutex mutex;
    struct most {
        int threads;
        size_t shared;
    };
    std::map<const void *, most> kernels;
    const char *folder = getenv("QUIRE_EMULATED_LAUNCHES");
    pid_t process = getpid();

    void add(const void *kernel, const rt_grid &g) {
        std::lock_guard<std::mutex> lock(mutex);
        most &m = kernels[kernel];
        m.threads = g.threads > m.threads ? g.threads : m.threads;
        m.shared = g.shared > m.shared ? g.shared : m.shared;
    }
    ~asked() {
        Dl_info info;
        if (!folder || kernels.empty() || process != getpid() || !dladdr((void *)&rt_open, &info))
            return;
        std::string path = info.dli_fname, name = path.substr(path.rfind('/') + 1);
        path = std::string(folder) + "/" + program_invocation_short_name + "." + name;
        FILE *f = fopen(path.c_str(), "w");
        char *whole = realpath(info.dli_fname, nullptr);
        if (f && whole) {
            fprintf(f, "%s\n", whole);
            for (auto &k : kernels)
                fprintf(f, "%zx %d %zu\n", (size_t)((const char *)k.first - (const char *)info.dli_fbase),
                        k.second.threads, k.second.shared);
        }
        free(whole);
        if (!f || fclose(f) != 0)
            fprintf(stderr, "cannot write %s\n", path.c_str());
    }
};
static asked launches;

static enum status no_device(int ordinal, struct err *err) {
    return err_set(
        err, STATUS_DEVICE,
        "there is no emulated device %d, only %d of them; processes of one machine must see the same",
        ordinal, rt_num_devices());
}

extern "C" {

int rt_num_devices(void) {
    const char *devices = getenv("QUIRE_EMULATED_DEVICES"); // for tests of a machine with few
    return devices ? atoi(devices) : NUM_DEVICES;
}

static int capability() {
    const char *other = getenv("QUIRE_EMULATED_CAPABILITY");
    return other ? atoi(other) : 90;
}

struct rt *rt_open(int ordinal, struct err *err) {
    bool there = ordinal >= 0 && ordinal < rt_num_devices();
    struct rt *rt = there ? new struct rt() : nullptr;
    if (!rt) {
        no_device(ordinal, err);
        return nullptr;
    }
    rt->ordinal = ordinal;
    const char *overlap = getenv("QUIRE_CUDA_OVERLAP");
    rt->overlap = !overlap || strcmp(overlap, "0") != 0;
    const char *limit = getenv("QUIRE_EMULATED_MEMORY"); // for tests of a device that is too small
    rt->limit = dry.memory ? dry.memory : limit ? (size_t)strtoull(limit, nullptr, 10) : (size_t)1 << 32;
    rt->shared_max = (size_t)(capability() >= 90 ? 227 : capability() == 80 ? 163 : 99) << 10;
    return rt;
}

void rt_close(struct rt *rt) {
    if (rt)
        delete rt->capture;
    delete rt;
}

void rt_describe(struct rt *rt, struct rt_info *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "emulated");
    info->major = capability() / 10;
    info->minor = capability() % 10;
    info->group_scales = capability() == 90;
    info->num_sms = dry.num_sms;
    info->total = rt->limit;
    info->free = rt->limit - rt->used;
    info->shared_max = rt->shared_max;
    info->cache = 1 << 10; // little, so that what is measured over more than it stays small
    info->emulated = true;
    info->uuid[0] = (unsigned char)rt->ordinal;
    if (getenv("QUIRE_EMULATED_NO_LIBRARY"))
        snprintf(info->no_matmul, sizeof info->no_matmul, "the emulator has been given none");
}

void *rt_alloc(struct rt *rt, size_t bytes) {
    void *p = nullptr;
    if (rt_failed(rt) || bytes > rt->limit - rt->used) // as on a device
        return nullptr;
    if (dry.memory) { // pages that are never written take no memory
        p = mmap(nullptr, HEADER + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
        if (p == MAP_FAILED)
            return nullptr;
        // The sanitizer's allocator keeps the exact size, so that it sees an overrun of one byte.
    } else if (posix_memalign(&p, 256, HEADER + bytes) == 0) {
        memset((char *)p + HEADER, 0, bytes);
    } else {
        return nullptr;
    }
    *(header *)p = {bytes, dry.memory ? OF_PAGES : OF_HEAP};
    rt->used += bytes;
    return (char *)p + HEADER;
}

static void give_back(struct rt *rt, void *p) {
    header *h = header_of(p), was = *h;
    rt->used -= was.bytes;
    if (was.file == OF_HEAP) {
        free(h);
        return;
    }
    munmap(h, HEADER + was.bytes);
    if (was.file != OF_PAGES)
        close(was.file);
}

void rt_free(struct rt *rt, void *p) {
    if (!p)
        return;
    run_all(rt); // as cudaFree() waits
    give_back(rt, p);
}

enum status rt_load(struct rt *rt, void **p, const void *host, size_t bytes, struct err *err) {
    *p = rt_alloc(rt, bytes);
    if (*p && !dry.memory)
        memcpy(*p, host, bytes);
    return *p              ? STATUS_OK
           : rt_failed(rt) ? err_set(err, STATUS_DEVICE, "the device failed: %s", rt->error)
                           : STATUS_NOMEM;
}

// Waits for nothing: it is not the thread that runs what is queued.
void rt_unload(struct rt *rt, void *p) {
    if (p)
        give_back(rt, p);
}

static void *map_shared(int file, size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? nullptr : p;
}

// A file without a name: whatever ends a process, nothing stays behind.
void *rt_alloc_shared(struct rt *rt, size_t bytes) {
    if (rt_failed(rt) || bytes > rt->limit - rt->used)
        return nullptr;
    int file = memfd_create("quire-emulated", MFD_CLOEXEC);
    void *p = file >= 0 && ftruncate(file, (off_t)(HEADER + bytes)) == 0 ? map_shared(file, HEADER + bytes)
                                                                         : nullptr;
    if (!p) {
        if (file >= 0)
            close(file);
        return nullptr;
    }
    *(header *)p = {bytes, file};
    rt->used += bytes;
    return (char *)p + HEADER;
}

void rt_share(struct rt *rt, void *p, unsigned char name[RT_SHARED]) {
    rt->at_once = true;
    if (!rt_failed(rt))
        snprintf((char *)name, RT_SHARED, "/proc/%d/fd/%d", (int)getpid(), header_of(p)->file);
}

void *rt_open_shared(struct rt *rt, const unsigned char name[RT_SHARED]) {
    struct stat st;
    void *p = nullptr;
    std::string own = "/proc/" + std::to_string(getpid()) + "/";
    bool other = own.compare(0, own.size(), (const char *)name, own.size()) != 0; // as on a device
    int file = other && !rt_failed(rt) ? open((const char *)name, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0 && fstat(file, &st) == 0)
        p = map_shared(file, (size_t)st.st_size);
    if (file >= 0)
        close(file);
    if (!p)
        rt_fail(rt, "opening memory of another process");
    return p ? (char *)p + HEADER : nullptr;
}

void rt_close_shared(struct rt *rt, void *p) {
    (void)rt;
    munmap(header_of(p), HEADER + header_of(p)->bytes);
}

void *rt_alloc_host(struct rt *rt, size_t bytes) {
    const char *most = getenv("QUIRE_EMULATED_HOST_MEMORY"); // for tests: more at a time there is not
    if (rt_failed(rt) || (most && bytes > (size_t)strtoull(most, nullptr, 10)))
        return nullptr;
    void *p = calloc(1, bytes ? bytes : 1);
    std::lock_guard<std::mutex> lock(pinned_lock);
    if (p)
        pinned[(uintptr_t)p] = (uintptr_t)p + bytes;
    return p;
}

void rt_free_host(struct rt *rt, void *p) {
    if (!p)
        return;
    run_all(rt); // as cudaFreeHost() waits
    std::lock_guard<std::mutex> lock(pinned_lock);
    pinned.erase((uintptr_t)p);
    free(p);
}

bool rt_failed(const struct rt *rt) { return rt->error[0] != 0; }

void rt_fail(struct rt *rt, const char *what) {
    if (!rt_failed(rt))
        snprintf(rt->error, sizeof rt->error, "%s", what);
}

// Queues work that reads or writes the device's memory; on a dry device the work does nothing.
static void queue_work(struct rt *rt, rt_queue on, std::function<void()> run) {
    queue(rt, on, dry.memory ? [] {} : std::move(run));
}

// From or to host memory that is not pinned the host waits.
static void copy(struct rt *rt, rt_queue on, void *dst, const void *src, size_t bytes, const void *host) {
    if (bytes == 0)
        return;
    queue_work(rt, on, [=] { memcpy(dst, src, bytes); });
    if (is_pinned(host, bytes))
        return;
    if (getenv("QUIRE_EMULATED_PINNED")) // for tests: the host does not wait so
        rt_fail(rt, "a copy has waited for host memory that is not pinned");
    run_until(rt, on, nullptr);
}

static void copy_now(struct rt *rt, void *dst, const void *src, size_t bytes) {
    if (bytes > 0)
        queue_work(rt, RT_WORK, [=] { memcpy(dst, src, bytes); });
    run_all(rt);
}

void rt_upload(struct rt *rt, void *device, const void *host, size_t bytes) {
    num_up++;
    copy(rt, RT_WORK, device, host, bytes, host);
}
void rt_upload_ahead(struct rt *rt, void *device, const void *host, size_t bytes) {
    num_up++;
    copy(rt, RT_UPLOADS, device, host, bytes, host);
}
void rt_download(struct rt *rt, void *host, const void *device, size_t bytes) {
    num_down++;
    copy(rt, RT_WORK, host, device, bytes, host);
}
void rt_upload_now(struct rt *rt, void *device, const void *host, size_t bytes) {
    num_up++;
    copy_now(rt, device, host, bytes);
}
void rt_download_now(struct rt *rt, void *host, const void *device, size_t bytes) {
    copy_now(rt, host, device, bytes);
    if (dry.memory)
        memset(host, 0, bytes);
}

void rt_record(struct rt *rt, enum rt_queue on, enum rt_event e) {
    rt->events[e] = queue_event(rt, on);
    rt->early ^= on == RT_UPLOADS;
}

void rt_order(struct rt *rt, enum rt_queue on, enum rt_event e) {
    queue(
        rt, on, [] {}, rt->events[e]);
}

void rt_mark(struct rt *rt, int slot) { rt->marks[slot] = queue_event(rt, RT_WORK); }

enum status rt_wait(struct rt *rt, int slot, struct err *err) {
    run_until(rt, RT_WORK, rt->marks[slot]);
    return rt_failed(rt) ? err_set(err, STATUS_DEVICE, "the device failed: %s", rt->error) : STATUS_OK;
}

bool rt_done(struct rt *rt, int slot) {
    run_until(rt, RT_WORK, rt->marks[slot]);
    return true;
}

enum status rt_can_reach(struct rt *rt, int ordinal, struct err *err) {
    (void)rt;
    const char *alone = getenv("QUIRE_EMULATED_ALONE"); // for tests: no other device reaches this one
    if (alone && atoi(alone) == ordinal)
        return err_set(err, STATUS_DEVICE, "device %d is out of reach", ordinal);
    if (ordinal < 0 || ordinal >= rt_num_devices())
        return no_device(ordinal, err);
    return STATUS_OK;
}

enum status rt_reach(struct rt *rt, int ordinal, struct err *err) {
    rt->at_once = true;
    return rt_can_reach(rt, ordinal, err);
}

void rt_capture_begin(struct rt *rt) {
    if (!rt_failed(rt))
        rt->capture = new rt_graph;
}

struct rt_graph *rt_capture_end(struct rt *rt) {
    struct rt_graph *graph = rt->capture;
    rt->capture = nullptr;
    return graph;
}

static void run(void *body) { (*(std::function<void()> *)body)(); }

static void queue_launch(struct rt *rt, std::function<void()> launch) {
    if (rt->capture)
        rt->capture->launches.push_back(std::move(launch));
    else
        queue_work(rt, RT_WORK, std::move(launch));
}

void rt_graph_launch(struct rt *rt, struct rt_graph *graph) {
    for (const std::function<void()> &launch : graph->launches)
        queue_launch(rt, launch);
}

void rt_graph_free(struct rt *rt, struct rt_graph *graph) {
    (void)rt;
    delete graph;
}

static float element(const void *p, size_t i, rt_operand type) {
    return type == RT_E4M3  ? e4m3_to_float(((const uint8_t *)p)[i])
           : type == RT_F16 ? half_to_float(((const uint16_t *)p)[i])
                            : bf16_to_float(((const uint16_t *)p)[i]);
}

static bool has_run(const struct rt *rt, const struct rt_gemm *g) {
    return std::any_of(rt->products.begin(), rt->products.end(),
                       [g](const rt_gemm &p) { return rt_gemm_is_alike(&p, g); });
}

bool rt_can_matmul(struct rt *rt, const struct rt_gemm *g) {
    bool takes = rt_gemm_is_aligned(g) && capability() >= (g->type == RT_E4M3 ? 89 : 80) &&
                 (!g->x_scale || (g->type == RT_E4M3 && g->w_scale && capability() == 90));
    return takes && (!rt->capture || has_run(rt, g)) && !getenv("QUIRE_EMULATED_NO_LIBRARY");
}

// Notes that it runs; QUIRE_EMULATED_PRODUCTS says how many it keeps.
static void note_product(struct rt *rt, const struct rt_gemm *g) {
    const char *most = getenv("QUIRE_EMULATED_PRODUCTS");
    if (has_run(rt, g))
        return;
    if (most && rt->products.size() >= strtoul(most, nullptr, 10)) {
        rt->products.clear();
        rt->num_forgot++;
    }
    rt->products.push_back(*g);
}

int rt_matmul_forgot(const struct rt *rt) { return rt->num_forgot; }

static void matmul(const struct rt_gemm *g) {
    size_t k = (size_t)g->k, group = g->x_scale ? 128 : k, groups = (k / group + 3) / 4 * 4;
    std::vector<float> x(k), w(k * (size_t)g->n);
    for (size_t i = 0; i < w.size(); i++)
        w[i] = element(g->w, i / k * (size_t)g->ldw + i % k, g->type);
    for (size_t i = 0; i < (size_t)g->m; i++) {
        for (size_t l = 0; l < k; l++)
            x[l] = element(g->x, i * (size_t)g->ldx + l, g->type);
        for (size_t j = 0; j < (size_t)g->n; j++) {
            float sum = 0, *y = (float *)g->y + i * (size_t)g->ldy + j;
            for (size_t b = 0; b < k / group; b++) {
                float part = 0;
                for (size_t l = b * group; l < (b + 1) * group; l++)
                    part += x[l] * w[j * k + l];
                if (g->x_scale)
                    part *= g->x_scale[b * (size_t)g->m + i] *
                            g->w_scale[g->w_blocks ? j / 128 * groups + b : b * (size_t)g->n + j];
                sum += part;
            }
            if (g->bf16)
                ((uint16_t *)g->y)[i * (size_t)g->ldy + j] = float_to_bf16(sum);
            else
                *y = g->add ? *y + sum : sum;
        }
    }
}

bool rt_matmul(struct rt *rt, const struct rt_gemm *g) {
    if (!rt_can_matmul(rt, g))
        return false;
    note_product(rt, g);
    queue_launch(rt, [gemm = *g] { matmul(&gemm); });
    return true;
}

void rt_range_begin(struct rt *rt, const char *name) {
    if (rt->notes_ranges)
        rt->ranges.append(name).append("{");
}
void rt_range_end(struct rt *rt) {
    if (rt->notes_ranges)
        rt->ranges.append("}");
}
const char *rt_test_ranges(struct rt *rt) {
    rt->notes_ranges = true;
    rt->told = std::exchange(rt->ranges, "");
    return rt->told.c_str();
}

void rt_test_order(int order) { emu::order = order; }
void rt_test_dry(int num_sms, size_t memory) { dry = {num_sms, memory}; }
struct rt_copies rt_test_copies(void) {
    return {num_up, num_down};
}

} // extern "C"

// For callers that use the stream without rt_launch() and wait for other work on it.
struct CUstream_st *rt_stream(struct rt *rt) {
    rt->at_once = true;
    run_all(rt);
    return nullptr;
}

// Shared memory that kernels are allowed, by device: as on one, whichever rt of it asked last.
static std::mutex allowed_lock;
static std::map<std::pair<int, const void *>, size_t> allowed;

// Why a device refuses the launch; "": it does not. (Of __launch_bounds__ tests/tools/cuda_calls.py takes care.)
static std::string refusal(struct rt *rt, const void *kernel, const rt_grid &g) {
    std::lock_guard<std::mutex> lock(allowed_lock);
    if (rt->capture &&
        allowed.count({rt->ordinal, kernel}) == 0) // a kernel is loaded when it is first launched
        return "operation not permitted when stream is capturing: a kernel that has not been loaded";
    size_t &may = allowed[{rt->ordinal, kernel}];
    if (size_t wish = big_kernels_wish(&rt->big, kernel, g.shared, rt->shared_max))
        may = wish;
    size_t most = std::min(std::max(may, (size_t)48 << 10), rt->shared_max);
    if (g.shared > most)
        return "invalid argument: " + std::to_string(g.shared) +
               " bytes of shared memory, where it may have " + std::to_string(most);
    const dim3 &n = g.grid;
    if (n.x < 1 || n.x > INT32_MAX || n.y < 1 || n.y > 65535 || n.z < 1 || n.z > 65535 || g.threads < 1 ||
        g.threads > emu::MAX_THREADS)
        return "invalid configuration argument: a grid of " + std::to_string(n.x) + " x " +
               std::to_string(n.y) + " x " + std::to_string(n.z) + " blocks of " + std::to_string(g.threads) +
               " threads";
    return "";
}

void rt_launch_emulated(struct rt *rt, const void *kernel, const struct rt_grid &g,
                        std::function<void()> body) {
    if (launches.folder)
        launches.add(kernel, g);
    if (getenv("QUIRE_EMULATED_FAULT")) // for tests
        rt_fail(rt, "it was asked to fail");
    std::string why = rt_failed(rt) ? "" : refusal(rt, kernel, g);
    if (!why.empty())
        rt_fail(rt, ("launching a kernel: " + why).c_str());
    if (rt_failed(rt))
        return;
    queue_launch(rt, [rt, g, body = std::move(body)]() mutable {
        emu::run(g.grid, dim3((unsigned)g.threads), g.shared, rt->overlap, run, &body);
    });
}
