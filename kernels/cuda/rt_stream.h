// The runtime's stream, for what is queued on it without a kernel. Needs nothing of the toolkit.
#pragma once

#include "rt.h"

struct CUstream_st; // cudaStream_t points to it

// The stream, and the device made that of the calling thread; NULL once anything has failed.
struct CUstream_st *rt_stream(struct rt *rt);
