/*
 * The part of the glide-mq protocol that a load needs: FCALL glidemq_addJob, XREADGROUP, and
 * FCALL glidemq_completeAndFetchNext that removes the job, all in RESP2.
 *
 * Every connection has its own queue, bench-0, bench-1, ...: finishing a job also takes the next one, which
 * must not be a job that another connection is about to take. All jobs of a batch are taken before the first
 * is finished, so a finish that returns a next job counts as refused.
 */
#include <stdio.h>
#include <string.h>

#include "load.h"

#define KEY_SIZE_MAX 64
#define DEPTH_MAX 8             /* of nested arrays; an answer to XREADGROUP has five */
#define TEXTS_MAX 16            /* strings of an answer that are examined */
#define NUMBER_SIZE_MAX 24

typedef struct {
    char *bytes;
    size_t size;
} Piece;

/* The constant parts of one connection's requests, so that a put or a take is one memcpy. */
typedef struct {
    char job_key[KEY_SIZE_MAX];     /* without the id of the job */
    Piece put, take;
    Piece finish_head, metrics_key, finish_tail;
} Phrases;

typedef struct {
    const char *at;
    size_t size;
} Text;

static Phrases *phrases;

static char *append_number(char *out, size_t number)
{
    char digits[NUMBER_SIZE_MAX];
    int count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (count > 0)
        *out++ = digits[--count];
    return out;
}

static char *append_head(char *out, char kind, size_t number)
{
    *out++ = kind;
    out = append_number(out, number);
    return APPEND(out, "\r\n");
}

static char *append_text(char *out, const char *text, size_t size)
{
    out = append_head(out, '$', size);
    out = append(out, text, size);
    return APPEND(out, "\r\n");
}

static char *append_words(char *out, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out = append_text(out, words[i], strlen(words[i]));
    return out;
}

#define APPEND_WORDS(out, words) append_words(out, words, sizeof words / sizeof words[0])
#define ROOM_FOR_WORDS 1024     /* all words of a request except the data */

static size_t request_size_max(void)
{
    return ROOM_FOR_WORDS + options.body_size;
}

static size_t answer_size_max(void)
{
    return ROOM_FOR_WORDS;      /* no answer contains a job's data */
}

static Piece keep(const char *begin, const char *end)
{
    Piece piece = {.bytes = allocate((size_t)(end - begin)), .size = (size_t)(end - begin)};
    memcpy(piece.bytes, begin, piece.size);
    return piece;
}

static void name_key(char *key, int number, const char *what)
{
    snprintf(key, KEY_SIZE_MAX, "glide:{bench-%d}:%s", number, what);
}

static Piece make_put(int number, const char *now_ms)
{
    char id[KEY_SIZE_MAX], stream[KEY_SIZE_MAX], scheduled[KEY_SIZE_MAX], events[KEY_SIZE_MAX];
    name_key(id, number, "id");
    name_key(stream, number, "stream");
    name_key(scheduled, number, "scheduled");
    name_key(events, number, "events");
    const char *before[] = {"FCALL", "glidemq_addJob", "4", id, stream, scheduled, events, "bench"};
    const char *after[] = {"{}", now_ms, "0", "0", "", "0", "", "0", "0", "0", "0", "0", "0", "0", ""};
    static const char opening[] = "{\"data\":\"", closing[] = "\"}";
    size_t data_size = sizeof opening - 1 + options.body_size + sizeof closing - 1;
    char *begin = allocate(request_size_max()), *out = begin;
    out = append_head(out, '*', 24);
    out = APPEND_WORDS(out, before);
    out = append_head(out, '$', data_size);
    out = APPEND(out, opening);
    memset(out, 'x', options.body_size);
    out = APPEND(out + options.body_size, closing);
    out = APPEND(out, "\r\n");
    out = APPEND_WORDS(out, after);
    return (Piece){.bytes = begin, .size = (size_t)(out - begin)};
}

static void make_phrases(Phrases *own, int number, const char *now_ms)
{
    char room[ROOM_FOR_WORDS], stream[KEY_SIZE_MAX], completed[KEY_SIZE_MAX], events[KEY_SIZE_MAX];
    char metrics[KEY_SIZE_MAX];
    name_key(stream, number, "stream");
    name_key(completed, number, "completed");
    name_key(events, number, "events");
    name_key(metrics, number, "metrics:completed");
    name_key(own->job_key, number, "job:");
    own->put = make_put(number, now_ms);
    const char *take[] = {"XREADGROUP", "GROUP", "workers", "bench", "COUNT", "1", "STREAMS", stream, ">"};
    own->take = keep(room, APPEND_WORDS(append_head(room, '*', 9), take));
    const char *head[] = {"FCALL", "glidemq_completeAndFetchNext", "5", stream, completed, events};
    own->finish_head = keep(room, APPEND_WORDS(append_head(room, '*', 27), head));
    own->metrics_key = keep(room, append_text(room, metrics, strlen(metrics)));
    /* After job and entry: value, now, group, consumer, remove at once; no parent, no key ("__"). */
    const char *tail[] = {"null", now_ms, "workers", "bench", "true", "0", "0", "", "",
                          "__", "0", "__", "", now_ms, "", "", ""};
    own->finish_tail = keep(room, APPEND_WORDS(room, tail));
}

static void prepare(void)
{
    char now_ms[NUMBER_SIZE_MAX];
    snprintf(now_ms, sizeof now_ms, "%llu", (unsigned long long)(clock_ns(CLOCK_REALTIME) / 1000000));
    phrases = allocate((size_t)options.connections_count * sizeof(Phrases));
    for (int i = 0; i < options.connections_count; i++)
        make_phrases(&phrases[i], i, now_ms);
}

static int encode_put(char **out, Connection *connection, int jobs)
{
    (void)jobs; /* always one */
    const Piece *put = &phrases[connection->number].put;
    *out = append(*out, put->bytes, put->size);
    return 1;
}

static int encode_take(char **out, Connection *connection, int jobs)
{
    (void)jobs;
    const Piece *take = &phrases[connection->number].take;
    *out = append(*out, take->bytes, take->size);
    return 1;
}

static int encode_finish(char **out, const Connection *connection, const Ticket *ticket, int jobs)
{
    (void)jobs;
    const Phrases *own = &phrases[connection->number];
    size_t prefix_size = strlen(own->job_key);
    *out = append(*out, own->finish_head.bytes, own->finish_head.size);
    *out = append_head(*out, '$', prefix_size + ticket->size);
    *out = append(*out, own->job_key, prefix_size);
    *out = append(*out, ticket->text, ticket->size);
    *out = APPEND(*out, "\r\n");
    *out = append(*out, own->metrics_key.bytes, own->metrics_key.size);
    *out = append_text(*out, ticket->text, ticket->size);
    *out = append_text(*out, ticket->token, ticket->token_size);
    *out = append(*out, own->finish_tail.bytes, own->finish_tail.size);
    return 1;
}

/*
 * Walks one answer and collects its strings in order. Returns its end, or NULL while it is incomplete.
 * An answer that is an error or nil, or has more values than any expected answer, yields no strings.
 */
static const char *walk(const char *at, const char *end, Text *texts, int *count)
{
    size_t left = 1; /* values still to read; an array is replaced by its values */
    bool is_odd = false;
    *count = 0;
    while (left > 0) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (line_end == NULL)
            return NULL;
        const char *next = line_end + 1;
        bool is_nil = at[1] == '-';
        size_t number = 0;
        for (const char *digit = at + 1; *digit >= '0' && *digit <= '9'; digit++)
            number = number * 10 + (size_t)(*digit - '0');
        left--;
        if (*at == '*' && !is_nil) {
            left += number;
            is_odd |= left > DEPTH_MAX + TEXTS_MAX;
        } else if (*at == '$' && !is_nil) {
            if ((size_t)(end - next) < number + 2)
                return NULL;
            if (*count < TEXTS_MAX)
                texts[(*count)++] = (Text){.at = next, .size = number};
            next += number + 2;
        } else {
            is_odd = true;
        }
        at = next;
    }
    if (is_odd)
        *count = 0;
    return at;
}

static bool is_word(const Text *text, const char *word)
{
    return text->size == strlen(word) && memcmp(text->at, word, text->size) == 0;
}

/* The texts are a stream, an entry id, and the entry's fields; the field jobId names the job. */
static bool fill_ticket(const Text *texts, int count, Ticket *ticket)
{
    for (int i = 2; ticket != NULL && i + 1 < count; i += 2) {
        const Text *entry = &texts[1], *id = &texts[i + 1];
        if (!is_word(&texts[i], "jobId"))
            continue;
        if (id->size > TICKET_SIZE_MAX || entry->size > TICKET_SIZE_MAX)
            return false;
        ticket->size = (uint8_t)id->size;
        ticket->token_size = (uint8_t)entry->size;
        memcpy(ticket->text, id->at, id->size);
        memcpy(ticket->token, entry->at, entry->size);
        return true;
    }
    return false;
}

static AnswerKind judge(const Text *texts, int count, const Connection *connection)
{
    if (connection->phase == PHASE_TAKE)
        return fill_ticket(texts, count, free_ticket(connection, 0)) ? ANSWER_TAKEN : ANSWER_REFUSED;
    if (connection->phase == PHASE_FINISH)
        return count == 2 && is_word(texts, "NEXT_NONE") ? ANSWER_DONE : ANSWER_REFUSED;
    /* Ids are numbers here; any other text is the reason why there is no job. */
    bool is_id = count == 1 && texts->size > 0 && texts->at[0] >= '0' && texts->at[0] <= '9';
    return is_id ? ANSWER_PUT : ANSWER_REFUSED;
}

static bool parse(const char *at, const char *end, Connection *connection, Answer *answer)
{
    Text texts[TEXTS_MAX];
    int count;
    const char *rest = walk(at, end, texts, &count);
    if (rest == NULL)
        return false;
    answer->size = (size_t)(rest - at);
    answer->serial = NOT_NUMBERED;
    answer->jobs_count = 1;
    answer->kind = judge(texts, count, connection);
    return true;
}

const Protocol glidemq = {
    .name = "glidemq",
    .request_size_max = request_size_max,
    .answer_size_max = answer_size_max,
    .prepare = prepare,
    .encode_put = encode_put,
    .encode_take = encode_take,
    .encode_finish = encode_finish,
    .parse = parse,
};
