#include "rng.h"

#include <math.h>

// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix; passes BigCrush.
static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t rng_next(struct rng *r) {
    r->s += 0x9e3779b97f4a7c15u;
    return mix(r->s);
}

struct rng rng_seed(uint64_t seed, uint64_t stream) {
    struct rng r = {mix(seed + 0x9e3779b97f4a7c15u) ^ mix(stream * 0xd1342543de82ef95u + 1)};
    rng_next(&r);
    return r;
}

double rng_unit(struct rng *r) { return ((double)(rng_next(r) >> 12) + 0.5) * 0x1p-52; }

uint64_t rng_below(struct rng *r, uint64_t n) {
    // rejects the first 2^64 mod n values, so that none is likelier
    uint64_t least = (0 - n) % n, v;
    do
        v = rng_next(r);
    while (v < least);
    return v % n;
}

double rng_normal(struct rng *r) {
    double radius = sqrt(-2.0 * log(rng_unit(r)));
    return radius * cos(6.283185307179586 * rng_unit(r));
}

// Marsaglia and Tsang (2000); below shape 1 by the boost x(shape) = x(shape + 1) * u^(1/shape).
double rng_gamma(struct rng *r, double shape) {
    double boost = 1.0;
    if (shape < 1.0) {
        boost = pow(rng_unit(r), 1.0 / shape);
        shape += 1.0;
    }
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = rng_normal(r), v = 1.0 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(rng_unit(r)) < 0.5 * x * x + d - d * v + d * log(v))
            return boost * d * v;
    }
}
