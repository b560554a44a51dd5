/*
 * Taskyard's own words among Redis's messages: JOB.PUSH, JOB.TAKE and JOB.DONE, one by one; and RPUSH
 * of many, JOB.TAKE with COUNT and BRIEF, and JOB.DONEALL, where one command is for a whole batch.
 */
#include "loadgen_resp.h"

enum { MOST_AT_ONCE = 1000 }; /* of one command */

static char *jobs_push(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*3\r\n$8\r\nJOB.PUSH\r\n");
    return put_new_value(put_bulk(out, c->queue_name, c->queue_len));
}

static ssize_t jobs_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    const char *at = in;
    int64_t id = 0;
    int found = read_count(&at, in + len, ':', &id);
    if (found <= 0)
        return found;
    return id > 0 ? at - in : -1;
}

static char *jobs_push_all(char *out, const struct conn *c, int count) {
    out = PUT(put_array(out, 2 + (uint64_t)count), "$5\r\nRPUSH\r\n");
    out = put_bulk(out, c->queue_name, c->queue_len);
    for (int i = 0; i < count; i++)
        out = put_new_value(out);
    return out;
}

/* How many the queue has then. */
static ssize_t all_pushed(struct conn *c, const char *in, size_t len, struct job *job) {
    ssize_t used = jobs_pushed(c, in, len, job);
    if (used > 0)
        c->settles = c->want;
    return used;
}

static char *jobs_take(char *out, const struct conn *c, int index) {
    (void)index;
    out = PUT(out, "*3\r\n$8\r\nJOB.TAKE\r\n$1\r\n1\r\n");
    return put_bulk(out, c->queue_name, c->queue_len);
}

static char *jobs_take_all(char *out, const struct conn *c, int count) {
    out = PUT(out, "*6\r\n$8\r\nJOB.TAKE\r\n$1\r\n1\r\n");
    out = put_bulk(out, c->queue_name, c->queue_len);
    return put_number_bulk(PUT(out, "$5\r\nBRIEF\r\n$5\r\nCOUNT\r\n"), (uint64_t)count);
}

/* One job: ref, number, uid, queue, name, attempt, failures, end of the lease, payload. */
static ssize_t job_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    static const char kinds[] = "$:$$$:::";
    const char *at = in, *end = in + len, *text = NULL, *ref = NULL;
    size_t size = 0, ref_size = 0;
    int64_t n = 0, id = 0;
    uint64_t serial;
    int found = read_count(&at, end, '*', &n);
    if (found > 0 && n != 9)
        return -1;
    for (int i = 0; found > 0 && kinds[i]; i++) {
        found = kinds[i] == '$' ? read_bulk(&at, end, &text, &size)
                                : read_count(&at, end, ':', &n);
        if (found > 0 && i == 0)
            ref = text, ref_size = size;
        if (found > 0 && i == 1)
            id = n;
        if (found > 0 && i == 3 &&
            (size != c->queue_len || memcmp(text, c->queue_name, size) != 0))
            return -1;
    }
    if (found > 0)
        found = read_value(&at, end, &serial);
    if (found <= 0)
        return found;
    if (ref_size == 0 || ref_size > sizeof job->ref || id <= 0)
        return -1;
    hold(job, ref, ref_size, serial);
    job->id = (uint64_t)id;
    job->pusher = 0; /* the server gives the numbers, in the order of the pushes */
    return at - in;
}

/* One job in brief: ref, name, payload. Its number is what the ref begins with. */
static ssize_t brief_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    const char *at = in, *end = in + len, *ref = NULL, *name = NULL;
    size_t ref_size = 0, name_size = 0;
    int64_t n = 0;
    uint64_t serial = 0, id = 0;
    int found = read_count(&at, end, '*', &n);
    if (found > 0 && n != 3)
        return -1;
    if (found > 0)
        found = read_bulk(&at, end, &ref, &ref_size);
    if (found > 0)
        found = read_bulk(&at, end, &name, &name_size);
    if (found > 0)
        found = read_value(&at, end, &serial);
    if (found <= 0)
        return found;
    for (size_t i = 0; i < ref_size && ref[i] >= '0' && ref[i] <= '9'; i++)
        id = id * 10 + (uint64_t)(ref[i] - '0');
    if (id == 0 || ref_size > sizeof job->ref || name_size != c->queue_len ||
        memcmp(name, c->queue_name, name_size) != 0)
        return -1;
    hold(job, ref, ref_size, serial);
    job->id = id;
    job->pusher = 0;
    return at - in;
}

/* How many there are; `most` were asked for. */
static ssize_t jobs_head(struct conn *c, const char *in, size_t len, int most) {
    const char *at = in;
    int64_t given;
    int found = read_count(&at, in + len, '*', &given);
    if (found <= 0)
        return found;
    if (given < 0 || given > most)
        return -1;
    c->inside = (int)given;
    c->settles = given ? 0 : most;
    return at - in;
}

static ssize_t jobs_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    if (!c->inside)
        return jobs_head(c, in, len, 1);
    ssize_t used = job_taken(c, in, len, job);
    c->inside -= used > 0;
    return used;
}

static ssize_t all_taken(struct conn *c, const char *in, size_t len, struct job *job) {
    if (!c->inside)
        return jobs_head(c, in, len, c->want);
    ssize_t used = brief_taken(c, in, len, job);
    if (used > 0 && --c->inside == 0)
        c->settles = c->want;
    return used;
}

static char *jobs_finish(char *out, const struct conn *c, int index) {
    out = PUT(out, "*2\r\n$8\r\nJOB.DONE\r\n");
    return put_bulk(out, c->jobs[index].ref, c->jobs[index].len);
}

static ssize_t jobs_finished(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)c, (void)job;
    return expect_text(in, len, "+OK\r\n", 5);
}

static char *jobs_finish_all(char *out, const struct conn *c, int count) {
    out = PUT(put_array(out, 1 + (uint64_t)count), "$11\r\nJOB.DONEALL\r\n");
    for (int i = 0; i < count; i++)
        out = put_bulk(out, c->jobs[i].ref, c->jobs[i].len);
    return out;
}

/* A 1 for each of them, in one array. */
static ssize_t all_finished(struct conn *c, const char *in, size_t len, struct job *job) {
    (void)job;
    const char *at = in, *end = in + len;
    int64_t n = 0, done = 0;
    int found = read_count(&at, end, '*', &n);
    if (found > 0 && n != c->want)
        return -1;
    for (int64_t i = 0; found > 0 && i < n; i++) {
        found = read_count(&at, end, ':', &done);
        if (found > 0 && done != 1)
            return -1;
    }
    if (found <= 0)
        return found;
    c->settles = c->want;
    return at - in;
}

const struct driver jobs = {
    .name = "jobs",
    .op = {[PUSH] = {jobs_push, jobs_pushed},
           [TAKE] = {jobs_take, jobs_taken},
           [FINISH] = {jobs_finish, jobs_finished}},
};

const struct driver jobs_batch = {
    .name = "jobs-batch",
    .op = {[PUSH] = {.build_all = jobs_push_all, .parse = all_pushed},
           [TAKE] = {.build_all = jobs_take_all, .parse = all_taken},
           [FINISH] = {.build_all = jobs_finish_all, .parse = all_finished}},
    .max_depth = MOST_AT_ONCE,
};
