// quire serve: start and stop order.
//
// Start: flags, keys, port (so that a taken port costs no loading), loop, HTTP, and then the model in the
// pool, while the loop already replies 503 loading_model. Stop: no new work, running requests end, HTTP,
// service, engine.
#include "serve.h"
#include "grammar/grammar.h"

#include "api/json_memory.h"
#include "api/loras.h"
#include "api/messages.h"
#include "buf.h"
#include "build_id.h"
#include "dialects/response_store.h"
#include "dialects/responses.h"
#include "endpoints/routes.h"
#include "http/tls.h"
#include "keys.h"
#include "log.h"
#include "observe/otlp.h"
#include "process/console.h"
#include "process/manager.h"
#include "process/process_env.h"
#include "process/sampling_defaults.h"
#include "process/setup.h"
#include "processes.h"
#include "requests/app.h"
#include "requests/exchange.h"
#include "requests/past_requests.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TABLE_SIZE = 8192,
    TICK_MS = 1000,
    DRAIN_TICK_MS = 50,
    GRACE_SECONDS = 2,
    JSON_MEMORY = 512 << 20,
    MAX_CONSTRAINT_BYTES = 256 << 20
};
#define SECOND 1000000000LL

static bool is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "[::1]") == 0;
}

// ---- loading

// Those of --lora-modules. err: one is not loaded.
static void load_adapters(struct app *app, struct err *err) {
    const struct str_list *l = &app->config->lora_modules;
    loras_set_engine(app->loras, app->engine);
    for (size_t i = 0; i < l->len && !err->code; i++) {
        const char *module = l->items[i], *path = strchr(module, '=');
        size_t len = path ? (size_t)(path - module) : 0;
        char name[MAX_LORA_NAME + 1] = "";
        bool ok = path && lora_name_ok(module, len);
        if (ok)
            memcpy(name, module, len);
        for (size_t k = 0; k < app->names.len; k++)
            ok &= strcmp(app->names.items[k], name) != 0;
        if (!ok)
            err_set(
                err, STATUS_INVALID,
                "--lora-modules: expected NAME=PATH, NAME of 1 to %d letters, digits and '._-' and not the "
                "model's, found '%.60s'",
                MAX_LORA_NAME, module);
        else if (loras_load(app->loras, name, path + 1, false, err) == STATUS_CANCELLED)
            err_set(err, STATUS_INVALID, "--lora-modules: there are two adapters '%s'", name);
    }
}

static void load_work(uv_work_t *work) {
    struct app *app = work->data;
    struct engine_config config;
    setup_engine(app->config, &config);
    app->engine = engine_open(&config, &app->load_err);
    if (app->engine)
        load_adapters(app, &app->load_err);
    if (app->store && response_store_waits(app->store))
        response_store_load(app->store, responses_ended);
    if (app->engine && !app->load_err.code)
        engine_warm_up(app->engine, &app->load_err);
}

static void wake_loop(void *arg) { uv_async_send(arg); } // engine thread

// One word that stands for what makes the bits: a client that sees another one cannot expect the same tokens.
static void make_fingerprint(struct app *app, const struct engine_info *info) {
    char text[512], hash[17];
    uint8_t digest[SHA256_BYTES];
    int n = snprintf(text, sizeof text, "%s %s %s %s %s %llu %llu%s", build_version, info->model.name,
                     info->weights_dtype, app->config->dtype, info->kv_dtype,
                     (unsigned long long)info->num_params, (unsigned long long)info->file_bytes,
                     info->batch_dependent ? " batch-dependent" : "");
    sha256(text, (size_t)(n < (int)sizeof text ? n : (int)sizeof text - 1), digest);
    for (int i = 0; i < 4; i++)
        snprintf(hash + 2 * i, 3, "%02x", digest[i]);
    snprintf(app->fingerprint, sizeof app->fingerprint, "quire-%s-%s", build_version, hash);
}

static void stop_loop(struct app *app, int exit_code) {
    if (app->stopping)
        return;
    app->stopping = true;
    app->exit_code = exit_code;
    uv_stop(&app->loop);
}

static void describe_model(struct app *app, const struct engine_info *info) {
    const struct config *c = app->config;
    const struct tokenizer *t = engine_tokenizer(app->engine);
    const struct vocabulary vocabulary = tokenizer_vocabulary(t);
    app->model = (struct served_model){.tokenizer = t,
                                       .names = app->names.items,
                                       .num_names = app->names.len,
                                       .loras = app->loras,
                                       .lora_root = c->lora_root,
                                       .vocab = tokenizer_vocab(t) < info->model.vocab ? tokenizer_vocab(t)
                                                                                       : info->model.vocab,
                                       .max_model_len = info->max_model_len,
                                       .batch_dependent = info->batch_dependent,
                                       .pooling = info->model.pooling,
                                       .ranks = info->model.is_reranker,
                                       .pairs = model_is_bidirectional(&info->model),
                                       .types = info->model.token_types > 1,
                                       .raw_vectors = info->model.raw_vectors,
                                       .vector_size = info->vector_size,
                                       .vector_room = info->vector_room,
                                       .rank_template = info->rank_template,
                                       .rank_template_len = info->rank_template_len,
                                       .sampling = &app->sampling,
                                       .max_token_bytes = tokenizer_max_bytes(t),
                                       .constraints = constraint_cache_new(vocabulary, MAX_CONSTRAINT_BYTES),
                                       .max_blanks = c->max_blanks,
                                       .reasoning_budget = c->reasoning_budget,
                                       .tools_fallback = *c->tools_fallback == 'g'   ? TOOLS_GENERIC
                                                         : *c->tools_fallback == 'i' ? TOOLS_IGNORED
                                                                                     : TOOLS_REFUSED,
                                       .has_priorities = strcmp(c->policy, "priority") == 0,
                                       .strict_fields = c->strict_fields,
                                       .store = app->store};
}

static void log_model(const struct app *app, const struct engine_info *info) {
    log_msg(
        LOG_INFO,
        "model=\"%s\" arch=%s params=%llu dtype=%s device=\"%s\" weight_bytes=%llu kv_dtype=%s kv_bytes=%llu "
        "blocks=%d "
        "block_size=%d cache_tokens=%lld max_model_len=%d max_num_seqs=%d max_num_batched_tokens=%d "
        "load_ms=%.0f",
        app->names.items[0], info->model.arch, (unsigned long long)info->num_params, info->weights_dtype,
        info->device, (unsigned long long)info->weight_bytes, info->kv_dtype,
        (unsigned long long)info->kv_bytes, info->num_blocks, info->block_size,
        (long long)info->num_blocks * info->block_size, info->max_model_len, info->max_num_seqs,
        info->max_num_batched_tokens, info->load_seconds * 1e3);
    if (engine_draft(app->engine)) {
        const struct engine_info *draft = engine_info(engine_draft(app->engine));
        if (draft->mtp_size > 0)
            log_msg(LOG_INFO, "mtp_layer=%d weight_bytes=%llu", draft->model.mtp_layer,
                    (unsigned long long)draft->weight_bytes);
        else
            log_msg(LOG_INFO, "draft_model=\"%s\" arch=%s params=%llu weight_bytes=%llu",
                    app->config->speculative_model, draft->model.arch, (unsigned long long)draft->num_params,
                    (unsigned long long)draft->weight_bytes);
    }
}

static void tell_address(const struct app *app) {
    const struct config *c = app->config;
    bool bare6 = strchr(c->host, ':') && c->host[0] != '[';
    char line[300];
    snprintf(line, sizeof line, "listening on %s://%s%s%s:%d", app->http.has_tls ? "https" : "http",
             bare6 ? "[" : "", c->host, bare6 ? "]" : "", app->http.listener.port);
    log_plain(line);
}

static void after_load(uv_work_t *work, int status) {
    (void)status;
    struct app *app = work->data;
    const struct config *c = app->config;
    struct err err = app->load_err;
    app->loading = false;
    if (err.code) {
        complain("%s", err.msg);
        stop_loop(app, setup_engine_exit_code(err.code));
        return;
    }
    const struct engine_info *info = engine_info(app->engine);
    describe_model(app, info);
    if (!app->model.constraints)
        err_set(&err, STATUS_NOMEM, "out of memory");
    if (err.code != STATUS_OK ||
        sampling_defaults(&app->sampling, &app->chat_sampling, c, info, &err) != STATUS_OK ||
        chat_open(&app->model, c->chat_template, &err) != STATUS_OK ||
        chat_set_format(&app->model, c->tool_call_parser, &err) != STATUS_OK) {
        complain("%s", err.msg);
        stop_loop(app, EXIT_USAGE);
        return;
    }
    make_fingerprint(app, info);
    struct service_config sc;
    setup_service(c, info, &sc);
    app->drafts_ngrams = setup_drafts_ngrams(c, info);
    sc.notify = wake_loop;
    sc.notify_arg = &app->events;
    app->service = service_open(app->engine, &sc, &err);
    if (!app->service) {
        complain("%s", err.msg);
        stop_loop(app, setup_service_exit_code(err.code));
        return;
    }
    log_model(app, info);
    app->state = APP_READY;
    tell_address(app);
    manager_ready();
}

// ---- while it runs

static void on_events(uv_async_t *async) {
    struct app *app = async->data;
    exchanges_take_events(app);
    if (app->service)
        service_answer(app->service);
    http_run(&app->http);
}

static void on_tick(uv_timer_t *timer) {
    struct app *app = timer->data;
    int64_t now = http_now();
    struct service_stats stats;
    app_stats(app, &stats);
    if (stats.dead && app->state != APP_DEAD) {
        const char *why = app_group_error(app);
        log_msg(LOG_ERROR, "engine=dead%s%s", *why ? " group ended: " : "", why);
        app->state = APP_DEAD;
        app->drain_deadline = now + GRACE_SECONDS * SECOND;
        exchanges_take_events(app);
        exchanges_fail(app, 503, "engine_unavailable", "The engine has failed; the server is restarting.");
    } else if (app->state == APP_DEAD && now > app->drain_deadline) {
        stop_loop(app, EXIT_ENGINE);
    } else if (app->state == APP_DRAINING) {
        if (app->num_exchanges == 0 || now > app->drain_deadline + GRACE_SECONDS * SECOND)
            stop_loop(app, 0);
        else if (now > app->drain_deadline)
            exchanges_fail(app, 503, "shutting_down", "The server is shutting down.");
    }
    exchanges_tick(app, now);
    manager_tick(&app->pulse, now, app->loading);
    http_run(&app->http);
}

static void on_turn(uv_prepare_t *handle) {
    struct app *app = handle->data;
    atomic_fetch_add_explicit(&app->turns, 1, memory_order_relaxed);
}

static uint64_t count_progress(void *arg) { // the watchdog's thread, as the next
    struct app *app = arg;
    return atomic_load_explicit(&app->turns, memory_order_relaxed) +
           atomic_load_explicit(&app->http.calls, memory_order_relaxed);
}

static void on_stuck(void *arg, double seconds) {
    struct app *app = arg;
    int fd = http_kill_current(&app->http);
    log_msg(LOG_ERROR, "loop=stuck seconds=%.1f%s", seconds, fd >= 0 ? " its connection is closed" : "");
}

// Half of what mpirun leaves until it kills, so that clients get a response. (It passes SIGUSR1 on and
// waits.)
static double drain_seconds(const struct app *app, int number) {
    double most = number == SIGTERM ? launch_patience() / 2 : -1;
    return most >= 0 && most < app->config->drain_timeout ? most : app->config->drain_timeout;
}

// Refuses work that waits for the pool and ends what compiles: those requests would not begin any more.
static void stop_work(struct app *app) {
    work_pool_stop(&app->pool);
    constraint_cache_stop(app->model.constraints);
}

static void on_signal(uv_signal_t *handle, int number) {
    struct app *app = handle->data;
    log_msg(LOG_INFO, "signal=%d state=%s streams=%d", number,
            app->state == APP_DRAINING ? "draining" : "serving", app->num_streams);
    if (app->loading)
        _exit(0); // the pool cannot be interrupted, and nothing has begun
    if (app->state == APP_DRAINING || app->state == APP_DEAD) { // the second signal
        exchanges_fail(app, 503, "shutting_down", "The server is shutting down.");
        http_run(&app->http);
        stop_loop(app, app->state == APP_DEAD ? EXIT_ENGINE : 0);
        return;
    }
    app->state = APP_DRAINING;
    stop_work(app);
    app->drain_deadline = http_now() + (int64_t)(drain_seconds(app, number) * 1e9);
    manager_stopping(drain_seconds(app, number) + 2 * GRACE_SECONDS);
    uv_timer_start(&app->tick, on_tick, 0, DRAIN_TICK_MS);
}

// From a terminal that is gone it ends the server, as it always has, unless that is to outlive it (nohup).
static void on_hangup(uv_signal_t *handle, int number) {
    struct app *app = handle->data;
    if (app->had_terminal && !process_env_has_terminal()) {
        on_signal(handle, number);
        return;
    }
    manager_reloading();
    if (!log_reopen())
        log_msg(LOG_ERROR, "the log goes on in the file it had: %s", strerror(errno));
    keys_reload(app);
}

// ---- start

static void warn_if_exposed(const struct app *app) {
    const struct config *c = app->config;
    if (c->key_in_argv)
        log_msg(LOG_WARN, "--api-key can be read by others in the process list for a moment; "
                          "--api-key-file FILE or QUIRE_API_KEY in the environment cannot");
    for (size_t i = 0; i < c->allowed_origins.len && app->auth.num_keys == 0; i++)
        if (strcmp(c->allowed_origins.items[i], "*") == 0)
            log_msg(LOG_WARN, "--allowed-origins * without a key: any web page that a browser here opens can "
                              "use this server");
    if (!app->loopback && app->auth.num_keys == 0)
        log_msg(LOG_WARN, "host=%s is a public address and there is no key: anyone who reaches it can use it",
                c->host);
}

// A name that clients see and send back is text, whatever bytes the file's name or a flag has.
static bool add_name(struct app *app, const char *name, size_t len) {
    struct buf b = {0};
    for (size_t i = 0; i < len;) {
        size_t bad, n = utf8_sequence((const unsigned char *)name + i, len - i, &bad);
        buf_add(&b, n ? name + i : "\xef\xbf\xbd", n ? n : 3); // U+FFFD
        i += n ? n : bad;
    }
    buf_cstr(&b);
    app->names.items[app->names.len++] = b.data;
    return !b.failed;
}

static bool take_names(struct app *app) {
    const struct config *c = app->config;
    size_t n = c->served_names.len ? c->served_names.len : 1;
    if (!(app->names.items = calloc(n, sizeof *app->names.items)))
        return false;
    for (size_t i = 0; i < c->served_names.len; i++)
        if (!add_name(app, c->served_names.items[i], strlen(c->served_names.items[i])))
            return false;
    if (app->names.len)
        return true;
    const char *path = c->embedded_model ? "quire-tiny" : c->args.items[0], *name = path;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') // a folder's
        len--;
    for (const char *p = path; p < path + len; p++)
        name = *p == '/' && p + 1 < path + len ? p + 1 : name;
    len -= (size_t)(name - path);
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0)
        len -= 5;
    return add_name(app, name, len);
}

// Before anything takes long: a folder that is another server's ends the start.
static bool take_store(struct app *app, struct err *err) {
    const struct config *c = app->config;
    if (c->store_dir && !c->store)
        err_set(err, STATUS_INVALID, "--store-dir needs --store BYTES, the most that it may have");
    else if (c->store && !(app->store = response_store_new((size_t)c->store)))
        err_set(err, STATUS_NOMEM, "out of memory for --store");
    else if (c->store_dir)
        response_store_open(app->store, c->store_dir, err);
    return err->code == STATUS_OK;
}

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void no_work(uv_work_t *work) { (void)work; }
static void after_no_work(uv_work_t *work, int status) { (void)work, (void)status; }

// libuv starts its threads with the first work and aborts where one cannot be: before anything else takes memory.
static void start_pool(uv_loop_t *loop) {
    static uv_work_t first;
    uv_queue_work(loop, &first, no_work, after_no_work);
}

static void start_handles(struct app *app) {
    app->events.data = app->tick.data = app->sigterm.data = app->sigint.data = app->sigusr1.data =
        app->sighup.data = app->load.data = app->turn.data = app->watchdog.arg = app;
    app->watchdog.progress = count_progress;
    app->watchdog.stuck = on_stuck;
    uv_async_init(&app->loop, &app->events, on_events);
    uv_timer_init(&app->loop, &app->tick);
    uv_timer_start(&app->tick, on_tick, TICK_MS, TICK_MS);
    uv_signal_init(&app->loop, &app->sigterm);
    uv_signal_init(&app->loop, &app->sigint);
    uv_signal_start(&app->sigterm, on_signal, SIGTERM);
    uv_signal_start(&app->sigint, on_signal, SIGINT);
    uv_signal_init(&app->loop, &app->sigusr1);
    // The one that mpirun passes on without ending us a second later, to one process or to many.
    uv_signal_start(&app->sigusr1, on_signal, SIGUSR1);
    app->had_terminal = process_env_has_terminal() && !process_env_ignores(SIGHUP);
    uv_signal_init(&app->loop, &app->sighup);
    uv_signal_start(&app->sighup, on_hangup, SIGHUP);
    uv_prepare_init(&app->loop, &app->turn);
    uv_prepare_start(&app->turn, on_turn);
    if (!watchdog_start(&app->watchdog))
        log_msg(LOG_WARN, "no thread for the watchdog");
}

static int run_server(struct app *app) {
    struct err err = {0};
    const struct http_app hooks = {app, routes_head, routes_body, routes_drained, routes_done};
    const struct http_limits limits = {0};
    warn_if_exposed(app);
    process_env_block_signals(true); // in all other threads, so that this one can shut them out at the end
    if (!process_env_has_threads()) {
        complain(
            "cannot start threads: too many in this system or of this user (ulimit -u), or out of memory");
        return EXIT_USAGE;
    }
    if (uv_loop_init(&app->loop) != 0) {
        complain("no event loop: out of file descriptors or memory");
        return EXIT_USAGE;
    }
    start_pool(&app->loop);
    work_pool_open(&app->pool, &app->loop, process_env_pool_threads());
    if (http_open(&app->http, &app->loop, &hooks, &limits, &err) != STATUS_OK) {
        complain("%s", err.msg);
        app->exit_code = EXIT_USAGE;
    } else {
        start_handles(app);
        app->loading = true;
        uv_queue_work(&app->loop, &app->load, load_work, after_load);
        if (app->config->otlp_traces_endpoint && !(app->otlp = otlp_open(app->config->otlp_traces_endpoint)))
            log_msg(LOG_WARN, "no memory or thread to send traces");
        process_env_block_signals(false);
        uv_run(&app->loop, UV_RUN_DEFAULT);
        watchdog_stop(&app->watchdog);
    }
    stop_work(app);
    process_env_block_signals(true); // one more while closing must not end us otherwise than the first
    http_close(&app->http);
    otlp_close(app->otlp); // it has the spans of all requests now
    app->otlp = NULL;
    if (app->service)
        service_close(app->service); // joins the engine thread: no more wake_loop()
    app->service = NULL;
    uv_walk(&app->loop, close_handle, NULL);
    uv_run(&app->loop, UV_RUN_DEFAULT); // waits for the pool, too
    uv_loop_close(&app->loop);
    exchanges_reap(app, true);
    chat_close(&app->model);
    constraint_cache_free(app->model.constraints);
    loras_close(app->loras); // before the engine
    app->loras = NULL;
    if (app->engine)
        engine_close(app->engine);
    return app->exit_code;
}

int cmd_serve(const struct config *c) {
    struct err err = {0};
    if (c->args.len != 1) {
        complain("serve takes one MODEL");
        return EXIT_USAGE;
    }
    struct app *app = calloc(1, sizeof *app);
    int rc = EXIT_USAGE;
    if (!app) {
        complain("out of memory");
        return rc;
    }
    app->config = c;
    app->loopback = is_loopback(c->host);
    app->created = (int64_t)time(NULL);
    app->table_size = TABLE_SIZE;
    app->table = calloc(TABLE_SIZE, sizeof *app->table);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a file beyond `ulimit -f` is a write that fails
    json_memory_limit(JSON_MEMORY);
    json_object_seed(0); // from the system's random source, before there are threads
    if (!app->table || !(app->past = past_requests_new()) || !take_names(app) || !(app->loras = loras_open()))
        complain("out of memory");
    else if (!keys_take(app, &err) || !take_store(app, &err) ||
             listen_bind(c->host, c->port, &app->http.listener, &err) != STATUS_OK)
        complain("%s", err.msg);
    else
        rc = run_server(app);
    tls_use(NULL);
    response_store_free(app->store);
    loras_close(app->loras);
    auth_free(&app->auth);
    auth_free(&app->admin);
    for (size_t i = 0; i < app->names.len; i++)
        free(app->names.items[i]);
    free(app->names.items);
    exchanges_free(app);
    free(app->past);
    free(app);
    return rc;
}
