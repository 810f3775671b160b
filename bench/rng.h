// Random numbers: the same sequence for the same seed on every machine. Not for secrets.
#pragma once

#include <stdint.h>

struct rng {
    uint64_t s;
};

// A generator of its own for each (seed, stream): the arrivals do not move when the prompts take more.
struct rng rng_seed(uint64_t seed, uint64_t stream);
uint64_t rng_next(struct rng *r);
double rng_unit(struct rng *r);                // (0, 1): never 0, so that its logarithm is finite
uint64_t rng_below(struct rng *r, uint64_t n); // 0..n-1; n > 0
double rng_normal(struct rng *r);              // mean 0, deviation 1
double rng_gamma(struct rng *r, double shape); // scale 1, mean shape; shape > 0
