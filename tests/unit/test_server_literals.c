// Calls whose arguments are literals of a language, Python's or Gemma's: their grammars and their parser.
#include "output_texts.h"

#include <unistd.h>

// JSON without the escape of DEL, which needs none: a schema's keys are taken without it alone.
static void plain_del(struct buf *json) {
    size_t to = 0;
    for (size_t at = 0; at < json->len; at++) {
        bool escape = json->data[at] == '\\' && at + 1 < json->len,
             del = escape && json->len - at >= 6 && memcmp(json->data + at, "\\u007f", 6) == 0;
        json->data[to++] = del ? 0x7f : json->data[at];
        if (del)
            at += 5;
        else if (escape)
            json->data[to++] = json->data[++at];
    }
    json->len = to;
}

// Arguments written as literals: what is read of them is JSON of the same schema, and its keys and strings may be anything
// that the schema lets them be. "no word" is a key that these formats cannot write.
TEST(test_literals_are_read_back) {
    static const char *const names[] = {"pythonic", "lfm2", "gemma4"};
    static const char *const schemas[] = {
        "{\"type\": \"object\", \"properties\": {\"text\": {\"type\": \"string\", \"minLength\": 1, "
        "\"maxLength\": 9},"
        " \"any\": {}, \"no word\": {\"type\": \"integer\"}, \"list\": {\"type\": \"array\", \"maxItems\": "
        "3, \"items\":"
        " {\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"number\"}, \"of\": {\"enum\": [true, "
        "null, \"<|\\\"|>\","
        " \"it's \\\"so\\\"\\n\", -0.5]}}, \"required\": [\"of\"]}}}, \"required\": [\"text\"]}",
        "{\"type\": \"object\", \"additionalProperties\": {\"type\": [\"string\", \"boolean\"]}, "
        "\"minProperties\": 1, \"maxProperties\": 4}",
        "{\"$ref\": \"#/$defs/tree\", \"$defs\": {\"tree\": {\"type\": \"object\", \"properties\": "
        "{\"name\": {\"type\": \"string\","
        " \"maxLength\": 1000}, \"left\": {\"$ref\": \"#/$defs/tree\"}}, \"additionalProperties\": false, "
        "\"required\": [\"name\"]}}}",
        "{\"anyOf\": [{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}}, \"required\": [\"a\"], "
        "\"additionalProperties\": false},"
        " {\"type\": \"object\", \"properties\": {\"b\": {\"type\": \"string\", \"pattern\": "
        "\"^[<|>\\\"]*$\"}}, \"required\": [\"b\"],"
        " \"additionalProperties\": false}, {\"type\": \"string\"}]}",
        "true",
        "{}"};
    (void)state;
    if (!ready())
        skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof schemas / sizeof *schemas; k++) {
            const struct output_format *f = output_format_named(names[i]);
            json_t *schema = json_loads(schemas[k], JSON_DECODE_ANY, NULL);
            json_t *tools = json_pack("[{s:{s:s,s:O}}]", "function", "name", "f", "parameters", schema);
            assert_non_null(tools);
            struct constraint *c = compiled(&(struct output_rule){
                .format = f, .tokenizer = tokenizer, .tools = tools, .calls = true, .one_call = true});
            struct part_arena a = {0};
            struct err err = {0};
            output_text json = part_schema(&a, schema);
            struct constraint *oracle =
                constraint_new(&json, &(struct json_style){.max_blanks = 2}, trie, &err);
            assert_non_null(oracle);
            size_t longest = 0;
            for (int round = 0; round < 40; round++) {
                struct buf text = {0}, arguments = {0};
                write_text(c, &text);
                struct output_parser *p = output_parser_new(f, tools, true, false);
                size_t num, at = 0;
                const char *bytes;
                output_push(p, text.data, text.len);
                output_end(p);
                const struct output_part *parts = output_parts(p, &num, &bytes);
                for (; at < num; at++)
                    if (parts[at].kind == PART_ARGUMENTS)
                        buf_add(&arguments, bytes + parts[at].begin, parts[at].len);
                plain_del(&arguments);
                if (output_num_calls(p) != 1 || !takes(oracle, arguments.data, arguments.len))
                    fail_msg("%s, schema %zu: '%s' is read as '%s'", f->name, k, buf_cstr(&text),
                             buf_cstr(&arguments));
                longest = arguments.len > longest ? arguments.len : longest;
                output_parser_free(p);
                buf_free(&text);
                buf_free(&arguments);
            }
            assert_true(longest > 4);
            constraint_release(oracle);
            constraint_release(c);
            part_arena_free(&a);
            json_decref(tools);
            json_decref(schema);
        }
}

// How they are written, and what no model of such a format writes.
TEST(test_literals) {
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"s\": {\"type\": \"string\"}, "
                                 "\"b\": {\"type\": \"boolean\"},"
                                 " \"n\": {\"type\": \"null\"}, \"o\": {\"type\": \"object\", "
                                 "\"properties\": {\"k\": {\"type\": \"integer\"}}}},"
                                 " \"additionalProperties\": false}";
    static const struct {
        const char *format, *text;
        bool taken;
    } cases[] = {
        {"lfm2", "<|tool_call_start|>[f(s=\"a\\n\\u00e9'\", b=True, n=None, o={\"k\": 1})]<|tool_call_end|>",
         true},
        {"lfm2", "<|tool_call_start|>[f(), f(b=False)]<|tool_call_end|>", true},
        {"lfm2", "<|tool_call_start|>[f(b=true)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(n=null)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(\"b\"=True)]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(o={k: 1})]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(s=\"\\ud83d\\ude00\")]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(s=\"\\/\")]<|tool_call_end|>", false},
        {"lfm2", "<|tool_call_start|>[f(x=1)]<|tool_call_end|>", false},
        {"pythonic", "[f(s=\"\"), f()]", true},
        {"pythonic", "[g()]", false},
        {"gemma4", "<|tool_call>call:f{s:<|\"|>a\"\\<|\"|\n<|\"|>,b:true,n:null,o:{k:1}}<tool_call|>", true},
        {"gemma4", "<|tool_call>call:f{}<tool_call|><|tool_call>call:f{}<tool_call|>", true},
        {"gemma4", "<|tool_call>call:f{s:\"a\"}<tool_call|>", false},
        {"gemma4", "<|tool_call>call:f{b:True}<tool_call|>", false},
        {"gemma4", "<|tool_call>call:f{\"b\":true}<tool_call|>", false},
        {"gemma4", "<|tool_call>call:f{s:<|\"|>a<|\"|>b<|\"|>}<tool_call|>", false}};
    (void)state;
    if (!ready())
        skip();
    json_t *tools =
        json_pack("[{s:{s:s,s:o}}]", "function", "name", "f", "parameters", json_loads(schema, 0, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct constraint *c = compiled(&(struct output_rule){.format = output_format_named(cases[i].format),
                                                              .tokenizer = tokenizer,
                                                              .tools = tools,
                                                              .calls = true});
        if (takes(c, cases[i].text, strlen(cases[i].text)) != cases[i].taken)
            fail_msg("'%s' is %s", cases[i].text, cases[i].taken ? "refused" : "taken");
        constraint_release(c);
    }
    json_decref(tools);

    // The mark of strings as a control token: here that which begins a text.
    struct grammar_literals literals = {.words = {"yes", "no", "nil"},
                                        .quote = OUTPUT_QUOTE,
                                        .quote_token = tokenizer_bos(tokenizer),
                                        .bare_keys = true};
    struct part_arena a = {0};
    struct constraint_cache *cache = constraint_cache_new(tokenizer_vocabulary(tokenizer), 4 << 20);
    struct json_style style = {0};
    struct err err = {0};
    output_text p = part_source(&a, GRAMMAR_JSON_SCHEMA, schema, strlen(schema)), json = p;
    p.literals = &literals;
    struct constraint *c = constraint_cache_get(cache, &p, &style, &err),
                      *plain = constraint_cache_get(cache, &json, &style, &err);
    literals.words[0] = "aye";
    struct constraint *other = constraint_cache_get(cache, &p, &style, &err);
    assert_true(c && plain && other && c != plain && c != other);
    assert_true(takes(c, "{b:yes,n:nil}", 13) && !takes(c, "{b:aye}", 7) && takes(other, "{b:aye}", 7) &&
                takes(plain, "{\"b\":true}", 10));
    assert_false(takes(c, "{s:<|\"|><|\"|>}", 14));
    struct token_filter *f = constraint_filter(c);
    static const char *const pieces[] = {"{", "s", ":", NULL, "<", "|", "\"", NULL, "}"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        token_id id = literals.quote_token;
        for (token_id t = 0; pieces[i] && t < tokenizer_vocab(tokenizer); t++) {
            size_t len;
            const char *bytes = tokenizer_bytes(tokenizer, t, false, &len);
            id = len == 1 && *bytes == *pieces[i] ? t : id;
        }
        assert_true(f->accept(f->state, id));
    }
    assert_true(f->done(f->state));
    f->free(f->state);
    free(f);
    constraint_release(c);
    constraint_release(plain);
    constraint_release(other);
    output_text both[] = {part_source(&a, GRAMMAR_JSON_SCHEMA, "{}", 2),
                          part_source(&a, GRAMMAR_JSON_SCHEMA, "{}", 2)};
    both[0].literals = &literals;
    output_text all = part_list(&a, GRAMMAR_SEQ, both, 2);
    c = constraint_cache_get(cache, &all, &style, &err);
    assert_true(takes(c, "{a:aye}true", 11) && takes(c, "{a:{b:no}}[{\"a\":null}]", 22));
    assert_false(takes(c, "{a:aye}aye", 10) || takes(c, "{:aye}true", 10));
    constraint_release(c);
    static const char no_word[] = "{\"properties\": {\"no word\": {}}, \"required\": [\"no word\"]}",
                      some[] = "{\"properties\": {\"no word\": {}, \"a\": {}}, \"minProperties\": 2, "
                               "\"additionalProperties\": false}";
    output_text cannot[] = {part_source(&a, GRAMMAR_JSON_SCHEMA, no_word, strlen(no_word)),
                            part_source(&a, GRAMMAR_JSON_SCHEMA, some, strlen(some))};
    for (int i = 0; i < 2; i++) {
        struct constraint *json_too = constraint_cache_get(cache, &cannot[i], &style, &err);
        assert_non_null(json_too);
        constraint_release(json_too);
        cannot[i].literals = &literals;
        if (constraint_cache_get(cache, &cannot[i], &style, &err))
            fail_msg("%s can be written", cannot[i].text);
        assert_int_equal(err.code, STATUS_INVALID);
        err = (struct err){0};
    }
    constraint_cache_free(cache);
    part_arena_free(&a);
}

// A vocabulary that has the mark around strings as a control token: it stands where the mark is, and nothing else does.
TEST(test_mark_is_a_token) {
    if (!ready())
        skip();
    struct tokenizer *plain = tokenizer;
    struct token_trie *plain_trie = trie;
    const char *path = test_data("models/stories260K/stories260K.gguf");
    char made[] = "/tmp/quire-mark-XXXXXX";
    int fd = mkstemp(made);
    FILE *from = fopen(path, "rb"), *to = fdopen(fd, "wb");
    assert_true(from && to);
    static char bytes[1 << 17]; // the vocabulary is within
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, from)) > 0;) {
        char *mark = memmem(bytes, n, "<unk>", 5);
        if (mark)
            memcpy(mark, OUTPUT_QUOTE, 5);
        assert_int_equal(fwrite(bytes, 1, n, to), n);
    }
    fclose(from);
    fclose(to);
    struct err err = {0};
    tokenizer = tokenizer_open(made, &err);
    unlink(made);
    if (!tokenizer)
        fail_msg("%s", err.msg);
    trie = token_trie_new(tokenizer_vocabulary(tokenizer));
    json_t *tools = json_loads(tools_text, 0, NULL);
    const struct output_format *f = output_format_named("gemma4");
    token_id ids[MAX_FORMAT_TOKENS];
    int num = output_format_tokens(f, tokenizer, ids);
    assert_true(num == 1 && ids[0] == 0);
    json_t *weather = json_pack("[O]", json_array_get(tools, 0));
    struct constraint *c = compiled(&(struct output_rule){.format = f,
                                                          .tokenizer = tokenizer,
                                                          .tokens = ids,
                                                          .num_tokens = num,
                                                          .tools = weather,
                                                          .calls = true});
    json_decref(weather);
    for (int round = 0; round < 10; round++) {
        struct buf text = {0};
        write_text(c, &text);
        assert_true(read_calls(f, tools, &text, false) > 0);
        buf_free(&text);
    }
    static const char spelled[] = "<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>}<tool_call|>";
    assert_false(takes(c, spelled, strlen(spelled)));
    constraint_release(c);
    json_decref(tools);
    token_trie_free(trie);
    tokenizer_free(tokenizer);
    tokenizer = plain;
    trie = plain_trie;
}

int main(void) { return run_all_tests(NULL, end_texts); }
