/* What comes out of a drain: every job that was pushed, once, in order. */
#include <stdlib.h>

#include "loadgen.h"

enum { PUSHERS = 4096 }; /* the order of jobs from further ones is not looked at */

static uint64_t first, end; /* of the ids; serial numbers are from 0 to `end` */
static uint8_t *ids_seen, *serials_seen; /* a bit for each that has come */

static bool see(uint8_t *seen, uint64_t n) {
    bool before = seen[n >> 3] >> (n & 7) & 1;
    seen[n >> 3] |= (uint8_t)(1 << (n & 7));
    return !before;
}

void expect_jobs(uint64_t first_id, uint64_t count) {
    first = first_id;
    end = first_id + count;
    ids_seen = calloc(end / 8 + 1, 1);
    serials_seen = calloc(end / 8 + 1, 1);
    if (!ids_seen || !serials_seen)
        die("out of memory");
}

void expect_order(struct conn *c) {
    c->last_id = calloc(PUSHERS, sizeof *c->last_id);
    if (!c->last_id)
        die("out of memory");
}

void forget_order(struct conn *c) {
    if (c->last_id)
        memset(c->last_id, 0, PUSHERS * sizeof *c->last_id);
}

/* Ids are given in the order of the pushes, so each connection must see them grow in each queue.
 * Where it is the pushers that give them, only those of one and the same are in order. */
void check_job(struct conn *c, const struct job *job) {
    unsigned long long id = job->id, serial = job->serial;
    if (id < first || id >= end || serial >= end)
        die("connection %d: job %llu with serial %llu is none of those expected", c->index, id,
            serial);
    if (!see(ids_seen, id) || !see(serials_seen, serial))
        die("connection %d: job %llu with serial %llu came twice", c->index, id, serial);
    if (job->pusher >= PUSHERS)
        return;
    uint64_t *last = &c->last_id[job->pusher];
    if (id < *last)
        die("connection %d: job %llu came after %llu", c->index, id, (unsigned long long)*last);
    *last = id;
}
