/* Free-threaded Python 3.15. */
#include "since_3.14t.h"

/* The goroutines of a thread share it: nothing is written there. */
static inline struct _PyInterpreterFrame *bottom_frame(PyThreadState *ts) { return ts->base_frame; }

#include "free.h"
