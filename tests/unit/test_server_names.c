// Names of models, and where Hugging Face's tools and Ollama keep them: the layouts of huggingface_hub 1.x and Ollama 0.20.
#include "harness.h"

#include "process/model_name.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/quire-names-XXXXXX";

static void put(const char *name, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

// The path that is found, without the root; or the message.
static const char *found(const char *name) {
    static char path[PATH_MAX];
    static struct err err;
    err = (struct err){0};
    assert_true(model_name_is(name));
    if (model_name_find(name, path, sizeof path, &err) != STATUS_OK)
        return err.msg;
    assert_int_equal(strncmp(path, root, strlen(root)), 0);
    return path + strlen(root) + 1;
}

static void says(const char *name, const char *part) {
    if (!strstr(found(name), part))
        fail_msg("%s: %s", name, found(name));
}

TEST(names_and_paths) {
    static const char *const names[] = {"HuggingFaceTB/SmolLM2-135M",
                                        "a/b:Q8_0",
                                        "hf.co/a/b",
                                        "hf.co/a/b:Q4_K_M",
                                        "https://huggingface.co/a/b/blob/main/x.gguf?download=true",
                                        "llama3.2",
                                        "smollm2:135m",
                                        "https://example.org/x.gguf"};
    static const char *const paths[] = {"no.gguf", "models/no.gguf",    "./x",  "../a/b", "/a/b", "a/b/c",
                                        "~/x",     "model.safetensors", "a/..", "a b",    "a:",   "hf.co/a",
                                        ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(model_name_is(names[i]));
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (model_name_is(paths[i]))
            fail_msg("'%s' is a path", paths[i]);
}

TEST(in_the_cache_of_hugging_face) {
#define REPO(org, name, file) "hub/models--" org "--" name "/" file
    setenv("HF_HUB_CACHE", "", 1);
    setenv("HF_HOME", root, 1);
    put(REPO("a", "folder", "refs/main"), "c1");
    put(REPO("a", "folder", "snapshots/c1/config.json"), "{}");
    put(REPO("a", "folder", "snapshots/c1/model.safetensors"), "");
    put(REPO("a", "folder", "snapshots/c0/config.json"), "{}"); // an older one
    assert_string_equal(found("a/folder"), REPO("a", "folder", "snapshots/c1"));
    assert_string_equal(found("https://huggingface.co/a/folder"), REPO("a", "folder", "snapshots/c1"));
    put(REPO("a", "one", "refs/main"), "c1\n");
    put(REPO("a", "one", "snapshots/c1/it-IQ2.gguf"), "");
    put(REPO("a", "one", "snapshots/c1/mmproj-F16.gguf"), "");
    assert_string_equal(found("a/one"), REPO("a", "one", "snapshots/c1/it-IQ2.gguf"));
    put(REPO("a", "some", "refs/main"), "c1");
    put(REPO("a", "some", "snapshots/c1/it-Q4_0.gguf"), "");
    put(REPO("a", "some", "snapshots/c1/it-Q8_0.gguf"), "");
    assert_string_equal(found("a/some:q8_0"), REPO("a", "some", "snapshots/c1/it-Q8_0.gguf"));
    assert_string_equal(found("hf.co/a/some/resolve/main/it-Q4_0.gguf"),
                        REPO("a", "some", "snapshots/c1/it-Q4_0.gguf"));
    says("a/some", "it-Q4_0.gguf");
    says("a/some", "say which");
    says("a/some:Q5", "say which");
    put(REPO("a", "some", "snapshots/c1/parts/it-Q4_K_M-00001-of-00002.gguf"), "");
    put(REPO("a", "some", "snapshots/c1/parts/it-Q4_K_M-00002-of-00002.gguf"), "");
    assert_string_equal(found("a/some"),
                        REPO("a", "some", "snapshots/c1/parts/it-Q4_K_M-00001-of-00002.gguf"));
    put(REPO("a", "torch", "refs/main"), "c1");
    put(REPO("a", "torch", "snapshots/c1/pytorch_model.bin"), "");
    says("a/torch", "no GGUF file and no safetensors");
    put(REPO("a", "evil", "refs/main"), "c0/../../../models--a--one/snapshots/c1"); // is no commit
    put(REPO("a", "evil", "snapshots/c0/x"), "");
    says("a/evil", "hf download a/evil");
    says("a/none", "hf download a/none`");
    says("a/none:Q8_0", "--include '*Q8_0*'");
    says("hf.co/a/none/resolve/main/x.gguf", "hf download a/none x.gguf");
    says("https://example.org/x.gguf", "curl -LO https://example.org/x.gguf");
}

TEST(in_the_folder_of_ollama) {
#define LAYER(type, digest)                                                                                  \
    "{\"mediaType\": \"application/vnd.ollama.image." type "\", \"digest\": \"sha256:" digest "\"}"
    setenv("OLLAMA_MODELS", root, 1);
    put("blobs/sha256-0ab1", "");
    put("blobs/sha256-/y", "");
    put("x", "");
    put("manifests/registry.ollama.ai/library/smollm2/135m",
        "{\"layers\": [" LAYER("template", "0ab2") ", " LAYER("model", "0ab1") "]}");
    put("manifests/registry.ollama.ai/library/qwen/latest", "{\"layers\": [" LAYER("model", "0ab1") "]}");
    put("manifests/registry.ollama.ai/someone/theirs/latest", "{\"layers\": [" LAYER("model", "0ab1") "]}");
    put("manifests/hf.co/a/gguf/Q8_0", "{\"layers\": [" LAYER("model", "0ab1") "]}");
    put("manifests/registry.ollama.ai/library/evil/latest", "{\"layers\": [" LAYER("model", "/../../x") "]}");
    put("manifests/registry.ollama.ai/library/gone/latest", "{\"layers\": [" LAYER("model", "0ab9") "]}");
    put("manifests/registry.ollama.ai/library/odd/latest", "{\"layers\": 1}");
    assert_string_equal(found("smollm2:135m"), "blobs/sha256-0ab1");
    assert_string_equal(found("qwen"), "blobs/sha256-0ab1");
    assert_string_equal(found("someone/theirs"), "blobs/sha256-0ab1");
    assert_string_equal(found("hf.co/a/gguf:Q8_0"), "blobs/sha256-0ab1");
    says("smollm2", "ollama pull smollm2");
    says("evil", "ollama pull");
    says("gone", "ollama pull");
    says("odd", "ollama pull");
}

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

int main(void) { return run_all_tests(make_root, remove_root); }
