#include "part_arena.h"

#include <stdlib.h>
#include <string.h>

void part_arena_free(struct part_arena *a) {
    for (int i = 0; i < a->num; i++)
        free(a->blocks[i]);
    free(a->blocks);
    *a = (struct part_arena){0};
}

// Takes over a block from malloc(); NULL: out of memory.
static void *keep(struct part_arena *a, void *block) {
    if (block && a->num == a->cap) {
        int cap = a->cap ? 2 * a->cap : 32;
        void **blocks = realloc(a->blocks, (size_t)cap * sizeof *blocks);
        if (!blocks) {
            free(block);
            block = NULL;
        } else {
            a->blocks = blocks;
            a->cap = cap;
        }
    }
    if (block)
        a->blocks[a->num++] = block;
    else
        a->failed = true;
    return block;
}

void *part_copy(struct part_arena *a, const void *data, size_t len) {
    void *block = keep(a, malloc(len + 1));
    if (block && len)
        memcpy(block, data, len);
    return block;
}

output_text part_text(struct part_arena *a, const char *text, size_t len) {
    const char *own = part_copy(a, text, len);
    return (output_text){.kind = GRAMMAR_TEXT, .text = own, .len = own ? len : 0};
}

output_text part_source(struct part_arena *a, enum grammar_language language, const char *text, size_t len) {
    output_text p = part_text(a, text, len);
    p.kind = GRAMMAR_SOURCE;
    p.language = language;
    return p;
}

output_text part_schema(struct part_arena *a, const json_t *schema) {
    if (!schema)
        return (output_text){.kind = GRAMMAR_SOURCE, .language = GRAMMAR_JSON_OBJECT};
    // 15 digits write a number as a client did, where 17 would write 0.1 as 0.10000000000000001.
    const char *text = keep(a, json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)));
    return (output_text){.kind = GRAMMAR_SOURCE,
                         .language = GRAMMAR_JSON_SCHEMA,
                         .text = text,
                         .len = text ? strlen(text) : 0};
}

output_text part_token(token_id token) { return (output_text){.kind = GRAMMAR_TOKEN, .token = token}; }
output_text part_blanks(void) { return (output_text){.kind = GRAMMAR_BLANKS}; }

output_text part_list(struct part_arena *a, enum grammar_part_kind kind, const output_text *parts, int num) {
    const output_text *own = part_copy(a, parts, (size_t)num * sizeof *parts);
    return (output_text){.kind = kind, .parts = own, .num = own ? num : 0};
}

output_text part_repeat(struct part_arena *a, output_text p, int min, int max) {
    output_text r = part_list(a, GRAMMAR_REPEAT, &p, 1);
    r.min = min;
    r.max = max;
    return r;
}

output_text part_marks(struct part_arena *a, const struct tokenizer *t, const token_id *tokens,
                       int num_tokens, const char *text) {
    output_text parts[16];
    int num = 0;
    size_t done = 0, at = 0, all = strlen(text);
    while (at < all && num + 3 < 16) {
        token_id token = -1;
        size_t longest = 0;
        for (int i = 0; i < num_tokens; i++) {
            size_t len;
            const char *name = tokenizer_name(t, tokens[i], &len);
            if (len > longest && len <= all - at && memcmp(text + at, name, len) == 0) {
                token = tokens[i];
                longest = len;
            }
        }
        if (token < 0) {
            at++;
            continue;
        }
        if (at > done)
            parts[num++] = part_text(a, text + done, at - done);
        parts[num++] = part_token(token);
        done = at += longest;
    }
    if (done < all || num == 0)
        parts[num++] = part_text(a, text + done, all - done);
    return num == 1 ? parts[0] : part_list(a, GRAMMAR_SEQ, parts, num);
}
