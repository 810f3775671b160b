// The flags in groups: `quire COMMAND --help`, wrapped to the terminal, and `quire help configuration`.
#include "config.h"
#include "foreign_flags.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { COLUMN = 30, MIN_WIDTH = 60, WIDTH = 100, MAX_WIDTH = 120 };

static const char *const group_names[NUM_GROUPS] = {
    [GROUP_COMMAND] = "Command",       [GROUP_MODEL] = "Model",
    [GROUP_HARDWARE] = "Hardware",     [GROUP_MEMORY] = "Memory",
    [GROUP_SCHEDULING] = "Scheduling", [GROUP_API] = "API",
    [GROUP_SECURITY] = "Security",     [GROUP_OBSERVABILITY] = "Observability",
    [GROUP_PROCESS] = "Process",
};

const char *option_group_name(enum option_group group) { return group_names[group]; }

static int width_of(FILE *out) {
    struct winsize size;
    int n = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col - 1 : WIDTH;
    return n < MIN_WIDTH ? MIN_WIDTH : n > MAX_WIDTH ? MAX_WIDTH : n;
}

// Prints words from column `at` on; lines after the first begin at COLUMN.
static void print_wrapped(FILE *out, const char *text, int *at, int width) {
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (*at > COLUMN && *at + 1 + len > width) {
            fprintf(out, "\n%*s", COLUMN, "");
            *at = COLUMN;
        }
        *at += fprintf(out, "%s%.*s", *at > COLUMN ? " " : "", len, text);
        text += len + (text[len] == ' ');
    }
}

const char *option_preset(const struct option *o) {
    const char *preset = o->shown ? o->shown : option_takes_value(o) ? o->preset : NULL;
    return preset ? preset : "";
}

static void print_option(FILE *out, const struct option *o, int width) {
    char dash_letter[] = {'-', o->letter, ',', ' ', '\0'};
    int at = fprintf(out, "  %s--%s%s%s", o->letter ? dash_letter : "", o->name, o->metavar ? " " : "",
                     o->metavar ? o->metavar : "");
    fprintf(out, at + 2 > COLUMN ? "\n%*s" : "%*s", at + 2 > COLUMN ? COLUMN : COLUMN - at, "");
    at = COLUMN;
    print_wrapped(out, o->help, &at, width);
    const char *preset = option_preset(o);
    if (*preset) {
        char text[120];
        int len = snprintf(text, sizeof text, "(default: %s)", preset);
        if (at + 1 + len > width && COLUMN + len <= width) { // on one line
            fprintf(out, "\n%*s", COLUMN, "");
            at = COLUMN;
        }
        print_wrapped(out, text, &at, width);
    }
    fputc('\n', out);
}

void config_help(FILE *out, enum command command) {
    int last = -1, width = width_of(out);
    for (int i = 0; i < num_options; i++) {
        const struct option *o = &options[i];
        if (!(o->commands & (unsigned)command))
            continue;
        if ((int)o->group != last)
            fprintf(out, "%s%s\n", last < 0 ? "" : "\n", group_names[o->group]);
        last = (int)o->group;
        print_option(out, o, width);
    }
    if (command & OPTIONS_TAKE_MODEL)
        fputs("\nThe environment sets flags, too: QUIRE_MAX_NUM_SEQS for --max-num-seqs, QUIRE_MODEL for "
              "MODEL. A\n"
              "--config file has `max-num-seqs: 64` and `model: PATH`. The command line wins over the "
              "environment,\n"
              "and the environment over the file.\n",
              out);
}

// A cell of a table, which a bar would end
static void print_cell(FILE *out, const char *text) {
    for (; *text; text++)
        fputs(*text == '|' ? "\\|" : (char[]){*text, '\0'}, out);
}

void option_commands(FILE *out, unsigned commands, const char *between) {
    static const char *const names[] = {"serve",  "generate", "inspect", "perplexity", "tokenize", "replay",
                                        "health", "quantize", "chat",    "top",        "launch"};
    for (unsigned i = 0, num = 0; i < sizeof names / sizeof *names; i++)
        if (commands & 1u << i)
            fprintf(out, "%s%s", num++ ? between : "", names[i]);
}

static void print_row(FILE *out, const struct option *o) {
    fprintf(out, "| `--%s%s", o->name, o->metavar ? " " : "");
    print_cell(out, o->metavar ? o->metavar : "");
    fputs("` | ", out);
    print_cell(out, o->help);
    fputs(" | ", out);
    print_cell(out, option_preset(o));
    fputs(" | ", out);
    option_commands(out, o->commands, " ");
    fputs(" |\n", out);
}

static void print_foreign(FILE *out, const struct foreign_flag *f) {
    fputs("| ", out);
    for (const char *name = f->names; *name; name += strcspn(name, "|"), name += *name == '|')
        fprintf(out, "%s`%.*s`", name > f->names ? " " : "", (int)strcspn(name, "|"), name);
    fputs(" | ", out);
    if (f->kind == FOREIGN_OURS) {
        fprintf(out, strcmp(f->ours, "model") == 0 ? "the argument MODEL |\n" : "`--%s` |\n", f->ours);
        return;
    }
    fputs(f->kind == FOREIGN_OTHER ? "refused: " : "left out: ", out);
    print_cell(out, f->hint);
    fputs(" |\n", out);
}

void config_page(FILE *out) {
    fputs("# Configuration\n\n"
          "`quire help configuration` prints this page.\n\n"
          "A flag is also a variable of the environment, `QUIRE_MAX_NUM_SEQS` for `--max-num-seqs`, and a "
          "line of "
          "the file that\n"
          "`--config` names, `max-num-seqs: 64`; MODEL is `QUIRE_MODEL` and `model: PATH`. The command line "
          "wins "
          "over the environment,\n"
          "the environment over the file, the file over the default. Sizes take K, M, G and T, powers of "
          "1024.\n\n"
          "The file is a subset of YAML. A flag that is repeatable takes a list there, `[a, b]` or a line `- "
          "a` "
          "for each value below\n"
          "its key, or several lines with that key; in the environment its values stand between commas, "
          "`QUIRE_SERVED_MODEL_NAME=a,b`.\n"
          "A variable of a key holds one key, commas and all: `--api-key-file` has more.\n",
          out);
    int last = -1;
    for (int i = 0; i < num_options; i++) {
        if ((int)options[i].group != last)
            fprintf(out, "\n## %s\n\n| flag | | default | commands |\n|---|---|---|---|\n",
                    group_names[options[i].group]);
        last = (int)options[i].group;
        print_row(out, &options[i]);
    }
    fputs("\n## Flags of vLLM, llama-server, SGLang and TGI\n\n"
          "Flags that are left out take their values along, and leave a warning in the log.\n\n"
          "| flags | here |\n|---|---|\n",
          out);
    for (size_t i = 0; foreign_flag_at(i); i++)
        print_foreign(out, foreign_flag_at(i));
}
