/* Preloaded into a server, makes every flush of its disk take FLUSH_DELAY_US microseconds longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_longer(void) {
    const char *text = getenv("FLUSH_DELAY_US");
    long us = text ? atol(text) : 0;
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (us > 0 && nanosleep(&left, &left) < 0)
        continue; /* a signal came */
}

int fdatasync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_longer();
    return next(fd);
}

int fsync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_longer();
    return next(fd);
}
