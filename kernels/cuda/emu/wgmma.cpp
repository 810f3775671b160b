// GEMMs of warpgroups (wgmma), as the PTX ISA defines them ("Asynchronous warpgroup-level matrix
// multiply-accumulate instructions"): descriptors, layouts and swizzles of operands in shared memory, groups,
// fences. A warp computes its own 16 rows when it waits for the group.
//
// A wgmma reads a copy of shared memory (`seen`), which shared_fence() brings up to date once all lanes of a
// warp have reached it. Every 16-byte piece that it reads must be the same in both, when it is issued and when
// it is done. An asynchronous copy becomes visible by a fence of the thread that began it, an ordinary store by
// any later fence, because the emulator does not know which thread stored it.
#include "emu.h"

#include <vector>

namespace emu {

enum { PIECE = 16, ROWS = 16, DEPTH = 16, MAX_WIDTH = 256 };

namespace {

struct wgmma_sums { // of one wgmma, or of several that add to the same
    float *d[WARP];
    int n, in_flight;
    std::vector<float> value; // (ROWS, n)
};

struct wgmma_op {
    wgmma_args args;
    const uint32_t *a[WARP];
    uint32_t a_value[WARP][4];
    int sums; // of the warp's
};

struct registers { // that a wgmma had: what they held at the last fence
    const uint32_t *lane[WARP];
    int n;
    uint64_t fenced;
    bool known; // a fence has seen them
};

struct warp_state {
    std::vector<wgmma_op> queue;
    std::vector<size_t> group_end;
    std::vector<wgmma_sums> all;
    std::vector<registers> had;
    bool fenced;
    int shared_fences; // that lanes reached since the last that brought `seen` up to date
    uint64_t history;  // of all that the warps of a group must do alike
};

struct block_state {
    warp_state warps[MAX_THREADS / WARP];
    uint32_t num_copies, writer[MAX_SHARED / PIECE]; // number of a copy that is not fenced, or 0
    struct landed {
        size_t piece;
        uint32_t number;
    };
    std::vector<landed> landed_of[MAX_THREADS];
    unsigned char seen[MAX_SHARED];
};

thread_local std::vector<block_state> blocks; // one, once there is need

block_state *shared_state() {
    if (blocks.empty())
        blocks.resize(1);
    return &blocks[0];
}

warp_state *mine() { return &shared_state()->warps[ctx->current->warp]; }

int thread_number() { return (int)(ctx->current - ctx->fibers); }

uint64_t mix(uint64_t h, uint64_t x) { return (h ^ x) * 0x9E3779B97F4A7C15u + (h >> 29); }

// A lane's registers may have gone out of scope since, which is no fault of the reader.
__attribute__((no_sanitize_address)) uint64_t digest(const registers &r) {
    uint64_t h = 0;
    for (int l = 0; l < WARP; l++)
        for (int i = 0; i < r.n; i++)
            h = mix(h, r.lane[l][i]);
    return h;
}

// ---- operands in shared memory

size_t begin_of_shared() { return (size_t)(ctx->shared - ctx->shared_pages); }

// Makes the bytes that ordinary stores wrote visible to wgmma.
void publish() {
    block_state *b = shared_state();
    enum { RUN = 4096 };
    for (size_t run = begin_of_shared() / RUN * RUN; run < MAX_SHARED; run += RUN)
        if (memcmp(ctx->shared_pages + run, b->seen + run, RUN) != 0)
            for (size_t at = run; at < run + RUN; at += PIECE)
                if (at >= begin_of_shared() && !b->writer[at / PIECE])
                    memcpy(b->seen + at, ctx->shared_pages + at, PIECE);
}

struct operand {
    size_t address, lead, stride;
    int width; // of a swizzled row, in pieces; 1: no swizzle
    bool across;
};

operand decode(uint64_t d, bool across, int rows) {
    static const int widths[] = {1, 8, 4, 2};
    operand o = {(size_t)(d & 0x3fff) << 4, (size_t)(d >> 16 & 0x3fff) << 4, (size_t)(d >> 32 & 0x3fff) << 4,
                 widths[d >> 62], across};
    if (d & 0x3ff1c000c000c000u)
        die("a matrix descriptor has bits set that mean nothing");
    if (d >> 49 & 7)
        die("a matrix descriptor with a base offset is not emulated");
    size_t pattern = (size_t)o.width * 128, within = o.address % pattern;
    if (o.width > 1) {
        // Along k a wgmma may begin at any 32 bytes of the first row of a pattern.
        if (across ? within != 0 : within >= (size_t)o.width * PIECE || within % (2 * PIECE) != 0)
            die("a matrix in shared memory does not begin at its swizzle pattern");
        if ((!across && rows > 8 && (o.stride == 0 || o.stride % pattern != 0)) ||
            (across && (o.stride == 0 || o.stride % pattern != 0 ||
                        (rows > o.width * 8 && (o.lead == 0 || o.lead % pattern != 0)))))
            die("strides of a matrix in shared memory are no multiples of its swizzle pattern");
    } else if (o.lead == 0 || (rows > 8 && o.stride == 0)) {
        die("strides of a matrix in shared memory are 0");
    }
    return o;
}

// Where element k of row (or column) i lies.
size_t place(const operand &o, int i, int k) {
    size_t u = (size_t)i, v = (size_t)k, w = (size_t)o.width, at;
    if (o.width == 1)
        at = o.across ? u % 8 * 2 + u / 8 * o.stride + v % 8 * PIECE + v / 8 * o.lead
                      : u % 8 * PIECE + u / 8 * o.stride + v % 8 * 2 + v / 8 * o.lead;
    else if (o.across)
        at = u % 8 * 2 + u / 8 % w * PIECE + u / (8 * w) * o.lead + v % 8 * w * PIECE + v / 8 * o.stride;
    else
        at = u % 8 * w * PIECE + u / 8 * o.stride + v * 2;
    at += o.address;
    return at ^ ((at >> 7 & (w - 1)) << 4);
}

// Checks that every piece is there to be read.
void check_operand(const operand &o, int first, int rows) {
    const block_state *b = shared_state();
    // Pieces hold 8 elements: of k along it, of rows across it.
    int step_i = o.across ? 8 : 1, step_k = o.across ? 1 : 8;
    for (int i = first; i < first + rows; i += step_i)
        for (int k = 0; k < DEPTH; k += step_k) {
            size_t at = place(o, i, k);
            if (at < begin_of_shared() || at + PIECE > MAX_SHARED)
                die("a wgmma reads outside the shared memory of its launch");
            if (b->writer[at / PIECE] || memcmp(ctx->shared_pages + at, b->seen + at, PIECE) != 0)
                die("a wgmma reads shared memory that was written without kd_shared_fence() behind it, or "
                    "is "
                    "written while it may be read");
        }
}

// Rows (columns) [first, first + rows) as (DEPTH, rows).
void load_operand(const operand &o, int first, int rows, to_float_fn *to_float, float *to) {
    uint16_t h[8];
    for (int i = 0; i < rows; i += o.across ? 8 : 1)
        for (int k = 0; k < DEPTH; k += o.across ? 1 : 8) {
            memcpy(h, ctx->shared_pages + place(o, first + i, k), sizeof h);
            for (int e = 0; e < 8; e++)
                to[o.across ? k * rows + i + e : (k + e) * rows + i] = to_float(h[e]);
        }
}

// ---- a wgmma

int rows_from() { return ctx->current->warp % 4 * ROWS; }

void check_memory(const wgmma_args &p) {
    check_operand(decode(p.b_desc, p.b_across, p.n), 0, p.n);
    if (!p.a)
        check_operand(decode(p.a_desc, p.a_across, 64), rows_from(), ROWS);
}

void compute(const wgmma_op &p, float *sum) {
    float A[DEPTH * ROWS], B[DEPTH * MAX_WIDTH];
    const wgmma_args &x = p.args;
    if (x.a) {
        for (int l = 0; l < WARP; l++)
            for (int r = 0; r < 4; r++)
                for (int e = 0; e < 2; e++)
                    A[(l % 4 * 2 + e + 8 * (r >> 1)) * ROWS + l / 4 + 8 * (r & 1)] =
                        x.to_float((uint16_t)(p.a_value[l][r] >> (16 * e)));
    } else {
        load_operand(decode(x.a_desc, x.a_across, 64), rows_from(), ROWS, x.to_float, A);
    }
    load_operand(decode(x.b_desc, x.b_across, x.n), 0, x.n, x.to_float, B);
    for (int i = 0; i < ROWS; i++) {
        float add[MAX_WIDTH] = {};
        for (int k = 0; k < DEPTH; k++)
            for (int j = 0; j < x.n; j++)
                add[j] += A[k * ROWS + i] * B[k * x.n + j];
        for (int j = 0; j < x.n; j++)
            sum[i * x.n + j] = x.add ? sum[i * x.n + j] + add[j] : add[j];
    }
}

// Sum e of lane l: row and column of the warp's (ROWS, n).
int sum_place(int l, int e, int n) { return (l / 4 + 8 * (e % 4 / 2)) * n + e / 4 * 8 + l % 4 * 2 + e % 2; }

// Registers that a wgmma is about to have.
void take_registers(warp_state *w, const uint32_t *const lane[WARP], int n) {
    for (registers &r : w->had)
        if (r.lane[0] == lane[0]) {
            if (r.known && r.n == n && digest(r) != r.fenced)
                die("registers of a wgmma were written after kd_wgmma_fence()");
            return;
        }
    registers r = {};
    memcpy(r.lane, lane, sizeof r.lane);
    r.n = n;
    w->had.push_back(r);
}

int find_sums(warp_state *w, const wgmma_args *const args[WARP]) {
    int n = args[0]->n, place = -1;
    for (size_t i = 0; i < w->all.size(); i++) {
        wgmma_sums &s = w->all[i];
        if (s.in_flight == 0)
            place = (int)i;
        else if (s.d[0] == args[0]->d && s.n == n)
            return (int)i;
        else if (s.d[0] < args[0]->d + n / 2 && args[0]->d < s.d[0] + s.n / 2)
            die("wgmmas of different shapes have the same sums in flight");
    }
    if (place < 0) {
        place = (int)w->all.size();
        w->all.emplace_back();
    }
    wgmma_sums &s = w->all[(size_t)place];
    s.n = n;
    s.value.assign((size_t)(ROWS * n), 0);
    const uint32_t *lane[WARP];
    for (int l = 0; l < WARP; l++) {
        s.d[l] = args[l]->d;
        lane[l] = (const uint32_t *)(const void *)s.d[l];
    }
    take_registers(w, lane, n / 2);
    for (int l = 0; l < WARP; l++) {
        for (int e = 0; e < n / 2; e++)
            s.value[(size_t)sum_place(l, e, n)] = s.d[l][e];
        memset(s.d[l], 0xff, sizeof(float) * (size_t)(n / 2)); // the old sums must not look valid
    }
    return place;
}

void issue(void **lanes, unsigned) {
    const wgmma_args *const *args = (const wgmma_args *const *)(void *)lanes, &x = *args[0];
    warp_state *w = mine();
    if (ctx->num_threads % 128 != 0)
        die("a wgmma in a block that is not whole warpgroups");
    if (x.n % 8 != 0 || x.n < 8 || x.n > MAX_WIDTH)
        die("no wgmma has this width");
    for (int l = 1; l < WARP; l++)
        if (args[l]->n != x.n || args[l]->a_desc != x.a_desc || args[l]->b_desc != x.b_desc ||
            args[l]->add != x.add || args[l]->a_across != x.a_across || args[l]->b_across != x.b_across ||
            args[l]->to_float != x.to_float || !args[l]->a != !x.a)
            die("lanes of a warp want different wgmmas");
    if (!w->fenced)
        die("a wgmma without kd_wgmma_fence() since its registers were free");
    w->history = mix(mix(mix(w->history, x.a_desc), x.b_desc),
                     (uint64_t)x.n << 8 | (x.a ? 1u : 0u) | (x.add ? 2u : 0u) | (x.b_across ? 4u : 0u));
    for (int i = 0; i < ctx->num_threads / WARP; i++)
        if (shared_state()->warps[i].shared_fences > 0) { // some lanes alone
            publish();
            break;
        }
    check_memory(x);
    wgmma_op p = {};
    p.args = x;
    for (int l = 0; l < WARP; l++)
        if (x.a) {
            p.a[l] = args[l]->a;
            memcpy(p.a_value[l], args[l]->a, sizeof p.a_value[l]);
        }
    if (x.a)
        take_registers(w, p.a, 4);
    p.sums = find_sums(w, args);
    w->all[(size_t)p.sums].in_flight++;
    w->queue.push_back(p);
}

void finish(warp_state *w, const wgmma_op &p) {
    wgmma_sums &s = w->all[(size_t)p.sums];
    check_memory(p.args);
    for (int l = 0; p.args.a && l < WARP; l++)
        if (memcmp(p.a[l], p.a_value[l], sizeof p.a_value[l]) != 0)
            die("registers of a wgmma in flight were written");
    compute(p, s.value.data());
    if (--s.in_flight > 0)
        return;
    for (int l = 0; l < WARP; l++)
        for (int e = 0; e < s.n / 2; e++) {
            uint32_t bits;
            memcpy(&bits, &s.d[l][e], sizeof bits);
            if (bits != 0xffffffffu)
                die("sums of a wgmma in flight were written");
            s.d[l][e] = s.value[(size_t)sum_place(l, e, s.n)];
        }
}

void fence(void **, unsigned) {
    warp_state *w = mine();
    w->fenced = true;
    w->history = mix(w->history, 1);
    for (registers &r : w->had) {
        r.fenced = digest(r);
        r.known = true;
    }
}

void commit(void **, unsigned) {
    mine()->group_end.push_back(mine()->queue.size());
    mine()->history = mix(mine()->history, 2);
}

void wait(void **keep, unsigned) {
    warp_state *w = mine();
    int left = *(int *)keep[0], done = (int)w->group_end.size() - left;
    w->history = mix(w->history, 3 + (uint64_t)left);
    if (done <= 0)
        return;
    size_t end = w->group_end[(size_t)done - 1];
    for (size_t i = 0; i < end; i++)
        finish(w, w->queue[i]);
    w->queue.erase(w->queue.begin(), w->queue.begin() + (ptrdiff_t)end);
    w->group_end.erase(w->group_end.begin(), w->group_end.begin() + done);
    for (size_t &e : w->group_end)
        e -= end;
    w->fenced = false; // registers are free after the wait
}

} // namespace

// ---- what kernels call, through wgmma.h

uint32_t shared_address(const void *p) {
    const char *c = (const char *)p;
    if (c < ctx->shared || c >= ctx->shared_pages + MAX_SHARED)
        die("the address of what does not lie in shared memory");
    return (uint32_t)(c - ctx->shared_pages);
}

void shared_fence() {
    block_state *b = shared_state();
    for (const block_state::landed &l : b->landed_of[thread_number()])
        if (b->writer[l.piece] == l.number)
            b->writer[l.piece] = 0;
    b->landed_of[thread_number()].clear();
    if (++mine()->shared_fences < WARP) // to compare all of it for every lane takes long
        return;
    mine()->shared_fences = 0;
    publish();
}

void wgmma(wgmma_args args) { collective(0xffffffffu, &args, issue); }
void wgmma_fence() { collective(0xffffffffu, nullptr, fence); }
void wgmma_commit() { collective(0xffffffffu, nullptr, commit); }
void wgmma_wait(int keep) { collective(0xffffffffu, &keep, wait); }

// ---- what emu.cpp tells

static void begin(size_t shared_bytes) {
    block_state *b = shared_state();
    for (warp_state &w : b->warps) {
        w.queue.clear();
        w.group_end.clear();
        w.all.clear();
        w.had.clear();
        w.fenced = false;
        w.shared_fences = 0;
        w.history = 0;
    }
    for (int t = 0; t < ctx->num_threads; t++)
        b->landed_of[t].clear();
    b->num_copies = 0;
    memset(b->seen + MAX_SHARED - shared_bytes, 0xff, shared_bytes);
    memset(b->writer + (MAX_SHARED - shared_bytes) / PIECE, 0, shared_bytes / PIECE * sizeof b->writer[0]);
}

static uint32_t copy_issued(void *dst, int bytes) {
    block_state *b = shared_state();
    const char *c = (const char *)dst;
    b->num_copies++;
    if (c >= ctx->shared && c + bytes <= ctx->shared_pages + MAX_SHARED)
        b->writer[(size_t)(c - ctx->shared_pages) / PIECE] = b->num_copies;
    return b->num_copies;
}

static void copy_landed(const copy *c) {
    const char *p = (const char *)c->dst;
    if (p >= ctx->shared && p < ctx->shared_pages + MAX_SHARED)
        shared_state()->landed_of[thread_number()].push_back(
            {(size_t)(p - ctx->shared_pages) / PIECE, c->number});
}

static void end() {
    block_state *b = shared_state();
    for (int i = 0; i < ctx->num_threads / WARP; i++) {
        if (!b->warps[i].queue.empty())
            die("a block ends with wgmmas in flight");
        if (b->warps[i].history != b->warps[i / 4 * 4].history)
            die("warps of a warpgroup have done different wgmmas");
    }
}

static const watcher watches = {begin, copy_issued, copy_landed, end};
static const bool watching_begins = (watching = &watches, true);

} // namespace emu
