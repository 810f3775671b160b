// Tells systemd of the service, as `man sd_notify` has it: datagrams to the socket of NOTIFY_SOCKET. Without that
// nothing is sent. The loop's thread.
#pragma once

#include <stdint.h>

void manager_ready(void);
void manager_reloading(void); // manager_ready() follows
// It may take this long from now until it has ended.
void manager_stopping(double seconds);

struct manager_pulse {
    int64_t last; // monotonic ns; zero at first
};
// Call it every second or more often: begins to send signs of life where WATCHDOG_USEC asks for them, twice in that time; while a
// model is loading, that it takes longer.
void manager_tick(struct manager_pulse *pulse, int64_t now, int loading);
