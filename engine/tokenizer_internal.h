// The inside of a tokenizer, for tokenizer*.c, detok.c and their tests.
#pragma once

#include "gguf.h"
#include "tokenizer.h"

#include <string.h>

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
    TOKEN_PIECE = 8,   // merging may make it; found by find_piece()
    TOKEN_WHOLE = 16,  // byte-level: a word of exactly its bytes becomes it, so that no merging is needed
};

struct token_entry {
    uint32_t name, name_len;   // into tokenizer.text
    uint32_t bytes, bytes_len; // into tokenizer.text: what it adds to a text
    float score;
    uint8_t type, flags;
};

struct token_slot { // of the hash table from the bytes of a piece to its id; id -1: free
    uint32_t tag;
    token_id id;
};

struct merge_slot { // of the hash table from two neighbours to what they become; id -1: free
    token_id left, right, id;
    int32_t rank; // the lowest goes first
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

    tokenize_text *tokenize; // the algorithm: SentencePiece's or byte-level byte-pair encoding

    // Tokens that are found in a text before the algorithm runs, sorted by name; those of first byte c are
    // [found_start[c], found_start[c + 1]).
    token_id *found;
    int num_found, found_start[257];

    // The pieces, and the tokens of single bytes.
    struct token_slot *slots;
    uint64_t seed;
    uint32_t slot_mask;
    size_t max_piece_len;   // bytes of the longest piece
    token_id byte_ids[256]; // -1: none

    bool splits_at_space; // SentencePiece: no piece has a space after another character

    // Byte-level
    struct merge_slot *merges;
    uint32_t merge_mask;
    struct pretokenizer *pre;
};

// ---- tokenizer.c

enum status token_reserve(struct token_buf *b, size_t more); // STATUS_NOMEM only, as token_push()
enum status token_push(struct token_buf *b, token_id id);
token_id find_piece(const struct tokenizer *t, const char *bytes, size_t len); // -1: none

// ---- tokenizer_load.c and what each algorithm adds to it

struct loader {
    const struct gguf *g;
    struct tokenizer *t;
    struct err *err;
    struct gguf_array names, scores, types;
    bool byte_level; // tokenizer.ggml.model is gpt2
};

static inline bool same(struct gguf_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

bool load_pieces(
    struct loader *l); // the hash table of the tokens marked TOKEN_PIECE; refuses two of the same bytes

// Writes the bytes that a token of this name adds to a text to dst, which has room for the name; returns how
// many.
size_t spm_bytes(struct gguf_str name, char *dst);
size_t bpe_bytes(struct gguf_str name, char *dst);
// What is left to do once tokens and settings are there. false: l->err is set.
bool load_spm(struct loader *l);
bool load_bpe(struct loader *l);

tokenize_text tokenize_spm, tokenize_bpe;
