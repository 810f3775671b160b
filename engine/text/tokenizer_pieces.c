#include "tokenizer_pieces.h"

#include "hash.h"
#include "name_list.h"

#include <stdlib.h>

// The slot of the piece of these bytes, or the free one where it would be.
static struct token_slot *piece_slot(const struct tokenizer *t, const char *bytes, size_t len,
                                     uint64_t hash) {
    uint32_t tag = (uint32_t)(hash >> 32), s = (uint32_t)hash & t->slot_mask;
    for (; t->slots[s].id >= 0; s = (s + 1) & t->slot_mask) {
        const struct token_entry *e = &t->tokens[t->slots[s].id];
        if (t->slots[s].tag == tag && e->bytes_len == len && memcmp(t->text + e->bytes, bytes, len) == 0)
            break;
    }
    return &t->slots[s];
}

token_id find_piece(const struct tokenizer *t, const char *bytes, size_t len) {
    return len > t->max_piece_len ? -1 : piece_slot(t, bytes, len, hash_bytes(t->seed, bytes, len))->id;
}

bool load_pieces(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    uint32_t size = 4;
    while (size < 2 * (uint32_t)t->num_tokens)
        size *= 2;
    t->slot_mask = size - 1;
    t->seed = hash_seed();
    t->slots = malloc(size * sizeof *t->slots);
    if (!t->slots) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", l->f->name, t->num_tokens);
        return false;
    }
    memset(t->slots, 0xff, size * sizeof *t->slots);
    for (int i = 0; i < t->num_tokens; i++) {
        const struct token_entry *e = &t->tokens[i];
        if (!(e->flags & TOKEN_PIECE))
            continue;
        uint64_t hash = hash_bytes(t->seed, t->text + e->bytes, e->bytes_len);
        struct token_slot *s = piece_slot(t, t->text + e->bytes, e->bytes_len, hash);
        if (s->id >= 0) {
            model_file_bad(l->f, l->err, "token %d ('%.*s') of tokenizer.ggml.tokens is there twice", i,
                           (int)(e->name_len < 64 ? e->name_len : 64), t->text + e->name);
            return false;
        }
        *s = (struct token_slot){(uint32_t)(hash >> 32), i};
        if (e->bytes_len > t->max_piece_len)
            t->max_piece_len = e->bytes_len;
    }
    return true;
}

enum { MAX_NAME_BYTES = 512 }; // longer tokens are not found: it bounds the work per byte of a text

bool load_names(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    struct name_list *names = &t->names;
    names->ids = malloc((size_t)t->num_tokens * sizeof *names->ids);
    if (!names->ids) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", l->f->name, t->num_tokens);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++) {
        const struct token_entry *e = &t->tokens[i];
        if (l->strips.count && (meta_array_int(&l->strips, (uint64_t)i) & 16)) // added, and no piece
            continue;
        if ((e->type == TOKEN_NORMAL || e->type == TOKEN_USER_DEFINED) && e->name_len > 0 &&
            e->name_len <= MAX_NAME_BYTES && !(e->flags & (TOKEN_SPECIAL | TOKEN_GUARDED)))
            names->ids[names->num++] = i;
    }
    name_list_sort(names, t);
    return true;
}

size_t spaced_bytes(struct text_view name, char *dst) {
    static const char space[] = "\xe2\x96\x81"; // U+2581
    size_t n = 0;
    for (size_t k = 0; k < name.len;) {
        bool spaced = name.len - k >= 3 && memcmp(name.data + k, space, 3) == 0;
        dst[n++] = spaced ? ' ' : name.data[k];
        k += spaced ? 3 : 1;
    }
    return n;
}
