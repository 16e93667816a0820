/* Python 3.13 and later, but for the limit of recursion and the frames. */
#define Py_BUILD_CORE
#include <internal/pycore_ceval.h>
#include <internal/pycore_tstate.h>
#undef Py_BUILD_CORE

#include "no_slot.h"

static inline int cpython_is_finalizing(void) { return Py_IsFinalizing(); }

static inline void cpython_look_for_signals(PyThreadState *ts)
{
    _Py_set_eval_breaker_bit(ts, _PY_SIGNALS_PENDING_BIT);
}

static inline void cpython_reset_threading(PyThreadState *ts)
{
    /* What threading.local knows the thread by. */
    Py_CLEAR(ts->threading_local_key);
    Py_CLEAR(ts->threading_local_sentinel);
    Py_CLEAR(((_PyThreadStateImpl *)ts)->asyncio_running_loop);
}

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->threading_local_sentinel == NULL && ts->exc_info == &ts->exc_state;
}
