// The vectors of requests that want one in place of output, made of hidden states as steps end.
#pragma once

#include "backend.h"
#include "models/pool_head.h"
#include "plan.h"

// Adds a step's hidden states, (R, D) of which plan item i has rows [first_row[i], first_row[i + 1]), to the vectors of the
// plan's requests, which go through the head at their end. Rows of a sequence are added one after the other, so chunks and
// batch change no bit. Sets failed[i], ITEM_GOOD or ITEM_NOT_FINITE, of each item that pools. Engine thread.
void pooling_collect(const struct plan *plan, const int32_t *first_row, const struct step_out *out,
                     int hidden, const struct pool_head *head, uint8_t *failed);
