#include "completion_label.h"

#include "api/loras.h"
#include "completion_state.h"

#include <string.h>

bool completion_label(struct app *app, uint64_t id, struct completion_label *out) {
    const struct choice *ch = choice_table_find(app, id);
    if (!ch || !ch->completion->http)
        return false;
    const struct http_request *http = ch->completion->http;
    const struct lora *lora = ch->completion->request.lora;
    *out = (struct completion_label){.request_id = http->request_id, .adapter = lora ? lora->name : ""};
    app_tenant(app, &http->head, out->tenant);
    return true;
}

void completion_census(const struct app *app, struct metrics_census *out, struct metrics_adapter *adapters,
                       int num_adapters) {
    *out = (struct metrics_census){.num_keys = app->auth.num_keys < METRICS_MAX_KEYS ? (int)app->auth.num_keys
                                                                                     : METRICS_MAX_KEYS};
    for (const struct completion *c = app->completions; c; c = c->next)
        for (int i = 0; i < c->num_choices; i++) {
            const struct choice *ch = &c->choices[i];
            int priority = c->request.priority, class = priority < 0 ? 0 : priority == 0 ? 1 : 2;
            int key = c->key < METRICS_MAX_KEYS ? c->key + 1 : METRICS_MAX_KEYS;
            if (!ch->submitted || ch->finished)
                continue;
            out->open[class][key][ch->num_tokens > 0]++;
            for (int k = 0; c->request.lora && k < num_adapters; k++)
                if (strcmp(adapters[k].name, c->request.lora->name) == 0)
                    (*(ch->num_tokens > 0 ? &adapters[k].running : &adapters[k].waiting))++;
        }
}
