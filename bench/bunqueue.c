/*
 * The part of the bunqueue protocol that a load needs: MessagePack maps in frames, each after a four-byte
 * big-endian length. Every request has a serial number, because answers may arrive in any order.
 *
 * A job's data is {data: "xxx..."}, as in the original's own benchmark; --body is the length of the string.
 * An answer is walked key by key, in any order; values that are not needed are skipped by their length.
 */
#include <string.h>

#include "load.h"

#define QUEUE "bench"
#define OWNER "load"
#define HEAD_SIZE 4             /* of a frame */
#define JOB_SIZE_MAX 4096       /* a job in an answer, without its data; the original sends about 700 */
#define SERIAL_SIZE 8           /* hexadecimal digits */
#define MARKS_SIZE_MAX 64       /* MessagePack overhead for the data, the id and the token of one job */

/* ---- requests ----------------------------------------------------------------------------------------- */

static char *data_field;        /* the key `data` and its map: the same bytes in every job */
static size_t data_field_size;

/* The literals below are raw MessagePack: "\xa3" "cmd" is the text cmd. */

static char *append_number(char *out, uint32_t value, int size)
{
    for (int shift = 8 * (size - 1); shift >= 0; shift -= 8)
        *out++ = (char)(value >> shift);
    return out;
}

static char *append_text(char *out, const char *text, size_t size)
{
    if (size < 32) {
        *out++ = (char)(0xa0 | size);
    } else if (size < 256) {
        *out++ = (char)0xd9;
        *out++ = (char)size;
    } else {
        *out++ = (char)0xdb;
        out = append_number(out, (uint32_t)size, 4);
    }
    return append(out, text, size);
}

static char *append_array(char *out, int count)
{
    *out++ = (char)0xdc;
    return append_number(out, (uint32_t)count, 2);
}

/* Appends the last field of a request, and writes the length, now known, at its start. */
static int end_request(char **out, char *at, const Connection *connection)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t serial = next_serial(connection);
    at = APPEND(at, "\xa5" "reqId" "\xa8");
    for (int i = SERIAL_SIZE - 1; i >= 0; i--) {
        at[i] = digits[serial & 15];
        serial >>= 4;
    }
    at += SERIAL_SIZE;
    append_number(*out, (uint32_t)(at - *out - HEAD_SIZE), HEAD_SIZE);
    *out = at;
    return 1;
}

static size_t request_size_max(void)
{
    size_t ticket_size = 2 * TICKET_SIZE_MAX;
    return LINE_SIZE_MAX + (size_t)options.bundle * (MARKS_SIZE_MAX + data_field_size + ticket_size);
}

static size_t answer_size_max(void)
{
    return LINE_SIZE_MAX + (size_t)options.bundle * (JOB_SIZE_MAX + options.body_size);
}

static void prepare(void)
{
    char *body = allocate(options.body_size + 1);
    memset(body, 'x', options.body_size);
    data_field = allocate(LINE_SIZE_MAX + options.body_size);
    char *out = APPEND(data_field, "\xa4" "data" "\x81\xa4" "data");
    out = append_text(out, body, options.body_size);
    data_field_size = (size_t)(out - data_field);
}

static int encode_put(char **out, Connection *connection, int jobs)
{
    char *at = *out + HEAD_SIZE;
    if (options.bundle == 1) {
        at = APPEND(at, "\x84\xa3" "cmd" "\xa4" "PUSH" "\xa5" "queue" "\xa5" QUEUE);
        at = append(at, data_field, data_field_size);
        return end_request(out, at, connection);
    }
    at = APPEND(at, "\x84\xa3" "cmd" "\xa5" "PUSHB" "\xa5" "queue" "\xa5" QUEUE "\xa4" "jobs");
    at = append_array(at, jobs);
    for (int i = 0; i < jobs; i++) {
        at = APPEND(at, "\x81");
        at = append(at, data_field, data_field_size);
    }
    return end_request(out, at, connection);
}

static int encode_take(char **out, Connection *connection, int jobs)
{
    char *at = *out + HEAD_SIZE;
    int fields = 3 + (options.bundle > 1) + options.is_owned;
    *at++ = (char)(0x80 | fields);
    if (options.bundle > 1) {
        at = APPEND(at, "\xa3" "cmd" "\xa5" "PULLB" "\xa5" "queue" "\xa5" QUEUE "\xa5" "count" "\xcd");
        at = append_number(at, (uint32_t)jobs, 2);
    } else {
        at = APPEND(at, "\xa3" "cmd" "\xa4" "PULL" "\xa5" "queue" "\xa5" QUEUE);
    }
    if (options.is_owned)
        at = APPEND(at, "\xa5" "owner" "\xa4" OWNER);
    return end_request(out, at, connection);
}

static int encode_finish(char **out, const Connection *connection, const Ticket *tickets, int jobs)
{
    char *at = *out + HEAD_SIZE;
    *at++ = (char)(0x80 | (3 + options.is_owned));
    if (options.bundle == 1) {
        at = APPEND(at, "\xa3" "cmd" "\xa3" "ACK" "\xa2" "id");
        at = append_text(at, tickets->text, tickets->size);
        if (options.is_owned) {
            at = APPEND(at, "\xa5" "token");
            at = append_text(at, tickets->token, tickets->token_size);
        }
        return end_request(out, at, connection);
    }
    at = APPEND(at, "\xa3" "cmd" "\xa4" "ACKB" "\xa3" "ids");
    at = append_array(at, jobs);
    for (int i = 0; i < jobs; i++)
        at = append_text(at, tickets[i].text, tickets[i].size);
    if (options.is_owned) {
        at = APPEND(at, "\xa6" "tokens");
        at = append_array(at, jobs);
        for (int i = 0; i < jobs; i++)
            at = append_text(at, tickets[i].token, tickets[i].token_size);
    }
    return end_request(out, at, connection);
}

/* ---- answers ------------------------------------------------------------------------------------------ */

/* A read position. A value that exceeds the frame or has an unexpected type breaks the walk. */
typedef struct {
    const uint8_t *at, *end;
    bool is_broken;
} Walk;

typedef struct {
    const char *at;
    size_t size;
} Text;

static uint32_t take_number(Walk *walk, size_t size)
{
    uint32_t value = 0;
    if ((size_t)(walk->end - walk->at) < size) {
        walk->is_broken = true;
        walk->at = walk->end;
        return 0;
    }
    while (size-- > 0)
        value = value << 8 | *walk->at++;
    return value;
}

static void step(Walk *walk, size_t size)
{
    bool fits = (size_t)(walk->end - walk->at) >= size;
    walk->is_broken |= !fits;
    walk->at = fits ? walk->at + size : walk->end;
}

/*
 * What follows the first byte of a value. Kinds up to 31 are simple: exactly that many bytes follow. Other
 * kinds have a length field of 1, 2 or 4 bytes, or contain values. Nearly all skipped values are simple.
 */
enum {
    LENGTH_1 = 32, LENGTH_2, LENGTH_4, EXTENSION_1, EXTENSION_2, EXTENSION_4,
    ARRAY_SHORT, ARRAY_2, ARRAY_4, MAP_SHORT, MAP_2, MAP_4,
};

#define TEXT_SHORT(size) [0xa0 + (size)] = (size)

static const uint8_t kind_of[256] = { /* values not listed are one byte long */
    [0x80 ... 0x8f] = MAP_SHORT, [0x90 ... 0x9f] = ARRAY_SHORT,
    TEXT_SHORT(1), TEXT_SHORT(2), TEXT_SHORT(3), TEXT_SHORT(4), TEXT_SHORT(5), TEXT_SHORT(6),
    TEXT_SHORT(7), TEXT_SHORT(8), TEXT_SHORT(9), TEXT_SHORT(10), TEXT_SHORT(11), TEXT_SHORT(12),
    TEXT_SHORT(13), TEXT_SHORT(14), TEXT_SHORT(15), TEXT_SHORT(16), TEXT_SHORT(17), TEXT_SHORT(18),
    TEXT_SHORT(19), TEXT_SHORT(20), TEXT_SHORT(21), TEXT_SHORT(22), TEXT_SHORT(23), TEXT_SHORT(24),
    TEXT_SHORT(25), TEXT_SHORT(26), TEXT_SHORT(27), TEXT_SHORT(28), TEXT_SHORT(29), TEXT_SHORT(30),
    TEXT_SHORT(31),
    [0xc4] = LENGTH_1, LENGTH_2, LENGTH_4, EXTENSION_1, EXTENSION_2, EXTENSION_4, /* bin, ext */
    [0xca] = 4, 8, 1, 2, 4, 8, 1, 2, 4, 8,  /* float, uint, int */
    [0xd4] = 2, 3, 5, 9, 17,                /* fixext */
    [0xd9] = LENGTH_1, LENGTH_2, LENGTH_4, ARRAY_2, ARRAY_4, MAP_2, MAP_4,
};

/* Skips what follows the first byte of a kind that is not simple; returns how many values it contains. */
static uint64_t skip_long(Walk *walk, uint8_t first)
{
    switch (kind_of[first]) {
    case LENGTH_1: step(walk, take_number(walk, 1)); return 0;
    case LENGTH_2: step(walk, take_number(walk, 2)); return 0;
    case LENGTH_4: step(walk, take_number(walk, 4)); return 0;
    case EXTENSION_1: step(walk, (size_t)take_number(walk, 1) + 1); return 0;
    case EXTENSION_2: step(walk, (size_t)take_number(walk, 2) + 1); return 0;
    case EXTENSION_4: step(walk, (size_t)take_number(walk, 4) + 1); return 0;
    case ARRAY_SHORT: return first & 15;
    case ARRAY_2: return take_number(walk, 2);
    case ARRAY_4: return take_number(walk, 4);
    case MAP_SHORT: return 2 * (first & 15);
    case MAP_2: return 2 * (uint64_t)take_number(walk, 2);
    default: return 2 * (uint64_t)take_number(walk, 4);
    }
}

static void skip(Walk *walk, uint64_t values)
{
    while (values > 0 && !walk->is_broken) {
        const uint8_t *at = walk->at, *end = walk->end;
        /* Room for the first byte and the longest simple value: one check for both. */
        while (values > 0 && end - at > 32 && kind_of[*at] < LENGTH_1) {
            at += 1 + kind_of[*at];
            values--;
        }
        walk->at = at;
        if (values == 0)
            return;
        uint8_t first = (uint8_t)take_number(walk, 1);
        values--;
        if (kind_of[first] < LENGTH_1)
            step(walk, kind_of[first]);
        else
            values += skip_long(walk, first);
    }
}

/* Returns the count of a map's pairs or an array's values; `base` is the first of the short forms. */
static uint32_t take_count(Walk *walk, uint8_t base, uint8_t medium)
{
    uint8_t first = (uint8_t)take_number(walk, 1);
    if ((first & 0xf0) == base)
        return first & 15;
    if (first == medium)
        return take_number(walk, 2);
    if (first == medium + 1)
        return take_number(walk, 4);
    walk->is_broken = true;
    return 0;
}

static uint32_t take_map(Walk *walk)
{
    return take_count(walk, 0x80, 0xde);
}

static uint32_t take_array(Walk *walk)
{
    return take_count(walk, 0x90, 0xdc);
}

static Text take_text(Walk *walk)
{
    uint8_t first = (uint8_t)take_number(walk, 1);
    size_t size = first & 31;
    if (first >= 0xd9 && first <= 0xdb)
        size = take_number(walk, (size_t)1 << (first - 0xd9));
    else if ((first & 0xe0) != 0xa0)
        walk->is_broken = true;
    Text text = {(const char *)walk->at, size};
    step(walk, size);
    return walk->is_broken ? (Text){0} : text;
}

static bool is(Text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.at, word, text.size) == 0;
}

static bool keep(Text text, char *place, uint8_t *size)
{
    if (text.size == 0 || text.size > TICKET_SIZE_MAX)
        return false;
    memcpy(place, text.at, text.size);
    *size = (uint8_t)text.size;
    return true;
}

/* The body must come back as it was sent. A server may encode the map around it in a longer form. */
static bool take_data(Walk *walk)
{
    if (take_map(walk) != 1 || !is(take_text(walk), "data"))
        return false;
    Text body = take_text(walk);
    return body.size == options.body_size &&
           memcmp(body.at, data_field + data_field_size - body.size, body.size) == 0;
}

static bool take_job(Walk *walk, Ticket *ticket)
{
    bool has_id = false, has_data = false;
    uint32_t pairs = take_map(walk);
    for (; pairs > 0 && !(has_id && has_data) && !walk->is_broken; pairs--) {
        Text key = take_text(walk);
        if (is(key, "id"))
            has_id = ticket != NULL && keep(take_text(walk), ticket->text, &ticket->size);
        else if (is(key, "data"))
            has_data = take_data(walk);
        else
            skip(walk, 1);
        if (is(key, "data") && !has_data)
            break; /* reading stopped in the middle of it: nothing behind it can be read */
    }
    if (has_id && has_data)
        skip(walk, 2 * (uint64_t)pairs);
    else
        walk->is_broken = true;
    return !walk->is_broken;
}

/* What was found in an answer; jobs go into the tickets. */
typedef struct {
    bool is_ok, is_late;
    int ids_count, jobs_count, tokens_count;
    int64_t serial;
} Found;

static void take_jobs(Walk *walk, const Connection *connection, Found *found)
{
    for (uint32_t left = take_array(walk); left > 0 && !walk->is_broken; left--)
        found->jobs_count += take_job(walk, free_ticket(connection, found->jobs_count));
}

static void take_token(Walk *walk, const Connection *connection, Found *found)
{
    Ticket *ticket = free_ticket(connection, found->tokens_count);
    found->tokens_count += ticket != NULL && keep(take_text(walk), ticket->token, &ticket->token_size);
}

static int64_t take_serial(Walk *walk)
{
    uint32_t serial = 0;
    Text text = take_text(walk);
    if (text.size != SERIAL_SIZE)
        return NOT_NUMBERED;
    for (size_t i = 0; i < SERIAL_SIZE; i++) {
        char digit = text.at[i];
        if (!((digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f')))
            return NOT_NUMBERED;
        serial = serial << 4 | (uint32_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    return serial;
}

/* Returns whether the next value starts with this byte: null in place of a job, for example. */
static bool is_next(const Walk *walk, uint8_t first)
{
    return walk->at < walk->end && *walk->at == first;
}

static bool is_map_next(const Walk *walk)
{
    return walk->at < walk->end && ((*walk->at & 0xf0) == 0x80 || *walk->at == 0xde || *walk->at == 0xdf);
}

static void take_field(Walk *walk, Text key, const Connection *connection, Found *found)
{
    bool is_take = connection->phase == PHASE_TAKE;
    if (is(key, "ok")) {
        found->is_ok = is_next(walk, 0xc3);
        skip(walk, 1);
    } else if (is(key, "reqId")) {
        found->serial = take_serial(walk);
    } else if (is_take && is(key, "job") && !is_next(walk, 0xc0)) {
        found->jobs_count += take_job(walk, free_ticket(connection, 0));
    } else if (is_take && is(key, "jobs")) {
        take_jobs(walk, connection, found);
    } else if (is_take && options.is_owned && is(key, "token") && !is_next(walk, 0xc0)) {
        take_token(walk, connection, found);
    } else if (is_take && options.is_owned && is(key, "tokens")) {
        for (uint32_t left = take_array(walk); left > 0 && !walk->is_broken; left--)
            take_token(walk, connection, found);
    } else if (connection->phase == PHASE_PUT && is(key, "id")) {
        found->ids_count += take_text(walk).size > 0;
    } else if (connection->phase == PHASE_PUT && is(key, "ids")) {
        for (uint32_t left = take_array(walk); left > 0 && !walk->is_broken; left--)
            found->ids_count += take_text(walk).size > 0;
    } else {
        /* The only sign of an ACK for a job that had ended before: the ACK did not finish it. */
        found->is_late |= connection->phase == PHASE_FINISH && is(key, "data") && is_map_next(walk);
        skip(walk, 1);
    }
}

static bool parse(const char *at, const char *end, Connection *connection, Answer *answer)
{
    Walk walk = {(const uint8_t *)at, (const uint8_t *)end, false};
    if ((size_t)(end - at) < HEAD_SIZE)
        return false;
    answer->size = HEAD_SIZE + (size_t)take_number(&walk, HEAD_SIZE);
    if (answer->size > answer_size_max())
        fail("an answer of %zu bytes", answer->size);
    if ((size_t)(end - at) < answer->size)
        return false;
    walk.end = (const uint8_t *)at + answer->size;

    Found found = {.serial = NOT_NUMBERED};
    for (uint32_t left = take_map(&walk); left > 0 && !walk.is_broken; left--)
        take_field(&walk, take_text(&walk), connection, &found);
    bool is_whole = !walk.is_broken && walk.at == walk.end && found.serial != NOT_NUMBERED;
    bool has_tokens = !options.is_owned || found.tokens_count == found.jobs_count;
    answer->serial = found.serial;
    answer->jobs_count = connection->phase == PHASE_PUT ? found.ids_count : found.jobs_count;
    if (!found.is_ok || found.is_late || !is_whole || !has_tokens)
        answer->kind = ANSWER_REFUSED;
    else if (connection->phase == PHASE_PUT)
        answer->kind = ANSWER_PUT;
    else
        answer->kind = connection->phase == PHASE_TAKE ? ANSWER_TAKEN : ANSWER_DONE;
    return true;
}

const Protocol bunqueue = {
    .name = "bunqueue",
    .has_bundles = true,
    .request_size_max = request_size_max,
    .answer_size_max = answer_size_max,
    .prepare = prepare,
    .encode_put = encode_put,
    .encode_take = encode_take,
    .encode_finish = encode_finish,
    .parse = parse,
};
