#include "console.h"

#include "buf.h"
#include "clock.h"
#include "terminal.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

static bool has_bar; // stands on the last line of the terminal

static void draw_bar(const char *what, double fraction) {
    static const char full[] = "########################################";
    enum { WIDTH = sizeof full - 1 };
    has_bar = fraction < 1;
    if (has_bar)
        fprintf(stderr, "\r%s [%-*.*s] %2.0f %%", what, WIDTH, (int)(fraction * WIDTH), full, fraction * 100);
    else
        fputs("\r\033[K", stderr);
    fflush(stderr);
}

// A line for each tenth, once it has taken a second.
static void tell_tenth(const char *what, double fraction) {
    static const char *current;
    static int64_t began;
    static int told;
    int tenths = fraction < 1 ? (int)(fraction * 10) : 10;
    if (current != what) {
        current = what;
        began = clock_now_ns();
        told = 0;
    }
    if (tenths > told && clock_now_ns() - began > 1000000000) {
        told = tenths;
        fprintf(stderr, "quire: %s: %d %%\n", what, tenths * 10);
    }
    if (fraction >= 1)
        current = NULL;
}

void console_bar(const char *what, double fraction) {
    if (terminal_draws(STDERR_FILENO))
        draw_bar(what, fraction);
    else
        tell_tenth(what, fraction);
}

void console_progress(void *arg, double fraction) {
    (void)arg;
    console_bar("loading", fraction);
}

// Writes text; what is no UTF-8 or a control character, but for `allowed`, as \\xNN.
static void add_printable(struct buf *b, const char *text, size_t len, const char *allowed) {
    for (size_t i = 0; i < len;) {
        const unsigned char *s = (const unsigned char *)text + i;
        size_t bad, n = utf8_sequence(s, len - i, &bad);
        bool control = s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && n == 2 && s[1] < 0xa0);
        if (n && (!control || (s[0] && strchr(allowed, s[0])))) {
            buf_add(b, s, n);
        } else {
            n = n ? n : bad;
            for (size_t k = 0; k < n; k++)
                buf_fmt(b, "\\x%02x", s[k]);
        }
        i += n;
    }
}

void console_text(FILE *out, const char *text, size_t len) {
    struct buf b = {0};
    add_printable(&b, text, len, "\n\t");
    fwrite(b.data, 1, b.len, out);
    buf_free(&b);
}

void console_line(FILE *out, const char *text, size_t len, int columns) {
    struct buf b = {0};
    size_t end = 0, n, bad;
    add_printable(&b, text, len, "");
    for (; end < b.len && (n = utf8_sequence((const unsigned char *)b.data + end, b.len - end, &bad)) > 0;
         end += n) {
        utf8proc_int32_t c;
        utf8proc_iterate((const utf8proc_uint8_t *)b.data + end, (utf8proc_ssize_t)n, &c);
        if ((columns -= utf8proc_charwidth(c)) < 0)
            break;
    }
    if (end > 0)
        fwrite(b.data, 1, end, out);
    buf_free(&b);
}

// Names and texts of files may be in the message.
void complain(const char *fmt, ...) {
    char text[1000];
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (has_bar)
        buf_lit(&b, "\r\033[K");
    buf_lit(&b, "quire: ");
    add_printable(&b, text, strlen(text), "");
    buf_char(&b, '\n');
    fwrite(b.data, 1, b.len, stderr);
    buf_free(&b);
}
