#include "completion_label.h"

#include "completion_state.h"
#include "loras.h"

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
