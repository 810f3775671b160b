#pragma once
#include <stdint.h>

// Bytes that the peer has sent on this connection since it was accepted; 0 where the kernel does not say.
uint64_t tcp_bytes_received(int fd);
