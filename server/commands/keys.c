#include "keys.h"

#include "http/tls.h"
#include "log.h"
#include "process/manager.h"
#include "requests/app.h"

#include <string.h>
#include <time.h>

static enum status read_keys(struct auth *auth, const struct str_list *keys, const char *file,
                             struct err *err) {
    enum status st = STATUS_OK;
    for (size_t i = 0; i < keys->len && st == STATUS_OK; i++)
        st = auth_add(auth, keys->items[i], strlen(keys->items[i]), NULL);
    if (st == STATUS_OK && file)
        st = auth_add_file(auth, file, err);
    return st == STATUS_OK || err->code ? st : err_set(err, st, "out of memory");
}

static enum status read_all(const struct config *c, struct auth *keys, struct auth *admin, struct err *err) {
    enum status st = read_keys(keys, &c->api_keys, c->api_key_file, err);
    return st == STATUS_OK ? read_keys(admin, &c->admin_keys, c->admin_key_file, err) : st;
}

static void use_pair(struct app *app, struct tls_pair *pair) {
    char ends[32] = "";
    time_t end = (time_t)tls_pair_end(pair);
    struct tm tm;
    if (gmtime_r(&end, &tm))
        strftime(ends, sizeof ends, "%Y-%m-%d", &tm);
    bool over = end < time(NULL);
    log_msg(over ? LOG_WARN : LOG_INFO, "tls=read ends=%s%s", ends,
            over ? " the certificate has expired" : "");
    tls_use(pair);
    app->http.has_tls = true;
}

bool keys_take(struct app *app, struct err *err) {
    const struct config *c = app->config;
    if (read_all(c, &app->auth, &app->admin, err) != STATUS_OK)
        return false;
    app->has_tenants = app->auth.num_keys > 1 || c->api_key_file;
    if (!app->loopback && app->auth.num_keys == 0 && c->require_key)
        err_set(err, STATUS_INVALID, "--require-key: %s is a public address and there is no key", c->host);
    struct tls_pair *pair = c->tls_cert && !err->code ? tls_pair_read(c->tls_cert, c->tls_key, err) : NULL;
    if (pair)
        use_pair(app, pair);
    return err->code == STATUS_OK;
}

static void read_work(uv_work_t *work) {
    struct key_files *k = work->data;
    const struct config *c = k->app->config;
    read_all(c, &k->auth, &k->admin, &k->err);
    k->pair = c->tls_cert ? tls_pair_read(c->tls_cert, c->tls_key, &k->tls_err) : NULL;
}

static void swap(struct auth *a, struct auth *b) {
    struct auth old = *a;
    *a = *b;
    *b = old;
}

static void after_read(uv_work_t *work, int status) {
    (void)status;
    struct key_files *k = work->data;
    struct app *app = k->app;
    if (k->err.code) {
        log_msg(LOG_ERROR, "keys=kept why=\"%s\"", k->err.msg);
    } else {
        swap(&app->auth, &k->auth);
        swap(&app->admin, &k->admin);
        log_msg(LOG_INFO, "keys=read num=%zu admin=%zu", app->auth.num_keys, app->admin.num_keys);
    }
    if (k->pair)
        use_pair(app, k->pair);
    else if (k->tls_err.code)
        log_msg(LOG_ERROR, "tls=kept why=\"%s\"", k->tls_err.msg);
    auth_free(&k->auth);
    auth_free(&k->admin);
    k->pair = NULL;
    k->err = k->tls_err = (struct err){0};
    k->busy = false;
    if (k->again)
        keys_reload(app);
    else
        manager_ready();
}

void keys_reload(struct app *app) {
    struct key_files *k = &app->key_files;
    if (!app->config->api_key_file && !app->config->admin_key_file && !app->config->tls_cert) {
        log_msg(LOG_INFO, "keys=kept why=\"no file of keys\"");
        manager_ready();
        return;
    }
    k->again = k->busy; // the file being read may be older than the signal
    if (k->busy)
        return;
    k->app = app;
    k->work.data = k;
    k->busy = uv_queue_work(&app->loop, &k->work, read_work, after_read) == 0;
}
