// See vocab.h: tokens and merges. Formats are those of the tokenizers library, version 0.22.
#include "vocab.h"

#include "vocab_reader.h"

#include "log.h"

#include <stdlib.h>

// ---- tokens

static bool set_name(struct vocab_reader *r, const struct jdoc_value *key, const struct jdoc_value *id_value,
                     bool replaces, int64_t *id) {
    struct text_view name = jdoc_text(r->j, key);
    if (!jdoc_integer(r->j, id_value, id) || *id < 0 || *id >= VOCAB_MAX_TOKENS)
        return hf_vocab_refuse(r, id_value, "a token's id", "an integer from 0 to 2^22");
    if (*id >= r->num) // has no row: see check_rows()
        return true;
    struct text_view *old = &r->names[*id];
    if (old->data && !(replaces && old->len == name.len && memcmp(old->data, name.data, name.len) == 0)) {
        jdoc_bad(r->j, r->err, "token %lld is '%.*s' and, at byte %u, '%.*s'", (long long)*id,
                 (int)(old->len < 64 ? old->len : 64), old->data, key->at,
                 (int)(name.len < 64 ? name.len : 64), name.data);
        return false;
    }
    *old = name;
    return true;
}

static bool is_byte_name(struct text_view s) {
    return s.len == 6 && memcmp(s.data, "<0x", 3) == 0 && s.data[5] == '>' &&
           strspn(s.data + 3, "0123456789ABCDEFabcdef") == 2;
}

static bool read_added(struct vocab_reader *r, const struct jdoc_value *e) {
    const struct jdoc_value *content = get_of(r, e, "content");
    int64_t id;
    if (!content || content->type != JDOC_STRING)
        return hf_vocab_refuse(r, content ? content : e, "an added token's content", "a string");
    bool added = !jdoc_integer(r->j, get_of(r, e, "id"), &id) || id < 0 || id >= r->num || !r->names[id].data;
    if (!set_name(r, content, get_of(r, e, "id"), true, &id))
        return false;
    if (id >= r->num)
        return true;
    r->types[id] = is_true(get_of(r, e, "special")) ? TYPE_CONTROL : TYPE_USER_DEFINED;
    r->strips[id] = (unsigned char)(is_true(get_of(r, e, "lstrip")) | is_true(get_of(r, e, "rstrip")) << 1 |
                                    is_true(get_of(r, e, "single_word")) << 2 |
                                    is_true(get_of(r, e, "normalized")) << 3 | added << 4);
    r->any_strips |= r->strips[id] != 0;
    return true;
}

// The largest id, plus 1; 0: an id is none.
static int64_t count_ids(const struct vocab_reader *r, const struct jdoc_value *vocab,
                         const struct jdoc_value *added) {
    int64_t num = r->kind == MODEL_UNIGRAM ? vocab->len : 0, id;
    if (num >= VOCAB_MAX_TOKENS)
        return 0;
    if (r->kind != MODEL_UNIGRAM)
        JDOC_EACH_KEY(r->j, key, vocab) {
            if (!jdoc_integer(r->j, key + 1, &id) || id < 0 || id >= VOCAB_MAX_TOKENS)
                return 0;
            num = id >= num ? id + 1 : num;
        }
    JDOC_EACH(r->j, e, added) {
        if (!jdoc_integer(r->j, get_of(r, e, "id"), &id) || id < 0 || id >= VOCAB_MAX_TOKENS)
            return 0;
        num = id >= num ? id + 1 : num;
    }
    return num;
}

static void set_type(struct vocab_reader *r, int64_t id) {
    r->types[id] = r->byte_fallback && is_byte_name(r->names[id]) ? TYPE_BYTE : TYPE_NORMAL;
}

// {"token": id}
static bool read_named(struct vocab_reader *r, const struct jdoc_value *vocab) {
    JDOC_EACH_KEY(r->j, key, vocab) {
        int64_t id;
        if (!set_name(r, key, key + 1, false, &id))
            return false;
        if (id < r->num)
            set_type(r, id);
    }
    return true;
}

// [["token", score]], in the order of ids
static bool read_scored(struct vocab_reader *r, const struct jdoc_value *vocab) {
    double *scores = hf_alloc(r->keys, (size_t)r->num * sizeof *scores);
    int64_t id = 0;
    if (!scores)
        return false;
    memset(scores, 0, (size_t)r->num * sizeof *scores);
    JDOC_EACH(r->j, e, vocab) {
        bool pair =
            e->type == JDOC_ARRAY && e->len == 2 && e[1].type == JDOC_STRING && e[2].type == JDOC_NUMBER;
        if (!pair)
            return hf_vocab_refuse(r, e, "a token of model.vocab", "a string and a score");
        if (id == r->num)
            break;
        r->names[id] = jdoc_text(r->j, e + 1);
        scores[id] = jdoc_number(r->j, e + 2);
        set_type(r, id++);
    }
    hf_array(r->keys, "tokenizer.quire.scores", META_F64, (uint64_t)r->num, scores, "vocab");
    return true;
}

// Text that spells it is it only where it is an added token; else it is cut like other text.
static void set_unknown(struct vocab_reader *r, int64_t id, const char *label) {
    if (r->types[id] != TYPE_NORMAL)
        r->types[id] = TYPE_UNKNOWN;
    hf_int(r->keys, "tokenizer.ggml.unknown_token_id", id, label);
}

static bool read_unknown_id(struct vocab_reader *r) {
    const struct jdoc_value *unk = get_of(r, r->model, "unk_id");
    int64_t id;
    if (!unk)
        return true;
    if (!jdoc_integer(r->j, unk, &id) || id < 0 || id >= r->num)
        return hf_vocab_refuse(r, unk, "unk_id", "the id of a token");
    set_unknown(r, id, "unk_id");
    return true;
}

// Added tokens may have no row, as the one for images of Gemma 3: their text is that of other tokens then. Others may not.
static bool check_rows(const struct vocab_reader *r, const struct jdoc_value *vocab,
                       const struct jdoc_value *added, int64_t rows) {
    int64_t behind = 0, id;
    JDOC_EACH(r->j, e, added)
    behind += jdoc_integer(r->j, get_of(r, e, "id"), &id) && id >= rows;
    int64_t num = behind;
    if (r->kind == MODEL_UNIGRAM)
        num -= vocab->len > rows ? vocab->len - rows : 0;
    else
        JDOC_EACH_KEY(r->j, key, vocab)
    num -= jdoc_integer(r->j, key + 1, &id) && id >= rows;
    if (num >= 0) {
        log_msg(LOG_INFO, "%s: %lld added tokens have no row, and are text", r->j->name, (long long)behind);
        return true;
    }
    jdoc_bad(r->j, r->err, "there is a token %lld, and config.json has vocab_size %lld",
             (long long)r->num - 1, (long long)rows);
    return false;
}

static bool read_tokens(struct vocab_reader *r, int64_t rows) {
    const struct jdoc_value *vocab = get_of(r, r->model, "vocab"),
                            *added = get_of(r, r->j->values, "added_tokens"),
                            *unk = get_of(r, r->model, "unk_token");
    enum jdoc_type type = r->kind == MODEL_UNIGRAM ? JDOC_ARRAY : JDOC_OBJECT;
    if (!vocab || vocab->type != type)
        return hf_vocab_refuse(r, vocab, "model.vocab", type == JDOC_ARRAY ? "an array" : "an object");
    r->num = count_ids(r, vocab, added);
    if (r->num == 0)
        return hf_vocab_refuse(r, vocab, "model.vocab or an id in it", "ids from 0 to 2^22");
    if (rows > 0 && r->num > rows && !check_rows(r, vocab, added, rows))
        return false;
    if (!hf_vocab_rows(r, rows))
        return false;
    if (r->kind == MODEL_UNIGRAM ? !read_scored(r, vocab) : !read_named(r, vocab))
        return false;
    JDOC_EACH(r->j, e, added)
    if (!read_added(r, e))
        return false;
    if (r->kind == MODEL_UNIGRAM)
        return read_unknown_id(r);
    for (int64_t i = 0; unk && i < r->num; i++)
        if (r->names[i].len == unk->len && r->names[i].data &&
            memcmp(r->names[i].data, r->j->text + unk->at, unk->len) == 0) {
            set_unknown(r, i, "unk_token");
            break; // a second one is refused with all other tokens that are there twice
        }
    return true;
}

static bool write_tokens(struct vocab_reader *r) {
    struct strings s;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < r->num; i++)
        bytes += r->names[i].data ? r->names[i].len : 24;
    if (!strings_room(&s, r->keys, (uint64_t)r->num, bytes))
        return false;
    for (int64_t i = 0; i < r->num; i++) {
        char none[32];
        snprintf(none, sizeof none, "[PAD%lld]",
                 (long long)i); // as llama.cpp's converter names rows without a token
        strings_add(&s, r->names[i].data ? r->names[i] : view_of(none), "", view_of(""));
    }
    hf_array(r->keys, "tokenizer.ggml.tokens", META_STRING, (uint64_t)r->num, s.data, "vocab");
    hf_array(r->keys, "tokenizer.ggml.token_type", META_I32, (uint64_t)r->num, r->types, NULL);
    if (r->any_strips)
        hf_array(r->keys, "tokenizer.quire.strips", META_U8, (uint64_t)r->num, r->strips, "lstrip, rstrip");
    return true;
}

// Merges are "left right" or ["left", "right"].
static bool read_merges(struct vocab_reader *r) {
    const struct jdoc_value *merges = get_of(r, r->model, "merges");
    struct strings s;
    if (!merges || merges->type != JDOC_ARRAY)
        return hf_vocab_refuse(r, merges, "model.merges", "an array");
    if (!strings_room(&s, r->keys, merges->len, merges->next > 0 ? r->j->len - merges->at : 0))
        return false;
    JDOC_EACH(r->j, e, merges) {
        if (e->type == JDOC_STRING) {
            strings_add(&s, jdoc_text(r->j, e), "", view_of(""));
            continue;
        }
        bool pair =
            e->type == JDOC_ARRAY && e->len == 2 && e[1].type == JDOC_STRING && e[2].type == JDOC_STRING;
        if (!pair || memchr(r->j->text + e[1].at, ' ', e[1].len) ||
            memchr(r->j->text + e[2].at, ' ', e[2].len))
            return hf_vocab_refuse(r, e, "a merge", "two tokens without a space");
        strings_add(&s, jdoc_text(r->j, e + 1), " ", jdoc_text(r->j, e + 2));
    }
    hf_array(r->keys, "tokenizer.ggml.merges", META_STRING, merges->len, s.data, "merges");
    return true;
}

// ---- model

static bool find_byte_level(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    *(bool *)arg |= is_type(r, part, "ByteLevel");
    return true;
}

static bool read_wordpiece(struct vocab_reader *r) {
    const struct jdoc_value *prefix = get_of(r, r->model, "continuing_subword_prefix"),
                            *chars = get_of(r, r->model, "max_input_chars_per_word");
    int64_t max = 100;
    if (prefix && !jdoc_is(r->j, prefix, "##"))
        return hf_vocab_refuse(r, prefix, "continuing_subword_prefix", "##");
    if (chars && (!jdoc_integer(r->j, chars, &max) || max < 1 || max > 1 << 20))
        return hf_vocab_refuse(r, chars, "max_input_chars_per_word", "1 to 2^20");
    r->kind = MODEL_WORDPIECE;
    hf_str(r->keys, "tokenizer.ggml.model", view_of("wordpiece"), "model.type");
    hf_int(r->keys, "tokenizer.quire.max_word_chars", max, "max_input_chars_per_word");
    return true;
}

static bool read_model(struct vocab_reader *r) {
    static const char *const none[] = {"continuing_subword_prefix", "dropout"};
    const struct jdoc_value *root = r->j->values, *type = NULL;
    r->model = get_of(r, root, "model");
    type = get_of(r, r->model, "type");
    r->byte_fallback = is_true(get_of(r, r->model, "byte_fallback"));
    if (jdoc_is(r->j, type, "WordPiece"))
        return read_wordpiece(r);
    if (jdoc_is(r->j, type, "Unigram")) {
        r->kind = MODEL_UNIGRAM;
        hf_str(r->keys, "tokenizer.ggml.model", view_of("unigram"), "model.type");
        return true;
    }
    // Old files have no type.
    if (!r->model || (type ? !jdoc_is(r->j, type, "BPE") : !get_of(r, r->model, "merges")))
        return hf_vocab_refuse(r, type ? type : root, "the model of the tokenizer",
                               "BPE, WordPiece or Unigram");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const struct jdoc_value *v = get_of(r, r->model, none[i]);
        if (v && !(v->type == JDOC_STRING && v->len == 0) && jdoc_number(r->j, v) != 0)
            return hf_vocab_refuse(r, v, none[i], "null");
    }
    hf_vocab_parts(r, get_of(r, root, "pre_tokenizer"), "pretokenizers", find_byte_level, &r->byte_level);
    if (!r->byte_level && !r->byte_fallback && !is_true(get_of(r, r->model, "fuse_unk")))
        return hf_vocab_refuse(r, r->model, "a model without ByteLevel", "byte_fallback or fuse_unk");
    const struct jdoc_value *end = get_of(r, r->model, "end_of_word_suffix");
    bool clip = r->byte_level && jdoc_is(r->j, end, "</w>");
    if (end && !clip && !jdoc_is(r->j, end, ""))
        return hf_vocab_refuse(r, end, "end_of_word_suffix", "null, or </w> with ByteLevel");
    hf_str(r->keys, "tokenizer.ggml.model",
           view_of(clip            ? "clip"
                   : r->byte_level ? "gpt2"
                                   : "bpe"),
           "model.type");
    return true;
}

enum status hf_vocab_read(const struct hf_vocab_files *files, const int64_t *eos, int num_eos, int64_t rows,
                          struct hf_keys *keys, struct err *err) {
    struct err local = {0};
    struct vocab_reader r = {.j = files->tokenizer,
                             .config = files->config,
                             .special_map = files->special_map,
                             .added = files->added,
                             .chat_template = files->chat_template,
                             .tool_template = files->tool_template,
                             .template_json = files->template_json,
                             .keys = keys,
                             .err = err ? err : &local};
    bool ok;
    if (files->spm.data || files->tiktoken.data)
        ok = (files->spm.data ? hf_spm_read(&r, files->spm, rows)
                              : hf_tiktoken_read(&r, files->tiktoken, rows)) &&
             write_tokens(&r);
    else
        ok = read_model(&r) && read_tokens(&r, rows) && write_tokens(&r) &&
             (r.kind != MODEL_BPE || read_merges(&r)) && hf_vocab_steps(&r);
    ok = ok && hf_vocab_special(&r, eos, num_eos);
    if (ok)
        hf_vocab_template(&r);
    if (keys->failed)
        return err_set(r.err, STATUS_NOMEM, "%s: out of memory for the vocabulary", r.j->name);
    return ok ? STATUS_OK : r.err->code;
}
