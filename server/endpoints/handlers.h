// The handlers of routes.c but completions': each responds at once, or starts a job (job.h). Loop thread.
#pragma once

#include "requests/app.h"

void get_models(struct app *app, struct http_request *request);
void get_model(struct app *app, struct http_request *request);
void get_health(struct app *app, struct http_request *request);
void get_livez(struct app *app, struct http_request *request);
void get_readyz(struct app *app, struct http_request *request);
void get_load(struct app *app, struct http_request *request);
void get_version(struct app *app, struct http_request *request);
void get_ollama_version(struct app *app, struct http_request *request);
void get_tokenizer_info(struct app *app, struct http_request *request);
void get_props(struct app *app, struct http_request *request);
void get_slots(struct app *app, struct http_request *request);
// metrics_page.c
void reply_metrics(struct app *app, struct http_request *request, const char *(*route_name)(int),
                   int num_routes);
// ollama_info.c
void get_root(struct app *app, struct http_request *request);
void get_ollama_tags(struct app *app, struct http_request *request);
void get_ollama_ps(struct app *app, struct http_request *request);
void post_ollama_show(struct app *app, struct http_request *request);
// lora_handlers.c
void get_loras(struct app *app, struct http_request *request);
void post_load_lora(struct app *app, struct http_request *request);
void post_unload_lora(struct app *app, struct http_request *request);
