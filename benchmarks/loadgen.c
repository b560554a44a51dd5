/*
 * A load generator for queue servers: one thread, epoll, nothing allocated once it runs.
 *
 * One job cycle is push + take + finish, or push + take where a protocol has no finish. A
 * connection works on a batch of --depth jobs: it writes all the pushes in one go and reads their
 * replies, then the takes, then the finishes. Depth 1 is the plain client that waits for each
 * reply. Connections know nothing of each other: a take may well bring the job of another
 * connection, and what was brought is finished. With --rate, batches begin at that pace.
 *
 * The clock of a job starts when its batch does; with --rate, when the batch was due, so that a
 * server which is late pays for all whom it lets wait.
 *
 * Nothing here knows a protocol: the table of them is in loadgen_protocols.c. Options, pace,
 * measuring, the checks of a drain and the probe are in the other files.
 *
 * A reply that is not the expected one ends the run with status 1: figures of a server that
 * answers wrongly are worth nothing.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "loadgen.h"

enum {
    EVENTS = 512,
    MAX_EMPTY = 100, /* takes in a row that may find nothing before the run is given up */
    STALL_SECONDS = 30,
    CONNECT_SECONDS = 10,
};

static struct histogram cycle_ns, op_ns[OPS];
static struct conn *conns;
static int epoll_fd;
static int active; /* connections with a batch in hand */
static bool measuring, stopping;
static enum op last_op; /* with its reply a job is done */
static int64_t may_begin = INT64_MAX;
static uint64_t done, empty; /* while measuring */
static int64_t window_from, window_to, last_reply;
static struct rusage cpu_from, cpu_to;

char filler[MAX_PAYLOAD];
uint64_t next_serial;
uint64_t run_number;

static uint64_t first_serial;

static const char *const op_names[OPS] = {"push", "take", "finish"};

static bool has(enum op op) {
    return opt.driver->op[op].build || opt.driver->op[op].build_all;
}

static void watch(struct conn *c, int how, uint32_t events) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, how, c->fd, &e) < 0)
        die("epoll_ctl: %s", strerror(errno));
}

static void flush(struct conn *c) {
    while (c->out_at < c->out_end) {
        ssize_t n = write(c->fd, c->out_at, (size_t)(c->out_end - c->out_at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            die("connection %d: write: %s", c->index, strerror(errno));
        if (n < 0) {
            if (!c->waits_for_room)
                watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            c->waits_for_room = true;
            return;
        }
        c->out_at += n;
    }
    if (c->waits_for_room)
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
    c->waits_for_room = false;
}

static void settle(struct conn *c, const struct job *job, int64_t now);

static char *build_requests(char *out, struct conn *c, enum op op, int count) {
    if (c->owes_answer)
        out = opt.driver->answer(out);
    c->owes_answer = false;
    if (opt.driver->op[op].build_all)
        return opt.driver->op[op].build_all(out, c, count);
    for (int i = 0; i < count; i++)
        out = opt.driver->op[op].build(out, c, i);
    return out;
}

static void ask(struct conn *c, enum op op, int count, int64_t now) {
    if (c->out_at == c->out_end) /* else some that is not answered has not gone out yet */
        c->out_at = c->out_end = c->out;
    c->out_end = build_requests(c->out_end, c, op, count);
    c->op = op;
    c->want = count;
    c->sent = now;
    if (!opt.driver->op[op].parse) {
        static const struct job none;
        c->settles = count;
        settle(c, &none, now); /* which may ask for more: it all goes out together */
    }
    flush(c);
}

static void name_queue(struct conn *c) {
    char *end = put_number(PUT(c->queue_name, "bench"), c->queue);
    c->queue_len = (size_t)(end - c->queue_name);
}

/* Moves to the connection's next queue, false when it starts over; together they visit all queues.
 */
static bool next_queue(struct conn *c) {
    bool more = c->queue + (uint32_t)opt.connections < opt.queues;
    c->queue = more ? c->queue + (uint32_t)opt.connections : (uint32_t)c->index % opt.queues;
    name_queue(c);
    forget_order(c);
    return more;
}

/* Jobs count from `due`, which has passed. */
static void begin(struct conn *c, int64_t due, int64_t now) {
    int64_t batch = may_begin < opt.depth ? may_begin : opt.depth;
    if (stopping || batch == 0) {
        active--;
        return;
    }
    may_begin -= batch;
    c->batch = (int)batch;
    c->held = 0;
    c->empty_in_a_row = 0;
    c->dry = false;
    c->counted = measuring;
    c->begun = due;
    c->first_serial = next_serial;
    ask(c, opt.mode == DRAIN ? TAKE : PUSH, c->batch, now);
}

static void batch_done(struct conn *c, int64_t now) {
    bool more = true;
    if (opt.mode == DRAIN ? c->dry : opt.queues > 1)
        more = next_queue(c);
    if (opt.mode == DRAIN && !more)
        active--;
    else if (opt.rate > 0)
        park(c);
    else
        begin(c, now, now);
}

/* Those whose turn it is; at the end all, and none of them will. */
static void begin_parked(int64_t now) {
    struct conn *c;
    int64_t due = now;
    while ((c = stopping ? any_parked() : next_parked(now, opt.depth, &due)))
        begin(c, due, now);
}

static void took_all_replies(struct conn *c, int64_t now) {
    if (opt.mode == CYCLE && c->held < c->batch)
        ask(c, TAKE, c->batch - c->held, now);
    else if (c->held && last_op == FINISH)
        ask(c, FINISH, c->held, now);
    else
        batch_done(c, now);
}

static void count_jobs(struct conn *c, int count, int64_t now) {
    if (!measuring || (opt.jobs && !c->counted))
        return;
    done += (uint64_t)count;
    record(&cycle_ns, now - c->begun, count);
}

static void took(struct conn *c, const struct job *job, int64_t now) {
    if (job->len) {
        if (opt.expect)
            check_job(c, job);
        c->jobs[c->held++] = *job;
        c->empty_in_a_row = 0;
        if (last_op == TAKE)
            count_jobs(c, 1, now);
        return;
    }
    c->dry = true;
    empty += measuring;
    if (opt.mode == CYCLE && ++c->empty_in_a_row > MAX_EMPTY)
        die("connection %d: %d takes in a row found none of the jobs that were pushed", c->index,
            MAX_EMPTY);
}

/* A reply, or the piece of one that brings a job. */
static void settle(struct conn *c, const struct job *job, int64_t now) {
    if (measuring)
        record(&op_ns[c->op], now - c->sent, c->op == TAKE ? 1 : c->settles);
    if (c->op == TAKE)
        took(c, job, now);
    else if (c->op == last_op)
        count_jobs(c, c->settles, now);
    if (c->want -= c->settles)
        return;
    if (c->op == TAKE)
        took_all_replies(c, now);
    else if (c->op == PUSH && opt.mode == CYCLE)
        ask(c, TAKE, c->batch, now);
    else
        batch_done(c, now);
}

static void refuse(const struct conn *c, const char *in, size_t len) {
    char shown[161];
    size_t n = 0;
    for (; n < len && n < sizeof shown - 1; n++)
        shown[n] = in[n] >= ' ' && in[n] <= '~' ? in[n] : '.';
    shown[n] = 0;
    die("connection %d: unexpected reply to %s (%s, %s): %s", c->index, op_names[c->op],
        opt.driver->name, c->queue_name, shown);
}

static ssize_t read_piece(struct conn *c, const char *in, size_t len, struct job *job) {
    if (opt.driver->aside) {
        c->settles = 0;
        ssize_t used = opt.driver->aside(c, in, len);
        if (used >= 0)
            return used;
    }
    if (!c->want)
        return -1;
    c->settles = 1;
    job->len = 0;
    job->pusher = 0;
    return opt.driver->op[c->op].parse(c, in, len, job);
}

static void read_replies(struct conn *c) {
    size_t room = payload_bytes + READ_BYTES - c->in_len;
    ssize_t n = read(c->fd, c->in + c->in_len, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        die("connection %d: read: %s", c->index, strerror(errno));
    if (n == 0)
        die("connection %d: the server closed the connection, %d replies to %s outstanding",
            c->index, c->want, op_names[c->op]);
    int64_t now = now_ns();
    last_reply = now;
    c->in_len += (size_t)n;

    size_t at = 0;
    while (at < c->in_len) {
        struct job job;
        ssize_t used = read_piece(c, c->in + at, c->in_len - at, &job);
        if (used < 0 || c->settles > c->want)
            refuse(c, c->in + at, c->in_len - at);
        if (used == 0)
            break;
        at += (size_t)used;
        if (c->settles == 0)
            continue;
        /* What settles the last one sends the next requests, so nothing may follow it. */
        if (c->want == c->settles && at < c->in_len && !opt.driver->aside)
            refuse(c, c->in + at, c->in_len - at);
        settle(c, &job, now);
    }
    c->in_len -= at;
    if (c->in_len)
        memmove(c->in, c->in + at, c->in_len);
    if (c->in_len == payload_bytes + READ_BYTES)
        die("connection %d: a reply to %s longer than %zu bytes", c->index, op_names[c->op],
            c->in_len);
}

static void open_window(int64_t now) {
    measuring = true;
    window_from = now;
    may_begin = opt.jobs ? opt.jobs : INT64_MAX;
    getrusage(RUSAGE_SELF, &cpu_from);
}

static void close_window(int64_t now) {
    measuring = false;
    stopping = true;
    window_to = now;
    getrusage(RUSAGE_SELF, &cpu_to);
}

static void run(void) {
    static struct epoll_event events[EVENTS];
    int64_t start = now_ns(), warm = start + (int64_t)(opt.warmup * 1e9);
    bool by_time = opt.mode == CYCLE && !opt.jobs;
    double allowed = by_time ? opt.warmup + opt.seconds + STALL_SECONDS : opt.warmup + MAX_SECONDS;
    int64_t limit = start + (int64_t)(allowed * 1e9);

    last_reply = start;
    active = opt.connections;
    if (opt.warmup == 0)
        open_window(start);
    for (int i = 0; i < opt.connections; i++)
        if (opt.rate > 0)
            park(&conns[i]);
        else
            begin(&conns[i], start, now_ns());
    while (active > 0) {
        int n = epoll_wait(epoll_fd, events, EVENTS, 100);
        if (n < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        int64_t now = now_ns();
        if (!measuring && !stopping && now >= warm)
            open_window(now);
        if (measuring && by_time && now >= window_from + (int64_t)(opt.seconds * 1e9))
            close_window(now);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (!c) /* it is time for the next batch */
                continue;
            if (events[i].events & EPOLLOUT)
                flush(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                read_replies(c);
        }
        if (opt.rate > 0)
            begin_parked(now_ns());
        if (now - last_reply > STALL_SECONDS * 1000000000LL)
            die("no reply for %d seconds, %d connections wait", STALL_SECONDS, active);
        if (now > limit)
            die("not done in the time allowed, %d connections still at work", active);
    }
    if (!stopping)
        close_window(now_ns());
}

static void open_connection(struct conn *c, int index, const struct sockaddr_in *address) {
    struct timeval patience = {.tv_sec = CONNECT_SECONDS};
    int one = 1;
    size_t request = payload_bytes + REQUEST_OVERHEAD;

    c->index = index;
    c->queue = (uint32_t)index % opt.queues;
    name_queue(c);
    c->holder_len =
        (size_t)(put_number(PUT(c->holder_name, "holder"), (uint64_t)index) - c->holder_name);
    c->out = malloc(2 * (size_t)opt.depth * request); /* one batch may follow unanswered ones */
    c->out_at = c->out_end = c->out;
    c->in = malloc(payload_bytes + READ_BYTES);
    c->jobs = calloc((size_t)opt.depth, sizeof *c->jobs);
    if (!c->out || !c->in || !c->jobs)
        die("out of memory");
    if (opt.expect)
        expect_order(c);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0)
        die("socket: %s", strerror(errno));
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (const struct sockaddr *)address, sizeof *address) < 0)
        die("connection %d to %s:%d: %s", index, opt.host, opt.port, strerror(errno));
    if (opt.driver->prepare && opt.mode != PROBE)
        opt.driver->prepare(c);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0)
        die("fcntl: %s", strerror(errno));
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
}

/* What is not answered is not lost when the connection ends. */
static void part(struct conn *c) {
    if (fcntl(c->fd, F_SETFL, 0) < 0)
        die("fcntl: %s", strerror(errno));
    say(c, c->out_at, (size_t)(c->out_end - c->out_at));
    opt.driver->part(c);
}

static double cpu_seconds(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

static void print_latency(const char *name, const struct histogram *h) {
    printf("\"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}", name, percentile_us(h, 0.5),
           percentile_us(h, 0.99), percentile_us(h, 0.999));
}

static void report(void) {
    static const char *const modes[] = {"cycle", "fill", "drain"};
    double seconds = (double)(window_to - window_from) / 1e9,
           cpu = cpu_seconds(&cpu_to) - cpu_seconds(&cpu_from);
    printf("{\"driver\": \"%s\", \"mode\": \"%s\", \"connections\": %d, \"depth\": %d, "
           "\"payload\": %zu, \"queues\": %u, ",
           opt.driver->name, modes[opt.mode], opt.connections, opt.depth, payload_bytes,
           opt.queues);
    printf("\"cycles\": %llu, \"seconds\": %.6f, \"cycles_per_s\": %.1f, \"empty\": %llu, "
           "\"pushed\": %llu, \"cpu_seconds\": %.6f, \"latency_us\": {",
           (unsigned long long)done, seconds, seconds > 0 ? (double)done / seconds : 0,
           (unsigned long long)empty, (unsigned long long)(next_serial - first_serial),
           cpu);
    print_latency("cycle", &cycle_ns);
    for (int op = 0; op < OPS; op++) {
        if (!has(op))
            continue;
        printf(", ");
        print_latency(op_names[op], &op_ns[op]);
    }
    printf("}}\n");
}

int main(int argc, char **argv) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct rlimit files;

    read_options(argc, argv);
    last_op = opt.mode == FILL ? PUSH : has(FINISH) ? FINISH : TAKE;
    address.sin_port = htons((uint16_t)opt.port);
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1 ||
        ntohl(address.sin_addr.s_addr) >> 24 != 127)
        die("--host must be a loopback address (127.0.0.0/8), not %s", opt.host);

    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    /* Unique over runs too: a queue may still hold the jobs of an earlier one. */
    next_serial = ((uint64_t)time(NULL) << 32) ^ ((uint64_t)getpid() << 44);
    if (opt.serial >= 0)
        next_serial = (uint64_t)opt.serial;
    first_serial = next_serial;
    if (getrandom(&run_number, sizeof run_number, 0) != sizeof run_number)
        die("getrandom: %s", strerror(errno));
    if (opt.expect)
        expect_jobs((uint64_t)opt.first_id, (uint64_t)opt.expect);
    for (size_t i = 0; i < sizeof filler; i++)
        filler[i] = letters[(i * i + i / 64) % 64];

    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    conns = calloc((size_t)opt.connections, sizeof *conns);
    if (epoll_fd < 0 || !conns)
        die("cannot start: %s", strerror(errno));
    for (int i = 0; i < opt.connections; i++)
        open_connection(&conns[i], i, &address);
    if (opt.mode == PROBE) {
        probe(conns[0].fd, opt.pid, opt.seconds);
        return 0;
    }
    if (opt.rate > 0) {
        struct epoll_event e = {.events = EPOLLIN | EPOLLET}; /* once each time */
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pace_by(opt.rate, opt.connections), &e) < 0)
            die("epoll_ctl: %s", strerror(errno));
    }
    run();
    for (int i = 0; i < opt.connections && opt.driver->part; i++)
        part(&conns[i]);
    if (opt.expect && done != (uint64_t)opt.expect)
        die("%llu jobs came instead of %lld", (unsigned long long)done, (long long)opt.expect);
    report();
    return 0;
}
