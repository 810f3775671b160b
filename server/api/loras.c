#include "loras.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct loras {
    pthread_mutex_t lock;
    struct engine *engine;
    struct lora *first;
};

struct loras *loras_open(void) {
    struct loras *l = calloc(1, sizeof *l);
    if (l)
        pthread_mutex_init(&l->lock, NULL); // cannot fail on Linux: no attributes
    return l;
}

void loras_close(struct loras *l) {
    if (!l)
        return;
    while (l->first) {
        struct lora *next = l->first->next;
        lora_release(l->first);
        l->first = next;
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void loras_set_engine(struct loras *l, struct engine *e) { l->engine = e; }

// Where the list has this name, or its end. Under the lock.
static struct lora **place_of(struct loras *l, const char *name, size_t len) {
    struct lora **at = &l->first;
    while (*at && (strlen((*at)->name) != len || memcmp((*at)->name, name, len) != 0))
        at = &(*at)->next;
    return at;
}

struct lora *lora_hold(struct lora *a) {
    __atomic_fetch_add(&a->refs, 1, __ATOMIC_RELAXED);
    return a;
}

void lora_release(struct lora *a) {
    if (!a || __atomic_sub_fetch(&a->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    adapter_release(a->adapter);
    free(a);
}

struct lora *loras_find(struct loras *l, const char *name, size_t len) {
    pthread_mutex_lock(&l->lock);
    struct lora *found = *place_of(l, name, len);
    if (found)
        lora_hold(found);
    pthread_mutex_unlock(&l->lock);
    return found;
}

bool lora_name_ok(const char *name, size_t len) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return len >= 1 && len <= MAX_LORA_NAME && strspn(name, good) == len;
}

enum status loras_load(struct loras *l, const char *name, const char *path, bool replace, struct err *err) {
    struct lora *old = loras_find(l, name, strlen(name)), *new = NULL;
    lora_release(old);
    if (old && !replace)
        return STATUS_CANCELLED;
    struct adapter *adapter = engine_adapter_open(l->engine, path, err);
    if (!adapter)
        return err->code;
    if (!(new = calloc(1, sizeof *new))) {
        adapter_release(adapter);
        return err_set(err, STATUS_NOMEM, "no memory for an adapter");
    }
    snprintf(new->name, sizeof new->name, "%s", name);
    new->adapter = adapter;
    new->refs = 1;
    pthread_mutex_lock(&l->lock);
    struct lora **at = place_of(l, name, strlen(name));
    bool taken = *at && !replace; // meanwhile
    old = taken ? new : *at;
    if (!taken) {
        new->next = old ? old->next : NULL;
        *at = new;
    }
    pthread_mutex_unlock(&l->lock);
    lora_release(old);
    return taken ? STATUS_CANCELLED : STATUS_OK;
}

bool loras_unload(struct loras *l, const char *name, size_t len) {
    pthread_mutex_lock(&l->lock);
    struct lora **at = place_of(l, name, len), *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&l->lock);
    lora_release(found);
    return found;
}

void loras_each(struct loras *l, void (*fn)(void *arg, const struct lora *a), void *arg) {
    pthread_mutex_lock(&l->lock);
    for (const struct lora *a = l->first; a; a = a->next)
        fn(arg, a);
    pthread_mutex_unlock(&l->lock);
}

// ---- paths

static bool is_within(const char *real, const char *root) {
    size_t n = strlen(root);
    return strncmp(real, root, n) == 0 && (real[n] == '/' || (n == 1 && root[0] == '/'));
}

enum status loras_resolve(const char *root, const char *path, char **real, struct err *err) {
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors"};
    char top[PATH_MAX], joined[PATH_MAX], inside[PATH_MAX];
    int n = snprintf(joined, sizeof joined, "%s%s%s", path[0] == '/' ? "" : root, path[0] == '/' ? "" : "/",
                     path);
    *real = NULL;
    if (!realpath(root, top) || n >= (int)sizeof joined || !(*real = realpath(joined, NULL)))
        return err_set(err, STATUS_IO, "there is nothing at this path");
    bool ok = is_within(*real, top);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) { // links of a folder
        n = snprintf(joined, sizeof joined, "%s/%s", *real, files[i]);
        if (n < (int)sizeof joined && realpath(joined, inside))
            ok &= is_within(inside, top);
    }
    if (ok)
        return STATUS_OK;
    free(*real);
    *real = NULL;
    return err_set(err, STATUS_INVALID, "it leads out of the folder of adapters");
}
