// See places.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "places.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct hf_name whole_names[] = {
    {"model.embed_tokens", .ours = "token_embd"},
    {"model.norm", .ours = "output_norm"},
    {"lm_head", .ours = "output"},
    {.theirs = NULL},
};

static const struct hf_name layer_names[] = {
    {"input_layernorm", .ours = "attn_norm"},
    {"post_attention_layernorm", .ours = "ffn_norm"},
    {"self_attn.q_proj", .ours = "attn_q", .rows = ROWS_Q},
    {"self_attn.k_proj", .ours = "attn_k", .rows = ROWS_K},
    {"self_attn.v_proj", .ours = "attn_v"},
    {"self_attn.qkv_proj", .ours = "attn_qkv"},
    {"self_attn.o_proj", .ours = "attn_output"},
    {"self_attn.q_norm", .ours = "attn_q_norm"},
    {"self_attn.k_norm", .ours = "attn_k_norm"},
    {"mlp.gate_proj", .ours = "ffn_gate"},
    {"mlp.up_proj", .ours = "ffn_up"},
    {"mlp.gate_up_proj", .ours = "ffn_up"},
    {"mlp.down_proj", .ours = "ffn_down"},
    {"self_attn.rotary_emb.inv_freq", .ours = ""}, // left behind by old versions; computed anew
    {.theirs = NULL},
};

// ---- from theirs to ours

static bool take_prefix(struct text_view *s, const char *prefix) {
    size_t n = strlen(prefix);
    if (s->len < n || memcmp(s->data, prefix, n) != 0)
        return false;
    s->data += n;
    s->len -= n;
    return true;
}

static bool take_end(struct text_view *s, const char *end) {
    size_t n = strlen(end);
    if (s->len <= n || memcmp(s->data + s->len - n, end, n) != 0)
        return false;
    s->len -= n;
    return true;
}

// A number of at most six digits, without leading zeros.
static bool take_number(struct text_view *s, int *number) {
    size_t n = 0;
    for (*number = 0; n < s->len && n < 6 && s->data[n] >= '0' && s->data[n] <= '9'; n++)
        *number = *number * 10 + (s->data[n] - '0');
    if (n == 0 || (n > 1 && s->data[0] == '0'))
        return false;
    s->data += n;
    s->len -= n;
    return true;
}

// Whether a name is the pattern's, with the number that stands for its '#'.
static bool match_name(struct text_view s, const char *pattern, int *number) {
    *number = 0;
    for (; *pattern; pattern++) {
        if (*pattern == '#' ? !take_number(&s, number) : !take_prefix(&s, (char[]){*pattern, 0}))
            return false;
    }
    return s.len == 0;
}

static bool find_places(const struct hf_name *names, struct text_view s, struct hf_place *place,
                        void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    bool found = false;
    for (; names && names->theirs; names++) {
        if (!match_name(s, names->theirs, &place->number))
            continue;
        struct hf_place own = *place;
        own.name = names;
        own.bias |=
            strlen(names->theirs) > 5 && strcmp(names->theirs + strlen(names->theirs) - 5, "_bias") == 0;
        fn(arg, &own);
        found = true;
    }
    return found;
}

enum hf_part hf_places(const struct hf_family *f, struct text_view tensor,
                       void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    static const char *const others[] = {"vision_tower.",          "vision_model.",  "visual.",
                                         "audio_tower.",           "embed_vision.",  "embed_audio.",
                                         "multi_modal_projector.", "vision_encoder", "mtp."};
    struct hf_place place = {.layer = -1};
    struct text_view bare = tensor;
    take_prefix(&bare, "model.");
    for (int i = 0; i < COUNT(others); i++)
        if (take_prefix(&bare, others[i]))
            return HF_OTHER;
    char plain[256]; // with "model." where a wrapper's name stood, or the family's
    struct text_view rest = tensor;
    bool wrapped =
        take_prefix(&rest, "model.language_model.") || (f->prefix && take_prefix(&rest, f->prefix));
    if (wrapped && rest.len < sizeof plain - 8)
        tensor = (struct text_view){
            plain, (size_t)snprintf(plain, sizeof plain, "model.%.*s", (int)rest.len, rest.data)};
    else
        take_prefix(&tensor, "language_model.");
    if (!take_end(&tensor, ".weight"))
        place.bias = take_end(&tensor, ".bias");
    bool found;
    if (take_prefix(&tensor, "model.layers."))
        found = take_number(&tensor, &place.layer) && take_prefix(&tensor, ".") &&
                (find_places(f->names, tensor, &place, fn, arg) ||
                 find_places(layer_names, tensor, &place, fn, arg));
    else
        found = find_places(f->whole, tensor, &place, fn, arg) ||
                find_places(whole_names, tensor, &place, fn, arg);
    return found ? HF_TEXT : HF_UNKNOWN;
}

int hf_name_layer(const struct hf_family *f, struct text_view tensor) {
    int layer;
    (void)(take_prefix(&tensor, "model.language_model.") || (f->prefix && take_prefix(&tensor, f->prefix)) ||
           take_prefix(&tensor, "model."));
    return take_prefix(&tensor, "layers.") && take_number(&tensor, &layer) ? layer : -1;
}
