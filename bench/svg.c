#include "svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Sizes of the drawing, in its own units; the page scales it.
enum { WIDTH = 520, HEIGHT = 300, LEFT = 72, RIGHT = 14, TOP = 12, BOTTOM = 44 };

void html_text(struct buf *b, const char *s) {
    for (; s && *s; s++) {
        switch (*s) {
        case '&': buf_lit(b, "&amp;"); break;
        case '<': buf_lit(b, "&lt;"); break;
        case '>': buf_lit(b, "&gt;"); break;
        case '"': buf_lit(b, "&quot;"); break;
        default: buf_char(b, (unsigned char)*s < 0x20 ? ' ' : *s);
        }
    }
}

double svg_tick_step(double low, double high, int about) {
    double rough = (high - low) / about, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

struct axis {
    double low, high;
    bool log;
    double from, to; // pixels
};

static double place(const struct axis *a, double v) {
    double part = a->log ? (log10(v) - log10(a->low)) / (log10(a->high) - log10(a->low))
                         : (v - a->low) / (a->high - a->low);
    return a->from + part * (a->to - a->from);
}

static void number(char *text, size_t size, double v) {
    if (fabs(v) >= 1e6)
        snprintf(text, size, "%gM", round(v / 1e4) / 100);
    else if (fabs(v) >= 1e4)
        snprintf(text, size, "%gk", round(v / 1e2) / 10);
    else
        snprintf(text, size, "%.4g", v);
}

static void tick(struct buf *b, const struct axis *a, double v, bool x, bool percent) {
    char text[24];
    number(text, sizeof text, v);
    double at = place(a, v);
    if (x)
        buf_fmt(b,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"tick\" "
                "x=\"%.1f\" "
                "y=\"%d\" text-anchor=\"middle\">%s</text>",
                at, at, TOP, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 16, text);
    else
        buf_fmt(
            b,
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" "
            "y=\"%.1f\" text-anchor=\"end\">%s%s</text>",
            LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4, text, percent ? "%" : "");
}

static void ticks(struct buf *b, const struct axis *a, bool x, bool percent) {
    if (!a->log) {
        double step = svg_tick_step(a->low, a->high, 5);
        for (double v = ceil(a->low / step - 1e-9) * step; v <= a->high + step * 1e-9; v += step)
            tick(b, a, fabs(v) < step * 1e-9 ? 0 : v, x, percent);
        return;
    }
    bool few = log10(a->high / a->low) < 2.2;
    for (double power = pow(10, floor(log10(a->low))); power <= a->high; power *= 10)
        for (int k = 1; k < 10; k = k == 1 ? 2 : k == 2 ? 5 : 10)
            if (power * k >= a->low * 0.999 && power * k <= a->high * 1.001 && (k == 1 || few))
                tick(b, a, power * k, x, percent);
}

static bool shown(const struct plot_series *s, size_t i) { return isfinite(s->x[i]) && isfinite(s->y[i]); }

static void line(struct buf *b, const struct plot_series *s, const struct axis *x, const struct axis *y) {
    buf_fmt(b, "<path class=\"line c%d%s\" d=\"", s->colour, s->dashed ? " dashed" : "");
    bool pen = false;
    for (size_t i = 0; i < s->n; i++) {
        if (!shown(s, i)) {
            pen = false;
            continue;
        }
        buf_fmt(b, "%c%.1f %.1f", pen ? 'L' : 'M', place(x, s->x[i]), place(y, s->y[i]));
        pen = true;
    }
    buf_lit(b, "\"/>");
}

static void dots(struct buf *b, const struct plot_series *s, const struct axis *x, const struct axis *y) {
    for (size_t i = 0; i < s->n; i++) {
        if (!shown(s, i))
            continue;
        double px = place(x, s->x[i]), py = place(y, s->y[i]);
        char vx[24], vy[24];
        number(vx, sizeof vx, s->x[i]);
        number(vy, sizeof vy, s->y[i]);
        buf_fmt(b, "<circle class=\"dot c%d%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>", s->colour,
                s->hollow && s->hollow[i] ? " hollow" : "", px, py, s->n > 40 ? "2.5" : "4");
        if (s->name) {
            html_text(b, s->name);
            buf_lit(b, ": ");
        }
        buf_fmt(b, "%s, %s</title></circle>", vx, vy);
        if (s->labels && s->labels[i]) {
            bool left = px > WIDTH * 0.7;
            buf_fmt(b, "<text class=\"mark\" x=\"%.1f\" y=\"%.1f\"%s>", px + (left ? -8 : 8), py - 6,
                    left ? " text-anchor=\"end\"" : "");
            html_text(b, s->labels[i]);
            buf_lit(b, "</text>");
        }
    }
}

static void legend(struct buf *b, const struct plot *p) {
    size_t named = 0;
    for (size_t i = 0; i < p->num; i++)
        named += p->series[i].name && p->series[i].n;
    if (named < 2)
        return;
    buf_lit(b, "<p class=\"legend\">");
    for (size_t i = 0; i < p->num; i++) {
        const struct plot_series *s = &p->series[i];
        if (!s->name || !s->n)
            continue;
        buf_fmt(
            b,
            "<span><svg width=\"22\" height=\"10\" aria-hidden=\"true\"><line class=\"line c%d%s\" x1=\"1\" "
            "x2=\"21\" y1=\"5\" y2=\"5\"/></svg>",
            s->colour, s->dashed ? " dashed" : "");
        html_text(b, s->name);
        buf_lit(b, "</span>");
    }
    buf_lit(b, "</p>");
}

// The bounds of the points; false: there are none.
static bool bounds(const struct plot *p, struct axis *x, struct axis *y) {
    bool any = false;
    for (size_t k = 0; k < p->num; k++)
        for (size_t i = 0; i < p->series[k].n; i++) {
            const struct plot_series *s = &p->series[k];
            if (!shown(s, i))
                continue;
            x->low = any ? fmin(x->low, s->x[i]) : s->x[i];
            x->high = any ? fmax(x->high, s->x[i]) : s->x[i];
            y->low = any ? fmin(y->low, s->y[i]) : s->y[i];
            y->high = any ? fmax(y->high, s->y[i]) : s->y[i];
            any = true;
        }
    if (!any)
        return false;
    if (p->x_max > 0)
        x->high = p->x_max;
    x->log = p->log_x && x->low > 0 && x->high > x->low * 1.5;
    if (!x->log)
        x->low = fmin(0, x->low);
    y->low = fmin(0, y->low);
    if (x->high <= x->low)
        x->high = x->low + 1;
    if (p->percent_y)
        y->high = 100;
    else
        y->high = y->high > y->low ? y->high + (y->high - y->low) * 0.06 : y->low + 1;
    return true;
}

void svg_plot(struct buf *b, const struct plot *p) {
    static int figures; // numbers the clip paths of a page
    struct axis x = {.from = LEFT, .to = WIDTH - RIGHT}, y = {.from = HEIGHT - BOTTOM, .to = TOP};
    buf_lit(b, "<figure><figcaption>");
    html_text(b, p->title);
    buf_lit(b, "</figcaption>");
    if (!bounds(p, &x, &y)) {
        buf_lit(b, "<p class=\"none\">nothing was measured</p></figure>\n");
        return;
    }
    legend(b, p);
    int id = figures++;
    buf_fmt(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    html_text(b, p->title);
    buf_fmt(b, "\"><clipPath id=\"clip%d\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>",
            id, LEFT - 5, TOP - 6, WIDTH - LEFT - RIGHT + 10, HEIGHT - TOP - BOTTOM + 11);
    ticks(b, &x, true, false);
    ticks(b, &y, false, p->percent_y);
    buf_fmt(b, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>", LEFT, WIDTH - RIGHT,
            HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    buf_fmt(b, "<text class=\"label\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 8);
    html_text(b, p->x_label);
    buf_fmt(b,
            "</text><text class=\"label\" transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    html_text(b, p->y_label);
    buf_fmt(b, "</text><g clip-path=\"url(#clip%d)\">", id);
    for (size_t i = 0; i < p->num; i++)
        if (p->series[i].line)
            line(b, &p->series[i], &x, &y);
    for (size_t i = 0; i < p->num; i++)
        if (p->series[i].dots)
            dots(b, &p->series[i], &x, &y);
    buf_lit(b, "</g></svg>");
    if (p->note) {
        buf_lit(b, "<p class=\"note\">");
        html_text(b, p->note);
        buf_lit(b, "</p>");
    }
    buf_lit(b, "</figure>\n");
}
