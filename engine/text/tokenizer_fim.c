// The tokens of a vocabulary that fill in the middle: those that the file's keys name, else those of well-known names.
// Source of keys and names: llama.cpp's llama-vocab.cpp; of Codestral's form: mistral-common's encode_fim().
#include "tokenizer_kind.h"

enum { PREFIX, SUFFIX, MIDDLE, PAD, REPO, FILES, NUM_ROLES };
#define MISTRAL_PREFIX "[PREFIX]"

static const struct {
    const char *key, *old_key, *names[9]; // of names the first that is there
} roles[NUM_ROLES] = {
    [PREFIX] = {"tokenizer.ggml.fim_pre_token_id",
                "tokenizer.ggml.prefix_token_id",
                {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
                 "<|code_prefix|>", "<|prefix|>", MISTRAL_PREFIX}},
    [SUFFIX] = {"tokenizer.ggml.fim_suf_token_id",
                "tokenizer.ggml.suffix_token_id",
                {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
                 "<|code_suffix|>", "<|suffix|>", "[SUFFIX]"}},
    [MIDDLE] = {"tokenizer.ggml.fim_mid_token_id",
                "tokenizer.ggml.middle_token_id",
                {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
                 "<|code_middle|>", "<|middle|>"}},
    [PAD] = {"tokenizer.ggml.fim_pad_token_id", NULL, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"}},
    [REPO] = {"tokenizer.ggml.fim_rep_token_id",
              NULL,
              {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [FILES] = {"tokenizer.ggml.fim_sep_token_id", NULL, {"<|file_sep|>"}},
};
enum { MAX_NAMES = sizeof roles[0].names / sizeof *roles[0].names, MAX_NAME_BYTES = 24 };

// Takes a token for a role if no better name of that role was there.
static void try_name(struct text_view name, token_id id, token_id *ids, int *best) {
    for (int role = 0; role < NUM_ROLES; role++)
        for (int i = 0; i < best[role] && roles[role].names[i]; i++)
            if (same(name, roles[role].names[i])) {
                best[role] = i;
                ids[role] = id;
            }
}

bool load_fim(struct vocab_loader *l) {
    struct tokenizer *t = l->t;
    token_id ids[NUM_ROLES];
    int best[NUM_ROLES]; // names before this one are better
    for (int role = 0; role < NUM_ROLES; role++) {
        ids[role] = -1;
        if (!load_id(l, roles[role].key, false, &ids[role]) ||
            (ids[role] < 0 && roles[role].old_key && !load_id(l, roles[role].old_key, false, &ids[role])))
            return false;
        best[role] = ids[role] < 0 ? MAX_NAMES : 0;
    }
    for (token_id i = 0; i < t->num_tokens; i++) {
        struct text_view name = {t->text + t->tokens[i].name, t->tokens[i].name_len};
        if (name.len > 4 && name.len <= MAX_NAME_BYTES && strchr("<[\xe2", name.data[0]))
            try_name(name, i, ids, best);
    }
    if (ids[PREFIX] < 0 || ids[SUFFIX] < 0)
        return true;
    const struct token_entry *prefix = &t->tokens[ids[PREFIX]];
    bool suffix_first = same((struct text_view){t->text + prefix->name, prefix->name_len}, MISTRAL_PREFIX);
    if (ids[MIDDLE] < 0 && !suffix_first)
        return true;
    t->fim = (struct fim_tokens){.prefix = ids[PREFIX],
                                 .suffix = ids[SUFFIX],
                                 .middle = suffix_first ? -1 : ids[MIDDLE],
                                 .repo = ids[REPO],
                                 .file = ids[FILES],
                                 .suffix_first = suffix_first};
    t->fills_in = true;
    for (int role = 0; role < NUM_ROLES; role++)
        if (ids[role] >= 0)
            t->tokens[ids[role]].flags |=
                (uint8_t)(TOKEN_SPECIAL | TOKEN_GUARDED | (role >= PAD ? TOKEN_END : 0));
    return true;
}
