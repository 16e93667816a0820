/* Python 3.11. */
#include "slot.h"

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->exc_info == &ts->exc_state;
}
