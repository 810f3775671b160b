#include "auth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(uint32_t h[8], const uint8_t *p) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
               p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t v[8];
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t s0 = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

void sha256(const void *data, size_t len, uint8_t digest[SHA256_BYTES]) {
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= 64; left -= 64, p += 64)
        sha256_block(h, p);
    uint8_t tail[128] = {0};
    if (left)
        memcpy(tail, p, left);
    tail[left] = 0x80;
    size_t end = left < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)len * 8;
    for (int i = 0; i < 8; i++)
        tail[end - 1 - (size_t)i] = (uint8_t)(bits >> (8 * i));
    sha256_block(h, tail);
    if (end == 128)
        sha256_block(h, tail + 64);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++)
            digest[4 * i + j] = (uint8_t)(h[i] >> (24 - 8 * j));
}

enum status auth_add(struct auth *a, const char *key, size_t len, const char *name) {
    uint8_t(*digests)[SHA256_BYTES] = realloc(a->digests, (a->num_keys + 1) * sizeof *digests);
    a->digests = digests ? digests : a->digests;
    char **names = digests ? realloc(a->names, (a->num_keys + 1) * sizeof *names) : NULL;
    a->names = names ? names : a->names;
    char *copy = names && name ? strdup(name) : NULL;
    if (!names || (name && !copy))
        return STATUS_NOMEM;
    a->names[a->num_keys] = copy;
    sha256(key, len, a->digests[a->num_keys++]);
    return STATUS_OK;
}

// line: without its end.
static enum status add_line(struct auth *a, const char *path, int number, char *line, struct err *err) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@";
    char *key = line + strspn(line, " \t"), *name = key + strcspn(key, " \t");
    size_t len = (size_t)(name - key);
    name += strspn(name, " \t");
    if (!len || *key == '#')
        return STATUS_OK;
    if (name[strspn(name, letters)])
        return err_set(err, STATUS_INVALID,
                       "%s line %d: a key's name, behind it, has letters, digits and . _ - @", path, number);
    return auth_add(a, key, len, *name ? name : NULL);
}

enum status auth_add_file(struct auth *a, const char *path, struct err *err) {
    FILE *f = fopen(path, "re");
    if (!f)
        return err_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t cap = 0, before = a->num_keys;
    ssize_t n;
    enum status status = STATUS_OK;
    for (int number = 1; status == STATUS_OK && (n = getline(&line, &cap, f)) >= 0; number++) {
        while (n > 0 && strchr(" \t\r\n", line[n - 1]))
            line[--n] = '\0';
        status = add_line(a, path, number, line, err);
    }
    if (status == STATUS_OK && ferror(f))
        status = err_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    else if (status == STATUS_OK && a->num_keys == before)
        status = err_set(err, STATUS_INVALID, "%s holds no key", path);
    if (line)
        explicit_bzero(line, cap);
    free(line);
    fclose(f);
    return status;
}

int auth_find(const struct auth *a, const char *key, size_t len) {
    uint8_t digest[SHA256_BYTES];
    sha256(key, len, digest);
    unsigned found = 0; // 1 + the key's index
    for (size_t i = 0; i < a->num_keys; i++) {
        unsigned diff = 0;
        for (int j = 0; j < SHA256_BYTES; j++)
            diff |= (unsigned)(digest[j] ^ a->digests[i][j]);
        unsigned same = (diff - 1) >> 31;   // 1 when diff is 0, for 0 <= diff <= 255
        unsigned first = (found - 1) >> 31; // 1 when none was found yet
        found |= (0 - (same & first)) & (unsigned)(i + 1);
    }
    return (int)found - 1;
}

bool auth_check(const struct auth *a, const char *key, size_t len) { return auth_find(a, key, len) >= 0; }

const char *auth_name(const struct auth *a, const char *key, size_t len) {
    int i = auth_find(a, key, len);
    return i >= 0 ? a->names[i] : NULL;
}

void auth_free(struct auth *a) {
    for (size_t i = 0; i < a->num_keys; i++)
        free(a->names[i]);
    free(a->names);
    free(a->digests);
    *a = (struct auth){0};
}
