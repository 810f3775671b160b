// quire perplexity [MODEL] --file TEXT: exp of the mean negative log-probability of each token given those
// before it.
//
// The text is cut into windows of max_model_len - 1 tokens; each begins with BOS (where the model has one),
// which has no log-probability. Prefix reuse does not matter: requests with prompt log-probabilities never
// use it.
#include "buf.h"
#include "commands.h"
#include "local.h"
#include "process/console.h"
#include "process/setup.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct total {
    double nll;
    int64_t count;
};

static int add_window(struct local *l, uint64_t id, const token_id *ids, int n, struct total *sum) {
    struct err err = {0};
    struct request_params p = {
        .id = id,
        .prompt = ids,
        .num_prompt = n,
        .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = 0, .prompt_logprobs = true},
    };
    struct request *r = request_new(&p, engine_info(l->engine)->block_size);
    if (!r || service_submit(l->service, r, &err) != STATUS_OK) {
        request_free(r);
        complain("%s", err.code ? err.msg : "out of memory");
        return EXIT_ENGINE;
    }
    for (;;) {
        struct service_event events[64];
        int got = service_take(l->service, events, 64);
        for (int i = 0; i < got; i++) {
            if (events[i].kind == EVENT_PROMPT) {
                sum->nll -= (double)events[i].logprob;
                sum->count++;
            } else if (events[i].kind == EVENT_FINISH) {
                if (events[i].finish != FINISH_ERROR)
                    return 0;
                return local_failed(l);
            }
        }
        if (got == 0)
            service_wait(l->service, 1000000000);
    }
}

static int measure_all(struct local *l, const struct buf *text) {
    struct token_buf ids = {0};
    enum status status = tokenizer_encode(l->tokenizer, text->data ? text->data : "", text->len, 0, &ids);
    if (status != STATUS_OK)
        return setup_encode_failed(status);
    token_id bos = tokenizer_bos(l->tokenizer);
    int longest = engine_info(l->engine)->max_model_len;
    if (longest < 2) {
        complain("a token's probability depends on those before it: --max-model-len must be at least 2");
        token_buf_free(&ids);
        return EXIT_USAGE;
    }
    size_t lead = bos >= 0, room = (size_t)longest - lead;
    token_id *window = malloc((room + lead) * sizeof *window);
    struct total sum = {0};
    uint64_t id = 0;
    int rc = window ? 0 : EXIT_ENGINE;
    for (size_t at = 0; at < ids.len && rc == 0; at += room) {
        size_t n = ids.len - at < room ? ids.len - at : room;
        window[0] = bos;
        memcpy(window + lead, ids.ids + at, n * sizeof *window);
        console_bar("computing", (double)at / (double)ids.len);
        if (n + lead > 1) // a lone token has nothing before it
            rc = add_window(l, ++id, window, (int)(n + lead), &sum);
    }
    console_bar("computing", 1);
    free(window);
    token_buf_free(&ids);
    if (rc == 0 && sum.count == 0) {
        complain("the text has too few tokens");
        return EXIT_USAGE;
    }
    if (rc == 0)
        printf("perplexity %.4f tokens %lld nll %.6f\n", exp(sum.nll / (double)sum.count),
               (long long)sum.count, sum.nll);
    return rc;
}

int cmd_perplexity(const struct config *c) {
    if (!c->file || c->args.len != 1) {
        complain("usage: quire perplexity [MODEL] --file TEXT");
        return EXIT_USAGE;
    }
    FILE *f = fopen(c->file, "rbe");
    if (!f) {
        complain("%s: %s", c->file, strerror(errno));
        return EXIT_USAGE;
    }
    struct buf text = {0};
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(&text, chunk, n);
    bool bad = ferror(f) || text.failed;
    fclose(f);
    struct local l;
    int rc = EXIT_USAGE;
    if (bad)
        complain("%s: cannot be read", c->file);
    else
        rc = local_open(&l, c);
    if (!bad && rc == 0) {
        rc = measure_all(&l, &text);
        local_close(&l);
    }
    buf_free(&text);
    return rc;
}
