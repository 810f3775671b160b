// Rotary embedding: Su et al., "RoFormer", 2021. YaRN: Peng et al., "YaRN: Efficient Context Window Extension
// of Large Language Models", 2023. The Llama 3 scaling is Meta's, as in the released model code.
#include "rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

// The pair whose wave turns `turns` times in the original context.
static double yarn_pair(const struct rope_config *r, double turns) {
    return r->dim * log(r->original_context / (turns * two_pi)) / (2 * log((double)r->theta));
}

static double yarn(const struct rope_config *r, double freq, int i) {
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    low = fmax(r->fine_ramp ? low : floor(low), 0);
    high = fmin(r->fine_ramp ? high : ceil(high), r->dim - 1);
    double ramp = (i - low) / fmax(high - low, 0.001);
    ramp = fmin(fmax(ramp, 0), 1); // 0: fast pairs keep their frequency; 1: slow pairs are interpolated
    return freq / r->factor * ramp + freq * (1 - ramp);
}

static double llama3(const struct rope_config *r, double freq) {
    double turns = r->original_context * freq / two_pi;
    if (turns > r->high_freq)
        return freq;
    if (turns < r->low_freq)
        return freq / r->factor;
    double smooth = (turns - r->low_freq) / ((double)r->high_freq - r->low_freq);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

double rope_frequency(const struct rope_config *r, int i) {
    double freq = pow(r->theta, -2.0 * i / r->dim);
    if (r->freq_factors)
        freq /= r->freq_factors[i];
    switch (r->scaling) {
    case ROPE_NONE: break;
    case ROPE_LINEAR: freq /= r->factor; break;
    case ROPE_YARN: freq = yarn(r, freq, i); break;
    case ROPE_LLAMA3: freq = llama3(r, freq); break;
    }
    return freq;
}

double rope_magnitude(const struct rope_config *r) { return r->attn_factor > 0 ? r->attn_factor : 1; }

float attn_temperature(const struct attn_spec *a, int position) {
    return a->temp_scale > 0
               ? (float)(1 + (double)a->temp_scale * log(1 + (position + a->temp_offset) / a->temp_step))
               : 1;
}
