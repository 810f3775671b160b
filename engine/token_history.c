#include "token_history.h"

#include <math.h>
#include <string.h>

// z[i], i >= 1: how many of the last tokens of tokens[0..n) equal those that end i tokens earlier, at most so many as
// fit. (The Z function of the tokens read backwards.)
static void count_repeated(const token_id *tokens, int n, int32_t *z) {
    const token_id *last = tokens + n - 1;
    for (int i = 1, from = 0, to = 0; i < n; i++) { // [from, to): the match that reaches farthest
        int len = i < to ? (z[i - from] < to - i ? z[i - from] : to - i) : 0;
        while (i + len < n && last[-len] == last[-i - len])
            len++;
        if (i + len > to) {
            from = i;
            to = i + len;
        }
        z[i] = len;
    }
}

static bool ends_with(const token_id *tokens, int n, const token_id *end, int len) {
    return len <= n && memcmp(tokens + n - len, end, (size_t)len * sizeof *end) == 0;
}

static bool is_breaker(const struct token_history_params *p, const token_id *tokens, int n) {
    token_id t = tokens[n - 1];
    if (p->dry_breakers && p->dry_breakers[t / 32] >> (t % 32) & 1u)
        return true;
    for (const token_id *s = p->dry_sequences; s && *s > 0; s += 1 + *s)
        if (ends_with(tokens, n, s + 1, *s))
            return true;
    return false;
}

static void add_dry(struct token_counts *c, const struct token_history_params *p, const token_id *tokens,
                    int n, const int32_t *z) {
    int window = p->dry_last_n < 0 || p->dry_last_n > n ? n : p->dry_last_n, reach = 0;
    while (reach < window && !is_breaker(p, tokens, n - reach))
        reach++;
    for (int i = 1; i < window; i++) {
        int len = z[i] < window - i ? z[i] : window - i;
        len = len < reach ? len : reach;
        if (len < p->dry_allowed_length || len == 0)
            continue;
        struct token_count *e = token_counts_find(c, tokens[n - i]);
        double cost = (double)p->dry_multiplier * pow((double)p->dry_base, len - p->dry_allowed_length);
        e->add = fminf(e->add, -(float)fmin(cost, 1e30));
    }
}

void token_history_adjust(struct token_counts *c, const struct token_history_params *p,
                          const token_id *tokens, int n, int32_t *scratch) {
    for (int i = 0; i < c->num; i++)
        c->list[i].add = 0;
    count_repeated(tokens, n, scratch);
    if (p->dry_multiplier > 0)
        add_dry(c, p, tokens, n, scratch);
    int known = p->no_repeat_ngram - 1;
    if (known == 0)
        for (int i = 0; i < c->num; i++)
            c->list[i].add = -INFINITY;
    for (int i = 1; known > 0 && i < n; i++)
        if (scratch[i] >= known)
            token_counts_find(c, tokens[n - i])->add = -INFINITY;
}

int token_history_banned(const token_id *sequences, const token_id *output, int n, token_id *out) {
    int num = 0;
    for (const token_id *s = sequences; s && *s > 0; s += 1 + *s)
        if (ends_with(output, n, s + 1, *s - 1))
            out[num++] = s[*s];
    return num;
}
