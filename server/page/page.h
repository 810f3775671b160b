// The web page: chat and engine view, compiled into the binary. Its files need no key and tell nothing; what it shows it
// asks of the API as any client does.
#pragma once

#include "requests/app.h"

// Whether this request gets a file of the page, which --no-page turns off: GET or HEAD of /page/NAME, or GET of / by a client
// that accepts text/html. `root`: the request's route is /. Loop thread.
bool page_wanted(const struct app *app, const struct http_request *request, bool root);

// Responds with the file, or with 404 where there is none of that name. Only if page_wanted(). Loop thread.
void page_reply(struct http_request *request);
