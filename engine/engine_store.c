#include "engine_store.h"

#include "buf.h"
#include "build_id.h"
#include "clock.h"
#include "log.h"
#include "models/model_hash.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Of files as they are written, and of the identity's text.
enum { STORE_FORMAT = 1 };

int store_host_pages(uint64_t page_bytes) {
    const uint64_t room = 64 << 20, least = 8, most = 256, n = room / page_bytes;
    return (int)(n < least ? least : n > most ? most : n);
}

// The sources decide what the rules of numerics are, so each build has pages of its own.
static void write_identity(struct buf *b, const struct store_of *of, const char *model_hash) {
    const struct model_config *m = of->model;
    buf_fmt(b, "quire KV store %d\nbuild %s\nmodel %s\ndevice %s, kernels %llu\n", STORE_FORMAT, build_id,
            model_hash, of->ops->name, (unsigned long long)of->device->numerics);
    buf_fmt(b, "weights %s\ncache %s, blocks of %d tokens, %zu bytes\n", of->dtype,
            dtype_name(of->device->kv_dtype), of->config->block_size, of->page_bytes);
    for (int g = 0; g < m->num_groups; g++)
        buf_fmt(b, "group %d: kind %d, window %d%s, %d layers\n", g, (int)m->groups[g].kind,
                m->groups[g].window, m->groups[g].chunked ? " in chunks" : "", m->groups[g].num_layers);
    for (int i = 0; i < m->num_ropes; i++)
        buf_fmt(b, "rope %d: %s factors\n", i,
                m->ropes[i].long_factors && m->ropes[i].freq_factors == m->ropes[i].long_factors ? "long"
                                                                                                 : "its");
    buf_fmt(b, "variant %s, dtype %s%s\n", of->config->variant ? of->config->variant : "any",
            of->config->dtype ? of->config->dtype : "auto", of->config->exact ? ", exact" : "");
}

// DIR/hash.STAMP has the hash of a file that was read whole once. DIR is the store's; a server's, or memory, has none.
static bool note_path(const struct store_of *of, char *path, size_t size) {
    char stamp[MODEL_HASH_BYTES];
    const char *dir = of->config->kv_store;
    return !strstr(dir, "://") && strcmp(dir, "memory") != 0 && model_hash_stamp(of->file, stamp) &&
           (size_t)snprintf(path, size, "%s/hash.%s", dir, stamp) < size;
}

static bool read_note(const char *path, char hash[MODEL_HASH_BYTES]) {
    FILE *f = fopen(path, "re");
    bool ok = f && fread(hash, 1, MODEL_HASH_BYTES, f) == MODEL_HASH_BYTES - 1 &&
              strspn(hash, "0123456789abcdef") == MODEL_HASH_BYTES - 1;
    if (f)
        fclose(f);
    hash[MODEL_HASH_BYTES - 1] = 0;
    return ok;
}

// Whole or not at all, whoever else starts.
static void write_note(const char *path, const char *hash) {
    char fresh[4200];
    if ((size_t)snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid()) >= sizeof fresh)
        return;
    FILE *f = fopen(fresh, "wex");
    if (!f)
        return;
    bool ok = fputs(hash, f) >= 0;
    ok = fclose(f) == 0 && ok;
    if (!ok || rename(fresh, path) != 0)
        unlink(fresh);
}

enum status store_open(const struct store_of *of, struct kv_store **store, struct err *err) {
    char hash[MODEL_HASH_BYTES] = "", note[4096];
    struct buf identity = {0};
    if (of->ranks > 1)
        return err_set(err, STATUS_INVALID, "--kv-store takes one rank; here are %d", of->ranks);
    if (!of->ops->kv_host_page)
        return err_set(err, STATUS_INVALID, "--kv-store is not supported yet by device '%s'", of->ops->name);
    if (strcmp(of->config->kv_store, "memory") == 0 && of->device->memory_total == 0)
        return err_set(
            err, STATUS_INVALID,
            "--kv-store memory is for devices with memory of their own: here the KV cache is in the host's "
            "already, and --kv-cache-memory gives it more");
    if (!of->config->prefix_caching)
        return err_set(err, STATUS_INVALID,
                       "--kv-store keeps the prefix cache, which an encoder does not have and "
                       "--no-enable-prefix-caching turns off");
    double began = clock_now_s();
    const bool may_note = note_path(of, note, sizeof note), noted = may_note && read_note(note, hash);
    if (!noted && model_hash_file(of->file, hash, err) != STATUS_OK)
        return err->code;
    log_msg(LOG_INFO, "model_hash=%s model_hash_ms=%.0f", hash, (clock_now_s() - began) * 1e3);
    write_identity(&identity, of, hash);
    if (!buf_cstr(&identity))
        return err_set(err, STATUS_NOMEM, "out of memory for the KV store");
    const struct kv_store_config config = {.dir = of->config->kv_store,
                                           .max_bytes = of->config->kv_store_bytes,
                                           .identity = buf_cstr(&identity),
                                           .block_size = of->config->block_size,
                                           .page_bytes = of->page_bytes};
    began = clock_now_s();
    *store = kv_store_open(&config, err);
    buf_free(&identity);
    if (!*store)
        return err->code;
    if (may_note && !noted)
        write_note(note, hash);
    struct kv_store_stats stats;
    kv_store_stats(*store, &stats);
    log_msg(LOG_INFO, "kv_store=%s pages=%lld bytes=%lld max_bytes=%lld writes=%s open_ms=%.0f", stats.where,
            (long long)stats.pages, (long long)stats.bytes, (long long)stats.max_bytes,
            stats.writer ? "yes" : "no, another process does", (clock_now_s() - began) * 1e3);
    return STATUS_OK;
}
