// See adapters.h.
#include "adapters.h"

#include "log.h"
#include "models/adapter.h"
#include "models/weights.h"

#include <stdlib.h>
#include <string.h>

enum status adapters_init(struct adapters *a, struct ranks *ranks, const struct kv_cache *kv,
                          const struct model_config *model, const struct model_file *f, enum dtype floats,
                          const struct engine_config *c) {
    if (c->max_loras == 0)
        return STATUS_OK;
    *a = (struct adapters){
        .ranks = ranks, .kv = kv, .model = model, .max = c->max_loras, .max_rank = c->max_lora_rank};
    pthread_mutex_init(&a->lock, NULL); // cannot fail on Linux: no attributes
    a->taken = calloc((size_t)a->max, sizeof *a->taken);
    a->down = calloc((size_t)model->num_layers, sizeof *a->down);
    if (!a->taken || !a->down)
        return STATUS_NOMEM;
    for (int i = 0; i < model->num_layers; i++)
        a->down[i] = weights_down_dtype(model, f, floats, i);
    return STATUS_OK;
}

void adapters_destroy(struct adapters *a) {
    for (int i = 0; a->taken && i < a->max; i++)
        CHECK(!a->taken[i]);
    if (a->ranks)
        pthread_mutex_destroy(&a->lock);
    free(a->taken);
    free(a->down);
}

enum status adapters_check(const struct engine_config *c, const struct backend_ops *ops, struct err *err) {
    if (c->max_loras == 0 || (ops->adapter_load && !c->processes))
        return STATUS_OK;
    if (c->processes)
        return err_set(err, STATUS_INVALID, "LoRA adapters are not supported yet with several processes");
    return err_set(err, STATUS_INVALID, "LoRA adapters are not supported yet by device '%s'", ops->name);
}

static int take_slot(struct adapters *a, uint64_t *id) {
    int slot = 0;
    pthread_mutex_lock(&a->lock);
    while (slot < a->max && a->taken[slot])
        slot++;
    if (slot < a->max) {
        a->taken[slot] = true;
        *id = ++a->last_id;
    }
    pthread_mutex_unlock(&a->lock);
    return slot;
}

static void give_back(struct adapters *a, int slot) {
    pthread_mutex_lock(&a->lock);
    a->taken[slot] = false;
    pthread_mutex_unlock(&a->lock);
}

static void free_adapter(struct adapter *adapter) {
    struct adapters *a = adapter->owner;
    ranks_adapter_free(a->ranks, adapter->slot);
    give_back(a, adapter->slot);
    free(adapter);
}

static struct kv_hash hash_tensor(const struct kv_cache *kv, const struct tensor *t) {
    return kv_root(kv, t->data, t->data ? (size_t)t->shape[0] * dtype_row_bytes(t->dtype, t->shape[1]) : 0);
}

// Equal adapters have one domain, in this process and in those that share its store of pages.
static uint64_t domain_of(const struct adapters *a, const struct adapter_file *file) {
    struct {
        struct kv_hash a, b;
        int64_t rank, a_type, b_type, scale;
    } one[ADAPTER_TARGETS];
    struct kv_hash all = {0, 0};
    for (int i = 0; i < a->model->num_layers; i++) {
        struct kv_hash parts[2] = {all};
        for (int t = 0; t < ADAPTER_TARGETS; t++) {
            const struct adapter_matrix *m = &file->matrices[i * ADAPTER_TARGETS + t];
            uint32_t scale;
            memcpy(&scale, &m->scale, sizeof scale);
            one[t].a = hash_tensor(a->kv, &m->a);
            one[t].b = hash_tensor(a->kv, &m->b);
            one[t].rank = m->a.data ? m->a.shape[0] : 0;
            one[t].a_type = m->a.dtype;
            one[t].b_type = m->b.dtype;
            one[t].scale = scale;
        }
        parts[1] = kv_root(a->kv, one, sizeof one);
        all = kv_root(a->kv, parts, sizeof parts);
    }
    return all.lo ? all.lo : 1;
}

struct adapter *adapters_open(struct adapters *a, const char *path, struct err *err) {
    struct adapter_file file = {0};
    struct err local = {0};
    uint64_t id = 0;
    int slot = take_slot(a, &id);
    err = err ? err : &local;
    if (slot == a->max) {
        err_set(err, STATUS_LIMIT,
                "there are %d adapters, those that requests still use included; raise --max-loras", a->max);
        return NULL;
    }
    struct adapter *adapter = calloc(1, sizeof *adapter);
    enum status st = adapter ? adapter_file_read(&file, path, a->model, a->max_rank, err)
                             : err_set(err, STATUS_NOMEM, "no memory for an adapter");
    if (st == STATUS_OK)
        st = ranks_adapter_load(a->ranks, slot, file.matrices, a->down, err);
    if (st == STATUS_OK) {
        *adapter = (struct adapter){.id = id,
                                    .domain = domain_of(a, &file),
                                    .slot = slot,
                                    .rank = file.rank,
                                    .bytes = file.bytes,
                                    .refs = 1,
                                    .free = free_adapter,
                                    .owner = a};
    } else {
        free(adapter);
        adapter = NULL;
        give_back(a, slot);
    }
    adapter_file_free(&file);
    return adapter;
}
