// The listening socket, and how many connections the file limit allows.
#pragma once

#include "status.h"

struct listener {
    int fd;   // non-blocking, listening; the caller closes it
    int port; // bound
};

// Listens on the first address of `host` (a name, an IPv4 or an IPv6 address, brackets allowed) that can be bound; port
// 0 picks one. STATUS_INVALID: err says what is wrong with the address.
enum status listen_bind(const char *host, int port, struct listener *out, struct err *err);

// Raises the file limit as far as it goes and returns how many connections it has room for, at most 10,000.
int listen_limit(void);

// The address at the other end of a connection, an IPv4 one mapped into IPv6; of IPv6 only the first 64 bits, a network
// that one client has. Zeros: unknown.
void listen_peer(int fd, unsigned char address[16]);
