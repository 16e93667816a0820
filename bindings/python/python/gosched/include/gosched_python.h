/* gosched_python.h: what C extensions need to talk with the goroutines of Python.
 *
 * An extension has goroutines of its own with the functions of gosched.h: gs_spawn, gs_chan_send and
 * all others. They run on all P's, never have the GIL and must not use Python objects. They share
 * channels with Python's goroutines: a Channel with a format, whose items are C values.
 *
 *     #include <gosched_python.h>
 *
 *     static const gosched_python *gosched;
 *
 *     PyInit_...:  gosched = gosched_python_import();  if (!gosched) return NULL;
 *
 *     gosched_chan *jobs = gosched->chan_get(object, "q");        Python's Channel(n, format="q")
 *     int64_t n;
 *     while (gs_chan_recv(jobs->chan, &n, GS_FOREVER) == 0) ...  in a C goroutine
 *     gosched->chan_put(jobs);                                   there too
 *
 * Compile with gosched.get_include(), link with -L gosched.get_library_dir() -lgosched, and import
 * gosched before the extension: then both have the same library.
 *
 * A C function that Python calls holds the GIL. It waits with gosched->wait, gosched_chan_recv or
 * gosched_chan_send, which give the GIL back meanwhile and notice what ends waits of Python's
 * goroutines: cancel(), Timeout, Ctrl-C. Around other functions of gosched.h that may switch (their
 * comments say so) it gives the GIL back with leave and enter. Py_BEGIN_ALLOW_THREADS is not
 * enough for either. Nothing of Python's may be used in between.
 */
#ifndef GOSCHED_PYTHON_H
#define GOSCHED_PYTHON_H

#include <Python.h>
#include <gosched.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of struct gosched_python here; modules of a later version have all of it, too. */
#define GOSCHED_PYTHON_VERSION 1

/* A channel that C and Python share. Its items have the size of the channel's format. */
typedef struct gosched_chan {
    struct gs_chan *chan;
    void *reserved[2];
} gosched_chan;

/* For leave and enter. */
typedef struct gosched_left {
    void *state, *goroutine;
} gosched_left;

typedef struct gosched_python {
    /* Of the module that runs; at least GOSCHED_PYTHON_VERSION. */
    uint32_t version;
    uint32_t reserved;

    /* Gives the GIL back, and takes it again. The same function calls both. */
    void (*leave)(gosched_left *left);
    void (*enter)(gosched_left *left);

    /* Calls f(arg, until) without the GIL, again and again until it gives something else than
     * -ETIMEDOUT, -EAGAIN or -ECANCELED, or the deadline has passed; gives the last result. f
     * waits with that deadline, which may be an earlier one. -EINTR: a Python exception is set, and
     * the caller returns NULL. With the GIL. */
    int (*wait)(int (*f)(void *arg, gs_deadline until), void *arg, gs_deadline deadline);

    /* The channel within a Channel of this format (as in Python's struct module: "q" for an int64_t,
     * "qd" for a struct of an int64_t and a double), which stays until chan_put, even when Python
     * has dropped the object. NULL with a TypeError if it is something else. With the GIL. */
    gosched_chan *(*chan_get)(PyObject *channel, const char *format);

    /* Gives it back. Anywhere: with and without the GIL, in goroutines and plain threads. Never
     * switches. NULL is nothing. */
    void (*chan_put)(gosched_chan *channel);

    /* A new Channel with a format; NULL with an exception. With the GIL. */
    PyObject *(*chan_new)(size_t capacity, const char *format);
} gosched_python;

/* The functions of the module; NULL with an exception. With the GIL. */
static inline const gosched_python *gosched_python_import(void)
{
    const gosched_python *found =
        (const gosched_python *)PyCapsule_Import("gosched._gosched._C_API", 0);
    if (found && found->version < GOSCHED_PYTHON_VERSION) {
        PyErr_Format(PyExc_ImportError, "this extension needs a later version of gosched");
        return NULL;
    }
    return found;
}

struct gosched_item_ {
    gosched_chan *channel;
    void *item;
};

static inline int gosched_recv_(void *arg, gs_deadline until)
{
    struct gosched_item_ *a = (struct gosched_item_ *)arg;
    return gs_chan_recv(a->channel->chan, a->item, until);
}

static inline int gosched_send_(void *arg, gs_deadline until)
{
    struct gosched_item_ *a = (struct gosched_item_ *)arg;
    return gs_chan_send(a->channel->chan, a->item, until);
}

/* As gs_chan_recv, for a C function that Python calls. 0; -EPIPE: closed and empty; -EAGAIN,
 * -ETIMEDOUT; -EINTR: an exception is set. With the GIL. */
static inline int gosched_chan_recv(const gosched_python *api, gosched_chan *channel, void *item, gs_deadline deadline)
{
    struct gosched_item_ arg = {channel, item};
    return api->wait(gosched_recv_, &arg, deadline);
}

/* As gs_chan_send, likewise. */
static inline int gosched_chan_send(const gosched_python *api, gosched_chan *channel, const void *item, gs_deadline deadline)
{
    struct gosched_item_ arg = {channel, (void *)item};
    return api->wait(gosched_send_, &arg, deadline);
}

#ifdef __cplusplus
}
#endif

#endif
