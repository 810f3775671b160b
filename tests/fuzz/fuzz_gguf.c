// Any bytes as a model file: the header, the configuration, the tensors' check and the tokenizer give an
// answer.
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct model_config config;
    char text[128];
    struct model_file *g = gguf_parse(data, size, "fuzz", &err);
    if (!g) {
        if (!err.code || !err.msg[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < g->num_meta; i++)
        meta_text(&g->meta[i], text, sizeof text);
    for (size_t i = 0; i < g->num_tensors; i++) { // every byte that a tensor claims is there
        const struct model_tensor *t = &g->tensors[i];
        volatile unsigned char first = ((const unsigned char *)t->view.data)[0];
        volatile unsigned char last = ((const unsigned char *)t->view.data)[t->bytes - 1];
        (void)first;
        (void)last;
    }
    weights_num_params(g);
    weights_main_dtype(g, DTYPE_COUNT);
    if (model_config_read(g, &config, &err) == STATUS_OK)
        weights_check(&config, g, &err);
    err = (struct err){0};
    struct tokenizer *t = tokenizer_load(g, &err);
    model_file_close(g); // the tokenizer keeps nothing of it
    if (t) {
        struct token_buf b = {0};
        size_t n = size < 200 ? size : 200, len;
        if (tokenizer_encode(t, (const char *)data, n, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &b))
            abort();
        for (size_t i = 0; i < b.len; i++) {
            if (b.ids[i] < 0 || b.ids[i] >= tokenizer_vocab(t))
                abort();
            tokenizer_bytes(t, b.ids[i], true, &len);
        }
        token_buf_free(&b);
    }
    tokenizer_free(t);
    return 0;
}
