// The highest rate that meets the goals: doubles until one misses, then bisects. Pure.
#pragma once

#include <stdbool.h>

struct search {
    double low, high, max, tolerance; // low: the highest that met (0: none yet)
    double asked;
    bool bounded; // some rate missed
    bool over;
};

void search_begin(struct search *s, double min, double max, double tolerance);
double search_next(struct search *s);         // the rate to try; 0: done, the answer is `low` (0: none)
void search_tell(struct search *s, bool met); // about the rate that search_next() gave
