/* Batches that begin at a steady rate: connections without one wait here for their turn. What the
 * server is late for is made up for, so that the rate holds over the whole run. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>

#include "loadgen.h"

static struct conn **parked; /* a ring */
static size_t room, first, count;
static int timer;
static int64_t due;
static double each_ns;

int pace_by(double rate, int connections) {
    room = (size_t)connections;
    parked = calloc(room, sizeof *parked);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!parked || timer < 0)
        die("cannot keep a pace: %s", strerror(errno));
    each_ns = 1e9 / rate;
    due = now_ns();
    return timer;
}

static void set_timer(void) {
    struct itimerspec when = {
        .it_value = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) < 0)
        die("timerfd_settime: %s", strerror(errno));
}

void park(struct conn *c) {
    parked[(first + count++) % room] = c;
    if (count == 1)
        set_timer();
}

struct conn *any_parked(void) {
    if (!count)
        return NULL;
    struct conn *c = parked[first];
    first = (first + 1) % room;
    count--;
    return c;
}

struct conn *next_parked(int64_t now, int64_t batch, int64_t *was_due) {
    if (count && due > now)
        set_timer();
    if (!count || due > now)
        return NULL;
    *was_due = due;
    due += (int64_t)(each_ns * (double)batch);
    return any_parked();
}
