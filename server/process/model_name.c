#include "model_name.h"

#include "buf.h"

#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

// ORG and NAME of a repository, ORG empty for one of Ollama's library; and which of its files, or "".
struct model_name {
    char org[128], repo[128], part[128];
    bool is_hub, is_url;
};

static bool take_word(char to[128], const char **at, const char *stops) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(*at, letters);
    if (n == 0 || n >= 128 || (*at)[0] == '.' || !strchr(stops, (*at)[n]))
        return false;
    memcpy(to, *at, n);
    to[n] = '\0';
    *at += n;
    return true;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcasecmp(s + n - k, end) == 0;
}

static bool is_file_name(const char *s) {
    static const char *const ends[] = {".gguf", ".safetensors", ".bin", ".pt", ".pth", ".onnx", ".json"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(s, ends[i]))
            return true;
    return false;
}

static const char *without_prefix(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0 ? s + strlen(prefix) : NULL;
}

static bool read_name(struct model_name *n, const char *s) {
    static const char *const hubs[] = {"https://huggingface.co/",
                                       "http://huggingface.co/",
                                       "https://hf.co/",
                                       "huggingface.co/",
                                       "hf.co/",
                                       "hf://"};
    *n = (struct model_name){.is_url = strstr(s, "://") != NULL};
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs && !n->is_hub; i++) {
        const char *rest = without_prefix(s, hubs[i]);
        n->is_hub = rest != NULL;
        s = rest ? rest : s;
    }
    if (n->is_url && !n->is_hub)
        return true;
    if (strchr(s, '/')) {
        if (!take_word(n->org, &s, "/"))
            return false;
        s++;
    }
    if (!take_word(n->repo, &s, n->is_hub ? ":/?" : ":") || (!n->is_hub && is_file_name(n->repo)))
        return false;
    const char *file = n->is_hub && *s == '/' ? strrchr(s, '/') + 1 : NULL; // of …/resolve/main/FILE
    if (file && is_file_name(file))
        snprintf(n->part, sizeof n->part, "%.*s", (int)strcspn(file, "?"), file);
    else if (*s == ':' && (s++, !take_word(n->part, &s, "")))
        return false;
    return !n->is_hub || n->org[0];
}

bool model_name_is(const char *model) {
    struct model_name n;
    return read_name(&n, model);
}

// ---- Hugging Face's cache: models--ORG--NAME/{refs/main, snapshots/COMMIT/FILE}

// The folder that `variable` names, or `rest` in the one that `parent` names. False: neither is set.
static bool folder_of(char path[PATH_MAX], const char *variable, const char *parent, const char *rest) {
    const char *set = getenv(variable), *above = getenv(parent);
    if (set && *set)
        return snprintf(path, PATH_MAX, "%s", set) < PATH_MAX;
    return above && *above && snprintf(path, PATH_MAX, "%s/%s", above, rest) < PATH_MAX;
}

static bool read_line(const char *path, char line[128]) {
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(line, 128, f);
    if (ok)
        line[strcspn(line, "\r\n")] = '\0';
    if (f)
        fclose(f);
    return ok && *line && !strchr(line, '/') && line[0] != '.';
}

struct files {
    char best[PATH_MAX]; // of those that fit, the first by name
    struct buf names;    // of all GGUF files, for a message
    int num, fit;
    bool has_config, has_tensors;
};

// Split files count once, by their first part; projectors of images are no models.
static bool is_model_file(const char *name) {
    const char *of = strstr(name, "-of-");
    return ends_with(name, ".gguf") && !strcasestr(name, "mmproj") &&
           (!of || of - name < 6 || strncmp(of - 5, "00001", 5) == 0);
}

static void look_through(struct files *f, const char *dir, const char *part, int depth) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX];
        if (e->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= PATH_MAX)
            continue;
        f->has_config |= depth == 0 && strcmp(e->d_name, "config.json") == 0;
        f->has_tensors |= depth == 0 && ends_with(e->d_name, ".safetensors");
        if (e->d_type == DT_DIR && depth == 0)
            look_through(f, path, part, depth + 1);
        if (e->d_type == DT_DIR || !is_model_file(e->d_name))
            continue;
        buf_fmt(&f->names, "%s%s", f->num++ ? ", " : "", e->d_name);
        if (!strcasestr(e->d_name, part))
            continue;
        if (!f->fit++ || strcmp(path, f->best) < 0)
            memcpy(f->best, path, sizeof path);
    }
    if (d)
        closedir(d);
}

static enum status choose_file(const struct model_name *n, const char *dir, char *path, size_t size,
                               struct err *err) {
    struct files f = {0};
    bool of_gguf = n->part[0] && !ends_with(n->part, ".safetensors") && !ends_with(n->part, ".json");
    look_through(&f, dir, of_gguf ? n->part : "", 0);
    if (!of_gguf && f.has_config && f.has_tensors) {
        snprintf(f.best, sizeof f.best, "%s", dir);
        f.fit = 1;
    } else if (f.fit > 1) { // as other servers choose
        struct files usual = {0};
        look_through(&usual, dir, of_gguf ? n->part : "Q4_K_M", 0);
        if (usual.fit == 1)
            f.fit = 1, memcpy(f.best, usual.best, sizeof f.best);
        buf_free(&usual.names);
    }
    const char *names = buf_cstr(&f.names);
    enum status status = STATUS_OK;
    if (f.fit != 1 && f.num > 0)
        status =
            err_set(err, STATUS_IO, "%s/%s on this machine holds %.400s: say which, such as %s/%s:Q4_K_M",
                    n->org, n->repo, names ? names : "several files", n->org, n->repo);
    else if (f.fit != 1)
        status = err_set(err, STATUS_IO, "%s/%s on this machine has no GGUF file and no safetensors in %s",
                         n->org, n->repo, dir);
    else if (strlen(f.best) >= size)
        status = err_set(err, STATUS_IO, "the path of %s/%s is too long", n->org, n->repo);
    else
        memcpy(path, f.best, strlen(f.best) + 1);
    buf_free(&f.names);
    return status;
}

// False: it is not there.
static bool find_in_hub(const struct model_name *n, char *path, size_t size, enum status *status,
                        struct err *err) {
    char hub[PATH_MAX], at[PATH_MAX], commit[128] = "";
    if (!n->org[0] || !(folder_of(hub, "HF_HUB_CACHE", "HF_HOME", "hub") ||
                        folder_of(hub, "", "XDG_CACHE_HOME", "huggingface/hub") ||
                        folder_of(hub, "", "HOME", ".cache/huggingface/hub")))
        return false;
    if (snprintf(at, sizeof at, "%s/models--%s--%s/refs/main", hub, n->org, n->repo) >= PATH_MAX ||
        !read_line(at, commit) ||
        snprintf(at, sizeof at, "%s/models--%s--%s/snapshots/%s", hub, n->org, n->repo, commit) >= PATH_MAX ||
        access(at, R_OK) != 0)
        return false;
    *status = choose_file(n, at, path, size, err);
    return true;
}

// ---- Ollama's folder: manifests/HOST/ORG/NAME/TAG, a list of layers, and blobs/sha256-…

static bool blob_of(const char *manifest, const char *dir, char *path, size_t size) {
    json_t *m = json_load_file(manifest, 0, NULL), *layer;
    bool found = false;
    size_t i;
    json_array_foreach(json_object_get(m, "layers"), i, layer) {
        const char *type = json_string_value(json_object_get(layer, "mediaType")),
                   *digest = json_string_value(json_object_get(layer, "digest"));
        if (!type || !digest || strcmp(type, "application/vnd.ollama.image.model") != 0 ||
            strncmp(digest, "sha256:", 7) != 0 || digest[7 + strspn(digest + 7, "0123456789abcdef")])
            continue;
        int n = snprintf(path, size, "%s/blobs/sha256-%s", dir, digest + 7);
        found = n > 0 && (size_t)n < size && access(path, R_OK) == 0;
    }
    json_decref(m);
    return found;
}

static bool find_in_ollama(const struct model_name *n, char *path, size_t size) {
    static const char system_wide[] = "/usr/share/ollama/.ollama/models";
    char own[PATH_MAX], manifest[PATH_MAX];
    const char *dirs[] = {folder_of(own, "OLLAMA_MODELS", "HOME", ".ollama/models") ? own : system_wide,
                          system_wide};
    for (int i = 0; i < 2; i++) {
        int k = snprintf(manifest, sizeof manifest, "%s/manifests/%s/%s/%s/%s", dirs[i],
                         n->is_hub ? "hf.co" : "registry.ollama.ai", n->org[0] ? n->org : "library", n->repo,
                         n->part[0] ? n->part : "latest");
        if (k > 0 && k < PATH_MAX && blob_of(manifest, dirs[i], path, size))
            return true;
    }
    return false;
}

enum status model_name_find(const char *model, char *path, size_t size, struct err *err) {
    struct model_name n;
    enum status status = STATUS_OK;
    if (!read_name(&n, model))
        return err_set(err, STATUS_IO, "cannot open %s: No such file or directory", model);
    if (n.is_url && !n.is_hub)
        return err_set(err, STATUS_IO, "%s is a URL, and Quire opens files: `curl -LO %s` fetches it", model,
                       model);
    if (find_in_hub(&n, path, size, &status, err) || find_in_ollama(&n, path, size))
        return status;
    if (!n.org[0])
        return err_set(err, STATUS_IO,
                       "%s is no file or folder, and Ollama has no model of this name here: `ollama pull %s` "
                       "fetches one, "
                       "`hf download ORG/NAME` one of Hugging Face",
                       model, model);
    if (n.part[0] && is_file_name(n.part))
        return err_set(
            err, STATUS_IO,
            "%s/%s is not on this machine: `hf download %s/%s %s` fetches it (pip install huggingface_hub)",
            n.org, n.repo, n.org, n.repo, n.part);
    return err_set(
        err, STATUS_IO,
        "%s/%s is no file or folder, and not in Hugging Face's cache: `hf download %s/%s%s%s%s` fetches it "
        "(pip install huggingface_hub)%s",
        n.org, n.repo, n.org, n.repo, n.part[0] ? " --include '*" : "", n.part, n.part[0] ? "*'" : "",
        n.part[0] ? "" : "; of several GGUF files one is enough: --include '*Q4_K_M*'");
}
