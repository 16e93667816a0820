/* Python 3.14 and later: the limit of C recursion is an address on the stack, and frames hold tagged references. */
#include "since_3.13.h"
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#include <internal/pycore_interpframe_structs.h>
#include <internal/pycore_pythonrun.h>
#include <internal/pycore_stackref.h>
#undef Py_BUILD_CORE

/* Bytes at the top of a goroutine's stack that its first functions have in use when it enters Python. */
#define CALLERS_ROOM ((size_t)8 << 10)

/* Python 3.14.0 doesn't have them. */
extern int PyUnstable_ThreadState_SetStackProtection(PyThreadState *ts, void *start, size_t size) __attribute__((weak));
extern void PyUnstable_ThreadState_ResetStackProtection(PyThreadState *ts) __attribute__((weak));

/* Without it Python takes the limits of the thread's stack. Then it finds no overflow of the goroutine's; and it takes
   all of a stack at a lower address for used up, and puts off destructors. */
static inline void cpython_limit_recursion(PyThreadState *ts, size_t stack_size)
{
    char *start = (char *)__builtin_frame_address(0) - stack_size + CALLERS_ROOM;
    size_t size = stack_size - CALLERS_ROOM;
    if (PyUnstable_ThreadState_SetStackProtection) {
        /* It fails only if the stack is smaller than _PyOS_MIN_STACK_SIZE, and a goroutine's is larger. */
        PyUnstable_ThreadState_SetStackProtection(ts, start, size);
    } else {
        _PyThreadStateImpl *impl = (_PyThreadStateImpl *)ts;
        impl->c_stack_top = (uintptr_t)start + size;
        impl->c_stack_hard_limit = (uintptr_t)start + _PyOS_STACK_MARGIN_BYTES;
        impl->c_stack_soft_limit = (uintptr_t)start + 2 * _PyOS_STACK_MARGIN_BYTES;
    }
}

static inline void cpython_borrow_stack(PyThreadState *ts, size_t size) { cpython_limit_recursion(ts, size); }

static inline void cpython_return_stack(PyThreadState *ts)
{
    if (PyUnstable_ThreadState_ResetStackProtection)
        PyUnstable_ThreadState_ResetStackProtection(ts);
    else
        /* Python looks for the thread's limits when it attaches the next time. */
        ((_PyThreadStateImpl *)ts)->c_stack_hard_limit = 0;
}

/* faulthandler asks the C library for the name of the thread, which would read memory at the identity. */
static inline int cpython_may_identify(void) { return 0; }

/* The task that asyncio runs, and what is from 3.13 on. */
static inline void cpython_reset(PyThreadState *ts)
{
    cpython_reset_threading(ts);
    Py_CLEAR(((_PyThreadStateImpl *)ts)->asyncio_running_task);
}

#define CPYTHON_LINES(code) ((code)->co_linetable)
#define CPYTHON_NAME(code) ((code)->co_qualname)
#define CPYTHON_UNMONITOR(code) ((code)->_co_monitoring = NULL)

static inline int cpython_is_attached(PyThreadState *ts)
{
    return __atomic_load_n(&ts->state, __ATOMIC_ACQUIRE) == _Py_THREAD_ATTACHED;
}

static inline int cpython_first_frame(PyThreadState *ts, const void **frame, cpython_reader *read)
{
    return read(frame, &ts->current_frame, sizeof *frame);
}

static inline int cpython_read_frame(struct cpython_place *to, const void *frame, cpython_reader *read)
{
    struct _PyInterpreterFrame f;
    const char *object, *code;
    if (read(&f, frame, offsetof(struct _PyInterpreterFrame, localsplus)) < 0)
        return -1;
    object = (const char *)(f.f_executable.bits & ~(uintptr_t)Py_TAG_BITS);
    code = object + offsetof(PyCodeObject, co_code_adaptive);
    *to = (struct cpython_place){f.previous, object, (int)((const char *)f.instr_ptr - code), f.owner >= FRAME_OWNED_BY_INTERPRETER};
    return 0;
}
