// The document of a schema: memory, messages, keywords, resources and what $ref names.
#include "../work_time.h"
#include "schema_state.h"

#include "buf.h"
#include "utf8.h"

#include <stdarg.h>
#include <stdlib.h>

enum { ARENA_BLOCK = 64 << 10, ARENA_BYTES = 256 << 20, MAX_URI = 2048 };

struct schema_block {
    struct schema_block *next;
    size_t used, size;
    max_align_t data[];
};

void *schema_alloc(struct schema *s, size_t bytes) {
    struct schema_block *a = s->arena;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!a || bytes > a->size - a->used) {
        size_t size = bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK;
        if (s->arena_bytes + size > ARENA_BYTES) {
            schema_fail(s, NULL, STATUS_LIMIT, "the schema is too complex");
            return NULL;
        }
        a = malloc(sizeof *a + size);
        if (!a) {
            schema_fail(s, NULL, STATUS_NOMEM, "out of memory for a schema");
            return NULL;
        }
        *a = (struct schema_block){s->arena, 0, size};
        s->arena = a;
        s->arena_bytes += size;
    }
    void *p = (char *)a->data + a->used;
    a->used += bytes;
    return memset(p, 0, bytes);
}

bool schema_own(struct schema *s, struct dfa *d) {
    struct owned_dfa *o = schema_alloc(s, sizeof *o);
    if (!o) {
        dfa_free(d);
        return false;
    }
    *o = (struct owned_dfa){d, s->owned};
    s->owned = o;
    return true;
}

void schema_free_memory(struct schema *s) {
    while (s->arena) {
        struct schema_block *next = s->arena->next;
        free(s->arena);
        s->arena = next;
    }
    jdoc_free(&s->doc);
}

bool schema_step(struct schema *s, int64_t n) {
    struct err err = {0};
    s->steps += n;
    if (!work_time_left(&err)) {
        s->steps = MAX_STEPS + 1; // the whole schema fails
        return schema_fail(s, NULL, err.code, "the schema is too complex: %s", err.msg);
    }
    if (s->steps <= MAX_STEPS)
        return !s->failed;
    return schema_fail(s, NULL, STATUS_LIMIT, "the schema is too complex: its alternatives are too many");
}

// Appends the JSON pointer of v, from the whole document down.
static void add_pointer(const struct schema *s, const struct jdoc_value *v, struct buf *out) {
    const struct jdoc *j = &s->doc;
    uint32_t want = (uint32_t)(v - j->values);
    for (const struct jdoc_value *at = j->values; at != v;) {
        bool object = at->type == JDOC_OBJECT;
        const struct jdoc_value *child = NULL;
        uint32_t number = 0;
        for (const struct jdoc_value *e = jdoc_first(j, at); e && !child; e = jdoc_after(j, at, e, object)) {
            const struct jdoc_value *value = object ? e + 1 : e;
            if (want >= value->next) {
                number++;
                continue;
            }
            child = value;
            buf_char(out, '/');
            if (!object)
                buf_int(out, number);
            for (size_t i = 0; object && i < e->len; i++) {
                char c = j->text[e->at + i];
                if (c == '~' || c == '/')
                    buf_str(out, c == '~' ? "~0" : "~1");
                else
                    buf_char(out, (unsigned char)c < 0x20 ? '?' : c);
            }
            if (object && value != v && want == (uint32_t)(e - j->values))
                return; // a key itself
        }
        if (!child)
            return;
        at = child;
    }
}

bool schema_fail(struct schema *s, const struct jdoc_value *node, enum status code, const char *fmt, ...) {
    struct buf path = {0};
    char text[sizeof s->err->msg / 2];
    va_list ap;
    s->failed = true;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    utf8_scrub(text);
    if (node)
        add_pointer(s, node, &path);
    const char *where = buf_cstr(&path);
    enum { MOST = 300 };
    if (where && path.len > MOST) { // the end tells more
        where += path.len - MOST;
        while (utf8_continues(*where))
            where++;
    }
    if (node)
        err_set(s->err, code, "%s%s: %s", where && path.len > MOST ? "..." : "",
                where && *where ? where : "the schema", text);
    else
        err_set(s->err, code, "%s", text);
    buf_free(&path);
    return false;
}

void schema_name(const struct schema *s, const struct jdoc_value *node, char *name, size_t size) {
    struct buf path = {0};
    add_pointer(s, node, &path);
    const char *text = buf_cstr(&path);
    if (text && path.len >= size)
        text += path.len - size + 1;
    while (text && utf8_continues(*text))
        text++;
    snprintf(name, size, "%s", text && *text ? text : "schema");
    buf_free(&path);
}

const struct jdoc_value *schema_get(const struct schema *s, const struct jdoc_value *v, const char *keyword) {
    if (v && v->type == JDOC_OBJECT)
        JDOC_EACH_KEY(&s->doc, k, v)
    if (jdoc_is(&s->doc, k, keyword))
        return k + 1;
    return NULL;
}

enum json_type schema_type(const struct jdoc_value *v) {
    switch (v->type) {
    case JDOC_NULL: return TYPE_NULL;
    case JDOC_FALSE:
    case JDOC_TRUE: return TYPE_BOOLEAN;
    case JDOC_NUMBER: return TYPE_NUMBER;
    case JDOC_STRING: return TYPE_STRING;
    default: return v->type == JDOC_ARRAY ? TYPE_ARRAY : TYPE_OBJECT;
    }
}

bool schema_same_text(const struct schema *s, const struct jdoc_value *a, const struct jdoc_value *b) {
    return a->len == b->len && memcmp(s->doc.text + a->at, s->doc.text + b->at, a->len) == 0;
}

// ---- resources

static const struct {
    const char *name;
    enum draft draft;
} drafts[] = {
    {"://json-schema.org/draft-04/schema", DRAFT_4},
    {"://json-schema.org/draft-06/schema", DRAFT_6},
    {"://json-schema.org/draft-07/schema", DRAFT_7},
    {"://json-schema.org/draft/2019-09/schema", DRAFT_2019},
    {"://json-schema.org/draft/2020-12/schema", DRAFT_2020},
};

// The draft that `$schema` of v names, `otherwise` where there is none or an unknown one.
static enum draft draft_of(const struct schema *s, const struct jdoc_value *v, enum draft otherwise) {
    const struct jdoc_value *name = schema_get(s, v, "$schema");
    if (name && name->type == JDOC_STRING) {
        struct text_view t = jdoc_text(&s->doc, name);
        if (t.len > 0 && t.data[t.len - 1] == '#')
            t.len--;
        for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
            size_t n = strlen(drafts[i].name);
            if (t.len >= n + 4 && t.len <= n + 5 && memcmp(t.data, "http", 4) == 0 &&
                memcmp(t.data + t.len - n, drafts[i].name, n) == 0)
                return drafts[i].draft;
        }
    }
    return otherwise;
}

// The innermost resource that v is in.
static const struct resource *resource_of(const struct schema *s, const struct jdoc_value *v) {
    const struct resource *r = &s->resources[0];
    for (int i = 1; i < s->num_resources; i++) // in the text's order: the last that holds v is the innermost
        if (s->resources[i].root <= v && v < s->doc.values + s->resources[i].root->next)
            r = &s->resources[i];
    return r;
}

enum draft schema_draft(const struct schema *s, const struct jdoc_value *v) {
    return resource_of(s, v)->draft;
}

static const char *keep_text(struct schema *s, const char *text, size_t len) {
    char *copy = schema_alloc(s, len + 1);
    if (copy && len)
        memcpy(copy, text, len);
    return copy;
}

static bool add_anchor(struct schema *s, const char *uri, struct text_view name,
                       const struct jdoc_value *node, bool dynamic) {
    if (s->num_anchors % 16 == 0) {
        struct anchor *more = schema_alloc(s, (size_t)(s->num_anchors + 16) * sizeof *more);
        if (!more)
            return false;
        if (s->num_anchors)
            memcpy(more, s->anchors, (size_t)s->num_anchors * sizeof *more);
        s->anchors = more;
    }
    s->anchors[s->num_anchors++] = (struct anchor){uri, name, node, dynamic};
    return schema_step(s, s->num_anchors);
}

static bool add_resource(struct schema *s, const struct jdoc_value *v, const char *uri, enum draft draft) {
    if (s->num_resources % 16 == 0) {
        struct resource *more = schema_alloc(s, (size_t)(s->num_resources + 16) * sizeof *more);
        if (!more)
            return false;
        if (s->num_resources)
            memcpy(more, s->resources, (size_t)s->num_resources * sizeof *more);
        s->resources = more;
    }
    s->resources[s->num_resources++] = (struct resource){v, uri, draft};
    return schema_step(s, s->num_resources);
}

// $id and anchors of one schema within a resource; *uri, *draft: the resource that holds here from now on.
static bool find_names(struct schema *s, const struct jdoc_value *v, const char **uri, enum draft *draft) {
    bool root = v == s->doc.values;
    enum draft own = draft_of(s, v, *draft);
    const struct jdoc_value *id = schema_get(s, v, own == DRAFT_4 ? "id" : "$id");
    char absolute[MAX_URI];
    if (own <= DRAFT_7 && schema_get(s, v, "$ref"))
        id = NULL;
    struct text_view t = id && id->type == JDOC_STRING ? jdoc_text(&s->doc, id) : (struct text_view){"", 0};
    if (t.len > 0 && t.data[0] != '#') {
        if (!schema_uri(*uri, t, absolute, sizeof absolute))
            return schema_fail(s, id, STATUS_INVALID, "no URI of less than %d bytes", MAX_URI);
        *uri = keep_text(s, absolute, strlen(absolute));
        *draft = own;
        if (!*uri || !add_resource(s, v, *uri, own))
            return false;
    } else if (root) {
        *draft = own;
        if (!add_resource(s, v, *uri, own))
            return false;
    }
    const char *hash = own <= DRAFT_7 && t.len ? memchr(t.data, '#', t.len) : NULL;
    if (hash && hash + 1 < t.data + t.len && hash[1] != '/' &&
        !add_anchor(s, *uri, (struct text_view){hash + 1, (size_t)(t.data + t.len - hash - 1)}, v, false))
        return false;
    static const char *const names[] = {"$anchor", "$dynamicAnchor"};
    for (int i = 0; i < 2; i++) {
        const struct jdoc_value *name = schema_get(s, v, names[i]);
        if (name && name->type == JDOC_STRING && own >= DRAFT_2019 &&
            !add_anchor(s, *uri, jdoc_text(&s->doc, name), v, i == 1))
            return false;
    }
    const struct jdoc_value *recursive = schema_get(s, v, "$recursiveAnchor");
    if (recursive && recursive->type == JDOC_TRUE && own == DRAFT_2019 &&
        !add_anchor(s, *uri, (struct text_view){"", 0}, v, true))
        return false;
    if (schema_get(s, v, "unevaluatedProperties") || schema_get(s, v, "unevaluatedItems"))
        s->unevaluated = true;
    return true;
}

// Where schemas are within schemas.
enum { ONE = 1, MANY = 2, NAMED = 4 };
static const struct {
    const char *name;
    int what;
} applicators[] = {
    {"items", ONE | MANY},
    {"additionalItems", ONE},
    {"prefixItems", MANY},
    {"contains", ONE},
    {"properties", NAMED},
    {"patternProperties", NAMED},
    {"additionalProperties", ONE},
    {"propertyNames", ONE},
    {"dependencies", NAMED},
    {"dependentSchemas", NAMED},
    {"unevaluatedItems", ONE},
    {"unevaluatedProperties", ONE},
    {"allOf", MANY},
    {"anyOf", MANY},
    {"oneOf", MANY},
    {"not", ONE},
    {"if", ONE},
    {"then", ONE},
    {"else", ONE},
    {"definitions", NAMED},
    {"$defs", NAMED},
};

// Nested at most JDOC_MAX_DEPTH.
static bool find_resources(struct schema *s, const struct jdoc_value *v, const char *uri, enum draft draft) {
    const struct jdoc *j = &s->doc;
    if (v->type != JDOC_OBJECT)
        return true;
    if (!schema_step(s, 1) || !find_names(s, v, &uri, &draft))
        return false;
    JDOC_EACH_KEY(j, k, v) {
        int what = 0;
        for (size_t i = 0; i < sizeof applicators / sizeof *applicators; i++)
            if (jdoc_is(j, k, applicators[i].name))
                what = applicators[i].what;
        if ((what & ONE) && !find_resources(s, k + 1, uri, draft))
            return false;
        if ((what & MANY) && k[1].type == JDOC_ARRAY)
            JDOC_EACH(j, e, k + 1)
        if (!find_resources(s, e, uri, draft))
            return false;
        if ((what & NAMED) && k[1].type == JDOC_OBJECT)
            JDOC_EACH_KEY(j, e, k + 1)
        if (!find_resources(s, e + 1, uri, draft))
            return false;
    }
    return true;
}

bool schema_read(struct schema *s, const char *text, size_t len) {
    struct err err = {0};
    if (len > SOURCE_BYTES)
        return schema_fail(s, NULL, STATUS_LIMIT, "the schema has %zu bytes, at most %d are taken", len,
                           SOURCE_BYTES);
    char *copy = malloc(len + 1);
    if (!copy)
        return schema_fail(s, NULL, STATUS_NOMEM, "out of memory for a schema");
    if (len)
        memcpy(copy, text, len);
    enum status status = jdoc_parse(&s->doc, "the schema", copy, len, &err);
    if (status != STATUS_OK)
        return schema_fail(s, NULL, status == STATUS_NOMEM ? status : STATUS_INVALID, "%s", err.msg);
    s->keywords = schema_alloc(s, s->doc.num * sizeof *s->keywords);
    return s->keywords && find_resources(s, s->doc.values, "", DRAFT_2020) &&
           (s->num_resources > 0 || add_resource(s, s->doc.values, "", DRAFT_2020));
}

// ---- references

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// One segment of a pointer, without its escapes. `text` is as long at least.
static size_t decode_segment(const char *p, size_t len, char *text) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = p[i];
        if (c == '%' && i + 2 < len && hex_digit(p[i + 1]) >= 0 && hex_digit(p[i + 2]) >= 0) {
            c = (char)(hex_digit(p[i + 1]) * 16 + hex_digit(p[i + 2]));
            i += 2;
        }
        text[n++] = c;
    }
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '~' && i + 1 < n && (text[i + 1] == '0' || text[i + 1] == '1'))
            c = text[++i] == '0' ? '~' : '/';
        text[m++] = c;
    }
    return m;
}

static const struct jdoc_value *find_element(const struct schema *s, const struct jdoc_value *v,
                                             const char *name, size_t len) {
    const struct jdoc *j = &s->doc;
    if (v->type == JDOC_OBJECT)
        JDOC_EACH_KEY(j, k, v)
    if (k->len == len && memcmp(j->text + k->at, name, len) == 0)
        return k + 1;
    if (v->type != JDOC_ARRAY || len == 0 || len > 9)
        return NULL;
    uint32_t number = 0;
    for (size_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9')
            return NULL;
        number = number * 10 + (uint32_t)(name[i] - '0');
    }
    JDOC_EACH(j, e, v)
    if (number-- == 0)
        return e;
    return NULL;
}

// The value that a fragment (behind the '#') names within a resource; NULL: none.
static const struct jdoc_value *find_fragment(struct schema *s, const struct resource *r,
                                              struct text_view fragment, const struct anchor **anchor) {
    if (fragment.len == 0)
        return r->root;
    if (fragment.data[0] != '/') {
        for (int i = 0; i < s->num_anchors; i++) {
            const struct anchor *a = &s->anchors[i];
            if (strcmp(a->uri, r->uri) == 0 && a->name.len == fragment.len &&
                memcmp(a->name.data, fragment.data, fragment.len) == 0) {
                *anchor = a;
                return a->node;
            }
        }
        return NULL;
    }
    const struct jdoc_value *v = r->root;
    char *segment = schema_alloc(s, fragment.len + 1);
    for (size_t at = 1; v && segment && at <= fragment.len;) {
        size_t n = 0;
        while (at + n < fragment.len && fragment.data[at + n] != '/')
            n++;
        v = find_element(s, v, segment, decode_segment(fragment.data + at, n, segment));
        at += n + 1;
    }
    return segment ? v : NULL;
}

const struct jdoc_value *schema_resolve(struct schema *s, const struct jdoc_value *v, const char *keyword,
                                        const struct jdoc_value *ref) {
    char uri[MAX_URI];
    const struct resource *base = resource_of(s, v), *found = NULL;
    const struct anchor *anchor = NULL;
    if (ref->type != JDOC_STRING) {
        schema_fail(s, ref, STATUS_INVALID, "expected a string");
        return NULL;
    }
    struct text_view t = jdoc_text(&s->doc, ref), fragment = {"", 0};
    const char *hash = t.len ? memchr(t.data, '#', t.len) : NULL;
    if (hash)
        fragment = (struct text_view){hash + 1, (size_t)(t.data + t.len - hash - 1)};
    if (hash == t.data) {
        found = base;
    } else if (schema_uri(base->uri, t, uri, sizeof uri)) {
        for (int i = 0; i < s->num_resources && !found; i++)
            if (strcmp(s->resources[i].uri, uri) == 0)
                found = &s->resources[i];
    }
    const struct jdoc_value *target = found ? find_fragment(s, found, fragment, &anchor) : NULL;
    if (!target) {
        if (!s->failed)
            schema_fail(s, ref, STATUS_INVALID, "\"%.*s\" is not in this document%s",
                        (int)(t.len < 200 ? t.len : 200), t.data,
                        found ? "" : ", and nothing else is loaded");
        return NULL;
    }
    // The target of a dynamic reference depends on the path to it, unless there is only one candidate.
    bool recursive = strcmp(keyword, "$recursiveRef") == 0;
    if (recursive || (strcmp(keyword, "$dynamicRef") == 0 && anchor && anchor->dynamic)) {
        struct text_view name = recursive ? (struct text_view){"", 0} : anchor->name;
        int same = 0;
        for (int i = 0; i < s->num_anchors; i++)
            same += s->anchors[i].dynamic && s->anchors[i].name.len == name.len &&
                    memcmp(s->anchors[i].name.data, name.data, name.len) == 0 && s->anchors[i].node != target;
        if (same > 0) {
            schema_fail(s, ref, STATUS_INVALID, "%s is not supported where several anchors have this name",
                        keyword);
            return NULL;
        }
    }
    return target;
}
