// Requests that libmicrohttpd cannot read. It calls nothing of ours for them, but queues a page of HTML by
// MHD_queue_response(). The program has a function of that name, which comes before the library's, and lets the application
// respond.
#pragma once

#include <microhttpd.h>
#include <stdbool.h>

// Calls fn, on the thread of the loop, in place of each page of libmicrohttpd's own, which would have this status. One for
// the process.
void unreadable_call(void (*fn)(struct MHD_Connection *mhd, int status));

// MHD_queue_response() for responses of the application.
enum MHD_Result unreadable_queue(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response);

// Why, of 400, 413, 414, 431 or 505 for a head; in_line: for its first line.
const char *unreadable_why(int status, bool in_line);
