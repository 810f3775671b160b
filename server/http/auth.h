// API keys. Only their SHA-256 digests are kept; a presented key is hashed and compared with every digest,
// all bytes of all of them, so that time tells neither which key matched nor how much of it (CVE-2025-59425).
#pragma once

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

// FIPS 180-4. Own code: no library that we link has it, and a TLS library for one hash is too much.
void sha256(const void *data, size_t len, uint8_t digest[SHA256_BYTES]);

struct auth {
    uint8_t (*digests)[SHA256_BYTES]; // (num_keys), owned
    char **names;                     // (num_keys), owned, what the log calls a key; NULL: nothing
    size_t num_keys;                  // 0: no key is needed
};

// name: letters, digits, and . _ - @; NULL: none.
enum status auth_add(struct auth *a, const char *key, size_t len, const char *name);
// One key per line, its name behind blanks; empty lines and lines that start with # are skipped.
enum status auth_add_file(struct auth *a, const char *path, struct err *err);
int auth_find(const struct auth *a, const char *key, size_t len);         // which key it is; -1: none
const char *auth_name(const struct auth *a, const char *key, size_t len); // NULL: it has none, or is none
bool auth_check(const struct auth *a, const char *key, size_t len);
void auth_free(struct auth *a);
