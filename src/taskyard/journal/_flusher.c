/*
 * One thread that flushes files and never touches Python.
 *
 * A thread of Python has to get the interpreter's lock twice for each flush, and takes it from the
 * event loop. This one sleeps on a semaphore, calls fdatasync, and tells by an eventfd that it is
 * done, so that the loop goes on undisturbed. See journal/flush.py.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { STOP = -1 };

struct flusher {
    PyObject_HEAD
    int event;             /* readable when a flush is over */
    int file;              /* what to flush, or STOP; only written while the thread sleeps */
    int failure;           /* errno of the last flush; only read when it is over */
    int64_t last_flush_us; /* likewise */
    bool running, busy;
    sem_t asked;
    pthread_t thread;
};

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void *serve(void *argument) {
    struct flusher *self = argument;
    pthread_setname_np(pthread_self(), "flusher");
    for (;;) {
        while (sem_wait(&self->asked) != 0)
            ;
        if (self->file == STOP)
            return NULL;
        int64_t began = now();
        self->failure = fdatasync(self->file) == 0 ? 0 : errno;
        self->last_flush_us = now() - began;
        uint64_t one = 1;
        while (write(self->event, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
}

static int start_thread(struct flusher *self) {
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are for the threads that know what to do with them. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&self->thread, NULL, serve, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static PyObject *flusher_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args, (void)named;
    struct flusher *self = (struct flusher *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    sem_init(&self->asked, 0, 0);
    errno = start_thread(self);
    if (errno) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->running = true;
    return (PyObject *)self;
}

static PyObject *flusher_fileno(struct flusher *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLong(self->event);
}

static PyObject *flusher_begin_flush(struct flusher *self, PyObject *file) {
    long fd = PyLong_AsLong(file);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    if (fd < 0 || fd > INT32_MAX || self->busy || !self->running) {
        PyErr_SetString(PyExc_ValueError, "not a file, or a flush is under way, or it is closed");
        return NULL;
    }
    self->busy = true;
    self->file = (int)fd;
    sem_post(&self->asked);
    Py_RETURN_NONE;
}

static PyObject *flusher_end_flush(struct flusher *self, PyObject *unused) {
    (void)unused;
    uint64_t count;
    if (!self->busy || read(self->event, &count, sizeof count) != sizeof count)
        return PyLong_FromLong(-1);
    self->busy = false;
    return PyLong_FromLong(self->failure);
}

static PyObject *flusher_last_flush_us(struct flusher *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLongLong(self->busy ? 0 : self->last_flush_us);
}

static PyObject *flusher_close(struct flusher *self, PyObject *unused) {
    (void)unused;
    if (self->running) {
        self->running = false;
        Py_BEGIN_ALLOW_THREADS
        /* A flush that is under way must come to its end before the file is another one. */
        uint64_t count;
        while (self->busy && read(self->event, &count, sizeof count) != sizeof count)
            usleep(100);
        self->busy = false;
        self->file = STOP;
        sem_post(&self->asked);
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static void flusher_dealloc(struct flusher *self) {
    PyObject *closed = flusher_close(self, NULL);
    Py_XDECREF(closed);
    if (self->event >= 0)
        close(self->event);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"fileno", (PyCFunction)flusher_fileno, METH_NOARGS, "Can be read when a flush is over."},
    {"begin_flush", (PyCFunction)flusher_begin_flush, METH_O, "Flush a file; one at a time."},
    {"end_flush", (PyCFunction)flusher_end_flush, METH_NOARGS,
     "0 if the flush is done, else its errno; -1 if it is not over."},
    {"last_flush_us", (PyCFunction)flusher_last_flush_us, METH_NOARGS,
     "Microseconds of the flush that was ended last."},
    {"close", (PyCFunction)flusher_close, METH_NOARGS, "Wait for the end of all."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, flusher_new},
    {Py_tp_dealloc, flusher_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A thread that flushes files without the interpreter."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "taskyard.journal._flusher.Flusher",
    .basicsize = sizeof(struct flusher),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "taskyard.journal._flusher",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__flusher(void) {
    PyObject *made = PyModule_Create(&module);
    if (!made)
        return NULL;
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(made, "Flusher", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
