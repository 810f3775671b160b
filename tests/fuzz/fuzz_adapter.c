// Any bytes as a GGUF adapter, or as one file of a PEFT folder whose other is sound: an answer, and of what is accepted each
// matrix is of the model's shape, with numbers that are finite. The first byte says which file, and of which model.
#include "half.h"
#include "models/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { GGUF, CONFIG, WEIGHTS, NUM_FILES };
enum { D = 8, H = 2, K = 1, HD = 4, F = 6, MAX_RANK = 4, NUM_MODELS = 4 };

static char folder[] = "/dev/shm/quire-fuzz-XXXXXX", paths[NUM_FILES][64];
static const char config[] = "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 6}";
#define EMPTY "\x02\0\0\0\0\0\0\0{}"

static void write_file(int which, const void *data, size_t size) {
    FILE *f = fopen(paths[which], "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

static void remove_all(void) {
    for (int i = 0; i < NUM_FILES; i++)
        unlink(paths[i]);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char *const names[] = {"adapter.gguf", "adapter_config.json", "adapter_model.safetensors"};
    (void)argc;
    (void)argv;
    if (!mkdtemp(folder))
        abort();
    for (int i = 0; i < NUM_FILES; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    atexit(remove_all);
    return 0;
}

// Llama; Phi 3, whose matrices are fused; one whose feed-forward has no gate; one with experts.
static struct model_config model(int which) {
    static const char *const archs[NUM_MODELS] = {"llama", "phi3", "starcoder2", "qwen3moe"};
    struct model_config m = {.num_layers = 2, .hidden = D, .vocab = 16, .num_attn = 1, .num_ffn = 1};
    strcpy(m.arch, archs[which]);
    m.attn[0] = (struct attn_spec){.heads = H, .kv_heads = K, .head_dim = HD};
    m.ffn[0] = (struct ffn_spec){.hidden = F, .no_gate = which == 2, .experts = which == 3 ? 4 : 0};
    m.layers[0].mix = m.layers[1].mix = MODEL_NO_SPEC;
    return m;
}

static double element(const struct tensor *t, size_t i) {
    if (t->dtype == DTYPE_F32)
        return ((const float *)t->data)[i];
    uint16_t h = ((const uint16_t *)t->data)[i];
    return t->dtype == DTYPE_F16 ? half_to_float(h) : bf16_to_float(h);
}

static void check_matrix(const struct tensor *t, int rows, int cols) {
    if (t->ndim != 2 || t->shape[0] != rows || t->shape[1] != cols)
        abort();
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++)
        if (!isfinite(element(t, i)))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int rows[] = {H * HD, K * HD, K * HD, D, F, F, D}, cols[] = {D, D, D, H * HD, D, D, F};
    if (size == 0)
        return 0;
    struct err err = {0};
    struct adapter_file a;
    int which = data[0] % NUM_FILES;
    struct model_config m = model(data[0] / NUM_FILES % NUM_MODELS);
    write_file(CONFIG, config, strlen(config));
    if (which == CONFIG) { // whose tensors are those of llama's queries, of ones
        char text[600];
        uint64_t n = (uint64_t)snprintf(
            text, sizeof text,
            "{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\": {\"dtype\": \"BF16\", "
            "\"shape\": [2, %d], \"data_offsets\": [0, %d]}, "
            "\"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\": {\"dtype\": \"BF16\", "
            "\"shape\": [%d, 2], \"data_offsets\": [%d, %d]}}",
            D, 4 * D, H * HD, 4 * D, 4 * D + 4 * H * HD);
        unsigned char file[8 + sizeof text + 4 * D + 4 * H * HD];
        memset(file, 0x3f, sizeof file);
        memcpy(file, &n, 8);
        memcpy(file + 8, text, n);
        write_file(WEIGHTS, file, 8 + n + 4 * D + 4 * H * HD);
    } else {
        write_file(WEIGHTS, EMPTY, 10);
    }
    write_file(which, data + 1, size - 1);
    if (adapter_file_read(&a, which == GGUF ? paths[GGUF] : folder, &m, MAX_RANK, &err) != STATUS_OK) {
        if (!err.code || !err.msg[0])
            abort();
    } else {
        if (a.rank < 1 || a.rank > MAX_RANK)
            abort();
        for (int i = 0; i < m.num_layers * ADAPTER_TARGETS; i++) {
            const struct adapter_matrix *x = &a.matrices[i];
            int t = i % ADAPTER_TARGETS;
            if (!x->a.data != !x->b.data)
                abort();
            if (!x->a.data)
                continue;
            if (!isfinite(x->scale) || x->a.shape[0] > a.rank)
                abort();
            check_matrix(&x->a, (int)x->a.shape[0], cols[t]);
            check_matrix(&x->b, rows[t], (int)x->a.shape[0]);
        }
    }
    adapter_file_free(&a);
    return 0;
}
