#include "tls.h"

#include "clock.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 1 << 20, MAX_CHAIN = 16, MAX_ID = 64 };
#define KEPT (60 * 1000000000LL) // ns that a replaced pair is kept: handshakes that have seen it end sooner

struct tls_pair {
    struct tls_pair *next; // replaced earlier
    int64_t replaced;      // monotonic ns
    gnutls_pcert_st chain[MAX_CHAIN];
    unsigned num;
    gnutls_privkey_t key;
    int64_t end;
};

// RSA key exchange has no forward secrecy; TLS 1.0 and 1.1 are deprecated (RFC 8996).
const char tls_priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA";

static struct tls_pair *current;

// ---- reading

// out: MAX_FILE bytes.
static enum status read_pem(gnutls_datum_t *out, const char *flag, const char *path, struct err *err) {
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(err, STATUS_IO, "%s %.200s: %s", flag, path, strerror(errno));
    out->size = (unsigned)fread(out->data, 1, MAX_FILE, f);
    int why = ferror(f) ? errno : 0;
    bool more = !why && out->size == MAX_FILE;
    fclose(f);
    if (why)
        return err_set(err, STATUS_IO, "%s %.200s: %s", flag, path, strerror(why));
    return more ? err_set(err, STATUS_INVALID, "%s %.200s is too long for a PEM file", flag, path)
                : STATUS_OK;
}

static enum status take_chain(struct tls_pair *p, const gnutls_datum_t *pem, const char *path,
                              struct err *err) {
    gnutls_x509_crt_t certs[MAX_CHAIN];
    unsigned num = MAX_CHAIN;
    int rc = gnutls_x509_crt_list_import(certs, &num, pem, GNUTLS_X509_FMT_PEM,
                                         GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
    if (rc < 0)
        return err_set(err, STATUS_INVALID, "--tls-cert %.200s: expected 1 to %d certificates as PEM: %s",
                       path, MAX_CHAIN, gnutls_strerror(rc));
    p->end = gnutls_x509_crt_get_expiration_time(certs[0]);
    rc = 0;
    for (unsigned i = 0; i < num; i++) {
        if (rc == 0 && (rc = gnutls_pcert_import_x509(&p->chain[i], certs[i], 0)) == 0)
            p->num++;
        gnutls_x509_crt_deinit(certs[i]);
    }
    return rc == 0 ? STATUS_OK
                   : err_set(err, STATUS_INVALID, "--tls-cert %.200s: %s", path, gnutls_strerror(rc));
}

static enum status take_key(struct tls_pair *p, const gnutls_datum_t *pem, const char *path,
                            struct err *err) {
    int rc = gnutls_privkey_init(&p->key);
    if (rc == 0)
        rc = gnutls_privkey_import_x509_raw(p->key, pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc == GNUTLS_E_DECRYPTION_FAILED)
        return err_set(err, STATUS_INVALID,
                       "--tls-key %.200s is encrypted; nobody can type its password here", path);
    return rc == 0 ? STATUS_OK
                   : err_set(err, STATUS_INVALID, "--tls-key %.200s: expected a private key as PEM: %s", path,
                             gnutls_strerror(rc));
}

static enum status check_match(const struct tls_pair *p, const char *cert, const char *key, struct err *err) {
    gnutls_pubkey_t public = NULL;
    unsigned char of_cert[MAX_ID], of_key[MAX_ID];
    size_t n = sizeof of_cert, m = sizeof of_key;
    int rc = gnutls_pubkey_init(&public);
    if (rc == 0)
        rc = gnutls_pubkey_import_privkey(public, p->key, 0, 0);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, of_key, &m);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(p->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, of_cert, &n);
    gnutls_pubkey_deinit(public);
    if (rc != 0)
        return err_set(err, STATUS_INVALID, "--tls-key %.200s: %s", key, gnutls_strerror(rc));
    if (n != m || memcmp(of_cert, of_key, n) != 0)
        return err_set(err, STATUS_INVALID,
                       "--tls-key %.100s does not belong to the first certificate of --tls-cert %.100s", key,
                       cert);
    return STATUS_OK;
}

struct tls_pair *tls_pair_read(const char *cert, const char *key, struct err *err) {
    struct tls_pair *p = calloc(1, sizeof *p);
    gnutls_datum_t pem = {.data = malloc(MAX_FILE)};
    enum status status = p && pem.data ? STATUS_OK : err_set(err, STATUS_NOMEM, "out of memory");
    if (status == STATUS_OK)
        status = read_pem(&pem, "--tls-cert", cert, err);
    if (status == STATUS_OK)
        status = take_chain(p, &pem, cert, err);
    if (status == STATUS_OK)
        status = read_pem(&pem, "--tls-key", key, err);
    if (status == STATUS_OK)
        status = take_key(p, &pem, key, err);
    if (status == STATUS_OK)
        status = check_match(p, cert, key, err);
    if (pem.data)
        explicit_bzero(pem.data, MAX_FILE);
    free(pem.data);
    if (status == STATUS_OK)
        return p;
    tls_pair_free(p);
    return NULL;
}

void tls_pair_free(struct tls_pair *p) {
    if (!p)
        return;
    for (unsigned i = 0; i < p->num; i++)
        gnutls_pcert_deinit(&p->chain[i]);
    gnutls_privkey_deinit(p->key);
    free(p);
}

int64_t tls_pair_end(const struct tls_pair *p) { return p->end; }

// ---- handshakes

void tls_use(struct tls_pair *pair) {
    int64_t now = clock_now_ns();
    struct tls_pair *old = current, **at = &old;
    if (old)
        old->replaced = now;
    while (*at) {
        struct tls_pair *p = *at;
        if (pair && now - p->replaced < KEPT) {
            at = &p->next;
        } else {
            *at = p->next;
            tls_pair_free(p);
        }
    }
    current = pair;
    if (pair)
        pair->next = old;
}

static int choose(gnutls_session_t session, const gnutls_datum_t *names, int num_names,
                  const gnutls_pk_algorithm_t *kinds, int num_kinds, gnutls_pcert_st **chain, unsigned *num,
                  gnutls_privkey_t *key) {
    (void)session, (void)names, (void)num_names, (void)kinds, (void)num_kinds;
    *chain = current->chain;
    *num = current->num;
    *key = current->key;
    return 0;
}

void *tls_callback(void) {
    static gnutls_certificate_retrieve_function2 *const fn = choose;
    void *pointer;
    memcpy(&pointer, &fn, sizeof pointer); // ISO C knows no cast from a function to an object
    return pointer;
}

static void (*finished)(void *connection);

static int on_finished(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
                       const gnutls_datum_t *message) {
    (void)type, (void)when, (void)message;
    if (incoming)
        finished(gnutls_session_get_ptr(session));
    return 0;
}

void tls_on_finished(gnutls_session_t session, void (*fn)(void *connection)) {
    finished = fn;
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, on_finished);
}

bool tls_wants_write(gnutls_session_t session) { return gnutls_record_get_direction(session); }

// ---- writing

bool tls_send(gnutls_session_t session, const void *data, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t n = gnutls_record_send(session, (const char *)data + at, len - at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

void tls_end(gnutls_session_t session) { gnutls_bye(session, GNUTLS_SHUT_WR); }
