// The API of Hugging Face's Text Generation Inference: /generate, /generate_stream, and / for its clients. Pure; any thread.
#pragma once

#include "api/dialect.h"

extern const struct api_form tgi_form;
extern const struct dialect tgi_generate, tgi_stream, tgi_root;
