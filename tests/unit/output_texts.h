// Random texts of constraints, for test_server_structured.c and test_server_literals.c.
#pragma once

#include "formats/output_grammar.h"
#include "harness.h"

static uint32_t seed = 7;
static inline uint32_t draw(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static struct tokenizer *tokenizer;
static struct token_trie *trie;

static inline bool ready(void) {
    struct err err = {0};
    const char *path = tokenizer ? NULL : test_data("models/stories260K/stories260K.gguf");
    if (path) {
        tokenizer = tokenizer_open(path, &err);
        trie = tokenizer ? token_trie_new(tokenizer_vocabulary(tokenizer)) : NULL;
        assert_non_null(trie);
    }
    return trie != NULL;
}

// A mask in one go.
static inline void whole_mask(const struct token_filter *f, uint32_t *mask, int vocab) {
    int64_t work = INT64_MAX;
    assert_int_equal(f->mask(f->state, mask, vocab, &work), MASK_DONE);
}

// Marks that end strings, keys and calls of the format that is tried.
static const char *end_marks[3] = {OUTPUT_QUOTE, OUTPUT_QUOTE, OUTPUT_QUOTE};

// How much of a mark is there at the end of a text; not all of it.
static inline size_t begun(const struct buf *out, const char *mark) {
    size_t len = strlen(mark) - 1;
    while (len && (out->len < len || memcmp(out->data + out->len - len, mark, len) != 0))
        len--;
    return len;
}

// The byte that brings a text nearer to its end: the next one of what ends a string, or one that closes something.
static inline char closing_byte(const struct buf *out) {
    const char *mark = end_marks[draw(3)];
    size_t len = begun(out, mark);
    for (int i = 0; i < 3; i++)
        if (begun(out, end_marks[i]) > len)
            len = begun(out, mark = end_marks[i]);
    return draw(len > 3 ? 40 : 3) ? mark[len] : "\"}])"[draw(4)];
}

// A random text of a constraint: tokens that its masks allow, until it ends. The caller frees it. false: chance does not find
// the end, such as a key that the schema asks for among any.
static inline bool try_text(struct constraint *c, struct buf *out) {
    struct token_filter *f = constraint_filter(c);
    int vocab = tokenizer_vocab(tokenizer);
    uint32_t *mask = calloc((size_t)vocab / 32 + 1, sizeof *mask);
    assert_true(f && mask);
    bool ended = true;
    for (int step = 0; !f->done(f->state) && (ended = step <= 5000); step++) {
        token_id choice = -1;
        uint32_t num = 0;
        bool may_end = false, closing = step > 60 || draw(8) == 0;
        char byte = closing ? closing_byte(out) : 0;
        token_id closer = -1;
        whole_mask(f, mask, vocab);
        for (token_id id = 0; id < vocab; id++) {
            if (!(mask[id / 32] >> (id % 32) & 1))
                continue;
            may_end |= tokenizer_is_end(tokenizer, id);
            if (!tokenizer_is_end(tokenizer, id) && draw(++num) == 0)
                choice = id;
            size_t len;
            const char *bytes = closing ? tokenizer_bytes(tokenizer, id, false, &len) : NULL;
            if (bytes && len == 1 && *bytes == byte)
                closer = id;
        }
        choice = closer >= 0 ? closer : choice;
        if (may_end && (step > 600 || draw(4) == 0))
            break;
        if (choice < 0 && !may_end)
            fail_msg("a dead end behind '%s'", buf_cstr(out));
        if (choice < 0)
            break;
        assert_true(f->accept(f->state, choice));
        size_t len;
        const char *bytes = tokenizer_is_special(tokenizer, choice)
                                ? tokenizer_name(tokenizer, choice, &len)
                                : tokenizer_bytes(tokenizer, choice, false, &len);
        buf_add(out, bytes, len);
    }
    f->free(f->state);
    free(f);
    free(mask);
    return ended;
}

static inline void write_text(struct constraint *c, struct buf *out) {
    if (!try_text(c, out))
        fail_msg("'%s' has no end", buf_cstr(out));
}

// Whether a text is one of a constraint.
static inline bool takes(struct constraint *c, const char *text, size_t len) {
    struct token_filter *filter = constraint_filter(c);
    int vocab = tokenizer_vocab(tokenizer);
    uint32_t *mask = calloc((size_t)vocab / 32 + 1, sizeof *mask);
    struct token_buf ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, len, TOKENIZE_CONTINUES, &ids), STATUS_OK);
    size_t first_len; // the vocabulary begins any text with a blank
    const char *first = ids.len ? tokenizer_bytes(tokenizer, ids.ids[0], false, &first_len) : NULL;
    bool taken = true, ends;
    for (size_t k = first && first_len == 1 && *first == ' '; k < ids.len && taken; k++)
        taken = filter->accept(filter->state, ids.ids[k]);
    ends = filter->done(filter->state);
    if (taken && !ends)
        whole_mask(filter, mask, vocab);
    for (token_id id = 0; taken && id < vocab; id++)
        ends |= (mask[id / 32] >> (id % 32) & 1) && tokenizer_is_end(tokenizer, id);
    token_buf_free(&ids);
    free(mask);
    filter->free(filter->state);
    free(filter);
    return taken && ends;
}

static inline struct constraint *compiled(const struct output_rule *rule) {
    struct part_arena a = {0};
    struct err err = {0};
    output_text root = output_rule_part(&a, rule);
    struct constraint *c = constraint_new(&root, &(struct json_style){.max_blanks = 2}, trie, &err);
    if (!c)
        fail_msg("%s: %s", rule->format ? rule->format->name : "text", err.msg);
    assert_false(a.failed);
    part_arena_free(&a);
    return c;
}

static const char tools_text[] = "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
                                 "\"strict\": true, \"parameters\": {\"type\": \"object\","
                                 " \"properties\": {\"city\": {\"type\": \"string\", \"enum\": [\"Oslo\", "
                                 "\"Rome\"]}, \"days\": {\"type\": \"integer\", \"minimum\": 1,"
                                 " \"maximum\": 20}, \"exact\": {\"type\": [\"boolean\", \"null\"]}}, "
                                 "\"required\": [\"city\"], \"additionalProperties\": false}}},"
                                 " {\"type\": \"function\", \"function\": {\"name\": \"now\", \"strict\": "
                                 "true, \"parameters\": {\"type\": \"object\", \"properties\": {},"
                                 " \"additionalProperties\": false}}}]";

static inline void check_arguments(const struct buf *text, const char *name, const char *bytes, size_t len) {
    json_error_t why;
    json_t *a = json_loadb(bytes, len, 0, &why);
    if (!a)
        fail_msg("%.*s is no JSON in '%.*s'", (int)len, bytes, (int)text->len, text->data);
    if (strcmp(name, "now") == 0) {
        assert_int_equal(json_object_size(a), 0);
    } else {
        const char *city = json_string_value(json_object_get(a, "city"));
        const json_t *days = json_object_get(a, "days"), *exact = json_object_get(a, "exact");
        assert_true(city && (strcmp(city, "Oslo") == 0 || strcmp(city, "Rome") == 0));
        assert_true(!days || (json_integer_value(days) >= 1 && json_integer_value(days) <= 20));
        assert_true(!exact || json_is_boolean(exact) || json_is_null(exact));
        assert_int_equal(json_object_size(a), 1 + (days != NULL) + (exact != NULL));
    }
    json_decref(a);
}

// Reads a text back: the number of calls, each as the schema wants it. content: text beside calls is expected.
static inline int read_calls(const struct output_format *f, const json_t *tools, const struct buf *text,
                             bool content) {
    struct output_parser *p = output_parser_new(f, tools, true, false);
    size_t num;
    const char *bytes;
    char name[80] = "";
    output_push(p, text->data, text->len);
    output_end(p);
    const struct output_part *parts = output_parts(p, &num, &bytes);
    int calls = output_num_calls(p);
    struct buf arguments = {0};
    for (size_t i = 0; i <= num; i++) {
        bool more = i < num && parts[i].kind == PART_ARGUMENTS;
        if (!more && arguments.len) {
            check_arguments(text, name, arguments.data, arguments.len);
            buf_clear(&arguments);
        }
        if (more)
            buf_add(&arguments, bytes + parts[i].begin, parts[i].len);
        else if (i < num && parts[i].kind == PART_CALL)
            snprintf(name, sizeof name, "%.*s", (int)parts[i].len, bytes + parts[i].begin);
        else if (i < num && parts[i].kind == PART_CONTENT && !content)
            fail_msg("%s: content '%.*s' in '%.*s'", f->name, (int)parts[i].len, bytes + parts[i].begin,
                     (int)text->len, text->data);
    }
    buf_free(&arguments);
    output_parser_free(p);
    return calls;
}

static inline int end_texts(void **state) {
    (void)state;
    token_trie_free(trie);
    tokenizer_free(tokenizer);
    return 0;
}
