// See charsmap.h. The format of a unit is that of Darts-clone: S. Yata, "A double-array of which units are 32 bits".
#include "charsmap.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 16 << 20, LEAF = 1 << 8, WIDE = 1 << 9 };

struct charsmap {
    uint32_t num_units;
    size_t texts_len;
    char *texts; // behind the units; ends with a NUL
    uint32_t units[];
};

struct charsmap *charsmap_open(struct text_view bytes, const struct model_file *f, struct err *err) {
    uint32_t trie = 0;
    if (bytes.len >= 4)
        memcpy(&trie, bytes.data, 4);
    if (bytes.len < 8 || bytes.len > MAX_BYTES || trie < 4 || trie % 4 || trie > bytes.len - 4) {
        model_file_bad(f, err,
                       "the precompiled charsmap has %zu bytes, of which %u are to be its trie; expected a "
                       "multiple of 4 inside of it, 16 MiB at most",
                       bytes.len, trie);
        return NULL;
    }
    size_t texts_len = bytes.len - 4 - trie;
    struct charsmap *m = malloc(sizeof *m + trie + texts_len + 1);
    if (!m) {
        err_set(err, STATUS_NOMEM, "%s: out of memory for the precompiled charsmap", f->name);
        return NULL;
    }
    m->num_units = trie / 4;
    m->texts_len = texts_len;
    m->texts = (char *)(m->units + m->num_units);
    memcpy(m->units, bytes.data + 4, trie + texts_len);
    m->texts[texts_len] = 0;
    return m;
}

void charsmap_free(struct charsmap *m) { free(m); }

// How far the children of a unit are from it, by exclusive or with their byte.
static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & WIDE) >> 6); }

size_t charsmap_find(const struct charsmap *m, struct text_view text, bool longest, struct text_view *to) {
    size_t found = 0;
    uint32_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < text.len && text.data[i] && (longest || !found); i++) {
        unsigned char c = (unsigned char)text.data[i];
        at ^= c;
        // A child carries its byte, and no unit but a value has the highest bit.
        if (at >= m->num_units || (m->units[at] & (1u << 31 | 0xff)) != c)
            break;
        uint32_t unit = m->units[at];
        at ^= offset_of(unit);
        if (!(unit & LEAF))
            continue;
        uint32_t value = at < m->num_units ? m->units[at] & ~(1u << 31) : UINT32_MAX;
        if (value > m->texts_len)
            break;
        *to = (struct text_view){m->texts + value, strlen(m->texts + value)};
        found = i + 1;
    }
    return found;
}
