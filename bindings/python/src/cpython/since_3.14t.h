/* Free-threaded Python 3.14 and later. No such Python runs with gosched yet: its collector finds references that are on
   no object's account by the frames of thread states, and would not see those of goroutines that wait. build.rs refuses
   it. The layouts are checked against the headers of each version. */
#include "since_3.14.h"

#define Py_BUILD_CORE
#include <internal/pycore_critical_section.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_interpframe.h>
#undef Py_BUILD_CORE

#include "exchange.h"

struct limits {
    uintptr_t top, soft, hard;
    /* References that functions in C hold on the goroutine's stack. */
    struct _PyCStackRef *references;
    PyObject *asyncio_running_task;
};

static inline void exchange_limits(PyThreadState *ts, struct limits *limits)
{
    _PyThreadStateImpl *impl = (_PyThreadStateImpl *)ts;
    EXCHANGE(uintptr_t, impl->c_stack_top, limits->top);
    EXCHANGE(uintptr_t, impl->c_stack_soft_limit, limits->soft);
    EXCHANGE(uintptr_t, impl->c_stack_hard_limit, limits->hard);
    EXCHANGE(struct _PyCStackRef *, impl->c_stack_refs, limits->references);
    EXCHANGE(PyObject *, impl->asyncio_running_task, limits->asyncio_running_task);
}

static inline void new_limits(struct limits *limits, PyThreadState *ts, size_t stack_size)
{
    _PyThreadStateImpl *impl = (_PyThreadStateImpl *)ts;
    *limits = (struct limits){impl->c_stack_top, impl->c_stack_soft_limit, impl->c_stack_hard_limit, NULL, NULL};
    if (stack_size != SIZE_MAX) {
        uintptr_t start = (uintptr_t)__builtin_frame_address(0) - stack_size + CALLERS_ROOM;
        limits->top = start + stack_size - CALLERS_ROOM;
        limits->hard = start + _PyOS_STACK_MARGIN_BYTES;
        limits->soft = start + 2 * _PyOS_STACK_MARGIN_BYTES;
    }
}
