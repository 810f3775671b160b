#include "unreadable.h"

#include "log.h"

#include <dlfcn.h>
#include <string.h>

static void (*respond)(struct MHD_Connection *mhd, int status);

void unreadable_call(void (*fn)(struct MHD_Connection *mhd, int status)) { respond = fn; }

// The library's function where the library is an archive (packaging/sysroot.sh), which cannot have two of one name.
__typeof__(MHD_queue_response) MHD_queue_response_inside __attribute__((weak));

enum MHD_Result unreadable_queue(struct MHD_Connection *mhd, unsigned status, struct MHD_Response *response) {
    static __typeof__(MHD_queue_response) *queue; // the loop's thread alone calls this
    if (!queue)
        queue = MHD_queue_response_inside;
    if (!queue) {
        void *found = dlsym(RTLD_NEXT, "MHD_queue_response");
        CHECK(found);
        memcpy(&queue, &found, sizeof queue);
    }
    return queue(mhd, status, response);
}

// Only libmicrohttpd calls it. It goes on as if its page were sent, and closes.
enum MHD_Result MHD_queue_response(struct MHD_Connection *mhd, unsigned status,
                                   struct MHD_Response *response) {
    respond(mhd, (int)status);
    return unreadable_queue(mhd, status, response);
}

const char *unreadable_why(int status, bool in_line) {
    switch (status) {
    case MHD_HTTP_CONTENT_TOO_LARGE: return "Content-Length is too large.";
    case MHD_HTTP_URI_TOO_LONG: return "The request line is too long.";
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
        return "The head is too large, or a cookie in it is malformed.";
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
        return "The versions of HTTP that are spoken here are 1.1 and 1.0.";
    default:
        return in_line ? "The request line is malformed."
                       : "A header has no colon, or Content-Length is not a number.";
    }
}
