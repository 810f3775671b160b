// Any ids, any stop strings: the text is valid UTF-8 at every call, and the same however the bytes come.
#include "fuzz_vocab.h"
#include "utf8.h"

struct result {
    char *text;
    size_t len;
    bool stopped;
};

static void take(struct result *r, const char *text, size_t len) {
    if (!utf8_valid((const unsigned char *)text, len))
        abort();
    r->text = realloc(r->text, r->len + len + 1);
    if (!r->text)
        abort();
    memcpy(r->text + r->len, text, len);
    r->len += len;
}

static struct result run(const struct detok_params *p, const token_id *ids, size_t n) {
    struct result r = {0};
    struct detok *d = detok_new(p);
    const char *text;
    size_t len;
    if (!d)
        abort();
    for (size_t i = 0; i < n; i++) {
        r.stopped = detok_push(d, ids[i], &text, &len);
        take(&r, text, len);
    }
    detok_finish(d, &text, &len);
    take(&r, text, len);
    detok_free(d);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *t;
    static token_id single[256]; // ids of the byte tokens
    const char *stops[4];
    size_t lens[4], num_bytes = 0;
    if (!t) {
        t = fuzz_vocab();
        for (int i = 0; i < tokenizer_vocab(t); i++) {
            size_t l, name_len;
            const char *b = tokenizer_bytes(t, i, false, &l);
            if (tokenizer_name(t, i, &name_len) && name_len == 6 && l == 1)
                single[(unsigned char)*b] = i;
        }
    }
    if (size < 1)
        return 0;
    int num_stops = data[0] & 3;
    struct detok_params p = {.tokenizer = t,
                             .skip_special = true,
                             .strip_space = (data[0] & 4) != 0,
                             .stops = stops,
                             .stop_lens = lens,
                             .num_stops = num_stops};
    data++;
    size--;
    for (int i = 0; i < num_stops; i++) {
        if (size < 1)
            return 0;
        size_t len = data[0] % 9;
        if (size < 1 + len)
            return 0;
        stops[i] = (const char *)data + 1;
        lens[i] = len;
        data += 1 + len;
        size -= 1 + len;
    }
    token_id *ids = malloc((size + 1) * sizeof *ids), *singles = malloc(16 * (size + 1) * sizeof *singles);
    if (!ids || !singles)
        abort();
    for (size_t i = 0; i < size; i++) {
        ids[i] = data[i] < 40 ? data[i] - 1 : data[i]; // -1 too
        size_t l;
        const char *b = tokenizer_bytes(t, ids[i], false, &l);
        for (size_t k = 0; k < l; k++)
            singles[num_bytes++] = single[(unsigned char)b[k]];
    }
    struct result a = run(&p, ids, size), b = run(&p, singles, num_bytes);
    if (a.stopped != b.stopped || a.len != b.len || memcmp(a.text, b.text, a.len) != 0)
        abort();
    free(a.text);
    free(b.text);
    free(ids);
    free(singles);
    return 0;
}
