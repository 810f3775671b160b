// The MTP layer of a model: one layer behind the model's own in the file, which drafts (include/model.h, mtp_layer).
#pragma once

#include "backend.h"
#include "model_file.h"

// Makes *c the configuration of the MTP layer of the model `of`, which the file has: its first one. STATUS_INVALID with a
// sentence: the file has none, or one that Quire does not compute.
enum status mtp_config(const struct model_file *f, const struct model_config *of, struct model_config *c,
                       struct err *err);
