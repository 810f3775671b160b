// Grammars of what models write besides text, and their parsers: whatever the one allows the other reads as it was meant.
#include "output_texts.h"

#include <pthread.h>

static const char *const formats[] = {
    "hermes",       "qwen3_coder",  "glm45",        "minimax_m2",  "seed_oss",    "deepseek_v3",
    "deepseek_v31", "deepseek_v32", "deepseek_v4",  "kimi_k2",     "mistral",     "cohere",
    "nemotron",     "granite",      "firefunction", "functionary", "llama3_json", "harmony",
    "pythonic",     "lfm2",         "gemma4",       "gigachat3"};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

TEST(test_calls_are_read_back) {
    if (!ready())
        skip();
    json_t *tools = json_loads(tools_text, 0, NULL), *now = json_pack("[O]", json_array_get(tools, 1));
    for (int i = 0; i < NUM_FORMATS; i++)
        for (int kind = 0; kind < 3; kind++) { // any tools, one of them, at most one call
            const struct output_format *f = output_format_named(formats[i]);
            struct output_rule rule = {.format = f,
                                       .tokenizer = tokenizer,
                                       .tools = kind == 1 ? now : tools,
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
    json_decref(now);
    json_decref(tools);
}

// Calls that may be left out, and text that has to be of a schema: strict tools, response_format beside tools.
TEST(test_optional_calls) {
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
            for (int round = 0; round < 40; round++) {
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

// Arguments between tags, of tools that have to be called and of those that are strict: keywords of JSON Schema hold there,
// too, and what JSON cannot follow they cannot.
TEST(test_tagged_schemas) {
    if (!ready())
        skip();
#define ARG "<tool_call><function=f><parameter=a>\n"
#define END "\n</parameter></function></tool_call>"
    static const struct {
        const char *parameters, *text;
        bool taken;
    } cases[] = {
        {"{'properties':{'a':{'type':'string','pattern':'^x$'}}}", ARG "x" END, true},
        {"{'properties':{'a':{'type':'string','pattern':'^x$'}}}", ARG "y" END, false},
        {"{'properties':{'a':{'type':'string','maxLength':3}}}", ARG "abc" END, true},
        {"{'properties':{'a':{'type':'string','maxLength':3}}}", ARG "abcd" END, false},
        {"{'properties':{'a':{'type':['string','null'],'maxLength':1000}}}", ARG "two < three" END, false},
        {"{'properties':{'a':{'type':['string','null'],'maxLength':1000}}}", ARG "It is." END, true},
        {"{'properties':{'a':{'type':['string','null'],'maxLength':1000}}}", ARG "null" END, true},
        {"{'properties':{'a':{'type':'string','enum':['x','1',1]}}}", ARG "1" END, true},
        {"{'properties':{'a':{'type':'string','enum':['x','1',1]}}}", ARG "\"x\"" END, false},
        {"{'properties':{'a':{'enum':['x','1',1]}}}", ARG "1" END, true},
        {"{'properties':{'a':{'type':['string','integer'],'minimum':5}}}", ARG "12" END, true},
        {"{'properties':{'a':{'type':['string','integer'],'minimum':5}}}", ARG "3" END, false},
        {"{'properties':{'a':{'type':['string','integer'],'minimum':5}}}", ARG "3 pigs" END, true},
        {"{'properties':{'a':{'type':'string'}},'minProperties':1}",
         "<tool_call><function=f></function></tool_call>", false},
        {"{'$ref':'#/$defs/x','$defs':{'x':{'type':'object','properties':{'a':{'type':'integer'}}}}}",
         ARG "7" END, true},
        {"{'$ref':'#/$defs/x','$defs':{'x':{'type':'object','properties':{'a':{'type':'integer'}}}}}",
         ARG "seven" END, false},
        {"{'additionalProperties':{'type':'integer'}}", "<tool_call><function=f><parameter=a/b>\n7" END,
         true},
        {"{'properties':{'my key':{'type':'integer'}}}", "<tool_call><function=f><parameter=my key>\n7" END,
         true},
        {"{'additionalProperties':{'type':'integer'}}", "<tool_call><function=f><parameter=a >\n7" END,
         false},
        {"{'additionalProperties':{'type':'integer'}}", "<tool_call><function=f><parameter= a>\n7" END,
         false},
        {"{'properties':{'a':{'type':'string'}}}", ARG "</parameter>" END, false},
        {"{'properties':{'a':{'type':'string'}},'required':['a']}",
         "<tool_call><function=f></function></tool_call>", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int strict = 0; strict < 2; strict++) {
            char text[400];
            snprintf(text, sizeof text, "[{'function':{'name':'f','strict':%s,'parameters':%s}}]",
                     strict ? "true" : "false", cases[i].parameters);
            for (char *c = text; *c; c++)
                *c = *c == '\'' ? '"' : *c;
            json_t *tools = json_loads(text, 0, NULL);
            assert_non_null(tools);
            struct output_rule rule = {.format = output_format_named("qwen3_coder"),
                                       .tokenizer = tokenizer,
                                       .tools = tools,
                                       .calls = !strict};
            struct constraint *c = compiled(&rule);
            if (takes(c, cases[i].text, strlen(cases[i].text)) != cases[i].taken)
                fail_msg("%s: '%s' is %s", cases[i].parameters, cases[i].text,
                         cases[i].taken ? "refused" : "taken");
            constraint_release(c);
            json_decref(tools);
        }
#undef ARG
#undef END
    // more words than one list holds at once
    json_t *words = json_array(), *tools;
    for (int i = 0; i < 100; i++)
        json_array_append_new(words, json_sprintf("word %d", 100 + i));
    tools = json_pack("[{s:{s:s,s:b,s:{s:{s:{s:s,s:o}},s:[s]}}}]", "function", "name", "f", "strict", 1,
                      "parameters", "properties", "a", "type", "string", "enum", words, "required", "a");
    struct constraint *c = compiled(&(struct output_rule){
        .format = output_format_named("qwen3_coder"), .tokenizer = tokenizer, .tools = tools, .calls = true});
    bool late = false;
    for (int round = 0; round < 100; round++) {
        struct buf written = {0};
        write_text(c, &written);
        late |= memmem(written.data, written.len, "word 19", 7) != NULL;
        buf_free(&written);
    }
    assert_true(late);
    constraint_release(c);
    json_decref(tools);
}

TEST(test_reasoning_first) {
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

// Accepted tokens can be rolled back, and a forbidden token changes nothing.
TEST(test_rollback) {
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
    int num = 0, back = 0; // tokens accepted; that can be taken back
    for (int step = 0; step < 500; step++) {
        if (back && (num == 60 || draw(3) == 0 || f->done(f->state))) {
            int n = 1 + (int)draw((uint32_t)back);
            f->rollback(f->state, n);
            back -= n;
            for (; n > 0; n--)
                free(masks[--num + 1]);
        }
        if (num == 0 && step == 0)
            masks[0] = calloc(words, sizeof **masks);
        whole_mask(f, step == 0 ? masks[0] : again, vocab);
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
        back += back < MAX_DRAFTS;
        masks[++num] = calloc(words, sizeof **masks);
        whole_mask(f, masks[num], vocab);
    }
    for (; num >= 0; num--)
        free(masks[num]);
    free(again);
    f->free(f->state);
    free(f);
    constraint_release(c);
    part_arena_free(&a);
}

TEST(test_cache) {
    if (!ready())
        skip();
    struct constraint_cache *cache = constraint_cache_new(tokenizer_vocabulary(tokenizer), 4 << 20);
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

// A schema whose automata are much work and then too large.
static output_text bomb(struct part_arena *a, int number) {
    char text[1000], *p = text;
    p += snprintf(p, 40, "{\"title\":\"%d\",\"allOf\":[true", number);
    for (int i = 20; i < 30; i++)
        p += snprintf(p, 40, ",{\"pattern\":\"(a|b){%d}.{40}\"}", i);
    p = stpcpy(p, "]}");
    return part_source(a, GRAMMAR_JSON_SCHEMA, text, (size_t)(p - text));
}

struct asker {
    pthread_t thread;
    struct constraint_cache *cache;
    output_text part;
    struct constraint *got;
    struct err err;
};

static void *ask(void *arg) {
    struct asker *a = arg;
    struct json_style style = {0};
    a->got = constraint_cache_get(a->cache, &a->part, &style, &a->err);
    return NULL;
}

// Constraints that were refused or made before are found, without being compiled: a cache that compiles no more does
// both. Refusals push no constraint out.
TEST(test_refusals_are_kept) {
    if (!ready())
        skip();
    struct constraint_cache *cache = constraint_cache_new(tokenizer_vocabulary(tokenizer), 4 << 20);
    struct part_arena a = {0};
    struct asker good = {.cache = cache, .part = part_source(&a, GRAMMAR_REGEX, "[ab]{3}", 7)}, bad[100];
    ask(&good);
    assert_non_null(good.got);
    for (int i = 0; i < 100; i++) {
        char text[40];
        int len = snprintf(text, sizeof text, "{\"multipleOf\":%d,\"type\":\"nothing\"}", i);
        bad[i] =
            (struct asker){.cache = cache, .part = part_source(&a, GRAMMAR_JSON_SCHEMA, text, (size_t)len)};
        ask(&bad[i]);
        assert_true(!bad[i].got && bad[i].err.code == STATUS_INVALID);
    }
    constraint_cache_stop(cache);
    struct asker again = {.cache = cache, .part = good.part};
    ask(&again);
    assert_ptr_equal(again.got, good.got);
    for (int i = 99; i >= 0; i--) {
        again = (struct asker){.cache = cache, .part = bad[i].part};
        ask(&again);
        assert_null(again.got);
        bool kept = again.err.code == STATUS_INVALID;
        assert_true(kept ? strcmp(again.err.msg, bad[i].err.msg) == 0 : again.err.code == STATUS_CANCELLED);
        assert_true(kept || i < 50); // the last ones are
        if (i == 0)
            assert_false(kept); // not without end
    }
    assert_int_equal(constraint_cache_counts(cache).compiled, 1);
    constraint_release(good.got);
    constraint_release(good.got);
    constraint_cache_free(cache);
    part_arena_free(&a);
}

// Threads that ask for the same at the same time get the one constraint, or the one refusal, that one of them makes.
TEST(test_same_at_once) {
    enum { NUM = 4, WORDS = 3000 };
    if (!ready())
        skip();
    struct constraint_cache *cache = constraint_cache_new(tokenizer_vocabulary(tokenizer), 64 << 20);
    struct part_arena a = {0};
    struct asker askers[NUM];
    char *schema = malloc(40 * WORDS), *p = schema;
    assert_non_null(schema);
    p = stpcpy(p, "{\"enum\":[0");
    for (int i = 0; i < WORDS; i++)
        p += snprintf(p, 40, ",\"%x%x\"", draw(1 << 24), draw(1 << 24));
    p = stpcpy(p, "]}");
    output_text parts[] = {part_source(&a, GRAMMAR_JSON_SCHEMA, schema, (size_t)(p - schema)), bomb(&a, 1)};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < NUM; i++) {
            askers[i] = (struct asker){.cache = cache, .part = parts[round]};
            assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
        }
        for (int i = 0; i < NUM; i++) {
            pthread_join(askers[i].thread, NULL);
            assert_ptr_equal(askers[i].got, askers[0].got);
            assert_true(round == 0 ? askers[i].got != NULL : askers[i].err.code == STATUS_LIMIT);
            constraint_release(askers[i].got);
        }
    }
    struct constraint_counts counts = constraint_cache_counts(cache);
    assert_int_equal(counts.compiled, 1);
    assert_int_equal(counts.cached, NUM - 1);
    assert_int_equal(counts.refused, NUM);
    constraint_cache_free(cache);
    free(schema);
    part_arena_free(&a);
}

// A compilation that runs when the cache is stopped is given up, with those that wait for it.
TEST(test_stop) {
    enum { NUM = 3 };
    if (!ready())
        skip();
    for (int turn = 0; turn < 5; turn++) {
        struct constraint_cache *cache = constraint_cache_new(tokenizer_vocabulary(tokenizer), 4 << 20);
        struct part_arena a = {0};
        struct asker askers[NUM];
        for (int i = 0; i < NUM; i++) {
            askers[i] = (struct asker){.cache = cache, .part = bomb(&a, i / 2)};
            assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
        }
        constraint_cache_stop(cache);
        for (int i = 0; i < NUM; i++) {
            pthread_join(askers[i].thread, NULL);
            assert_true(!askers[i].got && askers[i].err.code == STATUS_CANCELLED);
        }
        constraint_cache_free(cache);
        part_arena_free(&a);
    }
}

int main(void) { return run_all_tests(NULL, end_texts); }
