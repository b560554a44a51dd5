/* What the load generator and its protocols share. */
#ifndef LOADGEN_H
#define LOADGEN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

enum {
    MIN_PAYLOAD = 32, /* room for the serial number and JSON quotes */
    MAX_PAYLOAD = 1 << 20,
    REQUEST_OVERHEAD = 512, /* the longest request without its payload */
    READ_BYTES = 1 << 16,   /* room for replies, beside that for one payload */
    SERIAL = 16,            /* hexadecimal digits that make every payload unique */
};

enum op { PUSH, TAKE, FINISH, OPS };

/* What a take brought: the text by which the finish names the job; empty when there was none. */
struct job {
    uint64_t id;     /* dense and, for one pusher, in order; 0 where a protocol has none */
    uint64_t serial; /* of its payload */
    uint32_t pusher; /* the connection that has pushed it, where the client makes the ids */
    uint8_t len;
    char ref[103];
};

struct conn {
    int fd;
    int index;
    uint32_t queue;
    char queue_name[24];
    size_t queue_len;
    char holder_name[24]; /* a place of this connection's own, for protocols that need one */
    size_t holder_len;
    enum op op;  /* what the outstanding requests are */
    int want;    /* jobs of them that are not settled yet */
    int settles; /* how many of these the piece of a reply settles that was read last */
    int inside;  /* pieces that are still to come of the reply that is being read */
    int batch;   /* jobs in this batch */
    int held;    /* jobs taken in this batch */
    int empty_in_a_row;
    bool counted; /* the batch began while measuring */
    bool dry;     /* drain: a take of this batch found nothing */
    bool waits_for_room;
    bool owes_answer; /* the server has asked whether it is still there */
    uint64_t *last_id; /* drain: of the job that was taken last, for each of the pushers */
    uint64_t first_serial; /* of the batch */
    int64_t begun, sent;
    char *out, *out_end, *out_at;
    char *in;
    size_t in_len;
    struct job *jobs;
};

/* Appends the index-th request of a phase and returns the new end. */
typedef char *build_fn(char *out, const struct conn *c, int index);
/* Appends one request for so many jobs, those held from the first on if it is a finish. */
typedef char *build_all_fn(char *out, const struct conn *c, int count);
/* Returns the bytes of one reply, 0 if it is not all there yet, -1 if it is not what it must be.
 * Each settles one job, unless it says so in `settles`: a reply to a request for many is read in
 * pieces, the head settles none, and what brings the last of fewer than were asked for settles all
 * that are left. */
typedef ssize_t parse_fn(struct conn *c, const char *in, size_t len, struct job *job);

/* A protocol: for each operation, how it is asked for and what it is answered with. Where a take is
 * all there is to it, there is no finish. */
struct driver {
    const char *name;
    struct {
        build_fn *build;
        parse_fn *parse;         /* NULL: not answered, and done once it is sent */
        build_all_fn *build_all; /* in place of `build`, where one request does for a batch */
    } op[OPS];
    /* The rest may be left out. What is said once when a connection is new, waiting for answers,
     * and once when the run is over. */
    void (*prepare)(struct conn *c);
    void (*part)(struct conn *c);
    /* What the server says unasked: its bytes, 0 if it may not all be there, -1 if it is none. */
    ssize_t (*aside)(struct conn *c, const char *in, size_t len);
    char *(*answer)(char *out); /* to such a thing that has set `owes_answer` */
    const char *durability; /* that an answer must have, where the client says that */
    int max_depth;  /* 0: any */
    bool one_queue; /* does not know --queues */
};

enum mode { CYCLE, FILL, DRAIN, PROBE };

struct options {
    const char *host;
    int port, connections, depth, pid;
    uint32_t queues;
    uint32_t scores; /* how many different ones the items of a priority queue have */
    double seconds, warmup;
    double rate;      /* cycle: jobs that begin in a second; 0: as many as can be done */
    int64_t jobs;     /* cycles to do or jobs to push; 0: go by time */
    int64_t serial;   /* of the first payload; -1: any */
    int64_t expect;   /* drain: how many jobs must come; 0: any */
    int64_t first_id; /* drain: of the first of them */
    enum mode mode;
    const struct driver *driver;
};

enum { MAX_SECONDS = 3600 };

/* loadgen_options.c */
extern struct options opt;
void read_options(int argc, char **argv);

/* Logarithmic buckets with 64 steps to each doubling: within 1.6% of the true value. */
enum { STEPS = 64, BUCKETS = 36 * STEPS };
struct histogram {
    uint64_t total;
    uint64_t count[BUCKETS];
};

/* loadgen_measure.c */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
int64_t now_ns(void);
void record(struct histogram *h, int64_t ns, int times);
double percentile_us(const struct histogram *h, double share);

/* loadgen_pace.c: batches begin at a steady rate, whoever of the connections is free. */
int pace_by(double rate, int connections); /* a descriptor that can be read when one is due */
void park(struct conn *c);
/* The next for a batch of so many, and when that was due; NULL: it is not yet. */
struct conn *next_parked(int64_t now, int64_t batch, int64_t *was_due);
struct conn *any_parked(void);

/* loadgen_check.c: that a drain gives `count` jobs from `first_id` on, each once and in order. */
void expect_jobs(uint64_t first_id, uint64_t count);
void expect_order(struct conn *c);
void forget_order(struct conn *c); /* it goes on with another queue */
void check_job(struct conn *c, const struct job *job);

/* loadgen_probe.c: how long the server lets one connection wait; prints that. */
void probe(int fd, int pid, double seconds);

/* loadgen_prepare.c: talk that waits for its answer, before the run and after it. */
void say(const struct conn *c, const char *text, size_t len);
void hear(struct conn *c);                         /* more of what the server says, into `in` */
void hear_until(struct conn *c, const char *text); /* all up to this, which is forgotten */
void forget(struct conn *c, size_t len);           /* that much of what was heard */

/* What all payloads consist of after their serial numbers. */
extern char filler[MAX_PAYLOAD];
extern uint64_t next_serial;
extern size_t payload_bytes;
/* How long a take that would block may wait. */
extern unsigned take_wait_ms;
/* How long a job and its result are kept, where that has to be said. */
extern unsigned ttl_ms;
/* A random one, for ids that must differ from those of every other run. */
extern uint64_t run_number;

/* loadgen_protocols.c */
extern const struct driver *const drivers[];
extern const size_t driver_count;

/* loadgen_resp.c and others, one for each protocol */
extern const struct driver redis_list, lists, pqueue, zset, redis_stream, jobs, jobs_batch;
extern const struct driver beanstalk, nats, glovebox, glovebox_write, glovebox_memory;

static inline char *put(char *out, const void *text, size_t len) {
    memcpy(out, text, len);
    return out + len;
}

#define PUT(out, literal) put(out, literal, sizeof(literal) - 1)

static inline char *put_number(char *out, uint64_t n) {
    char digits[20];
    int at = sizeof digits;
    do
        digits[--at] = (char)('0' + n % 10);
    while (n /= 10);
    return put(out, digits + at, sizeof digits - (size_t)at);
}

#endif
