// Modules that the engine must refuse: without the symbol, of another version, with a device that does not
// work.
#include "backend.h"

#if defined(WRONG_EMPTY)
int quire_is_not_here;
#elif defined(WRONG_OLD)
backend_entry quire_backend_v1;
const struct backend_ops *quire_backend_v1(uint32_t abi) {
    (void)abi;
    return NULL;
}
#else
static struct device *open_broken(const struct backend_host *host, const struct device_config *config,
                                  struct err *err) {
    (void)host, (void)config;
    err_set(err, STATUS_DEVICE, "the device is on fire");
    return NULL;
}
static const struct backend_ops broken = {.abi = BACKEND_ABI, .name = "cuda", .open = open_broken};
backend_entry quire_backend_v1;
const struct backend_ops *quire_backend_v1(uint32_t abi) { return abi == BACKEND_ABI ? &broken : NULL; }
#endif
