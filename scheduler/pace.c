#include "pace.h"

// How much of a new measurement is believed: a step that the machine was taken away from should not set the
// pace.
static const double WEIGHT = 0.25;

static void average(double *value, double x) { *value += *value > 0 ? (x - *value) * WEIGHT : x; }

void pace_add(struct pace *p, int num_decode, int num_prompt, int64_t ns) {
    if (ns <= 0)
        return;
    if (num_prompt == 0)
        average(&p->decode_ns, (double)ns);
    // The weights are read once a step, whatever is in it: few tokens say little about one more.
    if (num_prompt < PACE_MIN_CHUNK)
        return;
    double rest = (double)ns - (num_decode > 0 ? p->decode_ns : 0), least = (double)ns / 8;
    average(&p->token_ns, (rest > least ? rest : least) / num_prompt);
}

int pace_chunk(const struct pace *p) {
    if (p->target_ns <= 0 || p->token_ns <= 0)
        return p->max_chunk;
    double left = (double)p->target_ns - p->decode_ns;
    double tokens = (left > p->decode_ns ? left : p->decode_ns) / p->token_ns;
    if (tokens < PACE_MIN_CHUNK)
        tokens = PACE_MIN_CHUNK;
    return tokens < p->max_chunk ? (int)tokens : p->max_chunk;
}
