/*
 * Masenko and Workq, and the table of all protocols that the load generator speaks, which is the
 * last thing in this file; a new one is six functions, in a file of its own, and a row.
 */
#include "loadgen_text.h"

/* Masenko: lines of a verb and JSON. The payload is a string, --payload bytes with its quotes. */

static char *masenko_push(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "PUSH {\"queue\":\"");
    out = put(out, c->queue_name, c->queue_len);
    out = PUT(out, "\",\"name\":\"bench\",\"payload\":\"");
    out = put_serial(out, next_serial++);
    out = put(out, filler, payload_bytes - SERIAL - 2);
    return PUT(out, "\"}\n");
}

static ssize_t masenko_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    const char *at = in + 8;
    if (!STARTS(in, end, "OK {\"id\":"))
        return -1;
    while (++at < end && *at >= '0' && *at <= '9')
        ;
    return at > in + 9 && at + 1 == end && *at == '}' ? end + 1 - in : -1;
}

static char *masenko_take(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "FETCH {\"queues\":[\"");
    out = put(out, c->queue_name, c->queue_len);
    out = PUT(out, "\"],\"timeout\":\"");
    out = put_number(out, take_wait_ms);
    return PUT(out, "ms\"}\n");
}

static ssize_t masenko_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    ssize_t size = end + 1 - in;
    if (end - in == 8 && STARTS(in, end, "EMPTY {}"))
        return size;
    if (!STARTS(in, end, "OK {\"id\":"))
        return -1;
    const char *id = in + 9, *at = id;
    job->id = 0;
    while (at < end && *at >= '0' && *at <= '9')
        job->id = job->id * 10 + (uint64_t)(*at++ - '0');
    size_t id_len = (size_t)(at - id), rest = payload_bytes - SERIAL - 2;
    if (id_len == 0 || id_len > 20 || !STARTS(at, end, ",\"queue\":\""))
        return -1;
    at += 10;
    if (!starts(at, end, c->queue_name, c->queue_len))
        return -1;
    at += c->queue_len;
    if (!STARTS(at, end, "\",\"name\":\"bench\",\"payload\":\""))
        return -1;
    at += 28 + SERIAL;
    if (at > end || !starts(at, end, filler, rest))
        return -1;
    job->serial = read_serial(at - SERIAL);
    at += rest;
    if (!STARTS(at, end, "\"}") && !STARTS(at, end, "\",\"failures\":"))
        return -1;
    memcpy(job->ref, id, id_len);
    job->len = (uint8_t)id_len;
    return size;
}

static char *masenko_finish(char *out, const struct conn *c, int index) {
    out = PUT(out, "ACK {\"id\":");
    out = put(out, c->jobs[index].ref, c->jobs[index].len);
    return PUT(out, "}\n");
}

static ssize_t masenko_finished(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    return end - in == 5 && STARTS(in, end, "OK {}") ? 6 : -1;
}

/*
 * Workq: add, lease, complete. An id is a UUID of version 4 that holds a random number of the run,
 * the connection and the low digits of the serial number, so that it is unique over all of these
 * and says where its job belongs: rrrrrrrr-rrrr-4ccc-8ccc-ssssssssssss.
 */

enum { UUID = 36, UUID_SERIAL = 12 };

static char *put_uuid(char *out, uint32_t connection, uint64_t serial) {
    out = put_hex(out, run_number >> 16, 8);
    *out++ = '-';
    out = put_hex(out, run_number, 4);
    out = PUT(out, "-4");
    out = put_hex(out, connection >> 12, 3);
    out = PUT(out, "-8");
    out = put_hex(out, connection, 3);
    *out++ = '-';
    return put_hex(out, serial, UUID_SERIAL);
}

/* The connection that made this id; UINT64_MAX if it was not made here. */
static uint64_t read_uuid(const char *in) {
    uint64_t high = read_hex(in + 15, 3), low = read_hex(in + 20, 3);
    if (in[8] != '-' || memcmp(in + 13, "-4", 2) != 0 || memcmp(in + 18, "-8", 2) != 0 ||
        in[23] != '-' || high == UINT64_MAX || low == UINT64_MAX)
        return UINT64_MAX;
    return high << 12 | low;
}

static char *workq_push(char *out, const struct conn *c, int index) {
    (void)index;
    char serial[SERIAL];
    out = PUT(out, "add ");
    out = put_uuid(out, (uint32_t)c->index, next_serial);
    *out++ = ' ';
    out = put(out, c->queue_name, c->queue_len);
    out = PUT(out, " 60000 ");
    out = put_number(out, ttl_ms);
    *out++ = ' ';
    out = put_number(out, payload_bytes);
    out = PUT(out, "\r\n");
    put_serial(serial, next_serial++);
    return put_payload(out, serial);
}

static ssize_t workq_done(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    return end - in == 4 && STARTS(in, end, "+OK\r") ? 5 : -1;
}

static char *workq_take(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "lease ");
    out = put(out, c->queue_name, c->queue_len);
    *out++ = ' ';
    out = put_number(out, take_wait_ms);
    return PUT(out, "\r\n");
}

static ssize_t workq_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    if (end - in == 9 && STARTS(in, end, "-TIMEOUT\r"))
        return 10;
    if (end - in != 6 || !STARTS(in, end, "+OK 1\r"))
        return -1;
    const char *id = end + 1;
    end = memchr(id, '\n', len - 7);
    if (!end)
        return 0;
    char rest[64], *to = rest; /* of the line, behind the id */
    *to++ = ' ';
    to = put(to, c->queue_name, c->queue_len);
    *to++ = ' ';
    to = put_number(to, payload_bytes);
    *to++ = '\r';
    if (end - id != UUID + (to - rest) || memcmp(id + UUID, rest, (size_t)(to - rest)) != 0)
        return -1;
    const char *payload = end + 1;
    size_t need = (size_t)(payload - in) + payload_bytes + 2;
    if (len < need)
        return 0;
    uint64_t pusher = read_uuid(id);
    const char *digits = id + UUID - UUID_SERIAL;
    if (!is_payload(payload) || pusher == UINT64_MAX ||
        memcmp(payload + SERIAL - UUID_SERIAL, digits, UUID_SERIAL) != 0)
        return -1;
    job->serial = read_serial(payload);
    job->id = job->serial + 1;
    job->pusher = (uint32_t)pusher;
    memcpy(job->ref, id, UUID);
    job->len = UUID;
    return (ssize_t)need;
}

static char *workq_finish(char *out, const struct conn *c, int index) {
    out = PUT(out, "complete ");
    out = put(out, c->jobs[index].ref, c->jobs[index].len);
    return PUT(out, " 4\r\ndone\r\n");
}

static const struct driver masenko = {
    .name = "masenko",
    .op = {[PUSH] = {masenko_push, masenko_pushed},
           [TAKE] = {masenko_take, masenko_taken},
           [FINISH] = {masenko_finish, masenko_finished}},
};

static const struct driver workq = {
    .name = "workq",
    .op = {[PUSH] = {workq_push, workq_done},
           [TAKE] = {workq_take, workq_taken},
           [FINISH] = {workq_finish, workq_done}},
};

const struct driver *const drivers[] = {
    &masenko,    &workq,        &glovebox,  &glovebox_write, &glovebox_memory,
    &jobs,       &jobs_batch,   &lists,     &pqueue,         &zset,
    &redis_list, &redis_stream, &beanstalk, &nats,
};
const size_t driver_count = sizeof drivers / sizeof *drivers;
