// One self-contained page of one or several results: inline SVG, no script, light and dark.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

// Writes the page of the objects that report_json() made. False: errno says why.
bool html_write(const json_t *const *results, size_t n, const char *path);
