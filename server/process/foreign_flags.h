// Flags of llama-server, vLLM, SGLang and TGI, for people who come from there.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum foreign_kind {
    FOREIGN_OURS,   // `ours` means the same and takes the same values
    FOREIGN_OTHER,  // it means what `hint` says otherwise: refused
    FOREIGN_BARE,   // needs nothing here, takes no value
    FOREIGN_VALUE,  // needs nothing here, takes a value
    FOREIGN_SWITCH, // needs nothing here, takes on, off, auto, true, false, 0 or 1 where one follows
};

struct foreign_flag {
    const char *names; // as written, separated by |
    enum foreign_kind kind;
    const char *ours; // our flag, without dashes; "model": the positional argument; NULL: there is none
    const char *hint; // advice, where `ours` is no flag of the command; NULL: nothing
};

// The i-th row; NULL: there are no more.
const struct foreign_flag *foreign_flag_at(size_t i);

// The row of a flag as written, of len bytes, where `_` is as good as `-`; NULL: nobody's.
const struct foreign_flag *foreign_flag_find(const char *word, size_t len);

// Whether `next`, the word behind the flag (NULL: none), is its value.
bool foreign_flag_takes(const struct foreign_flag *f, const char *next);
