// The log-probability of each token of sequences, given those before it, by llama.cpp: what tests/tools/beside_llama_cpp.py
// compares with the golden files, and loss_table.py with Quire's. Without more, an f32 cache and no flash attention.
//
//   llama_scores MODEL.gguf [q8_0] < IDS    a sequence of at most MAX ids a line; one number a line. q8_0: the cache's type
#include <llama.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void be_silent(enum ggml_log_level level, const char *text, void *arg) {
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static double score(const float *logits, int vocab, int id) {
    double most = -INFINITY, sum = 0;
    for (int v = 0; v < vocab; v++)
        most = fmax(most, logits[v]);
    for (int v = 0; v < vocab; v++)
        sum += exp(logits[v] - most);
    return logits[id] - most - log(sum);
}

enum { MAX = 512 };

static int sequence(const char *line, int *ids) {
    int n = 0;
    for (char *end; n < MAX; line = end) {
        ids[n] = (int)strtol(line, &end, 10);
        if (end == line)
            break;
        n++;
    }
    return n;
}

int main(int argc, char **argv) {
    bool q8_0 = argc == 3 && strcmp(argv[2], "q8_0") == 0;
    if (argc != 2 + q8_0) {
        fprintf(stderr, "usage: llama_scores MODEL.gguf [q8_0] < IDS\n");
        return 2;
    }
    llama_log_set(be_silent, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = MAX;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = q8_0 ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = q8_0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
    struct llama_context *context = model ? llama_init_from_model(model, params) : NULL;
    if (!context)
        return 1;
    struct llama_batch batch = llama_batch_init(MAX, 0, 1);
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    static char line[16 * MAX];
    while (fgets(line, sizeof line, stdin)) {
        int n = batch.n_tokens = sequence(line, batch.token);
        for (int i = 0; i < n; i++) {
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        llama_memory_clear(llama_get_memory(context), true);
        if (llama_decode(context, batch) != 0)
            return 1;
        for (int i = 0; i + 1 < n; i++)
            printf("%.6f\n", score(llama_get_logits_ith(context, i), vocab, batch.token[i + 1]));
    }
    return 0;
}
