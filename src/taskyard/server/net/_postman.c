/*
 * One thread that sends bytes into many sockets and never touches Python.
 *
 * To send a reply costs more than to find it, most of it in the kernel, which does the receiving end's
 * work too if that is on the same machine. This thread does it on another core while the event loop
 * goes on. It gets a round of letters at a time; the loop is told that a round is over only if it
 * asks for that, or if not everything could be sent. See server/net/sending.py.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* SENDING_WAITED_FOR: the loop wants to be told when it is over */
enum { IDLE, SENDING, SENDING_WAITED_FOR, DONE };

struct reply {
    int descriptor; /* -1: to nobody any more */
    const char *bytes;
    Py_ssize_t size, sent;
};

/* What belongs to whom changes with `state`: a round is the thread's while that is SENDING or
 * SENDING_WAITED_FOR. */
struct send_thread {
    PyObject_HEAD
    int event; /* readable when a round is over that the loop waits for */
    bool running, stop;
    bool delay_acks; /* the requests that follow are acknowledged by their replies */
    atomic_int state;
    atomic_int next, partial_count; /* the letter that whoever has time takes next */
    struct reply *replies;
    Py_ssize_t count, capacity;
    PyObject *buffers; /* the list of the bytes that `replies` points into */
    sem_t wakeup;
    pthread_t thread;
};

static void signal_done(struct send_thread *self) {
    uint64_t one = 1;
    while (write(self->event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Not on their own as soon as they are read. The kernel forgets this when a reply takes longer than
 * it waits for one, hence with each reply. Fails on a socket that has nothing to acknowledge. */
static void acknowledge_by_replies(int descriptor) {
    int at_once = 0;
    setsockopt(descriptor, IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
}

static Py_ssize_t send_reply(int descriptor, const char *bytes, Py_ssize_t size, bool delay_acks) {
    ssize_t sent = send(descriptor, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (delay_acks)
        acknowledge_by_replies(descriptor);
    return sent < 0 ? 0 : sent;
}

/* Called by the thread and by the loop, each for another letter. False if there is none left. */
static bool send_next(struct send_thread *self) {
    Py_ssize_t index = atomic_fetch_add(&self->next, 1);
    if (index >= self->count)
        return false;
    struct reply *reply = &self->replies[index];
    reply->sent = reply->size;
    if (reply->descriptor < 0)
        return true;
    reply->sent = send_reply(reply->descriptor, reply->bytes, reply->size, self->delay_acks);
    if (reply->sent != reply->size)
        self->partial_count++;
    return true;
}

static bool is_sending(struct send_thread *self) {
    int state = atomic_load(&self->state);
    return state == SENDING || state == SENDING_WAITED_FOR;
}

static void *run(void *argument) {
    struct send_thread *self = argument;
    pthread_setname_np(pthread_self(), "reply-sender");
    for (;;) {
        while (sem_wait(&self->wakeup) != 0)
            ;
        if (self->stop)
            return NULL;
        while (send_next(self))
            ;
        if (atomic_exchange(&self->state, DONE) == SENDING_WAITED_FOR || self->partial_count)
            signal_done(self);
    }
}

static int start_thread(struct send_thread *self) {
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are for the threads that know what to do with them. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static PyObject *send_thread_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args, (void)named;
    struct send_thread *self = (struct send_thread *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    sem_init(&self->wakeup, 0, 0);
    errno = start_thread(self);
    if (errno) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->running = true;
    return (PyObject *)self;
}

static PyObject *send_thread_fileno(struct send_thread *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLong(self->event);
}

static bool ensure_capacity(struct send_thread *self, Py_ssize_t count) {
    if (count <= self->capacity)
        return true;
    struct reply *more = PyMem_RawRealloc(self->replies, count * sizeof *more);
    if (!more) {
        PyErr_NoMemory();
        return false;
    }
    self->replies = more;
    self->capacity = count;
    return true;
}

static PyObject *send_thread_start(struct send_thread *self, PyObject *const *args,
                                   Py_ssize_t given) {
    if (given != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "wanted: a list of files, one of bytes, and how");
        return NULL;
    }
    PyObject *descriptors = args[0], *buffers = args[1];
    Py_ssize_t count = PyList_GET_SIZE(buffers);
    if (PyList_GET_SIZE(descriptors) != count || !self->running ||
        atomic_load(&self->state) != IDLE) {
        PyErr_SetString(PyExc_ValueError, "not a file for each, or a round is under way, or closed");
        return NULL;
    }
    if (!ensure_capacity(self, count))
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *buffer = PyList_GET_ITEM(buffers, i);
        long descriptor = PyLong_AsLong(PyList_GET_ITEM(descriptors, i));
        if (descriptor == -1 && PyErr_Occurred())
            return NULL;
        if (!PyBytes_CheckExact(buffer)) {
            PyErr_SetString(PyExc_TypeError, "not bytes");
            return NULL;
        }
        self->replies[i] = (struct reply){
            .descriptor = descriptor < 0 || descriptor > INT32_MAX ? -1 : (int)descriptor,
            .bytes = PyBytes_AS_STRING(buffer),
            .size = PyBytes_GET_SIZE(buffer),
        };
    }
    self->count = count;
    self->delay_acks = args[2] == Py_True;
    self->next = self->partial_count = 0;
    self->buffers = Py_NewRef(buffers);
    atomic_store(&self->state, SENDING);
    sem_post(&self->wakeup);
    Py_RETURN_NONE;
}

static PyObject *send_thread_send(struct send_thread *self, PyObject *const *args,
                                  Py_ssize_t given) {
    (void)self;
    if (given != 3 || !PyBytes_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "wanted: a file, bytes, and how");
        return NULL;
    }
    long descriptor = PyLong_AsLong(args[0]);
    if (descriptor == -1 && PyErr_Occurred())
        return NULL;
    if (descriptor < 0 || descriptor > INT32_MAX)
        return PyLong_FromLong(0);
    return PyLong_FromSsize_t(send_reply((int)descriptor, PyBytes_AS_STRING(args[1]),
                                         PyBytes_GET_SIZE(args[1]), args[2] == Py_True));
}

static PyObject *send_thread_assist(struct send_thread *self, PyObject *most) {
    long left = PyLong_AsLong(most);
    if (left == -1 && PyErr_Occurred())
        return NULL;
    if (!is_sending(self))
        Py_RETURN_FALSE;
    for (; left > 0; left--)
        if (!send_next(self))
            Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

static PyObject *send_thread_request_wakeup(struct send_thread *self, PyObject *unused) {
    (void)unused;
    int sending = SENDING;
    bool waited_for =
        atomic_compare_exchange_strong(&self->state, &sending, SENDING_WAITED_FOR) ||
        sending == SENDING_WAITED_FOR;
    return PyBool_FromLong(waited_for);
}

static PyObject *send_thread_collect_results(struct send_thread *self, PyObject *unused) {
    (void)unused;
    if (atomic_load(&self->state) != DONE)
        Py_RETURN_NONE;
    PyObject *rest = PyList_New(0);
    if (!rest)
        return NULL;
    for (Py_ssize_t i = 0; self->partial_count && i < self->count; i++) {
        struct reply *reply = &self->replies[i];
        if (reply->sent == reply->size)
            continue;
        PyObject *pair = Py_BuildValue("(nn)", i, reply->sent);
        if (!pair || PyList_Append(rest, pair) < 0) {
            Py_XDECREF(pair);
            Py_DECREF(rest);
            return NULL;
        }
        Py_DECREF(pair);
    }
    uint64_t count;
    if (self->partial_count && read(self->event, &count, sizeof count) < 0)
        errno = 0; /* it was told, but that was heard already */
    atomic_store(&self->state, IDLE);
    Py_CLEAR(self->buffers);
    return rest;
}

static PyObject *send_thread_clear_wakeup(struct send_thread *self, PyObject *unused) {
    (void)unused;
    uint64_t count;
    if (read(self->event, &count, sizeof count) < 0)
        errno = 0;
    Py_RETURN_NONE;
}

static void wait_for_end(struct send_thread *self) {
    while (is_sending(self) && send_next(self))
        ;
    while (is_sending(self))
        usleep(20);
}

static PyObject *send_thread_wait(struct send_thread *self, PyObject *unused) {
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    wait_for_end(self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *send_thread_close(struct send_thread *self, PyObject *unused) {
    (void)unused;
    if (self->running) {
        self->running = false;
        Py_BEGIN_ALLOW_THREADS
        wait_for_end(self);
        self->stop = true;
        sem_post(&self->wakeup);
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static void send_thread_dealloc(struct send_thread *self) {
    PyObject *closed = send_thread_close(self, NULL);
    Py_XDECREF(closed);
    Py_CLEAR(self->buffers);
    PyMem_RawFree(self->replies);
    if (self->event >= 0)
        close(self->event);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"fileno", (PyCFunction)send_thread_fileno, METH_NOARGS, "Can be read when a round is over."},
    {"start", (PyCFunction)(void (*)(void))send_thread_start, METH_FASTCALL,
     "Send each of the second list into the file of the first; one round at a time. Third: whether\n"
     "the requests that follow are to be acknowledged by their replies, however long these take."},
    {"send", (PyCFunction)(void (*)(void))send_thread_send, METH_FASTCALL,
     "Send into a file from here; how much of it was taken."},
    {"assist", (PyCFunction)send_thread_assist, METH_O,
     "Send so many of the round from here; False if there is no more to send."},
    {"request_wakeup", (PyCFunction)send_thread_request_wakeup, METH_NOARGS,
     "Be told when the round is over; False if there is nothing to wait for."},
    {"clear_wakeup", (PyCFunction)send_thread_clear_wakeup, METH_NOARGS,
     "It was heard that something is over."},
    {"collect_results", (PyCFunction)send_thread_collect_results, METH_NOARGS,
     "None: it is not over. Else which were not sent to their end, and how far."},
    {"wait", (PyCFunction)send_thread_wait, METH_NOARGS, "Help until the round is over."},
    {"close", (PyCFunction)send_thread_close, METH_NOARGS, "Wait for the end of all."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, send_thread_new},
    {Py_tp_dealloc, send_thread_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A thread that sends into sockets without the interpreter."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "taskyard.server.net._postman.SendThread",
    .basicsize = sizeof(struct send_thread),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "taskyard.server.net._postman",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__postman(void) {
    PyObject *made = PyModule_Create(&module);
    if (!made)
        return NULL;
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(made, "SendThread", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
