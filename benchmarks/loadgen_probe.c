/*
 * One small command every millisecond that the server answers without waiting for its disk: how
 * long that takes is how long the server's loop was busy with something else, or had no processor;
 * with the server's process id the two are told apart. A virtual machine may lose a processor while
 * something runs on it, or get it late for something that wakes up: that is what neither ran nor
 * waited, though nothing went to sleep after the question.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "loadgen.h"

static const char question[] = "PING\n", answer[] = "PONG {}\n";
static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static void wait_until(int64_t when) {
    int64_t missing = when - now_ns();
    struct timespec pause = {.tv_nsec = missing};
    if (missing > 0)
        nanosleep(&pause, NULL);
}

static void ask_once(int fd) {
    char in[64];
    size_t want = sizeof answer - 1, got = 0;
    if (write(fd, question, sizeof question - 1) < 0)
        die("probe: write: %s", strerror(errno));
    while (got < want) {
        ssize_t n = read(fd, in + got, want - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            die("probe: the server closed the connection");
        got += (size_t)n;
    }
    if (memcmp(in, answer, want) != 0)
        die("probe: unexpected reply");
}

enum doing { RUNNING, ASKING /* for events: it has nothing to do */, BLOCKED };

/* Of the main thread of the server, so far, and what it does now. */
struct thread_time {
    int64_t ran_ns, waited_ns; /* for a processor, while it was ready to run */
    int64_t slept;             /* how often */
    enum doing doing;
};

enum needed { NEEDED, IF_ALLOWED };

static int open_of_thread(int pid, const char *name, enum needed needed) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, pid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && (needed == NEEDED || errno != EACCES))
        die("probe: %s: %s", path, strerror(errno));
    return file;
}

static const char *text_of(int file) {
    static char text[4096];
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* Who may not know takes it for running, and so each sleep for its own doing. */
static enum doing doing(const int *files) {
    const char *call = files ? text_of(files[2]) : "";
    if (*call < '0' || *call > '9')
        return RUNNING;
    long number = atol(call);
#ifdef SYS_epoll_wait
    if (number == SYS_epoll_wait)
        return ASKING;
#endif
    return number == SYS_epoll_pwait ? ASKING : BLOCKED;
}

static struct thread_time thread_time(const int *files) {
    static const char slept[] = "\nvoluntary_ctxt_switches:";
    struct thread_time found = {0};
    if (!files)
        return found;
    long long ran = 0, waited = 0;
    sscanf(text_of(files[0]), "%lld %lld", &ran, &waited);
    const char *line = strstr(text_of(files[1]), slept);
    return (struct thread_time){ran, waited, line ? atoll(line + sizeof slept - 1) : 0, RUNNING};
}

/* Whether the thread was kept waiting by something else than the want of a processor. If it sleeps
 * again after its answer, that has been counted. */
static int has_slept(struct thread_time before, struct thread_time after) {
    return before.doing == BLOCKED || after.slept - before.slept > (after.doing == ASKING);
}

/* Of an answer that took so long, what was not the loop's doing. How long a thread ran is brought up
 * to date once in a tick, so that much may be missing from the end. */
static int64_t not_its_own(struct thread_time before, struct thread_time after, int64_t taken) {
    static int64_t tick;
    struct timespec found;
    if (!tick && clock_getres(CLOCK_MONOTONIC_COARSE, &found) == 0)
        tick = found.tv_nsec;
    int64_t waited = after.waited_ns - before.waited_ns;
    int64_t lost = taken - waited - (after.ran_ns - before.ran_ns) - tick;
    return waited + (lost > 0 && !has_slept(before, after) ? lost : 0);
}

void probe(int fd, int pid, double seconds) {
    static struct histogram answers;
    struct sched_param first = {.sched_priority = 1};
    int64_t longest = 0, longest_own = 0;
    int64_t start = now_ns(), until = start + (int64_t)(seconds * 1e9), next = start;
    int opened[] = {pid ? open_of_thread(pid, "schedstat", NEEDED) : -1,
                    pid ? open_of_thread(pid, "status", NEEDED) : -1,
                    pid ? open_of_thread(pid, "syscall", IF_ALLOWED) : -1};
    const int *files = pid ? opened : NULL;

    /* Ahead of all others if that is allowed: its own waiting for a processor is not meant. */
    sched_setscheduler(0, SCHED_FIFO, &first);
    fcntl(fd, F_SETFL, 0);
    signal(SIGTERM, interrupt);
    signal(SIGINT, interrupt);
    while (!interrupted && now_ns() < until) {
        wait_until(next);
        struct thread_time before = thread_time(files);
        before.doing = doing(files); /* last here and first below: a sleep in between is its own */
        int64_t sent = now_ns();
        ask_once(fd);
        int64_t taken = now_ns() - sent;
        enum doing in_the_end = doing(files);
        struct thread_time after = thread_time(files);
        after.doing = in_the_end;
        int64_t own = taken - not_its_own(before, after, taken);
        record(&answers, taken, 1);
        if (taken > longest)
            longest = taken;
        if (own > longest_own)
            longest_own = own;
        next = sent + taken + 1000000; /* what was missed is not made up for */
    }
    printf("{\"mode\": \"probe\", \"seconds\": %.6f, \"asked\": %llu, \"longest_us\": %.1f, "
           "\"longest_own_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n",
           (double)(now_ns() - start) / 1e9, (unsigned long long)answers.total,
           (double)longest / 1000, (double)longest_own / 1000, percentile_us(&answers, 0.5),
           percentile_us(&answers, 0.99), percentile_us(&answers, 0.999));
}
