/* Free-threaded Python 3.14. */
#include "since_3.14t.h"

static inline struct _PyInterpreterFrame *bottom_frame(PyThreadState *ts)
{
    (void)ts;
    return NULL;
}

#include "free.h"
