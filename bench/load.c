/*
 * load: a closed-loop load generator for job queue servers.
 *
 * Each of C connections keeps one batch of D requests in flight: a batch is sent with one call, and the
 * next one is sent when the last answer of this one has arrived. One thread, one epoll set, one JSON line
 * on stdout at the end.
 *
 * Its cost: one recv and one send per batch, and a share of an epoll_wait. A descriptor is registered
 * once, for reading; it is watched for writing only while the kernel refuses bytes. A generator that costs
 * more than the server measures itself, so its own CPU time is part of the result.
 *
 * Invariants:
 *   - Every request is answered before the program ends, and a cycle that began is finished: after a run of
 *     cycles the server has the same jobs as before.
 *   - A connection takes a job only after it has put one, so no reserve waits forever, and a server that
 *     answers that it has no job has lost one.
 *   - If answers are numbered, each request gets exactly one answer, for as many jobs as it named; anything
 *     else is an error, and a run with errors has no result.
 *   - Only a Protocol table knows its protocol; everything else handles batches and answers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "latency.h"
#include "load.h"

#define RECEIVE_SIZE (256 << 10) /* holds the answers of 16 x 256 in one call */

/* ---- options ------------------------------------------------------------------------------------------ */

Options options = {
    .port = 11300, .connections_count = 1, .depth = 1, .bundle = 1, .body_size = 100, .seconds = 1.0,
    .warm_seconds = 0.2, .work = WORK_CYCLE, .priority = 1024,
};

static const Protocol *const protocols[] = {&beanstalk, &bunqueue, &glidemq};
#define PROTOCOLS_COUNT (sizeof protocols / sizeof protocols[0])

static const Protocol *protocol = &beanstalk;

/* ---- the measured window ------------------------------------------------------------------------------ */

typedef enum { WINDOW_WARMING, WINDOW_OPEN, WINDOW_CLOSED } Window;

static Window window = WINDOW_WARMING;
static Reading opened, closed;
static uint64_t operations_opened, operations_closed; /* operations_count at these moments */
static uint64_t start_ns, operations_count, errors_count;
static uint64_t finished_count; /* jobs, since the start */

static void open_window(uint64_t now_ns)
{
    forget_latencies();
    opened = read_meters(now_ns);
    operations_opened = operations_count;
    window = WINDOW_OPEN;
}

static void close_window(uint64_t now_ns)
{
    closed = read_meters(now_ns);
    operations_closed = operations_count;
    window = WINDOW_CLOSED;
}

static bool has_passed(uint64_t since_ns, uint64_t now_ns, double seconds)
{
    return (double)(now_ns - since_ns) / 1e9 >= seconds;
}

/*
 * The window opens and closes at the end of a batch. So a server that answers all connections in bursts is
 * measured from burst to burst, never from a pause between two.
 */
static void turn_window(uint64_t now_ns)
{
    if (window == WINDOW_WARMING && has_passed(start_ns, now_ns, options.warm_seconds))
        open_window(now_ns);
    else if (window == WINDOW_OPEN && options.jobs_max == 0 &&
             has_passed(opened.at_ns, now_ns, options.seconds))
        close_window(now_ns);
}

/* ---- batches ------------------------------------------------------------------------------------------ */

static int parked_count;
static uint64_t puts_sent;

static void watch_send(Connection *connection, bool is_watched)
{
    watch(connection->fd, connection, false, is_watched);
    connection->is_send_watched = is_watched;
}

static void send_pending(Connection *connection)
{
    while (connection->out_sent < connection->out_size) {
        ssize_t count = send(connection->fd, connection->out + connection->out_sent,
                             connection->out_size - connection->out_sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            if (!connection->is_send_watched)
                watch_send(connection, true);
            return;
        }
        if (count < 0)
            fail("send: %s", strerror(errno));
        connection->out_sent += (size_t)count;
    }
    if (connection->is_send_watched)
        watch_send(connection, false);
}

static int puts_allowed(void)
{
    int room = options.depth * options.bundle;
    if (options.work != WORK_PUT || options.jobs_max == 0)
        return room;
    uint64_t left = options.jobs_max - puts_sent;
    return left < (uint64_t)room ? (int)left : room;
}

/* Returns how many jobs the request in flight with this index names. */
static int jobs_of(const Connection *connection, int index)
{
    int left = connection->jobs_asked - index * options.bundle;
    return left < options.bundle ? left : options.bundle;
}

static int encode_request(char **out, Connection *connection, int index)
{
    int jobs = jobs_of(connection, index);
    if (connection->phase == PHASE_PUT)
        return protocol->encode_put(out, connection, jobs);
    if (connection->phase == PHASE_TAKE)
        return protocol->encode_take(out, connection, jobs);
    return protocol->encode_finish(out, connection, &connection->tickets[index * options.bundle], jobs);
}

static void encode_batch(Connection *connection)
{
    char *out = connection->out;
    connection->serial_first += (uint32_t)connection->requests_count;
    connection->requests_count = connection->answers_due = 0;
    if (connection->phase == PHASE_PUT) {
        connection->jobs_asked = puts_allowed();
        puts_sent += (uint64_t)connection->jobs_asked;
        connection->puts_count = connection->tickets_count = 0;
    } else {
        connection->jobs_asked =
            connection->phase == PHASE_TAKE ? connection->puts_count : connection->tickets_count;
    }
    for (int i = 0; i * options.bundle < connection->jobs_asked; i++) {
        connection->answers_due += encode_request(&out, connection, i);
        connection->is_answered[i] = false;
        connection->requests_count++;
    }
    connection->out_size = (size_t)(out - connection->out);
    connection->out_sent = 0;
}

/* Returns the next phase; a phase with nothing to request (because all puts were refused) is skipped. */
static Phase next_phase(const Connection *connection)
{
    if (options.work == WORK_PUT)
        return PHASE_PUT;
    if (connection->phase == PHASE_PUT && connection->puts_count > 0)
        return PHASE_TAKE;
    if (connection->phase == PHASE_TAKE && connection->tickets_count > 0)
        return PHASE_FINISH;
    return PHASE_PUT;
}

static void start_batch(Connection *connection, uint64_t now_ns)
{
    bool is_over = window == WINDOW_CLOSED || puts_allowed() == 0;
    if (connection->phase == PHASE_PUT && is_over) {
        connection->is_parked = true;
        parked_count++;
        return;
    }
    connection->sent_at_ns = now_ns;
    encode_batch(connection);
    send_pending(connection);
}

/* In a closed loop the end of one batch is the start of the next: the clock is read once for both. */
static void finish_batch(Connection *connection)
{
    uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    if (window == WINDOW_OPEN)
        note_latency(now_ns - connection->sent_at_ns);
    turn_window(now_ns);
    connection->phase = next_phase(connection);
    start_batch(connection, now_ns);
}

/* Answers may be binary: unprintable bytes become dots. */
static const char *quote(const char *at, size_t size)
{
    static char text[201];
    size_t shown = size < sizeof text - 1 ? size : sizeof text - 1;
    for (size_t i = 0; i < shown; i++)
        text[i] = at[i] >= ' ' && at[i] <= '~' ? at[i] : '.';
    text[shown] = '\0';
    return text;
}

static void note_refusal(const char *at, size_t size)
{
    if (errors_count++ == 0)
        fprintf(stderr, "load: first refusal: %s\n", quote(at, size));
    /* The take for this put would wait forever in an empty tube. */
    if (options.work == WORK_HOP)
        fail("refused while hopping from tube to tube");
}

/* Returns how many jobs the answered request named; fails if it was answered before. */
static int jobs_answered(Connection *connection, const char *at, const Answer *answer)
{
    if (answer->serial == NOT_NUMBERED)
        return 1;
    uint32_t index = (uint32_t)answer->serial - connection->serial_first;
    if (index >= (uint32_t)connection->requests_count || connection->is_answered[index])
        fail("an answer to no request on the wire: %s", quote(at, answer->size));
    connection->is_answered[index] = true;
    return jobs_of(connection, (int)index);
}

static void note_answer(Connection *connection, const char *at, const Answer *answer)
{
    if (connection->answers_due-- == 0)
        fail("an answer nobody asked for: %s", quote(at, answer->size));
    int jobs = jobs_answered(connection, at, answer);
    bool has_jobs = answer->kind == ANSWER_PUT || answer->kind == ANSWER_TAKEN;
    if (answer->kind == ANSWER_REFUSED || (has_jobs && answer->jobs_count != jobs)) {
        note_refusal(at, answer->size);
        return;
    }
    operations_count += (uint64_t)jobs;
    if (answer->kind == ANSWER_PUT)
        connection->puts_count += jobs;
    else if (answer->kind == ANSWER_TAKEN)
        connection->tickets_count += jobs;
    else if (connection->phase == PHASE_FINISH)
        finished_count += (uint64_t)jobs;
}

static size_t in_room(void)
{
    return RECEIVE_SIZE + protocol->answer_size_max();
}

static void receive(Connection *connection)
{
    ssize_t count = recv(connection->fd, connection->in + connection->in_size,
                         in_room() - connection->in_size, 0);
    if (count < 0 && errno == EAGAIN)
        return;
    if (count < 0)
        fail("recv: %s", strerror(errno));
    if (count == 0)
        fail("the server closed a connection");
    connection->in_size += (size_t)count;
    const char *at = connection->in, *end = connection->in + connection->in_size;
    Answer answer;
    while (at < end && protocol->parse(at, end, connection, &answer)) {
        note_answer(connection, at, &answer);
        at += answer.size;
    }
    connection->in_size = (size_t)(end - at);
    if (connection->in_size > 0)
        memmove(connection->in, at, connection->in_size);
    if (connection->answers_due == 0 && !connection->is_parked)
        finish_batch(connection);
}

/* ---- set-up, run, report ------------------------------------------------------------------------------ */

static void open_connection(Connection *connection, int number)
{
    connection->number = number;
    connection->fd = connect_server(options.unix_path, options.port);
    connection->in = allocate(in_room());
    connection->out = allocate((size_t)options.depth * protocol->request_size_max());
    connection->is_answered = allocate((size_t)options.depth * sizeof(bool));
    connection->tickets_max = options.depth * options.bundle;
    connection->tickets = allocate((size_t)connection->tickets_max * sizeof(Ticket));
    connection->watched_tube = NO_TUBE;
    /* Hopping connections start evenly spread over the tubes; each then visits all of them. */
    uint64_t first = (uint64_t)number * options.tubes_count / (uint64_t)options.connections_count;
    connection->put_tube = connection->take_tube = (uint32_t)first;
    watch(connection->fd, connection, true, false);
}

static void run(Connection *connections)
{
    struct epoll_event events[EVENTS_MAX];
    start_ns = clock_ns(CLOCK_MONOTONIC);
    turn_window(start_ns);
    for (int i = 0; i < options.connections_count; i++)
        start_batch(&connections[i], clock_ns(CLOCK_MONOTONIC));
    while (parked_count < options.connections_count) {
        int count = await_events(events);
        if (count == 0)
            fail("no answer for %d ms", SILENCE_MAX_MS);
        for (int i = 0; i < count; i++) {
            if (events[i].events & EPOLLOUT)
                send_pending(events[i].data.ptr);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                receive(events[i].data.ptr);
        }
    }
    if (window == WINDOW_WARMING) /* a short fill ended before the warm-up: all of it counts */
        opened = (Reading){.at_ns = start_ns};
    if (window != WINDOW_CLOSED)
        close_window(clock_ns(CLOCK_MONOTONIC));
}

static void report(void)
{
    double seconds = (double)(closed.at_ns - opened.at_ns) / 1e9;
    uint64_t operations = operations_closed - operations_opened;
    printf("{\"protocol\": \"%s\", \"connections\": %d, \"depth\": %d, \"bundle\": %d, ", protocol->name,
           options.connections_count, options.depth, options.bundle);
    printf("\"is_owned\": %s, \"body_size\": %u, \"jobs_put\": %llu, \"jobs_finished\": %llu, ",
           options.is_owned ? "true" : "false", options.body_size, (unsigned long long)puts_sent,
           (unsigned long long)finished_count);
    printf("\"seconds\": %.6f, \"operations\": %llu, \"errors\": %llu, \"ops_per_s\": %.1f, ", seconds,
           (unsigned long long)operations, (unsigned long long)errors_count, (double)operations / seconds);
    printf("\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, ", latency_us(0.50), latency_us(0.99),
           (double)latency_max_ns / 1000.0);
    report_cpu(&opened, &closed);
}

static const char usage[] =
    "usage: load [--port N | --unix PATH] [--protocol beanstalk|bunqueue|glidemq] [--work put|cycle|hop]\n"
    "            [--connections N] [--depth N] [--body BYTES] [--priority N] [--tubes N]\n"
    "            [--bundle N] [--owner]\n"
    "            [--seconds S] [--warm S] [--jobs N] [--server-pid PID]\n"
    "  put    puts only, ends after --jobs; with --tubes they go round the tubes (use + put, 2 operations)\n"
    "  cycle  put, reserve, delete in the default tube: 3 operations for each job; of glidemq each connection\n"
    "         has a queue of its own, glide:{bench-N}, N from 0, whose group `workers` must be there\n"
    "  hop    the same, each job in the next of --tubes: use + put, watch + ignore + reserve, delete: 6\n"
    "  --priority and --tubes are for beanstalk alone, --bundle (jobs of one request: PUSHB, PULLB, ACKB) and\n"
    "  --owner (jobs are taken under a lock) for bunqueue\n";

static uint64_t parse_number(const char *text, uint64_t least, uint64_t most)
{
    char *rest;
    errno = 0;
    uint64_t value = strtoull(text, &rest, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *rest != '\0' || value < least || value > most)
        fail("%s is not a number from %llu to %llu", text, (unsigned long long)least,
             (unsigned long long)most);
    return value;
}

static Work parse_work(const char *text)
{
    static const char *const names[] = {[WORK_PUT] = "put", [WORK_CYCLE] = "cycle", [WORK_HOP] = "hop"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], text) == 0)
            return (Work)i;
    fail("no work called %s", text);
    return WORK_PUT;
}

static const Protocol *parse_protocol(const char *text)
{
    for (size_t i = 0; i < PROTOCOLS_COUNT; i++)
        if (strcmp(protocols[i]->name, text) == 0)
            return protocols[i];
    fail("no protocol called %s", text);
    return NULL;
}

static void parse_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", 1, NULL, 'p'}, {"unix", 1, NULL, 'u'}, {"protocol", 1, NULL, 'P'}, {"work", 1, NULL, 'w'},
        {"connections", 1, NULL, 'c'}, {"depth", 1, NULL, 'd'}, {"body", 1, NULL, 'b'},
        {"priority", 1, NULL, 'r'}, {"tubes", 1, NULL, 't'}, {"seconds", 1, NULL, 's'},
        {"warm", 1, NULL, 'W'}, {"jobs", 1, NULL, 'j'}, {"server-pid", 1, NULL, 'S'},
        {"bundle", 1, NULL, 'B'}, {"owner", 0, NULL, 'o'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int letter;
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 'p': options.port = (int)parse_number(optarg, 1, 65535); break;
        case 'u': options.unix_path = optarg; break;
        case 'P': protocol = parse_protocol(optarg); break;
        case 'w': options.work = parse_work(optarg); break;
        case 'c': options.connections_count = (int)parse_number(optarg, 1, 100000); break;
        case 'd': options.depth = (int)parse_number(optarg, 1, 65536); break;
        case 'B': options.bundle = (int)parse_number(optarg, 1, 1000); break;
        case 'o': options.is_owned = true; break;
        case 'b': options.body_size = (uint32_t)parse_number(optarg, 0, 1 << 30); break;
        case 'r': options.priority = (uint32_t)parse_number(optarg, 0, UINT32_MAX); break;
        case 't': options.tubes_count = (uint32_t)parse_number(optarg, 0, 100000000); break;
        case 's': options.seconds = parse_decimal(optarg, 0, SECONDS_MAX); break;
        case 'W': options.warm_seconds = parse_decimal(optarg, 0, SECONDS_MAX); break;
        case 'j': options.jobs_max = parse_number(optarg, 0, UINT64_MAX); break;
        case 'S': options.server_pid = (pid_t)parse_number(optarg, 1, INT32_MAX); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    bool asks_too_much = (!protocol->has_tubes && options.tubes_count != 0) ||
                         (!protocol->has_bundles && (options.bundle > 1 || options.is_owned));
    if (optind != argc || asks_too_much || (options.work == WORK_HOP && options.tubes_count == 0) ||
        (options.work == WORK_CYCLE && options.tubes_count != 0)) {
        fputs(usage, stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    meter_server(options.server_pid);
    open_poll();
    protocol->prepare();
    Connection *connections = allocate((size_t)options.connections_count * sizeof(Connection));
    for (int i = 0; i < options.connections_count; i++)
        open_connection(&connections[i], i);
    run(connections);
    report();
    return errors_count == 0 ? 0 : 3;
}
