// Which models may draft for another (engine_draft()).
#pragma once

#include "engine.h"

// The configuration of the engine that drafts for the one of c, but for its number of pages. STATUS_INVALID: c's has
// none. ops: of c's devices.
enum status draft_config(const struct engine_config *c, const struct backend_ops *ops,
                         struct engine_config *draft, struct err *err);

// The same of the engine of its MTP layer.
enum status draft_mtp_config(const struct engine_config *c, const struct backend_ops *ops,
                             struct engine_config *draft, struct err *err);

// Whether the draft model, opened with c, can: its tokens are those of the other tokenizer, and it takes wrong ones back.
// STATUS_INVALID with a sentence.
enum status draft_check(const struct engine_config *c, const struct model_config *model,
                        const struct tokenizer *of, const struct tokenizer *draft, struct err *err);
