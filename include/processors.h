// How many processors this process may use.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// At least 1: those that the system lets the calling thread run on. Any thread.
int processors_here(void);

#ifdef __cplusplus
}
#endif
