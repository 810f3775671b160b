// Speed of a whole model through scheduler and engine, without HTTP: tokens/s of prefill and of decode at
// several batch sizes, beside this machine's limits measured in the same run. Prints one JSON object;
// models.py makes tables of it.
//
//   bench_model MODEL.gguf [--threads N] [--ranks 1] [--stages 1]
//               [--variant auto|amx|…, as --cpu-variant] [--kv-cache-dtype auto] [--prefill 512]
//               [--batches 1,8,16,32] [--prompt 112] [--steps 32] [--repeats 5] [--limit-passes 5]
//
// Prompts are random token ids. Decode runs `steps` steps of `batch` requests whose prompts have `prompt`
// tokens, so that the middle of their contexts is prompt + steps / 2. A step is everything between two plans:
// planning, the forward pass, sampling greedily, the scheduler's update.
//
// gb_s counts what a step must read: the bytes of all matrices as the file stores them (the embedding only
// where it is the head, too; of B rows experts * (1 - (1 - top_k / experts)^B) experts, as many as even routing chooses)
// and the keys, values and states of the contexts. gop_s counts two operations per weight and token, of experts of
// top_k, and those of attention. of_limit is the time that reading at the measured bandwidth or
// calculating at the measured rate would take, whichever is longer, by the time taken: of each sample by the
// limits measured just before and just after it, the higher of both; the median of these.
#include "clock.h"
#include "engine.h"
#include "limits.h"
#include "log.h"
#include "models/gguf.h"
#include "scheduler.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BATCHES = 16, MAX_REPEATS = 100 };

struct options {
    const char *path, *variant, *kv_dtype;
    int threads, ranks, stages, prefill, prompt, steps, repeats, limit_passes;
    int batches[MAX_BATCHES], num_batches;
};

struct cost {                         // of the model's file
    double matrix_bytes;              // that every step reads
    double layer_macs, head_macs;     // of a row
    double expert_bytes, expert_macs; // of all experts
};

struct bench {
    struct engine *engine;
    struct scheduler *sched;
    int depth, max_chunk;
    struct token_event *events;
    struct cost cost;
    struct limits_meter *limits;
    uint64_t next_id;
    uint64_t random;
};

static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_model: %s: %s\n", what, why);
    exit(1);
}

static int whole(const char *name, const char *text, int min, int max) {
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || end == text || n < min || n > max)
        die(name, "expected a whole number in range");
    return (int)n;
}

static void parse(struct options *o, int argc, char **argv) {
    static const struct option names[] = {
        {"threads", 1, 0, 't'}, {"variant", 1, 0, 'v'},        {"prefill", 1, 0, 'p'},
        {"batches", 1, 0, 'b'}, {"prompt", 1, 0, 'c'},         {"steps", 1, 0, 's'},
        {"repeats", 1, 0, 'r'}, {"kv-cache-dtype", 1, 0, 'k'}, {"limit-passes", 1, 0, 'l'},
        {"ranks", 1, 0, 'n'},   {"stages", 1, 0, 'g'},         {0, 0, 0, 0},
    };
    *o = (struct options){.variant = "auto",
                          .prefill = 512,
                          .prompt = 112,
                          .steps = 32,
                          .repeats = 5,
                          .limit_passes = LIMITS_PASSES,
                          .batches = {1, 8, 16, 32},
                          .num_batches = 4,
                          .kv_dtype = "auto"};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
        switch (c) {
        case 't': o->threads = whole("--threads", optarg, 0, 1024); break;
        case 'n': o->ranks = whole("--ranks", optarg, 1, 8); break;
        case 'g': o->stages = whole("--stages", optarg, 1, 8); break;
        case 'v': o->variant = optarg; break;
        case 'p': o->prefill = whole("--prefill", optarg, 0, 1 << 20); break;
        case 'c': o->prompt = whole("--prompt", optarg, 1, 1 << 20); break;
        case 's': o->steps = whole("--steps", optarg, 1, 1 << 20); break;
        case 'r': o->repeats = whole("--repeats", optarg, 1, MAX_REPEATS); break;
        case 'l': o->limit_passes = whole("--limit-passes", optarg, 1, 1000); break;
        case 'k': o->kv_dtype = optarg; break;
        case 'b':
            o->num_batches = 0;
            for (char *word = strtok(optarg, ","); word && o->num_batches < MAX_BATCHES;
                 word = strtok(NULL, ","))
                o->batches[o->num_batches++] = whole("--batches", word, 1, 4096);
            break;
        default: exit(2);
        }
    }
    if (optind + 1 != argc)
        die("usage", "bench_model MODEL.gguf [flags]");
    o->path = argv[optind];
}

// The share of experts that `rows` rows choose.
static double chosen(const struct bench *b, double rows) {
    const struct model_config *m = &engine_info(b->engine)->model;
    for (int i = 0; i < m->num_ffn; i++)
        if (m->ffn[i].experts > 0)
            return 1 - pow(1 - (double)m->ffn[i].top_k / m->ffn[i].experts, rows);
    return 1;
}

static double matrix_bytes(const struct bench *b, int rows) {
    return b->cost.matrix_bytes + chosen(b, rows) * b->cost.expert_bytes;
}

static double layer_macs(const struct bench *b) {
    return b->cost.layer_macs + chosen(b, 1) * b->cost.expert_macs;
}

static struct cost file_cost(const char *path) {
    struct err err = {0};
    struct model_file *g = gguf_open(path, &err);
    if (!g)
        die(path, err.msg);
    struct cost cost = {0};
    bool tied = !model_file_find(g, "output.weight");
    for (size_t i = 0; i < g->num_tensors; i++) {
        const struct model_tensor *t = &g->tensors[i];
        static const char embedding[] = "token_embd.weight", head[] = "output.weight";
        bool is_embedding = t->name.len == strlen(embedding) && !memcmp(t->name.data, embedding, t->name.len);
        bool is_head = t->name.len == strlen(head) && !memcmp(t->name.data, head, t->name.len);
        if (t->view.ndim < 2 || (is_embedding && !tied))
            continue;
        const char expert[] = "_exps.weight";
        size_t n = strlen(expert);
        if (t->name.len > n && !memcmp(t->name.data + t->name.len - n, expert, n)) {
            cost.expert_bytes += (double)t->bytes;
            cost.expert_macs += (double)t->elements;
            continue;
        }
        cost.matrix_bytes += (double)t->bytes;
        *(is_head || is_embedding ? &cost.head_macs : &cost.layer_macs) += (double)t->elements;
    }
    model_file_close(g);
    return cost;
}

static void add(struct bench *b, int prompt, int output, struct request **list) {
    token_id *ids = malloc((size_t)prompt * sizeof *ids);
    if (!ids)
        die("memory", "none");
    for (int i = 0; i < prompt; i++) {
        b->random ^= b->random << 13;
        b->random ^= b->random >> 7;
        b->random ^= b->random << 17;
        ids[i] = (token_id)((b->random >> 20) % (uint64_t)engine_info(b->engine)->model.vocab);
    }
    struct request_params p = {.id = b->next_id++,
                               .prompt = ids,
                               .num_prompt = prompt,
                               .max_output = output,
                               .sampling = {.top_p = 1, .repetition_penalty = 1, .logprobs = -1}};
    struct request *r = request_new(&p, engine_info(b->engine)->block_size);
    free(ids);
    if (!r || sched_add(b->sched, r) != STATUS_OK)
        die("scheduler", "it takes no request");
    *list = r;
}

// Collects the oldest step in flight, whose plan stays readable until the next call.
static const struct plan *collect(struct bench *b) {
    struct step_result result;
    struct err err = {0};
    if (engine_in_flight(b->engine) == 0)
        die("scheduler", "it has nothing to do");
    if (engine_collect(b->engine, &result, &err) != STATUS_OK)
        die("device", err.msg);
    const struct plan *plan = result.plan;
    int n = sched_update(b->sched, plan->id, &result.outcome, b->events);
    for (int i = 0; i < n; i++)
        if (b->events[i].finish == FINISH_ERROR)
            die("model", "its logits are not finite");
    return plan;
}

// Launches as many steps as may be in flight, and collects the oldest.
static const struct plan *step(struct bench *b) {
    const struct plan *plan;
    while (engine_in_flight(b->engine) < b->depth && (plan = sched_step(b->sched, b->max_chunk)))
        engine_launch(b->engine, plan, NULL);
    return collect(b);
}

// Sum over layers of bytes that `tokens` positions of one context, or its states, cost one query row.
static double kv_bytes(const struct bench *b, double tokens) {
    const struct engine_info *info = engine_info(b->engine);
    const struct model_config *m = &info->model;
    int dtype = 0;
    while (dtype < DTYPE_COUNT && strcmp(dtype_name((enum dtype)dtype), info->kv_dtype) != 0)
        dtype++;
    double bytes = 0;
    for (int i = 0; i < m->num_layers; i++) {
        const struct attn_spec *a = model_attn(m, i);
        const struct mix_spec *mix = model_mix(m, i);
        if (a)
            bytes += (a->window > 0 ? fmin(tokens, a->window) : tokens) * a->kv_heads * attn_kv_vectors(a) *
                     (double)backend_kv_vector_bytes((enum dtype)dtype, a->head_dim);
        if (mix)
            bytes += (double)mix_state_size(mix) * sizeof(float);
    }
    return bytes;
}

// Multiplications of attention
static double attention_macs(const struct bench *b, double tokens) {
    const struct model_config *m = &engine_info(b->engine)->model;
    double width = 0; // of the queries of all layers
    for (int i = 0; i < m->num_layers; i++)
        width += model_attn(m, i) ? model_attn(m, i)->heads * model_attn(m, i)->head_dim : 0;
    return 2 * tokens * width;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n) {
    double sorted[MAX_REPEATS];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

// Samples of tokens/s, each between limits[i] and limits[i + 1].
struct samples {
    double tokens_s[MAX_REPEATS];
    struct limits limits[MAX_REPEATS + 1];
    int n;
};

static void print_list(const char *name, const double *values, int n) {
    printf(",\"%s\":[", name);
    for (int i = 0; i < n; i++)
        printf("%s%.9g", i ? "," : "", values[i]);
    printf("]");
}

// bytes and macs: of one step of `tokens`.
static void print_rates(const struct bench *b, const struct samples *s, int tokens, double bytes,
                        double macs) {
    double m = median(s->tokens_s, s->n), seconds = tokens / m, of_limit[MAX_REPEATS];
    for (int i = 0; i < s->n; i++) {
        const char *with;
        struct limits l = limits_larger(&s->limits[i], &s->limits[i + 1]);
        double rate = limits_arithmetic(&l, engine_info(b->engine)->weights_dtype, &with);
        of_limit[i] = fmax(bytes / l.read, rate > 0 ? 2 * macs / rate : 0) * s->tokens_s[i] / tokens;
    }
    printf("\"tokens_s\":%.9g,\"ms\":%.9g,\"gb_s\":%.9g,\"gop_s\":%.9g,\"of_limit\":%.9g", m, seconds * 1e3,
           bytes / seconds * 1e-9, 2 * macs / seconds * 1e-9, median(of_limit, s->n));
    print_list("samples_tokens_s", s->tokens_s, s->n);
    print_list("samples_of_limit", of_limit, s->n);
    printf("}");
    fflush(stdout);
}

static void prefill(struct bench *b, const struct options *o) {
    struct samples s = {.n = o->repeats};
    int n = o->prefill;
    for (int i = -1; i < o->repeats; i++) { // the first one warms up
        struct request *r;
        add(b, n, 1, &r);
        double t = clock_now_s();
        while (!sched_idle(b->sched))
            step(b);
        t = clock_now_s() - t;
        if (i >= 0)
            s.tokens_s[i] = n / t;
        s.limits[i + 1] = limits_now(b->limits);
        request_free(r);
    }
    double macs = n * layer_macs(b) + b->cost.head_macs + attention_macs(b, 0.5 * n * (n + 1));
    printf(",\n\"prefill\":{\"tokens\":%d,", n);
    print_rates(b, &s, n, matrix_bytes(b, n) + kv_bytes(b, n), macs);
}

// Tokens that a request may sample while others still have prompt to compute, and before the measurement.
static int warm_up(const struct options *o, int seqs) {
    int stages = o->stages > 1 ? o->stages : 0;
    return (int)((long long)seqs * o->prompt / 512) * 2 + 4 + 32 * stages;
}

// Tokens/s of a batch, whose mean context it tells.
static double decode_sample(struct bench *b, const struct options *o, int batch, struct request **list,
                            double *context) {
    int each = (batch + b->depth - 1) / b->depth;
    int depth = (batch + each - 1) / each; // plans that together sample a token of every request
    for (int k = 0; k < batch; k++)
        add(b, o->prompt, o->steps + warm_up(o, batch), &list[k]);
    for (int sampled = 0, plans = 0; plans < depth;) { // the last of these warms up
        const struct plan *plan = step(b);
        sampled = plan->num_decode == plan->num_items ? sampled + plan->num_decode : 0;
        plans = sampled > 0 ? plans + 1 : 0;
        if (plans == depth && sampled != batch)
            sampled = plans = 0;
    }
    double t = clock_now_s(), positions = 0, sampled = 0;
    for (int k = 0; k < o->steps * depth; k++) {
        const struct plan *plan = step(b);
        for (int j = 0; j < plan->num_items; j++)
            positions += plan->items[j].first + 1;
        sampled += plan->num_decode;
        if (plan->num_decode != plan->num_items)
            die("scheduler", "a decode step has a prompt");
    }
    if (sampled != (double)batch * o->steps)
        die("scheduler", "a decode step lacks requests");
    double tokens_s = sampled / (clock_now_s() - t);
    *context = positions / sampled;
    while (engine_in_flight(b->engine) > 0)
        collect(b);
    for (int k = 0; k < batch; k++) {
        if (!sched_remove(b->sched, list[k], FINISH_CANCELLED))
            die("scheduler", "it keeps a request");
        request_free(list[k]);
    }
    return tokens_s;
}

static void decode(struct bench *b, const struct options *o, int batch) {
    double context = 0;
    struct samples s = {.n = o->repeats};
    struct request **list = calloc((size_t)batch, sizeof *list);
    if (!list)
        die("memory", "none");
    s.limits[0] = limits_now(b->limits);
    for (int i = 0; i < o->repeats; i++) {
        s.tokens_s[i] = decode_sample(b, o, batch, list, &context);
        s.limits[i + 1] = limits_now(b->limits);
    }
    free(list);
    double macs = batch * (layer_macs(b) + b->cost.head_macs + attention_macs(b, context));
    printf("{\"batch\":%d,\"context\":%.1f,", batch, context);
    print_rates(b, &s, batch, matrix_bytes(b, batch) + batch * kv_bytes(b, context), macs);
}

int main(int argc, char **argv) {
    struct options o;
    parse(&o, argc, argv);
    int seqs = 1;
    for (int i = 0; i < o.num_batches; i++)
        seqs = o.batches[i] > seqs ? o.batches[i] : seqs;
    int length = o.prompt + o.steps + warm_up(&o, seqs) + 4; // of a decoding request
    int tokens = o.prefill > 512 ? o.prefill : 512, longest = length > o.prefill ? length : o.prefill + 1;
    if (tokens < seqs)
        tokens = seqs;

    struct bench b = {.next_id = 1, .random = 88172645463325252u, .cost = file_cost(o.path)};
    b.limits = limits_open(o.threads);
    for (int i = 0; i < o.limit_passes; i++)
        limits_now(b.limits);
    log_set_level(LOG_WARN);
    struct err err = {0};
    struct engine_config config = {
        .path = o.path,
        .device = "cpu",
        .variant = o.variant,
        .num_threads = o.threads,
        .tensor_parallel_size = o.ranks,
        .pipeline_parallel_size = o.stages,
        .kv_dtype = o.kv_dtype,
        .max_model_len = longest,
        .max_num_seqs = seqs,
        .max_num_batched_tokens = tokens,
    };
    b.engine = engine_open(&config, &err);
    if (!b.engine)
        die(o.path, err.msg);
    const struct engine_info *info = engine_info(b.engine);
    struct sched_config sched = {
        .max_running = seqs,
        .max_step_tokens = tokens,
        .max_waiting = seqs,
        .max_waiting_tokens = INT64_MAX,
        .max_model_len = info->max_model_len,
        .depth = info->depth,
        .async = info->async,
    };
    b.depth = info->depth;
    b.max_chunk = tokens;
    b.events = calloc((size_t)sched_max_events(seqs), sizeof *b.events);
    if (!b.events || !(b.sched = sched_open(&sched, engine_kv(b.engine), &err)))
        die("scheduler", "no memory");

    printf(
        "{\"device\":\"%s\",\"weights_dtype\":\"%s\",\"kv_dtype\":\"%s\",\"params\":%llu,\"file_bytes\":%llu,"
        "\"packed_bytes\":%llu,\"step_bytes\":%.0f,\"load_seconds\":%.3f",
        info->device, info->weights_dtype, info->kv_dtype, (unsigned long long)info->num_params,
        (unsigned long long)info->file_bytes, (unsigned long long)info->weight_bytes, matrix_bytes(&b, 1),
        info->load_seconds);
    if (o.prefill > 0)
        prefill(&b, &o);
    printf(",\n\"decode\":[");
    for (int i = 0; i < o.num_batches; i++) {
        printf("%s\n", i ? "," : "");
        decode(&b, &o, o.batches[i]);
    }
    const char *with;
    double rate = limits_arithmetic(limits_best(b.limits), info->weights_dtype, &with);
    printf("],\n\"arithmetic_limit\":{\"with\":\"%s\",\"gop_s\":%.1f},\n\"limits\":", with, rate * 1e-9);
    limits_print_json(limits_best(b.limits));
    puts("}");
    limits_close(b.limits);
    free(b.events);
    sched_close(b.sched);
    engine_close(b.engine);
    return fflush(stdout) == 0 ? 0 : 1;
}
