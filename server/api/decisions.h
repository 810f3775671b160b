// Typed decisions: questions about a text, answered by probabilities of given options. The model generates nothing: rows of
// the log-probabilities of a few tokens say how likely it would begin, or give, each option.
//
// The tokens of a question's options make a tree. A node is a beginning that some of them share, an edge the next token.
// A row asks the engine for the edges of a node, behind a prompt; equal nodes behind equal prompts give equal bits.
//
// Pure; any thread.
#pragma once

#include "fields.h"
#include "sampling.h"

enum {
    MAX_QUESTIONS = 64,
    MAX_OPTIONS = 255,
    MAX_PERMUTATIONS = 16,
    MAX_DECISION_ROWS = 16384,      // requests to the engine
    MAX_DECISION_OPTIONS = 1 << 16, // of all questions
    MAX_OPTION_BYTES = 1 << 20,     // of their names
    MAX_DECISION_BYTES = 32 << 20,  // of texts in prompts
};

enum question_type { QUESTION_CHOICE, QUESTION_NOUL, QUESTION_SCORE };

struct decision_option {
    const char *name; // (len) as it is answered; borrowed
    size_t len;
    char digits[4];        // the name of a level
    const json_t *meaning; // borrowed; NULL: none was given
    struct token_buf ids;  // of the answer; for the last edge, too
    int leaf;              // its last edge
    double probability;    // of decisions_weigh()
};

struct decision_edge {
    int parent; // edge; -1: it begins at the prompt
    token_id token;
};

struct decision_node {
    int option, depth; // the beginning: so many ids of an option
    int edges, num_edges;
};

struct decision_row {
    int prompt, option, depth; // which prompt, and how many ids of which option follow it
    int question, edges, num_edges;
    int at; // its first log-probability, of decisions.logprobs
};

struct decision_question {
    enum question_type type;
    const char *name; // borrowed
    const json_t *instructions;
    struct decision_option *options; // (num_options) in the request's order
    int num_options;
    int prompt, num_prompts; // of base.prompts: one of each permutation
    struct decision_edge *edges;
    struct decision_node *nodes;
    int num_edges, num_nodes;
    int logprobs; // of the first prompt's edges, of decisions.logprobs; then those of the next prompt
};

struct decision_request {
    struct api_request base; // its prompts: of each question, and each of its permutations
    json_t *root;            // owned: the names, texts and options
    int permutations;
    bool sequence;                       // whole options count, not the tokens that tell them apart
    struct decision_question *questions; // (num_questions)
    int num_questions;
    struct decision_row *rows; // (num_rows)
    int num_rows;
    float *logprobs; // (num_logprobs) the engine's
    int num_logprobs;
    size_t num_shared; // tokens that all prompts begin with
    int64_t num_input; // tokens of the prompts, the shared ones once
};

void decision_request_free(struct decision_request *r);

// Adds an option's name and its meaning, or NULL, to a question that has room for it. False: e says why.
bool decision_add_option(struct decision_question *q, const char *name, size_t len, const json_t *meaning,
                         const char *param, struct api_error *e);
// The questions of r, each about one of num_states texts, JSON strings or other values: all of the only one, or one of each.
// Makes prompts, trees and rows. param: names the field of the texts.
bool decisions_prepare(struct decision_request *r, const struct served_model *m, const json_t *const *states,
                       int num_states, const char *param, struct api_error *e);
// Sets the options' probabilities from logprobs: of each question they sum to 1. False: the model's logits are not finite.
bool decisions_weigh(struct decision_request *r, struct api_error *e);
// 1 for a sure answer, 0 for equal probabilities: 1 - entropy / ln(options), which Ollama's examples have.
double decision_confidence(const struct decision_question *q);
