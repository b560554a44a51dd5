/*
 * One thread that sends bytes into many sockets and never touches Python.
 *
 * To send a reply costs more than to find it, most of it in the kernel, which does the receiving end's
 * work too if that is on the same machine. This thread does it on another core while the event loop
 * goes on. It gets a round of letters at a time; the loop is told that a round is over only if it
 * asks for that, or if not everything could be sent. See server/net/postman.py.
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

enum { IDLE, AWAY, AWAITED, OVER }; /* AWAITED: the loop wants to be told when it is over */

struct letter {
    int file; /* -1: to nobody any more */
    const char *bytes;
    Py_ssize_t size, sent;
};

/* What belongs to whom changes with `state`: a round is the thread's while that is AWAY or AWAITED. */
struct postman {
    PyObject_HEAD
    int event; /* readable when a round is over that the loop waits for */
    bool running, stop;
    bool patient; /* the requests that follow are acknowledged by their replies */
    atomic_int state;
    atomic_int next, short_ones; /* the letter that whoever has time takes next */
    struct letter *letters;
    Py_ssize_t count, room;
    PyObject *texts; /* the list of the bytes that `letters` points into */
    sem_t asked;
    pthread_t thread;
};

static void tell(struct postman *self) {
    uint64_t one = 1;
    while (write(self->event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Not on their own as soon as they are read. The kernel forgets this when a reply takes longer than
 * it waits for one, hence with each reply. Fails on a socket that has nothing to acknowledge. */
static void acknowledge_by_replies(int file) {
    int at_once = 0;
    setsockopt(file, IPPROTO_TCP, TCP_QUICKACK, &at_once, sizeof at_once);
}

static Py_ssize_t deliver(int file, const char *bytes, Py_ssize_t size, bool patient) {
    ssize_t sent = send(file, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (patient)
        acknowledge_by_replies(file);
    return sent < 0 ? 0 : sent;
}

/* Called by the thread and by the loop, each for another letter. False if there is none left. */
static bool send_next(struct postman *self) {
    Py_ssize_t place = atomic_fetch_add(&self->next, 1);
    if (place >= self->count)
        return false;
    struct letter *letter = &self->letters[place];
    letter->sent = letter->size;
    if (letter->file < 0)
        return true;
    letter->sent = deliver(letter->file, letter->bytes, letter->size, self->patient);
    if (letter->sent != letter->size)
        self->short_ones++;
    return true;
}

static bool is_away(struct postman *self) {
    int state = atomic_load(&self->state);
    return state == AWAY || state == AWAITED;
}

static void *serve(void *argument) {
    struct postman *self = argument;
    pthread_setname_np(pthread_self(), "postman");
    for (;;) {
        while (sem_wait(&self->asked) != 0)
            ;
        if (self->stop)
            return NULL;
        while (send_next(self))
            ;
        if (atomic_exchange(&self->state, OVER) == AWAITED || self->short_ones)
            tell(self);
    }
}

static int start_thread(struct postman *self) {
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are for the threads that know what to do with them. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&self->thread, NULL, serve, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

static PyObject *postman_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    (void)args, (void)named;
    struct postman *self = (struct postman *)type->tp_alloc(type, 0);
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

static PyObject *postman_fileno(struct postman *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromLong(self->event);
}

static bool make_room(struct postman *self, Py_ssize_t count) {
    if (count <= self->room)
        return true;
    struct letter *more = PyMem_RawRealloc(self->letters, count * sizeof *more);
    if (!more) {
        PyErr_NoMemory();
        return false;
    }
    self->letters = more;
    self->room = count;
    return true;
}

static PyObject *postman_begin(struct postman *self, PyObject *const *args, Py_ssize_t given) {
    if (given != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "wanted: a list of files, one of bytes, and how");
        return NULL;
    }
    PyObject *files = args[0], *texts = args[1];
    Py_ssize_t count = PyList_GET_SIZE(texts);
    if (PyList_GET_SIZE(files) != count || !self->running || atomic_load(&self->state) != IDLE) {
        PyErr_SetString(PyExc_ValueError, "not a file for each, or a round is under way, or closed");
        return NULL;
    }
    if (!make_room(self, count))
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *text = PyList_GET_ITEM(texts, i);
        long file = PyLong_AsLong(PyList_GET_ITEM(files, i));
        if (file == -1 && PyErr_Occurred())
            return NULL;
        if (!PyBytes_CheckExact(text)) {
            PyErr_SetString(PyExc_TypeError, "not bytes");
            return NULL;
        }
        self->letters[i] = (struct letter){.file = file < 0 || file > INT32_MAX ? -1 : (int)file,
                                           .bytes = PyBytes_AS_STRING(text),
                                           .size = PyBytes_GET_SIZE(text)};
    }
    self->count = count;
    self->patient = args[2] == Py_True;
    self->next = self->short_ones = 0;
    self->texts = Py_NewRef(texts);
    atomic_store(&self->state, AWAY);
    sem_post(&self->asked);
    Py_RETURN_NONE;
}

static PyObject *postman_send(struct postman *self, PyObject *const *args, Py_ssize_t given) {
    (void)self;
    if (given != 3 || !PyBytes_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "wanted: a file, bytes, and how");
        return NULL;
    }
    long file = PyLong_AsLong(args[0]);
    if (file == -1 && PyErr_Occurred())
        return NULL;
    if (file < 0 || file > INT32_MAX)
        return PyLong_FromLong(0);
    return PyLong_FromSsize_t(deliver((int)file, PyBytes_AS_STRING(args[1]),
                                      PyBytes_GET_SIZE(args[1]), args[2] == Py_True));
}

static PyObject *postman_help(struct postman *self, PyObject *most) {
    long left = PyLong_AsLong(most);
    if (left == -1 && PyErr_Occurred())
        return NULL;
    if (!is_away(self))
        Py_RETURN_FALSE;
    for (; left > 0; left--)
        if (!send_next(self))
            Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

static PyObject *postman_wish(struct postman *self, PyObject *unused) {
    (void)unused;
    int away = AWAY;
    bool wished = atomic_compare_exchange_strong(&self->state, &away, AWAITED) || away == AWAITED;
    return PyBool_FromLong(wished);
}

static PyObject *postman_end(struct postman *self, PyObject *unused) {
    (void)unused;
    if (atomic_load(&self->state) != OVER)
        Py_RETURN_NONE;
    PyObject *rest = PyList_New(0);
    if (!rest)
        return NULL;
    for (Py_ssize_t i = 0; self->short_ones && i < self->count; i++) {
        struct letter *letter = &self->letters[i];
        if (letter->sent == letter->size)
            continue;
        PyObject *pair = Py_BuildValue("(nn)", i, letter->sent);
        if (!pair || PyList_Append(rest, pair) < 0) {
            Py_XDECREF(pair);
            Py_DECREF(rest);
            return NULL;
        }
        Py_DECREF(pair);
    }
    uint64_t count;
    if (self->short_ones && read(self->event, &count, sizeof count) < 0)
        errno = 0; /* it was told, but that was heard already */
    atomic_store(&self->state, IDLE);
    Py_CLEAR(self->texts);
    return rest;
}

static PyObject *postman_heard(struct postman *self, PyObject *unused) {
    (void)unused;
    uint64_t count;
    if (read(self->event, &count, sizeof count) < 0)
        errno = 0;
    Py_RETURN_NONE;
}

static void wait_for_end(struct postman *self) {
    while (is_away(self) && send_next(self))
        ;
    while (is_away(self))
        usleep(20);
}

static PyObject *postman_wait(struct postman *self, PyObject *unused) {
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    wait_for_end(self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *postman_close(struct postman *self, PyObject *unused) {
    (void)unused;
    if (self->running) {
        self->running = false;
        Py_BEGIN_ALLOW_THREADS
        wait_for_end(self);
        self->stop = true;
        sem_post(&self->asked);
        pthread_join(self->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static void postman_dealloc(struct postman *self) {
    PyObject *closed = postman_close(self, NULL);
    Py_XDECREF(closed);
    Py_CLEAR(self->texts);
    PyMem_RawFree(self->letters);
    if (self->event >= 0)
        close(self->event);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"fileno", (PyCFunction)postman_fileno, METH_NOARGS, "Can be read when a round is over."},
    {"begin", (PyCFunction)(void (*)(void))postman_begin, METH_FASTCALL,
     "Send each of the second list into the file of the first; one round at a time. Third: whether\n"
     "the requests that follow are to be acknowledged by their replies, however long these take."},
    {"send", (PyCFunction)(void (*)(void))postman_send, METH_FASTCALL,
     "Send into a file from here; how much of it was taken."},
    {"help", (PyCFunction)postman_help, METH_O,
     "Send so many of the round from here; False if there is no more to send."},
    {"wish", (PyCFunction)postman_wish, METH_NOARGS,
     "Be told when the round is over; False if there is nothing to wait for."},
    {"heard", (PyCFunction)postman_heard, METH_NOARGS, "It was heard that something is over."},
    {"end", (PyCFunction)postman_end, METH_NOARGS,
     "None: it is not over. Else which were not sent to their end, and how far."},
    {"wait", (PyCFunction)postman_wait, METH_NOARGS, "Help until the round is over."},
    {"close", (PyCFunction)postman_close, METH_NOARGS, "Wait for the end of all."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, postman_new},
    {Py_tp_dealloc, postman_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A thread that sends into sockets without the interpreter."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "taskyard.server.net._postman.Postman",
    .basicsize = sizeof(struct postman),
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
    if (!type || PyModule_AddObject(made, "Postman", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
