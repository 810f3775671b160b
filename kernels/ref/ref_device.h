// A device of the reference backend, which its files share. ref_reserve() allocates its buffers.
#pragma once

#include "ref_adapters.h"
#include "ref_weight.h"

struct ref_result { // step_out points to these
    int32_t *ids, *rank, *top_ids;
    float *logprob, *share, *top_logprobs, *logits, *hidden;
    uint8_t *failed;
    int num_rows;
};

struct device {
    struct model_config model;
    enum dtype kv_dtype;
    int block_size;
    struct weight *weights;
    size_t weight_bytes;
    struct step_limits limits;
    float *resid, *q, *h;  // (T, D), (T, H*d), (T, max(H*d, H*v, F, S + top_k*F))
    float *norm, *weighed; // (D)
    float *shared;         // (D) what the shared expert gives
    float *wide, *scores;  // (max(H*d, U + H*(n+r), 2*F, D)), (V)
    float *before;         // (T, D) if model_keeps_before(): the residual stream without attention's part
    float *mixed, *mix_in, *mix_gate; // (T, heads*P), (2, channels or 3*D), (heads*P + 2*heads)
    float *layer_embed, *layer_row;   // (T, L*P) what layers take of each token; (L*P)
    float *altup, *laurel, *low;      // (T, N, D) of which the first is predicted; (T, D); (R)
    float *stream;                    // (D)
    int *experts;                     // (T, top_k) of the rows of this layer,
    float *expert_weights;            // and their weights
    double *sum;                      // (D) over them
    float *keys, *values;             // (max_context, d)
    char *kv;      // (num_blocks, kv_layers, 2) keys or values of a block as kv_export gives them
    char *host_kv; // (num_host_pages, ...) likewise
    struct ref_result result[2]; // of steps with odd and even seq
    uint64_t num_begun, num_synced;
    bool out_of_memory;
    int rank, world;
    struct comm *comm; // NULL: one rank
    bool apart;        // the ranks have lost each other
    struct ref_adapters adapters;
};
