// The files of a folder: opened where they may be, read by address, one after the other.
#pragma once

#include "json/jdoc.h"

enum { HF_MAX_FILES = 1024 };

struct hf_file {
    char name[256];
    int fd;
    uint64_t start, size; // start: address of its first byte
};

struct hf_files {
    char *path;
    const char *label; // for messages: borrowed
    int dir;
    struct hf_file *items; // (num) by address
    int num;
    uint64_t size; // of all
};

// Opens a folder and none of its files. hf_files_close() is right in any case.
enum status hf_files_open(struct hf_files *d, const char *path, const char *label, struct err *err);
void hf_files_close(struct hf_files *d);
// STATUS_FORMAT, the folder's name before the sentence.
enum status hf_files_bad(const struct hf_files *d, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Adds a regular file: of the folder, or one that a link leads to in the folder or in ../../blobs. NULL: err, or where it
// is not required, absent. The pointer is good until the next one is added.
const struct hf_file *hf_files_add(struct hf_files *d, const char *name, bool required, struct err *err);
// Bytes [at, at + bytes) of a file and room for one more, for free(). NULL: err.
char *hf_files_text(const struct hf_files *d, const struct hf_file *f, uint64_t at, uint64_t bytes,
                    struct err *err);
// Adds and reads a JSON file of at most max bytes. *j stays empty where it is absent and not required. false: err;
// jdoc_free() is right in any case.
bool hf_files_json(struct hf_files *d, const char *name, bool required, uint64_t max, struct jdoc *j,
                   struct err *err);
// "FOLDER/FILE", for messages.
void hf_files_name(const struct hf_files *d, const char *file, char name[JDOC_NAME_BYTES]);

// Copies bytes [at, at + bytes) of all files to dst. NULL, or why the byte *stopped cannot be read. Any thread.
const char *hf_files_read(const struct hf_files *d, uint64_t at, uint64_t bytes, void *dst,
                          uint64_t *stopped);
// Copies `lines` pieces of `bytes`, `stride` apart, one after the other.
const char *hf_files_read_lines(const struct hf_files *d, uint64_t at, uint64_t stride, uint64_t lines,
                                uint64_t bytes, void *dst, uint64_t *stopped);
// The file in which an address lies, the last one where it lies behind all.
const struct hf_file *hf_files_at(const struct hf_files *d, uint64_t address);
