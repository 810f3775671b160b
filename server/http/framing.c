#include "framing.h"

#include <microhttpd.h>
#include <string.h>
#include <strings.h>

// RFC 9110 token characters. Anything else in a header name, a trailing space above all, means that another
// parser may have read this request differently.
static bool is_token(const char *s, size_t n) {
    static const char extra[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c && strchr(extra, c));
        if (!ok)
            return false;
    }
    return n > 0;
}

static bool has_control(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
            return true;
    return false;
}

static int64_t parse_length(const char *s) {
    int64_t v = 0;
    if (!*s)
        return -2;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || v > (INT64_MAX - 9) / 10)
            return -2;
        v = v * 10 + (*s - '0');
    }
    return v;
}

// Other versions of libmicrohttpd keep their lines otherwise (and 1.0 refuses what this finds itself).
static bool knows_layout(void) { return strcmp(MHD_get_version(), "0.9.75") == 0; }

// Lines stand one after the other in the connection's buffer, each followed by the two zeros that CR LF became.
static void check_layout(struct http_head *h, const char *key, size_t key_size, const char *value,
                         size_t value_size) {
    h->bad_line |= key != h->after + 2 || value <= key + key_size;
    h->after = value + value_size;
}

bool http_target_bad(const char *uri) {
    if (knows_layout() && strncmp(uri + strlen(uri) + 1, "HTTP/", 5) != 0) // cut by a NUL
        return true;
    return (*uri != '/' && strcmp(uri, "*") != 0 && !strstr(uri, "://")) || strstr(uri, "%00");
}

static enum MHD_Result read_one(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
                                const char *value, size_t value_size) {
    (void)kind;
    struct http_head *h = cls;
    if (!key || !is_token(key, key_size)) {
        h->bad_name = true;
        return MHD_YES;
    }
    if (!value)
        value = "";
    h->bad_value |= has_control(value, value_size);
    if (h->after)
        check_layout(h, key, key_size, value, value_size);
    static const struct {
        const char *name;
        size_t at;
        bool once; // a proxy that checks it may read another one
    } plain[] = {
        {"x-api-key", offsetof(struct http_head, api_key), true},
        {"content-type", offsetof(struct http_head, content_type), true},
        {"content-encoding", offsetof(struct http_head, content_encoding), true},
        {"origin", offsetof(struct http_head, origin), true},
        {"accept", offsetof(struct http_head, accept), false},
        {"access-control-request-method", offsetof(struct http_head, acrm), false},
        {"access-control-request-headers", offsetof(struct http_head, acrh), false},
        {"x-request-id", offsetof(struct http_head, request_id), false},
        {"traceparent", offsetof(struct http_head, traceparent), false},
    };
    if (strcasecmp(key, "host") == 0) {
        h->num_host++;
        h->host = value;
    } else if (strcasecmp(key, "content-length") == 0) {
        h->num_length++;
        h->length = parse_length(value);
        h->bad_length |= h->length < 0;
    } else if (strcasecmp(key, "transfer-encoding") == 0) {
        h->num_encoding++;
        h->chunked = strcasecmp(value, "chunked") == 0;
    } else if (strcasecmp(key, "authorization") == 0) {
        h->num_authorization++;
        h->authorization = value;
    } else if (strcasecmp(key, "expect") == 0) {
        h->expect_unknown = strcasecmp(value, "100-continue") != 0;
    } else {
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
            if (strcasecmp(key, plain[i].name) == 0) {
                const char **field = (const char **)(void *)((char *)h + plain[i].at);
                h->repeated |= *field && plain[i].once;
                *field = value;
            }
    }
    return MHD_YES;
}

void http_head_read(struct http_head *h, struct MHD_Connection *connection, const char *method,
                    const char *version) {
    *h = (struct http_head){.length = -1, .after = knows_layout() ? version + strlen(version) : NULL};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, read_one, h);
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (h->after && size) // the last line, and the empty one
        h->bad_line |= h->after + 4 != method + size->header_size;
}

const char *http_head_refused(const struct http_head *h, const char *version, int *status) {
    *status = 400;
    if (h->bad_name)
        return "A header name holds a character that is not allowed there.";
    if (h->bad_line)
        return "A line of the head holds a NUL, is folded, or does not end in CR LF.";
    if (h->bad_value)
        return "A header value holds a control character.";
    if (h->num_length > 1)
        return "Content-Length is given more than once.";
    if (h->num_encoding > 1)
        return "Transfer-Encoding is given more than once.";
    if (h->num_length && h->num_encoding)
        return "Content-Length and Transfer-Encoding exclude each other.";
    if (h->bad_length)
        return "Content-Length is not a number.";
    if (h->num_host > 1)
        return "Host is given more than once.";
    if (h->num_authorization > 1)
        return "Authorization is given more than once.";
    if (h->repeated)
        return "X-Api-Key, Content-Type, Content-Encoding or Origin is given more than once.";
    bool is_11 = version && strcmp(version, "HTTP/1.1") == 0;
    if (is_11 && h->num_host == 0)
        return "HTTP/1.1 needs a Host header.";
    if (h->num_encoding && !is_11)
        return "Transfer-Encoding needs HTTP/1.1.";
    if (h->num_encoding && !h->chunked) {
        *status = 501;
        return "The only Transfer-Encoding supported is chunked.";
    }
    if (h->expect_unknown) {
        *status = 417;
        return "The only Expect supported is 100-continue.";
    }
    return NULL;
}

static bool same_name(const char *s, size_t n, const char *name) {
    return strlen(name) == n && strncasecmp(s, name, n) == 0;
}

bool http_host_is_local(const char *host, const char *bind) {
    if (!host)
        return true; // HTTP/1.0: no browser
    size_t n;
    if (host[0] == '[') {
        const char *end = strchr(host, ']');
        if (!end)
            return false;
        n = (size_t)(end - host) + 1;
    } else {
        n = strcspn(host, ":");
    }
    const char *port = host + n;
    if (*port == ':')
        port += 1 + strspn(port + 1, "0123456789");
    if (*port)
        return false;
    if (n > 2 && host[0] == '[' && same_name(host + 1, n - 2, bind))
        return true;
    return same_name(host, n, "localhost") || same_name(host, n, "127.0.0.1") ||
           same_name(host, n, "[::1]") || same_name(host, n, bind);
}

bool http_request_id_ok(const char *id) {
    if (!id)
        return false;
    size_t n = strlen(id);
    return n >= 1 && n <= 128 &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") == n;
}
