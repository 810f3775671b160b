// The inside of a tokenizer, for tokenizer*.c, detok.c and their tests. Files from the bottom up: regex, charsmap, normalizer,
// tokenizer_pre (words), name_list, tokenizer (encoding), tokenizer_pieces, tokenizer_prepare, tokenizer_merges, tokenizer_id, the kinds of
// vocabulary (tokenizer_spm, _bpe, _wordpiece, _unigram, _none), tokenizer_fim, tokenizer_load.
#pragma once

#include "tokenizer.h"

#include <stdatomic.h>
#include <stdint.h>

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
    TOKEN_LSTRIP = 16, // white space before it in a text is lost
    TOKEN_RSTRIP = 32, // and behind it
    TOKEN_WORD = 64,   // found where no letter stands next to it
};

enum space_prefix { // which texts get a space in front, where a space is spelled as U+2581
    PREFIX_NEVER,
    PREFIX_ALWAYS,
    PREFIX_UNSPACED, // those that do not begin with one
    PREFIX_FIRST,    // of these, those before which nothing came
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

struct name_list { // tokens sorted by name; those of first byte c are [start[c], start[c + 1])
    token_id *ids; // (num) owned
    int num, start[257];
};

enum { MAX_FRAME = 4 };
struct token_frame { // tokens that stand before, between or after texts
    token_id ids[MAX_FRAME];
    int num;
};

struct tokenizer {
    int num_tokens;
    struct token_entry *tokens;
    char *text; // names and bytes of all tokens
    token_id bos, eos, unk;
    bool add_bos, add_eos, add_space_prefix;
    struct token_frame before, between, after; // of a text, of a pair of texts
    bool no_pairs, fills_in;
    struct fim_tokens fim; // where fills_in
    char *chat_template;   // or NULL
    char *tool_template;   // or NULL
    size_t chat_template_len, tool_template_len;
    size_t max_token_len; // bytes of the longest name or text of a token

    const struct tokenizer_kind *kind; // the algorithm

    struct name_list found; // tokens that are found in a text before the algorithm runs

    // The pieces, and the tokens of single bytes.
    struct token_slot *slots;
    uint64_t seed;
    uint32_t slot_mask;
    size_t max_piece_len;   // bytes of the longest piece
    token_id byte_ids[256]; // -1: none

    bool splits_at_space; // no piece has a space after another character
    bool space_cuts;      // and no piece has two spaces
    enum space_prefix space_prefix;

    // WordPiece and Unigram
    struct name_list names;
    const char *marks[2];  // before the names of pieces that begin a word, and of others
    size_t max_word_chars; // longer words are unknown
    double *scores;        // (num_tokens)
    double unknown_score;  // of a character that is no piece

    struct normalizer *normalizer; // of the text between special tokens; NULL: none
    struct pretokenizer *pre;

    // Byte-level
    struct merge_slot *merges;
    uint32_t merge_mask;
    bool pieces_are_whole; // a word that is a piece becomes it without merging
    // (num_tokens) pieces that merging has made of exactly their bytes: the next such word needs no merging.
    // Threads that encode set them. NULL: nothing is remembered.
    atomic_bool *whole;
};

enum status token_reserve(struct token_buf *b, size_t more); // STATUS_NOMEM only, as token_push()
enum status token_push(struct token_buf *b, token_id id);
// Bytes of white space at the end of a text, or at its beginning.
size_t space_at_end(const char *text, size_t len);
size_t space_at_start(const char *text, size_t len);
// The longest token of t->found that has all flags `with` and none of `without`, and whose name text (len >=
// 1) begins with; -1: none, and *match_len is as it was.
token_id find_special(const struct tokenizer *t, const char *text, size_t len, unsigned with,
                      unsigned without, size_t *match_len);
