// Compiles schemas and walks instances token by token, as a model would write them; structured_table.py runs it.
//
//     structured_bench VOCABULARY.gguf any|schema < lines     {"schema": TEXT, "tests": [{"valid": BOOL, "text": TEXT}, …]}
//
// Writes a line for each: {"compile": µs, "masks": [µs, …], "taken": [BOOL, …]}, or {"error": TEXT}.
#include "clock.h"
#include "grammar/grammar.h"
#include "tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double now_us(void) { return clock_now_s() * 1e6; }

struct walk {
    const struct tokenizer *tokenizer;
    int vocab;
    uint32_t *mask;
    json_t *masks, *taken;
};

// An instance is taken where each of its tokens is in the mask before it, and an end in the one behind it.
static void walk_text(struct walk *w, struct constraint *c, const char *text) {
    struct token_filter *f = constraint_filter(c);
    struct token_buf ids = {0};
    bool ok = f && tokenizer_encode(w->tokenizer, text, strlen(text), TOKENIZE_CONTINUES, &ids) == STATUS_OK;
    token_id end = tokenizer_eos(w->tokenizer);
    for (size_t i = 0; i <= ids.len && ok; i++) {
        token_id id = i < ids.len ? ids.ids[i] : end;
        double begin = now_us();
        int64_t work = INT64_MAX;
        f->mask(f->state, w->mask, w->vocab, &work);
        json_array_append_new(w->masks, json_real(now_us() - begin));
        ok = w->mask[id / 32] >> (id % 32) & 1;
        ok = ok && (i == ids.len || f->accept(f->state, id));
    }
    json_array_append_new(w->taken, json_boolean(ok));
    token_buf_free(&ids);
    if (f)
        f->free(f->state);
    free(f);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct tokenizer *t = argc == 3 ? tokenizer_open(argv[1], &err) : NULL;
    struct token_trie *trie = t ? token_trie_new(tokenizer_vocabulary(t)) : NULL;
    if (!trie) {
        fprintf(stderr, "usage: structured_bench VOCABULARY.gguf any|schema < lines\n%s\n", err.msg);
        return 2;
    }
    bool any = strcmp(argv[2], "any") == 0;
    struct json_style style = {any ? JSON_ORDER_ANY : JSON_ORDER_SCHEMA, 32, any};
    struct walk w = {.tokenizer = t, .vocab = tokenizer_vocab(t)};
    w.mask = malloc(((size_t)w.vocab + 31) / 32 * sizeof *w.mask);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0) {
        json_t *in = json_loads(line, 0, NULL), *tests = json_object_get(in, "tests"), *out = json_object();
        const char *schema = json_string_value(json_object_get(in, "schema"));
        struct grammar_part p = {
            .kind = GRAMMAR_SOURCE, .language = GRAMMAR_JSON_SCHEMA, .text = schema, .len = strlen(schema)};
        err = (struct err){0};
        double begin = now_us();
        struct constraint *c = constraint_new(&p, &style, trie, &err);
        json_object_set_new(out, "compile", json_real(now_us() - begin));
        if (!c)
            json_object_set_new(out, "error", json_string(err.msg));
        w.masks = json_array();
        w.taken = json_array();
        for (size_t i = 0; i < json_array_size(tests) && c; i++)
            walk_text(&w, c, json_string_value(json_object_get(json_array_get(tests, i), "text")));
        json_object_set_new(out, "masks", w.masks);
        json_object_set_new(out, "taken", w.taken);
        json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        putchar('\n');
        constraint_release(c);
        json_decref(in);
        json_decref(out);
    }
    free(line);
    free(w.mask);
    token_trie_free(trie);
    tokenizer_free(t);
    return 0;
}
