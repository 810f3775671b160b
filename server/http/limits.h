// Limits of a connection: deadlines, rates, requests a second. Loop thread.
#pragma once

#include "conn.h"

enum http_verdict { CONN_KEEP, CONN_SHUT, CONN_GONE, CONN_REFUSE_BODY }; // GONE: the client has closed

// The limits with their defaults for zeros; of connections, as many as there may be descriptors.
struct http_limits http_limits_filled(const struct http_limits *limits);
// Judges a connection once a second. now: monotonic ns, as everywhere here.
enum http_verdict conn_judge(struct http_conn *c, const struct http_limits *l, int64_t now);
// Whether it may be closed for the sake of others: it waits for a request or for the rest of a head.
bool conn_makes_room(const struct http_conn *c, int64_t now);
// Whether the connection may have one more response now; takes it.
bool conn_take_credit(struct http_conn *c, int64_t now);
// len bytes of the response are left, and no more come: they must be read in the time that this gives.
void conn_expect_reader(struct http_conn *c, const struct http_limits *l, int64_t now, size_t len);
