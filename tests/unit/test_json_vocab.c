// tokenizer.json: the ids that the tokenizers library gives texts of some thirty scripts (vocab_folders.json, hashes made by
// tests/tools/make_vocab_folder.py), those that sentencepiece and tiktoken give from their files, and the vectors of the test
// data.
#include "vocabularies.h"

#include "text/tokenizer_load.h"
#include "text/tokenizer_patterns.h"
#include "text/tokenizer_pre.h"

#include <jansson.h>
#include <unistd.h>

static bool check(const struct tokenizer *t, const json_t *text, const json_t *ids, const char *what) {
    struct token_buf b = {0};
    size_t n = json_array_size(ids);
    assert_int_equal(tokenizer_encode(t, json_string_value(text), json_string_length(text), 0, &b),
                     STATUS_OK);
    bool same = b.len == n;
    for (size_t i = 0; same && i < n; i++)
        same = b.ids[i] == (token_id)json_integer_value(json_array_get(ids, i));
    if (!same)
        printf("  %s: '%s' has %zu ids, expected %zu\n", what, json_string_value(text), b.len, n);
    token_buf_free(&b);
    return same;
}

static struct tokenizer *open_folder(const char *name) {
    char path[4096];
    struct err err = {0};
    const char *where = getenv("QUIRE_VOCABULARIES");
    snprintf(path, sizeof path, "%s/vocab-folders/%s", where ? where : QUIRE_BINARY_DIR "/tests", name);
    if (access(path, R_OK) != 0) {
        if (getenv("QUIRE_REQUIRE_DATA"))
            fail_msg("no folder %s", path);
        skip();
    }
    struct tokenizer *t = tokenizer_open(path, &err);
    if (!t)
        fail_msg("%s", err.msg);
    return t;
}

// The CRC-32 of ids as little-endian words.
static uint32_t hash_of(const struct token_buf *b) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 4 * b->len; i++) {
        crc ^= (uint32_t)b->ids[i / 4] >> (8 * (i % 4)) & 255;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

// what NULL: says nothing.
static bool check_hash(const struct tokenizer *t, const json_t *text, const json_t *hash, const char *what) {
    struct token_buf b = {0};
    assert_int_equal(
        tokenizer_encode(t, json_string_value(text), json_string_length(text), TOKENIZE_PARSE_SPECIAL, &b),
        STATUS_OK);
    bool same = hash_of(&b) == (uint32_t)json_integer_value(hash);
    if (!same && what) {
        printf("  %s: '%s' has other ids:", what, json_string_value(text));
        for (size_t i = 0; i < b.len && i < 40; i++)
            printf(" %d", b.ids[i]);
        printf("\n");
    }
    token_buf_free(&b);
    return same;
}

TEST(test_scripts) {
    json_t *all = json_load_file(QUIRE_SOURCE_DIR "/tests/unit/vocab_folders.json", JSON_ALLOW_NUL, NULL),
           *ids;
    json_t *texts = json_object_get(all, "texts");
    const char *name;
    int vocabularies = 0;
    bool all_good = true;
    assert_true(json_array_size(texts) > 80);
    json_object_foreach(all, name, ids) {
        if (ids == texts || strncmp(name, "gguf-", 5) == 0)
            continue;
        struct tokenizer *t = open_folder(name);
        bool good = true;
        for (size_t i = 0; i < json_array_size(texts); i++)
            good &= check_hash(t, json_array_get(texts, i), json_array_get(ids, i), name);
        all_good &= good;
        tokenizer_free(t);
        vocabularies++;
    }
    assert_true(all_good);
    assert_int_equal(vocabularies, 50);
    json_decref(all);
}

// The same vocabularies in GGUF files. Their characters are mapped as SentencePiece does it, not as the tokenizers library:
// `others` of the texts have marks for which that makes a difference.
static void check_gguf(const char *name, int others) {
    json_t *all = json_load_file(QUIRE_SOURCE_DIR "/tests/unit/vocab_folders.json", JSON_ALLOW_NUL, NULL);
    json_t *texts = json_object_get(all, "texts"), *hashes = json_object_get(all, name);
    char file[64];
    snprintf(file, sizeof file, "%s.gguf", name);
    struct tokenizer *t = open_folder(file);
    int differ = 0;
    for (size_t i = 0; i < json_array_size(texts); i++)
        differ += !check_hash(t, json_array_get(texts, i), json_array_get(hashes, i), others ? NULL : file);
    assert_int_equal(differ, others);
    tokenizer_free(t);
    json_decref(all);
}

TEST(test_gguf) {
    check_gguf("bert", 0);
    check_gguf("sentencepiece", 3);
}

// ---- GPT-2's tokens, whose words are cut as names of GGUF files say

static struct model_file *open_gpt2(void) {
    const char *where = getenv("QUIRE_VOCABULARIES");
    char path[4096];
    struct err err = {0};
    snprintf(path, sizeof path, "%s/" GPT2, where ? where : QUIRE_BINARY_DIR "/tests");
    struct model_file *f = model_file_open(path, &err);
    if (!f)
        fail_msg("%s", err.msg);
    return f;
}

// value has room for a name, and lives as long as f says it.
static void set_name(struct model_file *f, const char *name, size_t len, unsigned char value[64]) {
    memcpy(value, &(uint64_t){len}, 8);
    memcpy(value + 8, name, len);
    for (uint64_t i = 0; i < f->num_meta; i++)
        if (f->meta[i].key.len == 18 && memcmp(f->meta[i].key.data, "tokenizer.ggml.pre", 18) == 0)
            f->meta[i].value = value;
}

static enum status add_word(void *arg, const char *word, size_t len) {
    uint32_t *hash = arg;
    (void)word;
    *hash = (*hash ^ (uint32_t)len) * 0x9e3779b1u;
    return STATUS_OK;
}

// Lengths of the words of all texts, and what else a name says.
static uint32_t hash_cuts(const struct model_file *f, const json_t *texts) {
    struct err err = {0};
    struct pretokenizer *p = pretokenizer_open(f, &err);
    if (!p)
        fail_msg("%s", err.msg);
    uint32_t hash = (uint32_t)pretokenizer_adds_bos(p) | (uint32_t)pretokenizer_wants_nfc(p) << 1 |
                    (uint32_t)pretokenizer_ignores_merges(p) << 2;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        assert_int_equal(
            pretokenizer_cut(p, json_string_value(text), json_string_length(text), true, add_word, &hash),
            STATUS_OK);
        add_word(&hash, "", 0);
    }
    pretokenizer_free(p);
    return hash;
}

// The ids of the first of names are those of the golden; the others cut as it does.
TEST(test_names) {
    static const char *const names[][2] = {
        {"phi-2 gpt-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe gigachat "
         "a.x-4.0 mellum exaone4 jais trillion granite-docling",
         "gpt2"},
        {"olmo mpt modern-bert", "norm-nfc"},
        {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", "gguf-llama-bpe"},
        {"qwen2 deepseek-r1-qwen megrez f2llmv2", "gguf-qwen2"},
        {"stablelm2 hunyuan kormo grok-2 solar-open", "gguf-stablelm2"},
        {"laguna", "gguf-laguna"},
        {"dbrx smaug-bpe glm4 chatglm-bpe", "gguf-dbrx"},
        {"minicpm5", "gguf-minicpm5"},
        {"qwen35", "qwen35"},
        {"seed-coder", "seed-coder"},
        {"bailingmoe2 bailingmoe llada-moe", "pre-bailing"},
        {"exaone-moe", "pre-exaone-moe"},
        {"jais-2", "gguf-jais-2"},
        {"llama4 gpt-4o kanana2 talkie minimax-m2", "gpt-4o"},
        {"granite-embed-multi-97m", "gguf-granite-embed-multi-97m"},
        {"tekken", "gguf-tekken"},
        {"youtu", "gguf-youtu"},
        {"kimi-k2", "pre-kimi"},
        {"hunyuan-dense deepseek-v3 joyai-llm", "deepseek-v3"},
        {"deepseek-llm", "gguf-deepseek-llm"},
        {"deepseek-coder", "gguf-deepseek-coder"},
        {"command-r starcoder refact smollm exaone codeshell minerva-7b mellum2", "digits"},
        {"bloom poro-chat gpt3-finnish", "pre-bloom"},
        {"viking", "gguf-viking"},
        {"tiny_aya cohere2moe", "gguf-tiny_aya"},
        {"afmoe", "gguf-afmoe"},
        {"superbpe", "gguf-superbpe"},
        {"chameleon", "gguf-chameleon"},
        {"falcon", "gguf-falcon"},
        {"default", "gguf-default"},
    };
    enum { NUM = sizeof names / sizeof names[0] };
    if (access(QUIRE_BINARY_DIR "/tests/" GPT2, R_OK) != 0 && !getenv("QUIRE_REQUIRE_DATA"))
        skip();
    json_t *all = json_load_file(QUIRE_SOURCE_DIR "/tests/unit/vocab_folders.json", JSON_ALLOW_NUL, NULL);
    json_t *texts = json_object_get(all, "texts");
    struct model_file *f = open_gpt2();
    unsigned char value[64];
    struct err err = {0};
    bool good = true;
    int known = 0, checked = 0;
    for (int i = 0; i < num_pre_kinds; i++)
        for (const char *p = pre_kinds[i].names; p; p = strchr(p + 1, ' '))
            known++;
    for (size_t n = 0; n < NUM; n++) {
        const json_t *hashes = json_object_get(all, names[n][1]);
        uint32_t first = 0;
        for (const char *p = names[n][0]; *p; checked++) {
            size_t len = strcspn(p, " ");
            set_name(f, p, len, value);
            if (p == names[n][0]) {
                struct tokenizer *t = tokenizer_load(f, &err);
                if (!t)
                    fail_msg("%s", err.msg);
                assert_int_equal(json_array_size(hashes), json_array_size(texts));
                for (size_t i = 0; i < json_array_size(texts); i++)
                    good &= check_hash(t, json_array_get(texts, i), json_array_get(hashes, i), names[n][0]);
                tokenizer_free(t);
                first = hash_cuts(f, texts);
            } else if (hash_cuts(f, texts) != first) {
                fail_msg("%.*s cuts otherwise than the first of '%s'", (int)len, p, names[n][0]);
            }
            p += len + (p[len] == ' ');
        }
    }
    assert_true(good);
    assert_int_equal(checked, known); // none of the table is left out
    model_file_close(f);
    json_decref(all);
}

static void check_lines(const char *vocabulary, const char *file) {
    struct tokenizer *t = open_folder(vocabulary);
    size_t len, cases = 0, bad = 0;
    if (!test_data(file))
        skip();
    char *all = read_file(test_data(file), &len);
    for (char *line = all, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *c = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        bad += !check(t, json_object_get(c, "text"), json_object_get(c, "ids"), file);
        json_decref(c);
        cases++;
    }
    assert_int_equal(cases, 717);
    assert_int_equal(bad, 0);
    free(all);
    tokenizer_free(t);
}

TEST(test_golden_large) {
    check_lines("gpt2", "tokenizers/golden-large/large-gpt2.jsonl");
    check_lines("llama3", "tokenizers/golden-large/large-llama3.jsonl");
    check_lines("qwen2", "tokenizers/golden-large/large-qwen2.jsonl");
    check_lines("phi-3", "tokenizers/golden-large/large-llama2-spm.jsonl"); // of the same tokens
}

// The tokens around and between two texts.
TEST(test_pairs) {
    static const struct {
        const char *name;
        token_id cls, sep;
        int between;
    } cases[] = {{"bert", 2, 3, 1}, {"xlm-r", 0, 2, 2}};
    for (int i = 0; i < 2; i++) {
        struct tokenizer *t = open_folder(cases[i].name);
        struct token_buf b = {0};
        size_t second;
        assert_int_equal(tokenizer_encode_pair(t, "a", 1, "", 0, TOKENIZE_ADD_SPECIAL, &b, &second),
                         STATUS_OK);
        assert_int_equal(second + 1, b.len);
        assert_int_equal(b.ids[0], cases[i].cls);
        for (int k = 0; k < cases[i].between; k++)
            assert_int_equal(b.ids[second - 1 - (size_t)k], cases[i].sep);
        assert_int_not_equal(b.ids[second - 1 - (size_t)cases[i].between], cases[i].sep);
        assert_int_equal(b.ids[second], cases[i].sep);
        token_buf_free(&b);
        tokenizer_free(t);
    }
    // A template whose pair has other ends than its single text gives no pairs.
    struct tokenizer *t = open_folder("llama3");
    struct token_buf b = {0};
    size_t second;
    assert_int_equal(tokenizer_encode_pair(t, "a", 1, "b", 1, TOKENIZE_ADD_SPECIAL, &b, &second),
                     STATUS_INVALID);
    token_buf_free(&b);
    tokenizer_free(t);
}

TEST(test_settings) {
    static const struct {
        const char *name;
        token_id bos, eos;
        bool adds;
    } cases[] = {{"phi-3", 1, 32000, true},    {"llama3", 128000, 128001, true},
                 {"qwen2", -1, 151645, false}, {"spm-llama2", 1, 2, true},
                 {"spm-unigram", 1, 2, false}, {"tiktoken-kimi", 100256, 100257, false}};
    for (int i = 0; i < 6; i++) {
        struct tokenizer *t = open_folder(cases[i].name);
        assert_int_equal(tokenizer_bos(t), cases[i].bos);
        assert_int_equal(tokenizer_eos(t), cases[i].eos);
        assert_true(tokenizer_adds_bos(t) == cases[i].adds && tokenizer_is_end(t, cases[i].eos));
        tokenizer_free(t);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
