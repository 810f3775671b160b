#include "config.h"

#include "config_file.h"
#include "engine.h"
#include "foreign_flags.h"
#include "nearest.h"
#include "observe/otlp.h"
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum value_source { FROM_PRESET, FROM_FILE, FROM_ENV, FROM_ARGV };

struct parse {
    struct config *config;
    enum value_source source[MAX_OPTIONS]; // of each value so far
    struct err *err;
    bool names_model;         // by a flag
    bool in_file, skips_list; // values of a list that is told as a whole, and not taken
};

static bool is_list(const struct option *o) { return o->type == OPT_LIST || o->type == OPT_SECRET; }

static bool is_string(const struct option *o) {
    return o->type == OPT_STR || o->type == OPT_CONFIG || o->type == OPT_CHOICE;
}

enum status config_parse_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || isspace((unsigned char)text[0]) || strpbrk(text, "xXnN"))
        return STATUS_INVALID;
    double unit = 1;
    switch (toupper((unsigned char)*end)) {
    case 'K': unit = 1024; break;
    case 'M': unit = 1024.0 * 1024; break;
    case 'G': unit = 1024.0 * 1024 * 1024; break;
    case 'T': unit = 1024.0 * 1024 * 1024 * 1024; break;
    default: break;
    }
    if (unit > 1)
        end++;
    if (unit > 1 && *end == 'i')
        end++;
    if (unit > 1 && (*end == 'B' || *end == 'b'))
        end++;
    v *= unit;
    if (*end || v < -9e15 || v > 9e15 || v != floor(v))
        return STATUS_INVALID;
    *out = (int64_t)v;
    return STATUS_OK;
}

static bool is_one_of(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (const char *w = choices; n && w;) {
        const char *bar = strchr(w, '|');
        size_t len = bar ? (size_t)(bar - w) : strlen(w);
        if (len == n && memcmp(w, value, n) == 0)
            return true;
        w = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool parse_bool(const char *text, bool *out) {
    static const char *const choices[2] = {"false|no|off|0", "true|yes|on|1"};
    for (int i = 0; i < 2; i++)
        if (is_one_of(choices[i], text)) {
            *out = i == 1;
            return true;
        }
    return false;
}

static enum status list_add(struct str_list *l, const char *value) {
    char **items = realloc(l->items, (l->len + 1) * sizeof *items);
    if (!items)
        return STATUS_NOMEM;
    l->items = items;
    if (!(items[l->len] = strdup(value)))
        return STATUS_NOMEM;
    l->len++;
    return STATUS_OK;
}

static void list_free(struct str_list *l) {
    for (size_t i = 0; i < l->len; i++) {
        explicit_bzero(l->items[i], strlen(l->items[i])); // keys are among them
        free(l->items[i]);
    }
    free(l->items);
    *l = (struct str_list){0};
}

// Stores one value. `value` is never NULL; a bare flag comes as "true".
static enum status set_option(struct parse *p, const struct option *o, const char *value) {
    void *at = (char *)p->config + o->offset;
    struct err *err = p->err;
    int64_t n;
    bool b;
    switch (o->type) {
    case OPT_STR:
    case OPT_CONFIG:
        free(*(char **)at);
        if (!(*(char **)at = strdup(value)))
            return err_set(err, STATUS_NOMEM, "out of memory");
        return STATUS_OK;
    case OPT_LIST:
    case OPT_SECRET:
        if (!*value)
            return err_set(err, STATUS_INVALID, "--%s must not be empty", o->name);
        if (list_add(at, value) != STATUS_OK)
            return err_set(err, STATUS_NOMEM, "out of memory");
        return STATUS_OK;
    case OPT_INT:
    case OPT_INT_K:
    case OPT_INT64:
        if (config_parse_number(value, &n) != STATUS_OK || (double)n < o->min || (double)n > o->max ||
            (o->type == OPT_INT && strpbrk(value, "kKmMgGtTeE.")))
            return err_set(err, STATUS_INVALID,
                           "--%s: expected a whole number from %.0f to %.0f, found '%.60s'", o->name, o->min,
                           o->max, value);
        if (o->type == OPT_INT64)
            *(int64_t *)at = n;
        else
            *(int *)at = (int)n;
        return STATUS_OK;
    case OPT_SEED: {
        char *end;
        errno = 0;
        uint64_t seed = strtoull(value, &end, 10);
        if (!isdigit((unsigned char)(value[0] == '-' ? value[1] : value[0])) || *end || errno)
            return err_set(err, STATUS_INVALID, "--%s: expected a whole number, found '%.60s'", o->name,
                           value);
        *(uint64_t *)at = seed;
        p->config->has_seed = true;
        return STATUS_OK;
    }
    case OPT_DOUBLE: {
        char *end;
        errno = 0;
        double v = strtod(value, &end);
        if (end == value || *end || !isfinite(v) || v < o->min || v > o->max)
            return err_set(err, STATUS_INVALID, "--%s: expected a number from %g to %g, found '%.60s'",
                           o->name, o->min, o->max, value);
        *(double *)at = v;
        return STATUS_OK;
    }
    case OPT_FLAG:
    case OPT_NOFLAG:
    case OPT_HELP:
        if (!parse_bool(value, &b))
            return err_set(err, STATUS_INVALID, "--%s: expected true or false, found '%.60s'", o->name,
                           value);
        *(bool *)at = b == (o->type != OPT_NOFLAG);
        return STATUS_OK;
    case OPT_CHOICE:
        if (!is_one_of(o->metavar, value))
            return err_set(err, STATUS_INVALID, "--%s: expected one of %s, found '%.60s'", o->name,
                           o->metavar, value);
        free(*(char **)at);
        if (!(*(char **)at = strdup(value)))
            return err_set(err, STATUS_NOMEM, "out of memory");
        return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status set_from(struct parse *p, int index, const char *value, enum value_source source) {
    const struct option *o = &options[index];
    if (p->source[index] > source)
        return STATUS_OK;
    // Two names of one value, such as --enable-… and --no-enable-…: the stronger source wins over both.
    for (int i = 0; i < num_options; i++)
        if (i != index && options[i].offset == o->offset && p->source[i] > source)
            return STATUS_OK;
    if (is_list(o) && p->source[index] < source)
        list_free((struct str_list *)(void *)((char *)p->config + o->offset));
    p->source[index] = source;
    return set_option(p, o, value);
}

static int find_option(const struct config *c, const char *name, size_t len) {
    for (int i = 0; i < num_options; i++)
        if ((options[i].commands & (unsigned)c->command) && strlen(options[i].name) == len) {
            size_t j = 0; // `_` is read as `-`, so that file and environment spellings work
            while (j < len && (name[j] == '_' ? '-' : name[j]) == options[i].name[j])
                j++;
            if (j == len)
                return i;
        }
    return -1;
}

static enum status fail_unknown(struct parse *p, const char *name) {
    struct nearest near = {.word = name};
    size_t n = strlen(name);
    for (int i = 0; i < num_options; i++)
        if (options[i].commands & (unsigned)p->config->command) {
            nearest_try(&near, options[i].name);
            if (n >= 4 && strncmp(name, options[i].name, n) == 0 && !near.best)
                near.best = options[i].name;
        }
    const char *dashes = p->in_file ? "" : "--";
    return err_set(p->err, STATUS_INVALID, "unknown %s %s%.60s%s%s%s%s", p->in_file ? "key" : "flag", dashes,
                   name, near.best ? "; did you mean " : "", near.best ? dashes : "",
                   near.best ? near.best : "", near.best ? "?" : "");
}

// Keeps what is wrong with one argument or line, so that all are told at once.
static enum status keep_problem(struct parse *p) {
    enum status status = p->err->code;
    if (status == STATUS_INVALID)
        status = list_add(&p->config->problems, p->err->msg);
    if (status == STATUS_OK)
        *p->err = (struct err){0};
    return status;
}

// A flag of another server that needs nothing here
static enum status keep_note(struct parse *p, const char *name, const struct foreign_flag *f) {
    char note[200];
    snprintf(note, sizeof note, "%s needs nothing here: %s", name, f->hint);
    return list_add(&p->config->notes, note);
}

// The option that a word of the command line names, by its own name or by one that another server gives it.
// MODEL_FLAG: the model's. NO_FLAG: none that is needed. -1: none; err says why.
enum { MODEL_FLAG = MAX_OPTIONS, NO_FLAG };

static int find_flag(struct parse *p, const char *word, size_t len, const struct foreign_flag **foreign) {
    const struct config *c = p->config;
    int index = -1;
    if (word[1] == '-')
        index = find_option(c, word + 2, len - 2);
    for (int i = 0; i < num_options && len == 2 && index < 0; i++)
        if (options[i].letter == word[1] && (options[i].commands & (unsigned)c->command))
            index = i;
    const struct foreign_flag *f = *foreign = index < 0 ? foreign_flag_find(word, len) : NULL;
    if (f && f->ours)
        index = strcmp(f->ours, "model") != 0            ? find_option(c, f->ours, strlen(f->ours))
                : (c->command & OPTIONS_TAKE_MODEL) != 0 ? MODEL_FLAG
                                                         : -1;
    if (index >= 0)
        return index;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(len < 62 ? len : 62), word);
    if (f && f->kind > FOREIGN_OTHER)
        return keep_note(p, name, f) == STATUS_OK ? NO_FLAG
                                                  : (err_set(p->err, STATUS_NOMEM, "out of memory"), -1);
    if (f && f->hint)
        err_set(p->err, STATUS_INVALID, "%s is no flag of Quire: %s", name, f->hint);
    else if (name[1] == '-')
        fail_unknown(p, name + 2);
    else
        err_set(p->err, STATUS_INVALID, "unknown flag %s", name);
    return -1;
}

// Reads on behind what is wrong: all of it is told at once.
static enum status parse_argv(struct parse *p, int argc, char **argv) {
    bool only_args = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (only_args || word[0] != '-' || !word[1]) {
            if (list_add(&p->config->args, word) != STATUS_OK)
                return err_set(p->err, STATUS_NOMEM, "out of memory");
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_args = true;
            continue;
        }
        char *value = strchr(word, '=');
        size_t len = value ? (size_t)(value - word) : strlen(word);
        if (value)
            value++;
        const struct foreign_flag *foreign;
        int index = find_flag(p, word, len, &foreign);
        if (index < 0 || index == NO_FLAG) {
            const char *next = i + 1 < argc ? argv[i + 1] : NULL;
            i += !value && (foreign ? foreign_flag_takes(foreign, next) : next && next[0] != '-');
            if (index < 0 && keep_problem(p) != STATUS_OK)
                return p->err->code;
            continue;
        }
        const struct option *o = index == MODEL_FLAG ? NULL : &options[index];
        enum status status = STATUS_OK;
        if (!value && (!o || option_takes_value(o))) {
            if (i + 1 >= argc)
                status = err_set(p->err, STATUS_INVALID, "%s needs a value", word);
            else
                value = argv[++i];
        }
        if (status == STATUS_OK)
            status = o ? set_from(p, index, value ? value : "true", FROM_ARGV)
                     : config_add_model(p->config, value) != STATUS_OK
                         ? err_set(p->err, STATUS_NOMEM, "out of memory")
                         : STATUS_OK;
        if (status != STATUS_OK && keep_problem(p) != STATUS_OK)
            return p->err->code;
        p->names_model |= !o;
        if (o && o->type == OPT_SECRET && value) {
            p->config->key_in_argv = true; // readable in /proc until here
            memset(value, '*', strlen(value));
        }
    }
    return STATUS_OK;
}

// The only argument of `quire tokenize`, if it is a MODEL and the text has been forgotten; NULL: it is the text.
static const char *model_without_text(const struct parse *p) {
    const struct str_list *args = &p->config->args;
    const char *only = p->config->command == CMD_TOKENIZE && args->len == 1 ? args->items[0] : NULL;
    size_t n = only ? strlen(only) : 0;
    bool is_model = only && (p->names_model || access(only, F_OK) == 0 ||
                             (n > 5 && strcasecmp(only + n - 5, ".gguf") == 0));
    return is_model ? only : NULL;
}

bool config_variable(int i, char name[CONFIG_NAME]) {
    size_t n = (size_t)snprintf(name, CONFIG_NAME, "QUIRE_");
    for (const char *s = i < num_options ? options[i].name : "model"; *s && n + 1 < CONFIG_NAME; s++)
        name[n++] = *s == '-' ? '_' : (char)toupper((unsigned char)*s);
    name[n] = '\0';
    return i <= num_options;
}

// Gives MODEL to a command that takes one and was not told any.
static enum status set_model(struct parse *p, const char *path) {
    struct config *c = p->config;
    bool lacks = (c->command & OPTIONS_TAKE_MODEL) && !c->url && c->args.len == (c->command == CMD_TOKENIZE);
    return lacks && config_add_model(c, path) != STATUS_OK ? err_set(p->err, STATUS_NOMEM, "out of memory")
                                                           : STATUS_OK;
}

// Values of a variable, between commas and blanks around them.
static enum status set_list(struct parse *p, int index, const char *values) {
    enum status status = STATUS_OK;
    for (const char *s = values; s && status == STATUS_OK;) {
        const char *comma = strchr(s, ',');
        s += strspn(s, " ");
        size_t len = comma ? (size_t)(comma - s) : strlen(s);
        while (len > 0 && s[len - 1] == ' ')
            len--;
        char *one = strndup(s, len);
        status = one ? set_from(p, index, one, FROM_ENV) : err_set(p->err, STATUS_NOMEM, "out of memory");
        free(one);
        s = comma ? comma + 1 : NULL;
    }
    return status;
}

static enum status parse_env(struct parse *p) {
    char name[CONFIG_NAME];
    enum status status = STATUS_OK;
    for (int i = 0; config_variable(i, name) && status == STATUS_OK; i++) {
        const struct option *o = i < num_options ? &options[i] : NULL;
        const char *value = getenv(name);
        if (!value || (o && (!(o->commands & (unsigned)p->config->command) || o->type == OPT_HELP)))
            continue;
        if (*value)
            status = !o                    ? set_model(p, value)
                     : o->type == OPT_LIST ? set_list(p, i, value)
                                           : set_from(p, i, value, FROM_ENV);
        else if (o && strstr(o->name, "key") && p->source[i] < FROM_ENV)
            status = err_set(p->err, STATUS_INVALID, "%s is empty; unset it where no key is meant", name);
        if (status != STATUS_OK)
            status = keep_problem(p);
    }
    return status;
}

static enum status set_from_file(struct parse *p, const struct file_value *v) {
    char word[80];
    const struct foreign_flag *foreign;
    int len = snprintf(word, sizeof word, "--%s", v->key);
    if (v->index > 1 && p->skips_list)
        return STATUS_OK;
    int index = find_flag(p, word, (size_t)len, &foreign);
    const struct option *o = index >= 0 && index < num_options ? &options[index] : NULL;
    bool none = index < 0 || index == NO_FLAG;
    p->skips_list = none || (v->index > 0 && !(o && is_list(o)));
    if (none)
        return index < 0 ? p->err->code : STATUS_OK;
    if (p->skips_list)
        return err_set(p->err, STATUS_INVALID, "%s takes one value, found a list", v->key);
    if (!o)
        return set_model(p, v->value);
    if (o->type == OPT_CONFIG)
        return err_set(p->err, STATUS_INVALID, "a file cannot name another");
    return set_from(p, index, v->value, FROM_FILE);
}

static enum status take_file_value(void *arg, const struct file_value *v) {
    struct parse *p = arg;
    struct err inner = {0}, *outer = p->err;
    p->err = &inner;
    enum status status = v->wrong ? err_set(&inner, STATUS_INVALID, "%s", v->wrong) : set_from_file(p, v);
    p->err = outer;
    if (status == STATUS_OK)
        return STATUS_OK;
    err_set(outer, status, "--config %.150s line %d: %.220s", p->config->config_file, v->line, inner.msg);
    return keep_problem(p);
}

// As browsers send it, so that it can be compared: scheme, host, port where it is not the usual one.
static bool is_origin(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    return strcmp(s, "*") == 0 || strcmp(s, "localhost") == 0 ||
           (n > 0 && strncmp(s + n, "://", 3) == 0 && s[n + 3] && !strpbrk(s + n + 3, "/,* "));
}

enum status config_parse(struct config *c, enum command command, int argc, char **argv, struct err *err) {
    *c = (struct config){.command = command};
    struct parse p = {.config = c, .err = err};
    enum status status = STATUS_OK;
    for (int i = 0; i < num_options && status == STATUS_OK; i++)
        if (options[i].preset)
            status = set_option(&p, &options[i], options[i].preset);
    if (status == STATUS_OK)
        status = parse_argv(&p, argc, argv);
    const char *model = status == STATUS_OK ? model_without_text(&p) : NULL;
    if (model) {
        err_set(err, STATUS_INVALID,
                "%.200s is a MODEL, and no TEXT follows it; - reads the TEXT from standard input", model);
        status = keep_problem(&p);
    }
    if (status == STATUS_OK)
        status = parse_env(&p);
    p.in_file = true;
    if (status == STATUS_OK && c->config_file && !c->help)
        status = config_file_read(c->config_file, take_file_value, &p, err);
    if (status == STATUS_OK && c->problems.len > 0)
        status = err_set(err, STATUS_INVALID, "%s", c->problems.items[0]);
    const char *collector = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); // OpenTelemetry's own name
    if (status == STATUS_OK && command == CMD_SERVE && !c->otlp_traces_endpoint && collector && *collector &&
        !(c->otlp_traces_endpoint = strdup(collector)))
        status = err_set(err, STATUS_NOMEM, "out of memory");
    if (status == STATUS_OK && c->otlp_traces_endpoint && !otlp_url_ok(c->otlp_traces_endpoint))
        status = err_set(err, STATUS_INVALID,
                         "--otlp-traces-endpoint: expected http://HOST[:PORT][/PATH], found '%.60s'",
                         c->otlp_traces_endpoint);
    if (status == STATUS_OK && c->max_num_batched_tokens && c->max_num_batched_tokens < c->max_num_seqs)
        status =
            err_set(err, STATUS_INVALID, "--max-num-batched-tokens (%d) must be at least --max-num-seqs (%d)",
                    c->max_num_batched_tokens, c->max_num_seqs);
    if (status == STATUS_OK && !c->tls_cert != !c->tls_key)
        status = err_set(err, STATUS_INVALID, "--tls-cert and --tls-key need each other: %s is missing",
                         c->tls_cert ? "--tls-key" : "--tls-cert");
    if (status == STATUS_OK && c->num_kv_blocks && c->kv_cache_memory)
        status = err_set(err, STATUS_INVALID, "give --num-kv-blocks or --kv-cache-memory, not both");
    for (size_t i = 0; i < c->allowed_origins.len && status == STATUS_OK; i++)
        if (!is_origin(c->allowed_origins.items[i]))
            status = err_set(
                err, STATUS_INVALID,
                "--allowed-origins: expected *, localhost or one such as https://example.org, found '%.60s'",
                c->allowed_origins.items[i]);
    if (status == STATUS_OK && c->metrics_namespace) {
        const char *s = c->metrics_namespace;
        if (!isalpha((unsigned char)*s) ||
            s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
            status =
                err_set(err, STATUS_INVALID, "--metrics-namespace: expected a word of letters, digits and _");
    }
    if (status == STATUS_INVALID && c->problems.len == 0 && list_add(&c->problems, err->msg) != STATUS_OK)
        status = err_set(err, STATUS_NOMEM, "out of memory");
    return status;
}

void config_free(struct config *c) {
    for (int i = 0; i < num_options; i++) {
        void *at = (char *)c + options[i].offset;
        if (is_string(&options[i])) {
            free(*(char **)at);
            *(char **)at = NULL; // another row may name it again
        } else if (is_list(&options[i])) {
            list_free(at);
        }
    }
    list_free(&c->args);
    list_free(&c->problems);
    list_free(&c->notes);
    *c = (struct config){0};
}

enum status config_add_model(struct config *c, const char *path) {
    if (list_add(&c->args, path) != STATUS_OK)
        return STATUS_NOMEM;
    char *model = c->args.items[c->args.len - 1];
    memmove(c->args.items + 1, c->args.items, (c->args.len - 1) * sizeof *c->args.items);
    c->args.items[0] = model;
    return STATUS_OK;
}

enum status config_name_model(struct config *c, const char *path) {
    char **model = &c->args.items[0], *copy = strdup(path);
    if (!copy || (c->served_names.len == 0 && list_add(&c->served_names, *model) != STATUS_OK)) {
        free(copy);
        return STATUS_NOMEM;
    }
    free(*model);
    *model = copy;
    return STATUS_OK;
}
