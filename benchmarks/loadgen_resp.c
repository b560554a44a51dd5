/*
 * Redis's lists as a reliable queue and as a plain one, and priority queues, which Taskyard has
 * too. Its streams are in loadgen_streams.c, Taskyard's own words in loadgen_jobs.c.
 */
#include "loadgen_resp.h"

/* The length of a list, which is at least 1 after a push. */
static ssize_t list_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len), *at = in + 1;
    if (!end)
        return 0;
    if (*in != ':' || *at == '0')
        return -1;
    while (*at >= '0' && *at <= '9')
        at++;
    return at > in + 1 && *at == '\r' && at + 1 == end ? end + 1 - in : -1;
}

/* A payload, or nil from an empty list. */
static ssize_t list_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c;
    char line[24], *to = line;
    *to++ = '$';
    to = put_number(to, payload_bytes);
    to = PUT(to, "\r\n");
    size_t head = (size_t)(to - line), need = head + payload_bytes + 2;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    if (end - in == 4 && STARTS(in, end, "$-1\r"))
        return 5;
    if ((size_t)(end + 1 - in) != head || memcmp(in, line, head) != 0)
        return -1;
    if (len < need)
        return 0;
    const char *value = in + head;
    uint64_t serial = read_serial(value);
    if (!is_payload(value) || serial == UINT64_MAX)
        return -1;
    hold(job, value, SERIAL, serial);
    return (ssize_t)need;
}

/*
 * Redis lists, the reliable queue of its documentation: LPUSH, LMOVE to the worker's own
 * processing list, LREM from there. Each connection has its own processing list and finishes
 * in the order it took, so that LREM finds its element at the head: the cheapest form for Redis.
 */

static char *redis_list_push(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*3\r\n$5\r\nLPUSH\r\n");
    return put_new_value(put_bulk(out, c->queue_name, c->queue_len));
}

static char *redis_list_take(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*5\r\n$5\r\nLMOVE\r\n");
    out = put_bulk(out, c->queue_name, c->queue_len);
    out = put_bulk(out, c->holder_name, c->holder_len);
    return PUT(out, "$5\r\nRIGHT\r\n$5\r\nRIGHT\r\n");
}

static char *redis_list_finish(char *out, const struct conn *c, int index) {
    out = PUT(out, "*4\r\n$4\r\nLREM\r\n");
    out = put_bulk(out, c->holder_name, c->holder_len);
    out = PUT(out, "$1\r\n1\r\n");
    return put_value(out, c->jobs[index].ref);
}

static ssize_t redis_list_finished(struct conn *c, const char *in, size_t len,
                                   struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    return end - in == 3 && STARTS(in, end, ":1\r") ? 4 : -1;
}

const struct driver redis_list = {
    .name = "redis-list",
    .op = {[PUSH] = {redis_list_push, list_pushed},
           [TAKE] = {redis_list_take, list_taken},
           [FINISH] = {redis_list_finish, redis_list_finished}},
};

/* Lists as a plain queue, in Taskyard and in Redis: RPUSH, and LPOP, after which a job is gone. */

static char *lists_push(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*3\r\n$5\r\nRPUSH\r\n");
    return put_new_value(put_bulk(out, c->queue_name, c->queue_len));
}

static char *lists_take(char *out, const struct conn *c, int index) {
    (void)index;
    return put_bulk(PUT(out, "*2\r\n$4\r\nLPOP\r\n"), c->queue_name, c->queue_len);
}

const struct driver lists = {
    .name = "lists",
    .op = {[PUSH] = {lists_push, list_pushed}, [TAKE] = {lists_take, list_taken}},
};

/*
 * Priority queues: the item is its own payload, a short name with a serial number, which also says
 * with which of --scores different scores it was queued.
 */

enum { ITEM = 5 + SERIAL };

static char *put_item(char *out, uint64_t serial) { return put_serial(PUT(out, "item:"), serial); }

static char *put_item_bulk(char *out, uint64_t serial) {
    char item[ITEM];
    put_item(item, serial);
    return put_bulk(out, item, sizeof item);
}

static uint64_t score_of(uint64_t serial) { return serial % opt.scores + 1; }

static char *put_score_bulk(char *out, uint64_t serial) {
    char score[20];
    return put_bulk(out, score, (size_t)(put_number(score, score_of(serial)) - score));
}

/* Of the push that is answered next. */
static uint64_t serial_of_reply(const struct conn *c) {
    return c->first_serial + (uint64_t)(c->batch - c->want);
}

static bool holds_item(const char *in, const char *end, struct job *job) {
    if (end - in != ITEM || !STARTS(in, end, "item:"))
        return false;
    uint64_t serial = read_serial(in + ITEM - SERIAL);
    hold(job, in, ITEM, serial);
    return serial != UINT64_MAX;
}

/* Pqueue in Taskyard: UPDATE and NEXT. */

static char *pqueue_push(char *out, const struct conn *c, int index) {
    (void)c, (void)index;
    out = PUT(out, "*3\r\n$6\r\nUPDATE\r\n");
    out = put_item_bulk(out, next_serial);
    return put_score_bulk(out, next_serial++);
}

static ssize_t pqueue_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)job;
    char text[24];
    char *end = put_number(PUT(text, ":"), score_of(serial_of_reply(c)));
    return expect_text(in, len, text, (size_t)(PUT(end, "\r\n") - text));
}

static char *pqueue_take(char *out, const struct conn *c, int index) {
    (void)c, (void)index;
    return PUT(out, "*1\r\n$4\r\nNEXT\r\n");
}

static ssize_t pqueue_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    if (end - in == 4 && STARTS(in, end, "$-1\r"))
        return 5;
    if (*in != '+' || end[-1] != '\r' || !holds_item(in + 1, end - 1, job))
        return -1;
    return end + 1 - in;
}

const struct driver pqueue = {
    .name = "pqueue",
    .op = {[PUSH] = {pqueue_push, pqueue_pushed}, [TAKE] = {pqueue_take, pqueue_taken}},
    .one_queue = true,
};

/* What comes nearest in Redis, a sorted set: ZINCRBY and ZPOPMAX. */

static char *zset_push(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*4\r\n$7\r\nZINCRBY\r\n");
    out = put_bulk(out, c->queue_name, c->queue_len);
    out = put_score_bulk(out, next_serial);
    return put_item_bulk(out, next_serial++);
}

static ssize_t zset_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)job;
    char text[32];
    char *end = put_score_bulk(text, serial_of_reply(c));
    return expect_text(in, len, text, (size_t)(end - text));
}

static char *zset_take(char *out, const struct conn *c, int index) {
    (void)index;
    return put_bulk(PUT(out, "*2\r\n$7\r\nZPOPMAX\r\n"), c->queue_name, c->queue_len);
}

/* The item and its score, or an empty array. */
static ssize_t zset_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c;
    static const char head[] = "*2\r\n$21\r\n", none[] = "*0\r\n";
    _Static_assert(ITEM == 21, "the head gives the length of an item");
    ssize_t used = expect_text(in, len, none, sizeof none - 1);
    if (used >= 0)
        return used;
    used = expect_text(in, len, head, sizeof head - 1);
    if (used <= 0 || len < sizeof head - 1 + ITEM + 2)
        return used < 0 ? -1 : 0;
    const char *item = in + used, *rest = item + ITEM;
    if (memcmp(rest, "\r\n", 2) != 0 || !holds_item(item, rest, job))
        return -1;
    char score[32];
    size_t size = (size_t)(put_score_bulk(score, job->serial) - score);
    used = expect_text(rest + 2, len - (size_t)(rest + 2 - in), score, size);
    return used > 0 ? rest + 2 + used - in : used;
}

const struct driver zset = {
    .name = "zset",
    .op = {[PUSH] = {zset_push, zset_pushed}, [TAKE] = {zset_take, zset_taken}},
};
