// Lark grammars against texts.
#include "grammar_texts.h"

TEST(test_cases) {
    static const struct grammar_case cases[] = {
        {"start: \"a\" B? c\nB: \"b\"\nc: /[cd]/ | \"e\" -> name\n", {"ac", "abd", "ae"}, {"a", "bc", "abb"}},
        {"// comment\n?start: x | y # comment\n!x.2: \"x\"\n_y: \"n\"\ny: \"y\"\n  | _y\n  | \"z\"\n",
         {"x", "y", "z", "n"},
         {"", "xy"}},
        {"start: \"if\"i \"\\n\\t\\u00e9\\\"\"", {"if\n\té\"", "IF\n\té\""}, {"if", "If\n\tÉ\""}},
        {"start: \"a\"..\"c\"+ [\"x\"] (\"y\" | \"z\")*", {"abc", "axyz", "c"}, {"d", "", "axx"}},
        {"start: \"a\"~2 \"b\"~1..2 \"c\"{2,} \"d\"{,2} \"e\"{1}",
         {"aabcce", "aabbcccdde"},
         {"abcce", "aabcce."}},
        {"start: start \"+\" N | N\nN: /[0-9]+/", {"1", "1+23+4"}, {"+", "1+", ""}},
        {"start: \"(\" start \")\" |", {"", "(())"}, {"(", "())"}},
        {"start: A B\nA: \"a\"\nB: \"b\"\n%ignore / +/\n%ignore \"\\n\"",
         {"ab", " a  b", "a\n b\n "},
         {"a b c", "aa"}},
        {"%ignore WS\nstart: NAME \"=\" SIGNED_NUMBER\nNAME: CNAME\n%import common.CNAME\n"
         "%import common (WS, SIGNED_NUMBER)\n",
         {"x=1", "_a1 = -2.5e3 ", "y=.5", "y=5."},
         {"1=x", "x=", "x=1 2", "x y=1"}},
        {"%import common.ESCAPED_STRING -> STR\nstart: STR",
         {"\"\"", "\"a\\\"b\\\\\""},
         {"\"", "\"a\"b\"", "\"\n\""}},
        {"%import common.C_COMMENT\nstart: C_COMMENT", {"/**/", "/* a * b **/", "/***/"}, {"/*/", "/**/*/"}},
        {"start: /a.c/s /x/i /(?i:y)z/ /\\/\\x2f/", {"a\ncXYz//", "abcxyz//"}, {"acxyz//", "abcxyZ//"}},
        {"start: a->x | b-1\na: \"a\"\nb-1: \"b\"", {"a", "b"}, {"", "ab"}},
        {"start: /a.c/", {"abc", "a\rc"}, {"a\nc"}},
        {"A: \"x\" B+ [\"?\" | \"!\"] | (B \"-\")~2\nB: /[0-9]/\nstart: A",
         {"x1", "x12?", "1-2-"},
         {"x", "1-", "x1?!"}},
        {"NAME: /[a-z]+/\nstart: \"if\" NAME\n%ignore \" \"", {"if x", "ifx", "if if"}, {"if", "i f x"}},
    };
    check_cases(lark_to_expr, cases, sizeof cases / sizeof *cases);
    static const struct grammar_case attributes[] = {
        {"start: head /x*/\nhead[lazy]: /[a-z]*;/", {"ab;xx", ";"}, {"ab;c;", "ab"}},
        {"start: head\nhead[capture, suffix=\"<end>\"]: /(.|\\n)*/",
         {"<end>", "a<en\nd<end>"},
         {"a", "<end>b<end>"}},
        {"start: head\nhead[capture=\"x\",suffix=END]: A | B\nA: \"a\"+\nB: \"b\"\nEND: /[.!]/",
         {"aa.", "b!"},
         {"ab.", "a"}},
        {"%llguidance { }\nstart: \"a\" <[7]>\n", {NULL}, {"a"}},
        {"start: \"call \" %json {\"type\": \"object\", \"properties\": {\"}\": {\"type\": \"integer\"}},\n"
         "\"required\": [\"}\"], \"additionalProperties\": false} \"!\"\n%ignore \" \"",
         {"call {\"}\": 12}!", " call  {\"}\": 1} !"},
         {"call {}!", "call {\"}\": \"1\"}!"}},
    };
    check_cases(lark_to_expr, attributes, sizeof attributes / sizeof *attributes);
}

// llguidance's documents: its examples of what is supported.
TEST(test_examples) {
    static const struct grammar_case cases[] = {
        {"start: TEXT | fun_call\nTEXT: /[^{](.|\\n)*/\nfun_call: %json {\n  \"type\": \"object\",\n  "
         "\"properties\": {\n"
         "    \"name\": { \"const\": \"get_weather\" }\n  },\n  \"required\": [\"name\"]\n}\n",
         {"There is no\nfunction", "{\"name\":\"get_weather\"}"},
         {"{\"name\":\"other\"}", ""}},
        {"start: ( f_foo )* f_end\nf_end: TEXT\nTEXT: /(.|\\n)*/\nf_foo_hd[lazy]: TEXT \"<function\"\n"
         "f_foo: f_foo_hd \"=foo>\" /[0-9]+/ \"</function>\"\n",
         {"", "text", "a<function=foo>12</function>b<function=foo>3</function>"},
         {"\xff"}},
        {"INT: \"-\"? UINT\nUINT: DIGIT+\nDIGIT: /[0-9]/\nstart: INT", {"-12", "0"}, {"-", "1-"}},
    };
    check_cases(lark_to_expr, cases, sizeof cases / sizeof *cases);
}

TEST(test_refusals) {
    static const struct refusal cases[] = {
        {"", STATUS_INVALID, "no rule of the name start"},
        {"start: a", STATUS_INVALID, "line 1, column 8: this rule is not defined"},
        {"start: \"é\" A", STATUS_INVALID, "line 1, column 12: this terminal is not defined"},
        {"start: A\nA: b\nb: \"x\"", STATUS_INVALID, "line 2, column 4: a terminal cannot have a rule"},
        {"start: A\nA: \"x\" B\nB: A", STATUS_INVALID,
         "line 3, column 4: this terminal stands within itself"},
        {"start: \"a\"\nstart: \"b\"", STATUS_INVALID, "line 2, column 1: this name is defined twice"},
        {"start: (\"a\"", STATUS_INVALID, ") is expected"},
        {"start: \"a\")", STATUS_INVALID, "column 11: this cannot stand here"},
        {"start: \"a", STATUS_INVALID, "column 8: \" has no end"},
        {"start: /a(/", STATUS_INVALID, "column 8: regular expression, character 2: ( has no )"},
        {"start: /a/x", STATUS_INVALID, "column 11: this flag"},
        {"start: \"\\q\"", STATUS_INVALID, "column 9: this escape"},
        {"start: A\nA: \"ab\"..\"c\"", STATUS_INVALID, "line 2, column 4: an end of a range"},
        {"start: \"c\"..\"a\"", STATUS_INVALID, "a range whose end"},
        {"start: \"a\"~3..2", STATUS_INVALID, "a repeat whose end"},
        {"start: \"a\"~100001", STATUS_LIMIT, "a repeat of more"},
        {"start: \"a\"{x}", STATUS_INVALID, "a repeat is written"},
        {"start: <|eom_id|>", STATUS_INVALID, "special tokens are supported by number"},
        {"start: <[1-5]>", STATUS_INVALID, "special tokens are supported by number"},
        {"start: @other", STATUS_INVALID, "grammars by name"},
        {"start: %regex {\"substring_chars\": \"abc\"}", STATUS_INVALID, "in rules %json alone"},
        {"start: %json {\"type\": \"strin\"}", STATUS_INVALID, "line 1, column 14: "},
        {"start: %json {\"a\"", STATUS_INVALID, "column 14: { has no }"},
        {"start: A\nA: /a/ & ~/b/", STATUS_INVALID, "line 2, column 8: the operators"},
        {"start: sep{\"a\"}\nsep{x}: x", STATUS_INVALID, "templates"},
        {"sep{x}: x", STATUS_INVALID, "templates"},
        {"start[max_tokens=3]: /a/", STATUS_INVALID, "column 7: of attributes capture"},
        {"%declare A\nstart: A", STATUS_INVALID, "of statements"},
        {"%import python.NAME\nstart: NAME", STATUS_INVALID, "the module common alone"},
        {"%import common.NOPE\nstart: NOPE", STATUS_INVALID, "no such terminal"},
        {"%llguidance {\"no_forcing\": true}\nstart: \"a\"", STATUS_INVALID, "%llguidance is supported"},
        {"start: \"a\" ;", STATUS_INVALID, "column 12: this character"},
        {"start \"a\"", STATUS_INVALID, "column 7: : is expected"},
        {"start: start", STATUS_INVALID, ""},
        {"start: \"a\xff\"", STATUS_INVALID, "UTF-8"},
    };
    check_refusals(lark_to_expr, cases, sizeof cases / sizeof *cases);
    // Each terminal twice the one before it, and groups.
    char large[1024] = "start: A0\nA40: \"0123456789\"\n", deep[200] = "start: ";
    for (int i = 0; i < 40; i++)
        snprintf(large + strlen(large), 32, "A%d: A%d A%d\n", i, i + 1, i + 1);
    for (int i = 0; i < 65; i++)
        strcat(deep, "(");
    const char *const sources[] = {large, deep};
    for (int i = 0; i < 2; i++) {
        struct err err = {0};
        assert_null(read_grammar(lark_to_expr, sources[i], strlen(sources[i]), &err));
        assert_int_equal(err.code, STATUS_LIMIT);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
