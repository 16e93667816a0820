/* Python 3.12. */
#include "no_slot.h"
#include "c_recursion.h"
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

static inline int cpython_is_finalizing(void) { return _Py_IsFinalizing(); }

/* The mark is the interpreter's: the running thread state sees it, whichever that is. */
static inline void cpython_look_for_signals(PyThreadState *ts) { (void)ts; }

static inline void cpython_reset(PyThreadState *ts) { (void)ts; }

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->exc_info == &ts->exc_state;
}

static inline int cpython_is_attached(PyThreadState *ts) { return ts->_status.active; }

#define CPYTHON_LINES(code) ((code)->co_linetable)
#define CPYTHON_NAME(code) ((code)->co_qualname)
#define CPYTHON_UNMONITOR(code) ((code)->_co_monitoring = NULL)

static inline int cpython_first_frame(PyThreadState *ts, const void **frame, cpython_reader *read)
{
    const _PyCFrame *cframe;
    if (read(&cframe, &ts->cframe, sizeof cframe) < 0)
        return -1;
    return read(frame, &cframe->current_frame, sizeof *frame);
}

static inline int cpython_read_frame(struct cpython_place *to, const void *frame, cpython_reader *read)
{
    struct _PyInterpreterFrame f;
    const char *code;
    if (read(&f, frame, offsetof(struct _PyInterpreterFrame, localsplus)) < 0)
        return -1;
    code = (const char *)f.f_code + offsetof(PyCodeObject, co_code_adaptive);
    *to = (struct cpython_place){f.previous, f.f_code, (int)((const char *)f.prev_instr - code), f.owner == FRAME_OWNED_BY_CSTACK};
    return 0;
}
