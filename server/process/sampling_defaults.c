#include "sampling_defaults.h"

#include "api/sampling_fields.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

// Takes the values of an object of JSON; `strict`: nothing but them may be in it. `source` names it in the log.
static bool take(struct sampling_params *out, const json_t *object, bool strict, const char *source,
                 struct api_error *e) {
    struct sampling_params given = *out;
    if (!sampling_read_defaults(&given, object, strict, e))
        return false;
    char *text = json_object_size(object) > 0
                     ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(6))
                     : NULL;
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): out was copied, padding and all
    if (text && memcmp(&given, out, sizeof given) != 0)
        log_msg(LOG_INFO, "sampling_defaults source=%s values=%.400s", source, text);
    free(text);
    *out = given;
    return true;
}

static json_t *advice_object(const struct sampling_advice *a) {
    const double values[] = {a->temperature, a->top_p, a->min_p, a->repetition_penalty};
    static const char *const names[] = {"temperature", "top_p", "min_p", "repetition_penalty"};
    json_t *object = json_object();
    for (int i = 0; i < 4; i++)
        if (values[i] >= 0)
            json_object_set_new(object, names[i], json_real(values[i]));
    if (a->top_k >= 0)
        json_object_set_new(object, "top_k", json_integer(a->top_k));
    return object;
}

// Takes for chats, too, what take() has taken.
static void repeat(struct sampling_params *chat, const json_t *object) {
    struct api_error e = {0};
    struct sampling_params given = *chat;
    if (sampling_read_defaults(&given, object, false, &e))
        *chat = given;
}

enum status sampling_defaults(struct sampling_params *out, struct sampling_params *chat,
                              const struct config *c, const struct engine_info *info, struct err *err) {
    struct api_error e = {0};
    const char *from = c->generation_config, *flag = "--generation-config";
    bool is_auto = strcmp(from, "auto") == 0, is_none = strcmp(from, "vllm") == 0;
    json_error_t je;
    json_t *advice = NULL, *given = NULL;
    *out = sampling_plain;
    if (!is_none)
        advice = is_auto ? advice_object(&info->advice) : json_load_file(from, 0, &je);
    if (!is_none && !json_is_object(advice))
        err_set(err, STATUS_INVALID, "%s %s: expected auto, vllm or a file with an object of JSON", flag,
                from);
    *chat = is_auto && json_object_size(advice) == 0 ? sampling_chat : sampling_plain;
    repeat(chat, advice);
    if (err->code == STATUS_OK && advice && !take(out, advice, false, is_auto ? "model" : from, &e)) {
        if (is_auto) // the model's word, not the operator's
            log_msg(LOG_WARN, "the sampling parameters that the model file recommends are ignored: %s",
                    e.message);
        else
            err_set(err, STATUS_INVALID, "%s %s: %s", flag, from, e.message);
    }
    flag = "--override-generation-config";
    e = (struct api_error){0};
    if (err->code == STATUS_OK && c->override_generation_config) {
        given = json_loads(c->override_generation_config, JSON_REJECT_DUPLICATES, &je);
        if (!json_is_object(given))
            err_set(err, STATUS_INVALID, "%s: expected an object of JSON", flag);
        else if (!take(out, given, true, "flag", &e))
            err_set(err, STATUS_INVALID, "%s: %s", flag, e.message);
    }
    repeat(chat, given);
    json_decref(advice);
    json_decref(given);
    return err->code;
}
