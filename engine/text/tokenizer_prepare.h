// Prepares a text for the algorithm of its vocabulary: normalises it and cuts it into words.
#pragma once

#include "normalizer.h"
#include "tokenizer_kind.h"
#include "tokenizer_pre.h"

static inline struct text_view view(const char *text) { return (struct text_view){text, strlen(text)}; }

// Makes t->normalizer of tokenizer.quire.normalizer; without that key as the pre-tokenizer asks. false: l->err is set.
bool load_normalizer(struct vocab_loader *l);
// And t->pre, if it is not there yet, of tokenizer.quire.cuts.
bool load_preparation(struct vocab_loader *l);
