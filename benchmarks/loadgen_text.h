/* What requests and replies are made of, whatever the protocol. */
#ifndef LOADGEN_TEXT_H
#define LOADGEN_TEXT_H

#include "loadgen.h"

static inline char *put_hex(char *out, uint64_t n, int digits) {
    for (int i = digits - 1; i >= 0; i--, n >>= 4)
        out[i] = "0123456789abcdef"[n & 15];
    return out + digits;
}

static inline char *put_serial(char *out, uint64_t n) { return put_hex(out, n, SERIAL); }

/* The number of that many digits at `in`; UINT64_MAX if there is none, which no payload has. */
static inline uint64_t read_hex(const char *in, int digits) {
    uint64_t n = 0;
    for (int i = 0; i < digits; i++) {
        char c = in[i];
        if (c >= '0' && c <= '9')
            n = n << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            n = n << 4 | (uint64_t)(c - 'a' + 10);
        else
            return UINT64_MAX;
    }
    return n;
}

static inline uint64_t read_serial(const char *in) { return read_hex(in, SERIAL); }

static inline bool starts(const char *in, const char *end, const void *text, size_t len) {
    return (size_t)(end - in) >= len && memcmp(in, text, len) == 0;
}

#define STARTS(in, end, literal) starts(in, end, literal, sizeof(literal) - 1)

/* Payloads between lines: --payload bytes that begin with their serial number, and a line end. */

static inline char *put_payload(char *out, const char *serial) {
    out = put(out, serial, SERIAL);
    out = put(out, filler, payload_bytes - SERIAL);
    return PUT(out, "\r\n");
}

static inline bool is_payload(const char *in) {
    return memcmp(in + SERIAL, filler, payload_bytes - SERIAL) == 0 &&
           memcmp(in + payload_bytes, "\r\n", 2) == 0;
}

#endif
