// Any bytes as one file of a Hugging Face folder whose others are sound: the folder, the configuration, the tensors' check
// and the tokenizer give an answer. The first byte says which file, and what the sound configuration says of quantisation.
#include "models/model_config.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/dev/shm/quire-fuzz-XXXXXX";
static const char *const names[] = {"config.json",
                                    "tokenizer.json",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "generation_config.json",
                                    "tokenizer_config.json",
                                    "tokenizer.model",
                                    "tiktoken.model"};
enum {
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    INDEX,
    GENERATION,
    TOKENIZER_CONFIG,
    SPM,
    TIKTOKEN,
    NUM_NAMES = sizeof names / sizeof *names
};

#define EMPTY "\x02\0\0\0\0\0\0\0{}"
static const char config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 2,"
    "\"intermediate_size\": 8, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
    "\"quantization_config\": %s}";
static const char *const methods[] = {
    "null",
    "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32}",
    "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 2, \"sym\": false, \"desc_act\": true}",
    "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": -1}",
    "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32}",
    "{\"quant_method\": \"fp8\", \"weight_block_size\": [2, 2]}",
};
enum { NUM_METHODS = sizeof methods / sizeof *methods };
static const char tokenizer[] = "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                                "\"content\": \"\\u2581\"}, \"model\":"
                                "{\"unk_token\": \"a\", \"fuse_unk\": true, \"vocab\": {\"a\": 0, \"b\": 1, "
                                "\"ab\": 2}, \"merges\": [\"a b\"]}}";

static const char kimi[] = "{\"tokenizer_class\": \"TikTokenTokenizer\", \"added_tokens_decoder\": "
                           "{\"3\": {\"content\": \"x\", \"special\": true}}}";

static void write_file(const char *name, const void *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

static void remove_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void write_config(int method) {
    char text[512];
    int n = snprintf(text, sizeof text, config, methods[method]);
    write_file(names[CONFIG], text, (size_t)n);
}

static void write_sound(int which) {
    remove_file(names[which]);
    if (which == CONFIG)
        write_config(0);
    if (which == TOKENIZER)
        write_file(names[which], tokenizer, strlen(tokenizer));
    if (which == WEIGHTS || which == INDEX)
        write_file(names[WEIGHTS], EMPTY, 10);
}

static void remove_all(void) {
    for (int i = 0; i < NUM_NAMES; i++)
        remove_file(names[i]);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    if (!mkdtemp(folder))
        abort();
    atexit(remove_all);
    for (int i = 0; i < NUM_NAMES; i++)
        write_sound(i);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    struct model_config c;
    int which = size > 0 ? data[0] % 16 % NUM_NAMES : 0, method = size > 0 ? data[0] / 16 % NUM_METHODS : 0;
    if (size == 0)
        return 0;
    if (which == INDEX)
        remove_file(names[WEIGHTS]);
    if (which == WEIGHTS)
        write_config(method);
    if (which == SPM || which == TIKTOKEN) {
        remove_file(names[TOKENIZER]);
        write_file(names[TOKENIZER_CONFIG], kimi, strlen(kimi));
    }
    write_file(names[which], data + 1, size - 1);
    struct model_file *f = model_file_open(folder, &err);
    if (!f && (!err.code || !err.msg[0]))
        abort();
    if (f) {
        for (uint64_t i = 0; i < f->num_tensors;
             i++) { // every byte that a tensor claims is there, or a part of it is wrong
            const struct model_tensor *t = &f->tensors[i];
            unsigned char *all = malloc(t->bytes);
            err = (struct err){0};
            if (!all || (model_file_read(f, t, 0, t->bytes, all, &err) && !strstr(err.msg, "a scale is") &&
                         !strstr(err.msg, "zero point") && !strstr(err.msg, "g_idx")))
                abort();
            free(all);
        }
        err = (struct err){0};
        if (model_config_read(f, &c, &err) == STATUS_OK)
            weights_check(&c, f, &err);
        err = (struct err){0};
        tokenizer_free(tokenizer_load(f, &err));
    }
    model_file_close(f);
    write_sound(CONFIG);
    write_sound(which);
    if (which == SPM || which == TIKTOKEN) {
        write_sound(TOKENIZER);
        write_sound(TOKENIZER_CONFIG);
    }
    return 0;
}
