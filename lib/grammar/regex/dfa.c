#include "dfa.h"

#include <stdlib.h>
#include <string.h>

void dfa_free(struct dfa *d) {
    if (!d)
        return;
    free(d->next);
    free(d->label);
    free(d);
}

int32_t dfa_match(const struct dfa *d, const char *text, size_t len) {
    int32_t s = d->num_states ? 0 : DFA_DEAD;
    for (size_t i = 0; i < len && s >= 0; i++)
        s = dfa_step(d, s, (unsigned char)text[i]);
    return s < 0 ? -1 : d->label[s];
}

bool dfa_is_empty(const struct dfa *d) { return d->num_states == 0; }

// The number of ways into each state, which are taken once all ways into it are counted; a circle has no such order.
int64_t dfa_count(const struct dfa *d, int64_t most) {
    size_t n = (size_t)d->num_states, k = (size_t)d->num_classes;
    int64_t *ways = calloc(n + 1, sizeof *ways), texts = 0;
    int *into = calloc(n + 1, sizeof *into), *todo = calloc(n + 1, sizeof *todo);
    int bytes[256] = {0};
    size_t num_todo = 0, num_done = 0;
    if (!ways || !into || !todo)
        texts = most;
    for (int b = 0; b < 256; b++)
        bytes[d->class_of[b]]++;
    for (size_t i = 0; i < n * k && into; i++)
        if (d->next[i] >= 0)
            into[d->next[i]]++;
    if (n > 0 && texts < most && into[0] == 0) {
        ways[0] = 1;
        todo[num_todo++] = 0;
    }
    while (num_done < num_todo && texts < most) {
        int s = todo[num_done++];
        if (d->label[s] >= 0)
            texts = ways[s] < most - texts ? texts + ways[s] : most;
        for (size_t c = 0; c < k; c++) {
            int32_t to = d->next[(size_t)s * k + c];
            if (to < 0)
                continue;
            bool many = ways[s] > (most - ways[to]) / bytes[c];
            ways[to] = many ? most : ways[to] + ways[s] * bytes[c];
            if (--into[to] == 0)
                todo[num_todo++] = to;
        }
    }
    free(ways);
    free(into);
    free(todo);
    return num_done < n ? most : texts;
}

// ---- plain text

// Where bytes lead in UTF-8 (Unicode 15, table 3-7): from between two code points, or from within one.
enum { BETWEEN, ONE_MORE, TWO_MORE, THREE_MORE, BEHIND_E0, BEHIND_ED, BEHIND_F0, BEHIND_F4 };
static const struct {
    unsigned char first, last;
    int8_t from, to;
} utf8_bytes[] = {
    {0x00, 0x7f, BETWEEN, BETWEEN},    {0xc2, 0xdf, BETWEEN, ONE_MORE},   {0xe0, 0xe0, BETWEEN, BEHIND_E0},
    {0xe1, 0xec, BETWEEN, TWO_MORE},   {0xed, 0xed, BETWEEN, BEHIND_ED},  {0xee, 0xef, BETWEEN, TWO_MORE},
    {0xf0, 0xf0, BETWEEN, BEHIND_F0},  {0xf1, 0xf3, BETWEEN, THREE_MORE}, {0xf4, 0xf4, BETWEEN, BEHIND_F4},
    {0x80, 0xbf, ONE_MORE, BETWEEN},   {0x80, 0xbf, TWO_MORE, ONE_MORE},  {0x80, 0xbf, THREE_MORE, TWO_MORE},
    {0xa0, 0xbf, BEHIND_E0, ONE_MORE}, {0x80, 0x9f, BEHIND_ED, ONE_MORE}, {0x90, 0xbf, BEHIND_F0, TWO_MORE},
    {0x80, 0x8f, BEHIND_F4, TWO_MORE},
};
enum { NUM_RUNS = sizeof utf8_bytes / sizeof *utf8_bytes, MAX_SWEEPS = 16 };

static bool is_plain(int byte) { return byte >= 0x20 && byte != '"' && byte != '\\'; }

// Looks at all plain bytes of state q, which is in a place of UTF-8. false: one leads to where `good` is not.
static bool plain_bytes_lead(const struct dfa *d, int32_t q, int place, const uint8_t *good) {
    for (int i = 0; i < NUM_RUNS; i++)
        for (int c = utf8_bytes[i].first; utf8_bytes[i].from == place && c <= utf8_bytes[i].last; c++) {
            int32_t to = is_plain(c) ? dfa_step(d, q, (unsigned char)c) : q;
            if (to < 0 || !good[to])
                return false;
        }
    return true;
}

// Finds the place of each state, as it is first reached; where it is reached in another one, too, it is not good.
static void find_places(const struct dfa *d, int8_t *place, int32_t *todo, uint8_t *good) {
    int num = 0;
    memset(place, -1, (size_t)d->num_states);
    place[0] = BETWEEN;
    todo[num++] = 0;
    for (int at = 0; at < num; at++)
        for (int i = 0; i < NUM_RUNS; i++)
            for (int c = utf8_bytes[i].first;
                 utf8_bytes[i].from == place[todo[at]] && c <= utf8_bytes[i].last; c++) {
                int32_t to = dfa_step(d, todo[at], (unsigned char)c);
                if (to >= 0 && place[to] < 0) {
                    place[to] = utf8_bytes[i].to;
                    todo[num++] = to;
                } else if (to >= 0 && place[to] != utf8_bytes[i].to) {
                    good[to] = 0;
                }
            }
}

// The largest set of states whose plain bytes lead into it: those that lead elsewhere are left out until there are none.
bool dfa_mark_plain(const struct dfa *d, const uint8_t *within, uint8_t *out) {
    size_t n = (size_t)d->num_states;
    int8_t *place = malloc(n + 1);
    int32_t *todo = malloc((n + 1) * sizeof *todo);
    bool ok = place && todo, changed = ok && n > 0;
    if (within)
        memcpy(out, within, n);
    else
        memset(out, 1, n);
    if (changed)
        find_places(d, place, todo, out);
    for (int sweep = 0; changed; sweep++) {
        changed = false;
        for (int32_t q = d->num_states - 1; q >= 0; q--)
            if (out[q] && (place[q] < 0 || sweep == MAX_SWEEPS || !plain_bytes_lead(d, q, place[q], out))) {
                out[q] = 0;
                changed = true;
            }
    }
    for (size_t q = 0; q < n && ok; q++)
        out[q] = out[q] && place[q] == BETWEEN;
    free(place);
    free(todo);
    return ok;
}

// Whether every plain code point, whose first bytes led to state q, ends where text may end. At most 4 deep.
static bool char_ends(const struct dfa *d, int32_t q, int place) {
    for (int i = 0; i < NUM_RUNS; i++) {
        int32_t known = DFA_DEAD; // where the byte before led: it is looked at once
        for (int c = utf8_bytes[i].first; utf8_bytes[i].from == place && c <= utf8_bytes[i].last; c++) {
            int32_t to = is_plain(c) ? dfa_step(d, q, (unsigned char)c) : known;
            if (!is_plain(c) || (to >= 0 && to == known))
                continue;
            known = to;
            if (to < 0 || (utf8_bytes[i].to ? !char_ends(d, to, utf8_bytes[i].to) : d->label[to] < 0))
                return false;
        }
    }
    return true;
}

bool dfa_takes_plain_char(const struct dfa *d) { return d->num_states > 0 && char_ends(d, 0, BETWEEN); }

// Against the arrows, until nothing changes; where it takes long, no state is.
void dfa_mark_quiet(const struct dfa *d, uint8_t *out) {
    size_t n = (size_t)d->num_states, width = (size_t)d->num_classes;
    bool changed = n > 0, plain[256] = {0};
    for (int c = 0; c < 256; c++)
        plain[d->class_of[c]] |= is_plain(c);
    memset(out, 1, n);
    for (int sweep = 0; changed && sweep < MAX_SWEEPS; sweep++) {
        changed = false;
        for (size_t q = n; q-- > 0;)
            for (size_t c = 0; c < width && out[q]; c++) {
                int32_t to = plain[c] ? d->next[q * width + c] : DFA_DEAD;
                if (to >= 0 && (d->label[to] >= 0 || !out[to])) {
                    out[q] = 0;
                    changed = true;
                }
            }
    }
    if (changed)
        memset(out, 0, n);
}
