// The vocabulary of a .gguf file: names, types, special tokens and settings, for either algorithm.
#include "tokenizer_internal.h"

#include "hash.h"
#include "log.h"
#include "tokenizer_gguf.h"
#include "tokenizer_pre.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_TOKENS = 1 << 22,
    MAX_TOKEN_BYTES = 64 << 10,
    MAX_TEMPLATE = 1 << 20,
};

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte of "<0xHH>", or -1.
static int byte_of(struct gguf_str s) {
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>' || hex_digit(s.data[3]) < 0 ||
        hex_digit(s.data[4]) < 0)
        return -1;
    return hex_digit(s.data[3]) * 16 + hex_digit(s.data[4]);
}

// Models end a turn with tokens that their files do not name as the end; their spelling tells.
static bool named_end(struct gguf_str s, int type) {
    static const char *const ends[] = {
        "<|eot_id|>", "<|im_end|>",    "<|end|>",         "<|endoftext|>",       "<|end_of_text|>",
        "<|eom_id|>", "<end_of_turn>", "<|end_of_turn|>", "<|end▁of▁sentence|>", "<｜end▁of▁sentence｜>"};
    if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (same(s, ends[i]))
            return true;
    return type == TOKEN_CONTROL && same(s, "</s>");
}

// User-defined tokens are words of the text, except where they look like the marks of a dialogue: those a
// user's text must not forge, whatever type the file gives them.
static bool looks_like_mark(struct gguf_str s) {
    static const char *const marks[] = {"<s>",           "</s>",   "<bos>",  "<eos>", "<start_of_turn>",
                                        "<end_of_turn>", "[INST]", "[/INST]"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (same(s, marks[i]))
            return true;
    return s.len > 4 &&
           ((memcmp(s.data, "<|", 2) == 0 && memcmp(s.data + s.len - 2, "|>", 2) == 0) ||
            (s.len > 8 && memcmp(s.data, "<｜", 4) == 0 && memcmp(s.data + s.len - 4, "｜>", 4) == 0));
}

static bool load_arrays(struct loader *l) {
    const struct gguf *g = l->g;
    if (gguf_get_array(g, "tokenizer.ggml.tokens", true, GGUF_STRING, &l->names, l->err) ||
        gguf_get_array(g, "tokenizer.ggml.scores", !l->byte_level, GGUF_F32, &l->scores, l->err) ||
        gguf_get_array(g, "tokenizer.ggml.token_type", false, GGUF_I32, &l->types, l->err))
        return false;
    uint64_t n = l->names.count;
    if (n < 1 || n > MAX_TOKENS) {
        gguf_bad(g, l->err, "key tokenizer.ggml.tokens has %llu tokens, expected 1 to %d",
                 (unsigned long long)n, MAX_TOKENS);
        return false;
    }
    bool scores = l->scores.count != n && (l->scores.count != 0 || !l->byte_level);
    if (scores || (l->types.count != n && l->types.count != 0)) {
        gguf_bad(g, l->err, "key tokenizer.ggml.%s has %llu elements, expected %llu, one for each token",
                 scores ? "scores" : "token_type",
                 (unsigned long long)(scores ? l->scores.count : l->types.count), (unsigned long long)n);
        return false;
    }
    return true;
}

// Names, bytes, types and scores of all tokens into one block of text.
static bool load_tokens(struct loader *l) {
    struct tokenizer *t = l->t;
    struct gguf_array names = l->names;
    uint64_t size = 0, used = 0;
    for (uint64_t i = 0; i < l->names.count; i++)
        size += 2 * gguf_next_string(&names).len + 1; // strings lie in the file: no overflow
    t->num_tokens = (int)l->names.count;
    t->tokens = calloc((size_t)t->num_tokens, sizeof *t->tokens);
    t->text = size < UINT32_MAX ? malloc(size) : NULL;
    if (!t->tokens || !t->text) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", gguf_name(l->g), t->num_tokens);
        return false;
    }
    names = l->names;
    for (int i = 0; i < t->num_tokens; i++) {
        struct token_entry *e = &t->tokens[i];
        struct gguf_str s = gguf_next_string(&names);
        int64_t type = l->types.count ? gguf_array_int(&l->types, (uint64_t)i)
                                      : (byte_of(s) >= 0 && !l->byte_level ? TOKEN_BYTE : TOKEN_NORMAL);
        int byte = byte_of(s);
        e->score = l->scores.count ? gguf_array_float(&l->scores, (uint64_t)i) : 0;
        const char *problem = s.len > MAX_TOKEN_BYTES                    ? "is longer than 64 KiB"
                              : !isfinite(e->score)                      ? "has a score that is not finite"
                              : type < TOKEN_NORMAL || type > TOKEN_BYTE ? "has a type outside 1 to 6"
                              : type == TOKEN_BYTE && byte < 0 ? "is of type byte, but not written <0xHH>"
                                                               : NULL;
        if (problem) {
            gguf_bad(l->g, l->err, "token %d ('%.*s') of tokenizer.ggml.tokens %s", i,
                     (int)(s.len < 64 ? s.len : 64), s.data, problem);
            return false;
        }
        e->type = (uint8_t)type;
        e->name = (uint32_t)used;
        e->name_len = (uint32_t)s.len;
        memcpy(t->text + used, s.data, s.len);
        used += s.len;
        e->bytes = (uint32_t)used;
        if (type == TOKEN_BYTE) {
            t->text[used++] = (char)byte;
            t->byte_ids[byte] = i;
        } else if (l->byte_level && type != TOKEN_UNUSED && type != TOKEN_NORMAL) {
            memcpy(t->text + used, s.data, s.len); // special and added tokens are spelled as they are
            used += s.len;
        } else if (type != TOKEN_UNUSED) {
            used += l->byte_level ? bpe_bytes(s, t->text + used) : spm_bytes(s, t->text + used);
        }
        e->bytes_len = (uint32_t)used - e->bytes;
        if (s.len > t->max_token_len)
            t->max_token_len = s.len;
        if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
            e->flags = TOKEN_SPECIAL | TOKEN_GUARDED;
        else if (type == TOKEN_USER_DEFINED && looks_like_mark(s))
            e->flags = TOKEN_GUARDED;
        if (named_end(s, (int)type))
            e->flags = TOKEN_SPECIAL | TOKEN_GUARDED | TOKEN_END;
    }
    return true;
}

// An id from its key: preset where the key is absent, -1 where the file says that there is none.
static bool load_id(struct loader *l, const char *key, bool strict, token_id *id) {
    int64_t v = *id;
    const struct gguf_kv *kv = gguf_find(l->g, key);
    if (gguf_get_int(l->g, key, false, INT64_MIN, INT64_MAX, &v, l->err))
        return false;
    if (!kv) { // a default only counts where it looks right
        if (v >= l->t->num_tokens || (v >= 0 && l->types.count && !(l->t->tokens[v].flags & TOKEN_SPECIAL)))
            *id = -1;
        return true;
    }
    bool none = v == -1 || v == UINT32_MAX;
    if (!none && (v < 0 || v >= l->t->num_tokens)) {
        if (strict) {
            gguf_bad(l->g, l->err, "key %s is %lld, expected 0 to %d", key, (long long)v,
                     l->t->num_tokens - 1);
            return false;
        }
        log_msg(LOG_WARN, "msg=\"token id out of range, ignored\" file=\"%s\" key=%s id=%lld",
                gguf_name(l->g), key, (long long)v);
        none = true;
    }
    *id = none ? -1 : (token_id)v;
    return true;
}

static bool load_settings(struct loader *l) {
    static const char *const more_ends[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    struct tokenizer *t = l->t;
    struct gguf_str template = {NULL, 0};
    t->bos = l->byte_level ? -1 : 1; // SentencePiece's defaults
    t->eos = l->byte_level ? -1 : 2;
    t->unk = l->byte_level ? -1 : 0;
    t->add_space_prefix = !l->byte_level;
    t->add_bos = t->pre ? pretokenizer_adds_bos(t->pre) : true;
    if (!load_id(l, "tokenizer.ggml.bos_token_id", true, &t->bos) ||
        !load_id(l, "tokenizer.ggml.eos_token_id", true, &t->eos) ||
        !load_id(l, "tokenizer.ggml.unknown_token_id", true, &t->unk))
        return false;
    if (t->eos >= 0)
        t->tokens[t->eos].flags |= TOKEN_END;
    for (size_t i = 0; i < sizeof more_ends / sizeof more_ends[0]; i++) {
        token_id id = -1;
        if (!load_id(l, more_ends[i], false, &id))
            return false;
        if (id >= 0)
            t->tokens[id].flags |= TOKEN_END;
    }
    if (gguf_get_bool(l->g, "tokenizer.ggml.add_bos_token", &t->add_bos, l->err) ||
        gguf_get_bool(l->g, "tokenizer.ggml.add_eos_token", &t->add_eos, l->err) ||
        gguf_get_bool(l->g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, l->err) ||
        gguf_get_str(l->g, "tokenizer.chat_template", false, MAX_TEMPLATE, &template, l->err))
        return false;
    if (template.data) {
        t->chat_template = malloc(template.len + 1);
        if (!t->chat_template) {
            err_set(l->err, STATUS_NOMEM, "%s: out of memory for the chat template", gguf_name(l->g));
            return false;
        }
        memcpy(t->chat_template, template.data, template.len);
        t->chat_template[template.len] = 0;
        t->chat_template_len = template.len;
    }
    return true;
}

static int compare_names(const void *a, const void *b, void *arg) {
    const struct tokenizer *t = arg;
    const struct token_entry *x = &t->tokens[*(const token_id *)a], *y = &t->tokens[*(const token_id *)b];
    uint32_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    int c = memcmp(t->text + x->name, t->text + y->name, n);
    return c ? c : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static bool load_found(struct loader *l) {
    struct tokenizer *t = l->t;
    int n = 0;
    t->found = malloc((size_t)t->num_tokens * sizeof *t->found);
    if (!t->found) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", gguf_name(l->g), t->num_tokens);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++)
        if (t->tokens[i].name_len > 0 &&
            ((t->tokens[i].flags & TOKEN_SPECIAL) || t->tokens[i].type == TOKEN_USER_DEFINED))
            t->found[n++] = i;
    qsort_r(t->found, (size_t)n, sizeof *t->found, compare_names, t);
    for (int i = 1; i < n; i++)
        if (compare_names(&t->found[i - 1], &t->found[i], t) == 0) {
            const struct token_entry *e = &t->tokens[t->found[i]];
            gguf_bad(l->g, l->err, "special token '%.*s' of tokenizer.ggml.tokens is there twice",
                     (int)(e->name_len < 64 ? e->name_len : 64), t->text + e->name);
            return false;
        }
    t->num_found = n;
    for (int c = 0, i = 0; c <= 256; c++) {
        while (i < n && (unsigned char)t->text[t->tokens[t->found[i]].name] < c)
            i++;
        t->found_start[c] = i;
    }
    return true;
}

bool load_pieces(struct loader *l) {
    struct tokenizer *t = l->t;
    uint32_t size = 4;
    while (size < 2 * (uint32_t)t->num_tokens)
        size *= 2;
    t->slot_mask = size - 1;
    t->seed = hash_seed();
    t->slots = malloc(size * sizeof *t->slots);
    if (!t->slots) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", gguf_name(l->g), t->num_tokens);
        return false;
    }
    memset(t->slots, 0xff, size * sizeof *t->slots);
    t->max_piece_len = SIZE_MAX; // while we look for duplicates
    size_t longest = 0;
    for (int i = 0; i < t->num_tokens; i++) {
        const struct token_entry *e = &t->tokens[i];
        const char *bytes = t->text + e->bytes;
        if (!(e->flags & TOKEN_PIECE))
            continue;
        if (find_piece(t, bytes, e->bytes_len) >= 0) {
            gguf_bad(l->g, l->err, "token %d ('%.*s') of tokenizer.ggml.tokens is there twice", i,
                     (int)(e->name_len < 64 ? e->name_len : 64), t->text + e->name);
            return false;
        }
        uint64_t hash = hash_bytes(t->seed, bytes, e->bytes_len);
        uint32_t s = (uint32_t)hash & t->slot_mask;
        while (t->slots[s].id >= 0)
            s = (s + 1) & t->slot_mask;
        t->slots[s] = (struct token_slot){(uint32_t)(hash >> 32), i};
        if (e->bytes_len > longest)
            longest = e->bytes_len;
    }
    t->max_piece_len = longest;
    return true;
}

struct tokenizer *tokenizer_from_gguf(const struct gguf *g, struct err *err) {
    struct err local = {0};
    struct gguf_str model = {"", 0};
    struct loader l = {.g = g, .err = err ? err : &local, .t = calloc(1, sizeof(struct tokenizer))};
    if (!l.t) {
        err_set(err, STATUS_NOMEM, "%s: out of memory for the tokenizer", gguf_name(g));
        return NULL;
    }
    memset(l.t->byte_ids, 0xff, sizeof l.t->byte_ids);
    if (gguf_get_str(g, "tokenizer.ggml.model", true, 64, &model, l.err))
        goto fail;
    l.byte_level = same(model, "gpt2");
    if (!l.byte_level && !same(model, "llama")) {
        gguf_bad(g, l.err,
                 "tokenizer '%.*s' (key tokenizer.ggml.model) is not supported yet; supported: llama, gpt2",
                 (int)model.len, model.data);
        goto fail;
    }
    if (l.byte_level && !(l.t->pre = pretokenizer_open(g, l.err)))
        goto fail;
    if (!load_arrays(&l) || !load_tokens(&l) || !load_settings(&l) ||
        !(l.byte_level ? load_bpe(&l) : load_spm(&l)) || !load_found(&l))
        goto fail;
    return l.t;
fail:
    tokenizer_free(l.t);
    return NULL;
}

struct tokenizer *tokenizer_open(const char *path, struct err *err) {
    struct gguf *g = gguf_open(path, err);
    struct tokenizer *t = g ? tokenizer_from_gguf(g, err) : NULL;
    gguf_close(g);
    return t;
}
