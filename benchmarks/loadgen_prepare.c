/* Talk that waits for its answer: what a protocol wants said before a run and after it. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "loadgen.h"

void say(const struct conn *c, const char *text, size_t len) {
    for (const char *end = text + len; text < end;) {
        ssize_t n = write(c->fd, text, (size_t)(end - text));
        if (n < 0 && errno != EINTR)
            die("connection %d: write: %s", c->index, strerror(errno));
        text += n > 0 ? n : 0;
    }
}

void hear(struct conn *c) {
    size_t room = payload_bytes + READ_BYTES - c->in_len;
    ssize_t n = room ? read(c->fd, c->in + c->in_len, room) : 0;
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0)
        die("connection %d: no answer to what is said before and after a run: %s", c->index,
            n < 0 ? strerror(errno) : "the server closed the connection, or says too much");
    c->in_len += (size_t)n;
}

void hear_until(struct conn *c, const char *text) {
    size_t len = strlen(text);
    char *found;
    while (!(found = memmem(c->in, c->in_len, text, len)))
        hear(c);
    forget(c, (size_t)(found - c->in) + len);
}

void forget(struct conn *c, size_t len) {
    c->in_len -= len;
    memmove(c->in, c->in + len, c->in_len);
}
