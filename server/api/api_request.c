#include "api_request.h"

#include "loras.h"

#include <stdlib.h>

void api_request_free(struct api_request *r) {
    for (size_t i = 0; i < r->num_prompts; i++)
        token_buf_free(&r->prompts[i]);
    free(r->prompts);
    free(r->salt);
    lora_release(r->lora);
    *r = (struct api_request){0};
}

void vector_request_free(struct vector_request *r) {
    api_request_free(&r->base);
    free(r->second_text);
    buf_free(&r->documents);
    free(r->document_at);
    *r = (struct vector_request){0};
}
