// Rule 17 turns the keys of an int8 cache, and queries with them, by a Hadamard matrix: scores stay, and what few elements
// of all keys have too much of is spread over their neighbours. QuaRot: https://arxiv.org/abs/2404.00456
#pragma once

#ifdef __CUDACC__
#define HADAMARD_FN static __host__ __device__ inline
#else
#define HADAMARD_FN static inline
#endif

// How many neighbours of a head of d elements turn together: the largest power of two that divides d; 1 turns nothing.
HADAMARD_FN int hadamard_size(int d) { return d & -d; }
