// Grammars of what models write besides text, and their parsers: whatever the one allows the other reads as it was meant.
#include "formats/output_grammar.h"
#include "harness.h"

static uint32_t seed = 7;
static uint32_t draw(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static struct tokenizer *tokenizer;
static struct token_trie *trie;

static bool ready(void) {
    struct err err = {0};
    const char *path = tokenizer ? NULL : test_data("models/stories260K/stories260K.gguf");
    if (path) {
        tokenizer = tokenizer_open(path, &err);
        trie = tokenizer ? token_trie_new(tokenizer) : NULL;
        assert_non_null(trie);
    }
    return trie != NULL;
}

// A random text of a constraint: tokens that its masks allow, until it ends. The caller frees it.
static void write_text(struct constraint *c, struct buf *out) {
    struct token_filter *f = constraint_filter(c);
    int vocab = tokenizer_vocab(tokenizer);
    uint32_t *mask = calloc((size_t)vocab / 32 + 1, sizeof *mask);
    assert_true(f && mask);
    for (int step = 0; !f->done(f->state); step++) {
        token_id choice = -1;
        uint32_t num = 0;
        bool may_end = false;
        f->mask(f->state, mask, vocab);
        for (token_id id = 0; id < vocab; id++) {
            if (!(mask[id / 32] >> (id % 32) & 1))
                continue;
            may_end |= tokenizer_is_end(tokenizer, id);
            if (!tokenizer_is_end(tokenizer, id) && draw(++num) == 0)
                choice = id;
        }
        if (may_end && (step > 600 || draw(4) == 0))
            break;
        if (choice < 0 && !may_end)
            fail_msg("a dead end behind '%s'", buf_cstr(out));
        if (choice < 0)
            break;
        assert_true(f->accept(f->state, choice));
        size_t len;
        const char *bytes = tokenizer_bytes(tokenizer, choice, false, &len);
        buf_add(out, bytes, len);
        if (step > 5000)
            fail_msg("'%s' has no end", buf_cstr(out));
    }
    f->free(f->state);
    free(f);
    free(mask);
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

static void check_arguments(const struct buf *text, const char *name, const char *bytes, size_t len) {
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
static int read_calls(const struct output_format *f, const json_t *tools, const struct buf *text,
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

static struct constraint *compiled(const struct output_rule *rule) {
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

static const char *const formats[] = {
    "hermes",       "qwen3_coder",  "glm45",        "minimax_m2",  "seed_oss",    "deepseek_v3",
    "deepseek_v31", "deepseek_v32", "deepseek_v4",  "kimi_k2",     "mistral",     "cohere",
    "nemotron",     "granite",      "firefunction", "functionary", "llama3_json", "harmony"};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

static void test_calls_are_read_back(void **state) {
    (void)state;
    if (!ready())
        skip();
    json_t *tools = json_loads(tools_text, 0, NULL);
    for (int i = 0; i < NUM_FORMATS; i++)
        for (int kind = 0; kind < 4;
             kind++) { // any tool, one by its name, at most one, with the text before it thought
            const struct output_format *f = output_format_named(formats[i]);
            struct output_rule rule = {.format = f,
                                       .tokenizer = tokenizer,
                                       .tools = tools,
                                       .only = kind == 1 ? "now" : NULL,
                                       .calls = true,
                                       .one_call = kind == 2};
            assert_null(output_rule_problem(&rule));
            struct constraint *c = compiled(&rule);
            for (int round = 0; round < 6; round++) {
                struct buf text = {0};
                write_text(c, &text);
                int calls = read_calls(f, tools, &text, false);
                if (calls < 1 || (kind == 2 && calls > 1))
                    fail_msg("%s, kind %d: %d calls in '%.*s'", f->name, kind, calls, (int)text.len,
                             text.data);
                if (kind == 1)
                    assert_null(memmem(text.data, text.len, "get_weather", 11));
                buf_free(&text);
            }
            constraint_release(c);
        }
    json_decref(tools);
}

// Calls that may be left out, and text that has to be of a schema: strict tools, response_format beside tools.
static void test_optional_calls(void **state) {
    (void)state;
    if (!ready())
        skip();
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct part_arena a = {0};
    output_text body = part_source(&a, GRAMMAR_REGEX, "[xyz]{3}", 8);
    for (int i = 0; i < NUM_FORMATS; i++)
        for (int with_body = 0; with_body < 2; with_body++) {
            const struct output_format *f = output_format_named(formats[i]);
            struct output_rule rule = {
                .format = f, .tokenizer = tokenizer, .tools = tools, .body = with_body ? &body : NULL};
            if (f->bare && !with_body) {
                assert_non_null(output_rule_problem(&rule));
                continue;
            }
            struct constraint *c = compiled(&rule);
            int with = 0;
            for (int round = 0; round < 12; round++) {
                struct buf text = {0};
                write_text(c, &text);
                int calls = read_calls(f, tools, &text, true);
                with += calls > 0;
                if (with_body && calls == 0 && !f->harmony)
                    assert_true(text.len == 3 && strspn(text.data, "xyz") >= 3);
                buf_free(&text);
            }
            if (with_body)
                assert_true(with > 0);
            constraint_release(c);
        }
    part_arena_free(&a);
    json_decref(tools);
}

static void test_reasoning_first(void **state) {
    (void)state;
    if (!ready())
        skip();
    struct part_arena a = {0};
    output_text body = part_source(&a, GRAMMAR_REGEX, "[xyz]{3}", 8);
    const struct output_format *f = output_format_named("think");
    struct output_rule rule = {
        .format = f, .tokenizer = tokenizer, .reads_reasoning = true, .thinking = true, .body = &body};
    struct constraint *c = compiled(&rule);
    static const struct {
        const char *text;
        bool taken;
    } cases[] = {{"I think {\"x\": 1}.</think>\n\nxyz", true},
                 {"</think>zzz", true},
                 {"hm</think>abc", false},
                 {"xyz", true},
                 {"a</think>xyzx", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct token_filter *filter = constraint_filter(c);
        struct token_buf ids = {0};
        assert_int_equal(
            tokenizer_encode(tokenizer, cases[i].text, strlen(cases[i].text), TOKENIZE_CONTINUES, &ids),
            STATUS_OK);
        bool taken = true;
        for (size_t k = 0; k < ids.len; k++)
            taken = taken && filter->accept(filter->state, ids.ids[k]);
        if (taken != cases[i].taken)
            fail_msg("'%s' is %s", cases[i].text, taken ? "taken" : "refused");
        token_buf_free(&ids);
        filter->free(filter->state);
        free(filter);
    }
    constraint_release(c);
    part_arena_free(&a);
}

// What was accepted can be taken back, and nothing that is not allowed changes anything.
static void test_rollback(void **state) {
    (void)state;
    if (!ready())
        skip();
    struct part_arena a = {0};
    output_text body = part_source(&a, GRAMMAR_REGEX, "(ab|ba){40}", 11);
    struct err err = {0};
    struct constraint *c = constraint_new(&body, &(struct json_style){0}, trie, &err);
    struct token_filter *f = constraint_filter(c);
    int vocab = tokenizer_vocab(tokenizer);
    size_t words = (size_t)vocab / 32 + 1;
    uint32_t *masks[64], *again = calloc(words, sizeof *again);
    int num = 0;
    for (int step = 0; step < 500; step++) {
        if (num && (num == 60 || draw(3) == 0 || f->done(f->state))) {
            int n = 1 + (int)draw((uint32_t)num);
            f->rollback(f->state, n);
            for (; n > 0; n--)
                free(masks[--num + 1]);
        }
        if (num == 0 && step == 0)
            masks[0] = calloc(words, sizeof **masks);
        f->mask(f->state, step == 0 ? masks[0] : again, vocab);
        if (step)
            assert_memory_equal(again, masks[num], words * sizeof *again);
        token_id choice = -1;
        for (uint32_t n = 0, id = 0; id < (uint32_t)vocab; id++)
            if ((masks[num][id / 32] >> (id % 32) & 1) && !tokenizer_is_end(tokenizer, (token_id)id) &&
                draw(++n) == 0)
                choice = (token_id)id;
        assert_false(f->accept(f->state, 5)); // no such text
        if (choice < 0)
            continue;
        assert_true(f->accept(f->state, choice));
        masks[++num] = calloc(words, sizeof **masks);
        f->mask(f->state, masks[num], vocab);
    }
    for (; num >= 0; num--)
        free(masks[num]);
    free(again);
    f->free(f->state);
    free(f);
    constraint_release(c);
    part_arena_free(&a);
}

static void test_cache(void **state) {
    (void)state;
    if (!ready())
        skip();
    struct constraint_cache *cache = constraint_cache_new(tokenizer, 4 << 20);
    struct json_style style = {0};
    struct err err = {0};
    struct part_arena a = {0};
    struct constraint *first = NULL;
    for (int i = 0; i < 600; i++) {
        char text[40];
        int len = snprintf(text, sizeof text, "x{%d}", 1 + i % 300);
        output_text p = part_source(&a, GRAMMAR_REGEX, text, (size_t)len);
        struct constraint *c = constraint_cache_get(cache, &p, &style, &err),
                          *same = constraint_cache_get(cache, &p, &style, &err);
        assert_non_null(c);
        assert_ptr_equal(c, same);
        style.max_blanks = 3;
        struct constraint *other = constraint_cache_get(cache, &p, &style, &err);
        assert_ptr_not_equal(c, other);
        style.max_blanks = 0;
        constraint_release(other);
        constraint_release(same);
        if (i == 0)
            first = c; // is kept by us, whatever the cache forgets
        else
            constraint_release(c);
    }
    struct token_filter *f = constraint_filter(first);
    assert_false(f->done(f->state));
    f->free(f->state);
    free(f);
    constraint_release(first);
    output_text bad = part_source(&a, GRAMMAR_REGEX, "(", 1);
    assert_null(constraint_cache_get(cache, &bad, &style, &err));
    assert_int_equal(err.code, STATUS_INVALID);
    struct constraint_counts counts = constraint_cache_counts(cache);
    assert_true(counts.compiled >= 600 && counts.cached >= 600 && counts.compiled + counts.cached == 1800);
    assert_int_equal(counts.refused, 1);
    constraint_cache_free(cache);
    part_arena_free(&a);
}

static void test_end(void **state) {
    (void)state;
    token_trie_free(trie);
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_read_back),
        cmocka_unit_test(test_optional_calls),
        cmocka_unit_test(test_reasoning_first),
        cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
