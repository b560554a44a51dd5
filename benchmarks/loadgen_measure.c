/* Time, histograms of it, and the end of a run that went wrong. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "loadgen.h"

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void record(struct histogram *h, int64_t ns, int times) {
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    size_t bucket = v;
    if (v >= STEPS) {
        int shift = 63 - __builtin_clzll(v) - 6;
        bucket = (size_t)(shift + 1) * STEPS + ((v >> shift) - STEPS);
    }
    h->count[bucket < BUCKETS ? bucket : BUCKETS - 1] += (uint64_t)times;
    h->total += (uint64_t)times;
}

double percentile_us(const struct histogram *h, double share) {
    uint64_t rank = (uint64_t)(share * (double)h->total), seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += h->count[i];
        if (seen > rank) {
            if (i < STEPS)
                return (double)i / 1000;
            int shift = (int)(i / STEPS) - 1;
            return ((double)(STEPS + i % STEPS) + 0.5) * (double)(1ULL << shift) / 1000;
        }
    }
    return 0;
}
