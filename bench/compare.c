#include "compare.h"

#include "html.h"
#include "options.h"
#include "runs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_COLUMNS = 36, RUN_COLUMNS = 22 };

struct table {
    const json_t *const *runs;
    size_t n;
};

static void print_group(void *to, const char *name) {
    (void)to;
    printf("%s\n", name);
}

// The value, and from the second run on its ratio to the first.
static void print_row(void *to, const char *name, const char *key, double scale) {
    const struct table *t = to;
    double first = run_number(t->runs[0], key);
    printf("  %-*s", NAME_COLUMNS - 2, name);
    for (size_t i = 0; i < t->n; i++) {
        struct buf b = {0};
        double v = run_number(t->runs[i], key);
        if (json_is_integer(json_object_get(t->runs[i], key)))
            buf_fmt(&b, "%.0f", v * scale);
        else if (isfinite(v))
            run_figure(&b, v * scale);
        else
            buf_char(&b, '-'); // one column wide in any locale
        if (i && isfinite(v) && first > 0)
            printf("%*s  x %-6.2f", RUN_COLUMNS - 10, buf_cstr(&b) ? b.data : "?", v / first);
        else
            printf("%*s%10s", RUN_COLUMNS - 10, buf_cstr(&b) ? b.data : "?", "");
        buf_free(&b);
    }
    putchar('\n');
}

static bool print_table(const json_t *const *runs, size_t n) {
    printf("%-*s", NAME_COLUMNS, "");
    for (size_t i = 0; i < n; i++) {
        char name[96];
        run_name(name, sizeof name, runs, n, i);
        printf("  %-*.*s", RUN_COLUMNS - 2, RUN_COLUMNS - 3, name);
    }
    putchar('\n');
    compare_rows(runs, n, print_group, print_row, &(struct table){runs, n});
    return fflush(stdout) == 0 && !ferror(stdout);
}

int compare_main(int argc, char **argv) {
    const char *page = NULL;
    json_t *loaded[MAX_RUNS];
    const json_t *runs[MAX_RUNS];
    size_t n = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--html") == 0 && i + 1 < argc) {
            page = argv[++i];
            continue;
        }
        if (argv[i][0] == '-')
            options_die("compare: unknown flag %s", argv[i]);
        if (n == MAX_RUNS)
            options_die("compare: at most %d results", MAX_RUNS);
        json_error_t error;
        runs[n] = loaded[n] = json_load_file(argv[i], 0, &error);
        if (!loaded[n])
            options_die("%s: %s", argv[i], error.text);
        if (!json_is_object(loaded[n]) || !json_object_get(loaded[n], "request_throughput"))
            options_die("%s: no result of quire-bench or vllm bench serve", argv[i]);
        n++;
    }
    if (n == 0)
        options_die("compare: wants A.json B.json… [--html FILE]");
    bool good = page ? html_write(runs, n, page) : print_table(runs, n);
    if (!good)
        fprintf(stderr, "quire-bench: %s: %s\n", page ? page : "standard output", strerror(errno));
    for (size_t i = 0; i < n; i++)
        json_decref(loaded[i]);
    return good ? 0 : 1;
}
