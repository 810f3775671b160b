// A module with the CPU backend, or that of the module FAULT_MODULE, whose devices are slow or fail:
//
//   FAULT_DELAY_US  every step takes so much longer
//   FAULT_STEP      in this step, counted from 1, the device fails
//   FAULT_RANK      of this rank alone; else of all
//   FAULT_TRACE     a file that gets a line when a rank begins a step, and when it has ended one: "0 begins 1", also
//                   "0 replays 1" where that step is a CUDA graph; first how it loads kernels, where CUDA_MODULE_LOADING says so: "0 loads EAGER"
//
// A device reads them when it is opened. `--device cuda` loads the module that QUIRE_CUDA_MODULE names.
#include "backend.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEVICES = 64 };

struct faulty {
    struct device *dev; // the inner backend's; NULL: free
    struct comm *comm;  // of the ranks that share its layers; NULL: it is alone
    long long delay_us, fail_at, num_begun, num_synced;
    int rank;
    FILE *trace; // or NULL
    char why[64];
};

static const struct backend_ops *inner;
static struct backend_ops ops; // the inner ones, but for those below
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct faulty devices[MAX_DEVICES];

static long long number(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

// The entry of a device; of NULL a free one.
static struct faulty *find(const struct device *dev) {
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < MAX_DEVICES && devices[i].dev != dev)
        i++;
    pthread_mutex_unlock(&lock);
    if (i == MAX_DEVICES)
        abort();
    return &devices[i];
}

static struct device *fault_open(const struct backend_host *host, const struct device_config *config,
                                 struct err *err) {
    struct device *dev = inner->open(host, config, err);
    int rank = config->stage * config->world + config->rank;
    if (!dev)
        return NULL;
    struct faulty *f = find(NULL), new = {.dev = dev, .comm = config->comm, .rank = rank};
    const char *trace = getenv("FAULT_TRACE");
    new.trace = trace ? fopen(trace, "ae") : NULL;
    if (number("FAULT_RANK", rank) == rank) {
        new.delay_us = number("FAULT_DELAY_US", 0);
        new.fail_at = number("FAULT_STEP", 0);
    }
    snprintf(new.why, sizeof new.why, "the device of rank %d fails, as FAULT_STEP asks", rank);
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (new.trace && loading)
        fprintf(new.trace, "%d loads %s\n", rank, loading);
    pthread_mutex_lock(&lock);
    *f = new;
    pthread_mutex_unlock(&lock);
    return dev;
}

static void fault_close(struct device *dev) {
    struct faulty *f = find(dev);
    inner->close(dev);
    if (f->trace)
        fclose(f->trace);
    pthread_mutex_lock(&lock);
    f->dev = NULL;
    pthread_mutex_unlock(&lock);
}

static void write_trace(const struct faulty *f, const char *verb, long long step) {
    if (f->trace) {
        fprintf(f->trace, "%d %s %lld\n", f->rank, verb, step);
        fflush(f->trace);
    }
}

static bool fails(const struct faulty *f, long long step) { return f->fail_at > 0 && step >= f->fail_at; }

// The others of its layers hear of a failure in the middle of the step, as they do from a real device.
static bool fault_step_begin(struct device *dev, const struct step *step) {
    struct faulty *f = find(dev);
    if (f->delay_us > 0)
        nanosleep(&(struct timespec){f->delay_us / 1000000, f->delay_us % 1000000 * 1000}, NULL);
    write_trace(f, "begins", ++f->num_begun);
    if (fails(f, f->num_begun) && f->comm)
        f->comm->ops->abort(f->comm, f->why);
    bool replayed = inner->step_begin(dev, step);
    if (replayed)
        write_trace(f, "replays", f->num_begun);
    return replayed;
}

static enum status fault_sync(struct device *dev, struct step_out *out, struct err *err) {
    struct faulty *f = find(dev);
    enum status st = inner->sync(dev, out, err);
    write_trace(f, "ended", ++f->num_synced);
    return fails(f, f->num_synced) ? err_set(err, STATUS_DEVICE, "%s", f->why) : st;
}

static const struct backend_ops *load(const char *path, uint32_t abi) {
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL),
         *symbol = module ? dlsym(module, BACKEND_ENTRY) : NULL;
    backend_entry *entry;
    memcpy(&entry, &symbol, sizeof entry); // POSIX gives functions as data pointers, ISO C has no cast for it
    if (!symbol)
        fprintf(stderr, "FAULT_MODULE: %s\n", dlerror());
    return symbol ? entry(abi) : NULL;
}

__attribute__((visibility("default"))) backend_entry quire_backend_v1;

const struct backend_ops *quire_backend_v1(uint32_t abi) {
    const char *path = getenv("FAULT_MODULE");
    if (abi != BACKEND_ABI || !(inner = path ? load(path, abi) : &backend_cpu))
        return NULL;
    ops = *inner;
    ops.open = fault_open;
    ops.close = fault_close;
    ops.step_begin = fault_step_begin;
    ops.sync = fault_sync;
    return &ops;
}
