#include "roff.h"

#include <stdbool.h>
#include <string.h>

enum { WIDTH = 62 }; // of a line of the source, before its last word

static bool ends_sentence(const char *text, size_t i) {
    return text[i - 1] == '.' && text[i + 1] >= 'A' && text[i + 1] <= 'Z';
}

static void put_text(FILE *out, const char *text, bool wraps) {
    bool bold = false;
    size_t line = 0; // where it begins
    for (size_t i = 0; text[i]; i++)
        switch (text[i]) {
        case '\\': fputs("\\e", out); break;
        case '-': fputs("\\-", out); break;
        case '\'': fputs("\\(aq", out); break;
        case '"': fputs("\\(dq", out); break;
        case '^': fputs("\\(ha", out); break;
        case '~': fputs("\\(ti", out); break;
        case '`':
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
            break;
        default: {
            size_t word = i + 1 + strcspn(text + i + 1, " \n");
            bool breaks = wraps && text[i] == ' ' && i > 0 && (word - line > WIDTH || ends_sentence(text, i));
            if (text[i] == '.' && i == line)
                fputs("\\&", out); // no request
            fputc(breaks ? '\n' : text[i], out);
            if (breaks || text[i] == '\n')
                line = i + 1;
        }
        }
}

void roff_text(FILE *out, const char *text) { put_text(out, text, true); }

static void put_line(FILE *out, const char *before, const char *text) {
    fputs(before, out);
    put_text(out, text, false);
    fputc('\n', out);
}

void roff_begin(FILE *out, const char *name, const char *date, const char *version) {
    fputs(".TH ", out);
    put_text(out, name, false);
    fprintf(out, " 1 %s \"quire %s\" \"User Commands\"\n", date, version);
}

void roff_section(FILE *out, const char *title) { put_line(out, ".SH ", title); }
void roff_part(FILE *out, const char *title) { put_line(out, ".SS ", title); }

void roff_lines(FILE *out, const char *text) {
    roff_text(out, text);
    fputc('\n', out);
}

void roff_paragraph(FILE *out, const char *text) {
    fputs(".PP\n", out);
    roff_lines(out, text);
}

void roff_item(FILE *out, const char *name, const char *value, const char *text) {
    fputs(".TP\n\\fB", out);
    put_text(out, name, false);
    fputs("\\fR", out);
    if (*value) {
        fputs(" \\fI", out);
        put_text(out, value, false);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    roff_lines(out, text);
}

void roff_example(FILE *out, const char *text) {
    put_line(out, ".nf\n", text);
    fputs(".fi\n", out);
}
