// Pieces of manual pages, for man(7).
#pragma once

#include <stdio.h>

// `name`(1), as of `date`, YYYY-MM-DD.
void roff_begin(FILE *out, const char *name, const char *date, const char *version);
void roff_section(FILE *out, const char *title); // in capitals
void roff_part(FILE *out, const char *title);    // of a section
// Text, broken into lines as man(7) wants them: a sentence begins one, none is long. What stands between ` is bold.
void roff_text(FILE *out, const char *text);
void roff_lines(FILE *out, const char *text);     // and the last line's end
void roff_paragraph(FILE *out, const char *text); // behind other text
// An item: a flag, a command or a file in bold, then `value`, which may be "", in italics; below it the text.
void roff_item(FILE *out, const char *name, const char *value, const char *text);
void roff_example(FILE *out, const char *text); // lines as they stand
