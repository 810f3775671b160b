// An engine in this process, for the commands that need no server.
#pragma once

#include "config.h"
#include "service.h"

enum { EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_ENGINE = 70 };

struct local {
    struct engine *engine;
    struct service *service;
    const struct tokenizer *tokenizer;
    const char *path; // borrowed from the configuration
};

// Exit code for a status of engine_open() and its like.
int local_exit_code(enum status status);
// And of service_open(): a record or a trace that cannot be opened is a flag's fault.
int local_service_exit_code(enum status status);
// The engine's and the service's configuration from the flags; strings are borrowed from c.
void local_engine_config(const struct config *c, struct engine_config *out);
void local_service_config(const struct config *c, const struct engine_info *info, struct service_config *out);
// Shows progress on a terminal once loading has taken a second.
void local_progress(void *arg, double fraction);
// 0, or an exit code after one line on stderr.
int local_open(struct local *l, const struct config *c);
void local_close(struct local *l);
// What every process but the first does under mpirun or srun: opens the engine and runs the first one's
// steps.
int local_follow(const struct config *c);
// Says why a request ended with FINISH_ERROR, and gives the exit code: the device, or a model whose numbers
// are not finite.
int local_failed(const struct local *l);
// `quire: …` on stderr, one line.
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void complain(const char *fmt, ...);

// The commands; each returns an exit code.
int cmd_serve(const struct config *c);
int cmd_generate(const struct config *c);
int cmd_inspect(const struct config *c);
int cmd_replay(const struct config *c);
int cmd_health(const struct config *c);
int cmd_perplexity(const struct config *c);
int cmd_quantize(const struct config *c);
int cmd_tokenize(const struct config *c);
// Everything after main(): the words of the command line to a command.
int quire_main(int argc, char **argv);
