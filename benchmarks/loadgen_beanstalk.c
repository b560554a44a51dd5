/* beanstalkd: put, reserve-with-timeout 0, delete, in the tube that every connection starts with.
 * It has no command for many jobs, so that a batch is as many commands in one write. */
#include "loadgen_text.h"

static char *beanstalk_push(char *out, const struct conn *c, int index) {
    (void)c, (void)index;
    char serial[SERIAL];
    out = PUT(out, "put 0 0 60 "); /* priority, delay, seconds that a reservation lasts */
    out = PUT(put_number(out, payload_bytes), "\r\n");
    put_serial(serial, next_serial++);
    return put_payload(out, serial);
}

/* The number at `at`, which moves behind it; 0 if there is none, which is no job's. */
static uint64_t read_number(const char **at, const char *end) {
    uint64_t n = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        n = n * 10 + (uint64_t)(**at - '0');
    return n;
}

static ssize_t beanstalk_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len), *at = in + 9;
    if (!end)
        return 0;
    if (!STARTS(in, end, "INSERTED ") || !read_number(&at, end))
        return -1;
    return at + 1 == end && *at == '\r' ? end + 1 - in : -1;
}

static char *beanstalk_take(char *out, const struct conn *c, int index) {
    (void)c, (void)index;
    return PUT(out, "reserve-with-timeout 0\r\n");
}

static ssize_t beanstalk_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c;
    const char *end = memchr(in, '\n', len), *id = in + 9, *at = id;
    if (!end)
        return 0;
    if (end - in == 10 && STARTS(in, end, "TIMED_OUT\r"))
        return 11;
    if (!STARTS(in, end, "RESERVED ") || !(job->id = read_number(&at, end)) || *at != ' ')
        return -1;
    size_t size = (size_t)(at++ - id);
    if (size > 20 || read_number(&at, end) != payload_bytes || at + 1 != end || *at != '\r')
        return -1;
    const char *payload = end + 1;
    size_t need = (size_t)(payload - in) + payload_bytes + 2;
    if (len < need)
        return 0;
    job->serial = read_serial(payload);
    if (!is_payload(payload) || job->serial == UINT64_MAX)
        return -1;
    memcpy(job->ref, id, size);
    job->len = (uint8_t)size;
    return (ssize_t)need;
}

static char *beanstalk_finish(char *out, const struct conn *c, int index) {
    out = PUT(out, "delete ");
    out = put(out, c->jobs[index].ref, c->jobs[index].len);
    return PUT(out, "\r\n");
}

static ssize_t beanstalk_finished(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *end = memchr(in, '\n', len);
    if (!end)
        return 0;
    return end - in == 8 && STARTS(in, end, "DELETED\r") ? 9 : -1;
}

const struct driver beanstalk = {
    .name = "beanstalk",
    .op = {[PUSH] = {beanstalk_push, beanstalk_pushed},
           [TAKE] = {beanstalk_take, beanstalk_taken},
           [FINISH] = {beanstalk_finish, beanstalk_finished}},
    .one_queue = true,
};
