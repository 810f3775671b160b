#include "backend_load.h"

#include "module_find.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "quire-cuda.so"
#define DRIVER "libcuda.so.1"

static bool find_module(char *path, size_t size, char *dir, size_t dir_size) {
    return module_find(MODULE, "QUIRE_CUDA_MODULE", "kernels/cuda", path, size, dir, dir_size);
}

static enum status load_cuda(const struct backend_ops **ops, struct err *err) {
    char path[4096], dir[3500];
    if (!find_module(path, sizeof path, dir, sizeof dir)) {
        if (getenv("QUIRE_CUDA_MODULE"))
            return err_set(err, STATUS_DEVICE, "device 'cuda': QUIRE_CUDA_MODULE names no file: %.200s",
                           path);
        return err_set(err, STATUS_DEVICE,
                       "device 'cuda': no module " MODULE " in %.200s: it is built where CMake finds nvcc",
                       dir);
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return err_set(err, STATUS_DEVICE, "device 'cuda': the module does not load: %.300s", dlerror());
    void *symbol = dlsym(module, BACKEND_ENTRY);
    if (!symbol)
        return err_set(err, STATUS_DEVICE, "device 'cuda': %.200s is no module of Quire: it has no symbol %s",
                       path, BACKEND_ENTRY);
    backend_entry *entry;
    memcpy(&entry, &symbol, sizeof entry); // POSIX gives functions as data pointers, ISO C has no cast for it
    *ops = entry(BACKEND_ABI);
    if (!*ops || (*ops)->abi != BACKEND_ABI)
        return err_set(err, STATUS_DEVICE, "device 'cuda': %.200s is of another version of Quire (not %d)",
                       path, BACKEND_ABI);
    return STATUS_OK;
}

bool backend_cuda_at_hand(void) {
    char path[4096], dir[3500];
    if (!find_module(path, sizeof path, dir, sizeof dir))
        return false;
    if (getenv("QUIRE_CUDA_MODULE"))
        return true;
    void *driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        dlclose(driver);
    return driver != NULL;
}

enum status backend_find(const char *name, const struct backend_ops **ops, struct err *err) {
    if (strcmp(name, "cpu") == 0)
        *ops = &backend_cpu;
    else if (strcmp(name, "ref") == 0)
        *ops = &backend_ref;
    else if (strcmp(name, "cuda") == 0)
        return load_cuda(ops, err);
    else
        return err_set(err, STATUS_INVALID, "unknown device '%s'; known: auto, cpu, ref, cuda", name);
    return STATUS_OK;
}
