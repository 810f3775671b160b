// URI references (RFC 3986), as far as schemas in one document need them to name each other.
#include "schema_state.h"

struct uri {
    struct text_view scheme, authority, path, query; // data NULL: absent; without its delimiters
};

static struct text_view view_of(const char *p, size_t len) { return (struct text_view){p, len}; }

// Bytes of text before the first byte that is one of `stops`.
static size_t span_to(const char *p, size_t len, const char *stops) {
    size_t n = 0;
    while (n < len && !(p[n] && strchr(stops, p[n])))
        n++;
    return n;
}

static struct uri uri_split(const char *p, size_t len) {
    struct uri u = {0};
    len = span_to(p, len, "#");
    size_t n = span_to(p, len, ":/?");
    if (n > 0 && n < len && p[n] == ':') {
        u.scheme = view_of(p, n);
        p += n + 1;
        len -= n + 1;
    }
    if (len >= 2 && p[0] == '/' && p[1] == '/') {
        n = span_to(p + 2, len - 2, "/?");
        u.authority = view_of(p + 2, n);
        p += n + 2;
        len -= n + 2;
    }
    n = span_to(p, len, "?");
    u.path = view_of(p, n);
    if (n < len)
        u.query = view_of(p + n + 1, len - n - 1);
    return u;
}

struct uri_out {
    char *text;
    size_t len, cap;
    bool full;
};

static void uri_add(struct uri_out *o, const char *p, size_t len) {
    if (o->full || len >= o->cap - o->len) {
        o->full = true;
        return;
    }
    if (len)
        memcpy(o->text + o->len, p, len);
    o->len += len;
}

// Appends a path without its dot segments; `from` is where the path begins in o.
static void uri_add_path(struct uri_out *o, size_t from, struct text_view path) {
    for (size_t at = 0; at < path.len && !o->full;) {
        size_t n = span_to(path.data + at, path.len - at, "/");
        const char *segment = path.data + at;
        bool last = at + n == path.len;
        if (n == 2 && segment[0] == '.' && segment[1] == '.') {
            size_t end = o->len;
            if (end > from && o->text[end - 1] == '/')
                end--;
            while (end > from && o->text[end - 1] != '/')
                end--;
            if (end > from || (from < o->len && o->text[from] == '/'))
                o->len = end > from ? end : from + 1;
        } else if (!(n == 1 && segment[0] == '.')) {
            uri_add(o, segment, n);
            if (!last)
                uri_add(o, "/", 1);
        }
        at += n + 1;
    }
}

bool schema_uri(const char *base_text, struct text_view ref_text, char *out, size_t cap) {
    struct uri base = uri_split(base_text, strlen(base_text)), ref = uri_split(ref_text.data, ref_text.len);
    struct uri_out o = {out, 0, cap, false};
    const struct uri *scheme = ref.scheme.data ? &ref : &base;
    const struct uri *authority = ref.scheme.data || ref.authority.data ? &ref : &base;
    if (memchr(ref_text.data, 0, ref_text.len))
        return false;
    if (scheme->scheme.data) {
        uri_add(&o, scheme->scheme.data, scheme->scheme.len);
        uri_add(&o, ":", 1);
    }
    if (authority->authority.data) {
        uri_add(&o, "//", 2);
        uri_add(&o, authority->authority.data, authority->authority.len);
    }
    struct text_view query = ref.query;
    size_t from = o.len;
    bool opaque = scheme->scheme.data && !authority->authority.data &&
                  !(scheme->path.len > 0 && scheme->path.data[0] == '/'); // urn:..., mailto:...
    if (authority == &ref || (ref.path.len > 0 && ref.path.data[0] == '/')) {
        if (opaque)
            uri_add(&o, ref.path.data, ref.path.len);
        else
            uri_add_path(&o, from, ref.path);
    } else if (ref.path.len == 0) {
        uri_add(&o, base.path.data, base.path.len);
        if (!ref.query.data)
            query = base.query;
    } else {
        size_t n = base.path.len;
        while (n > 0 && base.path.data[n - 1] != '/')
            n--;
        if (n == 0 && base.authority.data)
            uri_add(&o, "/", 1);
        uri_add(&o, base.path.data, n);
        uri_add_path(&o, from, ref.path);
    }
    if (query.data) {
        uri_add(&o, "?", 1);
        uri_add(&o, query.data, query.len);
    }
    if (o.full)
        return false;
    out[o.len] = 0;
    return true;
}
