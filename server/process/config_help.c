// `quire COMMAND --help`: the flags in groups, wrapped to the terminal.
#include "config.h"
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

static void print_option(FILE *out, const struct option *o, int width) {
    char dash_letter[] = {'-', o->letter, ',', ' ', '\0'};
    int at = fprintf(out, "  %s--%s%s%s", o->letter ? dash_letter : "", o->name, o->metavar ? " " : "",
                     o->metavar ? o->metavar : "");
    fprintf(out, at + 2 > COLUMN ? "\n%*s" : "%*s", at + 2 > COLUMN ? COLUMN : COLUMN - at, "");
    at = COLUMN;
    print_wrapped(out, o->help, &at, width);
    const char *preset = o->shown ? o->shown : option_takes_value(o) ? o->preset : NULL;
    if (preset && *preset) {
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
