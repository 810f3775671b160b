// See name_list.h.
#include "name_list.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b, void *arg) {
    const struct tokenizer *t = arg;
    const struct token_entry *x = &t->tokens[*(const token_id *)a], *y = &t->tokens[*(const token_id *)b];
    uint32_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
    int c = memcmp(t->text + x->name, t->text + y->name, n);
    return c ? c : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

static unsigned char byte_at(const struct name_list *l, const struct tokenizer *t, int i, size_t depth) {
    return (unsigned char)t->text[t->tokens[l->ids[i]].name + depth];
}

void name_list_sort(struct name_list *l, const struct tokenizer *t) {
    qsort_r(l->ids, (size_t)l->num, sizeof *l->ids, compare_names, (void *)(uintptr_t)t);
    for (int c = 0, i = 0; c <= 256; c++) {
        while (i < l->num && byte_at(l, t, i, 0) < c)
            i++;
        l->start[c] = i;
    }
}

void name_list_free(struct name_list *l) {
    free(l->ids);
    *l = (struct name_list){0};
}

token_id name_list_step(const struct name_list *l, const struct tokenizer *t, struct name_range *r,
                        unsigned char c) {
    if (r->depth == 0) {
        r->lo = l->start[c];
        r->hi = l->start[c + 1];
    } else {
        for (int end = r->hi; r->lo < end;) { // the first with byte >= c
            int mid = r->lo + (end - r->lo) / 2;
            if (byte_at(l, t, mid, r->depth) < c)
                r->lo = mid + 1;
            else
                end = mid;
        }
        for (int begin = r->lo; begin < r->hi;) { // the first with byte > c
            int mid = begin + (r->hi - begin) / 2;
            if (byte_at(l, t, mid, r->depth) <= c)
                begin = mid + 1;
            else
                r->hi = mid;
        }
    }
    r->depth++;
    token_id id = -1;
    for (; r->lo < r->hi && t->tokens[l->ids[r->lo]].name_len == r->depth;
         r->lo++) // the shortest sorts first
        id = id < 0 ? l->ids[r->lo] : id;
    return id;
}
