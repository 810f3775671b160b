#include "pace.h"

// How much of a new measurement is believed: a step that the machine was taken away from should not set the
// pace.
static const double WEIGHT = 0.25;

static void average(double *value, double x) { *value += *value > 0 ? (x - *value) * WEIGHT : x; }

// The ns of num_decode decodes without prompts. Fewer than were measured take as long, or nearly: the step reads the
// weights all the same.
static double decode_ns(const struct pace *p, int num_decode) {
    double more = num_decode - p->num_decode;
    return num_decode == 0 ? 0 : p->decode_ns + (p->decode_ns > 0 && more > 0 ? more * p->token_ns : 0);
}

void pace_add(struct pace *p, int num_decode, int num_prompt, int64_t ns) {
    if (ns <= 0)
        return;
    if (num_prompt == 0) {
        average(&p->decode_ns, (double)ns);
        average(&p->num_decode, num_decode);
    }
    // The weights are read once a step, whatever is in it: few tokens say little about one more.
    if (num_prompt < PACE_MIN_CHUNK)
        return;
    // Where every step has prompts, decodes are what prompts alone would not have taken: before any was
    // alone, and again when a whole step takes less than they are believed to.
    double left = (double)ns - num_prompt * p->token_ns;
    if (p->decode_ns > 0 ? (double)ns < p->decode_ns : p->token_ns > 0 && num_decode > 0) {
        p->decode_ns = left > (double)ns / 8 ? left : (double)ns / 8;
        p->num_decode = num_decode;
    }
    double rest = (double)ns - decode_ns(p, num_decode), least = (double)ns / 8;
    average(&p->token_ns, (rest > least ? rest : least) / num_prompt);
}

int pace_chunk(const struct pace *p, int num_decode) {
    if (p->target_ns <= 0 || p->token_ns <= 0)
        return p->max_chunk;
    double decodes = decode_ns(p, num_decode), left = (double)p->target_ns - decodes;
    double tokens = (left > 2 * decodes ? left : 2 * decodes) / p->token_ns;
    if (tokens < PACE_MIN_CHUNK)
        tokens = PACE_MIN_CHUNK;
    return tokens < p->max_chunk ? (int)tokens : p->max_chunk;
}

int64_t pace_expect(const struct pace *p, int num_decode, int num_prompt) {
    double token = p->token_ns;
    if (token <= 0 && p->decode_ns > 0)
        token = p->num_decode > 1 ? p->decode_ns / p->num_decode : p->decode_ns;
    return (int64_t)(decode_ns(p, num_decode) + num_prompt * token);
}
