// The table of all flags: names, types, bounds, defaults, and what `--help` says of each.
#pragma once

#include "config_fields.h"

#include <stdio.h>

enum option_type {
    OPT_STR,    // char *
    OPT_CONFIG, // char *: the --config file, which cannot name another
    OPT_CHOICE, // char *: one of the choices in `metavar`
    OPT_LIST,   // struct str_list; may be given again
    OPT_SECRET, // likewise; its values are overwritten in argv
    OPT_INT,    // int, [min, max]
    OPT_INT_K,  // int with K, M, G, T, [min, max]
    OPT_INT64,  // int64_t with K, M, G, T, [min, max]
    OPT_SEED,   // uint64_t, and the bool has_seed
    OPT_DOUBLE, // double, [min, max]
    OPT_FLAG,   // bool, true
    OPT_NOFLAG, // bool, false
    OPT_HELP,   // bool; on the command line only
};

// Headings of `--help`, in this order.
enum option_group {
    GROUP_COMMAND,
    GROUP_MODEL,
    GROUP_HARDWARE,
    GROUP_MEMORY,
    GROUP_SCHEDULING,
    GROUP_API,
    GROUP_SECURITY,
    GROUP_OBSERVABILITY,
    GROUP_PROCESS,
    NUM_GROUPS
};

struct option {
    const char *name;
    unsigned commands; // enum command, or-ed
    enum option_group group;
    enum option_type type;
    size_t offset;       // in struct config
    const char *metavar; // choices, separated by |; or the name of the value in the help text; NULL: no value
    const char *help;    // sentences, without the default
    const char *preset;  // default as text; NULL: zero
    const char *shown;   // replaces preset in the help text; "": no default is shown
    double min, max;
    char letter; // short form, or 0
};

enum {
    OPTIONS_TAKE_MODEL = CMD_SERVE | CMD_GENERATE | CMD_PERPLEXITY | CMD_CHAT | CMD_TOKENIZE | CMD_INSPECT
};

enum { MAX_OPTIONS = 128 };

extern const struct option options[];
extern const int num_options; // at most MAX_OPTIONS

// In help texts, which config_help.c writes: the default as shown, "": none; commands by name; a group's heading.
const char *option_preset(const struct option *o);
void option_commands(FILE *out, unsigned commands, const char *between);
const char *option_group_name(enum option_group group);

static inline bool option_takes_value(const struct option *o) {
    return o->type != OPT_FLAG && o->type != OPT_NOFLAG && o->type != OPT_HELP;
}
