// quire generate [MODEL] -p TEXT, or MODEL TEXT: one completion, streamed to stdout, or one JSON object.
#include "api/messages.h"
#include "buf.h"
#include "commands.h"
#include "dialects/openai.h"
#include "local.h"
#include "process/console.h"
#include "process/setup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct generation {
    const struct config *config;
    struct token_buf prompt;
    struct detok *detok;
    struct buf text, ids, logprobs; // for --json
    struct service_event end;
    int num_tokens;
};

static bool is_end(const struct tokenizer *t, const struct config *c, token_id id) {
    return !c->ignore_eos && tokenizer_is_end(t, id);
}

static void take_text(struct generation *g, const char *text, size_t len) {
    if (g->config->json) {
        buf_add(&g->text, text, len);
    } else {
        fwrite(text, 1, len, stdout);
        fflush(stdout);
    }
}

static void take_token(struct generation *g, const struct local *l, const struct service_event *ev) {
    const char *text;
    size_t len;
    if (g->num_tokens++) {
        buf_char(&g->ids, ',');
        buf_char(&g->logprobs, ',');
    }
    buf_int(&g->ids, ev->token);
    buf_fmt(&g->logprobs, "{\"token\":%d,\"logprob\":", ev->token);
    json_float(&g->logprobs, ev->logprob);
    buf_lit(&g->logprobs, ",\"top\":[");
    for (int i = 0; i < ev->num_top && i < g->config->logprobs; i++) {
        buf_fmt(&g->logprobs, "%s{\"token\":%d,\"logprob\":", i ? "," : "", ev->top_ids[i]);
        json_float(&g->logprobs, ev->top_logprobs[i]);
        buf_char(&g->logprobs, '}');
    }
    buf_lit(&g->logprobs, "]}");
    if (!is_end(l->tokenizer, g->config, ev->token)) {
        detok_push(g->detok, ev->token, &text, &len);
        take_text(g, text, len);
    }
}

static double ms_between(int64_t from, int64_t to) {
    return from && to > from ? (double)(to - from) / 1e6 : 0;
}

static void print_json(struct generation *g) {
    struct buf b = {0};
    const struct service_event *e = &g->end;
    struct usage usage = {.prompt = (int64_t)g->prompt.len,
                          .reasoning = -1,
                          .completion = g->num_tokens,
                          .cached = e->num_cached > 0 ? e->num_cached : 0};
    buf_lit(&b, "{\"text\":");
    json_quote(&b, g->text.data, g->text.len);
    buf_lit(&b, ",\"tokens\":[");
    buf_add(&b, g->ids.data, g->ids.len);
    buf_lit(&b, "],\"prompt_tokens\":[");
    for (size_t i = 0; i < g->prompt.len; i++)
        buf_fmt(&b, "%s%d", i ? "," : "", g->prompt.ids[i]);
    buf_lit(&b, "],\"logprobs\":[");
    buf_add(&b, g->logprobs.data, g->logprobs.len);
    buf_fmt(&b, "],\"finish_reason\":\"%s\",\"usage\":", finish_name(e->finish));
    openai_write_usage(&b, &usage);
    double decode = ms_between(e->time_first_token, e->time_finished);
    buf_fmt(&b,
            ",\"timings\":{\"queue_ms\":%.3f,\"prefill_ms\":%.3f,\"decode_ms\":%.3f,\"tokens_per_second\":%."
            "3f}}\n",
            ms_between(e->time_submitted, e->time_scheduled),
            ms_between(e->time_scheduled, e->time_first_token), decode,
            decode > 0 ? (g->num_tokens - 1) * 1e3 / decode : 0);
    if (!b.failed)
        fwrite(b.data, 1, b.len, stdout);
    buf_free(&b);
}

// The prompt as a message of a user, in the template of m. 0, or an exit code after a line.
static int encode_chat(struct generation *g, const struct served_model *m) {
    struct api_error e = {0};
    json_t *root = json_pack("{s:[{s:s,s:s}]}", "messages", "role", "user", "content", g->config->prompt);
    if (!root)
        complain("the prompt is not UTF-8 (--raw takes any bytes), or out of memory");
    else if (!chat_prompt(m, root, true, false, &g->prompt, NULL, &e))
        complain("%s", e.message);
    json_decref(root);
    return root && !e.status ? 0 : EXIT_USAGE;
}

// With a chat template the prompt is what somebody says, else what the model goes on from.
static int encode_prompt(struct generation *g, const struct local *l) {
    const struct config *c = g->config;
    const struct tokenizer *t = l->tokenizer;
    struct err err = {0};
    struct served_model m = {.tokenizer = t,
                             .max_model_len = engine_info(l->engine)->max_model_len,
                             .max_token_bytes = tokenizer_max_bytes(t)};
    int rc = -1;
    if (!c->raw && *c->prompt) {
        if (chat_open(&m, c->chat_template, &err) != STATUS_OK) {
            complain("%s", err.msg);
            rc = EXIT_USAGE;
        } else if (m.chat) {
            rc = encode_chat(g, &m);
        } else if (m.template_source) {
            complain("%s (--raw does without)", m.chat_problem);
            rc = EXIT_MODEL;
        }
        chat_close(&m);
    }
    if (rc >= 0)
        return rc;
    unsigned flags = TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL;
    enum status status = tokenizer_encode(t, c->prompt, strlen(c->prompt), flags, &g->prompt);
    if (status != STATUS_OK)
        return setup_encode_failed(status);
    token_id bos = tokenizer_bos(t);
    if (g->prompt.len == 0 && bos >= 0 && (g->prompt.cap || (g->prompt.ids = malloc(sizeof(token_id))))) {
        g->prompt.ids[0] = bos;
        g->prompt.len = 1;
    }
    return 0;
}

static int generate_text(struct generation *g, struct local *l) {
    const struct config *c = g->config;
    const struct tokenizer *t = l->tokenizer;
    const struct engine_info *info = engine_info(l->engine);
    int rc = encode_prompt(g, l);
    if (rc != 0)
        return rc;
    token_id bos = tokenizer_bos(t);
    if (g->prompt.len == 0 || g->prompt.len >= (size_t)info->max_model_len) {
        complain("the prompt has %zu tokens; from 1 to %d are possible", g->prompt.len,
                 info->max_model_len - 1);
        return EXIT_USAGE;
    }
    int room = info->max_model_len - (int)g->prompt.len;
    token_id stops[MAX_STOP_TOKENS];
    uint64_t seed = c->seed;
    if (!c->has_seed && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = 0;
    struct request_params p = {
        .id = 1,
        .prompt = g->prompt.ids,
        .num_prompt = (int)g->prompt.len,
        .max_output = c->max_tokens < room ? c->max_tokens : room,
        .sampling = {.temperature = c->temperature < 1e-5 ? 0 : (float)c->temperature,
                     .top_p = (float)c->top_p,
                     .top_k = c->top_k < 0 ? 0 : c->top_k,
                     .seed = seed,
                     .repetition_penalty = 1,
                     .logprobs = c->json ? c->logprobs : -1},
        .stop = stops,
        .num_stop = c->ignore_eos ? 0 : tokenizer_ends(t, stops, MAX_STOP_TOKENS),
    };
    struct detok_params d = {
        .tokenizer = t, .skip_special = true, .strip_space = g->prompt.len == 1 && g->prompt.ids[0] == bos};
    struct err err = {0};
    struct request *r = request_new(&p, info->block_size);
    g->detok = detok_new(&d);
    if (!r || !g->detok || service_submit(l->service, r, &err) != STATUS_OK) {
        request_free(r);
        complain("%s", err.code ? err.msg : "out of memory");
        return err.code == STATUS_INVALID ? EXIT_USAGE : EXIT_ENGINE;
    }
    while (g->end.finish == FINISH_NONE) {
        struct service_event events[16];
        int n = service_take(l->service, events, 16);
        for (int i = 0; i < n; i++) {
            if (events[i].kind == EVENT_TOKEN)
                take_token(g, l, &events[i]);
            else if (events[i].kind == EVENT_FINISH)
                g->end = events[i];
        }
        if (n == 0)
            service_wait(l->service, 1000000000);
    }
    const char *text;
    size_t len;
    detok_finish(g->detok, &text, &len);
    take_text(g, text, len);
    if (g->end.finish == FINISH_ERROR) {
        return local_failed(l);
    }
    if (c->json)
        print_json(g);
    else
        putchar('\n');
    return 0;
}

int cmd_generate(const struct config *c) {
    struct config own = *c;
    struct generation g = {.config = &own};
    struct local l;
    const size_t most = c->prompt ? 1 : 2; // MODEL TEXT, too
    if (c->args.len > most) {
        complain("generate takes one MODEL and one TEXT, found '%s' (quotes keep words together)",
                 c->args.items[most]);
        return EXIT_USAGE;
    }
    if (c->args.len == 2)
        own.prompt = c->args.items[1];
    if (!own.prompt) {
        complain("generate needs -p TEXT");
        return EXIT_USAGE;
    }
    int rc = local_open(&l, &own);
    if (rc == 0) {
        rc = generate_text(&g, &l);
        local_close(&l);
    }
    token_buf_free(&g.prompt);
    detok_free(g.detok);
    buf_free(&g.text);
    buf_free(&g.ids);
    buf_free(&g.logprobs);
    return rc;
}
