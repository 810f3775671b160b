// Penalties and bias through the whole engine: tokens sampled from a real model have the distribution that its
// logits and the definitions of include/request.h give, worked out here a second time, in double.
#include "driver.h"

enum { SAMPLES = 6000, BATCH = 500, PROMPT = 9 };

static const token_id prompt[PROMPT] = {1, 403, 407, 261, 378, 403, 407, 432, 403};
static const struct sampling_params penalised = {
    .temperature = 1.7f, .repetition_penalty = 1.4f, .frequency_penalty = 0.9f, .presence_penalty = 0.6f};
static const struct logit_bias bias[] = {{403, 2.5f}, {300, 12}, {261, -3}, {432, -INFINITY}};
enum { NUM_BIAS = sizeof bias / sizeof bias[0] };

static const char *model(void) {
    const char *path = test_data("models/stories260K/stories260K.gguf");
    static char copy[4096];
    if (!path)
        skip();
    snprintf(copy, sizeof copy, "%s", path);
    return copy;
}

// Logits (V) after the tokens, without penalties and bias.
static void logits_after(const token_id *tokens, int n, float *logits, int vocab) {
    struct driver d;
    static struct got got;
    memset(&got, 0, sizeof got);
    driver_open(&d, &(struct driver_config){.path = model(), .keep_logits = true});
    driver_add(&d, tokens, n, 1, (struct sampling_params){0});
    driver_run(&d, &got);
    memcpy(logits, d.first_logits, (size_t)vocab * sizeof *logits);
    driver_close(&d);
}

static bool contains(const token_id *tokens, int n, token_id t) {
    for (int i = 0; i < n; i++)
        if (tokens[i] == t)
            return true;
    return false;
}

// p (V): what the next token's distribution must be after the prompt and `output` (n tokens).
static void distribution(const float *logits, int vocab, const token_id *output, int n, double *p) {
    double max = -INFINITY, sum = 0;
    for (int t = 0; t < vocab; t++) {
        double l = logits[t], rep = penalised.repetition_penalty;
        if (contains(prompt, PROMPT, t) || contains(output, n, t))
            l = l > 0 ? l / rep : l * rep;
        for (int i = 0; i < n; i++)
            l -= output[i] == t ? (double)penalised.frequency_penalty : 0;
        l -= contains(output, n, t) ? (double)penalised.presence_penalty : 0;
        for (int i = 0; i < NUM_BIAS; i++)
            l += bias[i].token == t ? (double)bias[i].add : 0;
        p[t] = l / (double)penalised.temperature;
        max = p[t] > max ? p[t] : max;
    }
    for (int t = 0; t < vocab; t++)
        sum += p[t] = exp(p[t] - max);
    for (int t = 0; t < vocab; t++)
        p[t] /= sum;
}

// Chi-square of counts over p in standard deviations of it; tokens expected fewer than 5 times share a bin.
static double deviation(const int *count, const double *p, int vocab, int n, const char *what) {
    double chi = 0, rest_p = 0, rest = 0;
    int freedom = -1;
    for (int t = 0; t < vocab; t++) {
        if (p[t] * n >= 5) {
            chi += (count[t] - p[t] * n) * (count[t] - p[t] * n) / (p[t] * n);
            freedom++;
        } else {
            rest_p += p[t];
            rest += count[t];
            assert_true(p[t] > 0 || count[t] == 0);
        }
    }
    if (rest_p * n >= 5) {
        chi += (rest - rest_p * n) * (rest - rest_p * n) / (rest_p * n);
        freedom++;
    }
    assert_true(freedom >= 5);
    printf("  %-28s chi-square %.1f, %d degrees of freedom, %d samples\n", what, chi, freedom, n);
    return fabs(chi - freedom) / sqrt(2.0 * freedom);
}

TEST(test_penalties) {
    struct driver d;
    driver_open(&d, &(struct driver_config){.path = model(), .max_running = BATCH, .max_step_tokens = BATCH});
    int vocab = engine_info(d.engine)->model.vocab;
    struct got *got = calloc(SAMPLES, sizeof *got);
    int *first = calloc((size_t)vocab, sizeof *first), *second = calloc((size_t)vocab, sizeof *second);
    float *logits = calloc((size_t)vocab, sizeof *logits);
    double *p = calloc((size_t)vocab, sizeof *p);
    assert_true(got && first && second && logits && p);
    for (int i = 0; i < SAMPLES; i++) {
        struct sampling_params sampling = penalised;
        sampling.seed = (uint64_t)i;
        driver_submit(&d, (struct request_params){.prompt = prompt,
                                                  .num_prompt = PROMPT,
                                                  .max_output = 2,
                                                  .sampling = sampling,
                                                  .bias = bias,
                                                  .num_bias = NUM_BIAS});
        if (i % BATCH == BATCH - 1)
            driver_run(&d, got);
    }
    driver_close(&d);

    token_id best = 0;
    for (int i = 0; i < SAMPLES; i++)
        first[got[i].tokens[0]]++;
    for (token_id t = 0; t < vocab; t++)
        best = first[t] > first[best] ? t : best;
    logits_after(prompt, PROMPT, logits, vocab);
    distribution(logits, vocab, NULL, 0, p);
    assert_true(deviation(first, p, vocab, SAMPLES, "first token") < 5);
    assert_int_equal(first[432], 0); // forbidden

    // The second token, of the requests whose first is the likeliest: now there is an output to penalise.
    token_id all[PROMPT + 1];
    int n = 0;
    for (int i = 0; i < SAMPLES; i++)
        if (got[i].tokens[0] == best) {
            second[got[i].tokens[1]]++;
            n++;
        }
    memcpy(all, prompt, sizeof prompt);
    all[PROMPT] = best;
    logits_after(all, PROMPT + 1, logits, vocab);
    distribution(logits, vocab, &best, 1, p);
    assert_true(deviation(second, p, vocab, n, "second token") < 5);
    // The test sees a penalty that is missing: without the output's, the numbers do not fit.
    distribution(logits, vocab, NULL, 0, p);
    assert_true(deviation(second, p, vocab, n, "without those of the output") > 5);
    free(got);
    free(first);
    free(second);
    free(logits);
    free(p);
}

int main(void) { return run_all_tests(NULL, NULL); }
