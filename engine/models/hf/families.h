// What Hugging Face folders call things, family by family: the second column beside architectures.h, whose names are
// GGUF's. A family of known mathematics is a row here; what its config.json and tensors have beside the others' is in
// the tables that the row points to.
#pragma once

#include "family.h"

const struct hf_family *hf_family_find(struct text_view model_type); // NULL: unknown
const struct hf_family *hf_family_at(int i);                         // NULL behind the last

// The key of the list of all or of the family, which goes first. NULL: neither has it.
const struct hf_key *hf_key_find(const struct hf_family *f, struct text_view key);
const struct hf_key *hf_key_at(const struct hf_family *f, int i); // of both lists; NULL behind the last
// Whether an unknown key sounds like mathematics.
bool hf_key_is_suspect(struct text_view key);
// Whether a size or number may be null: off, or what follows from other keys. Null of another one is refused.
bool hf_key_may_be_null(const char *key);
