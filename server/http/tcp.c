// Apart from http.c, because the kernel's struct tcp_info and libc's older one exclude each other.
#include "tcp.h"

#include <linux/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { PROTOCOL_TCP = 6 }; // netinet/in.h would bring libc's header

uint64_t tcp_bytes_received(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    memset(&info, 0, sizeof info);
    return getsockopt(fd, PROTOCOL_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_bytes_received : 0;
}
