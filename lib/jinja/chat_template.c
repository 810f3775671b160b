// The front door: values from outside, parsing, rendering, segments.
#include "chat.h"

#include "eval.h"
#include "hash.h"
#include "library.h"
#include "log.h"
#include "parse.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static bool parse_source(struct jinja_source *s, const char *source, size_t len, struct chat_template *t) {
    if (setjmp(s->env))
        return false;
    jinja_lex(s, source, len);
    jinja_parse(s, t);
    return true;
}

struct chat_template *chat_template_new(const char *source, size_t len, struct err *err) {
    struct chat_template *t = calloc(1, sizeof *t);
    struct jinja_source *s = calloc(1, sizeof *s);
    struct chat_arena *a = chat_arena_new();
    if (!t || !s || !a) {
        err_set(err, STATUS_NOMEM, "out of memory for the chat template");
        goto fail;
    }
    t->arena = s->arena = a;
    t->lib = &jinja_library;
    s->err = err;
    a->limit = (size_t)1 << 30;
    if (!parse_source(s, source, len, t))
        goto fail;
    free(s);
    return t;
fail:
    chat_arena_free(a);
    free(s);
    free(t);
    return NULL;
}

void chat_template_free(struct chat_template *t) {
    if (!t)
        return;
    chat_arena_free(t->arena);
    free(t);
}

// ---- values

static struct chat_value *new_value(struct chat_arena *a, struct value v) {
    struct chat_value *c = arena_alloc(a, sizeof *c);
    if (c)
        c->v = v;
    return c;
}

struct chat_value *chat_null(struct chat_arena *a) {
    return new_value(a, value_null());
}
struct chat_value *chat_bool(struct chat_arena *a, bool v) {
    return new_value(a, value_of_bool(v));
}
struct chat_value *chat_int(struct chat_arena *a, int64_t v) {
    return new_value(a, value_of_int(v));
}
struct chat_value *chat_float(struct chat_arena *a, double v) {
    return new_value(a, value_of_float(v));
}

static struct str *copy_text(struct chat_arena *a, const char *text, size_t len, bool content) {
    struct str *s = arena_alloc(a, sizeof *s);
    size_t bad = 0, n = 0;
    for (size_t i = 0; i < len;) {
        int k = utf8_len((const unsigned char *)text + i, len - i);
        bad += k == 0;
        i += k ? (size_t)k : 1;
    }
    char *p = s ? arena_alloc(a, len + 2 * bad + 1) : NULL;
    if (!p)
        return NULL;
    for (size_t i = 0; i < len;) {
        int k = utf8_len((const unsigned char *)text + i, len - i);
        memcpy(p + n, k ? text + i : "\xef\xbf\xbd", k ? (size_t)k : 3);
        n += k ? (size_t)k : 3;
        i += k ? (size_t)k : 1;
    }
    a->input += n;
    *s = (struct str){.p = p, .len = n, .mark = content};
    return s;
}

struct chat_value *chat_string(struct chat_arena *a, const char *text, size_t len, bool content) {
    struct str *s = copy_text(a, text, len, content);
    return s ? new_value(a, value_of_str(s)) : NULL;
}

struct chat_value *chat_list(struct chat_arena *a) {
    struct list *l = arena_alloc(a, sizeof *l);
    return l ? new_value(a, value_of_list(V_LIST, l)) : NULL;
}

// Marks the arena as full: a value that could not be made is found when it is used, and rendering fails.
static void out_of_memory(struct chat_arena *a) { a->limit = 0; }

void chat_list_add(struct chat_arena *a, struct chat_value *list, struct chat_value *v) {
    CHECK(!list || list->v.kind == V_LIST);
    if (!list || !v || !list_push(a, list->v.l, v->v))
        out_of_memory(a);
}

struct chat_value *chat_dict(struct chat_arena *a) {
    struct dict *d = arena_alloc(a, sizeof *d);
    return d ? new_value(a, value_of_dict(d)) : NULL;
}

void chat_dict_set(struct chat_arena *a, struct chat_value *dict, const char *key, size_t len,
                   struct chat_value *v) {
    CHECK(!dict || dict->v.kind == V_DICT);
    struct str *s = copy_text(a, key, len, true);
    if (!dict || !v || !s ||
        !dict_put(a, dict->v.d, value_of_str(s), hash_bytes(a->seed, s->p, s->len), v->v))
        out_of_memory(a);
}

// ---- rendering

static enum status cut_segments(struct chat_arena *a, const struct marked *out,
                                const struct chat_segment **segments, size_t *num_segments, struct err *err) {
    size_t n = 0;
    for (size_t i = 0; i < out->len; i++)
        n += i == 0 || out->marks[i] != out->marks[i - 1];
    struct chat_segment *s = arena_alloc(a, (n + 1) * sizeof *s);
    if (!s)
        return err_set(err, STATUS_NOMEM, "out of memory for the chat template's output");
    n = 0;
    for (size_t i = 0; i < out->len; i++) {
        if (i == 0 || out->marks[i] != out->marks[i - 1])
            s[n++] = (struct chat_segment){.text = out->p + i, .content = out->marks[i] != 0};
        s[n - 1].len++;
    }
    *segments = s;
    *num_segments = n;
    return STATUS_OK;
}

enum status chat_render(const struct chat_template *t, struct chat_arena *a, const struct chat_value *globals,
                        const struct chat_segment **segments, size_t *num_segments, struct err *err) {
    if (!globals || a->limit == 0)
        return err_set(err, STATUS_NOMEM, "out of memory for the chat template's values");
    CHECK(globals->v.kind == V_DICT);
    struct marked *out = arena_alloc(a, sizeof *out);
    if (!out)
        return err_set(err, STATUS_NOMEM, "out of memory for the chat template");
    enum status st = jinja_render(t, a, globals->v.d, out, err);
    return st == STATUS_OK ? cut_segments(a, out, segments, num_segments, err) : st;
}
