/*
 * NATS JetStream: a publish that is answered when it is stored, a pull of as many messages as the
 * batch has, and an ack for each of them. Acks are not answered; they go out in one write with what
 * comes next. The first connection makes the stream, in files and as a work queue, and its
 * consumer.
 *
 * Each connection has two inboxes, one for answers to publishes and one for what it pulls, so that
 * neither passes for the other.
 */
#include <stdio.h>

#include "loadgen_text.h"

#define STREAM "bench"
#define PULL "$JS.API.CONSUMER.MSG.NEXT." STREAM "." STREAM

/* _INBOX.<run>.<connection>.<1 or 2> */
static char *put_inbox(char *out, const struct conn *c, char which) {
    out = put_hex(PUT(out, "_INBOX."), run_number, 12);
    *out++ = '.';
    out = put_hex(out, (uint64_t)c->index, 5);
    *out++ = '.';
    *out++ = which;
    return out;
}

/* Asks the server for something and dies unless it says that it is done. */
static void request(struct conn *c, const char *subject, const char *body) {
    char text[1024], *to = text;
    to += snprintf(to, 512, "PUB %s ", subject);
    to = put_inbox(to, c, '1');
    to += snprintf(to, 512, " %zu\r\n%s\r\n", strlen(body), body);
    say(c, text, (size_t)(to - text));
    hear_until(c, "MSG _INBOX.");
    hear_until(c, "\r\n");
    char *end;
    while (!(end = memchr(c->in, '\r', c->in_len)))
        hear(c);
    *end = 0;
    if (strstr(c->in, "\"error\""))
        die("%s: %s", subject, c->in);
    *end = '\r';
    hear_until(c, "\r\n");
}

static void nats_prepare(struct conn *c) {
    char text[512], *to = text;
    to = PUT(to, "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\","
                 "\"protocol\":1,\"headers\":true,\"no_responders\":true}\r\nSUB ");
    to = PUT(put_inbox(to, c, '1'), " 1\r\nSUB ");
    to = PUT(put_inbox(to, c, '2'), " 2\r\nPING\r\n");
    say(c, text, (size_t)(to - text));
    hear_until(c, "PONG\r\n");
    if (c->index > 0)
        return;
    request(c, "$JS.API.STREAM.CREATE." STREAM,
            "{\"name\":\"" STREAM "\",\"subjects\":[\"bench0\"],\"storage\":\"file\","
            "\"retention\":\"workqueue\"}");
    /* No bound on what may be unacknowledged or on waiting pulls: neither is to hold up a run. */
    request(c, "$JS.API.CONSUMER.DURABLE.CREATE." STREAM "." STREAM,
            "{\"stream_name\":\"" STREAM "\",\"config\":{\"durable_name\":\"" STREAM "\","
            "\"ack_policy\":\"explicit\",\"max_ack_pending\":-1,\"max_waiting\":100000}}");
}

/* When the server has answered this, it has read all that went before. */
static void nats_part(struct conn *c) {
    say(c, "PING\r\n", 6);
    hear_until(c, "PONG\r\n");
}

/* From time to time it tells about itself, or asks whether the client is there. */
static ssize_t nats_aside(struct conn *c, const char *in, size_t len) {
    bool asks = *in == 'P';
    if (!asks && *in != 'I')
        return -1;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    if (!STARTS(in, end, "INFO {") && !STARTS(in, end, "PING\r"))
        return -1;
    c->owes_answer |= asks;
    return end + 1 - in;
}

static char *nats_answer(char *out) { return PUT(out, "PONG\r\n"); }

static char *nats_push(char *out, const struct conn *c, int index) {
    (void)index;
    char serial[SERIAL];
    out = PUT(out, "PUB ");
    out = put(out, c->queue_name, c->queue_len);
    *out++ = ' ';
    out = put_inbox(out, c, '1');
    *out++ = ' ';
    out = PUT(put_number(out, payload_bytes), "\r\n");
    put_serial(serial, next_serial++);
    return put_payload(out, serial);
}

/* Behind `word`, what a line says: subject, which inbox, where to reply if anywhere, the sizes. */
struct line {
    const char *part[5], *end[5];
    int parts;
    const char *body;
};

/* Answers 1, 0 if the line is not all there, -1 if it begins with something else. */
static int read_line(const char *in, size_t len, const char *word, struct line *line) {
    const char *end = memchr(in, '\n', len), *at = in + strlen(word);
    if (!end)
        return 0;
    if (!starts(in, end, word, strlen(word)) || end[-1] != '\r')
        return -1;
    line->body = end + 1;
    for (line->parts = 0; line->parts < 5 && at < end; line->parts++) {
        line->part[line->parts] = at;
        while (*at != ' ' && *at != '\r')
            at++;
        line->end[line->parts] = at++;
    }
    return 1;
}

static bool is_from(const struct line *line, char inbox) {
    return line->end[1] == line->part[1] + 1 && *line->part[1] == inbox;
}

static size_t size_in(const struct line *line, int part) {
    size_t n = 0;
    for (const char *at = line->part[part]; at < line->end[part]; at++) {
        if (*at < '0' || *at > '9' || n > MAX_PAYLOAD)
            return SIZE_MAX;
        n = n * 10 + (size_t)(*at - '0');
    }
    return n;
}

static ssize_t nats_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    static const char stored[] = "{\"stream\":\"" STREAM "\",";
    struct line line;
    int found = read_line(in, len, "MSG ", &line);
    if (found <= 0)
        return found;
    size_t size = line.parts == 3 && is_from(&line, '1') ? size_in(&line, 2) : SIZE_MAX;
    if (size == SIZE_MAX)
        return -1;
    const char *end = line.body + size;
    if (in + len < end + 2)
        return 0;
    return STARTS(line.body, end, stored) && memcmp(end, "\r\n", 2) == 0 ? end + 2 - in : -1;
}

static char *nats_take(char *out, const struct conn *c, int count) {
    char ask[80], *end = put_number(PUT(ask, "{\"batch\":"), (uint64_t)count);
    if (opt.mode == DRAIN)
        end = PUT(end, ",\"no_wait\":true}");
    else
        end = PUT(put_number(PUT(end, ",\"expires\":"), take_wait_ms), "000000}");
    out = put_inbox(PUT(out, "PUB " PULL " "), c, '2');
    *out++ = ' ';
    out = PUT(put_number(out, (uint64_t)(end - ask)), "\r\n");
    return PUT(put(out, ask, (size_t)(end - ask)), "\r\n");
}

/* That there are no more: a message that has only headers, with a status. */
static ssize_t nats_no_more(struct conn *c, const char *in, size_t len) {
    struct line line;
    int found = read_line(in, len, "HMSG ", &line);
    if (found <= 0)
        return found;
    size_t size = line.parts == 4 && is_from(&line, '2') ? size_in(&line, 3) : SIZE_MAX;
    if (size == SIZE_MAX)
        return -1;
    const char *end = line.body + size;
    if (in + len < end + 2)
        return 0;
    if (!STARTS(line.body, end, "NATS/1.0 404 ") && !STARTS(line.body, end, "NATS/1.0 408 "))
        return -1;
    c->settles = c->want;
    return end + 2 - in;
}

static ssize_t nats_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    struct line line;
    if (*in == 'H')
        return nats_no_more(c, in, len);
    int found = read_line(in, len, "MSG ", &line);
    if (found <= 0)
        return found;
    if (line.parts != 4 || !is_from(&line, '2') || size_in(&line, 3) != payload_bytes ||
        !starts(line.part[0], line.end[0], c->queue_name, c->queue_len))
        return -1;
    size_t ref = (size_t)(line.end[2] - line.part[2]);
    if (ref > sizeof job->ref || !STARTS(line.part[2], line.end[2], "$JS.ACK."))
        return -1;
    size_t need = (size_t)(line.body - in) + payload_bytes + 2;
    if (len < need)
        return 0;
    job->serial = read_serial(line.body);
    if (!is_payload(line.body) || job->serial == UINT64_MAX)
        return -1;
    memcpy(job->ref, line.part[2], ref);
    job->len = (uint8_t)ref;
    job->id = job->serial + 1;
    job->pusher = UINT32_MAX; /* it does not say, so that nothing is known of the order */
    return (ssize_t)need;
}

static char *nats_finish(char *out, const struct conn *c, int index) {
    out = PUT(out, "PUB ");
    out = put(out, c->jobs[index].ref, c->jobs[index].len);
    return PUT(out, " 4\r\n+ACK\r\n");
}

const struct driver nats = {
    .name = "nats",
    .op = {[PUSH] = {nats_push, nats_pushed},
           [TAKE] = {.build_all = nats_take, .parse = nats_taken},
           [FINISH] = {.build = nats_finish}},
    .prepare = nats_prepare,
    .part = nats_part,
    .aside = nats_aside,
    .answer = nats_answer,
    .one_queue = true,
};
