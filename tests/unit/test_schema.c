// JSON Schema: what is taken and refused by keyword, what is not supported and how that is said, hostile schemas.
#include "harness.h"

#include "grammar/front.h"
#include "grammar/matcher.h"

// The grammar of a schema, or NULL with err.
static struct grammar *compile(const char *schema, size_t len, enum json_order order, struct err *err) {
    struct grammar_builder *b = gb_new();
    assert_non_null(b);
    gb_json_style(b, &(struct json_style){order, 4, order == JSON_ORDER_ANY});
    expr root = schema_to_expr(b, schema, len, err);
    if (root != EXPR_NONE)
        return grammar_finish(b, root, err);
    assert_true(err->code != STATUS_OK && err->msg[0]);
    gb_free(b);
    return NULL;
}

static void check(enum json_order order, const char *schema, const char *const *taken,
                  const char *const *refused) {
    struct err err = {0};
    struct grammar *g = compile(schema, strlen(schema), order, &err);
    if (!g && strstr(err.msg, "no text") && !*taken)
        return;
    if (!g)
        fail_msg("%s: %s", schema, err.msg);
    for (; *taken; taken++)
        if (!grammar_takes(g, *taken, strlen(*taken)))
            fail_msg("%s refuses %s", schema, *taken);
    for (; *refused; refused++)
        if (grammar_takes(g, *refused, strlen(*refused)))
            fail_msg("%s takes %s", schema, *refused);
    grammar_free(g);
}
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING ((const char *const[]){NULL})
#define ANY_ORDER(schema, taken, refused) check(JSON_ORDER_ANY, schema, taken, refused)

TEST(test_types) {
    ANY_ORDER("true", TEXTS("null", "[1,{\"a\":\"b\"}]", "-1.5e3"), TEXTS("", "nul", "{\"a\":}"));
    ANY_ORDER("false", NOTHING, TEXTS("null", "1"));
    ANY_ORDER("{}", TEXTS("null", "\"\"", "{}"), TEXTS("tru"));
    ANY_ORDER("{\"type\":[\"null\",\"boolean\"]}", TEXTS("null", "true", "false"),
              TEXTS("0", "\"\"", "[]", "{}"));
    ANY_ORDER("{\"type\":\"integer\"}", TEXTS("0", "-12", "1.0", "3.00"), TEXTS("1.5", "01", "1.", "\"1\""));
    ANY_ORDER("{\"type\":\"integer\",\"$schema\":\"http://json-schema.org/draft-04/schema#\"}", TEXTS("12"),
              TEXTS("1.0"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\"}", TEXTS("0", "-12"), TEXTS("1.0", "1.5"));
    ANY_ORDER("{\"type\":\"number\"}", TEXTS("0", "-12", "1.5e-3"), TEXTS("+1", ".5", "NaN", "Infinity"));
    ANY_ORDER("{\"type\":[\"integer\",\"number\"]}", TEXTS("1.5", "2"), TEXTS("null"));
    ANY_ORDER("{\"type\":\"string\"}", TEXTS("\"\"", "\"\\u00e9\\n\""), TEXTS("1", "\"\n\"", "\"\\x\""));
}

TEST(test_values) {
    ANY_ORDER("{\"enum\":[1,\"a\",null,[2],{\"x\":1,\"y\":[]}]}",
              TEXTS("1", "1.0", "\"a\"", "null", "[2]", "{\"x\":1,\"y\":[]}", "{\"y\":[],\"x\":1}"),
              TEXTS("2", "10", "\"b\"", "[]", "[2,2]", "{\"x\":1}", "{\"x\":1,\"y\":[],\"z\":0}", "true"));
    ANY_ORDER("{\"const\":false}", TEXTS("false"), TEXTS("0", "true"));
    ANY_ORDER("{\"const\":-1.50}", TEXTS("-1.5", "-1.50"), TEXTS("-1.51", "-1", "1.5"));
    ANY_ORDER("{\"const\":0}", TEXTS("0", "-0", "0.0"), TEXTS("1", "00"));
    ANY_ORDER("{\"const\":1e2}", TEXTS("100", "100.0"), TEXTS("10", "1000"));
    ANY_ORDER(
        "{\"not\":{\"enum\":[\"a\",1,{\"k\":1},[1]]}}",
        TEXTS("\"b\"", "\"aa\"", "2", "{}", "{\"k\":2}", "{\"k\":1,\"l\":1}", "[]", "[1,1]", "[2]", "true"),
        TEXTS("\"a\"", "1", "1.0", "{\"k\":1}", "[1]"));
    check(JSON_ORDER_SCHEMA, "{\"const\":1}", TEXTS("1"), TEXTS("1.0"));
}

// Lists of as many values as there are words of a language: texts, some with escapes, and numbers; two lists that both
// hold; beside a pattern and a length.
TEST(test_many_values) {
    enum { NUM = 20000 };
    char *schema = malloc(3 * 40 * NUM), *p = schema, text[64];
    struct err err = {0};
    assert_non_null(schema);
    p = stpcpy(p, "{\"allOf\":[{\"enum\":[null");
    for (int i = 0; i < NUM; i++)
        p += sprintf(p, ",\"word %d%s of many\",%d.5", i, i % 10 ? "" : "\\n\\\"", i);
    p = stpcpy(p, "]},{\"enum\":[true,null");
    for (int i = 0; i < NUM; i += 2) // even ones alone
        p += sprintf(p, ",\"word %d%s of many\",%d.50", i, i % 10 ? "" : "\\u000a\\\"", i);
    p = stpcpy(p, "]},{\"maxLength\":17,\"maximum\":9999}]}");
    struct grammar *g = compile(schema, (size_t)(p - schema), JSON_ORDER_SCHEMA, &err);
    if (!g)
        fail_msg("%s", err.msg);
    for (int i = 0; i < NUM; i++) {
        int len = snprintf(text, sizeof text, "\"word %d%s of many\"", i, i % 10 ? "" : "\\n\\\"");
        int chars = len - 2 - (i % 10 ? 0 : 2);
        if (grammar_takes(g, text, (size_t)len) != (i % 2 == 0 && chars <= 17))
            fail_msg("%s", text);
        len = snprintf(text, sizeof text, "%d.5", i);
        if (grammar_takes(g, text, (size_t)len) != (i % 2 == 0 && i < 9999))
            fail_msg("%s", text);
    }
    static const char *const others[] = {"true", "\"word\"", "\"word 2 of man\"",
                                         "0",    "20000.5",  "\"word 20000 of many\""};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(grammar_takes(g, others[i], strlen(others[i])));
    assert_true(grammar_takes(g, "null", 4));
    grammar_free(g);
    free(schema);
}

TEST(test_numbers) {
    ANY_ORDER("{\"type\":\"number\",\"minimum\":1.5,\"exclusiveMaximum\":20}",
              TEXTS("1.5", "1.50", "2", "19.999", "10"), TEXTS("1.49", "1", "20", "20.0", "-1", "-2", "100"));
    ANY_ORDER("{\"type\":\"number\",\"minimum\":-3,\"maximum\":-0.5}", TEXTS("-3", "-0.5", "-1.25"),
              TEXTS("-3.01", "-0.4", "0", "-0", "1", "-30"));
    ANY_ORDER("{\"type\":\"integer\",\"minimum\":0}", TEXTS("0", "-0", "7", "123456789012345678901234567890"),
              TEXTS("-1", "0.5"));
    ANY_ORDER("{\"type\":\"number\",\"minimum\":5,\"exclusiveMinimum\":true,"
              "\"$schema\":\"http://json-schema.org/draft-04/schema#\"}",
              TEXTS("5.1", "6"), TEXTS("5", "4"));
    ANY_ORDER("{\"minimum\":5}", TEXTS("5"), TEXTS("-1", "4", "-9"));
    ANY_ORDER("{\"type\":\"integer\",\"multipleOf\":7}", TEXTS("0", "14", "-21", "700"),
              TEXTS("1", "15", "71"));
    ANY_ORDER("{\"type\":\"number\",\"multipleOf\":0.01}", TEXTS("4.02", "4", "4.10", "4.100"),
              TEXTS("4.021", "0.001"));
    ANY_ORDER("{\"type\":\"number\",\"multipleOf\":2.5}", TEXTS("5", "7.5", "-2.5"), TEXTS("3", "2.55"));
    ANY_ORDER("{\"type\":\"number\",\"not\":{\"multipleOf\":2}}", TEXTS("1", "2.5"), TEXTS("2", "0", "-4"));
    ANY_ORDER("{\"type\":\"number\",\"not\":{\"minimum\":3}}", TEXTS("2.9", "-5"), TEXTS("3", "4"));
    ANY_ORDER("{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", TEXTS("2.9"), TEXTS("3", "3.0"));
}

// Numbers that models write have an end: 16 digits on each side of the point, unless the schema asks for more.
TEST(test_digits) {
#define D16 "1234567890123456"
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\"}", TEXTS(D16, "-" D16, "0"), TEXTS(D16 "7", "1e2"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"number\"}", TEXTS(D16 "." D16 "e-99", "-0.5"),
          TEXTS(D16 "7", "0." D16 "7", "1e100"));
    check(JSON_ORDER_SCHEMA, "true", TEXTS("[" D16 "]"), TEXTS("[" D16 "7]"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\",\"minimum\":0}", TEXTS(D16, "0"), TEXTS(D16 "7", "-1"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"number\",\"minimum\":0.5}", TEXTS(D16 "." D16),
          TEXTS("1." D16 "7", "0.4"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\",\"minimum\":" D16 "00000}",
          TEXTS(D16 "00000", D16 "99999"), TEXTS(D16));
    check(JSON_ORDER_SCHEMA, "{\"enum\":[1," D16 "78]}", TEXTS("1", D16 "78"), TEXTS(D16));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\",\"format\":\"int32\"}",
          TEXTS("2147483647", "-2147483648"), TEXTS("2147483648", "-2147483649"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\",\"format\":\"uint8\"}", TEXTS("255"), TEXTS("256", "-1"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\",\"format\":\"int64\"}", TEXTS(D16),
          TEXTS("9223372036854775808"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"integer\",\"format\":\"other\"}", TEXTS(D16), TEXTS("1.0"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"string\",\"format\":\"int32\"}", TEXTS("\"a\""), TEXTS("1"));
    ANY_ORDER("{\"type\":\"integer\"}", TEXTS(D16 "7"), TEXTS("1.5"));
#undef D16
}

TEST(test_strings) {
    ANY_ORDER("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
              TEXTS("\"ab\"", "\"\xc3\xa4\xc3\xb6\xc3\xbc\""), TEXTS("\"a\"", "\"abcd\""));
    ANY_ORDER("{\"type\":\"string\",\"pattern\":\"^[a-c]+$\",\"maxLength\":3,\"minLength\":2}",
              TEXTS("\"ab\"", "\"ccc\""), TEXTS("\"a\"", "\"aaaa\"", "\"ad\""));
    ANY_ORDER("{\"type\":\"string\",\"pattern\":\"^\xc3\xa4+$\",\"maxLength\":2}",
              TEXTS("\"\xc3\xa4\xc3\xa4\""), TEXTS("\"\xc3\xa4\xc3\xa4\xc3\xa4\""));
    ANY_ORDER("{\"type\":\"string\",\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"},{\"not\":{\"pattern\":"
              "\"c\"}}]}",
              TEXTS("\"ab\"", "\"xbya\""), TEXTS("\"a\"", "\"abc\""));
    ANY_ORDER("{\"type\":\"string\",\"pattern\":\"^a\",\"enum\":[\"ab\",\"bc\",\"a\"]}",
              TEXTS("\"ab\"", "\"a\""), TEXTS("\"bc\"", "\"abc\""));
    ANY_ORDER("{\"type\":\"string\",\"pattern\":\"^\\\\d{3}$\",\"maxLength\":1000}", TEXTS("\"123\""),
              TEXTS("\"12\""));
}

TEST(test_formats) {
    ANY_ORDER("{\"format\":\"date\"}", TEXTS("\"2024-02-29\"", "\"1900-12-31\"", "5"),
              TEXTS("\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-1-1\""));
    ANY_ORDER("{\"format\":\"date-time\"}",
              TEXTS("\"2024-01-31T23:59:60Z\"", "\"2024-01-31t00:00:00.5+02:00\""),
              TEXTS("\"2024-01-31\"", "\"2024-01-31T24:00:00Z\"", "\"2024-01-31T00:00:00\""));
    ANY_ORDER("{\"format\":\"duration\"}", TEXTS("\"P1Y2M3D\"", "\"PT1H\"", "\"P2W\""),
              TEXTS("\"P\"", "\"P1D2H\"", "\"PT\""));
    ANY_ORDER("{\"format\":\"email\"}", TEXTS("\"a.b@c.de\"", "\"a@[127.0.0.1]\""),
              TEXTS("\"a@\"", "\".a@b.c\""));
    ANY_ORDER("{\"format\":\"ipv4\"}", TEXTS("\"127.0.0.1\""),
              TEXTS("\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""));
    ANY_ORDER("{\"format\":\"ipv6\"}", TEXTS("\"::1\"", "\"1:2::3:4\"", "\"::ffff:1.2.3.4\""),
              TEXTS("\"1::2::3\"", "\"12345::\"", "\"1:2:3\""));
    ANY_ORDER("{\"format\":\"uri\"}", TEXTS("\"http://a/b?c#d\"", "\"urn:x:y\""),
              TEXTS("\"/a\"", "\"http:// a\""));
    ANY_ORDER("{\"format\":\"uri-reference\"}", TEXTS("\"/a\"", "\"\"", "\"a:b\""),
              TEXTS("\"a b\"", "\"\\\\\\\\a\""));
    ANY_ORDER("{\"format\":\"uuid\"}", TEXTS("\"2EB8AA08-aa98-11ea-b4aa-73b441d16380\""),
              TEXTS("\"2eb8aa08\""));
    ANY_ORDER("{\"format\":\"hostname\"}", TEXTS("\"a-b.example\""), TEXTS("\"-a\"", "\"a..b\"", "\"\""));
    ANY_ORDER("{\"format\":\"json-pointer\"}", TEXTS("\"\"", "\"/a~1b/0\""), TEXTS("\"a\"", "\"/~2\""));
    ANY_ORDER("{\"format\":\"something else\"}", TEXTS("\"x\""), TEXTS("x")); // an annotation
}

TEST(test_arrays) {
    ANY_ORDER("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
              TEXTS("[1]", "[1, 2]"), TEXTS("[]", "[1,2,3]", "[\"a\"]", "[1,]"));
    ANY_ORDER(
        "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"items\":false}",
        TEXTS("[]", "[null]", "[null,true]"), TEXTS("[true]", "[null,true,1]"));
    ANY_ORDER("{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":{\"const\":1}}",
              TEXTS("[]", "[null,1,1]"), TEXTS("[1]", "[null,null]"));
    ANY_ORDER("{\"type\":\"array\",\"contains\":{\"const\":1},\"items\":{\"type\":\"integer\"}}",
              TEXTS("[1]", "[0,1]", "[0, 1, 0]", "[1,1]"), TEXTS("[]", "[0]", "[1,null]"));
    ANY_ORDER(
        "{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":2,\"maxItems\":4}",
        TEXTS("[1,1]", "[0,1,1]", "[1,0,0,1]"), TEXTS("[1]", "[1,1,1]", "[1,1,0,0,0]"));
    ANY_ORDER("{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"prefixItems\":[{\"type\":[\"null\","
              "\"string\"]}]}",
              TEXTS("[null]", "[\"a\",null]", "[null,1]"), TEXTS("[]", "[\"a\"]", "[1,null]"));
    ANY_ORDER("{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}",
              TEXTS("[1,2]", "[2,0,1]"), TEXTS("[1]", "[2,2]"));
    ANY_ORDER("{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"integer\"}}}",
              TEXTS("[null]", "[1,\"a\",2]"), TEXTS("[]", "[1,2]"));
    ANY_ORDER("{\"type\":\"array\",\"not\":{\"contains\":{\"const\":1}}}", TEXTS("[]", "[2]"),
              TEXTS("[1]", "[2,1]"));
    ANY_ORDER("{\"contains\":true,\"maxContains\":0}", TEXTS("1"), TEXTS("[]", "[1]"));
    ANY_ORDER("{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", TEXTS("[]", "[1]"), TEXTS("[1,1]"));
}

TEST(test_objects) {
    static const char *const person =
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"}},"
        "\"required\":[\"name\"],\"additionalProperties\":false}";
    ANY_ORDER(person,
              TEXTS("{\"name\":\"x\"}", "{\"age\":1,\"name\":\"x\"}", "{ \"name\" : \"x\" , \"age\" : 1 }"),
              TEXTS("{}", "{\"age\":1}", "{\"name\":\"x\",\"b\":1}", "{\"name\":\"x\",\"name\":\"y\"}",
                    "{\"name\":1}"));
    check(JSON_ORDER_SCHEMA, person, TEXTS("{\"name\":\"x\",\"age\":1}"),
          TEXTS("{\"age\":1,\"name\":\"x\"}"));
    ANY_ORDER("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":{"
              "\"const\":1}}",
              TEXTS("{\"a\":null,\"aa\":1,\"\":1}"), TEXTS("{\"a\":1}", "{\"b\":null}"));
    ANY_ORDER("{\"type\":\"object\",\"properties\":{\"foo\":{\"minimum\":3}},\"patternProperties\":{\"^f\":{"
              "\"type\":"
              "\"integer\"},\"o$\":{\"maximum\":9}},\"additionalProperties\":false}",
              TEXTS("{\"foo\":5}", "{\"f\":1,\"bo\":1.5}", "{\"fo\":9}"),
              TEXTS("{\"foo\":1}", "{\"foo\":10}", "{\"fo\":1.5}", "{\"x\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":2},"
              "\"maxProperties\":2,"
              "\"minProperties\":1}",
              TEXTS("{\"a\":1}", "{\"a\":1,\"bc\":2}"),
              TEXTS("{}", "{\"A\":1}", "{\"abc\":1}", "{\"a\":1,\"b\":1,\"c\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}", NOTHING,
              TEXTS("{\"a\":1}", "{}", "{\"b\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"dependentSchemas\":{\"c\":{"
              "\"required\":[\"d\"]}}}",
              TEXTS("{}", "{\"b\":1}", "{\"b\":1,\"a\":1}", "{\"c\":1,\"d\":1}"),
              TEXTS("{\"a\":1}", "{\"c\":1,\"a\":1,\"b\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"],\"c\":{\"maxProperties\":1}}}",
              TEXTS("{\"c\":1}", "{\"a\":1,\"b\":1}"), TEXTS("{\"a\":1}", "{\"c\":1,\"x\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}", TEXTS("{}", "{\"b\":1}"),
              TEXTS("{\"a\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"not\":{\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}}",
              TEXTS("{\"x\":\"\"}", "{\"x\":1,\"xy\":null}"), TEXTS("{}", "{\"x\":1}", "{\"a\":null}"));
    ANY_ORDER("{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}",
              TEXTS("{\"a\":null}"), TEXTS("{}", "{\"a\":1}", "{\"b\":null}"));
    ANY_ORDER("{\"type\":\"object\",\"properties\":{\"xa\":{},\"b\":{}},"
              "\"not\":{\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}}",
              TEXTS("{\"xa\":null}", "{\"b\":1,\"xa\":null}"), TEXTS("{}", "{\"xa\":1}", "{\"b\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"not\":{\"propertyNames\":{\"maxLength\":1}}}",
              TEXTS("{\"ab\":1}", "{\"a\":1,\"bc\":1}"), TEXTS("{}", "{\"a\":1}"));
}

// Where every valid instance need not be taken, an object that is described has no other members.
TEST(test_described) {
    check(JSON_ORDER_SCHEMA, "{\"properties\":{\"a\":{},\"b\":{}}}", TEXTS("{}", "{\"a\":1,\"b\":2}", "3"),
          TEXTS("{\"c\":1}", "{\"b\":2,\"a\":1}"));
    check(JSON_ORDER_SCHEMA, "{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}]}",
          TEXTS("{\"a\":1,\"b\":2}"), TEXTS("{\"c\":1}"));
    check(JSON_ORDER_SCHEMA, "{\"properties\":{\"a\":{}},\"additionalProperties\":true}", TEXTS("{\"c\":1}"),
          NOTHING);
    check(JSON_ORDER_SCHEMA, "{\"properties\":{\"a\":{}},\"patternProperties\":{\"^x\":{}}}",
          TEXTS("{\"x1\":1}"), NOTHING);
    check(JSON_ORDER_SCHEMA, "{\"properties\":{\"a\":{}},\"minProperties\":2}", TEXTS("{\"a\":1,\"c\":1}"),
          TEXTS("{\"c\":1,\"c\":1}", "{\"c\":1}"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"object\",\"not\":{\"required\":[\"a\"]},\"minProperties\":1}",
          TEXTS("{\"c\":1}"), TEXTS("{\"a\":1}", "{}"));
    check(JSON_ORDER_SCHEMA, "{\"type\":\"object\",\"required\":[\"a\"]}", TEXTS("{\"a\":1,\"c\":1}"),
          TEXTS("{\"c\":1}"));
}

TEST(test_combinations) {
    ANY_ORDER("{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{\"type\":[\"integer\",\"null\"]}]}",
              TEXTS("1"), TEXTS("null", "\"\""));
    ANY_ORDER("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"integer\"}]}",
              TEXTS("\"a\"", "1"), TEXTS("\"ab\"", "null"));
    ANY_ORDER("{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", TEXTS("1", "2.5", "\"a\""),
              TEXTS("3", "1.5"));
    ANY_ORDER("{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\"}",
              TEXTS("{\"a\":1}", "{\"b\":1,\"c\":1}"), TEXTS("{}", "{\"a\":1,\"b\":1}"));
    ANY_ORDER("{\"oneOf\":[{\"properties\":{\"t\":{\"const\":\"a\"},\"x\":{\"type\":\"null\"}},\"required\":["
              "\"t\",\"x\"]},"
              "{\"properties\":{\"t\":{\"const\":\"b\"}},\"required\":[\"t\"]}],\"type\":\"object\"}",
              TEXTS("{\"t\":\"a\",\"x\":null}", "{\"t\":\"b\",\"x\":1}"),
              TEXTS("{\"t\":\"a\"}", "{\"t\":\"c\"}", "{\"t\":\"a\",\"x\":1}"));
    ANY_ORDER("{\"if\":{\"properties\":{\"k\":{\"const\":1}}},\"then\":{\"required\":[\"a\"]},\"else\":{"
              "\"required\":[\"b\"]},"
              "\"type\":\"object\",\"required\":[\"k\"]}",
              TEXTS("{\"k\":1,\"a\":0}", "{\"k\":2,\"b\":0}"), TEXTS("{\"k\":1,\"b\":0}", "{\"k\":2}"));
    ANY_ORDER("{\"not\":{\"not\":{\"type\":\"null\"}}}", TEXTS("null"), TEXTS("1"));
    ANY_ORDER("{\"type\":\"integer\",\"not\":{\"oneOf\":[{\"minimum\":3},{\"maximum\":5}]}}", TEXTS("3", "5"),
              TEXTS("2", "6"));
    ANY_ORDER("{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":{}}}],\"properties\":{\"b\":{}},"
              "\"unevaluatedProperties\":false}",
              TEXTS("{\"a\":1,\"b\":1}"), TEXTS("{\"c\":1}"));
    ANY_ORDER("{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{"
              "\"properties\":{"
              "\"b\":{\"const\":1}},\"required\":[\"b\"]}],\"unevaluatedProperties\":false}",
              TEXTS("{\"a\":1}", "{\"a\":1,\"b\":1}"), TEXTS("{}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":1}"));
    ANY_ORDER("{\"type\":\"array\",\"prefixItems\":[{}],\"unevaluatedItems\":{\"type\":\"null\"}}",
              TEXTS("[1,null]"), TEXTS("[1,1]"));
}

TEST(test_references) {
    ANY_ORDER("{\"$ref\":\"#/$defs/"
              "n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"}},"
              "\"additionalProperties\":false}}}",
              TEXTS("{}", "{\"next\":{\"next\":{}}}"), TEXTS("{\"next\":1}", "{\"x\":{}}"));
    ANY_ORDER("{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
              TEXTS("[[null],[[]]]"), TEXTS("[1]"));
    ANY_ORDER("{\"$ref\":\"#/$defs/a%20b~1c\",\"$defs\":{\"a b/c\":{\"const\":1}}}", TEXTS("1"), TEXTS("2"));
    ANY_ORDER("{\"$ref\":\"#x\",\"$defs\":{\"a\":{\"$anchor\":\"x\",\"const\":1}}}", TEXTS("1"), TEXTS("2"));
    ANY_ORDER(
        "{\"$id\":\"http://a/b/\",\"$ref\":\"../c\",\"$defs\":{\"a\":{\"$id\":\"http://a/c\",\"const\":1}}}",
        TEXTS("1"), TEXTS("2"));
    ANY_ORDER("{\"$dynamicRef\":\"#x\",\"$defs\":{\"a\":{\"$dynamicAnchor\":\"x\",\"const\":1}}}", TEXTS("1"),
              TEXTS("2"));
    // beside $ref other keywords count from draft 2019-09 on
    ANY_ORDER("{\"$ref\":\"#/$defs/i\",\"maximum\":3,\"$defs\":{\"i\":{\"type\":\"integer\"}}}", TEXTS("3"),
              TEXTS("4", "1.5"));
    ANY_ORDER("{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"properties\":{\"a\":{\"$ref\":\"#/"
              "definitions/i\","
              "\"maximum\":3}},\"definitions\":{\"i\":{\"type\":\"integer\"}}}",
              TEXTS("{\"a\":4}"), TEXTS("{\"a\":null}"));
}

TEST(test_refusals) {
    static const struct {
        const char *schema, *says;
    } cases[] = {
        {"", "ends at byte 0"},
        {"[]", "expected a schema"},
        {"{\"type\":\"stsring\"}", "/type: expected the name of a type"},
        {"{\"properties\":{\"a\":{\"minLength\":-1,\"type\":\"string\"}},\"required\":[\"a\"]}",
         "/properties/a/minLength: "},
        {"{\"properties\":[]}", "/properties: expected an object of schemas"},
        {"{\"items\":{\"pattern\":\"(?=a)\",\"type\":\"string\"},\"minItems\":1}", "/items/pattern: "},
        {"{\"properties\":{\"a/b\":{\"uniqueItems\":true}}}",
         "/properties/a~1b/uniqueItems: is not supported"},
        {"{\"$ref\":\"#/nothing\"}", "/$ref: \"#/nothing\" is not in this document"},
        {"{\"$ref\":\"http://example.com/s\"}", "nothing else is loaded"},
        {"{\"$ref\":\"#\"}", "refers to itself"},
        {"{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", "refers to itself"},
        {"{\"$dynamicRef\":\"#x\",\"$dynamicAnchor\":\"x\",\"$defs\":{\"a\":{\"$id\":\"o\",\"$"
         "dynamicAnchor\":\"x\"}}}",
         "/$dynamicRef: $dynamicRef is not supported where several"},
        {"{\"not\":{\"unevaluatedProperties\":false}}",
         "/not/unevaluatedProperties: is not supported within `not`"},
        {"{\"format\":\"regex\"}", "/format: the format \"regex\" is not supported"},
        {"{\"multipleOf\":0}", "/multipleOf: expected a number above 0"},
        {"{\"type\":\"number\",\"minimum\":NaN}", "/minimum: expected a finite number"},
        {"{\"type\":\"string\",\"pattern\":\"^(a|b)*$\",\"minLength\":100000}", "minLength, maxLength"},
        {"{\"a\":1,\"a\":2}", "is there twice"},
        {"\"\xff\"", "expected UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct grammar *g = compile(cases[i].schema, strlen(cases[i].schema), JSON_ORDER_ANY, &err);
        if (g || !strstr(err.msg, cases[i].says))
            fail_msg("%s: expected '%s', got '%s'", cases[i].schema, cases[i].says,
                     g ? "a grammar" : err.msg);
    }
}

// Text of n times `part` within `begin` and `end`, for the caller to free.
static char *repeated(const char *begin, const char *part, size_t n, const char *end) {
    size_t len = strlen(begin) + n * strlen(part) + strlen(end) + 1;
    char *text = malloc(len), *p = text;
    assert_non_null(text);
    p = stpcpy(p, begin);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, part);
    stpcpy(p, end);
    return text;
}

// A schema that would take too long or too much is an error, in time.
TEST(test_hostile) {
    struct {
        char *schema;
        bool compiles;
    } cases[] = {
        {repeated("", "{\"items\":", 5000, "{}"), false},
        {repeated("", "[", 60000, ""), false},
        {repeated("{\"oneOf\":[{\"required\":[\"z\"]}",
                  ",{\"minProperties\":2,\"properties\":{\"a\":{\"minimum\":1},\"b\":{}}}", 200, "]}"),
         true},
        {repeated("{\"allOf\":[{}",
                  ",{\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]},{\"minProperties\":3}]}", 300,
                  "]}"),
         false},
        {repeated("{\"allOf\":[{\"type\":\"string\"}", ",{\"pattern\":\"(a|b){20}.{40}\"}", 50, "]}"), false},
        {repeated("{\"type\":\"array\",\"allOf\":[{}", ",{\"contains\":{\"const\":1}}", 100, "]}"), false},
        {repeated("{\"enum\":[1", ",1", 100000, "]}"), true},
        {repeated("{\"const\":1", "0", 2000, "}"), false},
        {repeated("{\"$ref\":\"#", "/a", 10000, "\"}"), false},
        {repeated("{\"$id\":\"", "../", 10000, "\"}"), true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct grammar *g = compile(cases[i].schema, strlen(cases[i].schema), JSON_ORDER_ANY, &err);
        if (cases[i].compiles != (g != NULL))
            fail_msg("%.60s...: %s", cases[i].schema, g ? "compiles" : err.msg);
        grammar_free(g);
        free(cases[i].schema);
    }
    // every beginning of a schema is an error, no crash
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,\"x\"],\"not\":{\"const\":1}}},"
        "\"$defs\":{\"b\":{\"pattern\":\"^[a-z]$\"}},\"allOf\":[{\"$ref\":\"#/$defs/b\"}]}";
    for (size_t n = 0; n < sizeof schema; n++) {
        struct err err = {0};
        struct grammar *g = compile(schema, n, JSON_ORDER_ANY, &err);
        assert_true((g != NULL) == (n == sizeof schema - 1));
        grammar_free(g);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
