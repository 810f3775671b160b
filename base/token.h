// A token, by its place in the vocabulary.
#pragma once

#include <stdint.h>

typedef int32_t token_id;
