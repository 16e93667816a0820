/* gosched_python.h: what C extensions need to talk with the goroutines of Python.
 *
 * An extension has goroutines of its own with the functions of gosched.h: gs_spawn, gs_chan_send and
 * all others. They run on all P's, never have the GIL and must not use Python objects. They share
 * channels with Python's goroutines: a TypedChannel, whose items are C values.
 *
 *     #include <gosched_python.h>
 *
 *     static const gosched_python *gosched;
 *
 *     PyInit_...:  gosched = gosched_python_import();  if (!gosched) return NULL;
 *
 *     gosched_chan *jobs = gosched->chan_get(object, "q");      a TypedChannel("q", ...) of Python
 *     int64_t n;
 *     while (gs_chan_recv(jobs->chan, &n, GS_FOREVER) == 0) ...  in a C goroutine
 *     gosched->chan_put(jobs);                                   there too
 *
 * Compile with gosched.get_include(), link with -L gosched.get_library_dir() -lgosched, and import
 * gosched before the extension: then both have the same library.
 *
 * A C function that Python calls holds the GIL and must give it back around each function of
 * gosched.h that may switch (its comment says so), by these two macros. Py_BEGIN_ALLOW_THREADS
 * isn't enough. Between them nothing of Python's may be used.
 *
 *     GOSCHED_BEGIN_WAIT(gosched)
 *     got = gs_chan_recv(jobs->chan, &n, GS_FOREVER);
 *     GOSCHED_END_WAIT(gosched)
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
} gosched_chan;

typedef struct gosched_python {
    /* Of the module that runs; at least GOSCHED_PYTHON_VERSION. */
    uint32_t version;
    uint32_t reserved;

    /* What GOSCHED_BEGIN_WAIT and GOSCHED_END_WAIT call. With the GIL, and without it. */
    void *(*leave)(void);
    void (*enter)(void *left);

    /* The channel within a TypedChannel of this format (as in Python's struct module, such as "q" for
     * an int64_t), which stays until chan_put, even when Python has dropped the object. NULL with
     * an exception: TypeError if it is none, ValueError if its format is another. With the GIL. */
    gosched_chan *(*chan_get)(PyObject *channel, const char *format);

    /* Gives it back. Anywhere: with and without the GIL, in goroutines and plain threads. Never
     * switches. NULL is nothing. */
    void (*chan_put)(gosched_chan *channel);

    /* A new TypedChannel; NULL with an exception. With the GIL. */
    PyObject *(*chan_new)(const char *format, size_t capacity);
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

#define GOSCHED_BEGIN_WAIT(api) \
    {                           \
        void *gosched_left_ = (api)->leave();
#define GOSCHED_END_WAIT(api)      \
        (api)->enter(gosched_left_); \
    }

#ifdef __cplusplus
}
#endif

#endif
