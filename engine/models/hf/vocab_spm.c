// See vocab_reader.h: tokenizer.model, SentencePiece's file of Protocol Buffers (its sentencepiece_model.proto), as the keys of
// GGUF files. What it does not say lies in tokenizer_config.json.
#include "vocab_reader.h"

#include <inttypes.h>

enum { MODEL_OF_UNIGRAM = 1, MODEL_OF_BPE = 2, MAX_PIECE_BYTES = 64 << 10 };
enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

// ---- messages

struct message { // the rest of one
    const unsigned char *at, *end;
    bool bad; // it ends inside a field, or has one of a kind that does not exist
};

struct spm_field {
    uint64_t number, value; // value: of a varint or a word
    enum wire_type wire;
    struct text_view bytes;
};

static struct message message_of(struct text_view bytes) {
    const unsigned char *p = (const unsigned char *)bytes.data;
    return (struct message){p, p + bytes.len, false};
}

static uint64_t read_varint(struct message *m) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        unsigned char byte = *m->at++;
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return v;
    }
    m->bad = true;
    return 0;
}

// The next field. false: there is none, or m->bad.
static bool next_field(struct message *m, struct spm_field *f) {
    if (m->at == m->end || m->bad)
        return false;
    uint64_t key = read_varint(m), left = (uint64_t)(m->end - m->at);
    *f = (struct spm_field){.number = key >> 3, .wire = (enum wire_type)(key & 7)};
    uint64_t size = f->wire == WIRE_64 ? 8 : f->wire == WIRE_32 ? 4 : 0;
    if (f->wire == WIRE_VARINT)
        f->value = read_varint(m);
    else if (f->wire == WIRE_BYTES)
        size = read_varint(m);
    else
        m->bad |= size == 0;
    left = (uint64_t)(m->end - m->at);
    m->bad |= size > left;
    if (m->bad)
        return false;
    if (f->wire == WIRE_64 || f->wire == WIRE_32)
        memcpy(&f->value, m->at, (size_t)size);
    f->bytes = (struct text_view){(const char *)m->at, (size_t)size};
    m->at += size;
    return true;
}

static bool is_field(const struct spm_field *f, uint64_t number, enum wire_type wire) {
    return f->number == number && f->wire == wire;
}

static bool bad_model(const struct vocab_reader *r, const char *why) {
    jdoc_bad(r->j, r->err, "%s", why);
    return false;
}

// ---- settings

struct spm_settings {
    int64_t model, pieces;
    struct text_view charsmap;
    bool spaced, collapses, escapes, suffix;
};

static bool read_trainer(struct message m, struct spm_settings *s) {
    for (struct spm_field f; next_field(&m, &f);) {
        if (is_field(&f, 3, WIRE_VARINT))
            s->model = (int64_t)f.value;
        else if (is_field(&f, 24, WIRE_VARINT))
            s->suffix = f.value != 0;
    }
    return !m.bad;
}

static bool read_normalizer(struct message m, struct spm_settings *s) {
    for (struct spm_field f; next_field(&m, &f);) {
        if (is_field(&f, 2, WIRE_BYTES))
            s->charsmap = f.bytes;
        else if (is_field(&f, 3, WIRE_VARINT))
            s->spaced = f.value != 0;
        else if (is_field(&f, 4, WIRE_VARINT))
            s->collapses = f.value != 0;
        else if (is_field(&f, 5, WIRE_VARINT))
            s->escapes = f.value != 0;
    }
    return !m.bad;
}

static bool read_settings(const struct vocab_reader *r, struct text_view file, struct spm_settings *s) {
    struct message m = message_of(file);
    *s = (struct spm_settings){.model = MODEL_OF_UNIGRAM, .spaced = true, .collapses = true, .escapes = true};
    for (struct spm_field f; next_field(&m, &f);) {
        s->pieces += is_field(&f, 1, WIRE_BYTES);
        if (is_field(&f, 2, WIRE_BYTES))
            m.bad |= !read_trainer(message_of(f.bytes), s);
        else if (is_field(&f, 3, WIRE_BYTES))
            m.bad |= !read_normalizer(message_of(f.bytes), s);
    }
    if (m.bad || s->pieces == 0 || s->pieces > VOCAB_MAX_TOKENS)
        return bad_model(r, "this is no model of SentencePiece with 1 to 2^22 pieces");
    if (s->model != MODEL_OF_BPE && s->model != MODEL_OF_UNIGRAM)
        return bad_model(r, "the model is one of words or characters, expected BPE or Unigram");
    if (s->suffix || !s->escapes)
        return bad_model(r,
                         "treat_whitespace_as_suffix, or escape_whitespaces that is false, is not supported");
    return true;
}

// ---- pieces

static bool read_piece(struct vocab_reader *r, struct text_view bytes, int64_t id, float *scores) {
    struct message m = message_of(bytes);
    int64_t type = TYPE_NORMAL;
    for (struct spm_field f; next_field(&m, &f);) {
        if (is_field(&f, 1, WIRE_BYTES))
            r->names[id] = f.bytes;
        else if (is_field(&f, 2, WIRE_32))
            memcpy(&scores[id], &(uint32_t){(uint32_t)f.value}, 4);
        else if (is_field(&f, 3, WIRE_VARINT))
            type = (int64_t)f.value;
    }
    if (m.bad || r->names[id].len == 0 || r->names[id].len > MAX_PIECE_BYTES || type < TYPE_NORMAL ||
        type > TYPE_BYTE) {
        jdoc_bad(r->j, r->err, "piece %" PRId64 " is not a text with a type from 1 to 6", id);
        return false;
    }
    r->types[id] = (int32_t)type;
    if (type == TYPE_UNKNOWN)
        hf_int(r->keys, "tokenizer.ggml.unknown_token_id", id, "the unknown piece");
    return true;
}

static bool read_pieces(struct vocab_reader *r, struct text_view file) {
    float *scores = hf_alloc(r->keys, (size_t)r->num * sizeof *scores);
    struct message m = message_of(file);
    int64_t id = 0;
    int unknown = 0;
    if (!scores)
        return false;
    memset(scores, 0, (size_t)r->num * sizeof *scores);
    for (struct spm_field f; next_field(&m, &f);)
        if (is_field(&f, 1, WIRE_BYTES)) {
            if (!read_piece(r, f.bytes, id, scores))
                return false;
            unknown += r->types[id++] == TYPE_UNKNOWN;
        }
    if (unknown != 1)
        return bad_model(r, "the model has no unknown piece, or two");
    hf_array(r->keys, "tokenizer.ggml.scores", META_F32, (uint64_t)r->num, scores, "the scores of pieces");
    return true;
}

// ---- how texts are prepared

static bool config_says(const struct vocab_reader *r, const char *key, enum jdoc_type type) {
    const struct jdoc_value *v = r->config ? jdoc_get(r->config, r->config->values, key) : NULL;
    return v && (enum jdoc_type)v->type == type;
}

// Which texts get a space in front. SentencePiece puts it before each that it is given: before the first, and before what
// stands behind a special token. The newest transformers has LlamaTokenizer put it before the first alone.
static const char *space_prefix(const struct vocab_reader *r, const struct spm_settings *s) {
    const struct jdoc *c = r->config;
    const struct jdoc_value *name = c ? jdoc_get(c, c->values, "tokenizer_class") : NULL;
    bool llama = c && (jdoc_is(c, name, "LlamaTokenizer") || jdoc_is(c, name, "LlamaTokenizerFast"));
    if (!llama || config_says(r, "legacy", JDOC_TRUE))
        return s->spaced ? "always" : "never";
    return config_says(r, "add_prefix_space", JDOC_FALSE) ? "never" : "first";
}

static bool write_charsmap(struct vocab_reader *r, const struct spm_settings *s) {
    unsigned char *map = s->charsmap.len ? hf_alloc(r->keys, s->charsmap.len) : NULL;
    if (map) {
        memcpy(map, s->charsmap.data, s->charsmap.len);
        hf_array(r->keys, "tokenizer.ggml.precompiled_charsmap", META_U8, s->charsmap.len, map,
                 "precompiled_charsmap");
    }
    return map || !s->charsmap.len;
}

// The words of engine/text/normalizer.h, for merging by scores, which GGUF files have prepare nothing.
static bool write_normalizer(struct vocab_reader *r, const struct spm_settings *s) {
    static const char *const collapse[] = {"ReplaceRegex", " {2,}", " ", "ReplaceRegex", "\\A | \\z", ""};
    struct strings words;
    uint64_t n = 0;
    if (!strings_room(&words, r->keys, 7, 64))
        return false;
    if (s->charsmap.len) {
        strings_add(&words, view_of("Charsmap"), "", view_of(""));
        n++;
    }
    for (int i = 0; s->collapses && i < 6; i++, n++)
        strings_add(&words, view_of(collapse[i]), "", view_of(""));
    if (n)
        hf_array(r->keys, "tokenizer.quire.normalizer", META_STRING, n, words.data, "normalizer_spec");
    return true;
}

static bool write_settings(struct vocab_reader *r, const struct spm_settings *s) {
    const char *prefix = space_prefix(r, s);
    bool bpe = s->model == MODEL_OF_BPE;
    hf_str(r->keys, "tokenizer.ggml.model", view_of(bpe ? "llama" : "t5"), "model_type");
    hf_bool(r->keys, "tokenizer.ggml.add_space_prefix", bpe ? strcmp(prefix, "never") != 0 : s->spaced,
            "add_dummy_prefix");
    if (!write_charsmap(r, s))
        return false;
    if (!bpe) {
        hf_bool(r->keys, "tokenizer.ggml.remove_extra_whitespaces", s->collapses, "remove_extra_whitespaces");
        return true;
    }
    hf_str(r->keys, "tokenizer.quire.space_prefix", view_of(prefix), "legacy");
    return write_normalizer(r, s);
}

bool hf_spm_read(struct vocab_reader *r, struct text_view file, int64_t rows) {
    struct spm_settings s;
    if (!read_settings(r, file, &s))
        return false;
    r->adds_bos = s.model == MODEL_OF_BPE; // as LlamaTokenizer and T5Tokenizer where nothing says otherwise
    r->adds_eos = !r->adds_bos;
    return hf_vocab_room(r, s.pieces, 0, rows) && read_pieces(r, file) && hf_vocab_added(r) &&
           write_settings(r, &s);
}
