// Programs in one: the name that it is started by says which, or else its first argument (gpu_tests.cmake, gpu_slot.sh).
#include <stdio.h>
#include <string.h>

int test_intrinsics_main(void), test_rows_main(void), test_gemm_main(void), test_experts_main(void),
    test_attention_main(void), test_sample_main(void), test_forward_main(void), test_steps_main(void),
    test_lora_main(void), test_peers_main(void), test_processes_main(void), test_model_main(void),
    test_real_shapes_main(void);
int test_bench_main(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
    {"test_intrinsics", test_intrinsics_main},
    {"test_rows", test_rows_main},
    {"test_gemm", test_gemm_main},
    {"test_experts", test_experts_main},
    {"test_attention", test_attention_main},
    {"test_sample", test_sample_main},
    {"test_forward", test_forward_main},
    {"test_lora", test_lora_main},
    {"test_steps", test_steps_main},
    {"test_peers", test_peers_main},
    {"test_processes", test_processes_main},
    {"test_model", test_model_main},
    {"test_real_shapes", test_real_shapes_main},
};

int main(int argc, char **argv) {
    for (int i = 0; i < argc && i < 2; i++) {
        const char *slash = strrchr(argv[i], '/'), *name = slash ? slash + 1 : argv[i];
        for (size_t t = 0; t < sizeof tests / sizeof tests[0]; t++)
            if (strcmp(name, tests[t].name) == 0)
                return tests[t].run();
        if (strcmp(name, "bench_cuda") == 0)
            return test_bench_main(argc - i, argv + i);
    }
    fprintf(stderr, "name a test, such as test_rows, or bench_cuda\n");
    return 2;
}
