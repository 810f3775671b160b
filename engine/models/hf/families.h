// The names that Hugging Face folders use, family by family: the second column beside architectures.h, whose names
// are GGUF's. A family of known mathematics is a row here; the row points to tables of its own keys and tensors.
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
