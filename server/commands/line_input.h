// Lines from standard input: with editing and history on a terminal where libedit is installed, plain ones elsewhere.
#pragma once

#include "buf.h"

#include <stdbool.h>

struct line_input {
    bool tty; // a person types, and sees prompts
    // libedit's, by their names in readline; NULL: it is not there
    char *(*readline)(const char *prompt);
    int (*add_history)(const char *line);
};

void line_input_open(struct line_input *in);
// Appends the next line without its end. False: there is none. A line of the history is added by line_input_remember().
bool line_input_read(struct line_input *in, const char *prompt, struct buf *out);
void line_input_remember(struct line_input *in, const char *line);
