// A token's id from a key of the file.
#include "tokenizer_kind.h"

#include "log.h"

bool load_id(struct vocab_loader *l, const char *key, bool strict, token_id *id) {
    int64_t v = *id;
    const struct meta *kv = meta_find(l->f, key);
    if (meta_int(l->f, key, false, INT64_MIN, INT64_MAX, &v, l->err))
        return false;
    if (!kv) { // a default only counts where it looks right
        if (v >= l->t->num_tokens || (v >= 0 && l->types.count && !(l->t->tokens[v].flags & TOKEN_SPECIAL)))
            *id = -1;
        return true;
    }
    bool none = v == -1 || v == UINT32_MAX;
    if (!none && (v < 0 || v >= l->t->num_tokens)) {
        if (strict) {
            model_file_bad(l->f, l->err, "key %s is %lld, expected 0 to %d", key, (long long)v,
                           l->t->num_tokens - 1);
            return false;
        }
        log_msg(LOG_WARN, "msg=\"token id out of range, ignored\" file=\"%s\" key=%s id=%lld", l->f->name,
                key, (long long)v);
        none = true;
    }
    *id = none ? -1 : (token_id)v;
    return true;
}
