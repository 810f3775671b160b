// Grammar parts and what they point to, freed together. Running out of memory is remembered: look at `failed` at the end.
#pragma once

#include "grammar/grammar.h"
#include "tokenizer.h"

#include <jansson.h>
#include <stdbool.h>

struct part_arena {
    void **blocks; // (num)
    int num, cap;
    bool failed;
};
void part_arena_free(struct part_arena *a);

void *part_copy(struct part_arena *a, const void *data, size_t len); // NULL: out of memory

typedef struct grammar_part output_text;
output_text part_text(struct part_arena *a, const char *text, size_t len); // copies
output_text part_source(struct part_arena *a, enum grammar_language language, const char *text, size_t len);
output_text part_schema(struct part_arena *a, const json_t *schema); // NULL: any object
output_text part_token(token_id token);
output_text part_blanks(void);
output_text part_list(struct part_arena *a, enum grammar_part_kind kind, const output_text *parts, int num);
output_text part_repeat(struct part_arena *a, output_text p, int min, int max);
// A text in which some names are control tokens, as a model writes it. tokens: (num_tokens) of the vocabulary.
output_text part_marks(struct part_arena *a, const struct tokenizer *t, const token_id *tokens,
                       int num_tokens, const char *text);

#define PART_SEQ(a, ...)                                                                                     \
    part_list((a), GRAMMAR_SEQ, (const output_text[]){__VA_ARGS__},                                          \
              (int)(sizeof((const output_text[]){__VA_ARGS__}) / sizeof(output_text)))
#define PART_ANY_OF(a, ...)                                                                                  \
    part_list((a), GRAMMAR_ANY_OF, (const output_text[]){__VA_ARGS__},                                       \
              (int)(sizeof((const output_text[]){__VA_ARGS__}) / sizeof(output_text)))
#define PART_TEXT(a, text) part_text((a), "" text, sizeof(text) - 1)
