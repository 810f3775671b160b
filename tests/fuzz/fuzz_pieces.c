// WordPiece and Unigram: any text; any bytes as a map of characters; any regular expression in normaliser and pre-tokenizer.
// No special id unless asked for, every id is of the vocabulary.
#include "../tools/gguf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum kind { BERT, T5, T5_MAP, CLUSTERS, CUT, REPLACE, NUM_KINDS };

static const char *const names[] = {"<unk>", "<s>", "</s>", "▁a", "ab",  "▁",     "a",
                                    "b",     "é",   "日本", "▁▁", "##a", "<0x41>"};
static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6};
static const float scores[] = {0, 0, 0, -3, -3, -1, -2, -2, -4, -5, -2, -6, 0};
enum { NUM_NAMES = sizeof names / sizeof *names };

// blob: of len bytes, without NULs where it is a text
static struct tokenizer *make(enum kind kind, const char *blob, size_t len) {
    static const char *const models[] = {"bert", "t5", "t5", "unigram", "wordpiece", "unigram"};
    struct gguf_writer w = {0};
    struct err err = {0};
    gw_str(&w, "tokenizer.ggml.model", models[kind]);
    gw_strings(&w, "tokenizer.ggml.tokens", NUM_NAMES, names);
    gw_array(&w, "tokenizer.ggml.token_type", 5, NUM_NAMES, types, sizeof types);
    gw_array(&w, "tokenizer.ggml.scores", 6, NUM_NAMES, scores, sizeof scores);
    gw_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    gw_bool(&w, "tokenizer.ggml.remove_extra_whitespaces", kind == T5);
    gw_bool(&w, "tokenizer.ggml.add_space_prefix", 1);
    if (kind == T5_MAP || kind == CLUSTERS)
        gw_array(&w, "tokenizer.ggml.precompiled_charsmap", 0, len, blob, len);
    if (kind == CLUSTERS)
        gw_strings(&w, "tokenizer.quire.normalizer", 2, (const char *const[]){"CharsmapClusters", "NFKD"});
    if (kind == CUT)
        gw_strings(&w, "tokenizer.quire.cuts", 6,
                   (const char *const[]){"Split", "MergedWithNext", blob, "Split", "Contiguous", blob});
    if (kind == REPLACE)
        gw_strings(&w, "tokenizer.quire.normalizer", 5,
                   (const char *const[]){"ReplaceRegex", blob, "ab", "StripLeft", "StripRight"});
    struct tokenizer *t = gw_tokenizer(&w, &err);
    if (!t && (!err.code || !err.msg[0]))
        abort();
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *fixed[2];
    if (size < 4)
        return 0;
    enum kind kind = (enum kind)(data[0] % NUM_KINDS);
    unsigned flags = data[1] & 3;
    size_t len = kind <= T5 ? 0 : data[2] | (size_t)data[3] << 8;
    len = len > size - 4 ? size - 4 : len;
    char *blob = malloc(len + 1);
    if (!blob)
        abort();
    memcpy(blob, data + 4, len);
    blob[len] = 0;
    if (kind <= T5 && !fixed[kind] && !(fixed[kind] = make(kind, NULL, 0)))
        abort();
    struct tokenizer *t = kind <= T5 ? fixed[kind] : make(kind, blob, len);
    size_t text_len = size - 4 - len;
    if (kind >= CUT && text_len > 64) // an expression may take long
        text_len = 64;
    struct token_buf b = {0};
    enum status st = t ? tokenizer_encode(t, (const char *)data + 4 + len, text_len, flags, &b) : STATUS_OK;
    if (st != STATUS_OK && !(st == STATUS_LIMIT && kind > T5))
        abort();
    for (size_t i = 0; i < b.len; i++)
        if (b.ids[i] < 0 || b.ids[i] >= NUM_NAMES || (!flags && (b.ids[i] == 1 || b.ids[i] == 2)))
            abort();
    token_buf_free(&b);
    if (kind > T5)
        tokenizer_free(t);
    free(blob);
    return 0;
}
