// Adapter files: what PEFT folders and GGUF files give, what is refused and how; cut at every length.
#include "../tools/gguf_write.h"
#include "half.h"
#include "harness.h"
#include "models/adapter.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { D = 8, H = 2, K = 1, HD = 4, F = 6, MAX_RANK = 4 };

static char folder[] = "/tmp/quire-adapter-XXXXXX", gguf[64];

// One layer; the model is told apart by its architecture and what `experts` and `gate` say.
static struct model_config model(const char *arch, bool experts) {
    struct model_config m = {.num_layers = 1, .hidden = D, .vocab = 16, .num_attn = 1, .num_ffn = 1};
    snprintf(m.arch, sizeof m.arch, "%s", arch);
    m.attn[0] = (struct attn_spec){.heads = H, .kv_heads = K, .head_dim = HD};
    m.ffn[0] = (struct ffn_spec){.hidden = F, .experts = experts ? 4 : 0};
    m.layers[0].mix = MODEL_NO_SPEC;
    return m;
}

// ---- writing

struct entry {
    const char *name; // of PEFT behind "base_model.model.model.layers.", or whole where it begins with '/'
    int rows, cols;
    const char *type; // NULL: F32
};

static void write_file(const char *path, const void *data, size_t len) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static const char *in_folder(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

// Element i of tensor t is i + 100 t. Returns the bytes of the file.
static size_t write_tensors(const struct entry *e, int n) {
    static unsigned char file[1 << 16];
    char *text = (char *)file + 8;
    size_t len = 1, at = 0;
    memset(file, 0, sizeof file);
    text[0] = '{';
    for (int t = 0; t < n; t++) {
        size_t size = e[t].type ? 2 : 4, bytes = (size_t)(e[t].rows * e[t].cols) * size;
        bool whole = e[t].name[0] == '/';
        len += (size_t)sprintf(
            text + len, "%s\"%s%s\": {\"dtype\": \"%s\", \"shape\": [%d, %d], \"data_offsets\": [%zu, %zu]}",
            t ? ", " : "", whole ? "" : "base_model.model.model.layers.", e[t].name + whole,
            e[t].type ? e[t].type : "F32", e[t].rows, e[t].cols, at, at + bytes);
        at += bytes;
    }
    text[len++] = '}';
    uint64_t header = len;
    memcpy(file, &header, 8);
    unsigned char *data = file + 8 + len;
    for (int t = 0; t < n; t++)
        for (int i = 0; i < e[t].rows * e[t].cols; i++) {
            float v = (float)(i + 100 * t);
            uint16_t h = e[t].type && !strcmp(e[t].type, "F16") ? float_to_half(v) : float_to_bf16(v);
            memcpy(data, e[t].type ? (void *)&h : (void *)&v, e[t].type ? 2 : 4);
            data += e[t].type ? 2 : 4;
        }
    write_file(in_folder("adapter_model.safetensors"), file, (size_t)(data - file));
    return (size_t)(data - file);
}

static void write_config(const char *text) {
    write_file(in_folder("adapter_config.json"), text, strlen(text));
}

static float element(const struct tensor *t, int row, int col) {
    size_t i = (size_t)row * (size_t)t->shape[1] + (size_t)col;
    if (t->dtype == DTYPE_F32)
        return ((const float *)t->data)[i];
    uint16_t h = ((const uint16_t *)t->data)[i];
    return t->dtype == DTYPE_F16 ? half_to_float(h) : bf16_to_float(h);
}

static struct adapter_file read_good(const char *path, const struct model_config *m) {
    struct adapter_file a;
    struct err err = {0};
    if (adapter_file_read(&a, path, m, MAX_RANK, &err) != STATUS_OK)
        fail_msg("%s", err.msg);
    return a;
}

static void read_bad(const char *path, const struct model_config *m, const char *word) {
    struct adapter_file a;
    struct err err = {0};
    enum status st = adapter_file_read(&a, path, m, MAX_RANK, &err);
    adapter_file_free(&a);
    if (st == STATUS_OK || !strstr(err.msg, word))
        fail_msg("expected '%s', found '%s'", word, st == STATUS_OK ? "no error" : err.msg);
}

#define CONFIG(more) "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 6" more "}"

static const struct entry all[] = {
    {"0.self_attn.q_proj.lora_A.weight", 2, D, NULL},
    {"0.self_attn.q_proj.lora_B.weight", H *HD, 2, NULL},
    {"0.self_attn.k_proj.lora_A.weight", 2, D, "BF16"},
    {"0.self_attn.k_proj.lora_B.weight", K *HD, 2, NULL},
    {"0.self_attn.v_proj.lora_A.weight", 3, D, NULL},
    {"0.self_attn.v_proj.lora_B.weight", K *HD, 3, "F16"},
    {"0.self_attn.o_proj.lora_A.weight", 1, H *HD, "F16"},
    {"0.self_attn.o_proj.lora_B.weight", D, 1, NULL},
    {"0.mlp.gate_proj.lora_A.weight", 2, D, "BF16"},
    {"0.mlp.gate_proj.lora_B.weight", F, 2, NULL},
    {"0.mlp.up_proj.lora_A.weight", 2, D, NULL},
    {"0.mlp.up_proj.lora_B.weight", F, 2, NULL},
    {"0.mlp.down_proj.lora_A.weight", 4, F, "BF16"},
    {"0.mlp.down_proj.lora_B.weight", D, 4, NULL},
};
enum { NUM_ALL = sizeof all / sizeof *all };

// ---- PEFT

TEST(test_peft) {
    const struct model_config m = model("llama", false);
    write_tensors(all, NUM_ALL);
    write_config(CONFIG(", \"alpha_pattern\": {\"v_proj\": 9, \"^model.layers.0.mlp.up_proj\": 4, "
                        "\"^k_proj\": 7, \"roj\": 5}"));
    struct adapter_file a = read_good(folder, &m);
    static const float scales[] = {3, 3, 3, 6, 3, 2, 1.5f};
    for (int t = 0; t < ADAPTER_TARGETS; t++) {
        const struct adapter_matrix *x = &a.matrices[t];
        assert_true(x->scale == scales[t]);
        for (int i = 0; i < all[2 * t].rows; i++)
            for (int k = 0; k < all[2 * t].cols; k++)
                assert_true(fabsf(element(&x->a, i, k) - (float)(200 * t + i * all[2 * t].cols + k)) <= 4);
    }
    assert_int_equal(a.rank, 4);
    assert_int_equal(a.matrices[ADAPTER_K].a.dtype, DTYPE_BF16);
    assert_int_equal(a.matrices[ADAPTER_V].b.dtype, DTYPE_F16);
    assert_int_equal(a.matrices[ADAPTER_OUT].a.dtype, DTYPE_F32); // 8 columns are cut between pairs
    assert_int_equal(a.matrices[ADAPTER_DOWN].a.dtype, DTYPE_F32);
    // Pairs (i, i + 2) of a head of 4 become neighbours in q and k, and in these alone.
    static const int order[] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int i = 0; i < H * HD; i++)
        assert_true(element(&a.matrices[ADAPTER_Q].b, i, 1) == (float)(100 + 2 * order[i] + 1));
    for (int i = 0; i < K * HD; i++) {
        assert_true(element(&a.matrices[ADAPTER_K].b, i, 0) == (float)(300 + 2 * order[i]));
        assert_true(element(&a.matrices[ADAPTER_V].b, i, 0) == (float)(500 + 3 * i));
    }
    adapter_file_free(&a);
    write_config(CONFIG(", \"use_rslora\": true"));
    a = read_good(folder, &m);
    assert_true(a.matrices[ADAPTER_DOWN].scale == 3 && a.matrices[ADAPTER_Q].scale == (float)(6 / sqrt(2)));
    adapter_file_free(&a);
    const struct model_config other = model("qwen2", false); // whose pairs lie apart
    write_config(CONFIG(""));
    a = read_good(folder, &other);
    for (int i = 0; i < H * HD; i++)
        assert_true(element(&a.matrices[ADAPTER_Q].b, i, 1) == (float)(100 + 2 * i + 1));
    adapter_file_free(&a);
    write_tensors(all + 4, 2); // some matrices alone
    a = read_good(folder, &m);
    assert_null(a.matrices[ADAPTER_Q].a.data);
    assert_non_null(a.matrices[ADAPTER_V].a.data);
    adapter_file_free(&a);
}

TEST(test_fused) {
    const struct model_config m = model("phi3", false);
    static const struct entry e[] = {{"0.self_attn.qkv_proj.lora_A.weight", 2, D, NULL},
                                     {"0.self_attn.qkv_proj.lora_B.weight", (H + 2 * K) * HD, 2, NULL},
                                     {"0.mlp.gate_up_proj.lora_A.weight", 2, D, NULL},
                                     {"0.mlp.gate_up_proj.lora_B.weight", 2 * F, 2, NULL}};
    write_config(CONFIG(""));
    write_tensors(e, 4);
    struct adapter_file a = read_good(folder, &m);
    static const int before[] = {0, H * HD, (H + K) * HD};
    for (int t = ADAPTER_Q; t <= ADAPTER_V; t++)
        assert_true(element(&a.matrices[t].b, 1, 0) == (float)(100 + 2 * (before[t] + 1)));
    assert_true(element(&a.matrices[ADAPTER_GATE].b, 1, 0) == 302);
    assert_true(element(&a.matrices[ADAPTER_UP].b, 1, 0) == (float)(300 + 2 * (F + 1)));
    assert_true(element(&a.matrices[ADAPTER_UP].a, 1, 1) == (float)(200 + D + 1));
    adapter_file_free(&a);
    struct entry twice[] = {e[0], e[1], {"0.self_attn.q_proj.lora_A.weight", 2, D, NULL}};
    write_tensors(twice, 3);
    read_bad(folder, &m, "are for the same matrix");
}

TEST(test_peft_refusals) {
    static const struct {
        const char *config, *word;
    } configs[] = {
        {"[]", "peft_type"},
        {"{\"peft_type\": \"IA3\", \"lora_alpha\": 6}", "peft_type"},
        {"{\"peft_type\": \"LORA\"}", "lora_alpha"},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": NaN}", "lora_alpha"},
        {CONFIG(", \"use_dora\": true"), "use_dora is set at byte"},
        {CONFIG(", \"bias\": \"all\""), "bias is set"},
        {CONFIG(", \"lora_bias\": true"), "lora_bias"},
        {CONFIG(", \"modules_to_save\": [\"lm_head\"]"), "modules_to_save"},
        {CONFIG(", \"trainable_token_indices\": [1]"), "trainable_token_indices"},
        {CONFIG(", \"layer_replication\": [[0, 1]]"), "layer_replication"},
        {CONFIG(", \"target_parameters\": [\"x\"]"), "target_parameters"},
        {CONFIG(", \"alora_invocation_tokens\": [1]"), "alora_invocation_tokens"},
        {CONFIG(", \"init_lora_weights\": \"pissa_niter_4\""), "pissa_niter_4"},
        {CONFIG(", \"alpha_pattern\": [1]"), "alpha_pattern is"},
        {CONFIG(", \"alpha_pattern\": {\"q.*\": 1}"), "regular expression"},
        {CONFIG(", \"alpha_pattern\": {\"q_proj\": \"x\"}"), "no finite number"},
    };
    static const struct {
        struct entry e[4];
        int n;
        const char *word;
    } lists[] = {
        {{{"0.self_attn.q_proj.lora_A.weight", 2, D, NULL}}, 0, "has no tensors"},
        {{{"0.self_attn.q_proj.lora_A.weight", 2, D, NULL}}, 1, "has no counterpart"},
        {{{"0.self_attn.q_proj.lora_B.weight", H * HD, 2, NULL}}, 1, "has no counterpart"},
        {{{"0.self_attn.q_proj.lora_A.weight", 2, D, NULL},
          {"0.self_attn.q_proj.lora_B.weight", H * HD, 3, NULL}},
         2,
         "has rank 2, and its counterpart 3"},
        {{{"0.self_attn.q_proj.lora_A.weight", 2, D + 1, NULL}}, 1, "the second of 9; expected 2, of 8"},
        {{{"0.self_attn.k_proj.lora_B.weight", H * HD, 2, NULL}}, 1, "the first of 8; expected 2, of 4"},
        {{{"0.self_attn.q_proj.lora_A.weight", 5, D, NULL}}, 1, "has rank 5, expected 1 to 4"},
        {{{"0.self_attn.q_proj.lora_A.weight", 2, D, "I16"}}, 1, "has type I16, expected F32"},
        {{{"1.self_attn.q_proj.lora_A.weight", 2, D, NULL}}, 1, "takes no adapter"},
        {{{"0.self_attn.w_proj.lora_A.weight", 2, D, NULL}}, 1, "w_proj.lora_A.weight is for a part"},
        {{{"0.input_layernorm.lora_A.weight", 2, D, NULL}}, 1, "takes no adapter"},
        {{{"/base_model.model.lm_head.lora_A.weight", 2, D, NULL}}, 1, "lm_head.lora_A.weight is for a part"},
        {{{"/base_model.model.model.embed_tokens.lora_embedding_A", 2, 16, NULL}}, 1, "is no lora_A.weight"},
        {{{"0.self_attn.q_proj.lora_magnitude_vector", 2, D, NULL}}, 1, "is no lora_A.weight"},
        {{{"/base_model.model.visual.q_proj.lora_A.weight", 2, D, NULL}}, 1, "is for a part"},
        {{{"0.self_attn.q_proj.lora_A.weight", 2, D, NULL},
          {"/model.layers.0.self_attn.q_proj.lora_A.weight", 2, D, NULL}},
         2,
         "is there twice"},
    };
    const struct model_config m = model("llama", false), experts = model("qwen3moe", true);
    write_tensors(all, NUM_ALL);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        write_config(configs[i].config);
        read_bad(folder, &m, configs[i].word);
    }
    write_config(
        CONFIG(", \"init_lora_weights\": \"gaussian\", \"bias\": \"none\", \"modules_to_save\": null"));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        write_tensors(lists[i].e, lists[i].n);
        read_bad(folder, &m, lists[i].word);
    }
    write_tensors(all + 8, 2);
    read_bad(folder, &experts, "takes no adapter");
    write_tensors(all, 2);
    write_config("{\"peft_type\": \"LORA\", \"lora_alpha\": 1e300}");
    read_bad(folder, &m, "has the scale 5e+299");
    write_tensors(all, 2);
    unlink(in_folder("adapter_config.json"));
    read_bad(folder, &m, "adapter_config.json");
    read_bad("/nowhere", &m, "nowhere");
}

// ---- GGUF

static void write_gguf(const char *arch, const char *type, double alpha, const char *end, float first) {
    struct gguf_writer w = {0};
    float data[64] = {first};
    for (int i = 1; i < 64; i++)
        data[i] = (float)i;
    gw_str(&w, "general.type", type);
    gw_str(&w, "general.architecture", arch);
    gw_str(&w, "adapter.type", "lora");
    if (!isnan(alpha))
        gw_f32(&w, "adapter.lora.alpha", (float)alpha);
    char name[64];
    snprintf(name, sizeof name, "blk.0.attn_q.weight%s", end);
    gw_tensor(&w, name, 0, 2, (uint64_t[]){D, 2}, data, 4 * 2 * D);
    gw_tensor(&w, "blk.0.attn_q.weight.lora_b", 0, 2, (uint64_t[]){2, H * HD}, data, 4 * 2 * H * HD);
    size_t size;
    unsigned char *file = gw_finish(&w, &size);
    write_file(gguf, file, size);
    free(file);
}

TEST(test_gguf) {
    const struct model_config m = model("llama", false);
    write_gguf("llama", "adapter", 8, ".lora_a", 7);
    struct adapter_file a = read_good(gguf, &m);
    assert_true(a.matrices[ADAPTER_Q].scale == 4);
    assert_true(element(&a.matrices[ADAPTER_Q].a, 0, 0) == 7);
    for (int i = 1; i < H * HD; i++) // in the order of the architecture already
        assert_true(element(&a.matrices[ADAPTER_Q].b, i, 1) == (float)(2 * i + 1));
    adapter_file_free(&a);
    write_gguf("llama", "adapter", 0, ".lora_a", 7); // as llama.cpp reads it
    a = read_good(gguf, &m);
    assert_true(a.matrices[ADAPTER_Q].scale == 1);
    adapter_file_free(&a);
    static const struct {
        const char *arch, *type;
        double alpha;
        const char *end;
        float first;
        const char *word;
    } cases[] = {
        {"qwen2", "adapter", 8, ".lora_a", 7, "general.architecture is 'qwen2', expected 'llama'"},
        {"llama", "model", 8, ".lora_a", 7, "general.type is 'model'"},
        {"llama", "adapter", NAN, ".lora_a", 7, "adapter.lora.alpha"},
        {"llama", "adapter", 8, ".lora_c", 7, "neither lora_a nor lora_b"},
        {"llama", "adapter", 8, "", 7, "neither lora_a nor lora_b"},
        {"llama", "adapter", 8, ".lora_a", NAN, "NaN"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_gguf(cases[i].arch, cases[i].type, cases[i].alpha, cases[i].end, cases[i].first);
        read_bad(gguf, &m, cases[i].word);
    }
}

// ---- damage

static void cut_everywhere(const char *path, const char *file) {
    const struct model_config m = model("llama", false);
    struct stat info;
    assert_int_equal(stat(file, &info), 0);
    struct adapter_file a;
    for (off_t n = info.st_size - 1; n >= 0; n--) {
        assert_int_equal(truncate(file, n), 0);
        enum status st = adapter_file_read(&a, path, &m, MAX_RANK, NULL);
        assert_true(st == STATUS_FORMAT || st == STATUS_IO);
        adapter_file_free(&a);
    }
}

TEST(test_cut) {
    write_config(CONFIG(""));
    write_tensors(all, 4);
    cut_everywhere(folder, in_folder("adapter_model.safetensors"));
    write_tensors(all, 4);
    cut_everywhere(folder, in_folder("adapter_config.json"));
    write_gguf("llama", "adapter", 8, ".lora_a", 7);
    cut_everywhere(gguf, gguf);
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    snprintf(gguf, sizeof gguf, "%s.gguf", folder);
    int failed = run_all_tests(NULL, NULL);
    unlink(in_folder("adapter_model.safetensors"));
    unlink(in_folder("adapter_config.json"));
    unlink(gguf);
    rmdir(folder);
    return failed;
}
