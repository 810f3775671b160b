// The vocabulary of a model file: names, types, special tokens and settings, for every kind.
#include "tokenizer_load.h"

#include "name_list.h"
#include "normalizer.h"
#include "tokenizer_kind.h"
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
static int byte_of(struct text_view s) {
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>' || hex_digit(s.data[3]) < 0 ||
        hex_digit(s.data[4]) < 0)
        return -1;
    return hex_digit(s.data[3]) * 16 + hex_digit(s.data[4]);
}

// Models end a turn with tokens that their files do not name as the end; their spelling tells.
static bool named_end(struct text_view s, int type) {
    static const char *const ends[] = {
        "<|eot_id|>", "<|im_end|>",    "<|end|>",         "<|endoftext|>",       "<|end_of_text|>",
        "<|eom_id|>", "<end_of_turn>", "<|end_of_turn|>", "<|end▁of▁sentence|>", "<｜end▁of▁sentence｜>",
        "<turn|>"};
    if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (same(s, ends[i]))
            return true;
    return type == TOKEN_CONTROL && same(s, "</s>");
}

// User-defined tokens are words of the text, except where they look like the marks of a dialogue: those a
// user's text must not forge, whatever type the file gives them.
static bool looks_like_mark(struct text_view s) {
    static const char *const marks[] = {"<s>",           "</s>",   "<bos>",   "<eos>",   "<start_of_turn>",
                                        "<end_of_turn>", "[INST]", "[/INST]", "<|turn>", "<turn|>"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (same(s, marks[i]))
            return true;
    return s.len > 4 &&
           ((memcmp(s.data, "<|", 2) == 0 && memcmp(s.data + s.len - 2, "|>", 2) == 0) ||
            (s.len > 8 && memcmp(s.data, "<｜", 4) == 0 && memcmp(s.data + s.len - 4, "｜>", 4) == 0));
}

static bool load_arrays(struct vocab_loader *l) {
    const struct model_file *f = l->f;
    if (meta_array(f, "tokenizer.ggml.tokens", true, META_STRING, &l->names, l->err) ||
        meta_array(f, "tokenizer.ggml.scores", l->t->kind->scored, META_F32, &l->scores, l->err) ||
        meta_array(f, "tokenizer.ggml.token_type", false, META_I32, &l->types, l->err) ||
        meta_array(f, "tokenizer.quire.strips", false, META_I32, &l->strips, l->err))
        return false;
    uint64_t n = l->names.count;
    if (n < 1 || n > MAX_TOKENS) {
        model_file_bad(f, l->err, "key tokenizer.ggml.tokens has %llu tokens, expected 1 to %d",
                       (unsigned long long)n, MAX_TOKENS);
        return false;
    }
    bool scores = l->scores.count != n && (l->scores.count != 0 || l->t->kind->scored);
    if (l->strips.count != n)
        l->strips.count = 0;
    if (scores || (l->types.count != n && l->types.count != 0)) {
        model_file_bad(
            f, l->err, "key tokenizer.ggml.%s has %llu elements, expected %llu, one for each token",
            scores ? "scores" : "token_type", (unsigned long long)(scores ? l->scores.count : l->types.count),
            (unsigned long long)n);
        return false;
    }
    return true;
}

// Names, bytes, types and scores of all tokens into one block of text.
static bool load_tokens(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    struct meta_array names = l->names;
    uint64_t size = 0, used = 0;
    for (uint64_t i = 0; i < l->names.count; i++)
        size += 2 * meta_next_str(&names).len + 1; // strings lie in the file: no overflow
    t->num_tokens = (int)l->names.count;
    t->tokens = calloc((size_t)t->num_tokens, sizeof *t->tokens);
    t->text = size < UINT32_MAX ? malloc(size) : NULL;
    if (!t->tokens || !t->text) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", l->f->name, t->num_tokens);
        return false;
    }
    names = l->names;
    for (int i = 0; i < t->num_tokens; i++) {
        struct token_entry *e = &t->tokens[i];
        struct text_view s = meta_next_str(&names);
        int64_t type = l->types.count
                           ? meta_array_int(&l->types, (uint64_t)i)
                           : (byte_of(s) >= 0 && !l->t->kind->byte_level ? TOKEN_BYTE : TOKEN_NORMAL);
        int byte = byte_of(s);
        e->score = l->scores.count ? meta_array_float(&l->scores, (uint64_t)i) : 0;
        const char *problem = s.len > MAX_TOKEN_BYTES                    ? "is longer than 64 KiB"
                              : !isfinite(e->score)                      ? "has a score that is not finite"
                              : type < TOKEN_NORMAL || type > TOKEN_BYTE ? "has a type outside 1 to 6"
                              : type == TOKEN_BYTE && byte < 0 ? "is of type byte, but not written <0xHH>"
                                                               : NULL;
        if (problem) {
            model_file_bad(l->f, l->err, "token %d ('%.*s') of tokenizer.ggml.tokens %s", i,
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
        } else if (l->t->kind->byte_level && type != TOKEN_UNUSED && type != TOKEN_NORMAL) {
            memcpy(t->text + used, s.data, s.len); // special and added tokens are spelled as they are
            used += s.len;
        } else if (type != TOKEN_UNUSED) {
            used += t->kind->token_bytes(s, t->text + used);
        }
        e->bytes_len = (uint32_t)used - e->bytes;
        size_t longest = s.len > e->bytes_len ? s.len : e->bytes_len;
        t->max_token_len = longest > t->max_token_len ? longest : t->max_token_len;
        if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
            e->flags = TOKEN_SPECIAL | TOKEN_GUARDED;
        else if (type == TOKEN_USER_DEFINED && looks_like_mark(s))
            e->flags = TOKEN_GUARDED;
        if (named_end(s, (int)type))
            e->flags = TOKEN_SPECIAL | TOKEN_GUARDED | TOKEN_END;
        int64_t strips = l->strips.count ? meta_array_int(&l->strips, (uint64_t)i) : 0;
        e->flags |= (uint8_t)((strips & 1 ? TOKEN_LSTRIP : 0) | (strips & 2 ? TOKEN_RSTRIP : 0) |
                              (strips & 4 ? TOKEN_WORD : 0));
    }
    return true;
}

static token_id find_control(const struct tokenizer *t, const char *name) {
    for (token_id i = 0; i < t->num_tokens; i++)
        if (t->tokens[i].type == TOKEN_CONTROL &&
            same((struct text_view){t->text + t->tokens[i].name, t->tokens[i].name_len}, name))
            return i;
    return -1;
}

// Turns of gpt-oss have several messages, each of which ends with <|end|>; these end the turn.
static void load_harmony_ends(struct tokenizer *t) {
    token_id last = find_control(t, "<|return|>"), call = find_control(t, "<|call|>"),
             end = find_control(t, "<|end|>");
    if (last < 0 || call < 0)
        return;
    t->tokens[last].flags |= TOKEN_END;
    t->tokens[call].flags |= TOKEN_END;
    if (end >= 0)
        t->tokens[end].flags &= (uint8_t)~TOKEN_END;
}

static bool load_frame(struct vocab_loader *l, const char *key, struct token_frame *frame) {
    struct meta_array ids;
    if (meta_array(l->f, key, false, META_I32, &ids, l->err))
        return false;
    bool good = ids.count <= MAX_FRAME;
    for (uint64_t i = 0; good && i < ids.count; i++) {
        int64_t id = meta_array_int(&ids, i);
        good = id >= 0 && id < l->t->num_tokens;
        frame->ids[i] = (token_id)id;
    }
    if (meta_find(l->f, key))
        frame->num = (int)ids.count;
    if (!good)
        model_file_bad(l->f, l->err, "key %s is not %d ids of the vocabulary at most", key, MAX_FRAME);
    return good;
}

static void add_to_frame(struct token_frame *frame, bool wanted, token_id id) {
    if (wanted && id >= 0)
        frame->ids[frame->num++] = id;
}

// The tokens around a text, and around each of a pair.
static bool load_frames(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    token_id sep = -1;
    bool add_sep = false;
    if (!load_id(l, "tokenizer.ggml.seperator_token_id", false, &sep) ||
        meta_bool(l->f, "tokenizer.ggml.add_sep_token", &add_sep, l->err))
        return false;
    add_to_frame(&t->before, t->add_bos, t->bos);
    add_to_frame(&t->after, t->add_eos, t->eos);
    add_to_frame(&t->between, t->add_eos, t->eos);
    add_to_frame(&t->between, add_sep && !t->kind->ends, sep);
    return !meta_bool(l->f, "tokenizer.quire.no_pairs", &t->no_pairs, l->err) &&
           load_frame(l, "tokenizer.quire.before", &t->before) &&
           load_frame(l, "tokenizer.quire.between", &t->between) &&
           load_frame(l, "tokenizer.quire.after", &t->after);
}

static bool load_template(struct vocab_loader *l, const char *key, char **text, size_t *len) {
    struct text_view template = {NULL, 0};
    if (meta_str(l->f, key, false, MAX_TEMPLATE, &template, l->err))
        return false;
    if (!template.data)
        return true;
    if (!(*text = malloc(template.len + 1))) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for the chat template", l->f->name);
        return false;
    }
    memcpy(*text, template.data, template.len);
    (*text)[template.len] = 0;
    *len = template.len;
    return true;
}

static bool load_settings(struct vocab_loader *l) {
    static const char *const more_ends[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    struct tokenizer *t = l->t;
    t->bos = t->kind->bos;
    t->eos = t->kind->eos;
    t->unk = t->kind->unk;
    t->add_space_prefix = t->kind->scored;
    t->add_bos = t->kind->add_bos || (t->pre && pretokenizer_adds_bos(t->pre));
    t->add_eos = t->kind->add_eos;
    if (!load_id(l, "tokenizer.ggml.bos_token_id", true, &t->bos) ||
        !load_id(l, "tokenizer.ggml.eos_token_id", true, &t->eos) ||
        (t->kind->begins && !load_id(l, t->kind->begins, true, &t->bos)) ||
        (t->kind->ends && !load_id(l, t->kind->ends, true, &t->eos)) ||
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
    struct meta_array ends;
    if (meta_array(l->f, "tokenizer.quire.end_token_ids", false, META_I32, &ends, l->err))
        return false;
    for (uint64_t i = 0; i < ends.count; i++) {
        int64_t id = meta_array_int(&ends, i);
        if (id >= 0 && id < t->num_tokens)
            t->tokens[id].flags |= TOKEN_END;
    }
    load_harmony_ends(t);
    if ((!t->kind->begins && meta_bool(l->f, "tokenizer.ggml.add_bos_token", &t->add_bos, l->err)) ||
        (!t->kind->ends && meta_bool(l->f, "tokenizer.ggml.add_eos_token", &t->add_eos, l->err)) ||
        !load_frames(l) || meta_bool(l->f, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, l->err) ||
        !load_template(l, "tokenizer.chat_template", &t->chat_template, &t->chat_template_len) ||
        !load_template(l, "tokenizer.chat_template.tool_use", &t->tool_template, &t->tool_template_len))
        return false;
    return true;
}

// Tokens are found in a text as it is: one that a file wants found in the normalised text must be the same there.
static bool check_normalized(struct vocab_loader *l) {
    const struct tokenizer *t = l->t;
    for (int i = 0; t->normalizer && l->strips.count && i < t->num_tokens; i++) {
        const struct token_entry *e = &t->tokens[i];
        struct text_view name = {t->text + e->name, e->name_len};
        struct buf normal = {0};
        if (name.len == 0 || !(meta_array_int(&l->strips, (uint64_t)i) & 8))
            continue;
        enum status st = normalizer_apply(t->normalizer, name, &normal);
        bool changed = normal.len != name.len || memcmp(normal.data, name.data, name.len) != 0;
        buf_free(&normal);
        if (st != STATUS_OK || changed) {
            model_file_bad(
                l->f, l->err,
                "added token %d ('%.*s') is to be found in normalized text, which changes it; not supported",
                i, (int)(name.len < 64 ? name.len : 64), name.data);
            return false;
        }
    }
    return true;
}

static bool load_found(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    struct name_list *found = &t->found;
    found->ids = malloc((size_t)t->num_tokens * sizeof *found->ids);
    if (!found->ids) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", l->f->name, t->num_tokens);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++)
        if (t->tokens[i].name_len > 0 &&
            ((t->tokens[i].flags & TOKEN_SPECIAL) || t->tokens[i].type == TOKEN_USER_DEFINED))
            found->ids[found->num++] = i;
    name_list_sort(found, t);
    for (int i = 1; i < found->num; i++) {
        const struct token_entry *a = &t->tokens[found->ids[i - 1]], *e = &t->tokens[found->ids[i]];
        if (a->name_len == e->name_len && memcmp(t->text + a->name, t->text + e->name, e->name_len) == 0) {
            model_file_bad(l->f, l->err, "special token '%.*s' of tokenizer.ggml.tokens is there twice",
                           (int)(e->name_len < 64 ? e->name_len : 64), t->text + e->name);
            return false;
        }
    }
    return check_normalized(l);
}

static const struct tokenizer_kind *const kinds[] = {
    &tokenizer_spm,     &tokenizer_bpe,          &tokenizer_clip,
    &tokenizer_listed,  &tokenizer_gemma4,       &tokenizer_wordpiece,
    &tokenizer_unigram, &tokenizer_unigram_json, &tokenizer_wordpiece_json,
    &tokenizer_none};

// The kind that the keys model and pre name together: some vocabularies named gpt2 spell a space as U+2581, as Gemma
// 4's.
static const struct tokenizer_kind *find_kind(const struct model_file *f, struct text_view model,
                                              struct err *err) {
    struct text_view pre = {"", 0};
    const struct tokenizer_kind *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && !kind; i++)
        if (same(model, kinds[i]->name))
            kind = kinds[i];
    if (kind == &tokenizer_bpe && meta_str(f, "tokenizer.ggml.pre", false, 64, &pre, err))
        return NULL;
    bool spaced = same(pre, "gemma4") || same(pre, "granite-embed-multi-311m") || same(pre, "sarvam-moe");
    if (!kind)
        model_file_bad(f, err,
                       "tokenizer '%.*s' (key tokenizer.ggml.model) is not supported yet; supported: llama, "
                       "gpt2, bert, t5, gemma4, no_vocab",
                       (int)model.len, model.data);
    return spaced ? &tokenizer_gemma4 : kind;
}

struct tokenizer *tokenizer_load(const struct model_file *f, struct err *err) {
    struct err local = {0};
    struct text_view model = {"", 0};
    struct vocab_loader l = {.f = f, .err = err ? err : &local, .t = calloc(1, sizeof(struct tokenizer))};
    if (!l.t) {
        err_set(err, STATUS_NOMEM, "%s: out of memory for the tokenizer", f->name);
        return NULL;
    }
    memset(l.t->byte_ids, 0xff, sizeof l.t->byte_ids);
    if (meta_str(f, "tokenizer.ggml.model", true, 64, &model, l.err))
        goto fail;
    if (!(l.t->kind = find_kind(f, model, l.err)))
        goto fail;
    if (!l.t->kind->token_bytes) {
        if (!l.t->kind->load(&l))
            goto fail;
        return l.t;
    }
    if (l.t->kind->byte_level && !(l.t->pre = pretokenizer_open(f, l.err)))
        goto fail;
    if (!load_arrays(&l) || !load_tokens(&l) || !load_settings(&l) || !load_fim(&l) || !l.t->kind->load(&l) ||
        !load_found(&l))
        goto fail;
    return l.t;
fail:
    tokenizer_free(l.t);
    return NULL;
}

struct tokenizer *tokenizer_open(const char *path, struct err *err) {
    struct model_file *f = model_file_open(path, err);
    struct tokenizer *t = f ? tokenizer_load(f, err) : NULL;
    model_file_close(f);
    return t;
}
