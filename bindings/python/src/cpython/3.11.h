/* Python 3.11. */
#include "slot.h"
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->exc_info == &ts->exc_state;
}

/* The state whose thread has the GIL. */
static inline int cpython_is_attached(PyThreadState *ts) { return _PyThreadState_UncheckedGet() == ts; }

#define CPYTHON_LINES(code) ((code)->co_linetable)
#define CPYTHON_NAME(code) ((code)->co_qualname)
#define CPYTHON_UNMONITOR(code) ((void)(code))

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
    *to = (struct cpython_place){f.previous, f.f_code, (int)((const char *)f.prev_instr - code), (const char *)f.prev_instr < code && f.owner != FRAME_OWNED_BY_GENERATOR};
    return 0;
}
