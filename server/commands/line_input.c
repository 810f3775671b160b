#include "line_input.h"

#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// libedit (BSD) is looked for when it is needed: servers do not load it, and a container does not have to have it.
void line_input_open(struct line_input *in) {
    *in = (struct line_input){.tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    const char *term = getenv("TERM");
    void *lib =
        in->tty && term && strcmp(term, "dumb") != 0 ? dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib)
        return;
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8"); // lines are UTF-8 in any locale
    *(void **)&in->readline = dlsym(lib, "readline");
    *(void **)&in->add_history = dlsym(lib, "add_history");
    if (!in->add_history)
        in->readline = NULL;
}

bool line_input_read(struct line_input *in, const char *prompt, struct buf *out) {
    if (in->readline) {
        char *line = in->readline(prompt);
        if (!line)
            return false;
        buf_str(out, line);
        free(line);
        return true;
    }
    if (in->tty) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n > 0 && line[n - 1] == '\n')
        n--;
    if (n >= 0)
        buf_add(out, line, (size_t)n);
    free(line);
    return n >= 0;
}

void line_input_remember(struct line_input *in, const char *line) {
    if (in->readline && *line)
        in->add_history(line);
}
