// The inside of a tokenizer, for tokenizer.c, detok.c and their tests.
#pragma once

#include "tokenizer.h"

enum token_type { // as tokenizer.ggml.token_type numbers them
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

enum token_flag {
    TOKEN_SPECIAL = 1, // control or unknown: gives no text
    TOKEN_END = 2,     // stops generation
    TOKEN_GUARDED = 4, // its spelling becomes this token only with TOKENIZE_PARSE_SPECIAL
};

struct token_entry {
    uint32_t name, name_len;   // into tokenizer.text
    uint32_t bytes, bytes_len; // into tokenizer.text: what it adds to a text
    float score;
    uint8_t type, flags;
};

struct token_slot { // of the hash table from the bytes of a mergeable token to its id; id -1: free
    uint32_t tag;
    token_id id;
};

// How a stretch of text without special tokens becomes ids; `first`: nothing but special tokens came before
// it.
struct tokenizer;
typedef enum status tokenize_text(const struct tokenizer *t, const char *text, size_t len, bool first,
                                  struct token_buf *out);

struct tokenizer {
    int num_tokens;
    struct token_entry *tokens;
    char *text; // names and bytes of all tokens
    token_id bos, eos, unk;
    bool add_bos, add_eos, add_space_prefix;
    char *chat_template;                     // or NULL
    size_t chat_template_len, max_token_len; // bytes of the longest name or text of a token

    tokenize_text *tokenize; // the algorithm: so far SentencePiece's

    // Tokens that are found in a text before the algorithm runs, sorted by name; those of first byte c are
    // [found_start[c], found_start[c + 1]).
    token_id *found;
    int num_found, found_start[257];

    // SentencePiece
    struct token_slot *slots;
    uint64_t seed;
    uint32_t slot_mask;
    size_t max_merge_len;   // bytes of the longest mergeable token
    bool splits_at_space;   // no mergeable token has a space after another character
    token_id byte_ids[256]; // -1: none
};
