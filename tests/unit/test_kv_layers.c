// Layers and the groups of pages that hold their keys and values.
#include "harness.h"
#include "models/kv_layers.h"

#include <stdbool.h>

// A model in which of `period` layers the last has no window.
static struct model_config model_of(int num_layers, int period) {
    struct model_config c = {
        .num_layers = num_layers, .num_attn = 2, .attn = {{.window = 512}, {.window = 0}}};
    for (int i = 0; i < num_layers; i++)
        c.layers[i].attn = i % period == period - 1;
    return c;
}

// Every layer has a place of its own, among layers of its kind, and the places of a group are in the layers' order.
static void check_places(const struct model_config *c) {
    int used[KV_MAX_GROUPS] = {0};
    assert_true(c->num_groups >= 1 && c->num_groups <= KV_MAX_GROUPS);
    for (int i = 0; i < c->num_layers; i++) {
        const struct layer_spec *l = &c->layers[i];
        const struct kv_group_spec *g = &c->groups[l->kv_group];
        assert_true(l->kv_group < c->num_groups && l->kv_layer < c->kv_layers);
        assert_int_equal(g->window, model_attn(c, i)->window);
        assert_int_equal(g->kind, g->window ? KV_WINDOW : KV_FULL);
        int places = attn_kv_places(model_attn(c, i));
        assert_int_equal(l->kv_layer, used[l->kv_group]++ * places);
        assert_true(l->kv_layer + places <= c->kv_layers);
        assert_true(attn_kv_size(model_attn(c, i)) <= places * model_kv_size(c));
    }
    for (int g = 0; g < c->num_groups; g++)
        assert_true(used[g] == c->groups[g].num_layers && used[g] >= 1);
}

TEST(test_shapes) {
    static const struct {
        int num_layers, period, kv_layers, num_groups;
    } cases[] = {
        {30, 5, 6, 5},  // 24 and 6: no room is lost
        {26, 2, 13, 2}, // 13 and 13
        {34, 6, 5, 7},  // 29 and 5: one place is empty
        {62, 6, 10, 7}, // 52 and 10
        {24, 1, 24, 1}, // no window
        {3, 4, 3, 1},   // windows alone
        {40, 13, 6, 8}, // 37 and 3: groups of 3 were too many
        {1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c = model_of(cases[i].num_layers, cases[i].period);
        kv_layers_group(&c);
        check_places(&c);
        if (c.kv_layers != cases[i].kv_layers || c.num_groups != cases[i].num_groups)
            fail_msg("%d layers, one of %d full: %d groups of %d", c.num_layers, cases[i].period,
                     c.num_groups, c.kv_layers);
    }
}

TEST(test_all) {
    for (int n = 1; n <= 128; n++)
        for (int period = 1; period <= n; period++) {
            struct model_config c = model_of(n, period);
            kv_layers_group(&c);
            check_places(&c);
        }
}

// Layers with a window keep `window` values of a token, the others `full`.
TEST(test_sizes) {
    static const struct {
        int num_layers, period, window, full, places[2], kv_layers, num_groups;
    } cases[] = {
        {30, 5, 64, 64, {1, 1}, 6, 5},
        {15, 5, 64, 128, {1, 2}, 6, 3},   // 12 places for windows, 6 for the others
        {60, 6, 256, 128, {2, 1}, 16, 8}, // 50 of two places, 10 of one: seven groups of 8 and one of 10
        {6, 6, 64, 200, {1, 4}, 4, 3},    // a place has room for 64
        {2, 2, 96, 64, {2, 1}, 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c = model_of(cases[i].num_layers, cases[i].period);
        c.attn[0].kv_heads = c.attn[1].kv_heads = 2;
        c.attn[0].head_dim = cases[i].window / 2, c.attn[1].head_dim = cases[i].full / 2;
        kv_layers_group(&c);
        check_places(&c);
        for (int a = 0; a < 2; a++)
            assert_int_equal(c.attn[a].kv_places, cases[i].places[a]);
        if (c.kv_layers != cases[i].kv_layers || c.num_groups != cases[i].num_groups)
            fail_msg("case %zu: %d groups of %d", i, c.num_groups, c.kv_layers);
    }
}

// Layers that share keys and values take no place of their own, but that of the last one like them.
TEST(test_shared) {
    struct model_config c = {.num_layers = 8, .num_attn = 4};
    for (int i = 0; i < 4; i++)
        c.attn[i] =
            (struct attn_spec){.kv_heads = 2, .head_dim = i % 2 ? 32 : 16, .rope = i % 2, .shares_kv = i > 1};
    for (int i = 0; i < 8; i++)
        c.layers[i].attn = (uint8_t)(i % 2 + (i < 4 ? 0 : 2));
    kv_layers_group(&c);
    assert_true(c.num_groups == 3 && c.kv_layers == 2 && c.groups[0].num_layers == 2);
    for (int i = 4; i < 8; i++)
        assert_true(c.layers[i].kv_group == c.layers[2 + i % 2].kv_group &&
                    c.layers[i].kv_layer == c.layers[2 + i % 2].kv_layer);
    assert_true(c.layers[5].kv_group != c.layers[4].kv_group && c.layers[4].kv_layer == 1);
    // Heads of one size that rotate in two ways: all in one group.
    for (int i = 0; i < 4; i++)
        c.attn[i].head_dim = 16;
    kv_layers_group(&c);
    assert_true(c.num_groups == 1 && c.kv_layers == 4);
    for (int i = 4; i < 8; i++)
        assert_int_equal(c.layers[i].kv_layer, 2 + i % 2);
}

// States come last, in as few groups as keep a page of them no larger than one of 256 tokens, and no more than are left.
TEST(test_states) {
    static const struct {
        int num_layers, period, key_dim, kv_layers, state_layers, num_groups;
    } cases[] = {
        {16, 4, 0, 4, 12, 2},    // windows alone
        {24, 4, 128, 6, 3, 7},   // 18 states of 1 MiB beside pages of 3 MiB
        {24, 4, 8, 6, 18, 2},    // small ones
        {48, 4, 4096, 12, 6, 7}, // no more groups are left
        {2, 2, 4096, 1, 1, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c = {
            .num_layers = cases[i].num_layers,
            .num_attn = 1,
            .num_mix = 1,
            .attn = {{.heads = 2, .kv_heads = 2, .head_dim = 256}},
            .mix = {{.kind = MIX_DELTA, .heads = 16, .groups = 16, .head_dim = 128, .taps = 4}}};
        c.mix[0].key_dim = cases[i].key_dim;
        for (int l = 0; l < c.num_layers; l++) {
            bool attends = l % cases[i].period == cases[i].period - 1;
            c.layers[l].attn = attends ? 0 : MODEL_NO_SPEC;
            c.layers[l].mix = attends ? MODEL_NO_SPEC : 0;
        }
        kv_layers_group(&c);
        if (c.kv_layers != cases[i].kv_layers || c.state_layers != cases[i].state_layers ||
            c.num_groups != cases[i].num_groups)
            fail_msg("case %zu: %d groups of %d and %d", i, c.num_groups, c.kv_layers, c.state_layers);
        int used[KV_MAX_GROUPS] = {0};
        for (int l = 0; l < c.num_layers; l++) {
            const struct layer_spec *s = &c.layers[l];
            int g = model_mix(&c, l) ? s->state_group : s->kv_group;
            assert_int_equal(c.groups[g].kind, model_mix(&c, l) ? KV_STATE : KV_FULL);
            assert_int_equal(model_mix(&c, l) ? s->state_layer : s->kv_layer, used[g]++);
        }
        for (int g = 0; g < c.num_groups; g++)
            assert_true(used[g] == c.groups[g].num_layers && used[g] >= 1);
    }
}

// As many kinds as there may be specs.
TEST(test_many_kinds) {
    struct model_config c = {.num_layers = 64, .num_attn = MODEL_MAX_SPECS};
    for (int i = 0; i < MODEL_MAX_SPECS; i++)
        c.attn[i].window = 64 * i;
    for (int i = 0; i < c.num_layers; i++)
        c.layers[i].attn = (uint8_t)(i * i % MODEL_MAX_SPECS);
    kv_layers_group(&c);
    check_places(&c);
}

int main(void) { return run_all_tests(NULL, NULL); }
