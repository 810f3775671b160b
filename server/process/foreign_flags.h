// Flags of llama-server, vLLM and SGLang, for people who come from there.
#pragma once

#include <stddef.h>

struct foreign_flag {
    const char *names; // as written, separated by |
    const char *whose;
    // The flag that means the same and takes the same values, without dashes; "model": the positional argument;
    // NULL: there is none.
    const char *ours;
    const char *hint; // advice, where `ours` is not a flag of the command; NULL: nothing
};

// The row of a flag as written, of len bytes, where `_` is as good as `-`; NULL: nobody's.
const struct foreign_flag *foreign_flag_find(const char *word, size_t len);
