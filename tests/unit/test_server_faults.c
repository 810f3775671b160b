// Output as models really write it: every format that calls tools, each fault, and how it is read. Whatever the fault, the same
// comes out however the text is cut, and no word of it is lost.
// usage: test_server_faults [--table]: writes the table of docs/tools.md.
#include "formats/output_format.h"
#include "harness.h"

#define PATH "notes.txt"

enum fault {
    NO_FAULT,
    NO_OPENING,
    NO_CLOSING,
    OPENING_TWICE,
    CLOSING_TWICE,
    MARK_IN_VALUE,
    NO_ARGUMENTS,
    AS_JSON,
    UNCLOSED_REASONING,
    WITHIN_REASONING,
    REASONING_TWICE,
    NUM_FAULTS
};
static const char *const fault_names[] = {"as it should be",
                                          "opening mark left out",
                                          "closing marks left out",
                                          "opening mark twice",
                                          "closing marks twice",
                                          "its marks within a value",
                                          "no arguments",
                                          "JSON between its marks",
                                          "within reasoning that is not closed",
                                          "within reasoning that is",
                                          "reasoning's marks twice"};

// How it is read: c the call; t text, as it is written; r reasoning, with what stands in it; . there is no such fault. In the
// order of the faults.
static const struct {
    const char *format, *readings;
} expected[] = {
    {"gemma4", "ctcccccccrc"},       {"kimi_k2", "cccccccccrc"},     {"deepseek_v4", "cccccccccrc"},
    {"deepseek_v32", "cccccccccrc"}, {"deepseek_v3", "cccccccccrc"}, {"deepseek_v31", "cccccccccrc"},
    {"minimax_m2", "cccccccccrc"},   {"glm45", "ctcccccccrc"},       {"seed_oss", "cccccccccrc"},
    {"qwen3_coder", "cccccccccrc"},  {"lfm2", "ctcccccccrc"},        {"mistral", "ct.c.ccccrc"},
    {"cohere", "ctccccc.crc"},       {"nemotron", "ctccccc.crc"},    {"gigachat3", "ct.c.cc...."},
    {"hermes", "ctccccc.crc"},       {"granite", "ctccccc.crc"},     {"firefunction", "ct.c.cc...."},
    {"functionary", "ctcccccc..."},
};

// ---- the texts

static const char *or_empty(const char *text) { return text ? text : ""; }

static void put_value(struct buf *b, const struct output_format *f, const char *value) {
    if (f->syntax == CALLS_BRACES)
        buf_fmt(b, OUTPUT_QUOTE "%s" OUTPUT_QUOTE, value);
    else if (f->syntax == CALLS_TAGGED)
        buf_str(b, value);
    else
        buf_fmt(b, "\"%s\"", value);
}

static void put_arguments(struct buf *b, const struct output_format *f, const char *value) {
    bool tagged = f->syntax == CALLS_TAGGED, python = f->syntax == CALLS_PYTHON,
         braces = f->syntax == CALLS_BRACES;
    const char *const keys[] = {"path", "content"}, *const values[] = {PATH, value};
    if (!tagged)
        buf_char(b, python ? '(' : '{');
    for (int i = 0; i < 2 && value; i++) {
        if (tagged) {
            bool told = f->argument.value && strcmp(f->argument.value, ">") == 0;
            buf_fmt(b, "\n%s%s%s%s%s%s", f->argument.open, keys[i], f->argument.mid,
                    told ? " string=\"true\"" : "", or_empty(f->argument.value),
                    f->argument.trim ? "\n" : "");
            put_value(b, f, values[i]);
            buf_fmt(b, "%s%s", f->argument.trim ? "\n" : "", f->argument.close);
        } else {
            buf_fmt(b,
                    python   ? "%s%s="
                    : braces ? "%s%s:"
                             : "%s\"%s\": ",
                    !i       ? ""
                    : braces ? ","
                             : ", ",
                    keys[i]);
            put_value(b, f, values[i]);
        }
    }
    buf_str(b, tagged ? "\n" : python ? ")" : "}");
}

// The call without the marks around it. value NULL: without arguments.
static void put_call(struct buf *b, const struct output_format *f, const char *value) {
    const char *name = value ? "write" : "now";
    if (f->syntax == CALLS_JSON) {
        buf_fmt(b, "%s{\"%s\": \"%s\", \"%s\": ", f->list ? "[" : "", f->name_key ? f->name_key : "name",
                name, f->arguments_key ? f->arguments_key : "arguments");
        put_arguments(b, f, value);
        buf_str(b, f->list ? "}]" : "}");
        return;
    }
    buf_fmt(b, "%s%s%s%s%s", f->syntax == CALLS_PYTHON ? "[" : "", f->kimi_ids ? "functions." : "", name,
            f->kimi_ids ? ":0" : "", or_empty(f->mid));
    put_arguments(b, f, value);
    buf_str(b, f->syntax == CALLS_PYTHON ? "]" : "");
}

// false: the format has no such fault.
static bool put_text(struct buf *b, const struct output_format *f, enum fault fault, const char *value) {
    bool reasons = fault >= UNCLOSED_REASONING;
    bool closes = f->section_close || f->call_close;
    if ((reasons && !f->think_close) || ((fault == NO_CLOSING || fault == CLOSING_TWICE) && !closes) ||
        (fault == AS_JSON && f->syntax == CALLS_JSON))
        return false;
    if (fault == REASONING_TWICE)
        buf_str(b, f->think_open);
    if (reasons)
        buf_fmt(b, "%s\nI look.\n", f->think_open);
    if (fault == REASONING_TWICE)
        buf_fmt(b, "%s\n%s\n", f->think_close, f->think_close);
    if (fault != NO_OPENING)
        buf_str(b, or_empty(f->section_open));
    if (fault == OPENING_TWICE)
        buf_str(b, or_empty(f->section_open));
    if (fault == AS_JSON) {
        buf_str(b, f->section_open ? "" : f->call_open);
        put_call(b, output_format_named("hermes"), value);
        buf_str(b, f->section_open ? "" : or_empty(f->call_close));
    } else {
        bool left_out = fault == NO_OPENING && !f->section_open;
        buf_str(b, left_out ? "" : or_empty(f->call_open));
        if (fault == OPENING_TWICE && !f->section_open)
            buf_str(b, f->call_open);
        put_call(b, f, value);
        if (fault != NO_CLOSING)
            buf_str(b, or_empty(f->call_close));
    }
    for (int i = 0; i < 1 + (fault == CLOSING_TWICE) - (fault == NO_CLOSING); i++)
        buf_str(b, i && !f->section_close ? f->call_close : or_empty(f->section_close));
    if (fault == WITHIN_REASONING)
        buf_fmt(b, "\nOr not.\n%s\n\nDone.", f->think_close);
    return true;
}

// ---- reading them

struct reading {
    struct buf content, reasoning, name, arguments;
    int calls, ended;
};

static void read_text(struct reading *r, const struct output_format *f, const json_t *tools,
                      const struct buf *text, unsigned cuts) {
    struct output_parser *p = output_parser_new(f, tools, true, false);
    for (size_t at = 0; at < text->len;) {
        size_t n = cuts ? 1 + (at * 7 + cuts * 13) % (2 * cuts) : text->len;
        n = n < text->len - at ? n : text->len - at;
        while (at + n < text->len && (text->data[at + n] & 0xc0) == 0x80) // whole characters
            n++;
        output_push(p, text->data + at, n);
        at += n;
        if (at == text->len)
            output_end(p);
        size_t num;
        const char *bytes;
        const struct output_part *parts = output_parts(p, &num, &bytes);
        for (size_t i = 0; i < num; i++)
            buf_add(parts[i].kind == PART_CONTENT     ? &r->content
                    : parts[i].kind == PART_REASONING ? &r->reasoning
                    : parts[i].kind == PART_CALL      ? &r->name
                                                      : &r->arguments,
                    bytes + parts[i].begin, parts[i].len);
        output_clear(p);
    }
    r->calls = output_num_calls(p);
    r->ended = output_calls_ended(p);
    assert_false(output_failed(p));
    output_parser_free(p);
}

static void reading_free(struct reading *r) {
    buf_free(&r->content);
    buf_free(&r->reasoning);
    buf_free(&r->name);
    buf_free(&r->arguments);
}

static bool is_call(const struct reading *r, const char *value) {
    json_t *v =
        r->calls == 1 && r->ended == 1 ? json_loadb(r->arguments.data, r->arguments.len, 0, NULL) : NULL;
    const char *path = NULL, *content = NULL;
    bool ok = json_is_object(v) && r->content.len == 0;
    if (value)
        ok = ok && json_unpack(v, "{s:s, s:s !}", "path", &path, "content", &content) == 0 &&
             strcmp(path, PATH) == 0 && strcmp(content, value) == 0 && r->name.len == 5 &&
             memcmp(r->name.data, "write", 5) == 0;
    else
        ok = ok && json_object_size(v) == 0 && r->name.len == 3;
    json_decref(v);
    return ok;
}

static bool holds(const struct buf *b, const char *word) {
    return b->len && memmem(b->data, b->len, word, strlen(word));
}

// c, t, r, or ? for anything else.
static char word_of(const struct reading *r, const struct buf *text, enum fault fault, const char *value) {
    bool thinks = fault >= UNCLOSED_REASONING;
    if (is_call(r, value) && (thinks ? r->reasoning.len == 7 && memcmp(r->reasoning.data, "I look.", 7) == 0
                                     : r->reasoning.len == 0))
        return 'c';
    if (!r->calls && !r->reasoning.len && r->content.len == text->len)
        return 't';
    bool closed =
        fault == WITHIN_REASONING && r->content.len == 5 && memcmp(r->content.data, "Done.", 5) == 0;
    return closed && !r->calls && holds(&r->reasoning, "Or not.") && holds(&r->reasoning, PATH) ? 'r' : '?';
}

static json_t *the_tools(void) {
    json_t *tools =
        json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"write\", \"parameters\": {\"type\": "
                   "\"object\", \"properties\": {\"path\": {\"type\": \"string\"}, \"content\": {\"type\": "
                   "\"string\"}}}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\"}}]",
                   0, NULL);
    assert_non_null(tools);
    return tools;
}

static char reading_of(const struct output_format *f, const json_t *tools, enum fault fault) {
    struct buf text = {0};
    char marks[200];
    snprintf(marks, sizeof marks, "see %s or %s here",
             or_empty(f->argument.close ? f->argument.close : f->call_close),
             or_empty(f->section_close ? f->section_close : f->call_open));
    for (char *c = marks; *c && f->syntax != CALLS_TAGGED; c++)
        *c = *c == '"' || *c == '\n' ? '\'' : *c; // within quotes
    const char *value = fault == MARK_IN_VALUE ? marks : fault == NO_ARGUMENTS ? NULL : "Buy milk.";
    char word = '.';
    if (put_text(&text, f, fault, value))
        for (unsigned cuts = 0; cuts < 30; cuts++) {
            struct reading r = {0};
            read_text(&r, f, tools, &text, cuts);
            char one = word_of(&r, &text, fault, value);
            if (cuts && one != word)
                fail_msg("%s, %s: %c whole, %c in pieces", f->name, fault_names[fault], word, one);
            if (value && !holds(&r.content, PATH) && !holds(&r.reasoning, PATH) && !holds(&r.arguments, PATH))
                fail_msg("%s, %s: '%s' loses words", f->name, fault_names[fault], buf_cstr(&text));
            word = one;
            reading_free(&r);
        }
    buf_free(&text);
    return word;
}

TEST(test_faults) {
    json_t *tools = the_tools();
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct output_format *f = output_format_named(expected[i].format);
        char got[NUM_FAULTS + 1] = "";
        for (int k = 0; k < NUM_FAULTS; k++)
            got[k] = reading_of(f, tools, (enum fault)k);
        if (strcmp(got, expected[i].readings) != 0)
            fail_msg("%s: %s, expected %s", f->name, got, expected[i].readings);
    }
    json_decref(tools);
}

// ---- the table

static void put_table(struct buf *b) {
    json_t *tools = the_tools();
    buf_str(b, "| format |");
    for (int k = 1; k < NUM_FAULTS; k++)
        buf_fmt(b, " %s |", fault_names[k]);
    buf_str(b, "\n|---|");
    for (int k = 1; k < NUM_FAULTS; k++)
        buf_str(b, "---|");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        buf_fmt(b, "\n| %s |", expected[i].format);
        for (int k = 1; k < NUM_FAULTS; k++) {
            char word = reading_of(output_format_named(expected[i].format), tools, (enum fault)k);
            buf_fmt(b, " %s |", word == 'c' ? "call" : word == 't' ? "text" : word == 'r' ? "reasoning" : "");
        }
    }
    buf_str(b, "\n");
    json_decref(tools);
}

TEST(test_documented) {
    struct buf table = {0};
    static char text[1 << 16];
    FILE *f = fopen(QUIRE_SOURCE_DIR "/docs/tools.md", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    put_table(&table);
    if (!strstr(text, buf_cstr(&table)))
        fail_msg("docs/tools.md has another table than test_server_faults --table");
    buf_free(&table);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--table") == 0) {
        struct buf table = {0};
        put_table(&table);
        fputs(buf_cstr(&table), stdout);
        buf_free(&table);
        return 0;
    }
    return run_all_tests(NULL, NULL);
}
