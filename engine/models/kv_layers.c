#include "kv_layers.h"

struct kinds {                     // layers that keep the same
    int num, num_attn, num_states; // kinds of attention; layers that attend; layers with a state
    int window[MODEL_MAX_SPECS], count[MODEL_MAX_SPECS];
};

static int kind_of(const struct kinds *k, int window) {
    int i = 0;
    while (i < k->num && k->window[i] != window)
        i++;
    return i;
}

static struct kinds find_kinds(const struct model_config *c) {
    struct kinds k = {0};
    for (int i = 0; i < c->num_layers; i++) {
        const struct attn_spec *a = model_attn(c, i);
        k.num_states += model_mix(c, i) != NULL;
        if (!a)
            continue;
        int at = kind_of(&k, a->window);
        k.num += at == k.num;
        k.window[at] = a->window;
        k.count[at]++;
        k.num_attn++;
    }
    return k;
}

struct cost { // of a choice, the most important first
    int full, window, groups;
};

static struct cost cost_of(const struct kinds *k, int per_page) {
    struct cost cost = {0};
    for (int i = 0; i < k->num; i++) {
        int groups = (k->count[i] + per_page - 1) / per_page, unused = groups * per_page - k->count[i];
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

// There is one: with as many layers a page as attend, a kind is a group. States have one at least.
static int choose_kv_layers(const struct kinds *k) {
    int best = k->num_attn, most = KV_MAX_GROUPS - (k->num_states > 0);
    for (int n = k->num_attn - 1; n > 0; n--)
        if (cost_of(k, n).groups <= most && is_cheaper(cost_of(k, n), cost_of(k, best)))
            best = n;
    return best;
}

static int choose_state_layers(const struct model_config *c, const struct kinds *k) {
    const struct attn_spec *a = &c->attn[0];
    int64_t page = (int64_t)4 * KV_LAYERS_BLOCK * c->kv_layers * a->kv_heads * a->head_dim; // bytes
    int groups = 0, layers = k->num_states;
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

void kv_layers_group(struct model_config *c) {
    struct kinds k = find_kinds(c);
    int open[MODEL_MAX_SPECS]; // 1 + the group that the next layer of a kind goes to, 0: a new one
    for (int i = 0; i < k.num; i++)
        open[i] = 0;
    c->kv_layers = choose_kv_layers(&k);
    c->num_groups = c->state_layers = 0;
    for (int i = 0; i < c->num_layers; i++) {
        const struct attn_spec *a = model_attn(c, i);
        if (!a)
            continue;
        int window = a->window, kind = kind_of(&k, window);
        if (open[kind] == 0 || c->groups[open[kind] - 1].num_layers == c->kv_layers) {
            c->groups[c->num_groups] = (struct kv_group_spec){
                .kind = window ? KV_WINDOW : KV_FULL, .window = window, .chunked = a->chunked};
            open[kind] = ++c->num_groups;
        }
        struct kv_group_spec *group = &c->groups[open[kind] - 1];
        c->layers[i].kv_group = (uint8_t)(open[kind] - 1);
        c->layers[i].kv_layer = (uint16_t)group->num_layers++;
    }
    group_states(c, &k);
}
