/*
 * See generator.h. Holds the meters and the only epoll set of the program.
 */
#define _GNU_SOURCE
#include "generator.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static int poll_fd;
static bool has_server;
static clockid_t server_clock;

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL)
        fail("no memory for %zu bytes", size);
    return memory;
}

uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) != 0)
        fail("clock %d: %s", (int)clock, strerror(errno));
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

double parse_decimal(const char *text, double least, double most)
{
    char *rest;
    double value = strtod(text, &rest);
    if (rest == text || *rest != '\0' || !(value >= least && value <= most))
        fail("%s is not a number from %g to %g", text, least, most);
    return value;
}

/* ---- meters ------------------------------------------------------------------------------------------- */

void meter_server(pid_t pid)
{
    has_server = pid != 0;
    if (has_server && clock_getcpuclockid(pid, &server_clock) != 0)
        fail("no process %d", (int)pid);
}

Reading read_meters(uint64_t now_ns)
{
    Reading reading = {now_ns, 0, clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
    if (has_server)
        reading.server_cpu_ns = clock_ns(server_clock); /* all threads, to the nanosecond */
    return reading;
}

void report_cpu(const Reading *opened, const Reading *closed)
{
    if (has_server)
        printf("\"server_cpu_s\": %.6f, ", (double)(closed->server_cpu_ns - opened->server_cpu_ns) / 1e9);
    else
        printf("\"server_cpu_s\": null, ");
    printf("\"load_cpu_s\": %.6f}\n", (double)(closed->load_cpu_ns - opened->load_cpu_ns) / 1e9);
}

/* ---- sockets ------------------------------------------------------------------------------------------ */

void open_poll(void)
{
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (poll_fd < 0)
        fail("epoll_create1: %s", strerror(errno));
}

int connect_server(const char *unix_path, int port)
{
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    bool is_local = unix_path != NULL;
    if (is_local)
        snprintf(local.sun_path, sizeof local.sun_path, "%s", unix_path);
    int fd = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *address = is_local ? (struct sockaddr *)&local : (struct sockaddr *)&tcp;
    if (fd < 0 || connect(fd, address, is_local ? sizeof local : sizeof tcp) != 0)
        fail("connect: %s", strerror(errno));
    int on = 1;
    if (!is_local && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("TCP_NODELAY: %s", strerror(errno));
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        fail("O_NONBLOCK: %s", strerror(errno));
    return fd;
}

void watch(int fd, void *owner, bool is_new, bool is_send_watched)
{
    struct epoll_event event = {.events = EPOLLIN | (is_send_watched ? EPOLLOUT : 0), .data.ptr = owner};
    if (epoll_ctl(poll_fd, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0)
        fail("epoll_ctl: %s", strerror(errno));
}

int await_events(struct epoll_event *events)
{
    int count;
    do
        count = epoll_wait(poll_fd, events, EVENTS_MAX, SILENCE_MAX_MS);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        fail("epoll_wait: %s", strerror(errno));
    return count;
}
