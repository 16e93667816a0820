/* Python 3.13. */
#include "since_3.13.h"
#include "c_recursion.h"
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

static inline void cpython_reset(PyThreadState *ts) { cpython_reset_threading(ts); }

static inline int cpython_is_attached(PyThreadState *ts)
{
    return __atomic_load_n(&ts->state, __ATOMIC_ACQUIRE) != _Py_THREAD_DETACHED;
}

#define CPYTHON_LINES(code) ((code)->co_linetable)
#define CPYTHON_NAME(code) ((code)->co_qualname)
#define CPYTHON_UNMONITOR(code) ((code)->_co_monitoring = NULL)

static inline int cpython_first_frame(PyThreadState *ts, const void **frame, cpython_reader *read)
{
    return read(frame, &ts->current_frame, sizeof *frame);
}

static inline int cpython_read_frame(struct cpython_place *to, const void *frame, cpython_reader *read)
{
    struct _PyInterpreterFrame f;
    const char *code;
    if (read(&f, frame, offsetof(struct _PyInterpreterFrame, localsplus)) < 0)
        return -1;
    code = (const char *)f.f_executable + offsetof(PyCodeObject, co_code_adaptive);
    *to = (struct cpython_place){f.previous, f.f_executable, (int)((const char *)f.instr_ptr - code), f.owner == FRAME_OWNED_BY_CSTACK};
    return 0;
}
