// Any source, any values: an answer, within the limits. Segments are UTF-8, alternate, and what is not
// content comes from the template: a byte that only the client's text has comes out only as content.
#include "jinja/chat.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

#define CLIENT_BYTE '\x01'

static struct chat_value *values(struct chat_arena *a, const char *text, size_t len) {
    struct chat_value *g = chat_dict(a), *messages = chat_list(a);
    char marked[300];
    size_t n = 0;
    for (size_t i = 0; i < len && n + 2 < sizeof marked; i++) {
        marked[n++] = CLIENT_BYTE;
        marked[n++] = text[i];
    }
    for (int i = 0; i < 3; i++) {
        struct chat_value *m = chat_dict(a);
        chat_dict_set(a, m, "role", 4, chat_string(a, i & 1 ? "assistant" : "user", i & 1 ? 9 : 4, false));
        chat_dict_set(a, m, "content", 7, chat_string(a, marked, n, true));
        chat_dict_set(a, m, marked, n, chat_int(a, (int64_t)n));
        chat_list_add(a, messages, m);
    }
    chat_dict_set(a, g, "messages", 8, messages);
    chat_dict_set(a, g, "m", 1, messages);
    chat_dict_set(a, g, "s", 1, chat_string(a, marked, n, true));
    chat_dict_set(a, g, "n", 1, chat_null(a));
    chat_dict_set(a, g, "i", 1, chat_int(a, -7));
    chat_dict_set(a, g, "f", 1, chat_float(a, 2.5));
    chat_dict_set(a, g, "t", 1, chat_bool(a, true));
    chat_dict_set(a, g, "bos_token", 9, chat_string(a, "<s>", 3, false));
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *source = (const char *)data;
    size_t client = size < 40 ? size : 40, total = 0; // the source's beginning is a client's words too
    struct err err = {0};
    // The source itself must not name the byte, in letters or through the end of an escape.
    if (memchr(source, CLIENT_BYTE, size) || memmem(source, size, "\\", 1) || memmem(source, size, "%c", 2))
        client = 0;
    struct chat_template *t = chat_template_new(source, size, &err);
    if (!t) {
        if (err.code != STATUS_FORMAT && err.code != STATUS_LIMIT)
            abort();
        return 0;
    }
    struct chat_arena *a = chat_arena_new();
    const struct chat_segment *s;
    size_t n;
    if (!a)
        abort();
    enum status status = chat_render(t, a, values(a, source, client), &s, &n, &err);
    if (status != err.code || (status != STATUS_OK && status != STATUS_INVALID && status != STATUS_LIMIT))
        abort();
    if (status != STATUS_OK && !utf8_valid((const unsigned char *)err.msg, strlen(err.msg)))
        abort();
    for (size_t i = 0; status == STATUS_OK && i < n; i++) {
        total += s[i].len;
        if (s[i].len == 0 || (i > 0 && s[i].content == s[i - 1].content))
            abort();
        if (!utf8_valid((const unsigned char *)s[i].text, s[i].len))
            abort();
        if (client && !s[i].content && memchr(s[i].text, CLIENT_BYTE, s[i].len))
            abort();
    }
    if (total > ((size_t)1 << 20) + 4 * 4096)
        abort();
    chat_arena_free(a);
    chat_template_free(t);
    return 0;
}
