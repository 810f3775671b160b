// Shared by the files that read a vocabulary (vocab.c and vocab_*.c).
#pragma once

#include "keys.h"
#include "json/jdoc.h"

enum { VOCAB_MAX_TOKENS = 1 << 22 };

// As the key tokenizer.ggml.token_type numbers them.
enum hf_token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

// bpe: a list of merges, of which byte_level spells bytes as characters, and others a space as U+2581
enum hf_vocab_model { MODEL_BPE, MODEL_WORDPIECE, MODEL_UNIGRAM };

struct vocab_reader {
    const struct jdoc *j;                            // tokenizer.json; of another file its name alone
    const struct jdoc *config, *special_map, *added; // of struct hf_vocab_files, may be NULL
    struct text_view chat_template, tool_template;
    const struct jdoc *template_json;
    const struct jdoc_value *model;
    struct hf_keys *keys;
    struct err *err;
    int64_t num;
    struct text_view *names; // (num) data NULL: none
    int32_t *types;          // (num)
    // (num) of an added token, bit 0: white space before it goes, bit 1: after it, bit 2: it is no part of a word,
    // bit 3: it is found in the normalised text, bit 4: the model has no such piece
    unsigned char *strips;
    enum hf_vocab_model kind;
    bool byte_level, byte_fallback, any_strips;
    bool adds_bos, adds_eos; // where neither post_processor nor tokenizer_config.json says so
};

// false, and err says that `what`, which is v, should be as expected.
bool hf_vocab_refuse(const struct vocab_reader *r, const struct jdoc_value *v, const char *what,
                     const char *expected);

static inline const struct jdoc_value *get_of(const struct vocab_reader *r, const struct jdoc_value *v,
                                              const char *key) {
    return jdoc_get(r->j, v, key);
}

static inline bool is_type(const struct vocab_reader *r, const struct jdoc_value *v, const char *type) {
    return jdoc_is(r->j, jdoc_get(r->j, v, "type"), type);
}

static inline bool is_true(const struct jdoc_value *v) { return v && v->type == JDOC_TRUE; }

// Calls fn for the part, or for each of a sequence of parts, which may nest.
bool hf_vocab_parts(const struct vocab_reader *r, const struct jdoc_value *v, const char *list,
                    bool (*fn)(const struct vocab_reader *r, const struct jdoc_value *part, void *arg),
                    void *arg);
int64_t hf_vocab_find(const struct vocab_reader *r, struct text_view name); // the id of a token, -1: none

bool hf_base64(struct text_view text, unsigned char *out, size_t *n); // RFC 4648; out has room for text.len

// Makes names, types and strips of r->num tokens, or of rows where that is above 0, all unused. False: out of memory.
bool hf_vocab_rows(struct vocab_reader *r, int64_t rows);

// Vocabularies that are no JSON. Room for num tokens, which have rows, `more` that may lack them, and the added ones of
// tokenizer_config.json or added_tokens.json; then the added ones. false: err is set, or memory is out, as by the next two,
// which read tokenizer.model and tiktoken.model and write all keys but those for special tokens and the tokens themselves.
bool hf_vocab_room(struct vocab_reader *r, int64_t num, int64_t more, int64_t rows);
bool hf_vocab_added(struct vocab_reader *r);
bool hf_spm_read(struct vocab_reader *r, struct text_view file, int64_t rows);
bool hf_tiktoken_read(struct vocab_reader *r, struct text_view file, int64_t rows);

// Strings one after the other, each with its length before it.
struct strings {
    unsigned char *data, *at;
};
bool strings_room(struct strings *s, struct hf_keys *keys, uint64_t count, uint64_t bytes);
void strings_add(struct strings *s, struct text_view a, const char *between, struct text_view b);

// Write the keys for normaliser and pre-tokenizer, for the tokens around texts, and for the chat template. false: err is
// set, or memory is out.
bool hf_vocab_steps(struct vocab_reader *r);
bool hf_vocab_special(struct vocab_reader *r, const int64_t *eos, int num_eos);
void hf_vocab_template(struct vocab_reader *r);
