/* What the load generator is told on its command line. */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "loadgen.h"

enum {
    MAX_CONNECTIONS = 20000,
    MAX_DEPTH = 10000,
    MAX_QUEUES = 10000000,
    MAX_SCORES = 10000000,
    MAX_JOBS = 1000000000,
    MAX_RATE = 10000000,
    FILL_TTL_MS = 3600000, /* what waits is not to expire meanwhile */
    CYCLE_TTL_MS = 10000,  /* what is finished is not to pile up over a long run */
    MAX_TTL_MS = 2147483647,
};

struct options opt = {
    .serial = -1,
    .first_id = 1,
    .host = "127.0.0.1",
    .connections = 1,
    .depth = 1,
    .queues = 1,
    .scores = 1,
    .seconds = 5,
};
size_t payload_bytes = 200;
unsigned take_wait_ms = 1000;
unsigned ttl_ms;

static void usage(void) {
    fprintf(stderr,
            "usage: loadgen cycle   --driver NAME --port PORT [options]   push, take and finish\n"
            "       loadgen fill N  --driver NAME --port PORT [options]   push N jobs\n"
            "       loadgen drain   --driver NAME --port PORT [options]   take and finish until "
            "nothing is left\n"
            "       loadgen probe   --driver NAME --port PORT [--seconds 5] [--pid PID]   ask every ms\n"
            "options: --host 127.0.0.1  --connections 1  --depth 1  --payload 200  --queues 1\n"
            "         --seconds 5 | --cycles N  --warmup 0 (seconds)          for cycle\n"
            "         --rate N (jobs that begin in a second)                  for cycle\n"
            "         --serial N (of the first payload)                      for cycle and fill\n"
            "         --scores 1 (of the items)                for cycle and fill, pqueue and zset\n"
            "         --ttl MS (10000, for fill 3600000)                      for cycle and fill\n"
            "         --expect N  --first-id 1                               for drain\n"
            "drivers:");
    for (size_t i = 0; i < driver_count; i++)
        fprintf(stderr, " %s", drivers[i]->name);
    fputc('\n', stderr);
    exit(2);
}

static double number(const char *what, const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "loadgen: %s must be from %.0f to %.0f, not %s\n", what, low, high, text);
        exit(2);
    }
    return value;
}

void read_options(int argc, char **argv) {
    static const struct option options[] = {
        {"driver", required_argument, 0, 'd'},
        {"host", required_argument, 0, 'h'},
        {"port", required_argument, 0, 'p'},
        {"connections", required_argument, 0, 'c'},
        {"depth", required_argument, 0, 'D'},
        {"seconds", required_argument, 0, 's'},
        {"cycles", required_argument, 0, 'n'},
        {"warmup", required_argument, 0, 'w'},
        {"rate", required_argument, 0, 'r'},
        {"payload", required_argument, 0, 'b'},
        {"queues", required_argument, 0, 'q'},
        {"scores", required_argument, 0, 'o'},
        {"serial", required_argument, 0, 'S'},
        {"ttl", required_argument, 0, 't'},
        {"expect", required_argument, 0, 'e'},
        {"first-id", required_argument, 0, 'f'},
        {"pid", required_argument, 0, 'P'},
        {0, 0, 0, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            for (size_t i = 0; i < driver_count; i++)
                if (strcmp(drivers[i]->name, optarg) == 0)
                    opt.driver = drivers[i];
            break;
        case 'h': opt.host = optarg; break;
        case 'p': opt.port = (int)number("--port", optarg, 1, 65535); break;
        case 'c': opt.connections = (int)number("--connections", optarg, 1, MAX_CONNECTIONS); break;
        case 'D': opt.depth = (int)number("--depth", optarg, 1, MAX_DEPTH); break;
        case 's': opt.seconds = number("--seconds", optarg, 0, MAX_SECONDS); break;
        case 'n': opt.jobs = (int64_t)number("--cycles", optarg, 1, MAX_JOBS); break;
        case 'w': opt.warmup = number("--warmup", optarg, 0, MAX_SECONDS); break;
        case 'r': opt.rate = number("--rate", optarg, 1, MAX_RATE); break;
        case 'b':
            payload_bytes = (size_t)number("--payload", optarg, MIN_PAYLOAD, MAX_PAYLOAD);
            break;
        case 'q': opt.queues = (uint32_t)number("--queues", optarg, 1, MAX_QUEUES); break;
        case 'o': opt.scores = (uint32_t)number("--scores", optarg, 1, MAX_SCORES); break;
        case 'S': opt.serial = (int64_t)number("--serial", optarg, 0, MAX_JOBS); break;
        case 't': ttl_ms = (unsigned)number("--ttl", optarg, 1, MAX_TTL_MS); break;
        case 'e': opt.expect = (int64_t)number("--expect", optarg, 1, MAX_JOBS); break;
        case 'f': opt.first_id = (int64_t)number("--first-id", optarg, 1, MAX_JOBS); break;
        case 'P': opt.pid = (int)number("--pid", optarg, 1, 1 << 22); break;
        default: usage();
        }
    }
    if (!opt.driver || !opt.port || optind >= argc)
        usage();
    const char *mode = argv[optind++];
    if (strcmp(mode, "fill") == 0 && optind < argc) {
        opt.mode = FILL;
        opt.jobs = (int64_t)number("fill", argv[optind++], 1, MAX_JOBS);
    } else if (strcmp(mode, "drain") == 0) {
        opt.mode = DRAIN;
        opt.jobs = 0;
        take_wait_ms = 1;
    } else if (strcmp(mode, "probe") == 0) {
        opt.mode = PROBE;
        opt.connections = 1;
    } else if (strcmp(mode, "cycle") != 0) {
        usage();
    }
    if (opt.mode == PROBE && strcmp(opt.driver->name, "masenko") != 0)
        usage();
    if (optind != argc)
        usage();
    if (opt.driver->one_queue && opt.queues > 1) {
        fprintf(stderr, "loadgen: --queues: %s has one queue\n", opt.driver->name);
        exit(2);
    }
    if (opt.driver->max_depth && opt.depth > opt.driver->max_depth) {
        fprintf(stderr, "loadgen: --depth: %s takes up to %d\n", opt.driver->name,
                opt.driver->max_depth);
        exit(2);
    }
    if (opt.mode != CYCLE)
        opt.warmup = opt.rate = 0;
    if (!ttl_ms)
        ttl_ms = opt.mode == FILL ? FILL_TTL_MS : CYCLE_TTL_MS;
}
