// Unigram, as in T5 and XLM-RoBERTa: of all ways to cut a word into pieces the one whose scores have the greatest sum (Kudo,
// "Subword Regularization: Improving Neural Network Translation Models with Multiple Subword Candidates", 2018).
#include "name_list.h"
#include "tokenizer_pieces.h"
#include "tokenizer_pre.h"
#include "tokenizer_prepare.h"
#include "utf8.h"

#include <math.h>
#include <stdlib.h>

#define SPACE "\xe2\x96\x81" // U+2581

enum { SMALL_WORD = 256 };
#define UNKNOWN_PENALTY 10.0

// ---- text

struct lattice_place { // of a word: the best way to it
    double score;      // -INFINITY: none yet
    token_id id;       // of its last piece, -1: an unknown character
    uint32_t bytes;    // of it
};

struct unigram_encoder {
    const struct tokenizer *t;
    struct token_buf *out;
};

static void reach(struct lattice_place *p, double score, token_id id, size_t bytes) {
    if (score > p->score)
        *p = (struct lattice_place){score, id, (uint32_t)bytes};
}

// Finds the best way to each place.
static void search(const struct tokenizer *t, const char *word, size_t len, struct lattice_place *places) {
    for (size_t i = 0; i <= len; i++)
        places[i].score = i ? -INFINITY : 0;
    for (size_t at = 0, n; at < len; at += n) {
        struct name_range r = name_list_all(&t->names);
        int valid = utf8_len((const unsigned char *)word + at, len - at);
        bool whole = false; // a piece is this character
        n = valid > 0 ? (size_t)valid : 1;
        for (size_t i = at; i < len && r.lo < r.hi; i++) {
            token_id id = name_list_step(&t->names, t, &r, (unsigned char)word[i]);
            if (id < 0)
                continue;
            whole |= i + 1 - at == n;
            reach(&places[i + 1], places[at].score + t->scores[id], id, i + 1 - at);
        }
        if (!whole)
            reach(&places[at + n], places[at].score + t->unknown_score, -1, n);
    }
}

// Unknown characters that follow each other: one token for each of their bytes, or one unknown token.
static enum status emit_unknown(const struct unigram_encoder *e, const char *p, size_t len) {
    const struct tokenizer *t = e->t;
    bool bytes = true;
    for (size_t i = 0; i < len; i++)
        bytes = bytes && t->byte_ids[(unsigned char)p[i]] >= 0;
    if (!bytes)
        return t->unk >= 0 ? token_push(e->out, t->unk) : STATUS_OK;
    for (size_t i = 0; i < len; i++)
        if (token_push(e->out, t->byte_ids[(unsigned char)p[i]]))
            return STATUS_NOMEM;
    return STATUS_OK;
}

// Writes the pieces that lead to the end. places[i] holds the last piece of the best way to i.
static enum status emit(const struct unigram_encoder *e, const char *word, size_t len,
                        struct lattice_place *places) {
    struct lattice_place piece = places[len];
    for (size_t at = len;
         at > 0;) { // from the end backwards, so that places[i] holds the piece that begins there
        struct lattice_place before = places[at -= piece.bytes];
        places[at] = piece;
        piece = before;
    }
    for (size_t at = 0, end; at < len; at = end) {
        end = at + places[at].bytes;
        if (places[at].id >= 0) {
            if (token_push(e->out, places[at].id))
                return STATUS_NOMEM;
            continue;
        }
        while (end < len && places[end].id < 0)
            end += places[end].bytes;
        if (emit_unknown(e, word + at, end - at))
            return STATUS_NOMEM;
    }
    return STATUS_OK;
}

static enum status encode_word(void *arg, const char *word, size_t len) {
    struct lattice_place small[SMALL_WORD + 1], *places = small;
    if (len > SMALL_WORD)
        places = len < UINT32_MAX ? malloc((len + 1) * sizeof *places) : NULL;
    if (!places)
        return STATUS_NOMEM;
    const struct unigram_encoder *e = arg;
    search(e->t, word, len, places);
    enum status st = emit(e, word, len, places);
    if (places != small)
        free(places);
    return st;
}

static enum status unigram_encode(const struct tokenizer *t, const char *text, size_t len, bool first,
                                  struct token_buf *out) {
    struct unigram_encoder e = {t, out};
    return pretokenizer_cut(t->pre, text, len, first, encode_word, &e);
}

// ---- loading

static bool load_scores(struct vocab_loader *l) {
    enum { MAX_SCORE = 1 << 20 }; // so that no sum of a text is infinite
    struct tokenizer *t = l->t;
    struct meta_array exact;
    double min = INFINITY;
    if (meta_array(l->f, "tokenizer.quire.scores", false, META_F64, &exact, l->err))
        return false;
    if (exact.count ? exact.count != l->names.count : l->scores.count == 0) {
        model_file_bad(l->f, l->err, "the tokenizer has no score for each token");
        return false;
    }
    t->scores = malloc((size_t)t->num_tokens * sizeof *t->scores);
    if (!t->scores) {
        err_set(l->err, STATUS_NOMEM, "%s: out of memory for %d tokens", l->f->name, t->num_tokens);
        return false;
    }
    for (int i = 0; i < t->num_tokens; i++) {
        double score = (double)t->tokens[i].score;
        if (exact.count)
            memcpy(&score, exact.next + (size_t)i * sizeof score, sizeof score);
        if (!(fabs(score) <= MAX_SCORE)) {
            model_file_bad(l->f, l->err, "token %d has the score %g, expected -2^20 to 2^20", i, score);
            return false;
        }
        t->scores[i] = t->tokens[i].type == TOKEN_USER_DEFINED && !exact.count ? 0 : score;
        min = t->tokens[i].type != TOKEN_UNUSED && score < min ? score : min;
    }
    t->unknown_score = min - UNKNOWN_PENALTY;
    return load_names(l);
}

// SentencePiece's preparation of texts.
static bool load_gguf(struct vocab_loader *l) {
    struct text_view words[16], cuts[] = {view("Metaspace"), view("never")};
    struct tokenizer *t = l->t;
    bool collapses = false;
    int n = 0;
    if (meta_bool(l->f, "tokenizer.ggml.remove_extra_whitespaces", &collapses, l->err))
        return false;
    if (meta_find(l->f, "tokenizer.ggml.precompiled_charsmap"))
        words[n++] = view("Charsmap");
    if (collapses) {
        static const char *const replaced[] = {" {2,}", " ", "\\A | \\z", ""};
        for (int i = 0; i < 4; i += 2) {
            words[n++] = view("ReplaceRegex");
            words[n++] = view(replaced[i]);
            words[n++] = view(replaced[i + 1]);
        }
    }
    if (t->add_space_prefix) {
        words[n++] = view("Prepend");
        words[n++] = view(" ");
    }
    t->normalizer = normalizer_open(l->f, words, n, l->err);
    t->pre = t->normalizer ? pretokenizer_of(l->f, cuts, 2, l->err) : NULL;
    return t->pre && load_scores(l);
}

static bool load_json(struct vocab_loader *l) {
    l->t->add_space_prefix = true;
    return load_preparation(l) && load_scores(l);
}

const struct tokenizer_kind tokenizer_unigram = {.name = "t5",
                                                 .bos = -1,
                                                 .eos = 1,
                                                 .unk = 2,
                                                 .add_eos = true,
                                                 .token_bytes = spaced_bytes,
                                                 .load = load_gguf,
                                                 .encode = unigram_encode};
const struct tokenizer_kind tokenizer_unigram_json = {.name = "unigram",
                                                      .bos = -1,
                                                      .eos = -1,
                                                      .unk = -1,
                                                      .token_bytes = spaced_bytes,
                                                      .load = load_json,
                                                      .encode = unigram_encode};
