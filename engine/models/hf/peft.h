// A PEFT folder (adapter_config.json, adapter_model.safetensors) as a model file. Its tensors are called what GGUF
// adapters call them: "blk.0.attn_q.weight.lora_a". It has no keys.
#pragma once

#include "models/model_file.h"

// arch: of the model that it is for. Refuses by key or tensor what Quire does not compute. NULL with err:
// STATUS_FORMAT, STATUS_IO, STATUS_NOMEM. Closed by model_file_close().
struct model_file *peft_open(const char *path, const char *arch, struct err *err);

// The factor of B(A x) for one of the file's tensors, whose matrices have this rank.
double peft_scale(const struct model_file *f, const struct model_tensor *t, int64_t rank);
// Whether the rows of each head come as two halves, whose pairs the architecture has beside each other.
bool peft_has_halves(const struct model_file *f, const struct model_tensor *t);
