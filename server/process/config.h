// Flags, environment and the --config file, from one table.
//
// A flag --some-flag is QUIRE_SOME_FLAG in the environment and `some-flag: value` (or `some_flag = value`) in
// the file; MODEL is QUIRE_MODEL and `model: PATH`. The command line wins over the environment, the environment
// over the file, the file over the default. A variable that is empty counts as none, but for those of keys, which
// STATUS_INVALID refuses.
//
// Of a flag that is repeatable a variable has the values between commas, and the file a list (config_file.h) or a line for
// each. A variable of a key has one key, in which a comma is as good as any other character; files of keys have more.
// llama-server splits its --api-key at commas, vLLM's VLLM_API_KEY is one key.
#pragma once

#include "config_fields.h"
#include "status.h"

#include <stdio.h>

// Reads the arguments after `quire COMMAND`. Overwrites the values of --api-key in argv. STATUS_INVALID: lines for a
// person in c->problems (exit 2), the first of them in err, too. The caller ends the config with config_free(), on
// failure too.
enum status config_parse(struct config *c, enum command command, int argc, char **argv, struct err *err);
void config_free(struct config *c);
// Puts MODEL before the other arguments, as if it had been named; path is copied. STATUS_NOMEM.
enum status config_add_model(struct config *c, const char *path);
// Has path opened as MODEL, the first argument, in place of its name, and serves it under that name where no other is
// given. Both are copied. STATUS_NOMEM.
enum status config_name_model(struct config *c, const char *path);

// Reads 12, 4K, 1.5G (powers of 1024). STATUS_INVALID.
enum status config_parse_number(const char *text, int64_t *out);

void config_help(FILE *out, enum command command);
// All flags, and those of other servers, as a page in Markdown: docs/configuration.md.
void config_page(FILE *out);

// The i-th variable of the environment that some command reads. False: there are no more.
enum { CONFIG_NAME = 64 };
bool config_variable(int i, char name[CONFIG_NAME]);
