/*
 * Redis streams with a consumer group: XADD, XREADGROUP, and XACK with XDEL as the finish, so that
 * the stream does not grow. Each connection is a consumer of its own. A batch is taken with one
 * command and finished with two, which is the cheapest form for Redis; it has no command that adds
 * many entries.
 */
#include "loadgen_resp.h"

#define GROUP "$5\r\nbench\r\n"

static void stream_prepare(struct conn *c) {
    char text[128], *to = PUT(text, "*6\r\n$6\r\nXGROUP\r\n$6\r\nCREATE\r\n");
    if (c->index > 0)
        return;
    to = put_bulk(to, c->queue_name, c->queue_len);
    to = PUT(to, GROUP "$1\r\n0\r\n$8\r\nMKSTREAM\r\n");
    say(c, text, (size_t)(to - text));
    while (!memchr(c->in, '\n', c->in_len))
        hear(c);
    if (!STARTS(c->in, c->in + c->in_len, "+OK\r\n") &&
        !STARTS(c->in, c->in + c->in_len, "-BUSYGROUP "))
        die("XGROUP CREATE: %.*s", (int)c->in_len, c->in);
    forget(c, c->in_len);
}

static char *stream_push(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*5\r\n$4\r\nXADD\r\n");
    out = put_bulk(out, c->queue_name, c->queue_len);
    return put_new_value(PUT(out, "$1\r\n*\r\n$1\r\nd\r\n"));
}

static bool is_entry_id(const char *id, size_t size) {
    size_t dashes = 0;
    for (size_t i = 0; i < size; i++) {
        dashes += id[i] == '-';
        if (id[i] != '-' && (id[i] < '0' || id[i] > '9'))
            return false;
    }
    return dashes == 1 && size >= 3 && size <= 41;
}

static ssize_t stream_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *at = in, *id;
    size_t size;
    int found = read_bulk(&at, in + len, &id, &size);
    if (found <= 0)
        return found;
    return is_entry_id(id, size) ? at - in : -1;
}

static char *stream_take(char *out, const struct conn *c, int count) {
    out = PUT(out, "*9\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n" GROUP);
    out = put_bulk(out, c->holder_name, c->holder_len);
    out = put_number_bulk(PUT(out, "$5\r\nCOUNT\r\n"), (uint64_t)count);
    out = put_bulk(PUT(out, "$7\r\nSTREAMS\r\n"), c->queue_name, c->queue_len);
    return PUT(out, "$1\r\n>\r\n");
}

/* Nothing, or the one stream with so many entries, which follow. */
static ssize_t entries_head(struct conn *c, const char *in, size_t len) {
    char head[64], *to = PUT(head, "*1\r\n*2\r\n");
    const char *at = in;
    int64_t entries;
    to = put_bulk(to, c->queue_name, c->queue_len);
    ssize_t used = expect_text(in, len, "*-1\r\n", 5);
    if (used > 0)
        c->settles = c->want;
    if (used >= 0)
        return used;
    used = expect_text(in, len, head, (size_t)(to - head));
    if (used <= 0)
        return used;
    at += used;
    int found = read_count(&at, in + len, '*', &entries);
    if (found <= 0)
        return found;
    if (entries < 1 || entries > c->want)
        return -1;
    c->inside = (int)entries;
    c->settles = 0;
    return at - in;
}

static ssize_t stream_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    static const char fields[] = "*2\r\n$1\r\nd\r\n";
    const char *at = in + 4, *end = in + len, *id;
    size_t size;
    uint64_t serial;
    if (!c->inside)
        return entries_head(c, in, len);
    ssize_t used = expect_text(in, len, "*2\r\n", 4);
    if (used <= 0)
        return used;
    int found = read_bulk(&at, end, &id, &size);
    if (found <= 0)
        return found;
    used = expect_text(at, (size_t)(end - at), fields, sizeof fields - 1);
    if (used <= 0)
        return used;
    at += used;
    found = read_value(&at, end, &serial);
    if (found <= 0)
        return found;
    if (!is_entry_id(id, size))
        return -1;
    hold(job, id, size, serial);
    if (--c->inside == 0)
        c->settles = c->want;
    return at - in;
}

static char *put_ids(char *out, const struct conn *c, int count) {
    for (int i = 0; i < count; i++)
        out = put_bulk(out, c->jobs[i].ref, c->jobs[i].len);
    return out;
}

static char *stream_finish(char *out, const struct conn *c, int count) {
    out = put_array(out, (uint64_t)count + 3);
    out = put_bulk(PUT(out, "$4\r\nXACK\r\n"), c->queue_name, c->queue_len);
    out = put_ids(PUT(out, GROUP), c, count);
    out = put_array(out, (uint64_t)count + 2);
    out = put_bulk(PUT(out, "$4\r\nXDEL\r\n"), c->queue_name, c->queue_len);
    return put_ids(out, c, count);
}

/* Both commands must have found all of them. */
static ssize_t stream_finished(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)job;
    const char *at = in, *end = in + len;
    int64_t acked, deleted;
    int found = read_count(&at, end, ':', &acked);
    if (found > 0)
        found = read_count(&at, end, ':', &deleted);
    if (found <= 0)
        return found;
    if (acked != c->want || deleted != c->want)
        return -1;
    c->settles = c->want;
    return at - in;
}

const struct driver redis_stream = {
    .name = "redis-stream",
    .op = {[PUSH] = {stream_push, stream_pushed},
           [TAKE] = {.build_all = stream_take, .parse = stream_taken},
           [FINISH] = {.build_all = stream_finish, .parse = stream_finished}},
    .prepare = stream_prepare,
    .one_queue = true,
};
