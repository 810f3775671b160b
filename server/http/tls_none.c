// In place of tls.c in a build without gnutls: there is no certificate, so no connection has TLS.
#include "tls.h"

#include "log.h"

const char tls_priorities[] = "";

struct tls_pair *tls_pair_read(const char *cert, const char *key, struct err *err) {
    (void)cert, (void)key;
    err_set(err, STATUS_INVALID, "--tls-cert is not in this build: it was made without gnutls");
    return NULL;
}

void tls_pair_free(struct tls_pair *pair) { (void)pair; }
int64_t tls_pair_end(const struct tls_pair *pair) { return (void)pair, 0; }
void tls_use(struct tls_pair *pair) { CHECK(!pair); }
void *tls_callback(void) { return NULL; }

bool tls_send(struct gnutls_session_int *session, const void *data, size_t len) {
    (void)session, (void)data, (void)len;
    return false;
}

void tls_end(struct gnutls_session_int *session) { (void)session; }

void tls_on_finished(struct gnutls_session_int *session, void (*fn)(void *connection)) {
    (void)session, (void)fn;
}

bool tls_wants_write(struct gnutls_session_int *session) { return (void)session, false; }
