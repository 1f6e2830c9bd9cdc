/*
 * What the generator (load.c) and its protocols (beanstalk.c, bunqueue.c, glidemq.c) share: what was asked
 * for, a connection, and the table of functions that makes a protocol.
 *
 * A protocol turns work into bytes and bytes into answers. It makes no system call, knows no clock, and
 * changes of a connection only the tubes it walks and the free tickets it fills.
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
#define LEASE_SECONDS 120    /* far beyond any batch: no lease may end during a run */
#define NO_TUBE UINT32_MAX
#define NOT_NUMBERED (-1)

typedef enum { WORK_PUT, WORK_CYCLE, WORK_HOP } Work;

typedef struct {
    const char *unix_path;  /* NULL: TCP on the loopback */
    int port;
    int connections_count;
    int depth;
    int bundle;             /* jobs of one request; above 1 only where a protocol has bundles */
    bool is_owned;          /* jobs are taken under a lock, and finished with its token */
    uint32_t body_size;
    double seconds;
    double warm_seconds;
    Work work;
    uint64_t jobs_max;      /* WORK_PUT ends after so many; 0: no such limit */
    uint32_t tubes_count;   /* 0: the protocol's default queue */
    uint32_t priority;
    pid_t server_pid;       /* 0: unknown, its processor time is not reported */
} Options;

extern Options options;

typedef enum { PHASE_PUT, PHASE_TAKE, PHASE_FINISH } Phase;

/* What the server calls a job that was taken; enough to finish it. */
typedef struct {
    uint8_t size, token_size;
    char text[TICKET_SIZE_MAX];
    char token[TICKET_SIZE_MAX];    /* with is_owned; at glide-mq the entry of the stream */
} Ticket;

typedef struct {
    int number;             /* from 0 on */
    int fd;
    Phase phase;
    bool is_parked;         /* its last cycle is over; it sends no more */
    bool is_send_watched;
    int answers_due;        /* to the requests on the wire */
    int jobs_asked;         /* by the requests on the wire; each asks for a bundle, the last for the rest */
    int requests_count;     /* on the wire, or encoded so far */
    uint32_t serial_first;  /* the serial of the first of them; the others follow */
    bool *is_answered;      /* by request, where answers are numbered */
    int puts_count;         /* jobs accepted in this cycle, not yet asked back */
    int tickets_count;      /* jobs taken in this cycle, not yet finished */
    int tickets_max;
    Ticket *tickets;
    uint64_t sent_at_ns;
    char *out;
    size_t out_size, out_sent;
    char *in;
    size_t in_size;
    uint32_t put_tube, take_tube;   /* WORK_HOP: where the next put and the next take go */
    uint32_t watched_tube;          /* NO_TUBE: still the default */
} Connection;

typedef enum { ANSWER_DONE, ANSWER_PUT, ANSWER_TAKEN, ANSWER_REFUSED } AnswerKind;

typedef struct {
    AnswerKind kind;
    size_t size;            /* bytes of the whole answer */
    int jobs_count;         /* put or taken */
    int64_t serial;         /* of the request it answers; NOT_NUMBERED: answers come in order */
} Answer;

/* Encoders append one request for `jobs` jobs at *out, move *out on, and return how many answers it gets. */
typedef struct {
    const char *name;
    bool has_tubes;
    bool has_bundles;       /* and locks */
    size_t (*request_size_max)(void);
    size_t (*answer_size_max)(void);
    void (*prepare)(void);
    int (*encode_put)(char **out, Connection *connection, int jobs);
    int (*encode_take)(char **out, Connection *connection, int jobs);
    int (*encode_finish)(char **out, const Connection *connection, const Ticket *tickets, int jobs);
    /* False: the answer at `at` is not complete yet. Jobs that were taken go into the free tickets. */
    bool (*parse)(const char *at, const char *end, Connection *connection, Answer *answer);
} Protocol;

static inline char *append(char *out, const void *bytes, size_t size)
{
    memcpy(out, bytes, size);
    return out + size;
}

#define APPEND(out, literal) append(out, literal, sizeof(literal) - 1)

/* The serial of the request that is being encoded. */
static inline uint32_t next_serial(const Connection *connection)
{
    return connection->serial_first + (uint32_t)connection->requests_count;
}

/* The ticket for the next job of an answer that has brought `jobs_count` so far; NULL: nobody asked for it. */
static inline Ticket *free_ticket(const Connection *connection, int jobs_count)
{
    int index = connection->tickets_count + jobs_count;
    return index < connection->tickets_max ? &connection->tickets[index] : NULL;
}

extern const Protocol beanstalk;
extern const Protocol bunqueue;
extern const Protocol glidemq;

#endif
