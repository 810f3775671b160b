// See vocab_reader.h: the tokens around texts, the ends, the chat template.
#include "vocab_reader.h"

#include <stdio.h>

// The id of the token that a key of tokenizer_config.json or special_tokens_map.json names: a string, or an object with
// its content. -1: none, also where the first that has the key says null. As in transformers the map goes first beside
// configurations of old, which do not list the added tokens.
static int64_t named_token(const struct vocab_reader *r, const char *key) {
    bool lists = r->config && jdoc_get(r->config, r->config->values, "added_tokens_decoder");
    const struct jdoc *const docs[] = {lists ? r->config : r->special_map,
                                       lists ? r->special_map : r->config};
    for (int i = 0; i < 2; i++) {
        const struct jdoc_value *v = docs[i] ? jdoc_find(docs[i], docs[i]->values, key) : NULL;
        const struct jdoc_value *text = v && v->type == JDOC_OBJECT ? jdoc_get(docs[i], v, "content") : v;
        if (v)
            return text && text->type == JDOC_STRING ? hf_vocab_find(r, jdoc_text(docs[i], text)) : -1;
    }
    return -1;
}

enum { MAX_FRAME = 4 };
struct nesting { // tokens in a row
    int32_t ids[MAX_FRAME];
    int num;
};
struct frames { // tokens before a text, between two and after the last
    struct nesting before, between, after;
    bool no_pairs; // the tokens at the ends of a pair are others
};

static bool add_token(const struct vocab_reader *r, const struct jdoc_value *name, struct nesting *frame) {
    int64_t id = name && name->type == JDOC_STRING ? hf_vocab_find(r, jdoc_text(r->j, name)) : -1;
    if (id < 0)
        return hf_vocab_refuse(r, name, "a token of the post_processor", "one of the vocabulary");
    if (frame->num == MAX_FRAME)
        return hf_vocab_refuse(r, name, "a fifth token beside a text", "four at most");
    frame->ids[frame->num++] = (int32_t)id;
    return true;
}

// The tokens before, between and after the texts of a template.
static bool read_pieces(const struct vocab_reader *r, const struct jdoc_value *pieces, struct frames *to) {
    int texts = 0;
    *to = (struct frames){0};
    JDOC_EACH(r->j, e, pieces) {
        const struct jdoc_value *special = get_of(r, e, "SpecialToken");
        struct nesting *places[] = {&to->before, &to->between, &to->after};
        if (!special)
            texts++;
        else if (!add_token(r, get_of(r, special, "id"), places[texts < 2 ? texts : 2]))
            return false;
    }
    return true;
}

static bool same_frame(const struct nesting *a, const struct nesting *b) {
    return a->num == b->num && memcmp(a->ids, b->ids, (size_t)a->num * sizeof *a->ids) == 0;
}

static bool take_template(const struct vocab_reader *r, const struct jdoc_value *part, struct frames *f) {
    struct frames single, pair;
    const struct jdoc_value *of_pair = get_of(r, part, "pair");
    if (!read_pieces(r, get_of(r, part, "single"), &single) || !read_pieces(r, of_pair, &pair))
        return false;
    bool pairs =
        of_pair && same_frame(&single.before, &pair.before) && same_frame(&single.between, &pair.after);
    *f = (struct frames){single.before, pair.between, single.between, !pairs};
    return true;
}

static bool take_processor(const struct vocab_reader *r, const struct jdoc_value *part, void *arg) {
    struct frames *f = arg;
    const struct jdoc_value *type = get_of(r, part, "type"), *cls = jdoc_first(r->j, get_of(r, part, "cls")),
                            *sep = jdoc_first(r->j, get_of(r, part, "sep"));
    bool roberta = is_type(r, part, "RobertaProcessing");
    if (is_type(r, part, "ByteLevel"))
        return true;
    if (is_type(r, part, "TemplateProcessing"))
        return take_template(r, part, f);
    if (!roberta && !is_type(r, part, "BertProcessing"))
        return hf_vocab_refuse(r, type ? type : part, "the post_processor",
                               "TemplateProcessing, BertProcessing, RobertaProcessing or ByteLevel");
    *f = (struct frames){0};
    return add_token(r, cls, &f->before) && add_token(r, sep, &f->between) &&
           (!roberta || add_token(r, sep, &f->between)) && add_token(r, sep, &f->after);
}

// Classes of transformers that set BOS and EOS by tokenizer_config.json, whatever tokenizer.json says.
static bool class_adds(const struct vocab_reader *r, const char *key, bool otherwise) {
    static const char *const classes[] = {"LlamaTokenizer",     "LlamaTokenizerFast",
                                          "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
                                          "GemmaTokenizer",     "GemmaTokenizerFast"};
    const struct jdoc *c = r->config;
    const struct jdoc_value *name = c ? jdoc_get(c, c->values, "tokenizer_class") : NULL,
                            *adds = c ? jdoc_get(c, c->values, key) : NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (adds && (r->adds_bos || r->adds_eos || jdoc_is(c, name, classes[i])))
            return is_true(adds);
    return otherwise;
}

// A frame that a class of transformers sets to one token or to none.
static void set_frame(struct nesting *frame, bool adds, int64_t id) {
    if (!adds)
        frame->num = 0;
    else if (frame->num == 0 && id >= 0)
        frame->ids[frame->num++] = (int32_t)id;
}

static void write_frame(struct vocab_reader *r, const char *key, const struct nesting *frame) {
    int32_t *ids = hf_alloc(r->keys, sizeof frame->ids);
    if (ids)
        memcpy(ids, frame->ids, sizeof frame->ids);
    hf_array(r->keys, key, META_I32, (uint64_t)frame->num, ids, "post_processor");
}

bool hf_vocab_special(struct vocab_reader *r, const int64_t *eos, int num_eos) {
    struct frames frames = {0};
    int64_t bos = named_token(r, "bos_token"), end = named_token(r, "eos_token");
    if (r->adds_bos || r->adds_eos) { // SentencePiece's own names
        bos = bos < 0 ? hf_vocab_find(r, view_of("<s>")) : bos;
        end = end < 0 ? hf_vocab_find(r, view_of("</s>")) : end;
    }
    if (!hf_vocab_parts(r, get_of(r, r->j->values, "post_processor"), "processors", take_processor, &frames))
        return false;
    set_frame(&frames.before, class_adds(r, "add_bos_token", r->adds_bos || frames.before.num > 0), bos);
    set_frame(&frames.after, class_adds(r, "add_eos_token", r->adds_eos || frames.after.num > 0), end);
    if (r->adds_bos || r->adds_eos) { // each text of a pair gets both
        frames.between = frames.after;
        for (int i = 0; i < frames.before.num; i++)
            frames.between.ids[frames.between.num++] = frames.before.ids[i];
    }
    bool add_bos = frames.before.num > 0, add_eos = frames.after.num > 0;
    bos = add_bos ? frames.before.ids[0] : bos;
    end = add_eos ? frames.after.ids[0] : end >= 0 ? end : num_eos ? eos[0] : -1;
    write_frame(r, "tokenizer.quire.before", &frames.before);
    write_frame(r, "tokenizer.quire.between", &frames.between);
    write_frame(r, "tokenizer.quire.after", &frames.after);
    hf_bool(r->keys, "tokenizer.quire.no_pairs", frames.no_pairs, "post_processor");
    int32_t *ends = hf_alloc(r->keys, (size_t)(num_eos + 1) * sizeof *ends);
    int num = 0;
    for (int i = 0; ends && i < num_eos; i++)
        if (eos[i] < r->num)
            ends[num++] = (int32_t)eos[i];
    hf_int(r->keys, "tokenizer.ggml.bos_token_id", bos, "bos_token");
    hf_int(r->keys, "tokenizer.ggml.eos_token_id", end < r->num ? end : -1, "eos_token");
    hf_bool(r->keys, "tokenizer.ggml.add_bos_token", add_bos, "post_processor");
    hf_bool(r->keys, "tokenizer.ggml.add_eos_token", add_eos, "post_processor");
    hf_array(r->keys, "tokenizer.quire.end_token_ids", META_I32, (uint64_t)num, ends, "eos_token_id");
    return true;
}

// The template of a name in a list of {name, template}.
static struct text_view named_template(const struct jdoc *c, const struct jdoc_value *list,
                                       const char *name) {
    JDOC_EACH(c, e, list) {
        const struct jdoc_value *one = jdoc_get(c, e, "template");
        if (one && one->type == JDOC_STRING && jdoc_is(c, jdoc_get(c, e, "name"), name))
            return jdoc_text(c, one);
    }
    return (struct text_view){0};
}

// Those of `chat_template` in a document: one, or a list by name. What is there already stays.
static void read_templates(struct vocab_reader *r, const struct jdoc *c) {
    const struct jdoc_value *v = c ? jdoc_get(c, c->values, "chat_template") : NULL;
    bool list = v && v->type == JDOC_ARRAY;
    if (!r->chat_template.data && v && v->type == JDOC_STRING)
        r->chat_template = jdoc_text(c, v);
    if (!r->chat_template.data && list)
        r->chat_template = named_template(c, v, "default");
    if (!r->tool_template.data && list)
        r->tool_template = named_template(c, v, "tool_use");
}

// The files of templates, as transformers saves them today; else those of chat_template.json and tokenizer_config.json.
void hf_vocab_template(struct vocab_reader *r) {
    read_templates(r, r->template_json);
    read_templates(r, r->config);
    if (r->chat_template.data)
        hf_str(r->keys, "tokenizer.chat_template", r->chat_template, "chat_template");
    if (r->tool_template.data)
        hf_str(r->keys, "tokenizer.chat_template.tool_use", r->tool_template, "chat_template");
}
