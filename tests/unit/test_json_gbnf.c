// llama.cpp's cases of grammars and schemas and its grammars, as the test data has them, and cases by hand.
#include "grammar_texts.h"

#include <jansson.h>

// A case's text: a string, or bytes in which 0xff and four more are a token, the highest first.
static size_t case_text(const json_t *text, char *out, size_t max) {
    const json_t *bytes = json_object_get(text, "bytes");
    if (!bytes) {
        assert_true(json_is_string(text) && json_string_length(text) < max);
        memcpy(out, json_string_value(text), json_string_length(text));
        return json_string_length(text);
    }
    size_t len = 0;
    for (size_t i = 0; i < json_array_size(bytes); i++) {
        assert_true(len + TOKEN_CODE_BYTES < max);
        int byte = (int)json_integer_value(json_array_get(bytes, i));
        if (byte == 0xff) {
            int32_t token = 0;
            for (int j = 0; j < 4; j++)
                token = token << 8 | (int32_t)json_integer_value(json_array_get(bytes, ++i));
            token_code(token, out + len);
            len += TOKEN_CODE_BYTES;
        } else {
            out[len++] = (char)byte;
        }
    }
    return len;
}

TEST(test_llama_cases) {
    const char *path = test_data("structured/grammars/llamacpp-grammar-cases.json");
    json_error_t error;
    json_t *cases = path ? json_load_file(path, 0, &error) : NULL;
    if (!path)
        skip();
    assert_non_null(cases);
    size_t i, j;
    const json_t *c, *text;
    int num = 0;
    json_array_foreach(cases, i, c) {
        const char *kind = json_string_value(json_object_get(c, "kind"));
        const char *source = json_string_value(json_object_get(c, "grammar"));
        if (strncmp(kind, "gbnf", 4) != 0)
            continue;
        struct err err = {0};
        struct grammar *g = read_grammar(gbnf_to_expr, source, strlen(source), &err);
        if (!g && strcmp(kind, "gbnf") == 0)
            fail_msg("%s\n%s", source, err.msg);
        static const char *const lists[] = {"fail", "pass"};
        for (int takes = 0; g && takes < 2; takes++)
            json_array_foreach(json_object_get(c, lists[takes]), j, text) {
                char bytes[4096];
                check_text(g, source, bytes, case_text(text, bytes, sizeof bytes), takes);
            }
        grammar_free(g);
        num++;
    }
    assert_int_equal(num, 11);
    json_decref(cases);
}

// llama.cpp's own cases of schemas. Where it differs from JSON Schema the case is named here, with what it does.
TEST(test_llama_schemas) {
    static const struct {
        const char *name, *text, *why;
    } differs[] = {
        {"min 0", "-0", "minus zero is zero"},
        {"min+max items", "1", "without `type` what is no array is valid, too"},
    };
    const char *path = test_data("structured/grammars/llamacpp-grammar-cases.json");
    if (!path)
        skip();
    json_t *cases = json_load_file(path, 0, NULL), *c, *text;
    assert_non_null(cases);
    size_t i, j;
    int num = 0, excepted = 0;
    json_array_foreach(cases, i, c) {
        if (strcmp(json_string_value(json_object_get(c, "kind")), "json_schema") != 0)
            continue;
        const char *name = json_string_value(json_object_get(c, "name")),
                   *schema = json_string_value(json_object_get(c, "schema"));
        struct err err = {0};
        struct grammar *g = read_grammar(schema_to_expr, schema, strlen(schema), &err);
        num++;
        if (strcmp(name, "required props") == 0) { // refused where llama.cpp ignores the keyword
            assert_true(!g && strstr(err.msg, "/properties/tags/uniqueItems"));
            continue;
        }
        if (!g)
            fail_msg("%s: %s", name, err.msg);
        static const char *const lists[] = {"fail", "pass"};
        for (int want = 0; want < 2; want++)
            json_array_foreach(json_object_get(c, lists[want]), j, text) {
                const char *t = json_string_value(text);
                bool known = false;
                for (size_t k = 0; k < sizeof differs / sizeof *differs; k++)
                    known |= !strcmp(differs[k].name, name) && !strcmp(differs[k].text, t);
                excepted += known;
                if (grammar_takes(g, t, strlen(t)) != (want != known))
                    fail_msg("%s: %s is %s", name, t, want ? "refused" : "taken");
            }
        grammar_free(g);
    }
    json_decref(cases);
    assert_int_equal(num, 22);
    assert_int_equal(excepted, sizeof differs / sizeof *differs);
}

// The schemas of llama.cpp's test-json-schema-to-grammar.cpp with instances that the grammar which it expects takes and
// refuses; `differs`: we do the opposite, for the reason there; `refused`: no schema of JSON Schema, what our error says.
TEST(test_llama_conversions) {
    json_t *cases = json_load_file(QUIRE_SOURCE_DIR "/tests/unit/llamacpp_schemas.json", 0, NULL), *c, *text;
    assert_int_equal(json_array_size(cases), 75);
    size_t i, j;
    json_array_foreach(cases, i, c) {
        const char *name = json_string_value(json_object_get(c, "name")),
                   *refused = json_string_value(json_object_get(c, "refused")), *key;
        char *schema = json_dumps(json_object_get(c, "schema"), 0);
        struct err err = {0};
        struct grammar *g = read_grammar(schema_to_expr, schema, strlen(schema), &err);
        if (!g != (refused != NULL) || (refused && !strstr(err.msg, refused)))
            fail_msg("%s: %s", name, g ? "taken" : err.msg);
        static const char *const lists[] = {"fail", "pass"};
        for (int want = 0; g && want < 2; want++)
            json_array_foreach(json_object_get(c, lists[want]), j, text)
                check_text(g, name, json_string_value(text), json_string_length(text), want);
        json_object_foreach(json_object_get(c, "differs"), key, text)
            check_text(g, name, key, strlen(key), true);
        grammar_free(g);
        free(schema);
    }
    json_decref(cases);
}

// The grammars of llama.cpp's folder.
TEST(test_llama_files) {
    static const struct {
        const char *file, *taken[4], *refused[4];
    } files[] = {
        {"arithmetic", {"1 +2 = 3\n", "(x*y)-4=z\n"}, {"1 + = 3\n", "1=1"}},
        {"c", {"int main(){return 0;}", "float f(int x){x = x+1;}"}, {"int main({}"}},
        {"chess", {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. O-O Qxe5+\n"}, {"1. e4\n", "e4 e5\n"}},
        {"english", {"The quick (brown) fox."}, {"日本"}},
        {"japanese", {"日本語、です。"}, {"nihongo"}},
        {"json", {"{\"a\": [1, -2.5e3, true, null, \"\\u00e9\\n\"]}", "{}"}, {"[1,]", "{a: 1}", "{"}},
        {"json_arr", {"[\n{},\n\"x\"]"}, {"{}", "[1,]"}},
        {"list", {"- a\n- b c\n"}, {"a\n", "- a"}},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        static char source[1 << 16];
        snprintf(name, sizeof name, "structured/grammars/%s.gbnf", files[i].file);
        const char *path = test_data(name);
        FILE *f = path ? fopen(path, "rb") : NULL;
        if (!f)
            skip();
        size_t len = fread(source, 1, sizeof source - 1, f);
        source[len] = 0;
        fclose(f);
        struct err err = {0};
        struct grammar *g = read_grammar(gbnf_to_expr, source, len, &err);
        if (!g)
            fail_msg("%s: %s", name, err.msg);
        for (int j = 0; files[i].taken[j]; j++)
            check_text(g, name, files[i].taken[j], strlen(files[i].taken[j]), true);
        for (int j = 0; files[i].refused[j]; j++)
            check_text(g, name, files[i].refused[j], strlen(files[i].refused[j]), false);
        grammar_free(g);
    }
}

TEST(test_cases) {
    static const struct grammar_case cases[] = {
        {"root ::= \"a\\x41\\u00e9\\U0001F600\\\"\\\\\\n\\t\" | \"\"", {"aAé😀\"\\\n\t", ""}, {"aA", "a"}},
        {"root ::= [a-c\\-\\]0-9x-]+", {"a-]5x", "c"}, {"", "d", "["}},
        {"root ::= [^\\n\\x41-Z]{2}", {"a日", "😀["}, {"aA", "\na", "aaa"}},
        {"root ::= .{1,2}", {"日", "\n😀"}, {"", "abc"}},
        {"root ::= [\\d\\s]{3} [\\w] [\\D]", {"1 2_x"}, {"1a2_x", "1 2_3"}},
        {"root ::= (\"a\" | \"b\"\n  \"c\" # a comment\n)* \"!\"", {"!", "abca!"}, {"b!", "ac"}},
        {"root::=a\r\na ::=\n  \"x\" |\r\n\"y\"\n# end", {"x", "y"}, {"", "xy"}},
        {"# first\n\nroot ::= \"a\"\n  | \"b\"\n  \"c\"\n\nother ::= root", {"a", "bc"}, {"b", "abc"}},
        {"root ::= A.b_c-1\nA.b_c-1 ::= \"x\"", {"x"}, {""}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "((()))"}, {"(", "())"}},
        {"root ::= root \"+\" t | t\nt ::= [0-9]", {"1", "1+2+3"}, {"", "+", "1+"}},
        {"root ::= \"a\"*? \"b\"{2} \"c\" {1,} \"d\"{0,1}", {"bbc", "aabbccd"}, {"bc", "bbd"}},
        {"root ::= (\"ab\"){3}", {"ababab"}, {"abab"}},
        {"root ::= \"a\"\nroot ::= \"b\"", {"b"}, {"a"}},
        {"root ::= | \"a\" |", {"", "a"}, {"b"}},
        {"root ::= ([a] | ([b] ([c])?))?", {"", "a", "b", "bc"}, {"c", "ab"}},
        {"root ::= \"x\"{0,100000}", {"", "xxx"}, {"y"}},
    };
    check_cases(gbnf_to_expr, cases, sizeof cases / sizeof *cases);
}

TEST(test_refusals) {
    static const struct refusal cases[] = {
        {"", STATUS_INVALID, "no rule of the name root"},
        {"rooot ::= \"a\"", STATUS_INVALID, "no rule of the name root"},
        {"root ::= \"a\"\n\n  b", STATUS_INVALID, "line 3, column 3: this rule is not defined"},
        {"root ::= é", STATUS_INVALID, "line 1, column 10: this cannot stand here"},
        {"\"é\" ::= x", STATUS_INVALID, "line 1, column 1: a rule is written as"},
        {"root = \"a\"", STATUS_INVALID, "line 1, column 1: a rule is written as"},
        {"root ::= \"é\" )", STATUS_INVALID, "line 1, column 14: this cannot stand here"},
        {"root ::= (\"a\"", STATUS_INVALID, "line 1, column 10: ( has no )"},
        {"root ::= [a", STATUS_INVALID, "line 1, column 10: [ has no ]"},
        {"root ::= []", STATUS_INVALID, "column 10: an empty class"},
        {"root ::= [z-a]", STATUS_INVALID, "column 11: a range"},
        {"root ::= \"a", STATUS_INVALID, "column 10: \" has no end"},
        {"root ::= \"\\q\"", STATUS_INVALID, "column 11: this escape is not known"},
        {"root ::= \"\\u12\"", STATUS_INVALID, "column 11: this escape needs 4"},
        {"root ::= \"\\ud800\"", STATUS_INVALID, "column 11: half of a pair"},
        {"root ::= \"\\U00110000\"", STATUS_INVALID, "column 11: there is no such"},
        {"root ::= * \"a\"", STATUS_INVALID, "column 10: there is nothing to repeat"},
        {"root ::= \"a\" (+)", STATUS_INVALID, "column 15: there is nothing to repeat"},
        {"root ::= \"a\"{,2}", STATUS_INVALID, "column 13: a repeat is written"},
        {"root ::= \"a\"{2,1}", STATUS_INVALID, "column 13: a repeat whose end"},
        {"root ::= \"a\"{100001}", STATUS_LIMIT, "column 13: a repeat of more"},
        {"root ::= <think>", STATUS_INVALID, "column 10: tokens are supported by number"},
        {"root ::= !<[x]>", STATUS_INVALID, "column 10: a token is written"},
        {"root ::= \"a\" (=\"b\")", STATUS_INVALID, "column 14: looks ahead"},
        {"root ::= \"a\xff\"", STATUS_INVALID, "not valid UTF-8"},
        {"root ::= root", STATUS_INVALID, ""},
    };
    check_refusals(gbnf_to_expr, cases, sizeof cases / sizeof *cases);
    struct err err = {0};
    assert_null(read_grammar(gbnf_to_expr, "root ::= \"\0*\"\0*", 15, &err));
    char deep[200] = "root ::= ";
    for (int i = 0; i < 65; i++)
        strcat(deep, "(");
    err = (struct err){0};
    assert_null(read_grammar(gbnf_to_expr, deep, strlen(deep), &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    size_t len = SOURCE_BYTES + 1;
    char *large = malloc(len);
    assert_non_null(large);
    memset(large, ' ', len);
    err = (struct err){0};
    assert_null(read_grammar(gbnf_to_expr, large, len, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    len = 0;
    for (int i = 0; i <= MAX_RULES; i++)
        len += (size_t)sprintf(large + len, "r%d ::= \"\"\n", i);
    err = (struct err){0};
    assert_null(read_grammar(gbnf_to_expr, large, len, &err));
    assert_int_equal(err.code, STATUS_LIMIT);
    free(large);
}

int main(void) { return run_all_tests(NULL, NULL); }
