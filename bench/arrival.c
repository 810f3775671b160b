#include "arrival.h"

#include <math.h>

int64_t arrival_next(struct arrival *a) {
    double now = a->at, gap = 0;
    switch (a->kind) {
    case ARRIVAL_POISSON: gap = -log(rng_unit(&a->rng)) / a->rate; break;
    case ARRIVAL_GAMMA: gap = rng_gamma(&a->rng, a->burstiness) / (a->burstiness * a->rate); break;
    case ARRIVAL_CONSTANT: gap = 1.0 / a->rate; break;
    case ARRIVAL_CLOSED:
    case ARRIVAL_TRACE: break;
    }
    a->at += gap;
    return llround(now * 1e9);
}
