// Handlers and jobs that routes.c names. A handler responds at once, on the loop thread.
#pragma once

#include "requests/job.h"

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
job_fn lora_load_response, lora_unload_response;
