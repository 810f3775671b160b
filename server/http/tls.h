// TLS of libmicrohttpd's connections, by gnutls: whom the server says it is, and what it writes itself. Loop thread, but for
// tls_pair_read().
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gnutls_session_int; // a session of gnutls

struct tls_pair; // a certificate, with those that vouch for it, and its private key

// Reads both from PEM files, which may be one. NULL: err says why not; in a build without gnutls always. Any thread.
struct tls_pair *tls_pair_read(const char *cert, const char *key, struct err *err);
void tls_pair_free(struct tls_pair *pair);
int64_t tls_pair_end(const struct tls_pair *pair); // s since 1970: when the certificate ends

// Handshakes that begin from now on have this pair, which is taken over. One for the process; NULL: none is needed any more.
void tls_use(struct tls_pair *pair);

// MHD_OPTION_HTTPS_CERT_CALLBACK's function, as the pointer that MHD_OPTION_ARRAY wants, and what protocols there are.
void *tls_callback(void);
extern const char tls_priorities[];

// Sends all of data at once, or false.
bool tls_send(struct gnutls_session_int *session, const void *data, size_t len);
// Says that nothing more will be sent.
void tls_end(struct gnutls_session_int *session);

// Calls fn, one for the process, with libmicrohttpd's connection once the handshake has ended.
void tls_on_finished(struct gnutls_session_int *session, void (*fn)(void *connection));
// Whether a handshake that waits does so to write.
bool tls_wants_write(struct gnutls_session_int *session);
