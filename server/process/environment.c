#include "environment.h"

#include "log.h"
#include "nearest.h"

#include <string.h>
#include <unistd.h>

#define PREFIX "QUIRE_"
enum { PREFIX_LEN = sizeof PREFIX - 1 };

// Read elsewhere than config.c: by the engine, by what loads it, by tests, scripts and builds. One that ends in _ stands
// for all that begin so.
static const char *const others[] = {"CUDA",          "CUDA_MODULE",  "CUDA_GRAPHS",    "CUDA_WGMMA",
                                     "CUDA_W8A8",     "CUDA_OVERLAP", "CUDA_TWO_SHOTS", "CUDA_SHARE_DEVICE",
                                     "CUDA_ARCHS",    "MPI_MODULE",   "MPI_FOLDER",     "EMULATED_",
                                     "TEST_DATA",     "REQUIRE_DATA", "REQUIRE_NVCC",   "NVCC",
                                     "BINARY",        "SLOW",         "DISCONNECTS",    "CASE",
                                     "RUN",           "LEAVE_OUT",    "VOCABULARIES",   "BABYLLAMA_GGUF",
                                     "TINY_F32_GGUF", "SIM_",         "PEERS_",         "SANITIZE",
                                     "RESTART_PAUSE", "CHROMIUM",     "VENV",           "WRITE"};
enum { NUM_OTHERS = sizeof others / sizeof *others };

static bool is_other(const char *name) {
    for (int i = 0; i < NUM_OTHERS; i++) {
        size_t n = strlen(others[i]);
        if (others[i][n - 1] == '_' ? strncmp(name, others[i], n) == 0 : strcmp(name, others[i]) == 0)
            return true;
    }
    return false;
}

// Whether it is a flag's; else the nearest one's.
static bool is_ours(const char *name, struct nearest *near, char best[CONFIG_NAME]) {
    char variable[CONFIG_NAME];
    for (int i = 0; config_variable(i, variable); i++) {
        const char *before = near->best;
        nearest_try(near, variable + PREFIX_LEN);
        if (near->best != before) // the room is used again
            near->best = strcpy(best, variable + PREFIX_LEN);
        if (strcmp(variable + PREFIX_LEN, name) == 0)
            return true;
    }
    return false;
}

static bool is_about_keys(const char *name) {
    static const char *const words[] = {"KEY", "AUTH", "SECRET", "PASSW", "CREDENTIAL"};
    size_t len = strlen(name), end = sizeof "TOKEN" - 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(name, words[i]))
            return true;
    return len >= end && strcmp(name + len - end, "TOKEN") == 0;
}

static enum status check(const struct config *c, const char *name, struct err *err) {
    char best[CONFIG_NAME] = "";
    struct nearest near = {.word = name};
    if (is_ours(name, &near, best) || is_other(name))
        return STATUS_OK;
    bool key = is_about_keys(*best ? best : name);
    if (key && !*best)
        strcpy(best, "API_KEY");
    char text[240];
    snprintf(text, sizeof text, "nothing reads " PREFIX "%.60s%s%s%s", name,
             *best ? "; did you mean " PREFIX : "", best, *best ? "?" : "");
    if (key && c->command == CMD_SERVE)
        return err_set(err, STATUS_INVALID, "%s", text);
    log_msg(LOG_WARN, "%s", text);
    return STATUS_OK;
}

enum status environment_check(const struct config *c, struct err *err) {
    for (char **at = environ; at && *at; at++) {
        char name[CONFIG_NAME];
        size_t n = strcspn(*at, "=");
        if (strncmp(*at, PREFIX, PREFIX_LEN) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - PREFIX_LEN), *at + PREFIX_LEN);
        if (check(c, name, err) != STATUS_OK)
            return err->code;
    }
    return STATUS_OK;
}
