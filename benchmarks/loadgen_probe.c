/*
 * One small command every millisecond that the server answers without waiting for its disk: how
 * long that takes is how long the server's loop was busy with something else, or had no processor;
 * with the server's process id the two are told apart.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
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

static int open_waits(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* How long the main thread of the server has been ready to run without a processor so far. */
static int64_t waited_ns(int waits) {
    char text[96];
    long long ran, waited;
    ssize_t n = waits < 0 ? 0 : pread(waits, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : 0;
}

void probe(int fd, int pid, double seconds) {
    static struct histogram answers;
    struct sched_param first = {.sched_priority = 1};
    int64_t longest = 0, longest_own = 0;
    int64_t start = now_ns(), until = start + (int64_t)(seconds * 1e9), next = start;
    int waits = pid ? open_waits(pid) : -1;

    /* Ahead of all others if that is allowed: its own waiting for a processor is not meant. */
    sched_setscheduler(0, SCHED_FIFO, &first);
    fcntl(fd, F_SETFL, 0);
    signal(SIGTERM, interrupt);
    signal(SIGINT, interrupt);
    while (!interrupted && now_ns() < until) {
        wait_until(next);
        int64_t waited = waited_ns(waits), sent = now_ns();
        ask_once(fd);
        int64_t taken = now_ns() - sent, own = taken - (waited_ns(waits) - waited);
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
