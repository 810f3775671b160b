#include "emu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
// Every CUDA thread goes through fibers and collectives again and again: sanitizers are for the kernels.
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace emu {

__thread context *ctx;
int order;
const watcher *watching;

enum { STACK_BYTES = 128 << 10, COLOURS = 16, COLOUR_BYTES = 256, GUARD_BYTES = 1 << 16 };

void die(const char *what) {
    fprintf(stderr, "emulator: %s (block %u,%u,%u", what, ctx->block_id.x, ctx->block_id.y, ctx->block_id.z);
    if (ctx->current)
        fprintf(stderr, ", thread %u", ctx->current->tid.x);
    fprintf(stderr, ")\n");
    abort();
}

// ---- fibers

extern "C" void emu_switch(void **save, void *to);

// Saves the callee-saved registers and continues on another stack: by a jump, as a CPU predicts that `ret` goes where
// the last call came from, and would be wrong each time.
#if defined(__x86_64__)
__asm__(".text\n.local emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n");
UNSANITIZED static void *new_stack(char *top, void (*entry)()) {
    void **s = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--s = nullptr; // a return address, so that entry finds the stack aligned as after a call
    *--s = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--s = nullptr;
    return s;
}
#elif defined(__aarch64__)
__asm__(".text\n.local emu_switch\nemu_switch:\nsub sp,sp,#160\n"
        "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
        "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
        "stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\nmov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
        "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\n"
        "ldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
UNSANITIZED static void *new_stack(char *top, void (*entry)()) {
    void **s = (void **)((uintptr_t)top & ~(uintptr_t)15) - 20;
    for (int i = 0; i < 20; i++)
        s[i] = nullptr;
    s[11] = (void *)entry;
    return s;
}
#else
#error "write emu_switch for this CPU"
#endif

UNSANITIZED static char *stack_of(const fiber *f) {
    return ctx->stacks + (size_t)(f - ctx->fibers) * STACK_BYTES;
}

// AddressSanitizer is not told: it would have to know which stack is whose only for exceptions, longjmp() and a copy of
// the stack that outlives its function, and telling it costs more than the switch.
UNSANITIZED static void yield() { emu_switch(&ctx->current->sp, ctx->main_sp); }

UNSANITIZED static void resume(fiber *f) {
    ctx->current = f;
    emu_switch(&ctx->main_sp, f->sp);
    ctx->current = nullptr;
}

// Makes the threads that wait for the block ready, once all live threads wait.
UNSANITIZED static void release_block() {
    if (ctx->num_at_block == 0 || ctx->num_at_block != ctx->num_alive)
        return;
    for (int i = 0; i < ctx->num_threads; i++)
        if (ctx->fibers[i].st == AT_BLOCK)
            ctx->fibers[i].st = READY;
    ctx->num_at_block = 0;
}

UNSANITIZED static void fiber_main() {
    ctx->body(ctx->body_arg);
    fiber *f = ctx->current;
    warp *w = &ctx->warps[f->warp];
    if (f->num_copies > 0)
        die("a thread ends with asynchronous copies in flight");
    if (ctx->overlaps && !f->waited)
        die("a thread ends that has not waited for the kernel before");
    if (w->arrived)
        die("a thread ends while its warp is in a collective");
    f->st = DONE;
    w->live &= ~(1u << f->lane);
    ctx->num_alive--;
    release_block();
    yield();
    die("a fiber that has ended runs");
}

// ---- collectives

UNSANITIZED void sync_block(const void *site) {
    fiber *f = ctx->current;
    f->st = AT_BLOCK;
    f->site = site;
    ctx->num_at_block++;
    for (int i = 0; ctx->num_at_block == ctx->num_alive && i < ctx->num_threads; i++)
        if (ctx->fibers[i].st == AT_BLOCK && ctx->fibers[i].site != site)
            die("__syncthreads() reached at different places");
    release_block();
    yield();
}

UNSANITIZED void collective(unsigned mask, void *arg, collective_fn *fn) {
    fiber *f = ctx->current;
    warp *w = &ctx->warps[f->warp];
    if (!(mask >> f->lane & 1))
        die("a lane calls a collective whose mask leaves it out");
    if ((mask & w->live) != mask)
        die("a collective names a lane that has ended");
    if (w->arrived && w->fn != fn)
        die("lanes of one warp are in different collectives");
    w->fn = fn;
    w->arg[f->lane] = arg;
    w->arrived |= 1u << f->lane;
    if (w->arrived != mask) {
        f->st = AT_WARP;
        yield();
        return;
    }
    w->arrived = 0;
    fn(w->arg, mask);
    fiber *base = ctx->fibers + f->warp * WARP;
    for (int i = 0; i < WARP; i++)
        if ((mask >> i & 1) && base[i].st == AT_WARP)
            base[i].st = READY;
}

struct vote {
    bool mine;
    unsigned all;
};

unsigned ballot(unsigned mask, bool predicate) {
    vote v = {predicate, 0};
    collective(mask, &v, [](void **args, unsigned m) {
        unsigned all = 0;
        for (int i = 0; i < WARP; i++)
            if ((m >> i & 1) && ((vote *)args[i])->mine)
                all |= 1u << i;
        for (int i = 0; i < WARP; i++)
            if (m >> i & 1)
                ((vote *)args[i])->all = all;
    });
    return v.all;
}

struct mma_args {
    float *c;
    const uint32_t *a, *b;
    to_float_fn *to_float;
};

UNSANITIZED static void multiply_fragments(void **args, unsigned) {
    float A[16][16], B[16][8], D[16][8];
    to_float_fn *f = ((mma_args *)args[0])->to_float;
    for (int l = 0; l < WARP; l++) {
        const mma_args *x = (mma_args *)args[l];
        int g = l / 4, t = l % 4 * 2;
        for (int e = 0; e < 2; e++) {
            for (int r = 0; r < 4; r++)
                A[g + 8 * (r & 1)][t + e + 8 * (r >> 1)] = f((uint16_t)(x->a[r] >> (16 * e)));
            for (int r = 0; r < 2; r++)
                B[t + e + 8 * r][g] = f((uint16_t)(x->b[r] >> (16 * e)));
            for (int r = 0; r < 2; r++)
                D[g + 8 * r][t + e] = x->c[2 * r + e];
        }
    }
    for (int i = 0; i < 16; i++) {
        float sum[8] = {};
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                sum[j] += A[i][k] * B[k][j];
        for (int j = 0; j < 8; j++)
            D[i][j] += sum[j];
    }
    for (int l = 0; l < WARP; l++) {
        int g = l / 4, t = l % 4 * 2;
        for (int r = 0; r < 2; r++)
            for (int e = 0; e < 2; e++)
                ((mma_args *)args[l])->c[2 * r + e] = D[g + 8 * r][t + e];
    }
}

void mma_m16n8k16(float c[4], const uint32_t a[4], const uint32_t b[2], to_float_fn *to_float) {
    mma_args mine = {c, a, b, to_float};
    collective(0xffffffffu, &mine, multiply_fragments);
}

struct ldmatrix_args {
    uint32_t *r;
    const void *row;
};

template <bool TRANSPOSED> static void load_matrices(void **args, unsigned) {
    for (int m = 0; m < 4; m++)
        for (int l = 0; l < WARP; l++) {
            int i = l / 4, j = l % 4 * 2;
            uint16_t e[2];
            for (int k = 0; k < 2; k++) {
                const ldmatrix_args *from = (ldmatrix_args *)args[8 * m + (TRANSPOSED ? j + k : i)];
                e[k] = ((const uint16_t *)from->row)[TRANSPOSED ? i : j + k];
            }
            ((ldmatrix_args *)args[l])->r[m] = e[0] | (uint32_t)e[1] << 16;
        }
}

void ldmatrix4(uint32_t r[4], const void *row, bool transposed) {
    ldmatrix_args mine = {r, row};
    if ((uintptr_t)row % 16 != 0)
        die("ldmatrix of a row that is not aligned to 16 bytes");
    collective(0xffffffffu, &mine, transposed ? load_matrices<true> : load_matrices<false>);
}

// ---- asynchronous copies

static copies *mine() { return &ctx->in_flight[ctx->current - ctx->fibers]; }

void copy_async(void *dst, const void *src, int bytes, bool ok) {
    fiber *f = ctx->current;
    if (f->num_copies == MAX_COPIES)
        die("too many asynchronous copies in flight");
    if (((uintptr_t)dst | (uintptr_t)src) & (uintptr_t)(bytes - 1))
        die("an asynchronous copy is not aligned");
    memset(dst, 0xff, (size_t)bytes); // the old bytes must not look valid
    mine()->all[f->num_copies++] = {dst, ok ? src : nullptr, bytes,
                                    watching ? watching->copy_issued(dst, bytes) : 0};
}

void copy_commit() {
    fiber *f = ctx->current;
    if (f->num_groups == MAX_GROUPS)
        die("too many groups of asynchronous copies");
    mine()->group_end[f->num_groups++] = f->num_copies;
}

void copy_wait(int keep) {
    fiber *f = ctx->current;
    int done = f->num_groups - keep;
    if (done <= 0)
        return;
    copies *m = mine();
    int end = m->group_end[done - 1];
    for (int i = 0; i < end; i++) {
        const copy *c = &m->all[i];
        if (c->src)
            memcpy(c->dst, c->src, (size_t)c->bytes);
        else
            memset(c->dst, 0, (size_t)c->bytes);
        if (watching)
            watching->copy_landed(c);
    }
    memmove(m->all, m->all + end, sizeof(copy) * (size_t)(f->num_copies - end));
    f->num_copies -= end;
    for (int i = done; i < f->num_groups; i++)
        m->group_end[i - done] = m->group_end[i] - end;
    f->num_groups -= done;
}

// ---- flags between devices

void flag_set(uint32_t *flag, uint32_t value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }

bool flag_wait(const uint32_t *flag, uint32_t value, uint32_t *stop) {
    enum { SECONDS = 60 };
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while ((int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - value) < 0) {
        if (__atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0)
            return false;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > SECONDS) {
            flag_set(stop, 2);
            return false;
        }
        sched_yield();
    }
    return true;
}

// ---- blocks

static uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void permute(int *p, int n, uint64_t seed) {
    for (int i = 0; i < n; i++)
        p[i] = order == 1 ? n - 1 - i : i;
    if (order < 2)
        return;
    uint64_t s = seed * 0x9E3779B97F4A7C15u + (uint64_t)order;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(&s) % (uint64_t)(i + 1)), t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}

UNSANITIZED static void start_fibers() {
    unsigned x = ctx->block_dim.x, y = ctx->block_dim.y;
    for (int i = 0; i < ctx->num_threads; i++) {
        fiber *f = &ctx->fibers[i];
        unsigned u = (unsigned)i;
        f->tid = {u % x, u / x % y, u / (x * y)};
        f->lane = i % WARP;
        f->warp = i / WARP;
        f->st = READY;
        f->waited = false;
        f->num_copies = f->num_groups = 0;
        // their tops lie in different sets of the caches
        f->sp = new_stack(stack_of(f) + STACK_BYTES - (i % COLOURS) * COLOUR_BYTES, fiber_main);
        if (f->lane == 0)
            ctx->warps[f->warp] = {};
        ctx->warps[f->warp].live |= 1u << f->lane;
    }
}

// Runs a warp until none of its lanes can. Returns whether any ran.
UNSANITIZED static bool run_warp(int w, const int *lanes) {
    bool ran = false;
    for (bool again = true; again;) {
        again = false;
        for (int j = 0; j < WARP; j++) {
            int i = w * WARP + lanes[j];
            if (i < ctx->num_threads && ctx->fibers[i].st == READY) {
                again = ran = true;
                resume(&ctx->fibers[i]);
            }
        }
    }
    return ran;
}

static void run_block(uint64_t seed, size_t shared_bytes) {
    int warps[MAX_THREADS / WARP], lanes[WARP], num_warps = (ctx->num_threads + WARP - 1) / WARP;
    ctx->num_alive = ctx->num_threads;
    ctx->num_at_block = 0;
    memset(ctx->shared, 0xff, shared_bytes);
    permute(warps, num_warps, seed);
    permute(lanes, WARP, seed ^ 0x5bd1e995);
    if (watching)
        watching->begin(shared_bytes);
    start_fibers();
    while (ctx->num_alive > 0) {
        bool ran = false;
        for (int k = 0; k < num_warps; k++)
            ran |= run_warp(warps[k], lanes);
        if (ran || ctx->num_alive == 0)
            continue;
        for (int i = 0; i < ctx->num_threads; i++) // the first that waits speaks for all
            if (ctx->fibers[i].st == AT_WARP || ctx->fibers[i].st == AT_BLOCK) {
                ctx->current = &ctx->fibers[i];
                die(ctx->fibers[i].st == AT_WARP ? "deadlock: a thread waits at a collective of its warp"
                                                 : "deadlock: a thread waits at __syncthreads()");
            }
    }
    if (watching)
        watching->end();
}

// Gives a thread's context back when the thread ends.
struct keeper {
    emu::context *context;
    ~keeper() {
        if (!context)
            return;
#if defined(__SANITIZE_ADDRESS__) // the next user of these addresses must not inherit marks of our frames
        __asan_unpoison_memory_region(context->stacks, (size_t)MAX_THREADS * STACK_BYTES);
#endif
        munmap(context->stacks, (size_t)MAX_THREADS * STACK_BYTES);
        munmap(context->shared_pages, MAX_SHARED + GUARD_BYTES);
        munmap(context, sizeof *context);
    }
};
static thread_local keeper keep;

static context *open_context() {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, rw = PROT_READ | PROT_WRITE;
    context *c = (context *)mmap(nullptr, sizeof *c, rw, flags, -1, 0);
    void *stacks = mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES, rw, flags, -1, 0);
    void *pages = mmap(nullptr, MAX_SHARED + GUARD_BYTES, rw, flags, -1, 0);
    if (c == MAP_FAILED || stacks == MAP_FAILED || pages == MAP_FAILED ||
        mprotect((char *)pages + MAX_SHARED, GUARD_BYTES, PROT_NONE) != 0) {
        fprintf(stderr, "emulator: no memory for fibers\n");
        abort();
    }
    c->stacks = (char *)stacks;
    c->shared_pages = (char *)pages;
    keep.context = c;
    return c;
}

void run(dim3 grid, dim3 block, size_t shared_bytes, bool overlaps, void (*body)(void *), void *arg) {
    if (!ctx)
        ctx = open_context(); // kept for the life of the thread
    ctx->num_threads = (int)(block.x * block.y * block.z);
    ctx->block_dim = {block.x, block.y, block.z};
    ctx->grid_dim = {grid.x, grid.y, grid.z};
    ctx->overlaps = overlaps;
    if (ctx->num_threads < 1 || ctx->num_threads > MAX_THREADS || shared_bytes > MAX_SHARED || grid.x < 1 ||
        grid.y < 1 || grid.z < 1 || grid.y > 65535 || grid.z > 65535)
        die("a launch of this size is not possible");
    size_t rounded = (shared_bytes + 127) / 128 * 128;
    ctx->shared = ctx->shared_pages + MAX_SHARED - rounded;
    ctx->body = body;
    ctx->body_arg = arg;
#if defined(__x86_64__)
    unsigned mode = _mm_getcsr();
    _mm_setcsr(0x1f80u | 0x8040u); // subnormals count as zero, as with -ftz=true
#endif
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t k = order == 1 ? n - 1 - i : i;
        ctx->block_id = {(unsigned)(k % grid.x), (unsigned)(k / grid.x % grid.y),
                         (unsigned)(k / grid.x / grid.y)};
        run_block(k + 1, rounded);
    }
#if defined(__x86_64__)
    _mm_setcsr(mode);
#endif
}

} // namespace emu
