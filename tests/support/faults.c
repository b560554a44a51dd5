/* Preloaded into a server, makes its disk fail: the file that FAULTS names says how, in words.
 *
 *     sync    fdatasync fails with EIO
 *     hold    fdatasync does not end; a file with .held behind its name says that it has begun
 *     write   writes fail with EIO
 *     full    writes fail with ENOSPC, though room was reserved
 *     short   each write takes 100 bytes at most
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST = 100 };

static int asked(const char *word)
{
    char text[64] = "";
    const char *path = getenv("FAULTS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    return size > 0 && strstr(text, word) != NULL;
}

static int refused(void)
{
    if (asked("write"))
        errno = EIO;
    else if (asked("full"))
        errno = ENOSPC;
    else
        return 0;
    return 1;
}

static void tell_held(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.held", getenv("FAULTS"));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

int fdatasync(int fd)
{
    while (asked("hold")) {
        tell_held();
        usleep(1000);
    }
    if (asked("sync")) {
        errno = EIO;
        return -1;
    }
    int (*next)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return next(fd);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    if (refused())
        return -1;
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return next(fd, data, size > MOST && asked("short") ? MOST : size, offset);
}

/* All the names that an interpreter may know pwritev by. */
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    if (refused())
        return -1;
    if (count && asked("short"))
        return pwrite64(fd, parts[0].iov_base, parts[0].iov_len, offset);
    ssize_t (*next)(int, const struct iovec *, int, off64_t, int) = dlsym(RTLD_NEXT, "pwritev64v2");
    return next(fd, parts, count, offset, flags);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return pwritev64v2(fd, parts, count, offset, flags);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    return pwritev64v2(fd, parts, count, offset, 0);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    return pwritev64v2(fd, parts, count, offset, 0);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}
