/*
 * streams: measures the time from the write of a job until it is pushed to a worker.
 *
 * N connections read GET /v0/topics/T/work, each as a separate node that holds one job at a time. Jobs are
 * written at a fixed rate, one by one; each is pushed to one of the nodes and acked. An open loop: a job is
 * due at its time even if the previous one has not arrived, and its latency counts from that time, so it
 * includes any delay of the server or the generator. One thread, one epoll set, one JSON line at the end.
 *
 * Invariants:
 *   - Nothing is written before every stream is open.
 *   - Every job is delivered once and acked once before the program ends; otherwise there is no result.
 *   - Writes and acks rotate over a few separate connections, and are sent without waiting for answers;
 *     every answer must be 200, and every ack must have ended its one job.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "generator.h"
#include "latency.h"

#define IN_SIZE (16 << 10)      /* per connection; far more than any answer or event needs */
#define OUT_SIZE (256 << 10)    /* bytes of requests a server may leave unread before the run is void */
#define CALLERS_COUNT 16
#define DATA_SIZE 100

static struct {
    int port;
    const char *topic;
    int streams_count;
    double rate, seconds, warm_seconds;
    pid_t server_pid;
} options = {.port = 6790, .topic = "bench", .streams_count = 1000, .rate = 1000.0, .seconds = 1.0};

/* ---- connections ---------------------------------------------------------------------------------------- */

typedef enum { PART_HEAD, PART_BODY, PART_CHUNK_SIZE, PART_CHUNK } Part;

/* A stream if it has a node, otherwise a caller, which writes and acks. */
typedef struct {
    int fd;
    int node;               /* -1: a caller */
    bool is_open;           /* a stream that has sent an event */
    Part part;
    size_t left;            /* size of the body or chunk that is read next, without its line end */
    char *in, *out, *text;  /* text: the joined chunks of a stream, up to the end of an event */
    size_t in_size, out_size, text_size;
    bool is_send_watched;
} Connection;

static int timer_fd;
static Connection *streams, *callers;
static int opened_count, next_caller;

/* The schedule, and the progress. */
static uint64_t start_ns, interval_ns;
static uint64_t jobs_count, warm_count;     /* all jobs, and those before the window */
static uint64_t sent_count, answered_count, delivered_count, acked_count;
static bool *is_delivered;
static uint64_t late_max_ns;

static Reading opened, closed;

static void send_pending(Connection *connection)
{
    size_t sent = 0;
    while (sent < connection->out_size) {
        ssize_t count =
            send(connection->fd, connection->out + sent, connection->out_size - sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            break;
        if (count < 0)
            fail("send: %s", strerror(errno));
        sent += (size_t)count;
    }
    connection->out_size -= sent;
    memmove(connection->out, connection->out + sent, connection->out_size);
    bool is_rest = connection->out_size > 0;
    if (is_rest != connection->is_send_watched)
        watch(connection->fd, connection, false, is_rest);
    connection->is_send_watched = is_rest;
}

__attribute__((format(printf, 2, 3))) static void ask(Connection *connection, const char *format, ...)
{
    size_t room = OUT_SIZE - connection->out_size;
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(connection->out + connection->out_size, room, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= room)
        fail("the server does not read what it is sent");
    connection->out_size += (size_t)size;
    send_pending(connection);
}

static void post(const char *action, const char *body)
{
    Connection *caller = &callers[next_caller];
    next_caller = (next_caller + 1) % CALLERS_COUNT;
    ask(caller,
        "POST /v0/topics/%s%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        options.topic, action, strlen(body), body);
}

/* ---- jobs ----------------------------------------------------------------------------------------------- */

static uint64_t due_ns(uint64_t job)
{
    return start_ns + job * interval_ns;
}

static bool is_measured(uint64_t job)
{
    return job >= warm_count;
}

static void write_due_jobs(void)
{
    uint64_t expirations, now_ns = clock_ns(CLOCK_MONOTONIC);
    if (read(timer_fd, &expirations, sizeof expirations) < 0 && errno != EAGAIN)
        fail("timer: %s", strerror(errno));
    for (; sent_count < jobs_count && due_ns(sent_count) <= now_ns; sent_count++) {
        char data[DATA_SIZE + 1], body[DATA_SIZE + 64];
        memset(data, 'x', DATA_SIZE);
        data[DATA_SIZE] = '\0';
        data[snprintf(data, DATA_SIZE, "%020llu", (unsigned long long)sent_count)] = 'x';
        snprintf(body, sizeof body, "{\"records\":[{\"data\":\"%s\"}]}", data);
        if (sent_count == warm_count)
            opened = read_meters(now_ns);
        if (is_measured(sent_count) && now_ns - due_ns(sent_count) > late_max_ns)
            late_max_ns = now_ns - due_ns(sent_count);
        post("", body);
    }
}

static uint64_t number_after(const char *text, const char *key)
{
    const char *found = strstr(text, key);
    if (found == NULL)
        fail("no %s in: %.300s", key, text);
    return strtoull(found + strlen(key), NULL, 10);
}

static void note_event(Connection *stream, const char *text)
{
    if (!stream->is_open) {
        stream->is_open = true;
        opened_count++;
    }
    if (strncmp(text, "event: error", 12) == 0 || strstr(text, "\nevent: error") != NULL)
        fail("a stream was ended: %.300s", text);
    if (strstr(text, "event: job") == NULL)
        return;
    uint64_t job = number_after(text, "\"data\":\""), now_ns = clock_ns(CLOCK_MONOTONIC);
    if (job >= sent_count || is_delivered[job])
        fail("a job that was not written, or was delivered before: %.300s", text);
    is_delivered[job] = true;
    delivered_count++;
    if (is_measured(job))
        note_latency(now_ns - due_ns(job));
    char body[128];
    snprintf(body, sizeof body, "{\"node\":\"n%d\",\"seqs\":[%llu]}", stream->node,
             (unsigned long long)number_after(text, "\"$seq\":"));
    post("/ack", body);
    if (delivered_count == jobs_count)
        closed = read_meters(clock_ns(CLOCK_MONOTONIC));
}

/* ---- input ---------------------------------------------------------------------------------------------- */

static void note_text(Connection *stream, const char *bytes, size_t size)
{
    if (stream->text_size + size >= IN_SIZE)
        fail("an event without end: %.300s", stream->text);
    memcpy(stream->text + stream->text_size, bytes, size);
    stream->text_size += size;
    stream->text[stream->text_size] = '\0';
    char *end;
    while ((end = strstr(stream->text, "\n\n")) != NULL) {
        *end = '\0';
        note_event(stream, stream->text);
        size_t used = (size_t)(end + 2 - stream->text);
        stream->text_size -= used;
        memmove(stream->text, end + 2, stream->text_size + 1);
    }
}

static void note_answer(const char *body)
{
    answered_count++;
    if (strstr(body, "\"acked\":") == NULL)
        return;
    if (number_after(body, "\"acked\":") != 1)
        fail("an ack that ended no job: %.300s", body);
    acked_count++;
}

/* Each of these reads one part at `at` and returns its size, or 0 while it is incomplete. `at` ends in NUL. */

static size_t read_head(Connection *connection, const char *at)
{
    const char *end = strstr(at, "\r\n\r\n");
    if (end == NULL)
        return 0;
    if (strncmp(at, "HTTP/1.1 200 ", 13) != 0)
        fail("refused: %.400s", at);
    size_t size = (size_t)(end + 4 - at);
    if (connection->node >= 0) {
        const char *coding = strcasestr(at, "\r\nTransfer-Encoding: chunked");
        if (coding == NULL || coding > end)
            fail("a stream without chunks: %.300s", at);
        connection->part = PART_CHUNK_SIZE;
        return size;
    }
    const char *length = strcasestr(at, "\r\nContent-Length:");
    if (length == NULL || length > end)
        fail("an answer without length: %.300s", at);
    connection->left = strtoul(length + 17, NULL, 10);
    connection->part = PART_BODY;
    return size;
}

static size_t read_body(Connection *connection, char *at, size_t there)
{
    size_t size = connection->left;
    if (there < size)
        return 0;
    char next = at[size];
    at[size] = '\0';
    note_answer(at);
    at[size] = next;
    connection->part = PART_HEAD;
    return size;
}

static size_t read_chunk_size(Connection *connection, const char *at)
{
    const char *end = strstr(at, "\r\n");
    if (end == NULL)
        return 0;
    connection->left = strtoul(at, NULL, 16);
    if (connection->left == 0)
        fail("a stream was ended");
    connection->part = PART_CHUNK;
    return (size_t)(end + 2 - at);
}

static size_t read_chunk(Connection *connection, const char *at, size_t there)
{
    size_t size = connection->left + 2;
    if (there < size)
        return 0;
    note_text(connection, at, connection->left);
    connection->part = PART_CHUNK_SIZE;
    return size;
}

static size_t read_part(Connection *connection, char *at, size_t there)
{
    switch (connection->part) {
    case PART_HEAD: return read_head(connection, at);
    case PART_BODY: return read_body(connection, at, there);
    case PART_CHUNK_SIZE: return read_chunk_size(connection, at);
    default: return read_chunk(connection, at, there);
    }
}

static void receive(Connection *connection)
{
    ssize_t count =
        recv(connection->fd, connection->in + connection->in_size, IN_SIZE - 1 - connection->in_size, 0);
    if (count < 0 && errno == EAGAIN)
        return;
    if (count <= 0)
        fail("a connection was lost: %s", count == 0 ? "closed" : strerror(errno));
    connection->in_size += (size_t)count;
    connection->in[connection->in_size] = '\0';
    char *at = connection->in, *end = at + connection->in_size;
    size_t size;
    while (at < end && (size = read_part(connection, at, (size_t)(end - at))) > 0)
        at += size;
    connection->in_size = (size_t)(end - at);
    if (connection->in_size == IN_SIZE - 1)
        fail("an answer without end: %.300s", connection->in);
    memmove(connection->in, at, connection->in_size);
}

/* ---- set-up, run, report -------------------------------------------------------------------------------- */

static void open_connection(Connection *connection, int node)
{
    connection->node = node;
    connection->in = allocate(IN_SIZE);
    connection->out = allocate(OUT_SIZE);
    connection->text = allocate(IN_SIZE);
    connection->fd = connect_server(NULL, options.port);
    watch(connection->fd, connection, true, false);
    if (node >= 0)
        ask(connection,
            "GET /v0/topics/%s/work?node=n%d&max=1 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
            options.topic, node);
}

static void turn(void)
{
    struct epoll_event events[EVENTS_MAX];
    int count = await_events(events);
    if (count == 0)
        fail("nothing for %d ms: %d streams open, %llu jobs written, %llu delivered, %llu acked", SILENCE_MAX_MS,
             opened_count, (unsigned long long)sent_count, (unsigned long long)delivered_count,
             (unsigned long long)acked_count);
    for (int i = 0; i < count; i++) {
        Connection *connection = events[i].data.ptr;
        if (connection == NULL) {
            write_due_jobs();
            continue;
        }
        if (events[i].events & EPOLLOUT)
            send_pending(connection);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            receive(connection);
    }
}

static void start_timer(void)
{
    interval_ns = (uint64_t)((double)NS_PER_S / options.rate);
    warm_count = (uint64_t)(options.warm_seconds * options.rate);
    jobs_count = warm_count + (uint64_t)(options.seconds * options.rate);
    if (jobs_count == warm_count)
        fail("a window without jobs");
    is_delivered = allocate(jobs_count * sizeof(bool));
    start_ns = clock_ns(CLOCK_MONOTONIC) + interval_ns;
    struct itimerspec timer = {
        .it_interval = {(time_t)(interval_ns / NS_PER_S), (long)(interval_ns % NS_PER_S)},
        .it_value = {(time_t)(start_ns / NS_PER_S), (long)(start_ns % NS_PER_S)},
    };
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer_fd < 0 || timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &timer, NULL) != 0)
        fail("timer: %s", strerror(errno));
    watch(timer_fd, NULL, true, false);
}

static void run(void)
{
    for (int i = 0; i < options.streams_count; i++) {
        open_connection(&streams[i], i);
        while (opened_count <= i) /* one by one, so that the listen backlog does not overflow */
            turn();
    }
    for (int i = 0; i < CALLERS_COUNT; i++)
        open_connection(&callers[i], -1);
    start_timer();
    while (acked_count < jobs_count || answered_count < 2 * jobs_count) {
        turn();
        /* The timer would keep firing with nothing left to write, and hide that the server is silent. */
        if (sent_count == jobs_count && timer_fd >= 0) {
            close(timer_fd);
            timer_fd = -1;
        }
    }
}

static void report(void)
{
    uint64_t jobs = jobs_count - warm_count;
    double seconds = (double)(closed.at_ns - opened.at_ns) / 1e9;
    printf("{\"streams\": %d, \"rate\": %.1f, \"seconds\": %.6f, \"operations\": %llu, \"errors\": 0, ",
           options.streams_count, options.rate, seconds, (unsigned long long)jobs);
    printf("\"jobs_finished\": %llu, \"ops_per_s\": %.1f, ", (unsigned long long)acked_count,
           (double)jobs / seconds);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"late_max_us\": %.1f, ", latency_us(0.50),
           latency_us(0.99), (double)latency_max_ns / 1000.0, (double)late_max_ns / 1000.0);
    report_cpu(&opened, &closed);
}

static const char usage[] =
    "usage: streams [--port N] [--topic NAME] [--streams N] [--rate JOBS_PER_S] [--seconds S] [--warm S]\n"
    "               [--server-pid PID]\n"
    "  The topic must be a queue without jobs.\n";

static void parse_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", 1, NULL, 'p'}, {"topic", 1, NULL, 't'}, {"streams", 1, NULL, 'n'}, {"rate", 1, NULL, 'r'},
        {"seconds", 1, NULL, 's'}, {"warm", 1, NULL, 'W'}, {"server-pid", 1, NULL, 'S'},
        {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int letter;
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 'p': options.port = (int)parse_decimal(optarg, 1, 65535); break;
        case 't': options.topic = optarg; break;
        case 'n': options.streams_count = (int)parse_decimal(optarg, 1, 100000); break;
        case 'r': options.rate = parse_decimal(optarg, 1, 1e6); break;
        case 's': options.seconds = parse_decimal(optarg, 0, SECONDS_MAX); break;
        case 'W': options.warm_seconds = parse_decimal(optarg, 0, SECONDS_MAX); break;
        case 'S': options.server_pid = (pid_t)parse_decimal(optarg, 1, INT32_MAX); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind != argc) {
        fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    meter_server(options.server_pid);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files); /* if this fails, connect reports it */
    }
    open_poll();
    streams = allocate((size_t)options.streams_count * sizeof(Connection));
    callers = allocate(CALLERS_COUNT * sizeof(Connection));
    run();
    report();
    return 0;
}
