#include "console.h"

#include "buf.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool has_bar; // stands on the last line of the terminal

void console_progress(void *arg, double fraction) {
    static const char full[] = "########################################";
    enum { WIDTH = sizeof full - 1 };
    (void)arg;
    if (!isatty(STDERR_FILENO))
        return;
    has_bar = fraction < 1;
    if (has_bar)
        fprintf(stderr, "\rloading [%-*.*s] %2.0f %%", WIDTH, (int)(fraction * WIDTH), full, fraction * 100);
    else
        fputs("\r\033[K", stderr);
    fflush(stderr);
}

// Names and texts of files may be in the message: what is no printable UTF-8 goes out as \\xNN.
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
    for (size_t i = 0, len = strlen(text); i < len;) {
        const unsigned char *s = (const unsigned char *)text + i;
        size_t bad, n = utf8_sequence(s, len - i, &bad);
        bool control = s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && n == 2 && s[1] < 0xa0);
        if (n && !control) {
            buf_add(&b, s, n);
        } else {
            n = n ? n : bad;
            for (size_t k = 0; k < n; k++)
                buf_fmt(&b, "\\x%02x", s[k]);
        }
        i += n;
    }
    buf_char(&b, '\n');
    fwrite(b.data, 1, b.len, stderr);
    buf_free(&b);
}
