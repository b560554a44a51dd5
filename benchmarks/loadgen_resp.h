/* What the messages of Redis are made of. Commands go out as arrays of bulk strings, as every
 * client library sends them. */
#ifndef LOADGEN_RESP_H
#define LOADGEN_RESP_H

#include "loadgen_text.h"

/* Where nothing says who has pushed a job, a drain cannot look at the order. */
enum { NO_PUSHER = UINT32_MAX };

static inline char *put_bulk(char *out, const char *text, size_t len) {
    *out++ = '$';
    out = put_number(out, len);
    out = PUT(out, "\r\n");
    out = put(out, text, len);
    return PUT(out, "\r\n");
}

static inline char *put_number_bulk(char *out, uint64_t n) {
    char digits[20];
    return put_bulk(out, digits, (size_t)(put_number(digits, n) - digits));
}

/* The head of a command of so many parts. */
static inline char *put_array(char *out, uint64_t parts) {
    return PUT(put_number(PUT(out, "*"), parts), "\r\n");
}

static inline char *put_value(char *out, const char *head) {
    *out++ = '$';
    out = put_number(out, payload_bytes);
    out = PUT(out, "\r\n");
    return put_payload(out, head);
}

static inline char *put_new_value(char *out) {
    char head[SERIAL];
    put_serial(head, next_serial++);
    return put_value(out, head);
}

static inline void hold(struct job *job, const char *ref, size_t len, uint64_t serial) {
    memcpy(job->ref, ref, len);
    job->len = (uint8_t)len;
    job->serial = serial;
    job->id = serial + 1;
    job->pusher = NO_PUSHER;
}

/* Whether the reply begins with exactly this: its length, 0 if it is not all there, -1 if not. */
static inline ssize_t expect_text(const char *in, size_t len, const char *text, size_t size) {
    if (memcmp(in, text, len < size ? len : size) != 0)
        return -1;
    return len < size ? 0 : (ssize_t)size;
}

/*
 * Reading goes through a reply from its beginning: each of these moves `at` behind one element.
 * They answer 1, 0 if it is not all there, -1 if it is something else.
 */

/* A line of this kind (':', '*', '$') with a number. */
static inline int read_count(const char **at, const char *end, char kind, int64_t *n) {
    const char *in = *at;
    if (in == end)
        return 0;
    if (*in++ != kind)
        return -1;
    bool negative = in < end && *in == '-';
    in += negative;
    uint64_t value = 0;
    const char *digits = in;
    for (; in < end && *in >= '0' && *in <= '9'; in++)
        value = value * 10 + (uint64_t)(*in - '0');
    if (end - in < 2)
        return in == end || *in == '\r' ? 0 : -1;
    if (in == digits || in - digits > 18 || in[0] != '\r' || in[1] != '\n')
        return -1;
    *n = negative ? -(int64_t)value : (int64_t)value;
    *at = in + 2;
    return 1;
}

static inline int read_bulk(const char **at, const char *end, const char **text, size_t *size) {
    int64_t len;
    const char *in = *at;
    int found = read_count(&in, end, '$', &len);
    if (found <= 0)
        return found;
    if (len < 0 || len > MAX_PAYLOAD)
        return -1;
    if (end - in < len + 2)
        return 0;
    if (in[len] != '\r' || in[len + 1] != '\n')
        return -1;
    *text = in;
    *size = (size_t)len;
    *at = in + len + 2;
    return 1;
}

/* A payload and its serial number. */
static inline int read_value(const char **at, const char *end, uint64_t *serial) {
    const char *text;
    size_t size;
    int found = read_bulk(at, end, &text, &size);
    if (found <= 0)
        return found;
    if (size != payload_bytes || !is_payload(text))
        return -1;
    *serial = read_serial(text);
    return *serial == UINT64_MAX ? -1 : 1;
}

#endif
