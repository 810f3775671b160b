// tokenizer.json and what belongs to it as keys of GGUF, and some of our own (tokenizer.quire.*) for what GGUF has no
// word for.
#pragma once

#include "keys.h"
#include "json/jdoc.h"

struct hf_vocab_files { // those but the first may be NULL
    const struct jdoc *tokenizer, *config, *special_map;
    // In place of tokenizer.json, which has their name then: tokenizer.model, tiktoken.model; data NULL: none. Beside them
    // added_tokens.json.
    struct text_view spm, tiktoken;
    const struct jdoc *added;
    // chat_template.jinja, additional_chat_templates/tool_use.jinja; data NULL: none
    struct text_view chat_template, tool_template;
    const struct jdoc *template_json; // chat_template.json, may be NULL
};

// eos: (num_eos) ids that end a generation. rows: of the embedding, so many tokens there are at least; the others are
// unused. Unknown steps are refused by name. STATUS_FORMAT, STATUS_NOMEM.
enum status hf_vocab_read(const struct hf_vocab_files *files, const int64_t *eos, int num_eos, int64_t rows,
                          struct hf_keys *keys, struct err *err);
