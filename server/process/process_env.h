// Checks of the process environment, which may not be as usual: descriptors that are closed, a small stack,
// blocked signals, no threads left, an output that takes nothing.
#pragma once

#include "status.h"

#include <stdbool.h>

// First in main(). Closed standard descriptors would be given to sockets and files, into which messages would
// then be written: they become /dev/null, from which nothing can be read (0) and to which no output can be
// written (1). Raises the stack to what recursion over clients' JSON and templates needs; STATUS_INVALID
// where the limit forbids it. A limit of the size of files becomes an error of write() instead of a signal.
// Tells NCCL to connect at once, unless the environment says otherwise.
enum status process_env_prepare(struct err *err);

// Before other threads and where several GPUs share layers: has CUDA load all kernels when a device is opened, unless the
// environment says otherwise. Loading one later may wait for kernels of other devices, which may wait for this one.
void process_env_load_kernels_early(void);

// From here on a signal that ends a server exits with 0 at once. For a server that has not begun to serve,
// which later takes these signals by handlers of its own.
void process_env_exit_on_signals(void);

// The threads of libuv's pool.
int process_env_pool_threads(void);
// Whether it has a terminal, which sends SIGHUP when it goes; whether whoever started this process has it ignore a
// signal.
bool process_env_has_terminal(void);
bool process_env_ignores(int signal);

// Whether as many threads as libuv's pool has could be started now: libuv aborts where it cannot.
bool process_env_has_threads(void);

// Blocks the signals that a server takes, in this thread and those that it starts; or lets them in, even where
// the parent process had blocked them.
void process_env_block_signals(bool block);

// The exit code of a command that ends with `rc`: EXIT_MODEL, after a line, where what it wrote to standard
// output was not taken.
int process_env_finish_output(int rc);
