/*
 * The part of the beanstalk protocol that a load needs: text lines, and a body after `put` and `RESERVED`.
 * Tubes are named t0, t1, ...; without --tubes all jobs are in `default`.
 */
#include <stdio.h>
#include <string.h>

#include "load.h"

static char *put_request;   /* the same bytes every time, so a put is one memcpy */
static size_t put_request_size;
static uint32_t fill_tube;  /* of all connections: a fill of N jobs in N tubes puts one in each */

/* Not snprintf: it costs more than the rest of a request. */
static char *append_tube(char *out, uint32_t tube)
{
    char digits[10];
    int count = 0;
    if (tube == NO_TUBE)
        return APPEND(out, "default");
    do {
        digits[count++] = (char)('0' + tube % 10);
        tube /= 10;
    } while (tube != 0);
    *out++ = 't';
    while (count > 0)
        *out++ = digits[--count];
    return out;
}

static size_t request_size_max(void)
{
    return 3 * LINE_SIZE_MAX + options.body_size;
}

static void prepare(void)
{
    put_request = allocate(LINE_SIZE_MAX + options.body_size);
    int line_size = snprintf(put_request, LINE_SIZE_MAX, "put %u 0 %d %u\r\n", options.priority,
                             LEASE_SECONDS, options.body_size);
    memset(put_request + line_size, 'x', options.body_size);
    memcpy(put_request + line_size + options.body_size, "\r\n", 2);
    put_request_size = (size_t)line_size + options.body_size + 2;
}

static size_t answer_size_max(void)
{
    return LINE_SIZE_MAX + options.body_size;
}

static int encode_put(char **out, Connection *connection, int jobs)
{
    (void)jobs; /* always one */
    int answers = 1;
    if (options.tubes_count > 0) {
        uint32_t *tube = options.work == WORK_HOP ? &connection->put_tube : &fill_tube;
        *out = APPEND(*out, "use ");
        *out = append_tube(*out, *tube);
        *out = APPEND(*out, "\r\n");
        *tube = (*tube + 1) % options.tubes_count;
        answers++;
    }
    *out = append(*out, put_request, put_request_size);
    return answers;
}

static int encode_take(char **out, Connection *connection, int jobs)
{
    (void)jobs;
    int answers = 1;
    if (options.work == WORK_HOP && connection->take_tube != connection->watched_tube) {
        *out = APPEND(*out, "watch ");
        *out = append_tube(*out, connection->take_tube);
        *out = APPEND(*out, "\r\nignore ");
        *out = append_tube(*out, connection->watched_tube);
        *out = APPEND(*out, "\r\n");
        connection->watched_tube = connection->take_tube;
        answers += 2;
    }
    if (options.work == WORK_HOP)
        connection->take_tube = (connection->take_tube + 1) % options.tubes_count;
    *out = APPEND(*out, "reserve\r\n");
    return answers;
}

static int encode_finish(char **out, const Connection *connection, const Ticket *ticket, int jobs)
{
    (void)connection, (void)jobs;
    *out = APPEND(*out, "delete ");
    *out = append(*out, ticket->text, ticket->size);
    *out = APPEND(*out, "\r\n");
    return 1;
}

static bool starts_with(const char *at, size_t size, const char *word)
{
    size_t word_size = strlen(word);
    return size >= word_size && memcmp(at, word, word_size) == 0;
}

/* RESERVED <id> <bytes>, then the body. A body of another size is not ours: ANSWER_REFUSED. */
static bool parse_reserved(const char *at, const char *line_end, const char *end, Connection *connection,
                           Answer *answer)
{
    const char *cursor = at + sizeof("RESERVED ") - 1;
    const char *id = cursor;
    while (cursor < line_end && *cursor != ' ')
        cursor++;
    size_t id_size = (size_t)(cursor - id);
    size_t body_size = 0;
    while (++cursor < line_end && *cursor >= '0' && *cursor <= '9')
        body_size = body_size * 10 + (size_t)(*cursor - '0');
    answer->size = (size_t)(line_end + 1 - at) + body_size + 2;
    if ((size_t)(end - at) < answer->size)
        return false;
    Ticket *ticket = free_ticket(connection, 0);
    bool is_ours = body_size == options.body_size && id_size <= TICKET_SIZE_MAX && ticket != NULL;
    answer->kind = is_ours ? ANSWER_TAKEN : ANSWER_REFUSED;
    if (is_ours) {
        ticket->size = (uint8_t)id_size;
        memcpy(ticket->text, id, id_size);
    }
    return true;
}

static bool parse(const char *at, const char *end, Connection *connection, Answer *answer)
{
    const char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (line_end == NULL)
        return false;
    size_t line_size = (size_t)(line_end + 1 - at);
    answer->serial = NOT_NUMBERED;
    answer->jobs_count = 1;
    if (starts_with(at, line_size, "RESERVED "))
        return parse_reserved(at, line_end, end, connection, answer);
    answer->size = line_size;
    if (starts_with(at, line_size, "INSERTED "))
        answer->kind = ANSWER_PUT;
    else if (starts_with(at, line_size, "DELETED\r") || starts_with(at, line_size, "USING ") ||
             starts_with(at, line_size, "WATCHING "))
        answer->kind = ANSWER_DONE;
    else
        answer->kind = ANSWER_REFUSED;
    return true;
}

const Protocol beanstalk = {
    .name = "beanstalk",
    .has_tubes = true,
    .request_size_max = request_size_max,
    .answer_size_max = answer_size_max,
    .prepare = prepare,
    .encode_put = encode_put,
    .encode_take = encode_take,
    .encode_finish = encode_finish,
    .parse = parse,
};
