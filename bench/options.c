#include "options.h"

#include "build_id.h"
#include "roff.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const dataset_names[DATASET_KINDS] = {
    "random", "prefix_repetition", "sharegpt", "mtbench", "custom", "text",
    "azure",  "mooncake",          "vidur",    "aibrix",
};

void options_die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("quire-bench: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

enum flag_kind { TEXT, INT, REAL, SWITCH, GROUP, REPEATED };
struct flag {
    const char *name; // GROUP: a heading of the help
    enum flag_kind kind;
    size_t at;
    double min, max;
    const char *value, *help;
};

#define AT(field) offsetof(struct options, field)
#define BIG 1e15
static const struct flag flags[] = {
    {"server", GROUP, 0, 0, 0, "", ""},
    {"base-url", TEXT, AT(base_url), 0, 0, "URL", "Load this server. (default: http://127.0.0.1:8000)"},
    {"host", TEXT, AT(host), 0, 0, "HOST", "Name the server by host, with --port. (default: 127.0.0.1)"},
    {"port", INT, AT(port), 1, 65535, "N", "Name the server by port, with --host. (default: 8000)"},
    {"endpoint", TEXT, AT(endpoint), 0, 0, "PATH",
     "Post to this path, such as /v1/chat/completions. (default: /v1/completions)"},
    {"model", TEXT, AT(model), 0, 0, "NAME", "Ask for this model. (default: the first of /v1/models)"},
    {"api-key", TEXT, AT(api_key), 0, 0, "KEY",
     "Send this key. (default: OPENAI_API_KEY of the environment)"},
    {"header", REPEATED, AT(headers), 0, 0, "K: V", "Send this HTTP header, too. Repeatable."},
    {"timeout", REAL, AT(timeout), 0.001, 1e6, "S", "Give up on a request after S seconds. (default: 600)"},
    {"connect-timeout", REAL, AT(connect_timeout), 0.001, 1e6, "S",
     "Give up on a connection after S seconds. (default: 10)"},
    {"load", GROUP, 0, 0, 0, "", ""},
    {"request-rate", REAL, AT(request_rate), 1e-6, INFINITY, "R",
     "Send R requests per second; inf sends as --max-concurrency allows. (default: inf)"},
    {"arrivals", TEXT, AT(arrivals), 0, 0, "KIND",
     "Space requests by poisson, gamma, constant or trace. (default: poisson, or trace)"},
    {"burstiness", REAL, AT(burstiness), 1e-3, 1e6, "B",
     "Shape of gamma arrivals: 1 is Poisson, less is burstier. (default: 1)"},
    {"max-concurrency", INT, AT(max_concurrency), 1, 1e6, "N",
     "Keep at most N requests open. With a rate, others wait, and the wait counts."},
    {"num-prompts", INT, AT(num_prompts), 1, 1e9, "N",
     "Send N requests or conversations. (default: 1000, or the whole trace)"},
    {"duration", REAL, AT(duration), 0.001, 1e7, "S", "Begin no request after S seconds."},
    {"num-warmups", INT, AT(num_warmups), 0, 1e6, "N",
     "Send N requests first that count nowhere. (default: 0)"},
    {"seed", INT, AT(seed), 0, BIG, "N", "Derive prompts and arrivals from N. (default: 0)"},
    {"prompts", GROUP, 0, 0, 0, "", ""},
    {"dataset-name", TEXT, AT(dataset_name), 0, 0, "NAME",
     "Take prompts from random (the default), prefix_repetition, sharegpt, mtbench, custom, text or a "
     "trace: azure, mooncake, vidur, aibrix."},
    {"dataset-path", TEXT, AT(dataset_path), 0, 0, "FILE",
     "Read the dataset from this file: sharegpt and those after it need one."},
    {"random-input-len", INT, AT(input_len), 1, 1e7, "N",
     "Make prompts of N tokens. (default: 1024, or what fits the context)"},
    {"random-output-len", INT, AT(output_len), 1, 1e7, "N", "Ask for N tokens. (default: 128)"},
    {"random-range-ratio", REAL, AT(range_ratio), 0, 0.999999, "R",
     "Draw lengths evenly from [N(1-R), N(1+R)]. (default: 0)"},
    {"random-prefix-len", INT, AT(prefix_len), 0, 1e7, "N",
     "Begin all prompts with the same N tokens. (default: 0)"},
    {"prefix-repetition-prefix-len", INT, AT(group_prefix_len), 1, 1e7, "N",
     "Begin the prompts of a group with the same N tokens. (default: 256)"},
    {"prefix-repetition-suffix-len", INT, AT(group_suffix_len), 1, 1e7, "N",
     "End each prompt with N tokens of its own. (default: 256)"},
    {"prefix-repetition-num-prefixes", INT, AT(num_prefixes), 1, 1e7, "N", "Make N groups. (default: 10)"},
    {"prefix-repetition-output-len", INT, AT(group_output_len), 1, 1e7, "N",
     "Ask for N tokens. (default: 128)"},
    {"num-turns", INT, AT(num_turns), 1, 1e5, "N", "random: make conversations of N turns. (default: 1)"},
    {"multi-turn", SWITCH, AT(multi_turn), 0, 0, "",
     "sharegpt, mtbench: send whole conversations, with the server's own completions."},
    {"think-time", REAL, AT(think_time), 0, 1e6, "S",
     "Wait S seconds between a completion and the next turn. (default: 0)"},
    {"output-len", INT, AT(file_output_len), 1, 1e7, "N",
     "Ask for N tokens after prompts from files. (default: as the file says, else 128)"},
    {"disable-shuffle", SWITCH, AT(no_shuffle), 0, 0, "", "Keep the order of the file."},
    {"prompt-form", TEXT, AT(prompt_form_name), 0, 0, "F",
     "Send prompts as ids, words or auto: ids if the server takes them. (default: auto)"},
    {"vocab-size", INT, AT(vocab_size), 2, 1e7, "N",
     "Draw ids below N. (default: from /tokenizer_info, else 256)"},
    {"time-scale", REAL, AT(time_scale), 1e-6, 1e6, "X",
     "traces: multiply times by X; 0.1 is ten times as fast. (default: 1)"},
    {"input-scale", REAL, AT(input_scale), 1e-6, 1e6, "X",
     "traces: multiply input lengths and shared blocks by X. (default: 1)"},
    {"output-scale", REAL, AT(output_scale), 1e-6, 1e6, "X",
     "traces: multiply output lengths by X. (default: 1)"},
    {"max-input-len", INT, AT(max_input_len), 1, 1e7, "N", "traces: cut longer inputs to N tokens."},
    {"max-output-len", INT, AT(max_output_len), 1, 1e7, "N", "traces: cut longer outputs to N tokens."},
    {"trace-start", REAL, AT(trace_start), 0, 1e9, "S",
     "traces: leave out the first S seconds of the trace's time."},
    {"trace-seconds", REAL, AT(trace_seconds), 0.001, 1e9, "S",
     "traces: take S seconds of the trace's time."},
    {"responses", GROUP, 0, 0, 0, "", ""},
    {"ignore-eos", SWITCH, AT(ignore_eos), 0, 0, "", "Ask for outputs of exactly the length given."},
    {"disable-stream", SWITCH, AT(no_stream), 0, 0, "", "Ask for whole responses: no TTFT, no ITL."},
    {"temperature", REAL, AT(temperature), 0, 100, "T",
     "Sample at this temperature. (default: the server's)"},
    {"top-p", REAL, AT(top_p), 0, 1, "P", "Sample with this top-p. (default: the server's)"},
    {"extra-body", TEXT, AT(extra_body), 0, 0, "JSON", "Add the fields of this object to every request."},
    {"goals", GROUP, 0, 0, 0, "", ""},
    {"goodput", REPEATED, 0, 0, 0, "M:MS", "Set goals, one or more of ttft:200 tpot:50 itl:100 e2el:3000."},
    {"search", SWITCH, AT(search), 0, 0, "",
     "Find the highest rate that meets --goodput, 30 s a rate or as --duration says."},
    {"search-min", REAL, AT(search_min), 1e-6, 1e6, "R", "Begin the search at rate R. (default: 1)"},
    {"search-max", REAL, AT(search_max), 1e-6, 1e6, "R", "End the search at rate R. (default: 1024)"},
    {"search-tolerance", REAL, AT(search_tolerance), 0.001, 1, "X",
     "Stop when the bounds are within this fraction. (default: 0.05)"},
    {"attainment", REAL, AT(attainment), 0.01, 1, "X",
     "Fraction of requests that must meet the goals. (default: 0.99)"},
    {"output", GROUP, 0, 0, 0, "", ""},
    {"json", TEXT, AT(json), 0, 0, "FILE", "Write the result, with vLLM's keys."},
    {"csv", TEXT, AT(csv), 0, 0, "FILE", "Write a row for each request."},
    {"html", TEXT, AT(html), 0, 0, "FILE", "Write one self-contained page."},
    {"label", TEXT, AT(label), 0, 0, "TEXT", "Name this run in reports."},
    {"quiet", SWITCH, AT(quiet), 0, 0, "", "Print no progress."},
};
enum { NUM_FLAGS = sizeof flags / sizeof flags[0] };

static void print_help(void) {
    puts("quire-bench [http://HOST:PORT] [FLAGS]             Load an OpenAI-compatible server and measure "
         "it.\n"
         "quire-bench compare A.json B.json… [--html FILE]   Compare results side by side.");
    for (size_t i = 0; i < NUM_FLAGS; i++) {
        char left[64];
        if (flags[i].kind == GROUP) {
            printf("\n%s\n", flags[i].name);
            continue;
        }
        snprintf(left, sizeof left, "--%s %s", flags[i].name, flags[i].value);
        printf("  %-34s %s\n", left, flags[i].help);
    }
}

static void print_manual(void) {
    roff_begin(stdout, "QUIRE-BENCH", "2026-11-28", build_version);
    roff_section(stdout, "NAME");
    puts("quire\\-bench \\- load an OpenAI\\-compatible server and measure it");
    roff_section(stdout, "SYNOPSIS");
    puts(".B quire\\-bench\n[\\fIhttp://HOST:PORT\\fR] [\\fIFLAGS\\fR]\n.br\n.B quire\\-bench compare\n"
         "\\fIA.json B.json\\fR ... [\\fB\\-\\-html\\fR \\fIFILE\\fR]");
    roff_section(stdout, "DESCRIPTION");
    roff_lines(stdout,
               "Sends requests to any server of OpenAI's completions or chat completions, at a rate or by so "
               "many clients, and reports throughput, time to first token and time between tokens. "
               "`compare` prints such reports side by side. Flags are named as those of `vllm bench serve`.");
    roff_section(stdout, "FLAGS");
    for (size_t i = 0; i < NUM_FLAGS; i++) {
        char name[64];
        if (flags[i].kind == GROUP) {
            roff_part(stdout, flags[i].name);
            continue;
        }
        snprintf(name, sizeof name, "--%s", flags[i].name);
        roff_item(stdout, name, flags[i].value, flags[i].help);
    }
    roff_section(stdout, "EXIT STATUS");
    roff_item(stdout, "0", "", "Measured.");
    roff_item(stdout, "1", "", "The server, or a file, or standard output: no result, or not all of it.");
    roff_item(stdout, "2", "", "The command line.");
    roff_item(stdout, "130", "",
              "Stopped by SIGINT or SIGTERM; the report has what was measured until then.");
    roff_section(stdout, "EXAMPLES");
    roff_example(stdout, "quire-bench http://127.0.0.1:8000 --request-rate 4 --duration 60\n"
                         "quire-bench compare before.json after.json");
    roff_section(stdout, "SEE ALSO");
    puts(".BR quire (1)");
}

static void set_defaults(struct options *o) {
    *o = (struct options){
        .endpoint = "/v1/completions",
        .request_rate = INFINITY,
        .burstiness = 1,
        .num_prompts = 1000,
        .timeout = 600,
        .connect_timeout = 10,
        .dataset_name = "random",
        .input_len = 1024,
        .output_len = 128,
        .group_prefix_len = 256,
        .group_suffix_len = 256,
        .num_prefixes = 10,
        .group_output_len = 128,
        .num_turns = 1,
        .time_scale = 1,
        .input_scale = 1,
        .output_scale = 1,
        .temperature = -1,
        .top_p = -1,
        .goal_ttft = -1,
        .goal_tpot = -1,
        .goal_itl = -1,
        .goal_e2el = -1,
        .search_min = 1,
        .search_max = 1024,
        .search_tolerance = 0.05,
        .attainment = 0.99,
    };
}

bool options_fit(struct options *o, int64_t max_model_len) {
    if (o->dataset != DATASET_RANDOM || o->input_len_given || max_model_len <= 0)
        return false;
    double room = (double)max_model_len * 15 / 16; // lengths of words are approximate
    double most = (room - (double)o->prefix_len) / (double)o->num_turns / (1 + o->range_ratio);
    int64_t fit = (int64_t)most - o->output_len;
    if (fit < 1 || fit >= o->input_len)
        return false;
    o->input_len = fit;
    return true;
}

static double number(const struct flag *f, const char *text) {
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || isnan(v) || v < f->min || v > f->max || (errno && !isinf(v)))
        options_die("--%s: '%s' is no number from %g to %g", f->name, text, f->min, f->max);
    if (f->kind == INT && v != floor(v))
        options_die("--%s: '%s' is no whole number", f->name, text);
    return v;
}

static void goal(struct options *o, const char *text) {
    const char *colon = strchr(text, ':');
    char *end = NULL;
    double v = colon ? strtod(colon + 1, &end) : -1;
    if (!colon || end == colon + 1 || *end || !(v >= 0) || isinf(v))
        options_die("--goodput: '%s' is not of the form ttft:200", text);
    size_t n = (size_t)(colon - text);
    struct {
        const char *name;
        double *at;
    } goals[] = {
        {"ttft", &o->goal_ttft}, {"tpot", &o->goal_tpot}, {"itl", &o->goal_itl}, {"e2el", &o->goal_e2el}};
    for (size_t i = 0; i < 4; i++)
        if (strlen(goals[i].name) == n && memcmp(goals[i].name, text, n) == 0) {
            *goals[i].at = v;
            o->has_goals = true;
            return;
        }
    options_die("--goodput: '%s' is none of ttft, tpot, itl, e2el", text);
}

static void set_flag(struct options *o, const struct flag *f, const char *value) {
    void *at = (char *)o + f->at;
    switch (f->kind) {
    case TEXT: *(const char **)at = value; break;
    case INT: *(int64_t *)at = (int64_t)number(f, value); break;
    case REAL: *(double *)at = number(f, value); break;
    case REPEATED:
        if (strcmp(f->name, "goodput") == 0) {
            goal(o, value);
        } else {
            if (!strchr(value, ':') || strpbrk(value, "\r\n"))
                options_die("--header: '%s' is not of the form 'Name: value'", value);
            if (o->num_headers == sizeof o->headers / sizeof o->headers[0])
                options_die("--header: too many");
            o->headers[o->num_headers++] = value;
        }
        break;
    case SWITCH: *(bool *)at = true; break;
    case GROUP: break;
    }
    if (strcmp(f->name, "num-prompts") == 0)
        o->num_prompts_given = true;
    if (strcmp(f->name, "request-rate") == 0)
        o->rate_given = true;
    else if (strcmp(f->name, "random-input-len") == 0)
        o->input_len_given = true;
}

static const struct flag *find_flag(const char *name, size_t len) {
    for (size_t i = 0; i < NUM_FLAGS; i++)
        if (flags[i].kind != GROUP && strlen(flags[i].name) == len && memcmp(flags[i].name, name, len) == 0)
            return &flags[i];
    return NULL;
}

static void read_url(struct options *o) {
    const char *url = o->base_url ? o->base_url : "http://127.0.0.1:8000";
    char built[300];
    if (o->host || o->port) {
        if (o->base_url)
            options_die("a URL and --host/--port exclude each other");
        const char *host = o->host ? o->host : "127.0.0.1";
        bool six = strchr(host, ':') != NULL && host[0] != '[';
        snprintf(built, sizeof built, "http://%s%s%s:%d", six ? "[" : "", host, six ? "]" : "",
                 o->port ? (int)o->port : 8000);
        url = built;
    }
    if (strncmp(url, "https://", 8) == 0)
        options_die(
            "https is not spoken here: put a TLS client in front, such as "
            "'socat TCP-LISTEN:8001,fork,reuseaddr OPENSSL:HOST:443', and name http://127.0.0.1:8001");
    if (strncmp(url, "http://", 7) != 0)
        options_die("'%s' is no http:// URL", url);
    const char *host = url + 7, *end = host + strcspn(host, "/?#"), *port = NULL;
    const char *host_end = end;
    if (*host == '[') {
        const char *close = memchr(host, ']', (size_t)(end - host));
        if (!close)
            options_die("'%s': no ] after the address", url);
        host++;
        host_end = close;
        if (close + 1 < end && close[1] == ':')
            port = close + 2;
    } else {
        const char *colon = memchr(host, ':', (size_t)(end - host));
        if (colon) {
            host_end = colon;
            port = colon + 1;
        }
    }
    size_t n = (size_t)(host_end - host), m = port ? (size_t)(end - port) : 0;
    if (n == 0 || n >= sizeof o->url_host || m >= sizeof o->url_port || (port && m == 0) ||
        memchr(host, '@', n))
        options_die("'%s' is no http://host:port URL", url);
    for (size_t i = 0; i < m; i++)
        if (port[i] < '0' || port[i] > '9')
            options_die("'%s' is no http://host:port URL", url);
    memcpy(o->url_host, host, n);
    memcpy(o->url_port, port ? port : "80", port ? m : 2);
    size_t path = strcspn(end, "?#");
    while (path && end[path - 1] == '/')
        path--;
    if (o->endpoint[0] != '/' || strpbrk(o->endpoint, " \r\n"))
        options_die("--endpoint: '%s' is no path", o->endpoint);
    // A base URL that ends in /v1 already has it.
    if (path >= 3 && memcmp(end + path - 3, "/v1", 3) == 0 && strncmp(o->endpoint, "/v1/", 4) == 0)
        path -= 3;
    if (path + strlen(o->endpoint) >= sizeof o->path)
        options_die("the path of the URL is too long");
    memcpy(o->path, end, path);
    strcpy(o->path + path, o->endpoint);
    o->chat = strstr(o->endpoint, "chat/completions") != NULL;
}

static void read_arrivals(struct options *o) {
    bool timed =
        o->dataset == DATASET_AZURE || o->dataset == DATASET_MOONCAKE || o->dataset == DATASET_AIBRIX;
    const char *kind = o->arrivals;
    if (!kind)
        kind = timed && !o->rate_given && !o->max_concurrency ? "trace"
               : o->burstiness != 1                           ? "gamma"
                                                              : "poisson";
    if (strcmp(kind, "trace") == 0) {
        if (!timed)
            options_die("--arrivals trace needs a trace with times: azure, mooncake or aibrix");
        if (o->rate_given)
            options_die(
                "--arrivals trace takes its rate from the trace: use --time-scale, not --request-rate");
        o->arrival = ARRIVAL_TRACE;
        return;
    }
    if (strcmp(kind, "poisson") == 0)
        o->arrival = ARRIVAL_POISSON;
    else if (strcmp(kind, "gamma") == 0)
        o->arrival = ARRIVAL_GAMMA;
    else if (strcmp(kind, "constant") == 0)
        o->arrival = ARRIVAL_CONSTANT;
    else
        options_die("--arrivals: '%s' is none of poisson, gamma, constant, trace", kind);
    if (o->arrival == ARRIVAL_POISSON && o->burstiness != 1)
        options_die("--burstiness belongs to --arrivals gamma");
    if (o->arrivals && isinf(o->request_rate) && !o->search)
        options_die("--arrivals %s needs --request-rate", kind);
    if (isinf(o->request_rate) && !o->search)
        o->arrival = ARRIVAL_CLOSED;
}

static void check_options(struct options *o) {
    size_t k = 0;
    while (k < DATASET_KINDS && strcmp(dataset_names[k], o->dataset_name) != 0)
        k++;
    if (k == DATASET_KINDS)
        options_die("--dataset-name: '%s' is not known; --help lists them", o->dataset_name);
    o->dataset = (enum dataset_kind)k;
    if (k >= DATASET_SHAREGPT && !o->dataset_path)
        options_die("--dataset-name %s needs --dataset-path", o->dataset_name);
    if (k < DATASET_SHAREGPT && o->dataset_path)
        options_die("--dataset-path belongs to a dataset from a file: name it by --dataset-name");
    if (o->multi_turn && k != DATASET_SHAREGPT && k != DATASET_MTBENCH)
        options_die("--multi-turn belongs to sharegpt and mtbench; random has --num-turns");
    if (o->num_turns > 1 && k != DATASET_RANDOM)
        options_die("--num-turns belongs to random; sharegpt and mtbench have --multi-turn");
    const char *form = o->prompt_form_name ? o->prompt_form_name : "auto";
    if (strcmp(form, "ids") == 0)
        o->prompt_form = PROMPT_IDS;
    else if (strcmp(form, "words") == 0)
        o->prompt_form = PROMPT_WORDS;
    else if (strcmp(form, "auto") != 0)
        options_die("--prompt-form: '%s' is none of ids, words, auto", form);
    if (o->prompt_form == PROMPT_IDS && (o->chat || o->num_turns > 1))
        options_die("--prompt-form ids: chat and conversations take text only");
    read_arrivals(o);
    if (o->search) {
        if (!o->has_goals)
            options_die("--search needs --goodput");
        if (o->rate_given || o->arrival == ARRIVAL_TRACE)
            options_die("--search finds the rate itself: leave --request-rate and traces' times away");
        if (!o->num_prompts_given && o->duration <= 0)
            o->duration = 30; // of each rate
        if (o->search_min >= o->search_max)
            options_die("--search-min must be below --search-max");
    }
    if (o->no_stream && (o->goal_ttft >= 0 || o->goal_tpot >= 0 || o->goal_itl >= 0))
        options_die("--goodput: without streaming there is only e2el");
}

void options_read(struct options *o, int argc, char **argv) {
    set_defaults(o);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            print_help();
            exit(0);
        }
        if (strcmp(arg, "--man") == 0) {
            print_manual();
            exit(0);
        }
        if (strncmp(arg, "http://", 7) == 0 || strncmp(arg, "https://", 8) == 0) {
            if (o->base_url)
                options_die("'%s': the server is already named: %s", arg, o->base_url);
            o->base_url = arg;
            continue;
        }
        if (strncmp(arg, "--", 2) != 0)
            options_die("'%s' is neither a flag nor an http:// URL; --help lists the flags", arg);
        const char *name = arg + 2, *equals = strchr(name, '=');
        size_t len = equals ? (size_t)(equals - name) : strlen(name);
        const struct flag *f = find_flag(name, len);
        if (!f)
            options_die("unknown flag --%.*s; --help lists them", (int)len, name);
        if (f->kind == SWITCH) {
            if (equals)
                options_die("--%s takes no value", f->name);
            set_flag(o, f, NULL);
            continue;
        }
        const char *value = equals ? equals + 1 : ++i < argc ? argv[i] : NULL;
        if (!value || !*value)
            options_die("--%s wants a value", f->name);
        set_flag(o, f, value);
        if (strcmp(f->name, "goodput") == 0) // takes all that follow, as in vLLM
            while (i + 1 < argc && argv[i + 1][0] != '-' && strncmp(argv[i + 1], "http", 4) != 0)
                set_flag(o, f, argv[++i]);
    }
    if (!o->api_key) {
        const char *key = getenv("OPENAI_API_KEY");
        o->api_key = key && *key ? key : NULL;
    }
    if (o->api_key && strpbrk(o->api_key, "\r\n"))
        options_die("--api-key: a line break in the key");
    read_url(o);
    check_options(o);
}
