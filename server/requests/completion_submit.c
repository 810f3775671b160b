// Requests of a completion's choices to the engine, all or none.
#include "completion_state.h"

#include "api/loras.h"
#include "drafter.h"
#include "grammar/grammar.h"
#include "seed.h"
#include "text.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static uint64_t pick_seed(struct app *app) {
    uint64_t seed;
    if (app->config->has_seed)
        return splitmix64(splitmix64(app->config->seed) + app->seed_counter++);
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = splitmix64((uint64_t)http_now());
    return seed;
}

// Makes the constraint on the output and the bound of its reasoning. False: out of memory.
static bool make_filter(const struct completion *c, struct request_params *p) {
    const struct completion_request *q = &c->request;
    if (q->constraint && (p->filter = constraint_filter(q->constraint)))
        p->drafter = constraint_drafter(p->filter);
    if (q->constraint && !p->drafter)
        return false;
    const char *open, *close, *closing;
    if (q->reasoning_budget < 0 || !q->format ||
        !output_format_reasoning(q->format, q->must_call, &open, &close, &closing))
        return true;
    const struct vocabulary vocabulary = tokenizer_vocabulary(c->exchange.app->model.tokenizer);
    struct token_filter *f = budget_filter(&(struct budget_params){.vocabulary = vocabulary,
                                                                   .open = open,
                                                                   .close = close,
                                                                   .closing = closing,
                                                                   .inside = q->thinking,
                                                                   .max_tokens = q->reasoning_budget,
                                                                   .inner = p->filter});
    p->filter = f ? f : p->filter;
    return f != NULL;
}

// Adds drafters behind that of the grammar. False: out of memory.
static bool make_drafter(const struct app *app, const struct token_buf *prediction,
                         struct request_params *p) {
    enum { MIN_MATCH = 3 };
    bool predicted = prediction->len > 0 && (app->drafts_ngrams || engine_draft(app->engine));
    if (!app->drafts_ngrams && !predicted)
        return true;
    struct drafter *lookup = predicted ? predicted_drafter(MIN_MATCH, prediction->ids, (int)prediction->len)
                                       : ngram_drafter(MIN_MATCH);
    struct drafter *d = lookup && p->drafter ? either_drafter(p->drafter, lookup) : lookup;
    if (!d)
        drafter_free(lookup);
    p->drafter = d ? d : p->drafter;
    return d;
}

// Makes what turns the choice's tokens into text, and the engine's matcher of the same stops. False: out of memory.
static bool make_text(const struct completion *c, struct choice *ch, struct request_params *p) {
    const struct completion_request *q = &c->request;
    const struct served_model *m = &c->exchange.app->model;
    struct detok_params d = {
        .tokenizer = m->tokenizer,
        .skip_special = q->skip_special,
        .shown = m->format_tokens,
        .num_shown = q->format ? m->num_format_tokens : 0,
        .strip_space = p->num_prompt == 1 && p->prompt[0] == tokenizer_bos(m->tokenizer),
        .stops = (const char *const *)q->stops,
        .stop_lens = q->stop_lens,
        .num_stops = q->num_stops,
        .min_tokens = p->min_output,
        .keep_stop = q->include_stop,
    };
    ch->detok = detok_new(&d);
    ch->strip = ch->detok && detok_strips_space(ch->detok);
    if (q->num_stops)
        p->matcher = stop_matcher_new(&d);
    if (q->format)
        ch->output = output_parser_new(q->format, q->tools, q->reads_reasoning, q->thinking);
    if (q->echo) { // stop strings are looked for in what is generated only
        d.strip_space = true;
        d.num_stops = 0;
        ch->echo = detok_new(&d);
    }
    return ch->detok && (p->matcher || !q->num_stops) && (ch->output || !q->format) && (ch->echo || !q->echo);
}

static struct request *make_request(struct exchange *x, const struct engine_request *r) {
    struct completion *c = (struct completion *)x;
    struct choice *ch = &c->choices[r->index];
    const struct completion_request *q = &c->request;
    const struct token_buf *prompt = &q->base.prompts[r->index / q->n];
    const struct engine *draft = engine_draft(x->app->engine);
    int room = x->app->model.max_model_len - (int)prompt->len,
        most = q->max_tokens < room ? q->max_tokens : room;
    struct request_params p = {
        .id = r->id,
        .prompt = prompt->ids,
        .num_prompt = (int)prompt->len,
        .max_output = most,
        .min_output = q->min_tokens < most ? q->min_tokens : most,
        .sampling = q->sampling,
        .stop = q->stop_ids,
        .num_stop = q->num_stop_ids,
        .bias = q->bias,
        .num_bias = q->num_bias,
        .logprob_ids = q->logprob_ids,
        .history = q->history,
        .allowed = q->allowed,
        .num_mask_words = (x->app->model.vocab + 31) / 32,
        .bad_words = q->bad_words,
        .priority = q->base.priority,
        .salt = q->base.salt,
        .num_salt = (int)q->base.salt_len,
        .retain = q->base.retain,
        .adapter = q->base.lora ? q->base.lora->adapter : NULL,
        .draft = draft != NULL,
        .mtp_size = draft ? engine_info(draft)->mtp_size : 0,
    };
    // With a seed a prompt's choices do not depend on its place in the list; without one, equal prompts get
    // different seeds.
    p.sampling.seed = choice_seed(c->seed, q->has_seed ? r->index % q->n : r->index);
    bool ok = make_text(c, ch, &p) && make_filter(c, &p) && make_drafter(x->app, &q->prediction, &p);
    struct request *made = ok ? request_new(&p, engine_info(x->app->engine)->block_size) : NULL;
    if (!made) {
        stop_matcher_free(p.matcher);
        if (p.filter)
            p.filter->free(p.filter->state);
        free(p.filter);
        drafter_free(p.drafter);
    }
    return made;
}

bool completion_submit(struct exchange *x, struct api_error *e) {
    struct completion *c = (struct completion *)x;
    struct app *app = x->app;
    const struct completion_request *q = &c->request;
    int most = engine_info(app->engine)->max_num_seqs + app->config->max_num_queued_seqs;
    x->sampling = &q->sampling;
    x->max_tokens = q->max_tokens;
    if (!exchange_make_requests(x, c->dialect->id_prefix, q->base.num_prompts * (size_t)q->n, q->n, e))
        return false;
    c->response = (struct response){.request = q,
                                    .model = &app->model,
                                    .id = x->id,
                                    .fingerprint = app->fingerprint,
                                    .created = (int64_t)time(NULL),
                                    .num_choices = x->num_requests};
    c->dialect->begin(&c->response);
    c->stage = RESPONSE_ENDED;
    x->large = x->must = completion_waits(c);
    if (!(c->choices = calloc((size_t)x->num_requests, sizeof *c->choices)))
        return api_fail_memory(e);
    for (int i = 0; i < x->num_requests; i++)
        c->choices[i] = (struct choice){.completion = c, .engine = &x->requests[i], .stop_token = -1};
    if (x->num_requests > most) // trying again would not help
        return api_fail(e, 400, "out_of_range", q->n > 1 ? "n" : "prompt",
                        "Prompts times 'n' is %d, and this server takes at most %d requests.",
                        x->num_requests, most);
    c->seed = q->has_seed ? (uint64_t)q->seed : pick_seed(app);
    return exchange_submit(x, 0, make_request, e) && (!q->background || completion_detach(c, e));
}
