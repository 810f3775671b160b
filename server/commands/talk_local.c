// The engine in this process, without a server: the model's chat template, its sampling defaults, its format of reasoning
// and calls.
#include "api/dialect.h"
#include "api/messages.h"
#include "api/sampling_fields.h"
#include "commands.h"
#include "local.h"
#include "log.h"
#include "minmax.h"
#include "process/console.h"
#include "process/sampling_defaults.h"
#include "process/setup.h"
#include "talk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { WAIT_NS = 50000000 }; // how long a signal may go unseen

struct local_talk {
    struct talk talk; // first
    const struct config *config;
    struct local local;
    struct served_model model;
    struct sampling_params sampling;
    uint64_t last_id;
};

// The reader of one answer.
struct local_answer {
    struct local_talk *t;
    const struct talk_sink *sink;
    struct detok *detok;
    struct output_parser *output; // NULL: it is text
};

static void give_parts(struct local_answer *a) {
    static const enum talk_part parts[] = {[PART_CONTENT] = TALK_CONTENT,
                                           [PART_REASONING] = TALK_REASONING,
                                           [PART_CALL] = TALK_CALL,
                                           [PART_ARGUMENTS] = TALK_ARGUMENTS};
    size_t num;
    const char *text;
    const struct output_part *p = output_parts(a->output, &num, &text);
    for (size_t i = 0; i < num; i++)
        a->sink->take(a->sink->arg, parts[p[i].kind], text + p[i].begin, p[i].len);
    output_clear(a->output);
}

static void give_text(struct local_answer *a, const char *text, size_t len) {
    if (!a->output) {
        if (len)
            a->sink->take(a->sink->arg, TALK_CONTENT, text, len);
        return;
    }
    output_push(a->output, text, len);
    give_parts(a);
}

static enum status encode(struct local_talk *t, const json_t *messages, struct token_buf *out, bool *thinking,
                          struct err *err) {
    struct api_error e = {0};
    json_t *root = json_pack("{s:O}", "messages", messages);
    if (!root)
        return err_set(err, STATUS_NOMEM, "out of memory");
    bool ok = chat_prompt(&t->model, root, true, false, out, thinking, &e);
    json_decref(root);
    if (!ok)
        return err_set(err, STATUS_INVALID, "%s", e.message);
    if (out->len >= (size_t)t->model.max_model_len)
        return err_set(err, STATUS_LIMIT, "the conversation has %zu tokens, at most %d are possible",
                       out->len, t->model.max_model_len - 1);
    return STATUS_OK;
}

// Takes events until the request has ended; tells it to end when *stop is set.
static void take_events(struct local_answer *a, uint64_t id, const volatile sig_atomic_t *stop,
                        struct service_event *end) {
    struct local_talk *t = a->t;
    bool told = false;
    while (end->finish == FINISH_NONE) {
        struct service_event events[16];
        int n = service_take(t->local.service, events, 16);
        for (int i = 0; i < n; i++) {
            const char *text;
            size_t len;
            if (events[i].kind == EVENT_FINISH)
                *end = events[i];
            if (events[i].kind != EVENT_TOKEN || events[i].finish == FINISH_STOP)
                continue;
            detok_push(a->detok, events[i].token, &text, &len);
            give_text(a, text, len);
        }
        if (*stop && !told) {
            service_cancel(t->local.service, id, FINISH_CANCELLED);
            told = true;
        }
        if (n == 0)
            service_wait(t->local.service, WAIT_NS);
    }
    const char *text;
    size_t len;
    detok_finish(a->detok, &text, &len);
    give_text(a, text, len);
    if (a->output) {
        output_end(a->output);
        give_parts(a);
    }
}

static double ms_between(int64_t from, int64_t to) { return to > from ? (double)(to - from) / 1e6 : 0; }

static enum status run(struct local_answer *a, const struct token_buf *prompt, bool thinking,
                       const volatile sig_atomic_t *stop, struct talk_result *out, struct err *err) {
    struct local_talk *t = a->t;
    const struct config *c = t->config;
    int room = t->model.max_model_len - (int)prompt->len;
    token_id stops[MAX_STOP_TOKENS];
    struct request_params p = {
        .id = ++t->last_id,
        .prompt = prompt->ids,
        .num_prompt = (int)prompt->len,
        .max_output = c->answer_tokens && c->answer_tokens < room ? c->answer_tokens : room,
        .sampling = t->sampling,
        .stop = stops,
        .num_stop = tokenizer_ends(t->model.tokenizer, stops, MAX_STOP_TOKENS),
    };
    struct api_error e = {0};
    sampling_read_defaults(&p.sampling, t->talk.sampling, false, &e); // the command has checked it
    if (p.sampling.temperature < 1e-5f)
        p.sampling.temperature = 0;
    p.sampling.top_k = max_int(p.sampling.top_k, 0);
    p.sampling.logprobs = -1;
    p.sampling.seed = c->seed;
    if (!c->has_seed && getrandom(&p.sampling.seed, sizeof p.sampling.seed, 0) < 0)
        p.sampling.seed = t->last_id;
    struct detok_params d = {.tokenizer = t->model.tokenizer,
                             .skip_special = true,
                             .shown = t->model.format_tokens,
                             .num_shown = t->model.format ? t->model.num_format_tokens : 0};
    a->detok = detok_new(&d);
    if (t->model.format)
        a->output = output_parser_new(t->model.format, NULL, true, thinking);
    struct request *r = request_new(&p, engine_info(t->local.engine)->block_size);
    enum status status = r && a->detok && (a->output || !t->model.format)
                             ? service_submit(t->local.service, r, err)
                             : err_set(err, STATUS_NOMEM, "out of memory");
    if (status != STATUS_OK) {
        request_free(r);
        return status;
    }
    struct service_event end = {0};
    take_events(a, p.id, stop, &end);
    *out = (struct talk_result){.prompt = end.num_prompt,
                                .cached = end.num_cached > 0 ? end.num_cached : 0,
                                .output = end.num_output,
                                .first_ms = ms_between(end.time_submitted, end.time_first_token),
                                .ms = ms_between(end.time_submitted, end.time_finished)};
    snprintf(out->finish, sizeof out->finish, "%s",
             end.finish == FINISH_CANCELLED ? "cancelled" : finish_name(end.finish));
    if (end.finish == FINISH_ERROR)
        return err_set(err, STATUS_DEVICE, "the engine failed, or the logits are not finite");
    return end.finish == FINISH_CANCELLED ? err_set(err, STATUS_CANCELLED, "stopped") : STATUS_OK;
}

static enum status local_answer(struct talk *talk, const json_t *messages, const struct talk_sink *sink,
                                const volatile sig_atomic_t *stop, struct talk_result *out, struct err *err) {
    struct local_answer a = {.t = (struct local_talk *)talk, .sink = sink};
    struct token_buf prompt = {0};
    bool thinking = false;
    enum status status = encode(a.t, messages, &prompt, &thinking, err);
    if (status == STATUS_OK)
        status = run(&a, &prompt, thinking, stop, out, err);
    token_buf_free(&prompt);
    detok_free(a.detok);
    output_parser_free(a.output);
    return status;
}

static enum status local_count(struct talk *talk, const json_t *messages, int64_t *tokens, int64_t *most,
                               struct err *err) {
    struct local_talk *t = (struct local_talk *)talk;
    struct token_buf prompt = {0};
    bool thinking;
    enum status status = encode(t, messages, &prompt, &thinking, err);
    *tokens = (int64_t)prompt.len;
    *most = t->model.max_model_len;
    token_buf_free(&prompt);
    return status;
}

static void local_talk_close(struct talk *talk) {
    struct local_talk *t = (struct local_talk *)talk;
    json_decref(talk->sampling);
    chat_close(&t->model);
    if (t->local.engine)
        local_close(&t->local);
    free(t);
}

struct talk *talk_open_local(const struct config *c, int *rc) {
    struct local_talk *t = calloc(1, sizeof *t);
    struct err err = {0};
    if (!t) {
        complain("out of memory");
        *rc = EXIT_ENGINE;
        return NULL;
    }
    t->talk = (struct talk){NULL, local_answer, local_count, local_talk_close};
    t->config = c;
    *rc = local_open(&t->local, c);
    if (*rc != 0) {
        t->local.engine = NULL;
        local_talk_close(&t->talk);
        return NULL;
    }
    const struct engine_info *info = engine_info(t->local.engine);
    t->model = (struct served_model){.tokenizer = t->local.tokenizer,
                                     .max_model_len = info->max_model_len,
                                     .max_token_bytes = tokenizer_max_bytes(t->local.tokenizer)};
    struct sampling_params plain;
    if (sampling_defaults(&plain, &t->sampling, c, info, &err) != STATUS_OK ||
        chat_open(&t->model, c->chat_template, &err) != STATUS_OK ||
        chat_set_format(&t->model, c->tool_call_parser, &err) != STATUS_OK) {
        complain("%s", err.msg);
        *rc = EXIT_USAGE;
    } else if (!t->model.chat) {
        complain("%s (--chat-template NAME gives it one)", t->model.chat_problem);
        *rc = EXIT_MODEL;
    } else if ((t->talk.sampling = sampling_object(&t->sampling))) {
        return &t->talk;
    }
    local_talk_close(&t->talk);
    return NULL;
}
