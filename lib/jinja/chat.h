// Chat templates: messages to text, in segments that say what came from the model file and what from a
// person.
//
// A template is a program from a model file, in the language of Jinja. It runs in a sandbox: it sees the
// values it is given and nothing else, and its steps, depth and output are bounded. The parser
// refuses missing parts of the language by name.
//
// A template is immutable once made: any number of threads may render it at once. An arena belongs to one
// rendering.
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct chat_template;
struct chat_arena; // owns values and segments; freed as a whole
struct chat_value; // null, bool, integer, float, string, list or dict; belongs to its arena

// Parses. NULL with err: STATUS_FORMAT (line and column, what is wrong or not supported, by name),
// STATUS_LIMIT (over 1 MiB, nested over 64 deep), STATUS_NOMEM.
struct chat_template *chat_template_new(const char *source, size_t len, struct err *err);
void chat_template_free(struct chat_template *t); // NULL is allowed

struct chat_arena *chat_arena_new(void); // NULL: out of memory
void chat_arena_free(struct chat_arena *a);

// Values. Text is copied. `content` marks text that a client wrote: it keeps that mark through the template
// (slices, trim, concatenation keep it per piece). NULL: out of memory; passing NULL on is allowed, and
// rendering then gives STATUS_NOMEM.
struct chat_value *chat_null(struct chat_arena *a);
struct chat_value *chat_bool(struct chat_arena *a, bool v);
struct chat_value *chat_int(struct chat_arena *a, int64_t v);
struct chat_value *chat_float(struct chat_arena *a, double v);
struct chat_value *chat_string(struct chat_arena *a, const char *text, size_t len, bool content);
struct chat_value *chat_list(struct chat_arena *a);
void chat_list_add(struct chat_arena *a, struct chat_value *list, struct chat_value *v);
struct chat_value *chat_dict(struct chat_arena *a);
void chat_dict_set(struct chat_arena *a, struct chat_value *dict, const char *key, size_t len,
                   struct chat_value *v);

struct chat_segment {
    const char *text; // valid UTF-8, not NUL-terminated; belongs to the arena
    size_t len;
    bool content; // a client's words: tokenise with special tokens off
};

// Runs the template with the members of the dict `globals` (messages, bos_token, eos_token,
// add_generation_prompt, tools …) as its variables. Neighbouring pieces of one kind are one segment.
// STATUS_INVALID: the template raised an error (raise_exception) or met a value that it cannot use; err has
// its sentence. STATUS_LIMIT: 1,000,000 steps, 32 calls deep, output over 4 × the input + 1 MiB.
// STATUS_NOMEM.
enum status chat_render(const struct chat_template *t, struct chat_arena *a, const struct chat_value *globals,
                        const struct chat_segment **segments, size_t *num_segments, struct err *err);

#ifdef __cplusplus
}
#endif
