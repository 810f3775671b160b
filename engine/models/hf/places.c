// See places.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "places.h"

#include "families_shared.h"
#include "models/architectures.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct hf_name whole_names[] = {
    {"model.embed_tokens", .ours = "token_embd"},
    {"model.norm", .ours = "output_norm"},
    {"lm_head", .ours = "output"},
    {"score", .ours = "cls.output"},
    {"model.rotary_emb.inv_freq", .ours = ""},
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
    // of an MTP layer: DeepSeek's and GLM's
    {"eh_proj", .ours = "nextn.eh_proj"},
    {"enorm", .ours = "nextn.enorm"},
    {"hnorm", .ours = "nextn.hnorm"},
    {"shared_head.norm", .ours = "nextn.shared_head_norm"},
    {"shared_head.head", .ours = "nextn.shared_head_head"},
    {"embed_tokens", .ours = "nextn.embed_tokens"},
    // MiMo's
    {"input_proj", .ours = "nextn.he_proj"},
    {"token_layernorm", .ours = "nextn.enorm"},
    {"hidden_layernorm", .ours = "nextn.hnorm"},
    {"final_layernorm", .ours = "nextn.shared_head_norm"},
    // left behind by old versions; computed anew
    {"self_attn.rotary_emb.inv_freq", .ours = ""},
    {"self_attn.rotary_emb.cos_cached", .ours = ""},
    {"self_attn.rotary_emb.sin_cached", .ours = ""},
    {"self_attn.bias", .ours = ""},
    {"self_attn.masked_bias", .ours = ""},
    {.theirs = NULL},
};

// Of Qwen's MTP layer, behind "mtp.", beside those of "mtp.layers.0."
static const struct hf_name mtp_names[] = {
    {"fc", .ours = "nextn.eh_proj"},
    {"pre_fc_norm_embedding", .ours = "nextn.enorm"},
    {"pre_fc_norm_hidden", .ours = "nextn.hnorm"},
    {"norm", .ours = "nextn.shared_head_norm"},
    {.theirs = NULL},
};

// Of ERNIE's, behind "model.", with the layer's number at the end; the layer itself is "mtp_block.0."
static const struct hf_name ernie_mtp_names[] = {
    {"mtp_linear_proj.0", .ours = "nextn.eh_proj"},
    {"mtp_emb_norm.0", .ours = "nextn.enorm"},
    {"mtp_hidden_norm.0", .ours = "nextn.hnorm"},
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

// The places of a tensor, without ".weight" and the like, of the language model.
static bool find_text_places(const struct hf_family *f, struct text_view tensor, struct hf_place place,
                             void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    struct text_view rest = tensor;
    if (take_prefix(&rest, "model.") && take_prefix(&rest, f->layers ? f->layers : "layers."))
        return take_number(&rest, &place.layer) && take_prefix(&rest, ".") &&
               (find_places(f->names, rest, &place, fn, arg) ||
                find_places(layer_names, rest, &place, fn, arg));
    return find_places(f->whole, tensor, &place, fn, arg) ||
           find_places(whole_names, tensor, &place, fn, arg);
}

// Also of one that was saved without the head, and so without "model.".
static bool find_with_model(const struct hf_family *f, struct text_view tensor, struct hf_place place,
                            void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    char full[256];
    if (find_text_places(f, tensor, place, fn, arg))
        return true;
    if (tensor.len >= sizeof full - 8)
        return false;
    int n = snprintf(full, sizeof full, "model.%.*s", (int)tensor.len, tensor.data);
    return find_text_places(f, (struct text_view){full, (size_t)n}, place, fn, arg);
}

// Nemotron 3's MTP layer is two of one part each: the first attends and has what is in front, the second is a feed-forward
// with the last norm. They make one layer.
static bool find_of_two(struct text_view tensor, int number, struct hf_place place,
                        void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    static const struct hf_name attends[] = {{"norm", .ours = "attn_norm"},
                                             {"mixer.q_proj", .ours = "attn_q"},
                                             {"mixer.k_proj", .ours = "attn_k"},
                                             {"mixer.v_proj", .ours = "attn_v"},
                                             {"mixer.o_proj", .ours = "attn_output"},
                                             {"eh_proj", .ours = "nextn.eh_proj"},
                                             {"enorm", .ours = "nextn.enorm"},
                                             {"hnorm", .ours = "nextn.hnorm"},
                                             {.theirs = NULL}};
    static const struct hf_name feeds[] = {{"norm", .ours = "ffn_norm"},
                                           NEMOTRON_H_EXPERTS,
                                           {"final_layernorm", .ours = "nextn.shared_head_norm"},
                                           {.theirs = NULL}};
    const struct hf_name *names = number == 0 ? attends : feeds;
    if (number > 1)
        return false;
    if (find_places(names, tensor, &place, fn, arg)) // a parameter of no module has no end
        return true;
    return take_end(&tensor, ".weight") && find_places(names, tensor, &place, fn, arg);
}

static bool find_in_layer(const struct hf_family *f, struct text_view rest, struct hf_place place,
                          void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    return find_places(f->names, rest, &place, fn, arg) || find_places(layer_names, rest, &place, fn, arg);
}

// The places of a tensor of the first MTP layer of those that are apart from the model's layers.
static bool find_mtp_places(const struct hf_family *f, struct text_view tensor,
                            void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    struct hf_place place = {.layer = HF_MTP_LAYER};
    bool apart = take_prefix(&tensor, "model.mtp_layers.") || take_prefix(&tensor, "model.mtp_block.");
    bool whole = !apart && take_prefix(&tensor, "mtp.");
    bool ernie = !apart && !whole && take_prefix(&tensor, "model.");
    int number = 0;
    if (ernie)
        return take_end(&tensor, ".weight") && find_places(ernie_mtp_names, tensor, &place, fn, arg);
    if (whole && take_prefix(&tensor, "layers."))
        apart = true;
    if ((!apart && !whole) || (apart && (!take_number(&tensor, &number) || !take_prefix(&tensor, "."))))
        return false;
    if (apart && arch_find(f->arch, strlen(f->arch))->traits & TRAIT_ONE_PART)
        return find_of_two(tensor, number, place, fn, arg);
    if (number > 0)
        return false;
    if (!apart)
        return take_end(&tensor, ".weight") && find_places(mtp_names, tensor, &place, fn, arg);
    bool found = find_in_layer(f, tensor, place, fn, arg); // a parameter of no module has no end
    if (!found && !take_end(&tensor, ".weight"))
        place.bias = take_end(&tensor, ".bias");
    return found || find_in_layer(f, tensor, place, fn, arg);
}

enum hf_part hf_places(const struct hf_family *f, struct text_view tensor,
                       void (*fn)(void *arg, const struct hf_place *place), void *arg) {
    static const char *const others[] = {"vision_tower.",
                                         "vision_model.",
                                         "visual.",
                                         "audio_tower.",
                                         "embed_vision.",
                                         "embed_audio.",
                                         "multi_modal_projector.",
                                         "vision_encoder",
                                         "connector.",
                                         "mm_projector.",
                                         "vision_projection.",
                                         "audio_projection.",
                                         "mlp1.",
                                         "image_newline",
                                         "vision_embedder.",
                                         "patch_merger.",
                                         "vision_adapter.",
                                         "mtp.",
                                         "mtp_layers.",
                                         "mtp_block.",
                                         "mtp_linear_proj.",
                                         "mtp_emb_norm.",
                                         "mtp_hidden_norm."};
    struct hf_place place = {.layer = -1};
    struct text_view bare = tensor;
    if (find_mtp_places(f, tensor, fn, arg))
        return HF_TEXT;
    take_prefix(&bare, "model.");
    for (int i = 0; i < COUNT(others); i++)
        if (take_prefix(&bare, others[i]))
            return HF_OTHER;
    char plain[256]; // with "model." where a wrapper's name stood, or the family's
    struct text_view rest = tensor;
    bool wrapped = take_prefix(&rest, "model.language_model.") || take_prefix(&rest, "model.text_model.") ||
                   (f->prefix && take_prefix(&rest, f->prefix));
    if (wrapped && rest.len < sizeof plain - 8)
        tensor = (struct text_view){
            plain, (size_t)snprintf(plain, sizeof plain, "model.%.*s", (int)rest.len, rest.data)};
    else
        take_prefix(&tensor, "language_model.");
    bool found = find_with_model(f, tensor, place, fn, arg); // a mask may be called "bias"
    if (!found && !take_end(&tensor, ".weight"))
        place.bias = take_end(&tensor, ".bias");
    found = found || find_with_model(f, tensor, place, fn, arg);
    return found ? HF_TEXT : HF_UNKNOWN;
}

int hf_name_layer(const struct hf_family *f, struct text_view tensor) {
    int layer;
    (void)(take_prefix(&tensor, "model.language_model.") || take_prefix(&tensor, "language_model.model.") ||
           (f->prefix && take_prefix(&tensor, f->prefix)) || take_prefix(&tensor, "model."));
    return take_prefix(&tensor, "layers.") && take_number(&tensor, &layer) ? layer : -1;
}

// ---- from ours to theirs

// Whether a name of the folder has nothing behind it: a parameter of no module, as experts of one tensor.
static bool is_bare(const struct hf_name *n) {
    size_t len = strlen(n->theirs);
    bool experts =
        (strstr(n->theirs, ".experts.") || strncmp(n->theirs, "experts.", 8) == 0) && !strchr(n->theirs, '#');
    return n->end || experts || (len > 5 && strcmp(n->theirs + len - 5, "sinks") == 0);
}

static bool write_label(const struct hf_name *names, const char *before, const char *base, const char *end,
                        char *buf, size_t size) {
    for (; names && names->theirs; names++) {
        const char *their_end = is_bare(names) ? "" : end, *hash = strchr(names->theirs, '#');
        size_t len = strlen(names->ours);
        if (len == 0 || strncmp(base, names->ours, len) != 0 ||
            strcmp(base + len, names->end ? names->end : end) != 0)
            continue;
        int until = hash ? (int)(hash - names->theirs) : (int)strlen(names->theirs);
        snprintf(buf, size, "%s%.*s%s%s%s", before, until, names->theirs, hash ? "0" : "",
                 hash ? hash + 1 : "", their_end);
        return true;
    }
    return false;
}

bool hf_place_label(const struct hf_family *f, const char *ours, char *buf, size_t size) {
    struct text_view rest = {ours, strlen(ours)};
    const char *dot = strrchr(ours, '.'), *end = dot ? dot : "";
    char before[64];
    int layer;
    if (!take_prefix(&rest, "blk."))
        return write_label(f->whole, "", ours, end, buf, size) ||
               write_label(whole_names, "", ours, end, buf, size);
    if (!take_number(&rest, &layer) || !take_prefix(&rest, "."))
        return false;
    snprintf(before, sizeof before, "%s%s%d.", f->prefix ? f->prefix : "model.",
             f->layers ? f->layers : "layers.", layer);
    return write_label(f->names, before, rest.data, end, buf, size) ||
           write_label(layer_names, before, rest.data, end, buf, size);
}
