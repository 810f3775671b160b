// GGUF: every check of engine/models/README.md by number, with files made wrong on purpose; truncation at
// every length; mutations.
#include "harness.h"

#include "../tools/gguf_write.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/weights.h"
#include "text/tokenizer_load.h"

#include <sys/stat.h>
#include <unistd.h>

static const uint64_t ne64[] = {64}, ne22[] = {2, 2};

// Parses what the writer holds. word NULL: must be right; else refused as STATUS_FORMAT with word in the
// message.
static void expect(struct gguf_writer *w, const char *word) {
    struct err err = {0};
    size_t size;
    unsigned char *file = gw_finish(w, &size);
    unsigned char *exact = malloc(size); // so that ASan sees the end
    assert_non_null(exact);
    memcpy(exact, file, size);
    struct model_file *g = gguf_parse(exact, size, "test.gguf", &err);
    if (word ? g || err.code != STATUS_FORMAT || !strstr(err.msg, word) || !strstr(err.msg, "test.gguf") : !g)
        fail_msg("expected '%s', got status %d '%s'", word ? word : "ok", (int)err.code, err.msg);
    model_file_close(g);
    free(exact);
    free(file);
}

static void expect_bytes(const void *data, size_t size, const char *word) {
    struct err err = {0};
    struct model_file *g = gguf_parse(data, size, "test.gguf", &err);
    if (g || err.code != STATUS_FORMAT || !strstr(err.msg, word))
        fail_msg("expected '%s', got status %d '%s'", word, (int)err.code, err.msg);
}

TEST(test_good) {
    struct gguf_writer w = {0};
    struct err err = {0};
    size_t size;
    float data[64];
    for (int i = 0; i < 64; i++)
        data[i] = (float)i;
    w.version = 2;
    gw_u32(&w, "n", 7);
    gw_f32(&w, "f", 1.5f);
    gw_bool(&w, "b", 1);
    gw_str(&w, "s", "text");
    gw_array(&w, "ints", 4, 2, (uint32_t[]){5, 6}, 8);
    gw_strings(&w, "strings", 3, (const char *const[]){"x", "", "yz"});
    gw_key(&w, "i8", 1);
    gw_raw(&w.kv, "\xff", 1);
    gw_key(&w, "u64", 10);
    gw_raw64(&w.kv, UINT64_MAX);
    gw_key(&w, "f64", 12);
    gw_raw(&w.kv, &(double){2.5}, 8);
    gw_tensor(&w, "t", 0, 1, ne64, data, sizeof data);
    gw_tensor(&w, "q", 8, 2, (uint64_t[]){64, 3}, NULL, 68 * 3);
    gw_tensor(&w, "k", 12, 2, (uint64_t[]){256, 2}, NULL, 288);
    unsigned char *file = gw_finish(&w, &size);
    struct model_file *g = gguf_parse(file, size, "dir/test.gguf", &err);
    if (!g)
        fail_msg("%s", err.msg);
    assert_string_equal(g->format, "GGUF version 2");
    assert_int_equal(g->size, size);
    assert_int_equal(g->num_meta, 9);
    assert_int_equal(g->num_tensors, 3);
    int64_t n = -1;
    double f = 0;
    bool b = false;
    struct text_view s = {"", 0};
    struct meta_array a;
    assert_int_equal(meta_int(g, "n", true, 0, 10, &n, &err), STATUS_OK);
    assert_int_equal(n, 7);
    assert_int_equal(meta_int(g, "i8", true, -5, 10, &n, &err), STATUS_OK);
    assert_int_equal(n, -1);
    assert_int_equal(meta_int(g, "absent", false, 0, 10, &n, &err), STATUS_OK);
    assert_int_equal(n, -1);
    assert_int_equal(meta_float(g, "f", true, &f, &err), STATUS_OK);
    assert_true(f == 1.5);
    assert_int_equal(meta_float(g, "f64", true, &f, &err), STATUS_OK);
    assert_true(f == 2.5);
    assert_int_equal(meta_bool(g, "b", &b, &err), STATUS_OK);
    assert_true(b);
    assert_int_equal(meta_str(g, "s", true, 10, &s, &err), STATUS_OK);
    assert_int_equal(s.len, 4);
    assert_int_equal(meta_array(g, "ints", true, META_I32, &a, &err), STATUS_OK);
    assert_int_equal(meta_array_int(&a, 1), 6);
    assert_int_equal(meta_array(g, "strings", true, META_STRING, &a, &err), STATUS_OK);
    assert_int_equal(meta_next_str(&a).len, 1);
    assert_int_equal(meta_next_str(&a).len, 0);
    assert_memory_equal(meta_next_str(&a).data, "yz", 2);
    const struct tensor *t = &model_file_find(g, "t")->view;
    assert_true(t && t->ndim == 1 && t->shape[0] == 64 && t->dtype == DTYPE_F32);
    assert_memory_equal(t->data, data, sizeof data);
    t = &model_file_find(g, "q")->view;
    assert_true(t && t->ndim == 2 && t->shape[0] == 3 && t->shape[1] == 64 && t->dtype == DTYPE_Q8_0);
    assert_int_equal(model_file_find(g, "k")->view.dtype, DTYPE_Q4_K);
    assert_string_equal(model_file_find(g, "k")->type_name, "Q4_K");
    assert_null(model_file_find(g, "none"));

    // (6) getters refuse the wrong type, and name key, expected and found
    static const char *const integers[] = {"f", "b", "s", "ints", "f64"};
    for (size_t i = 0; i < 5; i++) {
        err = (struct err){0};
        assert_int_equal(meta_int(g, integers[i], false, 0, 10, &n, &err), STATUS_FORMAT);
        assert_true(strstr(err.msg, integers[i]) && strstr(err.msg, "an integer"));
    }
    err = (struct err){0};
    assert_int_equal(meta_float(g, "n", false, &f, &err), STATUS_FORMAT);
    assert_true(strstr(err.msg, "key n ") && strstr(err.msg, "u32") && strstr(err.msg, "a float"));
    assert_int_equal(meta_bool(g, "n", &b, NULL), STATUS_FORMAT);
    assert_int_equal(meta_str(g, "n", false, 10, &s, NULL), STATUS_FORMAT);
    assert_int_equal(meta_str(g, "s", false, 3, &s, NULL), STATUS_FORMAT);
    assert_int_equal(meta_array(g, "strings", false, META_I32, &a, NULL), STATUS_FORMAT);
    assert_int_equal(meta_array(g, "ints", false, META_F32, &a, NULL), STATUS_FORMAT);
    assert_int_equal(meta_array(g, "n", false, META_I32, &a, NULL), STATUS_FORMAT);
    assert_int_equal(meta_int(g, "n", false, 8, 10, &n, NULL), STATUS_FORMAT);
    assert_int_equal(meta_int(g, "u64", false, INT64_MIN, INT64_MAX, &n, NULL), STATUS_FORMAT);
    assert_int_equal(meta_int(g, "absent", true, 0, 10, &n, NULL), STATUS_FORMAT);
    model_file_close(g);
    free(file);
}

// (1) (2)
TEST(test_bad_header) {
    struct gguf_writer w = {0};
    expect(&w, NULL);
    w.magic = "GGUD";
    expect(&w, "no GGUF file, but something else");
    for (uint32_t v = 0; v < 6; v++) {
        static const uint32_t versions[] = {1, 4, 0x7fffffff, 0x03000000, 0x02000000, 100};
        w.version = versions[v];
        expect(&w, v == 3 || v == 4 ? "big-endian" : "version");
    }
    static const uint64_t counts[] = {
        1, 2, 65537, 1u << 31, UINT64_MAX / 8, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        w.say_num_tensors = counts[i];
        expect(&w, "tensors at byte 8");
        w.say_num_kv = counts[i];
        expect(&w, "keys at byte 16");
    }
    w.say_num_kv = 2;
    gw_str(&w, "general.architecture", "a string that is long enough for two keys");
    expect(&w, "the file ends");
    expect_bytes("", 0, "0 bytes");
    expect_bytes("GGUF\3\0\0\0", 8, "at least 24");
}

// Files that people take for one, as their programs write them
TEST(test_files_of_other_kinds) {
    static const struct {
        char bytes[64];
        const char *says;
    } files[] = {{"PK\3\4\0\0\10\10\0\0", "PyTorch"},
                 {"\x80\2\x8a\ng\xfc\x9c", "pickle"},
                 {"\x98\1\0\0\0\0\0\0{\"__metadata__\":{", "safetensors file: give the folder"},
                 {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
                 {"<!doctype html><html>", "a web page"},
                 {"{\"architectures\": [", "JSON: give the folder"},
                 {"tjgg\3\0\0\0", "from before GGUF"},
                 {"\x1f\x8b\10\0", "gzip"},
                 {"\10\10\x12\7pytorch", "ONNX"},
                 {"", "zeros"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        expect_bytes(files[i].bytes, sizeof files[i].bytes, files[i].says);
    }
}

// (3) (4) (5) (6) (7)
TEST(test_bad_keys) {
    struct gguf_writer w = {0};
    static const uint64_t lengths[] = {1000, 65536, 1ull << 32, UINT64_MAX / 2, UINT64_MAX - 8, UINT64_MAX};
    for (size_t i = 0; i < 6; i++) {
        gw_u32(&w, "pad", 0);
        gw_raw64(&w.kv, lengths[i]);
        gw_raw(&w.kv, "key12345678901234567890", 20);
        w.num_kv++;
        expect(&w, "a key at byte");
        gw_key(&w, "good.key", 8);
        gw_raw64(&w.kv, lengths[i]);
        gw_raw(&w.kv, "value", 5);
        expect(&w, "good.key");
    }
    static const char *const keys[] = {"", "a\0b", "\xff\xfe", "\xc0\x80", "\xed\xa0\x80"};
    for (size_t i = 0; i < 5; i++) {
        gw_rawstr(&w.kv, keys[i], i == 1 ? 3 : strlen(keys[i]));
        gw_raw32(&w.kv, 4);
        gw_raw32(&w.kv, 0);
        w.num_kv++;
        expect(&w, "key 0 at byte 24");
    }
    static const uint32_t kinds[] = {13, 14, 255, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < 5; i++) {
        gw_key(&w, "bad.type", kinds[i]);
        gw_raw64(&w.kv, 0);
        expect(&w, "bad.type");
        gw_key(&w, "bad.elem", 9);
        gw_raw32(&w.kv, kinds[i]);
        gw_raw64(&w.kv, 0);
        expect(&w, "bad.elem");
    }
    gw_key(&w, "nested", 9);
    gw_raw32(&w.kv, 9);
    gw_raw64(&w.kv, 1);
    gw_raw64(&w.kv, 1);
    expect(&w, "nested");
    static const uint64_t counts[] = {5,          (1u << 28) + 1,     1ull << 61,
                                      1ull << 62, UINT64_MAX / 4 + 2, UINT64_MAX};
    for (uint32_t elem = 0; elem < 13; elem++)
        for (size_t i = elem == 0 || elem == 1 || elem == 7 ? 1 : 0; elem != 9 && i < 6; i++) {
            gw_key(&w, "long.array", 9);
            gw_raw32(&w.kv, elem);
            gw_raw64(&w.kv, counts[i]);
            gw_raw64(&w.kv, 0);
            expect(&w, "long.array");
        }
    gw_bool(&w, "odd.bool", 2);
    expect(&w, "odd.bool");
    gw_u32(&w, "twice", 1);
    gw_u32(&w, "other", 1);
    gw_str(&w, "twice", "2");
    expect(&w, "twice");
    for (int i = 0; i < 40000; i++) { // (5) in no time: a hash set
        char key[32];
        snprintf(key, sizeof key, "key.%d", i);
        gw_u32(&w, key, 0);
    }
    expect(&w, NULL);

    static const uint32_t alignments[] = {0, 1, 4, 7, 33, 48, 131072, 0x80000000, 0xffffffff};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        gw_u32(&w, "general.alignment", alignments[i]);
        expect(&w, "general.alignment");
    }
    gw_str(&w, "general.alignment", "32");
    expect(&w, "general.alignment");
    gw_f32(&w, "general.alignment", 32);
    expect(&w, "general.alignment");
    gw_u32(&w, "general.alignment", 64);
    w.alignment = 64;
    gw_tensor(&w, "t", 0, 1, ne64, NULL, 256);
    gw_tensor(&w, "u", 0, 1, ne64, NULL, 256);
    expect(&w, NULL);
    gw_u32(&w, "general.alignment", 64); // the tensors do not follow it
    w.alignment = 32;
    gw_tensor(&w, "t", 0, 2, ne22, NULL, 16);
    gw_tensor(&w, "bad.offset", 0, 1, ne64, NULL, 256);
    expect(&w, "bad.offset");
}

// (8) (9) (10)
TEST(test_bad_tensors) {
    struct gguf_writer w = {0};
    static const char *const names[] = {"", "a\0b", "\xff",
                                        "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < 4; i++) {
        gw_rawstr(&w.info, names[i], i == 1 ? 3 : strlen(names[i]));
        gw_raw(&w.info, NULL, 64);
        w.num_tensors = 1;
        expect(&w, i == 3 ? "name at byte 24 has length 64" : "tensor 0 at byte 24");
    }
    gw_tensor(&w, "same", 0, 1, ne64, NULL, 256);
    gw_tensor(&w, "same", 0, 1, ne64, NULL, 256);
    expect(&w, "tensor same");
    static const uint64_t ne5[] = {2, 2, 2, 2, 2};
    gw_tensor(&w, "five", 0, 5, ne5, NULL, 128);
    expect(&w, "tensor five");
    gw_tensor(&w, "zero", 0, 0, ne5, NULL, 128);
    expect(&w, "tensor zero");
    for (int d = 0; d < 4; d++) {
        static const uint64_t wrong[] = {0, (1ull << 40) + 1, 1ull << 63, UINT64_MAX};
        for (int i = 0; i < 4; i++) {
            uint64_t ne[4] = {2, 2, 2, 2};
            ne[d] = wrong[i];
            gw_tensor(&w, "shape", 0, 4, ne, NULL, 64);
            expect(&w, "tensor shape");
        }
    }
    gw_tensor(&w, "ne.too.big", 0, 3, (uint64_t[]){1ull << 40, 1ull << 20, 1ull << 10}, NULL, 64);
    expect(&w, "ne.too.big");
    gw_tensor(&w, "ne.wraps", 0, 4, (uint64_t[]){1ull << 32, 1ull << 32, 1, 1}, NULL, 64);
    expect(&w, "ne.wraps");
    gw_tensor(&w, "bytes.wrap", 0, 3, (uint64_t[]){1ull << 40, 1ull << 22, 1}, NULL, 64); // 2^62 * 4
    expect(&w, "bytes.wrap");
    // More than 2^62, fits in 64 bits.
    gw_tensor(&w, "bytes.big", 8, 2, (uint64_t[]){1ull << 40, 1ull << 22}, NULL, 64);
    expect(&w, "bytes.big");
    static const uint32_t kinds[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        gw_tensor(&w, "kind", kinds[i], 2, (uint64_t[]){256, 1}, NULL, 1024);
        expect(&w, "tensor kind");
    }
    gw_tensor(&w, "odd.row", 8, 2, (uint64_t[]){48, 2}, NULL, 128);
    expect(&w, "odd.row");
    gw_tensor(&w, "odd.row", 12, 1, (uint64_t[]){128}, NULL, 128);
    expect(&w, "odd.row");
    static const uint64_t shifts[] = {1, 32, 4096, 1ull << 62, UINT64_MAX - 255, UINT64_MAX - 31};
    for (size_t i = 0; i < 6; i++) {
        gw_tensor(&w, "first", 0, 1, ne64, NULL, 256);
        w.next_offset_add = shifts[i];
        gw_tensor(&w, "shifted", 0, 1, ne64, NULL, 256);
        expect(&w, "shifted");
    }
    // CVE-2026-27940: sizes whose sum wraps
    gw_tensor(&w, "half", 24, 1, (uint64_t[]){1ull << 40}, NULL, 64);
    expect(&w, "half");
    gw_tensor(&w, "half", 24, 4, (uint64_t[]){1ull << 40, 1ull << 22, 1, 1}, NULL, 64);
    expect(&w, "half");
    gw_tensor(&w, "short", 0, 1, ne64, NULL, 128); // (10)
    expect(&w, "tensor short");
    gw_tensor(&w, "fine", 0, 1, (uint64_t[]){3}, NULL, 12);
    size_t size;
    unsigned char *file = gw_finish(&w, &size);
    struct err err = {0};
    struct model_file *g = gguf_parse(file, size - 20, "test.gguf", &err); // the last padding may be missing
    assert_non_null(g);
    assert_int_equal(g->trailing, 0);
    model_file_close(g);
    expect_bytes(file, size - 21, "tensor fine");
    unsigned char *more = calloc(1, size + 100);
    assert_non_null(more);
    memcpy(more, file, size);
    g = gguf_parse(more, size + 100, "test.gguf", &err); // what follows is odd, not wrong
    assert_non_null(g);
    assert_int_equal(g->trailing, 100);
    model_file_close(g);
    free(more);
    free(file);
}

// ---- a real file, cut and changed

static unsigned char *load(const char *name, size_t *size) {
    const char *path = test_data(name);
    if (!path)
        skip();
    FILE *f = fopen(path, "rb");
    struct stat st;
    assert_true(f && fstat(fileno(f), &st) == 0);
    *size = (size_t)st.st_size;
    unsigned char *p = malloc(*size);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *size, f), *size);
    fclose(f);
    return p;
}

// Everything that reads a header.
static int try_all(const void *data, size_t size) {
    struct err err = {0};
    struct model_config config;
    struct model_file *g = gguf_parse(data, size, "test.gguf", &err);
    if (!g) {
        assert_true(err.code == STATUS_FORMAT && err.msg[0]);
        return 0;
    }
    int ok = model_config_read(g, &config, &err) == STATUS_OK && weights_check(&config, g, &err) == STATUS_OK;
    assert_true(ok || (err.code == STATUS_FORMAT && err.msg[0]));
    err = (struct err){0};
    struct tokenizer *t = tokenizer_load(g, &err);
    assert_true(t || (err.code == STATUS_FORMAT && err.msg[0]));
    ok = ok && t;
    tokenizer_free(t);
    model_file_close(g);
    return ok;
}

enum { HEADER = 14152 };

TEST(test_truncated) {
    size_t size;
    unsigned char *file = load("models/stories260K/stories260K.gguf", &size);
    for (size_t n = 0; n <= HEADER + 64; n++) {
        unsigned char *part = malloc(n ? n : 1); // so that ASan sees the end
        assert_non_null(part);
        memcpy(part, file, n);
        assert_false(try_all(part, n));
        free(part);
    }
    for (size_t n = HEADER; n < size; n += 40001)
        assert_false(try_all(file, n));
    assert_false(try_all(file, size - 1));
    assert_true(try_all(file, size));
    free(file);
}

// The same through a file: what is read in pieces, and a file cut after it was opened.
TEST(test_file) {
    size_t size;
    struct err err = {0};
    unsigned char *file = load("models/stories260K/stories260K.gguf", &size);
    char path[] = "/tmp/test_gguf.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file, size), size);
    struct model_file *g = gguf_open(path, &err);
    if (!g)
        fail_msg("%s", err.msg);
    const struct model_tensor *t = model_file_find(g, "blk.4.ffn_norm.weight");
    assert_non_null(t);
    unsigned char *data = malloc(t->bytes);
    assert_non_null(data);
    assert_int_equal(model_file_read(g, t, 0, t->bytes, data, &err), STATUS_OK);
    assert_memory_equal(data, file + t->offset, t->bytes);
    const void *kept = model_file_keep(g, t, &err);
    assert_true(kept && kept == model_file_keep(g, t, &err));
    assert_memory_equal(kept, data, t->bytes);
    assert_int_equal(ftruncate(fd, (off_t)t->offset + 8), 0);
    assert_int_equal(model_file_read(g, t, 0, t->bytes, data, &err), STATUS_IO);
    assert_true(strstr(err.msg, "blk.4.ffn_norm.weight") != NULL);
    free(data);
    model_file_close(g);
    err = (struct err){0};
    assert_null(gguf_open(path, &err)); // cut before it was opened
    assert_int_equal(err.code, STATUS_FORMAT);

    struct gguf_writer w = {0}; // a header beyond the first piece that is read
    char *big = malloc(3 << 20);
    assert_non_null(big);
    memset(big, 'x', 3 << 20);
    big[(3 << 20) - 1] = 0;
    gw_str(&w, "long", big);
    gw_u32(&w, "after", 5);
    gw_tensor(&w, "t", 0, 1, ne64, NULL, 256);
    free(big);
    size_t big_size;
    unsigned char *big_file = gw_finish(&w, &big_size);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, big_file, big_size, 0), big_size);
    err = (struct err){0};
    g = gguf_open(path, &err);
    if (!g)
        fail_msg("%s", err.msg);
    int64_t after = 0;
    assert_int_equal(meta_int(g, "after", true, 0, 9, &after, &err), STATUS_OK);
    assert_int_equal(after, 5);
    model_file_close(g);
    free(big_file);
    free(file);
    close(fd);
    unlink(path);

    err = (struct err){0};
    assert_null(gguf_open("/nonexistent.gguf", &err));
    assert_int_equal(err.code, STATUS_IO);
    err = (struct err){0};
    assert_null(gguf_open("/tmp", &err));
    assert_int_equal(err.code, STATUS_IO);
    err = (struct err){0};
    assert_null(gguf_open("/dev/zero", &err));
    assert_int_equal(err.code, STATUS_IO);
    char folder[] = "/tmp/test_gguf.XXXXXX", fifo[64];
    assert_non_null(mkdtemp(folder));
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    err = (struct err){0};
    assert_null(gguf_open(fifo, &err)); // does not hang
    assert_int_equal(err.code, STATUS_IO);
    unlink(fifo);
    rmdir(folder);
}

// One byte of the header changed: an answer, never a crash. All bytes and more values with QUIRE_SLOW=1.
TEST(test_mutated) {
    size_t size, tried = 0, accepted = 0;
    unsigned char *file = load("models/stories260K/stories260K.gguf", &size);
    int slow = getenv("QUIRE_SLOW") != NULL;
    for (size_t i = 0; i < HEADER; i += slow ? 1 : 29) {
        static const unsigned char flips[] = {0x01, 0x80, 0xff, 0x02, 0x40, 0x10, 0x7f, 0x08};
        unsigned char was = file[i];
        for (int k = 0; k < (slow ? 8 : 3); k++) {
            file[i] = (unsigned char)(was ^ flips[k]);
            accepted += (size_t)try_all(file, size);
            tried++;
        }
        file[i] = was;
    }
    printf("  %zu mutations, %zu still a model\n", tried, accepted);
    assert_true(accepted < tried);
    free(file);
}

int main(void) { return run_all_tests(NULL, NULL); }
