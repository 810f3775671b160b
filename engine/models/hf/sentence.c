#include "sentence.h"

#include "log.h"
#include "pooling.h"

enum { MAX_BYTES = 1 << 20 };

static bool ends_with(struct text_view s, const char *end) {
    size_t n = strlen(end);
    return s.len >= n && memcmp(s.data + s.len - n, end, n) == 0;
}

// The pooling of 1_Pooling/config.json; NONE: err.
static enum pooling read_pooling(struct hf_files *d, struct err *err) {
    static const struct {
        const char *key;
        enum pooling pooling;
    } modes[] = {{"pooling_mode_cls_token", POOLING_CLS},
                 {"pooling_mode_mean_tokens", POOLING_MEAN},
                 {"pooling_mode_lasttoken", POOLING_LAST}};
    struct jdoc j = {.num = 0};
    enum pooling found = POOLING_NONE;
    bool ok = hf_files_json(d, "1_Pooling/config.json", true, MAX_BYTES, &j, err);
    JDOC_EACH_KEY(&j, key, ok ? j.values : NULL) {
        struct text_view name = jdoc_text(&j, key);
        size_t i = 0;
        if (key[1].type != JDOC_TRUE || name.len < 12 || memcmp(name.data, "pooling_mode", 12) != 0)
            continue;
        while (i < 3 && !(strlen(modes[i].key) == name.len && !memcmp(modes[i].key, name.data, name.len)))
            i++;
        if (i == 3 || found != POOLING_NONE) {
            jdoc_bad(&j, err, "key %.*s: only one of cls, mean and last token pooling is supported",
                     (int)(name.len < 64 ? name.len : 64), name.data);
            ok = false;
            break;
        }
        found = modes[i].pooling;
    }
    if (ok && found == POOLING_NONE)
        jdoc_bad(&j, err, "no pooling_mode is true");
    jdoc_free(&j);
    return ok ? found : POOLING_NONE;
}

// A matrix behind the pooling, of N_Dense/config.json. false: err.
static bool read_dense(struct hf_files *d, const struct jdoc *modules, const struct jdoc_value *path,
                       struct hf_config *c, struct err *err) {
    static const char identity[] = "Identity"; // the end of a name of torch's
    char folder[24], name[40];
    struct jdoc j = {.num = 0};
    snprintf(folder, sizeof folder, "%d_Dense", c->dense + 2);
    snprintf(name, sizeof name, "%s/config.json", folder);
    bool known = strcmp(c->arch, "gemma-embedding") == 0 && c->dense < 2;
    if (!known || !path || !jdoc_is(modules, path, folder))
        return jdoc_bad(modules, err,
                        "module Dense is not supported yet, but for EmbeddingGemma's in 2_Dense and 3_Dense"),
               false;
    bool ok = hf_files_json(d, name, true, MAX_BYTES, &j, err);
    const struct jdoc_value *act = ok ? jdoc_get(&j, j.values, "activation_function") : NULL;
    if (ok && !(act && act->type == JDOC_STRING && ends_with(jdoc_text(&j, act), identity)))
        ok =
            jdoc_bad(&j, err, "key activation_function is not torch.nn.modules.linear.Identity") == STATUS_OK;
    jdoc_free(&j);
    c->dense += ok;
    return ok;
}

// Whether a normalizer of tokenizer.json, or one of a sequence, makes letters small.
static bool lowers(const struct jdoc *j, const struct jdoc_value *v) {
    const struct jdoc_value *type = jdoc_get(j, v, "type"), *flag = jdoc_get(j, v, "lowercase");
    bool any = jdoc_is(j, type, "Lowercase") ||
               (jdoc_is(j, type, "BertNormalizer") && (!flag || flag->type == JDOC_TRUE));
    JDOC_EACH(j, part, jdoc_get(j, v, "normalizers"))
    any |= lowers(j, part);
    return any;
}

// How many tokens of a text are looked at: what the module of the model says, or else its tokenizer. false: err.
static bool read_length(struct hf_files *d, const struct jdoc *tokenizer, const struct jdoc *tokenizer_config,
                        struct hf_keys *keys, struct err *err) {
    static const char *const names[] = {"sentence_bert_config.json", "sentence_roberta_config.json",
                                        "sentence_xlm-roberta_config.json"};
    struct jdoc j = {.num = 0};
    bool ok = true;
    int64_t length = 0;
    for (int i = 0; ok && !j.num && i < 3; i++)
        ok = hf_files_json(d, names[i], false, MAX_BYTES, &j, err);
    const struct jdoc_value *said = jdoc_get(&j, j.values, "max_seq_length"),
                            *lower = jdoc_get(&j, j.values, "do_lower_case");
    if (ok && said && (!jdoc_integer(&j, said, &length) || length < 1))
        ok = jdoc_bad(&j, err, "key max_seq_length is no positive integer") == STATUS_OK;
    if (ok && lower && lower->type == JDOC_TRUE &&
        !lowers(tokenizer, jdoc_get(tokenizer, tokenizer->values, "normalizer")))
        ok = jdoc_bad(&j, err, "key do_lower_case is true, and the tokenizer does not make letters small") ==
             STATUS_OK;
    if (!said)
        jdoc_integer(tokenizer_config,
                     jdoc_get(tokenizer_config, tokenizer_config->values, "model_max_length"), &length);
    if (ok && length > 0 && length <= INT32_MAX)
        hf_int(keys, "quire.max_seq_length", length, said ? "max_seq_length" : "model_max_length");
    jdoc_free(&j);
    return ok;
}

// sentence-transformers puts a prompt before each text where none is named; here texts stay as they are sent. false: err.
static bool tell_prompt(struct hf_files *d, struct err *err) {
    struct jdoc j = {.num = 0};
    bool ok = hf_files_json(d, "config_sentence_transformers.json", false, MAX_BYTES, &j, err);
    const struct jdoc_value *name = ok ? jdoc_get(&j, j.values, "default_prompt_name") : NULL, *prompt = NULL;
    if (name && name->type == JDOC_STRING)
        JDOC_EACH_KEY(&j, key, jdoc_get(&j, j.values, "prompts")) {
            struct text_view a = jdoc_text(&j, key), b = jdoc_text(&j, name);
            if (a.len == b.len && memcmp(a.data, b.data, a.len) == 0 && key[1].type == JDOC_STRING)
                prompt = key + 1;
        }
    if (prompt && prompt->len)
        log_msg(LOG_WARN,
                "%s: texts get no prompt, sentence-transformers puts '%.*s' before each; send it with them",
                j.name, (int)(prompt->len < 100 ? prompt->len : 100), j.text + prompt->at);
    jdoc_free(&j);
    return ok;
}

// false: err.
static bool read_modules(struct hf_files *d, const struct jdoc *j, struct hf_keys *keys, struct hf_config *c,
                         struct err *err) {
    bool normalize = false;
    JDOC_EACH(j, module, j->values) {
        const struct jdoc_value *type = jdoc_get(j, module, "type");
        struct text_view name = type && type->type == JDOC_STRING ? jdoc_text(j, type) : view_of("");
        if (ends_with(name, ".Pooling")) {
            const struct jdoc_value *path = jdoc_get(j, module, "path");
            enum pooling pooling = POOLING_NONE;
            if (path && jdoc_is(j, path, "1_Pooling"))
                pooling = read_pooling(d, err);
            else
                jdoc_bad(j, err, "a module for pooling lies in another folder than 1_Pooling");
            if (pooling == POOLING_NONE)
                return false;
            hf_int(keys, hf_text(keys, "%s.pooling_type", c->arch), pooling, "1_Pooling/config.json");
        } else if (ends_with(name, ".Normalize")) {
            normalize = true;
        } else if (ends_with(name, ".Dense")) {
            if (!read_dense(d, j, jdoc_get(j, module, "path"), c, err))
                return false;
        } else if (!ends_with(name, ".Transformer")) {
            jdoc_bad(j, err, "module %.*s is not supported yet", (int)(name.len < 80 ? name.len : 80),
                     name.data);
            return false;
        }
    }
    hf_bool(keys, "quire.normalize", normalize, "modules.json");
    return true;
}

bool hf_sentence_read(struct hf_files *d, const struct jdoc *config, const struct jdoc *tokenizer,
                      const struct jdoc *tokenizer_config, struct hf_keys *keys, struct hf_config *c,
                      struct err *err) {
    const struct jdoc_value *list = jdoc_get(config, config->values, "architectures"),
                            *kind = jdoc_first(config, list),
                            *pooling = jdoc_get(config, config->values, "classifier_pooling");
    if (strcmp(c->arch, "jina-bert-v3") == 0)
        log_msg(LOG_WARN, "%s: vectors are those of the model without its adapters for tasks", config->name);
    if (kind && kind->type == JDOC_STRING &&
        ends_with(jdoc_text(config, kind), "ForSequenceClassification")) {
        hf_int(keys, hf_text(keys, "%s.pooling_type", c->arch), POOLING_RANK, "architectures");
        if (strcmp(c->arch, "modern-bert") == 0)
            hf_int(keys, "quire.rank_pooling",
                   pooling && jdoc_is(config, pooling, "mean") ? POOLING_MEAN : POOLING_CLS,
                   "classifier_pooling");
        return true;
    }
    struct jdoc j = {.num = 0};
    bool ok = hf_files_json(d, "modules.json", false, MAX_BYTES, &j, err);
    if (ok && j.num)
        ok = tell_prompt(d, err) && read_modules(d, &j, keys, c, err) &&
             read_length(d, tokenizer, tokenizer_config, keys, err);
    jdoc_free(&j);
    return ok;
}
