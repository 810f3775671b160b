// quire top [URL]: what a running server does, once a second: its queue, its requests, its pages. q, Esc and ctrl-C end it. --once prints it a
// single time, without a terminal's control codes.
#include "ask_server.h"
#include "buf.h"
#include "clock.h"
#include "commands.h"
#include "process/console.h"
#include "terminal.h"

#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL_MS = 1000, PLAIN_WIDTH = 100 };

static volatile sig_atomic_t stop;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

// A picture line by line; a line is cut to the screen, because one that wraps would move all below it.
struct screen {
    int width, height; // height 0: as many lines as there are
    bool ansi;
    int lines;
    struct buf line; // the one being written
};

static enum status ask(const struct config *c, const struct client_url *url, json_t **out, struct err *err) {
    return server_get(c, url, "/v1/engine?pages=state", &stop, out, err);
}

static int64_t integer(const json_t *o, const char *name) {
    return json_integer_value(json_object_get(o, name));
}
static double number(const json_t *o, const char *name) {
    return json_number_value(json_object_get(o, name));
}
static const char *string(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

// ---- drawing

static void end_line(struct screen *s) {
    if (!s->height || s->lines < s->height - 1) {
        if (s->ansi)
            fputs("\033[K", stdout);
        console_line(stdout, s->line.data ? s->line.data : "", s->line.len, s->width);
        putchar('\n');
        s->lines++;
    }
    s->line.len = 0;
}

static int digit64(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : 0;
}

// Byte i of base64 text of n characters.
static int byte64(const char *text, size_t n, size_t i) {
    size_t at = i / 3 * 4;
    if (at + 3 >= n)
        return 0;
    int v = digit64(text[at]) << 18 | digit64(text[at + 1]) << 12 | digit64(text[at + 2]) << 6 |
            digit64(text[at + 3]);
    return v >> (16 - 8 * (int)(i % 3)) & 255;
}

// The pool in a few lines: a cell stands for some pages, and shows the busiest state that is common among them.
static void draw_pool(struct screen *s, const json_t *pages) {
    const char *text = string(pages, "state");
    size_t n = (size_t)integer(pages, "count"), len = strlen(text), lines = 4,
           cells = (size_t)s->width * lines;
    if (n == 0)
        return;
    size_t per = (n + cells - 1) / cells;
    for (size_t at = 0, column = 0; at < n; at += per) {
        size_t end = at + per < n ? at + per : n, active = 0, used = 0;
        for (size_t i = at; i < end; i++) {
            int state = byte64(text, len, i);
            active += state == 2;
            used += state > 0;
        }
        buf_str(&s->line, 2 * active >= end - at ? "█"
                          : active               ? "▓"
                          : 2 * used >= end - at ? "▒"
                          : used                 ? "░"
                                                 : "·");
        if (++column == (size_t)s->width) {
            end_line(s);
            column = 0;
        } else if (end == n) {
            end_line(s);
        }
    }
    buf_fmt(&s->line, "█ active ▓ partly ▒ cached ░ partly · free; a cell is %zu page%s", per,
            per == 1 ? "" : "s");
    end_line(s);
}

static void draw_request(struct screen *s, const json_t *r) {
    const char *name = string(r, "request_id");
    char id[24];
    if (*name)
        snprintf(id, sizeof id, "%.20s", name);
    else
        snprintf(id, sizeof id, "#%lld", (long long)integer(r, "id"));
    buf_fmt(&s->line, "%-20s %-9s %8.1f %8lld %8lld %8lld %8.1f %7lld", id, string(r, "state"),
            number(r, "age_s"), (long long)integer(r, "prompt_tokens"),
            (long long)integer(r, "cached_tokens"), (long long)integer(r, "generated_tokens"),
            number(r, "tokens_per_s"), (long long)integer(r, "pages"));
    end_line(s);
}

static void draw(struct screen *s, const json_t *e) {
    const json_t *limits = json_object_get(e, "limits"), *queue = json_object_get(e, "queue"),
                 *rates = json_object_get(e, "throughput"), *totals = json_object_get(e, "totals"),
                 *requests = json_object_get(e, "requests"), *pages = json_object_get(e, "pages"), *g, *r;
    int64_t active = 0, cached = 0, queries = integer(totals, "prefix_queries");
    size_t i;
    json_array_foreach(json_object_get(e, "groups"), i, g) {
        active += integer(g, "active");
        cached += integer(g, "cached");
    }
    s->lines = 0;
    buf_fmt(&s->line, "%s  up %lld s", string(e, "model"), (long long)integer(e, "uptime_s"));
    end_line(s);
    buf_fmt(&s->line, "running %lld of %lld  waiting %lld  deferred %lld",
            (long long)integer(queue, "running"), (long long)integer(limits, "max_num_seqs"),
            (long long)integer(queue, "waiting"), (long long)integer(queue, "deferred"));
    end_line(s);
    buf_fmt(&s->line, "tokens/s: output %.1f  prompt %.1f  steps/s %.1f",
            number(rates, "generated_tokens_per_s"), number(rates, "prompt_tokens_per_s"),
            number(rates, "steps_per_s"));
    end_line(s);
    buf_fmt(&s->line, "pages %lld of %lld tokens: active %lld  cached %lld  free %lld  evicted %lld",
            (long long)integer(limits, "pages"), (long long)integer(limits, "page_tokens"), (long long)active,
            (long long)cached, (long long)integer(e, "free_pages"), (long long)integer(totals, "evictions"));
    end_line(s);
    buf_fmt(&s->line, "prefix hits %.1f %%  preemptions %lld",
            queries ? 100 * (double)integer(totals, "prefix_hits") / (double)queries : 0,
            (long long)integer(totals, "preemptions"));
    end_line(s);
    const json_t *store = json_object_get(e, "store");
    if (json_is_object(store)) {
        buf_fmt(&s->line, "store %s: %lld of %lld MiB  read %lld  written %lld  prompt tokens from it %lld",
                string(store, "where"), (long long)(integer(store, "bytes") >> 20),
                (long long)(integer(store, "max_bytes") >> 20), (long long)integer(store, "reads"),
                (long long)integer(store, "writes"), (long long)integer(store, "hit_tokens"));
        end_line(s);
    }
    draw_pool(s, pages);
    end_line(s);
    buf_fmt(&s->line, "%-20s %-9s %8s %8s %8s %8s %8s %7s", "request", "state", "age s", "prompt", "cached",
            "output", "tokens/s", "pages");
    end_line(s);
    json_array_foreach(requests, i, r) { draw_request(s, r); }
    buf_free(&s->line);
    if (s->ansi)
        fputs("\033[J", stdout);
    fflush(stdout);
}

static void measure_screen(struct screen *s) {
    struct winsize w;
    *s = (struct screen){.width = PLAIN_WIDTH, .ansi = true};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 1) {
        s->width = w.ws_col;
        s->height = w.ws_row;
    }
}

// Waits, and reads keys meanwhile: q, Esc and an end of input set stop, as a signal does.
static void wait_for_key(void) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    int64_t left, end = clock_now_ns() / 1000000 + INTERVAL_MS;
    while (!stop && (left = end - clock_now_ns() / 1000000) > 0) {
        char keys[64];
        if (poll(&in, 1, (int)left) <= 0)
            continue;
        ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
        bool escape = n == 1 && keys[0] == '\033'; // alone: more bytes are an arrow or the like
        if (n <= 0 || escape || memchr(keys, 'q', (size_t)n) || memchr(keys, 'Q', (size_t)n))
            stop = 1;
    }
}

static int watch(const struct config *c, const struct client_url *url) {
    // SA_RESTART: a write to a slow terminal goes on; poll() ends all the same
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct termios usual, quiet;
    bool keys = tcgetattr(STDIN_FILENO, &usual) == 0;
    struct screen s;
    struct err err = {0};
    json_t *e;
    enum status status = ask(c, url, &e, &err); // a first failure is printed on the usual screen
    if (status == STATUS_OK) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        fputs("\033[?1049h\033[?25l", stdout); // another screen, no cursor
        if (keys) {                            // that come one by one, unseen; ctrl-C stays a signal
            quiet = usual;
            quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
            tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
        }
    }
    bool begun = status == STATUS_OK;
    while (status == STATUS_OK && !stop) {
        measure_screen(&s);
        fputs("\033[H", stdout);
        draw(&s, e);
        json_decref(e);
        e = NULL;
        if (keys)
            wait_for_key();
        else
            poll(NULL, 0, INTERVAL_MS); // a signal ends it
        if (!stop)
            status = ask(c, url, &e, &err);
    }
    json_decref(e);
    if (begun && keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &usual);
    if (begun)
        fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (status == STATUS_OK || stop)
        return 0;
    complain("%s", err.msg);
    return EXIT_FAILED;
}

int cmd_top(const struct config *c) {
    struct client_url url;
    struct err err = {0};
    json_t *e;
    if (c->args.len > 1 || !server_url(c, c->args.len == 1 ? c->args.items[0] : NULL, &url)) {
        complain("usage: quire top [[http://]HOST:PORT] [--once]%s",
                 client_url_hint(c->args.len == 1 ? c->args.items[0] : c->url));
        return EXIT_USAGE;
    }
    if (!c->once && terminal_draws(STDOUT_FILENO))
        return watch(c, &url);
    if (ask(c, &url, &e, &err) != STATUS_OK) {
        complain("%s", err.msg);
        return EXIT_FAILED;
    }
    struct screen s = {.width = PLAIN_WIDTH};
    draw(&s, e);
    json_decref(e);
    return 0;
}
