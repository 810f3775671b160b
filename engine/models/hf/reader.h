// Reading config.json, for config.c and its parts.
#pragma once

#include "keys.h"
#include "settings.h"
#include "json/jdoc.h"

struct hf_reader {
    const struct jdoc *j;
    const struct jdoc_value *root, *text; // text: the language model's, root where the model is nothing else
    struct jdoc defaults;                 // of the family
    struct hf_keys *keys;
    struct hf_config *c;
    struct err *err;
};

// A value, in config.json or the defaults. A key is in one of three states: it has a value (v), it is null (null), for
// which no default is taken, or it is absent.
struct hf_found {
    const struct jdoc *j;
    const struct jdoc_value *v, *null; // at most one of them, where it stands
    const char *key;                   // as the file calls it; NULL: as the caller does
};

struct hf_found hf_find_key(const struct hf_reader *r, const char *key);
struct hf_found hf_found_in(const struct jdoc *j, const struct jdoc_value *object, const char *key);
// Returns false, with a sentence in err.
bool hf_refuse_value(const struct hf_reader *r, const char *key, struct hf_found f, const char *expected);
// Into *v, which stays as it is where the key is absent, and where it is null and hf_key_may_be_null(). false: err.
bool hf_take_number(const struct hf_reader *r, const char *key, struct hf_found f, double *v);
bool hf_read_number(const struct hf_reader *r, const char *key, double *v);
bool hf_read_size(const struct hf_reader *r, const char *key, bool required, int64_t *v);
bool hf_read_flag(const struct hf_reader *r, const char *key, bool *v); // null is false, as in Python
// Whether a value says that what its key is about is off, or changes nothing.
bool hf_is_neutral(const struct jdoc *j, const struct jdoc_value *v);

// Keys of ours, behind the architecture's name; label: theirs.
const char *hf_our_key(const struct hf_reader *r, const char *suffix);
void hf_add_float(const struct hf_reader *r, const char *suffix, double v, const char *label);
void hf_add_int(const struct hf_reader *r, const char *suffix, int64_t v, const char *label);

// The parts, after sizes. false: err.
bool hf_read_layers(struct hf_reader *r); // windows, recurrent layers
// Lists with a value for each layer (config_each.c).
bool hf_read_expert_layers(const struct hf_reader *r);
bool hf_read_rope_layers(const struct hf_reader *r);
// Heads and sizes of DeciLM's layers, some of which lack a part; SmallThinker's lists of those that rotate and have a window.
bool hf_read_blocks(struct hf_reader *r);
bool hf_read_layouts(const struct hf_reader *r);
// Sizes that layers without a window have apart; both stay as they are where the file does not list them.
bool hf_read_overrides(const struct hf_reader *r, int64_t *head_dim, int64_t *kv_heads);
// How many layers a list of their kinds has, and whether one of them has experts; 0: there is none.
int64_t hf_count_parts(const struct hf_reader *r, bool *experts);
bool hf_read_rope(struct hf_reader *r);
// Before them. modelopt: hf_quant_config.json, NULL where it is absent.
bool hf_read_quantization(const struct hf_reader *r, const struct jdoc *modelopt);
