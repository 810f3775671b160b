// Stop strings on the engine thread: a detok whose text is not used.
#include "text.h"

#include <stdlib.h>

static bool ends(void *state, token_id token) {
    const char *text;
    size_t len;
    return detok_push(state, token, &text, &len);
}

static void free_state(void *state) { detok_free(state); }

struct stop_matcher *stop_matcher_new(const struct detok_params *p) {
    struct stop_matcher *m = malloc(sizeof *m);
    struct detok *d = detok_new(p);
    if (m && d) {
        *m = (struct stop_matcher){d, ends, free_state};
        return m;
    }
    free(m);
    detok_free(d);
    return NULL;
}

void stop_matcher_free(struct stop_matcher *m) {
    if (m)
        m->free(m->state);
    free(m);
}
