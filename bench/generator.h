/*
 * What every generator of load is, whatever it sends: how it fails, looks at clocks and meters, connects,
 * and waits for bytes. Knows no protocol and no rate.
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
#define SILENCE_MAX_MS 30000    /* nothing at all for so long: the server is stuck, and the run is void */
#define SECONDS_MAX 86400.0

/* Says why on stderr and ends the program: a run with a broken connection has no result. */
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);

/* Zeroed memory, kept until the end. */
void *allocate(size_t size);

uint64_t clock_ns(clockid_t clock);

double parse_decimal(const char *text, double least, double most);

/* ---- meters ------------------------------------------------------------------------------------------- */

/* Taken when the window opens and again when it closes; the result is the difference. */
typedef struct {
    uint64_t at_ns, server_cpu_ns, load_cpu_ns;
} Reading;

/* Makes the server's processor time one of the meters; 0: it is unknown, and not reported. */
void meter_server(pid_t pid);

Reading read_meters(uint64_t now_ns);

/* Prints the last two fields of a result, and its end. */
void report_cpu(const Reading *opened, const Reading *closed);

/* ---- sockets ------------------------------------------------------------------------------------------ */

void open_poll(void);

/* A connection to the server that never blocks; `unix_path` NULL: TCP on the loopback. */
int connect_server(const char *unix_path, int port);

/* Waits for bytes to come to `fd`, and for room to send if that is wanted; `owner` is told with both. */
void watch(int fd, void *owner, bool is_new, bool is_send_watched);

/* Returns how many of `events` (EVENTS_MAX) have happened; 0: nothing has for SILENCE_MAX_MS. */
int await_events(struct epoll_event *events);

#endif
