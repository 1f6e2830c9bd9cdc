/*
 * What the generator (load.c) and its protocols (beanstalk.c, ...) share: what was asked for, a connection,
 * and the table of functions that makes a protocol.
 *
 * A protocol turns work into bytes and bytes into answers. It makes no system call, knows no clock, and
 * changes of a connection only the tubes it walks.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TICKET_SIZE_MAX 64   /* the longest job id of any protocol: a UUID with room to spare */
#define LINE_SIZE_MAX 256    /* a beanstalk line is at most 224 bytes */
#define LEASE_SECONDS 120    /* far beyond any batch: no lease may end during a run */
#define NO_TUBE UINT32_MAX

typedef enum { WORK_PUT, WORK_CYCLE, WORK_HOP } Work;

typedef struct {
    const char *unix_path;  /* NULL: TCP on the loopback */
    int port;
    int connections_count;
    int depth;
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

/* Says why on stderr and ends the program: a run with a broken connection has no result. */
__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...);

/* Zeroed memory, kept until the end. */
void *allocate(size_t size);

typedef enum { PHASE_PUT, PHASE_TAKE, PHASE_FINISH } Phase;

/* What the server calls a job that was taken; enough to finish it. */
typedef struct {
    uint8_t size;
    char text[TICKET_SIZE_MAX];
} Ticket;

typedef struct {
    int fd;
    Phase phase;
    bool is_parked;         /* its last cycle is over; it sends no more */
    bool is_send_watched;
    int answers_due;        /* of the batch on the wire */
    int puts_count;         /* accepted in this cycle, not yet asked back */
    int tickets_count;      /* taken in this cycle, not yet finished */
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
    const char *ticket;     /* of ANSWER_TAKEN, inside the input */
    size_t ticket_size;
} Answer;

/* Encoders append one request at *out, move *out on, and return how many answers it will get. */
typedef struct {
    const char *name;
    size_t (*request_size_max)(void);
    void (*prepare)(void);
    int (*encode_put)(char **out, Connection *connection);
    int (*encode_take)(char **out, Connection *connection);
    int (*encode_finish)(char **out, const Ticket *ticket);
    /* False: the answer at `at` is not complete yet. */
    bool (*parse)(const char *at, const char *end, Phase phase, Answer *answer);
} Protocol;

extern const Protocol beanstalk;

#endif
