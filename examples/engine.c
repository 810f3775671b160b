// The engine without the server: opens a GGUF file, encodes a prompt, generates, and prints the text as it
// comes.
//
//   example_engine MODEL.gguf "Once upon a time" [MAX_TOKENS]
//
// It is what `quire generate` does, without the engine thread: one loop of plan, launch, collect, update. The
// loop serves any number of requests; more sched_add() calls would make a batch. Decoding is greedy.
#include "engine.h"
#include "log.h"
#include "scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static void print(const char *text, size_t len) {
    fwrite(text, 1, len, stdout);
    fflush(stdout);
}

// Steps until the one request has its last event, whose reason it returns; FINISH_ERROR where the device
// failed.
static enum finish_reason run(struct engine *engine, struct scheduler *sched, int max_chunk,
                              struct detok *detok) {
    const struct tokenizer *tokenizer = engine_tokenizer(engine);
    const struct plan *plan;
    while ((plan = sched_step(sched, max_chunk))) { // which tokens of which requests
        struct step_result result;
        struct token_event events[16]; // sched_max_events(1) at least
        struct err err = {0};
        engine_launch(engine, plan, NULL); // starts the forward pass
        if (engine_collect(engine, &result, &err) != STATUS_OK) {
            fail("device", err.msg);
            return FINISH_ERROR;
        }
        // The scheduler takes the sampled tokens, publishes full cache blocks, and says what happened to whom.
        int n = sched_update(sched, plan->id, &result.outcome, events);
        for (int i = 0; i < n; i++) {
            const char *text;
            size_t len;
            if (events[i].token >= 0 && !tokenizer_is_end(tokenizer, events[i].token)) {
                detok_push(detok, events[i].token, &text, &len); // whole UTF-8 characters only
                print(text, len);
            }
            if (events[i].finish != FINISH_NONE) {
                detok_finish(detok, &text, &len);
                print(text, len);
                return events[i].finish;
            }
        }
    }
    return FINISH_ERROR; // not reached: what is admitted ends with an event
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4)
        return fail("usage", "example_engine MODEL.gguf PROMPT [MAX_TOKENS]");
    int max_tokens = argc == 4 ? atoi(argv[3]) : 64;
    struct err err = {0};
    struct token_buf prompt = {0};
    struct scheduler *sched = NULL;
    struct request *request = NULL;
    struct detok *detok = NULL;
    int rc = 1;

    // Weights are packed for this processor, and all memory of the steps and the KV cache is taken here.
    log_set_level(LOG_WARN);
    struct engine_config config = {
        .path = argv[1],
        .device = "auto",
        .kv_dtype = "auto",
        .block_size = 16,
        .max_num_seqs = 1,
        .max_num_batched_tokens = 512, // a longer prompt is computed in chunks of this
        .prefix_caching = true,
    };
    struct engine *engine = engine_open(&config, &err);
    if (!engine)
        return fail(argv[1], err.msg);
    const struct engine_info *info = engine_info(engine);
    const struct tokenizer *tokenizer = engine_tokenizer(engine);

    // The scheduler decides over the engine's paged KV cache.
    struct sched_config limits = {
        .max_running = config.max_num_seqs,
        .max_step_tokens = config.max_num_batched_tokens,
        .max_waiting = 1,
        .max_waiting_tokens = info->max_model_len,
        .max_model_len = info->max_model_len,
    };
    if (!(sched = sched_open(&limits, engine_kv(engine), &err))) {
        fail("scheduler", err.msg);
        goto done;
    }

    // Text to ids: BOS where the model wants it, and names of special tokens are read as such.
    if (tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL,
                         &prompt) != STATUS_OK ||
        prompt.len == 0 || prompt.len >= (size_t)info->max_model_len) {
        fail("prompt", "it is empty or too long");
        goto done;
    }
    int room = info->max_model_len - (int)prompt.len;
    token_id ends[MAX_STOP_TOKENS];
    struct request_params params = {
        .id = 1,
        .prompt = prompt.ids,
        .num_prompt = (int)prompt.len,
        .max_output = max_tokens < 0 || max_tokens > room ? room : max_tokens,
        .sampling = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .logprobs = -1},
        .stop = ends,
        .num_stop = tokenizer_ends(tokenizer, ends, MAX_STOP_TOKENS),
    };
    struct detok_params text = {
        .tokenizer = tokenizer,
        .skip_special = true,
        .strip_space = prompt.len == 1 && prompt.ids[0] == tokenizer_bos(tokenizer), // the text begins here
    };
    detok = detok_new(&text);
    request = request_new(&params, info->block_size);
    if (!detok || !request) {
        fail("request", "out of memory");
        goto done;
    }
    if (sched_add(sched, request) != STATUS_OK || // refused at once where it could never fit
        run(engine, sched, config.max_num_batched_tokens, detok) == FINISH_ERROR) {
        fail("request", "refused or failed");
        goto done;
    }
    putchar('\n');
    rc = 0;

done:
    request_free(request); // after its last event it is ours again
    detok_free(detok);
    token_buf_free(&prompt);
    sched_close(sched);
    engine_close(engine);
    return rc;
}
