// Words for the rows of a table of names, for the files that have one: struct field_rule of field_table.h.
#pragma once

#define READ(name, where)                                                                                    \
    { name, where, FIELD_READ, NULL, NULL }
#define ALIAS(name, where, meant, unlimited)                                                                 \
    { name, where, FIELD_ALIAS, meant, unlimited }
#define REFUSED(name, where, values)                                                                         \
    { name, where, FIELD_REFUSED, NULL, values }
#define HARMLESS(name, where, why)                                                                           \
    { name, where, FIELD_HARMLESS, why, NULL }
#define TEMPLATE(name, where, values)                                                                        \
    { name, where, FIELD_TEMPLATE, NULL, values }

// Values that ask for nothing.
#define EMPTY "\"\", [], {}"
#define OFF EMPTY ", false, 0"

// Why a name may be ignored.
#define LABEL "a label"
#define CACHE "caching, speed"
#define ROUTE "routing"
#define CHUNK "chunks, pings"
#define LOAD "loading"
#define MEDIA "no media"
#define TOOLS "no tools"
#define SHIFT "no shifting"
#define SWITCH "needs another"
