/*
 * Code that all load generators share: failing, clocks and CPU meters, connecting, waiting for events.
 * Knows no protocol and no rate.
 */
#ifndef GENERATOR_H
#define GENERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <time.h>

#define NS_PER_S 1000000000ull
#define EVENTS_MAX 256
#define SILENCE_MAX_MS 30000    /* no event for this long: the server is stuck, and the run is void */
#define SECONDS_MAX 86400.0

/* Prints the reason to stderr and exits: a run with a broken connection has no result. */
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);

/* Returns zeroed memory, which is never freed. */
void *allocate(size_t size);

uint64_t clock_ns(clockid_t clock);

double parse_decimal(const char *text, double least, double most);

/* ---- meters ------------------------------------------------------------------------------------------- */

/* Taken when the window opens and again when it closes; the result is the difference. */
typedef struct {
    uint64_t at_ns, server_cpu_ns, load_cpu_ns;
} Reading;

/* Adds the server's CPU time to the meters; 0: the pid is unknown, and its CPU time is not reported. */
void meter_server(pid_t pid);

Reading read_meters(uint64_t now_ns);

/* Prints the last two fields of the JSON result and closes it. */
void report_cpu(const Reading *opened, const Reading *closed);

/* ---- sockets ------------------------------------------------------------------------------------------ */

void open_poll(void);

/* Opens a non-blocking connection to the server; `unix_path` NULL: TCP on the loopback. */
int connect_server(const char *unix_path, int port);

/* Watches `fd` for input, and for room to send if `is_send_watched`; events carry `owner`. */
void watch(int fd, void *owner, bool is_new, bool is_send_watched);

/* Fills `events` (EVENTS_MAX) and returns their number; 0: none for SILENCE_MAX_MS. */
int await_events(struct epoll_event *events);

#endif
