// Prompts from files.
#include "dataset_file.h"

#include "log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t output_of(const struct dataset *d, const char *completion) {
    if (d->o->file_output_len)
        return (uint32_t)d->o->file_output_len;
    // Four bytes a token: a fair guess for English, and only a limit.
    size_t n = completion ? strlen(completion) / 4 : 128;
    return n < 4 ? 4 : n > 1024 ? 1024 : (uint32_t)n;
}

static struct turn text_turn(const struct dataset *d, const char *text, const char *completion) {
    return (struct turn){.text = text, .output = output_of(d, completion)};
}

// {"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}, …]}
static void add_conversation(struct dataset *d, const json_t *list) {
    size_t n = json_array_size(list), turns = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const char *from = json_string_value(json_object_get(json_array_get(list, i), "from"));
        turns += from && (strcmp(from, "human") == 0 || strcmp(from, "user") == 0);
    }
    if (turns == 0)
        return;
    if (!d->o->multi_turn)
        turns = 1;
    struct item *it = dataset_add(d, (uint32_t)turns);
    uint32_t k = 0;
    for (size_t i = 0; i + 1 < n && k < turns; i++) {
        const json_t *said = json_array_get(list, i);
        const char *from = json_string_value(json_object_get(said, "from"));
        const char *text = json_string_value(json_object_get(said, "value"));
        if (from && text && (strcmp(from, "human") == 0 || strcmp(from, "user") == 0))
            it->turns[k++] =
                text_turn(d, text, json_string_value(json_object_get(json_array_get(list, i + 1), "value")));
    }
    it->num_turns = k;
    if (k == 0) {
        free(it->turns);
        d->num--;
    }
}

static bool read_sharegpt(struct dataset *d, char *message, size_t size) {
    json_error_t error;
    d->json = json_loads(d->text, 0, &error);
    if (!json_is_array((json_t *)d->json)) {
        snprintf(message, size, "%s: no JSON array (%s, line %d)", d->o->dataset_path, error.text,
                 error.line);
        return false;
    }
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)d->json, i, one) {
        const char *question = json_string_value(json_object_get(one, "instruction"));
        if (question) // Alpaca's form: {"instruction", "input", "output"}
            dataset_add(d, 1)->turns[0] =
                text_turn(d, question, json_string_value(json_object_get(one, "output")));
        else
            add_conversation(d, json_object_get(one, "conversations"));
    }
    return true;
}

// A line of a jsonl file: MT-Bench's {"turns": […]}, or {"prompt": …} under one of its usual names.
static bool add_line(struct dataset *d, const json_t *line) {
    const json_t *turns = json_object_get(line, "turns");
    if (d->kind == DATASET_MTBENCH) {
        size_t n = json_array_size(turns);
        if (n == 0)
            return false;
        if (!d->o->multi_turn)
            n = 1;
        for (size_t k = 0; k < n; k++)
            if (!json_is_string(json_array_get(turns, k)))
                return false;
        struct item *it = dataset_add(d, (uint32_t)n);
        for (size_t k = 0; k < n; k++)
            it->turns[k] = text_turn(d, json_string_value(json_array_get(turns, k)), NULL);
        return true;
    }
    static const char *const names[] = {"prompt", "question", "instruction", "text"};
    const char *text = NULL;
    for (size_t k = 0; k < 4 && !text; k++)
        text = json_string_value(json_object_get(line, names[k]));
    if (!text)
        return false;
    dataset_add(d, 1)->turns[0] = text_turn(d, text, NULL);
    json_int_t limit = json_integer_value(json_object_get(line, "output_tokens")); // vLLM's name
    if (limit > 0 && limit < 1000000 && !d->o->file_output_len)
        d->items[d->num - 1].turns[0].output = (uint32_t)limit;
    return true;
}

static bool read_lines(struct dataset *d, char *message, size_t size) {
    d->json = json_array(); // keeps the lines, whose texts the prompts point to
    CHECK(d->json);
    int number = 0;
    for (char *p = d->text; *p;) {
        size_t len = strcspn(p, "\n");
        number++;
        if (len > strspn(p, " \t\r")) {
            json_t *line = json_loadb(p, len, 0, NULL);
            bool kept = json_array_append_new(d->json, line) == 0; // takes the line even where it fails
            if (!kept || !json_is_object(line) || !add_line(d, line)) {
                snprintf(message, size, "%s: line %d is no prompt of the form %s", d->o->dataset_path, number,
                         d->kind == DATASET_MTBENCH ? "{\"turns\": […]}" : "{\"prompt\": …}");
                return false;
            }
        }
        p += len + (p[len] == '\n');
    }
    return true;
}

// A prompt for each paragraph.
static bool read_text(struct dataset *d) {
    for (char *p = d->text; *p;) {
        p += strspn(p, "\r\n \t");
        if (!*p)
            break;
        char *end = strstr(p, "\n\n"), *crlf = strstr(p, "\r\n\r\n");
        if (crlf && (!end || crlf < end))
            end = crlf;
        char *next = end ? end + 1 : p + strlen(p);
        if (end)
            *end = 0;
        dataset_add(d, 1)->turns[0] = text_turn(d, p, NULL);
        p = next;
    }
    return true;
}

bool dataset_read_prompts(struct dataset *d, char *message, size_t size) {
    switch (d->kind) {
    case DATASET_SHAREGPT: return read_sharegpt(d, message, size);
    case DATASET_TEXT: return read_text(d);
    default: return read_lines(d, message, size);
    }
}
