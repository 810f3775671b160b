// The log-probability of each token of a prompt, given those before it, by llama.cpp: what tests/tools/beside_llama_cpp.py
// compares with the golden files. f32 cache, no flash attention.
//
//   llama_scores MODEL.gguf ID ID…    one number a line
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

int main(int argc, char **argv) {
    int n = argc - 2;
    if (n < 2) {
        fprintf(stderr, "usage: llama_scores MODEL.gguf ID ID…\n");
        return 2;
    }
    llama_log_set(be_silent, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 256;
    params.n_batch = params.n_ubatch = 256;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    struct llama_context *context = model ? llama_init_from_model(model, params) : NULL;
    if (!context)
        return 1;
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    for (int i = 0; i < n; i++) {
        batch.token[i] = atoi(argv[i + 2]);
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = n;
    if (llama_decode(context, batch) != 0)
        return 1;
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i + 1 < n; i++)
        printf("%.6f\n", score(llama_get_logits_ith(context, i), vocab, batch.token[i + 1]));
    return 0;
}
