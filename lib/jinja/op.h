// Operators are their character; those of two characters, and of words, are these.
#pragma once

enum {
    OP_EQ = 'e',
    OP_NE = 'n',
    OP_GE = 'g',
    OP_LE = 'l',
    OP_FLOORDIV = 'd',
    OP_POW = 'p',
    OP_IN = 'i',
    OP_NOT_IN = 'j'
};
