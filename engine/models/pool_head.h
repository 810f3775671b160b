// Turns a pooled hidden state into the vector of a request, on the host: the classifier of a reranker, or the dense
// modules behind a sentence-transformers model.
#pragma once

#include "model.h"
#include "model_file.h"

enum { POOL_MAX_STAGES = 2 };
enum pool_act { POOL_PLAIN, POOL_TANH, POOL_GELU };

struct pool_stage { // y = norm(act(W x + bias)); owned
    int in, out;
    float *weight, *bias, *norm; // (in, out), (out) or NULL, (out) or NULL: of a LayerNorm
    enum pool_act act;
};

struct pool_head { // zeroed: nothing is done
    struct pool_stage stages[POOL_MAX_STAGES];
    int num_stages;
    bool margin; // of two scores the first less the second is left
    float eps;
    float *scratch; // of the largest stage
    int size, room; // floats of the vector that comes out, and the most on the way
};

// Reads the matrices that the configuration asks for: with ranks those named cls, of which cls.output is required, else
// dense_2 and dense_3 where the file has them. STATUS_FORMAT, STATUS_IO, STATUS_NOMEM; head is then empty.
enum status pool_head_load(struct pool_head *head, const struct model_config *c, const struct model_file *f,
                           struct err *err);
void pool_head_free(struct pool_head *head);

// In place: vector (room), whose first c->hidden become the first `size`. Sums ascend: the same bits on every machine. One
// thread at a time.
void pool_head_run(const struct pool_head *head, float *vector);
