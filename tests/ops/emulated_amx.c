// Takes the place of cpu_kernels_find() (-Wl,--wrap): besides what there is, "amx-emulated" and "amx-bf16-emulated" on
// machines that have AVX-512.
#include "kernels.h"

#include <string.h>

const struct cpu_kernels *__real_cpu_kernels_find(const char *variant);
const struct cpu_kernels *__wrap_cpu_kernels_find(const char *variant);

const struct cpu_kernels *__wrap_cpu_kernels_find(const char *variant) {
    static struct cpu_kernels tables[2];
    bool bf16 = variant && strcmp(variant, "amx-bf16-emulated") == 0;
    if (!bf16 && (!variant || strcmp(variant, "amx-emulated") != 0))
        return __real_cpu_kernels_find(variant);
    const struct cpu_kernels *avx512 = __real_cpu_kernels_find("avx512");
    if (avx512 && !tables[bf16].name) {
        struct cpu_kernels table = *avx512;
#if defined(__x86_64__)
        cpu_kernels_fill_amx_emulated(&table, bf16);
#endif
        tables[bf16] = table;
    }
    return avx512 ? &tables[bf16] : NULL;
}
