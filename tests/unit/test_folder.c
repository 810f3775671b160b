// Hugging Face folders: JSON, safetensors headers, configurations, vocabularies, indexes and links, made wrong on purpose;
// cut at every length; the bytes that tensors are made of. Over 600 lines: all break one folder, in one place each.
#include "harness.h"

#include "models/hf/safetensors.h"
#include "models/model_config.h"
#include "models/model_file.h"
#include "models/model_hash.h"
#include "models/tensor_read.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

#include <sys/stat.h>
#include <unistd.h>

// ---- JSON

static enum status parse(struct jdoc *j, const char *text, size_t len, struct err *err) {
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    return jdoc_parse(j, "x.json", copy, len, err);
}

static void test_json(void **state) {
    (void)state;
    static const struct {
        const char *text, *word; // NULL: sound
    } cases[] = {
        {"{\"a\": [1, -2.5e3, true, false, null, \"x\"], \"b\": {}}", NULL},
        {" [] ", NULL},
        {"[NaN, -Infinity, 1e5]", NULL},
        {"\"\\u00e9\\ud83d\\ude42\\n\\/\"", NULL},
        {"", "ends at byte 0"},
        {"{", "expected a key"},
        {"{\"a\" 1}", "a colon"},
        {"{\"a\": 1,}", "byte 8 is 0x7d, expected a key"},
        {"[1 2]", "byte 3 is 0x32, expected a comma"},
        {"[01]", "a comma"},
        {"[1.]", "a digit"},
        {"[1e]", "a digit"},
        {"[+1]", "a value"},
        {"nul", "a value"},
        {"1 1", "nothing behind"},
        {"\"a", "the end of a string"},
        {"\"\\x\"", "an escape"},
        {"\"\\ud800\"", "an escape"},
        {"\"\\ud800\\u0041\"", "an escape"},
        {"\"\\u12\"", "an escape"},
        {"\"\n\"", "control characters"},
        {"\"\xff\"", "byte 1 is 0xff, expected UTF-8"},
        {"{\"a\": 1, \"b\": 2, \"a\": 3}", "key a at byte 18 is there twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jdoc j;
        struct err err = {0};
        enum status st = parse(&j, cases[i].text, strlen(cases[i].text), &err);
        if (cases[i].word ? st != STATUS_FORMAT || !strstr(err.msg, cases[i].word) : st != STATUS_OK)
            fail_msg("%s: expected '%s', got '%s'", cases[i].text, cases[i].word ? cases[i].word : "ok",
                     err.msg);
        jdoc_free(&j);
    }
    struct jdoc j;
    struct err err = {0};
    static const char text[] =
        "{\"s\": \"\\u00e9\\u0000z\", \"n\": [1, 2.5, 1e400], \"o\": {\"k\": null, \"t\": true}}";
    int64_t n = 0;
    assert_int_equal(parse(&j, text, strlen(text), &err), STATUS_OK);
    const struct jdoc_value *s = jdoc_get(&j, j.values, "s"), *list = jdoc_get(&j, j.values, "n"),
                            *o = jdoc_get(&j, j.values, "o"), *e = jdoc_first(&j, list);
    assert_int_equal(s->len, 4);
    assert_memory_equal(jdoc_text(&j, s).data, "\xc3\xa9\0z", 4);
    assert_true(jdoc_integer(&j, e, &n) && n == 1);
    e = jdoc_after(&j, list, e, false);
    assert_false(jdoc_integer(&j, e, &n));
    assert_true(jdoc_number(&j, e) == 2.5);
    e = jdoc_after(&j, list, e, false);
    assert_false(jdoc_integer(&j, e, &n));
    assert_null(jdoc_after(&j, list, e, false));
    assert_null(jdoc_get(&j, o, "k"));
    assert_int_equal(jdoc_get(&j, o, "t")->type, JDOC_TRUE);
    assert_null(jdoc_get(&j, s, "t"));
    jdoc_free(&j);
    char deep[3 * JDOC_MAX_DEPTH];
    for (int depth = JDOC_MAX_DEPTH - 1; depth < JDOC_MAX_DEPTH + 2; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        err = (struct err){0};
        bool sound = parse(&j, deep, 2 * (size_t)depth, &err) == STATUS_OK;
        assert_true(sound == (depth <= JDOC_MAX_DEPTH));
        jdoc_free(&j);
    }
}

// ---- safetensors

static void test_header(void **state) {
    (void)state;
#define T(name, type, shape, from, to)                                                                       \
    "\"" name "\": {\"dtype\": \"" type "\", \"shape\": " shape ", \"data_offsets\": [" from ", " to "]}"
    static const struct {
        const char *text;
        uint64_t data;
        const char *word;
    } cases[] = {
        {"{}", 0, NULL},
        {"{\"__metadata__\": {\"a\": \"b\"}, " T("x", "F32", "[2, 2]", "0", "16") "}", 16, NULL},
        {"{" T("y", "BF16", "[3]", "4", "10") ", " T("x", "F32", "[]", "0", "4") "}", 10, NULL},
        {"{" T("x", "F32", "[0]", "0", "0") ", " T("y", "F32", "[1]", "0", "4") "}", 4, NULL},
        {"[]", 0, "expected an object"},
        {"{\"x\": 1}", 0, "dtype ?"},
        {"{" T("x", "F31", "[1]", "0", "4") "}", 4, "dtype F31"},
        {"{" T("x", "F32", "[-1]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[1.5]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[4294967296, 4294967296, 4294967296]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[1]", "0", "5") "}", 5, "has 5 bytes, expected 4"},
        {"{" T("x", "F32", "[1]", "4", "0") "}", 4, "data_offsets"},
        {"{" T("x", "F32", "[1]", "-4", "0") "}", 4, "data_offsets"},
        {"{" T("x", "F32", "[1]", "0", "4") "}", 3, "cut short"},
        {"{" T("x", "F32", "[1]", "9007199254740988", "9007199254740992") "}", 8, "cut short"},
        {"{" T("x", "F32", "[1]", "0", "4") "}", 5, "the file's end"},
        {"{" T("x", "F32", "[1]", "1", "5") "}", 5, "no hole"},
        {"{" T("x", "F32", "[2]", "0", "8") ", " T("y", "F32", "[2]", "4", "12") "}", 12,
         "where the one before"},
        {"{" T("x", "F32", "[1]", "0", "4") ", " T("x", "F32", "[1]", "4", "8") "}", 8, "there twice"},
        {"{" T("", "F32", "[1]", "0", "4") "}", 4, "empty"},
        {"{" T("a\\u0000", "F32", "[1]", "0", "4") "}", 4, "NUL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct st_header h;
        struct err err = {0};
        size_t len = strlen(cases[i].text);
        char *copy = malloc(len + 1);
        assert_non_null(copy);
        memcpy(copy, cases[i].text, len);
        enum status st = st_parse(&h, "x.safetensors", copy, len, 8 + len + cases[i].data, &err);
        if (cases[i].word ? st != STATUS_FORMAT || !strstr(err.msg, cases[i].word) : st != STATUS_OK)
            fail_msg("%s: expected '%s', got '%s'", cases[i].text, cases[i].word ? cases[i].word : "ok",
                     err.msg);
        st_free(&h);
    }
}

// ---- folders

static char root[] = "/tmp/quire-folder-XXXXXX", folder[64];

static void write_file(const char *name, const void *data, size_t len) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

static void remove_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

#define SIZES                                                                                                \
    "\"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, " \
    "\"intermediate_size\": 8, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"vocab_size\": 6"
#define CONFIG(more) "{\"model_type\": \"llama\", " SIZES more "}"
#define VOCAB                                                                                                \
    "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\xe2\x96\x81\": 2, \"a\": 3, \"\xe2\x96\x81"                    \
    "a\": 4}"
#define MODEL                                                                                                \
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, " VOCAB                    \
    ", \"merges\": [[\"\xe2\x96\x81\", \"a\"]]}"
#define REPLACE                                                                                              \
    "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "                \
    "\"\xe2\x96\x81\"}"
#define ADDED                                                                                                \
    "\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true, \"lstrip\": false, "            \
    "\"rstrip\": true}]"

// The tensors of the llama of CONFIG: BF16, or norms and all in F32.
static const struct {
    const char *name;
    int rows, cols;
} shapes[] = {
    {"model.embed_tokens", 6, 8},
    {"model.norm", 8, 0},
    {"lm_head", 6, 8},
    {"model.layers.0.input_layernorm", 8, 0},
    {"model.layers.0.self_attn.q_proj", 8, 8},
    {"model.layers.0.self_attn.k_proj", 4, 8},
    {"model.layers.0.self_attn.v_proj", 4, 8},
    {"model.layers.0.self_attn.o_proj", 8, 8},
    {"model.layers.0.post_attention_layernorm", 8, 0},
    {"model.layers.0.mlp.gate_proj", 8, 8},
    {"model.layers.0.mlp.up_proj", 8, 8},
    {"model.layers.0.mlp.down_proj", 8, 8},
};
enum { NUM_SHAPES = sizeof shapes / sizeof *shapes };

// Tensors [first, end) as BF16: element i of tensor t is i + 100 t, as far as BF16 holds that.
static void write_shard(const char *file, int first, int end) {
    static char text[8192];
    static uint16_t data[4096];
    size_t n = 0, at = 0;
    n += (size_t)snprintf(text + 8, sizeof text - 8, "{");
    for (int t = first; t < end; t++) {
        int cols = shapes[t].cols ? shapes[t].cols : 1;
        char shape[32];
        snprintf(shape, sizeof shape, shapes[t].cols ? "%d, %d" : "%d", shapes[t].rows, shapes[t].cols);
        n += (size_t)snprintf(
            text + 8 + n, sizeof text - 8 - n,
            "%s\"%s.weight\": {\"dtype\": \"BF16\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
            t > first ? ", " : "", shapes[t].name, shape, 2 * at, 2 * (at + (size_t)(shapes[t].rows * cols)));
        for (int i = 0; i < shapes[t].rows * cols; i++) {
            float f = (float)(i + 100 * t);
            uint32_t u;
            memcpy(&u, &f, 4);
            data[at++] = (uint16_t)(u >> 16);
        }
    }
    n += (size_t)snprintf(text + 8 + n, sizeof text - 8 - n, "}");
    memcpy(text, &(uint64_t){n}, 8);
    memcpy(text + 8 + n, data, 2 * at);
    write_file(file, text, 8 + n + 2 * at);
}

static void write_sound(void) {
    static const char *const others[] = {"generation_config.json", "tokenizer_config.json",
                                         "chat_template.jinja", "special_tokens_map.json",
                                         "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        remove_file(others[i]);
    write_text("config.json", CONFIG(""));
    write_text("tokenizer.json", "{" REPLACE ", " ADDED ", " MODEL "}");
    write_shard("model.safetensors", 0, NUM_SHAPES);
}

// Opens the folder; with all its checks. word NULL: must be right.
static void expect(const char *what, const char *word) {
    struct err err = {0};
    struct model_config config;
    struct model_file *f = model_file_open(folder, &err);
    struct tokenizer *t = NULL;
    bool ok = f && model_config_read(f, &config, &err) == STATUS_OK &&
              weights_check(&config, f, &err) == STATUS_OK && (t = tokenizer_load(f, &err));
    tokenizer_free(t);
    model_file_close(f);
    if (word ? ok || !strstr(err.msg, word) || !err.code : !ok)
        fail_msg("%s: expected '%s', got '%s'", what, word ? word : "ok", err.msg);
}

static int make_folder(void **state) {
    (void)state;
    char blobs[64];
    if (!mkdtemp(root))
        return 1;
    // as a cache has it: snapshots/x beside blobs
    snprintf(blobs, sizeof blobs, "%s/snapshots", root);
    snprintf(folder, sizeof folder, "%s/snapshots/x", root);
    if (mkdir(blobs, 0700) || mkdir(folder, 0700))
        return 1;
    snprintf(blobs, sizeof blobs, "%s/blobs", root);
    return mkdir(blobs, 0700);
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

struct change { // of one file
    const char *file, *text, *word;
};

static void expect_all(const struct change *changes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        write_sound();
        if (changes[i].text)
            write_text(changes[i].file, changes[i].text);
        else
            remove_file(changes[i].file);
        expect(changes[i].text ? changes[i].text : changes[i].file, changes[i].word);
    }
}
#define EXPECT_ALL(changes) expect_all(changes, sizeof(changes) / sizeof *(changes))

static void test_config(void **state) {
    (void)state;
#define LLAMA(more) "config.json", CONFIG(", " more)
#define STATES(heads)                                                                                        \
    ", \"mamba_n_heads\": " heads ", \"mamba_n_groups\": 2, \"mamba_d_state\": 4, \"mamba_d_head\": 4"
#define OTHER(type, more) "config.json", "{\"model_type\": \"" type "\", " SIZES more "}"
    static const struct change changes[] = {
        {LLAMA("\"use_cache\": true"), NULL},
        {"config.json", NULL, "cannot open config.json"},
        {"config.json", "[]", "expected an object"},
        {"config.json", "{" SIZES "}", "model_type is absent"},
        {OTHER("nobody", ""), "model_type 'nobody' is not supported yet; supported: llama, "},
        {"config.json", "{\"model_type\": \"llama\"}", "key num_hidden_layers is missing"},
        {LLAMA("\"head_dim\": \"x\""), "key head_dim at byte 225 is x, expected an integer"},
        {LLAMA("\"head_dim\": 2.5"), "expected an integer"},
        {LLAMA("\"head_dim\": -4"), "expected an integer"},
        {LLAMA("\"head_dim\": 0"), "expected at least 1"},
        {LLAMA("\"rope_theta\": NaN"), "a finite number"},
        {LLAMA("\"rope_theta\": {}"), "a finite number"},
        {LLAMA("\"hidden_act\": \"gelu\""), "key hidden_act at byte 227 is gelu, expected silu"},
        {LLAMA("\"attention_multiplier\": 2"), "does not know how to compute"},
        {LLAMA("\"attention_multiplier\": null, \"qk_layernorm\": false, \"clip_qkv\": null"), NULL},
        {LLAMA("\"quantization_config\": {\"quant_method\": \"gptq\"}"), "quant_method gptq"},
        {OTHER("falcon_h1", ""), "key mamba_n_heads is missing"},
        {OTHER("falcon_h1", STATES("3")), "in 2 groups"},
        {OTHER("falcon_h1", STATES("0")), "in 2 groups"},
        {OTHER("falcon_h1", STATES("2") ", \"mlp_multipliers\": [1]"), "an array of 2 numbers"},
        {OTHER("falcon_h1", STATES("2") ", \"ssm_multipliers\": [1, 1, 1, 1, NaN]"), "a finite number"},
        {OTHER("falcon_h1", STATES("2") ", \"mamba_rms_norm\": true"), "key mamba_norm_before_gate"},
        {OTHER("falcon_h1", STATES("2") ", \"tie_word_embeddings\": true, \"lm_head_multiplier\": 2"),
         "key tie_word_embeddings"},
        {OTHER("lfm2", ", \"full_attn_idxs\": [1]"), "key full_attn_idxs"},
        {OTHER("lfm2", ", \"layer_types\": [\"mamba\"]"), "expected conv"},
        {OTHER("granitemoehybrid", ", \"layer_types\": [\"attention\"], \"position_embedding_type\": \"x\""),
         "expected rope or nope"},
        {OTHER("granitemoehybrid", ", \"num_local_experts\": 4"), "num_local_experts"},
        {OTHER("ernie4_5_moe", ", \"moe_layer_end_index\": 7"), "-1 or the last layer"},
        {OTHER("hunyuan_v1_moe", ", \"moe_topk\": [1, 2]"), "the same integer for all layers"},
        {OTHER("dots1", ", \"scoring_func\": \"softmax\""), "expected sigmoid"},
        {LLAMA("\"rope_scaling\": 1"), "expected an object"},
        {LLAMA("\"rope_scaling\": {\"rope_type\": \"magic\"}"), "rope_type at byte"},
        {LLAMA("\"rope_scaling\": {\"type\": \"linear\"}"), NULL},
        {LLAMA("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"x\": 3}"), "key x of the scaling"},
        {LLAMA("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"truncate\": false}"), "key truncate"},
        {LLAMA("\"rope_scaling\": {\"type\": \"longrope\"}"), "key short_factor"},
        {LLAMA("\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1], \"long_factor\": [1]}"),
         "expected as many"},
        {LLAMA("\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, \"a\"], \"long_factor\": [1, 1]}"),
         "a finite number"},
        {LLAMA(
             "\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1, 1], \"long_factor\": [2, 2, 2]}"),
         "rope_factors_short.weight"},
        {LLAMA("\"original_max_position_embeddings\": 0"), "original positions"},
        {LLAMA("\"partial_rotary_factor\": 0.5"), "does not know how"},
        {LLAMA("\"layer_types\": [\"full_attention\", \"full_attention\"]"), "an element for each layer"},
        {LLAMA("\"layer_types\": [\"linear_attention\"]"), "linear_attention, expected full_attention"},
        {LLAMA("\"layer_types\": [\"sliding_attention\"]"), "no positive integer"},
        {LLAMA("\"sliding_window\": 4, \"layer_types\": [\"sliding_attention\"]"), NULL},
        {LLAMA("\"tie_word_embeddings\": true"), NULL}, // lm_head is there and ignored
        {OTHER("qwen2", ", \"use_sliding_window\": 3"), "true or false"},
        {OTHER("smollm3", ", \"no_rope_layers\": [0]"), "each fourth layer"},
        {OTHER("qwen3_moe", ", \"norm_topk_prob\": false"), "is false, expected true"},
        {OTHER("qwen3_moe", ", \"mlp_only_layers\": [1]"), "is an array, expected []"},
        {OTHER("qwen2", ""), "tensor blk.0.attn_q.bias is missing"},
        {OTHER("gpt_oss", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}"),
         "key truncate of the scaling of RoPE is missing, expected false"},
        {OTHER("gpt_oss", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": true}"),
         "key truncate of the scaling of RoPE, at byte"},
        {OTHER("gpt_oss", ", \"swiglu_limit\": 5.0"), "is 5.0, expected 7.0"},
        {"config.json", CONFIG("") "x", "nothing behind"},
    };
    EXPECT_ALL(changes);
}

static void test_vocabulary(void **state) {
    (void)state;
#define TOK(text) "tokenizer.json", "{" text "}"
#define BYTE_LEVEL "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": true}"
#define SPLIT(regex, behavior)                                                                               \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "    \
    "{\"Regex\": "                                                                                           \
    "\"" regex "\"}, \"behavior\": \"" behavior "\"}, {\"type\": \"ByteLevel\", \"use_regex\": false}]}"
    static const struct change changes[] = {
        {"tokenizer.json", NULL, "cannot open tokenizer.json"},
        {TOK("\"model\": {\"type\": \"Unigram\"}"),
         "the model of the tokenizer at byte 20 is Unigram, expected BPE"},
        {TOK(REPLACE ", \"model\": {\"type\": \"BPE\", \"fuse_unk\": true, \"merges\": []}"), "model.vocab"},
        {TOK(REPLACE ", \"model\": {\"type\": \"BPE\", " VOCAB ", \"merges\": []}"),
         "byte_fallback or fuse_unk"},
        {TOK(REPLACE ", \"model\": {\"type\": \"BPE\", \"fuse_unk\": true, \"dropout\": 0.5, " VOCAB
                     ", \"merges\": []}"),
         "dropout"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}"),
         "token 0 is 'a' and"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": -1}, \"merges\": []}"),
         "ids from 0 to 2^22"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": 4194304}, \"merges\": []}"),
         "ids from 0 to 2^22"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": 6}, \"merges\": []}"),
         "there is a token 6"},
        {TOK(REPLACE ", \"model\": {\"unk_token\": \"<unk>\", \"fuse_unk\": true, " VOCAB
                     ", \"merges\": [\"a b\"]}"),
         "merge 0 ('a b')"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, " VOCAB ", \"merges\": [[\"a\"]]}"), "two tokens"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, " VOCAB ", \"merges\": [[\"a b\", \"a\"]]}"),
         "without a space"},
        {TOK("\"normalizer\": {\"type\": \"NFKC\"}, " MODEL), "the normalizer at byte 25 is NFKC"},
        {TOK(MODEL), "spaces as U+2581"},
        {TOK(REPLACE ", \"pre_tokenizer\": {\"type\": \"Whitespace\"}, " MODEL),
         "is Whitespace, expected Metaspace"},
        {TOK(REPLACE ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"}, " MODEL),
         "Metaspace"},
        {TOK("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", "
             "\"prepend_scheme\": \"last\"}, " MODEL),
         "last, expected first"},
        {TOK(REPLACE ", \"post_processor\": {\"type\": \"BertProcessing\"}, " MODEL), "is BertProcessing"},
        {TOK(REPLACE ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                     "[{\"SpecialToken\": {\"id\": \"<x>\"}}]}, " MODEL),
         "one of the vocabulary"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 3, \"content\": \"b\"}], " MODEL), "token 3 is 'a' and"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 5, \"content\": \"b\", \"single_word\": true}], " MODEL),
         "single_word"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 5}], " MODEL), "an added token's content"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 5, \"content\": \"<unk>\"}], " MODEL), "twice"},
        {TOK(SPLIT("a+", "Isolated") ", " MODEL), "the first is 'a+'"},
        {TOK(SPLIT("\\\\p{N}", "MergedWithNext") ", " MODEL), "is MergedWithNext"},
        {TOK("\"normalizer\": {\"type\": \"Lowercase\"}, " BYTE_LEVEL ", " MODEL),
         "is Lowercase, expected NFC"},
        {TOK(BYTE_LEVEL ", " MODEL), "lacks a token for the byte 0xEF"},
    };
    EXPECT_ALL(changes);
}

static void test_tokens(void **state) {
    (void)state;
    struct err err = {0};
    struct token_buf ids = {0};
    static const char text[] = "a <s>  a b";
    write_sound();
    write_text("tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"a\", \"chat_template\": [{\"name\": "
               "\"default\", \"template\": \"T\"}], \"model_max_length\": 1000000000000000019884624838656}");
    write_text("generation_config.json", "{\"eos_token_id\": [3, 4], \"temperature\": 0.5, \"top_k\": 3}");
    struct tokenizer *t = tokenizer_open(folder, &err);
    if (!t)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_vocab(t), 6); // the embedding's rows: the last is unused
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 3);
    assert_true(tokenizer_is_end(t, 3) && tokenizer_is_end(t, 4) && !tokenizer_is_end(t, 2));
    assert_false(tokenizer_adds_bos(t));
    size_t len;
    assert_memory_equal(tokenizer_chat_template(t, &len), "T", 1);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), TOKENIZE_PARSE_SPECIAL, &ids), STATUS_OK);
    static const token_id expected[] = {3, 2, 1,
                                        3, 2, 0}; // <s> takes the spaces behind it, not the one before
    assert_int_equal(ids.len, 6);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    token_buf_free(&ids);
    tokenizer_free(t);
    struct sampling_advice advice;
    struct model_file *f = model_file_open(folder, &err);
    assert_non_null(f);
    model_config_advice(f, &advice);
    assert_true(advice.temperature == 0.5 && advice.top_k == 3 && advice.top_p == -1);
    model_file_close(f);
    write_text("chat_template.jinja", "U");
    t = tokenizer_open(folder, &err);
    assert_memory_equal(tokenizer_chat_template(t, &len), "U", 1);
    tokenizer_free(t);
}

static void link_file(const char *target, const char *name) {
    char path[512];
    remove_file(name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
}

static void test_files(void **state) {
    (void)state;
    char path[512], other[512];
    static const char first[] = "{\"weight_map\": {\"model.embed_tokens.weight\": ", second[] = "}}";
    static const struct {
        const char *file, *word;
    } names[] = {
        {"\"../x.safetensors\"", "expected the name of a file in the folder"},
        {"\"/etc/passwd\"", "expected the name of a file in the folder"},
        {"\".hidden\"", "expected the name of a file in the folder"},
        {"\"a/b\"", "expected the name of a file in the folder"},
        {"\"a\\u0000b\"", "expected the name of a file in the folder"},
        {"7", "expected the name of a file in the folder"},
        {"\"absent.safetensors\"", "cannot open absent.safetensors: No such file"},
        {"\"config.json\"", "no safetensors file"},
        {"\"b.safetensors\"", "tensor model.embed_tokens.weight at byte 17 is not in b.safetensors"},
    };
    write_sound();
    remove_file("model.safetensors");
    expect("no weights", "neither model.safetensors nor model.safetensors.index.json");
    write_shard("a.safetensors", 0, 5);
    write_shard("b.safetensors", 5, NUM_SHAPES);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s%s", first, names[i].file, second);
        write_text("model.safetensors.index.json", text);
        expect(text, names[i].word);
    }
    write_text("model.safetensors.index.json", "{\"weight_map\": {}}");
    expect("an empty index", "expected an object with tensors");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.embed_tokens.weight\": \"a.safetensors\", "
               "\"model.layers.0.mlp.down_proj.weight\": \"b.safetensors\"}}");
    expect("two shards", NULL);
    write_shard("b.safetensors", 4, NUM_SHAPES);
    expect("twice", "self_attn.q_proj.weight is in two files");

    static const char header[] =
        "{\"model.layers.0.mlp.x.weight\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}}";
    static char file[8 + sizeof header];
    write_sound();
    memcpy(file, &(uint64_t){sizeof header - 1}, 8);
    memcpy(file + 8, header, sizeof header - 1);
    write_file("model.safetensors", file, 8 + sizeof header - 1);
    expect(header, "tensor model.layers.0.mlp.x.weight is not part of model_type llama");

    // links: within the folder, to the blobs of a cache, elsewhere
    write_sound();
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/blobs/0123", root);
    assert_int_equal(rename(path, other), 0);
    link_file("../../blobs/0123", "model.safetensors");
    expect("a link to a blob", NULL);
    write_text("real.json", CONFIG(""));
    link_file("real.json", "config.json");
    expect("a link in the folder", NULL);
    snprintf(path, sizeof path, "%s/snapshots/config.json", root);
    snprintf(other, sizeof other, "%s/real.json", folder);
    assert_int_equal(rename(other, path), 0);
    link_file("../config.json", "config.json");
    expect("a link elsewhere", "outside the folder");
    remove_file("config.json");
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect("a FIFO", "not a regular file");
    remove_file("config.json");
    assert_int_equal(mkdir(path, 0700), 0);
    expect("a folder", "not a regular file");
    assert_int_equal(rmdir(path), 0);
}

static void test_cut(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    for (int i = 0; i < 3; i++) {
        char path[512];
        struct stat st;
        write_sound();
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        assert_int_equal(stat(path, &st), 0);
        for (off_t len = st.st_size - 1; len >= 0; len -= len > 2000 ? 97 : 1) {
            struct err err = {0};
            assert_int_equal(truncate(path, len), 0);
            struct model_file *f = model_file_open(folder, &err);
            if (f || err.code != STATUS_FORMAT || !strstr(err.msg, files[i]))
                fail_msg("%s cut at %lld: '%s'", files[i], (long long)len, err.msg);
        }
    }
}

static float value_at(const struct model_file *f, const char *name, uint64_t i) {
    const struct model_tensor *t = model_file_find(f, name);
    struct err err = {0};
    uint32_t u = 0;
    float v;
    assert_non_null(t);
    uint64_t size = t->view.dtype == DTYPE_F32 ? 4 : 2;
    if (model_file_read(f, t, i * size, size, (char *)&u + (4 - size), &err))
        fail_msg("%s", err.msg);
    memcpy(&v, &u, 4);
    return v;
}

static void test_tensors(void **state) {
    (void)state;
    struct err err = {0};
    struct stat st;
    char path[512], before[MODEL_HASH_BYTES], after[MODEL_HASH_BYTES];
    unsigned char whole[128], parts[128];
    write_sound();
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    // norms become F32; rows of q and k, in heads of 4, go from (0, 1, 2, 3) to (0, 2, 1, 3)
    assert_int_equal(model_file_find(f, "output_norm.weight")->view.dtype, DTYPE_F32);
    assert_true(value_at(f, "output_norm.weight", 7) == 107);
    assert_true(value_at(f, "token_embd.weight", 47) == 47);
    static const int order[] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int r = 0; r < 8; r++)
        assert_true(value_at(f, "blk.0.attn_q.weight", (uint64_t)(8 * r + 3)) ==
                    (float)((400 + 8 * order[r] + 3) & ~1));
    assert_true(value_at(f, "blk.0.attn_v.weight", 9) == (float)((600 + 9) & ~3));
    const struct model_tensor *q = model_file_find(f, "blk.0.attn_q.weight");
    assert_int_equal(model_file_read(f, q, 0, 128, whole, &err), STATUS_OK);
    for (uint64_t n = 1; n < 128; n += 7) // however it is read
        for (uint64_t at = 0; at + n <= 128; at += n) {
            assert_int_equal(model_file_read(f, q, at, n, parts, &err), STATUS_OK);
            assert_memory_equal(parts, whole + at, n);
        }
    assert_int_equal(model_hash_file(f, before, &err), STATUS_OK);
    model_file_close(f);

    // every file counts
    write_text("config.json", CONFIG(" "));
    f = model_file_open(folder, &err);
    assert_int_equal(model_hash_file(f, after, &err), STATUS_OK);
    assert_string_not_equal(before, after);

    // cut while it is open; then a NaN, in the file's own words
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    const struct model_tensor *down = model_file_find(f, "blk.0.ffn_down.weight");
    assert_int_equal(tensor_read(f, down, whole, &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "model.layers.0.mlp.down_proj.weight"));
    assert_non_null(strstr(err.msg, "of model.safetensors"));
    model_file_close(f);
    write_sound();
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -2, SEEK_END), 0);
    assert_int_equal(fwrite("\xc0\x7f", 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
    err = (struct err){0};
    f = model_file_open(folder, &err);
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), whole, &err), STATUS_FORMAT);
    char word[64];
    snprintf(word, sizeof word, "byte %lld of model.safetensors", (long long)st.st_size - 2);
    if (!strstr(err.msg, word))
        fail_msg("expected '%s' in '%s'", word, err.msg);
    model_file_close(f);

    // Gemma's norms are stored less one
    write_sound();
    write_text("config.json",
               "{\"model_type\": \"gemma\", \"head_dim\": 4, \"hidden_act\": \"gelu_pytorch_tanh\", " SIZES
               "}");
    f = model_file_open(folder, &err);
    assert_non_null(f);
    assert_true(value_at(f, "blk.0.ffn_norm.weight", 2) == 801);
    assert_true(value_at(f, "blk.0.attn_q.weight", 8) == 408); // and its pairs are apart
    model_file_close(f);
}

struct raw_tensor {
    const char *name, *type, *shape;
    const void *data;
    size_t bytes;
};

static void write_raw(const struct raw_tensor *t, int num) {
    static char text[8192];
    size_t n = 1, at = 0, data = 0;
    text[8] = '{';
    for (int i = 0; i < num; i++) {
        n += (size_t)snprintf(text + 8 + n, 2048 - n,
                              "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
                              i ? ", " : "", t[i].name, t[i].type, t[i].shape, at, at + t[i].bytes);
        at += t[i].bytes;
    }
    text[8 + n++] = '}';
    memcpy(text, &(uint64_t){n}, 8);
    for (int i = 0; i < num; i++) {
        memcpy(text + 8 + n + data, t[i].data, t[i].bytes);
        data += t[i].bytes;
    }
    write_file("model.safetensors", text, 8 + n + data);
}

#define DOWN "model.layers.0.mlp.down_proj.weight"
#define Q_PROJ "model.layers.0.self_attn.q_proj.weight"

static void test_quantised(void **state) {
    (void)state;
    // E4M3: 1, 2, -2, 448, 2^-9, 0, 0.5, 1.125
    static const unsigned char numbers[8] = {0x38, 0x40, 0xc0, 0x7e, 0x01, 0x00, 0x30, 0x39};
    static const float values[8] = {1, 2, -2, 448, 0x1p-9f, 0, 0.5f, 1.125f}, scales[4] = {0.5f, 3, 0.25f, 1};
    static const uint16_t channels[8] = {0x3e80, 0x3f80, 0x4000, 0x3e80,
                                         0x3f80, 0x4000, 0x3e80, 0x3f80}; // .25, 1, 2
    static const uint16_t groups[2] = {0x3c00, 0xbe80};                   // 2^-7, -.25
    static unsigned char fp8[8 * 8], int8[8 * 8], int4[32];
    struct err err = {0};
    for (int i = 0; i < 64; i++) {
        fp8[i] = numbers[i % 8];
        int8[i] = (unsigned char)(i - 32);
    }
    for (int i = 0; i < 32; i++)
        int4[i] = (unsigned char)(i % 16 | (15 - i % 16) << 4);
    write_sound();
    write_text(
        "config.json",
        CONFIG(", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [4, 4]}"));
    // blocks of 4 rows and 4 columns; rows of q in another order; a scale for each row
    write_raw((struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", fp8, 64},
                                    {DOWN "_scale_inv", "F32", "2, 2", scales, 16},
                                    {Q_PROJ, "I8", "8, 8", int8, 64},
                                    {Q_PROJ "_scale", "BF16", "8, 1", channels, 16}},
              4);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    for (uint64_t i = 0; i < 64; i++)
        if (value_at(f, "blk.0.ffn_down.weight", i) != values[i % 8] * scales[i / 32 * 2 + i % 8 / 4])
            fail_msg("element %d is %g", (int)i, (double)value_at(f, "blk.0.ffn_down.weight", i));
    assert_true(value_at(f, "blk.0.attn_q.weight", 0) == -32 * 0.25f);
    assert_true(value_at(f, "blk.0.attn_q.weight", 9) == (2 * 8 + 1 - 32) * 2.0f); // row 2 of the file
    uint16_t all[64];
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), all, &err), STATUS_OK);
    assert_int_equal(all[32], 0x3e80);
    model_file_close(f);

    // int4 keeps its numbers: eight more than they mean, low and high halves of a block apart
    write_text("config.json", CONFIG(", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                                     "\"format\": \"pack-quantized\"}"));
    struct raw_tensor packed[] = {{DOWN "_packed", "I32", "1, 8", int4, 32},
                                  {DOWN "_scale", "BF16", "1, 2", groups, 4},
                                  {DOWN "_zero_point", "I32", "1, 2", int4, 8}};
    write_raw(packed, 2);
    f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    const struct model_tensor *t = model_file_find(f, "blk.0.ffn_down.weight");
    unsigned char blocks[36];
    assert_true(t->view.dtype == DTYPE_Q4_0 && t->view.shape[1] == 64 && t->bytes == 36);
    assert_int_equal(tensor_read(f, t, blocks, &err), STATUS_OK);
    assert_memory_equal(blocks, "\x00\x20", 2);
    assert_memory_equal(blocks + 18, "\x00\xb4", 2);
    for (int i = 0; i < 32; i++) {
        int first = i / 16 * 32 + i % 16, second = first + 16; // numbers of the row
        int low = int4[first / 2] >> 4 * (first % 2) & 15, high = int4[second / 2] >> 4 * (second % 2) & 15;
        assert_int_equal(blocks[2 + i / 16 * 18 + i % 16], low | high << 4);
    }
    model_file_close(f);

    // what does not fit
    static const uint16_t fine[2] = {0x3c00, 0x0080};
    packed[1].data = fine;
    write_raw(packed, 2);
    f = model_file_open(folder, &err);
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), blocks, &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "no number of F16"));
    model_file_close(f);
    write_raw(packed, 3);
    expect("zero points", "tensor model.layers.0.mlp.down_proj.weight_zero_point is not part");
    write_raw(packed, 1);
    expect("no scales", "expected scales");
    packed[1].shape = "2, 1";
    write_raw(packed, 2);
    expect("scales of two rows", "expected scales");
    packed[1].shape = "1, 2";
    packed[0].shape = "2, 4";
    write_raw(packed, 2);
    expect("groups of 16", "expected scales");
    write_raw((struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", fp8, 64},
                                    {DOWN "_scale_inv", "F32", "2, 2", scales, 16}},
              2);
    expect("blocks of no size", "expected scales");
    fp8[3] = 0x7f;
    write_raw(
        (struct raw_tensor[]){{DOWN, "F8_E4M3", "8, 8", fp8, 64}, {DOWN "_scale", "F32", "", scales, 4}}, 2);
    err = (struct err){0};
    f = model_file_open(folder, &err);
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), all, &err), STATUS_FORMAT);
    assert_non_null(strstr(err.msg, "NaN"));
    model_file_close(f);
}

// Experts of gpt-oss: exponents and blocks apart, gate and up in turns.
static void test_mxfp4(void **state) {
    (void)state;
    enum { EXPERTS = 2, ROWS = 4 };
    unsigned char blocks[EXPERTS * ROWS * 16], scales[EXPERTS * ROWS], made[EXPERTS * ROWS / 2 * 17];
    float biases[EXPERTS * ROWS];
    struct err err = {0};
    for (int i = 0; i < EXPERTS * ROWS * 16; i++)
        blocks[i] = (unsigned char)(i * 37);
    for (int i = 0; i < EXPERTS * ROWS; i++)
        scales[i] = (unsigned char)(100 + i), biases[i] = (float)i;
    write_sound();
    write_text("config.json", "{\"model_type\": \"gpt_oss\", " SIZES "}");
#define EXPERT "model.layers.0.mlp.experts.gate_up_proj_"
    struct raw_tensor raw[] = {{EXPERT "blocks", "U8", "2, 4, 1, 16", blocks, sizeof blocks},
                               {EXPERT "scales", "U8", "2, 4, 1", scales, sizeof scales},
                               {EXPERT "bias", "F32", "2, 4", biases, sizeof biases}};
    write_raw(raw, 3);
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    for (int up = 0; up < 2; up++) {
        const struct model_tensor *t =
            model_file_find(f, up ? "blk.0.ffn_up_exps.weight" : "blk.0.ffn_gate_exps.weight");
        assert_true(t->view.dtype == DTYPE_MXFP4 && t->view.ndim == 3 && t->bytes == sizeof made);
        assert_true(t->view.shape[0] == 2 && t->view.shape[1] == 2 && t->view.shape[2] == 32);
        assert_int_equal(tensor_read(f, t, made, &err), STATUS_OK);
        for (int r = 0; r < EXPERTS * ROWS / 2; r++) {
            const unsigned char *from = blocks + (2 * r + up) * 16, *to = made + r * 17;
            assert_int_equal(to[0], scales[2 * r + up]);
            for (int i = 0; i < 32; i++)
                assert_int_equal(to[1 + i % 16] >> i / 16 * 4 & 15, from[i / 2] >> i % 2 * 4 & 15);
            assert_true(value_at(f, up ? "blk.0.ffn_up_exps.bias" : "blk.0.ffn_gate_exps.bias",
                                 (uint64_t)r) == (float)(2 * r + up));
        }
    }
    model_file_close(f);
    write_raw(raw, 1);
    expect("no exponents", "expected blocks of 16 bytes, and _scales that fit them");
    raw[1].shape = "2, 2, 2";
    write_raw(raw, 2);
    expect("exponents of other rows", "expected blocks of 16 bytes, and _scales that fit them");
    raw[0].shape = "1, 1, 8, 16", raw[1].shape = "1, 1, 8";
    write_raw(raw, 2);
    expect("no row for up", "has 1 rows, expected 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),       cmocka_unit_test(test_header),  cmocka_unit_test(test_config),
        cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_tokens),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_cut),        cmocka_unit_test(test_tensors), cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_mxfp4),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
