// Measures the limits of this machine, in the same run as the measurements that are compared with them.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct limits {
    double read; // bytes/s from memory by all threads, the best of several access patterns
    size_t read_bytes;
    // Operations/s by all threads, a multiply and an add being two; 0: no such instruction.
    double int8, bf16, f32;
    const char *int8_with, *bf16_with, *f32_with; // the instruction
    int threads;
};

enum { LIMITS_PASSES = 5 }; // two seconds on a quiet machine

// Everything is measured `passes` times, and the best counts. threads 0: as many as the processors this
// process may use. Ends the process where there is no memory.
void limits_measure(int threads, int passes, struct limits *out);

// The same in parts, for what is measured in between: a shared machine is not the same for long. Holds 1 GB;
// its threads sleep meanwhile.
struct limits_meter *limits_open(int threads);
struct limits limits_now(struct limits_meter *m);               // everything once: some tenths of a second
const struct limits *limits_best(const struct limits_meter *m); // so far
struct limits limits_larger(const struct limits *a, const struct limits *b); // of each, the larger
void limits_close(struct limits_meter *m);
// Prints it as a JSON object, without a newline.
void limits_print_json(const struct limits *l);
// The arithmetic limit of a weight type by its name ("Q8_0", "BF16", "F32" …): the widest instruction that
// its products can use. *with: that instruction.
double limits_arithmetic(const struct limits *l, const char *dtype, const char **with);
uint32_t bench_random(void); // xorshift64, the same in every run; one thread
