#include "search.h"

void search_begin(struct search *s, double min, double max, double tolerance) {
    *s = (struct search){.high = max, .max = max, .tolerance = tolerance, .asked = min};
}

double search_next(struct search *s) { return s->over ? 0 : s->asked; }

void search_tell(struct search *s, bool met) {
    if (met)
        s->low = s->asked;
    else {
        s->high = s->asked;
        s->bounded = true;
    }
    if (s->low <= 0) { // the least rate misses
        s->over = true;
    } else if (!s->bounded) {
        s->over = s->asked >= s->max;
        s->asked = s->asked * 2 < s->max ? s->asked * 2 : s->max;
    } else {
        s->over = s->high - s->low <= s->tolerance * s->low;
        s->asked = (s->low + s->high) / 2;
    }
}
