// attn_kv_b of old DeepSeek files, a matrix that makes keys and values of the latent, as the two that a backend takes:
// it absorbs queries in place of making keys.
#pragma once

#include "backend.h"

// The shape of attn_kv_b.
struct tensor latent_fused(const struct attn_spec *a);

// Makes WEIGHT_LATENT_KEY (H, C, n) or WEIGHT_LATENT_VALUE (H, v, C) of attn_kv_b (H*(n+v), C), each head's rows of keys
// before those of values. dst holds H*(n+v)*C floats. Keys are transposed: quantised ones become F32, exactly, FP8 BF16; all else
// keeps its type.
void latent_split(const struct attn_spec *a, enum weight_role role, struct tensor *t, void *dst);
