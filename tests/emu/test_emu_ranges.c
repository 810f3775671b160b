// Ranges of a profiler: which a step has, and that they are balanced, also where it fails midway.
#include "harness.h"

#include "backend_cuda.h"
#define FIXTURE_INSPECT &inspect_cuda
#include "fixture.h"

#include "../../kernels/cuda/device.h"

static const struct shape SHAPE = {1, 64, 2, 1, 64, 44, 97, 0, false, false, false};

static void run_step(struct instance *in, struct piece piece, enum status want) {
    struct step_out out;
    struct batch *b = batch_make(in, &piece, 1);
    forward(in, &b->step);
    assert_int_equal(in->ops->sync(in->dev, &out, NULL), want);
    free(b);
}

TEST(test_ranges) {
    static const char *const want[] = {
        "step 1: 0 decode, 3 "
        "prefill{upload{}embed{}qkv{}attn_prefill{}attn_out{}ffn_in{}ffn_out{}head{sample{}}}sync{}",
        "step 2: 1 decode, 0 "
        "prefill{upload{}embed{}qkv{}attn_decode{}attn_out{}ffn_in{}ffn_out{}head{sample{}}}sync{}",
        "step 3: 1 decode, 0 "
        "prefill{upload{}embed{}qkv{}attn_decode{}attn_out{}ffn_in{}ffn_out{}head{sample{}}}sync{}",
        "step 4: 1 decode, 0 prefill{upload{}graph{}}sync{}",
    };
    struct fixture *f = fixture_make(&SHAPE, DTYPE_BF16);
    struct setup s = {&backend_cuda, NULL, 1, 16, DTYPE_F16};
    struct instance *in = instance_open_as(f, s, INSTANCE_NO_LOGITS, 8, 64, 1);
    assert_string_equal(rt_test_ranges(in->dev->rt), "");
    for (int t = 0; t < 4; t++) {
        run_step(in, (struct piece){0, t == 0 ? 0 : 2 + t, t == 0 ? 3 : 1, false}, STATUS_OK);
        const char *got = rt_test_ranges(in->dev->rt);
        if (strcmp(got, want[t]) != 0 && in->dev->info.emulated)
            fail_msg("%s", got);
    }
    instance_close(in);
    fixture_free(f);
}

static void fail_midway(struct device *dev, const struct layer *layer, const struct step *step) {
    rt_fail(dev->rt, "it was asked to fail");
    backend_cuda.attn_out(dev, layer, step);
}

TEST(test_failed_step) {
    struct backend_ops ops = backend_cuda;
    ops.attn_out = fail_midway;
    struct fixture *f = fixture_make(&SHAPE, DTYPE_BF16);
    struct setup s = {&ops, NULL, 1, 16, DTYPE_F16};
    for (int captured = 0; captured < 2; captured++) {
        struct instance *in = instance_open_as(f, s, INSTANCE_NO_LOGITS, 8, 64, 1);
        ops.attn_out = captured ? backend_cuda.attn_out : fail_midway;
        if (captured)
            run_step(in, (struct piece){0, 0, 1, false}, STATUS_OK);
        ops.attn_out = fail_midway;
        rt_test_ranges(in->dev->rt);
        run_step(in, (struct piece){0, captured, 1, false}, STATUS_DEVICE);
        const char *got = rt_test_ranges(in->dev->rt);
        int depth = 0;
        for (const char *c = got; *c && depth >= 0; c++)
            depth += *c == '{' ? 1 : *c == '}' ? -1 : 0;
        assert_int_equal(depth, 0);
        assert_true(!in->dev->info.emulated ||
                    strstr(got, "attn_out{}ffn_in{}ffn_out{}head{sample{}}}sync{}"));
        instance_close(in);
    }
    fixture_free(f);
}

int main(void) { return run_all_tests(NULL, NULL); }
