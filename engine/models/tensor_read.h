// A tensor of a model file, read and looked at.
#pragma once

#include "model_file.h"

// Copies a tensor to dst (t->bytes of them, aligned to its type). Of large ones several threads read and
// check pieces: one thread copies from the page cache more slowly than memory allows. STATUS_FORMAT with the
// byte of the first NaN or infinity among its values, or of a block's scales; STATUS_IO: the file was cut
// meanwhile. The error is that of the first wrong tensor in the file.
enum status tensor_read(const struct model_file *f, const struct model_tensor *t, void *dst, struct err *err);
