// Requests of a completion's choices to the engine, all or none; of inputs that become vectors, as many as may wait.
#include "api/loras.h"
#include "completion_state.h"
#include "drafter.h"
#include "grammar/grammar.h"
#include "seed.h"
#include "text.h"

#include <stdlib.h>
#include <sys/random.h>

static uint64_t pick_seed(struct app *app) {
    uint64_t seed;
    if (app->config->has_seed)
        return splitmix64(splitmix64(app->config->seed) + app->seed_counter++);
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = splitmix64((uint64_t)http_now());
    return seed;
}

// What the output has to be, and how long its reasoning may last. false: out of memory.
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
    const struct vocabulary vocabulary = tokenizer_vocabulary(c->app->model.tokenizer);
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

// Behind what the grammar knows. false: out of memory.
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

static struct request *make_request(struct completion *c, struct choice *ch, uint64_t seed) {
    const struct completion_request *q = &c->request;
    const struct token_buf *prompt = &q->prompts[ch->index / q->n];
    int room = c->app->model.max_model_len - (int)prompt->len;
    struct request_params p = {
        .id = ch->id,
        .prompt = prompt->ids,
        .num_prompt = (int)prompt->len,
        .max_output = q->max_tokens < room ? q->max_tokens : room,
        .sampling = q->sampling,
        .stop = q->stop_ids,
        .num_stop = q->num_stop_ids,
        .bias = q->bias,
        .num_bias = q->num_bias,
        .logprob_ids = q->logprob_ids,
        .history = q->history,
        .allowed = q->allowed,
        .num_mask_words = (c->app->model.vocab + 31) / 32,
        .bad_words = q->bad_words,
        .priority = q->priority,
        .salt = q->salt,
        .num_salt = (int)q->salt_len,
        .adapter = q->lora ? q->lora->adapter : NULL,
        .draft = engine_draft(c->app->engine) != NULL,
    };
    if (c->dialect->vector) {
        p.max_output = 0;
        p.pooling = c->app->model.pooling;
        p.vector_size = c->app->model.vector_room;
        p.second_text = q->second_text ? q->second_text[ch->index] : 0;
        return request_new(&p, engine_info(c->app->engine)->block_size);
    }
    p.min_output = q->min_tokens < p.max_output ? q->min_tokens : p.max_output;
    // With a seed a prompt's choices do not depend on its place in the list; without one, equal prompts get
    // different seeds.
    p.sampling.seed = choice_seed(seed, q->has_seed ? ch->index % q->n : ch->index);
    struct detok_params d = {
        .tokenizer = c->app->model.tokenizer,
        .skip_special = q->skip_special,
        .shown = c->app->model.format_tokens,
        .num_shown = q->format ? c->app->model.num_format_tokens : 0,
        .strip_space = prompt->len == 1 && prompt->ids[0] == tokenizer_bos(c->app->model.tokenizer),
        .stops = (const char *const *)q->stops,
        .stop_lens = q->stop_lens,
        .num_stops = q->num_stops,
        .min_tokens = p.min_output,
        .keep_stop = q->include_stop,
    };
    ch->detok = detok_new(&d);
    if (q->num_stops)
        p.matcher = stop_matcher_new(&d);
    bool ok = ch->detok && (p.matcher || !q->num_stops) && make_filter(c, &p) &&
              make_drafter(c->app, &q->prediction, &p);
    if (q->format && !(ch->output = output_parser_new(q->format, q->tools, q->reads_reasoning, q->thinking)))
        ok = false;
    ch->strip = ch->detok && detok_strips_space(ch->detok);
    if (q->echo) { // stop strings are looked for in what is generated only
        d.strip_space = true;
        d.num_stops = 0;
        ch->echo = detok_new(&d);
        ok = ok && ch->echo;
    }
    struct request *r = ok ? request_new(&p, engine_info(c->app->engine)->block_size) : NULL;
    if (!r) {
        stop_matcher_free(p.matcher);
        if (p.filter)
            p.filter->free(p.filter->state);
        free(p.filter);
        drafter_free(p.drafter);
    }
    return r;
}

// Of two reasons for which the queue is full: not the number of requests.
static bool is_short_of_tokens(struct app *app) {
    struct service_stats stats;
    app_stats(app, &stats);
    return stats.running + stats.waiting <
           engine_info(app->engine)->max_num_seqs + app->config->max_num_queued_seqs;
}

static int retry_after(struct app *app) {
    struct service_stats stats;
    app_stats(app, &stats);
    int seconds = 1 + stats.waiting / engine_info(app->engine)->max_num_seqs;
    return seconds < 30 ? seconds : 30;
}

// Of many vectors so many are in the queue at once: a large body must not take all of it.
static int max_open(const struct completion *c) {
    return c->dialect->vector ? 2 * engine_info(c->app->engine)->max_num_seqs : c->num_choices;
}

bool completion_submit(struct completion *c, struct api_error *e) {
    struct app *app = c->app;
    int most = engine_info(app->engine)->max_num_seqs + app->config->max_num_queued_seqs;
    if (!c->dialect->vector && c->num_choices > most) // trying again would not help
        return api_fail(e, 400, "out_of_range", c->request.n > 1 ? "n" : "prompt",
                        "Prompts times 'n' is %d, and this server takes at most %d requests.", c->num_choices,
                        most);
    uint64_t seed = c->request.has_seed ? (uint64_t)c->request.seed : pick_seed(app);
    for (int i = c->num_submitted; i < c->num_choices && c->num_open < max_open(c); i++) {
        struct choice *ch = &c->choices[i];
        struct err err = {0};
        ch->completion = c;
        ch->index = i;
        ch->stop_token = -1;
        ch->id = ++app->next_id;
        choice_table_add(app, ch);
        struct request *r = make_request(c, ch, seed);
        int64_t now = http_now(); // before it can have begun
        enum status status = r ? service_submit(app->service, r, &err) : STATUS_NOMEM;
        if (status == STATUS_OK) {
            ch->submitted = true;
            if (!c->submitted)
                c->submitted = now;
            if (c->request.lora)
                c->request.lora->num_requests++;
            c->num_submitted++;
            c->num_open++;
            continue;
        }
        request_free(r);
        choice_table_remove(app, ch);
        if (status == STATUS_LIMIT && c->dialect->vector && c->num_open > 0)
            return true; // the others when one of these has ended
        e->retry_after = retry_after(app);
        switch (status) {
        case STATUS_INVALID:
            e->retry_after = 0;
            return api_fail(e, 400, "context_length_exceeded", "prompt", "%s", err.msg);
        case STATUS_LIMIT:
            app->metrics.rejected[is_short_of_tokens(app)]++;
            return api_fail(e, 503, "overloaded", NULL, "The queue is full; try again later.");
        case STATUS_STOPPING: return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
        case STATUS_DEVICE: return api_fail(e, 503, "engine_unavailable", NULL, "The engine has failed.");
        default: return api_fail_memory(e);
        }
    }
    return true;
}
