#include "draft.h"

#include <string.h>

// A step computes what it is behind, in pieces of this size, before it drafts; vocabularies are padded differently, for
// the sake of some matrix.
enum { DRAFT_STEP_TOKENS = 64, MAX_PADDING = 128 };

// But for what each of both does in its own way.
static struct engine_config draft_base(const struct engine_config *c, const char *device) {
    return (struct engine_config){
        .device = device,
        .variant = c->variant,
        .num_threads = c->num_threads,
        .dtype = c->dtype,
        .kv_dtype = c->kv_dtype,
        .keep_logits = c->keep_logits,
        .block_size = c->block_size,
        .max_num_seqs = c->max_num_seqs,
        .max_num_batched_tokens = c->max_num_seqs > DRAFT_STEP_TOKENS ? c->max_num_seqs : DRAFT_STEP_TOKENS,
        .pooling = "none",
    };
}

enum status draft_config(const struct engine_config *c, const struct backend_ops *ops,
                         struct engine_config *draft, struct err *err) {
    if (ops != &backend_cpu)
        return err_set(err, STATUS_INVALID, "--speculative-model is for the CPU, not for device '%s'",
                       ops->name);
    if (c->processes)
        return err_set(err, STATUS_INVALID, "--speculative-model does not work in several processes");
    *draft = draft_base(c, "cpu");
    draft->path = c->draft_path;
    draft->prefix_caching = c->prefix_caching;
    return STATUS_OK;
}

enum status draft_mtp_config(const struct engine_config *c, const struct backend_ops *ops,
                             struct engine_config *draft, struct err *err) {
    if (ops != &backend_cpu && ops != &backend_ref)
        return err_set(err, STATUS_INVALID, "MTP layers draft on the CPU, not on device '%s'", ops->name);
    if (c->processes)
        return err_set(err, STATUS_INVALID, "MTP layers do not draft in several processes");
    *draft = draft_base(c, ops->name);
    draft->path = c->path;
    return STATUS_OK;
}

enum status draft_check(const struct engine_config *c, const struct model_config *model,
                        const struct tokenizer *of, const struct tokenizer *draft, struct err *err) {
    if (model_is_bidirectional(model))
        return err_set(err, STATUS_INVALID, "%s: an encoder cannot draft", c->path);
    if (model->num_mix > 0)
        return err_set(err, STATUS_INVALID,
                       "%s: a model with recurrent layers cannot draft: it does not take wrong tokens back",
                       c->path);
    int want = tokenizer_vocab(of), have = tokenizer_vocab(draft);
    if (have < want - MAX_PADDING || have > want + MAX_PADDING)
        return err_set(err, STATUS_INVALID,
                       "%s has another tokenizer than the model that it drafts for: %d tokens, not %d",
                       c->path, have, want);
    for (int i = 0; i < have && i < want; i++) {
        size_t a_len, b_len;
        const char *a = tokenizer_name(of, i, &a_len), *b = tokenizer_name(draft, i, &b_len);
        if (a_len != b_len || memcmp(a, b, a_len) != 0)
            return err_set(err, STATUS_INVALID,
                           "%s has another tokenizer than the model that it drafts for: token %d differs",
                           c->path, i);
    }
    return STATUS_OK;
}
