// See quantize.h; README.md says which tensor gets which type.
#include "quantize.h"

#include "architectures.h"
#include "convert.h"
#include "cpus.h"
#include "gguf.h"
#include "log.h"
#include "model_config.h"
#include "quants.h"
#include "tensor_read.h"
#include "weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_THREADS = 256, SHARE = 1 << 14 }; // SHARE: elements that a thread takes at a time
enum { QUANTIZATION_VERSION = 2 };           // of ggml's formats, since the f16 scales of 2023

// The names and numbers (LLAMA_FTYPE) are llama.cpp's.
static const struct quantize_target {
    const char *name;
    enum dtype dtype;
    uint32_t file_type;
    bool mixed; // some matrices in Q6_K
} targets[] = {
    {"f32", DTYPE_F32, 0, false},     {"f16", DTYPE_F16, 1, false},        {"bf16", DTYPE_BF16, 32, false},
    {"q8_0", DTYPE_Q8_0, 7, false},   {"q4_0", DTYPE_Q4_0, 2, false},      {"q4_k", DTYPE_Q4_K, 14, false},
    {"q4_k_m", DTYPE_Q4_K, 15, true}, {"q5_k", DTYPE_Q5_K, 16, false},     {"q5_k_m", DTYPE_Q5_K, 17, true},
    {"q6_k", DTYPE_Q6_K, 18, false},  {"q4_1", DTYPE_Q4_1, 3, false},      {"q5_0", DTYPE_Q5_0, 8, false},
    {"q5_1", DTYPE_Q5_1, 9, false},   {"iq4_nl", DTYPE_IQ4_NL, 25, false},
};
enum { NUM_TARGETS = sizeof targets / sizeof targets[0] };

const char *quantize_types(void) {
    return "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, q4_k, q4_k_m, q5_k, q5_k_m, q6_k";
}

struct own_key {
    char name[TENSOR_NAME_BYTES];
    uint32_t value;
};
enum { MAX_OWN_KEYS = 4 };

struct quantize_job { // one file
    const struct quantize_config *config;
    const struct quantize_target *target;
    const struct model_file *f;
    struct model_config model;
    const struct arch *arch;          // of it
    enum dtype *types;                // (num_tensors) of the output
    struct own_key own[MAX_OWN_KEYS]; // in place of the file's, or behind them
    int num_own;
    int num_mtp; // layers behind the model's that the file's keys do not count, but the output's do
    uint64_t alignment, total;
    int num_threads, fd;
    uint64_t written; // bytes
    uint64_t elements_done, elements_total;
    char temporary[4096];
    unsigned char *in, *out; // of one tensor
    struct err *err;
};

// ---- which type

// Whether a mixture has more bits in this layer: the first and the last eighth, and every third between, as
// llama.cpp does (use_more_bits() in its llama-quant.cpp).
static bool more_bits(int layer, int num_layers) {
    int eighth = num_layers / 8;
    return layer < eighth || layer >= 7 * num_layers / 8 || (layer - eighth) % 3 == 2;
}

static enum dtype choose_type(const struct quantize_job *job, const struct model_tensor *t) {
    enum dtype from = t->view.dtype, to = job->target->dtype;
    struct tensor_place at;
    bool weight = arch_find_tensor(job->arch, t->name.data, t->name.len, &at) && at.slot;
    if (t->view.ndim < 2 || (weight && (at.bias || weight_info(at.slot->role)->types != TYPES_ANY)))
        return dtype_is_float(from) ? DTYPE_F32 : from;
    bool head = weight && at.slot->role == (job->model.tied ? WEIGHT_EMBED : WEIGHT_HEAD);
    bool small = dtype_block(to) > 1 && to != DTYPE_Q6_K && to != DTYPE_Q8_0;
    bool values = weight && at.slot->role == WEIGHT_QKV && at.part == 2;
    bool down = weight && (at.slot->role == WEIGHT_DOWN || at.slot->role == WEIGHT_EXPERT_DOWN);
    bool mixed = job->target->mixed && (values || down) && more_bits(at.layer, job->model.num_layers);
    if (!job->config->pure && ((head && small) || mixed))
        to = DTYPE_Q6_K;
    int64_t cols = t->view.shape[t->view.ndim - 1];
    if (cols % dtype_block(to) == 0)
        return to;
    return cols % dtype_block(DTYPE_Q8_0) == 0 ? DTYPE_Q8_0 : DTYPE_F16;
}

static enum status choose_types(struct quantize_job *job, struct quantize_result *result) {
    bool again = false;
    for (size_t i = 0; i < job->f->num_tensors; i++) {
        const struct model_tensor *t = &job->f->tensors[i];
        enum dtype from = t->view.dtype, to = choose_type(job, t);
        if (from >= DTYPE_COUNT)
            return model_file_bad(job->f, job->err, "tensor %.*s has type %s, which is not supported",
                                  (int)t->name.len, t->name.data, t->type_name);
        job->types[i] = to;
        job->elements_total += t->elements;
        again |= !dtype_is_float(from) && to != from;
        int block = dtype_block(job->target->dtype);
        if (t->view.ndim > 1 && t->view.shape[t->view.ndim - 1] % block) {
            log_msg(LOG_INFO, "msg=\"rows are no multiple of %d\" tensor=%.*s type=%s", block,
                    (int)t->name.len, t->name.data, dtype_name(to));
            result->num_other++;
        }
    }
    if (again)
        log_msg(LOG_WARN,
                "msg=\"the file is quantised already: better begin with float weights\" file=\"%s\"",
                job->f->name);
    return STATUS_OK;
}

// ---- writing

static enum status write_bytes(struct quantize_job *job, const void *data, uint64_t size) {
    for (uint64_t done = 0; done < size;) {
        ssize_t n = write(job->fd, (const char *)data + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(job->err, STATUS_IO, "cannot write %s: %s", job->config->out, strerror(errno));
        done += (uint64_t)n;
    }
    job->written += size;
    return STATUS_OK;
}

static enum status put_padding(struct quantize_job *job) {
    static const char zeros[65536]; // the largest alignment
    return write_bytes(job, zeros, -job->written & (job->alignment - 1));
}

struct bytes { // a header in memory
    unsigned char *p;
    size_t len, cap;
    bool failed;
};

static void append_bytes(struct bytes *b, const void *data, size_t n) {
    if (b->len + n > b->cap) {
        size_t cap = 2 * (b->len + n);
        unsigned char *p = realloc(b->p, cap);
        if (!p) {
            b->failed = true;
            return;
        }
        b->p = p;
        b->cap = cap;
    }
    memcpy(b->p + b->len, data, n);
    b->len += n;
}

static void add32(struct bytes *b, uint32_t v) { append_bytes(b, &v, 4); } // little-endian host
static void add64(struct bytes *b, uint64_t v) { append_bytes(b, &v, 8); }

static void add_str(struct bytes *b, const char *s, size_t len) {
    add64(b, len);
    append_bytes(b, s, len);
}

static void add_own_key(struct bytes *b, const struct own_key *k) {
    add_str(b, k->name, strlen(k->name));
    add32(b, META_U32);
    add32(b, k->value);
}

static int find_own_key(const struct quantize_job *job, const struct meta *kv) {
    for (int k = 0; k < job->num_own; k++)
        if (kv == meta_find(job->f, job->own[k].name))
            return k;
    return -1;
}

// Of each layer one value: an array that goes on for the MTP layer.
static uint64_t count_more(const struct quantize_job *job, const struct meta *kv) {
    const char *arch = job->model.arch;
    size_t len = strlen(arch);
    bool of_arch = kv->key.len > len && memcmp(kv->key.data, arch, len) == 0 && kv->key.data[len] == '.';
    bool each = of_arch && kv->type == META_ARRAY && kv->elem != META_STRING &&
                kv->count == (uint64_t)job->model.num_layers;
    return each ? (uint64_t)job->num_mtp : 0;
}

// The value of the MTP layer: it is as the last one that has the part (find_attn() in mtp.c). Those that are true are of
// windows and states, which it has not.
static void add_more(struct bytes *b, const struct meta *kv) {
    size_t one = meta_value_bytes(kv) / kv->count;
    const unsigned char *last = kv->value + (kv->count - 1) * one;
    static const unsigned char zero[8];
    while (kv->elem != META_BOOL && last > kv->value && memcmp(last, zero, one) == 0)
        last -= one;
    append_bytes(b, kv->elem == META_BOOL ? zero : last, one);
}

// Every key as it is and where it is; those that say what this file is in their places, or at the end.
static void add_keys(struct bytes *b, const struct quantize_job *job) {
    for (size_t i = 0; i < job->f->num_meta; i++) {
        const struct meta *kv = &job->f->meta[i];
        uint64_t more = count_more(job, kv);
        int k = find_own_key(job, kv);
        if (k >= 0) {
            add_own_key(b, &job->own[k]);
            continue;
        }
        add_str(b, kv->key.data, kv->key.len);
        add32(b, kv->type);
        if (kv->type == META_ARRAY) {
            add32(b, kv->elem);
            add64(b, kv->count + more);
        }
        append_bytes(b, kv->value, meta_value_bytes(kv));
        for (; more > 0; more--)
            add_more(b, kv);
    }
    for (int k = 0; k < job->num_own; k++)
        if (!meta_find(job->f, job->own[k].name))
            add_own_key(b, &job->own[k]);
}

static uint64_t tensor_bytes(const struct model_tensor *t, enum dtype type) {
    int64_t cols = t->view.shape[t->view.ndim - 1];
    return t->elements / (uint64_t)cols * dtype_row_bytes(type, cols); // at most 8 times what is in a file
}

static uint64_t padded(const struct quantize_job *job, uint64_t n) { return n + (-n & (job->alignment - 1)); }

static enum status put_header(struct quantize_job *job) {
    struct bytes b = {0};
    uint64_t offset = 0, num_kv = job->f->num_meta;
    for (int k = 0; k < job->num_own; k++)
        num_kv += !meta_find(job->f, job->own[k].name);
    append_bytes(&b, "GGUF", 4);
    add32(&b, 3);
    add64(&b, job->f->num_tensors);
    add64(&b, num_kv);
    add_keys(&b, job);
    for (size_t i = 0; i < job->f->num_tensors; i++) {
        const struct model_tensor *t = &job->f->tensors[i];
        add_str(&b, t->name.data, t->name.len);
        add32(&b, (uint32_t)t->view.ndim);
        for (int d = t->view.ndim - 1; d >= 0; d--)
            add64(&b, (uint64_t)t->view.shape[d]);
        add32(&b, gguf_type_number(job->types[i]));
        add64(&b, offset);
        offset += padded(job, tensor_bytes(t, job->types[i]));
    }
    job->total = padded(job, b.len) + offset;
    enum status st;
    if (b.failed)
        st = err_set(job->err, STATUS_NOMEM, "out of memory for the header of %s", job->config->out);
    else if (fallocate(job->fd, 0, 0, (off_t)job->total) != 0 && // a full disk now, not after an hour's work
             (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
        st = err_set(job->err, STATUS_IO, "cannot write %s: no room for its %" PRIu64 " bytes: %s",
                     job->config->out, job->total, strerror(errno));
    else if ((st = write_bytes(job, b.p, b.len)) == STATUS_OK)
        st = put_padding(job);
    free(b.p);
    return st;
}

// ---- one tensor

struct quantize_work { // shared by the threads
    const unsigned char *in;
    unsigned char *out;
    enum dtype from, to;
    int64_t rows, cols, share; // rows that a thread takes at a time
    atomic_llong next;         // row
    atomic_ullong bad;         // the first element that the type cannot hold
    atomic_bool stop, failed;
    struct quantize_job *job; // NULL: not the thread that reports
};

static void note_bad(struct quantize_work *w, uint64_t i) {
    unsigned long long least = atomic_load(&w->bad);
    while (i < least && !atomic_compare_exchange_weak(&w->bad, &least, i))
        ;
}

// One row by way of f32, unless it is there already.
static void convert_row(struct quantize_work *w, int64_t row, float *buf) {
    const unsigned char *src = w->in + (size_t)row * dtype_row_bytes(w->from, w->cols);
    unsigned char *dst = w->out + (size_t)row * dtype_row_bytes(w->to, w->cols);
    uint64_t n = (uint64_t)w->cols, first = (uint64_t)row * n;
    const float *x = buf;
    if (w->from == DTYPE_F32)
        x = (const float *)(const void *)src;
    else if (dtype_is_float(w->from))
        convert_floats(buf, DTYPE_F32, src, w->from, n);
    else
        quants_decode(buf, src, w->from, w->cols);
    if (dtype_is_float(w->to)) {
        uint64_t bad = convert_floats(dst, w->to, x, DTYPE_F32, n);
        if (bad < n)
            note_bad(w, first + bad);
        return;
    }
    float limit = quants_limit(w->to);
    for (uint64_t i = 0; i < n; i++)
        if (x[i] > limit || x[i] < -limit) {
            note_bad(w, first + i);
            return;
        }
    quants_encode(dst, w->to, x, w->cols);
}

static void *convert_rows(void *arg) {
    struct quantize_work *w = arg;
    float *buf = malloc((size_t)w->cols * sizeof *buf);
    if (!buf)
        atomic_store(&w->failed, true);
    for (int64_t row;
         buf && !atomic_load(&w->stop) && (row = atomic_fetch_add(&w->next, w->share)) < w->rows;)
        for (int64_t end = row + w->share; row < end && row < w->rows; row++)
            convert_row(w, row, buf);
    free(buf);
    return NULL;
}

static bool report_progress(struct quantize_job *job, uint64_t elements) {
    const struct quantize_config *c = job->config;
    double all = (double)job->elements_total;
    return !c->progress || c->progress(c->arg, all > 0 ? (double)(job->elements_done + elements) / all : 1);
}

// The calling thread watches while the others work: a signal must not wait for a large tensor.
static enum status convert_tensor(struct quantize_job *job, const struct model_tensor *t, enum dtype to) {
    int64_t cols = t->view.shape[t->view.ndim - 1];
    struct quantize_work w = {.in = job->in, .out = job->out, .from = t->view.dtype, .to = to, .cols = cols};
    w.rows = (int64_t)(t->elements / (uint64_t)cols);
    w.share = cols < SHARE ? SHARE / cols : 1;
    atomic_init(&w.bad, UINT64_MAX);
    pthread_t threads[MAX_THREADS];
    int64_t shares = (w.rows + w.share - 1) / w.share;
    int wanted = shares < job->num_threads ? (int)shares : job->num_threads, num = 0;
    while (num < wanted && pthread_create(&threads[num], NULL, convert_rows, &w) == 0)
        num++;
    if (num == 0)
        convert_rows(&w);
    bool cancelled = false;
    for (int i = 0; i < num; i++)
        for (;;) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 100000000;
            if (until.tv_nsec >= 1000000000) {
                until.tv_nsec -= 1000000000;
                until.tv_sec++;
            }
            if (pthread_timedjoin_np(threads[i], NULL, &until) == 0)
                break;
            int64_t done = atomic_load(&w.next);
            if (!cancelled && !report_progress(job, (uint64_t)((done < w.rows ? done : w.rows) * cols))) {
                atomic_store(&w.stop, true);
                cancelled = true;
            }
        }
    if (cancelled)
        return err_set(job->err, STATUS_CANCELLED, "stopped; %s is not written", job->config->out);
    if (atomic_load(&w.failed))
        return err_set(job->err, STATUS_NOMEM, "out of memory for a row of %" PRId64 " numbers", cols);
    uint64_t bad = atomic_load(&w.bad);
    if (bad != UINT64_MAX) {
        int block = dtype_block(w.from);
        uint64_t at = t->offset + bad / (uint64_t)block * dtype_row_bytes(w.from, block);
        return model_file_bad(
            job->f, job->err,
            "tensor %.*s: the %s at byte %" PRIu64 " holds a number that is too large for %s",
            (int)t->name.len, t->name.data, block > 1 ? "block" : "value", at, dtype_name(to));
    }
    return STATUS_OK;
}

static enum status put_tensors(struct quantize_job *job) {
    uint64_t most_in = 0, most_out = 0;
    enum status st;
    for (size_t i = 0; i < job->f->num_tensors; i++) {
        const struct model_tensor *t = &job->f->tensors[i];
        uint64_t out = tensor_bytes(t, job->types[i]);
        most_in = t->bytes > most_in ? t->bytes : most_in;
        most_out = out > most_out ? out : most_out;
    }
    job->in = aligned_alloc(64, (most_in + 64) / 64 * 64);
    job->out = aligned_alloc(64, (most_out + 64) / 64 * 64);
    if (!job->in || !job->out)
        return err_set(job->err, STATUS_NOMEM, "%s: out of memory for a tensor of %" PRIu64 " bytes",
                       job->f->name, most_in > most_out ? most_in : most_out);
    for (size_t i = 0; i < job->f->num_tensors; i++) {
        const struct model_tensor *t = &job->f->tensors[i];
        enum dtype to = job->types[i];
        if (!report_progress(job, 0))
            return err_set(job->err, STATUS_CANCELLED, "stopped; %s is not written", job->config->out);
        if ((st = tensor_read(job->f, t, job->in, job->err)))
            return st;
        bool same = to == t->view.dtype;
        if ((!same && (st = convert_tensor(job, t, to))) ||
            (st = write_bytes(job, same ? job->in : job->out, tensor_bytes(t, to))) ||
            (st = put_padding(job)))
            return st;
        job->elements_done += t->elements;
    }
    report_progress(job, 0);
    return STATUS_OK;
}

// ---- files

// A free name beside the output; the file system is the same, so that it can be renamed.
static enum status open_temporary(struct quantize_job *job) {
    const char *out = job->config->out;
    for (int i = 0; i < 100; i++) {
        int n = snprintf(job->temporary, sizeof job->temporary, "%s.%ld-%d.part", out, (long)getpid(), i);
        if (n < 0 || (size_t)n >= sizeof job->temporary) {
            job->temporary[0] = '\0';
            errno = ENAMETOOLONG;
            break;
        }
        job->fd = open(job->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (job->fd >= 0)
            return STATUS_OK;
        if (errno != EEXIST)
            break;
    }
    int why = errno;
    job->temporary[0] = '\0';
    return err_set(job->err, STATUS_IO, "cannot write %s: %s", out, strerror(why));
}

static enum status check_out(const struct quantize_job *job) {
    struct stat in, out;
    const struct quantize_config *c = job->config;
    if (stat(c->out, &out) != 0)
        return STATUS_OK; // open_temporary() says what is wrong, if anything
    if (stat(c->in, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return err_set(job->err, STATUS_INVALID, "%s and %s are the same file", c->in, c->out);
    if (!S_ISREG(out.st_mode))
        return err_set(job->err, STATUS_IO, "cannot write %s: it is there and is no regular file", c->out);
    return STATUS_OK;
}

static enum status finish_file(struct quantize_job *job) {
    if (job->written != job->total)
        return err_set(job->err, STATUS_IO, "%s: %" PRIu64 " bytes written, %" PRIu64 " expected",
                       job->config->out, job->written, job->total);
    int fd = job->fd;
    job->fd = -1;
    bool bad = fsync(fd) != 0 && errno != EINVAL && errno != EROFS; // some file systems have none
    int why = errno;
    if (close(fd) != 0 && !bad) {
        bad = true;
        why = errno;
    }
    if (!bad && rename(job->temporary, job->config->out) != 0) {
        bad = true;
        why = errno;
    }
    if (bad)
        return err_set(job->err, STATUS_IO, "cannot write %s: %s", job->config->out, strerror(why));
    job->temporary[0] = '\0';
    return STATUS_OK;
}

// arch: of the architecture's keys, or "general".
static void set_own_key(struct quantize_job *job, const char *arch, const char *name, uint32_t value) {
    struct own_key *k = &job->own[job->num_own++];
    snprintf(k->name, sizeof k->name, "%s.%s", arch, name);
    k->value = value;
}

// A folder's MTP layer, which its keys do not count, is counted where the architecture's files can have one in this form, and
// other programs know its names; else it is left out: other programs refuse tensors that nothing counts.
static void place_mtp(struct quantize_job *job, struct model_file *f) {
    char own[TENSOR_NAME_BYTES];
    const char *arch = job->model.arch;
    int layers = job->model.num_layers;
    snprintf(own, sizeof own, "blk.%d." MTP_PROJ ".weight", layers);
    if (arch_may_have(job->arch, H_NEXTN) && !(job->arch->traits & TRAIT_ONE_PART) &&
        model_file_find(f, own)) {
        job->num_mtp = f->num_mtp;
        set_own_key(job, arch, "block_count", (uint32_t)(layers + f->num_mtp));
        set_own_key(job, arch, "nextn_predict_layers", (uint32_t)f->num_mtp);
        return;
    }
    size_t len = (size_t)snprintf(own, sizeof own, "blk.%d.", layers), kept = 0;
    for (size_t i = 0; i < f->num_tensors; i++)
        if (f->tensors[i].name.len < len || memcmp(f->tensors[i].name.data, own, len) != 0)
            f->tensors[kept++] = f->tensors[i];
    if (kept < f->num_tensors)
        log_msg(LOG_INFO, "the %zu tensors of the MTP layer are left out", f->num_tensors - kept);
    f->num_tensors = kept;
}

enum status quantize_file(const struct quantize_config *config, struct quantize_result *result,
                          struct err *err) {
    struct err local = {0};
    struct quantize_job job = {.config = config, .fd = -1, .err = err ? err : &local};
    struct model_file *f = NULL;
    enum status st = STATUS_OK;
    int64_t alignment = 32;
    *result = (struct quantize_result){0};
    for (int i = 0; i < NUM_TARGETS; i++)
        if (strcasecmp(config->type, targets[i].name) == 0)
            job.target = &targets[i];
    if (!job.target)
        return err_set(err, STATUS_INVALID, "unknown type '%.60s'; known: %s", config->type,
                       quantize_types());
    job.num_threads = config->num_threads > 0 ? config->num_threads : cpus_here();
    job.num_threads = job.num_threads < MAX_THREADS ? job.num_threads : MAX_THREADS;
    job.f = f = model_file_open(config->in, job.err);
    if (!f)
        return job.err->code;
    if ((st = check_out(&job)) || (st = model_config_read(f, &job.model, job.err)) ||
        (st = weights_check(&job.model, f, job.err)) ||
        (st = meta_int(f, "general.alignment", false, 8, 65536, &alignment, job.err)))
        goto end;
    job.arch = arch_find(job.model.arch, strlen(job.model.arch));
    set_own_key(&job, "general", "file_type", job.target->file_type);
    set_own_key(&job, "general", "quantization_version", QUANTIZATION_VERSION);
    if (f->num_mtp > 0)
        place_mtp(&job, f);
    job.alignment = (uint64_t)alignment;
    job.types = calloc(f->num_tensors + 1, sizeof *job.types);
    if (!job.types) {
        st = err_set(job.err, STATUS_NOMEM, "out of memory for %zu tensors", f->num_tensors);
        goto end;
    }
    if ((st = choose_types(&job, result)) || (st = open_temporary(&job)) || (st = put_header(&job)) ||
        (st = put_tensors(&job)) || (st = finish_file(&job)))
        goto end;
    result->bytes_in = f->size;
    result->bytes_out = job.total;
    result->elements = job.elements_total;
end:
    if (job.fd >= 0)
        close(job.fd);
    if (job.temporary[0])
        unlink(job.temporary);
    free(job.types);
    free(job.in);
    free(job.out);
    model_file_close(f);
    return st;
}
