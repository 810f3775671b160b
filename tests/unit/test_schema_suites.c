// JSON Schema against instances with known verdicts: MaskBench and the JSON Schema Test Suite. Counts by file what is
// compiled, what is refused, and wrong verdicts; of these there are none but those named below.
// usage: test_schema_suites [--list [WORD]]: says each schema that is refused and each wrong verdict, or those with WORD.
#include "clock.h"
#include "harness.h"

#include "grammar/front.h"
#include "grammar/matcher.h"
#include "json/jdoc.h"

#include "buf.h"

#include <dirent.h>
#include <sys/stat.h>

// ---- JSON as it is written

static const char *skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
        p++;
    return p;
}

// The end of the value at p; the files are well-formed.
static const char *skip_value(const char *p) {
    int depth = 0;
    do {
        p = skip_blanks(p);
        if (*p == '"') {
            for (p++; *p && *p != '"'; p++)
                p += *p == '\\' && p[1];
            p += *p == '"';
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (*p == ',' || *p == ':') {
            p++;
        } else {
            while (*p && !strchr(",]} \t\n\r", *p))
                p++;
        }
    } while (*p && depth > 0);
    return p;
}

struct text {
    const char *data;
    size_t len;
};

// The value of a member of the object at p; data NULL: absent.
static struct text member(const char *p, const char *key) {
    size_t n = strlen(key);
    p = skip_blanks(skip_blanks(p) + 1);
    while (*p == '"') {
        const char *end = skip_value(p), *value = skip_blanks(skip_blanks(end) + 1),
                   *after = skip_value(value);
        if ((size_t)(end - p) == n + 2 && memcmp(p + 1, key, n) == 0)
            return (struct text){value, (size_t)(after - value)};
        p = skip_blanks(after);
        if (*p != ',')
            break;
        p = skip_blanks(p + 1);
    }
    return (struct text){NULL, 0};
}

// The next element of an array; *at is its '[' at first. false: none.
static bool next_element(const char **at, struct text *out) {
    const char *p = skip_blanks(*at + 1);
    if (*p == ']' || *p == 0)
        return false;
    const char *end = skip_value(p);
    *out = (struct text){p, (size_t)(end - p)};
    *at = skip_blanks(end);
    return **at == ',' || **at == ']';
}

static void quote(struct buf *out, const char *text, size_t len) {
    static const char from[] = "\b\f\n\r\t\"\\", to[] = "bfnrt\"\\";
    buf_char(out, '"');
    for (size_t i = 0; i < len; i++) {
        const char *p = text[i] ? strchr(from, text[i]) : NULL;
        if (p)
            buf_fmt(out, "\\%c", to[p - from]);
        else if ((unsigned char)text[i] < 0x20)
            buf_fmt(out, "\\u%04x", text[i]);
        else
            buf_char(out, text[i]);
    }
    buf_char(out, '"');
}

// The instance with those characters escaped that have to be, as writers of JSON do: its strings are read and written
// again. The caller frees it.
static char *escaped_plainly(struct text t, size_t *len) {
    struct buf out = {0};
    for (const char *p = t.data, *end = t.data + t.len; p < end;) {
        if (*p != '"') {
            buf_char(&out, *p++);
            continue;
        }
        struct jdoc j;
        const char *after = skip_value(p);
        char *copy = malloc((size_t)(after - p) + 1);
        assert_non_null(copy);
        memcpy(copy, p, (size_t)(after - p));
        if (jdoc_parse(&j, "string", copy, (size_t)(after - p), NULL) == STATUS_OK)
            quote(&out, j.text + j.values[0].at, j.values[0].len);
        else // a lone surrogate
            buf_add(&out, p, (size_t)(after - p));
        jdoc_free(&j);
        p = after;
    }
    assert_non_null(buf_cstr(&out));
    *len = out.len;
    return out.data;
}

// ---- one schema

struct count {
    int schemas, compiled, empty, tests, wrong_refused, wrong_taken, excepted;
    double worst_ms;
};
static bool list_all;
static const char *list_word;
static double *times;
static int num_times, cap_times;

static double now_ms(void) { return clock_now_s() * 1e3; }

static void say(const char *what, const char *file, struct text name, struct text more, const char *message) {
    char line[4096];
    snprintf(line, sizeof line, "%s %s: %.*s: %.*s: %s", what, file, (int)name.len,
             name.data ? name.data : "", (int)(more.len < 300 ? more.len : 300), more.data ? more.data : "",
             message);
    if (list_all && (!list_word || strstr(line, list_word)))
        printf("%s\n", line);
}

// Verdicts that differ from the suite's on purpose.
static const struct {
    const char *file, *test, *why;
} exceptions[] = {
    {"/format.json", "is only an annotation by default",
     "`format` is asserted, which the suite leaves to the user"},
    {"/content.json", "invalid", "contentMediaType and contentEncoding are annotations"},
    {"/float-overflow.json", "overflow", "constrained numbers are decimals without exponents"},
};

static bool has(struct text t, const char *word) {
    return t.data && memmem(t.data, t.len, word, strlen(word)) != NULL;
}

static bool is_exception(const char *file, struct text test) {
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (strstr(file, exceptions[i].file) && has(test, exceptions[i].test))
            return true;
    return false;
}

static void check_schema(struct count *c, const char *file, struct text name, struct text schema,
                         struct text tests) {
    struct err err = {0};
    double start = now_ms();
    struct grammar_builder *b = gb_new();
    assert_non_null(b);
    gb_json_style(b, &(struct json_style){JSON_ORDER_ANY, 64, true});
    expr root = schema_to_expr(b, schema.data, schema.len, &err);
    struct grammar *g = root == EXPR_NONE ? NULL : grammar_finish(b, root, &err);
    if (root == EXPR_NONE)
        gb_free(b);
    double took = now_ms() - start;
    bool empty = !g && strstr(err.msg, "no text") != NULL;
    c->schemas++;
    if (num_times == cap_times) {
        cap_times = cap_times ? 2 * cap_times : 1024;
        times = realloc(times, (size_t)cap_times * sizeof *times);
        assert_non_null(times);
    }
    times[num_times++] = took;
    c->worst_ms = took > c->worst_ms ? took : c->worst_ms;
    if (took > 50)
        say("slow", file, name, (struct text){0}, "");
    if (!g && !empty) {
        say("refused", file, name, (struct text){0}, err.msg);
        return;
    }
    c->compiled++;
    c->empty += empty;
    struct text test;
    for (const char *at = tests.data; at && next_element(&at, &test);) {
        struct text data = member(test.data, "data"), valid = member(test.data, "valid"),
                    description = member(test.data, "description");
        size_t len;
        char *instance = escaped_plainly(data, &len);
        bool want = valid.data && valid.data[0] == 't', takes = g && grammar_takes(g, instance, len);
        free(instance);
        c->tests++;
        if (takes == want)
            continue;
        if (is_exception(file, description)) {
            c->excepted++;
            continue;
        }
        c->wrong_refused += want;
        c->wrong_taken += takes;
        say(want ? "valid but refused" : "invalid but taken", file, name, description, "");
        if (list_all && list_word)
            printf("  schema %.*s\n  data %.*s\n", (int)(schema.len < 1500 ? schema.len : 1500), schema.data,
                   (int)(data.len < 600 ? data.len : 600), data.data);
    }
    grammar_free(g);
}

// ---- files

static char *read_all(const char *path) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0)
        fail_msg("cannot read %s", path);
    char *text = malloc((size_t)st.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)st.st_size, f), st.st_size);
    text[st.st_size] = 0;
    fclose(f);
    return text;
}

static void print_count(const char *name, const struct count *c) {
    printf("%-52s %6d %8d %6d %7d %7d %7d %7d %8.1f\n", name, c->schemas, c->compiled, c->empty, c->tests,
           c->wrong_refused, c->wrong_taken, c->excepted, c->worst_ms);
}

static void add_count(struct count *all, const struct count *c) {
    all->schemas += c->schemas;
    all->compiled += c->compiled;
    all->empty += c->empty;
    all->tests += c->tests;
    all->wrong_refused += c->wrong_refused;
    all->wrong_taken += c->wrong_taken;
    all->excepted += c->excepted;
    all->worst_ms = all->worst_ms > c->worst_ms ? all->worst_ms : c->worst_ms;
}

// Lines of {"file", "schema", "tests"}.
static struct count check_lines(const char *path, const char *name) {
    struct count c = {0};
    char *text = read_all(path);
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        if (*skip_blanks(line) == '{')
            check_schema(&c, name, member(line, "file"), member(line, "schema"), member(line, "tests"));
    }
    free(text);
    return c;
}

// A list of {"description", "schema", "tests"}.
static struct count check_groups(const char *path, const char *name) {
    struct count c = {0};
    char *text = read_all(path);
    const char *at = skip_blanks(text);
    for (struct text group; next_element(&at, &group);)
        check_schema(&c, name, member(group.data, "description"), member(group.data, "schema"),
                     member(group.data, "tests"));
    free(text);
    return c;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// All files of a folder, as `check` reads them.
static struct count check_folder(const char *folder,
                                 struct count (*check)(const char *path, const char *name)) {
    char path[4096];
    struct count all = {0};
    struct dirent **files;
    snprintf(path, sizeof path, "%s", test_data(folder));
    int n = scandir(path, &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char file[8192], name[512];
        const char *dot = strrchr(files[i]->d_name, '.');
        if (dot && dot != files[i]->d_name && strncmp(dot, ".json", 5) == 0) {
            snprintf(file, sizeof file, "%s/%s", path, files[i]->d_name);
            snprintf(name, sizeof name, "%s/%s", strrchr(folder, '/') ? strstr(folder, "/") + 1 : folder,
                     files[i]->d_name);
            struct count c = check(file, name);
            print_count(name, &c);
            add_count(&all, &c);
        }
        free(files[i]);
    }
    if (n >= 0)
        free(files);
    return all;
}

static void print_head(void) {
    printf("%-52s %6s %8s %6s %7s %7s %7s %7s %8s\n", "file", "schemas", "compiled", "empty", "tests",
           "refused", "taken", "known", "worst ms");
}

TEST(test_maskbench) {
    if (!test_data("structured/maskbench"))
        skip();
    print_head();
    num_times = 0;
    struct count all = check_folder("structured/maskbench", check_lines);
    qsort(times, (size_t)num_times, sizeof *times, compare_doubles);
    print_count("all", &all);
    printf("compile time: median %.2f ms, 99 of 100 below %.2f ms\n", times[num_times / 2],
           times[num_times * 99 / 100]);
    assert_int_equal(all.schemas, 2586);
    assert_int_equal(all.wrong_refused, 0);
    assert_int_equal(all.wrong_taken, 0);
    assert_true(all.compiled * 100 >= all.schemas * 97);
}

TEST(test_json_schema_suite) {
    static const char *const folders[] = {
        "draft2020-12", "draft2020-12/optional", "draft2020-12/optional/format",
        "draft7",       "draft7/optional",       "draft7/optional/format",
    };
    struct count all = {0};
    if (!test_data("structured/JSON-Schema-Test-Suite/tests/draft7"))
        skip();
    print_head();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[256];
        snprintf(folder, sizeof folder, "structured/JSON-Schema-Test-Suite/tests/%s", folders[i]);
        struct count c = check_folder(folder, check_groups);
        add_count(&all, &c);
    }
    print_count("all", &all);
    assert_int_equal(all.wrong_refused, 0);
    assert_int_equal(all.wrong_taken, 0);
}

int main(int argc, char **argv) {
    list_all = argc > 1 && strcmp(argv[1], "--list") == 0;
    list_word = argc > 2 ? argv[2] : NULL;
    int rc = run_all_tests(NULL, NULL);
    free(times);
    return rc;
}
