/*
 * What the generator (load.c) and its protocols (beanstalk.c, bunqueue.c, glidemq.c) share: the options, a
 * connection, and the function table of a protocol.
 *
 * A protocol encodes requests and parses answers. It makes no system call and reads no clock while the load
 * runs, and changes nothing of a connection but its current tubes and its free tickets.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "generator.h"

#define TICKET_SIZE_MAX 64   /* the longest job id of any protocol: a UUID with room to spare */
#define LINE_SIZE_MAX 256    /* a beanstalk line is at most 224 bytes */
#define LEASE_SECONDS 120    /* much longer than any batch: no lease may expire during a run */
#define NO_TUBE UINT32_MAX
#define NOT_NUMBERED (-1)

typedef enum { WORK_PUT, WORK_CYCLE, WORK_HOP } Work;

typedef struct {
    const char *unix_path;  /* NULL: TCP on the loopback */
    int port;
    int connections_count;
    int depth;
    int bundle;             /* jobs per request; above 1 only if the protocol has bundles */
    bool is_owned;          /* jobs are taken with a lock and finished with its token */
    uint32_t body_size;
    double seconds;
    double warm_seconds;
    Work work;
    uint64_t jobs_max;      /* WORK_PUT ends after this many; 0: no limit */
    uint32_t tubes_count;   /* 0: the protocol's default queue */
    uint32_t priority;
    pid_t server_pid;       /* 0: unknown, its CPU time is not reported */
} Options;

extern Options options;

typedef enum { PHASE_PUT, PHASE_TAKE, PHASE_FINISH } Phase;

/* Identifies a taken job to the server; enough to finish it. */
typedef struct {
    uint8_t size, token_size;
    char text[TICKET_SIZE_MAX];
    char token[TICKET_SIZE_MAX];    /* with is_owned; in glide-mq the stream entry id */
} Ticket;

typedef struct {
    int number;             /* counted from 0 */
    int fd;
    Phase phase;
    bool is_parked;         /* its last cycle is complete; it sends nothing more */
    bool is_send_watched;
    int answers_due;        /* for the requests in flight */
    int jobs_asked;         /* by the requests in flight: a bundle each, the last one the rest */
    int requests_count;     /* in flight, or encoded so far */
    uint32_t serial_first;  /* serial of the first of these requests; the others count up from it */
    bool *is_answered;      /* per request, if answers are numbered */
    int puts_count;         /* jobs accepted in this cycle, not yet requested */
    int tickets_count;      /* jobs taken in this cycle, not yet finished */
    int tickets_max;
    Ticket *tickets;
    uint64_t sent_at_ns;
    char *out;
    size_t out_size, out_sent;
    char *in;
    size_t in_size;
    uint32_t put_tube, take_tube;   /* WORK_HOP: where the next put and the next take go */
    uint32_t watched_tube;          /* NO_TUBE: still `default` */
} Connection;

typedef enum { ANSWER_DONE, ANSWER_PUT, ANSWER_TAKEN, ANSWER_REFUSED } AnswerKind;

typedef struct {
    AnswerKind kind;
    size_t size;            /* of the whole answer, in bytes */
    int jobs_count;         /* put or taken */
    int64_t serial;         /* of its request; NOT_NUMBERED: answers arrive in order */
} Answer;

/* Encoders append one request for `jobs` jobs at *out, advance *out, and return the count of its answers. */
typedef struct {
    const char *name;
    bool has_tubes;
    bool has_bundles;       /* has locks too */
    size_t (*request_size_max)(void);
    size_t (*answer_size_max)(void);
    void (*prepare)(void);
    int (*encode_put)(char **out, Connection *connection, int jobs);
    int (*encode_take)(char **out, Connection *connection, int jobs);
    int (*encode_finish)(char **out, const Connection *connection, const Ticket *tickets, int jobs);
    /* Returns false while the answer at `at` is incomplete. Taken jobs go into the free tickets. */
    bool (*parse)(const char *at, const char *end, Connection *connection, Answer *answer);
} Protocol;

static inline char *append(char *out, const void *bytes, size_t size)
{
    memcpy(out, bytes, size);
    return out + size;
}

#define APPEND(out, literal) append(out, literal, sizeof(literal) - 1)

/* Returns the serial of the request that is being encoded. */
static inline uint32_t next_serial(const Connection *connection)
{
    return connection->serial_first + (uint32_t)connection->requests_count;
}

/* Returns the ticket for the next job of an answer with `jobs_count` jobs so far; NULL: not requested. */
static inline Ticket *free_ticket(const Connection *connection, int jobs_count)
{
    int index = connection->tickets_count + jobs_count;
    return index < connection->tickets_max ? &connection->tickets[index] : NULL;
}

extern const Protocol beanstalk;
extern const Protocol bunqueue;
extern const Protocol glidemq;

#endif
