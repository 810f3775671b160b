#include "decisions.h"

#include "api/loras.h"
#include "api/sampling_fields.h"
#include "minmax.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LARGE = 4 * 1024, // probabilities of a response that the loop writes itself; more are written in the pool
    LONG = 256,       // tokens that prompts share which are computed by a request of their own
};

struct decisions {
    struct exchange exchange; // first
    struct sampling_params sampling;
    const struct decision_dialect *dialect;
    struct decision_request request;
    struct decision_response response;
    // Tokens of the first request, before those of the rows: what all prompts share, to a block's end, and one more; 0: there is
    // no such request. Recurrent state is kept at the end of a prompt, so that the others find it there.
    int shared;
    bool shared_done;
};

static struct decisions *decisions_of(struct exchange *x) { return (struct decisions *)x; }

static bool prepare(struct exchange *x, struct api_error *e) {
    struct decisions *d = decisions_of(x);
    return d->dialect->prepare(&d->request, &x->app->model, e);
}

static bool read_body(struct exchange *x, const char *body, size_t len, struct api_error *e) {
    struct decisions *d = decisions_of(x);
    bool ok = d->dialect->parse(&d->request, &x->app->model, body, len, e);
    x->request = &d->request.base;
    x->ignored = d->request.base.ignored;
    x->prepare = ok ? prepare : NULL; // a small body may have a long text in many prompts
    return ok;
}

static struct request_params params_of(struct exchange *x, const struct engine_request *r) {
    const struct api_request *q = x->request;
    return (struct request_params){.id = r->id,
                                   .sampling = *x->sampling,
                                   .num_mask_words = (x->app->model.vocab + 31) / 32,
                                   .priority = q->priority,
                                   .salt = q->salt,
                                   .num_salt = (int)q->salt_len,
                                   .adapter = q->lora ? q->lora->adapter : NULL};
}

static struct request *make_shared(struct exchange *x, const struct engine_request *r) {
    struct request_params p = params_of(x, r);
    p.prompt = x->request->prompts[0].ids;
    p.num_prompt = decisions_of(x)->shared;
    return request_new(&p, engine_info(x->app->engine)->block_size);
}

static const struct decision_row *row_of(struct exchange *x, const struct engine_request *r) {
    const struct decisions *d = decisions_of(x);
    return &d->request.rows[r->index - (d->shared > 0)];
}

// A row is a prompt and the beginning of an option. Its one token is not looked at.
static struct request *make_request(struct exchange *x, const struct engine_request *r) {
    const struct decision_request *q = &decisions_of(x)->request;
    if (r->index == 0 && decisions_of(x)->shared > 0)
        return make_shared(x, r);
    const struct decision_row *row = row_of(x, r);
    const struct decision_question *question = &q->questions[row->question];
    const struct token_buf *prompt = &q->base.prompts[row->prompt];
    token_id wanted[MAX_TOP_LOGPROBS];
    size_t len = prompt->len + (size_t)row->depth;
    token_id *ids = malloc(len * sizeof *ids);
    if (!ids)
        return NULL;
    memcpy(ids, prompt->ids, prompt->len * sizeof *ids);
    memcpy(ids + prompt->len, question->options[row->option].ids.ids, (size_t)row->depth * sizeof *ids);
    for (int i = 0; i < row->num_edges; i++)
        wanted[i] = question->edges[row->edges + i].token;
    struct request_params p = params_of(x, r);
    p.prompt = ids;
    p.num_prompt = (int)len;
    p.max_output = 1;
    p.logprob_ids = wanted;
    p.sampling.logprobs = row->num_edges;
    struct request *made = request_new(&p, engine_info(x->app->engine)->block_size);
    free(ids);
    return made;
}

static bool submit_some(struct exchange *x, struct api_error *e) {
    const struct decisions *d = decisions_of(x);
    bool alone = d->shared > 0 && !d->shared_done;
    return exchange_submit(x, alone ? 1 : 2 * engine_info(x->app->engine)->max_num_seqs, make_request, e);
}

static bool begin_decisions(struct exchange *x, struct api_error *e) {
    struct decisions *d = decisions_of(x);
    const struct decision_request *q = &d->request;
    d->sampling = sampling_plain;
    d->sampling.temperature = 0;
    x->sampling = &d->sampling;
    x->max_tokens = 1;
    x->large = q->num_logprobs > LARGE;
    int block = engine_info(x->app->engine)->block_size;
    if (x->app->config->prefix_caching && q->base.num_prompts > 1 && q->num_shared >= LONG)
        d->shared = min_int((int)q->num_shared / block * block + 1, (int)q->base.prompts[0].len);
    size_t num = (size_t)q->num_rows + (d->shared > 0);
    if (!exchange_make_requests(x, d->dialect->id_prefix, num, 1, e))
        return false;
    x->num_prompt = d->shared;
    for (int i = 0; i < q->num_rows; i++)
        x->num_prompt += (int64_t)q->base.prompts[q->rows[i].prompt].len + q->rows[i].depth;
    d->response = (struct decision_response){.request = q, .id = x->id, .created = (int64_t)time(NULL)};
    return submit_some(x, e);
}

static void take_row(struct decision_request *q, const struct decision_row *row,
                     const struct service_event *ev) {
    const struct decision_edge *edges = &q->questions[row->question].edges[row->edges];
    for (int i = 0; i < row->num_edges; i++)
        for (int k = 0; k < ev->num_top; k++)
            if (ev->top_ids[k] == edges[i].token)
                q->logprobs[row->at + i] = ev->top_logprobs[k];
}

// Of the prompts, the shared tokens once: as decision_request.num_input counts.
static void count_cached(struct exchange *x, const struct engine_request *r) {
    struct decisions *d = decisions_of(x);
    const struct decision_row *row = row_of(x, r);
    bool first = row == d->request.rows || row[-1].prompt != row->prompt;
    int counted = r->index == 0 ? 0 : (int)d->request.num_shared;
    if (first && r->num_cached > counted)
        d->response.num_cached += r->num_cached - counted;
}

static void take_event(struct exchange *x, struct engine_request *r, struct service_event *ev) {
    struct decisions *d = decisions_of(x);
    struct api_error e = {0};
    if (ev->kind == EVENT_TOKEN) {
        engine_request_token(r, ev);
        take_row(&d->request, row_of(x, r), ev);
        return;
    }
    r->finish = ev->finish;
    r->complete = true;
    if (r->index == 0 && d->shared > 0) {
        d->shared_done = true;
        d->response.num_cached += r->num_cached;
    } else {
        count_cached(x, r);
    }
    if (!submit_some(x, &e))
        exchange_fail(x, &e);
}

static bool write_response(struct exchange *x, struct buf *out, struct api_error *e) {
    struct decisions *d = decisions_of(x);
    if (!decisions_weigh(&d->request, e))
        return false;
    d->dialect->write(out, &d->response);
    return true;
}

static void free_decisions(struct exchange *x) { decision_request_free(&decisions_of(x)->request); }

void decisions_start(struct app *app, struct http_request *request, const struct decision_dialect *dialect) {
    static const struct exchange_kind kind = {.size = sizeof(struct decisions),
                                              .submits = true,
                                              .read = read_body,
                                              .begin = begin_decisions,
                                              .answered = take_event,
                                              .finish = write_response,
                                              .done = free_decisions};
    struct decisions *d = (struct decisions *)exchange_new(app, request, &kind);
    if (!d)
        return;
    d->dialect = dialect;
    exchange_run(&d->exchange);
}
