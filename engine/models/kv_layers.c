#include "kv_layers.h"

struct kinds { // layers that keep the same
    int num;
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
        int window = model_attn(c, i)->window, at = kind_of(&k, window);
        k.num += at == k.num;
        k.window[at] = window;
        k.count[at]++;
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

// There is one: with as many layers a page as the model has, a kind is a group.
static int choose_kv_layers(const struct kinds *k, int num_layers) {
    int best = num_layers;
    for (int n = num_layers - 1; n > 0; n--)
        if (cost_of(k, n).groups <= KV_MAX_GROUPS && is_cheaper(cost_of(k, n), cost_of(k, best)))
            best = n;
    return best;
}

void kv_layers_group(struct model_config *c) {
    struct kinds k = find_kinds(c);
    int open[MODEL_MAX_SPECS]; // 1 + the group that the next layer of a kind goes to, 0: a new one
    for (int i = 0; i < k.num; i++)
        open[i] = 0;
    c->kv_layers = choose_kv_layers(&k, c->num_layers);
    c->num_groups = 0;
    for (int i = 0; i < c->num_layers; i++) {
        int window = model_attn(c, i)->window, kind = kind_of(&k, window);
        if (open[kind] == 0 || c->groups[open[kind] - 1].num_layers == c->kv_layers) {
            c->groups[c->num_groups] =
                (struct kv_group_spec){.kind = window ? KV_WINDOW : KV_FULL, .window = window};
            open[kind] = ++c->num_groups;
        }
        struct kv_group_spec *group = &c->groups[open[kind] - 1];
        c->layers[i].kv_group = (uint8_t)(open[kind] - 1);
        c->layers[i].kv_layer = (uint16_t)group->num_layers++;
    }
}
