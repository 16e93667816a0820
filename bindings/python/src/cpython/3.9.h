/* Python 3.9 and 3.10. */
#include "slot.h"

static inline int cpython_is_clean(PyThreadState *ts)
{
    return ts->dict == NULL && ts->exc_info == &ts->exc_state && ts->recursion_depth == 0;
}
