// A model in several GGUF files: the keys of the first, tensors of all, and every way in which files do not belong
// together.
#include "harness.h"

#include "../tools/gguf_write.h"
#include "models/model_file.h"
#include "models/model_hash.h"
#include "models/tensor_read.h"

#include <unistd.h>

static char folder[] = "/tmp/quire-split-XXXXXX";

struct part {
    const char *file; // behind the folder
    int no, count, total;
    const char *tensor; // NULL: none
    float value;
};

static const struct part sound[] = {{"m-00001-of-00003.gguf", 0, 3, 2, NULL, 0},
                                    {"m-00002-of-00003.gguf", 1, 3, 2, "a", 1},
                                    {"m-00003-of-00003.gguf", 2, 3, 2, "b", 2}};

static void write_part(const struct part *p) {
    struct gguf_writer w = {0};
    char path[256];
    size_t size;
    float data[40];
    for (int i = 0; i < 40; i++)
        data[i] = p->value;
    gw_u32(&w, "split.no", (uint32_t)p->no);
    gw_u32(&w, "split.count", (uint32_t)p->count);
    gw_u32(&w, "split.tensors.count", (uint32_t)p->total);
    gw_u32(&w, "n", 7);
    if (p->tensor)
        gw_tensor(&w, p->tensor, 0, 1, (const uint64_t[]){40}, data, sizeof data);
    unsigned char *file = gw_finish(&w, &size);
    snprintf(path, sizeof path, "%s/%s", folder, p->file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(file, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    free(file);
}

static struct model_file *open_model(const char *file, struct err *err) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return model_file_open(path, err);
}

static int make(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : 1;
}

static int clean(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

TEST(test_sound) {
    struct err err = {0};
    char hash[MODEL_HASH_BYTES], other[MODEL_HASH_BYTES], path[256];
    float data[40];
    for (int i = 0; i < 3; i++)
        write_part(&sound[i]);
    struct model_file *f = open_model(sound[0].file, &err);
    if (!f)
        fail_msg("%s", err.msg);
    assert_string_equal(f->format, "GGUF, 3 files");
    assert_int_equal(f->num_tensors, 2);
    assert_int_equal(f->num_meta, 1); // what is said of the split is no key of the model
    assert_non_null(meta_find(f, "n"));
    assert_int_equal(tensor_read(f, model_file_find(f, "a"), data, &err), STATUS_OK);
    assert_true(data[0] == 1 && data[39] == 1);
    assert_int_equal(tensor_read(f, model_file_find(f, "b"), data, &err), STATUS_OK);
    assert_true(data[0] == 2 && data[39] == 2);
    assert_int_equal(model_hash_file(f, hash, &err), STATUS_OK);
    model_file_close(f);
    struct part changed = sound[2];
    changed.value = 3;
    write_part(&changed);
    f = open_model(sound[0].file, &err);
    assert_int_equal(model_hash_file(f, other, &err), STATUS_OK);
    assert_string_not_equal(hash, other);
    snprintf(path, sizeof path, "%s/%s", folder, sound[2].file); // cut while it is open
    assert_int_equal(truncate(path, 300), 0);
    assert_int_equal(tensor_read(f, model_file_find(f, "b"), data, &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "byte 300 of "));
    assert_non_null(strstr(err.msg, sound[2].file));
    model_file_close(f);
}

TEST(test_wrong) {
    static const struct {
        struct part part; // in place of one of the sound ones
        const char *open, *word;
    } cases[] = {
        {{"m-00002-of-00003.gguf", 1, 3, 2, "a", 1},
         "m-00002-of-00003.gguf",
         "part 1 of 3, expected part 0 of 3: open the first"},
        {{"m-00002-of-00003.gguf", 2, 3, 2, "a", 1}, NULL, "part 2 of 3, expected part 1 of 3"},
        {{"m-00002-of-00003.gguf", 1, 4, 2, "a", 1}, NULL, "part 1 of 4, expected part 1 of 3"},
        {{"m-00002-of-00003.gguf", 1, 3, 2, "b", 1}, NULL, "tensor b is in an earlier file, too"},
        {{"m-00002-of-00003.gguf", 1, 3, 2, NULL, 1}, NULL, "3 files have 1 tensors, expected 2"},
        {{"m-00001-of-00003.gguf", 0, 65535, 2, NULL, 1},
         NULL,
         "split.count is 65535 at byte 71, expected 2 to 1024"},
        {{"other.gguf", 0, 3, 2, NULL, 1},
         "other.gguf",
         "expected a name that ends with -00001-of-00003.gguf"},
        {{"n-00001-of-00002.gguf", 0, 2, 2, NULL, 1}, "n-00001-of-00002.gguf", "cannot open"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        for (int p = 0; p < 3; p++)
            write_part(&sound[p]);
        write_part(&cases[i].part);
        struct model_file *f = open_model(cases[i].open ? cases[i].open : sound[0].file, &err);
        if (f || !strstr(err.msg, cases[i].word))
            fail_msg("%zu: expected '%s', got '%s'", i, cases[i].word, err.msg);
    }
}

int main(void) { return run_all_tests(make, clean); }
