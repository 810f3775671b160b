// The language of chat templates, private to this library:
//
//   source → jinja_lex (tokens) → jinja_parse (tree) → jinja_render (runs it) → marked bytes
//
// Semantics are those of Jinja 3.1 as Hugging Face transformers sets it up: an immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls. Sources: the Jinja documentation, and its behaviour on the
// golden files.
//
// Files from the bottom up, each with a header of its own; a file calls only those before it:
//
//   arena jinja str value builtin repr compare str_ops format json operators   values and operations on them
//   methods filters tests globals library                                      functions by name, as tables
//   source lex parser expr parse                                               source to tree (tree.h)
//   eval                                                                       runs a tree with a library
//
// This file has the state of one rendering, which every function that may fail takes. Errors leave by
// longjmp: everything lies in an arena, so there is nothing to undo on the way.
#pragma once

#include "arena.h"

#include <setjmp.h>

#define JINJA_MAX_SOURCE ((size_t)1 << 20)
#define JINJA_MAX_NESTING 64     // in the source
#define JINJA_MAX_STEPS 1000000  // nodes run, elements and KiB looked at
#define JINJA_MAX_CALLS 32       // macros within macros
#define JINJA_MAX_EVAL_DEPTH 800 // frames of the evaluator on the C stack
#define JINJA_MAX_VALUE_DEPTH 100
#define JINJA_MAX_RANGE 10000
#define JINJA_MAX_OUTPUT(input) (4 * (input) + ((size_t)1 << 20))
#define JINJA_MAX_MEMORY(input)                                                                              \
    (8 * (input) + ((size_t)64 << 20)) // bytes that rendering may add to its arena

struct jinja {
    struct chat_arena *a;
    const struct library *lib;  // filters, tests, globals and methods by name
    const struct dict *globals; // the caller's variables
    int64_t steps;              // that are left
    int depth;                  // of the evaluator's frames
    uint32_t line;              // of the node that runs
    struct err *err;
    enum status status;
    jmp_buf env; // where jinja_fail() goes
};

_Noreturn void jinja_fail(struct jinja *j, enum status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Takes n off the steps that are left; fails where there are fewer.
void jinja_steps(struct jinja *j, size_t n);
static inline void jinja_bytes(struct jinja *j, size_t n) { jinja_steps(j, n >> 10); }

void *jinja_alloc(struct jinja *j, size_t n); // zeroed
// Fails for want of n bytes: over the arena's limit, or out of memory.
_Noreturn void jinja_no_memory(struct jinja *j, size_t n);
