// Traces of real services: times, lengths, and what the prompts share.
#include "dataset_trace.h"

#include "log.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOONCAKE_BLOCK = 512, KEY_TRACE = 3, KEY_BLOCK = 4 };

struct trace_request {
    double at; // s, of the trace
    double input, output;
    const json_t *hashes; // NULL: nothing is shared
    const char *text;     // NULL: made up
};

static uint32_t scaled(double tokens, double scale, int64_t limit) {
    double v = round(tokens * scale);
    if (v < 1)
        v = 1;
    if (limit && v > (double)limit)
        v = (double)limit;
    return v > 1e9 ? 1000000000u : (uint32_t)v;
}

// The prompt of a Mooncake request: a segment for each block of 512 tokens, scaled, the last one what is
// left.
static void add_blocks(const struct dataset *d, struct turn *t, const json_t *hashes) {
    double block = fmax(1, round(MOONCAKE_BLOCK * d->o->input_scale));
    size_t n = json_array_size(hashes);
    t->segments = calloc(n, sizeof *t->segments);
    CHECK(t->segments);
    uint32_t left = t->input;
    for (size_t i = 0; i < n && left; i++) {
        // The last block takes what rounding left over, too.
        uint32_t tokens = i + 1 == n || left < (uint32_t)block ? left : (uint32_t)block;
        uint64_t key = (uint64_t)json_integer_value(json_array_get(hashes, i));
        t->segments[t->num_segments++] = (struct segment){(uint64_t)KEY_BLOCK << 56 ^ key, tokens};
        left -= tokens;
    }
}

// The time is the trace's own, in ns from the first line; cut_out() makes it the run's.
static void add_request(struct dataset *d, const struct trace_request *q, double *origin) {
    const struct options *o = d->o;
    if (isnan(*origin))
        *origin = q->at;
    struct item *it = dataset_add(d, 1);
    struct turn *t = it->turns;
    it->at = (int64_t)round((q->at - *origin) * 1e9);
    t->input = scaled(q->input, o->input_scale, o->max_input_len);
    t->output = scaled(q->output, o->output_scale, o->max_output_len);
    t->text = q->text;
    if (q->text)
        return;
    if (q->hashes && json_array_size(q->hashes)) {
        add_blocks(d, t, q->hashes);
        return;
    }
    t->segments = calloc(1, sizeof *t->segments);
    CHECK(t->segments);
    t->segments[0] = (struct segment){(uint64_t)KEY_TRACE << 56 ^ d->num, t->input};
    t->num_segments = 1;
}

// "2023-11-16 18:15:46.6805900", UTC; or a number of seconds. NAN: neither.
static double azure_time(const char *text, char **end) {
    int year, month, day, hour, minute, used = 0;
    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%n", &year, &month, &day, &hour, &minute, &used) == 5 && used) {
        struct tm tm = {
            .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = minute};
        double seconds = strtod(text + used, end);
        return *end == text + used ? NAN : (double)timegm(&tm) + seconds;
    }
    double v = strtod(text, end);
    return *end == text ? NAN : v;
}

// A line of CSV. 1: a request, 0: none on it, -1: bad.
static int csv_line(const struct dataset *d, char *line, int number, struct trace_request *q) {
    if (*line == 0 || number == 1) // the head
        return 0;
    char *p = line, *end;
    if (d->kind == DATASET_AZURE) {
        q->at = azure_time(p, &end);
        // newer releases end the time with a zone: +00:00
        end += *end == '+' ? strcspn(end, ",") : 0;
        if (isnan(q->at) || *end != ',')
            return -1;
        p = end + 1;
    }
    q->input = strtod(p, &end);
    if (end == p || *end != ',')
        return -1;
    p = end + 1;
    q->output = strtod(p, &end);
    if (end == p || (*end && *end != ','))
        return -1;
    return q->input >= 0 && q->output >= 0 ? 1 : -1;
}

static bool read_csv(struct dataset *d, char *message, size_t size) {
    double origin = NAN;
    int number = 0;
    for (char *p = d->text; *p;) {
        size_t len = strcspn(p, "\n");
        char *next = p + len + (p[len] == '\n');
        p[len] = 0;
        p[strcspn(p, "\r")] = 0;
        struct trace_request q = {0};
        int rc = csv_line(d, p, ++number, &q);
        if (rc < 0) {
            snprintf(message, size, "%s: line %d is no line of a trace of that kind", d->o->dataset_path,
                     number);
            return false;
        }
        if (rc)
            add_request(d, &q, &origin);
        p = next;
    }
    return true;
}

// False: no line of such a trace.
static bool json_line(struct dataset *d, const json_t *line, double *origin) {
    const json_t *time = json_object_get(line, "timestamp");
    if (!json_is_number(time))
        return false;
    struct trace_request q = {.at = json_number_value(time) / 1e3};
    if (d->kind == DATASET_MOONCAKE) {
        const json_t *in = json_object_get(line, "input_length"),
                     *out = json_object_get(line, "output_length");
        if (!json_is_number(in) || !json_is_number(out))
            return false;
        q.input = json_number_value(in);
        q.output = json_number_value(out);
        q.hashes = json_object_get(line, "hash_ids");
        add_request(d, &q, origin);
        return true;
    }
    const json_t *requests = json_object_get(line, "requests"), *one;
    if (!json_is_array(requests))
        return false;
    size_t i;
    json_array_foreach(requests, i, one) {
        const json_t *in = json_object_get(one, "Prompt Length"),
                     *out = json_object_get(one, "Output Length");
        if (!in)
            in = json_object_get(one, "prompt_length");
        if (!out)
            out = json_object_get(one, "output_length");
        q.input = json_number_value(in);
        q.output = json_is_number(out) ? json_number_value(out) : 128;
        q.text = json_string_value(json_object_get(one, "prompt"));
        if (!q.text && !json_is_number(in))
            return false;
        add_request(d, &q, origin);
    }
    return true;
}

static bool read_jsonl(struct dataset *d, char *message, size_t size) {
    d->json = json_array(); // keeps lines with texts
    CHECK(d->json);
    double origin = NAN;
    int number = 0;
    for (char *p = d->text; *p;) {
        size_t len = strcspn(p, "\n");
        number++;
        if (len > strspn(p, " \t\r")) {
            json_t *line = json_loadb(p, len, 0, NULL);
            bool good = line && json_line(d, line, &origin);
            if (d->kind == DATASET_AIBRIX && line)
                json_array_append(d->json, line);
            json_decref(line);
            if (!good) {
                snprintf(message, size, "%s: line %d is no line of a trace of that kind", d->o->dataset_path,
                         number);
                return false;
            }
        }
        p += len + (p[len] == '\n');
    }
    return true;
}

static int by_time(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

// Keeps the part of the trace that is wanted, from the earliest request on, and makes its times the run's.
static void cut_out(struct dataset *d) {
    const struct options *o = d->o;
    size_t kept = 0;
    double first = d->num ? (double)d->items[0].at / 1e9 : 0;
    for (size_t i = 0; i < d->num; i++) {
        struct item it = d->items[i];
        double at = (double)it.at / 1e9 - first - o->trace_start;
        if (at < 0 || (o->trace_seconds > 0 && at >= o->trace_seconds)) {
            item_free(&it);
            continue;
        }
        it.at = (int64_t)(at * o->time_scale * 1e9);
        d->items[kept++] = it;
    }
    d->num = kept;
}

bool dataset_read_trace(struct dataset *d, char *message, size_t size) {
    bool csv = d->kind == DATASET_AZURE || d->kind == DATASET_VIDUR;
    if (!(csv ? read_csv(d, message, size) : read_jsonl(d, message, size)))
        return false;
    bool ordered = true;
    for (size_t i = 1; i < d->num; i++)
        ordered = ordered && d->items[i - 1].at <= d->items[i].at;
    if (!ordered)
        qsort(d->items, d->num, sizeof *d->items, by_time);
    cut_out(d);
    return true;
}
