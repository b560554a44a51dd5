/*
 * Glovebox, Taskyard's labelled messages over a WebSocket, in JSON: post, fetch and finish, each a
 * frame of its own. A post asks to be told when it is as durable as the name of the driver says,
 * and so does a finish: `glovebox` goes with a server that flushes, the others with one that only
 * writes or keeps all in memory, so that an answer means what it means in the other protocols.
 *
 * Labels are places in the batch. Answers may come in any order, so that a label is only looked at
 * for being one of those.
 */
#include "loadgen_text.h"

enum { TEXT = 0x81, PING = 0x89, PONG = 0x8a, MASKED = 0x80, HEAD = 14 /* the longest */ };

static char *put_length(char *out, size_t len, int masked) {
    if (len < 126) {
        *out++ = (char)(masked | (int)len);
        return out;
    }
    int bytes = len < 65536 ? 2 : 8;
    *out++ = (char)(masked | (bytes == 2 ? 126 : 127));
    for (int i = bytes - 1; i >= 0; i--)
        *out++ = (char)(len >> 8 * i);
    return out;
}

/* Puts the head of a frame at `out` and the body behind it, which is HEAD bytes further on. */
static char *put_frame(char *out, const char *end) {
    const char *from = out + HEAD;
    size_t len = (size_t)(end - from), i = 0;
    uint32_t key = (uint32_t)run_number | 1;
    uint64_t keys = (uint64_t)key << 32 | key;
    *out++ = (char)TEXT;
    out = put_length(out, len, MASKED);
    out = put(out, &key, sizeof key);
    for (; i + 8 <= len; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, 8);
        word ^= keys;
        memcpy(out + i, &word, 8);
    }
    for (; i < len; i++)
        out[i] = (char)(from[i] ^ ((const char *)&key)[i & 3]);
    return out + len;
}

/* Finds the body of a frame with this first byte: the bytes of it all, 0 or -1. */
static ssize_t read_frame(const char *in, size_t len, int kind, const char **body, size_t *size) {
    if ((uint8_t)*in != kind)
        return -1;
    if (len < 2)
        return 0;
    uint64_t n = (uint8_t)in[1];
    size_t head = n < 126 ? 2 : n == 126 ? 4 : 10;
    if (n > 127)
        return -1;
    if (len < head)
        return 0;
    for (size_t i = 2, more = n < 126 ? 0 : 1; more && i < head; i++)
        n = (i == 2 ? 0 : n << 8) | (uint8_t)in[i];
    if (n > READ_BYTES + payload_bytes - 10)
        return -1;
    if (len < head + n)
        return 0;
    *body = in + head;
    *size = n;
    return (ssize_t)(head + n);
}

static void hear_frame(struct conn *c, char *text, size_t room) {
    const char *body;
    size_t size;
    ssize_t used;
    while (!c->in_len || !(used = read_frame(c->in, c->in_len, TEXT, &body, &size)))
        hear(c);
    if (used < 0 || size >= room)
        die("connection %d: not the beginning of Glovebox", c->index);
    memcpy(text, body, size);
    text[size] = 0;
    forget(c, (size_t)used);
}

static void glovebox_prepare(struct conn *c) {
    static const char upgrade[] = "GET /connect/ HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                  "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                  "Sec-WebSocket-Version: 13\r\n\r\n";
    char text[1024], *to = text + HEAD;
    say(c, upgrade, sizeof upgrade - 1);
    hear_until(c, "HTTP/1.1 101 ");
    hear_until(c, "\r\n\r\n");
    hear_frame(c, text, sizeof text);
    if (!strstr(text, "\"type\":\"hello\""))
        die("connection %d: %s", c->index, text);
    if (c->index > 0)
        return;
    to = put(PUT(to, "{\"type\":\"create\",\"queue\":\""), c->queue_name, c->queue_len);
    to = put_frame(text, PUT(to, "\"}"));
    say(c, text, (size_t)(to - text));
    hear_frame(c, text, sizeof text);
    if (!strstr(text, "\"notice\":\"ready\"") && !strstr(text, "\"ObjectAlreadyExists\""))
        die("create: %s", text);
}

/* After a time without a word it asks whether the client is there. */
static ssize_t glovebox_aside(struct conn *c, const char *in, size_t len) {
    const char *body;
    size_t size;
    ssize_t used = read_frame(in, len, PING, &body, &size);
    c->owes_answer |= used > 0;
    return used;
}

static char *glovebox_answer(char *out) {
    static const char pong[] = {(char)PONG, (char)MASKED, 0, 0, 0, 0};
    return put(out, pong, sizeof pong);
}

static char *put_kind(char *out, const struct conn *c, const char *kind) {
    out = PUT(out, "{\"type\":\"");
    out = put(out, kind, strlen(kind));
    out = PUT(out, "\",\"queue\":\"");
    return PUT(put(out, c->queue_name, c->queue_len), "\",\"label\":");
}

static char *glovebox_push(char *out, const struct conn *c, int index) {
    const char *stage = opt.driver->durability;
    char *to = put_number(put_kind(out + HEAD, c, "post"), (uint64_t)index);
    to = put(PUT(to, ",\"notify\":[\""), stage, strlen(stage));
    to = put_serial(PUT(to, "\"],\"message\":\""), next_serial++);
    to = put(to, filler, payload_bytes - SERIAL);
    return put_frame(out, PUT(to, "\"}"));
}

static char *glovebox_take(char *out, const struct conn *c, int index) {
    char *to = put_number(put_kind(out + HEAD, c, "fetch"), (uint64_t)index);
    if (opt.mode != DRAIN)
        to = put_number(PUT(to, ",\"block_timeout\":"), take_wait_ms / 1000);
    return put_frame(out, PUT(to, ",\"work_timeout\":60}"));
}

static char *glovebox_finish(char *out, const struct conn *c, int index) {
    const char *stage = opt.driver->durability;
    char *to = put_number(put_kind(out + HEAD, c, "finish"), (uint64_t)index);
    to = put(PUT(to, ",\"sequence\":"), c->jobs[index].ref, c->jobs[index].len);
    to = put(PUT(to, ",\"shard\":0,\"response\":\""), stage, strlen(stage));
    return put_frame(out, PUT(to, "\"}"));
}

/* Moves `at` behind the number there; -1 if there is none. */
static int64_t read_number(const char **at, const char *end) {
    const char *from = *at;
    int64_t n = 0;
    for (; *at < end && **at >= '0' && **at <= '9' && *at - from < 18; ++*at)
        n = n * 10 + (**at - '0');
    return *at == from ? -1 : n;
}

/* Moves `at` behind the beginning of an answer of this kind with one of our labels. */
static bool is_answer(const struct conn *c, const char **at, const char *end, const char *kind) {
    size_t len = strlen(kind);
    if (!starts(*at, end, kind, len))
        return false;
    *at += len;
    int64_t label = read_number(at, end);
    return label >= 0 && label < c->batch;
}

static ssize_t is_notice(struct conn *c, const char *in, size_t len, const char *stage) {
    const char *at;
    size_t size, stage_len = strlen(stage);
    ssize_t used = read_frame(in, len, TEXT, &at, &size);
    if (used <= 0)
        return used;
    const char *end = at + size;
    if (!is_answer(c, &at, end, "{\"type\":\"notice\",\"label\":") ||
        !STARTS(at, end, ",\"notice\":\""))
        return -1;
    at += 11;
    return starts(at, end, stage, stage_len) && end == at + stage_len + 2 ? used : -1;
}

static ssize_t glovebox_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)job;
    return is_notice(c, in, len, opt.driver->durability);
}

static ssize_t glovebox_finished(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)job;
    return is_notice(c, in, len, "finish");
}

static ssize_t glovebox_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    const char *at;
    size_t size;
    ssize_t used = read_frame(in, len, TEXT, &at, &size);
    if (used <= 0)
        return used;
    const char *end = at + size;
    if (is_answer(c, &at, end, "{\"type\":\"nomessage\",\"label\":"))
        return used;
    if (!is_answer(c, &at, end, "{\"type\":\"message\",\"label\":") ||
        !STARTS(at, end, ",\"shard\":0,\"sequence\":"))
        return -1;
    const char *sequence = at += 22;
    int64_t id = read_number(&at, end);
    size_t ref = (size_t)(at - sequence);
    if (id <= 0 || !STARTS(at, end, ",\"body\":\""))
        return -1;
    const char *payload = at + 9, *rest = payload + payload_bytes;
    if (end - payload < (ssize_t)payload_bytes ||
        memcmp(payload + SERIAL, filler, payload_bytes - SERIAL) != 0 ||
        !STARTS(rest, end, "\",\"finished\":false}"))
        return -1;
    job->id = (uint64_t)id;
    job->serial = read_serial(payload);
    memcpy(job->ref, sequence, ref);
    job->len = (uint8_t)ref;
    return job->serial == UINT64_MAX ? -1 : used;
}

#define GLOVEBOX(name_, durability_)                                                              \
    {                                                                                              \
        .name = name_, .durability = durability_, .prepare = glovebox_prepare,                     \
        .aside = glovebox_aside, .answer = glovebox_answer, .one_queue = true,                     \
        .op = {[PUSH] = {glovebox_push, glovebox_pushed},                                          \
               [TAKE] = {glovebox_take, glovebox_taken},                                           \
               [FINISH] = {glovebox_finish, glovebox_finished}},                                   \
    }

const struct driver glovebox = GLOVEBOX("glovebox", "sync");
const struct driver glovebox_write = GLOVEBOX("glovebox-write", "write");
const struct driver glovebox_memory = GLOVEBOX("glovebox-memory", "ready");
