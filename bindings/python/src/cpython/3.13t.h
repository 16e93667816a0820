/* Free-threaded Python 3.13. */
#include <Python.h>

#define Py_BUILD_CORE
/* pycore_ceval.h needs it. */
#include <internal/pycore_gc.h>
#undef Py_BUILD_CORE

#include "3.13.h"

#define Py_BUILD_CORE
#include <internal/pycore_critical_section.h>
#include <internal/pycore_interp.h>
#undef Py_BUILD_CORE

#include "exchange.h"

struct limits {
    int c_recursion_remaining;
};

static inline void exchange_limits(PyThreadState *ts, struct limits *limits)
{
    EXCHANGE(int, ts->c_recursion_remaining, limits->c_recursion_remaining);
}

static inline void new_limits(struct limits *limits, PyThreadState *ts, size_t stack_size)
{
    size_t levels = stack_size / BYTES_PER_LEVEL;
    (void)ts;
    limits->c_recursion_remaining = levels < Py_C_RECURSION_LIMIT ? (int)levels : Py_C_RECURSION_LIMIT;
}

static inline struct _PyInterpreterFrame *bottom_frame(PyThreadState *ts)
{
    (void)ts;
    return NULL;
}

#include "free.h"
