// Plots as inline SVG. Colours are CSS classes (c0…c7), so that a page is right in light and in dark. Pure.
#pragma once

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>

enum { PLOT_SERIES = 16, PLOT_COLOURS = 8 };

struct plot_series {
    const char *name; // of the legend; NULL: none
    int colour;       // 0..PLOT_COLOURS-1
    bool dashed, line, dots;
    size_t n;
    const double *x, *y;       // [n]; a NAN breaks the line. Not owned.
    const char *const *labels; // [n] beside the dots; NULL: none
    const bool *hollow;        // [n] dots without a filling; NULL: all filled
};

struct plot {
    const char *title, *x_label, *y_label, *note; // note: below, or NULL
    bool log_x;                                   // only used where all x are above 0
    bool percent_y;                               // y runs from 0 to 100 %
    double x_max;                                 // 0: the largest x
    size_t num;
    struct plot_series series[PLOT_SERIES];
};

// Adds <figure>…</figure>. A plot without a single point says so.
void svg_plot(struct buf *b, const struct plot *p);
// Text with &, <, > and quotes escaped.
void html_text(struct buf *b, const char *s);

// Steps of 1, 2 or 5 times a power of ten: the distance between ticks, so that about `about` of them lie in
// [low, high]. high > low.
double svg_tick_step(double low, double high, int about);
