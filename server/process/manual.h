// quire(1) as man(7) has it: `quire help man`.
#pragma once

#include <stdio.h>

// In this order; between them manual_command() for each command.
void manual_begin(FILE *out);
void manual_command(FILE *out, const char *name, const char *args, const char *help);
void manual_end(FILE *out); // flags, environment, files, exit codes
