// Takes the place of cpu_kernels_find() (-Wl,--wrap): besides what there is, "amx-emulated" on machines that have AVX-512.
#include "kernels.h"

#include <string.h>

const struct cpu_kernels *__real_cpu_kernels_find(const char *variant);
const struct cpu_kernels *__wrap_cpu_kernels_find(const char *variant);

const struct cpu_kernels *__wrap_cpu_kernels_find(const char *variant) {
    static struct cpu_kernels table;
    if (!variant || strcmp(variant, "amx-emulated") != 0)
        return __real_cpu_kernels_find(variant);
    const struct cpu_kernels *avx512 = __real_cpu_kernels_find("avx512");
    if (avx512 && !table.name) {
        table = *avx512;
#if defined(__x86_64__)
        cpu_kernels_fill_amx_emulated(&table);
#endif
    }
    return avx512 ? &table : NULL;
}
