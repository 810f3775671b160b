#include "config_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config_file {
    enum status (*take)(void *arg, const struct file_value *v);
    void *arg;
    int line;
    // The last key, while lines `- a` may follow
    bool open;
    char key[64];
    int key_line, num_items;
};

static char *skip_blanks(char *s) { return s + strspn(s, " \t\r\n"); }

// Whether nothing more stands on the line.
static bool is_end(const char *s) { return !*s || *s == '#'; }

// Cuts a value out of the line at *s: in quotes, or up to one of `ends` or a comment. *s moves behind it, and behind the character
// that follows, *stop ('\0': none). NULL: a quote is not closed.
static char *cut_value(char **s, const char *ends, char *stop) {
    char *value = *s, *end, *next;
    if (*value == '"' || *value == '\'') {
        end = strchr(value + 1, *value);
        if (!end)
            return NULL;
        value++;
        next = skip_blanks(end + 1);
    } else {
        for (end = value; *end && !strchr(ends, *end) && !(isspace((unsigned char)*end) && end[1] == '#');)
            end++;
        next = skip_blanks(end);
        while (end > value && isspace((unsigned char)end[-1]))
            end--;
    }
    *stop = '\0';
    if (!is_end(next))
        *stop = *next++;
    *end = '\0';
    *s = next;
    return value;
}

static enum status give(const struct config_file *f, int line, const char *value, int index) {
    const struct file_value v = {f->key, value, NULL, line, index};
    return f->take(f->arg, &v);
}

static enum status refuse(const struct config_file *f, const char *wrong) {
    const struct file_value v = {NULL, NULL, wrong, f->line, 0};
    return f->take(f->arg, &v);
}

// A key without a value has none, unless a list has come below it.
static enum status close_key(struct config_file *f) {
    bool empty = f->open && f->num_items == 0;
    f->open = false;
    return empty ? give(f, f->key_line, "", 0) : STATUS_OK;
}

// a, b] behind the bracket
static enum status read_list(struct config_file *f, char *s) {
    enum status status = STATUS_OK;
    char stop = '\0';
    s = skip_blanks(s);
    if (*s == ']') {
        stop = *s++;
        status = give(f, f->line, "", 0);
    }
    for (int index = 1; stop != ']' && status == STATUS_OK; index++) {
        const char *value = cut_value(&s, ",]", &stop);
        if (!value || (stop != ',' && stop != ']'))
            return refuse(f, "expected a list `[a, b]` on one line");
        status = give(f, f->line, value, index);
        s = skip_blanks(s);
        if (*s == ']') // behind a last comma
            stop = *s++;
    }
    if (status == STATUS_OK && !is_end(skip_blanks(s)))
        status = refuse(f, "expected nothing behind the list; quotes make a text of it");
    return status;
}

static enum status read_line(struct config_file *f, char *line) {
    enum status status = STATUS_OK;
    char *s = skip_blanks(line), stop = '\0';
    if (is_end(s) || strncmp(s, "---", 3) == 0) // a document begins
        return STATUS_OK;
    bool item = *s == '-' && (!s[1] || isspace((unsigned char)s[1]));
    if (item && !f->open)
        return refuse(f, "expected a line `key:` above the list");
    if (item) {
        s = skip_blanks(s + 1);
        f->num_items++;
    } else {
        status = close_key(f);
        size_t len = strcspn(s, ":= \t\r\n");
        char *behind = skip_blanks(s + len);
        if (status != STATUS_OK)
            return status;
        if (len == 0 || (*behind != ':' && *behind != '='))
            return refuse(f, "expected `key: value`");
        snprintf(f->key, sizeof f->key, "%.*s", (int)(len < sizeof f->key ? len : sizeof f->key - 1), s);
        f->key_line = f->line;
        f->num_items = 0;
        s = skip_blanks(behind + 1);
        f->open = is_end(s);
        if (f->open)
            return STATUS_OK;
        if (*s == '[')
            return read_list(f, s + 1);
    }
    const char *value = is_end(s) ? "" : cut_value(&s, "", &stop);
    if (!value || stop)
        return refuse(f, "expected a value, with a quote at both ends or at none");
    return give(f, f->line, value, item ? f->num_items : 0);
}

enum status config_file_read(const char *path, enum status (*take)(void *arg, const struct file_value *v),
                             void *arg, struct err *err) {
    struct config_file f = {.take = take, .arg = arg};
    FILE *in = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    enum status status = STATUS_OK;
    errno = 0;
    while (in && status == STATUS_OK && getline(&line, &cap, in) >= 0) {
        f.line++;
        status = read_line(&f, line);
    }
    if (status == STATUS_OK)
        status = close_key(&f);
    if (!in || ferror(in))
        status = err_set(err, STATUS_INVALID, "--config %s: %s", path, strerror(errno));
    if (line)
        explicit_bzero(line, cap);
    free(line);
    if (in)
        fclose(in);
    return status;
}
