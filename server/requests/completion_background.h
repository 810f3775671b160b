// Completions that go on in the background, by owner and id, until their response is kept. Loop thread.
#pragma once

#include "exchange.h"

// NULL: there is none.
struct exchange *completion_find(const struct app *app, const uint8_t owner[SHA256_BYTES], const char *id);
// Appends the body as it is so far.
void completion_snapshot(const struct exchange *x, struct buf *body);
// Ends it, keeps what there is of it unless it is deleted, and appends the body of that where body is not NULL. False: it is
// at its end already.
bool completion_cancel(struct exchange *x, struct buf *body);
