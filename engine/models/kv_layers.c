#include "kv_layers.h"

struct kinds {                       // layers that keep the same
    int num, num_places, num_states; // kinds of attention; places that all layers take; layers with a state
    int window[MODEL_MAX_SPECS], places[MODEL_MAX_SPECS], count[MODEL_MAX_SPECS];
};

// A window that moves on gives back what is before it; of a sequence that is computed whole it never does.
static int kept_window(const struct attn_spec *a) { return a->bidirectional ? 0 : a->window; }

static int kind_of(const struct kinds *k, const struct attn_spec *a) {
    int i = 0;
    while (i < k->num && (k->window[i] != kept_window(a) || k->places[i] != attn_kv_places(a)))
        i++;
    return i;
}

// A place has room for the keys of the layers that keep the least.
static void choose_places(struct model_config *c) {
    int least = 0;
    for (int i = 0; i < c->num_attn; i++) {
        int size = attn_kv_size(&c->attn[i]);
        least = least == 0 || size < least ? size : least;
    }
    for (int i = 0; i < c->num_attn && least > 0; i++)
        c->attn[i].kv_places = (attn_kv_size(&c->attn[i]) + least - 1) / least;
}

static struct kinds find_kinds(const struct model_config *c) {
    struct kinds k = {0};
    for (int i = 0; i < c->num_layers; i++) {
        const struct attn_spec *a = model_attn(c, i);
        k.num_states += model_mix(c, i) != NULL;
        if (!a || a->shares_kv)
            continue;
        int at = kind_of(&k, a);
        k.num += at == k.num;
        k.window[at] = kept_window(a);
        k.places[at] = attn_kv_places(a);
        k.count[at]++;
        k.num_places += k.places[at];
    }
    return k;
}

struct cost { // of a choice, the most important first
    int full, window, groups;
};

// The cost of pages of `places` places, no fewer than a layer takes.
static struct cost cost_of(const struct kinds *k, int places) {
    struct cost cost = {0};
    for (int i = 0; i < k->num; i++) {
        int per_page = places / k->places[i], groups = (k->count[i] + per_page - 1) / per_page;
        int unused = groups * places - k->count[i] * k->places[i];
        cost.groups += groups;
        *(k->window[i] ? &cost.window : &cost.full) += unused;
    }
    return cost;
}

static bool is_cheaper(struct cost a, struct cost b) {
    if (a.full != b.full)
        return a.full < b.full;
    return a.window != b.window ? a.window < b.window : a.groups < b.groups;
}

_Static_assert((int)MODEL_MAX_SPECS <= (int)KV_MAX_GROUPS, "every kind of layer has a group");

// There is one: where a page has places for all layers, a kind is a group. States have one at least.
static int choose_kv_layers(const struct kinds *k) {
    int best = k->num_places, most = KV_MAX_GROUPS - (k->num_states > 0), least = 1;
    for (int i = 0; i < k->num; i++)
        least = k->places[i] > least ? k->places[i] : least;
    for (int n = k->num_places - 1; n >= least; n--)
        if (cost_of(k, n).groups <= most && is_cheaper(cost_of(k, n), cost_of(k, best)))
            best = n;
    return best;
}

static int choose_state_layers(const struct model_config *c, const struct kinds *k) {
    int64_t page = (int64_t)4 * KV_LAYERS_BLOCK * c->kv_layers * model_kv_size(c); // bytes
    int groups = 0, layers = k->num_states;
    if (c->kv_layers == 0) // no layer attends: a page is what a sequence keeps
        return layers;
    do {
        groups++;
        layers = (k->num_states + groups - 1) / groups;
    } while (c->num_groups + groups < KV_MAX_GROUPS && layers > 1 &&
             layers * model_state_size(c) * (int64_t)sizeof(float) > page);
    return layers;
}

// Places for layers with a state, in their order.
static void group_states(struct model_config *c, const struct kinds *k) {
    if (k->num_states > 0)
        c->state_layers = choose_state_layers(c, k);
    for (int i = 0, n = 0; i < c->num_layers; i++) {
        if (!model_mix(c, i))
            continue;
        if (n % c->state_layers == 0)
            c->groups[c->num_groups++] = (struct kv_group_spec){.kind = KV_STATE};
        c->layers[i].state_group = (uint8_t)(c->num_groups - 1);
        c->layers[i].state_layer = (uint16_t)(n++ % c->state_layers);
        c->groups[c->num_groups - 1].num_layers++;
    }
}

// Layers that share have the place of the last one before them that attends alike.
static void share_places(struct model_config *c) {
    for (int i = 0; i < c->num_layers; i++) {
        const struct attn_spec *a = model_attn(c, i);
        for (int from = i - 1; a && a->shares_kv && from >= 0; from--) {
            const struct attn_spec *b = model_attn(c, from);
            if (!b || b->shares_kv || b->window != a->window || b->rope != a->rope ||
                b->head_dim != a->head_dim)
                continue;
            c->layers[i].kv_group = c->layers[from].kv_group;
            c->layers[i].kv_layer = c->layers[from].kv_layer;
            break;
        }
    }
}

void kv_layers_group(struct model_config *c) {
    choose_places(c);
    struct kinds k = find_kinds(c);
    int open[MODEL_MAX_SPECS]; // 1 + the group that the next layer of a kind goes to, 0: a new one
    for (int i = 0; i < k.num; i++)
        open[i] = 0;
    c->kv_layers = choose_kv_layers(&k);
    c->num_groups = c->state_layers = 0;
    for (int i = 0; i < c->num_layers; i++) {
        const struct attn_spec *a = model_attn(c, i);
        if (!a || a->shares_kv)
            continue;
        int window = kept_window(a), kind = kind_of(&k, a), per_page = c->kv_layers / k.places[kind];
        if (open[kind] == 0 || c->groups[open[kind] - 1].num_layers == per_page) {
            c->groups[c->num_groups] = (struct kv_group_spec){
                .kind = window ? KV_WINDOW : KV_FULL, .window = window, .chunked = a->chunked};
            open[kind] = ++c->num_groups;
        }
        struct kv_group_spec *group = &c->groups[open[kind] - 1];
        c->layers[i].kv_group = (uint8_t)(open[kind] - 1);
        c->layers[i].kv_layer = (uint16_t)(group->num_layers++ * k.places[kind]);
    }
    share_places(c);
    group_states(c, &k);
}
