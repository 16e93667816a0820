/* Python 3.12. */
#include "no_slot.h"
#include "c_recursion.h"

static inline int cpython_is_finalizing(void) { return _Py_IsFinalizing(); }

/* The mark is the interpreter's: the running thread state sees it, whichever that is. */
static inline void cpython_look_for_signals(PyThreadState *ts) { (void)ts; }

static inline void cpython_reset(PyThreadState *ts) { (void)ts; }

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->exc_info == &ts->exc_state;
}
